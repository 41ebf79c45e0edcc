"""Whether a public callable or a parameter is a control: by its name, its owner, and how public it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth import lexicon
from synth.classify import Verdict
from synth.records import Kind, Observation, Role
from synth.walk.words import about_pools, counting_parameter

# components of a module's name by which a package says that it is not for others
_INNER = frozenset(
    {
        "core",
        "utils",
        "util",
        "internal",
        "internals",
        "impl",
        "compat",
        "helpers",
        "common",
        "testing",
        "tests",
        "dev",
        "tools",
        "scripts",
        "cli",
        "externals",
        "vendor",
        "vendored",
        "contrib",
        "integrations",
        "packaged_modules",
        "diagnostics",
        "plotting",
        "plot",
        "debug",
        "profiling",
        "versions",
    }
)
_GENERAL = re.compile(
    r"^(set_(config|options?|flags?|defaults?|settings?)|(config|options?|settings?)_context|(config|options?|settings)"
    r"(\.(set|update|configure))?|configure|set)$"
)
_COUNT = (
    r"n?_?threads?|nthreads?|n?_?workers?|n?_?jobs|n?_?procs?|processes|n?_?cpus?|n?_?cores?|parallelism|concurrency|"
    r"max_workers|affinity|numa"
)
_SETS_COUNT = re.compile(
    rf"^(set|limit|use|configure|resize|reserve|override)_(\w+_)?({_COUNT})"
    rf"(_(count|limits?|max|min|size|affinity|bind\w*|override|per_\w+|for_\w+|pool_size))*$|"
    rf"^({_COUNT}|threadpool|\w*threads?)_(limits?|config|context|scope)$"
)
_SETS_MEMORY = re.compile(
    r"^(set|limit|reserve|resize|reduce|shrink|trim|configure)_(\w+_)?(memory|mem|cache|buffer|heap|arena|alloc\w*|pool|"
    r"bytes|nbytes|spill\w*)(_(size|limit|fraction|bytes|capacity|budget|growth|pool|strategy|usage|mode|allocator))?$|"
    r"^(set|change|configure)_(\w+_)?allocator\w*$"
)
_FREES = re.compile(
    r"^(clear|empty|reset|flush|release|free|trim|reduce|drop|purge)_(\w+_)?(cache\w*|memory|pool|size|controller|arena|threads?|thread)$"
)
_SETS_UNIT = re.compile(
    r"^(set|configure)_(\w+_)?((chunk|batch|block|buffer|page|window|tile|morsel|queue|row_group)_?size|prefetch\w*|"
    r"backlog|chunk\w*|stream_depth)$"
)
_CHOOSES = re.compile(
    r"^(set|use|switch|choose|enable|disable|register)_(\w+_)?(backends?|engine|scheduler|executor|threading_layer|"
    r"start_method|execution|dispatch|parallel\w*|threading|multiprocessing|jit|device|devices|streams?|nogil|prefetch\w*|"
    r"cache|caching|memory_\w+|tf32|cudnn|mkldnn|onednn|simd|vectori[sz]ation|optimi[sz]ations?|fast\w*|"
    r"(memory_)?efficient\w*|compilation|autotune\w*|accuracy\w*|precision)(_\w+)?$"
)
_NOT_CHOICES = re.compile(
    r"(^|_)(lr_scheduler|rng|seed|hook|callback|logger|log|warnings?|style|theme|flags|progress)(_|$)"
)
_OWNER = re.compile(
    r"(pools?|executors?|cluster|limits?|limiter|controller|workers|scheduler|cache|queue|buffer|memory)$"
)
_OWNED = frozenset({"limit", "wrap", "resize", "scale", "adapt", "reduce_size", "set_limit", "set_size", "shrink"})
_QUANTITY = re.compile(
    r"size|limit|bytes|capacity|max|min|n_|num|count|enabled?|fraction|mode|value|kind|level|timeout|policy|name"
)
# plural nouns that name a selection as often as a number
_WHICH = frozenset({"workers", "threads", "processes", "cores", "cpus", "gpus", "devices", "nodes"})
_OUTDATED = re.compile(r"^_?(old|legacy|deprecated|obsolete)(_|$)|_(old|legacy|deprecated|obsolete)$")
_STATE = re.compile(r"(State|Info|Dict|Artefact|Event|Message|Result|Record|Metadata|Stats|Report|Summary|Snapshot)$")
_REPORTS = re.compile(
    r"^(validate|assert|check|wait_for|parse|error|format|is|has|describe|show|explain|visuali[sz]e|plot|log|print|report|"
    r"debug|profile)(_|$)|^get_\w*(logs|info|profile|ncores|cores|what|processing|state|metadata|config|status|name|version)|"
    r"_(info|logs|state|status|message|metadata)$|^(identity|info|status|repr)$"
)
_OBJECTS = frozenset({"scheduler", "pool"})
_PARAMETER_NEEDS_OWNER = frozenset({"limit", "limits"})


def callable_(name: str, seen: Sequence[Observation], *, documented: bool) -> tuple[Verdict, str]:
    """Verdict and reason for a public callable or a parameter."""
    first = seen[0]
    if first.kind is Kind.API_GET:
        return "signal", first.detail
    native = "." not in name and first.language not in ("python", "cython", "rust")
    if native and (first.role is Role.VENDORED or "exported function of a binary" in first.detail):
        return "not_control", "a native function of carried code, which an application in Python cannot call"
    if first.kind is Kind.PARAM:
        return _parameter(name, first, documented=documented)
    return _setter(name, first, documented=documented)


def inner(name: str) -> bool:
    """Whether a dotted name goes through a part of the package that is not made for others."""
    parts = name.partition("(")[0].split(".")[1:-1]
    modules = [part for part in parts if not part[:1].isupper()]
    return len(modules) >= 3 or any(part in _INNER for part in modules)


def _parameter(name: str, seen: Observation, *, documented: bool) -> tuple[Verdict, str]:
    owner, _, parameter = name.rstrip("=)").rpartition("(")
    last = owner.rpartition(".")[2]
    if parameter in _PARAMETER_NEEDS_OWNER and not about_pools(".".join(owner.split(".")[-2:])):
        return "not_control", "a limit of something else than threads or workers"
    if parameter in _OBJECTS and seen.value in (None, "None") and "kwargs" not in seen.detail:
        return "not_control", "an object that is handed in; its name says no more"
    if last.startswith("_") or any(part.startswith("_") for part in owner.split(".")):
        return "not_control", "a parameter of a private callable"
    if inner(owner) and not documented and not seen.offered:
        return (
            "not_control",
            "a parameter of an inner callable that the package does not offer and its documentation does not name",
        )
    if any(_OUTDATED.search(part) for part in owner.split(".")[1:-1]):
        return "not_control", "a parameter of an outdated module, by its name"
    if _STATE.search(last) or (_REPORTS.match(last) and not last[:1].isupper()):
        return "not_control", f"{last} holds or reports a state; it sets nothing"
    if parameter in _WHICH and not last[:1].isupper() and not _amount(seen):
        return "not_control", f"which {parameter}, not how many"
    if "option of the package's configuration" in seen.detail:
        return _option(parameter, seen)
    if last in _OWNED and not counting_parameter(parameter):
        return "not_control", f"a detail of {last}(), which is the control"
    return "control", seen.detail or f"its name says that it sizes or chooses: {parameter}"


def _option(parameter: str, seen: Observation) -> tuple[Verdict, str]:
    """A parameter of what sets any option of the package: listed in the signature, or only in the table of options."""
    if lexicon.shown(parameter):
        return "not_control", "an option of the package that changes what is shown"
    reading = lexicon.read(parameter, key=True)
    switch = parameter.startswith(("use_", "enable_", "disable_")) and seen.value in ("True", "False")
    if "default in" in seen.detail and (reading.against or not (reading.resource or reading.engine or switch)):
        return "not_control", reading.against or "an option of the package; its name speaks of no resource"
    return "control", seen.detail


def _amount(seen: Observation) -> bool:
    """Whether a parameter is a number by its default or by where it goes."""
    given = re.search(r"given to (\w+)\((\w*)", seen.detail)
    sized = given is not None and (
        bool(re.search(r"(Pool|Executor)$|^set_", given[1])) or given[2] not in ("", *_WHICH)
    )
    return lexicon.quantity(seen.value or "") or sized or "docstring" in seen.detail


def _setter(name: str, seen: Observation, *, documented: bool) -> tuple[Verdict, str]:
    path = name.split(".")
    last, owner = path[-1], path[-2] if len(path) > 1 else ""
    given = re.search(r"\(([^()]*)", seen.detail) or re.search(r"\bfn \w+\(([^()]*)", seen.text)
    parameters = given[1] if given is not None else ""
    if "imported function" in seen.detail:
        return "not_control", "a function of another library that it calls"
    strong = _strength(last, owner, parameters, seen)
    if last.startswith("_") and not seen.file.endswith(".pyi") and seen.language != "rust":
        return "not_control", "private by its name"
    if not strong:
        return "not_control", "its name sets something, but no size, limit or choice of an engine"
    if inner(name) and strong != "count" and not documented and not seen.offered:
        return "not_control", "an inner callable that the package does not offer and its documentation does not name"
    return "control", f"{seen.detail}" if seen.detail else "by its name"


def _strength(last: str, owner: str, parameters: str, seen: Observation) -> str:
    """What makes a callable a setter of resources; empty if nothing does."""
    words = lexicon.upper(last).lower()
    if not owner:  # a native function carries its library's name in front
        words = re.sub(r"^\w+?_(?=(set|limit|enable|disable|clear|empty)_)", "", words)
    if _NOT_CHOICES.search(words) or _STATE.search(owner) or lexicon.shown(last):
        return ""
    if seen.detail.startswith("a faster form of"):
        return "choice"
    if _SETS_COUNT.match(words):
        return "count"
    if _SETS_MEMORY.match(words) or _SETS_UNIT.match(words):
        cache_of_data = bool(re.search(r"_(cache|buffer|pool|heap|arena)$", words)) and not _QUANTITY.search(parameters)
        return "" if cache_of_data else "memory"
    if _FREES.match(words):
        return "free"
    if _CHOOSES.match(words):
        return "choice"
    module_level = not owner[:1].isupper()
    if _GENERAL.match(last) and module_level and last != "set_flags":
        return "general"
    if "context manager" in seen.detail or "public instance" in seen.detail or "settable" in seen.detail:
        limits = re.search(
            r"threads?|workers?|jobs|parallel|pool_?limits|concurren|cpu|affinity|backend|executor|scheduler", words
        )
        if limits or (re.search(r"(config|options?|settings|limits?)(_|$)", words) and module_level):
            return "context"
    if (last in _OWNED or "limit" in words) and _OWNER.search(lexicon.upper(owner).lower()):
        return "owner"
    return ""


def standing(seen: Observation) -> str:
    """What a setter sets where it is called without arguments: its first parameter's default that says something."""
    given = re.search(r"\((.*)\)", seen.detail)
    for text in re.findall(
        r"(\w+)=([\w.+-]+|'[^']*'|\"[^\"]*\")(?=[,)]|$)", (given[1] if given is not None else "") + ","
    ):
        if text[1] not in ("None", "False", "True") and counting_parameter(text[0]):
            return f"{text[0]}={text[1]}"
    return "-"
