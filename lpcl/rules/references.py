"""Rules about names: what a reference, a function or a resource stands for."""

from __future__ import annotations

from collections.abc import Iterable

from lpcl import model as m
from lpcl.expr import FUNCTIONS, MACHINE_FACTS
from lpcl.rules.base import PROPERTIES, Finding, Found, walk
from lpcl.rules.view import View

RESOURCES = (
    "cpu.threads",
    "cpu.processes",
    "cpu.time",
    "memory.bytes",
    "memory.bandwidth",
    "gpu.memory",
    "gpu.devices",
    "io.threads",
    "io.bandwidth",
    "files",
)
_FACTS = tuple(f"machine.{f}" for f in MACHINE_FACTS)


def resource(v: View) -> Found:
    """A resource that the tuner does not know."""
    for x in v.named:
        if x.role == "resource" and x.ref.name not in RESOURCES:
            help_text = v.near(x.ref.name, RESOURCES, f"one of {', '.join(RESOURCES)}")
            yield Finding(f"`{x.ref.name}` is no resource", x.ref.span, help_text)


def _known_names(v: View) -> set[str]:
    names = {*_FACTS, "value", *v.controls}
    for d in v.demands:
        names |= {d, f"{d}.amount", f"{d}.idle", f"{d}.created"}
    return names


def dangling(v: View) -> Found:
    """A reference to nothing."""
    names = _known_names(v)
    known = sorted(names)
    refs = [*(e for e, _ in v.refs), *(x.ref for x in v.named if x.role != "resource")]
    for ref in refs:
        name = ref.name
        if name in names or ref.parts[0] in v.needs:  # it lives in the contract that is used
            continue
        if ref.parts[0] == "machine":
            help_text = v.near(name, _FACTS, f"facts are {', '.join(MACHINE_FACTS)}")
        else:
            help_text = v.near(name, known, "name a control, a demand or a fact `machine.x`")
        yield Finding(f"`{name}` refers to nothing", ref.span, help_text)


def function(v: View) -> Found:
    """An unknown function."""
    for e, _ in v.applied:
        if e.function not in FUNCTIONS:
            help_text = v.near(e.function, FUNCTIONS, f"one of {', '.join(FUNCTIONS)}")
            yield Finding(f"`{e.function}` is no function", e.span, help_text)


def arguments(v: View) -> Found:
    """A wrong number of arguments."""
    for e, _ in v.applied:
        least, most = FUNCTIONS.get(e.function, (0, None))
        if len(e.arguments) < least or (most is not None and len(e.arguments) > most):
            wanted = str(least) if least == most else f"at least {least}"
            yield Finding(f"`{e.function}` takes {wanted} arguments, not {len(e.arguments)}", e.span)


def cycles(v: View) -> Found:
    """Defaults, ranges or amounts that depend on themselves."""
    c = v.contract
    graph = {x.name: _needs_of(x) - {"value"} for x in c.controls}
    for d in c.demands:
        graph[d.name] = graph[f"{d.name}.amount"] = _refs((d.amount,))
    left = _entangled(graph)
    clauses: tuple[m.Control | m.Demand, ...] = (*c.controls, *c.demands)
    for clause in clauses:
        chain = _chain(clause, left) if clause.name in left else []
        if chain:
            shown = " -> ".join(f"`{name}`" for name in chain)
            help_text = "break the cycle: one of them needs a fixed value"
            yield Finding(f"`{clause.name}` depends on itself: {shown}", clause.span, help_text)


def _chain(clause: m.Control | m.Demand, graph: dict[str, set[str]]) -> list[str]:
    """The shortest way from a clause back to itself, or nothing."""
    own = {clause.name, f"{clause.name}.amount"} if isinstance(clause, m.Demand) else {clause.name}
    came_from: dict[str, str] = {}
    frontier = [clause.name]
    while frontier:
        following: list[str] = []
        for name in frontier:
            for needed in sorted(graph.get(name, ())):
                if needed in own:
                    chain = [needed, name]
                    while chain[-1] in came_from:
                        chain.append(came_from[chain[-1]])
                    return chain[::-1]
                if needed not in came_from:
                    came_from[needed] = name
                    following.append(needed)
        frontier = following
    return []


def _entangled(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of a graph without the names that lead to no cycle: mostly nothing."""
    users: dict[str, list[str]] = {}
    for name, needs in graph.items():
        for n in needs & graph.keys():
            users.setdefault(n, []).append(name)
    open_needs = {name: len(needs & graph.keys()) for name, needs in graph.items()}
    free = [name for name, count in open_needs.items() if not count]
    while free:
        for user in users.get(free.pop(), ()):
            open_needs[user] -= 1
            if not open_needs[user]:
                free.append(user)
    return {name: graph[name] for name, count in open_needs.items() if count}


def _needs_of(x: m.Control) -> set[str]:
    ends = () if x.range is None else (x.range.low, x.range.high, x.range.step)
    taken = (w.taken for w in x.ways)
    meanings = (s.meaning for s in x.specials)
    return _refs((x.default, *ends, x.effective, *taken, *meanings))


def _refs(expressions: Iterable[m.Expr | None]) -> set[str]:
    return {e.name for root in expressions if root is not None for e in walk(root) if isinstance(e, m.Ref)}


def demand_property(v: View) -> Found:
    """`bounds`, `affects`, `observes` and `limits` name a property of a demand."""
    for x in v.named:
        if x.role not in {"bounds", "affects", "observes", "limits"}:
            continue
        parts = x.ref.parts
        own = parts[0] in v.demands
        # A demand of a used contract is named with its contract: `libgomp.team.amount`.
        wanted = 2 if own else 3
        if (own or parts[0] in v.needs) and (len(parts) != wanted or parts[-1] not in PROPERTIES):
            base = parts[0] if own else f"{parts[0]}.DEMAND"
            help_text = f"write `{base}.amount` or `{base}.idle`"
            yield Finding(f"`{x.ref.name}` is no property of a demand", x.ref.span, help_text)


def value_outside(v: View) -> Found:
    """`value` where nothing was asked for."""
    for e, place in v.refs:
        if e.name == "value" and place.role not in {"effective", "as"}:
            help_text = "`value` is what was asked for: it stands behind `effective` and `as` only"
            yield Finding("nothing was asked for here", e.span, help_text)


def demand_as_value(v: View) -> Found:
    """A demand as a whole has no value."""
    for e, _ in v.refs:
        if len(e.parts) == 1 and e.name in v.demands and e.name not in v.controls:
            yield Finding(f"`{e.name}` is a demand and has no value", e.span, f"write `{e.name}.amount`")


def question(v: View) -> Found:
    """`is_set` about what is no control."""
    for e, _ in v.applied:
        if e.function != "is_set" or len(e.arguments) != 1:
            continue
        asked = e.arguments[0]
        name = asked.name if isinstance(asked, m.Ref) else ""
        outside = isinstance(asked, m.Ref) and asked.parts[0] not in {"machine", *v.demands} and name != "value"
        if name not in v.controls and not outside:
            yield Finding("`is_set` asks about a control", asked.span, "name one of the controls")


def text_argument(v: View) -> Found:
    """`installed`, `loaded` and `copies` take a name in quotes."""
    for e, _ in v.applied:
        if e.function in {"installed", "loaded", "copies"}:
            for a in e.arguments[:1]:
                if not isinstance(a, m.Text):
                    yield Finding(f"`{e.function}` takes a name in quotes", a.span, f'write `{e.function}("NAME")`')


def pool(v: View) -> Found:
    """`after`, `inside` and `of` name a demand, and no demand stands inside of itself."""
    for x in v.named:
        if x.role not in {"after", "inside", "of"}:
            continue
        parts = x.ref.parts
        own = parts[0] in v.demands
        known = own or parts[0] in v.needs
        if x.role == "inside" and parts == (x.clause.name,):
            yield Finding(f"`{x.ref.name}` stands inside of itself", x.ref.span)
        elif parts[0] in v.controls or (known and len(parts) != (1 if own else 2)):
            help_text = f"name the demand that `{x.role}` is about, of a used contract with its name: `libgomp.team`"
            yield Finding(f"`{x.ref.name}` is no demand", x.ref.span, help_text)


def machine_fact(v: View) -> Found:
    """`sizes ... from` and `ignores` name facts of the machine."""
    for x in v.named:
        if x.role in {"from", "ignores"} and x.ref.parts[0] in {*v.controls, *v.demands}:
            help_text = "name a fact `machine.x`"
            yield Finding(f"`{x.ref.name}` is no fact of the machine", x.ref.span, help_text)
