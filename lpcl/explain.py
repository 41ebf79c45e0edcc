"""Why a number of a composed system is what it is: its expression, and where each part of it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lpcl import model as m
from lpcl.compose import Resolved, System
from lpcl.expr import MACHINE_FACTS, Value
from lpcl.format import expression

MAX_LINES = 200


def why(system: System, name: str, sources: Mapping[str, str] | None = None) -> list[str]:
    """Explain a pool's amount, a control's value or a machine fact.

    Args:
        system: see `compose`.
        name: `contract.demand.amount`, `contract.control`, `machine.fact`; the contract may be left out where only
            one has such a clause.
        sources: machine fact -> the file or call that it was read from.

    Returns:
        Lines, indented by depth; empty if there is no such name.
    """
    lines: list[str] = []
    for line in _why(system, name, sources or {}, 0, set()):
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
        inner = _demand(member, clause) if isinstance(clause, m.Demand) else _control(member, clause)
        for text, refs in inner:
            yield indent + text
            for ref in refs:
                full = ref if ref.startswith("machine.") else f"{member.contract.name}.{ref}"
                yield from _why(system, full, sources, depth + 1, seen)


def _find(system: System, name: str) -> Iterator[tuple[Resolved, m.Control | m.Demand]]:
    parts = name.removesuffix(".amount").removesuffix(".idle").split(".")
    contract, clause = (parts[0], parts[-1]) if len(parts) > 1 else ("", parts[0])
    for member in system.members:
        if contract in {"", member.contract.name}:
            found = member.contract.control(clause) or member.contract.demand(clause)
            if found is not None:
                yield member, found


def _refs(node: object) -> list[str]:
    names = dict.fromkeys(r.name.removesuffix(".amount") for r in m.walk_references(node))
    return [n for n in names if n != "value"]


def _demand(member: Resolved, demand: m.Demand) -> Iterator[tuple[str, list[str]]]:
    pool = next((p for p in member.pools if p.demand.name == demand.name), None)
    head = f"{member.contract.name}.{demand.name}"
    if pool is None:
        yield f"{head} does not apply here: its `when` does not hold", _refs(demand.condition)
        return
    amount = "not stated" if demand.amount is None else expression(demand.amount)
    yield f"{head}.amount = {shown(pool.amount)}  because amount is `{amount}`", _refs(demand.amount)
    awake = "" if pool.awake_s is None else f", awake for {pool.awake_s:.3g} s"
    yield f"{head}.idle = {pool.idle}{awake}", _refs(demand.idle)


def _control(member: Resolved, control: m.Control) -> Iterator[tuple[str, list[str]]]:
    head = f"{member.contract.name}.{control.name}"
    value = shown(member.values.get(control.name))
    way = member.set_by.get(control.name)
    if way is not None:
        effective = f", in effect `{expression(control.effective)}`" if control.effective is not None else ""
        yield f"{head} = {value}  because `{way.label}` is set{effective}", _refs(control.effective)
        return
    default = "not stated" if control.default is None else expression(control.default)
    yield f"{head} = {value}  by default, which is `{default}`", _refs(control.default)


def shown(value: Value) -> str:
    """A value for people."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
