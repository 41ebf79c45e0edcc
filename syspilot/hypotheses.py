"""Conflicts as claims: each with the clauses behind it, what it predicts, and what should cure it.

Threads beyond cores alone are a weak claim: pools whose idle workers sleep cost little. What costs is a pool whose
idle workers stay awake while others want the CPU, so most rules ask the contracts how idle workers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from lpcl import model as m
from lpcl.compose import System
from lpcl.corpus import Entry
from lpcl.expr import Value, evaluate
from lpcl.resolve import Pool, Resolved
from lpcl.ways import Setting, ways_to
from syspilot.app import Library
from syspilot.records import InsideReport, Run
from syspilot.verify import reported_by_pid


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a contract and where its evidence stands."""

    contract: str
    clause: str
    trust: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """Settings that should cure a conflict, and why."""

    settings: tuple[Setting, ...]
    why: str

    @property
    def configuration(self) -> dict[str, str]:
        """Variable -> value."""
        return {s.way.label: s.value for s in self.settings}


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A claim that two or more pools get in each other's way.

    Attributes:
        kind: which rule derived it; id: stable, from kind and pools.
        claim: one sentence. pools: `contract.demand` of each.
        strength: 0..1, what the profiled run says for it; observed: the figures behind that.
        predicts: signals and the direction in which a remedy should move them.
    """

    kind: str
    claim: str
    pools: tuple[str, ...]
    strength: float
    clauses: tuple[Clause, ...]
    remedies: tuple[Remedy, ...]
    observed: Mapping[str, float | int | str] = field(default_factory=dict)
    predicts: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """For example `two_spinning_pools:libgomp.team+openblas.workers`."""
        return f"{self.kind}:{'+'.join(self.pools)}"


@dataclass(frozen=True, slots=True)
class Hazard:
    """A correctness problem: never answered with a thread count alone, always reported."""

    kind: str
    claim: str
    consequence: str
    remedies: tuple[str, ...]
    clauses: tuple[Clause, ...]

    @property
    def id(self) -> str:
        """For example `fork_after_use:libgomp.team`."""
        return f"{self.kind}:{'+'.join(f'{c.contract}.{c.clause.split()[-1]}' for c in self.clauses[:1])}"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the rules look at.

    Attributes:
        run: the profiled run of the default configuration.
        system: the contracts of what is loaded, composed for this machine and environment.
        libraries: what is loaded, with its contract.
        entries: contract name -> corpus entry.
        environ: the environment that the application starts with.
        cores: CPUs usable at once.
    """

    run: Run
    system: System
    libraries: Sequence[Library]
    entries: Mapping[str, Entry]
    environ: Mapping[str, str]
    cores: int

    def clause(self, contract: str, clause: m.Clause) -> Clause:
        """A reference to a clause, with the places of its evidence."""
        entry = self.entries[contract]
        places = tuple(f"{c.source.split(':')[0]} {c.place}" for c in entry.evidence(clause))
        return Clause(contract, m.clause_label(clause), entry.trust(clause), places)

    def pids(self, contract: str) -> frozenset[int]:
        """Processes that have the contract's library."""
        return frozenset(p for x in self.libraries if x.entry is self.entries[contract] for p in x.pids)

    def remedy(self, pool: Pool, *, amount: int | None = None) -> list[Remedy]:
        """Environment settings that bring one pool to `amount`, or, without it, send its idle workers to sleep."""
        contract = self.entries[pool.contract].contract
        settings = ways_to(
            contract,
            self.system.machine,
            pool.demand,
            amount=amount,
            quiet=amount is None,
            environ=self.environ,
            outside=self.system.outside(pool.contract),
        )
        what = f"{pool.name} has {amount}" if amount is not None else f"idle workers of {pool.name} sleep"
        return [Remedy((s,), what) for s in settings]


# ------------------------------------------------------------------- observed


def runnable(run: Run, pids: Collection[int] | None = None) -> tuple[float, float]:
    """(mean, peak) number of threads that ran or waited for a CPU, over the busy part of a run.

    Args:
        run: a sampled run.
        pids: count the threads of these processes only.
    """
    if len(run.sample_times_s) < 2:
        return 0.0, 0.0
    total = [0.0] * len(run.sample_times_s)
    for thread in run.threads:
        if pids is not None and thread.pid not in pids:
            continue
        for index, cpu_s, delay_s in thread.steps:
            if 0 <= index < len(total):
                total[index] += cpu_s + delay_s
    times = (0.0, *run.sample_times_s)
    rates = [(t, times[i + 1] - times[i]) for i, t in enumerate(total) if times[i + 1] > times[i]]
    busy = [(t, dt) for t, dt in rates if t / dt > 0.2]
    if not busy:
        return 0.0, 0.0
    return sum(t for t, _ in busy) / sum(dt for _, dt in busy), max(t / dt for t, dt in busy)


def concurrent(run: Run, pids: Iterable[int]) -> int:
    """How many of these processes were busy at the same time, at most; a process that only waits does not count."""
    busy = busy_pids(run, pids)
    edges: list[tuple[float, int]] = []
    for p in run.processes:
        if p.pid in busy:
            edges += [(p.first_s, 1), (p.last_s + 1e-9, -1)]
    here = most = 0
    for _, step in sorted(edges):
        here += step
        most = max(most, here)
    return most


def busy_pids(run: Run, pids: Iterable[int]) -> frozenset[int]:
    """Those of these processes that did work of their own, and not only waited for others."""
    wanted = set(pids)
    cpu = dict.fromkeys(wanted, 0.0)
    for t in run.threads:
        if t.pid in wanted:
            cpu[t.pid] += t.cpu_s
    floor = 0.05 * max(cpu.values(), default=0.0)
    return frozenset(p for p in wanted if cpu[p] > floor)


def observed(run: Run, cores: int) -> dict[str, float | int | str]:
    """The figures of a run that the rules and reports speak of."""
    delay = sum(t.delay_s for t in run.threads)
    mean, peak = runnable(run)
    return {
        "wall_s": round(run.wall_s, 4),
        "cpu_s": round(run.usage.cpu_s, 4),
        "cpu_per_wall": round(run.usage.cpu_s / run.wall_s, 3) if run.wall_s else 0.0,
        "run_delay_s": round(delay, 4),
        "involuntary_switches": run.usage.involuntary,
        "threads": len(run.threads),
        "peak_threads_of_a_process": max((p.peak_threads for p in run.processes), default=0),
        "runnable_mean": round(mean, 2),
        "runnable_peak": round(peak, 2),
        "cores": cores,
    }


# ---------------------------------------------------------------------- rules

# Strength of a claim that the profiled run does not support: tried late if at all, shown only if confirmed.
WEAK = 0.1
PREDICTED = ("CPU seconds fall", "run delay falls", "involuntary switches fall", "wall time falls")


def _many(pool: Pool) -> bool:
    return pool.amount is not None and pool.amount > 1 and pool.demand.resource.name == "cpu.threads"


def two_spinning_pools(s: Situation) -> Iterator[Hypothesis]:
    """Two pools in one process whose idle workers stay awake: each takes CPUs that the other wants."""
    pools = [p for p in s.system.pools if _many(p) and p.spins]
    mean, _ = runnable(s.run)
    for a, b in combinations(pools, 2):
        shared = _sized(s, a) & _sized(s, b)
        if not shared or a.contract == b.contract:
            continue
        remedies = [
            *s.remedy(a, amount=1),
            *s.remedy(b, amount=1),
            *s.remedy(a),
            *s.remedy(b),
            *_both(s, a, b),
        ]
        claim = (
            f"idle workers of {a.name} ({a.amount:.0f} threads) and of {b.name} ({b.amount:.0f} threads) stay awake "
            f"in one process and take the {s.cores} cores from each other"
        )
        yield Hypothesis(
            "two_spinning_pools",
            claim,
            (a.name, b.name),
            min(1.0, 0.5 + 0.5 * max(0.0, mean - 0.8 * s.cores) / s.cores),
            (s.clause(a.contract, a.demand), s.clause(b.contract, b.demand)),
            tuple(remedies),
            {"processes": len(shared), "runnable_mean": round(mean, 2), "cores": s.cores},
            PREDICTED,
        )


def _sized(s: Situation, pool: Pool) -> frozenset[int]:
    """Processes in which this pool has more than one thread: what a process reports outweighs the contract."""
    sizes = reported_by_pid(s.run, s.entries[pool.contract].contract, f"{pool.demand.name}.amount")
    return frozenset(pid for pid in s.pids(pool.contract) if sizes.get(pid, pool.amount or 0) > 1)


def _both(s: Situation, a: Pool, b: Pool) -> list[Remedy]:
    one, other = s.remedy(a, amount=1), s.remedy(b, amount=1)
    if not one or not other:
        return []
    return [Remedy((*one[0].settings, *other[0].settings), f"{a.name} and {b.name} have 1")]


def _users(s: Situation, pool: Pool) -> frozenset[int]:
    """Processes in which this pool has more than one thread, and threads besides the main one work.

    Where something limits the pool already, as some libraries do for their workers, the process reports one thread.
    """
    contract = s.entries[pool.contract].contract
    sizes = reported_by_pid(s.run, contract, f"{pool.demand.name}.amount")
    total = dict.fromkeys(s.pids(pool.contract), 0.0)
    beside = dict(total)
    for t in s.run.threads:
        if t.pid in total:
            total[t.pid] += t.cpu_s
            beside[t.pid] += t.cpu_s if t.tid != t.pid else 0.0
    return frozenset(
        pid
        for pid, cpu in total.items()
        if sizes.get(pid, pool.amount or 0) > 1 and beside[pid] > max(0.01, 0.05 * cpu)
    )


def crowded_pool(s: Situation) -> Iterator[Hypothesis]:
    """Several processes or threads each bring a whole pool: more runnable threads than cores."""
    for pool in s.system.pools:
        if not _many(pool):
            continue
        users = _users(s, pool)
        outer = concurrent(s.run, users)
        mean, peak = runnable(s.run, users)
        amount = pool.amount or 1
        beside = sum(p.amount or 0 for p in s.system.pools if p.spins and users & s.pids(p.contract))
        crowded = mean > max(1.15 * s.cores, beside if outer == 1 else 0.0)
        if not outer or (outer * amount <= s.cores and not crowded):
            # Where two pools of one process explain what is runnable, they are a conflict of their own.
            continue
        share = max(1, s.cores // outer)
        sizes = sorted({1, share} - {int(amount)})
        remedies = [r for n in sizes for r in s.remedy(pool, amount=n)]
        if pool.spins:
            remedies += s.remedy(pool)
        crowd = max(0.0, mean - s.cores) / s.cores
        # A pool that sleeps when idle costs little even where there are too many threads.
        weight = 1.0 if pool.spins else 0.4
        yield Hypothesis(
            "crowded_spinning_pool" if pool.spins else "crowded_pool",
            _crowd_claim(pool, outer, s.cores, mean, peak),
            (pool.name,),
            weight * min(1.0, 0.2 + crowd) if crowded else WEAK,
            (s.clause(pool.contract, pool.demand),),
            tuple(remedies),
            {"processes": outer, "runnable_mean": round(mean, 2), "runnable_peak": round(peak, 2), "cores": s.cores},
            PREDICTED,
        )


def _crowd_claim(pool: Pool, outer: int, cores: int, mean: float, peak: float) -> str:
    manner = "stay awake" if pool.spins else "sleep"
    who = f"{outer} busy processes" if outer > 1 else "several threads of one process"
    return (
        f"{who} use {pool.name} ({pool.amount:.0f} threads each, idle workers {manner}) on {cores} cores: "
        f"{mean:.1f} runnable threads on average, {peak:.0f} at the peak"
    )


def ignores_quota(s: Situation) -> Iterator[Hypothesis]:
    """A pool that is larger than the CPU quota pays for: it is throttled."""
    quota = s.system.machine.get("machine.quota")
    if not isinstance(quota, int | float):
        return
    for resolved in s.system.members:
        for assumption in resolved.contract.assumptions:
            if "machine.quota" not in {r.name for r in assumption.ignores}:
                continue
            for pool in resolved.pools:
                if _many(pool) and (pool.amount or 0) > quota:
                    fits = max(1, int(quota))
                    yield Hypothesis(
                        "ignores_quota",
                        f"{pool.name} has {pool.amount:.0f} threads where the quota pays for {quota:g}",
                        (pool.name,),
                        0.6,
                        (s.clause(resolved.contract.name, assumption),),
                        tuple(s.remedy(pool, amount=fits)),
                        {"quota_cores": float(quota)},
                        ("throttling falls", "wall time falls"),
                    )


RULES: tuple[Callable[[Situation], Iterator[Hypothesis]], ...] = (
    two_spinning_pools,
    crowded_pool,
    ignores_quota,
)


def derive(situation: Situation) -> tuple[Hypothesis, ...]:
    """Every conflict that the contracts and the profiled run suggest, the strongest first."""
    found = [h for rule in RULES for h in rule(situation) if h.remedies]
    return tuple(sorted(found, key=lambda h: (-h.strength, h.id)))


# -------------------------------------------------------------------- hazards


def hazards(situation: Situation) -> tuple[Hazard, ...]:
    """What may hang, crash or give wrong results, from the contracts' assumptions and what the run did."""
    return tuple(_fork_hazards(situation))


def _fork_hazards(s: Situation) -> Iterator[Hazard]:
    forked = [r for r in s.run.inside if r.forked and _beyond_load(s, r) > 0]
    if not forked:
        return
    parents = {r.parent for r in forked}
    for resolved in s.system.members:
        used_by_parents = parents & s.pids(resolved.contract.name)
        if not used_by_parents:
            continue
        for assumption in (a for a in resolved.contract.assumptions if _applies(resolved, a.condition)):
            for forbids in assumption.forbids:
                if forbids.event != "fork" or _excused(resolved, forbids):
                    continue
                pool = forbids.after.parts[0] if forbids.after else resolved.contract.name
                threads = max(r.parent_threads_at_fork or 0 for r in forked)
                yield Hazard(
                    "fork_after_use",
                    f"{len(forked)} process{'es' * (len(forked) > 1)} forked from a parent with {threads} threads in "
                    f"which {resolved.contract.name}.{pool} is loaded: a child that uses it after the parent did may "
                    f"{assumption.consequence or 'fail'}",
                    assumption.consequence or "hang",
                    assumption.remedies,
                    (s.clause(resolved.contract.name, assumption),),
                )


def _beyond_load(s: Situation, child: InsideReport) -> float:
    """Threads that the parent had at the fork beyond its main thread and the pools that exist once they are loaded.

    A pool that is created at its first use has been used only if there are such threads.
    """
    libraries = [x for x in s.libraries if x.entry is not None and child.parent in x.pids]
    at_load = 0.0
    for library in libraries:
        member = s.system.member(library.entry.contract.name) if library.entry else None
        for pool in member.pools if member else ():
            if pool.demand.created in {"load", "import"} and pool.amount:
                at_load += (pool.amount - 1) * max(1, len(library.copies))
    return (child.parent_threads_at_fork or 0) - 1 - at_load


def _excused(resolved: Resolved, forbids: m.Forbids) -> bool:
    return forbids.unless is not None and evaluate(forbids.unless, _known(resolved)) is True


def _applies(resolved: Resolved, condition: m.Expr | None) -> bool:
    return condition is None or evaluate(condition, _known(resolved)) is not False


def _known(resolved: Resolved) -> dict[str, Value]:
    """What expressions of the contract may speak of: controls, amounts, and which controls are set."""
    values: dict[str, Value] = dict(resolved.values)
    values |= {f"{p.demand.name}.amount": p.amount for p in resolved.pools}
    return values | {f"set:{name}": True for name in resolved.set_by}
