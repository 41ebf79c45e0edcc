"""Why a number of a composed system is what it is: its expression, and where each part of it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lpcl import model as m
from lpcl.compose import System
from lpcl.expr import MACHINE_FACTS, Value
from lpcl.format import expression
from lpcl.nesting import Node, tree, walk
from lpcl.resolve import Resolved

MAX_LINES = 200


def why(system: System, name: str, sources: Mapping[str, str] | None = None) -> list[str]:
    """Explain a pool's amount or total, a control's value or a machine fact.

    Args:
        system: see `compose`.
        name: `contract.demand.amount`, `contract.demand.total`, `contract.control`, `machine.fact`; the contract may
            be left out where only one has such a clause.
        sources: machine fact -> the file or call that it was read from.

    Returns:
        Lines, indented by depth; empty if there is no such name.
    """
    lines: list[str] = []
    found = _total(system, name.removesuffix(".total")) if name.endswith(".total") else None
    for line in found if found is not None else _why(system, name, sources or {}, 0, set()):
        lines.append(line)
        if len(lines) >= MAX_LINES:
            return [*lines, "..."]
    return lines


def _why(system: System, name: str, sources: Mapping[str, str], depth: int, seen: set[str]) -> Iterator[str]:
    indent = "  " * depth
    if name.startswith("machine."):
        fact = name.removeprefix("machine.")
        if fact in MACHINE_FACTS:
            source = sources.get(fact) or sources.get(f"{fact}_cores") or sources.get(f"{fact}_bytes") or ""
            yield f"{indent}{name} = {shown(system.machine.get(name))}" + (f"  ({source})" if source else "")
        return
    for member, clause in _find(system, name):
        key = f"{member.contract.name}.{clause.name}"
        if key in seen:
            yield f"{indent}{key}: see above"
            continue
        seen.add(key)
        inner = _demand(system, member, clause) if isinstance(clause, m.Demand) else _control(member, clause)
        for text, refs in inner:
            yield indent + text
            for ref in refs:
                outside = ref.startswith("machine.") or ref.split(".")[0] in member.contract.needs
                full = ref if outside else f"{member.contract.name}.{ref}"
                yield from _why(system, full, sources, depth + 1, seen)


def _find(system: System, name: str) -> Iterator[tuple[Resolved, m.Control | m.Demand]]:
    parts = name.removesuffix(".amount").removesuffix(".idle").split(".")
    contract, clause = (parts[0].partition("[")[0], parts[-1]) if len(parts) > 1 else ("", parts[0])
    for member in system.members:
        if contract in {"", member.contract.name}:
            found = member.contract.control(clause) or member.contract.demand(clause)
            if found is not None:
                yield member, found


def _refs(node: object) -> list[str]:
    names = dict.fromkeys(r.name.removesuffix(".amount") for r in m.walk_references(node))
    return [n for n in names if n != "value"]


def _demand(system: System, member: Resolved, demand: m.Demand) -> Iterator[tuple[str, list[str]]]:
    pool = next((p for p in member.pools if p.demand.name == demand.name), None)
    head = f"{member.contract.name}.{demand.name}"
    if pool is None:
        condition = "" if demand.condition is None else expression(demand.condition)
        yield f"{head} does not apply here: `{condition}` does not hold", _refs(demand.condition)
        return
    amount = "not stated" if demand.amount is None else expression(demand.amount)
    yield f"{head}.amount = {shown(pool.amount)}  because amount is `{amount}`", _refs(demand.amount)
    yield from _limited(system, head)
    copies = system.copies(member.contract.name)
    if len(copies) > 1:
        yield f"{len(copies)} copies in one process: {', '.join(c.label for c in copies)}", []
    if demand.idle:
        awake = "" if pool.awake_s is None else f", awake for {pool.awake_s:.3g} s"
        yield f"{head}.idle = {pool.idle}{awake}", _refs(demand.idle)


def _limited(system: System, pool: str) -> Iterator[tuple[str, list[str]]]:
    """What other libraries do to a pool of this process."""
    for member, x, value in system.mitigations("process"):
        own = member.contract.name
        names = {r.name if r.parts[0] in member.contract.needs else f"{own}.{r.name}" for r in x.limits}
        if f"{pool}.amount" in names:
            lasts = {"call": ", during a call", "context": ", inside a context"}.get(x.lasts or "", "")
            yield f"{own}.{x.name} brings it to {shown(value)}{lasts}", []


def _control(member: Resolved, control: m.Control) -> Iterator[tuple[str, list[str]]]:
    head = f"{member.contract.name}.{control.name}"
    value = shown(member.values.get(control.name))
    way = member.set_by.get(control.name)
    if way is not None:
        rule = control.effective if way.taken is None else way.taken
        effective = "" if rule is None else f", in effect `{expression(rule)}`"
        yield f"{head} = {value}  because `{way.label}` is set{effective}", _refs(rule)
    else:
        default = "not stated" if control.default is None else expression(control.default)
        yield f"{head} = {value}  by default, which is `{default}`", _refs(control.default)
    if control.name in member.inactive:
        yield f"setting it does nothing here: {member.inactive[control.name]}", _refs(control.condition)
    for a in member.asked:
        if a.control == control.name and a.outcome != "wins":
            yield f"`{a.way.label}={a.text}` is {a.outcome}" + (f": {a.why}" if a.why else ""), []


def _total(system: System, name: str) -> list[str] | None:
    """The places of a pool in the tree, each with its product; None if it is in no place."""
    found: list[tuple[tuple[Node, ...], Node]] = [
        (around, node)
        for around, node in walk(tree(system))
        if name in {node.name, node.pool.name, node.pool.demand.name}
    ]
    if not found:
        return None
    lines = []
    for around, node in found:
        steps = [f"{shown(n.pool.amount)} {n.name}" for n in around]
        own = f"{shown(node.pool.amount)} {node.name}"
        limited = f" (set by {node.limited_by})" if node.limited_by else ""
        product = " x ".join([*steps, own]) + limited
        # Threads of one process share what exists once in a process.
        shared = around and node.copies is not None and node.copies != _product(around)
        tail = f", of which there are {shown(node.copies)}" if shared else ""
        lines.append(f"{shown(node.total)} = {product}{tail}")
    return lines


def _product(around: tuple[Node, ...]) -> float | None:
    result: float | None = 1
    for node in around:
        result = None if result is None or node.pool.amount is None else result * node.pool.amount
    return result


def shown(value: Value) -> str:
    """A value for people."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
