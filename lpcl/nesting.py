"""Pools as a tree: what runs inside of what, and how many workers that makes in all.

A pool that runs the user's code may open every other pool inside of each of its workers. Demand multiplies along the
way, except where the outer library limits others: what it sets in its children is applied before they are resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lpcl.compose import Pool, Resolved, System, resolve
from lpcl.expr import Value, evaluate


@dataclass(frozen=True, slots=True)
class Node:
    """A pool at its place in the tree.

    Attributes:
        pool: with its size at this place; total: workers of it in all, the outer pools multiplied in (None if not
            known).
        limited_by: `contract.mitigation` that set its size, or "".
        inside: the pools that its workers may open.
    """

    pool: Pool
    total: float | None
    limited_by: str = ""
    inside: tuple[Node, ...] = ()


def tree(system: System, environ: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """The pools of a system as a tree; the order of the contracts makes no difference.

    Args:
        system: composed under `environ`.
        environ: label of a way -> the text it is set to.
    """
    base = dict(environ or {})
    roots: list[Node] = []
    for member in system.members:
        for pool in member.pools:
            if pool.demand.resource.name not in {"cpu.threads", "cpu.processes"}:
                continue
            inside: tuple[Node, ...] = ()
            if pool.demand.runs == "user_code":
                inside = tuple(_inner(system, member, pool, base))
            roots.append(Node(pool, pool.amount, "", inside))
    return tuple(roots)


def _inner(system: System, outer: Resolved, pool: Pool, base: Mapping[str, str]) -> list[Node]:
    """The native pools inside of each worker of `pool`, as its library leaves them there."""
    processes = pool.demand.resource.name == "cpu.processes"
    set_by = _set_for_children(system, outer, base) if processes else {}
    environ = {**base, **{k: value for k, (value, _) in set_by.items()}}
    limits = _limits(system, outer) if processes else {}
    nodes = []
    for member in system.members:
        if member.contract.name == outer.contract.name:
            continue
        inner = resolve(member.contract, system.machine, environ)
        ways = {w.label for w in inner.set_by.values()}
        cause = next((set_by[w][1] for w in sorted(ways) if w in set_by), "")
        for p in inner.pools:
            if p.demand.runs != "native" or p.demand.resource.name != "cpu.threads":
                continue
            amount, why = limits.get(p.name, (p.amount, cause))
            known = amount is not None and pool.amount is not None
            total = (amount or 0) * (pool.amount or 0) if known else None
            sized = p if amount == p.amount else Pool(p.contract, p.demand, amount, p.idle, p.awake_s)
            nodes.append(Node(sized, total, why))
    return nodes


def _set_for_children(system: System, outer: Resolved, base: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Variable -> (value, mitigation) that the outer library sets in its children."""
    found: dict[str, tuple[str, str]] = {}
    values = {**system.machine, **outer.values}
    for x in outer.contract.mitigations:
        value = None if x.value is None else evaluate(x.value, values)
        holds = x.condition is None or evaluate(x.condition, values) is not False
        if x.target != "children" or value is None or not holds:
            continue
        for name in x.env:
            if not (x.unless_set and name in base):
                found[name] = (_text(value), f"{outer.contract.name}.{x.name}")
    return found


def _limits(system: System, outer: Resolved) -> dict[str, tuple[float | None, str]]:
    """`contract.demand` -> (size, mitigation) of the pools that the outer library sizes in its children by calls."""
    found: dict[str, tuple[float | None, str]] = {}
    values = {**system.machine, **outer.values}
    for x in outer.contract.mitigations:
        value = None if x.value is None else evaluate(x.value, values)
        for ref in x.limits:
            if x.target == "children" and isinstance(value, int | float) and not isinstance(value, bool):
                owner = ref.parts[0] if len(ref.parts) > 2 else outer.contract.name
                found[f"{owner}.{ref.parts[-2]}"] = (float(value), f"{outer.contract.name}.{x.name}")
    return found


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
