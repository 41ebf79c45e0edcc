"""Where a Python file touches the process environment, before names are resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tree_sitter import Node

from synth.walk.python_scope import PyFile, Scope, dotted
from synth.walk.syntax import text_of

_ENVIRON = frozenset({"environ", "environb"})
_GETTERS = frozenset({"getenv", "getenvb"})
_ENV_NAME = re.compile(r"(^|[_.])(env|environ|environment|env_?vars|environment_variables)$", re.IGNORECASE)
_ENVIRON_PARAMETER = re.compile(r"^(os_?)?_?environ(ment)?$")
_DEPTH = 6

Where = Literal["live", "copy"]
Form = Literal["get", "subscript", "in", "setdefault", "pop", "set", "update", "del", "each"]


@dataclass(frozen=True, eq=False)
class Access:
    """One use of an environment mapping.

    Attributes:
        node: the whole expression, `key` the variable's name in it.
        default: second argument of `get`, value of a write, or the mapping of an `update`.
        where: the process's own environment or a copy of it (or a mapping made for a child).
    """

    form: Form
    node: Node
    key: Node | None
    default: Node | None
    where: Where


def environ_of(pyfile: PyFile, node: Node | None, depth: int = 0) -> Where | None:
    """Whether an expression is the process environment or a copy of it."""
    if node is None or depth > _DEPTH:
        return None
    if node.type == "identifier":
        return _named(pyfile, node, depth)
    if node.type == "attribute":
        return _attribute(pyfile, node, depth)
    if node.type == "parenthesized_expression" and len(node.named_children) == 1:
        return environ_of(pyfile, node.named_children[0], depth + 1)
    if node.type == "dictionary":
        splats = [c.named_children[0] for c in node.named_children if c.type == "dictionary_splat" and c.named_children]
        return "copy" if any(environ_of(pyfile, inner, depth + 1) for inner in splats) else None
    if node.type in ("boolean_operator", "binary_operator", "conditional_expression"):
        found = [environ_of(pyfile, child, depth + 1) for child in node.named_children]
        hits = [where for where in found if where]
        if not hits:
            return None
        return "copy" if node.type == "binary_operator" else hits[0]
    if node.type == "call":
        return _copied(pyfile, node, depth)
    return None


def _named(pyfile: PyFile, node: Node, depth: int) -> Where | None:
    name = text_of(node)
    definitions = pyfile.definitions(name, pyfile.scope(node))
    for definition in definitions[:_DEPTH]:
        if definition.form in ("assign", "parameter") and not definition.path:
            where = environ_of(pyfile, definition.node, depth + 1)
            if where:
                return where
    if definitions and all(d.form == "parameter" and d.node is None for d in definitions):
        return "live" if _ENVIRON_PARAMETER.match(name) else None
    if not definitions:
        module, attribute = pyfile.imports.get(name, ("", ""))
        if module == "os" and attribute in _ENVIRON:
            return "live"
    return None


def _attribute(pyfile: PyFile, node: Node, depth: int) -> Where | None:
    name = text_of(node.child_by_field_name("attribute"))
    owner = dotted(node.child_by_field_name("object"))
    if name in _ENVIRON:
        return "live" if _is_os(pyfile, owner) else None
    klass = pyfile.scope(node).klass()
    if owner in ("self", "cls") and klass is not None:
        for value in pyfile.attributes.get((klass.qualname, name), [])[:_DEPTH]:
            where = environ_of(pyfile, value, depth + 1)
            if where:
                return where
    return None


def _is_os(pyfile: PyFile, name: str) -> bool:
    module, attribute = pyfile.imports.get(name, ("", ""))
    return (module == "os" and not attribute) or (name == "os" and not module)


def _copied(pyfile: PyFile, node: Node, depth: int) -> Where | None:
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    first = next((c for c in arguments.named_children if c.type != "comment"), None) if arguments is not None else None
    name = dotted(function)
    if function is not None and function.type == "attribute" and name.endswith(".copy"):
        return "copy" if environ_of(pyfile, function.child_by_field_name("object"), depth + 1) else None
    if name in ("dict", "copy", "copy.copy", "deepcopy", "copy.deepcopy", "OrderedDict") and first is not None:
        return "copy" if environ_of(pyfile, first, depth + 1) else None
    return None


def is_child_mapping(pyfile: PyFile, node: Node | None) -> bool:
    """Whether a mapping is, by its name or its use, the environment of a child."""
    if node is None or node.type not in ("identifier", "attribute"):
        return False
    if environ_of(pyfile, node) == "live":
        return False
    return bool(_ENV_NAME.search(dotted(node))) or _handed_over(pyfile, node)


def _handed_over(pyfile: PyFile, node: Node) -> bool:
    scope = pyfile.scope(node).function()
    return scope is not None and (scope.node.id, text_of(node)) in pyfile.handed_over


def accesses(pyfile: PyFile) -> Iterator[Access]:
    """Every use of an environment mapping in a file, in source order."""
    for node in pyfile.tree.nodes:
        if node.type == "call":
            yield from _calls(pyfile, node)
        elif node.type == "subscript":
            yield from _subscripts(pyfile, node)
        elif node.type == "comparison_operator":
            yield from _membership(pyfile, node)
        elif node.type in ("for_statement", "for_in_clause"):
            yield from _loops(pyfile, node)
        elif node.type == "dictionary":
            yield from _displays(pyfile, node)


def arguments_of(call: Node) -> tuple[list[Node], dict[str, Node]]:
    """Positional and keyword arguments of a call."""
    holder = call.child_by_field_name("arguments")
    positional: list[Node] = []
    named: dict[str, Node] = {}
    if holder is None:
        return positional, named
    if holder.type == "generator_expression":
        return [holder], named
    for child in holder.named_children:
        if child.type == "keyword_argument":
            value = child.child_by_field_name("value")
            if value is not None:
                named[text_of(child.child_by_field_name("name"))] = value
        elif child.type not in ("comment", "dictionary_splat", "list_splat"):
            positional.append(child)
    return positional, named


_METHODS: dict[str, Form] = {
    "get": "get",
    "__getitem__": "get",
    "setdefault": "setdefault",
    "pop": "pop",
    "update": "update",
    "__contains__": "in",
}


def _calls(pyfile: PyFile, node: Node) -> Iterator[Access]:
    function = node.child_by_field_name("function")
    if function is None:
        return
    getter = _getter(pyfile, function)
    positional, named = arguments_of(node)
    key = positional[0] if positional else named.get("key")
    default = positional[1] if len(positional) > 1 else named.get("default", named.get("value"))
    if getter:
        if key is not None:
            yield Access("get", node, key, default, "live")
        return
    if function.type != "attribute":
        return
    method = text_of(function.child_by_field_name("attribute"))
    owner = function.child_by_field_name("object")
    if method in ("putenv", "unsetenv") and _is_os(pyfile, dotted(owner)) and key is not None:
        yield Access("set" if method == "putenv" else "del", node, key, default, "live")
        return
    form = _METHODS.get(method)
    if form is None:
        return
    where = environ_of(pyfile, owner)
    if where is None and form in ("setdefault", "update") and is_child_mapping(pyfile, owner):
        where = "copy"
    if where is None:
        return
    if form == "update":
        yield from _updates(node, positional, named, where)
    elif key is not None:
        yield Access(form, node, key, default, where)


def _updates(node: Node, positional: list[Node], named: dict[str, Node], where: Where) -> Iterator[Access]:
    for mapping in positional[:1]:
        if mapping.type == "dictionary":
            for pair in mapping.named_children:
                if pair.type == "pair":
                    key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
                    yield Access("set", pair, key, value, where)
        else:
            yield Access("update", node, mapping, mapping, where)
    holder = node.child_by_field_name("arguments")
    for child in holder.named_children if holder is not None and named else []:
        if child.type == "keyword_argument":
            yield Access("set", child, child.child_by_field_name("name"), child.child_by_field_name("value"), where)


def _getter(pyfile: PyFile, function: Node, depth: int = 0) -> bool:
    """Whether a callable is `os.getenv` or an alias of it or of `os.environ.get`."""
    name = dotted(function)
    head, _, last = name.rpartition(".")
    if last in _GETTERS and head:
        return _is_os(pyfile, head)
    if function.type != "identifier":
        return False
    module, attribute = pyfile.imports.get(name, ("", ""))
    if module == "os" and attribute in _GETTERS:
        return True
    for definition in pyfile.definitions(name, pyfile.scope(function))[:_DEPTH] if depth < 3 else []:
        value = definition.node
        if value is None or definition.form != "assign" or definition.path:
            continue
        if value.type == "attribute" and text_of(value.child_by_field_name("attribute")) == "get":
            return environ_of(pyfile, value.child_by_field_name("object")) is not None
        if value.type in ("identifier", "attribute") and _getter(pyfile, value, depth + 1):
            return True
    return False


def _subscripts(pyfile: PyFile, node: Node) -> Iterator[Access]:
    owner = node.child_by_field_name("value")
    key = node.child_by_field_name("subscript")
    parent = pyfile.tree.parent(node)
    if key is None or parent is None:
        return
    written = parent.type in ("assignment", "augmented_assignment") and _same(parent, "left", node)
    where = environ_of(pyfile, owner)
    if written:
        where = where or ("copy" if is_child_mapping(pyfile, owner) else None)
        if where:
            yield Access("set", node, key, parent.child_by_field_name("right"), where)
    elif where and parent.type == "delete_statement":
        yield Access("del", node, key, None, where)
    elif where:
        yield Access("subscript", node, key, None, where)


def _same(parent: Node, name: str, node: Node) -> bool:
    child = parent.child_by_field_name(name)
    return child is not None and child.id == node.id


def _membership(pyfile: PyFile, node: Node) -> Iterator[Access]:
    parts = node.named_children
    if len(parts) != 2 or not any(child.type in ("in", "not in") for child in node.children):
        return
    owner = parts[1]
    if owner.type == "call" and dotted(owner.child_by_field_name("function")).endswith(".keys"):
        function = owner.child_by_field_name("function")
        owner = (function.child_by_field_name("object") if function is not None else None) or owner
    where = environ_of(pyfile, owner)
    if where:
        yield Access("in", node, parts[0], None, where)


def _loops(pyfile: PyFile, node: Node) -> Iterator[Access]:
    """`for name, value in os.environ.items(): if name.startswith("P_")`: a family of names."""
    source = node.child_by_field_name("right")
    target = node.child_by_field_name("left")
    if source is not None and source.type == "call":
        function = source.child_by_field_name("function")
        inner = function.child_by_field_name("object") if function is not None else None
        positional, _ = arguments_of(source)
        source = inner if inner is not None else (positional[0] if positional else source)
        if source.type == "call":
            function = source.child_by_field_name("function")
            source = function.child_by_field_name("object") if function is not None else None
    if environ_of(pyfile, source) is None or target is None:
        return
    name = target.named_children[0] if target.named_children else target
    holder = pyfile.tree.parent(node) if node.type == "for_in_clause" else node
    for prefix in _prefixes(holder or node, text_of(name)):
        yield Access("each", node, prefix, None, "live")


def _prefixes(holder: Node, name: str) -> Iterator[Node]:
    stack = [holder]
    while stack:
        node = stack.pop()
        if node.type == "call":
            function = node.child_by_field_name("function")
            called = dotted(function)
            positional, _ = arguments_of(node)
            if called in (f"{name}.startswith", f"{name}.upper().startswith", f"{name}.removeprefix") and positional:
                yield positional[0]
        elif node.type == "comparison_operator" and len(node.named_children) == 2:
            left, right = node.named_children
            if left.type == "subscript" and text_of(left.child_by_field_name("value")) == name:
                yield right
        stack.extend(reversed(node.named_children))


def _displays(pyfile: PyFile, node: Node) -> Iterator[Access]:
    """A dictionary that is made to be a child's environment."""
    parent = pyfile.tree.parent(node)
    if parent is None:
        return
    splats = [c for c in node.named_children if c.type == "dictionary_splat" and c.named_children]
    copies = [c for c in splats if environ_of(pyfile, c.named_children[0])]
    named = False
    if parent.type == "keyword_argument":
        named = text_of(parent.child_by_field_name("name")) == "env"
    elif parent.type == "assignment":
        named = is_child_mapping(pyfile, parent.child_by_field_name("left"))
    if not copies and (not named or _of_readers(node)):
        return
    for pair in node.named_children:
        if pair.type == "pair":
            yield Access("set", pair, pair.child_by_field_name("key"), pair.child_by_field_name("value"), "copy")


def _of_readers(display: Node) -> bool:
    """Whether a dictionary's values are functions: a table of how variables are read, not of what they are set to."""
    values = [pair.child_by_field_name("value") for pair in display.named_children if pair.type == "pair"]
    return any(value is not None and value.type == "lambda" for value in values)


def unset_guard(pyfile: PyFile, access: Access) -> bool:
    """For a pair in a `{...}`: whether a later `**os.environ` lets the user's value win."""
    display = pyfile.tree.parent(access.node)
    if access.node.type != "pair" or display is None:
        return False
    return any(
        child.type == "dictionary_splat"
        and child.start_byte > access.node.start_byte
        and child.named_children
        and environ_of(pyfile, child.named_children[0])
        for child in display.named_children
    )


def names_in(node: Node | None) -> Iterator[Node]:
    """Identifiers and attributes of an expression that its value depends on."""
    stack = [node] if node is not None else []
    while stack:
        current = stack.pop()
        if current.type == "identifier":
            yield current
        elif current.type == "attribute":
            yield current
            inner = current.child_by_field_name("object")
            if inner is not None:
                stack.append(inner)
        elif current.type == "call":
            function = current.child_by_field_name("function")
            if function is not None and function.type == "attribute":
                inner = function.child_by_field_name("object")
                stack.extend([inner] if inner is not None else [])
            arguments = current.child_by_field_name("arguments")
            stack.extend(arguments.named_children if arguments is not None else [])
        else:
            stack.extend(current.named_children)


def parameters_used(node: Node | None, scope: Scope) -> list[str]:
    """Parameters of `scope` that an expression is made of, through local names."""
    found: list[str] = []
    queue = list(names_in(node))
    seen: set[str] = set()
    while queue:
        name = text_of(queue.pop(0))
        if name in seen:
            continue
        seen.add(name)
        for definition in scope.names.get(name, []):
            if definition.form == "parameter":
                if name not in found:
                    found.append(name)
            elif definition.form == "assign" and definition.node is not None and len(seen) < 20:
                queue.extend(names_in(definition.node))
    return [name for name in found if name not in ("self", "cls")]
