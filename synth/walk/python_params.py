"""Parameters of public Python callables that size pools, memory, batches, or choose backends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.index import Entity, PackageIndex
from synth.walk.python_env import FileWalk
from synth.walk.python_environ import arguments_of
from synth.walk.python_facts import Class, Function, Parameter
from synth.walk.python_scope import PyFile, dotted
from synth.walk.python_values import Choice, strings
from synth.walk.syntax import Cited, brief, descend, lines_of, text_of
from synth.walk.words import about_pools, control_parameter, counting_parameter

_MAX_PARAMETERS = 60
_FORWARDS = 12  # functions that a mapping of options is followed into
# a way to set every option of a package
_GENERAL = re.compile(
    r"((config|options?|settings)\.(set|update|configure)|"
    r"\.(set_(config|options?|flags?|defaults?)|(config|options?)_context))$"
)
_SETTER = re.compile(r"^set_|^set$")


@dataclass
class PublicCallable:
    """A public callable with what it takes."""

    name: str
    entity: Entity
    node: Node
    lines: tuple[int, int]
    parameters: list[Parameter]
    decorators: list[str]
    function: Function | None
    klass: Class | None
    listed: bool = True  # false for what can be reached, but is left out of its module's `__all__`


def sets_any_option(name: str) -> bool:
    """Whether a callable of this dotted name sets the options of its package."""
    return bool(_GENERAL.search(name))


def telling(parameter: Parameter) -> bool:
    """Whether a parameter's name says that it controls resources."""
    given = parameter.default is not None
    return counting_parameter(parameter.name) or (given and control_parameter(parameter.name))


def is_property(item: PublicCallable) -> bool:
    """Whether a method is read like an attribute."""
    return any(d in ("property", "cached_property", "functools.cached_property") for d in item.decorators)


def see(  # noqa: PLR0913 - mirrors the record
    walk: FileWalk,
    kind: Kind,
    item: PublicCallable,
    *,
    name: str = "",
    lines: tuple[int, int] | None = None,
    value: str | None = None,
    value_type: str | None = None,
    detail: str = "",
) -> Observation:
    """An observation at a public callable's head, or at `lines`."""
    return walk.cited.observe(
        kind,
        name or item.name,
        lines or item.lines,
        function=item.entity[1],
        when=When.CALL,
        value=value,
        value_type=value_type,
        detail=detail,
    )


def walk_parameters(walk: FileWalk, item: PublicCallable) -> Iterator[Observation]:
    """Observations of a public callable's parameters that control resources."""
    if len(item.parameters) > _MAX_PARAMETERS or is_property(item):
        return
    sized = {**_related(item), **_sizing_names(item)}
    for parameter in item.parameters:
        if parameter.star or parameter.name.startswith("_"):
            continue
        how = sized.get(parameter.name, "")
        if not telling(parameter) and not how:
            continue
        if item.klass is None and _SETTER.match(item.name.rpartition(".")[2]) and len(item.parameters) == 1:
            continue  # the setter itself says it
        resolved = _resolved_default(walk, item, parameter)
        detail = "; ".join(part for part in (how, resolved) if part)
        yield see(
            walk,
            Kind.PARAM,
            item,
            name=f"{item.name}({parameter.name}=)",
            lines=(parameter.line, parameter.line),
            value=parameter.default,
            value_type=_type_of(parameter.default),
            detail=detail,
        )
    yield from _keyword_options(walk, item)


def _related(item: PublicCallable) -> dict[str, str]:
    """Parameters that are options by what they stand with, whatever their names.

    Those of a callable that sets the package's options, of one whose name says that it limits threads or workers, and
    those that have their default from the same table as a number of workers.
    """
    optional = [p for p in item.parameters if p.default is not None and not p.star]
    if sets_any_option(item.name):
        return {p.name: "weak: option of the package's configuration" for p in optional}
    last = item.name.rpartition(".")[2]
    if "limit" in last and about_pools(item.name):
        return {p.name: f"option of {last}" for p in optional}
    tables = {_table(p) for p in optional if counting_parameter(p.name)} - {""}
    return {p.name: "default from the same table as a number of workers" for p in optional if _table(p) in tables}


def _table(parameter: Parameter) -> str:
    """`T` of a default `T["name"]`."""
    match = re.fullmatch(r"([A-Za-z_][\w.]*)\[.*\]", parameter.default or "")
    return match[1] if match else ""


def _type_of(default: str | None) -> str | None:
    if default is None:
        return None
    if default in ("True", "False"):
        return "bool"
    if re.fullmatch(r"-?\d[\d_]*", default):
        return "int"
    if re.fullmatch(r"-?\d*\.\d+(e-?\d+)?|-?\d+e-?\d+", default):
        return "float"
    return "str" if default[:1] in "'\"" else None


def _body_of(item: PublicCallable) -> Node:
    """The function whose parameters these are: `__init__` for a class."""
    if item.klass is None:
        return item.node
    block = item.node.child_by_field_name("body")
    for child in block.named_children if block is not None else []:
        inner = child.child_by_field_name("definition") if child.type == "decorated_definition" else child
        if inner is not None and text_of(inner.child_by_field_name("name")) == "__init__":
            return inner
    return item.node


def _sizing_names(item: PublicCallable) -> dict[str, str]:
    """Parameters that reach the size of a pool or a limit in the callable's own body."""
    names = {parameter.name for parameter in item.parameters}
    found: dict[str, str] = {}
    for node in descend(_body_of(item)):
        if node.type != "call":
            continue
        called = dotted(node.child_by_field_name("function"))
        last = called.rpartition(".")[2]
        positional, named = arguments_of(node)
        for keyword, value in named.items():
            if counting_parameter(keyword) and text_of(value) in names:
                found.setdefault(text_of(value), f"given to {last}({keyword}=)")
        sizing = last.endswith(("Pool", "Executor")) or (last.startswith("set_") and about_pools(last))
        if sizing and positional and text_of(positional[0]) in names:
            found.setdefault(text_of(positional[0]), f"given to {last}()")
    return found


def _resolved_default(walk: FileWalk, item: PublicCallable, parameter: Parameter) -> str:
    """Literal behind a default such as `DEFAULT` or `TABLE["key"]`."""
    text = parameter.default or ""
    match = re.fullmatch(r"([A-Za-z_][\w.]*)\[['\"]?(\w+)['\"]?\]", text)
    if match:
        place = walk.index.constant_at(item.entity[0], match[1])
        entries = dict(place[0].constants[place[1]].entries) if place is not None else {}
        return f"{text} = {entries[match[2]]}" if match[2] in entries else ""
    if re.fullmatch(r"[A-Za-z_][\w.]*", text) and text not in ("None", "True", "False"):
        place = walk.index.constant_at(item.entity[0], text)
        return f"{text} = {place[0].constants[place[1]].text}" if place is not None else ""
    return ""


def _keyword_options(walk: FileWalk, item: PublicCallable) -> Iterator[Observation]:
    """Options that a callable takes through `**kwargs` and that are read by a known key, here or further down."""
    splat = next((p.name for p in item.parameters if p.star == "**"), None)
    if splat is None:
        return
    seen: set[str] = {p.name for p in item.parameters}
    for option in _options(walk.index, walk.pyfile, _body_of(item), splat, set()):
        if option.name in seen or not control_parameter(option.name):
            continue
        seen.add(option.name)
        yield (_elsewhere(walk, item, option) if option.pyfile is not walk.pyfile else _here(walk, item, option))


@dataclass(frozen=True, eq=False)
class _Option:
    name: str
    node: Node
    default: str | None
    pyfile: PyFile
    through: str


def _here(walk: FileWalk, item: PublicCallable, option: _Option) -> Observation:
    through = f", read in {option.through}()" if option.through else ""
    return see(
        walk,
        Kind.PARAM,
        item,
        name=f"{item.name}({option.name}=)",
        lines=lines_of(option.node),
        value=option.default,
        value_type=_type_of(option.default),
        detail=f"taken from **kwargs{through}",
    )


def _elsewhere(walk: FileWalk, item: PublicCallable, option: _Option) -> Observation:
    """An option that a function of another file reads: cited there."""
    facts = walk.index.modules[option.pyfile.module]
    cited = Cited(walk.index.source(facts.file), facts.file, facts.role, "python")
    return _here(FileWalk(option.pyfile, cited, walk.index), item, option)


def _options(index: PackageIndex, pyfile: PyFile, body: Node, splat: str, seen: set[Entity]) -> Iterator[_Option]:
    """Keys that a function reads from a mapping of options, through the functions that it hands the mapping to."""
    scope = pyfile.inner.get(body.id)
    through = scope.qualname if scope is not None and seen else ""
    holders = {splat}
    for node in descend(body):
        if node.type == "assignment":
            value = node.child_by_field_name("right")
            source = text_of(value)
            if source in holders or source in {f"{h}.copy()" for h in holders} | {f"dict({h})" for h in holders}:
                holders.add(text_of(node.child_by_field_name("left")))
        key, default = _option(node, holders)
        if key is not None:
            yield from _keys(pyfile, node, key, default, through)
        elif node.type == "call" and len(seen) < _FORWARDS:
            yield from _forwarded(index, pyfile, node, holders, seen)


def _keys(pyfile: PyFile, node: Node, key: Node, default: Node | None, through: str) -> Iterator[_Option]:
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
        yield _Option(name, node, text, pyfile, through)


def _forwarded(
    index: PackageIndex, pyfile: PyFile, call: Node, holders: set[str], seen: set[Entity]
) -> Iterator[_Option]:
    """A call `f(**kwargs)` or `f(kwargs)` of a function of the package."""
    holder = call.child_by_field_name("arguments")
    given = holder.named_children if holder is not None else []
    splat = any(c.type == "dictionary_splat" and text_of(c).lstrip("*") in holders for c in given)
    positional, _ = arguments_of(call)
    place = next((i for i, node in enumerate(positional) if text_of(node) in holders), None)
    if not splat and place is None:
        return
    outer = pyfile.scope(call).function()
    name = dotted(call.child_by_field_name("function"))
    entity = index.called(pyfile.module, outer.qualname if outer is not None else "", name)
    known = index.function(entity)
    if entity is None or known is None or entity in seen:
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
        yield from _options(index, other, body, target, seen)


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
