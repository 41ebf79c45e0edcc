"""Whether a setting is in effect, told by a signal that is not the setting itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from lpcl import model as m
from lpcl.compose import System, compose
from lpcl.resolve import Pool
from syspilot.app import Tunable
from syspilot.inside import CallSignal, InsideSpec, NativeSignal
from syspilot.records import Reading, Record, Run

InEffect = Literal["yes", "no", "not_observable", "not_read"]


class SettingSeen(Record):
    """One setting of a configuration and what the run showed of it.

    Attributes:
        name, value: as handed over. affects: `contract.demand` of the pools that it changes.
        in_effect: `yes` and `no` by a reading; `not_observable`: no contract names a signal for what it changes;
            `not_read`: there is a signal, but no process of the run reported it.
        how_seen: the readings, in words.
    """

    name: str
    value: str
    affects: tuple[str, ...]
    in_effect: InEffect
    how_seen: str


def inside_spec(contracts: list[m.Contract], environ: tuple[str, ...] = ()) -> InsideSpec:
    """What the start-up hook shall read: every reliable signal of the contracts that it can, and no other function.

    A call is read only if its module belongs to the package that the contract is about, and is none of the standard
    library whatever a package calls itself: a contract must not make the tuner call other code.
    """
    signals: list[CallSignal | NativeSignal] = []
    for contract in contracts:
        tops = {p.name.lower().replace("-", "_") for p in contract.packages} - sys.stdlib_module_names
        patterns = tuple(p for n in contract.natives for p in n.patterns)
        for signal in contract.signals:
            if signal.read is None or signal.unreliable is not None:
                continue
            name = f"{contract.name}.{signal.name}"
            if signal.read.kind == "native" and patterns:
                signals.append(NativeSignal(signal=name, library=patterns, symbols=signal.read.target))
            elif signal.read.kind in {"call", "attribute"}:
                module, _, attr = signal.read.target[0].partition(".")
                if attr and module.lower() in tops:
                    called = signal.read.kind == "call"
                    signals.append(CallSignal(signal=name, module=module, attr=attr, called=called))
    return InsideSpec(signals=tuple(signals), environ=environ)


def observed_system(system: System, run: Run) -> System:
    """The system with pool sizes that the contracts leave open filled in from what the run reported of them."""
    members = []
    for member in system.members:
        pools = []
        for pool in member.pools:
            seen = None if pool.amount is not None else _reported(run, member.contract, f"{pool.demand.name}.amount")
            pools.append(pool if seen is None else replace(pool, amount=seen))
        members.append(replace(member, pools=tuple(pools)))
    return replace(system, members=tuple(members))


def _reported(run: Run, contract: m.Contract, what: str) -> float | None:
    return max(reported_by_pid(run, contract, what).values(), default=None)


def reported_by_pid(run: Run, contract: m.Contract, what: str) -> dict[int, float]:
    """What each process reported of a property such as `workers.amount`; of several copies the largest."""
    names = {
        f"{contract.name}.{s.name}"
        for s in contract.signals
        if s.unreliable is None and what in {r.name for r in s.observes}
    }
    found: dict[int, float] = {}
    for report in run.inside:
        for r in report.readings:
            if r.signal in names and isinstance(r.value, int | float) and not isinstance(r.value, bool):
                found[report.pid] = max(found.get(report.pid, 0.0), float(r.value))
    return found


def settings_seen(
    run: Run,
    configuration: Mapping[str, str],
    system: System,
    environ: Mapping[str, str],
    tunables: tuple[Tunable, ...] = (),
) -> tuple[SettingSeen, ...]:
    """Each setting of a configuration, with what this run showed of it."""
    own = {t.name for t in tunables}
    return tuple(
        _own_setting(name, value)
        if name in own
        else _one(run, name, value, system, dict(environ) | dict(configuration))
        for name, value in configuration.items()
    )


def _own_setting(name: str, value: str) -> SettingSeen:
    how = "the application's own tunable: handed over; no contract says how to see it"
    return SettingSeen(name=name, value=value, affects=(), in_effect="not_observable", how_seen=how)


def _one(run: Run, name: str, value: str, system: System, environ: Mapping[str, str]) -> SettingSeen:
    affects: list[str] = []
    words: list[str] = []
    verdicts: list[bool] = []
    readable = False
    whole = compose([r.contract for r in system.members], system.machine, environ, releases=system.releases)
    for after in whole.members:
        contract = after.contract
        controls = [c for c in contract.controls if name in {w.label for w in c.ways} and c.name not in after.inactive]
        if not controls:
            continue
        absent = {f"{contract.name}.{d.name}" for d in contract.demands} - {p.name for p in after.pools}
        affects += sorted({_pool_of(contract, r) for c in controls for r in (*c.bounds, *c.affects)} - absent)
        if not any(after.set_by.get(c.name) is not None and after.set_by[c.name].label == name for c in controls):
            # Another way of the same control wins, so this one is expected to do nothing here.
            continue
        for signal in contract.signals:
            observed = {r.name for r in signal.observes} & {r.name for c in controls for r in c.bounds}
            if not observed or signal.unreliable is not None:
                continue
            readable = True
            expected = _expected(after.pools, observed)
            readings = [r for x in run.inside for r in x.readings if r.signal == f"{contract.name}.{signal.name}"]
            shown, right = _compare(readings, expected)
            words += shown
            verdicts += right
    if verdicts:
        in_effect: InEffect = "yes" if all(verdicts) else "no"
    else:
        in_effect = "not_read" if readable else "not_observable"
    how = "; ".join(dict.fromkeys(words)) or (
        "no process reported the signal" if readable else "no contract names a signal for it"
    )
    return SettingSeen(name=name, value=value, affects=tuple(dict.fromkeys(affects)), in_effect=in_effect, how_seen=how)


def _pool_of(contract: m.Contract, ref: m.Ref) -> str:
    """`contract.demand` of a property: `workers.amount` is the contract's own, `other.team.amount` another's."""
    return ".".join(ref.parts[:-1] if len(ref.parts) > 2 else (contract.name, ref.parts[0]))


def _expected(pools: tuple[Pool, ...], observed: set[str]) -> float | None:
    for pool in pools:
        if f"{pool.demand.name}.amount" in observed:
            return pool.amount
    return None


def _compare(readings: list[Reading], expected: float | None) -> tuple[list[str], list[bool]]:
    shown: list[str] = []
    right: list[bool] = []
    for reading in readings:
        if not isinstance(reading.value, int | float) or expected is None:
            continue
        where = f" in {reading.library.rsplit('/', 1)[-1]}" if reading.library else ""
        shown.append(f"{reading.signal} reads {reading.value}{where}, expected {expected:g}")
        right.append(float(reading.value) == float(expected))
    return shown, right
