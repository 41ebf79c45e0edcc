"""Holds a draft to its evidence: a clause stays only if what it cites exists and speaks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lpcl import model as m
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
    names = {c.name for c in kept}
    gone = {c.name for c in contract.clauses} - names
    return replace(contract, clauses=tuple(_without(c, gone) for c in kept)), tuple(problems)


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
    return name in seen.text or name in about


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
