"""The main path: profile, derive, intervene, select, confirm.

`Session` owns the runs of the application: each is counted, kept in an append-only history and judged for
disturbance. `doctor` and `tune` differ only in how many of them they spend.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lpcl.compose import Pool, compose, machine_values
from lpcl.corpus import Entry
from lpcl.expr import Value
from syspilot import decision as d
from syspilot import hypotheses as h
from syspilot import search
from syspilot.app import Application, Library, discover, static_imports
from syspilot.measure import Ratio, middle, paired_ratio, spread
from syspilot.records import Machine, Run
from syspilot.runner import run as run_once
from syspilot.verify import SettingSeen, inside_spec, settings_seen

# Another program that takes more than this share of the machine during a run spoils the comparison.
DISTURBED = 0.08
# An intervention counts as a confirmation from these ratios on; below one over them as a refutation.
CONFIRM_OBJECTIVE, CONFIRM_CPU = 1.10, 1.10
# A gain below this is not worth a setting.
WORTH = 1.03
MIN_PAIRS = 3


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
    machine: Machine
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
        self.libraries = discover(run, self.entries)
        loaded = {x.entry.contract.name: x.entry for x in self.libraries if x.entry is not None}
        machine = machine_values(machine_facts(self.machine))
        system = compose([e.contract for e in loaded.values()], machine, dict(self.environ))
        return h.Situation(run, system, self.libraries, loaded, dict(self.environ), self.machine.cores)

    # ------------------------------------------------------------- verdicts

    def conflict(self, hypothesis: h.Hypothesis) -> d.Conflict:
        """A hypothesis with the verdict that the runs so far give it."""
        best: tuple[float, Mapping[str, str]] | None = None
        default = self.values({})
        for remedy in hypothesis.remedies:
            values = self.values(remedy.configuration)
            if values and default:
                gain = self.gain(middle(default), middle(values))
                if best is None or gain > best[0]:
                    best = (gain, remedy.configuration)
        verdict: d.Verdict = "undecided"
        figures: dict[str, float | int | str] = {}
        if best is not None:
            verdict, figures = self._verdict(best[1], best[0])
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
            remedy=dict(best[1]) if best else {},
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
        return ("refuted" if gain <= 1.02 else "undecided"), figures


def machine_facts(machine: Machine) -> dict[str, Value]:
    """Facts as contracts name them."""
    return {
        "logical": machine.logical,
        "online": machine.online,
        "affinity": machine.affinity,
        "physical": machine.physical,
        "quota": machine.quota_cores,
        "cores": machine.cores,
        "memory": machine.memory_bytes,
        "memory_limit": machine.memory_limit_bytes,
        "numa_nodes": machine.numa_nodes,
        "gpus": None,
    }


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


# ------------------------------------------------------------------ selection


def doctor(session: Session) -> d.Decision:
    """One profiled run, then one intervention for the strongest hypotheses."""
    situation = session.profile()
    found = h.derive(situation)
    space = search.Space(situation, session.application.tunables)
    for hypothesis in found[: session.options.interventions]:
        for candidate in search.candidates(space, [hypothesis], 1):
            run = session.measure(candidate.configuration, "intervene")
            if run.ok and session.left > 0 and session.conflict(hypothesis).verdict == "undecided":
                session.measure({}, "intervene")
                session.measure(candidate.configuration, "intervene")
    return conclude(session, situation, found, "doctor", {}, None, "doctor changes nothing: `tune` decides")


def tune(session: Session) -> d.Decision:
    """Find, measure and confirm a configuration."""
    situation = session.profile()
    found = h.derive(situation)
    space = search.Space(situation, session.application.tunables)
    outcome = _Selection(session, situation, space, found)
    try:
        configuration, ratio, reason = outcome.select()
    except KeyboardInterrupt:
        best = outcome.best_so_far()
        reason = "interrupted: the best so far, not confirmed"
        result = conclude(session, situation, found, "tune", best, None, reason)
        return result.model_copy(update={"interrupted": True})
    return conclude(session, situation, found, "tune", configuration, ratio, reason)


class _Selection:
    """Screens candidates with one run each, races the best, and confirms the winner on fresh pairs."""

    def __init__(
        self, session: Session, situation: h.Situation, space: search.Space, found: Sequence[h.Hypothesis]
    ) -> None:
        self.session = session
        self.situation = situation
        self.space = space
        self.found = found
        self.tried: set[search.Signature] = {space.signature({})}
        self.screened: list[dict[str, str]] = []
        self.rng = random.Random(session.options.seed)  # noqa: S311  # search order, not secrets

    def select(self) -> tuple[dict[str, str], Ratio | None, str]:
        """The configuration, its ratio, and the reason."""
        session = self.session
        strong = [x for x in self.found if x.strength >= 0.3]
        weak = [x for x in self.found if x.strength < 0.3]
        room = max(1, session.options.max_runs - 1 - 2 * MIN_PAIRS)
        tunables = self.space.tunables
        share = max(1, room // 2) if tunables else room
        limit = min(5, share) if strong else min(2, share)
        for candidate in search.candidates(self.space, strong or weak, limit):
            self._screen(candidate.configuration)
        self._tunables()
        outside = search.escape(self.space, self.tried, self.best_so_far(), self.rng)
        if outside is not None and session.left > 2 * MIN_PAIRS:
            self._screen(outside.configuration)
        return self._confirm()

    def _screen(self, configuration: Mapping[str, str]) -> None:
        signature = self.space.signature(configuration)
        if signature in self.tried or self.session.left <= 0:
            return
        self.tried.add(signature)
        run = self.session.measure(configuration, "screen")
        if run.ok and not self._not_taken(run, configuration):
            self.screened.append(dict(configuration))

    def _not_taken(self, run: Run, configuration: Mapping[str, str]) -> bool:
        missed = [s for s in self._settings(run, configuration) if s.in_effect == "no"]
        for setting in missed:
            self.session.notify(
                Event("note", f"{setting.name}={setting.value} did not take effect: {setting.how_seen}")
            )
        return bool(missed)

    def _tunables(self) -> None:
        """One tunable at a time, on top of the best so far; then the best tunable alone."""
        keep = 2 * MIN_PAIRS
        for tunable in self.space.tunables:
            base = {k: v for k, v in self.best_so_far().items() if k != tunable.name}
            for value in search.tunable_values(tunable, self.situation.cores)[:3]:
                if self.session.left > keep:
                    self._screen(base | {tunable.name: value})
        best = self.best_so_far()
        own = {k: v for k, v in best.items() if k in self.space.own}
        if own and len(own) < len(best) and self.session.left > keep:
            self._screen(own)

    def ranked(self) -> list[dict[str, str]]:
        """Screened configurations, the best first; within 5 % of each other the simplest one that shows."""
        session = self.session
        scored = [(middle(session.values(c)), c) for c in self.screened if session.values(c)]
        scored.sort(key=lambda x: -x[0] if session.options.maximise else x[0])
        if not scored:
            return []
        top = scored[0][0]
        near = [c for v, c in scored if session.gain(v, top) < 1.05]
        far = [c for v, c in scored if session.gain(v, top) >= 1.05]
        near.sort(key=lambda c: (len(c), not self._seen_in_effect(c)))
        return [*near, *far]

    def _seen_in_effect(self, configuration: Mapping[str, str]) -> bool:
        runs = [r for r in self.session.of(configuration) if r.ok]
        return bool(runs) and all(s.in_effect == "yes" for s in self._settings(runs[-1], configuration))

    def _settings(self, run: Run, configuration: Mapping[str, str]) -> tuple[SettingSeen, ...]:
        system, environ = self.situation.system, self.session.environ
        return settings_seen(run, configuration, system, environ, self.space.tunables)

    def best_so_far(self) -> dict[str, str]:
        """The best screened configuration that beats the default, or none."""
        ranked, default = self.ranked(), self.session.values({})
        if ranked and default and self.session.better(middle(self.session.values(ranked[0])), middle(default)):
            return ranked[0]
        return {}

    def _confirm(self) -> tuple[dict[str, str], Ratio | None, str]:
        """Interleaved fresh pairs of the default and the contenders, until they tell or the budget ends."""
        session = self.session
        ranked = self.ranked()
        default = middle(session.values({}))
        contenders = [c for c in ranked if session.gain(default, middle(session.values(c))) > WORTH][:2]
        if len(contenders) == 2:
            values = [middle(session.values(c)) for c in contenders]
            if session.gain(values[1], values[0]) > 1.3:
                contenders = contenders[:1]
        if not contenders:
            return {}, None, _nothing(ranked, self.found)
        fresh: dict[int, list[float]] = {i: [] for i in range(len(contenders))}
        base: list[float] = []
        round_ = 0
        while session.left >= 1 + len(contenders) and round_ < 8:
            self._round(contenders, fresh, base, round_)
            round_ += 1
            if len(contenders) == 2 and round_ == 2:
                loser = _loser(session, fresh)
                contenders.pop(loser)
                fresh = {0: fresh[1 - loser]}
            ratio = paired_ratio(base, fresh[0], maximise=session.options.maximise)
            if len(contenders) == 1 and ratio.pairs >= MIN_PAIRS and (ratio.better or ratio.worse or ratio.value < 1):
                break
        return self._judge(contenders, fresh, base)

    def _round(
        self,
        contenders: Sequence[dict[str, str]],
        fresh: dict[int, list[float]],
        base: list[float],
        round_: int,
    ) -> None:
        # The order turns each round, so that a drift of the machine does not favour one of them.
        order: list[int] = [-1, *range(len(contenders))]
        if round_ % 2:
            order.reverse()
        got: dict[int, float | None] = {}
        for i in order:
            run = self.session.measure({} if i < 0 else contenders[i], "confirm")
            got[i] = self.session.objective(run)
        base_value = got[-1]
        if base_value is None:
            return
        base.append(base_value)
        for i in range(len(contenders)):
            value = got[i]
            # A contender that fails once is not a configuration to recommend: it loses the pair for good.
            fresh[i].append(value if value is not None else (1e-12 if self.session.options.maximise else 1e12))

    def _judge(
        self, contenders: Sequence[dict[str, str]], fresh: dict[int, list[float]], base: list[float]
    ) -> tuple[dict[str, str], Ratio | None, str]:
        session = self.session
        ratios = [paired_ratio(base, fresh[i], maximise=session.options.maximise) for i in range(len(contenders))]
        if not ratios or not base:
            return {}, None, "the budget of runs ended before a confirmation: raise --max-runs"
        i = max(range(len(ratios)), key=lambda k: ratios[k].low)
        ratio = ratios[i]
        if ratio.better and ratio.value >= WORTH:
            words = f"better than the default in {ratio.pairs} fresh interleaved pairs"
            return dict(contenders[i]), ratio, words
        return {}, ratio, "no significant gain: the interval of the best candidate includes the default"


def _loser(session: Session, fresh: Mapping[int, Sequence[float]]) -> int:
    first, second = middle(fresh[0]), middle(fresh[1])
    return 1 if session.better(first, second) or first == second else 0


def _nothing(ranked: Sequence[Mapping[str, str]], found: Sequence[h.Hypothesis]) -> str:
    if not found and not ranked:
        return "leave it as it is: no conflict between pools is predicted or seen"
    return "leave it as it is: none of the configurations that were tried is better"


# ----------------------------------------------------------------- conclusion


def conclude(
    session: Session,
    situation: h.Situation,
    found: Sequence[h.Hypothesis],
    mode: str,
    configuration: Mapping[str, str],
    ratio: Ratio | None,
    reason: str,
) -> d.Decision:
    """The decision record of a session."""
    best_runs = [r for r in session.of(configuration) if r.ok]
    seen: tuple[SettingSeen, ...] = ()
    if configuration and best_runs:
        seen = settings_seen(
            best_runs[-1], configuration, situation.system, session.environ, session.application.tunables
        )
    finite = ratio is not None and ratio.pairs >= 2
    return d.Decision(
        mode="doctor" if mode == "doctor" else "tune",
        command=session.application.command,
        objective=session.options.metric.pattern if session.options.metric else "wall_s",
        maximise=session.options.maximise,
        machine=session.machine,
        libraries=tuple(_library(x) for x in situation.libraries),
        uncovered=_uncovered(session, situation),
        pools=tuple(_pool(p) for p in situation.system.pools),
        conflicts=tuple(session.conflict(x) for x in found),
        hazards=tuple(_hazard(x) for x in h.hazards(situation)),
        configuration=dict(configuration),
        settings=seen,
        default=_sample(session, {}),
        best=_sample(session, configuration),
        ratio=ratio.value if ratio is not None and ratio.pairs and configuration else None,
        ci95=(ratio.low, ratio.high) if ratio is not None and finite and configuration else None,
        pairs=ratio.pairs if ratio is not None else 0,
        improved=bool(configuration) and ratio is not None and ratio.better,
        runs=len(session.runs),
        seconds_spent=round(sum(r.wall_s for _, r in session.runs), 3),
        trials=tuple(_trial(session, i, phase, run) for i, (phase, run) in enumerate(session.runs, 1)),
        reason=reason,
        params={t.name: t.template for t in session.application.tunables if t.kind == "param"},
    )


def _sample(session: Session, configuration: Mapping[str, str]) -> d.Sample:
    values = session.values(configuration)
    return d.Sample(
        median=middle(values) if values else None, values=tuple(values), cv=round(spread(values), 4), n=len(values)
    )


def _library(x: Library) -> d.LibrarySeen:
    return d.LibrarySeen(
        name=x.name,
        kind=x.kind,
        version=x.version,
        copies=x.copies,
        processes=len(x.pids),
        contract=x.entry.contract.name if x.entry else None,
    )


def _uncovered(session: Session, situation: h.Situation) -> tuple[str, ...]:
    objects = {lib for p in situation.run.processes for lib in p.libraries}
    names = {
        x.name
        for x in situation.libraries
        if x.entry is None and any(f"/{folder}/" in lib for lib in objects for folder in x.copies)
    }
    if not situation.run.inside:
        # No process could be looked into, for example because Python runs isolated: say at least what it imports.
        names |= set(static_imports(session.application.command, session.options.cwd))
    return tuple(sorted(names))


def _pool(p: Pool) -> dict[str, str | float | bool | None]:
    return {
        "name": p.name,
        "amount": p.amount,
        "idle": p.idle,
        "awake_s": p.awake_s,
        "spins": p.spins,
        "created": p.demand.created,
        "scope": p.demand.scope,
        "fork": p.demand.fork,
    }


def _hazard(x: h.Hazard) -> d.HazardSeen:
    return d.HazardSeen(
        id=x.id,
        kind=x.kind,
        claim=x.claim,
        consequence=x.consequence,
        remedies=x.remedies,
        clauses=d.clause_records(x),
    )


def _trial(session: Session, index: int, phase: str, run: Run) -> d.Trial:
    return d.Trial(
        index=index,
        phase=phase,
        configuration=run.configuration,
        status=run.status,
        cause=run.cause,
        objective=session.objective(run),
        wall_s=round(run.wall_s, 4),
        cpu_s=round(run.usage.cpu_s, 4),
        run_delay_s=round(sum(t.delay_s for t in run.threads), 4),
        involuntary=run.usage.involuntary,
        disturbed=session.disturbed(run),
    )
