"""One contract's controls and pools under given settings: which way wins, what it comes out as, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from lpcl import model as m
from lpcl.expr import Value, evaluate
from lpcl.format import expression
from lpcl.units import in_base, split_quantity

# A pool whose idle workers stay awake for less than this does no harm to its neighbours: it is shorter than the
# scheduler's own reaction.
AWAKE_S = 1e-4
# Clock ticks a second, within the factor of two that matters for a wait of "long" or "short".
CYCLES_PER_S = 2.5e9
# Controls that need each other in a longer chain than this are unknown.
MAX_CHAIN = 64
BUSY = frozenset({"spin", "spin_then_block", "yield"})
_LEADING = re.compile(r"\s*([+-]?[0-9]{1,18})")
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?[A-Za-z]+")
_FALSE = frozenset({"", "0", "false", "off", "no", "n", "f"})
_TRUE = frozenset({"1", "true", "on", "yes", "y", "t"})


@dataclass(frozen=True, slots=True)
class Pool:
    """A demand with its numbers.

    Attributes:
        amount: workers per instance, None if it depends on what is not known.
        idle: how its idle workers wait; awake_s: for how long they stay awake before they sleep (None: for ever or
            not known).
        pinned: whether they are bound to CPUs, None if not known.
    """

    contract: str
    demand: m.Demand
    amount: float | None
    idle: str
    awake_s: float | None
    pinned: bool | None = None

    @property
    def name(self) -> str:
        """`contract.demand`."""
        return f"{self.contract}.{self.demand.name}"

    @property
    def spins(self) -> bool:
        """Whether idle workers keep a CPU busy long enough to disturb others."""
        return self.idle in BUSY and (self.awake_s is None or self.awake_s > AWAKE_S)


@dataclass(frozen=True, slots=True)
class Asked:
    """A way that is set, and what came of it.

    Attributes:
        outcome: wins; shadowed (another way wins); clamped (wins with another value than was asked for); ignored (the
            library takes the text for nothing); fails (the library raises or ends the process); inactive (the control
            or the way does not apply here).
        why: in words, empty where it wins.
    """

    control: str
    way: m.Way
    text: str
    outcome: str
    value: Value = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A contract's controls and pools under given settings.

    Attributes:
        values: control name -> value in effect (None if it cannot be known).
        set_by: control name -> the way that set it, for those that are set.
        inactive: control name -> why setting it does nothing here.
        asked: every way that is set, in the order of the contract.
        known: all that an expression of the contract may speak of, by name.
    """

    contract: m.Contract
    values: Mapping[str, Value]
    set_by: Mapping[str, m.Way]
    pools: tuple[Pool, ...]
    inactive: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[Asked, ...] = ()
    known: Mapping[str, Value] = field(default_factory=dict)

    def outside(self) -> dict[str, Value]:
        """What other contracts may speak of: `contract.control`, `contract.demand.amount`, whether controls are set."""
        name = self.contract.name
        own = {c.name for c in self.contract.controls}
        found = {f"{name}.{k}": v for k, v in self.known.items() if k in own or _is_property(k, self.contract)}
        return found | {f"set:{name}.{k}": True for k in self.set_by}


def _is_property(name: str, contract: m.Contract) -> bool:
    first, _, rest = name.partition(".")
    return rest in {"amount", "idle", "created"} and contract.demand(first) is not None


def parse_value(text: str, type_: m.Type) -> Value:
    """What a library makes of the text of a setting; None if it is not of the type."""
    text = text.strip()
    if type_.name == "int":
        # int() also takes underscores and digits of other scripts, which no library's own parser does.
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,300}", text) else None
    if type_.name in {"float", "duration", "size"}:
        return _real(text, type_)
    if type_.name == "bool":
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else None
    if type_.name == "choice":
        return next((c for c in type_.choices if c.lower() == text.lower()), None)
    return text


def _real(text: str, type_: m.Type) -> Value:
    if type_.name == "size" and text.endswith("%"):
        return text  # a share of what the library counts
    try:
        if type_.name != "float" and _QUANTITY.fullmatch(text):
            return in_base(*split_quantity(text))
        return float(text)
    except (ValueError, KeyError, OverflowError):
        return None


def resolve(
    contract: m.Contract,
    machine: Mapping[str, Value],
    environ: Mapping[str, str] | None = None,
    *,
    outside: Mapping[str, Value] | None = None,
    release: str | None = None,
    limits: Mapping[str, float] | None = None,
) -> Resolved:
    """The controls and pools of one contract.

    Args:
        contract: the contract.
        machine: `machine.x` -> value, as `facts` gives them.
        environ: label of a way (an environment variable, `pkg.f()`, ...) -> the text it is set to.
        outside: what the contracts that this one uses have, see `Resolved.outside`.
        release: of the library; ways that it does not know are not taken.
        limits: demand -> workers that another library of the process brings it to.
    """
    resolver = _Resolver(contract, {**(outside or {}), **machine}, environ or {}, release)
    resolver.limits = limits or {}
    for control in contract.controls:
        resolver.control(control)
    active = [d for d in contract.demands if resolver.active(d.condition)]
    for demand in active:  # a demand may speak of the amount of another one, in any order
        pool = resolver.pool(demand)
        resolver.values |= {f"{demand.name}.amount": pool.amount, f"{demand.name}.idle": pool.idle}
        resolver.values[f"{demand.name}.created"] = demand.created
    pools = tuple(resolver.pool(d) for d in active)
    values = {c.name: resolver.values.get(c.name) for c in contract.controls}
    asked = sorted(resolver.asked, key=lambda a: a.way.span.start)
    return Resolved(contract, values, resolver.set_by, pools, resolver.inactive, tuple(asked), resolver.values)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a control makes of a text: `outcome` wins, ignored or fails."""

    value: Value
    outcome: str = "wins"
    why: str = ""


class _Resolver:
    """Resolves controls in the order in which they need each other; a cycle ends in `unknown`."""

    def __init__(
        self, contract: m.Contract, known: Mapping[str, Value], environ: Mapping[str, str], release: str | None
    ) -> None:
        self.contract = contract
        self.environ = environ
        self.release = release
        self.values: dict[str, Value] = dict(known)
        self.set_by: dict[str, m.Way] = {}
        self.inactive: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.limits: Mapping[str, float] = {}
        self.open: set[str] = set()
        self.done: set[str] = set()

    def control(self, control: m.Control) -> Value:
        if control.name in self.done | self.open or len(self.open) >= MAX_CHAIN:
            return self.values.get(control.name)
        self.open.add(control.name)
        self._need(
            (control.default, control.range, control.effective, control.specials, control.condition, control.ways)
        )
        value = self._asked(control)
        if control.name in self.set_by:
            self.values[f"set:{control.name}"] = True
        elif value is None and control.default is not None:
            value = evaluate(control.default, self.values)
        self.values[control.name] = value
        self.open.discard(control.name)
        self.done.add(control.name)
        return value

    def active(self, condition: m.Expr | None) -> bool:
        """Whether a clause applies: it does unless its `when` is known to be false."""
        self._need(condition)
        return condition is None or evaluate(condition, self.values) is not False

    def _need(self, node: object) -> None:
        for ref in m.walk_references(node):
            control = self.contract.control(ref.name)
            if control is not None:
                self.control(control)

    def _asked(self, control: m.Control) -> Value:
        """The value that was asked for; None if nothing sets the control."""
        off = self._off(control)
        if off:
            self.inactive[control.name] = off
        candidates: list[tuple[m.Way, str, _Taken]] = []
        for way in control.ways:
            text = self.environ.get(way.label)
            if text is None:
                continue
            why = off or self._unread(way)
            taken = _Taken(None, "inactive", why) if why else self._taken(control, way, text)
            if taken.outcome == "wins":
                candidates.append((way, text, taken))
            else:
                self.asked.append(Asked(control.name, way, text, taken.outcome, None, taken.why))
        return self._winner(control, candidates)

    def _off(self, control: m.Control) -> str:
        if not self.active(control.condition) and control.condition is not None:
            return f"`{expression(control.condition)}` does not hold"
        if control.ways and all(self._unread(w) for w in control.ways):
            return self._unread(control.ways[0])
        return ""

    def _unread(self, way: m.Way) -> str:
        """Why this way is not read at all, empty if it is."""
        if way.condition is not None and evaluate(way.condition, self.values) is False:
            return f"`{expression(way.condition)}` does not hold"
        if way.versions is not None and self.release is not None:
            try:
                # A release candidate of 2.0 already has what 2.0 has; PEP 440 counts it neither as >=2 nor as <2.
                if not SpecifierSet(way.versions).contains(Version(self.release).base_version):
                    return f"release {self.release} is not {way.versions}"
            except ValueError:  # InvalidSpecifier, InvalidVersion: the checker says so
                return ""
        return ""

    def _winner(self, control: m.Control, candidates: list[tuple[m.Way, str, _Taken]]) -> Value:
        if control.combine in {"min", "max"}:
            candidates = [
                c for c in candidates if isinstance(c[2].value, int | float) and not isinstance(c[2].value, bool)
            ]
            # sorted() is stable: of equals the first way is said to win.
            candidates.sort(key=lambda c: c[2].value, reverse=control.combine == "max")  # type: ignore[arg-type,return-value]
        if not candidates:
            return None
        winner, _, best = candidates[0]
        self.set_by[control.name] = winner
        for way, text, taken in candidates:
            outcome, why = ("wins", "") if way is winner else ("shadowed", f"`{winner.label}` wins")
            if way is winner and taken.why:
                outcome, why = "clamped", taken.why
            self.asked.append(Asked(control.name, way, text, outcome, taken.value, why))
        return best.value

    def _taken(self, control: m.Control, way: m.Way, text: str) -> _Taken:
        """What the library makes of `text` when it comes by this way."""
        first = text.split(control.levels, 1)[0] if control.levels else text
        value = parse_value(first, control.type)
        special = self._special(control, first, value)
        if special is not None:
            return special
        if value is None and control.type.name == "bool" and control.malformed is None:
            value = True  # as Python and most C code have it: any other text is true
        if value is None and (way.taken is None or control.malformed is not None):
            return self._malformed(control, way, first)
        return self._in_effect(control, way, first if value is None else value)

    def _special(self, control: m.Control, text: str, value: Value) -> _Taken | None:
        for s in control.specials:
            if isinstance(s.value, m.Text):
                same = s.value.value.strip().lower() == text.strip().lower()
            else:
                same = value is not None and evaluate(s.value, self.values) == value
            if same:
                if s.meaning is None:
                    return _Taken(None, s.action, f"`{text}` is {s.action}" if s.action == "ignored" else "")
                meaning = evaluate(s.meaning, self.values)
                if meaning is None:
                    return _Taken(None, "ignored", f"`{text}` leaves it open")
                return _Taken(meaning)
        return None

    def _malformed(self, control: m.Control, way: m.Way, text: str) -> _Taken:
        what = f"`{text[:40]}` is no {control.type.name}"
        if control.malformed == "prefix":
            match = _LEADING.match(text)
            number = int(match[1]) if match else 0
            return self._special(control, str(number), number) or self._in_effect(control, way, number)
        if control.malformed == "default":
            value = None if control.default is None else evaluate(control.default, self.values)
            return _Taken(value, "wins" if value is not None else "ignored", f"{what}: the default holds")
        if control.malformed == "unknown":
            return _Taken(None, "wins", f"{what}: what it does is not known")
        return _Taken(None, "fails" if control.malformed == "fails" else "ignored", what)

    def _in_effect(self, control: m.Control, way: m.Way, value: Value) -> _Taken:
        asked = value
        rule = control.effective if way.taken is None else way.taken
        if rule is not None:
            effective = evaluate(rule, {**self.values, "value": value})
            value = value if effective is None else effective
        low = None if control.range is None else evaluate(control.range.low, self.values)
        if _is_number(low) and _is_number(value) and value < low:  # type: ignore[operator]
            return _Taken(None, "fails" if control.malformed == "fails" else "ignored", f"{value} is below {low}")
        changed = _is_number(asked) and _is_number(value) and asked != value
        return _Taken(value, why=f"{asked} comes out as {value}" if changed else "")

    def pool(self, demand: m.Demand) -> Pool:
        self._need(demand)
        amount = None if demand.amount is None else evaluate(demand.amount, self.values)
        number = float(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else None
        number = self.limits.get(demand.name, number)
        mode, awake = "unknown", None
        for idle in demand.idle:
            if idle.condition is None or evaluate(idle.condition, self.values) is True:
                mode = idle.mode
                awake = None if idle.duration is None else self._seconds(idle.duration)
                break
        pinned = None if demand.pinned is None else evaluate(demand.pinned, self.values)
        return Pool(self.contract.name, demand, number, mode, awake, pinned if isinstance(pinned, bool) else None)

    def _seconds(self, e: m.Expr) -> float | None:
        value = evaluate(e, self.values)
        if not isinstance(value, int | float):
            return None
        cycles = any(isinstance(x, m.Number) and x.unit == "cycles" for x in m.walk_expressions(e))
        return value / CYCLES_PER_S if cycles else float(value)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
