"""Findings in the forms that code review tools read: SARIF 2.1.0 and GitHub workflow commands."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from lpcl.diagnostics import Diagnostic
from lpcl.rules.table import TABLE

DOCS = "docs/lpcl.md"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}

# The headings of the reference, from which the anchors follow.
TITLES: dict[str, str] = {rule.id: rule.title for rule in TABLE}


def help_uri(rule: str) -> str:
    """Where the reference explains a rule; its list of rules for one that it does not know."""
    if rule not in TITLES:
        return f"{DOCS}#rules"
    anchor = re.sub(r"[^\w\- ]", "", f"{rule}: {TITLES[rule]}".lower()).replace(" ", "-")
    return f"{DOCS}#{anchor}"


def _uri(path: str) -> str:
    """A path as a URI: `file:` if it is absolute, else relative to the place of the run."""
    pure = PurePath(path)
    if pure.is_absolute():
        return pure.as_uri()
    # A colon in the first part would read as a scheme.
    return quote(pure.as_posix(), safe="/")


def _rule(rule: str) -> dict[str, Any]:
    return {
        "id": rule,
        "shortDescription": {"text": TITLES.get(rule, rule)},
        "helpUri": help_uri(rule),
    }


def _result(d: Diagnostic, index: int) -> dict[str, Any]:
    text = f"{d.message}; {d.help}" if d.help else d.message
    # Without the position: a finding keeps its identity when lines move.
    identity = hashlib.sha256(json.dumps([d.rule, d.file, d.message]).encode()).hexdigest()[:16]
    result: dict[str, Any] = {
        "ruleId": d.rule,
        "ruleIndex": index,
        "level": _LEVELS[d.severity],
        "message": {"text": text},
        "partialFingerprints": {"lpcl/v1": identity},
    }
    if d.file:
        region = {
            "startLine": d.span.line,
            "startColumn": d.span.column,
            "endLine": d.span.end_line,
            "endColumn": d.span.end_column,
        }
        place = {"artifactLocation": {"uri": _uri(d.file)}, "region": region}
        result["locations"] = [{"physicalLocation": place}]
    return result


def sarif(diagnostics: Iterable[Diagnostic], tool_version: str) -> dict[str, Any]:
    """A SARIF 2.1.0 log of one run.

    Args:
        diagnostics: the findings, in the order in which they are to be shown.
        tool_version: the version of `lpcl`.

    Returns:
        The log, ready for `json.dumps`. A finding without a file has no location.
    """
    found = list(diagnostics)
    rules = sorted({d.rule for d in found})
    index = {rule: i for i, rule in enumerate(rules)}
    driver = {"name": "lpcl", "version": tool_version, "rules": [_rule(r) for r in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, index[d.rule]) for d in found],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _data(text: str) -> str:
    """The message of a workflow command: `%` first, or it would escape the escapes."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """A property of a workflow command, in which `:` and `,` end something."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def github(diagnostics: Iterable[Diagnostic]) -> str:
    """One GitHub workflow command a line for each finding; the empty string for none.

    Whatever stands in a message or a path, it makes no second command: line ends and separators are escaped.
    """
    lines: list[str] = []
    for d in diagnostics:
        place = [f"file={_property(d.file)}", f"line={d.span.line}", f"col={d.span.column}"] if d.file else []
        properties = ",".join([*place, f"title={_property(d.rule)}"])
        text = f"{d.message}\n{d.help}" if d.help else d.message
        lines.append(f"::{_COMMANDS[d.severity]} {properties}::{_data(text)}\n")
    return "".join(lines)
