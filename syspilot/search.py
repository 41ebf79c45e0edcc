"""Candidate configurations: from hypotheses and composed contracts, not from a product of all values."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lpcl.compose import System, compose
from syspilot.app import Tunable
from syspilot.hypotheses import Hypothesis, Situation, concurrent


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration worth a run.

    Attributes:
        configuration: name -> value; source: id of the hypothesis it came from, or `outside` for the escape share.
        penalty: what the contracts predict of it: 0 is good.
    """

    configuration: Mapping[str, str]
    source: str
    penalty: float


Signature = tuple[object, ...]


class Space:
    """Predicts what a configuration does to the pools, from the contracts of what is loaded."""

    def __init__(self, situation: Situation, tunables: Sequence[Tunable]) -> None:
        """Keep what a prediction needs."""
        self.situation = situation
        self.tunables = tuple(tunables)
        self.contracts = [r.contract for r in situation.system.members]
        self.own = {t.name for t in tunables}

    def system(self, configuration: Mapping[str, str]) -> System:
        """The composed system under a configuration."""
        return compose(
            self.contracts, self.situation.system.machine, dict(self.situation.environ) | dict(configuration)
        )

    def signature(self, configuration: Mapping[str, str]) -> Signature:
        """Equal for configurations that are the same in effect: such duplicates are measured once.

        Two settings are the same if every control of every contract comes out the same. A variable that no contract
        knows counts as itself.
        """
        known = {w.label for c in self.contracts for x in c.controls for w in x.ways}
        system = self.system(configuration)
        controls = tuple(
            (r.contract.name, name, value) for r in system.members for name, value in sorted(r.values.items())
        )
        pools = tuple((p.name, p.amount, p.spins) for p in system.pools)
        other = tuple(sorted((k, v) for k, v in configuration.items() if k not in known or k in self.own))
        return (controls, pools, other)

    def penalty(self, configuration: Mapping[str, str]) -> float:
        """What the contracts predict: spinning pools that meet, crowding, and parallelism given away."""
        s = self.situation
        pools = [p for p in self.system(configuration).pools if p.amount and p.demand.resource.name == "cpu.threads"]
        loud = [p for p in pools if p.spins and (p.amount or 0) > 1]
        meet = sum(
            bool(s.pids(a.contract) & s.pids(b.contract)) and a.contract != b.contract
            for i, a in enumerate(loud)
            for b in loud[i + 1 :]
        )
        crowd = idle = 0.0
        for p in pools:
            outer = max(1, concurrent(s.run, s.pids(p.contract)))
            load = outer * (p.amount or 1) / s.cores
            crowd += max(0.0, load - 1) * (1.0 if p in loud else 0.15)
            idle += max(0.0, 1 - load) * 0.1
        return 4.0 * meet + crowd + idle


def candidates(space: Space, hypotheses: Sequence[Hypothesis], limit: int) -> list[Candidate]:
    """The remedies of the hypotheses, duplicates in effect removed, the most promising first."""
    seen = {space.signature({})}
    found: list[Candidate] = []
    for hypothesis in hypotheses:
        for remedy in hypothesis.remedies:
            signature = space.signature(remedy.configuration)
            if signature not in seen:
                seen.add(signature)
                penalty = space.penalty(remedy.configuration) - hypothesis.strength
                found.append(Candidate(remedy.configuration, hypothesis.id, penalty))
    everything = quiet_everywhere(space)
    if hypotheses and everything and space.signature(everything) not in seen:
        found.append(Candidate(everything, "all_pools_at_one", space.penalty(everything)))
    found.sort(key=lambda c: (c.penalty, len(c.configuration)))
    return _varied(found, limit)


def remedies_of(space: Space, hypothesis: Hypothesis) -> list[Mapping[str, str]]:
    """The remedies of one hypothesis, the most promising first."""
    found = [r.configuration for r in hypothesis.remedies]
    return sorted(found, key=lambda c: (space.penalty(c), len(c)))


def _varied(found: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The best by prediction, but every hypothesis gets a first remedy tried before any gets a third."""
    chosen: list[Candidate] = []
    counts: dict[str, int] = {}
    for cap in (2, 4, len(found)):
        for candidate in found:
            if len(chosen) < limit and candidate not in chosen and counts.get(candidate.source, 0) < cap:
                chosen.append(candidate)
                counts[candidate.source] = counts.get(candidate.source, 0) + 1
    return chosen


def quiet_everywhere(space: Space) -> dict[str, str]:
    """Every pool of threads that is larger than one, at one: the field's rule of thumb."""
    configuration: dict[str, str] = {}
    for pool in space.situation.system.pools:
        if pool.amount is not None and pool.amount > 1 and pool.demand.resource.name == "cpu.threads":
            for remedy in space.situation.remedy(pool, amount=1)[:1]:
                configuration |= remedy.configuration
    return configuration


def tunable_values(tunable: Tunable, cores: int) -> list[str]:
    """The few values of an application's own tunable that are worth a first look."""
    numbers = tunable.numbers
    if not numbers:
        return list(tunable.values[:4])
    wanted = (cores, 1, max(1, cores // 2), 2 * cores)
    nearest = [min(numbers, key=lambda n, w=w: (abs(n - w), n)) for w in wanted]  # type: ignore[misc]
    return [str(n) for n in dict.fromkeys(nearest)]


def neighbours(tunable: Tunable, value: str | None) -> list[str]:
    """The values next to one, below and above."""
    at = tunable.values.index(value) if value in tunable.values else None
    return [] if at is None else [tunable.values[i] for i in (at - 1, at + 1) if 0 <= i < len(tunable.values)]


def escape(space: Space, tried: set[Signature], base: Mapping[str, str], rng: random.Random) -> Candidate | None:
    """A configuration outside of what the contracts predict: they order the search, they never fence it."""
    options: list[dict[str, str]] = []
    for tunable in space.tunables:
        options += [dict(base) | {tunable.name: v} for v in tunable.values]
    everything = quiet_everywhere(space)
    if everything:
        options.append(everything)
        options += [{k: v} for k, v in everything.items()]
    rng.shuffle(options)
    for configuration in options:
        if space.signature(configuration) not in tried:
            return Candidate(configuration, "outside", space.penalty(configuration))
    return None
