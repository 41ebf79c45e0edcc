"""A run from end to end: questions by their answers, whole contracts, recordings, and the report."""

import json
from pathlib import Path

import pytest

from synth.llm.answers import Asked, ControlAnswer, SummaryAnswer
from synth.llm.cassette import Mode
from synth.llm.client import Ask
from synth.llm.config import LlmConfig
from synth.llm.contracts import ContractForm, grammar, read_contract
from synth.llm.outcome import Answer, FailureKind
from synth.llm.reply import BadReplyError
from synth.llm.session import question, report, session
from synth.llm.templates import render
from synth.records import SynthError
from tests.synth.llm.scripted import GOOD, FakeClock, completion
from tests.synth.llm.test_templates import evidence, given_to

ROOT = Path(__file__).parents[3]
CONTRACT = (ROOT / "corpus/joblib/contract.lpcl").read_text()
ALONE = """lpcl 1

contract demo {
  package "demo"

  demand cache: memory.bytes {
    amount 1MiB
    evidence e1
  }
}
"""
BY_ID = GOOD | {"kind_evidence": ["e00000001"], "default_evidence": []}


@pytest.fixture
def config(site, tmp_path):
    return LlmConfig(base_url=site.url, model="m", cache=tmp_path / "recordings")


def control(name="DEMO_THREADS", **more):
    return question(ControlAnswer, "demo", {"name": name, "known": []}, [evidence(1), evidence(2)], **more)


def test_a_run_and_its_replay(site, config, tmp_path):
    site.script = [completion(json.dumps(BY_ID))]
    with session(config, Mode.RECORD, folder=tmp_path / "out") as client:
        first = client.ask_all([control(), control("DEMO_CACHE")])
        lines = report(client)
    assert [o.value.kind for o in first] == ["threads", "threads"]
    assert lines[0] == f"recordings: {tmp_path / 'recordings'} (record): 0 used, 2 missing, 2 kept"
    assert "demo: 2 questions, 2 requests (0 retries), 0 replayed, 0 failed; 200 + 40 tokens" in lines[1]
    assert lines[1].endswith("0.0000 USD and 240 tokens without a price")
    assert "price not known: m" in lines
    assert lines[-1] == f"attempts: {tmp_path / 'out/attempts.jsonl'} (2)"
    with session(config, Mode.REPLAY) as client:
        again = client.ask_all([control(), control("DEMO_CACHE")])
        assert "2 used, 0 missing" in report(client)[0]
    assert [o.value for o in again] == [o.value for o in first]
    assert len(site.requests) == 2


def test_only_evidence_that_the_prompt_shows_can_be_cited(site, config):
    site.script = [completion(json.dumps(BY_ID | {"kind_evidence": ["e00000003"]}))]
    with session(config, Mode.OFF, clock=FakeClock()) as client:
        outcome = client.ask(control())
    assert outcome.kind is FailureKind.INVALID
    schema = site.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["kind_evidence"]["items"]["enum"] == ["e00000001", "e00000002"]


def test_a_check_of_the_caller_s(site, config):
    site.script = [completion(json.dumps(BY_ID))]
    with session(config.model_copy(update={"reasks": 0}), Mode.OFF) as client:
        outcome = client.ask(control(check=lambda answer: [f"`{answer.default_text}` is made up"]))
    assert (outcome.kind, outcome.message) == (FailureKind.REJECTED, "`4` is made up")


def test_without_a_model_nothing_starts(config):
    nameless = config.model_copy(update={"model": ""})
    with pytest.raises(SynthError, match="no model is named"), session(nameless, Mode.OFF):
        pass


def test_a_limit_of_cost_needs_a_price(site, config, tmp_path):
    limited = config.model_copy(update={"max_cost": 1.0, "prices": tmp_path / "prices.toml"})
    with session(limited, Mode.OFF) as client:
        assert client.ask(control()).kind is FailureKind.BUDGET
    (tmp_path / "prices.toml").write_text("[models.m]\ninput = 1\noutput = 1\n")
    site.script = [completion(json.dumps(BY_ID))]
    with session(limited, Mode.OFF) as client:
        assert isinstance(client.ask(control()), Answer)
        assert client.ledger.report().total.cost == pytest.approx(120 / 1e6)


def test_a_server_on_this_machine_is_not_free_by_that_alone(config):
    with session(config.model_copy(update={"max_cost": 1.0}), Mode.OFF) as client:
        assert "is not known" in client.ask(control()).message
    ours = config.model_copy(update={"max_cost": 1.0, "identity": "gguf:0", "base_url": "http://127.0.0.1:9/v1"})
    with session(ours.model_copy(update={"tries": 1}), Mode.OFF) as client:
        assert client.ask(control()).kind is FailureKind.CONNECTION


def test_an_answer_of_no_task():
    class Other(Asked):
        pass

    with pytest.raises(ValueError, match="no task has the answer `Other`"):
        question(Other, "demo", {}, [])
    assert question(SummaryAnswer, "demo", {"controls": [], "pools": []}, []).prompt.task == "summary"


# ------------------------------------------------------------------- whole contracts


def ask_contract(config, check=None):
    values = given_to("contract", guided=ContractForm.guided(config))
    shown = render("contract", values, evidence=[evidence(1)])
    return Ask("demo", shown, ContractForm(check), max_output_tokens=4000)


def test_a_contract_in_json(site, config):
    site.script = [completion(json.dumps({"lpcl": ALONE}))]
    with session(config, Mode.OFF) as client:
        outcome = client.ask(ask_contract(config))
    assert outcome.value.name == "demo"
    assert "response_format" in site.requests[0]
    assert "Answer with one JSON object" in site.requests[0]["messages"][1]["content"]


def test_a_contract_under_the_grammar(site, config):
    guided = config.model_copy(update={"grammar": "llguidance"})
    site.script = [completion(ALONE)]
    with session(guided, Mode.OFF) as client:
        outcome = client.ask(ask_contract(guided))
    assert outcome.value.name == "demo"
    sent = site.requests[0]
    assert sent["grammar"] == f"%llguidance {{}}\n{grammar()}"
    assert "response_format" not in sent
    assert "Answer with the contract as text" in sent["messages"][1]["content"]


def test_what_parser_and_checker_find_goes_back(site, config):
    wrong = ALONE.replace("1MiB", "threads")
    site.script = [completion(ALONE.replace("amount", "amout")), completion(json.dumps({"lpcl": wrong}))]
    with session(config, Mode.OFF) as client:
        outcome = client.ask(ask_contract(config))
    assert outcome.kind is FailureKind.INVALID
    assert "line 7" in outcome.complaints[0]
    assert "LP108" in outcome.complaints[1]
    assert outcome.complaints[0] in site.requests[1]["messages"][-1]["content"]


def test_a_shipped_contract_is_read():
    assert read_contract(CONTRACT).name == "joblib"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1"),
        ("lpcl 1", "line 1"),
        ('lpcl 9\ncontract a { package "a" }', "line 1"),
        (ALONE + ALONE.removeprefix("lpcl 1").replace("demo", "other"), "2 contracts"),
        (ALONE.replace("demo {", 'demo {\n  control x: int { env "LD_PRELOAD" read load evidence e1 }'), "LD_PRELOAD"),
        ("x" * 100_000, "line 1"),
    ],
)
def test_texts_that_are_no_contract(text, words):
    with pytest.raises(BadReplyError) as caught:
        read_contract(text)
    assert words in str(caught.value)
