"""Parse tables of `grammar.lark`: built by Lark once for each release of both, then kept in the user's cache folder.

Building takes longer than reading any contract, so it is what the start of a command would wait for. The cache is JSON
with its digest, and nothing depends on it: what cannot be read is built again, what cannot be written costs time only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import astuple, dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lark

if TYPE_CHECKING:  # the part of Lark that builds is loaded only to build
    from lark import Lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

# Of the form in which tables are kept.
FORM = 1
STARTS = ("start", "clause")
MAX_CACHE_BYTES = 4 << 20


@lru_cache(maxsize=1)
def parser() -> Lark:
    """The LALR parser of `grammar.lark`, as Lark builds it; built once per process, and only if somebody asks."""
    from lark import Lark  # noqa: PLC0415  # most commands find the tables in the cache

    return Lark(_grammar(), parser="lalr", start=list(STARTS), propagate_positions=True)


def _grammar() -> str:
    return resources.files("lpcl").joinpath("grammar.lark").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Production:
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


class _Compiled(dict[int, "re.Pattern[str]"]):
    """State -> the pattern of what may stand there; compiled when a text first comes to the state."""

    def __init__(self, sources: dict[int, str]) -> None:
        """Keep the sources; several states share one."""
        super().__init__()
        self.sources = sources

    def __missing__(self, state: int) -> re.Pattern[str]:
        self[state] = pattern = re.compile(self.sources[state])  # `re` keeps what it compiled by the source
        return pattern


@dataclass(frozen=True, slots=True)
class Table:
    """Parse table of one start rule.

    Attributes:
        actions: state -> terminal -> next state, or the production to reduce; after: state -> rule -> next state.
        patterns: state -> the pattern of what may stand there; words: state -> terminal -> word -> the keyword that
            it is.
        kept: terminals that are part of a tree; any: the pattern of anything that may stand anywhere.
        keywords: terminal -> the words that it stands for.
    """

    start: int
    end: int
    actions: dict[int, dict[str, Production | int]]
    after: dict[int, dict[str, int]]
    patterns: _Compiled
    words: dict[int, dict[str, dict[str, str]]]
    kept: frozenset[str]
    any: re.Pattern[str]
    keywords: dict[str, tuple[str, ...]]


@lru_cache(maxsize=2)
def table(start: str) -> Table:
    """The table of a start rule, from the cache or built."""
    return _loaded()[start]


@lru_cache(maxsize=1)
def _loaded() -> dict[str, Table]:
    path = _cache_file()
    try:
        if path is not None and path.stat().st_size <= MAX_CACHE_BYTES:
            digest, _, body = path.read_text("utf-8").partition("\n")
            if digest == _digest(body):
                return _from_plain(json.loads(body))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, re.error):
        pass  # not there yet, or damaged
    plain = {start: _build(start) for start in STARTS}
    if path is not None:
        body = json.dumps(plain, separators=(",", ":"))
        _write(path, f"{_digest(body)}\n{body}")
    return _from_plain(plain)


def _cache_file() -> Path | None:
    """Where the tables of this grammar and this Lark are kept; None if `LPCL_CACHE` is empty or there is no home."""
    folder = os.environ.get("LPCL_CACHE")
    if folder is None:
        base = os.environ.get("XDG_CACHE_HOME") or ("~/.cache" if "HOME" in os.environ else "")
        folder = os.path.join(os.path.expanduser(base), "lpcl") if base else ""  # noqa: PTH111, PTH118  # no error
    if not folder:
        return None
    identity = f"{FORM}\n{lark.__version__}\n{_grammar()}"
    return Path(folder) / f"tables-{_digest(identity)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".part", delete=False) as part:
            part.write(text)
        Path(part.name).replace(path)
    except OSError:
        return  # a read-only or full disk costs time only


# ------------------------------------------------------------------ from cache


def _from_plain(plain: dict[str, Any]) -> dict[str, Table]:
    return {start: _table_of(plain[start]) for start in STARTS}


def _table_of(p: dict[str, Any]) -> Table:
    productions = [
        Production(size, origin, name, single, tuple((i, inlined, n) for i, inlined, n in plan), nones, plain, step)
        for size, origin, name, single, plan, nones, plain, step in p["productions"]
    ]
    # -1 and below are reductions.
    actions = {
        int(state): {t: (a if a >= 0 else productions[-1 - a]) for t, a in row.items()}
        for state, row in p["actions"].items()
    }
    patterns = _Compiled({int(s): p["sources"][i] for s, i in p["patterns"].items()})
    words = {int(s): p["lookups"][i] for s, i in p["words"].items()}
    after = {int(s): row for s, row in p["after"].items()}
    keywords = {t: tuple(w) for t, w in p["keywords"].items()}
    return Table(
        int(p["start"]),
        int(p["end"]),
        actions,
        after,
        patterns,
        words,
        frozenset(p["kept"]),
        re.compile(p["any"]),
        keywords,
    )


# ----------------------------------------------------------------------- build


def _build(start: str) -> dict[str, Any]:
    """The table of a start rule as plain values."""
    from lark.grammar import Rule  # noqa: PLC0415

    conf = parser().parse_interactive("", start=start).parser_state.parse_conf
    terminals = {t.name: t for t in parser().terminals if t.name not in parser().ignore_tokens}
    numbers: dict[Rule, int] = {}
    sources: dict[frozenset[str], int] = {}
    compiled: list[tuple[str, dict[str, dict[str, str]]]] = []
    actions: dict[str, dict[str, int]] = {}
    after: dict[str, dict[str, int]] = {}
    where: dict[str, int] = {}
    for state, row in conf.states.items():
        here: dict[str, int] = {}
        there: dict[str, int] = {}
        for symbol, (_, target) in row.items():
            if isinstance(target, Rule):
                here[symbol] = -1 - numbers.setdefault(target, len(numbers))
            elif symbol in terminals or symbol == "$END":
                here[symbol] = target
            else:
                there[symbol] = target
        actions[str(state)], after[str(state)] = here, there
        accepted = frozenset(terminals) & frozenset(row)
        if accepted not in sources:
            sources[accepted] = len(compiled)
            compiled.append(_patterns([terminals[n] for n in accepted]))
        where[str(state)] = sources[accepted]
    return {
        "start": conf.start_state,
        "end": conf.end_state,
        "productions": [astuple(_production(r)) for r in numbers],
        "actions": actions,
        "after": after,
        "sources": [source for source, _ in compiled],
        "patterns": where,
        "lookups": [lookup for _, lookup in compiled],
        "words": where,
        "kept": sorted(_kept()),
        "any": _patterns(list(terminals.values()))[0],
        "keywords": _keywords(),
    }


def _production(rule: Rule) -> Production:
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
    return Production(
        len(symbols),
        str(rule.origin.name),
        None if name.startswith("_") else name,
        single,
        tuple(plan),
        nones + gaps[-1],
        not (empty or len(plan) < len(symbols) or any(inlined for _, inlined, _ in plan)),
        single and len(symbols) == 1 and not symbols[0].is_term,
    )


def _patterns(terminals: list[TerminalDef]) -> tuple[str, dict[str, dict[str, str]]]:
    """One pattern for some terminals, the longer first; a keyword that is also a name is looked up by its text."""
    from lark.lexer import PatternStr  # noqa: PLC0415

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
    return "|".join(parts) or "(?!)", words


def _kept() -> frozenset[str]:
    symbols = (s for rule in parser().rules for s in rule.expansion if s.is_term)
    return frozenset(s.name for s in symbols if not s.filter_out)  # type: ignore[attr-defined]


def _keywords() -> dict[str, tuple[str, ...]]:
    from lark.lexer import PatternStr  # noqa: PLC0415

    found: dict[str, tuple[str, ...]] = {}
    for terminal in parser().terminals:
        if isinstance(terminal.pattern, PatternStr):
            found[terminal.name] = (terminal.pattern.value,)
        else:
            body = terminal.pattern.value.removeprefix("(?:").removesuffix(")")
            if re.fullmatch(r"[a-z_]+(\|[a-z_]+)+", body):
                found[terminal.name] = tuple(body.split("|"))
    return found


def keywords() -> dict[str, tuple[str, ...]]:
    """Terminal of the grammar -> the words that it stands for."""
    return table("start").keywords
