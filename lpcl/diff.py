"""What differs between two contracts, and what that means for a configuration that was tuned with the old one.

Compared is what a contract says: the order of clauses, and of properties whose order says nothing, is no
difference, nor is `1024MiB` instead of `1GiB`. The order of the ways of a control and of `idle` lines is one.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from packaging.utils import canonicalize_name

from lpcl import model as m
from lpcl.change import SEVERITIES, Change, Severity, covers, in_order, matched, quoted, specifiers
from lpcl.diff_clause import Pair
from lpcl.format import contract_text


def compare(old: m.Contract, new: m.Contract) -> tuple[Change, ...]:
    """Every difference of meaning between two contracts, the gravest first.

    Args:
        old: the contract that configurations were tuned with.
        new: the one that replaces it.

    Returns:
        The changes, in an order that does not depend on where anything stands; empty if nothing differs.
    """
    before = [in_order(c) for c in old.clauses]
    after = [in_order(c) for c in new.clauses]
    renamed = _renamed(before, after)
    names = {a.name: b.name for a, b in renamed}
    gone, come = {a.name for a, _ in renamed}, {b.name for _, b in renamed}
    found = list(_head(old, new))
    pairs: list[tuple[Any, Any]] = list(renamed)
    pairs += matched(
        (c for c in before if not (isinstance(c, m.Control) and c.name in gone)),
        (c for c in after if not (isinstance(c, m.Control) and c.name in come)),
        lambda c: (type(c).__name__, c.name),
        names,
    )
    for a, b in pairs:
        found += Pair(old.name, a, b, names).changes()
    found.sort(key=lambda c: (SEVERITIES.index(c.severity), c.clause, c.kind, c.old, c.new))
    return tuple(found)


def _renamed(old: list[m.Clause], new: list[m.Clause]) -> list[tuple[m.Control, m.Control]]:
    """Controls that went and came with the same ways: one on each side, or nobody can tell which is which."""

    def by_ways(here: list[m.Clause], there: list[m.Clause]) -> dict[Any, list[m.Control]]:
        kept = {c.name for c in there if isinstance(c, m.Control)}
        result: dict[Any, list[m.Control]] = defaultdict(list)
        for c in here:
            if isinstance(c, m.Control) and c.name not in kept and c.ways:
                result[frozenset((w.kind, w.name, w.parameters) for w in c.ways)].append(c)
        return result

    left, right = by_ways(old, new), by_ways(new, old)
    both = [(left[k], right[k]) for k in left if k in right]
    return [(a[0], b[0]) for a, b in both if len(a) == len(b) == 1]


def _head(old: m.Contract, new: m.Contract) -> Iterator[Change]:
    def change(kind: str, severity: Severity, message: str, a: str, b: str, *spans: m.Span | None) -> Change:
        return Change(old.name, "contract", kind, severity, message, a, b, *(spans or (old.span, new.span)))

    if old.name != new.name:
        message = f"contract `{old.name}` is now {quoted(new.name)}: a configuration that names it no longer finds it"
        yield change("contract-renamed", "breaking", message, old.name, new.name)
    if old.summary != new.summary:
        message = "the summary is another one"
        yield change("summary-changed", "editorial", message, old.summary or "", new.summary or "")
    if set(old.uses) != set(new.uses):
        a, b = ", ".join(sorted(set(old.uses))), ", ".join(sorted(set(new.uses)))
        yield change("uses-changed", "behavioural", f"the contract uses {quoted(b)}, not {quoted(a)}", a, b)
    before, after = ({f"{x.name} {x.pattern or ''}".rstrip() for x in c.carries} for c in (old, new))
    if before != after:
        a, b = ", ".join(sorted(before)), ", ".join(sorted(after))
        yield change("carries-changed", "behavioural", f"the wheel carries {quoted(b)}, not {quoted(a)}", a, b)
    before, after = ({p for n in c.natives for p in n.patterns} for c in (old, new))
    if before != after:
        a, b = ", ".join(sorted(before)), ", ".join(sorted(after))
        message = f"it is about the shared objects {quoted(b)}, not {quoted(a)}"
        yield change("native-changed", "compatible" if before <= after else "breaking", message, a, b)
    for p, q in matched(old.packages, new.packages, lambda p: canonicalize_name(p.name), {}):
        a, b = _package_text(p), _package_text(q)
        spans = (p.span if p else None, q.span if q else None)
        if p is None:
            yield change("package-added", "compatible", f"it is about {quoted(b)} too", a, b, *spans)
        elif q is None:
            yield change("package-removed", "breaking", f"it is no longer about {quoted(a)}", a, b, *spans)
        elif specifiers(p.versions) != specifiers(q.versions):
            wider = covers(q.versions, p.versions)
            message = f"it is about {quoted(b)}, " + ("which takes in" if wider else "which may leave out releases of")
            message += f" {quoted(a)}"
            yield change("package-versions-changed", "compatible" if wider else "breaking", message, a, b, *spans)


def _package_text(p: m.Package | None) -> str:
    if p is None:
        return ""
    return contract_text(m.Contract("x", (p,))).split("\n")[1].strip()
