"""The joint configuration space of a system: what can be set, to which values, and which of them do not go together.

A parameter is a way to set something, an environment variable for the most part: one that several libraries read is
one parameter with the values that all of them take. Copies of a runtime share their parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lpcl import model as m
from lpcl.compose import System, compose
from lpcl.expr import Value, evaluate
from lpcl.resolve import Resolved

# How a value of a choice says that the setting is left out, where the contract does not know the default.
UNSET = "(unset)"
_NUMBERS = frozenset({"int", "float", "size", "duration"})
_GRAVE = frozenset({"hang", "crash", "wrong_result"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One way that can be set.

    Attributes:
        label: `OMP_NUM_THREADS`, `pkg.f(parameter=)`; controls: those it sets, as `contract.control`; also: those that
            have it as another way, and take it unless a better one is set.
        kind: int | float | size | duration | bool | choice, or another type that has no finite or numeric domain.
        low, high, step, scale: of numbers, None where open; choices: of a choice.
        default: value in effect when nothing is set, None if not known.
        switch: live | session | process: what a change costs. inactive: why it does nothing here, or "".
    """

    label: str
    way: m.Way
    controls: tuple[str, ...]
    kind: str
    also: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    step: float | None = None
    scale: str | None = None
    choices: tuple[str, ...] = ()
    default: Value = None
    switch: str | None = None
    inactive: str = ""

    @property
    def open(self) -> bool:
        """Whether the domain is not known: nothing can be chosen from it."""
        if self.kind in _NUMBERS:
            return self.low is None or self.high is None or self.low > self.high
        return self.kind != "bool" and not (self.kind == "choice" and self.choices)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What must hold for a parameter to be set as it is.

    Attributes:
        kind: bound (of its range) | requires | when (or it does nothing) | assumption (of a library, or it hangs,
            crashes or computes something wrong).
        subject: `contract.clause`; expr: in the names of that contract; parameters: labels that it speaks of.
    """

    kind: str
    subject: str
    expr: m.Expr
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """Parameters by label, and the constraints between them."""

    system: System
    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...]

    def parameter(self, label: str) -> Parameter | None:
        """The parameter of that label, or the one that sets that control."""
        return next((p for p in self.parameters if label == p.label or label in p.controls), None)

    def decides_activity(self, constraint: Constraint) -> bool:
        """Whether a constraint is about other parameters only: these decide whether its own one is set at all."""
        owner = self.parameter(constraint.subject)
        kinds = {"when", "requires"}
        return constraint.kind in kinds and owner is not None and owner.label not in constraint.parameters

    def environ(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Parameter -> value as the settings that `compose` takes."""
        return {k: _text(v) for k, v in values.items() if v is not None and v != UNSET}

    def violations(self, values: Mapping[str, Value]) -> tuple[Constraint, ...]:
        """The constraints that an assignment breaks.

        Args:
            values: label -> value, of the parameters that are set.
        """
        there = self._composed(values)
        return tuple(c for c in self.constraints if self._holds(c, values, there) is False)

    def holds(self, constraint: Constraint, values: Mapping[str, Value]) -> bool | None:
        """Whether a constraint holds under an assignment; None if that cannot be known, or it is about nothing set."""
        return self._holds(constraint, values, self._composed(values))

    def _composed(self, values: Mapping[str, Value]) -> System:
        environ = {**self.system.environ, **self.environ(values)}
        contracts = [r.contract for r in self.system.members]
        return compose(contracts, self.system.machine, environ, releases=self.system.releases)

    def _holds(self, constraint: Constraint, values: Mapping[str, Value], there: System) -> bool | None:
        contract, _, clause = constraint.subject.partition(".")
        own = self.parameter(constraint.subject)
        given = own is not None and values.get(own.label) not in {None, UNSET}
        member = there.member(contract)
        if member is None or (constraint.kind != "assumption" and not given):
            return None
        known = dict(member.known)
        if constraint.kind == "bound" and own is not None:
            known[clause] = values[own.label]  # what was asked for, not what it is cut to
        result = evaluate(constraint.expr, known)
        return bool(result) if result is not None else None


def space(system: System) -> Space:
    """The space of a system; `system.environ` holds what is set already and stays as it is."""
    parameters: dict[str, Parameter] = {}
    for member in system.members:
        for control in member.contract.controls:
            own = _parameter(member, control)
            if own is None or own.label in system.environ:
                continue
            other = parameters.get(own.label)
            parameters[own.label] = own if other is None else _both(other, own)
    found = tuple(replace(parameters[k], also=_also(system, parameters[k])) for k in sorted(parameters))
    here = Space(system, found, ())
    return replace(here, constraints=tuple(_constraints(here)))


def _parameter(member: Resolved, control: m.Control) -> Parameter | None:
    ways = [w for w in control.ways if w.deprecated is None and w.binding != "build"]
    way = next((w for w in ways if w.kind == "env"), ways[0] if ways else None)
    if way is None:
        return None
    low, high, step = _limits(member, control)
    default = member.values.get(control.name)
    return Parameter(
        way.label,
        way,
        (f"{member.contract.name}.{control.name}",),
        control.type.name,
        (),
        low,
        high,
        step,
        control.range.scale if control.range else None,
        control.type.choices,
        default,
        control.switch,
        # What only other settings switch off can be switched on: that is a constraint.
        "" if any(map(_speaks, _conditions(control, way))) else member.inactive.get(control.name, ""),
    )


def _conditions(control: m.Control, way: m.Way) -> list[m.Expr]:
    return [e for e in (control.condition, way.condition) if e is not None]


def _also(system: System, p: Parameter) -> tuple[str, ...]:
    names = {
        f"{r.contract.name}.{c.name}"
        for r in system.members
        for c in r.contract.controls
        if any(w.label == p.label for w in c.ways)
    }
    return tuple(sorted(names - set(p.controls)))


def _limits(member: Resolved, control: m.Control) -> tuple[float | None, float | None, float | None]:
    """(low, high, step) of the widest range that the control can have."""
    r = control.range
    if r is None:
        return None, None, None
    step = None if r.step is None else _number(evaluate(r.step, member.known))
    return _end(member, r.low, -1), _end(member, r.high, 1), step


def _end(member: Resolved, e: m.Expr, side: int, depth: int = 0) -> float | None:
    """The least (side -1) or greatest (side 1) value that an end of a range can have."""
    pick = min if side < 0 else max
    match e:
        case m.Ref() if (control := member.contract.control(e.name)) is not None:
            if control.range is None or depth > 16:
                return None
            return _end(member, control.range.low if side < 0 else control.range.high, side, depth + 1)
        case m.Apply(function="min" | "max"):
            ends = [_end(member, a, side, depth + 1) for a in e.arguments]
            known = [x for x in ends if x is not None]
            decisive = (e.function == "min") == (side > 0)  # one known argument limits the result
            if not known or (len(known) < len(ends) and not decisive):
                return None
            return (min if e.function == "min" else max)(known)
        case m.Conditional():
            both = [_end(member, x, side, depth + 1) for x in (e.yes, e.no)]
            return None if None in both else pick(x for x in both if x is not None)
        case _:
            mine = any(member.contract.control(r.name) is not None for r in m.walk_references(e))
            return None if mine else _number(evaluate(e, member.known))


def _number(value: Value) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _both(a: Parameter, b: Parameter) -> Parameter:
    """One way that two libraries read: the values that both take."""
    lows = [x for x in (a.low, b.low) if x is not None]
    highs = [x for x in (a.high, b.high) if x is not None]
    kind = a.kind if a.kind == b.kind else ("int" if {a.kind, b.kind} <= _NUMBERS else "text")
    first = b if a.inactive and not b.inactive else a
    return replace(
        first,
        controls=tuple(sorted({*a.controls, *b.controls})),
        kind=kind,
        low=max(lows, default=None),
        high=min(highs, default=None),
        step=a.step if b.step is None else b.step if a.step is None else max(a.step, b.step),
        choices=tuple(c for c in a.choices if c in b.choices),
        default=a.default if a.default == b.default else None,
        switch="process" if "process" in {a.switch, b.switch} else first.switch,
        inactive=a.inactive and b.inactive,
    )


def _constraints(here: Space) -> Iterator[Constraint]:
    for member in here.system.members:
        name = member.contract.name
        for control in member.contract.controls:
            subject = f"{name}.{control.name}"
            if here.parameter(subject) is None:
                continue
            own = m.Ref((control.name,))
            bounds = () if control.range is None else ((">=", control.range.low), ("<=", control.range.high))
            exprs: list[tuple[str, m.Expr]] = [
                ("bound", m.Operation(op, (own, end))) for op, end in bounds if _speaks(end)
            ]
            exprs += [("requires", e) for e in control.requires]
            parameter = here.parameter(subject)
            conditions = [] if parameter is None else _conditions(control, parameter.way)
            exprs += [("when", e) for e in conditions if _speaks(e)]
            for kind, expr in exprs:
                yield Constraint(kind, subject, expr, _labels(here, member, expr))
        for a in member.contract.assumptions:
            applies = a.condition is None or evaluate(a.condition, member.known) is True
            if a.consequence in _GRAVE and applies:
                for required in a.requires:
                    if _speaks(required):
                        labels = _labels(here, member, required)
                        yield Constraint("assumption", f"{name}.{a.name}", required, labels)


def _speaks(e: m.Expr) -> bool:
    """Whether an expression depends on what can be set, and not on the machine alone."""
    return any(not r.name.startswith("machine.") for r in m.walk_references(e))


def _labels(here: Space, member: Resolved, e: m.Expr) -> tuple[str, ...]:
    """The parameters that an expression speaks of, those behind amounts and defaults included."""
    found: set[str] = set()
    seen: set[str] = set()
    todo = [(member, r.name) for r in m.walk_references(e)]
    while todo:
        at, name = todo.pop()
        first = name.split(".")[0]
        other = here.system.member(first) if first in at.contract.needs else None
        if other is not None:
            at, name = other, name.partition(".")[2]
        key = f"{at.contract.name}.{name.removesuffix('.amount').removesuffix('.idle')}"
        if key in seen:
            continue
        seen.add(key)
        parameter = here.parameter(key)
        if parameter is not None:
            found.add(parameter.label)
        clause = key.partition(".")[2]
        inner = at.contract.control(clause) or at.contract.demand(clause)
        if isinstance(inner, m.Control):
            todo += [(at, r.name) for r in m.walk_references((inner.default, inner.effective))]
        elif inner is not None:
            todo += [(at, r.name) for r in m.walk_references((inner.amount, inner.idle))]
    return tuple(sorted(found))


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e18 else repr(value)
    return str(value)
