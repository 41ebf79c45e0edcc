"""Options that a callable takes as a mapping (`**kwargs`), read by a known key here or further down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.walk.index import Entity, PackageIndex
from synth.walk.python_environ import arguments_of
from synth.walk.python_scope import PyFile, dotted
from synth.walk.python_values import Choice, strings
from synth.walk.syntax import brief, descend, text_of

_FORWARDS = 12  # functions that a mapping of options is followed into
_CLASSES = 12  # classes of one table, or heirs of one class, that are looked into


@dataclass(frozen=True, eq=False)
class Option:
    """A key that is read from the mapping: where, with what default, and by which function."""

    name: str
    node: Node
    default: str | None
    pyfile: PyFile
    through: str


def options(index: PackageIndex, pyfile: PyFile, body: Node, splat: str, seen: set[Entity]) -> Iterator[Option]:
    """Keys that a function reads from a mapping of options, through the functions that it hands the mapping to."""
    scope = pyfile.inner.get(body.id)
    through = scope.qualname if scope is not None and seen else ""
    holders = {splat}
    for node in descend(body):
        if node.type == "assignment":
            value = node.child_by_field_name("right")
            source = text_of(value)
            if source in holders or source in {f"{h}.copy()" for h in holders} | {f"dict({h})" for h in holders}:
                left = text_of(node.child_by_field_name("left"))
                holders.add(left)
                if left.startswith("self.") and scope is not None and len(seen) < _FORWARDS:
                    yield from _kept(index, pyfile, scope.qualname, left, seen)
        key, default = _option(node, holders)
        if key is not None:
            yield from _keys(pyfile, node, key, default, through)
        elif node.type == "call" and len(seen) < _FORWARDS:
            yield from _forwarded(index, pyfile, node, holders, seen)


def _keys(pyfile: PyFile, node: Node, key: Node, default: Node | None, through: str) -> Iterator[Option]:
    value = pyfile.value(key)
    if isinstance(value, Choice) and not value.together:
        return
    names = strings(value)
    found = pyfile.value(default) if default is not None and default.type == "identifier" else None
    defaults = list(found.options) if isinstance(found, Choice) and len(found.options) == len(names) else []
    for place, name in enumerate(names):
        text = brief(default) if default is not None else None
        if defaults:
            text = repr(defaults[place]) if isinstance(defaults[place], (str, int, float, bool)) else text
        yield Option(name, node, text, pyfile, through)


def _forwarded(
    index: PackageIndex, pyfile: PyFile, call: Node, holders: set[str], seen: set[Entity]
) -> Iterator[Option]:
    """A call `f(**kwargs)` or `f(kwargs)` of a function of the package."""
    holder = call.child_by_field_name("arguments")
    given = holder.named_children if holder is not None else []
    splat = any(c.type == "dictionary_splat" and text_of(c).lstrip("*") in holders for c in given)
    positional, _ = arguments_of(call)
    place = next((i for i, node in enumerate(positional) if text_of(node) in holders), None)
    if not splat and place is None:
        return
    for entity in _callees(index, pyfile, call):
        yield from _inside(index, pyfile, entity, splat, place, seen)


def _callees(index: PackageIndex, pyfile: PyFile, call: Node) -> Iterator[Entity]:
    """What a call reaches; for `TABLE[key](...)` every class or function of the table."""
    outer = pyfile.scope(call).function()
    function = call.child_by_field_name("function")
    names = [dotted(function)]
    if function is not None and function.type == "subscript":
        place = index.constant_at(pyfile.module, text_of(function.child_by_field_name("value")))
        names = [text for _, text in place[0].constants[place[1]].entries][:_CLASSES] if place is not None else []
    for name in names:
        entity = index.called(pyfile.module, outer.qualname if outer is not None else "", name) if name else None
        if index.is_class(entity) and entity is not None:
            entity = index.resolve(entity[0], f"{entity[1]}.__init__")
        if entity is not None:
            yield entity


def _kept(index: PackageIndex, pyfile: PyFile, maker: str, attribute: str, seen: set[Entity]) -> Iterator[Option]:
    """Keys read from a mapping that a constructor keeps in an attribute, by the class's methods and its heirs'."""
    klass = maker.rpartition(".")[0]
    home = (pyfile.module, klass, attribute)
    if (marker := (pyfile.module, f"{klass}:{attribute}")) in seen or not klass:
        return
    seen.add(marker)
    holders = {attribute}
    for module, qualname in _family(index, (home[0], home[1])):
        other = pyfile if module == pyfile.module else index.opened(module)
        scope = other.classes.get(qualname) if other is not None else None
        if other is None or scope is None:
            continue
        for node in descend(scope.node):
            key, default = _option(node, holders)
            if key is not None:
                yield from _keys(other, node, key, default, qualname)


def _family(index: PackageIndex, entity: Entity) -> list[Entity]:
    """A class and the classes of the release that inherit from it."""
    known = index.memo.get("heirs")
    heirs: dict[Entity, list[Entity]] = known if isinstance(known, dict) else {}
    if not isinstance(known, dict):
        for facts in index.modules.values():
            for name in facts.classes:
                for base in index.bases(facts.module, name):
                    heirs.setdefault(base, []).append((facts.module, name))
        index.memo["heirs"] = heirs
    return [entity, *heirs.get(entity, [])[:_CLASSES]]


def _inside(
    index: PackageIndex, pyfile: PyFile, entity: Entity, splat: bool, place: int | None, seen: set[Entity]
) -> Iterator[Option]:
    known = index.function(entity)
    if known is None or entity in seen:
        return
    seen.add(entity)
    target = (
        next((p.name for p in known.parameters if p.star == "**"), None)
        if splat
        else known.parameters[place].name
        if place is not None and place < len(known.parameters)
        else None
    )
    other = pyfile if entity[0] == pyfile.module else index.opened(entity[0])
    body = other.functions.get(entity[1]) if other is not None else None
    if target and other is not None and body is not None:
        yield from options(index, other, body, target, seen)


def _option(node: Node, holders: set[str]) -> tuple[Node | None, Node | None]:
    """(key, default) if an expression reads one option."""
    if node.type == "call":
        owner, _, method = dotted(node.child_by_field_name("function")).rpartition(".")
        if owner in holders and method in ("pop", "get", "setdefault"):
            positional, _ = arguments_of(node)
            return (positional[0] if positional else None), (positional[1] if len(positional) > 1 else None)
    elif node.type == "subscript" and text_of(node.child_by_field_name("value")) in holders:
        return node.child_by_field_name("subscript"), None
    elif node.type == "comparison_operator" and len(node.named_children) == 2:
        tests = any(c.type in ("in", "not in") for c in node.children)
        if tests and text_of(node.named_children[1]) in holders:
            return node.named_children[0], None
    return None, None
