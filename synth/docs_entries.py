"""What documentation defines: a variable, key, option, callable or parameter with what is said of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from synth.records import Record

EntryKind = Literal["env", "config", "option", "api", "param"]
How = Literal["directive", "signature", "list", "table", "heading", "option list", "prose"]
SAID = 600  # characters of prose that an entry carries
_VALUE = 120

_VARIABLE = re.compile(r"_?[A-Z][A-Z0-9]*(?:_+[A-Z0-9]+)+(?:_\*)?|OMP_PLACES|[A-Z]{2,12}THREADS")
_KEY = re.compile(r"[a-z][\w-]*(?:\.[a-zA-Z_][\w-]*)+|[a-z]\w*(?:[-_]\w+)+")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_DEFAULTS = (
    re.compile(r"(?i:\bdefault(?:\s+value)?\s*(?:is|to|:|=|\u2192)+\s*)(?P<value>'[^']*'|\"[^\"]*\"|`[^`]*`|[^\s,;)\]]+)"),
    re.compile(r"(?i:\bdefaults?\s+to\s+(?:the\s+value\s+of\s+|the\s+)?)(?P<value>'[^']*'|\"[^\"]*\"|`[^`]*`|[^\s,;)\]]+)"),
    re.compile(r"(?i:\bby\s+default,?\s+(?:it\s+is\s+|this\s+is\s+)?)(?P<value>'[^']*'|\"[^\"]*\"|`[^`]*`|-?\d[\w.]*|True|False|None)"),
    re.compile(r"(?P<value>-?\d[\w.]*|True|False|None|'[^']*')\s+(?i:by\s+default|\(default\))"),
)  # fmt: skip
_EMPTY_WORDS = frozenset({"the", "a", "an", "to", "of", "for", "and", "is", "value", "values"})
_DEPRECATED = re.compile(
    r"(?i:deprecated)(?:\s+(?i:since|in|as\s+of|from))?(?:\s+(?i:version))?\s*v?(?P<version>\d+(?:\.\d+)+\w*)?"
)
_INSTEAD = re.compile(
    r"(?i:\b(?:use|in\s+favou?r\s+of|replaced\s+by|renamed\s+(?:to|as)|superseded\s+by))\s+(?:the\s+)?[`'\":\w]*?"
    r"(?P<name>[A-Za-z_][\w.]*\w)"
)
_SINCE = re.compile(r"(?i:(?:new|added)\s+in(?:\s+version)?)\s*v?(?P<version>\d+(?:\.\d+)+\w*)")


class Entry(Record):
    """One definition.

    Attributes:
        name: variable, dotted key, `--option`, dotted callable or `callable(parameter=)`.
        where: path or address of the document, line: 1-based.
        default: as the document states it, "" if it does not; type likewise.
        how: by which form it was found; `prose` is a mention only.
        deprecated: what to know about it, "" if nothing says that it is deprecated.
        since: version that it appeared in, as far as the document says.
    """

    name: str
    kind: EntryKind
    where: str
    line: int
    type: str = ""
    default: str = ""
    said: str = ""
    how: How = "list"
    deprecated: str = ""
    since: str = ""


def kind_of(name: str) -> EntryKind | None:
    """What a term on its own is the name of: a variable, an option or a dotted key; None for other words."""
    if _VARIABLE.fullmatch(name):
        return "env"
    if _OPTION.fullmatch(name):
        return "option"
    return "config" if _KEY.fullmatch(name) and len(name) < 100 else None


def variables_in(text: str) -> Iterator[str]:
    """Names that look like environment variables, in order."""
    for match in re.finditer(r"(?<![\w.*<{}>-])" + f"(?:{_VARIABLE.pattern})" + r"(?![\w.(]\w)", text):
        yield match[0]


def default_in(text: str) -> str:
    """The default that a sentence states, or ""."""
    near = text[:4_000]
    for match in sorted((m for p in _DEFAULTS if (m := p.search(near))), key=lambda m: m.start()):
        value = match["value"].strip("`'\"\u2018\u2019\u201c\u201d").rstrip(".:")
        if value and value.lower() not in _EMPTY_WORDS:
            return value[:_VALUE]
    return ""


def deprecated_in(text: str) -> str:
    """What a text says about being deprecated: the version and what to use, or ""."""
    match = _DEPRECATED.search(text[:4_000])
    if match is None or re.search(r"(?i:\bnot\s+$|\bun$)", text[: match.start()][-6:]):
        return ""
    said = f"deprecated since {match['version']}" if match["version"] else "deprecated"
    instead = _INSTEAD.search(text, match.end(), match.end() + 300)
    return f"{said}, use {instead['name']}" if instead is not None else said


def since_in(text: str) -> str:
    """The version that something appeared in, or ""."""
    match = _SINCE.search(text[:4_000])
    return match["version"] if match is not None else ""


def short(text: str, limit: int = SAID) -> str:
    """Text on one line, cut."""
    folded = " ".join(text[: limit * 3].split())
    return folded if len(folded) <= limit else folded[: limit - 3] + "..."


def entry(  # noqa: PLR0913 - it mirrors the record
    name: str,
    kind: EntryKind,
    where: str,
    line: int,
    said: str,
    *,
    how: How = "list",
    type_: str = "",
    default: str = "",
) -> Entry:
    """Build an entry; what its own fields do not say is looked for in the prose."""
    near = said[:4_000]
    stated = "" if kind == "api" else default_in(type_) or default or default_in(near)
    return Entry(
        name=name,
        kind=kind,
        where=where,
        line=line,
        type=short(re.sub(r",?\s*default\b.*", "", type_), 80),
        default=short(stated, _VALUE),
        said=short(said),
        how=how,
        deprecated=deprecated_in(near) if how != "prose" else "",
        since=since_in(near) if how != "prose" else "",
    )


def parameters_of(signature: str) -> list[tuple[str, str, str]]:
    """(name, type, default) of each parameter of a signature's inside, in time linear in its length."""
    found: list[tuple[str, str, str]] = []
    for piece in _split(signature[:20_000]):
        head, _, default = _cut(piece, "=")
        name, _, kind = _cut(head, ":")
        name = name.strip().lstrip("*")
        if re.fullmatch(r"[A-Za-z_]\w*", name) and len(found) < 300:
            found.append((name, kind.strip()[:_VALUE], default.strip()[:_VALUE]))
    return found


def _split(text: str) -> list[str]:
    pieces, depth, start, quote = [], 0, 0, ""
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            pieces.append(text[start:place])
            start = place + 1
    return [*pieces, text[start:]]


def _cut(text: str, mark: str) -> tuple[str, str, str]:
    """As `str.partition`, outside of brackets."""
    depth = 0
    for place, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == mark and depth <= 0:
            return text[:place], mark, text[place + 1 :]
    return text, "", ""
