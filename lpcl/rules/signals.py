"""Rules about signals: that they can be read, only read, and show what they say."""

from __future__ import annotations

import re

from lpcl import model as m
from lpcl.rules.base import NAME, Finding, Found
from lpcl.rules.view import View

_NO_SIGNAL = re.compile(r"/(\.\.|root|cwd|exe|fd|fdinfo|map_files|mem|environ)(/|$)")
# A signal is called inside the application: only what reads as a question, never what acts.
_ACTS = re.compile(
    r"(^|_)(set|reset|clear|del|delete|remove|free|exec|eval|system|popen|spawn|fork|run|call|exit|abort|kill|raise|"
    r"shutdown|close|init|initiali[sz]e|start|stop|write|save|load|import|open|dump|register|enable|disable|create|"
    r"destroy|update|send|connect|download|install)(_|$)",
    re.IGNORECASE,
)
# What a unit measures: memory, time, a number of things, a share.
UNITS: dict[str, str] = {
    **dict.fromkeys(("bytes", "kilobytes", "megabytes", "gigabytes", "kibibytes", "mebibytes", "gibibytes"), "memory"),
    **dict.fromkeys(("pages", "blocks"), "memory"),
    **dict.fromkeys(("seconds", "milliseconds", "microseconds", "nanoseconds", "cycles", "ticks"), "time"),
    **dict.fromkeys(("threads", "processes", "workers", "cpus", "cores", "devices", "files", "streams"), "things"),
    **dict.fromkeys(("tasks", "jobs", "requests", "calls", "items", "batches", "connections", "count"), "things"),
    **dict.fromkeys(("percent", "ratio"), "share"),
}
_MEASURES = {
    "cpu.threads": {"things"},
    "cpu.processes": {"things"},
    "io.threads": {"things"},
    "gpu.devices": {"things"},
    "files": {"things"},
    "memory.bytes": {"memory", "share"},
    "gpu.memory": {"memory", "share"},
}


def unreadable(v: View) -> Found:
    """A signal that cannot be read."""
    for s in v.contract.signals:
        if s.read is None:
            help_text = "add `read call pkg.f()`, `read attribute`, `read native` or `read file`"
            yield Finding(f"`signal {s.name}` does not say how it is read", s.span, help_text)


def observes_nothing(v: View) -> Found:
    """A signal that observes nothing."""
    for s in v.contract.signals:
        if s.read is not None and not s.observes:
            yield Finding(f"`signal {s.name}` observes nothing", s.span, "add `observes DEMAND.amount`")


def symbol_of_nothing(v: View) -> Found:
    """A native symbol, and no library to look it up in."""
    for s in v.contract.signals:
        if s.read is not None and s.read.kind == "native" and not v.contract.natives:
            help_text = 'add `native "libNAME*.so*"` to the contract: symbols are looked up there only'
            yield Finding(f"`signal {s.name}` reads a symbol of no library", s.span, help_text)


def forbidden_file(v: View) -> Found:
    """A file that no signal may read."""
    for s in v.contract.signals:
        if s.read is not None and s.read.kind == "file":
            path = "".join(s.read.target[:1])
            if not path.startswith(("/proc/", "/sys/")) or _NO_SIGNAL.search(path):
                yield Finding(f"`{path}` is not under /proc or /sys", s.read.span)


def _undotted(v: View, kind: str) -> list[tuple[str, m.Read]]:
    reads = [s.read for s in v.contract.signals if s.read is not None and s.read.kind == kind]
    return [(t, r) for r in reads for t in r.target[:1] if "." not in t]


def undotted_call(v: View) -> Found:
    """A signal of a package that calls a name without a module."""
    if v.contract.packages:
        for name, read in _undotted(v, "call"):
            yield Finding(f"`{name}` is no dotted name", read.span, "write `package.function`")


def undotted_attribute(v: View) -> Found:
    """An attribute without a module."""
    for name, read in _undotted(v, "attribute"):
        yield Finding(f"`{name}` is an attribute of no module", read.span, "write `package.NAME`")


def _acting(v: View, kind: str) -> list[tuple[str, m.Read]]:
    reads = [s.read for s in v.contract.signals if s.read is not None and s.read.kind == kind]
    return [(t, r) for r in reads for t in r.target if _acts(t)]


def _acts(name: str) -> bool:
    return bool(_ACTS.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.rsplit(".", 1)[-1])))


def acting_call(v: View) -> Found:
    """A signal that would act."""
    for name, read in _acting(v, "call"):
        help_text = "a signal may only read: name a function that reports"
        yield Finding(f"`{name}` does not read as a question", read.span, help_text)


def acting_symbol(v: View) -> Found:
    """A native symbol that would act, or none at all."""
    for s in v.contract.signals:
        if s.read is not None and s.read.kind == "native":
            for name in s.read.target:
                if _acts(name) or not NAME.match(name):
                    help_text = "a signal may only read: name a function that reports"
                    yield Finding(f"`{name}` does not read as a question", s.read.span, help_text)


def unit(v: View) -> Found:
    """A unit that nobody knows."""
    for s in v.contract.signals:
        if s.unit is not None and s.unit not in UNITS:
            yield Finding(f"`{s.unit}` is no unit", s.span, v.near(s.unit, UNITS, f"one of {', '.join(UNITS)}"))


def unit_of_something_else(v: View) -> Found:
    """A unit that the observed amount is not measured in."""
    for s in v.contract.signals:
        measured = UNITS.get(s.unit or "")
        for ref in s.observes if measured and s.kind == "gauge" else ():
            demand = v.demands.get(ref.parts[0])
            if demand is None or ref.parts[1:] != ("amount",):
                continue
            resource = demand.resource.name
            if measured not in _MEASURES.get(resource, {measured}):
                yield Finding(f"`{ref.name}` of {resource} is not measured in {s.unit}", s.span)


def kind(v: View) -> Found:
    """A kind of signal that does not fit what it observes."""
    for s in v.contract.signals:
        for ref in s.observes:
            demand = v.demands.get(ref.parts[0])
            if demand is None or len(ref.parts) != 2:
                continue
            if s.kind == "counter" and ref.parts[1] == "amount" and demand.resource.name in _MEASURES:
                yield Finding(f"`{ref.name}` is a level, and no counter", s.span, "make it a `gauge`")
            elif s.kind == "gauge" and ref.parts[1] == "idle" and UNITS.get(s.unit or "") != "time":
                help_text = "make it a `state`, or say in which unit of time it tells how long they stay awake"
                yield Finding(f"`{ref.name}` is a mode, and no gauge", s.span, help_text)
