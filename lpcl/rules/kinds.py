"""What kind of thing an expression is: its type and its unit, as far as they can be told without values.

A kind is a word: `number` (a plain one, which fits any unit), `count`, `B`, `s`, `cycles`, `ratio`, `text`, `truth`,
`list`, or `""` where nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lpcl import model as m
from lpcl.expr import MACHINE_FACTS
from lpcl.rules.base import Parts, Place
from lpcl.units import dimension

NUMERIC = frozenset({"number", "count", "B", "s", "cycles", "ratio"})
WORDS = {
    "number": "a number",
    "count": "a number",
    "cycles": "a number of clock ticks",
    "B": "a size",
    "s": "a duration",
    "ratio": "a share",
    "text": "text",
    "truth": "a truth value",
    "list": "a list",
}
_TYPES = {
    "int": "count",
    "float": "number",
    "size": "B",
    "duration": "s",
    "bool": "truth",
    "text": "text",
    "choice": "text",
    "list": "list",
    "sequence": "list",
    "map": "list",
}
# What a value of a type may be. A size may be text, because a share of the memory is written "50%".
FITS: dict[str, frozenset[str]] = {
    "int": frozenset({"number", "count", "cycles"}),
    "float": frozenset({"number", "count", "cycles", "ratio"}),
    "size": frozenset({"number", "count", "B", "ratio", "text"}),
    "duration": frozenset({"number", "count", "s"}),
    "bool": frozenset({"truth"}),
    "text": frozenset({"text"}),
    "choice": frozenset({"text"}),
    "list": frozenset({"text", "list"}),
    "sequence": frozenset({"text", "list"}),
    "map": frozenset({"text", "list"}),
    "placement": frozenset({"text"}),
}
AMOUNTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("cpu.threads", "cpu.processes", "io.threads", "gpu.devices", "files"), frozenset({"number", "count"})
    ),
    "memory.bytes": frozenset({"number", "count", "B"}),
    "gpu.memory": frozenset({"number", "count", "B", "ratio"}),
    "cpu.time": frozenset({"number", "count", "s", "ratio"}),
}
_FACTS = {"memory": "B", "memory_limit": "B", "os": "text", "arch": "text"}
_QUESTIONS = frozenset({"is_set", "installed", "loaded"})
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
TRUTHS = frozenset({"and", "or", "not"})


def mix(a: str, b: str) -> str | None:
    """The kind of two things of one kind, as in a sum; None if they do not mix."""
    if not a or not b or a == b:
        return a or b
    if a in NUMERIC and b in NUMERIC:
        if "number" in {a, b}:
            return b if a == "number" else a
        return "number" if {a, b} == {"count", "ratio"} else None
    return None


def mixed(kinds: Iterable[str]) -> str | None:
    """The kind of several things of one kind; None if two of them do not mix."""
    result: str | None = ""
    for kind in kinds:
        result = None if result is None else mix(result, kind)
    return result


class Kinds:
    """The kinds of all expressions of a contract."""

    def __init__(self, parts: Parts) -> None:
        """From the parts to the whole, without recursion: an expression that was built may be deep."""
        self._view = parts
        self._kinds: dict[int, str] = {}
        for expr, place in reversed(parts.nodes):
            self._kinds[id(expr)] = self._kind(expr, place)

    def __getitem__(self, e: m.Expr) -> str:
        """The kind of an expression of the contract."""
        return self._kinds.get(id(e), "")

    def all(self, expressions: Iterable[m.Expr]) -> list[str]:
        """The kinds of several."""
        return [self._kinds.get(id(e), "") for e in expressions]

    def _kind(self, e: m.Expr, place: Place) -> str:
        if isinstance(e, m.Ref):
            return self._reference(e, place)
        if isinstance(e, m.Number):
            return dimension(e.unit) or "number"
        if isinstance(e, m.Operation):
            return self._operation(e)
        if isinstance(e, m.Apply):
            return self._applied(e)
        if isinstance(e, m.Conditional):
            return mix(self[e.yes], self[e.no]) or ""
        return {m.Text: "text", m.Truth: "truth"}.get(type(e), "")

    def _reference(self, e: m.Ref, place: Place) -> str:
        first, last = e.parts[0], e.parts[-1]
        if e.name == "value":
            # `as` may see the text itself, where that is no value of the type.
            known = isinstance(place.clause, m.Control) and place.role != "as"
            return control_kind(place.clause) if known and isinstance(place.clause, m.Control) else ""
        control = self._view.controls.get(e.name)
        if control is not None:
            return control_kind(control)
        if len(e.parts) != 2:
            return ""
        if first == "machine":
            return _FACTS.get(last, "count") if last in MACHINE_FACTS else ""
        demand = self._view.demands.get(first)
        if demand is None:
            return ""
        return "text" if last in {"idle", "created"} else amount_kind(demand.resource.name) if last == "amount" else ""

    def _operation(self, e: m.Operation) -> str:
        if e.operator in COMPARISONS or e.operator in TRUTHS:
            return "truth"
        kinds = self.all(e.operands)
        if any(k and k not in NUMERIC for k in kinds):
            return ""
        if e.operator == "*":
            return _product(kinds)
        if e.operator == "/":
            return _quotient(kinds)
        return mixed(kinds) or ""

    def _applied(self, e: m.Apply) -> str:
        if e.function in _QUESTIONS:
            return "truth"
        if e.function == "copies":
            return "count"
        kinds = self.all(e.arguments)
        if e.function == "pow":
            return "number" if kinds and kinds[0] in {"number", "count", "ratio"} else ""
        return mixed(kinds) or ""


def control_kind(control: m.Control) -> str:
    """The kind of a control's value."""
    return _TYPES.get(control.type.name, "")


def amount_kind(resource: str) -> str:
    """The kind of an amount of a resource."""
    if resource in {"memory.bytes", "gpu.memory"}:
        return "B"
    return "count" if "count" in AMOUNTS.get(resource, ()) and resource != "cpu.time" else ""


def _product(kinds: list[str]) -> str:
    units = [k for k in kinds if k not in {"number", "count", "ratio"}]
    if units:
        return units[0] if len(units) == 1 else ""
    return "count" if "count" in kinds else "ratio" if kinds == ["ratio", "ratio"] else "number"


def _quotient(kinds: list[str]) -> str:
    if len(kinds) != 2 or not all(kinds):
        return ""
    above, below = kinds
    if above == below:
        return "number"
    return above if below in {"number", "count", "ratio"} else ""


def fits(kind: str, type_: m.Type) -> bool:
    """Whether a value of this kind may be one of the type."""
    return not kind or kind in FITS.get(type_.name, frozenset({kind}))


def words(kind: str, names: Mapping[str, str] = WORDS) -> str:
    """A kind for people."""
    return names.get(kind, "something else")
