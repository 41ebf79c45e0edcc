"""Rules about conditions: what never holds, what always holds, and what excludes each other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TypeAlias

from lpcl import model as m
from lpcl.expr import evaluate
from lpcl.rules.base import Finding, Found, shown
from lpcl.rules.expressions import chosen
from lpcl.rules.kinds import COMPARISONS
from lpcl.rules.view import View

_Fact: TypeAlias = "tuple[str, str, m.Number | m.Text | bool]"
# More than anybody reads: each is compared with all others.
_MAX_CONJUNCTS = 60
_TESTS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def control_never(v: View) -> Found:
    """A control whose condition is false."""
    for control in v.contract.controls:
        if isinstance(control.condition, m.Truth) and not control.condition.value:
            yield Finding(f"`control {control.name}` never applies", control.span, "drop it")


def idle_order(v: View) -> Found:
    """An `idle` line behind one that holds wherever it does."""
    for d in v.contract.demands:
        before: set[m.Expr | None] = set()
        for idle in d.idle:
            if None in before or idle.condition in before:
                message = f"`idle {idle.mode}` of `{d.name}` is never reached"
                help_text = "put the line without `if` last" if None in before else "a line above has the same `if`"
                yield Finding(message, idle.span, help_text)
                break
            before.add(idle.condition)


def _sound(v: View) -> list[m.Operation]:
    """Comparisons with no other fault."""
    return [e for e in v.comparisons if v.comparable(e) and not any(chosen(v, e))]


def never(v: View) -> Found:
    """A comparison that no value of the controls makes true."""
    for e in _sound(v):
        if v.domains.of(e).values == frozenset({False}):
            yield Finding(f"`{shown(e)}` never holds", e.span, "look at the ranges and defaults of the controls in it")
    for condition in _asked_before(v):
        yield Finding(f"`{shown(condition)}` never holds here", condition.span, "the same was asked before it")


def _asked_before(v: View) -> Iterator[m.Expr]:
    """Conditions behind `else` of the same condition."""
    inner: set[int] = set()
    for e, _ in v.conditionals:
        if id(e) in inner:
            continue
        asked: set[m.Expr] = set()
        here: m.Expr = e
        while isinstance(here, m.Conditional):
            if here.condition in asked:
                yield here.condition
            inner.add(id(here))
            asked.add(here.condition)
            here = here.no


def always(v: View) -> Found:
    """A comparison that every value of the controls makes true."""
    for e in _sound(v):
        domain = v.domains.of(e)
        if domain.values == frozenset({True}) and not domain.unknown:
            yield Finding(f"`{shown(e)}` always holds", e.span, "look at the ranges and defaults of the controls in it")


def exclusive(v: View) -> Found:
    """Conditions that must hold together and cannot."""
    for clause in v.contract.clauses:
        together = [clause.condition] if clause.condition is not None else []
        if isinstance(clause, m.Control):
            together += clause.requires
        yield from _clash([c for e in together for c in _conjuncts(e)])
        if isinstance(clause, m.Assumption):
            yield from _clash([c for e in clause.requires for c in _conjuncts(e)])
    alone = [place.root for place in v.places if place.role in {"if", "unless", "pinned"}]
    for e in (*alone, *(e.condition for e, _ in v.conditionals)):
        yield from _clash(_conjuncts(e))


def _conjuncts(e: m.Expr) -> list[m.Expr]:
    found: list[m.Expr] = []
    stack = [e]
    while stack:
        here = stack.pop()
        if isinstance(here, m.Operation) and here.operator == "and":
            stack += reversed(here.operands)
        else:
            found.append(here)
    return found


def _clash(conjuncts: list[m.Expr]) -> Found:
    """The first pair that excludes each other."""
    if len(conjuncts) < 2:
        return
    facts = [_fact(e) for e in conjuncts[:_MAX_CONJUNCTS]]
    for i, here in enumerate(facts):
        for j, other in enumerate(facts[:i]):
            if here is not None and other is not None and _exclude(here, other):
                message = f"`{shown(conjuncts[i])}` excludes `{shown(conjuncts[j])}`"
                yield Finding(message, conjuncts[i].span, "both must hold at once: drop one")
                return


def _fact(e: m.Expr) -> _Fact | None:
    """A conjunct as (name, operator, value): `a == 1`, `not b`, `is_set(c)`."""
    if isinstance(e, m.Operation) and e.operator == "not" and e.operands:
        inner = _fact(e.operands[0])
        return (*inner[:2], not inner[2]) if inner is not None and isinstance(inner[2], bool) else None
    if isinstance(e, m.Apply) and e.function == "is_set" and len(e.arguments) == 1:
        asked = e.arguments[0]
        return (f"is_set({asked.name})", "==", True) if isinstance(asked, m.Ref) else None
    if isinstance(e, m.Ref):
        return (e.name, "==", True)
    if isinstance(e, m.Operation) and e.operator in COMPARISONS and len(e.operands) == 2:
        left, right = e.operands
        if isinstance(left, m.Ref) and isinstance(right, m.Number | m.Text | m.Truth):
            return (left.name, e.operator, right.value if isinstance(right, m.Truth) else right)
    return None


def _exclude(a: _Fact, b: _Fact) -> bool:
    (name, first, x), (other, second, y) = a, b
    if name != other or type(x) is not type(y):
        return False
    if isinstance(x, m.Number) and isinstance(y, m.Number):
        return not _overlap(first, evaluate(x, {}), second, evaluate(y, {}))
    if first == second == "==":
        return x != y
    return x == y and {first, second} == {"==", "!="}


def _overlap(a: str, x: object, b: str, y: object) -> bool:
    """Whether some number is both `a x` and `b y`: one of the two, between them, or beyond them."""
    if not isinstance(x, int | float) or not isinstance(y, int | float):
        return True
    low, high = float(min(x, y)), float(max(x, y))
    tried = (low, high, (low + high) / 2, low - 1 - abs(low), high + 1 + abs(high))
    return any(_TESTS[a](n, x) and _TESTS[b](n, y) for n in tried)
