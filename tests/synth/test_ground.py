"""A clause stays if what it cites exists and speaks of it; what refers to a dropped one still checks clean."""

import pytest

from lpcl import format as fmt
from lpcl import model as m
from lpcl.check import check
from lpcl.parse import parse
from synth.draft import draft
from synth.evidence import collect
from synth.ground import ground
from synth.records import Evidence, Kind, Observation, Release
from synth.walk.tree import walk_release


def evidence(number, name, text, kind=Kind.ENV_READ):
    seen = Observation(kind=kind, name=name, file="pkg/a.py", line=number, end_line=number, text=text, sha256="0" * 64)
    return Evidence(id=f"e{number}", rank=0.9, source="pkg==1.0:pkg", seen=seen)


FOUND = [
    evidence(1, "PKG_NUM_THREADS", 'n = int(os.environ["PKG_NUM_THREADS"])'),
    evidence(2, "OMP_NUM_THREADS", 'or int(os.environ["OMP_NUM_THREADS"])'),
    evidence(3, "pkg.set_num_threads", "def set_num_threads(n):", Kind.API_SET),
    evidence(4, "pthread_create", "pthread_create(&t, 0, work, 0);", Kind.POOL),
    evidence(5, "pkg.get_num_threads", "def get_num_threads():", Kind.API_GET),
    evidence(6, "pkg.Runner(n_jobs=)", "def __init__(self, n_jobs=1):", Kind.PARAM),
    evidence(7, "MKL_NUM_THREADS", 'os.environ["MKL_NUM_THREADS"] = "1"', Kind.ENV_WRITE),
    evidence(8, "OMP_NUM_THREADS", 'os.environ["OMP_NUM_THREADS"] = "1"', Kind.ENV_WRITE),
]
TEXT = """
lpcl 1
contract pkg {
  package "pkg"
  demand workers: cpu.threads {
    amount threads
    created import
    scope process
    idle block
    runs native
    fork unknown
    evidence e4
  }
  assume machine_seen { sizes cpu.threads from machine.online evidence e4 }
  control threads: int {
    default 4
    env "PKG_NUM_THREADS" read import
    env "OMP_NUM_THREADS" read import
    call pkg.set_num_threads(n) at call
    combine first_set
    bounds workers.amount
    evidence e1, e2, e3
  }
  control jobs: int { default threads param pkg.Runner(n_jobs) at call evidence e6 }
  signal size: gauge { read call pkg.get_num_threads() observes workers.amount evidence e5 }
  mitigate cap { sets env "MKL_NUM_THREADS", "OMP_NUM_THREADS" to threads in process evidence e7, e8 }
}
"""


def contract(text=TEXT):
    parsed = parse(text)
    assert parsed.ok, parsed.diagnostics
    return parsed.file.contracts[0]


def kept(text):
    """Ground a contract; what is left must check without an error."""
    result, problems = ground(contract(text), FOUND)
    again = parse(fmt.file_text(m.File(m.LANGUAGE_VERSION, (result,))))
    assert again.ok
    assert [(d.rule, d.message) for d in check(again.file) if d.severity == "error"] == []
    return result, {p.clause: p.why for p in problems}


def test_what_is_carried_stays():
    before = contract()
    result, problems = ground(before, FOUND)
    assert result == before
    assert problems == ()


def test_an_empty_contract():
    assert ground(m.Contract("x"), []) == (m.Contract("x"), ())


@pytest.mark.parametrize(
    ("old", "new", "clause", "why"),
    [
        ("evidence e4\n", "evidence e9\n", "demand workers", "it cites `e9`, which does not exist"),
        ("evidence e4\n", "evidence e4, e9\n", "demand workers", "it cites `e9`, which does not exist"),
        ("evidence e4\n", "", "demand workers", "it cites no evidence"),
        ("evidence e4 }", "}", "assume machine_seen", "it cites no evidence"),
        ("e1, e2, e3", "e1, e2", "control threads", "no cited line speaks of `pkg.set_num_threads`"),
        ("e1, e2, e3", "e1, e3", "control threads", "no cited line speaks of `OMP_NUM_THREADS`"),
        ("e1, e2, e3", "e4", "control threads", "no cited line speaks of `PKG_NUM_THREADS`"),
        ('"PKG_NUM_THREADS"', '"PKG_THREADS_NUM"', "control threads", "no cited line speaks of `PKG_THREADS_NUM`"),
        ("pkg.set_num_threads", "pkg.set_threads", "control threads", "no cited line speaks of `pkg.set_threads`"),
        ("evidence e6", "evidence e1", "control jobs", "no cited line speaks of `pkg.Runner`"),
        ("Runner(n_jobs)", "Runner(workers)", "control jobs", "no cited line speaks of `workers`"),
        ("evidence e5", "evidence e3", "signal size", "no cited line speaks of `pkg.get_num_threads`"),
        ("pkg.get_num_threads()", "pkg.get_size()", "signal size", "no cited line speaks of `pkg.get_size`"),
        ("evidence e7, e8", "evidence e7", "mitigate cap", "no cited line speaks of `OMP_NUM_THREADS`"),
        ("evidence e7, e8", "", "mitigate cap", "it cites no evidence"),
    ],
)
def test_what_is_not_carried_is_dropped(old, new, clause, why):
    assert TEXT.count(old) == 1
    result, problems = kept(TEXT.replace(old, new))
    assert problems.pop(clause) == why
    # what observes a dropped demand may go too; nothing else does
    assert set(problems) <= ({"signal size"} if clause == "demand workers" else set())
    labels = [m.clause_label(c) for c in contract().clauses]
    assert [m.clause_label(c) for c in result.clauses] == [x for x in labels if x not in {clause, *problems}]


def test_what_refers_to_a_dropped_demand():
    result, _ = kept(TEXT.replace("evidence e4\n", "evidence e9\n"))
    assert result.control("threads").bounds == ()


def test_a_signal_of_a_dropped_demand():
    result, _ = ground(contract(TEXT.replace("evidence e4\n", "evidence e9\n")), FOUND)
    assert [d.message for d in check(m.File(m.LANGUAGE_VERSION, (result,)))] == []


def test_what_refers_to_a_dropped_control():
    result, problems = kept(TEXT.replace("evidence e1, e2, e3", "evidence e9"))
    assert set(problems) == {"control threads"}
    assert result.demand("workers").amount == m.Unknown()
    assert result.control("jobs").default == m.Unknown()
    assert result.mitigations[0].value == m.Unknown()
    # what has nothing to do with it is left as it was
    assert result.signals == contract().signals


def test_everything_dropped():
    result, problems = ground(contract(), [])
    assert result.clauses == ()
    assert len(problems) == len(contract().clauses)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    default 4\n", "    default 4\n    range 1 to jobs\n"),
        ("    default 4\n", "    default 4\n    effective min(value, jobs)\n"),
        ("    default 4\n", "    default 4\n    when jobs > 1\n"),
        ("    default 4\n", "    default 4\n    requires jobs > 1\n"),
        ("    default 4\n", "    default 4\n    special 0 means jobs\n"),
        ('"PKG_NUM_THREADS" read import', '"PKG_NUM_THREADS" read import if jobs > 1'),
        ("    idle block\n", "    idle spin if jobs > 1\n    idle block\n"),
        ("    fork unknown\n", "    fork unknown\n    when jobs > 1\n"),
        ("machine.online evidence", "machine.online requires jobs < 4 evidence"),
        ("to threads in process", "to threads in process when jobs > 1"),
    ],
)
def test_every_kind_of_reference_to_a_dropped_clause(old, new):
    assert TEXT.count(old) == 1
    text = TEXT.replace(old, new).replace("evidence e6", "evidence e9").replace("default threads ", "")
    result, problems = kept(text)
    assert "control jobs" in problems
    assert result.control("jobs") is None


@pytest.mark.parametrize("name", ["NUM_THREADS", "PKG_NUM", "THREADS"])
def test_a_part_of_a_name_is_another_name(name):
    result, problems = kept(TEXT.replace('"PKG_NUM_THREADS"', f'"{name}"'))
    assert problems == {"control threads": f"no cited line speaks of `{name}`"}
    assert result.control("threads") is None


def test_no_draft_of_the_rules_is_refused(tmp_path):
    source = '''\
import os
from concurrent.futures import ThreadPoolExecutor

LIMIT = 64
PREFIX = "PKG_"
most = int(os.environ.get(PREFIX + "MAX_THREADS", LIMIT))
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
threads = int(os.environ.get("PKG_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or os.cpu_count())


class Runner:
    """Runs.

    Args:
        n_jobs: how many, as PKG_NUM_THREADS.
    """

    def __init__(self, n_jobs=1):
        self.pool = ThreadPoolExecutor(n_jobs)


def set_num_threads(n):
    global threads
    threads = n


def get_num_threads():
    return threads
'''
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text(source)
    release = Release(
        name="pkg",
        version="1.0",
        root=tmp_path,
        kind="folder",
        filename="pkg",
        sha256="0" * 64,
        verified="unverified",
        location="pkg",
    )
    found = collect(walk_release(release))
    made = draft("pkg", "1.0", found).contract
    assert {w.name for c in made.controls for w in c.ways} >= {"PKG_MAX_THREADS", "PKG_NUM_THREADS", "pkg.Runner"}
    assert made.mitigations
    assert ground(made, found) == (made, ())
