"""Changes as text, JSON and Markdown."""

import json
import re
from collections.abc import Iterable

from lpcl.change import SEVERITIES, Change, printable

# ------------------------------------------------------------------- rendering


def _summary(changes: tuple[Change, ...]) -> str:
    counts = [(sum(c.severity == s for c in changes), s) for s in SEVERITIES]
    shown = ", ".join(f"{n} {s}" for n, s in counts if n)
    return f"{len(changes)} change{'s' * (len(changes) != 1)}: {shown}" if changes else "no changes"


def render_text(changes: Iterable[Change]) -> str:
    """The changes for a terminal, and how many there are of each severity."""
    every = tuple(changes)
    lines: list[str] = []
    for c in every:
        lines.append(f"{c.severity}[{c.kind}]: {c.message}  ({c.fingerprint})")
        for sign, text, span in (("-", c.old, c.old_span), ("+", c.new, c.new_span)):
            lines += [
                f"  {sign} {span.line if span else 0:>4} | {printable(line)}" for line in text.split("\n") if text
            ]
    return "\n".join([*lines, _summary(every)]) + "\n"


def render_json(changes: Iterable[Change]) -> str:
    """The changes as one JSON array."""
    return json.dumps([c.as_dict() for c in changes], indent=2)


def _code(text: str) -> str:
    """A code span of a Markdown table: no text can end it or the cell."""
    if not text:
        return ""
    flat = printable(re.sub(r"\s+", " ", text)).replace("|", "\\|")
    fence = "`" * (1 + max((len(x) for x in re.findall("`+", flat)), default=0))
    return f"{fence} {flat} {fence}" if "`" in flat else f"{fence}{flat}{fence}"


def render_markdown(changes: Iterable[Change]) -> str:
    """The changes as a Markdown table, for the comment of a review."""
    every = tuple(changes)
    lines = [f"**{_summary(every)}**"]
    if every:
        lines += ["", "| severity | kind | change | old | new | fingerprint |", "|---|---|---|---|---|---|"]
    for c in every:
        message = re.sub(r"\s+", " ", c.message).replace("|", "\\|")
        cells = (c.severity, c.kind, message, _code(c.old), _code(c.new), f"`{c.fingerprint}`")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
