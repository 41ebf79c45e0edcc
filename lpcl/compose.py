"""One system from several contracts and the facts of a machine.

A system is a function of the set of its contracts, the facts and the settings: neither order nor grouping makes a
difference, so systems can be joined. Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from packaging.utils import canonicalize_name

from lpcl import model as m
from lpcl.diagnostics import LpcError
from lpcl.expr import Value, evaluate
from lpcl.format import expression
from lpcl.resolve import Pool, Resolved, resolve


class ComposeError(LpcError, ValueError):
    """Contracts, facts or settings that do not go together."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a composed system that whoever set it up will want to know.

    Attributes:
        kind: inactive | shadowed | clamped | ignored | fails | unread (no contract knows the setting) | requires (of a
            control) | assumption (of a contract).
        subject: `contract.clause`, or the setting that nothing reads; message: one sentence.
    """

    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A native runtime of which the process holds its own copy.

    Attributes:
        contract: of the runtime; carriers: contracts whose wheels bring this copy; pattern: base name of its file.
    """

    contract: str
    carriers: tuple[str, ...]
    pattern: str = ""

    @property
    def label(self) -> str:
        """`openblas[numpy]`: the runtime, and who brings the copy."""
        return f"{self.contract}[{'+'.join(self.carriers)}]"


@dataclass(frozen=True, slots=True)
class System:
    """Several contracts on one machine.

    Attributes:
        machine: `machine.x` -> value; members: the contracts, resolved, by name; environ: what is set.
        releases: distribution or contract -> its version, where known.
    """

    machine: Mapping[str, Value]
    members: tuple[Resolved, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    releases: Mapping[str, str] = field(default_factory=dict)

    def member(self, name: str) -> Resolved | None:
        """The contract of that name, resolved."""
        return next((r for r in self.members if r.contract.name == name), None)

    def outside(self, name: str) -> dict[str, Value]:
        """What the contract of that name sees of those that it uses."""
        own = self.member(name)
        needs = set() if own is None else set(own.contract.needs)
        found: dict[str, Value] = {}
        for member in self.members:
            if member.contract.name in needs:
                found |= member.outside()
        return found

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of all members, one for all copies of a runtime."""
        return tuple(p for r in self.members for p in r.pools)

    def copies(self, name: str) -> tuple[Copy, ...]:
        """The copies of a runtime in this system: carriers that bring the same file share one; at least one."""
        return _copies((r.contract for r in self.members), name)

    def mitigations(self, target: str) -> list[tuple[Resolved, m.Mitigation, Value]]:
        """Mitigations that apply in `process` or in `children`, with their value, by contract."""
        found = []
        for member in self.members:
            for x in member.contract.mitigations:
                holds = x.condition is None or evaluate(x.condition, member.known) is not False
                if x.target == target and holds:
                    found.append((member, x, None if x.value is None else evaluate(x.value, member.known)))
        return found

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is set in vain, comes out otherwise or breaks something, in a fixed order."""
        found = [f for r in self.members for f in _of_member(r)]
        read = {a.way.label for r in self.members for a in r.asked}
        found += [
            Finding("unread", name, f"`{name}={self.environ[name]}` decides nothing here: no contract knows it")
            for name in sorted(set(self.environ) - read)
        ]
        return tuple(sorted(set(found), key=lambda f: (f.subject, f.kind, f.message)))


def _copies(contracts: Iterable[m.Contract], name: str) -> tuple[Copy, ...]:
    by_file: dict[str, set[str]] = {}
    for contract in contracts:
        for carried in contract.carries:
            if carried.name == name:
                # Without the name of a file it is the carrier's own.
                key = carried.pattern if carried.pattern is not None else f"\0{contract.name}"
                by_file.setdefault(key, set()).add(contract.name)
    found = (
        Copy(name, tuple(sorted(carriers)), "" if file.startswith("\0") else file) for file, carriers in by_file.items()
    )
    return tuple(sorted(found, key=lambda c: c.carriers)) or (Copy(name, ()),)


def _of_member(r: Resolved) -> Iterable[Finding]:
    name = r.contract.name
    for a in r.asked:
        if a.outcome == "wins":
            continue
        subject = f"{name}.{a.control}"
        said = f"`{a.way.label}={a.text}`"
        message = {
            "inactive": f"{said} does nothing to `{subject}`: {a.why}",
            "shadowed": f"{said} is not taken for `{subject}`: {a.why}",
            "clamped": f"{said} is another value for `{subject}`: {a.why}",
            "ignored": f"{said} is taken for nothing by `{subject}`: {a.why}",
            "fails": f"{said} makes the library fail: {a.why or 'it is refused'}",
        }[a.outcome]
        yield Finding(a.outcome, subject, message)
    for control in r.contract.controls:
        for e in control.requires:
            if control.name in r.set_by and evaluate(e, r.known) is False:
                message = f"`{name}.{control.name}` is set, which requires `{expression(e)}`"
                yield Finding("requires", f"{name}.{control.name}", message)
    for x in r.contract.assumptions:
        if x.condition is not None and evaluate(x.condition, r.known) is not True:
            continue
        for e in x.requires:
            if evaluate(e, r.known) is False:
                tail = f", or else: {x.consequence}" if x.consequence else ""
                yield Finding("assumption", f"{name}.{x.name}", f"`{name}` requires `{expression(e)}`{tail}")


def machine_values(facts: Mapping[str, Value]) -> dict[str, Value]:
    """Facts named as contracts name them: `cores` -> `machine.cores`."""
    return {f"machine.{k}": v for k, v in facts.items()}


def installed_values(distributions: Iterable[str]) -> dict[str, Value]:
    """Facts for `installed(...)`, where all the distributions of an environment are known."""
    names = {canonicalize_name(d) for d in distributions}
    return {"installed:*": True, **{f"installed:{n}": True for n in names}}


def compose(
    contracts: Iterable[m.Contract],
    machine: Mapping[str, Value],
    environ: Mapping[str, str] | None = None,
    *,
    releases: Mapping[str, str] | None = None,
) -> System:
    """One system; neither the order nor the number of times a contract is given makes a difference.

    Args:
        contracts: what the process holds.
        machine: facts, see `machine_values` and `installed_values`.
        environ: label of a way -> the text it is set to.
        releases: distribution or contract -> its version; ways that it does not know are not taken.

    Raises:
        ComposeError: two different contracts have one name.
    """
    by_name: dict[str, m.Contract] = {}
    for contract in contracts:
        if by_name.setdefault(contract.name, contract) != contract:
            raise ComposeError(f"two different contracts are named `{contract.name}`")
    known: dict[str, Value] = {**machine, "loaded:*": True}
    known |= {f"loaded:{name}": True for name in by_name}
    known |= {"copies:*": True, **{f"copies:{n}": len(_copies(by_name.values(), n)) for n in by_name}}
    known |= {f"installed:{canonicalize_name(p.name)}": True for c in by_name.values() for p in c.packages}
    versions: dict[str, str] = {canonicalize_name(k): v for k, v in (releases or {}).items()}
    system = System(
        machine, _resolved(by_name, known, environ, versions, {}), dict(environ or {}), dict(releases or {})
    )
    limits = _limits(system)
    # Once more with what libraries of this process do to each other's pools; what that changes again is not followed.
    return replace(system, members=_resolved(by_name, known, environ, versions, limits)) if limits else system


def _resolved(
    contracts: Mapping[str, m.Contract],
    known: Mapping[str, Value],
    environ: Mapping[str, str] | None,
    versions: Mapping[str, str],
    limits: Mapping[str, Mapping[str, float]],
) -> tuple[Resolved, ...]:
    done: dict[str, Resolved] = {}
    outside: dict[str, Value] = {}
    for group in _groups(contracts):
        # Contracts that use each other in a circle see nothing of each other: their order must not matter.
        here = {}
        for name in group:
            contract = contracts[name]
            needs = set(contract.needs)
            visible = {k: v for k, v in outside.items() if k.removeprefix("set:").split(".")[0] in needs}
            release = _release(contract, versions)
            here[name] = resolve(
                contract, known, environ, outside=visible, release=release, limits=limits.get(name, {})
            )
        for resolved in here.values():
            outside |= resolved.outside()
        done |= here
    return tuple(done[n] for n in sorted(done))


def _limits(system: System) -> dict[str, dict[str, float]]:
    """Contract -> demand -> workers that another library's mitigation leaves it for good, the least of several."""
    found: dict[str, dict[str, float]] = {}
    for member, x, value in system.mitigations("process"):
        lasts = x.lasts in {None, "process"}
        if not lasts or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        for ref in x.limits:
            if ref.parts[0] in member.contract.needs and len(ref.parts) == 3 and ref.parts[-1] == "amount":
                here = found.setdefault(ref.parts[0], {})
                here[ref.parts[1]] = min(float(value), here.get(ref.parts[1], float(value)))
    return found


def join(*systems: System) -> System:
    """The system of everything in several systems, which must agree on machine, settings and releases.

    Raises:
        ComposeError: they do not agree, or have different contracts of one name.
    """
    if not systems:
        raise ComposeError("nothing to join")
    first = systems[0]
    if any((s.machine, s.environ, s.releases) != (first.machine, first.environ, first.releases) for s in systems):
        raise ComposeError("systems of different machines, settings or releases do not join")
    contracts = [r.contract for s in systems for r in s.members]
    return compose(contracts, first.machine, first.environ, releases=first.releases)


def _release(contract: m.Contract, versions: Mapping[str, str]) -> str | None:
    names = (*(canonicalize_name(p.name) for p in contract.packages), canonicalize_name(contract.name))
    return next((versions[n] for n in names if n in versions), None)


def _groups(contracts: Mapping[str, m.Contract]) -> list[list[str]]:
    """Contracts in the order in which they use each other, those in one circle together (Tarjan, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: list[str] = []
    groups: list[list[str]] = []
    for root in sorted(contracts):
        if root in index:
            continue
        work = [(root, iter(_used(contracts, root)))]
        index[root] = low[root] = len(index)
        on_stack.append(root)
        while work:
            name, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    on_stack.append(other)
                    work.append((other, iter(_used(contracts, other))))
                    break
                if other in on_stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = on_stack.index(name)
                    groups.append(sorted(on_stack[at:]))
                    del on_stack[at:]
    return groups


def _used(contracts: Mapping[str, m.Contract], name: str) -> list[str]:
    return sorted(n for n in set(contracts[name].needs) if n in contracts)
