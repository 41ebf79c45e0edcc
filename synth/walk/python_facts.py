"""What one Python file contributes to the picture of its package: definitions, calls, exports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from synth.records import Role
from synth.walk.python_scope import PyFile, Scope, dotted
from synth.walk.python_values import UNKNOWN, Choice, Value, strings
from synth.walk.syntax import VALUE_LIMIT, brief, descend, lines_of, text_of

_CACHES = re.compile(r"(^|\.)(lru_cache|cache|cached_property|cached|memoize|functools\.cache)\b")
_LARGE = 100_000  # bytes of a function that is not searched for lazy initialisers
_MAIN = re.compile(r"""__name__\s*==\s*['"]__main__|TYPE_CHECKING""")


@dataclass(frozen=True)
class Parameter:
    """One parameter as written: `star` is `""`, `*` or `**`."""

    name: str
    default: str | None
    star: str
    line: int
    keyword_only: bool = False

    @property
    def required(self) -> bool:
        """Whether a caller must give it."""
        return self.default is None and not self.star


@dataclass(frozen=True)
class Constant:
    """A named constant of a module or class; `entries` are the source texts of a dictionary's values."""

    value: Value
    text: str
    lines: tuple[int, int]
    entries: tuple[tuple[str, str], ...] = ()


@dataclass
class Function:
    """One `def`.

    Attributes:
        owner: qualified name of the `def` or class around it.
        guarded: its body, or a part of it, runs once: `cached` by a decorator, or in the byte `spans` that a test of
            a global variable guards.
        effects: it assigns to something that outlives it, other than a cache.
    """

    qualname: str
    owner: str
    in_class: bool
    parameters: list[Parameter]
    decorators: list[str]
    lines: tuple[int, int]
    calls: set[str] = field(default_factory=set)
    guarded: bool = False
    cached: bool = False
    spans: list[tuple[int, int]] = field(default_factory=list)
    effects: bool = False
    nested: bool = False


@dataclass
class Class:
    """One `class` statement."""

    qualname: str
    bases: list[str]
    decorators: list[str]
    lines: tuple[int, int]
    fields: list[Parameter] = field(default_factory=list)


@dataclass
class Facts:
    """What the index keeps of a file after its tree is gone."""

    file: str
    module: str
    is_package: bool
    role: Role
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    exports: list[str] | None = None
    lazy: dict[str, tuple[str, str]] = field(default_factory=dict)
    calls: set[str] = field(default_factory=set)
    instances: dict[str, str] = field(default_factory=dict)


def signature_of(node: Node) -> list[Parameter]:
    """Parameters of a `def`, `self` and `cls` left out."""
    found: list[Parameter] = []
    keyword_only = False
    holder = node.child_by_field_name("parameters")
    for child in holder.named_children if holder is not None else []:
        line = child.start_point[0] + 1
        if child.type == "keyword_separator":
            keyword_only = True
            continue
        parameter = _parameter(child, line, keyword_only=keyword_only)
        if parameter is None:
            continue
        keyword_only = keyword_only or parameter.star == "*"
        if found or parameter.name not in ("self", "cls") or parameter.star:
            found.append(parameter)
        else:
            continue
    return found


def _parameter(child: Node, line: int, *, keyword_only: bool) -> Parameter | None:
    if child.type == "identifier":
        return Parameter(text_of(child), None, "", line, keyword_only)
    if child.type in ("default_parameter", "typed_default_parameter"):
        default = brief(child.child_by_field_name("value"))
        return Parameter(text_of(child.child_by_field_name("name")), default, "", line, keyword_only)
    if child.type in ("list_splat_pattern", "dictionary_splat_pattern"):
        star = "*" if child.type == "list_splat_pattern" else "**"
        return Parameter(text_of(child).lstrip("*"), None, star, line)
    if child.type == "typed_parameter" and child.named_children:
        inner = child.named_children[0]
        if inner.type in ("list_splat_pattern", "dictionary_splat_pattern"):
            return _parameter(inner, line, keyword_only=keyword_only)
        return Parameter(text_of(inner), None, "", line, keyword_only)
    return None


def heading(node: Node) -> tuple[int, int]:
    """Lines of a definition's head: from `def` or `class` to the colon."""
    body = node.child_by_field_name("body")
    start = node.start_point[0] + 1
    if body is None:
        return start, start
    first = body.start_point[0] + 1
    children = node.children
    colon = next((c for c in reversed(children) if c.type == ":"), None)
    return start, max(start, colon.start_point[0] + 1 if colon is not None else first - 1)


def gather(pyfile: PyFile, file: str, role: Role) -> Facts:
    """Read the facts of one file from its tree."""
    facts = Facts(file, pyfile.module, pyfile.is_package, role)
    facts.imports, facts.stars = pyfile.imports, pyfile.stars
    skipped = _main_blocks(pyfile)
    for node in pyfile.tree.nodes:
        if node.type == "function_definition":
            _function(pyfile, node, facts)
        elif node.type == "class_definition":
            _class(pyfile, node, facts)
        elif node.type == "call":
            _call(pyfile, node, facts, skipped)
        elif node.type == "decorator":
            _decorator(pyfile, node, facts)
        elif node.type in ("global_statement", "nonlocal_statement"):
            _global(pyfile, node, facts)
        elif node.type in ("assignment", "augmented_assignment"):
            _assignment(pyfile, node, facts)
    _constants(pyfile, facts)
    facts.exports = _exports(pyfile)
    return facts


def _main_blocks(pyfile: PyFile) -> list[tuple[int, int]]:
    return [
        (node.start_byte, node.end_byte)
        for node in pyfile.root.named_children
        if node.type == "if_statement" and _MAIN.search(text_of(node.child_by_field_name("condition")))
    ]


def _decorators(pyfile: PyFile, node: Node) -> list[str]:
    parent = pyfile.tree.parent(node)
    if parent is None or parent.type != "decorated_definition":
        return []
    return [text_of(child)[1:].strip()[:VALUE_LIMIT] for child in parent.named_children if child.type == "decorator"]


def _function(pyfile: PyFile, node: Node, facts: Facts) -> None:
    inner = pyfile.inner[node.id]
    outer = inner.outer
    parent = node.child_by_field_name("name")
    if parent is None or outer is None:
        return
    decorators = _decorators(pyfile, node)
    function = Function(
        qualname=inner.qualname,
        owner=outer.qualname,
        in_class=outer.kind == "class",
        parameters=signature_of(node),
        decorators=decorators,
        lines=heading(node),
        guarded=any(_CACHES.search(decorator) for decorator in decorators),
        cached=any(_CACHES.search(decorator) for decorator in decorators),
        nested=outer.function() is not None or outer.in_lambda,
    )
    known = facts.functions.get(inner.qualname)
    if known is None or any("overload" in decorator for decorator in known.decorators):
        facts.functions[inner.qualname] = function


def _class(pyfile: PyFile, node: Node, facts: Facts) -> None:
    inner = pyfile.inner[node.id]
    bases = node.child_by_field_name("superclasses")
    known = Class(
        qualname=inner.qualname,
        bases=[dotted(base) for base in bases.named_children if dotted(base)] if bases is not None else [],
        decorators=_decorators(pyfile, node),
        lines=heading(node),
    )
    body = node.child_by_field_name("body")
    for statement in body.named_children if body is not None else []:
        field_node = statement.named_children[0] if statement.named_children else None
        if field_node is not None and field_node.type == "assignment" and field_node.child_by_field_name("type"):
            name = field_node.child_by_field_name("left")
            value = field_node.child_by_field_name("right")
            line = field_node.start_point[0] + 1
            default = brief(value) if value is not None else None
            known.fields.append(Parameter(text_of(name), default, "", line))
    facts.classes.setdefault(inner.qualname, known)


def _call(pyfile: PyFile, node: Node, facts: Facts, skipped: list[tuple[int, int]]) -> None:
    name = dotted(node.child_by_field_name("function"))
    if not name:
        return
    scope = pyfile.scope(node)
    function = scope.function()
    if function is not None:
        known = facts.functions.get(function.qualname)
        if known is not None:
            known.calls.add(name)
        return
    later = scope.in_lambda
    if not later and not any(start <= node.start_byte < end for start, end in skipped):
        facts.calls.add(name)


def _decorator(pyfile: PyFile, node: Node, facts: Facts) -> None:
    inner = node.named_children[0] if node.named_children else None
    if inner is not None and inner.type != "call" and pyfile.scope(node).function() is None and dotted(inner):
        facts.calls.add(dotted(inner))


def _global(pyfile: PyFile, node: Node, facts: Facts) -> None:
    """A function that assigns to a global it tests first is a lazy initialiser."""
    scope = pyfile.scope(node).function()
    known = facts.functions.get(scope.qualname) if scope is not None else None
    if scope is None or known is None:
        return
    if scope.node.end_byte - scope.node.start_byte > _LARGE:
        return
    body = text_of(scope.node)
    for child in node.named_children:
        name = re.escape(text_of(child))
        if not re.search(rf"^\s*{name}\s*(:[^=\n]+)?=[^=]", body, re.MULTILINE):
            continue
        known.effects = True
        tested = rf"\b(if|while)\s+(not\s+)?{name}\b(\s+is(\s+not)?\s+None|\s*==|\s*:|\s+and\b|\s+or\b|\.)"
        if re.search(tested, body):
            known.guarded = True
            known.effects = False
            known.spans.extend(_guarded_spans(scope.node, text_of(child)))


def _guarded_spans(function: Node, name: str) -> Iterator[tuple[int, int]]:
    """Bytes of a function that only run while a global is not set yet."""
    quoted = re.escape(name)
    for node in descend(function):
        if node.type != "if_statement":
            continue
        condition = text_of(node.child_by_field_name("condition"))
        block = node.child_by_field_name("consequence")
        if block is None or not re.search(rf"\b{quoted}\b", condition):
            continue
        if re.search(rf"not\s+{quoted}\b|\b{quoted}\s+is\s+None|\b{quoted}\s*==", condition):
            yield block.start_byte, block.end_byte
        elif block.named_children and block.named_children[-1].type == "return_statement":
            yield node.end_byte, function.end_byte


def _assignment(pyfile: PyFile, node: Node, facts: Facts) -> None:
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    scope = pyfile.scope(node)
    function = scope.function()
    if left is None:
        return
    if function is None:
        if left.type == "identifier" and right is not None and right.type == "call" and scope.kind == "module":
            facts.instances.setdefault(text_of(left), dotted(right.child_by_field_name("function")))
        return
    if left.type in ("attribute", "subscript"):
        known = facts.functions.get(function.qualname)
        target = dotted(left) if left.type == "attribute" else dotted(left.child_by_field_name("value"))
        if known is not None and not _is_cache(target):
            local = target.partition(".")[0]
            known.effects = known.effects or local not in function.names or local in ("self", "cls")


def _is_cache(name: str) -> bool:
    return bool(re.search(r"cache|memo|_instance|singleton", name, re.IGNORECASE))


def _constants(pyfile: PyFile, facts: Facts) -> None:
    scopes: list[Scope] = [pyfile.top, *(s for s in pyfile.inner.values() if s.kind == "class")]
    for scope in scopes:
        for name, definitions in scope.names.items():
            if not 0 < len(definitions) <= 4:
                continue
            definition = definitions[0]
            value = pyfile.defined(definition, {}) if len(definitions) == 1 else _several(pyfile, scope, name)
            if definition.node is None or definition.form != "assign":
                continue
            key = f"{scope.qualname}.{name}" if scope.qualname else name
            holder = pyfile.tree.parent(definition.node) or definition.node
            facts.constants.setdefault(
                key, Constant(value, brief(definition.node), lines_of(holder), tuple(_entries(pyfile, definition.node)))
            )


def _entries(pyfile: PyFile, node: Node) -> Iterator[tuple[str, str]]:
    for pair in node.named_children[:200] if node.type == "dictionary" else []:
        key = pyfile.value(pair.child_by_field_name("key")) if pair.type == "pair" else None
        if isinstance(key, str):
            yield key, brief(pair.child_by_field_name("value"))


def _several(pyfile: PyFile, scope: Scope, name: str) -> Value:
    found = [pyfile.defined(definition, {}) for definition in scope.names[name]]
    known = [value for value in found if value is not UNKNOWN]
    return Choice(tuple(known)) if len(known) > 1 else (known[0] if known else UNKNOWN)


def _exports(pyfile: PyFile) -> list[str] | None:
    """`__all__`, with what is added to it later."""
    names: list[str] = []
    seen = False
    for node in pyfile.root.named_children:
        inner = node.named_children[0] if node.type == "expression_statement" and node.named_children else None
        if inner is None or inner.type not in ("assignment", "augmented_assignment"):
            continue
        if text_of(inner.child_by_field_name("left")) != "__all__":
            continue
        seen = True
        value = pyfile.value(inner.child_by_field_name("right"))
        if isinstance(value, (list, tuple)):
            names.extend(item for item in value if isinstance(item, str))
        else:
            names.extend(strings(value))
    return names if seen and names else None
