"""A joint space as a ConfigSpace (the optional extra `configspace`), for tuners that read one.

ConfigSpace can say less than LPCL. Parameters without a finite or numeric domain are left out, and so are constraints
that it has no form for; both are listed with the reason, in the result and in the space's `meta`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lpcl import model as m
from lpcl.expr import Value, evaluate
from lpcl.format import expression
from lpcl.space import UNSET, Constraint, Parameter, Space

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace

# A constraint without a form of its own is spelled out if it forbids combinations of this many values at most.
MAX_COMBINATIONS = 512
MAX_STEPS = 4096
_FORBIDS = {"<=": "GreaterThan", "<": "GreaterThanEquals", ">=": "LessThan", ">": "LessThanEquals"}
_TURNED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "==", "!=": "!="}
_NEGATED = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "==": "!=", "!=": "=="}


@dataclass(frozen=True, slots=True)
class Exported:
    """A space, and what of the joint space is not in it.

    Attributes:
        exported: constraints that the space keeps. left_out: label or `contract.clause` -> why.
    """

    space: ConfigurationSpace
    exported: tuple[Constraint, ...]
    left_out: dict[str, str]


def export(space: Space, name: str = "lpcl") -> Exported:
    """A joint space as a ConfigSpace.

    Raises:
        ImportError: the extra `configspace` is not installed.
    """
    import ConfigSpace as CS  # noqa: N817, PLC0415  # the customary name of an optional extra

    left_out: dict[str, str] = {}
    made: dict[str, Any] = {}
    for p in space.parameters:
        reason = _unfit(p)
        if reason:
            left_out[p.label] = reason
        else:
            made[p.label] = _hyperparameter(CS, p)
    kept: list[Constraint] = []
    conditions: dict[str, Any] = {}
    forbidden: list[Any] = []
    for c in space.constraints:
        try:
            if space.decides_activity(c):
                _condition(CS, space, c, made, conditions)
            else:
                forbidden += _forbidden(CS, space, c, made)
            kept.append(c)
        except _CannotSayError as error:
            left_out[c.subject] = f"`{expression(c.expr)}`: {error}"
    result = CS.ConfigurationSpace(name, meta={"left_out": left_out})
    result.add(list(made.values()))
    for condition in conditions.values():
        result.add(condition)
    result.add(forbidden)
    return Exported(result, tuple(kept), left_out)


class _CannotSayError(Exception):
    """ConfigSpace has no form for this."""


def _unfit(p: Parameter) -> str:
    if p.inactive:
        return f"it does nothing here: {p.inactive}"
    if p.open:
        return f"the contract gives no range of {p.kind} that is known here"
    if p.low is not None and p.low == p.high:
        return "it has one value only"
    steps = _steps(p)
    return f"more than {MAX_STEPS} steps" if steps is not None and len(steps) > MAX_STEPS else ""


def _steps(p: Parameter) -> range | None:
    """The values of a range with a step, which is numbered for fractions."""
    if p.step is None or p.low is None or p.high is None or (p.kind == "int" and p.step == 1):
        return None
    return range(int((p.high - p.low) / p.step + 1e-9) + 1) if p.step > 0 else None


def _hyperparameter(CS: Any, p: Parameter) -> Any:  # noqa: N803  # the module's customary name
    meta = {"controls": list(p.controls), "kind": p.kind, "switch": p.switch}
    if p.kind == "bool":
        values: list[Any] = [True, False] if isinstance(p.default, bool) else [UNSET, True, False]
        return CS.CategoricalHyperparameter(p.label, values, **_default(p, values), meta=meta)
    if p.kind == "choice":
        values = [*p.choices] if p.default in p.choices else [UNSET, *p.choices]
        return CS.CategoricalHyperparameter(p.label, values, **_default(p, values), meta=meta)
    low, high = p.low or 0, p.high or 0
    steps = _steps(p)
    if steps is not None and p.step is not None:
        numbers = [low + i * p.step for i in steps]
        sequence: list[Any] = [int(x) for x in numbers] if p.kind == "int" else numbers
        return CS.OrdinalHyperparameter(p.label, sequence, **_default(p, sequence), meta=meta)
    number = isinstance(p.default, int | float) and not isinstance(p.default, bool) and low <= p.default <= high
    default = p.default if number else None
    log = p.scale == "log" and low > 0
    if p.kind == "int" or (p.kind == "size" and float(low).is_integer() and float(high).is_integer()):
        whole = None if default is None else int(default)
        return CS.UniformIntegerHyperparameter(
            p.label, math.ceil(low), math.floor(high), default_value=whole, log=log, meta=meta
        )
    return CS.UniformFloatHyperparameter(p.label, low, high, default_value=default, log=log, meta=meta)


def _default(p: Parameter, values: list[Any]) -> dict[str, Any]:
    if p.default in values:
        return {"default_value": p.default}
    return {"default_value": UNSET} if UNSET in values else {}


# ---------------------------------------------------------------- constraints


def _side(space: Space, c: Constraint, e: m.Expr, made: dict[str, Any]) -> tuple[Any, Value]:
    """(hyperparameter, None) or (None, constant) of one side of a comparison."""
    contract = c.subject.partition(".")[0]
    if isinstance(e, m.Ref):
        parameter = space.parameter(f"{contract}.{e.name}") or space.parameter(e.name)
        if parameter is not None:
            control = _control(space, contract, e)
            if control is not None and (control.effective or control.specials or parameter.way.taken):
                raise _CannotSayError(f"what `{e.name}` comes out as is not what it is set to")
            if parameter.label not in made:
                raise _CannotSayError(f"`{parameter.label}` is left out")
            return made[parameter.label], None
    member = space.system.member(contract)
    own = member is not None and any(not r.name.startswith("machine.") for r in m.walk_references(e))
    value = None if member is None or own else evaluate(e, member.known)
    if value is None:
        raise _CannotSayError(f"`{expression(e)}` is no parameter and no constant")
    return None, value


def _control(space: Space, contract: str, e: m.Ref) -> m.Control | None:
    member = space.system.member(contract if len(e.parts) == 1 else e.parts[0])
    return None if member is None else member.contract.control(e.parts[-1])


def _comparison(space: Space, c: Constraint, e: m.Expr, made: dict[str, Any]) -> tuple[str, Any, Any, Value]:
    """(operator, left, right, constant) with a hyperparameter on the left."""
    if isinstance(e, m.Ref) or (isinstance(e, m.Operation) and e.operator == "not"):
        yes = isinstance(e, m.Ref)
        inner = e if isinstance(e, m.Ref) else e.operands[0]
        left, _ = _side(space, c, inner, made)
        if left is None:
            raise _CannotSayError("it has no form for it")
        return "==", left, None, yes
    if not isinstance(e, m.Operation) or e.operator not in _TURNED:
        raise _CannotSayError("it has no form for it")
    (left, low), (right, high) = (_side(space, c, x, made) for x in e.operands)
    if left is None and right is None:
        raise _CannotSayError("it depends on no parameter")
    if left is None:
        return _TURNED[e.operator], right, None, low
    return e.operator, left, right, high


def _forbidden(CS: Any, space: Space, c: Constraint, made: dict[str, Any]) -> Iterator[Any]:  # noqa: N803
    if isinstance(c.expr, m.Operation) and c.expr.operator == "and":
        for part in c.expr.operands:
            yield from _forbidden(CS, space, Constraint(c.kind, c.subject, part, c.parameters), made)
        return
    try:
        operator, left, right, constant = _comparison(space, c, c.expr, made)
    except _CannotSayError:
        if not _finite(c, made):
            raise
        yield from _spelled_out(CS, space, c, made)
        return
    owner = space.parameter(c.subject)
    if owner is not None and UNSET in getattr(made.get(owner.label), "choices", ()):
        yield from _spelled_out(CS, space, c, made)
        return
    if right is not None:
        if operator not in _FORBIDS:
            raise _CannotSayError(f"it has no `{_NEGATED[operator]}` between parameters")
        yield getattr(CS, f"Forbidden{_FORBIDS[operator]}Relation")(left, right)
    elif operator == "!=":
        yield CS.ForbiddenEqualsClause(left, constant)
    elif operator == "==":
        values = [v for v in _values(left) if v != constant]
        yield CS.ForbiddenInClause(left, values)
    else:
        yield getattr(CS, f"Forbidden{_FORBIDS[operator]}Clause")(left, constant)


def _finite(c: Constraint, made: dict[str, Any]) -> bool:
    if not c.parameters or any(p not in made for p in c.parameters):
        return False
    count = 1
    for label in c.parameters:
        size = _size(made[label])
        count *= size
        if count > MAX_COMBINATIONS:
            return False
    return True


def _size(h: Any) -> int:
    values = getattr(h, "choices", None) or getattr(h, "sequence", None)
    if values is not None:
        return len(values)
    return int(h.upper - h.lower + 1) if isinstance(h.upper, int) else MAX_COMBINATIONS + 1


def _values(h: Any) -> list[Any]:
    if _size(h) > MAX_COMBINATIONS:
        raise _CannotSayError("too many values to spell out")
    values = getattr(h, "choices", None) or getattr(h, "sequence", None)
    return list(values) if values is not None else list(range(h.lower, h.upper + 1))


def _spelled_out(CS: Any, space: Space, c: Constraint, made: dict[str, Any]) -> Iterator[Any]:  # noqa: N803
    """One forbidden clause for each combination that breaks the constraint."""
    owner = space.parameter(c.subject)
    labels = sorted({*c.parameters, *([owner.label] if owner is not None and c.kind != "assumption" else [])})
    if any(label not in made for label in labels):
        raise _CannotSayError("one of its parameters is left out")
    if not _finite(Constraint(c.kind, c.subject, c.expr, tuple(labels)), made):
        raise _CannotSayError("too many values to spell out")
    for combination in itertools.product(*(_values(made[x]) for x in labels)):
        if space.holds(c, dict(zip(labels, combination, strict=True))) is False:
            clauses = [CS.ForbiddenEqualsClause(made[x], v) for x, v in zip(labels, combination, strict=True)]
            yield clauses[0] if len(clauses) == 1 else CS.ForbiddenAndConjunction(*clauses)


def _condition(CS: Any, space: Space, c: Constraint, made: dict[str, Any], found: dict[str, Any]) -> None:  # noqa: N803
    owner = space.parameter(c.subject)
    if owner is None or owner.label not in made:
        raise _CannotSayError("its parameter is left out")
    if len(owner.controls) > 1:
        raise _CannotSayError(f"`{owner.label}` also sets what it is not a condition of")
    child = made[owner.label]
    condition = _tree(CS, space, c, c.expr, made, child)
    other = found.get(owner.label)
    found[owner.label] = condition if other is None else CS.AndConjunction(other, condition)


def _tree(CS: Any, space: Space, c: Constraint, e: m.Expr, made: dict[str, Any], child: Any) -> Any:  # noqa: N803
    if isinstance(e, m.Operation) and e.operator in {"and", "or"}:
        both = [_tree(CS, space, c, x, made, child) for x in e.operands]
        return (CS.AndConjunction if e.operator == "and" else CS.OrConjunction)(*both)
    operator, parent, right, constant = _comparison(space, c, e, made)
    if right is not None or parent is child:
        raise _CannotSayError("a condition compares one other parameter with a constant")
    values = getattr(parent, "choices", None) or getattr(parent, "sequence", None)
    if values is not None and (constant not in values or operator in _FORBIDS):
        raise _CannotSayError(f"`{constant}` is no value of `{parent.name}` that it can be compared with")
    if operator in {"<=", ">="}:
        if not isinstance(constant, int) or not isinstance(getattr(parent, "lower", None), int):
            raise _CannotSayError(f"it has no condition with `{operator}`")
        operator, constant = (">", constant - 1) if operator == ">=" else ("<", constant + 1)
    kind = {"==": "Equals", "!=": "NotEquals", ">": "GreaterThan", "<": "LessThan"}[operator]
    try:
        return getattr(CS, f"{kind}Condition")(child, parent, constant)
    except ValueError as error:
        raise _CannotSayError(str(error)) from None
