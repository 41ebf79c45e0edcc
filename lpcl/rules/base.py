"""What every rule works with: a finding, and a contract taken apart once for all of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

from lpcl import model as m

PROPERTIES = frozenset({"amount", "idle", "created"})
NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# Base names that stand for many libraries, or for those that every process needs.
WIDE = re.compile(r"^(lib)?[*?\[]|^lib.?[*?]|^(ld-linux|libc|libm|libpthread|libdl|librt|libpython)([.\-*?\[]|$)")
# Of a contract: each costs a comparison with every word that could be meant.
_MAX_SUGGESTIONS = 20
_MAX_SHOWN = 60
# The roles of expressions that are asked whether they hold.
CONDITIONS = frozenset({"when", "if", "unless", "requires", "pinned"})


class Finding(NamedTuple):
    """What a rule found: its message, where, and the fix if one is known."""

    message: str
    span: m.Span
    help: str = ""


Found: TypeAlias = Iterator[Finding]


class Place(NamedTuple):
    """An expression that has a value: `role` is what the clause takes it for."""

    clause: m.Clause
    role: str
    root: m.Expr


class Node(NamedTuple):
    """One expression, and the place that it stands in."""

    expr: m.Expr
    place: Place


class Named(NamedTuple):
    """A reference that names something instead of having a value."""

    clause: m.Clause
    role: str
    ref: m.Ref


class Parts:
    """A contract taken apart: what all rules need is worked out once."""

    def __init__(self, contract: m.Contract) -> None:
        """Nothing is worked out before a rule asks for it."""
        self.contract = contract
        self._suggestions = _MAX_SUGGESTIONS

    def near(self, word: str, words: Iterable[str], otherwise: str = "") -> str:
        """`did you mean ...?`, or what to say otherwise."""
        self._suggestions -= 1
        if self._suggestions < 0:
            return otherwise
        close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
        return f"did you mean `{close[0]}`?" if close else otherwise

    @cached_property
    def controls(self) -> dict[str, m.Control]:
        """By name; of two with one name the first."""
        return {c.name: c for c in reversed(self.contract.controls)}

    @cached_property
    def demands(self) -> dict[str, m.Demand]:
        """By name; of two with one name the first."""
        return {d.name: d for d in reversed(self.contract.demands)}

    @cached_property
    def needs(self) -> frozenset[str]:
        """Contracts that references may start with."""
        return frozenset(self.contract.needs)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Every expression that has a value, in the order of the clauses."""
        return tuple(Place(c, role, e) for c in self.contract.clauses for role, e in _roots(c) if e is not None)

    @cached_property
    def named(self) -> tuple[Named, ...]:
        """Every reference that names something, in the order of the clauses."""
        return tuple(Named(c, role, ref) for c in self.contract.clauses for role, ref in _names(c))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every expression and its parts, each before its parts."""
        found: list[Node] = []
        for place in self.places:
            found += [Node(e, place) for e in walk(place.root)]
        return tuple(found)

    @cached_property
    def refs(self) -> tuple[tuple[m.Ref, Place], ...]:
        """References that have a value."""
        return tuple((e, p) for e, p in self.nodes if isinstance(e, m.Ref))

    @cached_property
    def applied(self) -> tuple[tuple[m.Apply, Place], ...]:
        """Functions applied."""
        return tuple((e, p) for e, p in self.nodes if isinstance(e, m.Apply))

    @cached_property
    def operations(self) -> tuple[tuple[m.Operation, Place], ...]:
        """Operators applied."""
        return tuple((e, p) for e, p in self.nodes if isinstance(e, m.Operation))

    @cached_property
    def conditionals(self) -> tuple[tuple[m.Conditional, Place], ...]:
        """`if ... then ... else ...`."""
        return tuple((e, p) for e, p in self.nodes if isinstance(e, m.Conditional))


def parts_of(e: m.Expr) -> tuple[m.Expr, ...]:
    """The expressions that an expression is made of."""
    if isinstance(e, m.Operation):
        return e.operands
    if isinstance(e, m.Apply):
        return e.arguments
    if isinstance(e, m.Conditional):
        return (e.condition, e.yes, e.no)
    return ()


def walk(root: m.Expr) -> list[m.Expr]:
    """An expression and its parts, each before its parts; without recursion, as one that was built may be deep."""
    parts = parts_of(root)
    if not parts:
        return [root]
    found, stack = [root], [*reversed(parts)]
    while stack:
        e = stack.pop()
        found.append(e)
        parts = parts_of(e)
        if parts:
            stack.extend(reversed(parts))
    return found


def _roots(clause: m.Clause) -> Iterator[tuple[str, m.Expr | None]]:
    if isinstance(clause, m.Control):
        yield from _control_roots(clause)
    elif isinstance(clause, m.Demand):
        yield "amount", clause.amount
        for idle in clause.idle:
            yield "wait", idle.duration
            yield "if", idle.condition
        yield "pinned", clause.pinned
    elif isinstance(clause, m.Assumption):
        yield from (("requires", e) for e in clause.requires)
        yield from (("unless", f.unless) for f in clause.forbids)
    elif isinstance(clause, m.Mitigation):
        yield "to", clause.value
    yield "when", clause.condition


def _control_roots(c: m.Control) -> Iterator[tuple[str, m.Expr | None]]:
    if c.range is not None:
        yield "low", c.range.low
        yield "high", c.range.high
        yield "step", c.range.step
    yield "default", c.default
    for way in c.ways:
        yield "if", way.condition
        yield "as", way.taken
    yield "effective", c.effective
    for special in c.specials:
        yield "special", special.value
        yield "means", special.meaning
    yield from (("requires", e) for e in c.requires)


def _names(clause: m.Clause) -> Iterator[tuple[str, m.Ref]]:
    if isinstance(clause, m.Control):
        type_: m.Type | None = clause.type
        while type_ is not None:
            if type_.resource is not None:
                yield "resource", type_.resource
            type_ = type_.element
        yield from (("bounds", r) for r in clause.bounds)
        yield from (("affects", r) for r in clause.affects)
    elif isinstance(clause, m.Demand):
        yield "resource", clause.resource
        yield from (("inside", r) for r in clause.inside)
    elif isinstance(clause, m.Assumption):
        for sizes in clause.sizes:
            yield "resource", sizes.resource
            yield from (("from", r) for r in sizes.facts)
        yield from (("ignores", r) for r in clause.ignores)
        yield from (("after", f.after) for f in clause.forbids if f.after is not None)
    elif isinstance(clause, m.Signal):
        yield from (("observes", r) for r in clause.observes)
    else:
        yield from (("limits", r) for r in clause.limits)
        if clause.pool is not None:
            yield "of", clause.pool


def shown(e: m.Expr) -> str:
    """An expression as people write it, cut if it is long."""
    from lpcl.format import expression  # noqa: PLC0415  # only a finding needs it

    text = expression(e)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
