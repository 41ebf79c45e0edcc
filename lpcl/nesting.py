"""Pools as a tree: what runs inside of what, and how many workers that makes in all.

A pool that runs the user's code may open every native pool inside of each of its workers, and a demand may say itself
that it stands `inside` another one. Demand multiplies along the way, as far as the scope of a pool lets it: a pool of
the process is shared by all threads of that process. What the outer library sets or limits in its children is applied
before they are resolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from lpcl import model as m
from lpcl.compose import System, compose
from lpcl.expr import Value
from lpcl.resolve import Pool, Resolved

# Pools inside of pools inside of pools: deeper chains exist in no application that anyone could follow.
MAX_DEPTH = 6
_CPU = frozenset({"cpu.threads", "cpu.processes"})


@dataclass(frozen=True, slots=True)
class Node:
    """A pool at its place in the tree.

    Attributes:
        pool: with its size at this place.
        copies: how many of it there are at this place, None if not known: the outer pools' workers and, in a process
            with several copies of a runtime, each of these; total: workers of it in all (None if not known).
        copy: which copy of the runtime, `openblas[numpy]`, or "" if there is one only.
        limited_by: `contract.mitigation` that set its size, or "".
        inside: the pools that its workers may open.
    """

    pool: Pool
    copies: float | None
    total: float | None
    copy: str = ""
    limited_by: str = ""
    inside: tuple[Node, ...] = ()

    @property
    def name(self) -> str:
        """`contract.demand`, with the copy where there are several."""
        return f"{self.copy}.{self.pool.demand.name}" if self.copy else self.pool.name


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the tree we are: processes and threads so far, what is set there, and who limited what."""

    system: System
    processes: float | None = 1
    threads: float | None = 1
    path: tuple[str, ...] = ()
    set_by: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, str]] = field(default_factory=dict)


def tree(system: System) -> tuple[Node, ...]:
    """The pools of a system as a tree; the order of the contracts makes no difference."""
    place = _Place(system)
    return tuple(
        node
        for member in system.members
        for pool in member.pools
        if pool.demand.resource.name in _CPU and not any(_stands_in(pool, member, p) for p in system.pools)
        for node in _nodes(place, member, pool)
    )


def walk(nodes: tuple[Node, ...]) -> Iterator[tuple[tuple[Node, ...], Node]]:
    """Every node with the nodes around it, outermost first."""
    stack: list[tuple[tuple[Node, ...], Node]] = [((), n) for n in reversed(nodes)]
    while stack:
        around, node = stack.pop()
        yield around, node
        stack += [((*around, node), n) for n in reversed(node.inside)]


def _times(a: float | None, b: float | None) -> float | None:
    # None is not known; nothing at all stays nothing, whatever the rest is.
    if 0 in {a, b}:
        return 0
    return None if a is None or b is None else a * b


def _nodes(place: _Place, member: Resolved, pool: Pool) -> Iterator[Node]:
    """A pool at a place, once for each copy of its runtime, with what is inside."""
    limit = place.limits.get(pool.name)
    by = {place.set_by[w.label] for w in member.set_by.values() if w.label in place.set_by}
    cause = limit[1] if limit else min(by, default="")
    sized = pool if limit is None else replace(pool, amount=limit[0])
    shared = pool.demand.scope in {"process", "machine"}
    around = 1 if pool.demand.scope == "machine" else _times(place.processes, 1 if shared else place.threads)
    copies = place.system.copies(pool.contract)
    for copy in copies:
        yield Node(
            sized,
            around,
            _times(around, sized.amount),
            copy.label if len(copies) > 1 else "",
            cause,
            tuple(_inner(place, member, sized)) if len(place.path) < MAX_DEPTH else (),
        )


def _inner(place: _Place, outer: Resolved, pool: Pool) -> Iterator[Node]:
    """The pools that may stand inside of each worker of `pool`, as its library leaves them there."""
    user_code = pool.demand.runs == "user_code"
    if not user_code and not any(_stands_in(p, r, pool) for r in place.system.members for p in r.pools):
        return
    here = _within(place, outer, pool)
    for member in here.system.members:
        for p in member.pools:
            if p.demand.resource.name not in _CPU or p.name in here.path:
                continue
            native = user_code and not p.demand.inside and p.demand.runs == "native"
            if _stands_in(p, member, pool) or (native and member.contract.name != outer.contract.name):
                yield from _nodes(here, member, p)


def _stands_in(p: Pool, member: Resolved, outer: Pool) -> bool:
    own = member.contract.name
    names = {r.name if len(r.parts) > 1 and r.parts[0] != own else f"{own}.{r.parts[-1]}" for r in p.demand.inside}
    return outer.name in names


def _within(place: _Place, outer: Resolved, pool: Pool) -> _Place:
    """The place inside of a worker of `pool`."""
    path = (*place.path, pool.name)
    if pool.demand.resource.name == "cpu.threads":
        return replace(place, threads=_times(place.threads, pool.amount), path=path)
    processes = _times(_times(place.processes, place.threads), pool.amount)
    system, set_by, limits = place.system, dict(place.set_by), dict(place.limits)
    environ = dict(system.environ)
    for member, x, value in system.mitigations("children"):
        if member.contract.name != outer.contract.name or value is None:
            continue
        if x.pool is not None and x.pool.parts[-1] != pool.demand.name:
            continue
        by = f"{member.contract.name}.{x.name}"
        for name in x.env:
            if not (x.unless_set and name in environ):
                environ[name], set_by[name] = _text(value), by
        if isinstance(value, int | float) and not isinstance(value, bool):
            limits |= {_owner(ref, member.contract): (float(value), by) for ref in x.limits}
    if environ != dict(system.environ):
        contracts = [r.contract for r in system.members]
        system = compose(contracts, system.machine, environ, releases=system.releases)
    return _Place(system, processes, 1, path, set_by, limits)


def _owner(ref: m.Ref, contract: m.Contract) -> str:
    """`contract.demand` of a limited `demand.amount`."""
    return f"{ref.parts[0] if len(ref.parts) > 2 else contract.name}.{ref.parts[-2] if len(ref.parts) > 1 else ''}"


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
