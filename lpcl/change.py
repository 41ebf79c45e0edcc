"""One change between two contracts, and how the two sides of it are read and written."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_version

from lpcl import model as m
from lpcl.expr import evaluate
from lpcl.format import clause_text
from lpcl.units import dimension, in_base

Severity = Literal["breaking", "behavioural", "compatible", "editorial"]
# The gravest first: what breaks a tuned configuration, what may change how it runs, what it need not notice, words.
SEVERITIES: tuple[Severity, ...] = ("breaking", "behavioural", "compatible", "editorial")

KINDS: dict[str, str] = {
    "contract-renamed": "the contract has another name",
    "package-added": "the contract is about one more distribution",
    "package-removed": "the contract is no longer about a distribution",
    "package-versions-changed": "other releases of a distribution",
    "native-changed": "other patterns of shared objects",
    "uses-changed": "other contracts are used",
    "carries-changed": "the wheel carries other copies of native runtimes",
    "summary-changed": "another summary",
    "control-added": "a new control",
    "control-removed": "a control is gone",
    "control-renamed": "same ways, other name",
    "type-changed": "another type",
    "range-widened": "every value of the old range is in the new one",
    "range-narrowed": "a value of the old range may be outside of the new one",
    "range-changed": "another step or scale, or ends that cannot be compared",
    "default-changed": "another default",
    "way-added": "one more way to set the control",
    "way-removed": "a way to set the control is gone",
    "way-changed": "another condition, meaning, duration, range of releases, argument or deprecation",
    "precedence-changed": "another way wins",
    "binding-changed": "a way is read at another time",
    "effective-changed": "another effective value",
    "special-changed": "other special values",
    "malformed-changed": "text that is no value does something else",
    "levels-changed": "a list of values is read in another way",
    "inherited-changed": "others start with the value that was set",
    "effect-changed": "it reaches others",
    "entity-changed": "it exists once for something else",
    "bounds-changed": "it sets other demands",
    "affects-changed": "it changes other demands",
    "switch-changed": "a change costs more or less",
    "requires-changed": "something else must hold for it to be set",
    "condition-changed": "the clause is about another state of the library",
    "demand-added": "a new demand",
    "demand-removed": "a demand is gone",
    "resource-changed": "a demand on another resource",
    "amount-changed": "another amount",
    "created-changed": "it comes to be at another time",
    "scope-changed": "one for something else",
    "idle-changed": "idle workers wait in another way",
    "work-changed": "something else limits it",
    "runs-changed": "user code does, or does not, run inside of it",
    "fork-changed": "it survives a fork in another way",
    "runtime-changed": "it belongs to another native runtime",
    "inside-changed": "it exists once in each worker of another pool",
    "pinned-changed": "its workers are, or are not, bound to CPUs",
    "assumption-added": "a new assumption",
    "assumption-removed": "an assumption is gone",
    "assumption-changed": "an assumption states something else",
    "signal-added": "a new signal",
    "signal-removed": "a signal is gone",
    "signal-changed": "a signal is read in another way or shows something else",
    "mitigation-added": "a new mitigation",
    "mitigation-removed": "a mitigation is gone",
    "mitigation-changed": "a mitigation sets something else",
    "note-changed": "another note or remedy",
    "evidence-changed": "the clause rests on other evidence",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        contract: name of the old contract; clause: `control threads`, or `contract`.
        kind: one of `KINDS`.
        severity: what it means for a configuration that was tuned with the old contract.
        message: one sentence, lower case, no final period.
        old, new: the canonical text on either side, `""` where there is none.
        old_span, new_span: where it stands, or its clause if it stands on the other side only; None if the clause does.
    """

    contract: str
    clause: str
    kind: str
    severity: Severity
    message: str
    old: str = ""
    new: str = ""
    old_span: m.Span | None = None
    new_span: m.Span | None = None

    @property
    def fingerprint(self) -> str:
        """16 hex digits that position, order and formatting leave alone: what an approval refers to."""
        identity = json.dumps([self.contract, self.clause, self.kind, self.old, self.new])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, object]:
        """The JSON form; lines are 1-based, 0 where there is nothing."""
        return {
            "fingerprint": self.fingerprint,
            "severity": self.severity,
            "kind": self.kind,
            "contract": self.contract,
            "clause": self.clause,
            "message": self.message,
            "old": self.old,
            "new": self.new,
            "old_line": self.old_span.line if self.old_span else 0,
            "new_line": self.new_span.line if self.new_span else 0,
        }


# ---------------------------------------------------------------------- texts

_BLANK: dict[type, m.Clause] = {
    m.Demand: m.Demand("x", m.Ref(("files",))),
    m.Assumption: m.Assumption("x"),
    m.Control: m.Control("x", m.Type("int")),
    m.Signal: m.Signal("x", "gauge"),
    m.Mitigation: m.Mitigation("x"),
}
NOUNS = {m.Demand: "demand", m.Assumption: "assumption", m.Control: "control", m.Signal: "signal"}


def property_text(cls: type, field: str, value: Any) -> str:
    """The canonical lines of one property of a clause."""
    if not value:
        return ""
    if isinstance(value, m.Type) or field in {"kind", "resource"}:
        title = clause_text(replace(_BLANK[cls], **{field: value})).split("\n")[0]
        return title.partition(": ")[2].removesuffix(" {")
    values = {field: value}
    if field == "pool":  # it is part of the line that says where
        values["target"] = "children"
    lines = clause_text(replace(_BLANK[cls], **values)).split("\n")[1:-1]
    return "\n".join(line[2:] for line in lines)


def way_text(way: m.Way) -> str:
    """A way as its property is written."""
    return property_text(m.Control, "ways", (way,))


def quoted(text: str) -> str:
    """A text in backticks on one line, short enough for a sentence; nothing in it can end the backticks."""
    if not text:
        return "nothing"
    flat = printable("; ".join(text.split("\n")).replace("`", "'"))
    return f"`{flat if len(flat) <= 80 else flat[:77] + '...'}`"


def printable(text: str) -> str:
    """A text that moves no cursor and that any stream can write."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


# --------------------------------------------------------------------- meaning

# Properties whose order says nothing.
BAGS = frozenset(
    {"notes", "evidence", "requires", "ignores", "forbids", "bounds", "affects", "observes", "remedies", "limits"}
    | {"sizes", "facts", "choices", "uses", "inherited", "inside"}
)


def sorted_values(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values without duplicates in a fixed order, where their order says nothing."""
    unique = {repr(v): v for v in values}
    return tuple(unique[k] for k in sorted(unique))


def in_order(node: Any) -> Any:
    """A clause with everything in one order whose order says nothing."""
    if isinstance(node, tuple):
        return tuple(in_order(v) for v in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    values = {f.name: in_order(getattr(node, f.name)) for f in fields(node) if f.name != "span"}
    values |= {k: sorted_values(v) for k, v in values.items() if k in BAGS}
    if isinstance(node, m.Mitigation):
        values["env"] = sorted_values(values["env"])
    if isinstance(node, m.Control):
        if node.combine in {"min", "max"}:
            values["ways"] = sorted_values(values["ways"])
        asked = [evaluate(s.value, {}) for s in node.specials]
        if None not in asked and len(set(asked)) == len(asked):
            values["specials"] = sorted_values(values["specials"])
    if isinstance(node, m.Assumption):
        values["sizes"] = _merged(values["sizes"])
    return replace(node, **values)


def _merged(sizes: tuple[m.Sizes, ...]) -> tuple[m.Sizes, ...]:
    """One `sizes` for each resource."""
    facts: dict[m.Ref, tuple[m.Ref, ...]] = {}
    for s in sizes:
        facts[s.resource] = (*facts.get(s.resource, ()), *s.facts)
    spans = {s.resource: s.span for s in reversed(sizes)}
    return sorted_values(m.Sizes(r, sorted_values(f), spans[r]) for r, f in facts.items())


def meaning(node: Any, names: dict[str, str]) -> Any:
    """What is compared: quantities in base units, ranges of versions as sets, controls by their new name."""
    if isinstance(node, tuple):
        return tuple(meaning(v, names) for v in node)
    if isinstance(node, m.Number):
        try:
            value = in_base(node.value, node.unit)
            return m.Number(int(value) if float(value).is_integer() else value, dimension(node.unit))
        except OverflowError:
            return node
    if isinstance(node, m.Ref):
        return m.Ref((names.get(node.name, node.name),))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    values = {f.name: meaning(getattr(node, f.name), names) for f in fields(node) if f.name not in {"span", "resource"}}
    if isinstance(node, m.Control):
        values["combine"] = None if node.combine == "first_set" else node.combine
    if "versions" in values:
        values["versions"] = specifiers(values["versions"])
    return replace(node, **{k: sorted_values(v) if k in BAGS else v for k, v in values.items()})


def specifiers(versions: str | None) -> Any:
    """A range of versions as the set that it is; the text itself if it is none."""
    try:
        every = SpecifierSet(versions or "")
        # `~=2.0` and `~=2` differ, other trailing zeros say nothing.
        parts = {(s.operator, canonicalize_version(s.version, strip_trailing_zero=s.operator != "~=")) for s in every}
    except ValueError:  # also a number with more digits than Python converts
        return versions
    return None if versions is None else tuple(sorted(parts))


def matched(
    old: Iterable[Any], new: Iterable[Any], key: Callable[[Any], Any], names: dict[str, str]
) -> list[tuple[Any, Any]]:
    """What belongs together by its key, equals first; None where one side has nothing."""
    groups: dict[Any, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, items in enumerate((old, new)):
        for item in items:
            groups[key(item)][side].append(item)
    result: list[tuple[Any, Any]] = []
    for left, right in groups.values():
        rest = list(right)
        alone: list[Any] = []
        for item in left:
            same = next((r for r in rest if meaning(r, names) == meaning(item, names)), None)
            if same is None:
                alone.append(item)
            else:
                rest.remove(same)
                result.append((item, same))
        # Two of one name are an error of the contract: they are paired in an order that positions do not change.
        alone, rest = sorted(alone, key=repr), sorted(rest, key=repr)
        n = max(len(alone), len(rest))
        result += zip(alone + [None] * (n - len(alone)), rest + [None] * (n - len(rest)), strict=True)
    return result


# --------------------------------------------------------------------- compare


def covers(wide: str | None, narrow: str | None) -> bool:
    """Whether every release of `narrow` is in `wide`, judged at the versions that either names and beside them."""
    try:
        return _covers_set(SpecifierSet(wide or ""), SpecifierSet(narrow or ""))
    except ValueError:  # no range of versions
        return False


def _covers_set(wide: SpecifierSet, narrow: SpecifierSet) -> bool:
    points = {"0", "0.0.1"}
    named = re.findall(r"\d+(?:\.\d+)*", f"{wide} {narrow}")
    if len(named) > 64:  # no range that a person wrote: each point is compared with each
        return False
    for numbers in named:
        parts = [int(x[:9]) for x in numbers.split(".")][:8]
        points |= {numbers, ".".join(map(str, [*parts, 0, 1]))}
        for i in range(len(parts)):
            points.add(".".join(map(str, [*parts[:i], parts[i] + 1])))
            points.add(".".join(map(str, [*parts[:i], parts[i] + 1, 0, 1])))
    return all(wide.contains(v, prereleases=True) for v in points if narrow.contains(v, prereleases=True))
