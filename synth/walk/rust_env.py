"""Environment variables in Rust: where they are read, through which wrappers, tables and macros."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from synth.walk.rust_index import (
    HITS,
    RustFile,
    RustIndex,
    Wrapper,
    call_arguments,
    is_code,
    is_test,
    type_word,
)
from synth.walk.rust_names import UPPER, filled, names_of, usable
from synth.walk.rust_values import Use, use_of
from synth.walk.rust_wrappers import arguments_of, call_at, direct_reads, parameter_in, wrapper_calls
from synth.walk.syntax import one_line, text_of

_ALL = re.compile(rb"\benv\s*::\s*vars(?:_os)?\s*\(")
_BUILD = re.compile(rb"\b(env|option_env)!\s*[(\[{]\s*\"(\w+)\"")
_CARGO = re.compile(r"^(CARGO(_\w+)?|OUT_DIR|TARGET|HOST|PROFILE|RUSTC\w*|RUSTFLAGS)$")
_WRITE = re.compile(
    rb"\benv\s*::\s*(set_var|remove_var)\s*\(|\.\s*(env|env_remove)\s*\(|(?<![\w:.])(set_var|remove_var)\s*\("
)
_ATTRIBUTE = re.compile(rb"#\[[^\]\n]{0,200}?\b(?:env|envconfig\s*\(\s*from|from_env)\s*=\s*\"(\w+)\"[^\]\n]{0,200}\]")
_DERIVED = re.compile(rb"#\[(?:arg|clap|structopt)\s*\([^\]]{0,300}?\benv\b(?!\s*=)[^\]]{0,200}\]")


@dataclass(eq=False)
class Read:
    """A read of one or several variables at one place."""

    node: Node
    path: list[Node]
    names: list[str]
    use: Use
    detail: str = ""
    chain: str = ""
    order: int = 0
    build: bool = False
    weak: bool = False
    lines: tuple[int, int] | None = None
    whole: tuple[int, int] = field(default=(0, 0))


# reads of one file


def reads_of(index: RustIndex, path: str) -> list[Read]:
    """All reads of a file."""
    raw = index.raw[path]
    found: list[Read] = []
    if b"env" in raw or b"getenv" in raw:
        for file, call, around in direct_reads(index, path):
            arguments = call_arguments(call)
            names = usable(names_of(index, file, arguments[0] if arguments else None, around))
            use = use_of(index, file, around)
            if names and not _keyed_by_parameter(index, file, arguments[0], around):
                found.append(Read(call, around, names, use))
        found += _tables(index, path)
        found += _attributes(index, path)
        found += _compiled(index, path)
    for file, call, around, wrapper in wrapper_calls(index, path):
        read = _wrapped(index, file, call, around, wrapper)
        if read is not None:
            found.append(read)
    found.sort(key=lambda read: read.node.start_byte)
    _chain(found)
    return found


def _keyed_by_parameter(index: RustIndex, file: RustFile, node: Node, around: list[Node]) -> bool:
    return False if names_of(index, file, node, around) else bool(parameter_in(index, file, node, around)[0])


def _wrapped(index: RustIndex, file: RustFile, call: Node, around: list[Node], wrapper: Wrapper) -> Read | None:
    arguments = arguments_of(call, macro=wrapper.macro)
    function = call.child_by_field_name("function")
    is_method = function is not None and function.type == "field_expression"
    shift = 0
    if not wrapper.macro and not is_method and wrapper.local is None:
        shift = int(_takes_self(index, wrapper) and len(arguments) > 1 and text_of(function).count("::") > 0)
    key = wrapper.key + shift
    if key >= len(arguments):
        return None
    given = arguments[key]
    names = [filled(index, file, "{}", [given])] if isinstance(given, str) else names_of(index, file, given, around)
    names = usable([wrapper.prefix + name for name in names])
    if not names:
        return None
    use = use_of(index, file, around)
    default = wrapper.fixed_default
    if 0 <= wrapper.default + shift < len(arguments) and wrapper.default >= 0:
        node = arguments[wrapper.default + shift]
        default = index.resolved(one_line(node if isinstance(node, str) else text_of(node)), file.path)
    kind = wrapper.value_type or _generic(call) or use.value_type
    explicit = default if wrapper.default >= 0 else None
    value = next((v for v in (explicit, use.default, default) if v is not None), None)
    merged = Use(value, kind or use.value_type, use.zones, use.notes, use.feeds)
    return Read(call, around, names, merged, f"through {wrapper.name}{'!' if wrapper.macro else ''}()")


def _takes_self(index: RustIndex, wrapper: Wrapper) -> bool:
    file = index.opened(wrapper.file)
    for path, start in index.functions.get(wrapper.name, []):
        if path == wrapper.file and file is not None:
            function = index.enclosing(file, file.at(start + 1, start + 2))
            return function.has_self if function is not None else False
    return False


def _generic(call: Node) -> str | None:
    match = re.search(r"::\s*<\s*([\w:]+)\s*(?:,|>)", text_of(call.child_by_field_name("function"))[:200])
    return type_word(match[1]) if match else None


def _tables(index: RustIndex, path: str) -> Iterator[Read]:
    """Names matched one by one: `match name { MAX_THREADS => .. }` where names come from a list or the environment."""
    raw = index.raw[path]
    dynamic = bool(_ALL.search(raw)) or any(_is_dynamic(index, f, c, a) for f, c, a in direct_reads(index, path))
    if not dynamic:
        return
    file = index.opened(path)
    for place, match in enumerate(re.finditer(rb"\bmatch\s+[&*]?([a-z_]\w*)[\w.()]*\s*\{", raw)):
        if file is None or place > HITS:
            return
        around = file.at(match.start(), match.start() + 1)
        node = next((n for n in reversed(around) if n.type == "match_expression"), None)
        if node is None or not is_code(around) or is_test(around):
            continue
        yield from _arms(index, file, node, around)


def _is_dynamic(index: RustIndex, file: RustFile, call: Node, around: list[Node]) -> bool:
    """Whether a read names its variable by an expression of unknown or of several values."""
    arguments = call_arguments(call)
    return len(usable(names_of(index, file, arguments[0] if arguments else None, around))) != 1


def _arms(index: RustIndex, file: RustFile, node: Node, around: list[Node]) -> Iterator[Read]:
    body = node.child_by_field_name("body")
    arms = [c for c in (body.named_children if body is not None else []) if c.type == "match_arm"][:2_000]
    named: list[tuple[Node, list[str]]] = []
    for arm in arms:
        pattern = text_of(arm.child_by_field_name("pattern"))[:2_000]
        names: list[str] = []
        for literal, identifier in re.findall(r"\"(\w+)\"|\b((?:\w+::)*[A-Z][A-Z0-9_]+)\b", pattern):
            value = literal or index.string(identifier, file.path)
            if value and UPPER.match(value):
                names.append(value)
        if names:
            named.append((arm, names))
    if len(named) < 1 or (len(named) < 2 and len(arms) > 4):
        return
    for arm, names in named:
        text = text_of(arm.child_by_field_name("value"))
        default = re.search(
            r"\bunwrap_or(?:_else)?\s*\(\s*(?:\|\w*\|\s*)?((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", text
        )
        kind = re.search(r"parse\s*::\s*<\s*(\w+)|\bparse_(\w+)\s*\(", text)
        value_type = type_word(kind[1] or kind[2]) if kind else None
        use = Use(
            index.resolved(one_line(default[1]), file.path).rstrip(", ") if default else None, value_type, [], "", ""
        )
        yield Read(arm, [*around, arm], names, use, "one name of a table that is matched here")


def _attributes(index: RustIndex, path: str) -> Iterator[Read]:
    """`#[arg(env = "NAME")]`, `#[envconfig(from = "NAME", default = "1")]` and their relatives."""
    raw = index.raw[path]
    for pattern in (_ATTRIBUTE, _DERIVED):
        for place, match in enumerate(pattern.finditer(raw)):
            file = index.opened(path)
            if file is None or place > HITS:
                return
            around = file.at(match.start(), match.start() + 1)
            node = next((n for n in reversed(around) if n.type == "attribute_item"), None)
            if node is None or is_test(around):
                continue
            text = text_of(node)
            item = node.next_named_sibling
            for _ in range(30):
                if item is None or item.type not in ("attribute_item", "line_comment"):
                    break
                item = item.next_named_sibling
            named = text_of(item.child_by_field_name("name")) if item is not None else ""
            name = match[1].decode() if pattern is _ATTRIBUTE else named.upper()
            default = re.search(r"\bdefault(?:_value(?:_t)?)?\s*=\s*(\"[^\"]*\"|[\w.:]+)", text)
            kind = type_word(text_of(item.child_by_field_name("type"))) if item is not None else None
            if usable([name]):
                yield Read(
                    node,
                    around,
                    [name],
                    Use(default[1] if default else None, kind, [], "", ""),
                    f"field attribute of `{named}`",
                )


def _compiled(index: RustIndex, path: str) -> Iterator[Read]:
    """`env!` and `option_env!`: read while the crate is compiled."""
    for match in _BUILD.finditer(index.raw[path]):
        name = match[2].decode()
        file = index.opened(path) if not _CARGO.match(name) else None
        if file is None:
            continue
        around = file.at(match.start(), match.start() + 1)
        node = next((n for n in reversed(around) if n.type == "macro_invocation"), None)
        if node is not None and is_code(around) and not is_test(around):
            yield Read(
                node,
                around,
                [name],
                Use(None, None, [], "", ""),
                f"{match[1].decode()}!, while the crate is compiled",
                build=True,
            )


def _chain(reads: list[Read]) -> None:
    """A read that stands where another one gives way is the next of its chain."""
    for place, read in enumerate(reads):
        for other in reads[place + 1 : place + 8]:
            start = other.node.start_byte
            if not any(a <= start < b for a, b in read.use.zones) or other.chain or set(other.names) & set(read.names):
                continue
            if not read.chain:
                text = f"{read.names[0]}|{other.names[0]}|{read.node.start_byte}"
                read.chain = "r" + hashlib.sha256(text.encode()).hexdigest()[:8]
            other.chain, other.order = read.chain, read.order + 1
            break


@dataclass(frozen=True)
class Write:
    """A variable that the code sets."""

    node: Node
    path: list[Node]
    name: str
    value: str | None
    target: str
    unless_set: bool
    detail: str = ""


def writes_of(index: RustIndex, path: str) -> Iterator[Write]:
    """Variables that a file sets, in its own process or for a child."""
    raw = index.raw[path]
    if b"set_var" not in raw and b"remove_var" not in raw and b"Command" not in raw:
        return
    for place, match in enumerate(_WRITE.finditer(raw)):
        file = index.opened(path)
        if file is None or place > HITS:
            return
        around = file.at(match.start() if not match[2] else match.start(2), match.end())
        call = call_at(file.at(match.end() - 1, match.end()), match.end() - 1)
        if call is None or not is_code(around) or is_test(around):
            continue
        how = (match[1] or match[2] or match[3]).decode()
        arguments = call_arguments(call)
        path_to = file.at(match.end() - 1, match.end())
        path_to = path_to[: path_to.index(call) + 1]
        for name in usable(names_of(index, file, arguments[0] if arguments else None, path_to)):
            value = one_line(text_of(arguments[1])) if len(arguments) > 1 else None
            guarded = any(
                n.type == "if_expression"
                and re.search(
                    r"\bvar(_os)?\([^)]*\)\s*\.\s*is_(err|none)\(\)", text_of(n.child_by_field_name("condition"))
                )
                for n in path_to
            )
            target = "child" if match[2] else "process"
            yield Write(call, path_to, name, value, target, guarded, "removed" if "remove" in how else "")
