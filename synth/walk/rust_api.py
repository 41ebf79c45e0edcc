"""What Python code can call in a Rust extension: pyo3 functions, classes and methods with their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.rust_index import (
    HITS,
    Function,
    RustFile,
    RustIndex,
    attributes_of,
    function_of,
    is_code,
    is_test,
    type_word,
)
from synth.walk.rust_names import split_top
from synth.walk.syntax import Cited, lines_of, one_line, text_of
from synth.walk.words import about_pools, about_resources, control_parameter, counting_parameter, reports_resources

_MARK = re.compile(rb"#\[\s*(pyfunction|pymethods)\b")
_CLASS = re.compile(
    rb"#\[\s*pyclass\b([^\]]{0,300})\]\s*(?:#\[[^\]]*\]\s*|///?[^\n]*\n\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum)\s+(\w+)"
)
_MODULE = re.compile(rb"#\[\s*pymodule\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:fn|mod)\s+(\w+)")
_SETS = re.compile(
    r"^_*(set_|resize|enable_|disable_|limit_|use_|clear_\w*cache|reserve|shrink|with_\w*(threads|workers))"
)
_HIDDEN = re.compile(r"^(Python|&?Bound<'?\w*,?\s*PyModule>|PyRef|PyRefMut)")
_SKIPPED = frozenset({"py", "_py", "slf", "self", "cls", "_cls"})


@dataclass(frozen=True)
class _Callable:
    name: str
    function: Function
    node: Node
    attributes: str
    owner: str


def walk_api(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    """Observations of the Python functions that a file defines."""
    for place, match in enumerate(_MARK.finditer(file.raw)):
        if place > HITS:
            return
        around = file.at(match.start(), match.start() + 1)
        if not is_code(around) or is_test(around):
            continue
        attribute = next((n for n in reversed(around) if n.type == "attribute_item"), None)
        item = attribute.next_named_sibling if attribute is not None else None
        while item is not None and item.type in ("attribute_item", "line_comment", "block_comment"):
            item = item.next_named_sibling
        if item is None:
            continue
        if item.type == "function_item":
            name = _named(item) or text_of(item.child_by_field_name("name"))
            yield from _observed(index, file, cited, [_made(file, item, None, name, index.module)])
        elif item.type == "impl_item":
            yield from _methods(index, file, cited, item)


def module_of(files: Mapping[str, bytes]) -> str:
    """The extension module, as far as the sources name it."""
    for path in sorted(files, key=lambda p: (p.count("/"), p)):
        if b"pymodule" in files[path]:
            match = _MODULE.search(files[path])
            if match:
                return match[1].decode()
    return ""


def classes_of(files: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
    """Python name and module of every Rust type that is a Python class."""
    found: dict[str, tuple[str, str]] = {}
    for raw in files.values():
        if b"pyclass" not in raw:
            continue
        for match in _CLASS.finditer(raw):
            options = match[1].decode("utf-8", "replace")
            name = re.search(r"\bname\s*=\s*\"(\w+)\"", options)
            module = re.search(r"\bmodule\s*=\s*\"([\w.]+)\"", options)
            rust = match[2].decode()
            found[rust] = (name[1] if name else rust, module[1] if module else "")
    return found


def _named(node: Node) -> str:
    for attribute in attributes_of(node):
        match = re.search(r"\bname\s*=\s*\"(\w+)\"", text_of(attribute)[:400])
        if match:
            return match[1]
    return ""


def _made(file: RustFile, node: Node, holder: Node | None, name: str, owner: str) -> _Callable:
    attributes = "\n".join(text_of(a)[:2_000] for a in attributes_of(node))
    full = f"{owner}.{name}" if owner else name
    return _Callable(full, function_of(file.path, node, holder), node, attributes, owner)


def _methods(index: RustIndex, file: RustFile, cited: Cited, item: Node) -> Iterator[Observation]:
    rust = re.sub(r"<.*", "", text_of(item.child_by_field_name("type"))).split("::")[-1]
    name, module = index.classes.get(rust, (rust.removeprefix("Py"), ""))
    owner = ".".join(part for part in (module or index.module, name) if part)
    body = item.child_by_field_name("body")
    made: list[_Callable] = []
    for node in body.named_children if body is not None else []:
        if node.type != "function_item":
            continue
        own = text_of(node.child_by_field_name("name"))
        attributes = "\n".join(text_of(a)[:400] for a in attributes_of(node))
        method = _named(node) or own
        if re.search(r"#\[\s*new\b|fn\s+__new__", attributes) or own in ("__new__", "__init__"):
            made.append(_Callable(owner, function_of(file.path, node, item), node, attributes, owner))
            continue
        made.append(_made(file, node, item, method, owner))
    yield from _observed(index, file, cited, made)


def _observed(index: RustIndex, file: RustFile, cited: Cited, made: list[_Callable]) -> Iterator[Observation]:
    names = {c.name for c in made}
    for call in made:
        accessor = re.search(r"#\[\s*[gs]etter\b", call.attributes)
        parameters = [] if accessor else list(parameters_of(call.function, call.attributes))
        head = _head(call.node)
        for name, default, kind in parameters:
            if name.startswith("**"):
                yield from _keywords(index, file, cited, call, head)
            elif counting_parameter(name) or (default is not None and control_parameter(name)):
                value = index.resolved(default, file.path) if default else default
                yield cited.observe(
                    Kind.PARAM,
                    f"{call.name}({name}=)",
                    head,
                    function=call.function.qualname.replace("::", "."),
                    when=When.CALL,
                    value=None if value == "None" else value,
                    value_type=type_word(kind),
                    detail="parameter of a function of the extension",
                )
        yield from _setters(cited, call, head, names)


def _setters(cited: Cited, call: _Callable, head: tuple[int, int], names: set[str]) -> Iterator[Observation]:
    last = call.name.rpartition(".")[2]
    kind: Kind | None = None
    detail = "function of the extension"
    if re.search(r"#\[\s*setter\b", call.attributes):
        last = last.removeprefix("set_")
        kind = Kind.API_SET if counting_parameter(last) or control_parameter(last) else None
        detail = "property of the extension that can be set"
    elif re.search(r"#\[\s*getter\b", call.attributes):
        kind = Kind.API_GET if reports_resources(last) else None
        detail = "property of the extension"
    elif _SETS.match(last) and about_resources(last):
        kind = Kind.API_SET
    elif last.endswith("_fast") and call.name.removesuffix("_fast") in names:
        kind, detail = Kind.API_SET, f"a faster form of {last.removesuffix('_fast')}()"
    elif re.match(r"(get_|num_|n_|current_num_)\w*|\w*(thread_pool_size|pool_size)$", last) and about_pools(last):
        kind = Kind.API_GET
    if kind is not None:
        owner = f"{call.owner}." if call.owner and call.name != call.owner else ""
        yield cited.observe(
            kind,
            f"{owner}{last}",
            head,
            function=call.function.qualname.replace("::", "."),
            when=When.CALL,
            detail=detail,
        )


def _head(node: Node) -> tuple[int, int]:
    start = lines_of(node)[0]
    body = node.child_by_field_name("body")
    return start, max(start, min(body.start_point[0] + 1 if body is not None else start, start + 12))


def parameters_of(function: Function, attributes: str) -> Iterator[tuple[str, str | None, str]]:
    """(name, default, Rust type) of the parameters as Python sees them; `**name` for keywords."""
    types = dict(zip(function.parameters, function.types, strict=False))
    match = re.search(r"\bsignature\s*=\s*\(", attributes) or re.search(r"#\[\s*args\s*\(", attributes)
    if match:
        start = match.end()
        depth, end = 1, start
        while end < len(attributes) and depth:
            depth += {"(": 1, ")": -1}.get(attributes[end], 0)
            end += 1
        for piece in split_top(attributes[start : end - 1]):
            name, _, default = (part.strip() for part in piece.partition("="))
            if re.fullmatch(r"\*{0,2}\w+", name):
                yield name, default.strip().strip('"') if default else None, types.get(name.lstrip("*"), "")
        return
    for name, kind in types.items():
        if name in _SKIPPED or _HIDDEN.match(kind):
            continue
        yield name, "None" if kind.startswith("Option") else None, kind


def _keywords(
    index: RustIndex, file: RustFile, cited: Cited, call: _Callable, head: tuple[int, int]
) -> Iterator[Observation]:
    """Keywords that are taken one by one: `match key { "cache_capacity" => .. }`."""
    owner = call.function.owner
    texts = [text_of(call.node)]
    for name in (
        dict.fromkeys(re.findall(rf"\b(?:Self|{re.escape(owner)})\s*::\s*(\w+)\s*\(", texts[0])) if owner else []
    ):
        for path, start in index.functions.get(name, [])[:4]:
            if path == file.path:
                node = next((n for n in reversed(file.at(start + 1, start + 2)) if n.type == "function_item"), None)
                texts.append(text_of(node))
    seen: set[str] = set()
    for text in texts:
        for name in re.findall(r"\"(\w+)\"\s*=>", text[:40_000]):
            if name in seen or not (counting_parameter(name) or control_parameter(name)):
                continue
            seen.add(name)
            values = index.defaults.get(name, set())
            value = index.resolved(next(iter(values)), file.path) if len(values) == 1 else None
            yield cited.observe(
                Kind.PARAM,
                f"{call.name}({name}=)",
                head,
                function=call.function.qualname.replace("::", "."),
                when=When.CALL,
                value=one_line(value) if value else None,
                detail="keyword that the extension takes by its name",
            )
