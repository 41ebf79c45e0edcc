"""Functions, closures and macros of Rust code that read the variable which an argument names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from synth.records import Role
from synth.walk.rust_index import (
    HITS,
    ROUNDS,
    RustFile,
    RustIndex,
    Wrapper,
    call_arguments,
    is_code,
    is_test,
    last_name,
    rust_role,
    type_word,
)
from synth.walk.rust_names import names_of, split_top
from synth.walk.rust_values import use_of
from synth.walk.syntax import text_of

_READ = re.compile(rb"\b(?:env|dotenvy|dotenv)\s*::\s*(var|var_os)\s*\(|\blibc\s*::\s*(getenv)\s*\(")
_BARE = re.compile(rb"(?<![\w:.])(var|var_os)\s*\(")
_IMPORTED = re.compile(rb"\buse\s+std::env::(?:\{[^}]*\bvar(?:_os)?\b|var(?:_os)?\b)")
_DEFAULT_PARAMETER = re.compile(r"def(ault)?|fallback|dflt", re.IGNORECASE)
MACRO = re.compile(rb"\bmacro_rules!\s*(\w+)\s*\{")
MACRO_BYTES = 40_000  # of one definition
_VARIABLE = re.compile(r"\$\s*(\w+)\s*:\s*(\w+)")


def find_wrappers(index: RustIndex) -> None:
    """Find what reads the variable that an argument names, in rounds: wrappers can stand around wrappers."""
    fresh: set[str] = set()
    for path in sorted(index.raw):
        if rust_role(path) in (Role.LIBRARY, Role.VENDORED):
            fresh |= _direct_wrappers(index, path)
    for _ in range(ROUNDS):
        if not fresh:
            return
        names, fresh = fresh, set()
        for path in sorted(index.raw):
            if rust_role(path) not in (Role.LIBRARY, Role.VENDORED):
                continue
            for file, call, around, wrapper in wrapper_calls(index, path, names):
                fresh |= _wrap(index, file, call, around, wrapper.key, wrapper)


def _direct_wrappers(index: RustIndex, path: str) -> set[str]:
    raw = index.raw[path]
    found = set(_macro_wrappers(index, path)) if b"macro_rules!" in raw and b"env" in raw else set()
    if not (_READ.search(raw) or _IMPORTED.search(raw)):
        return found
    for file, call, around in direct_reads(index, path):
        found |= _wrap(index, file, call, around, 0, None)
    return found


def direct_reads(index: RustIndex, path: str) -> Iterator[tuple[RustFile, Node, list[Node]]]:
    """Calls of `std::env::var` and its relatives that are code and not test code."""
    raw = index.raw[path]
    patterns = [_READ, _BARE] if _IMPORTED.search(raw) else [_READ]
    for pattern in patterns:
        for place, match in enumerate(pattern.finditer(raw)):
            if place > HITS:
                return
            file = index.opened(path)
            if file is None:
                return
            around = file.at(match.start(), match.start() + 1)
            if not is_code(around) or is_test(around):
                continue
            call = call_at(around, match.end() - 1)
            if call is not None:
                yield file, call, around[: around.index(call) + 1]


def call_at(around: list[Node], bracket: int) -> Node | None:
    """The call whose bracket opens at an offset."""
    for node in reversed(around):
        arguments = node.child_by_field_name("arguments") if node.type == "call_expression" else None
        if arguments is not None and arguments.start_byte == bracket:
            return node
    return None


def wrapper_calls(
    index: RustIndex, path: str, names: set[str] | None = None
) -> Iterator[tuple[RustFile, Node, list[Node], Wrapper]]:
    """Calls of wrappers in a file."""
    raw = index.raw[path]
    wanted = [n for n in sorted(names if names is not None else index.wrappers) if n.encode() in raw]
    if not wanted:
        return
    pattern = re.compile(
        rb"\b(" + b"|".join(n.encode() for n in wanted) + rb")\s*(?:::\s*<[^;{}()]{0,80}>)?\s*(!?)\s*[(\[{]"
    )
    for place, match in enumerate(pattern.finditer(raw)):
        if place > HITS or raw[max(0, match.start() - 3) : match.start()] == b"fn ":
            continue
        chosen = _chosen(index, match[1].decode(), path, macro=bool(match[2]), offset=match.start())
        file = index.opened(path) if chosen else None
        if file is None:
            continue
        around = file.at(match.start(), match.start() + 1)
        if not is_code(around) or is_test(around):
            continue
        if chosen[0].macro:
            call = next((n for n in reversed(around) if n.type == "macro_invocation"), None)
        else:
            call = call_at(around, match.end() - 1)
        if call is not None and (chosen[0].macro or _reaches(index, call, chosen[0])):
            for wrapper in chosen:  # one for each argument that is a name
                yield file, call, around[: around.index(call) + 1], wrapper


def _reaches(index: RustIndex, call: Node, wrapper: Wrapper) -> bool:
    """Whether a call of that name can mean a wrapper: of its type, or the only method of that name."""
    function = call.child_by_field_name("function")
    if function is not None and function.type == "generic_function":
        function = function.child_by_field_name("function")
    if function is not None and function.type == "field_expression":
        return bool(wrapper.owner) and len(index.functions.get(wrapper.name, [])) == 1
    owner = last_name(text_of(function).rpartition("::")[0])
    if wrapper.owner:
        return owner in (wrapper.owner, "Self")
    return not owner[:1].isupper()


def _chosen(index: RustIndex, name: str, path: str, *, macro: bool, offset: int) -> list[Wrapper]:
    """The wrapper that a name means in a file: a closure around, one of the file, else the only or equal ones."""
    found = [w for w in index.wrappers.get(name, []) if w.macro is macro]
    for wrapper in found:
        if wrapper.local is not None and wrapper.file == path and wrapper.local[0] <= offset < wrapper.local[1]:
            return [wrapper]
    found = [w for w in found if w.local is None]
    own = [w for w in found if w.file == path]
    if own:
        return own
    if any(place == path for place, _ in index.functions.get(name, [])) and not macro:
        return []  # another function of that name is defined here
    files = {w.file for w in found}
    if len(files) == 1:
        return found
    if found and (macro or len({(w.key, w.default, w.prefix) for w in found}) == 1):
        return found[:1]
    return []


def _wrap(
    index: RustIndex, file: RustFile, call: Node, around: list[Node], key: int, inner: Wrapper | None
) -> set[str]:
    """If the name that a call reads is a parameter of the function or closure around, that is a wrapper."""
    arguments = arguments_of(call, macro=inner is not None and inner.macro)
    if not 0 <= key < len(arguments):
        return set()
    text, prefix = parameter_in(index, file, arguments[key], around)
    if not text:
        return set()
    prefix = (inner.prefix if inner is not None else "") + prefix
    use = use_of(index, file, around)
    function = index.enclosing(file, around)
    for place in range(len(around) - 1, -1, -1):
        node = around[place]
        if node.type == "closure_expression":
            name = _closure_name(around, place)
            parameters = [
                re.split(r"\s*:", p)[0].strip()
                for p in split_top(text_of(node.child_by_field_name("parameters")).strip("|"))
            ]
            if text in parameters and name:
                holder = next((n for n in reversed(around[:place]) if n.type in ("block", "source_file")), node)
                return _add(
                    index,
                    Wrapper(
                        file.path,
                        name,
                        parameters.index(text),
                        -1,
                        use.value_type,
                        prefix,
                        use.default,
                        local=(holder.start_byte, holder.end_byte),
                    ),
                )
        if node.type == "function_item":
            break
    if function is None or text not in function.parameters:
        return set()
    default = next((i for i, p in enumerate(function.parameters) if _DEFAULT_PARAMETER.search(p) and p != text), -1)
    kind = use.value_type or type_word(function.returns)
    fixed = use.default if use.default not in function.parameters else None
    if use.default in function.parameters:
        default = function.parameters.index(use.default)
    wrapper = Wrapper(
        file.path, function.name, function.parameters.index(text), default, kind, prefix, fixed, owner=function.owner
    )
    return _add(index, wrapper)


def _add(index: RustIndex, wrapper: Wrapper) -> set[str]:
    known = index.wrappers.setdefault(wrapper.name, [])
    if any(
        (w.file, w.key, w.local, w.macro) == (wrapper.file, wrapper.key, wrapper.local, wrapper.macro) for w in known
    ):
        return set()
    known.append(wrapper)
    return {wrapper.name}


def _closure_name(around: list[Node], place: int) -> str:
    holder = around[place - 1] if place else None
    if holder is not None and holder.type == "let_declaration":
        return re.sub(r"^mut\s+", "", text_of(holder.child_by_field_name("pattern")))
    return ""


def parameter_in(index: RustIndex, file: RustFile, node: Node | str, around: list[Node]) -> tuple[str, str]:
    """(identifier, literal prefix) of a name expression such as `key`, `&key`, `format!("X_{}", key)`."""
    text = node if isinstance(node, str) else text_of(node)
    plain = re.fullmatch(
        r"&?\s*(?:mut\s+)?(\w+)((?:\s*\.\s*(?:as_ref|as_str|into|clone|to_string|as_ptr|deref)\(\))*)", text.strip()
    )
    if plain:
        if names_of(index, file, None if isinstance(node, str) else node, around):
            return "", ""  # a constant or a local value
        return plain[1], ""
    composed = re.fullmatch(r"&?\s*format!\s*\((.*)\)", text.strip(), re.DOTALL)
    if composed:
        parts = split_top(composed[1])
        template = re.fullmatch(r"\s*\"([^\"]*)\"\s*", parts[0]) if parts else None
        if template:
            inner = re.fullmatch(r"(\w*)\{(\w*)\}", template[1])
            if inner:
                given = inner[2] or (
                    re.sub(r"\.to_(ascii_)?uppercase\(\)", "", parts[1].strip().lstrip("&")) if len(parts) > 1 else ""
                )
                return (given, inner[1]) if re.fullmatch(r"\w+", given) else ("", "")
    return "", ""


def arguments_of(call: Node, *, macro: bool) -> list[Node | str]:
    """Arguments of a call; of a macro, which has no tree, as text."""
    if not macro:
        return list(call_arguments(call))
    tokens = next((c for c in call.named_children if c.type == "token_tree"), None)
    return [piece.strip() for piece in split_top(text_of(tokens)[1:-1])]


def macro_body(raw: bytes, start: int) -> str:
    """What stands between the brackets of a macro's definition."""
    depth, end = 1, start
    limit = min(len(raw), start + MACRO_BYTES)
    for match in re.compile(rb"[{}]").finditer(raw, start, limit):
        depth += 1 if match[0] == b"{" else -1
        end = match.end()
        if depth == 0:
            break
    return raw[start : end if depth == 0 else limit].decode("utf-8", "replace")


def _macro_wrappers(index: RustIndex, path: str) -> Iterator[str]:
    """Macros that hand one of their arguments to `std::env::var`."""
    raw = index.raw[path]
    for match in MACRO.finditer(raw):
        body = macro_body(raw, match.end())
        read = re.search(r"\b(?:env\s*::\s*var(?:_os)?\s*\(|(?:option_)?env!\s*\(|getenv\s*\()\s*&?\s*\$(\w+)", body)
        if not read:
            continue
        variables = [name for name, _ in _VARIABLE.findall(body[: body.find("=>")])]
        if read[1] not in variables:
            continue
        default = next((i for i, v in enumerate(variables) if _DEFAULT_PARAMETER.search(v)), -1)
        kind = re.search(r"parse\s*::\s*<\s*(\w+)", body)
        wrapper = Wrapper(
            path, match[1].decode(), variables.index(read[1]), default, type_word(kind[1]) if kind else None, macro=True
        )
        yield from _add(index, wrapper)
