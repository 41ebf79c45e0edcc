"""Functions and classes of a package that read an environment variable whose name they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tree_sitter import Node

from synth.walk.python_environ import Access, accesses, arguments_of, names_in, parameters_used
from synth.walk.python_scope import PyFile, Scope, dotted

if TYPE_CHECKING:
    from synth.walk.index import PackageIndex

CONSTRUCTORS = ("__init__", "__new__", "__post_init__")


@dataclass(eq=False)
class Wrapper:
    """A function (or class) that reads an environment variable whose name it is given.

    Attributes:
        key: parameter that the name comes from; `access` holds the expression that is made of it.
        inner: for a wrapper around a wrapper, the one that is called inside.
        deferred: a class that is given the name when it is made and reads the variable later.
    """

    entity: tuple[str, str]
    key: str
    pyfile: PyFile
    access: Access
    scope: Scope
    parameters: list[tuple[str, str | None]]
    inner: Wrapper | None = None
    deferred: bool = False


def find_wrappers(index: PackageIndex, paths: list[str]) -> None:
    """Fill `index.wrappers` from the files that touch the environment."""
    files = [index.kept(path) for path in paths]
    for pyfile in files:
        for access in accesses(pyfile):
            if access.form in ("get", "subscript", "in", "pop") and access.where == "live":
                _wrap(index, pyfile, access, None)
    for _ in range(2):  # wrappers around wrappers
        names = index.wrapper_names()
        words = [name.encode() for name in names]
        for path, pyfile in zip(paths, files, strict=True):
            source = index.source(path)
            for node in pyfile.tree.nodes if any(word in source for word in words) else ():
                if node.type != "call" or dotted(node.child_by_field_name("function")).rpartition(".")[2] not in names:
                    continue
                wrapper = index.wrapper_at(pyfile, node)
                given = argument(node, wrapper.key, wrapper.parameters) if wrapper is not None else None
                if given is not None:
                    _wrap(index, pyfile, Access("get", node, given, None, "live"), wrapper)
    if any(wrapper.entity[1] in index.modules[wrapper.entity[0]].classes for wrapper in index.wrappers.values()):
        _inherit_wrappers(index)


def _wrap(index: PackageIndex, pyfile: PyFile, access: Access, inner: Wrapper | None) -> None:
    scope = pyfile.scope(access.node).function()
    if scope is None:
        return
    used = parameters_used(access.key, scope)
    owner, deferred = scope, False
    if not used and scope.klass() is not None:
        used, owner, deferred = _made_of(pyfile, access, scope)
    facts = index.modules.get(pyfile.module)
    known = facts.functions.get(owner.qualname) if facts is not None else None
    if known is None or not used:
        return
    klass = owner.klass()
    made = owner.qualname.rpartition(".")[2] in CONSTRUCTORS and klass is not None
    entity = (pyfile.module, klass.qualname if made and klass is not None else owner.qualname)
    present = index.wrappers.get(entity)
    if present is not None and (present.access.form != "in" or access.form == "in"):
        return
    parameters = [(parameter.name, parameter.default) for parameter in known.parameters if not parameter.star]
    index.wrappers[entity] = Wrapper(entity, used[0], pyfile, access, scope, parameters, inner, deferred)


def _made_of(pyfile: PyFile, access: Access, scope: Scope) -> tuple[list[str], Scope, bool]:
    """For a key such as `index.name`: the constructor's parameters that it is made of."""
    klass = scope.klass()
    for node in names_in(access.key):
        owner, _, attribute = dotted(node).partition(".")
        if owner != "self" or not attribute or klass is None:
            continue
        for value in pyfile.attributes.get((klass.qualname, attribute), []):
            maker = pyfile.scope(value).function()
            used = parameters_used(value, maker) if maker is not None else []
            if used and maker is not None and maker.qualname.endswith("__init__"):
                return used, maker, maker is not scope
    return [], scope, False


def _inherit_wrappers(index: PackageIndex) -> None:
    """A subclass of a class that reads the variable it is given does so as well."""
    for facts in index.modules.values():
        for name in facts.classes:
            entity = (facts.module, name)
            if entity in index.wrappers or f"{name}.__init__" in facts.functions:
                continue
            base = next((b for b in index.bases(*entity) if b in index.wrappers), None)
            if base is not None:
                index.wrappers[entity] = index.wrappers[base]


def argument(call: Node, name: str, parameters: list[tuple[str, str | None]]) -> Node | None:
    """The argument of a call that a parameter receives."""
    positional, named = arguments_of(call)
    if name in named:
        return named[name]
    place = next((i for i, (parameter, _) in enumerate(parameters) if parameter == name), len(positional))
    return positional[place] if place < len(positional) else None


def text_default(parameters: list[tuple[str, str | None]], name: str) -> str | None:
    """Default of a parameter as written."""
    return next((default for parameter, default in parameters if parameter == name), None)
