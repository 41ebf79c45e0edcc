"""The contract as immutable records; every clause keeps the span it came from, which equality ignores.

Plain frozen dataclasses rather than pydantic models: the command line must start quickly, and these values are
built by the parser, which has already checked their shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TypeAlias

LANGUAGE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Span:
    """Where a piece of text stands: 1-based line and column, and character offsets [start, end)."""

    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    start: int = 0
    end: int = 0


NO_SPAN = Span()


def _span() -> Span:
    return field(default=NO_SPAN, compare=False, repr=False)


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number in its base unit (seconds, bytes, ratio, cycles), with the unit as written."""

    value: float | int
    unit: str = ""
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Text:
    """A literal string."""

    value: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    value: bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Unknown:
    """`unknown`: the contract says that it does not know."""

    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Ref:
    """A dotted name: a control, a demand's property, `machine.x`, or `value` (what was asked for)."""

    parts: tuple[str, ...]
    span: Span = _span()

    @property
    def name(self) -> str:
        """The dotted form."""
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Apply:
    """A built-in function applied to arguments."""

    function: str
    arguments: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with one or two operands; `operator` is + - * / and or not neg == != < <= > >=."""

    operator: str
    operands: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if condition then yes else no`."""

    condition: Expr
    yes: Expr
    no: Expr
    span: Span = _span()


Expr: TypeAlias = Number | Text | Truth | Unknown | Ref | Apply | Operation | Conditional


# -------------------------------------------------------------------- clauses


@dataclass(frozen=True, slots=True)
class Package:
    """Python distributions that the contract is about, with a PEP 440 range of versions."""

    name: str
    versions: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Native:
    """Shared objects that the contract is about, as patterns of base names."""

    patterns: tuple[str, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Carried:
    """A native runtime of which the library brings its own copy.

    Attributes:
        name: of the runtime's contract; pattern: base name of the copy. Carriers with one pattern share one copy.
    """

    name: str
    pattern: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Idle:
    """How idle workers wait, for how long before they block, and under which condition; the first that holds."""

    mode: str
    duration: Expr | None = None
    condition: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Demand:
    """What the library takes from the machine.

    Attributes:
        inside: pools, of this or of a used contract, whose every worker may have a pool like this one.
        pinned: whether its workers are bound to CPUs.
    """

    name: str
    resource: Ref
    amount: Expr | None = None
    created: str | None = None
    scope: str | None = None
    idle: tuple[Idle, ...] = ()
    work: str | None = None
    runs: str | None = None
    fork: str | None = None
    runtime: str | None = None
    inside: tuple[Ref, ...] = ()
    pinned: Expr | None = None
    condition: Expr | None = None
    notes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The library sizes `resource` from these facts."""

    resource: Ref
    facts: tuple[Ref, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Forbids:
    """An event that must not happen, after which demand is in use, unless a condition holds."""

    event: str
    after: Ref | None = None
    unless: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the library believes about the machine and its neighbours."""

    name: str
    sizes: tuple[Sizes, ...] = ()
    ignores: tuple[Ref, ...] = ()
    requires: tuple[Expr, ...] = ()
    forbids: tuple[Forbids, ...] = ()
    consequence: str | None = None
    remedies: tuple[str, ...] = ()
    condition: Expr | None = None
    notes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Type:
    """A control's type: `int`, `choice("a", "b")`, `list(int)`, `sequence(text, 1 to 4)`, `placement(cpu.threads)`.

    Attributes:
        choices: of a choice; element: of a list, of a sequence, or of a map from text; least, greatest: length of a
            sequence; resource: what a placement puts its entity on.
    """

    name: str
    choices: tuple[str, ...] = ()
    element: Type | None = None
    least: int | None = None
    greatest: int | None = None
    resource: Ref | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive numeric range."""

    low: Expr
    high: Expr
    step: Expr | None = None
    scale: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Way:
    """One way to set a control, and when it is read.

    Attributes:
        kind: env | call | param | config.
        name: variable, dotted callable, `callable` of a parameter, or configuration key.
        binding: when the value is taken.
        parameters: named arguments of a call; the parameter's name for `param`.
        versions: releases of the library that know this way, if not all that the contract is about.
        taken: what a value that comes by this way is taken as, in place of the control's `effective`.
        lasts: process | context | call: how long the setting holds; None as `process`.
    """

    kind: str
    name: str
    binding: str
    parameters: tuple[str, ...] = ()
    condition: Expr | None = None
    deprecated: str | None = None
    versions: str | None = None
    taken: Expr | None = None
    lasts: str | None = None
    span: Span = _span()

    @property
    def label(self) -> str:
        """How users write it: `NAME`, `pkg.f()`, `pkg.f(parameter=)`."""
        if self.kind == "call":
            return f"{self.name}()"
        return f"{self.name}({self.parameters[0]}=)" if self.kind == "param" else self.name


@dataclass(frozen=True, slots=True)
class Special:
    """A value with a meaning of its own: `special 0 means machine.online`, `special "" ignored`.

    Attributes:
        value: what is given; text is compared with the text of the setting itself.
        meaning: what it stands for, if `action` is `means`.
        action: means | ignored (as if it were not set) | fails (an exception, or the end of the process).
    """

    value: Expr
    meaning: Expr | None = None
    action: str = "means"
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Control:
    """What changes a demand, and exactly how; `ways` in order of precedence, the first wins.

    Attributes:
        malformed: ignored | fails | prefix | default | unknown: what text does that is none of the type.
        levels: separator of a list with one value for each level of nesting; the first counts here.
        inherited: threads | fork | children | none: who starts with a value that was set while running.
    """

    name: str
    type: Type
    range: Range | None = None
    default: Expr | None = None
    ways: tuple[Way, ...] = ()
    combine: str | None = None
    effective: Expr | None = None
    specials: tuple[Special, ...] = ()
    malformed: str | None = None
    levels: str | None = None
    effect: str | None = None
    inherited: tuple[str, ...] = ()
    per: str | None = None
    bounds: tuple[Ref, ...] = ()
    affects: tuple[Ref, ...] = ()
    switch: str | None = None
    requires: tuple[Expr, ...] = ()
    condition: Expr | None = None
    notes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    span: Span = _span()

    def env_names(self) -> tuple[str, ...]:
        """Environment variables that set it, the winning one first."""
        return tuple(w.name for w in self.ways if w.kind == "env")


@dataclass(frozen=True, slots=True)
class Read:
    """How a signal is read: a call without arguments, an attribute, a native symbol, a file, a line of a log."""

    kind: str
    target: tuple[str, ...]
    field: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Signal:
    """How to see a demand at run time."""

    name: str
    kind: str
    read: Read | None = None
    observes: tuple[Ref, ...] = ()
    unit: str | None = None
    valid_after: str | None = None
    unreliable: str | None = None
    condition: Expr | None = None
    notes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Mitigation:
    """What the library limits for others, in its own process or its children: variables that it sets, or pools.

    Attributes:
        target: process | children; pool: whose children, if not those of every pool of processes of the contract.
    """

    name: str
    env: tuple[str, ...] = ()
    limits: tuple[Ref, ...] = ()
    value: Expr | None = None
    target: str | None = None
    pool: Ref | None = None
    unless_set: bool = False
    lasts: str | None = None
    condition: Expr | None = None
    notes: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    span: Span = _span()


Clause: TypeAlias = Demand | Assumption | Control | Signal | Mitigation
KEYWORDS: dict[type, str] = {
    Demand: "demand",
    Assumption: "assume",
    Control: "control",
    Signal: "signal",
    Mitigation: "mitigate",
}


@dataclass(frozen=True, slots=True)
class Contract:
    """One library's contract. `clauses` keeps the order of the text; comments belong to the file, not to it."""

    name: str
    packages: tuple[Package, ...] = ()
    natives: tuple[Native, ...] = ()
    summary: str | None = None
    uses: tuple[str, ...] = ()
    carries: tuple[Carried, ...] = ()
    clauses: tuple[Clause, ...] = ()
    span: Span = _span()

    @property
    def needs(self) -> tuple[str, ...]:
        """Contracts that this one speaks of: those that it uses, and those of the runtimes that it carries."""
        return tuple(dict.fromkeys((*self.uses, *(c.name for c in self.carries))))

    @property
    def demands(self) -> tuple[Demand, ...]:
        """Its demands, in order."""
        return tuple(c for c in self.clauses if isinstance(c, Demand))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Its assumptions, in order."""
        return tuple(c for c in self.clauses if isinstance(c, Assumption))

    @property
    def controls(self) -> tuple[Control, ...]:
        """Its controls, in order."""
        return tuple(c for c in self.clauses if isinstance(c, Control))

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Its signals, in order."""
        return tuple(c for c in self.clauses if isinstance(c, Signal))

    @property
    def mitigations(self) -> tuple[Mitigation, ...]:
        """Its mitigations, in order."""
        return tuple(c for c in self.clauses if isinstance(c, Mitigation))

    def control(self, name: str) -> Control | None:
        """The control of that name, or None."""
        return next((c for c in self.controls if c.name == name), None)

    def demand(self, name: str) -> Demand | None:
        """The demand of that name, or None."""
        return next((d for d in self.demands if d.name == name), None)


@dataclass(frozen=True, slots=True)
class File:
    """One LPCL file: its contracts, and its comments as (span, text), outside of equality."""

    version: int
    contracts: tuple[Contract, ...]
    comments: tuple[tuple[Span, str], ...] = field(default=(), compare=False)


def clause_label(clause: Clause) -> str:
    """`demand workers`, `control threads` ...: how diagnostics and diffs name a clause."""
    return f"{KEYWORDS[type(clause)]} {clause.name}"


def walk_expressions(node: object) -> Iterator[Expr]:
    """Every expression below a clause or an expression, outermost first."""
    stack: list[object] = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, tuple):
            stack.extend(reversed(here))
        elif is_dataclass(here) and not isinstance(here, type):
            if isinstance(here, Number | Text | Truth | Unknown | Ref | Apply | Operation | Conditional):
                yield here
            stack.extend(getattr(here, f.name) for f in reversed(fields(here)) if f.name != "span")


def walk_references(node: object) -> Iterator[Ref]:
    """Every reference below a clause or an expression, outermost first."""
    return (e for e in walk_expressions(node) if isinstance(e, Ref))
