"""Runs the tables that Lark builds from `grammar.lark`, over a text.

Grammar, terminals and parse table are Lark's, and so is the tree that comes out, to the last position (a test compares
both). Only the loop is ours: Lark's own takes three times as long, and it can neither be stopped at a limit nor see
that two words stand without a space between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Tree
from lark.grammar import Rule
from lark.lexer import PatternStr, TerminalDef
from lark.tree import Meta

_SKIP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")

# Start or end of a token: offset, line, column.
_Place = tuple[int, int, int]


@lru_cache(maxsize=1)
def parser() -> Lark:
    """The LALR parser of `grammar.lark`; built once per process."""
    grammar = resources.files("lpcl").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", start=["start", "clause"], propagate_positions=True)


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


@dataclass(frozen=True, slots=True)
class _Production:
    """What a reduction does with the values of its symbols.

    Attributes:
        size: how many; origin: the rule; name: of its tree, None if the values are inlined into the next one.
        single: a lone child stands for the tree; plan: (index, whether inlined, Nones before it); nones: at the end.
        plain: the children are the values as they are; step: nothing happens but that the state changes, as on the
            ladder of precedence.
    """

    size: int
    origin: str
    name: str | None
    single: bool
    plan: tuple[tuple[int, bool, int], ...]
    nones: int
    plain: bool
    step: bool

    def children(self, values: list[Any]) -> list[Any]:
        """The children of the tree."""
        if self.plain:
            return values
        found: list[Any] = []
        for index, inlined, nones in self.plan:
            if nones:
                found += [None] * nones
            if not inlined:
                found.append(values[index])
            elif found:
                found += values[index]
            else:  # a repetition grows in place
                found = values[index]
        if self.nones:
            found += [None] * self.nones
        return found


def _production(rule: Rule) -> _Production:
    symbols, empty = rule.expansion, rule.options.empty_indices
    gaps = [len(x) for x in "".join(str(int(b)) for b in empty).split("0")] if empty else [0] * (len(symbols) + 1)
    plan, nones = [], 0
    for i, symbol in enumerate(symbols):
        nones += gaps[i]
        if not (symbol.is_term and symbol.filter_out):  # type: ignore[attr-defined]
            plan.append((i, not symbol.is_term and symbol.name.startswith("_"), nones))
            nones = 0
    name = str(rule.alias or rule.origin.name)
    single = bool(rule.options.expand1 and not rule.alias)
    return _Production(
        len(symbols),
        str(rule.origin.name),
        None if name.startswith("_") else name,
        single,
        tuple(plan),
        nones + gaps[-1],
        not (empty or len(plan) < len(symbols) or any(inlined for _, inlined, _ in plan)),
        single and len(symbols) == 1 and not symbols[0].is_term,
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """Parse table of one start rule.

    Attributes:
        actions: state -> terminal -> next state, or the production to reduce; after: state -> rule -> next state.
        patterns: state -> the pattern of what may stand there; words: terminal -> word -> the keyword that it is.
        kept: terminals that are part of a tree; any: the pattern of anything that may stand anywhere.
    """

    start: int
    end: int
    actions: dict[int, dict[str, _Production | int]]
    after: dict[int, dict[str, int]]
    patterns: dict[int, re.Pattern[str]]
    words: dict[int, dict[str, dict[str, str]]]
    kept: frozenset[str]
    any: re.Pattern[str]


def _patterns(terminals: list[TerminalDef]) -> tuple[re.Pattern[str], dict[str, dict[str, str]]]:
    """One pattern for some terminals, the longer first; a keyword that is also a name is looked up by its text."""
    ordered = sorted(terminals, key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    words: dict[str, dict[str, str]] = {}
    inside: set[str] = set()
    for wide in ordered:
        for keyword in ordered if not isinstance(wide.pattern, PatternStr) else ():
            text = keyword.pattern.value
            match = re.match(wide.pattern.to_regexp(), text) if isinstance(keyword.pattern, PatternStr) else None
            if match is not None and match.group() == text:
                words.setdefault(wide.name, {})[text] = keyword.name
                inside.add(keyword.name)
    parts = (f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in ordered if t.name not in inside)
    return re.compile("|".join(parts) or "(?!)"), words


@lru_cache(maxsize=2)
def _table(start: str) -> _Table:
    conf = parser().parse_interactive("", start=start).parser_state.parse_conf
    terminals = {t.name: t for t in parser().terminals if t.name not in parser().ignore_tokens}
    productions: dict[Rule, _Production] = {}
    table = _Table(conf.start_state, conf.end_state, {}, {}, {}, {}, _kept(), _patterns(list(terminals.values()))[0])
    compiled: dict[frozenset[str], tuple[re.Pattern[str], dict[str, dict[str, str]]]] = {}
    for state, row in conf.states.items():
        table.actions[state], table.after[state] = {}, {}
        for symbol, (_, target) in row.items():
            if isinstance(target, Rule):
                table.actions[state][symbol] = productions.setdefault(target, _production(target))
            elif symbol in terminals or symbol == "$END":
                table.actions[state][symbol] = target
            else:
                table.after[state][symbol] = target
        accepted = frozenset(terminals) & frozenset(row)
        if accepted not in compiled:
            compiled[accepted] = _patterns([terminals[n] for n in accepted])
        table.patterns[state], table.words[state] = compiled[accepted]
    return table


def _kept() -> frozenset[str]:
    symbols = (s for rule in parser().rules for s in rule.expansion if s.is_term)
    return frozenset(s.name for s in symbols if not s.filter_out)  # type: ignore[attr-defined]


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
    reader = _Reader(text, _table(start), feed, offset, stop)
    if behind:
        before = _Reader(behind, _table(start), feed, 0, len(behind))
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

    def __init__(self, text: str, table: _Table, feed: Feed, offset: int, stop: int) -> None:
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

    def _reduce(self, production: _Production) -> None:
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
            if not isinstance(action, _Production):
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
