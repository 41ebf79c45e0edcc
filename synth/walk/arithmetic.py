"""Values of constant expressions as C, C++ and Rust write them: `64 * 1024`, `1 << 20`, `10_000usize`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

_PLAIN = re.compile(r"[\d_xa-fA-F\s*+\-/()<>.]{1,120}")
_SUFFIX = re.compile(r"(?<=[\d_a-fA-F])_?(?:[ui](?:8|16|32|64|128|size)|[uU]?[lL]{1,2}[uU]?|[uU][lL]{0,2})\b")
_CAST = re.compile(r"\s+as\s+[ui](?:8|16|32|64|128|size)\b|\b[ui](?:8|16|32|64|size)\s*::\s*from\b")
_FLOAT = re.compile(r"-?\d[\d_]*\.\d*(?:[eE]-?\d+)?(?:_?f(?:32|64)|f)?")
_LARGEST = 2**64
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def evaluated(text: str) -> str:
    """The value of a constant expression of whole numbers; any other text as it is."""
    plain = _SUFFIX.sub("", _CAST.sub("", text.strip()))
    if _FLOAT.fullmatch(text.strip()):
        return re.sub(r"_?f(32|64)?$", "", text.strip().replace("_", "")) + ("0" if text.strip().endswith(".") else "")
    if not _PLAIN.fullmatch(plain) or not re.search(r"\d", plain) or "." in plain:
        return text
    try:
        value = _value(ast.parse(plain.strip(), mode="eval").body, 0)
    except (SyntaxError, TypeError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return text
    return str(value)


def _value(node: ast.expr, depth: int) -> int:
    if depth > 30:
        raise ValueError("too deep")
    if isinstance(node, ast.Constant):
        result = int(str(node.value))  # a text or a truth value is no number
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        result = -_value(node.operand, depth + 1)
    elif isinstance(node, ast.BinOp):
        left, right = _value(node.left, depth + 1), _value(node.right, depth + 1)
        if isinstance(node.op, (ast.LShift, ast.RShift)):
            if not 0 <= right < 64:
                raise ValueError("too far")
            result = left << right if isinstance(node.op, ast.LShift) else left >> right
        elif type(node.op) in _OPERATORS:
            result = _OPERATORS[type(node.op)](left, right)
        else:
            raise SyntaxError("not an operator of whole numbers")
    else:
        raise TypeError("not an expression of numbers")
    if abs(result) > _LARGEST:
        raise ValueError("too large")
    return result
