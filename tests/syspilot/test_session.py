"""The runs of a session: counted, kept, judged."""

import json
import math
import os
import re
import sys
from pathlib import Path

import pytest

from syspilot.app import Application, parse_tunable
from syspilot.hypotheses import derive
from syspilot.records import Disturbance, Run, Usage
from syspilot.session import ApplicationError, Options, Session
from tests.syspilot.apps import made_up

APPS = Path(__file__).parent / "apps"
PYTHON = (sys.executable, "-S", "-E")  # starts quickly
SECONDS = re.compile(r"seconds ([0-9.]+)")


def real(tmp_path, *arguments, script="knob.py", tunables=(), **options):
    application = Application((*PYTHON, str(APPS / script), *arguments), tuple(tunables))
    options = {"metric": SECONDS, "cwd": tmp_path, **options}
    return Session(application, made_up.entries(), made_up.machine(), dict(os.environ), Options(**options))


# ------------------------------------------------------------------ measuring


def test_each_run_is_one_line_of_the_history(tmp_path):
    history = tmp_path / "deep" / "history.jsonl"
    session = real(tmp_path, "--crash-at", "2", tunables=[parse_tunable("KNOB=1..3", "env")], history=history)
    session.measure({}, "profile")
    session.measure({"KNOB": "1"}, "screen")
    session.measure({"KNOB": "2"}, "screen")
    lines = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
    assert [x["phase"] for x in lines] == ["profile", "screen", "screen"]
    runs = [Run.model_validate(x["run"]) for x in lines]
    assert [r.configuration for r in runs] == [{}, {"KNOB": "1"}, {"KNOB": "2"}]
    assert [r.status for r in runs] == ["ok", "ok", "failed"]
    assert [r.metric for r in runs] == [4.0, 2.5, None]
    slim = [r.model_copy(update={"threads": ()}) for _, r in session.runs]
    assert [r.model_copy(update={"threads": ()}) for r in runs] == slim
    real(tmp_path, history=history).measure({}, "profile")
    assert len(history.read_text("utf-8").splitlines()) == 4, "it is only ever added to"


def test_what_is_shown_of_each_run(tmp_path):
    events = []
    session = real(tmp_path, "--crash-at", "2", max_runs=7)
    session.notify = events.append
    session.measure({}, "profile")
    session.measure({"KNOB": "2"}, "screen")
    assert [(e.kind, e.run, e.of) for e in events] == [("run", 1, 7), ("result", 1, 7), ("run", 2, 7), ("result", 2, 7)]
    assert "default: 4" in events[1].text
    assert "KNOB=2: failed" in events[3].text
    assert "knob 2 is out of range" in events[3].text
    assert session.left == 5


def test_a_hung_run_is_data_and_leaves_nothing(tmp_path):
    session = real(tmp_path, "--hang-at", "3", timeout_s=1.0)
    run = session.measure({"KNOB": "3"}, "screen")
    assert (run.status, run.metric) == ("timeout", None)
    assert run.cause
    assert session.objective(run) is None
    assert session.values({"KNOB": "3"}) == []


def test_the_limit_follows_the_default():
    session = made_up.session(lambda *_: made_up.run(wall_s=3.0))
    assert session._timeout() == 900.0
    session.measure({"X": "1"}, "screen")
    assert session._timeout() == 900.0, "only the default counts"
    session.measure({}, "profile")
    assert session._timeout() == pytest.approx(30.0)
    quick = made_up.session(lambda *_: made_up.run(wall_s=0.01))
    quick.measure({}, "profile")
    assert quick._timeout() == 10.0
    assert made_up.session(lambda *_: made_up.run(), timeout_s=2.5)._timeout() == 2.5


def test_the_objective():
    timed = made_up.session(lambda *_: made_up.run())
    assert timed.objective(made_up.run(wall_s=1.5, metric=9.0)) == 1.5
    printed = made_up.session(lambda *_: made_up.run(), metric=SECONDS)
    assert printed.objective(made_up.run(wall_s=1.5, metric=9.0)) == 9.0
    assert printed.objective(made_up.run(status="failed", metric=9.0)) is None


def test_better_and_gain():
    down = made_up.session(lambda *_: made_up.run())
    assert down.better(1.0, 2.0)
    assert down.gain(4.0, 2.0) == 2.0
    up = made_up.session(lambda *_: made_up.run(), maximise=True)
    assert up.better(2.0, 1.0)
    assert up.gain(2.0, 4.0) == 2.0
    assert down.gain(1.0, 0.0) == math.inf


def test_the_representative_run_is_the_middle_one():
    values = iter([5.0, 1.0, 2.0, 9.0])
    session = made_up.session(lambda *_: made_up.run(wall_s=next(values)))
    for _ in range(3):
        session.measure({}, "confirm")
    session.measure({"X": "1"}, "confirm")
    assert session.representative({}).wall_s == 2.0
    assert session.representative({"X": "1"}).wall_s == 9.0
    assert session.representative({"Y": "1"}) is None


def test_other_programs_disturb():
    quiet, busy, stolen = (Disturbance(others_share=a, steal_share=b) for a, b in ((0.05, 0.05), (0.2, 0), (0, 0.2)))
    assert not Session.disturbed(made_up.run(disturbance=quiet))
    assert Session.disturbed(made_up.run(disturbance=busy))
    assert Session.disturbed(made_up.run(disturbance=stolen))


# ------------------------------------------------------------------ profiling


@pytest.mark.parametrize(
    ("manner", "options", "message", "help_text"),
    [
        ("exit", {}, "the application failed: exited with code 3", "run it without syspilot"),
        ("hang", {"timeout_s": 1.0}, "did not end within 1 s", "--timeout"),
        ("quiet", {}, "printed nothing that matches `seconds", "--metric"),
        ("fork-away", {}, "forks away: it ended and left 1 process", "foreground"),
    ],
)
def test_an_application_that_does_not_run(tmp_path, manner, options, message, help_text):
    session = real(tmp_path, manner, script="misbehave.py", **options)
    with pytest.raises(ApplicationError) as caught:
        session.profile()
    assert message in str(caught.value)
    assert help_text in caught.value.help
    assert len(session.runs) == 1
    assert caught.value.run is session.runs[0][1]


def test_a_program_that_does_not_exist(tmp_path):
    application = Application((str(tmp_path / "nowhere"),))
    session = Session(application, (), made_up.machine(), dict(os.environ), Options())
    with pytest.raises(ApplicationError, match="could not be started"):
        session.profile()


def test_profiling_matches_contracts_and_composes():
    result = made_up.run([made_up.process(100, [made_up.OPENBLAS])], made_up.threads(100, 2))
    found = made_up.situation(result, environ={"OPENBLAS_NUM_THREADS": "1"})
    assert [r.contract.name for r in found.system.members] == ["openblas"]
    assert found.system.pools[0].amount == 1.0
    assert found.pids("openblas") == {100}
    assert set(found.entries) == {"openblas"}


def test_facts_have_the_names_of_the_language():
    facts = made_up.machine(cores=4, quota=1.5).values()
    assert (facts["affinity"], facts["quota"], facts["cores"], facts["gpus"]) == (4, 1.5, 2, None)


# ------------------------------------------------------------------- verdicts


def verdict(default, remedy):
    """The verdict on two spinning pools, from (wall seconds, CPU seconds) without and with a remedy."""
    libraries = (made_up.OPENBLAS, made_up.LIBGOMP)

    def answer(configuration, _):
        wall_s, cpu_s = remedy if configuration else default
        processes, traces = [made_up.process(100, libraries)], made_up.threads(100, 4)
        reports = [made_up.inside(100, libraries=libraries)]
        return made_up.run(processes, traces, reports, wall_s=wall_s, usage=Usage(user_s=cpu_s))

    session = made_up.session(answer)
    hypothesis = derive(session.profile())[0]
    assert session.conflict(hypothesis).verdict == "undecided", "nothing was tried yet"
    session.measure(hypothesis.remedies[0].configuration, "intervene")
    return session.conflict(hypothesis)


@pytest.mark.parametrize(
    ("default", "remedy", "expected"),
    [
        ((4.0, 8.0), (1.0, 2.0), "confirmed"),
        ((4.0, 8.0), (4.0, 8.0), "refuted"),
        ((4.0, 8.0), (5.0, 8.0), "refuted"),
        ((4.0, 8.0), (1.0, 8.0), "undecided"),  # faster, but not for the reason that was claimed
        ((4.0, 8.0), (3.8, 2.0), "undecided"),
    ],
)
def test_an_intervention_decides(default, remedy, expected):
    conflict = verdict(default, remedy)
    assert conflict.verdict == expected
    assert conflict.figures["objective_ratio"] == pytest.approx(default[0] / remedy[0], abs=1e-3)
    assert conflict.figures["cpu_seconds_ratio"] == pytest.approx(default[1] / remedy[1], abs=1e-3)
    assert conflict.remedy == conflict.remedies[0]


def test_figures_can_be_written_as_json():
    conflict = verdict((4.0, 8.0), (1.0, 0.0))
    assert conflict.figures["cpu_seconds_ratio"] == "inf"
    json.loads(conflict.model_dump_json())
