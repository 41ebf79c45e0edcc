"""One Python file as a walker sees it: scopes, definitions, imports, and what expressions can be."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import tree_sitter_python
from tree_sitter import Language, Node, Tree

from synth.walk.python_values import UNKNOWN, Choice, Value, choice, evaluate, items
from synth.walk.syntax import PARSE_SECONDS, Nodes, TooDeepError, parse, text_of

PYTHON = Language(tree_sitter_python.language())
MAX_WIDTHS = 400  # distinct indentations of one file; see `parse_python`
MAX_INDENT = 10_000  # bytes of one indentation
MAX_DEFINITIONS = 6  # assignments to one name that are looked at
MAX_SCOPES = 40  # scopes around one expression that are searched for a name
MAX_DOTS = 12  # components of a dotted name
MAX_LOOKUPS = 12  # names that are followed to get at one value
_DEFINING = frozenset({"function_definition", "class_definition", "lambda"})
_BINDING = frozenset(
    {
        "assignment",
        "named_expression",
        "for_statement",
        "for_in_clause",
        "as_pattern",
        "import_statement",
        "import_from_statement",
        "keyword_argument",
    }
)

_INDENT = re.compile(rb"(?:\A|[\n\r\f])([ \t]*)")

Bindings = Mapping[str, Value]


def parse_python(source: bytes, *, seconds: float = PARSE_SECONDS) -> Tree:
    """Parse a Python file.

    The grammar's scanner writes its stack of indentations into a buffer of a fixed size and crashes the process when
    some 500 do not fit. The stack only grows by wider indentations, so a file with few distinct widths is safe; the
    language itself allows 100 levels.

    Raises:
        NotParsedError: it took too long, or has too many indentations.
    """
    widths = {len(indent.replace(b"\t", b" " * 8)) for indent in set(_INDENT.findall(source))}
    if len(widths) > MAX_WIDTHS or max(widths, default=0) > MAX_INDENT:
        raise TooDeepError(f"more than {MAX_WIDTHS} indentations, or one of more than {MAX_INDENT} columns")
    return parse(PYTHON, source, seconds=seconds)


class Resolver(Protocol):
    """What a file needs to know about the other files of its package."""

    def constant(self, module: str, dotted: str) -> Value:
        """Value of `dotted` in `module`, `UNKNOWN` if it has none."""
        ...

    def bases(self, module: str, qualname: str) -> list[tuple[str, str]]:
        """The classes of the package that a class inherits from, nearest first."""
        ...


@dataclass(eq=False)
class Scope:
    """Where a name lives.

    Attributes:
        qualname: dotted name inside the module, `""` for the module itself.
        names: the definitions of each local name, as (form, node) pairs.
    """

    kind: Literal["module", "class", "function", "lambda"]
    qualname: str
    outer: Scope | None
    node: Node
    names: dict[str, list[Definition]] = field(default_factory=dict)
    in_lambda: bool = False  # inside of a lambda, which may run later than what is around it
    _function: Scope | None = None
    _klass: Scope | None = None

    def __post_init__(self) -> None:
        """Keep what is around it, since nothing bounds how deep scopes are nested.

        It never refers to itself: a walk runs without the cycle collector.
        """
        outer = self.outer
        self._function = outer.function() if outer is not None else None
        self._klass = outer.klass() if outer is not None else None
        self.in_lambda = self.kind == "lambda" or (outer is not None and outer.in_lambda)

    def function(self) -> Scope | None:
        """The nearest enclosing `def`, `None` outside of any."""
        return self if self.kind == "function" else self._function

    def klass(self) -> Scope | None:
        """The nearest enclosing class."""
        return self if self.kind == "class" else self._klass

    def outwards(self) -> Iterator[Scope]:
        """This scope and those around it, to a fixed depth, and the module last."""
        scope: Scope | None = self
        for _ in range(MAX_SCOPES):
            if scope is None:
                return
            yield scope
            scope = scope.outer


@dataclass(frozen=True, eq=False)
class Definition:
    """One binding of a name; `path` picks the element when a tuple is unpacked."""

    form: Literal["assign", "loop", "parameter", "with"]
    node: Node | None
    path: tuple[int, ...] = ()


def dotted(node: Node | None) -> str:
    """`a.b.c` for names and attributes; `a().b` where a call is in the chain; `""` for anything else."""
    parts: list[str] = []
    current = node
    while current is not None and len(parts) < MAX_DOTS:
        if current.type == "identifier":
            parts.append(text_of(current))
            return ".".join(reversed(parts)).replace(".()", "()")
        if current.type == "attribute":
            parts.append(text_of(current.child_by_field_name("attribute")))
            current = current.child_by_field_name("object")
        elif current.type == "call":
            current = current.child_by_field_name("function")
            parts.append("()")
        else:
            return ""
    return ""


class PyFile:
    """The tree of one Python file with its scopes.

    Attributes:
        module: dotted name that the file is imported by.
        imports: local name -> (module, attribute or `""`), absolute; of all scopes, the module's own first.
        attributes: (class qualname, attribute) -> value nodes assigned to `self.attribute`.
    """

    def __init__(self, root: Node, module: str, *, is_package: bool = False) -> None:
        """Collect scopes and definitions in one pass."""
        self.root = root
        self.module = module
        self.is_package = is_package
        self.tree = Nodes(root)
        self.top = Scope("module", "", None, root)
        self.scopes: dict[int, Scope] = {}
        self.inner: dict[int, Scope] = {}
        self.classes: dict[str, Scope] = {}
        self.functions: dict[str, Node] = {}  # qualified name -> `def`, the last one of a name
        self.imports: dict[str, tuple[str, str]] = {}
        self.stars: list[str] = []
        self.attributes: dict[tuple[str, str], list[Node]] = {}
        self.handed_over: set[tuple[int, str]] = set()  # (scope node, name) of `env=name` in a call
        self.index: Resolver | None = None
        self._busy: set[tuple[int, str]] = set()
        self._depth = 0
        self._identifiers: dict[str, list[Node]] = {}
        self._collect()

    # scopes and definitions

    def uses(self, name: str, after: int) -> Iterator[Node]:
        """Identifiers of a name that start after a byte offset, in source order, whatever their scope."""
        if not self._identifiers:
            for node in self.tree.nodes:
                if node.type == "identifier":
                    self._identifiers.setdefault(text_of(node), []).append(node)
        found = self._identifiers.get(name, [])
        for place in range(bisect_left(found, after, key=_start), len(found)):
            yield found[place]

    def scope(self, node: Node) -> Scope:
        """The scope that an expression is evaluated in."""
        return self.scopes.get(node.id, self.top)

    def _collect(self) -> None:
        # millions of times in a large release: each look at a node's type or id makes an object
        scopes, inner, parents = self.scopes, self.inner, self.tree.parents
        for node in self.tree.nodes:
            key = node.id
            parent = parents.get(key)
            if parent is None:
                scopes[key] = self.top
                continue
            outer = parent.id
            scope = scopes[outer]
            opened = inner.get(outer)
            if opened is not None and self._opens(parent, node):
                scope = opened
            scopes[key] = scope
            kind = node.type
            if kind in _DEFINING:
                self._open(node, scope)
            elif kind in _BINDING:
                self._define(node, kind, scope)

    @staticmethod
    def _opens(parent: Node, node: Node) -> bool:
        """Whether a child of a definition lies inside it: its body does, its defaults and bases do not."""
        body = parent.child_by_field_name("body")
        return body is not None and body.id == node.id

    def _open(self, node: Node, scope: Scope) -> None:
        name = text_of(node.child_by_field_name("name")) or "<lambda>"
        kind: Literal["class", "function", "lambda"] = "function"
        if node.type == "class_definition":
            kind = "class"
        elif node.type == "lambda":
            kind = "lambda"
        qualname = f"{scope.qualname}.{name}" if scope.qualname else name
        if kind == "lambda":
            qualname = scope.qualname  # a lambda has no name that anyone could use
        inner = Scope(kind, qualname, scope, node)
        self.inner[node.id] = inner
        if kind == "class":
            self.classes.setdefault(qualname, inner)
        elif kind == "function":
            self.functions[qualname] = node
        for parameter, default in parameters_of(node):
            inner.names.setdefault(parameter, []).append(Definition("parameter", default))

    def _define(self, node: Node, kind: str, scope: Scope) -> None:
        if kind == "assignment":
            value = node.child_by_field_name("right")
            if value is not None:
                self._bind(node.child_by_field_name("left"), value, scope, "assign")
        elif kind == "named_expression":
            self._bind(node.child_by_field_name("name"), node.child_by_field_name("value"), scope, "assign")
        elif kind in ("for_statement", "for_in_clause"):
            self._bind(node.child_by_field_name("left"), node.child_by_field_name("right"), scope, "loop")
        elif kind == "as_pattern":
            alias = node.child_by_field_name("alias")
            if alias is not None and alias.named_children:
                self._bind(alias.named_children[0], node.named_children[0], scope, "with")
        elif kind in ("import_statement", "import_from_statement"):
            self._import(node, scope)
        elif kind == "keyword_argument" and text_of(node.child_by_field_name("name")) == "env":
            function = scope.function()
            if function is not None:
                self.handed_over.add((function.node.id, text_of(node.child_by_field_name("value"))))

    def _bind(
        self, target: Node | None, value: Node | None, scope: Scope, form: Literal["assign", "loop", "with"]
    ) -> None:
        stack: list[tuple[Node | None, tuple[int, ...]]] = [(target, ())]
        while stack:
            node, path = stack.pop()
            if node is None:
                continue
            if node.type == "identifier":
                scope.names.setdefault(text_of(node), []).append(Definition(form, value, path))
            elif node.type in ("pattern_list", "tuple_pattern", "list_pattern"):
                stack.extend((child, (*path, place)) for place, child in enumerate(node.named_children))
            elif node.type == "attribute" and form == "assign" and not path and value is not None:
                owner = text_of(node.child_by_field_name("object"))
                klass = scope.klass()
                if owner in ("self", "cls") and klass is not None:
                    name = text_of(node.child_by_field_name("attribute"))
                    self.attributes.setdefault((klass.qualname, name), []).append(value)

    def _import(self, node: Node, scope: Scope) -> None:
        if node.type == "import_statement":
            for child in node.children_by_field_name("name"):
                name, alias = _aliased(child)
                bound = alias or name.split(".")[0]
                self._bind_import(bound, (name if alias else bound, ""), scope)
            return
        module = self.absolute(text_of(node.child_by_field_name("module_name")))
        if any(child.type == "wildcard_import" for child in node.named_children):
            self.stars.append(module)
        for child in node.children_by_field_name("name"):
            name, alias = _aliased(child)
            self._bind_import(alias or name, (module, name), scope)

    def _bind_import(self, name: str, source: tuple[str, str], scope: Scope) -> None:
        if scope.kind == "module" or name not in self.imports:
            self.imports[name] = source

    def absolute(self, module: str) -> str:
        """Absolute name of a module as written in an import (`.x`, `..y`, `z`)."""
        stripped = module.lstrip(".")
        level = len(module) - len(stripped)
        if not level:
            return module
        parts = self.module.split(".")
        keep = len(parts) - level + (1 if self.is_package else 0)
        return ".".join([*parts[: max(keep, 0)], *([stripped] if stripped else [])])

    # what expressions can be

    def value(self, node: Node | None, bindings: Bindings | None = None) -> Value:
        """Value of an expression, with the parameters in `bindings` taken as given."""
        if self._depth > MAX_LOOKUPS:
            return UNKNOWN
        self._depth += 1
        try:
            return evaluate(node, lambda inner: self._lookup(inner, bindings or {}))
        finally:
            self._depth -= 1

    def _lookup(self, node: Node, bindings: Bindings) -> Value:
        if node.type == "identifier":
            return self._name(text_of(node), self.scope(node), bindings)
        if node.type == "attribute":
            return self._attribute(node, bindings)
        return UNKNOWN

    def _name(self, name: str, start: Scope, bindings: Bindings) -> Value:
        for scope in start.outwards():
            if scope.kind == "class" and scope is not start:
                continue
            definitions = scope.names.get(name)
            if not definitions:
                continue
            if name in bindings and definitions[0].form == "parameter":
                return bindings[name]
            key = (scope.node.id, name)
            if key in self._busy:
                return UNKNOWN
            self._busy.add(key)
            try:
                found = [self.defined(d, bindings) for d in definitions[:MAX_DEFINITIONS]]
            finally:
                self._busy.discard(key)
            return choice(found, together=any(isinstance(f, Choice) and f.together for f in found))
        source = self.imports.get(name)
        if source is not None and self.index is not None:
            return self.index.constant(*source) if source[1] else UNKNOWN
        return self._starred(name)

    def _starred(self, name: str) -> Value:
        for module in self.stars if self.index is not None else []:
            found = self.index.constant(module, name) if self.index is not None else UNKNOWN
            if found is not UNKNOWN:
                return found
        return UNKNOWN

    def defined(self, definition: Definition, bindings: Bindings) -> Value:
        """What one binding of a name gives it."""
        value = self.value(definition.node, bindings)
        if definition.form == "loop":
            options = [_picked(item, definition.path) for item in items(value)]
            return choice(options, together=True)
        return _picked(value, definition.path)

    def _attribute(self, node: Node, bindings: Bindings) -> Value:
        name = dotted(node)
        owner, _, attribute = name.rpartition(".")
        if owner in ("self", "cls", "self.__class__"):
            klass = self.scope(node).klass()
            return UNKNOWN if klass is None else self._member(klass.qualname, attribute, bindings)
        if "(" in name or not owner:
            return UNKNOWN
        head, _, rest = name.partition(".")
        klass_scope = self.class_scope(owner)
        if klass_scope is not None:
            return self._member(owner, attribute, bindings)
        source = self.imports.get(head)
        if source is None or self.index is None:
            return UNKNOWN
        module, member = source
        return self.index.constant(module, f"{member}.{rest}" if member else rest)

    def _member(self, qualname: str, attribute: str, bindings: Bindings) -> Value:
        scope = self.class_scope(qualname)
        definitions = scope.names.get(attribute, []) if scope is not None else []
        assigned = self.attributes.get((qualname, attribute), [])
        key = (-1, f"{qualname}.{attribute}")
        if (definitions or assigned) and key not in self._busy:
            self._busy.add(key)
            try:
                if definitions:
                    return choice([self.defined(d, bindings) for d in definitions[:MAX_DEFINITIONS]])
                return choice([self.value(node, bindings) for node in assigned[:MAX_DEFINITIONS]])
            finally:
                self._busy.discard(key)
        if self.index is not None:
            for module, base in self.index.bases(self.module, qualname):
                found = self.index.constant(module, f"{base}.{attribute}")
                if found is not UNKNOWN:
                    return found
        return UNKNOWN

    def class_scope(self, qualname: str) -> Scope | None:
        """Scope of a class of this file."""
        return self.classes.get(qualname)

    def definitions(self, name: str, start: Scope) -> list[Definition]:
        """Bindings of a name in the nearest scope that has any."""
        for scope in start.outwards():
            if scope.kind == "class" and scope is not start:
                continue
            if name in scope.names:
                return scope.names[name]
        return []


def _start(node: Node) -> int:
    return node.start_byte


def _picked(value: Value, path: tuple[int, ...]) -> Value:
    for place in path:
        if isinstance(value, Choice):
            return choice([_picked(option, path) for option in value.options], together=value.together)
        if not isinstance(value, (list, tuple)) or place >= len(value):
            return UNKNOWN
        value = value[place]
    return value


def _aliased(node: Node) -> tuple[str, str]:
    if node.type == "aliased_import":
        return text_of(node.child_by_field_name("name")), text_of(node.child_by_field_name("alias"))
    return text_of(node), ""


def parameters_of(node: Node) -> Iterator[tuple[str, Node | None]]:
    """Names of the parameters of a `def` or `lambda`, each with its default."""
    holder = node.child_by_field_name("parameters")
    for child in holder.named_children if holder is not None else []:
        if child.type == "identifier":
            yield text_of(child), None
        elif child.type in ("default_parameter", "typed_default_parameter"):
            yield text_of(child.child_by_field_name("name")), child.child_by_field_name("value")
        elif child.type in ("typed_parameter", "list_splat_pattern", "dictionary_splat_pattern"):
            inner = child.named_children[0] if child.named_children else None
            while inner is not None and inner.type != "identifier" and inner.named_children:
                inner = inner.named_children[0]
            if inner is not None:
                yield text_of(inner), None
