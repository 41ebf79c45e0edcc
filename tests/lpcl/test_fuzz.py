"""A short run of the fuzzer, and proof that it would see what it looks for."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis.extra.lark import from_lark

from evaluation.fuzz import BOMBS, Plan, Problem, examine, make_case, run, shrink
from evaluation.fuzz.__main__ import Progress
from evaluation.fuzz.derive import clause
from evaluation.fuzz.models import Models
from evaluation.fuzz.texts import SHARES, inside
from lpcl.format import file_text
from lpcl.parse import parse, parser

ROOT = Path(__file__).resolve().parents[2]
FUZZ = [sys.executable, "-m", "evaluation.fuzz"]


def test_no_text_of_a_short_run_breaks_the_language():
    report = run(Plan(seed=1, cases=2000, largest=5_000))
    assert {name: f.text for name, f in report.findings.items()} == {}
    assert report.cases == 2000
    assert min(report.kinds[k] for k in ("tokens", "bytes", "grammar", "model", "words", "splicing", "comments")) > 40
    assert min(report.parts[k] for k in SHARES) > 5


def test_every_bomb_ends_in_time_and_without_an_exception():
    for name, make in BOMBS.items():
        for size in (0, 3_000):
            assert examine(make(size), frozenset({"annotations", "diff"})) == [], name


def test_a_derived_clause_is_one_of_the_language():
    # What is wrong with it, if anything, is what the grammar cannot say: the same twice, a number without an end.
    rules = {d.rule for seed in range(300) for d in parse(inside(clause(random.Random(seed)))).diagnostics}
    assert rules <= {"LP003", "LP005", "LP006"}


def test_a_random_model_is_printed_as_itself():
    for seed in range(200):
        file = Models(random.Random(seed)).file()
        assert parse(file_text(file)).file == file


@settings(max_examples=60, deadline=None)
@given(from_lark(parser(), start="clause"))
def test_whatever_the_grammar_derives_holds(text):
    assert examine(inside(text)) == []


def test_a_case_depends_on_its_number_only():
    for index in range(40):
        assert make_case(3, index, 1000) == make_case(3, index, 1000)
    assert make_case(3, 0, 1000) != make_case(4, 0, 1000)


def fragile(text, _parts):
    """Stands for a language with three bugs."""
    if text == KILLS:
        os.kill(os.getpid(), signal.SIGKILL)
    if text == HANGS:
        time.sleep(60)
    return [Problem("word", "idle")] if "idle" in text else []


def word(text, _parts):
    """Stands for a language with one bug."""
    return [Problem("word", "idle")] if "idle" in text else []


KILLS, HANGS = (make_case(1, index, 1000).text for index in (5, 30))


def test_hangs_crashes_and_problems_are_found_and_cut_down():
    report = run(Plan(seed=1, cases=60, largest=1000, look=fragile, limit=lambda _: 0.3))
    by_kind = {name.split("-")[0]: finding for name, finding in report.findings.items()}
    assert set(by_kind) == {"word", "died", "hang"}
    assert by_kind["word"].text == "idle"
    assert (by_kind["died"].text, by_kind["died"].index) == (KILLS, 5)
    assert (by_kind["hang"].text, by_kind["hang"].index) == (HANGS, 30)
    assert report.repeats["word"] > 1


def test_a_time_is_kept():
    report = run(Plan(seed=1, seconds=0.5, largest=1000))
    assert report.cases > 0
    assert report.seconds < 10


def test_shrinking_keeps_what_matters():
    assert shrink("a" * 1000 + "xyz" + "b" * 999, lambda t: "xyz" in t) == "xyz"


def test_a_finding_is_written_as_soon_as_it_is_known(tmp_path):
    progress = Progress(60, 1, tmp_path)
    report = run(Plan(seed=1, cases=60, largest=1000, look=word), progress)
    (path,) = tmp_path.iterdir()
    assert path.name == f"word-1-{report.findings['word'].index}.lpcl"
    assert path.read_text("utf-8") == "idle"


def test_a_file_is_replayed(tmp_path):
    path = tmp_path / "x.lpcl"
    path.write_bytes(b"lpcl 1 contract a { \xff")
    command = [*FUZZ, "--replay", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "21 characters, 0 findings" in done.stdout


def test_an_interrupted_run_prints_its_summary(tmp_path):
    with subprocess.Popen(
        [*FUZZ, "--out", str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        time.sleep(2)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "interrupted" in out
    assert "cases/s" in out


def test_the_recovered_clauses_of_a_damaged_text_have_offsets():
    good = '  control t: int { env "A" read load } demand d: files { amount t }'
    text = f"lpcl 1\n\n// c\ncontract a {{\n  wrong\n\n{good}\n}}\n"
    contract = parse(text).file.contracts[0]
    assert [text[c.span.start : c.span.end] for c in contract.clauses] == [
        'control t: int { env "A" read load }',
        "demand d: files { amount t }",
    ]
    reference = contract.demands[0].amount
    assert text[reference.span.start : reference.span.end] == "t"
    assert reference.span.column == text.split("\n")[6].rindex("t }") + 1
