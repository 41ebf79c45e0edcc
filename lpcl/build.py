"""From the parse tree to the model. Finds what the grammar cannot: a property given twice."""

from __future__ import annotations

import math
from typing import Any

from lark import Token, Tree

from lpcl import model as m
from lpcl.diagnostics import Diagnostic
from lpcl.units import split_quantity

_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_OPERATORS = {
    "or_": "or",
    "and_": "and",
    "not_": "not",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "negate": "neg",
}
# Properties of a clause that may stand more than once: their values gather in a tuple of the given field.
_REPEATED = {
    "idle": "idle",
    "note": "notes",
    "sizes": "sizes",
    "ignores": "ignores",
    "requires": "requires",
    "forbids": "forbids",
    "remedy": "remedies",
    "env": "ways",
    "call": "ways",
    "param": "ways",
    "config": "ways",
    "special": "specials",
    "bounds": "bounds",
    "affects": "affects",
    "observes": "observes",
    "evidence": "evidence",
    "sets_env": "env",
    "limits": "limits",
    "inherited": "inherited",
    "inside": "inside",
}
_SINGLE = {
    "in": "target",
    "to": "value",
    "valid": "valid_after",
    "read_call": "read",
    "read_attribute": "read",
    "read_native": "read",
    "read_file": "read",
    "read_log": "read",
}


def span_of(tree: Tree[Token] | Token) -> m.Span:
    """The span of a tree or token."""
    meta: Any = tree if isinstance(tree, Token) else tree.meta
    if isinstance(tree, Tree) and meta.empty:
        return m.NO_SPAN
    return m.Span(meta.line, meta.column, meta.end_line, meta.end_column, meta.start_pos, meta.end_pos)


def unquote(token: Token) -> str:
    """The value of a string token."""
    body = str(token)[1:-1]
    if "\\" not in body:
        return body
    characters = iter(body)
    return "".join(_ESCAPES[next(characters)] if c == "\\" else c for c in characters)


class Builder:
    """Builds contracts from trees and gathers diagnostics on the way."""

    def __init__(self, file: str = "") -> None:
        """Remember the file's name for diagnostics."""
        self.file = file
        self.diagnostics: list[Diagnostic] = []

    def contract(self, tree: Tree[Token]) -> m.Contract:
        """A whole contract."""
        name, *clauses = tree.children
        return self.assemble(str(name), clauses, span_of(tree))  # type: ignore[arg-type]

    def assemble(self, name: str, trees: list[Tree[Token]], span: m.Span = m.NO_SPAN) -> m.Contract:
        """A contract from the trees of its clauses."""
        packages: list[m.Package] = []
        natives: list[m.Native] = []
        clauses: list[m.Clause] = []
        uses: list[str] = []
        carries: list[m.Carried] = []
        summary: str | None = None
        for tree in trees:
            here = span_of(tree)
            if tree.data == "package":
                first, second = tree.children
                versions = unquote(second) if second is not None else None  # type: ignore[arg-type]
                packages.append(m.Package(unquote(first), versions, here))  # type: ignore[arg-type]
            elif tree.data == "native":
                natives.append(m.Native(self._strings(tree.children[0]), here))
            elif tree.data == "uses":
                uses += self._names(tree.children[0])
            elif tree.data == "carries":
                first, second = tree.children
                pattern = unquote(second) if second is not None else None  # type: ignore[arg-type]
                carries.append(m.Carried(str(first), pattern, here))
            elif tree.data == "summary":
                if summary is not None:
                    self._twice("summary", here)
                summary = unquote(tree.children[0])  # type: ignore[arg-type]
            else:
                clauses.append(self._clause(tree))
        return m.Contract(
            name, tuple(packages), tuple(natives), summary, tuple(uses), tuple(carries), tuple(clauses), span
        )

    def _twice(self, word: str, span: m.Span) -> None:
        message = f"`{word}` is given twice"
        self.diagnostics.append(Diagnostic("LP005", "error", message, span, "keep one of them", self.file))

    def _clause(self, tree: Tree[Token]) -> m.Clause:
        kind = str(tree.data)
        children: list[Any] = list(tree.children)
        name, span = str(children.pop(0)), span_of(tree)
        head: dict[str, Any] = {}
        if kind == "demand":
            head["resource"] = self._ref(children.pop(0))
        elif kind == "control":
            head["type"] = self._type(children.pop(0))
        elif kind == "signal":
            head["kind"] = str(children.pop(0))
        values = self._properties(children)
        make: Any = {
            "demand": m.Demand,
            "assume": m.Assumption,
            "control": m.Control,
            "signal": m.Signal,
            "mitigate": m.Mitigation,
        }[kind]
        result: m.Clause = make(name=name, **head, **values, span=span)
        return result

    def _properties(self, children: list[Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        gathered: dict[str, list[Any]] = {}
        for child in children:
            key = str(child.data)
            value = self._property(key, child)
            if key in _REPEATED:
                field = _REPEATED[key]
                many = value if isinstance(value, tuple) else (value,)
                gathered.setdefault(field, []).extend(many)
                continue
            if key == "in" and child.children[1] is not None:
                values["pool"] = self._ref(child.children[1])
            field = _SINGLE.get(key, key)
            if field in values:
                self._twice(
                    "read" if field == "read" else {"target": "in", "value": "to"}.get(field, key),
                    span_of(child),
                )
            values[field] = value
        return values | {field: tuple(many) for field, many in gathered.items()}

    def _property(self, key: str, tree: Tree[Token]) -> Any:
        c: list[Any] = list(tree.children)
        span = span_of(tree)
        if key in {"amount", "condition", "requires", "default", "effective", "to", "pinned"}:
            return self.expression(c[0])
        if key in {"note", "remedy", "unreliable", "levels"}:
            return unquote(c[0])
        if key == "evidence":
            return self._names(c[0])
        if key in {"ignores", "bounds", "affects", "observes", "limits", "inside"}:
            return self._refs(c[0])
        if key in {"env", "config", "call", "param"}:
            return self._way(key, c, span)
        return self._rare_property(key, c, span)

    def _way(self, key: str, c: list[Any], span: m.Span) -> m.Way:
        name = unquote(c[0]) if key in {"env", "config"} else self._ref(c[0]).name
        *middle, binding, versions, condition, taken, lasts, deprecated = c[1:]
        parameters: tuple[str, ...] = ()
        if key == "call":
            parameters = self._names(middle[0]) if middle[0] is not None else ()
        elif key == "param":
            parameters = (str(middle[0]),)
        return m.Way(
            key,
            name,
            str(binding),
            parameters,
            self._optional(condition),
            self._quoted(deprecated),
            self._quoted(versions),
            None if taken is None else self.expression(taken.children[0]),
            None if lasts is None else str(lasts.children[0]),
            span,
        )

    def _rare_property(self, key: str, c: list[Any], span: m.Span) -> Any:
        if key == "idle":
            return m.Idle(str(c[0]), self._optional(c[1]), self._optional(c[2]), span)
        if key == "range":
            step = self._optional(c[2])
            return m.Range(self.expression(c[0]), self.expression(c[1]), step, str(c[3]) if c[3] else None, span)
        if key == "sizes":
            return m.Sizes(self._ref(c[0]), self._refs(c[1]), span)
        if key == "forbids":
            after = self._ref(c[1]) if c[1] is not None else None
            return m.Forbids(str(c[0]), after, self._optional(c[2]), span)
        if key == "special":
            if isinstance(c[1], Token):
                return m.Special(self.expression(c[0]), None, str(c[1]), span)
            return m.Special(self.expression(c[0]), self.expression(c[1]), "means", span)
        if key == "inherited":
            return tuple(str(t) for t in c)
        if key in {"read_call", "read_attribute"}:
            return m.Read(key.removeprefix("read_"), (self._ref(c[0]).name,), None, span)
        if key in {"read_native", "read_file", "read_log"}:
            return self._read(key, c, span)
        if key == "sets_env":
            return self._strings(c[0])
        if key == "unless_set":
            return True
        return str(c[0])

    def _read(self, key: str, c: list[Any], span: m.Span) -> m.Read:
        if key == "read_native":
            return m.Read("native", self._strings(c[0]), None, span)
        field = unquote(c[1]) if key == "read_file" and c[1] is not None else None
        return m.Read(key.removeprefix("read_"), (unquote(c[0]),), field, span)

    def _optional(self, tree: Any) -> m.Expr | None:
        return None if tree is None else self.expression(tree)

    @staticmethod
    def _quoted(tree: Any) -> str | None:
        return None if tree is None else unquote(tree.children[0])

    @staticmethod
    def _strings(tree: Any) -> tuple[str, ...]:
        return tuple(unquote(t) for t in tree.children)

    @staticmethod
    def _names(tree: Any) -> tuple[str, ...]:
        return tuple(str(t) for t in tree.children)

    @staticmethod
    def _ref(tree: Any) -> m.Ref:
        return m.Ref(tuple(str(t) for t in tree.children), span_of(tree))

    def _refs(self, tree: Any) -> tuple[m.Ref, ...]:
        return tuple(self._ref(t) for t in tree.children)

    def _type(self, tree: Any) -> m.Type:
        first: Any = tree.children[0]
        span = span_of(tree)
        if tree.data == "sequence":
            least, greatest = (int(str(t)[:9]) for t in tree.children[1:])
            return m.Type("sequence", (), self._type(first), least, greatest, span=span)
        if tree.data == "placement":
            return m.Type("placement", resource=self._ref(first), span=span)
        if isinstance(first, Token):
            return m.Type(str(first), span=span)
        if first.data == "strings":
            return m.Type("choice", self._strings(first), span=span)
        return m.Type("map" if tree.data == "map" else "list", (), self._type(first), span=span)

    def expression(self, tree: Any) -> m.Expr:
        """An expression; recursion is bounded by the parser's depth check."""
        span, kind, c = span_of(tree), str(tree.data), tree.children
        if kind in {"number", "quantity"}:
            try:
                value, unit = split_quantity(str(c[0]))
                value = value if abs(value) < math.inf else int(value)  # int() refuses an infinite one
            except (ValueError, OverflowError):  # more digits than Python converts
                self.diagnostics.append(Diagnostic("LP006", "error", "number is too long", span, "", self.file))
                value, unit = 0, ""
            return m.Number(value, unit, span)
        if kind == "text":
            return m.Text(unquote(c[0]), span)
        if kind in {"true", "false"}:
            return m.Truth(kind == "true", span)
        if kind == "unknown":
            return m.Unknown(span)
        if kind == "ref":
            return self._ref(tree)
        if kind == "apply":
            return m.Apply(str(c[0]), tuple(self.expression(x) for x in c[1:] if x is not None), span)
        if kind == "conditional":
            return m.Conditional(self.expression(c[0]), self.expression(c[1]), self.expression(c[2]), span)
        if kind == "compare":
            return m.Operation(str(c[1]), (self.expression(c[0]), self.expression(c[2])), span)
        return m.Operation(_OPERATORS[kind], tuple(self.expression(x) for x in c), span)
