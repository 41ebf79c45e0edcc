"""What must hold of any text: the basics of reading, checking, printing and JSON."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from evaluation.fuzz import deeper
from lpcl import model as m
from lpcl.check import check
from lpcl.diagnostics import Diagnostic, LpcError, render, render_json
from lpcl.exchange import MAX_JSON_DEPTH, ExchangeError, from_json, to_json
from lpcl.format import format_text
from lpcl.parse import MAX_FINDINGS, MAX_WORDS, Parsed, parse

# CPU seconds that a text may take, all checks together: the caps of the parser bound any text.
LIMIT_S = 5.0
MAX_MESSAGE = 400
MAX_WORK = 2 * MAX_WORDS + 3 * MAX_FINDINGS


@dataclass(frozen=True)
class Problem:
    """What went wrong: `kind` names the same bug for different texts, `detail` is for reading."""

    kind: str
    detail: str
    part: str = ""


def allowed(size: int) -> float:
    """CPU seconds that a text of this many characters may take."""
    return LIMIT_S + size / 1e6


def raised(what: str, error: BaseException, part: str = "") -> Problem:
    """An exception as a problem, named for where it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((f.name for f in reversed(frames) if f"{os.sep}lpcl{os.sep}" in f.filename), "?")
    tail = "".join(traceback.format_exception(error)[-6:])
    # Our own errors have fixed messages, one a bug.
    own = isinstance(error, LpcError | deeper.BrokenError)
    name = f"{error}".replace(" ", "_")[:50] if own else inner
    return Problem(f"{what}-{type(error).__name__}-{name}", tail[-2500:], part)


def _bad_span(s: m.Span, starts: list[int], size: int) -> str:
    """Why a span is not one of a text whose lines start there, or `""`."""
    lines = len(starts)
    if not 1 <= s.line <= s.end_line <= lines:
        return "line"

    def length(line: int) -> int:
        return (starts[line] if line < lines else size + 1) - starts[line - 1]

    # The caret of "ends too early" stands one behind the last character.
    if not 1 <= s.column <= length(s.line):
        return "column"
    if not 1 <= s.end_column <= length(s.end_line) + 1:
        return "end column"
    if (s.line, s.column) > (s.end_line, s.end_column):
        return "order"
    if not 0 <= s.start <= s.end <= size + 1:
        return "offset"
    return "start offset" if s.end and starts[s.line - 1] + s.column - 1 != s.start else ""


def _spans(node: object) -> Iterator[m.Span]:
    if isinstance(node, tuple):
        for part in node:
            yield from _spans(part)
    elif isinstance(node, m.Clause):
        yield node.span
        yield from (e.span for e in m.walk_expressions(node))


def _diagnostics(what: str, found: tuple[Diagnostic, ...], text: str, starts: list[int]) -> Iterator[Problem]:
    for d in found[:200]:
        why = _bad_span(d.span, starts, len(text))
        if why:
            yield Problem(f"{what}-span-{d.rule}-{why}", f"{d.span} of {d.rule} is outside the text")
        if what == "parse" and (len(d.message) > MAX_MESSAGE or len(d.help) > 2 * MAX_MESSAGE):
            yield Problem(f"{what}-length-{d.rule}", f"message of {len(d.message)} characters, help of {len(d.help)}")
    for d in found[:5]:
        render(d, text)
    if found:
        render_json(found[:20])


def _parse(text: str, starts: list[int], found: list[Problem]) -> Parsed:
    parsed = parse(text)
    errors = [d for d in parsed.diagnostics if d.severity == "error"]
    if parsed.ok == bool(errors):
        found.append(Problem("parse-ok", f"ok is {parsed.ok} with {len(errors)} errors"))
    if len(parsed.diagnostics) > MAX_FINDINGS:
        found.append(Problem("parse-many", f"{len(parsed.diagnostics)} diagnostics"))
    if parsed.work > min(MAX_WORK, 2 * len(text)):
        found.append(Problem("parse-work", f"{parsed.work} words were given to the parser"))
    found += _diagnostics("parse", parsed.diagnostics, text, starts)
    if parsed.file is None:
        return parsed
    for span in _spans(tuple(c.clauses for c in parsed.file.contracts)):
        why = _bad_span(span, starts, len(text))
        if why:
            found.append(Problem(f"model-span-{why}{'' if parsed.ok else '-damaged'}", f"{span} of a clause"))
            break
    for span, comment in parsed.file.comments[:200]:
        if text[span.start : span.end] != comment or _bad_span(span, starts, len(text)):
            found.append(Problem("comment-span", f"{span} of {comment[:60]!r}"))
    return parsed


def _format(text: str, parsed: Parsed, found: list[Problem]) -> None:
    result, diagnostics = format_text(text)
    if result is None and parsed.ok and [d.rule for d in diagnostics] == ["LP001"]:
        return  # the canonical form is too large
    if (result is not None) != parsed.ok or diagnostics != parsed.diagnostics:
        found.append(Problem("format-parse", "format and parse do not agree on whether the text is right"))
    if result is None:
        return
    again = parse(result)
    if again.file != parsed.file:
        found.append(Problem("format-equal", "the canonical text reads as another file"))
    # The formatter has proved this for itself: a part of the texts is enough.
    if len(result) % 4 == 0 and len(result) < 20_000 and format_text(result)[0] != result:
        found.append(Problem("format-idempotent", "formatting the canonical text changes it"))


def _json(file: m.File, found: list[Problem]) -> None:
    data = json.dumps(to_json(file))
    try:
        back = from_json(json.loads(data))
    except ExchangeError as error:
        if f"nests deeper than {MAX_JSON_DEPTH}" in str(error):
            return  # a limit of its own
        raise
    if back != file:
        found.append(Problem("json-equal", "the JSON form reads as another file"))


def line_starts(text: str) -> list[int]:
    """The offsets at which its lines start."""
    starts, at = [0], text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts


def examine(text: str, parts: frozenset[str] = frozenset(deeper.PARTS)) -> list[Problem]:
    """Everything that must hold of any text; `parts` of the language are tried beside the basics."""
    found: list[Problem] = []
    starts = line_starts(text)
    began = time.process_time()
    what = "parse"
    checked: tuple[Diagnostic, ...] = ()
    try:
        parsed = _parse(text, starts, found)
        if parsed.file is not None and (parsed.ok or len(text) % 2 == 0):
            what = "check"
            checked = check(parsed.file, name="x.lpcl")
            found += _diagnostics("check", checked, text, starts)
        if parsed.ok or len(text) % 8 == 0:
            what = "format"
            _format(text, parsed, found)
        if parsed.ok and parsed.file is not None:
            what = "json"
            _json(parsed.file, found)
    except Exception as error:  # noqa: BLE001  # any exception is what this looks for
        found.append(raised(what, error))
    else:
        given = deeper.Given(text, parsed, (*parsed.diagnostics, *checked))
        for part in sorted(parts):
            try:
                deeper.PARTS[part](given)
            except Exception as error:  # noqa: BLE001  # as above
                found.append(raised(part.replace(" ", "-"), error, part))
    seconds = time.process_time() - began
    if seconds > allowed(len(text)):
        found.append(Problem("slow", f"{seconds:.1f} s of CPU time for {len(text)} characters"))
    return found
