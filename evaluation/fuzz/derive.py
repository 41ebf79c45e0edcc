"""Texts that the grammar derives: whatever it can say, old syntax and new, without a list of it here."""

from __future__ import annotations

import random
from functools import lru_cache

from lark.grammar import NonTerminal
from lark.lexer import PatternStr

from lpcl.parse import keywords, parser

Rng = random.Random
# What the terminals that are patterns may be; names are few, so that references meet their clauses.
_SAMPLES: dict[str, tuple[str, ...]] = {
    "NAME": ("a", "b", "t", "t", "pool", "pool", "value", "machine", "e1", "cpu", "idle", "min", "is_set"),
    "INT": ("0", "1", "1", "2", "4", "8", "64", "007", "4096", "99999999999999999999"),
    "NUMBER": ("0.5", "1.0", "0.0", "12.75", "3.14159265358979323846"),
    "QUANTITY": ("1s", "10us", "0.5ms", "4GiB", "64KB", "50%", "0B", "100000cycles", "2min"),
    "STRING": ('""', '"A"', '"OMP_NUM_THREADS"', '"2"', '">=1, <2"', '"lib*.so"', '"\\\\\\""', '"auto"', '"/proc/stat"',
               '","'),
}  # fmt: skip
_REFS = ("machine.cores", "machine.affinity", "machine.quota", "pool.amount", "pool.idle", "cpu.threads", "t", "u",
         "cpu.processes", "memory.bytes", "libgomp.threads", "libgomp.team.amount", "np.set_threads",
         "np.get_threads")  # fmt: skip


class _Grammar:
    """The compiled rules, each with the least depth at which it ends."""

    def __init__(self) -> None:
        self.rules: dict[str, list[tuple[tuple[str, bool], ...]]] = {}
        for rule in parser().rules:
            parts = tuple((symbol.name, isinstance(symbol, NonTerminal)) for symbol in rule.expansion)
            self.rules.setdefault(str(rule.origin.name), []).append(parts)
        self.words = {t: w for t, w in keywords().items() if t not in _SAMPLES}
        self.words |= {t.name: (t.pattern.value,) for t in parser().terminals if isinstance(t.pattern, PatternStr)}
        self.words["COMPARE"] = ("==", "!=", "<", "<=", ">", ">=")
        self.least = dict.fromkeys(self.rules, 10**6)
        for _ in self.rules:  # to a fixed point, at the latest after as many rounds as there are rules
            before = dict(self.least)
            for name, choices in self.rules.items():
                self.least[name] = 1 + min(self.depth(parts) for parts in choices)
            if before == self.least:
                break

    def depth(self, parts: tuple[tuple[str, bool], ...]) -> int:
        """How deep the shortest text of these parts is."""
        return max((self.least[name] for name, inner in parts if inner), default=0)


@lru_cache(maxsize=1)
def _grammar() -> _Grammar:
    return _Grammar()


def derive(rng: Rng, start: str, words: int = 60) -> list[str]:
    """Words that the grammar derives from a rule: about so many at most, then each choice is the shortest."""
    g, out = _grammar(), []
    stack = [(start, True)]
    while stack:
        name, inner = stack.pop()
        if not inner:
            out.append(rng.choice(_SAMPLES.get(name) or g.words[name]))
            continue
        if name == "ref" and rng.random() < 0.6:
            out += rng.choice(_REFS).replace(".", " . ").split()
            continue
        choices = g.rules[name]
        if len(out) + len(stack) > words:
            least = min(g.depth(parts) for parts in choices)
            choices = [parts for parts in choices if g.depth(parts) == least]
        stack.extend(reversed(rng.choice(choices)))
    return out


def clause(rng: Rng, words: int = 60) -> str:
    """A clause; a name that it needs is a name of the others."""
    return " ".join(derive(rng, "clause", words))


def expression(rng: Rng, words: int = 30) -> str:
    """An expression."""
    return " ".join(derive(rng, "expr", words))
