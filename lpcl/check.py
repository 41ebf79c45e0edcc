"""The checker: one small function a rule, in one list.

Each rule takes a contract and yields findings. Rules never look outside the file; what needs the evidence file
is in `corpus.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from lpcl import model as m
from lpcl.diagnostics import Diagnostic, Severity
from lpcl.expr import FUNCTIONS, MACHINE_FACTS, evaluate, references
from lpcl.units import dimension

RESOURCES = (
    "cpu.threads",
    "cpu.processes",
    "cpu.time",
    "memory.bytes",
    "memory.bandwidth",
    "gpu.memory",
    "gpu.devices",
    "io.threads",
    "io.bandwidth",
    "files",
)

# Names that no contract may set: they load code, redirect traffic, or hold secrets.
_FORBIDDEN_ENV = re.compile(
    r"^(LD_.*|DYLD_.*|PYTHON(PATH|HOME|STARTUP|INSPECT|BREAKPOINT|EXECUTABLE|USERBASE|WARNINGS|PYCACHEPREFIX)"
    r"|PATH|HOME|SHELL|IFS|ENV|BASH_ENV|GCONV_PATH|NODE_OPTIONS|PERL5(LIB|OPT)|RUBY(LIB|OPT)|JAVA_TOOL_OPTIONS"
    r"|OMP_TOOL.*|OCL_ICD_.*|CUDA_INJECTION.*|MALLOC_TRACE|NVBLAS_CONFIG_FILE|GLIBC_TUNABLES|GIT_.*|SSH_.*|PIP_.*|UV_(?!THREADPOOL).*|AWS_.*|OPENAI_.*"
    r"|.*_PROXY|.*(TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIALS?|PRIVATE_KEY).*)$",
    re.IGNORECASE,
)
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
_NO_SIGNAL = re.compile(r"/(\.\.|root|cwd|exe|fd|fdinfo|map_files|mem|environ)(/|$)")
# A signal is called inside the application: only what reads as a question, never what acts.
_ACTS = re.compile(
    r"(^|_)(set|reset|clear|del|delete|remove|free|exec|eval|system|popen|spawn|fork|run|call|exit|abort|kill|raise|"
    r"shutdown|close|init|initiali[sz]e|start|stop|write|save|load|import|open|dump|register|enable|disable|create|"
    r"destroy|update|send|connect|download|install)(_|$)",
    re.IGNORECASE,
)
# Base names that stand for many libraries, or for those that every process needs.
_WIDE = re.compile(r"^(lib)?[*?\[]|^lib.?[*?]|^(ld-linux|libc|libm|libpthread|libdl|librt|libpython)([.\-*?\[]|$)")
_EVIDENCE_ID = re.compile(r"^[a-z][a-z0-9_]*$")

Found = Iterator[Diagnostic]


def _d(rule: str, severity: Severity, message: str, span: m.Span, help_text: str = "") -> Diagnostic:
    return Diagnostic(rule, severity, message, span, help_text)


def _near(word: str, words: tuple[str, ...] | list[str], otherwise: str = "") -> str:
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else otherwise


def duplicate_clause(c: m.Contract) -> Found:
    """Two clauses have one name."""
    seen: dict[str, m.Clause] = {}
    for clause in c.clauses:
        if clause.name in seen:
            first = m.clause_label(seen[clause.name])
            help_text = "rename one of them: references would be ambiguous"
            yield _d("LP101", "error", f"`{clause.name}` is already the name of `{first}`", clause.span, help_text)
        seen.setdefault(clause.name, clause)


def subject(c: m.Contract) -> Found:
    """The contract does not say what it is about."""
    if not c.packages and not c.natives:
        help_text = 'add `package "NAME"` or `native "libNAME*.so*"`'
        yield _d("LP102", "error", f"contract `{c.name}` names no package and no native library", c.span, help_text)


def versions(c: m.Contract) -> Found:
    """A version range is not one."""
    ranges = [(p.versions, p.span) for p in c.packages]
    ranges += [(w.versions, w.span) for x in c.controls for w in x.ways]
    for text, span in ranges:
        try:
            SpecifierSet(text or "")
        except InvalidSpecifier:
            help_text = 'write it like ">=2.11, <3"'
            yield _d("LP103", "error", f"`{text}` is not a range of versions", span, help_text)


def evidence(c: m.Contract) -> Found:
    """A clause cites nothing."""
    for clause in c.clauses:
        if not clause.evidence:
            help_text = "add `evidence ID`; the id stands in evidence.jsonl beside the contract"
            yield _d("LP104", "error", f"`{m.clause_label(clause)}` cites no evidence", clause.span, help_text)
        for name in clause.evidence:
            if not _EVIDENCE_ID.match(name):
                yield _d("LP105", "error", f"`{name}` is no evidence id", clause.span, "ids are lower case")
        if len(set(clause.evidence)) != len(clause.evidence):
            yield _d("LP106", "warning", f"`{m.clause_label(clause)}` cites one evidence twice", clause.span)


def resource(c: m.Contract) -> Found:
    """A resource that the tuner does not know."""
    placed = (x.type.resource for x in c.controls if x.type.resource is not None)
    for ref in (*(d.resource for d in c.demands), *(s.resource for a in c.assumptions for s in a.sizes), *placed):
        if ref.name not in RESOURCES:
            help_text = _near(ref.name, list(RESOURCES), f"one of {', '.join(RESOURCES)}")
            yield _d("LP107", "error", f"`{ref.name}` is no resource", ref.span, help_text)


def _known_names(c: m.Contract) -> set[str]:
    names = {f"machine.{f}" for f in MACHINE_FACTS} | {"value"}
    names |= {x.name for x in c.controls}
    for d in c.demands:
        names |= {d.name, f"{d.name}.amount", f"{d.name}.idle", f"{d.name}.created"}
    return names


def dangling(c: m.Contract) -> Found:
    """A reference to nothing."""
    names = _known_names(c)
    suggestions = 20  # each costs a comparison with every name
    for clause in c.clauses:
        resources: set[int] = set()
        if isinstance(clause, m.Demand):
            resources.add(id(clause.resource))
        if isinstance(clause, m.Assumption):
            resources |= {id(s.resource) for s in clause.sizes}
        if isinstance(clause, m.Control) and clause.type.resource is not None:
            resources.add(id(clause.type.resource))
        for ref in m.walk_references(clause):
            if id(ref) in resources or ref.name in names:
                continue
            if ref.parts[0] in c.uses:
                continue  # it lives in the contract that is used
            if ref.parts[0] == "machine":
                facts = [f"machine.{f}" for f in MACHINE_FACTS]
                help_text = _near(ref.name, facts, f"facts are {', '.join(MACHINE_FACTS)}")
            else:
                suggestions -= 1
                near = sorted(names) if suggestions >= 0 else []
                help_text = _near(ref.name, near, "name a control, a demand or a fact `machine.x`")
            yield _d("LP108", "error", f"`{ref.name}` refers to nothing", ref.span, help_text)


def functions(c: m.Contract) -> Found:
    """An unknown function, or a wrong number of arguments."""
    for e in (e for clause in c.clauses for e in m.walk_expressions(clause)):
        if not isinstance(e, m.Apply):
            continue
        if e.function not in FUNCTIONS:
            help_text = _near(e.function, list(FUNCTIONS), f"one of {', '.join(FUNCTIONS)}")
            yield _d("LP109", "error", f"`{e.function}` is no function", e.span, help_text)
            continue
        least, most = FUNCTIONS[e.function]
        if len(e.arguments) < least or (most is not None and len(e.arguments) > most):
            wanted = str(least) if least == most else f"at least {least}"
            message = f"`{e.function}` takes {wanted} arguments, not {len(e.arguments)}"
            yield _d("LP110", "error", message, e.span)


def cycles(c: m.Contract) -> Found:
    """Defaults, ranges or amounts that depend on themselves."""
    graph = {x.name: references((x.default, x.range, x.effective)) - {"value"} for x in c.controls}
    graph |= {d.name: references(d.amount) for d in c.demands}
    graph |= {f"{d.name}.amount": references(d.amount) for d in c.demands}
    clauses: tuple[m.Control | m.Demand, ...] = (*c.controls, *c.demands)
    for clause in clauses:
        seen, frontier = set[str](), set(graph[clause.name])
        while frontier:
            name = frontier.pop()
            if name == clause.name or (isinstance(clause, m.Demand) and name == f"{clause.name}.amount"):
                message = f"`{clause.name}` depends on itself"
                yield _d("LP111", "error", message, clause.span, "break the cycle: one of them needs a fixed value")
                break
            if name not in seen:
                seen.add(name)
                frontier |= graph.get(name, set())


def env_claims(c: m.Contract) -> Found:
    """Two controls claim one variable in the same place of the order."""
    claimed: dict[str, m.Control] = {}
    for control in c.controls:
        names = control.env_names()
        for i, name in enumerate(names):
            if name in names[:i]:
                yield _d("LP112", "warning", f"`{control.name}` reads `{name}` twice", control.span)
        for name in set(names):
            other = claimed.get(name)
            if other is not None and names[0] == name and other.env_names()[0] == name:
                message = f"`{control.name}` and `{other.name}` both claim `{name}`"
                yield _d("LP113", "error", message, control.span, "one variable sets one control: merge them")
            if names[0] == name:
                claimed.setdefault(name, control)


def settable(name: str) -> bool:
    """Whether a contract may set this environment variable."""
    return bool(_ENV_NAME.match(name)) and not _FORBIDDEN_ENV.match(name)


def env_names(c: m.Contract) -> Found:
    """A variable that no contract may set, or no variable name at all."""
    named = [(w.name, w.span) for x in c.controls for w in x.ways if w.kind == "env"]
    named += [(name, x.span) for x in c.mitigations for name in x.env]
    for name, span in named:
        if not _ENV_NAME.match(name):
            yield _d("LP114", "error", f"`{name}` is no name of an environment variable", span)
        elif _FORBIDDEN_ENV.match(name):
            help_text = "it can load code, redirect traffic or hold a secret; leave it out"
            yield _d("LP115", "error", f"`{name}` may not be set through a contract", span, help_text)


def ways(c: m.Contract) -> Found:
    """A control that nothing can set."""
    for control in c.controls:
        if not control.ways:
            help_text = "add `env`, `call`, `param` or `config`, or drop the control"
            yield _d("LP116", "error", f"nothing sets `control {control.name}`", control.span, help_text)


def types(c: m.Contract) -> Found:
    """A default or range whose type is not the control's."""
    for control in c.controls:
        values = [("default", control.default)]
        if control.range is not None:
            values += [("range", control.range.low), ("range", control.range.high)]
        for what, e in values:
            kind = _literal_kind(e)
            if kind and kind not in _FITS[control.type.name]:
                message = f"the {what} of `{control.name}` is {kind}, not {control.type.name}"
                yield _d("LP117", "error", message, e.span if e is not None else control.span)
        if control.type.name == "choice" and isinstance(control.default, m.Text):
            choices = control.type.choices
            if control.default.value not in choices:
                message = f"the default `{control.default.value}` is none of the choices of `{control.name}`"
                yield _d("LP118", "error", message, control.default.span, _near(control.default.value, choices))


_FITS: dict[str, set[str]] = {
    "int": {"a number"},
    "float": {"a number"},
    "size": {"a number", "a size", "a share", "text"},
    "duration": {"a number", "a duration"},
    "bool": {"a truth value"},
    "text": {"text"},
    "choice": {"text"},
    "list": {"text"},
    "sequence": {"text"},
    "placement": {"text"},
}


def _literal_kind(e: m.Expr | None) -> str:
    match e:
        case m.Number():
            names = {
                "": "a number",
                "s": "a duration",
                "B": "a size",
                "ratio": "a share",
                "cycles": "a number",
            }
            return names[dimension(e.unit)]
        case m.Text():
            return "text"
        case m.Truth():
            return "a truth value"
        case _:
            return ""


def ranges(c: m.Contract) -> Found:
    """A range that is empty, a step that is not positive, or a literal default outside."""
    for control in c.controls:
        r = control.range
        if r is None:
            continue
        low, high = evaluate(r.low, {}), evaluate(r.high, {})
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            yield _d("LP119", "error", f"the range of `{control.name}` is empty", r.span, "write LOW to HIGH")
        step = evaluate(r.step, {}) if r.step is not None else None
        if isinstance(step, int | float) and step <= 0:
            yield _d("LP120", "error", f"the step of `{control.name}` is not positive", r.span)
        if r.scale == "log" and isinstance(low, int | float) and low <= 0:
            yield _d("LP121", "error", f"a logarithmic range of `{control.name}` cannot start at {low}", r.span)
        default = evaluate(control.default, {}) if control.default is not None else None
        special = [evaluate(s.value, {}) for s in control.specials]
        if not isinstance(default, int | float) or isinstance(default, bool) or default in special:
            continue
        below = isinstance(low, int | float) and default < low
        above = isinstance(high, int | float) and default > high
        if below or above:
            message = f"the default {default} of `{control.name}` is outside its range"
            yield _d("LP122", "error", message, control.default.span if control.default else control.span)


def references_to_demands(c: m.Contract) -> Found:
    """`bounds`, `affects` and `observes` name a property of a demand."""
    demands = {d.name for d in c.demands}
    for clause in c.clauses:
        refs: tuple[m.Ref, ...] = ()
        if isinstance(clause, m.Control):
            refs = (*clause.bounds, *clause.affects)
        elif isinstance(clause, m.Signal):
            refs = clause.observes
        elif isinstance(clause, m.Mitigation):
            refs = clause.limits
        for ref in refs:
            own = ref.parts[0] in demands
            known = own or ref.parts[0] in c.uses
            # A demand of a used contract is named with its contract: `libgomp.team.amount`.
            wanted = 2 if own else 3
            if known and (len(ref.parts) != wanted or ref.parts[-1] not in {"amount", "idle", "created"}):
                base = ref.parts[0] if own else f"{ref.parts[0]}.DEMAND"
                help_text = f"write `{base}.amount` or `{base}.idle`"
                yield _d("LP123", "error", f"`{ref.name}` is no property of a demand", ref.span, help_text)


def precedence(c: m.Contract) -> Found:
    """A deprecated way that wins, or a later binding time behind a condition that never holds."""
    for control in c.controls:
        for way in control.ways:
            if isinstance(way.condition, m.Truth) and not way.condition.value:
                yield _d("LP124", "warning", f"`{way.label}` never applies", way.span, "drop it")
        for clause_condition in (control.condition,):
            if isinstance(clause_condition, m.Truth) and not clause_condition.value:
                yield _d("LP125", "warning", f"`control {control.name}` never applies", control.span, "drop it")


def idle_order(c: m.Contract) -> Found:
    """An `idle` line behind one that always holds."""
    for d in c.demands:
        for i, idle in enumerate(d.idle[:-1]):
            if idle.condition is None:
                message = f"`idle {d.idle[i + 1].mode}` of `{d.name}` is never reached"
                yield _d("LP126", "error", message, d.idle[i + 1].span, "put the line without `if` last")
                break


def signals(c: m.Contract) -> Found:
    """A signal that cannot be read or observes nothing."""
    for s in c.signals:
        if s.read is None:
            help_text = "add `read call pkg.f()`, `read native` or `read file`"
            yield _d("LP127", "error", f"`signal {s.name}` does not say how it is read", s.span, help_text)
            continue
        if not s.observes:
            yield _d(
                "LP128",
                "warning",
                f"`signal {s.name}` observes nothing",
                s.span,
                "add `observes DEMAND.amount`",
            )
        if s.read.kind == "native" and not c.natives:
            help_text = 'add `native "libNAME*.so*"` to the contract: symbols are looked up there only'
            yield _d("LP129", "error", f"`signal {s.name}` reads a symbol of no library", s.span, help_text)
        path = s.read.target[0]
        if s.read.kind == "file" and (not path.startswith(("/proc/", "/sys/")) or _NO_SIGNAL.search(path)):
            yield _d("LP130", "error", f"`{path}` is not under /proc or /sys", s.read.span)
        if s.read.kind == "call" and c.packages and "." not in path:
            yield _d("LP131", "error", f"`{path}` is no dotted name", s.read.span, "write `package.function`")


def signals_ask(c: m.Contract) -> Found:
    """A signal that would act, or a library pattern so wide that a symbol could be anyone's."""
    for s in c.signals:
        if s.read is None or s.read.kind in {"file", "log"}:
            continue
        rule = "LP138" if s.read.kind == "call" else "LP139"
        for target in s.read.target:
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", target.rsplit(".", 1)[-1])
            symbol_is_none = s.read.kind == "native" and not _ENV_NAME.match(target)
            if _ACTS.search(name) or symbol_is_none:
                help_text = "a signal may only read: name a function that reports"
                yield _d(rule, "error", f"`{target}` does not read as a question", s.read.span, help_text)
    for native in c.natives:
        for pattern in native.patterns:
            if _WIDE.search(pattern) or "/" in pattern:
                help_text = "write the library's own name, for example `libgomp*.so*`"
                yield _d("LP140", "error", f"`{pattern}` stands for more than one library", native.span, help_text)


def mitigations(c: m.Contract) -> Found:
    """A mitigation without a target, a value or a variable."""
    for x in c.mitigations:
        missing = [w for w, v in (("sets env", x.env or x.limits), ("to", x.value), ("in", x.target)) if not v]
        if missing:
            yield _d("LP132", "error", f"`mitigate {x.name}` lacks `{missing[0]}`", x.span)


def assumptions(c: m.Contract) -> Found:
    """An assumption that states nothing."""
    for a in c.assumptions:
        if not (a.sizes or a.ignores or a.requires or a.forbids):
            help_text = "add `sizes`, `ignores`, `requires` or `forbids`"
            yield _d("LP133", "error", f"`assume {a.name}` states nothing", a.span, help_text)
        if a.forbids and not a.consequence:
            yield _d("LP134", "warning", f"`assume {a.name}` forbids without a `consequence`", a.span)


def demands(c: m.Contract) -> Found:
    """A pool without the facts that the tuner needs; `unknown` is a fact, silence is not."""
    for d in c.demands:
        if d.resource.name not in {"cpu.threads", "cpu.processes"}:
            continue
        missing = [k for k in ("amount", "created", "scope", "idle", "runs", "fork") if not getattr(d, k)]
        if missing:
            message = f"`demand {d.name}` does not say `{missing[0]}`"
            yield _d("LP135", "warning", message, d.span, f"write `{missing[0]} unknown` if you do not know")


def unused_uses(c: m.Contract) -> Found:
    """A contract that uses itself, or one twice."""
    for name in c.uses:
        if name == c.name:
            yield _d("LP136", "error", f"contract `{name}` uses itself", c.span)
    if len(set(c.uses)) != len(c.uses):
        yield _d("LP137", "warning", "one contract is used twice", c.span)


RULES: tuple[Callable[[m.Contract], Found], ...] = (
    duplicate_clause,
    subject,
    versions,
    evidence,
    resource,
    dangling,
    functions,
    cycles,
    env_claims,
    env_names,
    ways,
    types,
    ranges,
    references_to_demands,
    precedence,
    idle_order,
    signals,
    signals_ask,
    mitigations,
    assumptions,
    demands,
    unused_uses,
)


def check(file: m.File, *, name: str = "") -> tuple[Diagnostic, ...]:
    """Every finding in a file, in the order of the text."""
    found = [d for c in file.contracts for rule in RULES for d in rule(c)]
    seen: set[str] = set()
    for c in file.contracts:
        if c.name in seen:
            found.append(_d("LP100", "error", f"two contracts are named `{c.name}`", c.span))
        seen.add(c.name)
    found.sort(key=lambda d: (d.span.line, d.span.column, d.rule))
    return tuple(replace(d, file=name) for d in found)
