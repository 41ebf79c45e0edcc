"""What a default stands for: a local name, or a small function of the file that works it out."""

from __future__ import annotations

import re

from tree_sitter import Node

from synth.walk.python_scope import PyFile, Scope
from synth.walk.syntax import brief, descend, text_of

_LONGEST = 160  # a longer expression is no default that anybody reads
_BODY = 4_000  # bytes of a function that is looked into
_RETURNS = 4
_CALLED = re.compile(r"([A-Za-z_]\w*)(?:\(\))?")
_STEPS = 3


def within(node: Node, outer: Node) -> bool:
    """Whether a node lies inside of another one."""
    return outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def worked_out(pyfile: PyFile, node: Node, default: str | None) -> str | None:
    """A default by name, as what the same function assigns to it or the function of that name returns."""
    if default is not None and len(default) > _LONGEST and not default.isidentifier():
        return None
    for _ in range(_STEPS):
        named = _CALLED.fullmatch(default or "")
        if named is None:
            break
        following = None if (default or "").endswith("()") else _assigned(pyfile, node, named[1])
        following = following or _returned(pyfile, pyfile.scope(node), named[1])
        if following is None or following == default:
            break
        default = following
    return default


def _assigned(pyfile: PyFile, node: Node, name: str) -> str | None:
    found = [d.node for d in pyfile.definitions(name, pyfile.scope(node)) if d.form == "assign" and not d.path]
    fresh = [v for v in found if v is not None and not within(node, v)]
    if pyfile.scope(node).function() is not None and len(fresh) == 1 and fresh[0].end_byte <= node.start_byte:
        text = brief(fresh[0])
        return text if len(text) <= _LONGEST and "environ" not in text else None
    return None


def _returned(pyfile: PyFile, start: Scope, name: str) -> str | None:
    """`a, else b`: what a function without parameters returns, in the order of its text."""
    for scope in start.outwards():
        function = pyfile.functions.get(f"{scope.qualname}.{name}" if scope.qualname else name)
        if function is None:
            continue
        parameters = function.child_by_field_name("parameters")
        if function.end_byte - function.start_byte > _BODY or (parameters is not None and parameters.named_children):
            return None
        texts = [
            brief(n.named_children[0]) for n in descend(function) if n.type == "return_statement" and n.named_children
        ]
        texts = list(dict.fromkeys(texts))
        together = ", else ".join(texts)
        known = texts and len(texts) <= _RETURNS and len(together) <= _LONGEST
        plain = "environ" not in text_of(function) and "getenv" not in text_of(function)
        return together if known and plain else None
    return None
