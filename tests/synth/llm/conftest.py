"""Clients of a scripted server."""

import pytest

from synth.llm.attempts import AttemptLog
from synth.llm.cassette import Cassette, Mode
from synth.llm.client import Client
from synth.llm.config import LlmConfig
from synth.llm.ledger import Ledger
from tests.synth.llm.scripted import KEY, PRICES, FakeClock, Scripted


@pytest.fixture
def site():
    found = Scripted()
    yield found
    found.close()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def make(site, clock, tmp_path):
    """Make clients of the scripted server."""
    made = []

    def client(mode=Mode.OFF, *, prices=PRICES, clock=clock, **settings):
        values = {"base_url": site.url, "api_key": KEY, "model": "m", "read_s": 30.0} | settings
        config = LlmConfig.model_validate(values)
        ledger = Ledger(prices, max_tokens=config.max_tokens, max_cost=config.max_cost)
        log = AttemptLog(tmp_path / "attempts.jsonl", config.redact)
        made.append(Client(config, Cassette(tmp_path / "recordings", mode), ledger, log, clock=clock))
        return made[-1]

    yield client
    for found in made:
        found.close()
