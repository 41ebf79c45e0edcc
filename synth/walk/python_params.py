"""Parameters of public Python callables that size pools, memory, batches, or choose backends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.index import RUNS, Entity, PackageIndex
from synth.walk.python_docparams import docstring_of, documented_parameters
from synth.walk.python_env import FileWalk
from synth.walk.python_environ import arguments_of
from synth.walk.python_facts import Class, Function, Parameter
from synth.walk.python_options import Option, options
from synth.walk.python_scope import dotted
from synth.walk.syntax import Cited, descend, lines_of, text_of
from synth.walk.words import about_pools, control_parameter, counting_parameter

_MAX_PARAMETERS = 400
# a way to set every option of a package
_GENERAL = re.compile(
    r"((config|options?|settings)\.(set|update|configure)|"
    r"\.(set_(config|options?|flags?|defaults?)|(config|options?)_context))$"
)
_OPTIONS_CLASS = re.compile(r"(Options?|Flags|Settings)$")
_TABLE_OF_OPTIONS = re.compile(r"^_?(\w+_)?(options?|config|settings|defaults?)$", re.IGNORECASE)
_DESCRIPTOR = re.compile(r"\w+\(\s*['\"]\w+['\"]")
_OPTIONS = frozenset({"options", "opts", "flags", "settings"})
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
    scope: str = ""  # how far what it sets reaches, where that was found out


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
    seen = walk.cited.observe(
        kind,
        name or item.name,
        lines or item.lines,
        function=item.entity[1],
        when=When.CALL,
        value=value,
        value_type=value_type,
        detail=detail,
        scope=item.scope,
    )
    return seen.model_copy(update={"offered": True}) if walk.index.offered(*item.entity) else seen


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
            value=_of_field(parameter.default),
            value_type=_type_of(_of_field(parameter.default)),
            detail=detail,
        )
    yield from _keyword_options(walk, item)
    yield from _documented_options(walk, item)


def _table_options(walk: FileWalk, item: PublicCallable, seen: set[str]) -> Iterator[Observation]:
    """Keys of the module's table of options, for a callable that sets any of them by keyword."""
    facts = walk.index.modules.get(item.entity[0])
    for name, constant in facts.constants.items() if facts is not None else []:
        for key, text in constant.entries if _TABLE_OF_OPTIONS.search(name) else ():
            if key.isidentifier() and key not in seen:
                seen.add(key)
                yield see(
                    walk,
                    Kind.PARAM,
                    item,
                    name=f"{item.name}({key}=)",
                    value=_inner(text),
                    value_type=_type_of(text),
                    detail=f"weak: option of the package's configuration, default in {name}",
                )


def _options_classes(index: PackageIndex) -> tuple[str, ...]:
    """Names that the release's options classes define by descriptors: `parallel = Mapped("auto_parallel")`."""
    known = index.memo.get("options_classes")
    if isinstance(known, tuple):
        return known
    found: dict[str, None] = {}
    for facts in index.modules.values():
        for name, constant in facts.constants.items():
            owner, _, last = name.rpartition(".")
            mapped = facts.role in RUNS and bool(_OPTIONS_CLASS.search(owner)) and _DESCRIPTOR.match(constant.text)
            if mapped and control_parameter(last):
                found[last] = None
    index.memo["options_classes"] = tuple(found)
    return tuple(found)


def _documented_options(walk: FileWalk, item: PublicCallable) -> Iterator[Observation]:
    """What a callable takes through `**kwargs` by its docstring or the package's options classes only."""
    splat = next((p.name for p in item.parameters if p.star == "**"), "")
    if not splat:
        return
    seen = {p.name for p in item.parameters}
    if sets_any_option(item.name):
        yield from _table_options(walk, item, seen)
    for name in _options_classes(walk.index) if splat in _OPTIONS and item.name.count(".") == 1 else ():
        if name not in seen:
            detail = "taken from **kwargs; an options class of the package has it"
            yield see(walk, Kind.PARAM, item, name=f"{item.name}({name}=)", detail=f"weak: {detail}")
    for holder in dict.fromkeys((item.node, _body_of(item))):
        for known in documented_parameters(docstring_of(holder)):
            if known.name in seen or not control_parameter(known.name):
                continue
            seen.add(known.name)
            yield see(
                walk,
                Kind.PARAM,
                item,
                name=f"{item.name}({known.name}=)",
                lines=(known.line, known.line),
                value=known.default,
                value_type=_type_of(known.default),
                detail="taken from **kwargs, as the docstring says",
            )


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
    """Literal behind a default such as `DEFAULT` or `TABLE["key"]`, or behind None for the package's options."""
    text = parameter.default or ""
    match = re.fullmatch(r"([A-Za-z_][\w.]*)\[['\"]?(\w+)['\"]?\]", text)
    if match:
        place = walk.index.constant_at(item.entity[0], match[1])
        entries = dict(place[0].constants[place[1]].entries) if place is not None else {}
        return f"{text} = {_inner(entries[match[2]])}" if match[2] in entries else ""
    if sets_any_option(item.name):
        facts = walk.index.modules[item.entity[0]]
        tables = (dict(c.entries) for c in facts.constants.values() if c.entries)
        entry = next((table[parameter.name] for table in tables if parameter.name in table), None)
        return f"{text} = {_inner(entry)}" if entry is not None else ""
    if re.fullmatch(r"[A-Za-z_][\w.]*", text) and text not in ("None", "True", "False"):
        place = walk.index.constant_at(item.entity[0], text)
        return f"{text} = {_inner(place[0].constants[place[1]].text)}" if place is not None else ""
    return ""


_WRAPPED = re.compile(r"^[\w.]+\(\s*(?:default\w*|value)\s*=\s*([^(),]+)\s*\)$")
_READ = re.compile(
    r"^(?:int|float|bool|str)?\(?\s*(?:os\.)?(?:environ\.get|getenv)\(\s*['\"]\w+['\"]\s*,\s*([^(),]+)\s*\)\s*\)?$"
)


_FIELD = re.compile(
    r"^(?:\w+\.)?(?:field|Field|attrib|ib)\(\s*(?:default\s*=\s*)?(-?[\d_.]+(?:e-?\d+)?|None|True|False|'[^']*'|\"[^\"]*\")\s*[,)]"
)


def _of_field(default: str | None) -> str | None:
    """The default inside of a dataclass's or model's field."""
    match = _FIELD.match(default or "")
    return match[1] if match is not None else default


def _inner(text: str) -> str:
    """The value inside of a marker such as `Unset(default=4)`, or behind a read of a variable."""
    match = _WRAPPED.match(text) or _READ.match(text)
    return match[1].strip() if match is not None else text


def _keyword_options(walk: FileWalk, item: PublicCallable) -> Iterator[Observation]:
    """Options that a callable takes through `**kwargs` and that are read by a known key, here or further down."""
    splat = next((p.name for p in item.parameters if p.star == "**"), None)
    if splat is None:
        return
    seen: set[str] = {p.name for p in item.parameters}
    for option in options(walk.index, walk.pyfile, _body_of(item), splat, set()):
        if option.name in seen or not control_parameter(option.name):
            continue
        seen.add(option.name)
        yield (_elsewhere(walk, item, option) if option.pyfile is not walk.pyfile else _here(walk, item, option))


def _here(walk: FileWalk, item: PublicCallable, option: Option) -> Observation:
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


def _elsewhere(walk: FileWalk, item: PublicCallable, option: Option) -> Observation:
    """An option that a function of another file reads: cited there."""
    facts = walk.index.modules[option.pyfile.module]
    cited = Cited(walk.index.source(facts.file), facts.file, facts.role, "python")
    return _here(FileWalk(option.pyfile, cited, walk.index), item, option)
