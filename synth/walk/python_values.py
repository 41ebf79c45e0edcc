"""Constant propagation for Python expressions: what a name, a table or a composed string can be.

Values are plain Python objects. A part of a string that is not known becomes `*`, so that a composed name becomes a
family such as `PREFIX_*`; `Choice` holds alternatives; `UNKNOWN` is everything else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tree_sitter import Node

from synth.walk.syntax import text_of

MAX_DEPTH = 24  # nesting of one expression
MAX_CHOICES = 200  # entries of one table
MAX_TEXT = 10_000  # characters of one literal

Value = object
Lookup = Callable[[Node], Value]


class _Unknown:
    """The value of an expression that is not constant."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True)
class Choice:
    """One of several values; `together` if all of them come up, as for the variable of a loop."""

    options: tuple[Value, ...]
    together: bool = False


def choice(options: Iterable[Value], *, together: bool = False) -> Value:
    """Alternatives, flattened; a single one stands for itself."""
    flat: list[Value] = []
    for option in options:
        flat.extend(option.options if isinstance(option, Choice) else (option,))
    if len(flat) == 1 and not together:
        return flat[0]
    return Choice(tuple(flat[:MAX_CHOICES]), together) if flat else UNKNOWN


def strings(value: Value) -> list[str]:
    """The strings that a value can be, in order, without repeats; unknown alternatives are left out."""
    options = value.options if isinstance(value, Choice) else (value,)
    found = [option for option in options if isinstance(option, str)]
    return list(dict.fromkeys(found))


def items(value: Value) -> list[Value]:
    """What a loop over a value yields."""
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    return []


def evaluate(node: Node | None, lookup: Lookup, depth: int = 0) -> Value:
    """Value of an expression; `lookup` resolves identifiers, attributes and unknown calls."""
    if node is None or depth > MAX_DEPTH:
        return UNKNOWN
    rule = _RULES.get(node.type)
    return lookup(node) if rule is None else rule(node, lookup, depth + 1)


def _string(node: Node, lookup: Lookup, depth: int) -> Value:
    text = text_of(node)
    if len(text) > MAX_TEXT:
        return UNKNOWN
    if not any(child.type == "interpolation" for child in node.named_children):
        try:
            found = ast.literal_eval(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return "".join(text_of(c) for c in node.named_children if c.type == "string_content")
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found
    parts = []
    for child in node.named_children:
        if child.type == "interpolation":
            parts.append(_known(evaluate(child.child_by_field_name("expression"), lookup, depth)))
        elif child.type == "string_content":
            parts.append([text_of(child)])
    return _product(parts)


def _known(value: Value) -> list[str]:
    """The spellings of a value inside a string; `*` where it is not known."""
    if isinstance(value, Choice):
        return [s for option in value.options for s in _known(option)][:MAX_CHOICES] or ["*"]
    if isinstance(value, bool) or value is UNKNOWN or value is None:
        return ["*"]
    return [str(value)] if isinstance(value, (str, int, float)) else ["*"]


def _product(parts: list[list[str]]) -> Value:
    results = [""]
    for part in parts:
        results = [left + right for left in results for right in part][:MAX_CHOICES]
    folded = [re.sub(r"\*+", "*", text) for text in results]
    return choice(folded, together=len(folded) > 1)


def _concatenated(node: Node, lookup: Lookup, depth: int) -> Value:
    return _product([_known(evaluate(child, lookup, depth)) for child in node.named_children])


def _number(node: Node, _lookup: Lookup, _depth: int) -> Value:
    try:
        value: Value = ast.literal_eval(text_of(node)[:MAX_TEXT])
    except (SyntaxError, ValueError, MemoryError):
        return UNKNOWN
    return value


def _first(node: Node, lookup: Lookup, depth: int) -> Value:
    inner = node.named_children
    return evaluate(inner[0], lookup, depth) if len(inner) == 1 else UNKNOWN


def _sequence(node: Node, lookup: Lookup, depth: int) -> Value:
    found: list[Value] = []
    for child in node.named_children:
        if child.type == "comment":
            continue
        if child.type == "list_splat":
            found.extend(items(_first(child, lookup, depth)))
        else:
            found.append(evaluate(child, lookup, depth))
        if len(found) > MAX_CHOICES * 5:
            break
    return tuple(found) if node.type != "list" else found


def _dictionary(node: Node, lookup: Lookup, depth: int) -> Value:
    found: dict[Value, Value] = {}
    for child in node.named_children:
        if child.type == "dictionary_splat":
            inner = _first(child, lookup, depth)
            if isinstance(inner, dict):
                found.update(inner)
        elif child.type == "pair":
            key = evaluate(child.child_by_field_name("key"), lookup, depth)
            if isinstance(key, (str, int, float)) or key is None:
                found[key] = evaluate(child.child_by_field_name("value"), lookup, depth)
    return found


def _comprehension(node: Node, lookup: Lookup, depth: int) -> Value:
    """`[f(x) for x in TABLE]`: the body's lookup resolves `x` to a choice already."""
    body = evaluate(node.child_by_field_name("body"), lookup, depth)
    if isinstance(body, Choice) and body.together:
        return list(body.options)
    return UNKNOWN


def _unary(node: Node, lookup: Lookup, depth: int) -> Value:
    value = evaluate(node.child_by_field_name("argument"), lookup, depth)
    if text_of(node).startswith("-") and isinstance(value, (int, float)):
        return -value
    return UNKNOWN


def _binary(node: Node, lookup: Lookup, depth: int) -> Value:
    left = evaluate(node.child_by_field_name("left"), lookup, depth)
    right_node = node.child_by_field_name("right")
    operator = text_of(node.child_by_field_name("operator"))
    if operator == "%" and strings(left):
        return choice([_percent(text, right_node, lookup, depth) for text in strings(left)])
    right = evaluate(right_node, lookup, depth)
    if operator == "+":
        if isinstance(left, (list, tuple)) or isinstance(right, (list, tuple)):
            return [*items(left), *items(right)]
        if strings(left) or strings(right):
            return _product([_known(left), _known(right)])
    if operator == "|" and isinstance(left, dict) and isinstance(right, dict):
        return {**left, **right}
    return _arithmetic(operator, left, right)


def _arithmetic(operator: str, left: Value, right: Value) -> Value:
    if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
        return UNKNOWN
    if operator == "+":
        return left + right
    if operator == "*":
        return left * right
    if operator == "-":
        return left - right
    if operator == "<<" and isinstance(left, int) and isinstance(right, int) and 0 <= right < 64:
        return left << right
    if operator == "**" and abs(left) <= 1024 and 0 <= right <= 64:
        return float(left**right) if isinstance(left**right, float) else int(left**right)
    return UNKNOWN


def _percent(text: str, right: Node | None, lookup: Lookup, depth: int) -> Value:
    value = evaluate(right, lookup, depth)
    named = value if isinstance(value, dict) else {}
    given = list(value) if isinstance(value, tuple) else [value]

    parts: list[list[str]] = []
    position = 0
    for match in re.finditer(r"%(?:\((\w+)\))?[-#0 +]*\d*(?:\.\d+)?([sdrif%])", text):
        parts.append([text[position : match.start()]])
        position = match.end()
        if match[2] == "%":
            parts.append(["%"])
        elif match[1]:
            parts.append(_known(named.get(match[1], UNKNOWN)))
        else:
            parts.append(_known(given.pop(0) if given else UNKNOWN))
    return _product([*parts, [text[position:]]])


def _format(text: str, arguments: Node | None, lookup: Lookup, depth: int) -> Value:
    positional: list[Value] = []
    named: dict[str, Value] = {}
    for child in arguments.named_children if arguments is not None else []:
        if child.type == "keyword_argument":
            named[text_of(child.child_by_field_name("name"))] = evaluate(
                child.child_by_field_name("value"), lookup, depth
            )
        else:
            positional.append(evaluate(child, lookup, depth))
    parts: list[list[str]] = []
    position = counter = 0
    for match in re.finditer(r"\{(\w*)[^{}]*\}", text):
        parts.append([text[position : match.start()]])
        position = match.end()
        key = match[1] or str(counter)
        counter += not match[1]
        if key.isdigit():
            parts.append(_known(positional[int(key)] if int(key) < len(positional) else UNKNOWN))
        else:
            parts.append(_known(named.get(key, UNKNOWN)))
    return _product([*parts, [text[position:]]])


def _boolean(node: Node, lookup: Lookup, depth: int) -> Value:
    return choice(
        [
            evaluate(node.child_by_field_name("left"), lookup, depth),
            evaluate(node.child_by_field_name("right"), lookup, depth),
        ]
    )


def _conditional(node: Node, lookup: Lookup, depth: int) -> Value:
    parts = node.named_children
    if len(parts) != 3:
        return UNKNOWN
    return choice([evaluate(parts[0], lookup, depth), evaluate(parts[2], lookup, depth)])


def _subscript(node: Node, lookup: Lookup, depth: int) -> Value:
    table = evaluate(node.child_by_field_name("value"), lookup, depth)
    if isinstance(table, (list, tuple, dict)):
        key = evaluate(node.child_by_field_name("subscript"), lookup, depth)
        if isinstance(table, dict):
            if isinstance(key, (str, int, float)) and key in table:
                return table[key]
            return choice(table.values())
        if isinstance(key, int) and -len(table) <= key < len(table):
            return table[key]
        return choice(table)
    return UNKNOWN


_STRING_METHODS: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "strip": str.strip,
    "title": str.title,
}
_COPIES = frozenset({"list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "enumerate"})


def _call(node: Node, lookup: Lookup, depth: int) -> Value:
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    given = [c for c in arguments.named_children if c.type != "comment"] if arguments is not None else []
    if function is None:
        return UNKNOWN
    if function.type == "identifier":
        name = text_of(function)
        if name in _COPIES and len(given) == 1:
            return evaluate(given[0], lookup, depth)
        if name == "dict" and given and all(c.type == "keyword_argument" for c in given):
            return {
                text_of(c.child_by_field_name("name")): evaluate(c.child_by_field_name("value"), lookup, depth)
                for c in given
            }
        if name == "str" and len(given) == 1:
            return evaluate(given[0], lookup, depth)
    if function.type == "attribute":
        found = _method(function, arguments, given, lookup, depth)
        if found is not UNKNOWN:
            return found
    return lookup(node)


def _method(function: Node, arguments: Node | None, given: list[Node], lookup: Lookup, depth: int) -> Value:
    method = text_of(function.child_by_field_name("attribute"))
    value = evaluate(function.child_by_field_name("object"), lookup, depth)
    if isinstance(value, dict):
        if method == "keys":
            return list(value)
        if method == "values":
            return list(value.values())
        if method == "items":
            return list(value.items())
        return UNKNOWN
    texts = strings(value)
    if not texts:
        return UNKNOWN
    if method in _STRING_METHODS and not given:
        together = isinstance(value, Choice) and value.together
        return choice([_STRING_METHODS[method](text) for text in texts], together=together)
    if method == "format":
        return choice([_format(text, arguments, lookup, depth) for text in texts])
    if method == "split" and not given:
        return texts[0].split()
    if method == "replace" and len(given) == 2:
        old, new = (evaluate(argument, lookup, depth) for argument in given)
        if isinstance(old, str) and isinstance(new, str):
            return choice([text.replace(old, new) for text in texts])
    if method == "join" and len(given) == 1:
        parts = items(evaluate(given[0], lookup, depth))
        return texts[0].join(_known(part)[0] for part in parts) if parts else UNKNOWN
    return UNKNOWN


_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "none": None}


def _keyword(node: Node, _lookup: Lookup, _depth: int) -> Value:
    return _CONSTANTS[node.type]


_RULES: dict[str, Callable[[Node, Lookup, int], Value]] = {
    "string": _string,
    "concatenated_string": _concatenated,
    "parenthesized_expression": _first,
    "integer": _number,
    "float": _number,
    "true": _keyword,
    "false": _keyword,
    "none": _keyword,
    "list": _sequence,
    "tuple": _sequence,
    "set": _sequence,
    "expression_list": _sequence,
    "dictionary": _dictionary,
    "list_comprehension": _comprehension,
    "set_comprehension": _comprehension,
    "generator_expression": _comprehension,
    "unary_operator": _unary,
    "binary_operator": _binary,
    "boolean_operator": _boolean,
    "conditional_expression": _conditional,
    "subscript": _subscript,
    "call": _call,
}
