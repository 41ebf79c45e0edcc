"""What the documentation of a release says about the controls that its code has.

Nothing in a document is executed: reStructuredText is read by the structure of its lines, so that directives such as
`include` and `raw` are text like any other; HTML is parsed without loading anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bs4 import Tag
from bs4.element import PageElement
from markdown_it import MarkdownIt

from synth.docs_soup import soup_of
from synth.docs_text import is_man, plain_man
from synth.records import Kind, Observation, Role
from synth.walk.syntax import Cited
from synth.walk.words import resource_constant

DOC_NAMES = frozenset({"PKG-INFO", "METADATA", "README", "NEWS", "CHANGES", "CHANGELOG"})
DOC_SUFFIXES = frozenset({".rst", ".md", ".markdown", ".txt", ".html", ".htm"})
PASSAGES_PER_NAME = 4  # of one file
_LANGUAGES = {".rst": "rst", ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}
_NOT_PROSE = re.compile(
    r"(^|/)(requirements[\w.-]*|constraints[\w.-]*|licen[cs]e[\w.-]*|authors[\w.-]*|manifest[\w.-]*|sources|top_level|"
    r"entry_points|cmakelists|dependency_links|not-zip-safe|requires|thanks|contributors[\w.-]*|copying[\w.-]*)\.txt$",
    re.IGNORECASE,
)
_HEADING_RULE = re.compile(r"^([=\-`:.'\"~^_*+#<>])\1{2,}\s*$")
_ITEM = re.compile(r"^(\s*)([-*+•]|\d{1,3}[.)]|#\.|\(\w\))\s+\S")
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_UPPER = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_PLAIN_WORDS = frozenset(
    {"get", "set", "limit", "wrap", "select", "info", "load", "dump", "compute", "config", "cache"}
)
_MAX_PASSAGE_LINES = 30


@dataclass(frozen=True)
class Passage:
    """A paragraph, list item or definition, 1-based lines, with the headings above it."""

    line: int
    end_line: int
    text: str
    headings: tuple[str, ...]


class Names:
    """The controls to look for, by the words that a passage must contain."""

    def __init__(self, names: Iterable[str]) -> None:
        """Index environment variables, dotted names and `callable(parameter=)`."""
        self.exact: dict[str, list[str]] = {}
        self.parameters: dict[str, list[tuple[str, str]]] = {}
        for name in sorted(names):
            match = re.fullmatch(r"(.+)\((\w+)=\)", name)
            if match:
                self.parameters.setdefault(match[2], []).append((match[1].rpartition(".")[2], name))
                continue
            if "*" in name:
                continue
            last = name.rpartition(".")[2]
            keys = {name, last} if last not in _PLAIN_WORDS and len(last) > 5 else {name}
            for key in keys:
                self.exact.setdefault(key, []).append(name)

    def named_in(self, text: str) -> list[str]:
        """Controls that a passage names, in order of appearance."""
        words = _TOKEN.findall(text)
        parts = {part for word in words for part in word.split(".")}
        found: dict[str, None] = {}
        for word in words:
            for key in (word, word.rpartition(".")[2]):
                for name in self.exact.get(key, []):
                    if key == word or "." not in word or name.rpartition(".")[2] == key:
                        found.setdefault(name)
            for owner, name in self.parameters.get(word, []):
                if owner in parts:
                    found.setdefault(name)
        for name in _UPPER.findall(text):
            if resource_constant(name):
                found.setdefault(name)
        return list(found)


def is_document(path: str) -> bool:
    """Whether a file is prose by its name."""
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return f".{suffix}" in DOC_SUFFIXES or name in DOC_NAMES or is_man(path)


def walk_docs(source: bytes, file: str, role: Role, names: Iterable[str] | Names) -> list[Observation]:
    """Observe the passages of a document that name a control.

    Args:
        source: raw bytes of the document.
        file: path relative to the release's root.
        role: role of the file.
        names: controls seen in code: environment variables, dotted names, `callable(parameter=)`. Upper-case
            identifiers that speak of threads, workers, processors or memory are found without.
    """
    if _NOT_PROSE.search("/" + file):
        return []
    wanted = names if isinstance(names, Names) else Names(names)
    suffix = "." + file.rpartition(".")[2].lower() if "." in file.rpartition("/")[2] else ""
    language = _LANGUAGES.get(suffix, "text")
    cited = Cited(source, file, role, language)
    counts: dict[str, int] = {}
    found: list[Observation] = []
    for passage in passages(source, file):
        for name in wanted.named_in(passage.text):
            counts[name] = counts.get(name, 0) + 1
            if counts[name] <= PASSAGES_PER_NAME:
                lines = (passage.line, passage.end_line)
                found.append(cited.observe(Kind.DOC, name, lines, detail=" > ".join(passage.headings)))
    return found


def passages(source: bytes, file: str) -> Iterator[Passage]:
    """Passages of a document with their lines."""
    name = file.rpartition("/")[2]
    text = _decode(source)
    lower = name.lower()
    if name in ("PKG-INFO", "METADATA"):
        yield from _metadata(text)
    elif lower.endswith((".md", ".markdown")):
        yield from _markdown(text, 0)
    elif lower.endswith((".html", ".htm")):
        yield from _html(text)
    elif is_man(file):
        yield from _structured(plain_man(text).split("\n"), 0)
    else:
        yield from _structured(text.split("\n"), 0)


def _decode(source: bytes) -> str:
    """Text whose lines are those of the bytes, so that line numbers hold."""
    body = source[3:] if source.startswith(b"\xef\xbb\xbf") else source
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = body.decode("latin-1")
    # other line ends than LF must not be counted by the parsers
    return text.replace("\r\n", "\n").replace("\r", " ").replace("\x0c", " ")


def _metadata(text: str) -> Iterator[Passage]:
    """The long description of core metadata: the body, or the folded `Description` field of old versions."""
    lines = text.split("\n")
    blank = next((place for place, line in enumerate(lines) if not line.strip()), len(lines))
    header, body = lines[:blank], lines[blank + 1 :]
    if any(line.lower().startswith("description-content-type: text/markdown") for line in header):
        yield from _markdown("\n".join(body), blank + 1)
        return
    yield from _structured(body, blank + 1)


# reStructuredText and plain text


def structured(lines: list[str], offset: int) -> Iterator[Passage]:
    """Passages of reStructuredText or plain text whose first line is line `offset + 1` of its file."""
    return _structured(lines, offset)


def _structured(lines: list[str], offset: int) -> Iterator[Passage]:
    headings: list[tuple[str, str]] = []
    styles: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if not line.strip():
            place += 1
            continue
        title = _heading(lines, place)
        if title is not None:
            words, style, used = title
            if style not in styles:
                styles.append(style)
            level = styles.index(style)
            headings = [*headings[:level], (words, style)]
            place += used
            continue
        end = _block_end(lines, place)
        text = "\n".join(lines[place:end])
        if not (_HEADING_RULE.match(text.strip()) or text.strip().startswith(".. _")):
            yield Passage(place + 1 + offset, end + offset, text, tuple(words for words, _ in headings))
        place = end


def _heading(lines: list[str], place: int) -> tuple[str, str, int] | None:
    """(title, style, lines used) if a section title starts here."""
    line = lines[place]
    following = lines[place + 1] if place + 1 < len(lines) else ""
    rule = _HEADING_RULE.match(line)
    if rule and following.strip() and place + 2 < len(lines):
        below = _HEADING_RULE.match(lines[place + 2])
        if below and below[1] == rule[1]:
            return following.strip(), rule[1] * 2, 3
    below = _HEADING_RULE.match(following)
    if below and not line.startswith((" ", "\t")) and len(following.strip()) >= min(len(line.strip()), 3):
        return line.strip(), below[1], 2
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _block_end(lines: list[str], start: int) -> int:
    """First line after the passage that starts at `start`."""
    base = _indent(lines[start])
    item = bool(_ITEM.match(lines[start]))
    end = start + 1
    while end < len(lines) and lines[end].strip() and end - start < _MAX_PASSAGE_LINES:
        if _ITEM.match(lines[end]) and _indent(lines[end]) <= base:
            return end
        if item and _indent(lines[end]) < base:
            return end
        end += 1
    # a term, a directive with its argument, or an option: its text follows after an empty line, indented
    if end - start == 1 and not item and end + 1 < len(lines) and _indent(lines[end + 1]) > base:
        following = end + 1
        while following < len(lines) and lines[following].strip() and following - start < _MAX_PASSAGE_LINES:
            following += 1
        if lines[start].lstrip().startswith((".. ", ":")) or lines[start].rstrip().endswith(":"):
            return following
    return end


# Markdown


def _markdown(text: str, offset: int) -> Iterator[Passage]:
    headings: list[tuple[int, str]] = []
    level = 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "heading_open":
            level = int(token.tag[1:])
        elif token.type == "heading_close":
            level = 0
        elif token.type in ("inline", "fence", "code_block", "html_block") and token.map is not None:
            if level:
                headings = [item for item in headings if item[0] < level] + [(level, token.content.strip())]
                continue
            first, after = token.map
            titles = tuple(title for _, title in headings)
            yield Passage(first + 1 + offset, min(after, first + _MAX_PASSAGE_LINES) + offset, token.content, titles)


# HTML

_MAX_NESTING = 200  # elements around a passage
_BLOCKS = ("p", "li", "dt", "dd", "td", "pre", "h1", "h2", "h3", "h4", "h5", "h6")


def _html(text: str) -> Iterator[Passage]:
    soup = soup_of(text)
    headings: list[tuple[int, str]] = []
    last = text.count("\n") + 1
    stack: list[tuple[PageElement, int]] = [(soup, 0)]
    while stack:
        tag, depth = stack.pop()
        if not isinstance(tag, Tag) or tag.name in ("script", "style"):
            continue
        if tag.name not in _BLOCKS or tag.find(_BLOCKS) is not None:
            if depth < _MAX_NESTING:  # deeper than that is no document, and would take its depth squared
                stack.extend((child, depth + 1) for child in reversed(tag.contents))
            continue
        words = tag.get_text(" ", strip=True)
        if tag.name[0] == "h":
            level = int(tag.name[1])
            headings = [item for item in headings if item[0] < level] + [(level, words[:120])]
        elif tag.sourceline is not None:
            end = min(tag.sourceline + str(tag).count("\n"), last, tag.sourceline + _MAX_PASSAGE_LINES)
            yield Passage(tag.sourceline, end, words, tuple(title for _, title in headings))
