"""Which values an expression can come to: intervals of numbers, and sets of texts and truth values.

The range of a control is taken at its word: what is asked for lies inside of it, or is a `special` value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lpcl import model as m
from lpcl.expr import evaluate
from lpcl.rules.base import Parts

_INF = math.inf
# Controls that need each other in a longer chain than this can be anything.
_MAX_CHAIN = 6
_FACTS = {
    "logical": 1.0,
    "online": 1.0,
    "affinity": 1.0,
    "physical": 1.0,
    "memory": 1.0,
    "numa_nodes": 1.0,
    "quota": 0.0,
    "cores": 0.0,
    "memory_limit": 0.0,
    "gpus": 0.0,
}


@dataclass(frozen=True, slots=True)
class Domain:
    """What something can be: a number in [low, high] (none if low > high) or one of `values` (None: any text or truth).

    Attributes:
        unknown: whether it can be unknown.
    """

    low: float = -_INF
    high: float = _INF
    values: frozenset[str | bool] | None = None
    unknown: bool = True

    @property
    def numeric(self) -> bool:
        """Whether it can be a number."""
        return self.low <= self.high


ANY = Domain()
NOTHING = Domain(_INF, -_INF, frozenset())
EITHER = Domain(_INF, -_INF, frozenset({True, False}), unknown=False)


def _numbers(low: float, high: float, *, unknown: bool = False) -> Domain:
    if math.isnan(low) or math.isnan(high):
        return Domain(-_INF, _INF, frozenset())
    return Domain(low, high, frozenset(), unknown)


def _truths(values: set[bool], *, unknown: bool) -> Domain:
    return Domain(_INF, -_INF, frozenset(values), unknown)


def join(domains: Iterable[Domain]) -> Domain:
    """What is in one of them."""
    low, high, values, unknown = _INF, -_INF, frozenset[str | bool](), False
    is_open = False
    for d in domains:
        low, high, unknown = min(low, d.low), max(high, d.high), unknown or d.unknown
        is_open = is_open or d.values is None
        values |= d.values or frozenset()
    return Domain(low, high, None if is_open else values, unknown)


class Domains:
    """The domains of expressions of a contract; each is worked out when it is asked for."""

    def __init__(self, parts: Parts) -> None:
        """Remember the contract."""
        self._view = parts
        self._controls: dict[str, Domain] = {}
        self._amounts: dict[str, Domain] = {}
        self._depth = 0

    def of(self, e: m.Expr | None, value: Domain = ANY) -> Domain:
        """The domain of an expression, where `value` stands for `value`."""
        if e is None:
            return NOTHING
        if isinstance(e, m.Ref):
            return value if e.name == "value" else self._reference(e)
        if isinstance(e, m.Number | m.Text | m.Truth):
            return _literal(e)
        if isinstance(e, m.Operation):
            return self._operation(e, [self.of(o, value) for o in e.operands])
        if isinstance(e, m.Apply):
            return _applied(e.function, [self.of(a, value) for a in e.arguments])
        if isinstance(e, m.Conditional):
            condition = self.of(e.condition, value)
            can = EITHER.values if condition.unknown or not _is_truth(condition) else condition.values
            branches = [self.of(b, value) for b, when in ((e.yes, True), (e.no, False)) if when in (can or ())]
            return join([*branches, *([NOTHING] if condition.unknown else [])])
        return NOTHING

    def _reference(self, e: m.Ref) -> Domain:
        name = e.name
        if name in self._view.controls:
            return self._guarded(self._controls, name, self._control)
        first, last = e.parts[0], e.parts[-1]
        if len(e.parts) != 2:
            return ANY
        if first == "machine":
            return Domain(_FACTS[last], _INF, frozenset()) if last in _FACTS else ANY
        if last == "amount" and first in self._view.demands:
            return self._guarded(self._amounts, first, lambda n: self.of(self._view.demands[n].amount))
        return ANY

    def _guarded(self, memo: dict[str, Domain], name: str, work: Callable[[str], Domain]) -> Domain:
        """From the memo, else worked out: a cycle or a long chain can be anything."""
        if name not in memo:
            if self._depth >= _MAX_CHAIN:
                return ANY
            memo[name] = ANY
            self._depth += 1
            memo[name] = work(name)
            self._depth -= 1
        return memo[name]

    def _control(self, name: str) -> Domain:
        control = self._view.controls[name]
        asked = self.asked(control)
        found = [asked, self.of(control.default)]
        found += [self.of(s.meaning) for s in control.specials if s.meaning is not None]
        found += [self.of(w.taken) for w in control.ways if w.taken is not None]
        if control.effective is not None:
            found.append(self.of(control.effective, asked))
        if control.malformed == "unknown":
            return ANY
        # A special value or a rule that is not known leaves the default, or what was asked for.
        joined = join(found)
        unknown = found[1].unknown
        return Domain(joined.low, joined.high, joined.values, unknown)

    def asked(self, control: m.Control) -> Domain:
        """What can be asked for."""
        kind = control.type.name
        if kind == "bool":
            return EITHER
        if kind == "choice":
            return Domain(_INF, -_INF, frozenset(control.type.choices), unknown=False)
        if kind not in {"int", "float", "size", "duration"}:
            return ANY
        texts = None if kind == "size" else frozenset[str | bool]()
        if control.range is None:
            return Domain(-_INF, _INF, texts, unknown=False)
        low, high = self.of(control.range.low), self.of(control.range.high)
        return Domain(
            low.low if low.numeric else -_INF,
            high.high if high.numeric and not high.unknown else _INF,
            texts,
            unknown=False,
        )

    def _operation(self, e: m.Operation, operands: list[Domain]) -> Domain:
        unknown = any(d.unknown for d in operands)
        if e.operator in {"and", "or", "not"}:
            return _logic(e.operator, operands)
        if len(operands) == 2 and e.operator in _OUTCOMES:
            return _compare(e.operator, *operands)
        if not all(d.numeric and d.values == frozenset() for d in operands):
            return ANY
        if e.operator == "neg":
            return _numbers(-operands[0].high, -operands[0].low, unknown=unknown)
        return _arithmetic(e.operator, *operands) if len(operands) == 2 else ANY


def _literal(e: m.Number | m.Text | m.Truth) -> Domain:
    value = evaluate(e, {})
    if isinstance(value, str | bool):
        return Domain(_INF, -_INF, frozenset({value}), unknown=False)
    return ANY if value is None else _numbers(float(value), float(value))


def _is_truth(d: Domain) -> bool:
    return not d.numeric and d.values is not None and d.values <= {True, False}


def _logic(operator: str, operands: list[Domain]) -> Domain:
    if not all(_is_truth(d) for d in operands):
        return Domain(_INF, -_INF, EITHER.values)
    unknown = any(d.unknown for d in operands)
    can = [{bool(v) for v in d.values or ()} for d in operands]
    if operator == "not":
        return _truths({not v for v in can[0]}, unknown=unknown)
    # `and` is true only if all are; `or` is false only if all are.
    strong = operator == "or"
    found = {strong} if any(strong in c for c in can) else set()
    found |= {not strong} if all((not strong) in c for c in can) else set()
    if any(c == {strong} and not d.unknown for c, d in zip(can, operands, strict=True)):
        unknown = False
    return _truths(found, unknown=unknown)


# operator -> (can be true, can be false) of the numbers a and b.
_OUTCOMES: dict[str, Callable[[Domain, Domain], tuple[bool, bool]]] = {
    "==": lambda a, b: (a.low <= b.high and b.low <= a.high, not a.low == a.high == b.low == b.high),
    "!=": lambda a, b: (not a.low == a.high == b.low == b.high, a.low <= b.high and b.low <= a.high),
    "<": lambda a, b: (a.low < b.high, a.high >= b.low),
    "<=": lambda a, b: (a.low <= b.high, a.high > b.low),
    ">": lambda a, b: (a.high > b.low, a.low <= b.high),
    ">=": lambda a, b: (a.high >= b.low, a.low < b.high),
}


def _crossed(a: Domain, b: Domain) -> bool:
    """Whether a number may be compared with what is none; a truth value is a number for evaluation."""
    return (a.numeric and bool(b.values)) or (b.numeric and bool(a.values))


def _compare(operator: str, a: Domain, b: Domain) -> Domain:
    unknown = a.unknown or b.unknown
    if a.values is None or b.values is None:
        return _truths({True, False}, unknown=True)
    if (a.values | b.values) & {True, False} and (_crossed(a, b) or operator not in {"==", "!="}):
        return _truths({True, False}, unknown=True)
    found: set[bool] = set()
    if a.numeric and b.numeric:
        yes, no = _OUTCOMES[operator](a, b)
        found |= ({True} if yes else set()) | ({False} if no else set())
    if operator in {"==", "!="}:
        equal, differ = bool(a.values & b.values), len(a.values | b.values) > 1
        if a.values and b.values:
            found |= ({operator == "=="} if equal else set()) | ({operator == "!="} if differ else set())
        found |= {operator == "!="} if _crossed(a, b) else set()
    elif a.values or b.values:
        unknown = True  # texts have no order
    return _truths(found, unknown=unknown)


def _times(x: float, y: float) -> float:
    return 0.0 if 0 in {x, y} else x * y


def _arithmetic(operator: str, a: Domain, b: Domain) -> Domain:
    unknown = a.unknown or b.unknown
    try:
        if operator == "+":
            return _numbers(a.low + b.low, a.high + b.high, unknown=unknown)
        if operator == "-":
            return _numbers(a.low - b.high, a.high - b.low, unknown=unknown)
        if operator == "/":
            if b.low <= 0 <= b.high:
                return Domain(-_INF, _INF, frozenset())
            b = _numbers(1 / b.high, 1 / b.low)
        corners = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        return _numbers(min(corners), max(corners), unknown=unknown)
    except ArithmeticError:
        return ANY


def _applied(function: str, arguments: list[Domain]) -> Domain:
    if function in {"is_set", "installed", "loaded"}:
        return EITHER if function == "is_set" else _truths({True, False}, unknown=True)
    if function == "copies":
        return Domain(0.0, _INF, frozenset())
    if function == "first":
        # Up to the first that is always known.
        end = next((i for i, a in enumerate(arguments) if not a.unknown), None)
        known = arguments if end is None else arguments[: end + 1]
        joined = join(known)
        return Domain(joined.low, joined.high, joined.values, end is None)
    if not arguments or not all(a.numeric and a.values == frozenset() for a in arguments):
        return ANY
    unknown = any(a.unknown for a in arguments)
    lows, highs = [a.low for a in arguments], [a.high for a in arguments]
    if function == "clamp" and len(arguments) == 3:
        x, least, most = arguments
        return _numbers(max(least.low, min(most.low, x.low)), max(least.high, min(most.high, x.high)), unknown=unknown)
    if function in {"floor", "ceil"}:
        turn = math.floor if function == "floor" else math.ceil
        ends = [turn(e) if math.isfinite(e) else e for e in (lows[0], highs[0])]
        return _numbers(ends[0], ends[1], unknown=unknown)
    if function == "divisor":
        return Domain(1.0, max(highs[0], 1.0), frozenset())
    if function in {"min", "max"}:
        pick = min if function == "min" else max
        return _numbers(pick(lows), pick(highs), unknown=unknown)
    return ANY
