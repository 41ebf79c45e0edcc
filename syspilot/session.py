"""The runs of one application: each is counted, kept in an append-only history and judged for disturbance."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lpcl.compose import compose, machine_values
from lpcl.corpus import Entry
from lpcl.machine import Facts
from syspilot import decision as d
from syspilot import hypotheses as h
from syspilot.app import Application, Library, discover
from syspilot.measure import middle
from syspilot.records import Run
from syspilot.runner import run as run_once
from syspilot.verify import inside_spec, observed_system

# Another program that takes more than this share of the machine during a run spoils the comparison.
DISTURBED = 0.08
# An intervention confirms from these ratios of objective and CPU seconds on, and refutes up to this one.
CONFIRM_OBJECTIVE, CONFIRM_CPU, REFUTE_OBJECTIVE = 1.10, 1.10, 1.02
# A gain below this is not worth a setting; without a hypothesis that predicted it, it has to be larger.
WORTH, WORTH_UNPREDICTED = 1.03, 1.10
# Fresh pairs that a confirmation needs: few tell a large gain, a small one looks like noise for longer.
MIN_PAIRS, MIN_PAIRS_SMALL, LARGE = 3, 5, 1.5


class ApplicationError(Exception):
    """The application does not run, so there is nothing to compare; `run` tells how it ended, `help` the fix."""

    def __init__(self, message: str, help_text: str, run: Run) -> None:
        """Keep the run for the report."""
        super().__init__(message)
        self.help = help_text
        self.run = run


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        metric: finds the objective in the output; without it the wall time is the objective.
        maximise: larger is better.
        max_runs: runs of the application at most, all counted.
        timeout_s: of the first run; later ones get ten times the default's median if this is None.
        seed: of the search's randomness.
        history: file that every run is appended to, or None.
        interventions: how many remedies `doctor` tries.
    """

    metric: re.Pattern[str] | None = None
    maximise: bool = False
    max_runs: int = 16
    timeout_s: float | None = None
    seed: int = 0
    history: Path | None = None
    cwd: Path = field(default_factory=Path.cwd)
    echo: bool = False
    interventions: int = 1


@dataclass(frozen=True, slots=True)
class Event:
    """Something to show while a session works."""

    kind: str
    text: str
    run: int = 0
    of: int = 0


Notify = Callable[[Event], None]


@dataclass
class Session:
    """The runs of one application, and what is known of it."""

    application: Application
    entries: Sequence[Entry]
    machine: Facts
    environ: Mapping[str, str]
    options: Options
    notify: Notify = lambda _: None
    runs: list[tuple[str, Run]] = field(default_factory=list)
    libraries: tuple[Library, ...] = ()

    # ------------------------------------------------------------- measuring

    def objective(self, run: Run) -> float | None:
        """What is compared, or None for a run without a result."""
        if not run.ok:
            return None
        return run.metric if self.options.metric is not None else run.wall_s

    def measure(self, configuration: Mapping[str, str], phase: str) -> Run:
        """One run under a configuration; whatever happens is recorded."""
        n, most = len(self.runs) + 1, self.options.max_runs
        words = " ".join(f"{k}={v}" for k, v in configuration.items()) or "default"
        self.notify(Event("run", f"{phase}: {words}", n, most))
        command, env = self.application.prepare(configuration, self.environ)
        contracts = [e.contract for e in self.entries]
        run = run_once(
            command,
            env=env,
            configuration=configuration,
            cwd=self.options.cwd,
            timeout_s=self._timeout(),
            metric=self.options.metric,
            inside=inside_spec(contracts),
            echo=self.options.echo,
        )
        self.runs.append((phase, run))
        self._record(phase, run)
        value = self.objective(run)
        result = f"{value:.4g}" if value is not None else f"{run.status}: {run.cause}"
        note = " (disturbed by other programs)" if self.disturbed(run) else ""
        self.notify(Event("result", f"{words}: {result}{note}", n, most))
        return run

    def _timeout(self) -> float:
        if self.options.timeout_s is not None:
            return self.options.timeout_s
        walls = [r.wall_s for _, r in self.runs if r.ok and not r.configuration]
        return max(10.0, 10 * middle(walls)) if walls else 900.0

    def _record(self, phase: str, run: Run) -> None:
        if self.options.history is None:
            return
        self.options.history.parent.mkdir(parents=True, exist_ok=True)
        slim = run.model_copy(update={"threads": tuple(t.model_copy(update={"steps": ()}) for t in run.threads)})
        line = f'{{"phase": "{phase}", "run": {slim.model_dump_json()}}}\n'
        with self.options.history.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def disturbed(run: Run) -> bool:
        """Whether other programs took so much of the machine that the run says little."""
        return run.disturbance.others_share > DISTURBED or run.disturbance.steal_share > DISTURBED

    @property
    def left(self) -> int:
        """Runs that the budget still allows."""
        return self.options.max_runs - len(self.runs)

    def of(self, configuration: Mapping[str, str]) -> list[Run]:
        """Every run of a configuration, in order."""
        return [r for _, r in self.runs if r.configuration == dict(configuration)]

    def values(self, configuration: Mapping[str, str]) -> list[float]:
        """The objectives of a configuration's runs that gave one."""
        return [v for r in self.of(configuration) if (v := self.objective(r)) is not None]

    def representative(self, configuration: Mapping[str, str]) -> Run | None:
        """The run of a configuration whose objective is closest to their median, for the timelines."""
        runs = [r for r in self.of(configuration) if self.objective(r) is not None]
        centre = middle(self.values(configuration))
        return min(runs, key=lambda r: abs((self.objective(r) or 0.0) - centre), default=None)

    def better(self, a: float, b: float) -> bool:
        """Whether objective `a` beats `b`."""
        return a > b if self.options.maximise else a < b

    def gain(self, default: float, other: float) -> float:
        """How many times better `other` is."""
        pair = (other, default) if self.options.maximise else (default, other)
        return pair[0] / pair[1] if pair[1] > 0 else float("inf")

    # ------------------------------------------------------------- profiling

    def profile(self) -> h.Situation:
        """Run the default configuration once, and find out what it loads.

        Raises:
            ApplicationError: it does not run, so there is nothing to tune.
        """
        run = self.measure({}, "profile")
        if not run.ok:
            raise ApplicationError(*_failure(run, self.options), run)
        if run.left_processes:
            message = f"the application forks away: it ended and left {run.left_processes} processes running"
            raise ApplicationError(message, "start it in the foreground, so that its end is the end of the work", run)
        self.libraries = discover(run, self.entries)
        loaded = {x.entry.contract.name: x.entry for x in self.libraries if x.entry is not None}
        machine = machine_values(self.machine.values())
        system = compose([e.contract for e in loaded.values()], machine, dict(self.environ))
        system = observed_system(system, run)
        return h.Situation(run, system, self.libraries, loaded, dict(self.environ), self.machine.cores)

    # ------------------------------------------------------------- verdicts

    def conflict(self, hypothesis: h.Hypothesis) -> d.Conflict:
        """A hypothesis with the verdict that the runs so far give it."""
        default = self.values({})
        gains: list[tuple[float, h.Remedy]] = []
        for remedy in hypothesis.remedies:
            values = self.values(remedy.configuration)
            if values and default:
                gains.append((self.gain(middle(default), middle(values)), remedy))
        verdict: d.Verdict = "undecided"
        figures: dict[str, float | int | str] = {}
        shown: Mapping[str, str] = {}
        if gains:
            gain, best = max(gains, key=lambda x: x[0])
            vain = _in_vain(hypothesis, gains)
            if vain is not None:
                gain, best = vain
            shown = best.configuration
            verdict, figures = self._verdict(shown, gain)
        return d.Conflict(
            id=hypothesis.id,
            kind=hypothesis.kind,
            claim=hypothesis.claim,
            pools=hypothesis.pools,
            verdict=verdict,
            strength=round(hypothesis.strength, 3),
            clauses=d.clause_records(hypothesis),
            predicts=hypothesis.predicts,
            observed=dict(hypothesis.observed),
            remedy=dict(shown),
            remedies=tuple(r.configuration for r in hypothesis.remedies),
            figures=figures,
        )

    def _verdict(self, remedy: Mapping[str, str], gain: float) -> tuple[d.Verdict, dict[str, float | int | str]]:
        before = [r for r in self.of({}) if r.ok]
        after = [r for r in self.of(remedy) if r.ok]

        def fall(get: Callable[[Run], float]) -> float:
            low = middle([get(r) for r in after])
            return round(middle([get(r) for r in before]) / low, 3) if low > 0 else float("inf")

        cpu = fall(lambda r: r.usage.cpu_s)
        figures: dict[str, float | int | str] = {
            "objective_ratio": round(gain, 3),
            "cpu_seconds_ratio": cpu,
            "involuntary_switches_ratio": fall(lambda r: r.usage.involuntary),
            "run_delay_ratio": fall(lambda r: sum(t.delay_s for t in r.threads)),
            "default_runs": len(before),
            "remedy_runs": len(after),
        }
        figures = {k: v if v != float("inf") else "inf" for k, v in figures.items()}
        if gain >= CONFIRM_OBJECTIVE and cpu >= CONFIRM_CPU:
            return "confirmed", figures
        # A remedy that does not help on the same work has refuted its claim; between the two the runs do not tell.
        return ("refuted" if gain <= REFUTE_OBJECTIVE else "undecided"), figures


def _in_vain(hypothesis: h.Hypothesis, gains: Sequence[tuple[float, h.Remedy]]) -> tuple[float, h.Remedy] | None:
    """The best remedy of a pool whose own remedies were all tried in vain, for a claim about several pools.

    Such a pool has no part in the conflict, however much the remedies of the others help.
    """
    contracts = {name.split(".")[0] for name in hypothesis.pools}
    for contract in sorted(contracts) if len(contracts) > 1 else ():
        own = [x for x in gains if {s.contract for s in x[1].settings} == {contract}]
        if own and max(g for g, _ in own) <= REFUTE_OBJECTIVE:
            return max(own, key=lambda x: x[0])
    return None


def _failure(run: Run, options: Options) -> tuple[str, str]:
    if run.status == "timeout":
        limit = options.timeout_s or 900
        return (
            f"the application did not end within {limit:g} s",
            "give it a shorter input, or a longer limit with --timeout SECONDS",
        )
    if run.status == "no_metric":
        pattern = options.metric.pattern if options.metric else ""
        return (
            f"the application printed nothing that matches `{pattern}`",
            "run it once by hand and match the line it prints, for example --metric 'seconds ([0-9.]+)'",
        )
    if run.status == "not_started":
        return f"the application could not be started: {run.cause}", "check the command behind `--`"
    return (
        f"the application failed: {run.cause or run.status}",
        "make it run without syspilot first; its output is above"
        if options.echo
        else "run it without syspilot to see why",
    )
