"""Variables whose names a Rust macro composes from what it is given: `concat!("PREFIX_", stringify!($name))`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from synth.records import Kind, Observation, Role, When
from synth.walk.rust_index import HITS, RustFile, RustIndex, is_code, is_test, rust_role, type_word
from synth.walk.rust_names import split_top
from synth.walk.rust_wrappers import MACRO, macro_body
from synth.walk.syntax import Cited, one_line

_NAMED = re.compile(r"stringify!\s*\(\s*\$(\w+)\s*\)")
_COMPOSE = re.compile(r"\b(?:concat|concatcp|formatcp|format)!\s*\(")
_REPEAT = re.compile(r"\$\s*(\w+)\s*:\s*(ident|ty|expr|literal|tt|path|lit)")
_ENTRIES = 500


@dataclass(frozen=True)
class Family:
    """A macro that composes names.

    Attributes:
        pieces: of the name: literal text, `%name` for the given identifier, `%module` for the module it stands in.
        entry: pattern of one entry of an invocation, with a group for each of `groups`.
    """

    name: str
    pieces: tuple[str, ...]
    entry: re.Pattern[str]
    groups: tuple[str, ...]
    given: str


def families_of(index: RustIndex) -> dict[str, Family]:
    """Macros of the release that read variables under composed names."""
    found: dict[str, Family] = {}
    for path in sorted(index.raw):
        raw = index.raw[path]
        if (
            b"macro_rules!" not in raw
            or b"stringify!" not in raw
            or rust_role(path) not in (Role.LIBRARY, Role.VENDORED)
        ):
            continue
        for match in MACRO.finditer(raw):
            body = macro_body(raw, match.end())
            if not re.search(r"env\s*::\s*var", body):
                continue
            family = _family(match[1].decode(), body)
            if family is not None:
                found[family.name] = family
    return found


def _family(name: str, body: str) -> Family | None:
    matcher, _, expansion = body.partition("=>")
    for start in _COMPOSE.finditer(expansion):
        inner = _bracketed(expansion, start.end())
        given = _NAMED.search(inner)
        if not given:
            continue
        pieces: list[str] = []
        for piece in split_top(inner):
            literal = re.fullmatch(r'\s*"([^"{}]*)"\s*', piece)
            if literal:
                pieces.append(literal[1])
            elif _NAMED.search(piece):
                pieces.append("%name")
            elif "module_path!" in piece:
                pieces.append("%module")
        entry = _entry(matcher)
        if entry is not None and pieces and given[1] in entry[1]:
            return Family(name, tuple(pieces), entry[0], entry[1], given[1])
    return None


def _bracketed(text: str, start: int) -> str:
    depth, end = 1, start
    while end < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[start : end - 1]


def _entry(matcher: str) -> tuple[re.Pattern[str], tuple[str, ...]] | None:
    """Pattern of one repeated entry of a macro's input: `ref $name:ident : $type:ty = $value:expr ;`."""
    plain = re.sub(r"\$\(\s*#\s*\[[^\]]*\]\s*\)[*+]", " ", matcher)
    start = plain.find("$(")
    text = plain[start + 2 :] if start >= 0 else plain
    end = re.search(r"\)\s*[,;]?\s*[*+?]", text)
    text = text[: end.start()] if end else text
    groups: list[str] = []
    pattern, position = "", 0
    for match in _REPEAT.finditer(text):
        pattern += _literal(text[position : match.start()])
        pattern += r"([A-Za-z_]\w*)" if match[2] == "ident" else r"((?:[^;{}]|\{[^{}]*\}){1,300}?)"
        groups.append(match[1])
        position = match.end()
    if not groups:
        return None
    tail = _literal(text[position:])
    pattern += tail if tail.strip() else r"(?=[,;)}\]]|$)"
    try:
        return re.compile(pattern), tuple(groups)
    except re.error:
        return None


def _literal(text: str) -> str:
    return r"\s*" + r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s$()*+?]", text)) + r"\s*"


def composed_reads(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    """Observations of the names that invocations in a file give to such macros."""
    families = index.families
    for name, family in families.items():
        if name.encode() not in file.raw:
            continue
        for place, match in enumerate(re.finditer(rb"\b" + name.encode() + rb"!\s*[({\[]", file.raw)):
            if place > HITS:
                return
            around = file.at(match.start(), match.start() + 1)
            node = next((n for n in reversed(around) if n.type == "macro_invocation"), None)
            if node is None or not is_code(around) or is_test(around):
                continue
            text = file.raw[node.start_byte : node.end_byte].decode("utf-8", "replace")
            plain = re.sub(r"//[^\n]*|#\[[^\]]*\]", lambda m: " " * len(m[0]), text)
            offset = node.start_byte
            for count, entry in enumerate(family.entry.finditer(plain, text.find("!") + 1)):
                if count > _ENTRIES:
                    return
                yield _read(index, file, cited, family, entry, offset, plain)


def _read(
    index: RustIndex, file: RustFile, cited: Cited, family: Family, entry: re.Match[str], offset: int, text: str
) -> Observation:
    values = dict(zip(family.groups, (one_line(g or "") for g in entry.groups()), strict=True))
    start = entry.start(family.groups.index(family.given) + 1)
    line = file.raw.count(b"\n", 0, offset + len(text[:start].encode())) + 1
    module = file.path.removesuffix("/mod.rs").removesuffix(".rs").rpartition("/")[2]
    name = "".join(
        values[family.given] if piece == "%name" else module if piece == "%module" else piece for piece in family.pieces
    )
    others = [k for k in family.groups if k != family.given]
    kind = next((values[k] for k in others if type_word(values[k])), None)
    value = next((values[k] for k in reversed(others) if values[k] and values[k] != kind), None)
    return cited.observe(
        Kind.ENV_READ,
        name.upper(),
        (line, line),
        when=When.FIRST_USE,
        value=index.resolved(value, file.path) if value else None,
        value_type=type_word(kind),
        detail=f"name composed by the macro {family.name}!",
    )
