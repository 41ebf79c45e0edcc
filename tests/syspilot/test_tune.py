"""Whole tuning sessions: real ones of tiny applications, and many simulated ones for what is a matter of chance."""

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from lpcl.compose import compose, machine_values
from lpcl.corpus import load, shipped
from lpcl.machine import Facts
from syspilot.app import Application, parse_tunable
from syspilot.records import Run
from syspilot.session import Options, Session
from syspilot.tune import doctor, tune
from tests.syspilot.apps import made_up
from tests.syspilot.processes import LIMIT_S

APPS = Path(__file__).parent / "apps"
PYTHON = (sys.executable, "-S", "-E")  # starts quickly
SYSPILOT = Path(sys.executable).with_name("syspilot")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cluster_and_project.py"
SECONDS, RATE = re.compile(r"seconds ([0-9.]+)"), re.compile(r"rate ([0-9.]+)")
KNOB = parse_tunable("KNOB=1..6", "env")
SIX = {"1", "2", "3", "4", "5", "6"}


def real(tmp_path, *arguments, tunables=(KNOB,), **options):
    """A session of the knob application on two CPUs, whatever this machine has."""
    application = Application((*PYTHON, str(APPS / "knob.py"), *arguments), tuple(tunables))
    options = {"metric": SECONDS, "cwd": tmp_path, "history": tmp_path / "history.jsonl", **options}
    environ = {k: v for k, v in os.environ.items() if k != "KNOB"}
    return Session(application, made_up.entries(), made_up.machine(), environ, Options(**options))


def by_marker(marker):
    """The processes that have this in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if marker.encode() in arguments:
            found.append(int(path.parent.name))
    return found


# -------------------------------------------------------------------- finding


@pytest.mark.parametrize("best", [1, 2, 4])
def test_the_right_value_is_found(tmp_path, best):
    session = real(tmp_path, "--best", str(best))
    decision = tune(session)
    assert decision.configuration == {"KNOB": str(best)}
    assert decision.improved
    assert decision.ratio == pytest.approx(4.0)
    low, high = decision.ci95
    assert low <= decision.ratio <= high
    assert low > 1
    assert decision.pairs >= 3
    assert decision.default.median == 4.0
    assert decision.best.median == 1.0
    assert decision.runs == len(decision.trials) == len(session.runs) <= 16
    assert [t.index for t in decision.trials] == list(range(1, decision.runs + 1))
    assert decision.trials[0].configuration == {}
    assert "pairs" in decision.reason
    lines = (tmp_path / "history.jsonl").read_text("utf-8").splitlines()
    history = [Run.model_validate(json.loads(line)["run"]) for line in lines]
    assert [(r.configuration, r.metric) for r in history] == [(t.configuration, t.objective) for t in decision.trials]


def exact(best, **options):
    """A session of a deterministic application: the knob's best value is this, and the default is not good."""

    def answer(configuration, _):
        knob = configuration.get("KNOB")
        return made_up.run(metric=4.0 if knob is None else 1 + abs(int(knob) - best) / 2)

    return tune(made_up.session(answer, tunables=[KNOB], metric=SECONDS, **options))


def test_a_value_between_the_first_ones_is_found():
    found = {(best, seed): exact(best, seed=seed).configuration for best in (3, 5, 6) for seed in range(4)}
    assert found == {(best, seed): {"KNOB": str(best)} for best, seed in found}


def test_a_small_space_is_tried_whole():
    """Case 50: all of it, the best point, and no error at the end."""
    decision = exact(3, max_runs=50)
    assert {t.configuration["KNOB"] for t in decision.trials if t.configuration} == SIX
    assert decision.configuration == {"KNOB": "3"}


def test_a_small_space_ends_normally(tmp_path):
    decision = tune(real(tmp_path, "--default", "0.5", max_runs=50))
    assert decision.configuration == {}
    assert decision.runs < 50
    tried = [t.configuration["KNOB"] for t in decision.trials if t.phase == "screen"]
    assert len(set(tried)) == len(tried), "measured twice"


def test_larger_is_better(tmp_path):
    decision = tune(real(tmp_path, "--best", "4", "--rate", metric=RATE, maximise=True))
    assert decision.configuration == {"KNOB": "4"}
    assert decision.ratio == pytest.approx(4.0, rel=1e-3)
    assert decision.default.median == pytest.approx(15.0)
    assert decision.best.median == pytest.approx(60.0)
    assert decision.maximise


def test_an_argument_of_the_application(tmp_path):
    tunable = parse_tunable("jobs=1..6:--jobs {}", "param")
    decision = tune(real(tmp_path, "--best", "2", "--jobs", "6", tunables=[tunable]))
    assert decision.configuration == {"jobs": "2"}
    assert decision.params == {"jobs": "--jobs {}"}
    assert decision.ratio == pytest.approx(3.0)


def test_a_setting_that_brings_nothing_is_not_recommended(tmp_path):
    useless = [parse_tunable(f"USELESS_{n}=1..8", "env") for n in (1, 2)]
    decision = tune(real(tmp_path, "--best", "2", tunables=[useless[0], KNOB, useless[1]], max_runs=24))
    assert decision.configuration == {"KNOB": "2"}
    (setting,) = decision.settings
    assert (setting.name, setting.value, setting.in_effect) == ("KNOB", "2", "not_observable")


def test_the_same_seed_searches_in_the_same_order(tmp_path):
    one, same = (tune(real(tmp_path, "--best", "2", seed=3)) for _ in range(2))
    assert [t.configuration for t in one.trials] == [t.configuration for t in same.trials]


@pytest.mark.parametrize("max_runs", [1, 2, 3, 5, 7, 8, 12])
def test_the_budget_is_kept(tmp_path, max_runs):
    decision = tune(real(tmp_path, "--best", "2", max_runs=max_runs))
    assert 1 <= decision.runs <= max_runs
    if not decision.configuration:
        assert decision.ratio is None
        assert not decision.improved


# ------------------------------------------------------------- nothing to gain


def test_leave_it_as_it_is(tmp_path):
    decision = tune(real(tmp_path, "--default", "0.9"))
    assert decision.configuration == {}
    assert not decision.improved
    assert (decision.ratio, decision.ci95) == (None, None)
    assert decision.reason == "none of the configurations that were tried is better"
    assert decision.best == decision.default


def test_nothing_to_tune_costs_one_run(tmp_path):
    decision = tune(real(tmp_path, tunables=()))
    assert (decision.configuration, decision.runs) == ({}, 1)
    assert "no conflict" in decision.reason


def test_a_knob_that_does_nothing_but_rattle(tmp_path):
    """A real session on noise that is the same each time."""
    decision = tune(real(tmp_path, "--noise", "7", "--count", str(tmp_path / "count")))
    assert decision.configuration == {}
    assert len({t.objective for t in decision.trials}) == decision.runs > 1


NOISE = {
    "2 %": lambda rng: rng.lognormvariate(0, 0.02),
    "8 %": lambda rng: rng.lognormvariate(0, 0.08),
    "30 %": lambda rng: rng.lognormvariate(0, 0.3),
    # What the same default gave in cases A01 (seconds) and A14 (calls a second), depending on what else ran.
    "bimodal": lambda rng: rng.choice([3.6, 3.6, 0.61, 2.95]) * rng.lognormvariate(0, 0.05),
    "recorded": lambda rng: rng.choice([299, 2056, 305, 123]) * rng.lognormvariate(0, 0.05),
    "now and then": lambda rng: rng.lognormvariate(0, 0.02) * (1 if rng.random() < 0.8 else rng.uniform(1.2, 4)),
}


def simulated(noise, seed, gain_of=lambda _: 1.0, **options):
    """A session whose runs are numbers: the search and the noise have seeds of their own."""
    rng = random.Random(f"noise {seed}")

    def answer(configuration, _):
        return made_up.run(metric=noise(rng) / gain_of(configuration.get("KNOB")))

    return tune(made_up.session(answer, tunables=[KNOB], metric=SECONDS, seed=seed, **options))


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("shape", NOISE)
def test_noise_is_hardly_ever_recommended(shape, maximise):
    """Case 40: at most 5 % of the sessions may fall for it."""
    found = [simulated(NOISE[shape], seed, maximise=maximise).configuration for seed in range(800)]
    assert sum(map(bool, found)) <= 0.05 * len(found)


def test_a_larger_budget_is_not_more_gullible():
    found = [simulated(lambda r: r.lognormvariate(0, 0.6), seed, max_runs=30).configuration for seed in range(2000)]
    assert sum(map(bool, found)) <= 0.05 * len(found)


@pytest.mark.parametrize(("shape", "gain"), [("2 %", 1.15), ("8 %", 1.5), ("30 %", 4.0)])
def test_a_gain_beyond_the_noise_is_found(shape, gain):
    decisions = [simulated(NOISE[shape], seed, lambda k: gain if k == "2" else 1.0) for seed in range(100)]
    right = [d for d in decisions if d.configuration == {"KNOB": "2"}]
    assert len(right) >= 90
    covered = [d for d in right if d.ci95[0] <= gain <= d.ci95[1]]
    assert len(covered) >= 0.85 * len(right), "the interval is a claim, too"


def test_a_drift_of_the_machine_is_no_gain():
    for slope in (0.01, 0.03, -0.01):
        numbers = iter(range(1000))
        result = tune(
            made_up.session(
                lambda *_, n=numbers, s=slope: made_up.run(metric=10 * (1 + s) ** next(n)),
                tunables=[KNOB],
                metric=SECONDS,
            )
        )
        assert result.configuration == {}


# ------------------------------------------------------------- values that fail


@pytest.mark.parametrize(
    ("how", "status", "cause"),
    [
        ("--crash-at", "failed", "knob 2 is out of range"),
        ("--hang-at", "timeout", "no end within 1.5 s"),
        ("--silent-at", "no_metric", "nothing in the output matches"),
    ],
)
def test_a_value_that_fails_is_data(tmp_path, how, status, cause):
    marker = uuid.uuid4().hex
    decision = tune(real(tmp_path, "--best", "4", how, "2", "--marker", marker, timeout_s=1.5))
    (failed,) = [t for t in decision.trials if t.configuration == {"KNOB": "2"}]
    assert (failed.status, failed.objective) == (status, None)
    assert cause in failed.cause
    assert decision.configuration == {"KNOB": "4"}, "the search went on"
    assert by_marker(marker) == []


def test_a_value_that_fails_later_is_not_recommended():
    def answer(configuration, n):
        if configuration == {"KNOB": "2"} and n > 8:
            return made_up.run(status="failed", cause="exited with code 1")
        return made_up.run(metric=0.1 if configuration == {"KNOB": "2"} else 1.0)

    decision = tune(made_up.session(answer, tunables=[KNOB], metric=SECONDS))
    assert decision.configuration == {}
    assert any(t.status == "failed" for t in decision.trials)


def test_a_default_that_fails_later_ends_the_session():
    session = made_up.session(
        lambda c, n: made_up.run(metric=0.5) if c or not n else made_up.run(status="failed", cause="x"),
        tunables=[KNOB],
        metric=SECONDS,
    )
    decision = tune(session)
    assert decision.configuration == {}
    assert decision.runs <= 16


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (-2.0, -1.0), (-1.0, -2.0)])
def test_metrics_that_are_no_ratio_are_no_crash(values, maximise):
    session = made_up.session(
        lambda c, _: made_up.run(metric=values[bool(c)]), tunables=[KNOB], metric=SECONDS, maximise=maximise
    )
    decision = tune(session)
    assert decision.configuration == {}
    json.loads(decision.model_dump_json())


# --------------------------------------------------------------------- doctor


def test_doctor_changes_nothing(tmp_path):
    decision = doctor(real(tmp_path, max_runs=4))
    assert (decision.mode, decision.configuration, decision.runs) == ("doctor", {}, 1)


def examined(max_runs, slower=1.0):
    """What doctor says of two spinning pools, whose remedies change the time by this factor."""
    libraries = (made_up.OPENBLAS, made_up.LIBGOMP)
    processes, reports = [made_up.process(100, libraries)], [made_up.inside(100, libraries=libraries)]

    def answer(configuration, _):
        return made_up.run(processes, made_up.threads(100, 3), reports, wall_s=2.0 * slower if configuration else 2.0)

    return doctor(made_up.session(answer, max_runs=max_runs))


@pytest.mark.parametrize("max_runs", [2, 3, 4])
@pytest.mark.parametrize("slower", [0.5, 0.95, 1.5])
def test_doctor_intervenes_and_keeps_to_its_runs(max_runs, slower):
    decision = examined(max_runs, slower)
    assert 2 <= decision.runs <= max_runs
    assert decision.conflicts[0].id == "two_spinning_pools:libgomp.team+openblas.workers"
    assert decision.conflicts[0].figures["remedy_runs"] >= 1
    assert decision.configuration == {}


def test_doctor_of_a_single_run_does_not_intervene():
    assert examined(1).runs == 1


# ------------------------------------------------------------------- interrupt


def interrupted(tmp_path, *options):
    """A real `syspilot tune` that gets Ctrl-C while its third run hangs: (exit code, stdout, stderr, marker)."""
    marker = uuid.uuid4().hex
    count = tmp_path / "count"
    app = [*PYTHON, APPS / "knob.py", "--default", "9", "--count", count, "--hang-from", "3", "--marker", marker]
    command = [SYSPILOT, "tune", "--metric", SECONDS.pattern, "--env", "KNOB=1..6", *options, "--", *app]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    seen, deadline = b"", time.monotonic() + LIMIT_S
    try:
        # The third run counts itself before it hangs.
        while len(list(count.glob("*"))) < 3:
            assert time.monotonic() < deadline, seen
            if select.select([process.stderr], [], [], 0.05)[0]:
                text = os.read(process.stderr.fileno(), 65536)
                assert text, f"it ended: {seen.decode()}"
                seen += text
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out.decode(), (seen + err).decode(), marker


def test_ctrl_c_stops_it_and_leaves_nothing(tmp_path):
    code, out, err, marker = interrupted(tmp_path)
    assert by_marker(marker) == []
    assert code == 130
    assert re.findall(r"^run +(\d+) .*: [\d.]+", err, re.MULTILINE) == ["1", "2"]
    assert "interrupted" in out
    assert "Traceback" not in err
    (history,) = (tmp_path / ".syspilot").glob("*/tune-history.jsonl")
    assert len(history.read_text("utf-8").splitlines()) == 2


def test_ctrl_c_with_json_prints_the_best_so_far(tmp_path):
    code, out, _, marker = interrupted(tmp_path, "--json")
    assert by_marker(marker) == []
    assert code == 130
    decision = json.loads(out)
    assert decision["interrupted"] is True
    assert decision["runs"] == 2
    assert set(decision["configuration"]) == {"KNOB"}
    assert decision["improved"] is False


def test_ctrl_c_names_the_best_so_far(tmp_path):
    _, out, err, _ = interrupted(tmp_path)
    (best,) = re.findall(r"^run +2 +(KNOB=\d)", err, re.MULTILINE)
    assert best in out
    assert "leave it as it is" not in out


def test_an_interrupt_within_a_session():
    def answer(configuration, n):
        if n == 3:
            raise KeyboardInterrupt
        return made_up.run(metric=1.0 if configuration else 2.0)

    decision = tune(made_up.session(answer, tunables=[KNOB], metric=SECONDS))
    assert decision.interrupted
    assert decision.configuration
    assert not decision.improved
    assert decision.ratio is None
    with pytest.raises(KeyboardInterrupt):  # before there is anything to tell
        tune(made_up.session(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt), metric=SECONDS))


# ----------------------------------------------------------- a real application


@pytest.mark.app
def test_a_real_application(tmp_path):
    """Conflict, configuration and settings are what they must be; nothing here depends on how fast they are."""
    pytest.importorskip("sklearn")
    unset = ("OMP_", "GOMP_", "OPENBLAS_", "GOTO_", "MKL_")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(unset)}
    command = [SYSPILOT, "tune", "--json", "--max-runs", "9", "--metric", SECONDS.pattern, "--state", tmp_path, "--"]
    app = [sys.executable, EXAMPLE, "--rounds", "4", "--rows", "1000"]
    done = subprocess.run(
        [*command, *app], env=environ, capture_output=True, text=True, timeout=10 * LIMIT_S, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    data = json.loads(done.stdout)
    keys = {"conflicts", "hazards", "configuration", "default", "best", "ratio", "ci95", "runs"}
    assert keys <= set(data)
    assert data["runs"] <= 9
    machine = Facts(**data["machine"])
    if machine.cores < 2:
        pytest.skip("one CPU: no two pools")
    assert "two_spinning_pools:libgomp.team+openblas.workers" in [c["id"] for c in data["conflicts"]]
    entries, _ = load([shipped()])
    facts = machine_values(machine.values())
    contracts = [e.contract for e in entries if e.contract.name in {"libgomp", "openblas"}]
    if data["configuration"]:
        pools = compose(contracts, facts, environ | data["configuration"]).pools
        assert len([p for p in pools if p.spins and (p.amount or 0) > 1]) <= 1
    else:
        assert data["ratio"] is None
    assert {s["name"] for s in data["settings"]} == set(data["configuration"])
    assert {s["in_effect"] for s in data["settings"]} <= {"yes", "not_observable"}
    assert {t["status"] for t in data["trials"]} == {"ok"}
