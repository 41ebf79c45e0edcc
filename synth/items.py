"""What a reader wants to know of a release, one item a name: controls, look-alikes, signals, demands, mitigations.

An item joins all observations of one name. Nothing is dropped: what is no control keeps the reason in `why`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from synth import classify, classify_api
from synth.assigned import assigned
from synth.classify import Verdict
from synth.evidence import collect
from synth.records import Evidence, Kind, Observation, Record, Role, Walk, When
from synth.shipped import mark_unshipped
from synth.walk.arithmetic import evaluated

__all__ = ["Item", "ItemKind", "Place", "ReadWhen", "Verdict", "items_of"]

ItemKind = Literal["env", "api", "config", "param"]
ReadWhen = Literal["import", "first-use", "each-call", "process-start", "build"]

_WHEN: dict[When, ReadWhen] = {
    When.BUILD: "build",
    When.IMPORT: "import",
    When.FIRST_USE: "first-use",
    When.CALL: "each-call",
    When.START: "process-start",
    When.UNKNOWN: "each-call",
}
_WHEN_ORDER = {When.START: 0, When.IMPORT: 1, When.FIRST_USE: 2, When.CALL: 3, When.UNKNOWN: 4, When.BUILD: 5}
_RUNS = frozenset({Role.LIBRARY, Role.VENDORED})
_NOTHING = (None, "None", "", "''", '""', "null", "~")
_PLACES = 8  # places that one item cites
_SECTION = 8  # keys from which on a section says something of one of them
_LARGEST = re.compile(
    r"(\w+::)*[ui](8|16|32|64|128|size)::MAX|sys\.maxsize|SIZE_MAX|U?INT(8|16|32|64)?_MAX|U?LLONG_MAX"
)
_INFINITE = re.compile(r"(\w+::)*f(32|64)::INFINITY|(math|np|numpy)\.inf|float\(['\"]\+?inf(inity)?['\"]\)|INFINITY")
_WRAPPER = re.compile(
    r"(?:\w+::)*NonZero\w*::new\(([^()]+)\)\s*\.\s*(?:unwrap|expect)\([^()]*\)|(?:Some|Ok|Box::new|Cow::Borrowed)\(([^()]+)\)|"
    r"const\s*\{(.+)\}"
)
_TYPES = {"str": "string", "list": "list", "path": "path"}


class Place(Record):
    """A line that says it: path in the release (a companion's below a folder of its name), 1-based line."""

    where: str
    line: int


class Item(Record):
    """One name, judged.

    Attributes:
        name: variable, dotted public name, `callable(parameter=)` or configuration key.
        aliases: other names of the same control: the variable of a key, other paths of a callable.
        resource: cpu.threads | cpu.processes | cpu.affinity | spin | memory | cache | gpu | gpu.memory | io |
            scheduler | other.
        default: what holds where nobody sets it, as far as the code says.
        read_when: when a new value takes effect at the latest.
        scope: process | thread | object, with what is affected in brackets.
        precedence: what wins over what.
        provider: who reads it.
        certain: false where a regular expression or a name alone says so.
        why: what makes it a control, or why it is none.
        rank: 0..1, how much it matters for tuning; the order of the output.
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: ItemKind
    verdict: Verdict
    resource: str
    type: str
    default: str
    read_when: ReadWhen
    scope: str
    precedence: str
    provider: str
    certain: bool
    evidence: tuple[Place, ...]
    why: str
    rank: float


def items_of(walk: Walk) -> list[Item]:
    """The items of a walk, most important first."""
    seen = (*mark_unshipped(walk.release, walk.observations), *assigned(walk.release))
    builder = _Builder(walk.release.name, collect(walk.model_copy(update={"observations": seen})))
    variables = list(builder.variables())
    defaults = {item.name: item.default for item in variables if item.verdict == "control"}
    found = [*variables, *builder.callables(defaults), *builder.pools(), *builder.probes()]
    return _ordered(found)


def _ordered(found: Iterable[Item]) -> list[Item]:
    """Most important first; of many callables with one parameter, the later ones step back."""
    ranked: list[tuple[float, Item]] = []
    times: dict[str, int] = defaultdict(int)
    for item in sorted(found, key=lambda i: (-i.rank, i.name.count("."), len(i.name), i.name)):
        parameter = re.search(r"\((\w+)=\)$", item.name)
        rank = item.rank
        if parameter is not None:
            rank /= 1 + 0.1 * times[parameter[1]]
            times[parameter[1]] += 1
        ranked.append((rank, item.model_copy(update={"rank": round(rank, 4)})))
    order = {"control": 0, "mitigation": 1, "demand": 2, "signal": 3, "not_control": 4}
    ranked.sort(key=lambda pair: (order[pair[1].verdict], -pair[0]))
    return [item for _, item in ranked]


class _Builder:
    """Joins evidence to items."""

    def __init__(self, package: str, evidence: Sequence[Evidence]) -> None:
        self.package = package
        self.evidence = evidence
        self.constants = self._constants()
        self.documented = {e.seen.name for e in evidence if e.seen.kind is Kind.DOC}
        self.modules = classify.Owners(package, (e.seen for e in evidence))

    def _of(self, *kinds: Kind) -> list[Evidence]:
        return [e for e in self.evidence if e.seen.kind in kinds]

    def _constants(self) -> dict[str, list[Observation]]:
        found: dict[str, list[Observation]] = defaultdict(list)
        for e in self._of(Kind.CONSTANT):
            found[e.seen.name.rpartition(".")[2]].append(e.seen)
        return found

    def _places(self, found: Sequence[Evidence]) -> tuple[Place, ...]:
        places: dict[tuple[str, int], None] = {}
        for e in found:
            places[(e.seen.file, e.seen.line)] = None
            for other in e.also:
                file, _, line = other.rpartition(":")
                places[(file, int(line))] = None
        return tuple(Place(where=where, line=line) for where, line in list(places)[:_PLACES])

    # variables and keys

    def variables(self) -> Iterable[Item]:
        """Environment variables and configuration keys."""
        by_name: dict[str, list[Evidence]] = defaultdict(list)
        for e in self._of(Kind.ENV_READ, Kind.ENV_WRITE, Kind.OPTION):
            by_name[e.seen.key or e.seen.name].append(e)
        chains = self._chains()
        attributes = self._attributes(by_name)
        judged: list[tuple[Item, list[Evidence]]] = []
        for name, found in by_name.items():
            if name not in attributes.values():
                members = [*found, *by_name.get(attributes.get(name, ""), [])]
                judged.append((self._variable(name, members, chains), members))
        yield from _with_section(judged)

    @staticmethod
    def _attributes(by_name: dict[str, list[Evidence]]) -> dict[str, str]:
        """Variables that a configuration module also has as an attribute of the same name."""
        found: dict[str, str] = {}
        for name, members in by_name.items():
            last = name.rpartition(".")[2]
            if members[0].seen.kind is Kind.OPTION and last != name and last in by_name:
                found[last] = name
        return found

    def _chains(self) -> dict[str, list[str]]:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for e in self._of(Kind.ENV_READ):
            if e.seen.chain:
                found[e.seen.chain].setdefault(e.seen.name, e.seen.order)
        return {chain: sorted(names, key=lambda n: names[n]) for chain, names in found.items()}

    def _variable(self, name: str, found: list[Evidence], chains: dict[str, list[str]]) -> Item:
        reads = [e for e in found if e.seen.kind is not Kind.ENV_WRITE]
        running = [e for e in reads if e.seen.role in _RUNS] or reads
        running = [e for e in running if not classify.told(e.seen)] or running
        chosen = sorted(running or found, key=_preferred)
        first, first_rank = chosen[0].seen, chosen[0].rank
        key = name == first.key or first.kind is Kind.OPTION or "." in name
        verdict, why = classify.variable(name, [e.seen for e in found], self.modules)
        resource = classify.resource(name)
        aliases = sorted({text for e in found for text in (e.seen.name, e.seen.key) if e.seen.key} - {name})
        table = next((e for e in chosen if e.seen.detail.endswith("with its default")), None)
        default = self._default([(table or e).seen for e in chosen], chains)
        chain = next((e.seen.chain for e in chosen if e.seen.chain), "")
        kind: ItemKind = "config" if key else "env"
        carried = first.role is Role.VENDORED and not self.modules.own(name)
        rank = classify.importance(name, kind, resource, first_rank, documented=name in self.documented)
        return Item(
            name=name,
            aliases=tuple(aliases),
            kind=kind,
            verdict=verdict,
            resource=resource,
            type=_type(first, default, name, [e.seen for e in chosen]),
            default=default,
            read_when="process-start" if key and classify.at_start(name, first) else _WHEN[first.when],
            scope="process (child processes)" if verdict == "mitigation" and first.target == "child" else "process",
            precedence=classify.precedence(name, chains.get(chain, []), first, key),
            provider=self.modules.provider(first),
            certain=first.method == "syntax" and not first.detail.startswith("weak:") and not carried,
            evidence=self._places([*chosen, *(e for e in found if e not in chosen)]),
            why=why,
            rank=round(rank * 0.75, 4) if carried else rank,
        )

    def _default(self, seen: Sequence[Observation], chains: dict[str, list[str]]) -> str:
        """What holds where the variable is not set: a literal, or `unset -> what is tried then`."""
        given = next((o.value for o in seen if o.value not in _NOTHING), None)
        chain = next((chains[o.chain] for o in seen if o.chain and o.chain in chains), [])
        later = chain[chain.index(seen[0].name) + 1 :] if seen[0].name in chain else []
        if given is None:
            return " -> ".join(["unset", *later])
        resolved = self._resolved(given)
        if len(chain) > 1 and seen[0].name in chain:
            return " -> ".join(["unset", *later, resolved])
        return resolved if _literal(given, resolved) else f"unset -> {resolved}"

    def _resolved(self, text: str) -> str:
        """A default with the constants that it names, each with its value."""
        plain = text[1:-1] if re.fullmatch(r"'[^']*'|\"[^\"]*\"", text) else text
        if re.fullmatch(r"[A-Za-z_][\w.]*", text):
            values = {o.value for o in self.constants.get(text.rpartition(".")[2], []) if o.value}
            if len(values) == 1:
                return f"{classify.unquoted(values.pop() or '')} ({text})"
        return _readable(plain)

    # callables

    def callables(self, defaults: Mapping[str, str]) -> Iterable[Item]:
        """Setters, reporters and parameters; `defaults` are those of the variables that are controls."""
        written: dict[tuple[str, str], set[str]] = defaultdict(set)
        for e in self._of(Kind.ENV_WRITE):
            written[(e.seen.file, e.seen.function)].add(e.seen.name)
        by_name: dict[tuple[Kind, str], list[Evidence]] = defaultdict(list)
        for e in self._of(Kind.API_SET, Kind.API_GET, Kind.PARAM):
            if e.seen.role in _RUNS:
                by_name[(e.seen.kind, e.seen.name)].append(e)
        for (kind, name), found in by_name.items():
            first = found[0].seen
            verdict, why = classify_api.callable_(name, [e.seen for e in found], documented=name in self.documented)
            resource = classify.resource(name)
            what: ItemKind = "param" if kind is Kind.PARAM else "api"
            default = (
                self._resolved(first.value)
                if first.value
                else ("None" if what == "param" else classify_api.standing(first))
            )
            if kind is Kind.API_SET and verdict == "control" and default == "-":
                default = _default_of_setter(name, written.get((first.file, first.function), set()), defaults)
            known = re.search(r"(?:^|; )\S+ = ([^;]+)$", first.detail) if what == "param" else None
            if known is not None:
                default = f"{classify.unquoted(known[1])} ({first.value})"
            yield Item(
                name=name,
                kind=what,
                verdict=verdict,
                resource=resource,
                type=_type(first, default, name, [first]) if what == "param" else classify.api_type(first),
                default=default,
                read_when=_WHEN[first.when],
                scope=classify.scope(first),
                precedence="",
                provider=self.modules.provider(first),
                certain=first.method == "syntax" and not first.detail.startswith("weak:"),
                evidence=self._places(found),
                why=why,
                rank=self._rank(name, what, resource, found[0]),
            )

    def _rank(self, name: str, kind: ItemKind, resource: str, best: Evidence) -> float:
        rank = classify.importance(name, kind, resource, best.rank, documented=name in self.documented)
        return round(rank * 0.6, 4) if "not bound to Python" in best.seen.detail else rank

    # pools and probes

    def pools(self) -> Iterable[Item]:
        """Demands: what the release creates."""
        by_name: dict[str, list[Evidence]] = defaultdict(list)
        for e in self._of(Kind.POOL):
            if e.seen.role in _RUNS:
                by_name[f"{e.seen.name} in {e.seen.function or e.seen.file}"].append(e)
        for name, found in by_name.items():
            first = min(found, key=lambda e: _WHEN_ORDER[e.seen.when]).seen
            yield Item(
                name=name,
                kind="api",
                verdict="demand",
                resource="cpu.processes" if first.target == "processes" else "cpu.threads",
                type="pool",
                default=first.value or "size not given",
                read_when=_WHEN[first.when],
                scope="process",
                precedence="",
                provider=self.modules.provider(first),
                certain=first.method == "syntax",
                evidence=self._places(found),
                why="; ".join(part for part in ("a pool is created here", first.detail) if part),
                rank=round(found[0].rank, 4),
            )

    def probes(self) -> Iterable[Item]:
        """What the release looks at to size itself, and how it deals with forks and idle workers."""
        by_name: dict[tuple[Kind, str], list[Evidence]] = defaultdict(list)
        for e in self._of(Kind.CPU_PROBE, Kind.FORK, Kind.IDLE):
            if e.seen.role in _RUNS:
                by_name[(e.seen.kind, e.seen.name)].append(e)
        reasons = {
            Kind.CPU_PROBE: "a look at the machine",
            Kind.FORK: "fork handling",
            Kind.IDLE: "how idle workers wait",
        }
        for (kind, name), found in by_name.items():
            first = found[0].seen
            yield Item(
                name=name,
                kind="api",
                verdict="signal",
                resource="spin" if kind is Kind.IDLE else "cpu.threads",
                type="probe" if kind is Kind.CPU_PROBE else kind.value,
                default=first.value or "-",
                read_when=_WHEN[first.when],
                scope="process",
                precedence="",
                provider=self.modules.provider(first),
                certain=first.method == "syntax",
                evidence=self._places(found),
                why="; ".join(part for part in (reasons[kind], first.detail) if part),
                rank=round(found[0].rank * 0.8, 4),
            )


def _with_section(judged: Sequence[tuple[Item, list[Evidence]]]) -> Iterable[Item]:
    """Items with the binding time of their section, where nothing better is known.

    Where most keys of a section are read when a process starts, so are those that a constructor reads or whose reads
    are not seen.
    """
    times: dict[str, list[ReadWhen]] = defaultdict(list)
    for item, _ in judged:
        if item.kind == "config" and "." in item.name:
            times[item.name.partition(".")[0]].append(item.read_when)
    for item, found in judged:
        section = times.get(item.name.partition(".")[0], []) if item.kind == "config" else []
        starting = 2 * section.count("process-start") > len(section) >= _SECTION
        if starting and item.read_when == "each-call" and classify.made_or_unseen([e.seen for e in found]):
            yield item.model_copy(update={"read_when": "process-start"})
        else:
            yield item


def _default_of_setter(name: str, written: set[str], defaults: Mapping[str, str]) -> str:
    """What holds before a setter is called: the default of the variable that it writes, or that is called like it."""
    last = name.rpartition(".")[2].lower()
    named = {v for v in defaults if last.startswith("set_") and v.lower().endswith(last.removeprefix("set"))}
    own = {v for v in named if v.lower().startswith(name.partition(".")[0].lower() + "_")}
    found = (written & defaults.keys()) or own or named
    if len(found) != 1:
        return "-"
    variable = found.pop()
    return f"{defaults[variable].partition(' (')[0]} ({variable})"


def _literal(given: str, resolved: str) -> bool:
    """Whether a default is a value, not an expression that is worked out when the variable is missing."""
    value = bool(re.match(r"(unlimited|infinity|\d+|\w+) \(|\d+$", resolved))
    return value or given != resolved or bool(re.fullmatch(r"[\w.+-]*|[\d_.]+\s*\w*", given))


def _readable(text: str) -> str:
    """A value as people write it: `67108864 (64 MiB)`, `unlimited (u64::MAX)`, `Normal (Advice::Normal)`."""
    bare = _unwrapped(text)
    value = int(bare) if re.fullmatch(r"[1-9]\d{6,17}", bare) else 0
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if value and value % size == 0:
            return f"{bare} ({value // size} {unit})"
    if _LARGEST.fullmatch(bare):
        return f"unlimited ({bare})"
    if _INFINITE.fullmatch(bare):
        return f"infinity ({bare})"
    variant = re.fullmatch(r"(?:\w+::)*[A-Z]\w*::([A-Z]\w*[a-z]\w*)", bare)
    return f"{variant[1]} ({bare})" if variant is not None else bare


def _unwrapped(text: str) -> str:
    """A constant without the types that it is wrapped in, worked out: `NonZero::new(32 * 1024).unwrap()` -> `32768`."""
    for _ in range(4):
        match = _WRAPPER.fullmatch(text.strip())
        if match is None:
            break
        text = next(group for group in match.groups() if group is not None)
    return evaluated(text)


def _preferred(e: Evidence) -> tuple[bool, int, bool, float]:
    seen = e.seen
    return seen.method != "syntax", _WHEN_ORDER[seen.when], seen.value is None, -e.rank


def _type(first: Observation, default: str, name: str, seen: Sequence[Observation]) -> str:
    kinds = [o.value_type for o in seen if o.value_type]
    if kinds:
        return _TYPES.get(kinds[0] or "", kinds[0] or "")
    if first.detail.endswith("only whether it is set"):
        return "flag"
    return classify.type_of(default, name)
