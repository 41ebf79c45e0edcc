"""Settings that bring a pool to where one wants it, found by asking the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lpcl import model as m
from lpcl.expr import Value, evaluate
from lpcl.resolve import resolve


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


def ways_to(
    contract: m.Contract,
    machine: Mapping[str, Value],
    demand: m.Demand,
    *,
    amount: int | None = None,
    quiet: bool = False,
    environ: Mapping[str, str] | None = None,
    outside: Mapping[str, Value] | None = None,
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
        outside: what the contracts that this one uses have, see `System.outside`.
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
                resolved = resolve(contract, machine, base | {way.label: text}, outside=outside)
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
