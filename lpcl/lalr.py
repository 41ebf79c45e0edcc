"""Runs the tables that Lark builds from `grammar.lark`, over a text.

Grammar, terminals and parse table are Lark's, and so is the tree that comes out, to the last position (a test compares
both). Only the loop is ours: Lark's own takes three times as long, and it can neither be stopped at a limit nor see
that two words stand without a space between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lark import Token, Tree
from lark.tree import Meta

from lpcl.tables import Production, Table, table

_SKIP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")

# Start or end of a token: offset, line, column.
_Place = tuple[int, int, int]


class SyntaxStop(Exception):  # noqa: N818  # it is no error of ours: the text ends to make sense here
    """A place where no word that stands there can stand.

    Attributes:
        position: offset in the text; expected: the terminals that could stand there; end: the text ends there.
    """

    def __init__(self, position: int, expected: frozenset[str], *, end: bool) -> None:
        """Keep what a diagnostic needs."""
        super().__init__(position)
        self.position, self.expected, self.end = position, expected, end


class LimitStop(Exception):  # noqa: N818  # as above
    """The rest of the text is not read: the stack is too deep at an offset (`stack`), or too many words are glued."""

    def __init__(self, position: int, *, stack: bool) -> None:
        """Keep the offset."""
        super().__init__(position)
        self.position, self.stack = position, stack


@dataclass
class Feed:
    """Limits of reading, and what it came to.

    The grammar has no word boundaries (not every engine that reads it knows them), so `controlthreads: int` parses
    as `control threads`. Two word tokens without anything between them are found here, on their way to the parser.

    Attributes:
        max_stack: states on the parser's stack; max_glued: pairs of words without a space.
        work: tokens that were read; glued: (start, offset, end) of such pairs.
    """

    max_stack: int
    max_glued: int
    work: int = 0
    glued: list[tuple[int, int, int]] = field(default_factory=list)


def read(
    text: str, start: str, feed: Feed, part: tuple[int, int] | None = None, line: int = 1, *, behind: str = ""
) -> Tree[Token]:
    """The tree of a text or of a part of it, with positions in the whole.

    Args:
        text: the whole.
        start: the rule to read: `start` or `clause`.
        feed: limits and counts.
        part: where the part begins and ends.
        line: the line on which it begins.
        behind: what to take as read before the part.

    Raises:
        SyntaxStop: something stands where it cannot stand.
        LimitStop: a limit of `feed` is passed.
    """
    offset, stop = part or (0, len(text))
    reader = _Reader(text, table(start), feed, offset, stop)
    if behind:
        before = _Reader(behind, table(start), feed, 0, len(behind))
        before.run(1)
        reader.states, reader.values, reader.starts, reader.ends = (
            before.states,
            before.values,
            before.starts,
            before.ends,
        )
    reader.run(line)
    return reader.finish()


class _Reader:
    """One run over one part of a text."""

    def __init__(self, text: str, table: Table, feed: Feed, offset: int, stop: int) -> None:
        self.text, self.table, self.feed, self.offset, self.stop = text, table, feed, offset, stop
        self.states: list[int] = [table.start]
        self.values: list[Any] = []
        # Where the first token of each value starts and the last one ends; None for a value without tokens.
        self.starts: list[_Place | None] = []
        self.ends: list[_Place | None] = []

    def run(self, line: int) -> None:
        """Feed every token of the part to the parser."""
        # The hot loop of the language: what it looks up for each token stands in local names.
        text, stop, states, feed, kept = self.text, self.stop, self.states, self.feed, self.table.kept
        patterns, keywords, skip = self.table.patterns, self.table.words, _SKIP.match
        position = self.offset
        line_start, before = text.rfind("\n", 0, position) + 1, -1
        while True:
            here = skip(text, position, stop).end()  # type: ignore[union-attr]  # it matches nothing too
            if here > position and (newlines := text.count("\n", position, here)):
                line += newlines
                line_start = text.rfind("\n", position, here) + 1
            if here >= stop:
                return
            state = states[-1]
            match = patterns[state].match(text, here, stop)
            if match is None:
                raise self._stopped(here)
            kind, word, position = match.lastgroup or "", match.group(), match.end()
            words = keywords[state].get(kind)
            if words is not None:
                kind = words.get(word, kind)
            feed.work += 1
            if here == before and text[here - 1] in _WORD and text[here] in _WORD:
                self._glued(here, position)
            if len(states) > feed.max_stack:
                raise LimitStop(here, stack=True)
            before = position
            column = here - line_start + 1
            end = (position, line, column + position - here)
            self._reduce_before(kind, here)
            self.values.append(Token(kind, word, here, line, column, line, end[2], position) if kind in kept else None)
            self.starts.append((here, line, column))
            self.ends.append(end)

    def _reduce_before(self, kind: str, here: int) -> None:
        """Reduce until a terminal can be shifted, and shift its state."""
        actions, after, states = self.table.actions, self.table.after, self.states
        while True:
            action = actions[states[-1]].get(kind)
            if isinstance(action, int):
                states.append(action)
                return
            if action is None:
                raise self._stopped(here)
            if action.step:
                states[-1] = after[states[-2]][action.origin]
            else:
                self._reduce(action)

    def _reduce(self, production: Production) -> None:
        states, values, size = self.states, self.values, production.size
        start: _Place | None = None
        end: _Place | None = None
        taken: list[Any] = []
        if size:
            taken = values[-size:]
            start, end = self._extent(size)
            del states[-size:], values[-size:], self.starts[-size:], self.ends[-size:]
        children = production.children(taken)
        value: Any = children
        if production.single and len(children) == 1:
            value = children[0]
        elif production.name is not None:
            value = Tree(production.name, children, None if start is None or end is None else _meta(start, end))
        values.append(value)
        self.starts.append(start)
        self.ends.append(end)
        states.append(self.table.after[states[-1]][production.origin])

    def _extent(self, size: int) -> tuple[_Place | None, _Place | None]:
        start, end = self.starts[-size], self.ends[-1]
        if start is None:
            start = next((s for s in self.starts[-size:] if s is not None), None)
        if end is None:
            end = next((e for e in reversed(self.ends[-size:]) if e is not None), None)
        return start, end

    def finish(self) -> Tree[Token]:
        """The tree, once nothing follows."""
        while True:
            action = self.table.actions[self.states[-1]].get("$END")
            if not isinstance(action, Production):
                raise self._stopped(self.stop)
            self._reduce(action)
            if self.states[-1] == self.table.end:
                break
        tree: Tree[Token] = self.values[-1]
        return tree

    def _glued(self, here: int, end: int) -> None:
        start = here - 1
        while start > self.offset and self.text[start - 1] in _WORD and here - start < 100:
            start -= 1
        self.feed.glued.append((start, here, end))
        if len(self.feed.glued) >= self.feed.max_glued:
            raise LimitStop(here, stack=False)

    def _stopped(self, here: int) -> SyntaxStop:
        """What could have stood here: for a character of no word, all that this state knows."""
        # What stands before the first word is skipped here: it is nothing to wait for.
        row = self.table.actions[self.states[-1]].keys() - {"_LEAD"}
        end = here >= self.stop
        if not end and self.table.any.match(self.text, here, self.stop) is None:
            return SyntaxStop(here, frozenset(row - {"$END"}), end=False)
        return SyntaxStop(here, frozenset(t for t in row if self._accepts(t)), end=end)

    def _accepts(self, kind: str) -> bool:
        """Whether a terminal can be shifted after all the reductions that it causes here."""
        actions, after = self.table.actions, self.table.after
        # The stack is not copied: only what the reductions put on it is kept, above what is left of it.
        left, top = len(self.states), list[int]()
        while True:
            action = actions[top[-1] if top else self.states[left - 1]].get(kind)
            if action is None:
                return False
            if isinstance(action, int):
                return True
            over = action.size - len(top)
            if over >= 0:
                top = []
                left -= over
            else:
                del top[len(top) - action.size :]
            target = after[top[-1] if top else self.states[left - 1]].get(action.origin)
            if target is None or (kind == "$END" and target == self.table.end):
                return target is not None
            top.append(target)


def _meta(start: _Place, end: _Place) -> Meta:
    meta: Any = Meta()  # type: ignore[no-untyped-call]  # lark leaves it untyped
    meta.empty = False
    meta.start_pos, meta.line, meta.column = start
    meta.end_pos, meta.end_line, meta.end_column = end
    return meta  # type: ignore[no-any-return]
