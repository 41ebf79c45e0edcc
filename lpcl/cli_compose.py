"""`lpcl compose`: read contracts and a machine, compose, print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from lpcl import model as m
from lpcl.compose import System, compose, installed_values, machine_values
from lpcl.configspace import export
from lpcl.corpus import CONTRACT, shipped
from lpcl.diagnostics import render
from lpcl.explain import shown, why
from lpcl.expr import MACHINE_FACTS, Value
from lpcl.format import expression
from lpcl.machine import facts
from lpcl.nesting import Node, tree, walk
from lpcl.parse import parse, read_text
from lpcl.space import space


def run(args: argparse.Namespace, paths: Sequence[Path]) -> int:
    """Compose what the command line names; returns the exit code."""
    contracts = _read(paths)
    machine = _machine(args.machine)
    if contracts is None or machine is None:
        return 2
    facts_here, sources = machine
    values = machine_values(facts_here)
    if args.installed is not None:
        values |= installed_values(n for n in args.installed.split(",") if n)
    settings, releases = _pairs(args.set, "--set OMP_NUM_THREADS=1"), _pairs(args.release, "--release numpy=2.4.6")
    if settings is None or releases is None:
        return 2
    system = compose(contracts, values, settings, releases=releases)
    if args.why:
        lines = why(system, args.why, sources)
        if not lines:
            names = [p.name + ".amount" for p in system.pools][:5]
            return _fail(f"`{args.why}` is nothing of this system", f"for example {', '.join(names)}")
        print("\n".join(lines))
    elif args.configspace:
        return _configspace(system, args.configspace)
    elif args.json:
        print(json.dumps(_as_dict(system), indent=2))
    else:
        _print(system)
    return 0


def _pairs(texts: Sequence[str], example: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for text in texts:
        # The name itself may hold one: `pkg.f(parameter=)=8`; a value may too, but no variable's name does.
        left, mark, right = text.partition(")=") if "(" in text.partition("=")[0] else ("", "", "")
        name, equals, value = (f"{left})", mark, right) if mark else text.partition("=")
        if not equals or not name:
            _fail(f"`{text}` sets nothing", f"write it like {example}")
            return None
        found[name] = value
    return found


def _configspace(system: System, path: str) -> int:
    try:
        exported = export(space(system))
    except ImportError as error:
        return _fail(f"this needs `{error.name}`", "pip install 'syspilot-lpc[configspace]'")
    if path == "-":
        print(json.dumps(exported.space.to_serialized_dict(), indent=2))
    else:
        exported.space.to_json(path, indent=2)
    for name, reason in sorted(exported.left_out.items()):
        print(f"left out: {name}: {reason}", file=sys.stderr)
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
        text = read_text(path)
        parsed = parse(text, file=str(path))
        if not parsed.ok or parsed.file is None:
            for d in parsed.diagnostics:
                print(render(d, text), file=sys.stderr)
            return None
        for contract in parsed.file.contracts:
            found.setdefault(contract.name, contract)
            used = (shipped() / name / CONTRACT for name in contract.needs if name not in found)
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
    words = {"os", "arch"}
    wrong = [k for k, v in data.items() if v is not None and not _fits(v, str if k in words else (int, float))]
    if wrong:
        what = "text" if wrong[0] in words else "a number"
        _fail(f"`{wrong[0]}` is not {what}", "give numbers, text for os and arch, or null for what is not limited")
        return None
    return data, {}


def _fits(value: object, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _as_dict(system: System) -> dict[str, object]:
    joint = space(system)
    return {
        "machine": {k: v for k, v in system.machine.items() if v is not None},
        "settings": dict(system.environ),
        "pools": [
            {
                "name": p.name,
                "resource": p.demand.resource.name,
                "amount": p.amount,
                "idle": p.idle,
                "awake_s": p.awake_s,
                "spins": p.spins,
                "pinned": p.pinned,
                "copies": [c.label for c in system.copies(p.contract)] if len(system.copies(p.contract)) > 1 else [],
            }
            for p in system.pools
        ],
        "controls": [
            {
                "name": f"{r.contract.name}.{c.name}",
                "value": r.values.get(c.name),
                "set_by": r.set_by[c.name].label if c.name in r.set_by else None,
                "inactive": r.inactive.get(c.name),
            }
            for r in system.members
            for c in r.contract.controls
        ],
        "tree": [_node(n) for n in tree(system)],
        "space": {
            "parameters": [
                {k: v for k, v in asdict(replace(p, way=None)).items() if k != "way"}  # type: ignore[arg-type]
                for p in joint.parameters
            ],
            "constraints": [
                {"kind": c.kind, "subject": c.subject, "expression": expression(c.expr), "parameters": c.parameters}
                for c in joint.constraints
            ],
        },
        "mitigations": [
            {"name": f"{r.contract.name}.{x.name}", "in": target, "value": value, "lasts": x.lasts or "process"}
            for target in ("process", "children")
            for r, x, value in system.mitigations(target)
        ],
        "findings": [asdict(f) for f in system.findings],
    }


def _node(n: Node) -> dict[str, object]:
    return {
        "pool": n.name,
        "amount": n.pool.amount,
        "copies": n.copies,
        "total": n.total,
        "limited_by": n.limited_by,
        "inside": [_node(x) for x in n.inside],
    }


def _print(system: System) -> None:
    _print_pools(system)
    _print_controls(system)
    during = [(r, x, v) for r, x, v in system.mitigations("process") if x.limits]
    if during:
        print()
    for r, x, value in during:
        names = ", ".join(ref.name.removesuffix(".amount") for ref in x.limits)
        lasts = {"call": " during a call", "context": " inside a context"}.get(x.lasts or "", "")
        print(f"{r.contract.name}.{x.name} brings {names} to {shown(value)}{lasts}")
    for f in system.findings:
        print(f"\n{f.kind}: {f.message}")


def _print_pools(system: System) -> None:
    rows: list[tuple[str, Node]] = [("  " * len(around) + node.name, node) for around, node in walk(tree(system))]
    width = max((len(name) for name, _ in rows), default=4)
    print(f"{'pool':<{width}}  {'each':>8}  {'in all':>8}  idle")
    for name, node in rows:
        p = node.pool
        awake = f", awake {p.awake_s:.3g} s" if p.awake_s is not None and p.spins else ""
        limited = f"  (limited by {node.limited_by})" if node.limited_by else ""
        print(f"{name:<{width}}  {shown(p.amount):>8}  {shown(node.total):>8}  {p.idle}{awake}{limited}")
    others = [p for p in system.pools if p.name not in {n.pool.name for _, n in rows}]
    for p in others:
        print(f"{p.name:<{width}}  {shown(p.amount):>8}  {'':>8}  {p.demand.resource.name}")


def _print_controls(system: System) -> None:
    labels = [f"{r.contract.name}.{c.name}" for r in system.members for c in r.contract.controls]
    width = max((len(x) for x in labels), default=7)
    print(f"\n{'control':<{width}}  {'value':>12}  set by")
    for r in system.members:
        for c in r.contract.controls:
            by = r.set_by[c.name].label if c.name in r.set_by else ""
            if c.name in r.inactive:
                by = f"inactive: {r.inactive[c.name]}"
            print(f"{f'{r.contract.name}.{c.name}':<{width}}  {shown(r.values.get(c.name)):>12}  {by}".rstrip())
    joint = space(system)
    several = [p for p in joint.parameters if len(p.controls) + len(p.also) > 1]
    if several:
        print("\nset together:")
    for p in several:
        also = f", and unless a better way is set {', '.join(p.also)}" if p.also else ""
        print(f"  {p.label}: {', '.join(p.controls)}{also}")
