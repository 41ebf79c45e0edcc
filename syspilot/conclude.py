"""From a session to the record of its decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lpcl.resolve import Pool
from syspilot import decision as d
from syspilot import hypotheses as h
from syspilot.app import Library, static_imports
from syspilot.measure import Ratio, middle, spread
from syspilot.records import Run
from syspilot.session import CONFIRM_CPU, Session
from syspilot.verify import SettingSeen, settings_seen


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
        seen = _by_cpu_seconds(session, situation, seen)
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


def _by_cpu_seconds(session: Session, situation: h.Situation, seen: tuple[SettingSeen, ...]) -> tuple[SettingSeen, ...]:
    """A setting that sends idle workers to sleep shows in the CPU seconds of the same work, if it stands alone."""
    if len(seen) != 1 or seen[0].in_effect != "not_observable":
        return seen
    setting = seen[0]
    controls = [c for r in situation.system.members for c in r.contract.controls if setting.name in c.env_names()]
    if not any(ref.parts[-1] == "idle" for c in controls for ref in c.affects):
        return seen
    before = middle([r.usage.cpu_s for r in session.of({}) if r.ok])
    after = middle([r.usage.cpu_s for r in session.of({setting.name: setting.value}) if r.ok])
    if not after > 0 or before / after < CONFIRM_CPU:
        return seen
    how = f"idle workers sleep: CPU seconds of the same work fell from {before:.3g} to {after:.3g}"
    return (setting.model_copy(update={"in_effect": "yes", "how_seen": how}),)


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
        if x.entry is None and any(f"/{folder}/" in lib for lib in objects for folder in x.modules)
    }
    if not situation.run.inside:
        # No process could be looked into, for example because Python runs isolated: say at least what it imports.
        names |= set(static_imports(session.application.command, session.options.cwd))
    return tuple(sorted(names))


def _pool(p: Pool) -> dict[str, str | float | bool | None]:
    return {
        "name": p.name,
        "resource": p.demand.resource.name,
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
