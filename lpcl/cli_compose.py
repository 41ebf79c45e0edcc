"""`lpcl compose`: read contracts and a machine, compose, print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from lpcl import model as m
from lpcl.compose import System, compose, machine_values
from lpcl.corpus import CONTRACT, shipped
from lpcl.diagnostics import render
from lpcl.explain import shown, why
from lpcl.expr import MACHINE_FACTS, Value
from lpcl.machine import facts
from lpcl.nesting import Node, tree
from lpcl.parse import parse


def run(args: argparse.Namespace, paths: Sequence[Path]) -> int:
    """Compose what the command line names; returns the exit code."""
    contracts = _read(paths)
    machine = _machine(args.machine)
    if contracts is None or machine is None:
        return 2
    values, sources = machine
    settings: dict[str, str] = {}
    for text in args.set:
        # The name itself may hold one: `pkg.f(parameter=)=8`.
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            return _fail(f"`{text}` sets nothing", "write it like --set OMP_NUM_THREADS=1")
        settings[name] = value
    system = compose(contracts, machine_values(values), settings)
    if args.why:
        lines = why(system, args.why, sources)
        if not lines:
            names = [p.name + ".amount" for p in system.pools][:5]
            return _fail(f"`{args.why}` is nothing of this system", f"for example {', '.join(names)}")
        print("\n".join(lines))
    elif args.json:
        print(json.dumps(_as_dict(system, settings), indent=2))
    else:
        _print(system, settings)
    return 0


def _fail(message: str, help_text: str) -> int:
    print(f"lpcl: error: {message}\n  help: {help_text}", file=sys.stderr)
    return 2


def _read(paths: Sequence[Path]) -> list[m.Contract] | None:
    """The contracts, and those of the shipped corpus that they use; None after saying what is wrong with one."""
    found: dict[str, m.Contract] = {}
    todo = list(paths)
    while todo:
        path = todo.pop(0)
        text = path.read_text("utf-8", "replace")
        parsed = parse(text, file=str(path))
        if not parsed.ok or parsed.file is None:
            for d in parsed.diagnostics:
                print(render(d, text), file=sys.stderr)
            return None
        for contract in parsed.file.contracts:
            found.setdefault(contract.name, contract)
            used = (shipped() / name / CONTRACT for name in contract.uses if name not in found)
            todo += [p for p in used if p.is_file() and p not in todo]
    return list(found.values())


def _machine(name: str) -> tuple[dict[str, Value], dict[str, str]] | None:
    if name == "this":
        here = facts()
        return here.values(), here.sources
    try:
        data = json.loads(Path(name).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        _fail(f"`{name}` is not JSON: {error}", 'write it like {"online": 8, "affinity": 4, "quota": 2.5}')
        return None
    unknown = sorted(set(data) - set(MACHINE_FACTS)) if isinstance(data, dict) else ["?"]
    if unknown:
        _fail(f"`{unknown[0]}` is no machine fact", f"facts are {', '.join(MACHINE_FACTS)}")
        return None
    wrong = [k for k, v in data.items() if v is not None and (isinstance(v, bool) or not isinstance(v, int | float))]
    if wrong:
        _fail(f"`{wrong[0]}` is not a number", "give numbers, or null for what is not limited")
        return None
    return data, {}


def _as_dict(system: System, settings: dict[str, str]) -> dict[str, object]:
    return {
        "machine": {k: v for k, v in system.machine.items() if v is not None},
        "settings": settings,
        "pools": [
            {
                "name": p.name,
                "resource": p.demand.resource.name,
                "amount": p.amount,
                "idle": p.idle,
                "awake_s": p.awake_s,
                "spins": p.spins,
            }
            for p in system.pools
        ],
        "controls": [
            {
                "name": f"{r.contract.name}.{c.name}",
                "value": r.values.get(c.name),
                "set_by": r.set_by[c.name].label if c.name in r.set_by else None,
            }
            for r in system.members
            for c in r.contract.controls
        ],
        "tree": [_node(n) for n in tree(system, settings)],
        "ignored": _ignored(system, settings),
    }


def _node(n: Node) -> dict[str, object]:
    return {
        "pool": n.pool.name,
        "amount": n.pool.amount,
        "total": n.total,
        "limited_by": n.limited_by,
        "inside": [_node(x) for x in n.inside],
    }


def _ignored(system: System, settings: dict[str, str]) -> list[str]:
    """Settings that decide nothing here: no contract knows them, or another one wins."""
    used = {w.label for r in system.members for w in r.set_by.values()}
    return sorted(set(settings) - used)


def _print(system: System, settings: dict[str, str]) -> None:
    width = max((len(p.name) for p in system.pools), default=4)
    print(f"{'pool':<{width}}  {'amount':>8}  idle")
    for p in system.pools:
        awake = f", awake {p.awake_s:.3g} s" if p.awake_s is not None and p.spins else ""
        print(f"{p.name:<{width}}  {shown(p.amount):>8}  {p.idle}{awake}")
    for node in tree(system, settings):
        if node.inside:
            print(f"\ninside of each of the {shown(node.pool.amount)} workers of {node.pool.name}:")
        for inner in node.inside:
            limited = f"  (limited by {inner.limited_by})" if inner.limited_by else ""
            print(f"  {inner.pool.name}: {shown(inner.pool.amount)} each, {shown(inner.total)} in all{limited}")
    labels = [f"{r.contract.name}.{c.name}" for r in system.members for c in r.contract.controls]
    width = max((len(x) for x in labels), default=7)
    print(f"\n{'control':<{width}}  {'value':>12}  set by")
    for r in system.members:
        for c in r.contract.controls:
            by = r.set_by[c.name].label if c.name in r.set_by else ""
            print(f"{f'{r.contract.name}.{c.name}':<{width}}  {shown(r.values.get(c.name)):>12}  {by}".rstrip())
    for name in _ignored(system, settings):
        print(f"\n{name}={settings[name]} decides nothing here")
