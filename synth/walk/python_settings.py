"""Settings that a Python package keeps in classes, registries and configuration modules.

Variables named by a class attribute that a base class reads, options that are registered under a key, and attributes
of modules that are called `config` or the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from tree_sitter import Node

from synth import lexicon
from synth.records import Kind, Observation, When
from synth.walk.index import RUNS, Entity, PackageIndex
from synth.walk.python_env import FileWalk
from synth.walk.python_environ import accesses, arguments_of
from synth.walk.python_facts import Class, Facts
from synth.walk.python_flow import cited_lines
from synth.walk.python_scope import PyFile, dotted
from synth.walk.python_values import strings
from synth.walk.syntax import brief, descend, lines_of, text_of

_VARIABLE = re.compile(r"^[A-Z][A-Z0-9_]{2,79}$")
_KEY = re.compile(r"^[A-Za-z][\w-]*(\.[\w-]+){0,8}$")
_REGISTERS = re.compile(
    r"^_?(register|define|declare|add|new|create)_(\w+_)?(option|config|setting|flag|default)s?$", re.IGNORECASE
)
_TEXTS = ("description", "doc", "help", "validator", "callback", "cb", "type")
_PREFIXES = re.compile(r"(config|option|settings?)_prefix$")
_MODULES = frozenset({"config", "configs", "settings", "options", "defaults", "envs", "flags", "config_init", "conf"})
_DEFAULT_ATTRIBUTES = ("default", "default_value", "DEFAULT", "_default")
_DEFAULT_METHODS = ("_get_default", "get_default", "default", "_default")
_LITERAL = frozenset({"integer", "float", "true", "false", "none", "string", "unary_operator", "binary_operator"})
_MAX_HEIRS = 2_000
_SIBLINGS = 5  # classes with a name and a default each that make a table of settings
_NESTED = 8
_AROUND = 40  # levels around a call that are looked at
_OPTION = re.compile(r"^(Option|Setting|ConfigOption|ConfigItem|ConfigValue|OptionSpec|ConfigField)$")
_DESCRIBING = frozenset(
    {
        "name",
        "default",
        "meta",
        "type",
        "section",
        "validator",
        "cli",
        "desc",
        "action",
        "const",
        "short",
        "nargs",
        "help",
        "doc",
        "description",
        "choices",
    }
)


def walk_settings(walk: FileWalk) -> list[Observation]:
    """Observations of settings classes, option registries and configuration modules in a file."""
    facts = walk.index.modules.get(walk.pyfile.module)
    if facts is None or facts.file != walk.cited.file:
        return []
    found = [*_class_variables(walk, facts), *_registered(walk), *_described(walk, facts)]
    if facts.module.rpartition(".")[2] in _MODULES and facts.role in RUNS:
        found += [*_attributes(walk, facts), *_tables(walk)]
    return [*found, *_option_calls(walk)]


# variables that a class attribute names


def _reading_bases(index: PackageIndex) -> dict[Entity, tuple[str, When]]:
    """Classes whose methods read the variable that an attribute of the class names, with the attribute."""
    known = index.memo.get("reading_bases")
    if isinstance(known, dict):
        return known
    found: dict[Entity, tuple[str, When]] = {}
    for facts in index.modules.values():
        if facts.file not in index.touching or not facts.classes:
            continue
        pyfile = index.opened(facts.module)
        for access in accesses(pyfile) if pyfile is not None else []:
            entity = _named_by_attribute(pyfile, access.key, access.form) if pyfile is not None else None
            if entity is not None and pyfile is not None:
                klass, attribute = entity
                when = index.when(facts.module, pyfile.scope(access.node), access.node.start_byte)
                found.setdefault((facts.module, klass), (attribute, when))
    index.memo["reading_bases"] = found
    return found


def _named_by_attribute(pyfile: PyFile, key: Node | None, form: str) -> tuple[str, str] | None:
    if key is None or key.type != "attribute" or form not in ("get", "subscript", "in"):
        return None
    owner, _, attribute = dotted(key).rpartition(".")
    klass = pyfile.scope(key).klass()
    if owner not in ("self", "cls", "self.__class__", "type(self)") or klass is None:
        return None
    if pyfile.attributes.get((klass.qualname, attribute)):
        return None  # given to the constructor: a wrapper
    return klass.qualname, attribute


def _class_variables(walk: FileWalk, facts: Facts) -> Iterator[Observation]:
    bases = _reading_bases(walk.index)
    if not bases:
        return
    for klass in list(facts.classes.values())[:_MAX_HEIRS]:
        lineage = [(facts.module, klass.qualname), *walk.index.bases(facts.module, klass.qualname)]
        base = next((entity for entity in lineage if entity in bases), None)
        if base is None:
            continue
        attribute, when = bases[base]
        constant = facts.constants.get(f"{klass.qualname}.{attribute}")
        for name in strings(constant.value) if constant is not None else []:
            if constant is not None and _VARIABLE.match(name):
                value, kind = _default_in(walk, facts, klass), _type_in(walk, facts, klass)
                yield walk.cited.observe(
                    Kind.ENV_READ,
                    name,
                    constant.lines,
                    function=klass.qualname,
                    when=when,
                    value=value,
                    value_type=kind,
                    detail=f"attribute `{attribute}` names the variable, {base[1]} reads it",
                )


def _default_in(walk: FileWalk, facts: Facts, klass: Class) -> str | None:
    for name in _DEFAULT_ATTRIBUTES:
        constant = facts.constants.get(f"{klass.qualname}.{name}")
        if constant is not None:
            return None if constant.text == "None" else constant.text
    for name in _DEFAULT_METHODS:
        node = walk.pyfile.functions.get(f"{klass.qualname}.{name}")
        returned = _returned(node) if node is not None else None
        if returned is not None:
            return returned
    return None


def _returned(function: Node) -> str | None:
    """What a function that only computes a default returns last."""
    found = [n for n in descend(function) if n.type == "return_statement" and n.named_children]
    return brief(found[-1].named_children[0], 80) if found else None


def _type_in(walk: FileWalk, facts: Facts, klass: Class) -> str | None:
    constant = facts.constants.get(f"{klass.qualname}.type")
    text = constant.text if constant is not None else ""
    scope = walk.pyfile.classes.get(klass.qualname)
    holder = scope.node.child_by_field_name("superclasses") if scope is not None else None
    for child in holder.named_children if holder is not None and not text else []:
        if child.type == "keyword_argument" and text_of(child.child_by_field_name("name")) == "type":
            text = text_of(child.child_by_field_name("value"))
    return text if text in ("int", "float", "bool", "str") else None


# registries


def _registered(walk: FileWalk) -> Iterator[Observation]:
    for node in walk.pyfile.tree.nodes:
        if node.type != "call":
            continue
        called = dotted(node.child_by_field_name("function")).rpartition(".")[2]
        if not _REGISTERS.match(called):
            continue
        positional, named = arguments_of(node)
        key = named.get("name", named.get("key", positional[0] if positional else None))
        names = strings(walk.pyfile.value(key)) if key is not None and key.type != "identifier" else []
        default = named.get("default", named.get("defval", positional[1] if len(positional) > 1 else None))
        for name in names:
            full = _prefix(walk, node) + name
            if _KEY.match(full) and default is not None and len(names) == 1:
                yield walk.cited.observe(
                    Kind.OPTION,
                    full,
                    lines_of(node) if lines_of(node)[1] - lines_of(node)[0] < 12 else (lines_of(node)[0],) * 2,
                    function=walk.function(node),
                    when=When.CALL,
                    value=_literal(walk, default),
                    detail=f"registered with {called}()",
                    key=full,
                )


def _literal(walk: FileWalk, node: Node) -> str:
    value = walk.pyfile.value(node)
    return repr(value) if isinstance(value, (str, int, float, bool)) else brief(node, 80)


def _prefix(walk: FileWalk, node: Node) -> str:
    """`p.` inside of `with config_prefix("p"):`."""
    for parent in islice(walk.pyfile.tree.ancestors(node), _AROUND):
        if parent.type != "with_statement":
            continue
        for inner in descend(parent.named_children[0]):
            if inner.type == "call" and _PREFIXES.search(dotted(inner.child_by_field_name("function"))):
                positional, _ = arguments_of(inner)
                names = strings(walk.pyfile.value(positional[0])) if positional else []
                return f"{names[0]}." if names else ""
    return ""


# attributes of configuration modules


def _attributes(walk: FileWalk, facts: Facts) -> Iterator[Observation]:
    touched = {
        line
        for access in accesses(walk.pyfile)
        for line in range(cited_lines(walk.pyfile, access.node)[0], cited_lines(walk.pyfile, access.node)[1] + 1)
    }
    for name, constant in facts.constants.items():
        last = name.rpartition(".")[2]
        if last.startswith(("_", "DEFAULT_")) or constant.lines[0] in touched or name.count(".") > 1:
            continue
        if not _plain(constant.text) or ("." in name and last in _DESCRIBING):
            continue
        yield walk.cited.observe(
            Kind.OPTION,
            f"{facts.module}.{name}",
            constant.lines,
            function=name.rpartition(".")[0],
            when=When.CALL,
            value=constant.text,
            detail="weak: attribute of a configuration module",
            key=f"{facts.module}.{name}",
        )


# settings described by classes, option objects and nested tables


def _described(walk: FileWalk, facts: Facts) -> Iterator[Observation]:
    """Sibling classes, each with a `name` and a `default`: one setting each."""
    groups: dict[str, list[str]] = {}
    for klass in facts.classes.values():
        if klass.bases and all(f"{klass.qualname}.{a}" in facts.constants for a in ("name", "default")):
            groups.setdefault(klass.bases[0], []).append(klass.qualname)
    for names in groups.values():
        for qualname in names if len(names) >= _SIBLINGS else []:
            named, default = facts.constants[f"{qualname}.name"], facts.constants[f"{qualname}.default"]
            for key in strings(named.value):
                if _KEY.match(key):
                    yield _option(walk, key, named.lines, default.text, "setting described by a class", qualname)


def _option(
    walk: FileWalk, key: str, lines: tuple[int, int], value: str, detail: str, function: str = ""
) -> Observation:
    return walk.cited.observe(
        Kind.OPTION, key, lines, function=function, when=When.CALL, value=value, detail=detail, key=key
    )


def _option_calls(walk: FileWalk) -> Iterator[Observation]:
    """`Namespace(worker=Namespace(threads=Option(4)))`: keywords that lead to an option object are its key."""
    for node in walk.pyfile.tree.nodes:
        if node.type != "call" or not _OPTION.match(dotted(node.child_by_field_name("function")).rpartition(".")[2]):
            continue
        if walk.pyfile.scope(node).function() is not None:
            continue
        path: list[str] = []
        for parent in islice(walk.pyfile.tree.ancestors(node), _AROUND):
            if parent.type == "keyword_argument":
                path.insert(0, text_of(parent.child_by_field_name("name")))
            elif parent.type == "pair":
                path[:0] = strings(walk.pyfile.value(parent.child_by_field_name("key")))[:1]
            elif parent.type not in ("argument_list", "call", "dictionary", "dictionary_splat"):
                break
        positional, named = arguments_of(node)
        default = named.get("default", positional[0] if positional else None)
        if len(path) >= 2 and all(_KEY.match(part) for part in path):
            value = _literal(walk, default) if default is not None else "None"
            lines = (node.start_point[0] + 1,) * 2
            yield _option(walk, ".".join(path), lines, value, "option object in a nested table")


def _tables(walk: FileWalk) -> Iterator[Observation]:
    """Nested dictionaries of plain defaults in a configuration module: the keys on the way make the option's name."""
    for node in walk.pyfile.tree.nodes:
        if node.type != "dictionary" or walk.pyfile.scope(node).function() is not None:
            continue
        parent = walk.pyfile.tree.parent(node)
        if parent is not None and parent.type == "pair":
            continue
        yield from _entries(walk, node, (), 0)


def _entries(walk: FileWalk, node: Node, path: tuple[str, ...], depth: int) -> Iterator[Observation]:
    for pair in node.named_children[:_MAX_HEIRS] if depth < _NESTED else []:
        if pair.type != "pair":
            continue
        key = walk.pyfile.value(pair.child_by_field_name("key"))
        value = pair.child_by_field_name("value")
        if not isinstance(key, str) or not _KEY.match(key) or value is None:
            continue
        here = (*path, *key.split("."))
        if value.type == "dictionary":
            yield from _entries(walk, value, here, depth + 1)
        elif len(here) > 1 and value.type in _LITERAL:
            lines = (pair.start_point[0] + 1,) * 2
            yield _option(walk, ".".join(here), lines, _literal(walk, value), "entry of a table of defaults")


def _plain(text: str) -> bool:
    return (
        lexicon.quantity(text)
        or text in ("True", "False", "None")
        or bool(re.fullmatch(r"'[\w.-]*'|\"[\w.-]*\"", text))
    )
