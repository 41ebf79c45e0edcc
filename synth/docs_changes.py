"""What changelogs say about names that went away: deprecated, renamed, removed, with the version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from synth.docs import Passage
from synth.docs_entries import kind_of
from synth.records import Record

Change = Literal["deprecated", "renamed", "removed"]
_FILE = re.compile(
    r"(^|[/_.-])(change(s|log)?|news|release([-_ ]?notes)?|history|what[-_]?s[-_]?new|migrat\w*|upgrad\w*)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:rc|a|b|post|dev)\d*)?)(?![\w.]*\.\w)")
_QUOTED = r"(?:`{1,2}|:\w+(?::\w+)?:`~?|[\"'])"


def _named(group: str) -> str:
    return rf"{_QUOTED}\s?(?P<{group}>[A-Za-z_-][\w.\-]*(?:\(\w*=?\))?)=?\w*\s?`{{0,2}}[\"']?"


_TO = r"(?:to|as|into)\s+(?:\w+\s+){0,2}?" + _named("by")
_FROM_TO = _named("name") + r"\s+(?:\w+\s+){0,4}?" + _TO
_PATTERNS: tuple[tuple[Change, re.Pattern[str]], ...] = (
    ("renamed", re.compile(r"(?i:renam\w+)\s+(?:the\s+)?(?:\w+\s+){0,3}?" + _FROM_TO)),
    ("renamed", re.compile(_named("name") + r"\s+(?:\w+\s+){0,4}?(?i:renamed)\s+" + _TO)),
    ("deprecated", re.compile(_named("name") + r"\s+(?:\w+\s+){0,6}?(?i:deprecated)")),
    ("deprecated", re.compile(r"(?i:deprecat\w+)\s+(?:\w+\s+){0,5}?" + _named("name"))),
    ("removed", re.compile(r"(?i:remov\w+|drop\w*)\s+(?:\w+\s+){0,5}?" + _named("name"))),
    ("removed", re.compile(_named("name") + r"\s+(?:\w+\s+){0,5}?(?i:removed)")),
)  # fmt: skip
_INSTEAD = re.compile(r"(?i:use|favou?r\s+of|replaced\s+by|instead)\s+(?:\w+\s+){0,3}?" + _named("by"))
_ANY = re.compile(r"deprecat|renam|remov|drop", re.IGNORECASE)
_PASSAGE = 3_000


class Changed(Record):
    """A name that went away or is going to.

    Attributes:
        version: the heading that the note stands under, "" if none is a version.
        by: what to use in its place, "" if the note does not say.
    """

    name: str
    what: Change
    version: str
    by: str
    where: str
    line: int


def is_changelog(path: str) -> bool:
    """Whether a document is a list of changes by its name."""
    return bool(_FILE.search("/".join(path.split("/")[-2:])))


def changes(passages: Iterable[Passage], where: str) -> Iterator[Changed]:
    """What the passages of a changelog say, one note a name and passage."""
    for passage in passages:
        if _ANY.search(passage.text) is None:
            continue
        version = _version(passage.headings)
        text = " ".join(passage.text[:_PASSAGE].split())
        taken: set[str] = set()
        for what, pattern in _PATTERNS:
            for match in pattern.finditer(text):
                name = match["name"].rstrip(".-")
                if name in taken or not _telling(name):
                    continue
                taken.add(name)
                yield Changed(
                    name=name, what=what, version=version, by=_by(match, text, name), where=where, line=passage.line
                )


def _telling(name: str) -> bool:
    return kind_of(name) is not None or "_" in name or "(" in name or "." in name


def _by(match: re.Match[str], text: str, name: str) -> str:
    if "by" in match.re.groupindex:
        return str(match["by"]).rstrip(".-")
    instead = _INSTEAD.search(text, match.end(), match.end() + 300)
    return instead["by"].rstrip(".-") if instead is not None and instead["by"] != name else ""


def _version(headings: tuple[str, ...]) -> str:
    for heading in reversed(headings):
        found = _VERSION.search(heading)
        if found is not None:
            return found[1]
    return ""
