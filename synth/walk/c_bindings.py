"""What Python code can call in a C or C++ extension: method tables, pybind11, nanobind and their relatives."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.c_index import method_entry
from synth.walk.syntax import brief, one_line, text_of
from synth.walk.words import about_resources, control_parameter, counting_parameter

_READ_ONLY = frozenset({"def_property_readonly", "def_readonly", "def_ro", "def_prop_ro"})
_CALLABLE = frozenset({"def", "def_static"})
BINDERS = (
    _CALLABLE
    | _READ_ONLY
    | {
        "def_property",
        "def_property_static",
        "def_readwrite",
        "def_readwrite_static",
        "def_rw",
        "def_prop_rw",
        "def_rw_static",
    }
)
_SETS = re.compile(r"^_*(py_?)?(set|Set)")
_GETS = re.compile(r"^_*(py_?)?(get|Get)|(Count|_count)$")
_CLASS = re.compile(rb"\bclass_\s*<[^;{}()]{0,400}?>\s*(\w*)\s*\(\s*\w+\s*,\s*\"(\w+)\"")
_MODULE = re.compile(rb"\b(?:PYBIND11_MODULE|NB_MODULE|TORCH_EXTENSION_NAME)\s*\(\s*(\w+)\s*,\s*(\w+)")
_ARGUMENT = re.compile(
    r"^(?:(?:\w+::)*arg(?:_v)?\s*\(\s*\"(\w+)\"\s*(?:,\s*(.*?))?\)|\"(\w+)\"\s*_a)(?:\s*\.\s*\w+\s*\([^()]*\))*\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_FOLDERS = frozenset({"src", "lib", "python", "csrc", "cpp", "c"})


class See(Protocol):
    """What a walker offers to the functions here."""

    @property
    def see(self) -> Callable[..., Observation]:
        """Make an observation at a node."""
        ...


@dataclass
class Bindings:
    """Where a file makes which Python class, and the module that it makes."""

    module: str = ""
    variable: str = "m"
    starts: list[int] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: bytes, file: str) -> Bindings:
        """Read them off the bytes."""
        found = cls(_module_of(raw, file))
        module = _MODULE.search(raw) if b"_MODULE" in raw else None
        if module:
            found.variable = module[2].decode()
        for match in _CLASS.finditer(raw) if b"class_" in raw else []:
            found.starts.append(match.start())
            found.classes.append(match[2].decode())
            if match[1]:
                found.variables[match[1].decode()] = match[2].decode()
        return found

    def owner(self, node: Node) -> str:
        """The class that a `.def` belongs to, `""` for the module itself."""
        function = node.child_by_field_name("function")
        receiver = function.child_by_field_name("argument") if function is not None else None
        if receiver is not None and receiver.type == "identifier":
            name = text_of(receiver)
            if name in self.variables:
                return self.variables[name]
            if name in (self.variable, "m", "mod", "module") or name.endswith(("_m", "_module")):
                return ""
        place = bisect_right(self.starts, node.end_byte) - 1
        return self.classes[place] if place >= 0 else ""

    def named(self, *parts: str) -> str:
        """Dotted name below the module."""
        return ".".join(part for part in (self.module, *parts) if part)


def _module_of(raw: bytes, file: str) -> str:
    """Dotted name of the extension module that a file defines."""
    match = re.search(rb"PyModuleDef_HEAD_INIT\s*,\s*(?:\.m_name\s*=\s*)?\"([\w.]+)\"", raw) or re.search(
        rb"\b(?:PYBIND11_MODULE|NB_MODULE|PyInit_|init)\s*\(?\s*(\w+)", raw
    )
    name = match[1].decode() if match else ""
    if "." in name or not name:
        return name
    folders = [part for part in file.split("/")[:-1] if part not in _FOLDERS]
    return ".".join([*folders, name]) if all(re.fullmatch(r"[A-Za-z_]\w*", part) for part in folders) else name


def _api(walk: See, node: Node, name: str, detail: str) -> Iterator[Observation]:
    last = name.rpartition(".")[2]
    if _SETS.match(last) and about_resources(last):
        yield walk.see(Kind.API_SET, name, node, when=When.CALL, detail=detail)
    elif (_GETS.search(last) or "num_threads" in last) and about_resources(last):
        yield walk.see(Kind.API_GET, name, node, when=When.CALL, detail=detail)


def method(walk: See, node: Node, bound: Bindings) -> Iterator[Observation]:
    """An entry of a method table."""
    entry = method_entry(node)
    if entry is not None:
        yield from _api(walk, node, bound.named(entry[0]), f"method table, C function {entry[1]}")


def bound_method(walk: See, node: Node, arguments: list[Node], bound: Bindings) -> Iterator[Observation]:
    """A function, constructor or property that is bound to Python."""
    function = node.child_by_field_name("function")
    # not the text of the whole: copying each link of a chain of calls would be quadratic
    field_name = function.child_by_field_name("field") if function is not None else None
    binder = re.sub(r"<.*", "", text_of(field_name)).strip()
    first = arguments[0]
    owner = bound.owner(node)
    if first.type == "string_literal":
        python = text_of(first).strip('"')
        name = bound.named(owner, python) if python != "__init__" else bound.named(owner)
    elif re.match(r"(\w+::)*init\b", text_of(first)[:80]) and owner:
        python, name = "__init__", bound.named(owner)
    else:
        return
    behind = brief(arguments[1], 60) if len(arguments) > 1 else ""
    if binder not in _CALLABLE:
        kind = Kind.API_GET if binder in _READ_ONLY else Kind.API_SET
        if counting_parameter(python) or control_parameter(python):
            yield walk.see(kind, name, node, when=When.CALL, detail=f"property bound to {behind}")
        return
    yield from _api(walk, node, name, f"bound to {behind}")
    for argument in arguments[1:]:
        if argument.type not in (
            "assignment_expression",
            "call_expression",
            "user_defined_literal",
            "binary_expression",
        ):
            continue
        match = _ARGUMENT.match(text_of(argument)[:400])
        if not match:
            continue
        parameter, default = match[1] or match[3], match[4] or match[2]
        if counting_parameter(parameter) or (default and control_parameter(parameter)):
            value = one_line(default) if default else None
            detail = f"argument of a function bound to {behind}"
            full = f"{name}({parameter}=)"
            yield walk.see(Kind.PARAM, full, argument, when=When.CALL, value=_python(value), detail=detail)


def _python(value: str | None) -> str | None:
    """A C++ default as Python shows it."""
    known = {"true": "True", "false": "False", "nullptr": None, "std::nullopt": None}
    if value is None or re.fullmatch(r"(\w+::)*none\(\)", value):
        return None
    return known.get(value, value)
