"""The rule drafter: from evidence to a contract, without a model.

Every clause cites the evidence that it was derived from. What the evidence does not say is `unknown`, never guessed.
Names that are no controls are not dropped in silence: `Draft.rejected` holds each with the reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lpcl import model as m
from lpcl.check import settable
from lpcl.expr import references
from synth import vocabulary as v
from synth.records import Evidence, Kind, Role, When
from synth.translate import expression

MAX_CITED = 6
# Below this rank a parameter is of an internal or vendored callable, or of a reader of files rather than of work.
PARAM_RANK = 0.75
_SOURCES = frozenset({Role.LIBRARY, Role.VENDORED})
_BINDING = {
    When.BUILD: "build",
    When.START: "process_start",
    When.IMPORT: "import",
    When.FIRST_USE: "first_use",
    When.CALL: "call",
    When.UNKNOWN: "unknown",
}
_WHEN_ORDER = {
    When.START: 0,
    When.IMPORT: 1,
    When.FIRST_USE: 2,
    When.CALL: 3,
    When.UNKNOWN: 4,
    When.BUILD: 5,
}
_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "text", "path": "text", "list": "text"}
_FORBIDDEN_ENV = re.compile(r"^(LD_|DYLD_|PYTHON|PATH$|__)", re.IGNORECASE)


def _unsettable(name: str) -> bool:
    return bool(_FORBIDDEN_ENV.match(name)) or not settable(name)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A name that looks like a control and is none."""

    name: str
    why: str
    place: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted contract and what was left out of it."""

    contract: m.Contract
    rejected: tuple[Rejected, ...]


@dataclass
class _Work:
    """What the steps of the drafter share."""

    package: str
    evidence: Sequence[Evidence]
    names: set[str] = field(default_factory=set)
    rejected: list[Rejected] = field(default_factory=list)
    controls: list[m.Control] = field(default_factory=list)
    stems: dict[frozenset[str], int] = field(default_factory=dict)
    demands: list[m.Demand] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Evidence]:
        """Evidence of these kinds from the library's own code, best first."""
        return [e for e in self.evidence if e.seen.kind in kinds and e.seen.role in _SOURCES]

    def name(self, wanted: str) -> str:
        """A free clause name close to `wanted`."""
        base = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_").lower() or "x"
        if base[0].isdigit():
            base = f"c_{base}"
        name, n = base, 2
        while name in self.names:
            name, n = f"{base}_{n}", n + 1
        self.names.add(name)
        return name


def draft(package: str, version: str, evidence: Sequence[Evidence]) -> Draft:
    """Draft a contract.

    Args:
        package: the distribution's name; version: of the release that the evidence is from.
        version: of that release.
        evidence: all of it, best first.

    Returns:
        The contract (possibly without clauses, if nothing is stated) and the rejected names.
    """
    work = _Work(package, evidence)
    _env_controls(work)
    _api_controls(work)
    _param_controls(work)
    _demands(work)
    signals = _signals(work)
    mitigations = _mitigations(work)
    assumptions = _assumptions(work)
    controls = [_bind(work, c) for c in work.controls]
    clauses: list[m.Clause] = [*work.demands, *assumptions, *controls, *signals, *mitigations]
    contract = m.Contract(
        _contract_name(package),
        (m.Package(package, f"=={version}"),),
        summary=_summary(work, controls),
        clauses=tuple(clauses),
    )
    return Draft(contract, tuple(sorted(work.rejected, key=lambda r: r.name)))


def _contract_name(package: str) -> str:
    name = re.sub(r"\W", "_", package, flags=re.ASCII)
    return f"p_{name}" if name[:1].isdigit() else name


def _summary(work: _Work, controls: Sequence[m.Control]) -> str:
    pools = ", ".join(sorted({d.resource.name for d in work.demands})) or "no pool of its own seen"
    env = sum(w.kind == "env" for c in controls for w in c.ways)
    return f"drafted by rules from the release: {pools}; {len(controls)} controls, {env} of their ways are variables"


# ------------------------------------------------------------------- controls


def _cite(found: Iterable[Evidence], most: int = MAX_CITED) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.id for e in found))[:most]


def _env_controls(work: _Work) -> None:
    """One control a variable, or a chain of variables of which the first that is set wins."""
    reads = [e for e in work.of(Kind.ENV_READ) if "*" not in e.seen.name]
    chosen: dict[str, Evidence] = {}
    for e in sorted(reads, key=lambda e: (_WHEN_ORDER[e.seen.when], e.seen.value is None, -e.rank)):
        chosen.setdefault(e.seen.name, e)
    by_name: dict[str, list[Evidence]] = defaultdict(list)
    for e in reads:
        by_name[e.seen.name].append(e)
    chains: dict[str, list[Evidence]] = defaultdict(list)
    for e in chosen.values():
        if e.seen.chain:
            chains[e.seen.chain].append(e)
    done: set[str] = set()
    for e in sorted(chosen.values(), key=lambda e: (-e.rank, e.seen.order, e.seen.name)):
        if e.seen.name in done:
            continue
        members = sorted(chains.get(e.seen.chain, [e]), key=lambda x: x.seen.order)
        members = [x for x in members if x.seen.name not in done]
        done |= {x.seen.name for x in members}
        for x in members:
            reason = _rejected(x.seen.name)
            if reason is not None:
                work.rejected.append(Rejected(x.seen.name, reason, f"{x.seen.file}:{x.seen.line}"))
        last = members[-1].seen.value
        members = [x for x in members if _rejected(x.seen.name) is None]
        if not members:
            continue
        cited = [*members, *(x for y in members for x in by_name[y.seen.name])]
        _add_env_control(work, members, cited, last)


def _rejected(name: str) -> str | None:
    reason = v.rejected(name)
    return "it can load code: no contract may set it" if reason is None and _unsettable(name) else reason


def _add_env_control(work: _Work, members: Sequence[Evidence], cited: Sequence[Evidence], text: str | None) -> None:
    first = members[0].seen
    stem = v.stem(first.name, work.package)
    name = work.name(v.short(first.name, work.package))
    default, from_constant, notes = _default(text, _constants(work, members))
    kind = _TYPES.get(first.value_type or "", "") or _type_of(default, first.name)
    default, notes = _fitting(default, kind, notes, text)
    ways = tuple(m.Way("env", e.seen.name, _BINDING[e.seen.when]) for e in members)
    work.stems.setdefault(stem, len(work.controls))
    work.controls.append(
        m.Control(
            name,
            m.Type(kind),
            default=default,
            ways=ways,
            combine="first_set" if len(ways) > 1 else None,
            effect="process",
            notes=notes,
            evidence=_cite([*cited[: MAX_CITED - 1], *from_constant]),
        )
    )


def _constants(work: _Work, members: Sequence[Evidence]) -> dict[str, Evidence]:
    """Constants by name: those found for these variables, those of their files, else those of one value only."""
    names, files = {e.seen.name for e in members}, {e.seen.file for e in members}
    found: dict[str, list[Evidence]] = defaultdict(list)
    for e in work.of(Kind.CONSTANT):
        found[e.seen.name.rsplit(".", 1)[-1]].append(e)
    out: dict[str, Evidence] = {}
    for name, all_of in found.items():
        near = [e for e in all_of if e.seen.file in files or e.seen.detail.removeprefix("used for ") in names] or all_of
        if len({e.seen.value for e in near}) == 1:
            out[name] = near[0]
    return out


def _default(text: str | None, constants: Mapping[str, Evidence]) -> tuple[m.Expr, list[Evidence], tuple[str, ...]]:
    """The default as an expression, the constants that it came from, and what is left to say about it."""
    values = {n: x for n, e in constants.items() if (x := expression(e.seen.value, {})) is not None}
    found = expression(text, values)
    if found is not None:
        used = re.findall(r"[A-Za-z_]\w*", text or "")
        return found, [constants[n] for n in used if n in constants], ()
    if text in {None, "None", '""', "''"}:
        return m.Unknown(), [], ()
    return m.Unknown(), [], (f"default in the source: {_one_line(text or '')}",)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:97] + "..."


def _type_of(default: m.Expr | None, name: str) -> str:
    match default:
        case m.Truth():
            return "bool"
        case m.Number(value=float()):
            return "float"
        case m.Number() | m.Operation() | m.Apply():
            return "int"
        case m.Text():
            return "text"
    counted = {"thread", "worker", "job", "cpu", "core", "processe", "process", "proc", "depth", "size"}
    words = v.words(name)
    last = words[-2:] if words[-1:] in {("count",), ("limit",)} else words[-1:]
    return "int" if counted & set(last) else "text"


def _fitting(default: m.Expr, kind: str, notes: tuple[str, ...], text: str | None) -> tuple[m.Expr, tuple[str, ...]]:
    """The default if it is of the control's type; code often gives a string that is parsed afterwards."""
    value: m.Expr = default
    if isinstance(default, m.Text):
        body = default.value.strip()
        if kind == "int" and re.fullmatch(r"\d{1,18}", body):
            value = m.Number(int(body))
        elif kind == "bool" and body.lower() in {"0", "1", "true", "false"}:
            value = m.Truth(body.lower() in {"1", "true"})
        elif kind == "float" and re.fullmatch(r"\d{1,15}(\.\d{1,15})?", body):
            value = m.Number(float(body))
        elif kind != "text":
            value = m.Unknown()
    elif isinstance(default, m.Truth) and kind != "bool":
        value = m.Unknown()
    elif isinstance(default, m.Number) and kind == "bool" and default.value in {0, 1}:
        value = m.Truth(bool(default.value))
    elif isinstance(default, m.Number | m.Operation | m.Apply) and kind not in {"int", "float"}:
        value = m.Unknown()
    if isinstance(value, m.Unknown) and not isinstance(default, m.Unknown):
        notes = (*notes, f"default in the source: {_one_line(text or '')}")
    return value, notes


def _api_controls(work: _Work) -> None:
    """Public functions that set something: another way of a control with the same stem, else one of their own."""
    for e in work.of(Kind.API_SET):
        seen = e.seen
        if _private(seen.name) or not _sayable(seen.name) or seen.role is Role.VENDORED:
            continue
        arguments = _arguments(seen.detail)
        way = m.Way("call", seen.name, "call", arguments[:1])
        at = work.stems.get(v.stem(seen.name, work.package))
        if at is not None and arguments:
            control = work.controls[at]
            work.controls[at] = replace(control, ways=(*control.ways, way), evidence=_merge(control.evidence, e.id))
            continue
        stem = v.stem(seen.name, work.package)
        kind = "int" if {"thread", "job", "worker", "core"} & stem and arguments else "text"
        work.stems.setdefault(stem, len(work.controls))
        work.controls.append(
            m.Control(
                work.name(v.short(seen.name, work.package)),
                m.Type(kind),
                default=m.Unknown(),
                ways=(way,),
                evidence=(e.id,),
            )
        )


def _param_controls(work: _Work) -> None:
    """Parameters of public callables, those of one name and owner class together."""
    for e in work.of(Kind.PARAM):
        seen = e.seen
        match = re.fullmatch(r"(.+)\((\w+)=\)", seen.name)
        if match is None or not _sayable(f"{match[1]}.{match[2]}") or e.rank < PARAM_RANK or _private(match[1]):
            continue
        default = expression(seen.value, {})
        kind = _TYPES.get(seen.value_type or "", "") or _type_of(default, match[2])
        value, notes = _fitting(default or m.Unknown(), kind, (), seen.value)
        if isinstance(value, m.Unknown) and seen.value is not None and not notes:
            notes = (f"default in the source: {_one_line(seen.value)}",)
        owner = match[1].rsplit(".", 1)[-1]
        way = m.Way("param", match[1], "call", (match[2],))
        work.controls.append(
            m.Control(
                work.name(f"{owner}_{match[2]}"),
                m.Type(kind),
                default=value,
                ways=(way,),
                effect="call",
                notes=notes,
                evidence=(e.id,),
            )
        )


def _sayable(dotted: str) -> bool:
    """Whether LPCL can name it, and a program can import it."""
    return all(re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) for part in dotted.split("."))


def _private(dotted: str) -> bool:
    return any(part.startswith("_") for part in dotted.split("."))


def _arguments(detail: str) -> tuple[str, ...]:
    """Names of a callable's parameters from `takes (nthreads, scope=None)`."""
    match = re.search(r"\(([^()]*)", detail)
    if match is None:
        return ()
    names = [a.split("=")[0].split(":")[0].strip().lstrip("*") for a in match[1].split(",")]
    return tuple(n for n in names if re.fullmatch(r"[A-Za-z_]\w*", n))


def _merge(cited: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*cited, *more)))[:MAX_CITED]


# -------------------------------------------------------------------- demands


def _demands(work: _Work) -> None:
    """A demand for each place that creates a pool whose size is not fixed at one."""
    seen_pools: dict[tuple[str, str], list[Evidence]] = defaultdict(list)
    for e in work.of(Kind.POOL):
        if e.seen.target in {"threads", "processes"} and e.seen.value != "1" and "sets the size" not in e.seen.detail:
            seen_pools[(e.seen.target, e.seen.name.rsplit(".", 1)[-1])].append(e)
    for (target, constructor), found in seen_pools.items():
        first = found[0].seen
        amount, notes = _amount(work, first.value)
        if first.language in {"c", "cpp"}:
            amount = _divided(amount)
        idle, idle_evidence = _idle(work, first.file)
        fork, fork_evidence = _fork(work, first.file)
        native = first.language not in {"python", "cython"}
        work.demands.append(
            m.Demand(
                work.name("workers" if native else "_".join(v.plain_words(constructor))),
                m.Ref(("cpu", target)),
                amount=amount,
                created=_created(found),
                scope="process" if native else "unknown",
                idle=(m.Idle(idle),),
                work="unknown",
                runs="native" if native else "user_code",
                fork=fork,
                notes=notes,
                evidence=_cite([*found[:2], *idle_evidence[:2], *fork_evidence[:1]]),
            )
        )


def _created(found: Sequence[Evidence]) -> str:
    when = min((e.seen.when for e in found), key=_WHEN_ORDER.__getitem__)
    return _BINDING[when]


def _amount(work: _Work, text: str | None) -> tuple[m.Expr, tuple[str, ...]]:
    """The size of a pool: a control whose stem the size's name has, an expression of such, or unknown."""
    names: dict[str, m.Expr] = {}
    parameters = _parameters(work)
    for word in re.findall(r"[A-Za-z_]\w*", text or ""):
        at = work.stems.get(v.stem(word, work.package))
        if at is not None:
            names[word] = m.Ref((work.controls[at].name,))
        elif word.lstrip("_") in parameters:
            names[word] = parameters[word.lstrip("_")]
    found = expression(text, names)
    if found is not None and _a_number(work, found):
        return found, ()
    return m.Unknown(), (f"size in the source: {_one_line(text)}",) if text else ()


def _a_number(work: _Work, e: m.Expr) -> bool:
    """Whether an expression can be an amount: a text, a truth value or a control of such a type cannot."""
    if isinstance(e, m.Truth | m.Text):
        return False
    kinds = {c.name: c.type.name for c in work.controls}
    return not (isinstance(e, m.Ref) and len(e.parts) == 1 and kinds.get(e.parts[0]) in {"bool", "text"})


def _divided(e: m.Expr) -> m.Expr:
    """`a / b` of C is the floor of the division."""
    match e:
        case m.Operation(operator="/"):
            return m.Apply("floor", (m.Operation("/", tuple(_divided(x) for x in e.operands)),))
        case m.Operation():
            return replace(e, operands=tuple(_divided(x) for x in e.operands))
        case m.Apply():
            return replace(e, arguments=tuple(_divided(x) for x in e.arguments))
    return e


def _parameters(work: _Work) -> dict[str, m.Expr]:
    """Parameter name -> its control; of several callables the one with the shortest name speaks for it."""
    ways = [(c.ways[0], c.name) for c in work.controls if c.ways[0].kind == "param"]
    ways.sort(key=lambda x: (-len(x[0].name), x[0].name))
    return {way.parameters[0]: m.Ref((name,)) for way, name in ways}


def _idle(work: _Work, file: str) -> tuple[str, list[Evidence]]:
    """How the workers of a pool wait: what is seen in the same folder, the most wakeful manner first."""
    folder = file.rsplit("/", 1)[0]
    near = [e for e in work.of(Kind.IDLE) if e.seen.file.rsplit("/", 1)[0] == folder]
    for manner in ("spin", "yield", "block"):
        found = [e for e in near if e.seen.value == manner]
        if found:
            found.sort(key=lambda e: e.seen.file != file)
            return manner, found
    return "unknown", []


def _fork(work: _Work, file: str) -> tuple[str, list[Evidence]]:
    """A process id that is compared, or a fork handler, in the pool's own file: the pool is made anew in a child."""
    near = [e for e in work.of(Kind.FORK) if e.seen.file == file]
    handlers = [e for e in near if re.search(r"getpid|atfork|at_fork", e.seen.name)]
    return ("recreated", handlers) if handlers else ("unknown", [])


def _bind(work: _Work, control: m.Control) -> m.Control:
    """Say which pools a control bounds: those whose amount speaks of it."""
    bounds = tuple(m.Ref((d.name, "amount")) for d in work.demands if control.name in references(d.amount))
    return replace(control, bounds=bounds) if bounds else control


# ------------------------------------------- signals, mitigations, assumptions


def _signals(work: _Work) -> list[m.Signal]:
    """Functions without arguments that report a size: each observes the pool whose control has its stem."""
    out = []
    for e in work.of(Kind.API_GET):
        seen = e.seen
        path = seen.name.split(".")
        method = any(p[:1].isupper() for p in path[:-1]) or "property" in seen.detail
        if _private(seen.name) or not _sayable(seen.name) or method or seen.role is Role.VENDORED or len(path) < 2:
            continue
        at = work.stems.get(v.stem(seen.name, work.package))
        control = work.controls[at].name if at is not None else ""
        observed = tuple(m.Ref((d.name, "amount")) for d in work.demands if control in references(d.amount))
        if not observed:
            continue
        out.append(
            m.Signal(
                work.name("_".join(v.plain_words(seen.name)[-3:])),
                "gauge",
                m.Read("call", (seen.name,)),
                observes=observed,
                unit="threads",
                valid_after="import",
                evidence=(e.id,),
            )
        )
    return out


def _mitigations(work: _Work) -> list[m.Mitigation]:
    """Variables that the library sets for others, those with one value and place together."""
    groups: dict[tuple[str, str, bool, str], list[Evidence]] = defaultdict(list)
    for e in work.of(Kind.ENV_WRITE):
        seen = e.seen
        if "*" in seen.name or _unsettable(seen.name):
            work.rejected.append(Rejected(seen.name, "set by the library, but not stated", f"{seen.file}:{seen.line}"))
            continue
        groups[(seen.value or "", seen.target, seen.unless_set, seen.function)].append(e)
    online = m.Ref(("machine", "online"))
    facts: dict[str, m.Expr] = {
        "cpu_count()": m.Ref(("machine", "cores")),  # the library's own
        "os.cpu_count()": online,
        "multiprocessing.cpu_count()": online,
        "mp.cpu_count()": online,
        **_parameters(work),
    }
    out = []
    for (value, target, unless_set, function), found in groups.items():
        to = expression(value, facts) or m.Unknown()
        notes = () if not isinstance(to, m.Unknown) else (f"value in the source: {_one_line(value)}",)
        last = function.rsplit(".", 1)[-1].strip("_") or "import"
        out.append(
            m.Mitigation(
                work.name(f"{last}_sets_{(v.plain_words(found[0].seen.name) or ('it',))[-1]}"),
                tuple(dict.fromkeys(e.seen.name for e in found)),
                value=to,
                target="children" if target == "child" else "process",
                unless_set=unless_set,
                notes=notes,
                # Each variable needs the line that sets it.
                evidence=_cite(found, len(found)),
            )
        )
    return out


def _assumptions(work: _Work) -> list[m.Assumption]:
    """What the library looks at to size itself, and what it therefore does not see."""
    facts: dict[str, Evidence] = {}
    for e in work.of(Kind.CPU_PROBE):
        fact = v.fact_of(e.seen.name) or v.fact_of(e.seen.detail)
        if fact is not None:
            facts.setdefault(fact, e)
    cpu = [
        f
        for f in ("machine.online", "machine.logical", "machine.physical", "machine.affinity", "machine.quota")
        if f in facts
    ]
    if not cpu:
        return []
    resource = work.demands[0].resource if work.demands else m.Ref(("cpu", "threads"))
    ignored = [f for f in ("machine.affinity", "machine.quota") if f not in facts]
    return [
        m.Assumption(
            work.name("machine_seen"),
            (m.Sizes(resource, tuple(_fact(f) for f in cpu)),),
            tuple(_fact(f) for f in ignored),
            evidence=_cite(facts[f] for f in cpu),
        )
    ]


def _fact(name: str) -> m.Ref:
    return m.Ref(tuple(name.split(".")))
