"""Everything that a run of questions needs, put together; and questions by the answer that is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from synth.llm.answers import Asked, answer_models
from synth.llm.attempts import AttemptLog
from synth.llm.cassette import Cassette, Mode
from synth.llm.client import Ask, Client
from synth.llm.clock import Clock
from synth.llm.config import LOCAL_IDENTITY, LlmConfig, Task
from synth.llm.forms import Check, JsonForm
from synth.llm.ledger import Ledger
from synth.llm.prices import FREE, Prices, read_prices
from synth.llm.templates import render
from synth.records import Evidence, SynthError

A = TypeVar("A", bound=Asked)
ATTEMPTS = "attempts.jsonl"


@contextmanager
def session(
    config: LlmConfig, mode: Mode, *, folder: Path | None = None, clock: Clock | None = None
) -> Iterator[Client]:
    """A client with its recordings, ledger and log of attempts.

    Args:
        config: settings; recordings go to its `cache`.
        mode: how recordings are used.
        folder: where the attempts are written, `None` for nowhere.
        clock: stands in for the machine's own.

    Raises:
        SynthError: no model is named, or a file of the settings cannot be used.
    """
    if not config.model:
        raise SynthError("no model is named", help_text="give --model, set OPENAI_MODEL, or name one in syspilot.toml")
    prices = read_prices(config.prices)
    # Our own local server costs nothing. Another one on this machine may well hand requests on to a paid one.
    if config.identity.startswith(LOCAL_IDENTITY) and prices.of(config.model) is None:
        prices = Prices(currency=prices.currency, models={**prices.models, config.model: FREE})
    ledger = Ledger(prices, max_tokens=config.max_tokens, max_cost=config.max_cost)
    log = AttemptLog(folder / ATTEMPTS if folder is not None else None, config.redact)
    with Client(config, Cassette(config.cache, mode), ledger, log, clock=clock) as client:
        yield client


def question(
    model: type[A],
    library: str,
    variables: Mapping[str, Any],
    evidence: Sequence[Evidence],
    *,
    check: Check[A] | None = None,
    max_output_tokens: int = 2_000,
) -> Ask[A]:
    """A question whose answer is a `model`.

    Args:
        model: one of `answers`; it decides the template.
        library: whose account it goes on; templates get it as `library`.
        variables: what the template takes besides.
        evidence: best first; the answer can cite what of it is shown.
        check: complaints about an answer; they go back to the model, once or as often as the settings say.
        max_output_tokens: of one reply.
    """
    prompt = render(_task_of(model), {"library": library, **variables}, evidence=evidence)
    return Ask(library, prompt, JsonForm(model, prompt.evidence, check), max_output_tokens=max_output_tokens)


def _task_of(model: type[Asked]) -> Task:
    tasks: dict[type[Asked], Task] = {found: task for task, found in answer_models().items()}
    if model not in tasks:
        raise ValueError(f"no task has the answer `{model.__name__}`")
    return tasks[model]


def report(client: Client) -> list[str]:
    """Lines for the report of a run: recordings, usage, cost, and where the attempts stand."""
    lines = [client.cassette.describe(), *client.ledger.report().lines()]
    if client.log.path is not None:
        lines.append(f"attempts: {client.log.path} ({client.log.count})")
    if client.config.warning:
        lines.append(f"warning: {client.config.warning}")
    return lines
