"""Findings about a user's text: returned, never raised."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lpcl.model import NO_SPAN, Span

Severity = Literal["error", "warning", "info"]


class LpcError(Exception):
    """Base of the errors that the package raises on misuse of its API."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes:
        rule: stable id, for example `LP101`.
        message: lower case, no final period, the user's own text in backticks.
        help: the fix, or `""`.
        file: path as the user gave it, or `""`.
    """

    rule: str
    severity: Severity
    message: str
    span: Span = NO_SPAN
    help: str = ""
    file: str = ""

    def as_dict(self) -> dict[str, object]:
        """The JSON form; lines and columns are 1-based."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "help": self.help,
            "file": self.file,
            "line": self.span.line,
            "column": self.span.column,
            "end_line": self.span.end_line,
            "end_column": self.span.end_column,
        }


def render(diagnostic: Diagnostic, text: str | None = None) -> str:
    """One finding as text, with the source line and a caret under the span."""
    d, span = diagnostic, diagnostic.span
    lines = [f"{d.file or '<text>'}:{span.line}:{span.column}: {d.severity}[{d.rule}]: {d.message}"]
    if text is not None:
        source = text.split("\n")
        if 0 < span.line <= len(source):
            line = source[span.line - 1].rstrip("\r")
            # A 10 MB line is not worth a screen: show the part around the span.
            shift = max(0, span.column - 60)
            # What is no UTF-8 (LP008) has no form on a terminal: one `?` for each byte keeps the caret in its place.
            shown = line[shift : shift + 110].replace("\t", " ").encode("utf-8", "replace").decode()
            end = span.end_column if span.end_line == span.line else len(line) + 1
            width = max(1, min(end - span.column, len(shown) - (span.column - 1 - shift)))
            gutter = f"{span.line:>5} | "
            lines.append(gutter + shown)
            lines.append(" " * (len(gutter) - 2) + "| " + " " * (span.column - 1 - shift) + "^" * width)
    if d.help:
        lines.append(f"  help: {d.help}")
    return "\n".join(lines)


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Findings as one JSON array."""
    return json.dumps([d.as_dict() for d in diagnostics], indent=2)
