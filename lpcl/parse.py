"""From text to a `File`, with every syntax error of the text in one pass.

The whole text is parsed once. Only if that fails, it is cut into clauses by a scanner that knows strings,
comments and braces, and each clause is parsed alone: each bad clause then gives its own diagnostic, and the good
ones still make a contract.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from lpcl.build import Builder, span_of
from lpcl.diagnostics import Diagnostic
from lpcl.model import LANGUAGE_VERSION, Contract, File, Span

MAX_BYTES = 1 << 20
# Past this many errors in one text nobody reads on, and each costs a parse.
MAX_FINDINGS = 100
MAX_DEPTH = 48

_NAMES = {
    "NAME": "a name",
    "INT": "a number",
    "NUMBER": "a number",
    "QUANTITY": "a quantity such as `4GiB`",
    "STRING": 'a string in `"`',
    "$END": "the end of the file",
    "COMPARE": "a comparison",
}
_CLAUSE_WORDS = frozenset({"package", "native", "summary", "uses", "demand", "assume", "control", "signal", "mitigate"})
_SCAN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|[{}]|[A-Za-z_]\w*|\d+|\S')
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|(//[^\n]*)')
_WORD = re.compile(r"[A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The outcome: `file` holds what could be read (None if nothing), `diagnostics` all that was wrong."""

    file: File | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return self.file is not None and not any(d.severity == "error" for d in self.diagnostics)


@lru_cache(maxsize=1)
def parser() -> Lark:
    """The LALR parser of `grammar.lark`; built once per process."""
    grammar = resources.files("lpcl").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", start=["start", "clause"], propagate_positions=True)


def parse(text: str, *, file: str = "") -> Parsed:
    """Read LPCL.

    Args:
        text: the whole file.
        file: its path, for diagnostics only.

    Returns:
        What could be read and every syntax error, in the order of the text. Never raises on bad text.
    """
    if len(text) > MAX_BYTES:
        message = f"file is larger than {MAX_BYTES >> 20} MiB"
        return Parsed(None, (Diagnostic("LP001", "error", message, help="split it by contract", file=file),))
    try:
        tree, glued = _read(text, file)
    except UnexpectedInput as error:
        return _recover(text, error, file)
    builder = Builder(file)
    deep = _too_deep(tree, file)
    if deep is not None:
        return Parsed(None, (deep,))
    contracts = tuple(builder.contract(c) for c in tree.children[1:])  # type: ignore[arg-type]
    version = int(str(tree.children[0].children[0])[:9])  # type: ignore[union-attr]
    found = [*builder.diagnostics, *glued, *_version(version, tree, file)]
    return Parsed(File(version, contracts, tuple(comments(text))), _ordered(found))


def _ordered(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda d: (d.span.line, d.span.column, d.rule)))


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
            message = f"expression nests deeper than {MAX_DEPTH} levels"
            return Diagnostic("LP003", "error", message, span, "name a part of it as a control of its own", file)
        stack.extend((c, depth + 1) for c in node.children if isinstance(c, Tree))
    return None


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


def _read(text: str, file: str) -> tuple[Tree[Token], list[Diagnostic]]:
    """Parse the whole text, once; raises Lark's exceptions.

    The grammar has no word boundaries (not every engine that reads it knows them), so `controlthreads: int` parses
    as `control threads`. Two word tokens without anything between them are found here, on their way to the parser.
    """
    found: list[Diagnostic] = []
    steps = parser().parse_interactive(text, start="start")
    last: Token | None = None
    try:
        for token in steps.iter_parse():
            if last is not None and last.end_pos == token.start_pos and _WORD.match(last[-1]) and _WORD.match(token):
                span = span_of(token)
                one, two = _shown(last), _shown(token)
                message = f"`{one}` and `{two}` are written without a space between them"
                found.append(Diagnostic("LP004", "error", message, span, f"write `{one} {two}`", file))
            last = token
        tree: Tree[Token] = steps.feed_eof(last)  # type: ignore[no-untyped-call]
    except UnexpectedInput as error:
        error.interactive_parser = steps  # `explain` asks it which words could stand there
        raise
    return tree, found


def _shown(word: str) -> str:
    return word if len(word) <= 60 else word[:57] + "..."


# ------------------------------------------------------------------- recovery


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One clause of a contract, by offsets."""

    start: int
    end: int


def _recover(text: str, first: UnexpectedInput, file: str) -> Parsed:
    """Parse clause by clause: one diagnostic a bad clause."""
    header = re.match(r"\s*(?://[^\n]*\n\s*)*lpcl\s+([0-9]+)", text)
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
            if len(found) >= MAX_FINDINGS:
                break
            parsed = _parse_chunk(text, chunk, lines, file)
            if isinstance(parsed, Diagnostic):
                found.append(parsed)
            else:
                clauses.append(parsed)
        contracts.append(builder.assemble(name, clauses))
        found += builder.diagnostics
    if not any(d.severity == "error" for d in found) or (header is not None and not contracts):
        found.append(explain(text, first, file))
    version = int(header[1][:9]) if header else LANGUAGE_VERSION
    return Parsed(File(version, tuple(contracts), tuple(comments(text))) if contracts else None, _ordered(found))


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


def _parse_chunk(text: str, chunk: _Chunk, lines: list[int], file: str) -> Tree[Token] | Diagnostic:
    """The tree of a clause, or what is wrong with it; `lines` holds the offsets at which the lines start."""
    try:
        tree = parser().parse(text[chunk.start : chunk.end], start="clause")
    except UnexpectedInput as error:
        return explain(text, error, file, chunk.start, chunk.end)
    line = bisect_right(lines, chunk.start)
    _shift(tree, chunk.start, line - 1, chunk.start - lines[line - 1])
    return _too_deep(tree, file) or tree.children[0]  # type: ignore[return-value]


def _shift(tree: Tree[Token], offset: int, lines: int, columns: int) -> None:
    """Move positions in a part of a text to where the part stands."""
    stack: list[Tree[Token] | Token | None] = [tree]
    while stack:
        node = stack.pop()
        place: Any = node.meta if isinstance(node, Tree) else node
        if isinstance(node, Tree):
            stack.extend(node.children)
        if place is None or (isinstance(node, Tree) and place.empty):
            continue
        place.column += columns if place.line == 1 else 0
        place.end_column += columns if place.end_line == 1 else 0
        place.line += lines
        place.end_line += lines
        place.start_pos += offset
        place.end_pos += offset


@lru_cache(maxsize=1)
def keywords() -> dict[str, tuple[str, ...]]:
    """Terminal of the grammar -> the words that it stands for."""
    table: dict[str, tuple[str, ...]] = {}
    for terminal in parser().terminals:
        if isinstance(terminal.pattern, PatternStr):
            table[terminal.name] = (terminal.pattern.value,)
        else:
            body = terminal.pattern.value.removeprefix("(?:").removesuffix(")")
            if re.fullmatch(r"[a-z_]+(\|[a-z_]+)+", body):
                table[terminal.name] = tuple(body.split("|"))
    return table


def explain(text: str, error: UnexpectedInput, file: str, start: int = 0, end: int | None = None) -> Diagnostic:
    """A diagnostic from the parser's exception on a part of a text, with the words that could stand there."""
    end = len(text) if end is None else end
    last = start + len(text[start:end].rstrip())
    if isinstance(error, UnexpectedCharacters):
        expected, position = set(error.allowed or ()), start + (error.pos_in_stream or 0)
    elif isinstance(error, UnexpectedToken):
        expected, position = set(error.accepts or error.expected), start + (error.token.start_pos or 0)
        if error.token.type == "$END":
            position = last
    else:
        expected = set(error.expected) if isinstance(error, UnexpectedEOF) else set()
        position = last
    word_match = re.compile(r'[A-Za-z_]\w*|"[^"\n]*"?|\S').match(text, position, end)
    word = word_match.group() if word_match else ""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    span = Span(line, column, line, column + max(1, len(word)), position, position + max(1, len(word)))
    words = sorted({w for t in expected for w in keywords().get(t, ())})
    others = sorted({_NAMES[t] for t in expected if t in _NAMES})
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6) if word else []
    choices = [f"`{w}`" for w in words] + others
    if near:
        help_text = f"did you mean `{near[0]}`?"
    elif choices:
        shown = ", ".join(choices[:14]) + (" ..." if len(choices) > 14 else "")
        help_text = f"expected {shown}"
    else:
        help_text = ""
    message = f"`{_shown(word)}` cannot stand here" if word else "the text ends too early"
    return Diagnostic("LP000", "error", message, span, help_text, file)
