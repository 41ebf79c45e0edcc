"""What every tree-sitter walker needs: bounded parsing, iterative traversal and citing of lines."""

from __future__ import annotations

import hashlib
import re
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Language, Node, Parser, Tree

from synth.records import Kind, Observation, Role, When

TEXT_LIMIT = 2_000  # characters of source that one observation carries
CITED_LINES = 12  # a statement longer than this is cited by the lines of the expression alone
PARSE_SECONDS = 10.0
VALUE_LIMIT = 300  # characters of a default or size expression
MAX_ANCESTORS = 200
COMMENT_LINES = 8  # above a line that are taken to be about it
_CHUNK = 1 << 16
_DESCRIBED = frozenset({Kind.ENV_READ, Kind.OPTION})
_COMMENT_LINE = re.compile(rb"^\s*(?:#+:?|//[/!]?|/\*+|\*(?!/)|--)\s*(.*?)(?:\*/)?\s*$", re.DOTALL)
_TRAILING = re.compile(rb"[^'\"\s].*?\s(?:#|//)\s+([^'\"]*)$", re.DOTALL)
_STRINGS = frozenset({"string", "string_literal"})


class NotParsedError(Exception):
    """A file was not parsed, for the reason given."""


class ParseTimeoutError(NotParsedError):
    """A file took longer to parse than its limit."""


class TooDeepError(NotParsedError):
    """A file is nested in a way that the parser does not survive."""


def split_lines(raw: bytes) -> list[bytes]:
    """Split at line feeds only, each line with its end: the unit that digests are taken over."""
    # bytes.splitlines also splits at a lone carriage return, which tree-sitter does not count
    parts = raw.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def digest_of_lines(raw: bytes, line: int, end_line: int) -> str:
    """SHA-256 of lines `line`..`end_line` (1-based, inclusive) of a file, line ends included."""
    return hashlib.sha256(b"".join(split_lines(raw)[line - 1 : end_line])).hexdigest()


def parse(language: Language, source: bytes, *, seconds: float = PARSE_SECONDS) -> Tree:
    """Parse with a deadline.

    Raises:
        ParseTimeoutError: the parser was still busy after `seconds`.
    """
    deadline = time.monotonic() + seconds
    view = memoryview(source)

    def read(offset: int, _point: object) -> bytes:
        return bytes(view[offset : offset + _CHUNK])

    def late(_offset: int, _has_error: bool) -> bool:
        return time.monotonic() > deadline

    parser = Parser(language)
    try:
        tree = parser.parse(read, progress_callback=late)
    except ValueError as error:
        raise ParseTimeoutError(f"parsing took longer than {seconds:g} s") from error
    # only a tree parsed from bytes slices `Node.text` from them; one from a callback asks for every character.
    # With the first tree given, all of it is reused and this costs nothing.
    return parser.parse(source, tree)


def descend(root: Node) -> Iterator[Node]:
    """Named nodes below and including `root`, in source order, without recursion."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.named_children))


def text_of(node: Node | None) -> str:
    """Source text of a node, undecodable bytes replaced."""
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def one_line(text: str, limit: int = VALUE_LIMIT) -> str:
    """Source text with its white space folded, for a value or a detail."""
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else folded[: limit - 3] + "..."


def brief(node: Node | None, limit: int = VALUE_LIMIT) -> str:
    """Source text of a node on one line."""
    return one_line(text_of(node), limit)


@dataclass
class Cited:
    """A file that observations cite; it turns nodes into lines and digests."""

    raw: bytes
    file: str
    role: Role
    language: str
    _lines: list[bytes] = field(default_factory=list)
    _spans: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Split once: every citation needs the lines."""
        self._lines = split_lines(self.raw)

    def span(self, line: int, end_line: int) -> tuple[str, str]:
        """Text (shortened) and digest of the lines `line`..`end_line`."""
        known = self._spans.get((line, end_line))
        if known is None:
            raw = b"".join(self._lines[line - 1 : end_line])
            head = raw[: 4 * TEXT_LIMIT].decode("utf-8", "replace")
            known = head[:TEXT_LIMIT], hashlib.sha256(raw).hexdigest()
            self._spans[(line, end_line)] = known  # a file of one long line is cited again and again
        return known

    def comments(self, line: int) -> str:
        """Text of the comment on a line and of those right above it."""
        found: list[str] = []
        for place in range(line - 2, max(-1, line - 2 - COMMENT_LINES), -1):
            match = _COMMENT_LINE.match(self._lines[place][:VALUE_LIMIT]) if place < len(self._lines) else None
            if match is None:
                break
            found.insert(0, match[1].decode("utf-8", "replace"))
        trailing = _TRAILING.search(self._lines[line - 1][:VALUE_LIMIT]) if line <= len(self._lines) else None
        found += [trailing[1].decode("utf-8", "replace")] if trailing is not None else []
        return one_line(" ".join(found), 2 * VALUE_LIMIT)

    def observe(  # noqa: PLR0913 - it mirrors the record
        self,
        kind: Kind,
        name: str,
        lines: tuple[int, int],
        *,
        function: str = "",
        when: When = When.UNKNOWN,
        value: str | None = None,
        value_type: str | None = None,
        target: str = "",
        unless_set: bool = False,
        detail: str = "",
        key: str = "",
        scope: str = "",
    ) -> Observation:
        """Build an observation that cites `lines` (1-based, inclusive) of this file."""
        line = max(1, lines[0])
        end = max(line, min(lines[1], max(len(self._lines), 1)))
        text, digest = self.span(line, end)
        about = self.comments(line) if kind in _DESCRIBED else ""
        return Observation(
            kind=kind,
            name=name[:VALUE_LIMIT],
            file=self.file,
            line=line,
            end_line=end,
            text=text,
            sha256=digest,
            function=function,
            when=When.BUILD if self.role is Role.BUILD else when,
            role=self.role,
            value=value,
            value_type=value_type,
            target=target,
            unless_set=unless_set,
            language=self.language,
            detail=one_line(detail),
            about=about,
            key=key[:VALUE_LIMIT],
            scope=scope,
        )


def lines_of(node: Node) -> tuple[int, int]:
    """1-based first and last line of a node."""
    end_row, end_column = node.end_point
    start_row = node.start_point[0]
    # a node that ends at column 0 does not reach into that line
    return start_row + 1, max(start_row, end_row - (1 if end_column == 0 and end_row > start_row else 0)) + 1


def line_index(raw: bytes) -> list[int]:
    """Byte offsets at which lines start."""
    starts = [0]
    position = raw.find(b"\n")
    while position >= 0:
        starts.append(position + 1)
        position = raw.find(b"\n", position + 1)
    return starts


def line_at(starts: list[int], offset: int) -> int:
    """1-based line of a byte offset."""
    return bisect_right(starts, offset)


@dataclass
class Nodes:
    """The named nodes of a tree in source order, and each one's parent.

    `Node.parent` searches from the root each time, which is quadratic on a deeply nested file.
    """

    root: Node
    nodes: list[Node] = field(default_factory=list)
    parents: dict[int, Node] = field(default_factory=dict)
    _source: bytes | None = None
    _offset: int = 0

    def __post_init__(self) -> None:
        """One pass fills both."""
        stack = [self.root]
        nodes, parents = self.nodes, self.parents
        while stack:
            node = stack.pop()
            nodes.append(node)
            children = node.named_children
            # the pieces of a plain string are a third of all nodes and say nothing that the string does not
            if children and node.type in _STRINGS and not any(c.type == "interpolation" for c in children):
                continue
            for child in children:
                parents[child.id] = node
            children.reverse()
            stack.extend(children)

    def head(self, node: Node, limit: int) -> str:
        """First characters of a node's text, without copying all of it: a nested text copied at each level is slow."""
        if self._source is None:
            self._source, self._offset = self.root.text or b"", self.root.start_byte
        start = node.start_byte - self._offset
        return self._source[start : min(start + limit, node.end_byte - self._offset)].decode("utf-8", "replace")

    def parent(self, node: Node) -> Node | None:
        """Named parent, `None` for the root."""
        return self.parents.get(node.id)

    def ancestors(self, node: Node) -> Iterator[Node]:
        """Parents from the nearest outwards, as far as anything that was written by hand is nested."""
        current = self.parents.get(node.id)
        for _ in range(MAX_ANCESTORS):
            if current is None:
                return
            yield current
            current = self.parents.get(current.id)
