"""Rules about the values of a control: its type, range, default, and the forms of its text."""

from __future__ import annotations

import re

from lpcl import model as m
from lpcl.expr import Value, evaluate
from lpcl.rules.base import Finding, Found
from lpcl.rules.kinds import fits, words
from lpcl.rules.view import View

# A list of lists can be said; what is deeper has no text form that anyone agrees on.
_MAX_NESTED = 2
_ORDERED = frozenset({"int", "float", "size", "duration"})
_SINGLE = frozenset({"bool", "list", "map", "sequence", "placement"})
_WORD = re.compile(r"[A-Za-z0-9_+\-]")


def wrong_type(v: View) -> Found:
    """A default, or an end or step of a range, whose type is not the control's."""
    names = {"low": "range", "high": "range", "step": "step", "default": "default"}
    for clause, role, root in v.places:
        if role not in names or not isinstance(clause, m.Control):
            continue
        if role != "default" and clause.type.name not in _ORDERED:
            continue  # it has no range at all
        kind = v.kinds[root]
        if not fits(kind, clause.type):
            message = f"the {names[role]} of `{clause.name}` is {words(kind)}, not {clause.type.name}"
            yield Finding(message, root.span)


def default_no_choice(v: View) -> Found:
    """A default that is none of the choices."""
    for x in v.contract.controls:
        if x.type.name == "choice" and isinstance(x.default, m.Text) and x.default.value not in x.type.choices:
            message = f"the default `{x.default.value}` is none of the choices of `{x.name}`"
            yield Finding(message, x.default.span, v.near(x.default.value, x.type.choices))


def _constant(e: m.Expr | None) -> float | None:
    """The number that an expression always is."""
    value = None if e is None else evaluate(e, {})
    return _number(value)


def _number(value: Value) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def empty_range(v: View) -> Found:
    """A range that is empty."""
    for x in v.contract.controls:
        if x.range is not None:
            low, high = _constant(x.range.low), _constant(x.range.high)
            if low is not None and high is not None and low > high:
                yield Finding(f"the range of `{x.name}` is empty", x.range.span, "write LOW to HIGH")


def step(v: View) -> Found:
    """A step that is not positive."""
    for x in v.contract.controls:
        by = None if x.range is None else _constant(x.range.step)
        if x.range is not None and by is not None and by <= 0:
            yield Finding(f"the step of `{x.name}` is not positive", x.range.span)


def logarithmic(v: View) -> Found:
    """A range on a logarithmic scale that starts at zero or below."""
    for x in v.contract.controls:
        if x.range is not None and x.range.scale == "log":
            low = _constant(x.range.low)
            if low is not None and low <= 0:
                message = f"a logarithmic range of `{x.name}` cannot start at {low}"
                yield Finding(message, x.range.span)


def default_outside(v: View) -> Found:
    """A literal default outside of the range."""
    for x in v.contract.controls:
        default = _constant(x.default)
        if x.range is None or x.default is None or default is None:
            continue
        if _outside(default, _constant(x.range.low), _constant(x.range.high)) and not _is_special(x, default):
            yield Finding(f"the default {default} of `{x.name}` is outside its range", x.default.span)


def _outside(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low) or (high is not None and value > high)


def _is_special(x: m.Control, value: float) -> bool:
    return value in [evaluate(s.value, {}) for s in x.specials]


def default_beyond(v: View) -> Found:
    """A default outside of the range, where other controls have their defaults."""
    defaults: dict[str, Value] = {n: evaluate(x.default, {}) for n, x in v.controls.items() if x.default is not None}
    for x in v.contract.controls:
        if x.range is None or x.default is None:
            continue
        ends = (x.range.low, x.range.high)
        if all(_constant(e) is not None for e in (*ends, x.default)):
            continue
        low, high = (_number(evaluate(e, defaults)) for e in ends)
        default = _number(evaluate(x.default, defaults))
        if default is not None and _outside(default, low, high) and not _is_special(x, default):
            message = f"by default `{x.name}` is {default}, which is outside its range"
            yield Finding(message, x.default.span, "the range speaks of other controls: look at their defaults")


def range_without_order(v: View) -> Found:
    """A range of what has no order."""
    for x in v.contract.controls:
        if x.range is not None and x.type.name not in _ORDERED:
            yield Finding(f"`{x.name}` is of type {x.type.name}, which has no range", x.range.span, "drop the range")


def combine_without_order(v: View) -> Found:
    """The least or greatest of what has no order."""
    for x in v.contract.controls:
        if x.combine in {"min", "max"} and x.type.name not in _ORDERED:
            message = f"`{x.name}` is of type {x.type.name}, which has no {x.combine}"
            yield Finding(message, x.span, "write `combine first_set`")


def special_type(v: View) -> Found:
    """A special value, or what it means, whose type is not the control's."""
    for clause, role, root in v.places:
        if role not in {"special", "means"} or not isinstance(clause, m.Control):
            continue
        kind = v.kinds[root]
        # Text is compared with the text that was given, whatever the type is.
        if (role == "special" and kind == "text") or fits(kind, clause.type):
            continue
        what = "special value" if role == "special" else "meaning of a special value"
        yield Finding(f"the {what} of `{clause.name}` is {words(kind)}, not {clause.type.name}", root.span)


def special_twice(v: View) -> Found:
    """A special value that an earlier one stands for already."""
    for x in v.contract.controls:
        seen: set[str] = set()
        for s in x.specials:
            value = evaluate(s.value, {})
            if value is None:
                continue
            text = value.strip().lower() if isinstance(value, str) else str(value).lower()
            if text in seen:
                message = f"`special` of `{x.name}` speaks of `{text}` twice"
                yield Finding(message, s.span, "the first one decides: drop the other")
            seen.add(text)


def effective_type(v: View) -> Found:
    """The value in effect is not of the type of the control."""
    for clause, role, root in v.places:
        if role in {"effective", "as"} and isinstance(clause, m.Control):
            kind = v.kinds[root]
            if not fits(kind, clause.type):
                message = f"`{role}` of `{clause.name}` gives {words(kind)}, not {clause.type.name}"
                yield Finding(message, root.span)


def effective_ignores(v: View) -> Found:
    """An `effective` that does not look at what was asked for."""
    looked = {id(p.root) for e, p in v.refs if p.role == "effective" and e.name == "value"}
    for clause, role, root in v.places:
        if role == "effective" and id(root) not in looked:
            message = f"`effective` of `{clause.name}` does not look at `value`"
            yield Finding(message, root.span, "what was asked for has no say: then nothing sets it")


def levels(v: View) -> Found:
    """Levels of what is a single value, or a list already."""
    for x in v.contract.controls:
        if x.levels is not None and x.type.name in _SINGLE:
            message = f"`{x.name}` is of type {x.type.name}, which has no value for each level"
            yield Finding(message, x.span, "drop `levels`")


def separator(v: View) -> Found:
    """A separator of levels that could be part of a value."""
    for x in v.contract.controls:
        if x.levels is not None and (not x.levels or _WORD.search(x.levels)):
            yield Finding(f"`{x.levels}` cannot separate values", x.span, 'write it like `levels ","`')


def malformed(v: View) -> Found:
    """Text that is not of the type text."""
    for x in v.contract.controls:
        if x.malformed is not None and x.type.name == "text":
            yield Finding(f"no text is malformed for `{x.name}`: it is of type text", x.span, "drop `malformed`")


def nested(v: View) -> Found:
    """A type inside of a type inside of a type."""
    for x in v.contract.controls:
        depth, type_ = 0, x.type
        while type_.element is not None:
            depth, type_ = depth + 1, type_.element
        if depth > _MAX_NESTED:
            message = f"the type of `{x.name}` holds types {depth} deep"
            yield Finding(message, x.type.span, f"at most {_MAX_NESTED} can be written as a setting")


def nothing_to_choose(v: View) -> Found:
    """A choice that stands twice, or a sequence of no length."""
    for x in v.contract.controls:
        type_: m.Type | None = x.type
        while type_ is not None:
            again = _again(type_.choices)
            if again is not None:
                help_text = "upper case makes no difference"
                yield Finding(f"`{again}` is a choice of `{x.name}` twice", type_.span, help_text)
            if type_.least is not None and type_.greatest is not None and type_.least > type_.greatest:
                message = f"a sequence of {type_.least} to {type_.greatest} values has no length"
                yield Finding(message, type_.span, "write LEAST to GREATEST")
            type_ = type_.element


def _again(choices: tuple[str, ...]) -> str | None:
    """The first word that stood before, in any case."""
    seen: set[str] = set()
    for word in choices:
        if word.lower() in seen:
            return word
        seen.add(word.lower())
    return None
