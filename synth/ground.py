"""Holds a draft to its evidence: a clause stays only if what it cites exists and speaks of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lpcl import model as m
from lpcl.check import RESOURCES
from synth.records import Evidence


@dataclass(frozen=True, slots=True)
class Ungrounded:
    """A clause that its evidence does not carry, and why."""

    clause: str
    why: str


def ground(contract: m.Contract, evidence: Sequence[Evidence]) -> tuple[m.Contract, tuple[Ungrounded, ...]]:
    """Drop the clauses that are not carried by what they cite.

    A clause is carried if it cites at least one record, each cited id exists, and every name that the clause sets or
    calls occurs in the cited source lines, or is what the cited observation is about.

    Returns:
        The contract with the grounded clauses, references to dropped ones removed, and the problems.
    """
    by_id = {e.id: e for e in evidence}
    problems: list[Ungrounded] = []
    kept: list[m.Clause] = []
    for clause in contract.clauses:
        why = next(_problems(clause, by_id), None)
        if why is None:
            kept.append(clause)
        else:
            problems.append(Ungrounded(m.clause_label(clause), why))
    result, lost = without(contract, {c.name for c in contract.clauses} - {c.name for c in kept})
    return result, (*problems, *lost)


def without(contract: m.Contract, gone: set[str]) -> tuple[m.Contract, tuple[Ungrounded, ...]]:
    """The contract without some clauses and what cannot be said without them, and what the latter is."""
    lost: list[Ungrounded] = []
    while True:
        kept = [_without(c, gone) for c in contract.clauses if c.name not in gone]
        bad = [c for c in kept if _lost(c, gone)]
        contract = replace(contract, clauses=tuple(c for c in kept if c not in bad))
        if not bad:
            return contract, tuple(lost)
        lost += [Ungrounded(m.clause_label(c), "it refers to a clause that was dropped") for c in bad]
        gone = gone | {c.name for c in bad}


def _lost(clause: m.Clause, gone: set[str]) -> bool:
    """Whether the clause cannot be said without a dropped one."""
    # The first words of resources are references too.
    dangling = any(r.parts[0] in gone for r in m.walk_references(clause) if r.name not in RESOURCES)
    return dangling or (isinstance(clause, m.Signal) and not clause.observes)


def _problems(clause: m.Clause, by_id: Mapping[str, Evidence]) -> Iterator[str]:
    if not clause.evidence:
        yield "it cites no evidence"
    missing = [i for i in clause.evidence if i not in by_id]
    if missing:
        yield f"it cites `{missing[0]}`, which does not exist"
    cited = [by_id[i] for i in clause.evidence if i in by_id]
    for name in _names(clause):
        last = name.rsplit(".", 1)[-1]
        if not any(_speaks_of(e, last) for e in cited):
            yield f"no cited line speaks of `{name}`"


def _speaks_of(evidence: Evidence, name: str) -> bool:
    seen = evidence.seen
    about = seen.name.replace("(", ".").replace("=)", "").split(".")
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", seen.text)) or name in about


def _names(clause: m.Clause) -> Iterator[str]:
    match clause:
        case m.Control():
            for way in clause.ways:
                yield way.name
                if way.kind == "param":
                    yield way.parameters[0]
        case m.Signal():
            if clause.read is not None and clause.read.kind == "call":
                yield clause.read.target[0]
        case m.Mitigation():
            yield from clause.env


def _without(clause: m.Clause, gone: set[str]) -> m.Clause:
    """The clause without references to clauses that were dropped."""
    if not gone or not any(r.parts[0] in gone for r in m.walk_references(clause)):
        return clause
    match clause:
        case m.Control():
            bounds = tuple(r for r in clause.bounds if r.parts[0] not in gone)
            affects = tuple(r for r in clause.affects if r.parts[0] not in gone)
            return replace(clause, bounds=bounds, affects=affects, default=_known(clause.default, gone))
        case m.Demand():
            return replace(clause, amount=_known(clause.amount, gone))
        case m.Signal():
            return replace(clause, observes=tuple(r for r in clause.observes if r.parts[0] not in gone))
        case m.Mitigation():
            return replace(clause, value=_known(clause.value, gone))
        case _:
            return clause


def _known(e: m.Expr | None, gone: set[str]) -> m.Expr | None:
    return m.Unknown() if any(r.parts[0] in gone for r in m.walk_references(e)) else e
