"""The checker: applies the rules of `lpcl.rules.table` to every contract of a file.

Rules never look outside the file; what needs the evidence file is in `corpus.py`.
"""

from __future__ import annotations

from lpcl import model as m
from lpcl.diagnostics import Diagnostic
from lpcl.rules.references import RESOURCES
from lpcl.rules.table import TABLE, Rule
from lpcl.rules.view import View
from lpcl.rules.ways import settable

__all__ = ["RESOURCES", "RULES", "Rule", "check", "settable"]

RULES: tuple[Rule, ...] = TABLE


def check(file: m.File, *, name: str = "") -> tuple[Diagnostic, ...]:
    """Every finding in a file, in the order of the text."""
    found: list[Diagnostic] = []
    seen: set[str] = set()
    for contract in file.contracts:
        view = View(contract)
        for rule in RULES:
            if rule.judge is not None:
                found += [Diagnostic(rule.id, rule.severity, *f, name) for f in rule.judge(view)]
        if contract.name in seen:
            message = f"two contracts are named `{contract.name}`"
            found.append(Diagnostic("LP100", "error", message, contract.span, "", name))
        seen.add(contract.name)
    return tuple(sorted(found, key=lambda d: (d.span.line, d.span.column, d.rule)))
