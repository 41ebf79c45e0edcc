"""The cases of a run: real texts whole and in pieces, damaged, spliced, derived from the grammar, printed, bombs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from evaluation.fuzz.bombs import BOMBS, default, inside
from evaluation.fuzz.derive import clause, expression
from evaluation.fuzz.models import Models
from lpcl import model as m
from lpcl.format import contract_text, file_text
from lpcl.parse import parse

Rng = random.Random
ROOT = Path(__file__).resolve().parents[2]
LONG = 5_000

_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|\s+|\w+|.', re.DOTALL)
_CASE = re.compile(r"^\[case [^\]]*\]\n(.*?)^\[", re.DOTALL | re.MULTILINE)
_PIECES = (
    *'{}()":,.+-*/<>=!%\\\n\t \0\x0c;#\'',
    "//", "..", "/*", "*/", "lpcl", "lpcl 2", "contract", "control", "demand", "if ", "then ", "else ", "not ",
    "min(", "1", "4GiB", "0.5s", "evidence", "idle", "unknown", "value", "é", "\ud800", "\u2028", "\x85", "\r\n",
    "read", "\ufeff", "\u0301", "\uff11", "\u00a0", "99999999999999999999", "5min", "5mins", "1.", ".5", '"\\x"', '\\"',
    "levels", "malformed", "ignored", "fails", "lasts", "inherited by", "carries", "pinned", "map(", "as", "attribute",
)  # fmt: skip


@dataclass(frozen=True)
class Seeds:
    """Real texts: `clauses` alone, `short` files, `long` ones, and all the words that occur in them."""

    clauses: tuple[str, ...]
    short: tuple[str, ...]
    long: tuple[str, ...]
    vocabulary: tuple[str, ...]

    def clause(self, rng: Rng) -> str:
        """A clause as it stands in a contract, or as the grammar derives one."""
        return rng.choice(self.clauses) if rng.random() < 0.7 else clause(rng)

    def text(self, rng: Rng) -> str:
        """A file: mostly a few clauses, for these cost little and are damaged as well as long ones."""
        kind = rng.random()
        if kind < 0.004:
            return rng.choice(self.long)
        if kind < 0.2:
            return rng.choice(self.short)
        return inside("\n".join(self.clause(rng) for _ in range(min(4, 1 + int(rng.expovariate(1.2))))))


@lru_cache(maxsize=1)
def seeds() -> Seeds:
    """Read once, before the children of a run are started."""
    whole = [p.read_text("utf-8") for p in sorted((ROOT / "corpus").glob("*/contract.lpcl"))]
    for path in sorted((ROOT / "tests" / "lpcl" / "cases").glob("*.txt")):
        whole += (c for c in _CASE.findall(path.read_text("utf-8")) if "lpcl" in c)
    clauses: dict[str, None] = {}
    for text in whole:
        file = parse(text).file
        for contract in file.contracts if file else ():
            head = contract_text(m.Contract("x", *(getattr(contract, k) for k in ("packages", "natives", "summary"))))
            clauses |= dict.fromkeys(line for line in head.split("\n")[1:-2] if line.strip())
            clauses |= dict.fromkeys(text[c.span.start : c.span.end] for c in contract.clauses)
    return Seeds(
        tuple(clauses),
        tuple(t for t in whole if len(t) <= LONG),
        tuple(t for t in whole if len(t) > LONG),
        tuple(sorted({t for s in whole for t in _TOKENS.findall(s) if not t.isspace()} | set(_PIECES))),
    )


def _times(rng: Rng) -> int:
    return min(20, int(rng.expovariate(0.8)) + 1)


def by_tokens(rng: Rng) -> str:
    """A real text with tokens deleted, doubled, swapped, replaced, or runs of them moved."""
    words = _TOKENS.findall(seeds().text(rng))
    for _ in range(_times(rng)):
        if len(words) < 2:
            break
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        how = rng.randrange(7)
        if how == 0:
            del words[i]
        elif how == 1:
            words.insert(i, words[j])
        elif how == 2:
            words[i], words[j] = words[j], words[i]
        elif how == 3:
            words[i] = rng.choice(seeds().vocabulary)
        elif how == 4:
            words.insert(i, rng.choice(seeds().vocabulary))
        elif how == 5:
            del words[i : i + rng.randrange(1, 12)]
        else:
            words[i:i] = words[j : j + rng.randrange(1, 30)]
    return "".join(words)


def by_bytes(rng: Rng) -> str:
    """A real text with bytes flipped, dropped, doubled or replaced; what is no UTF-8 comes as the reader gives it."""
    data = bytearray(seeds().text(rng).encode())
    for _ in range(_times(rng)):
        i = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0:
            del data[i : i + rng.randrange(1, 40)]
        elif how == 1:
            data[i:i] = bytes([rng.randrange(256)])
        elif how == 2 and i < len(data):
            data[i] ^= 1 << rng.randrange(8)
        elif how == 3:
            data[i:i] = rng.choice(_PIECES).encode("utf-8", "surrogatepass")
        else:
            j = rng.randrange(len(data) + 1)
            data[i:i] = data[j : j + rng.randrange(1, 60)]
    return bytes(data).decode("utf-8", "surrogateescape" if rng.random() < 0.2 else "replace")


def by_words(rng: Rng) -> str:
    """Words of the language in any order, bare or where a clause or a value may stand."""
    soup = rng.choice(("", " ", " ", "\n")).join(rng.choices(seeds().vocabulary, k=rng.randrange(40)))
    return rng.choice((str, inside, default))(soup)


def by_splicing(rng: Rng) -> str:
    """The head of one text and the tail of another."""
    one, two = seeds().text(rng), seeds().text(rng)
    return one[: rng.randrange(len(one) + 1)] + two[rng.randrange(len(two) + 1) :]


def by_comments(rng: Rng) -> str:
    """A right text with comments between its tokens."""
    text = seeds().text(rng)
    ends = [0, *(t.end() for t in _TOKENS.finditer(text))]
    for cut in sorted(rng.choices(ends, k=_times(rng)), reverse=True):
        comment = rng.choice(
            ("//c\n", " // c\n", "\n//c\n\n", '\n// "c\n// {\n', "\n\n//c // d \r\n", "///\n", "//}\n")
        )
        text = text[:cut] + comment + text[cut:]
    return text


def by_grammar(rng: Rng) -> str:
    """A text that the grammar derives; some with a word of it changed, or without the spaces."""
    if rng.random() < 0.2:
        return default(expression(rng))
    words = inside("\n".join(clause(rng) for _ in range(rng.randrange(1, 4)))).split(" ")
    how = rng.random()
    if how < 0.25:
        words[rng.randrange(len(words))] = rng.choice(seeds().vocabulary)
    elif how < 0.3:
        i = rng.randrange(len(words))
        words[i : i + 2] = ["".join(words[i : i + 2])]
    return " ".join(words)


@dataclass(frozen=True)
class Case:
    """One text; `model` is what it was printed from, if it was; `parts`: what is to be tried beside the basics."""

    kind: str
    text: str
    parts: frozenset[str] = frozenset()
    model: m.File | None = None


MAKERS: dict[str, Callable[[Rng], str]] = {
    "tokens": by_tokens,
    "bytes": by_bytes,
    "words": by_words,
    "splicing": by_splicing,
    "comments": by_comments,
    "grammar": by_grammar,
}
# In parts of a thousand; what is left are bombs.
_KINDS = {"tokens": 270, "bytes": 200, "grammar": 180, "model": 140, "words": 80, "splicing": 60, "comments": 66}
_ENDS = dict(zip(_KINDS, accumulate(_KINDS.values()), strict=True))
# The share of the cases that goes on into each part of the language.
SHARES = {"system": 0.10, "diff": 0.08, "annotations": 0.08, "editor": 0.06, "folder": 0.05, "command line": 0.01}


def make_case(seed: int, index: int, largest: int) -> Case:
    """The case of that number: the same for the same seed, whatever ran before."""
    rng = Rng(f"{seed}:{index}")
    parts = frozenset(part for part, share in SHARES.items() if rng.random() < share)
    at = rng.randrange(1000)
    kind = next((k for k, end in _ENDS.items() if at < end), "bomb")
    if kind == "model":
        file = Models(rng).file()
        text = file_text(file)
        if rng.random() < 0.3:  # a second, damaged form of it
            i = rng.randrange(len(text))
            text = text[:i] + rng.choice(seeds().vocabulary) + text[i + rng.randrange(5) :]
            return Case("damaged model", text, parts)
        return Case("model", text, parts, file)
    if kind == "bomb":
        name = rng.choice(sorted(BOMBS))
        # Most are small: the caps that the large ones run into are few.
        size = min(int(10 ** (1 + 5.4 * rng.random() ** 2)), largest)
        return Case(f"bomb: {name}", BOMBS[name](size))
    return Case(kind, MAKERS[kind](rng), parts)
