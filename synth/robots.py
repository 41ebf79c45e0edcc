"""What a site's robots.txt allows, by the Robots Exclusion Protocol (RFC 9309)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

MAX_BYTES = 500 * 1024  # a reader need not look further
_MAX_RULES = 5_000
_DELAY = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` matches the start of a path; `*` stands for any text, a final `$` for the end."""

    pattern: str
    allowed: bool

    def matches(self, path: str) -> bool:
        """Whether the rule speaks of a path, in time linear in both."""
        ends = self.pattern.endswith("$")
        first, *rest = (self.pattern[:-1] if ends else self.pattern).split("*")
        if not path.startswith(first):
            return False
        place = len(first)
        for number, piece in enumerate(rest):
            if ends and number == len(rest) - 1:
                return len(path) - len(piece) >= place and path.endswith(piece)
            found = path.find(piece, place)
            if found < 0:
                return False
            place = found + len(piece)
        return not ends or place == len(path)


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules for one reader.

    Attributes:
        delay_seconds: least time between requests that the site asks for, None where it asks for none.
        sitemaps: addresses of lists of pages.
    """

    rules: tuple[Rule, ...] = ()
    delay_seconds: float | None = None
    sitemaps: tuple[str, ...] = ()

    def allows(self, path: str) -> bool:
        """Whether a path (with its query) may be read: the longest rule decides, and of two alike the allowing one."""
        plain = unquote(path) or "/"
        best = (0, True)
        for rule in self.rules:
            rank = (len(rule.pattern), rule.allowed)
            if rank > best and rule.matches(plain):
                best = rank
        return best[1]


NOTHING = Robots((Rule("/", allowed=False),))


def parse_robots(text: str, reader: str) -> Robots:
    """Read the rules for a reader, whose name is compared without case; else those for `*`."""
    product = reader.partition("/")[0].lower()
    groups: dict[str, list[Rule]] = {}
    delays: dict[str, float] = {}
    sitemaps: list[str] = []
    names: list[str] = []
    in_rules = False
    for line in text[:MAX_BYTES].splitlines():
        field, colon, value = line.partition("#")[0].partition(":")
        field, value = field.strip().lower(), value.strip()
        if not colon:
            continue
        if field == "user-agent":
            names = [] if in_rules else names
            names.append(value.partition("/")[0].lower())
            groups.setdefault(names[-1], [])
            in_rules = False
        elif field in ("allow", "disallow"):
            in_rules = True
            for name in names if value else []:
                if len(groups[name]) < _MAX_RULES:
                    groups[name].append(Rule(unquote(value), field == "allow"))
        elif field == "crawl-delay" and _DELAY.fullmatch(value):
            in_rules = True
            delays.update(dict.fromkeys(names, float(value)))
        elif field == "sitemap" and len(sitemaps) < 10:
            sitemaps.append(value)
    name = product if product in groups else "*"
    return Robots(tuple(groups.get(name, ())), delays.get(name), tuple(sitemaps))
