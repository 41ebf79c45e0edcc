"""The first step of `make run` on the real release: what the contract of numexpr says, and that its evidence holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lpcl import model as m
from lpcl.corpus import Entry, load_entry
from lpcl.format import format_text
from lpcl.parse import parse
from synth.evidence import read_jsonl, verify
from synth.fetch import fetch
from synth.indexes import index_config
from synth.targets import parse_target

BIN = Path(sys.executable).parent
TARGET = "numexpr==2.14.2"

pytestmark = pytest.mark.index


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The command of the Makefile, in a folder of its own; its JSON result."""
    cwd = tmp_path_factory.mktemp("run")
    command = [BIN / "syspilot", "synth", TARGET, "--out", "contracts", "--cache", "cache", "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (result,) = json.loads(done.stdout)["results"]
    return cwd, result


@pytest.fixture(scope="module")
def entry(run):
    loaded = load_entry(run[0] / "contracts/numexpr")
    assert isinstance(loaded, Entry), loaded
    return loaded


@pytest.fixture(scope="module")
def contract(entry):
    return entry.contract


def test_the_makefile_runs_this():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    assert f"synth {TARGET} " in makefile


def test_the_result(run):
    cwd, result = run
    assert (result["name"], result["version"], result["kind"]) == ("numexpr", "2.14.2", "sdist")
    assert result["verified"] == "index"
    assert result["folder"] == "contracts/numexpr"
    assert (result["error"], result["nothing"], result["dropped"]) == (None, "", [])
    assert [p.name for p in (cwd / "contracts").iterdir()] == ["numexpr"]


def test_it_parses_and_checks_clean(run, entry):
    cwd, _ = run
    assert entry.diagnostics == ()
    text = (cwd / "contracts/numexpr/contract.lpcl").read_text()
    assert parse(text).file.contracts == (entry.contract,)
    assert format_text(text) == (text, ()), "what is written is in canonical form"
    done = subprocess.run(
        [BIN / "lpcl", "check", "contracts"], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1 contract: 0 errors, 0 warnings\n")


def test_the_evidence_holds_against_a_fresh_unpack(run, entry, tmp_path):
    cwd, result = run
    release = fetch(parse_target(TARGET), config=index_config(), cache_dir=cwd / "cache", work_dir=tmp_path)
    assert release.sha256 == result["sha256"]
    evidence = read_jsonl(cwd / "contracts/numexpr/evidence.jsonl")
    assert len(evidence) == result["evidence"]
    assert verify(evidence, release.root) == []
    assert {e.source_sha256 for e in evidence} == {release.sha256}
    known = {e.id for e in evidence}
    for clause in entry.contract.clauses:
        assert clause.evidence, m.clause_label(clause)
        assert set(clause.evidence) <= known, m.clause_label(clause)
    # and the check can fail
    file = release.root / evidence[0].seen.file
    file.write_bytes(b"\n" + file.read_bytes())
    assert verify(evidence, release.root) != []


def test_the_subject(contract):
    assert contract.name == "numexpr"
    assert contract.packages == (m.Package("numexpr", "==2.14.2"),)


def test_the_number_of_threads(contract):
    threads = contract.control("threads")
    assert [(w.kind, w.name, w.binding) for w in threads.ways] == [
        ("env", "NUMEXPR_NUM_THREADS", "import"),
        ("env", "OMP_NUM_THREADS", "import"),
        ("call", "numexpr.set_num_threads", "call"),
    ]
    assert threads.ways[2].parameters == ("nthreads",)
    assert (threads.type.name, threads.combine) == ("int", "first_set")
    assert m.Ref(("workers", "amount")) in threads.bounds


def test_the_most_threads(contract):
    (most,) = [c for c in contract.controls if "NUMEXPR_MAX_THREADS" in c.env_names()]
    assert [(w.name, w.binding) for w in most.ways] == [("NUMEXPR_MAX_THREADS", "import")]
    assert most.default == m.Number(64)


def test_the_pool(contract):
    (pool,) = contract.demands
    assert pool.resource.name == "cpu.threads"
    assert pool.amount == m.Ref(("threads",))
    assert (pool.runs, pool.scope, pool.fork) == ("native", "process", "recreated")
    assert [(i.mode, i.condition) for i in pool.idle] == [("block", None)]


def test_the_signal(contract):
    (signal,) = contract.signals
    assert signal.read == m.Read("call", ("numexpr.get_num_threads",))
    assert signal.observes == (m.Ref(("workers", "amount")),)


def test_what_it_does_not_look_at(contract):
    (assumption,) = contract.assumptions
    assert {r.name for r in assumption.ignores} == {"machine.affinity", "machine.quota"}
    assert "machine.online" in {f.name for s in assumption.sizes for f in s.facts}


def test_what_is_no_control(run, contract):
    rejected = {r["name"]: r for r in run[1]["rejected"]}
    assert rejected["NUMEXPR_SANITIZE"]["why"] == "it changes behaviour or checks, not the use of resources"
    assert rejected["NUMBER_OF_PROCESSORS"]["why"].startswith("provided by the operating system")
    assert all(r["place"] for r in rejected.values())
    assert not set(rejected) & {w.name for c in contract.controls for w in c.ways}


def test_explain_shows_the_lines(run):
    cwd, _ = run
    command = [BIN / "syspilot", "synth", "--explain", "numexpr.threads", "--out", "contracts"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'env "NUMEXPR_NUM_THREADS" read import' in done.stdout
    assert "numexpr/utils.py:" in done.stdout
    assert "os.environ['NUMEXPR_NUM_THREADS']" in done.stdout.replace('"', "'")


def test_a_second_run_from_the_cache_writes_the_same(run, tmp_path):
    cwd, _ = run
    command = [BIN / "syspilot", "synth", TARGET, "--out", tmp_path / "again", "--cache", "cache", "--offline"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("contract.lpcl", "evidence.jsonl", "METADATA.toml"):
        assert (tmp_path / "again/numexpr" / name).read_bytes() == (cwd / "contracts/numexpr" / name).read_bytes()
