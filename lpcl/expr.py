"""Expressions over machine facts and controls: their vocabulary and their value.

`evaluate` never raises on a contract's expression: what depends on an unknown fact is `None`, which spreads,
except where the known part decides alone (`false and unknown`, `min` with one argument known stays unknown).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

from lpcl import model as m
from lpcl.units import in_base

Value: TypeAlias = int | float | str | bool | None

MACHINE_FACTS: dict[str, str] = {
    "logical": "CPUs that exist",
    "online": "CPUs that are up",
    "affinity": "CPUs in the process's affinity mask",
    "physical": "physical cores",
    "quota": "CPU quota of the cgroup in cores; unknown if unlimited",
    "cores": "CPUs usable at once: affinity capped by the quota",
    "memory": "total memory, bytes",
    "memory_limit": "memory limit of the cgroup, bytes; unknown if unlimited",
    "numa_nodes": "NUMA nodes",
    "gpus": "GPUs visible",
    "os": 'operating system: "linux", "darwin" or "windows"',
    "arch": 'processor architecture: "x86_64", "aarch64" ...',
}

# name -> (least, most) arguments; None: any number.
FUNCTIONS: dict[str, tuple[int, int | None]] = {
    "min": (1, None),
    "max": (1, None),
    "floor": (1, 1),
    "ceil": (1, 1),
    "clamp": (3, 3),
    "pow": (2, 2),
    "first": (1, None),
    "is_set": (1, 1),
    "installed": (1, 1),
    "loaded": (1, 1),
    "copies": (1, 1),
    "divisor": (2, 2),
}


def _clamp(x: float, low: float, high: float) -> float:
    return max(low, min(high, x))


def _pow(base: float, exponent: float) -> float | None:
    # Bounded: a contract is untrusted text, and 10**10**10 is a hang.
    if abs(exponent) > 128 or abs(base) > 1e6:
        return None
    result = base**exponent
    return result if isinstance(result, int | float) else None


def _divisor(n: float, most: float) -> float | None:
    """The greatest whole divisor of n that is at most `most`."""
    # A root such as pow(49, 0.5) may come out a hair below the whole number that it is.
    whole, limit = int(n), min(int(most + 1e-9), int(n))
    if whole != n or not 1 <= whole <= 10**6:
        return None
    return next((d for d in range(limit, 0, -1) if whole % d == 0), None)


_APPLY: dict[str, Callable[..., float | None]] = {
    "min": lambda *x: min(x),
    "max": lambda *x: max(x),
    "floor": math.floor,
    "ceil": math.ceil,
    "clamp": _clamp,
    "pow": _pow,
    "divisor": _divisor,
}


_BINARY: dict[str, Callable[[float, float], float | bool]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


# A whole number above this converts to no float and may have too many digits to print: it is unknown.
_LARGEST = 10**300


def _bounded(value: Value) -> Value:
    return None if isinstance(value, int) and abs(value) > _LARGEST else value


def evaluate(e: m.Expr, values: Mapping[str, Value]) -> Value:
    """The value of an expression.

    Args:
        e: the expression.
        values: dotted names (`machine.online`, `threads`, `value` ...) to values in base units; a name that is
            missing is unknown.

    Returns:
        A number, string or boolean, or None if it cannot be known from `values`.
    """
    match e:
        case m.Number():
            return None if abs(e.value) > _LARGEST else _bounded(in_base(e.value, e.unit))
        case m.Text() | m.Truth():
            return e.value
        case m.Ref():
            return _bounded(values.get(e.name))
        case m.Apply():
            return _apply(e, values)
        case m.Conditional():
            condition = evaluate(e.condition, values)
            if condition is None:
                yes, no = evaluate(e.yes, values), evaluate(e.no, values)
                return yes if yes == no else None
            return evaluate(e.yes if condition else e.no, values)
        case m.Operation():
            return _operate(e.operator, [evaluate(o, values) for o in e.operands])
        case m.Unknown():
            return None


def _apply(e: m.Apply, values: Mapping[str, Value]) -> Value:
    if e.function == "is_set":
        argument = e.arguments[0] if e.arguments else None
        return isinstance(argument, m.Ref) and f"set:{argument.name}" in values
    if e.function in {"installed", "loaded", "copies"}:
        return _present(e, values)
    arguments = [evaluate(a, values) for a in e.arguments]
    if e.function == "first":
        return next((a for a in arguments if a is not None), None)
    numbers = [a for a in arguments if isinstance(a, int | float) and not isinstance(a, bool)]
    function = _APPLY.get(e.function)
    if function is None or len(numbers) != len(arguments) or not numbers:
        return None
    try:
        return _bounded(function(*numbers))
    except (ArithmeticError, ValueError, TypeError):
        return None


def _present(e: m.Apply, values: Mapping[str, Value]) -> Value:
    """Whether a distribution is installed or a contract part of the system, and how many copies of a runtime.

    Unknown unless all of them are known.
    """
    argument = e.arguments[0] if e.arguments else None
    if not isinstance(argument, m.Text):
        return None
    name = argument.value
    if e.function == "installed":
        from packaging.utils import canonicalize_name  # noqa: PLC0415  # it takes longer to load than all of this

        name = canonicalize_name(name)
    known = values.get(f"{e.function}:{name}")
    nothing: Value = 0 if e.function == "copies" else False
    return nothing if known is None and f"{e.function}:*" in values else known


def _operate(symbol: str, operands: list[Value]) -> Value:
    if symbol == "and":
        return False if False in operands else (None if None in operands else all(operands))
    if symbol == "or":
        known = [o for o in operands if o is not None]
        return True if any(known) else (None if None in operands else False)
    if None in operands:
        return None
    if symbol == "not":
        return not operands[0]
    if symbol in {"==", "!="}:
        return (operands[0] == operands[1]) == (symbol == "==")
    return _arithmetic(symbol, operands)


def _arithmetic(symbol: str, operands: list[Value]) -> Value:
    numbers = [o for o in operands if isinstance(o, int | float)]
    if len(numbers) != len(operands):
        return None
    if symbol == "neg":
        return -numbers[0]
    left, right = numbers
    try:
        return _bounded(_BINARY[symbol](left, right))
    except ArithmeticError:
        return None


def references(node: object) -> set[str]:
    """Dotted names that the expressions below a node refer to, `is_set` included."""
    return {e.name for e in m.walk_references(node)}
