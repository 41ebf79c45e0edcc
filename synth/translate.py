"""From the source text of a default or size to an LPCL expression; what is not understood stays unknown."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping

from lpcl import model as m

MAX_TEXT = 200
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_C_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)(?:[uU][lL]{0,2}|[lL]{1,2}[uU]?)\b")
_C_WORDS = re.compile(r"\bstd::|\bstatic_cast<(?:std::)?(int|long|size_t|unsigned|int\d+_t|uint\d+_t)>")

Names = Callable[[str], m.Expr | None]


class _NotUnderstoodError(Exception):
    """The expression uses something that LPCL has no word for."""


def expression(text: str | None, names: Mapping[str, m.Expr]) -> m.Expr | None:
    """An LPCL expression of the same value.

    Args:
        text: Python or C source of an expression.
        names: what names and calls without arguments stand for, by their last component (`n_jobs`, `cpu_count()`).

    Returns:
        The expression, or None if any part of it is not understood.
    """
    if text is None or len(text) > MAX_TEXT:
        return None
    plain = text.strip()
    # As Python first: what looks like C may stand inside of a string.
    for source in dict.fromkeys((plain, _C_WORDS.sub(_c_word, _C_SUFFIX.sub(r"\1", plain)))):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the source's style
                tree = ast.parse(source, mode="eval")
            return _convert(tree.body, names, 0)
        except (SyntaxError, ValueError, _NotUnderstoodError, RecursionError, MemoryError):
            continue
    return None


def _c_word(match: re.Match[str]) -> str:
    return "int" if match[1] else ""


def _convert(node: ast.expr, names: Mapping[str, m.Expr], depth: int) -> m.Expr:
    if depth > 12:
        raise _NotUnderstoodError
    match node:
        case ast.Constant(value=bool() as value):
            return m.Truth(value)
        case ast.Constant(value=int() | float() as number) if abs(number) < 1e15:
            return m.Number(int(number) if float(number).is_integer() else float(number))
        case ast.Constant(value=str() as text) if text.isprintable():
            return m.Text(text)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return m.Operation("neg", (_number(_convert(operand, names, depth + 1)),))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _convert(left, names, depth + 1), _convert(right, names, depth + 1))
        case ast.Call(func=func, args=args, keywords=[]):
            return _call(func, [_convert(a, names, depth + 1) for a in args], names)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            if name in {"true", "false"}:
                return m.Truth(name == "true")
            found = names.get(name)
            if found is not None:
                return found
    raise _NotUnderstoodError


def _number(e: m.Expr) -> m.Expr:
    if isinstance(e, m.Text | m.Truth):
        raise _NotUnderstoodError
    return e


def _whole(e: m.Expr) -> m.Expr:
    """`int(e)`: sizes are not negative, so the floor, except where a subtraction could make them so."""
    if isinstance(e, m.Number):
        return m.Number(int(e.value))
    if isinstance(e, m.Text) or _integral(e):
        return e
    if any(isinstance(x, m.Operation) and x.operator in {"-", "neg"} for x in m.walk_expressions(e)):
        raise _NotUnderstoodError
    return m.Apply("floor", (e,))


def _integral(e: m.Expr) -> bool:
    match e:
        case m.Number(value=value):
            return isinstance(value, int)
        case m.Operation(operator=operator, operands=operands):
            return operator != "/" and all(map(_integral, operands))
        case m.Apply(function=function, arguments=arguments):
            return function == "floor" or all(map(_integral, arguments))
    return isinstance(e, m.Ref)


def _binary(op: ast.operator, left: m.Expr, right: m.Expr) -> m.Expr:
    left, right = _number(left), _number(right)
    if isinstance(op, ast.FloorDiv):
        return m.Apply("floor", (m.Operation("/", (left, right)),))
    symbol = _OPERATORS.get(type(op))
    if symbol is None:
        raise _NotUnderstoodError
    return m.Operation(symbol, (left, right))


def _call(func: ast.expr, arguments: list[m.Expr], names: Mapping[str, m.Expr]) -> m.Expr:
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if name in {"min", "max"} and arguments:
        return m.Apply(name, tuple(arguments))
    if name == "int" and len(arguments) == 1:
        return _whole(arguments[0])
    if name in {"float", "str"} and len(arguments) == 1:
        return arguments[0]
    found = names.get(f"{ast.unparse(func)}()") or names.get(f"{name}()")
    if found is not None and not arguments:
        return found
    raise _NotUnderstoodError
