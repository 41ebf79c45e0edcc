"""From text to a `File`, with every syntax error of the text in one pass.

The whole text is parsed once. Only if that fails, it is cut into clauses by a scanner that knows strings,
comments and braces, and each clause is parsed alone: each bad clause then gives its own diagnostic, and the good
ones still make a contract.

Whatever the text is, the work is bounded: by its size, by the number of its words, by the depth of the parser's stack
and by the number of findings. No word is given to the parser more than twice.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

from lark import Token, Tree

from lpcl.build import Builder, span_of
from lpcl.diagnostics import Diagnostic
from lpcl.lalr import Feed, LimitStop, SyntaxStop, read
from lpcl.model import LANGUAGE_VERSION, Contract, File, Span
from lpcl.tables import keywords, parser

__all__ = ["Parsed", "comments", "keywords", "parse", "parse_tree", "parser", "read_text"]

MAX_BYTES = 1 << 20
# Words, numbers, strings, signs and comments: what reading costs goes with their number, not with the bytes. Ten times
# what the largest shipped contract has.
MAX_WORDS = 50_000
# Past this many errors in one text nobody reads on, and each costs a parse.
MAX_FINDINGS = 100
MAX_DEPTH = 48
# States on the parser's stack. An expression at its greatest depth takes a third of it; open brackets take the rest.
MAX_STACK = 1_000

_NAMES = {
    "NAME": "a name",
    "INT": "a number",
    "NUMBER": "a number",
    "QUANTITY": "a quantity such as `4GiB`",
    "STRING": 'a string in `"`',
    "$END": "the end of the file",
    "COMPARE": "a comparison",
}
_CLAUSE_WORDS = frozenset(
    {"package", "native", "summary", "uses", "carries", "demand", "assume", "control", "signal", "mitigate"}
)
# What stands before the properties of a clause.
_BEHIND = {
    "demand": "demand d: r {",
    "assume": "assume a {",
    "control": "control c: int {",
    "signal": "signal s: gauge {",
    "mitigate": "mitigate m {",
}
_CLAUSE_AT = re.compile(r"(?:demand|control|signal)\s+\w+\s*:|(?:assume|mitigate)\s+\w+\s*\{")
_LINE = re.compile(r"\n[ \t]*([A-Za-z_]\w*)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_SCAN = re.compile(r'"(?:[^"\\\n]+|\\.)*"?|//[^\n]*|[{}]|[A-Za-z_]\w*|\d+|\S')
_COMMENT = re.compile(r'"(?:[^"\\\n]+|\\.)*"?|(//[^\n]*)')


@dataclass(frozen=True, slots=True)
class Parsed:
    """The outcome: `file` holds what could be read (None if nothing), `diagnostics` all that was wrong."""

    file: File | None
    diagnostics: tuple[Diagnostic, ...]
    # Words that were given to the parser, all tries together: what the work was, free of any clock.
    work: int = field(default=0, compare=False)

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return self.file is not None and not any(d.severity == "error" for d in self.diagnostics)


def read_text(path: Path) -> str:
    """The text of a file, as `parse` wants it.

    No more is read than shows that a file is too large, and a byte that is not of UTF-8 becomes a lone surrogate, so
    that `parse` finds both (LP001, LP008).
    """
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1).decode("utf-8", "surrogateescape")


def parse(text: str, *, file: str = "") -> Parsed:
    """Read LPCL.

    Args:
        text: the whole file.
        file: its path, for diagnostics only.

    Returns:
        What could be read and every syntax error, in the order of the text. Never raises on bad text.
    """
    return parse_tree(text, file=file)[0]


def parse_tree(text: str, *, file: str = "") -> tuple[Parsed, Tree[Token] | None]:
    """As `parse`, with the tree of the text if nothing in it is wrong."""
    refused = _refused(text, file)
    if refused is not None:
        return Parsed(None, (refused,)), None
    feed = Feed(MAX_STACK, MAX_FINDINGS)
    try:
        tree = read(text, "start", feed)
    except SyntaxStop as stop:
        return _recover(text, stop, feed, file), None
    except LimitStop as stop:
        return Parsed(None, _ordered([*_glued(text, feed, file), *_limit(text, stop, file)]), feed.work), None
    builder = Builder(file)
    deep = _too_deep(tree, file)
    if deep is not None:
        return Parsed(None, _ordered([deep, *_glued(text, feed, file)]), feed.work), None
    contracts = tuple(builder.contract(c) for c in tree.children[1:])  # type: ignore[arg-type]
    version = int(str(tree.children[0].children[0])[:9])  # type: ignore[union-attr]
    found = [*builder.diagnostics, *_glued(text, feed, file), *_version(version, tree, file)]
    parsed = Parsed(File(version, contracts, tuple(comments(text))), _ordered(found), feed.work)
    return parsed, tree if parsed.ok else None


def _refused(text: str, file: str) -> Diagnostic | None:
    """Why a text is not looked at."""
    size = len(text)
    if size <= MAX_BYTES and not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            span, help_text = _place(text, error.start, error.start + 1), "save it as UTF-8"
            return Diagnostic("LP008", "error", "the file is not UTF-8", span, help_text, file)
    if size > MAX_BYTES:
        message = f"file is larger than {MAX_BYTES >> 20} MiB"
        return Diagnostic("LP001", "error", message, help="split it by contract", file=file)
    # A word has one character at least.
    word = next(islice(_SCAN.finditer(text), MAX_WORDS, None), None) if size > MAX_WORDS else None
    if word is not None:
        message = f"file holds more than {MAX_WORDS} words and signs"
        span = _place(text, word.start(), word.start() + 1)
        return Diagnostic("LP007", "error", message, span, "split it by contract", file)
    return None


def _place(text: str, start: int, end: int) -> Span:
    """The span of a part of one line."""
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return Span(line, column, line, column + end - start, start, end)


def _ordered(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda d: (d.span.line, d.span.column, d.rule))[:MAX_FINDINGS])


def _version(version: int, tree: Tree[Token], file: str) -> Iterator[Diagnostic]:
    if version != LANGUAGE_VERSION:
        span = span_of(tree.children[0])
        help_text = f"this release reads `lpcl {LANGUAGE_VERSION}`; a newer one may read yours"
        yield Diagnostic("LP002", "error", f"language version {version} is not known", span, help_text, file)


def _too_deep(tree: Tree[Token], file: str) -> Diagnostic | None:
    # Everything behind the parser recurses over expressions: their depth is bounded here, once, iteratively.
    stack: list[tuple[Tree[Token], int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            at = node.meta
            span = Span(at.line, at.column, at.line, at.column + 1, at.start_pos, at.start_pos + 1)
            return _deep(span, f"expression nests deeper than {MAX_DEPTH} levels", file)
        stack.extend((c, depth + 1) for c in node.children if isinstance(c, Tree))
    return None


def _deep(span: Span, message: str, file: str) -> Diagnostic:
    return Diagnostic("LP003", "error", message, span, "name a part of it as a control of its own", file)


def comments(text: str) -> Iterator[tuple[Span, str]]:
    """Every comment with its span, in order."""
    line, line_start, position = 1, 0, 0
    for match in _COMMENT.finditer(text):
        if match[1] is not None:
            line += text.count("\n", position, match.start())
            line_start = text.rfind("\n", 0, match.start()) + 1
            position = match.start()
            column = match.start() - line_start + 1
            body = match.group().rstrip()
            yield Span(line, column, line, column + len(body), match.start(), match.start() + len(body)), body


def _glued(text: str, feed: Feed, file: str) -> Iterator[Diagnostic]:
    """A finding for each two words without a space."""
    for start, here, end in feed.glued:
        one, two = _shown(text[start:here]), _shown(text[here:end])
        message = f"`{one}` and `{two}` are written without a space between them"
        yield Diagnostic("LP004", "error", message, _place(text, here, end), f"write `{one} {two}`", file)


def _limit(text: str, stop: LimitStop, file: str) -> Iterator[Diagnostic]:
    """A finding for a stack that is too deep; glued words give their own."""
    if stop.stack:
        span = _place(text, stop.position, stop.position + 1)
        yield _deep(span, "brackets and expressions nest too deep", file)


def _shown(word: str) -> str:
    return word if len(word) <= 60 else word[:57] + "..."


# ------------------------------------------------------------------- recovery


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One clause of a contract, by offsets."""

    start: int
    end: int


def _recover(text: str, first: SyntaxStop, feed: Feed, file: str) -> Parsed:
    """Parse clause by clause: one diagnostic a bad clause."""
    feed.glued = []
    header = re.match(r"\s*(?://[^\n]*\n\s*)*lpcl(?:\s|//[^\n]*\n)+([0-9]+)", text)
    found: list[Diagnostic] = []
    if header is None:
        help_text = f"start the file with `lpcl {LANGUAGE_VERSION}`"
        found.append(Diagnostic("LP002", "error", "no language version at the start", Span(), help_text, file))
    elif int(header[1][:9]) != LANGUAGE_VERSION:
        message = f"language version {header[1][:9]} is not known"
        help_text = f"this release reads `lpcl {LANGUAGE_VERSION}`"
        found.append(Diagnostic("LP002", "error", message, Span(), help_text, file))
    contracts: list[Contract] = []
    lines = [0, *(m.end() for m in re.finditer("\n", text))]
    for name, chunks in _contracts(text):
        if len(found) >= MAX_FINDINGS:
            break
        builder = Builder(file)
        clauses: list[Tree[Token]] = []
        for chunk in chunks:
            if len(found) + len(feed.glued) >= MAX_FINDINGS:
                break
            parsed = _parse_chunk(text, chunk, lines, feed, file)
            if isinstance(parsed, Tree):
                clauses.append(parsed)
            else:
                found += islice(parsed, MAX_FINDINGS - len(found))
        contracts.append(builder.assemble(name, clauses))
        found += builder.diagnostics
    found += _glued(text, feed, file)
    if not any(d.severity == "error" for d in found) or (header is not None and not contracts):
        found.append(explain(text, first, file))
    version = int(header[1][:9]) if header else LANGUAGE_VERSION
    read = File(version, tuple(contracts), tuple(comments(text))) if contracts else None
    return Parsed(read, _ordered(found), feed.work)


@dataclass
class _Cutter:
    """Cuts a damaged text into the clauses of its contracts, by braces and by the words that open a clause."""

    name: str = ""
    depth: int = 0
    start: int = -1
    chunks: list[_Chunk] = field(default_factory=list)

    def close(self, offset: int) -> None:
        """End the clause that is open, if any."""
        if self.start >= 0:
            self.chunks.append(_Chunk(self.start, offset))
        self.start = -1

    def word(self, offset: int, word: str, previous: str) -> None:
        """Take a word directly inside a contract: it may open a clause, or be one that is none."""
        opens = word in _CLAUSE_WORDS and previous not in _CLAUSE_WORDS
        if opens or self.start < 0 or previous == "}":
            self.close(offset)
            self.start = offset


def _contracts(text: str) -> Iterator[tuple[str, list[_Chunk]]]:
    """The contracts of a damaged text: each name with the offsets of its clauses."""
    here, previous = _Cutter(), ""
    for match in _SCAN.finditer(text):
        word = match.group()
        if word.startswith("//"):
            continue
        if here.depth == 0 and previous == "contract":
            here.name = word
        if word == "{":
            here.depth += 1
        elif word == "}":
            here.depth -= 1
            if here.depth <= 0:
                here.close(match.start())
                if here.name:
                    yield here.name, here.chunks
                here = _Cutter()
        elif here.depth == 1:
            here.word(match.start(), word, previous)
        previous = word
    if here.name:
        here.close(len(text))
        yield here.name, here.chunks


def _parse_chunk(
    text: str, chunk: _Chunk, lines: list[int], feed: Feed, file: str
) -> Tree[Token] | Iterable[Diagnostic]:
    """The tree of a clause, or what is wrong with it; `lines` holds the offsets at which the lines start."""
    try:
        tree = read(text, "clause", feed, (chunk.start, chunk.end), bisect_right(lines, chunk.start))
    except SyntaxStop as stop:
        return _in_clause(text, stop, chunk, lines, feed, file)
    except LimitStop as stop:
        return _limit(text, stop, file)
    deep = _too_deep(tree, file)
    return tree.children[0] if deep is None else (deep,)  # type: ignore[return-value]


def _in_clause(
    text: str, stop: SyntaxStop, chunk: _Chunk, lines: list[int], feed: Feed, file: str
) -> Iterator[Diagnostic]:
    """What is wrong in a clause: reading goes on at the next line that starts like a property, or like a clause."""
    clause = _WORD.match(text, chunk.start)
    behind = _BEHIND.get(clause.group() if clause else "")
    here: SyntaxStop | None = stop
    while here is not None:
        yield explain(text, here, file, chunk.start, chunk.end)
        if behind is None or here.end:
            return
        clause = _CLAUSE_AT.match(text, here.position, chunk.end)
        if clause is not None:  # the brace of the clause before it is missing
            yield from _next_clause(text, _Chunk(clause.start(), chunk.end), lines, feed, file)
            return
        start = _property_after(text, here.position, chunk.end, behind)
        if start is None:
            return
        try:
            read(text, "clause", feed, (start, chunk.end), bisect_right(lines, start), behind=behind)
            here = None
        except SyntaxStop as again:
            here = again
        except LimitStop as limit:
            yield from _limit(text, limit, file)
            return


def _next_clause(text: str, chunk: _Chunk, lines: list[int], feed: Feed, file: str) -> Iterable[Diagnostic]:
    """What is wrong in a clause that starts inside of another one; braces behind its own belong to nobody."""
    depth = 0
    # Where braces are missing, each clause would be searched to the end of the text.
    for match in islice(_SCAN.finditer(text, chunk.start, chunk.end), MAX_WORDS // MAX_FINDINGS):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if match.group() == "}" and depth <= 0:
            chunk = _Chunk(chunk.start, match.end())
            break
    parsed = _parse_chunk(text, chunk, lines, feed, file)
    return () if isinstance(parsed, Tree) else parsed


def _property_after(text: str, position: int, end: int, behind: str) -> int | None:
    """Where the next line starts whose first word is, or was meant to be, one of a property of this kind of clause."""
    words = _first_words(behind)
    for n, match in enumerate(_LINE.finditer(text, position, end)):
        near = n < MAX_FINDINGS and len(match[1]) <= 20 and difflib.get_close_matches(match[1], words, 1, 0.75)
        if match[1] in words or near:
            return match.start(1)
    return None


@lru_cache(maxsize=8)
def _first_words(behind: str) -> frozenset[str]:
    try:
        read(behind, "clause", Feed(MAX_STACK, 1))
    except SyntaxStop as stop:
        return frozenset(w for t in stop.expected for w in keywords().get(t, ()) if w[0].isalpha())
    return frozenset()


def explain(text: str, stop: SyntaxStop, file: str, start: int = 0, end: int | None = None) -> Diagnostic:
    """A diagnostic for a place in a part of a text, with the words that could stand there."""
    end = len(text) if end is None else end
    # Behind the last word, not behind the spaces and comments that may follow it.
    position = start + len(text[start:end].rstrip()) if stop.end else stop.position
    expected = stop.expected
    word_match = re.compile(r'[A-Za-z_]\w*|"[^"\n]*"?|\S').match(text, position, end)
    word = word_match.group() if word_match else ""
    # A keyword at the start of a longer word was read as it: `int` of `integer`.
    whole = position
    while word and word[0] in _LETTERS and whole > start and text[whole - 1] in _LETTERS and position - whole < 64:
        whole -= 1
    read_as = text[whole:position]
    word, position = read_as + word, whole
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    span = Span(line, column, line, column + max(1, len(word)), position, position + max(1, len(word)))
    words = sorted({w for t in expected for w in keywords().get(t, ())})
    others = sorted({_NAMES[t] for t in expected if t in _NAMES})
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6) if len(word) <= 40 else []
    choices = [f"`{w}`" for w in words] + others
    if read_as:
        help_text = f"did you mean `{read_as}`?"
    elif word[:1] == '"' and (len(word) == 1 or word[-1] != '"'):
        return Diagnostic("LP000", "error", "the string is not closed", span, 'end it with `"` on its line', file)
    elif word in _BEHIND and "}" not in word and "RBRACE" in expected:
        help_text = "is a `}` missing before it?"
    elif near:
        help_text = f"did you mean `{near[0]}`?"
    elif choices:
        shown = ", ".join(choices[:14]) + (" ..." if len(choices) > 14 else "")
        help_text = f"expected {shown}"
    else:
        help_text = ""
    message = f"`{_shown(word)}` cannot stand here" if word else "the text ends too early"
    return Diagnostic("LP000", "error", message, span, help_text, file)
