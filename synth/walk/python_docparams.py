"""Parameters that a docstring lists: what a callable takes through `**kwargs` is often written down only there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.walk.syntax import text_of

_SECTION = re.compile(
    r"^\s*((other |keyword |key-?word )?(parameters|arguments|args|options?|kwargs|attributes|params)):?\s*$",
    re.IGNORECASE,
)
_NUMPY = re.compile(r"^(\s*)([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*:\s*(\S.*)?$")
_BARE = re.compile(r"^(\s*)(?:[-*]\s+)?[`*]{0,2}([A-Za-z_]\w*)[`*]{0,2}(?:\s*\(([^)]*)\))?\s*(?::|--|-)\s+(\S.*)?$")
_FIELD = re.compile(r"^\s*:(?:param|arg|keyword|kwarg)\s+(?:[\w\[\], |.]+\s+)?(\w+):\s*(.*)$")
_DEFAULT = re.compile(
    r"(?:defaults?(?:\s+(?:is|to|value|value is))?\s*[:=]?\s*|optional,\s*default[:=]?\s*)[`'\"]{0,2}([\w.+-]+)",
    re.IGNORECASE,
)
_MAX_LINES = 600


@dataclass(frozen=True, slots=True)
class Documented:
    """A parameter that a docstring names: 1-based line, default as written or None."""

    name: str
    line: int
    default: str | None


def docstring_of(body_owner: Node) -> Node | None:
    """The string that a `def` or `class` starts with."""
    block = body_owner.child_by_field_name("body")
    first = next((c for c in block.named_children if c.type != "comment"), None) if block is not None else None
    inner = (
        first.named_children[0]
        if first is not None and first.type == "expression_statement" and first.named_children
        else None
    )
    return inner if inner is not None and inner.type == "string" else None


def documented_parameters(node: Node | None) -> Iterator[Documented]:
    """Names listed as parameters in a docstring, in NumPy's, Google's or Sphinx's manner, or as a list of options."""
    if node is None:
        return
    start = node.start_point[0] + 1
    lines = text_of(node).split("\n")[:_MAX_LINES]
    for place, line in enumerate(lines):
        field = _FIELD.match(line)
        numpy = _NUMPY.match(line)
        bare = _BARE.match(line)
        names = field[1] if field else numpy[2] if numpy else bare[2] if bare else ""
        for name in re.split(r"\s*,\s*", names) if names else []:
            yield Documented(name, start + place, _default(lines, place))


def _default(lines: list[str], place: int) -> str | None:
    """The default that the entry's own text states."""
    indent = len(lines[place]) - len(lines[place].lstrip())
    text = [lines[place]]
    for line in lines[place + 1 : place + 8]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        text.append(line)
    found = _DEFAULT.search(" ".join(text))
    if found is None:
        return None
    value = found[1].rstrip(".")
    literal = re.fullmatch(r"-?\d[\d_.]*|None|True|False|auto", value)
    quoted = found[0].removesuffix(found[1])[-1:] in "'\"`"
    return value if literal or (quoted and value) else None
