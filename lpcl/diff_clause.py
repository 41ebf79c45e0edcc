"""What differs between two forms of one clause, and how grave that is."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from lpcl import model as m
from lpcl.change import (
    BAGS,
    NOUNS,
    SEVERITIES,
    Change,
    Severity,
    covers,
    matched,
    meaning,
    property_text,
    quoted,
    sorted_values,
    specifiers,
    way_text,
)
from lpcl.expr import evaluate
from lpcl.format import clause_text

# --------------------------------------------------------------------- clauses

# Property -> kind, where the clause's own `assumption-changed` ... is not it.
_KIND_OF = {
    **{
        k: f"{k}-changed"
        for k in (
            "resource",
            "amount",
            "created",
            "scope",
            "idle",
            "work",
            "runs",
            "fork",
            "runtime",
            "inside",
            "pinned",
        )
    },
    **{
        k: f"{k}-changed"
        for k in ("type", "default", "effective", "malformed", "levels", "effect", "inherited", "bounds", "affects")
    },
    **{k: f"{k}-changed" for k in ("switch", "condition")},
    "combine": "precedence-changed",
    "specials": "special-changed",
    "per": "entity-changed",
    "notes": "note-changed",
    "remedies": "note-changed",
    "evidence": "evidence-changed",
}
_CONSEQUENCES: dict[tuple[str, Severity], str] = {
    ("type-changed", "breaking"): "a value in use may be none of it",
    ("range-narrowed", "breaking"): "a value in use may be outside",
    ("range-changed", "breaking"): "a value in use may be outside",
    ("range-changed", "behavioural"): "a value in use may be between two steps",
    ("default-changed", "behavioural"): "a configuration that leaves it unset runs otherwise",
    ("malformed-changed", "breaking"): "a value in use may end the process",
    ("special-changed", "breaking"): "a value in use may have lost its meaning",
    ("effect-changed", "breaking"): "it no longer reaches all that it reached",
    ("entity-changed", "breaking"): "a value in use is set for something else",
    ("requires-changed", "breaking"): "a value in use may have no effect",
    ("condition-changed", "breaking"): "a value in use may have no effect",
    ("fork-changed", "breaking"): "a configuration that forks may hang or crash",
    ("assumption-changed", "breaking"): "a configuration in use may violate it",
}
_BINDINGS = ("build", "process_start", "load", "import", "first_use", "session", "call")
_COSTS = ("live", "session", "process")
_REACH = {"machine": 4, "process": 3, "session": 2, "object": 2, "thread": 1, "call": 0}
_GRAVE = frozenset({"hang", "crash", "wrong_result"})


def _gravest(severities: Iterable[Severity]) -> Severity:
    return min(severities, key=SEVERITIES.index)


def _number(e: m.Expr | None) -> float | None:
    value = None if e is None else evaluate(e, {})
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class Pair:
    """One clause, before and after; one side is None if it came or went."""

    def __init__(self, contract: str, old: m.Clause | None, new: m.Clause | None, names: dict[str, str]) -> None:
        """Keep both forms; `names` maps old names of renamed controls to new ones."""
        self.contract = contract
        self.old = old
        self.new = new
        self.names = names
        here = old if old is not None else new
        self.cls: type = type(here)
        self.label = "" if here is None else m.clause_label(here)
        self.noun = NOUNS.get(self.cls, "mitigation")

    def changes(self) -> Iterator[Change]:
        """Its changes, property by property."""
        old, new = self.old, self.new
        if old is None or new is None:
            yield self._came_or_went()
            return
        if old.name != new.name:
            message = f"`{self.label}` is now `{new.name}`: a configuration that names it no longer finds it"
            yield self._change("control-renamed", "breaking", message, old.name, new.name, old, new)
        for field in fields(old):
            a, b = getattr(old, field.name), getattr(new, field.name)
            if field.name in {"name", "span"} or self._same(a, b, field.name):
                continue
            if field.name == "ways":
                yield from self._ways()
            else:
                yield self._property(field.name, a, b)

    def _same(self, a: Any, b: Any, field: str) -> bool:
        if field == "combine":
            return (a or "first_set") == (b or "first_set")
        if field == "resource":
            return bool(a == b)
        left, right = meaning(a, self.names), meaning(b, self.names)
        return bool((sorted_values(left) == sorted_values(right)) if field in BAGS else left == right)

    def _change(self, kind: str, severity: Severity, message: str, a: str, b: str, *at: Any) -> Change:
        spans = (self._span(at[0], self.old), self._span(at[1], self.new))
        return Change(self.contract, self.label, kind, severity, message, a, b, *spans)

    @staticmethod
    def _span(value: Any, clause: m.Clause | None) -> m.Span | None:
        if clause is None:
            return None
        first = value[0] if isinstance(value, tuple) and value else value
        span = getattr(first, "span", m.NO_SPAN)
        return span if span != m.NO_SPAN else clause.span

    def _came_or_went(self) -> Change:
        came = self.old is None
        clause = self.new if self.new is not None else self.old
        severity: Severity = "behavioural"
        tail = ""
        if isinstance(clause, m.Control):
            severity = "compatible" if came else "breaking"
            tail = "" if came else ": what a configuration sets there is no longer known to have an effect"
        elif isinstance(clause, m.Signal) and came:
            severity = "compatible"
        elif isinstance(clause, m.Assumption):
            severity = self._demanded(clause) if came else "compatible"
            tail = ": a configuration in use may violate it" if severity == "breaking" else ""
        text = "" if clause is None else clause_text(clause)
        kind = f"{self.noun}-{'added' if came else 'removed'}"
        message = f"`{self.label}` is {'new' if came else 'gone'}{tail}"
        return self._change(kind, severity, message, "" if came else text, text if came else "", self.old, self.new)

    @staticmethod
    def _demanded(a: m.Assumption) -> Severity:
        return "breaking" if a.consequence in _GRAVE and (a.requires or a.forbids) else "behavioural"

    def _property(self, field: str, a: Any, b: Any) -> Change:
        kind = _KIND_OF.get(field, f"{self.noun}-changed")
        if field == "range":
            kind, severity = self._range(a, b)
        elif field == "requires" and self.cls is m.Control:
            kind, severity = "requires-changed", self._severity(field, a, b)
        else:
            severity = self._severity(field, a, b)
        old, new = property_text(self.cls, field, a), property_text(self.cls, field, b)
        if old and new:
            message = f"`{self.label}` says {quoted(new)}, no longer {quoted(old)}"
        else:
            message = f"`{self.label}` " + (f"says {quoted(new)} too" if new else f"no longer says {quoted(old)}")
        tail = _CONSEQUENCES.get((kind, severity))
        return self._change(kind, severity, message + (f": {tail}" if tail else ""), old, new, a, b)

    def _severity(self, field: str, a: Any, b: Any) -> Severity:
        control = self.cls is m.Control
        match field:
            case "notes" | "remedies" | "evidence" | "unreliable":
                return "editorial"
            case "resource" | "per":
                return "breaking"
            case "type":
                return "compatible" if _takes(b, a) else "breaking"
            case "requires" | "forbids":
                if not self._more(a, b):
                    return "compatible"
                new = self.new
                return self._demanded(new) if isinstance(new, m.Assumption) else "breaking"
            case "condition" if control:
                return "compatible" if b is None else "breaking"
            case "specials":
                values = [meaning(s.value, self.names) for s in b]
                return "behavioural" if all(meaning(s.value, self.names) in values for s in a) else "breaking"
            case "malformed":
                return "breaking" if b == "fails" else "behavioural"
            case "effect":
                return "breaking" if _REACH.get(b, 9) < _REACH.get(a, -1) else "behavioural"
            case "switch" if a in _COSTS and b in _COSTS:
                return "compatible" if _COSTS.index(b) < _COSTS.index(a) else "behavioural"
            case "fork" if b == "unsafe" and a in {"safe", "recreated"}:
                return "breaking"
            case "fork" if a == "unsafe" and b in {"safe", "recreated"}:
                return "compatible"
            case _:
                return "behavioural"

    def _more(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
        """Whether the new side holds something that the old side does not."""
        known = meaning(a, self.names)
        return any(meaning(x, self.names) not in known for x in b)

    # ------------------------------------------------------------------ ranges

    def _range(self, a: m.Range | None, b: m.Range | None) -> tuple[str, Severity]:
        if a is None:
            return "range-narrowed", "breaking"
        if b is None:
            return "range-widened", "compatible"
        low, high = self._moved(a.low, b.low), self._moved(a.high, b.high)
        if low is None or high is None:
            return "range-changed", "breaking"
        grid: Severity = "compatible" if self._on_grid(a, b) else "behavioural"
        if low == high == 0:
            return "range-changed", grid
        if low <= 0 <= high:
            return "range-widened", grid
        return ("range-narrowed" if high <= 0 <= low else "range-changed"), "breaking"

    def _moved(self, a: m.Expr, b: m.Expr) -> int | None:
        """Which way an end moved: -1, 0 or 1; None if that cannot be known without a machine."""
        if meaning(a, self.names) == meaning(b, self.names):
            return 0
        x, y = _number(a), _number(b)
        return None if x is None or y is None else (y > x) - (y < x)

    def _on_grid(self, a: m.Range, b: m.Range) -> bool:
        """Whether the steps of the old range are steps of the new one. The scale is about the search only."""
        if b.step is None:
            return True
        if meaning((a.low, a.step), self.names) == meaning((b.low, b.step), self.names):
            return True
        whole = isinstance(self.old, m.Control) and self.old.type.name == "int"
        start, low, step = _number(a.low), _number(b.low), _number(b.step)
        every = _number(a.step) if a.step is not None else (1 if whole else None)
        if start is None or low is None or every is None or step is None or step <= 0:
            return False
        return (start - low) % step == 0 and every % step == 0

    # -------------------------------------------------------------------- ways

    def _ways(self) -> Iterator[Change]:
        old, new = self.old, self.new
        if not isinstance(old, m.Control) or not isinstance(new, m.Control):
            return
        pairs = matched(old.ways, new.ways, lambda w: (w.kind, w.name, w.parameters[: w.kind == "param"]), self.names)
        both = [(p, q) for p, q in pairs if p is not None and q is not None]
        kept = {id(q) for _, q in both}
        for p, q in pairs:
            if p is None:
                yield self._way_added(new, q, kept)
            elif q is None:
                message = f"`{self.label}` can no longer be set by {quoted(p.label)}: what a configuration sets there "
                message += "has no effect"
                yield self._change("way-removed", "breaking", message, way_text(p), "", p, None)
            else:
                yield from self._way(p, q)
        if {old.combine, new.combine} & {"min", "max"}:
            return
        before = [q for _, q in sorted(both, key=lambda x: _index(old.ways, x[0]))]
        after = sorted(before, key=lambda q: _index(new.ways, q))
        if any(x is not y for x, y in zip(before, after, strict=True)):
            a, b = (", ".join(f"{w.kind} {w.label}" for w in side) for side in (before, after))
            message = f"`{self.label}` takes the first of {quoted(b)}, no longer of {quoted(a)}"
            yield self._change("precedence-changed", "behavioural", message, a, b, old.ways, new.ways)

    def _way_added(self, new: m.Control, way: m.Way, kept: set[int]) -> Change:
        behind = new.ways[_index(new.ways, way) + 1 :]
        wins = new.combine in {"min", "max"} or any(id(w) in kept for w in behind)
        message = f"`{self.label}` can be set by {quoted(way.label)} too"
        message += ", which may win over a way in use" if wins else ""
        severity: Severity = "behavioural" if wins else "compatible"
        return self._change("way-added", severity, message, "", way_text(way), None, way)

    def _way(self, p: m.Way, q: m.Way) -> Iterator[Change]:
        texts = (way_text(p), way_text(q), p, q)
        if p.binding != q.binding:
            message = f"{quoted(p.label)} of `{self.label}` is taken at `{q.binding}`, no longer at `{p.binding}`"
            severity, tail = _binding(p.binding, q.binding)
            yield self._change("binding-changed", severity, message + tail, *texts)
        found: list[tuple[Severity, str]] = []
        if p.parameters != q.parameters:
            found.append(("breaking", "other arguments"))
        if meaning(p.condition, self.names) != meaning(q.condition, self.names):
            found.append(("compatible" if q.condition is None else "breaking", "another condition"))
        if meaning(p.taken, self.names) != meaning(q.taken, self.names):
            found.append(("behavioural", "another meaning"))
        if (p.lasts or "process") != (q.lasts or "process"):
            found.append(("breaking", "another duration"))
        if specifiers(p.versions) != specifiers(q.versions):
            found.append(("compatible" if covers(q.versions, p.versions) else "breaking", "other releases"))
        if p.deprecated != q.deprecated:
            # It still works: whoever uses it need only know.
            found.append(("compatible" if p.deprecated is None else "editorial", "another deprecation"))
        if found:
            what = ", ".join(w for _, w in found)
            message = f"{quoted(p.label)} of `{self.label}` has {what}: {quoted(texts[1])}"
            yield self._change("way-changed", _gravest(s for s, _ in found), message, *texts)


def _index(ways: tuple[m.Way, ...], way: m.Way) -> int:
    return next(i for i, w in enumerate(ways) if w is way)


def _binding(a: str, b: str) -> tuple[Severity, str]:
    """What another binding time means, and why."""
    if a not in _BINDINGS:
        return "behavioural", ""
    if b not in _BINDINGS:
        return "breaking", ": a value in use may be set too late"
    if _BINDINGS.index(b) < _BINDINGS.index(a):
        return "breaking", ": a value in use may be set too late"
    return "breaking", ": a value in use may be overwritten before it is taken, or not be in effect yet"


def _takes(wide: m.Type, narrow: m.Type) -> bool:
    """Whether every value of one type is a value of the other."""
    if wide.name != narrow.name:
        return (narrow.name, wide.name) == ("int", "float")
    inner = wide.element is None or narrow.element is None or _takes(wide.element, narrow.element)
    shorter = (wide.least or 0) <= (narrow.least or 0) and (narrow.greatest or 0) <= (wide.greatest or 0)
    return inner and shorter and set(narrow.choices) <= set(wide.choices) and wide.resource == narrow.resource
