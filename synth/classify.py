"""Judgement of what was seen: control or not and why, of which resource, how far it reaches, how much it matters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from synth import lexicon
from synth import vocabulary as v
from synth.records import Kind, Observation, Role, When
from synth.shipped import OUTSIDE

Verdict = Literal["control", "not_control", "signal", "demand", "mitigation"]
_RUNS = frozenset({Role.LIBRARY, Role.VENDORED})
_ROLES = {
    Role.TEST: "read by tests only",
    Role.EXAMPLE: "read by examples only",
    Role.BENCHMARK: "read by benchmarks only",
    Role.BUILD: "read while the package is built only",
    Role.DOC: "read by the documentation's own scripts only",
}
_READ_PLACES = 8  # whose descriptions are read
_READ_CHARACTERS = 800
_SWITCHES = frozenset({"true", "false", "on", "off", "yes", "no"})
_BASE = {
    "cpu.threads": 1.0,
    "cpu.processes": 0.97,
    "spin": 0.95,
    "cpu.affinity": 0.93,
    "memory": 0.9,
    "gpu.memory": 0.9,
    "gpu": 0.8,
    "cache": 0.75,
    "scheduler": 0.75,
    "io": 0.65,
    "other": 0.45,
}
_TABLE = 12  # keys from which on a table of defaults is taken to be complete
_KIND = {"env": 1.0, "api": 0.97, "config": 0.95, "param": 0.85}


class Owners:
    """Who provides what: the release's own code, what it carries, what it borrows."""

    def __init__(self, package: str, seen: Iterable[Observation]) -> None:
        """Learn the prefixes of the package's own variables from its name and its modules."""
        self.package = package
        seen = list(seen)
        self.sized = {
            o.name.partition("::")[0].lower()
            for o in seen
            if o.kind is Kind.POOL and o.role in _RUNS and "::" in o.name and re.search(r"[A-Za-z_]", o.value or "")
        }
        self.tabled = {plain(o.key or o.name) for o in seen if o.detail.endswith("with its default")}
        tops = {o.file.split("/")[0].removesuffix(".py") for o in seen if o.role is Role.LIBRARY and "/" in o.file}
        words = {package, *tops}
        self.prefixes = {re.sub(r"\W+", "_", w).strip("_").upper() for w in words if len(w) > 1}

    def own(self, name: str) -> bool:
        """Whether a variable carries the package's name."""
        return any(name.upper().startswith((f"{p}_", p)) for p in self.prefixes)

    def outsized(self, name: str, seen: Sequence[Observation]) -> str:
        """The carried runtime that alone reads a variable, where the library gives its pool a size in the code."""
        runtime = name.partition("_")[0].lower()
        binary = all(o.language == "binary" for o in seen)
        return runtime if binary and runtime in self.sized and lexicon.counts(name) else ""

    def renamed(self, name: str, seen: Sequence[Observation]) -> str:
        """The key that a table of old names gives for a key."""
        values = {unquoted(o.value or "") for o in seen}
        value = values.pop() if len(values) == 1 else ""
        if "." not in name or not re.fullmatch(r"[a-z][\w-]*(\.[\w-]+)+", value) or plain(value) == plain(name):
            return ""
        return value if plain(value) in self.tabled or plain(value).endswith(f".{plain(name)}") else ""

    def untabled(self, name: str, seen: Sequence[Observation]) -> bool:
        """Whether a key is read without a default, in a package that has a table with the defaults of its keys."""
        given = any(o.value not in (None, "None", "False") for o in seen)
        if given or len(self.tabled) < _TABLE:
            return False
        # a null in the table says that the key exists, not what it does
        return not any(lexicon.headed(part) for part in name.split("."))

    def provider(self, seen: Observation) -> str:
        """Who reads it."""
        if seen.role is Role.VENDORED:
            parts = seen.file.split("/")
            at = next((i for i, part in enumerate(parts) if lexicon.carried(part)), -1)
            inner = parts[at + 1].partition(".")[0] if 0 <= at < len(parts) - 1 else ""
            return f"{inner or 'a library'} (carried by {self.package})"
        return self.package


def variable(name: str, seen: Sequence[Observation], owners: Owners) -> tuple[Verdict, str]:
    """Verdict and reason for an environment variable or a configuration key, from all places that touch it."""
    reads = [o for o in seen if o.kind is not Kind.ENV_WRITE]
    running = [o for o in reads if o.role in _RUNS]
    if not reads:
        writes = [o for o in seen if o.role in _RUNS]
        if not writes:
            return "not_control", _ROLES.get(seen[0].role, "").replace("read", "set") or "set only"
        return "mitigation", _written(writes[0])
    if not running and all(o.detail.startswith(OUTSIDE) for o in reads):
        return "not_control", f"read only {OUTSIDE}"
    if not running:
        return "not_control", _ROLES.get(reads[0].role, "not read by the library")
    used = [o for o in running if not told(o)]
    if not used:
        return "not_control", "read only to be shown, reported or debugged"
    running = used
    runtime = owners.outsized(name, running)
    if runtime:
        return "not_control", f"read by the carried {runtime}, whose pool the library makes with a size of its own"
    current = owners.renamed(name, running)
    if current:
        return "not_control", f"an old name of `{current}`"
    if "*" in name:
        return (
            "not_control",
            "a family of names that is composed at run time; its known members are listed by themselves",
        )
    if name.startswith("_"):
        return "not_control", "private by its name"
    return _by_name(name, running, owners)


def _by_what_stands_beside(name: str, reading: lexicon.Reading, seen: Sequence[Observation]) -> str:
    """What makes it a control apart from its name: its default, and what the value goes to."""
    if lexicon.scratch(name) and reading.resource is not None:
        return "where the library keeps scratch data"
    if any(lexicon.starts_processes(o.value or "") for o in seen):
        return "the library reads it; its default is a way to start processes"
    fed = next((o.feeds for o in seen if o.feeds and lexicon.headed(o.feeds) and not lexicon.read(o.feeds).against), "")
    return f"the library reads it into `{fed}`, which speaks of {lexicon.resource_of(fed)}" if fed else ""


def _by_name(name: str, seen: Sequence[Observation], owners: Owners) -> tuple[Verdict, str]:
    """Judge what the library reads when it runs by its words, its default and its type."""
    key = bool(seen[0].key)
    reading = lexicon.read(name, key=key)
    if reading.against:
        return "not_control", reading.against
    through = next((f", {o.detail}" for o in seen if o.detail.startswith("through ")), "")
    if any(lexicon.loads(o.value or "") for o in seen):
        return "not_control", "its default names a class or is a function: something to load or call"
    number = any(o.value_type in ("int", "float") or lexicon.quantity(o.value or "") for o in seen)
    # a whole number whose default is 0 or 1 is a switch as often as an amount
    amount = number and not all((o.value or "0").strip("'\"") in ("0", "1") for o in seen)
    described = lexicon.describes(_description(seen))
    about = f"the library reads it; its name speaks of {reading.resource or 'how the engine works'}{through}"
    if reading.resource is not None and lexicon.headed(name):
        return "control", about
    beside = _by_what_stands_beside(name, reading, seen)
    if beside:
        return "control", f"{beside}{through}"
    limit = reading.resource is not None and (number or reading.engine) and lexicon.headed(name.rpartition(".")[0])
    if described < -1 and not limit and not (reading.resource is not None and number):
        return "not_control", "what is written beside it speaks of diagnostics, checks or display"
    if reading.resource is not None and (number or reading.engine or _switch(seen) or described > 0):
        return "control", about
    if key and reading.resource is not None and lexicon.headed(name.rpartition(".")[0]) and not _chosen(seen):
        return "control", about
    if reading.resource is not None:
        return "not_control", f"its name speaks of {reading.resource} by the way; what it sets is something else"
    if reading.engine and key and owners.untabled(name, seen):
        return "not_control", "not among the keys that have a default; its name speaks of no resource"
    if reading.engine:
        return "control", about
    if described > 0 and (described > 1 or number or _switch(seen)):
        return "control", f"the library reads it; what is written beside it speaks of performance{through}"
    if (number if key else amount) and (key or owners.own(name)):
        return "control", f"the library reads a number from it; of what its name does not say{through}"
    return "not_control", "its name speaks of no resource"


def _chosen(seen: Sequence[Observation]) -> bool:
    """Whether the default is a word: a choice or the name of something."""
    return any(re.fullmatch(r"['\"]?[A-Za-z_][\w-]*['\"]?", o.value or "") and o.value != "None" for o in seen)


def _description(seen: Sequence[Observation]) -> str:
    """Comments at the places, and the texts in the code there (the help of an option)."""
    texts = [o.about for o in seen[:_READ_PLACES]]
    for o in seen[:_READ_PLACES]:
        texts += [t for t in re.findall(r"['\"]([^'\"]*)['\"]", o.text[:_READ_CHARACTERS]) if " " in t]
    return " ".join(texts)


_TELLS = re.compile(
    r"(^|[._])(dump|print|log|report|show|describe|format|collect_env|sys_info|system_info)(_\w+)?$|_info$|_report$"
)


_DEBUGS = re.compile(r"(dbg|(^|[/_])debug(ging|ger)?)(?!/)\w*\.\w+$")


def told(seen: Observation) -> bool:
    """Whether a place only shows or debugs: by its function's or file's name, or by what it shows for none."""
    return bool(_TELLS.search(seen.function) or _DEBUGS.search(seen.file)) or unquoted(seen.value or "") in (
        "N/A",
        "n/a",
        "<unset>",
        "not set",
        "<not set>",
    )


def plain(key: str) -> str:
    """A key without regard to how its words are joined."""
    return key.lower().replace("_", "-")


def _switch(seen: Sequence[Observation]) -> bool:
    """Whether it is read as something that is on or off."""
    return any(o.value_type == "bool" or (o.value or "").strip("'\"").lower() in _SWITCHES for o in seen)


def _written(seen: Observation) -> str:
    value = f" to `{seen.value}`" if seen.value else ""
    unless = " unless it is set" if seen.unless_set else ""
    whom = "for its children" if seen.target == "child" else "in its own process"
    return f"the library sets it{value} {whom}{unless}"


def resource(name: str) -> str:
    """The resource that a name speaks of."""
    return lexicon.resource_of(name) or "other"


def unquoted(text: str) -> str:
    """A literal without its quotes."""
    return text[1:-1] if re.fullmatch(r"'[^']*'|\"[^\"]*\"", text) else text


def type_of(default: str, name: str) -> str:
    """Type by the default, else by the name."""
    text = default.partition(" (")[0]
    if text in ("True", "False"):
        return "bool"
    if re.fullmatch(r"-?\d[\d_]*", text):
        return "int"
    if re.fullmatch(r"-?\d*\.\d+(e-?\d+)?", text):
        return "float"
    counted = {"thread", "worker", "job", "cpu", "core", "process", "proc", "depth", "size"}
    last = v.words(re.sub(r"\W+", "_", name))[-1:]
    return "int" if counted & set(last) else "string"


def api_type(seen: Observation) -> str:
    """What kind of callable it is."""
    if seen.kind is Kind.API_GET:
        return "reporter"
    return "context manager" if "context manager" in seen.detail else "call"


def scope(seen: Observation) -> str:
    """How far a setting reaches."""
    if seen.scope:
        return seen.scope
    owner = seen.name.rpartition(".")[0].rpartition(".")[2]
    method = seen.language == "rust" and owner[:1].isupper()  # of an object of the extension
    return "object" if seen.kind is Kind.PARAM or method else "process"


_STARTS = frozenset(
    {"__init__", "__post_init__", "__await__", "start", "_start", "start_unsafe", "setup", "run", "serve", "main"}
)
_SERVES = re.compile(
    r"(Server|Scheduler|Worker|Daemon|Node|Broker|Service|Agent|Master|Supervisor|Arbiter|Extension|Cluster|Listener|"
    r"Monitor|Stealing|Manager|Handler)s?$"
)


_PROCESSES = frozenset({"worker", "workers", "scheduler", "server", "broker", "daemon", "master", "supervisor", "node"})


def at_start(name: str, seen: Observation) -> bool:
    """Whether a key is read when a server, worker or the like is made: a new value needs a new process.

    Its section says so, or the constructor that reads it.
    """
    if _PROCESSES & set(name.lower().split(".")[:-1]):
        return True
    owner, _, last = seen.function.rpartition(".")
    return last in _STARTS and bool(_SERVES.search(owner.rpartition(".")[2]))


def made_or_unseen(seen: Sequence[Observation]) -> bool:
    """Whether a key is read by a constructor or a set-up only, or its reads are not seen at all."""
    reads = [o for o in seen if o.when is not When.UNKNOWN and o.kind is not Kind.ENV_WRITE and o.role in _RUNS]
    return all(o.function.rpartition(".")[2] in _STARTS for o in reads)


def precedence(name: str, chain: Sequence[str], seen: Observation, is_key: bool) -> str:
    """What wins over what."""
    if len(chain) > 1 and name in chain:
        return "the first that is set of " + ", ".join(chain)
    if is_key and seen.name != name:
        return f"a value set in code over {seen.name} over the configuration file over the default"
    return ""


def importance(name: str, kind: str, resource_name: str, rank: float, *, documented: bool) -> float:
    """How much it matters for tuning, 0..1."""
    found = _BASE.get(resource_name, 0.45) * _KIND[kind] * (0.5 + 0.5 * rank)
    if lexicon.counts(name):
        found *= 1.1
    elif not lexicon.headed(name):
        found *= 0.75
    if kind == "param" and re.search(r"\.[A-Z]\w*\.\w+\(", name):
        found *= 0.93  # a method's: a constructor or a function is the better place
    if documented:
        found *= 1.05
    return round(min(found, 1.0), 4)
