"""Rules about a contract as a whole: its names, subject, versions, evidence, and the contracts that it needs."""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from lpcl import model as m
from lpcl.rules.base import WIDE, Finding, Found
from lpcl.rules.view import View

_EVIDENCE_ID = re.compile(r"^[a-z][a-z0-9_]*\Z")
_SNAKE = re.compile(r"^[a-z][a-z0-9_]*\Z")


def duplicate_clause(v: View) -> Found:
    """Two clauses have one name."""
    seen: dict[str, m.Clause] = {}
    for clause in v.contract.clauses:
        if clause.name in seen:
            first = m.clause_label(seen[clause.name])
            help_text = "rename one of them: references would be ambiguous"
            yield Finding(f"`{clause.name}` is already the name of `{first}`", clause.span, help_text)
        seen.setdefault(clause.name, clause)


def subject(v: View) -> Found:
    """The contract does not say what it is about."""
    c = v.contract
    if not c.packages and not c.natives:
        help_text = 'add `package "NAME"` or `native "libNAME*.so*"`'
        yield Finding(f"contract `{c.name}` names no package and no native library", c.span, help_text)


def versions(v: View) -> Found:
    """A version range is not one."""
    ranges = [(p.versions, p.span) for p in v.contract.packages]
    ranges += [(w.versions, w.span) for x in v.contract.controls for w in x.ways]
    for text, span in ranges:
        try:
            if text:
                SpecifierSet(text)
        except InvalidSpecifier:
            yield Finding(f"`{text}` is not a range of versions", span, 'write it like ">=2.11, <3"')


def evidence(v: View) -> Found:
    """A clause cites nothing."""
    for clause in v.contract.clauses:
        if not clause.evidence:
            help_text = "add `evidence ID`; the id stands in evidence.jsonl beside the contract"
            yield Finding(f"`{m.clause_label(clause)}` cites no evidence", clause.span, help_text)


def evidence_id(v: View) -> Found:
    """What is cited is no evidence id."""
    for clause in v.contract.clauses:
        for name in clause.evidence:
            if not _EVIDENCE_ID.match(name):
                yield Finding(f"`{name}` is no evidence id", clause.span, "ids are lower case")


def evidence_twice(v: View) -> Found:
    """A clause cites one evidence twice."""
    for clause in v.contract.clauses:
        if len(set(clause.evidence)) != len(clause.evidence):
            yield Finding(f"`{m.clause_label(clause)}` cites one evidence twice", clause.span)


def uses_itself(v: View) -> Found:
    """A contract uses itself."""
    c = v.contract
    if c.name in c.uses:
        yield Finding(f"contract `{c.name}` uses itself", c.span)


def used_twice(v: View) -> Found:
    """A contract uses one twice."""
    uses = v.contract.uses
    if len(set(uses)) != len(uses):
        yield Finding("one contract is used twice", v.contract.span)


def wide_native(v: View) -> Found:
    """A pattern of native libraries is so wide that a symbol could be anyone's."""
    for native in v.contract.natives:
        for pattern in native.patterns:
            if _is_wide(pattern):
                help_text = "write the library's own name, for example `libgomp*.so*`"
                yield Finding(f"`{pattern}` stands for more than one library", native.span, help_text)


def carried_and_used(v: View) -> Found:
    """A contract stands behind `uses` though it is carried."""
    for copy in v.contract.carries:
        if copy.name in v.contract.uses:
            yield Finding(f"`{copy.name}` is carried, and so used already", copy.span, "drop it from `uses`")


def carried_twice(v: View) -> Found:
    """A contract carries one copy twice, or itself."""
    seen: set[tuple[str, str | None]] = set()
    for copy in v.contract.carries:
        if copy.name == v.contract.name:
            yield Finding(f"contract `{copy.name}` carries itself", copy.span)
        elif (copy.name, copy.pattern) in seen:
            yield Finding(f"one copy of `{copy.name}` is carried twice", copy.span, "drop one of the lines")
        seen.add((copy.name, copy.pattern))


def wide_copy(v: View) -> Found:
    """The pattern of a copy stands for more than one library, or for a path."""
    for copy in v.contract.carries:
        if copy.pattern is not None and (not copy.pattern or _is_wide(copy.pattern)):
            help_text = "write the base name of the file that comes with the library"
            yield Finding(f"`{copy.pattern}` stands for more than one library", copy.span, help_text)


def snake_case(v: View) -> Found:
    """A name is not in lower snake case."""
    c = v.contract
    labels = [(c.name, f"contract {c.name}", c.span)]
    labels += [(x.name, m.clause_label(x), x.span) for x in c.clauses]
    for name, label, span in labels:
        if not _SNAKE.match(name):
            yield Finding(f"`{label}` is not in lower snake case", span, "write it like `max_threads`")


def _is_wide(pattern: str) -> bool:
    return bool(WIDE.search(pattern)) or "/" in pattern
