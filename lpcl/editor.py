"""What editors ask about a text: pure functions of the text and an offset, without a protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lpcl import model as m
from lpcl.check import check
from lpcl.corpus import Cited, Review, fingerprint, trust
from lpcl.diagnostics import Diagnostic
from lpcl.expr import FUNCTIONS, MACHINE_FACTS
from lpcl.format import expression
from lpcl.lalr import Feed, LimitStop, SyntaxStop, read
from lpcl.parse import MAX_FINDINGS, MAX_STACK, parse
from lpcl.tables import keywords

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A contract or clause for an outline: `name` as shown, offsets of the whole and of the name."""

    name: str
    kind: str
    start: int
    end: int
    children: tuple[Symbol, ...] = ()


def diagnostics(text: str, cited: Mapping[str, Cited] | None = None) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a text; with the evidence beside it also ids that do not exist."""
    parsed = parse(text)
    found = list(parsed.diagnostics)
    if parsed.file is not None and parsed.ok:
        found += check(parsed.file)
        for clause in (c for x in parsed.file.contracts for c in x.clauses) if cited is not None else ():
            found += [
                Diagnostic("LP156", "error", f"`{i}` is not in the evidence file", clause.span)
                for i in clause.evidence
                if cited is not None and i not in cited
            ]
    return tuple(found)


def word_at(text: str, offset: int) -> tuple[str, int, int]:
    """The dotted name around an offset, with its start and end; empty if there is none."""
    for match in _WORD.finditer(text, max(0, text.rfind("\n", 0, offset) + 1)):
        if match.start() <= offset <= match.end():
            return match.group(), match.start(), match.end()
        if match.start() > offset:
            break
    return "", offset, offset


def _contract_at(file: m.File | None, offset: int) -> m.Contract | None:
    if file is None:
        return None
    inside = [c for c in file.contracts if c.span.start <= offset <= c.span.end]
    return inside[0] if inside else (file.contracts[0] if len(file.contracts) == 1 else None)


def clause_at(text: str, offset: int) -> m.Clause | None:
    """The clause around an offset."""
    contract = _contract_at(parse(text).file, offset)
    clauses = contract.clauses if contract else ()
    return next((c for c in clauses if c.span.start <= offset <= c.span.end), None)


def _named(contract: m.Contract | None, word: str) -> m.Clause | None:
    """The clause that a name such as `threads` or `workers.amount` stands for."""
    first = word.split(".", maxsplit=1)[0]
    return next((c for c in contract.clauses if c.name == first), None) if contract else None


def _name_span(text: str, clause: m.Clause) -> tuple[int, int]:
    match = re.compile(rf"\w+\s+({re.escape(clause.name)})\b").match(text, clause.span.start)
    return match.span(1) if match else (clause.span.start, clause.span.start)


def definition(text: str, offset: int) -> tuple[int, int] | None:
    """Where the name at an offset is defined, in the same contract: start and end of the name there."""
    word, _, _ = word_at(text, offset)
    clause = _named(_contract_at(parse(text).file, offset), word) if word else None
    return _name_span(text, clause) if clause is not None else None


def occurrences(text: str, offset: int) -> list[tuple[int, int]]:
    """Every place of the contract where the clause named at an offset is named: its definition and the references."""
    word, _, _ = word_at(text, offset)
    contract = _contract_at(parse(text).file, offset)
    clause = _named(contract, word) if word else None
    if clause is None or contract is None:
        return []
    found = {_name_span(text, clause)}
    for ref in (r for c in contract.clauses for r in m.walk_references(c)):
        resource = any(ref is x for c in contract.clauses for x in _resources(c))
        if ref.parts[0] == clause.name and not resource and ref.span is not m.NO_SPAN:
            found.add((ref.span.start, ref.span.start + len(clause.name)))
    return sorted(found)


def _resources(clause: m.Clause) -> tuple[m.Ref, ...]:
    if isinstance(clause, m.Demand):
        return (clause.resource,)
    return tuple(s.resource for s in clause.sizes) if isinstance(clause, m.Assumption) else ()


def hover(
    text: str, offset: int, cited: Mapping[str, Cited] | None = None, reviews: Mapping[str, Review] | None = None
) -> str | None:
    """Markdown about what stands at an offset: a fact, a function, or a clause with its evidence and trust."""
    word, _, _ = word_at(text, offset)
    if word.startswith("machine.") and word.removeprefix("machine.") in MACHINE_FACTS:
        return f"`{word}`: {MACHINE_FACTS[word.removeprefix('machine.')]}"
    here = clause_at(text, offset)
    clause = _named(_contract_at(parse(text).file, offset), word) or here
    if clause is None:
        return None
    lines = [f"**{m.clause_label(clause)}**"]
    if isinstance(clause, m.Control):
        lines += [f"- `{w.label}`, read at {w.binding}" for w in clause.ways]
        if clause.default is not None:
            lines.append(f"- default `{expression(clause.default)}`")
    if isinstance(clause, m.Demand) and clause.amount is not None:
        lines.append(f"- {clause.resource.name}: `{expression(clause.amount)}`")
    if cited is not None:
        review = (reviews or {}).get(fingerprint(clause, cited))
        by = f" by {review.by} on {review.on}" if review is not None else ""
        lines.append(f"- {trust(clause, cited, reviews or {})}{by}")
    for identifier in clause.evidence:
        record = (cited or {}).get(identifier)
        if record is None:
            lines.append(f"- evidence `{identifier}`" + ("" if cited is None else " (missing)"))
        else:
            detail = str(record.raw.get("seen", {}).get("detail") or "")
            lines.append(
                f"- evidence `{identifier}` ({record.vouched}): {record.source} {record.place} {detail}".rstrip()
            )
    return "\n".join(lines)


def complete(text: str, offset: int) -> list[tuple[str, str]]:
    """What may stand at an offset: (text, kind) with kind keyword, name, fact or function."""
    start = offset
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_."):
        start -= 1
    prefix = text[start:offset]
    accepted: frozenset[str] = frozenset({"CONTRACT"})
    try:
        read(text[:start], "start", Feed(MAX_STACK, MAX_FINDINGS))
    except SyntaxStop as stop:
        if not stop.end:
            return []
        accepted = stop.expected
    except LimitStop:
        return []
    words = keywords()
    found = [(w, "keyword") for t in sorted(accepted) for w in words.get(t, ()) if w[0].isalpha()]
    if ("NAME" in accepted and {"NUMBER", "RPAR", "INT"} & set(accepted)) or _expects_reference(text[:start]):
        found += _names(text, offset)
    return sorted({x for x in found if x[0].startswith(prefix)})


def _expects_reference(before: str) -> bool:
    return (
        re.search(r"\b(bounds|affects|observes|ignores|limits|inside|from|after|of)\s+(?:[\w.]+\s*,\s*)*$", before)
        is not None
    )


def _names(text: str, offset: int) -> list[tuple[str, str]]:
    # The text around the cursor is often damaged; names are found by the words that introduce them.
    start = text.rfind("\ncontract ", 0, offset)
    end = text.find("\ncontract ", offset)
    part = text[max(0, start) : end if end >= 0 else len(text)]
    names = [(n, "name") for n in re.findall(r"\bcontrol\s+(\w+)\s*:", part)]
    for demand in re.findall(r"\bdemand\s+(\w+)\s*:", part):
        names += [(f"{demand}.amount", "name"), (f"{demand}.idle", "name")]
    names += [(f"machine.{f}", "fact") for f in MACHINE_FACTS]
    return names + [(f, "function") for f in FUNCTIONS]


def outline(text: str) -> Sequence[Symbol]:
    """Contracts and their clauses."""
    file = parse(text).file
    return tuple(
        Symbol(
            c.name,
            "contract",
            c.span.start,
            c.span.end,
            tuple(Symbol(m.clause_label(x), "clause", x.span.start, x.span.end) for x in c.clauses),
        )
        for c in (file.contracts if file else ())
    )
