"""Rules about what expressions mean: their units and their types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lpcl import model as m
from lpcl.rules.base import CONDITIONS, Finding, Found, shown
from lpcl.rules.kinds import COMPARISONS, NUMERIC, TRUTHS, mix, mixed, words
from lpcl.rules.view import ORDER, UNORDERED, View

_SUMS = frozenset({"+", "-"}) | COMPARISONS
_ALIKE = frozenset({"min", "max", "clamp", "first", "divisor"})
_UNITS = {"B": "bytes", "s": "seconds", "cycles": "clock ticks", "ratio": "a share", "count": "a plain number"}
_SYSTEMS = ("linux", "darwin", "windows")
_PROCESSORS = ("x86_64", "aarch64", "arm64", "i686", "armv7l", "ppc64le", "riscv64", "s390x", "AMD64")
_KNOWN = {"machine.os": _SYSTEMS, "machine.arch": _PROCESSORS}


def mixed_units(v: View) -> Found:
    """Sums, comparisons, choices and bounds of things with different units."""
    for e, parts in _alike(v):
        kinds = [k for k in v.kinds.all(parts) if k]
        if all(k in NUMERIC for k in kinds) and mixed(kinds) is None:
            names = sorted({_UNITS[k] for k in kinds if k != "number"})
            message = f"{' and '.join(names)} do not mix in `{shown(e)}`"
            yield Finding(message, e.span, "multiply a plain number by its unit, for example `n * 1MiB`")


def _alike(v: View) -> Iterator[tuple[m.Expr, Sequence[m.Expr]]]:
    """Expressions whose parts are to be of one kind."""
    yield from ((e, e.operands) for e, _ in v.operations if e.operator in _SUMS)
    yield from ((e, e.arguments) for e, _ in v.applied if e.function in _ALIKE)
    yield from ((e, (e.yes, e.no)) for e, _ in v.conditionals)


def arithmetic(v: View) -> Found:
    """Arithmetic on what is no number."""
    for e, _ in v.operations:
        if e.operator in {"+", "-", "*", "/", "neg"}:
            yield from _numbers_only(v, e.operands)
    for a, _ in v.applied:
        if a.function in {"min", "max", "clamp", "floor", "ceil", "pow", "divisor"}:
            yield from _numbers_only(v, a.arguments)


def _numbers_only(v: View, parts: Sequence[m.Expr]) -> Found:
    for part in parts:
        kind = v.kinds[part]
        if kind and kind not in NUMERIC:
            yield Finding(f"`{shown(part)}` is {words(kind)}, no number to compute with", part.span)


def different_kinds(v: View) -> Found:
    """A comparison that never holds because its sides are of different types."""
    for e in v.comparisons:
        kinds = v.kinds.all(e.operands)
        # A share of the memory is text: "50%".
        sized = "text" in kinds and any(_is_size(v, o) for o in e.operands)
        apart = all(kinds) and mix(*kinds) is None and not all(k in NUMERIC for k in kinds)
        if apart and not sized:
            yield Finding(f"`{shown(e)}` compares {words(kinds[0])} with {words(kinds[1])}", e.span)


def _is_size(v: View, e: m.Expr) -> bool:
    control = v.controls.get(e.name) if isinstance(e, m.Ref) else None
    return control is not None and control.type.name == "size"


def order(v: View) -> Found:
    """An order of what has none."""
    for e in v.comparisons:
        if e.operator in ORDER:
            kind = next((k for k in v.kinds.all(e.operands) if k in UNORDERED), "")
            if kind:
                yield Finding(f"`{shown(e)}`: {words(kind)} has no order", e.span, "compare it with `==` or `!=`")


def condition(v: View) -> Found:
    """A condition that is no truth value."""
    asked = [place.root for place in v.places if place.role in CONDITIONS]
    asked += [e.condition for e, _ in v.conditionals]
    asked += [o for e, _ in v.operations if e.operator in TRUTHS for o in e.operands]
    seen: set[int] = set()
    for e in asked:
        kind = v.kinds[e]
        if kind and kind != "truth" and id(e) not in seen:
            yield Finding(f"`{shown(e)}` is {words(kind)}, no condition", e.span, "compare it with something")
        seen.add(id(e))


def no_choice(v: View) -> Found:
    """Text that is none of the choices of the control that it stands for."""
    for e in v.comparisons:
        yield from chosen(v, e)
    for clause, role, root in v.places:
        if role in {"effective", "as", "means"} and isinstance(clause, m.Control):
            for result in _results(root):
                yield from _chosen(v, clause, result)


def chosen(v: View, e: m.Operation) -> Found:
    """A comparison of a control with what is none of its choices."""
    for ref, text in (e.operands, e.operands[::-1]):
        control = v.controls.get(ref.name) if isinstance(ref, m.Ref) else None
        if control is not None:
            yield from _chosen(v, control, text)


def _chosen(v: View, control: m.Control, e: m.Expr) -> Found:
    choices = control.type.choices
    # A default outside of the choices has a finding of its own.
    default = control.default.value if isinstance(control.default, m.Text) else None
    if control.type.name == "choice" and isinstance(e, m.Text) and e.value not in {*choices, default}:
        yield Finding(f"`{e.value}` is none of the choices of `{control.name}`", e.span, v.near(e.value, choices))


def _results(e: m.Expr) -> list[m.Expr]:
    """What an expression comes to, if it only chooses."""
    found: list[m.Expr] = []
    stack = [e]
    while stack:
        here = stack.pop()
        if isinstance(here, m.Conditional):
            stack += [here.no, here.yes]
        else:
            found.append(here)
    return found


def division(v: View) -> Found:
    """A division by zero."""
    for e, _ in v.operations:
        if e.operator == "/" and len(e.operands) == 2:
            below = v.domains.of(e.operands[1])
            if below.low == below.high == 0 and not below.values and below.values is not None:
                yield Finding(f"`{shown(e)}` divides by zero", e.span)


def system(v: View) -> Found:
    """An operating system or a processor that the machine's facts do not name so."""
    for e in v.comparisons:
        for ref, text in (e.operands, e.operands[::-1]):
            known = _KNOWN.get(ref.name) if isinstance(ref, m.Ref) else None
            if known is not None and isinstance(text, m.Text) and text.value not in known:
                help_text = v.near(text.value, known, f"one of {', '.join(known)}")
                yield Finding(f"`{text.value}` is no value of this fact", text.span, help_text)
