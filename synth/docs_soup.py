"""Parse HTML of unknown origin in time linear in its size."""

from __future__ import annotations

import re
import warnings

from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning

_STRAY = re.compile(r"<(?=[^<>]*(?:<|\Z))|<(?=[!?])")
_HIDDEN = (("<!--", "-->"), ("<script", "</script"), ("<style", "</style"))


def soup_of(text: str) -> BeautifulSoup:
    """Parse a page; nothing that it refers to is loaded, and lines keep their numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        return BeautifulSoup(tamed(text), "html.parser")


def tamed(text: str) -> str:
    """A page without comments and scripts, and without tags that never end: the parser starts over at each of them."""
    for start, end in _HIDDEN:
        text = _without(text, start, end)
    return _STRAY.sub("&lt;", text)


def _without(text: str, start: str, end: str) -> str:
    lower = text.lower()
    if len(lower) != len(text):  # letters whose lower case is longer
        lower = text
    parts: list[str] = []
    place = 0
    while (found := lower.find(start, place)) >= 0:
        after = lower.find(end, found + len(start))
        if after < 0:
            break
        parts += [text[place:found], "\n" * text.count("\n", found, after)]
        place = after + len(end) if end.endswith(">") else after
        if not end.endswith(">"):
            close = text.find(">", place)
            place = close + 1 if close >= 0 else len(text)
    return "".join([*parts, text[place:]])
