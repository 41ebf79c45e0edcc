"""One system from several contracts and the facts of a machine.

Values are resolved per contract: a control takes the first of its ways that is set, clamps it as its `effective`
says, else its default; demands follow from the controls. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lpcl import model as m
from lpcl.expr import Value, evaluate

# A pool whose idle workers stay awake for less than this does no harm to its neighbours: it is shorter than the
# scheduler's own reaction.
AWAKE_S = 1e-4
# Clock ticks a second, within the factor of two that matters for a wait of "long" or "short".
CYCLES_PER_S = 2.5e9
# Controls that need each other in a longer chain than this are unknown.
MAX_CHAIN = 64
BUSY = frozenset({"spin", "spin_then_block", "yield"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of one control, with a value: what a configuration is made of.

    Attributes:
        contract, control: whose it is; way: how it is set; value: the text that is handed over.
    """

    contract: str
    control: str
    way: m.Way
    value: str

    @property
    def label(self) -> str:
        """`NAME=value`."""
        return f"{self.way.label}={self.value}"


@dataclass(frozen=True, slots=True)
class Pool:
    """A demand with its numbers.

    Attributes:
        amount: workers per instance, None if it depends on what is not known.
        idle: how its idle workers wait; awake_s: for how long they stay awake before they sleep (None: for ever or
            not known).
    """

    contract: str
    demand: m.Demand
    amount: float | None
    idle: str
    awake_s: float | None

    @property
    def name(self) -> str:
        """`contract.demand`."""
        return f"{self.contract}.{self.demand.name}"

    @property
    def spins(self) -> bool:
        """Whether idle workers keep a CPU busy long enough to disturb others."""
        return self.idle in BUSY and (self.awake_s is None or self.awake_s > AWAKE_S)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A contract's controls and pools under given settings.

    Attributes:
        values: control name -> value in effect (None if it cannot be known).
        set_by: control name -> the way that set it, for those that are set.
        reasons: control or demand name -> why it has its value, in words.
    """

    contract: m.Contract
    values: Mapping[str, Value]
    set_by: Mapping[str, m.Way]
    pools: tuple[Pool, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)


def parse_value(text: str, type_: m.Type) -> Value:
    """What a library makes of the text of a setting; None if it is not of the type."""
    text = text.strip()
    try:
        if type_.name == "int":
            return int(text.split(",")[0])
        if type_.name in {"float", "duration", "size"}:
            return float(text)
    except ValueError:
        return None
    if type_.name == "bool":
        return text.lower() not in {"", "0", "false", "off", "no", "n", "f"}
    if type_.name == "choice":
        return next((c for c in type_.choices if c.lower() == text.lower()), None)
    return text


def resolve(contract: m.Contract, machine: Mapping[str, Value], environ: Mapping[str, str] | None = None) -> Resolved:
    """The controls and pools of one contract.

    Args:
        contract: the contract.
        machine: `machine.x` -> value, as `facts` gives them.
        environ: label of a way (an environment variable, `pkg.f()`, ...) -> the text it is set to.
    """
    resolver = _Resolver(contract, machine, environ or {})
    for control in contract.controls:
        resolver.control(control)
    active = [d for d in contract.demands if resolver.active(d.condition)]
    for demand in active:  # a demand may speak of the amount of another one, in any order
        resolver.values[f"{demand.name}.amount"] = resolver.pool(demand).amount
    pools = tuple(resolver.pool(d) for d in active)
    values = {c.name: resolver.values.get(c.name) for c in contract.controls}
    return Resolved(contract, values, resolver.set_by, pools, resolver.reasons)


class _Resolver:
    """Resolves controls in the order in which they need each other; a cycle ends in `unknown`."""

    def __init__(self, contract: m.Contract, machine: Mapping[str, Value], environ: Mapping[str, str]) -> None:
        self.contract = contract
        self.environ = environ
        self.values: dict[str, Value] = dict(machine)
        self.set_by: dict[str, m.Way] = {}
        self.reasons: dict[str, str] = {}
        self.open: set[str] = set()
        self.done: set[str] = set()

    def control(self, control: m.Control) -> Value:
        if control.name in self.done | self.open or len(self.open) >= MAX_CHAIN:
            return self.values.get(control.name)
        self.open.add(control.name)
        self._need(
            (control.default, control.range, control.effective, control.specials, control.condition, control.ways)
        )
        asked = self._asked(control)
        if asked is None:
            default = control.default
            value = None if default is None else evaluate(default, self.values)
            self.reasons[control.name] = "default"
        else:
            value = asked
            self.values[f"set:{control.name}"] = True
            self.reasons[control.name] = f"`{self.set_by[control.name].label}` is set"
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
        if not self.active(control.condition):
            return None
        candidates = [
            (way, value)
            for way in control.ways
            if way.label in self.environ
            and (way.condition is None or evaluate(way.condition, self.values) is not False)
            and (value := self._meaning(control, self.environ[way.label])) is not None
        ]
        if not candidates:
            return None
        if control.combine in {"min", "max"}:
            numbers = [(v, w) for w, v in candidates if isinstance(v, int | float)]
            if not numbers:
                return None
            pick = min if control.combine == "min" else max
            chosen, way = pick(numbers, key=lambda x: x[0])
            self.set_by[control.name] = way
            return chosen
        self.set_by[control.name] = candidates[0][0]
        return candidates[0][1]

    def _meaning(self, control: m.Control, text: str) -> Value:
        """The value in effect when `text` is asked for; None if the library ignores it."""
        value = parse_value(text, control.type)
        if value is None:
            return None
        for special in control.specials:
            if evaluate(special.value, self.values) == value:
                return evaluate(special.meaning, self.values)
        if control.effective is not None:
            effective = evaluate(control.effective, {**self.values, "value": value})
            value = value if effective is None else effective
        low = None if control.range is None else evaluate(control.range.low, self.values)
        below = isinstance(low, int | float) and isinstance(value, int | float) and value < low
        return None if below else value

    def pool(self, demand: m.Demand) -> Pool:
        self._need(demand)
        amount = None if demand.amount is None else evaluate(demand.amount, self.values)
        number = float(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else None
        mode, awake = "unknown", None
        for idle in demand.idle:
            if idle.condition is None or evaluate(idle.condition, self.values) is True:
                mode = idle.mode
                awake = None if idle.duration is None else self._seconds(idle.duration)
                break
        return Pool(self.contract.name, demand, number, mode, awake)

    def _seconds(self, e: m.Expr) -> float | None:
        value = evaluate(e, self.values)
        if not isinstance(value, int | float):
            return None
        cycles = any(isinstance(x, m.Number) and x.unit == "cycles" for x in m.walk_expressions(e))
        return value / CYCLES_PER_S if cycles else float(value)


def machine_values(facts: Mapping[str, Value]) -> dict[str, Value]:
    """Facts named as contracts name them: `cores` -> `machine.cores`."""
    return {f"machine.{k}": v for k, v in facts.items()}


@dataclass(frozen=True, slots=True)
class System:
    """Several contracts on one machine."""

    machine: Mapping[str, Value]
    members: tuple[Resolved, ...]

    def member(self, name: str) -> Resolved | None:
        """The contract of that name, resolved."""
        return next((r for r in self.members if r.contract.name == name), None)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of all members."""
        return tuple(p for r in self.members for p in r.pools)


def compose(
    contracts: Iterable[m.Contract],
    machine: Mapping[str, Value],
    environ: Mapping[str, str] | None = None,
) -> System:
    """One system; the order of the contracts makes no difference."""
    ordered = sorted(contracts, key=lambda c: c.name)
    return System(machine, tuple(resolve(c, machine, environ) for c in ordered))


def ways_to(
    contract: m.Contract,
    machine: Mapping[str, Value],
    demand: m.Demand,
    *,
    amount: int | None = None,
    quiet: bool = False,
    environ: Mapping[str, str] | None = None,
) -> list[Setting]:
    """Environment settings that bring a pool to a size, or make its idle workers sleep.

    The contract itself is asked: each candidate value is resolved, and kept if the pool comes out as wanted. So a
    variable that another one overrides, or that the library clamps, is never proposed.

    Args:
        contract: whose pool it is.
        machine: facts, see `machine_values`.
        demand: the pool.
        amount: wanted number of workers.
        quiet: wanted that idle workers sleep.
        environ: what is set already.
    """
    base = dict(environ or {})
    found: list[Setting] = []
    for control in contract.controls:
        touches = {r.name for r in (control.bounds if amount is not None else (*control.bounds, *control.affects))}
        wanted = f"{demand.name}.amount" if amount is not None else f"{demand.name}.idle"
        if wanted not in touches:
            continue
        for text in [str(amount)] if amount is not None else _quiet_candidates(control):
            for way in control.ways:
                if way.kind != "env" or way.deprecated is not None:
                    continue
                resolved = resolve(contract, machine, base | {way.label: text})
                pool = next((p for p in resolved.pools if p.demand == demand), None)
                if pool is None or resolved.set_by.get(control.name) != way:
                    continue
                fits = pool.amount == amount if amount is not None else quiet and not pool.spins
                if fits:
                    found.append(Setting(contract.name, control.name, way, text))
                    break
    return found


def _quiet_candidates(control: m.Control) -> list[str]:
    if control.type.name == "choice":
        return list(control.type.choices)
    if control.range is not None:
        ends = [evaluate(control.range.low, {}), evaluate(control.range.high, {})]
        return [str(e) for e in ends if isinstance(e, int)]
    return ["0", "1"] if control.type.name == "bool" else []
