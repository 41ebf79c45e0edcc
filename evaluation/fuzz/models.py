"""Random values of the model, each of which the grammar can write."""

# ruff: noqa: D102, D107  # the methods of `Models` are named for what they make

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from lpcl import model as m

T = TypeVar("T")
Rng = random.Random

_NAMES = ("a", "b", "threads", "x_1", "_", "Zz", "and", "then", "else", "step", "log", "fork", "note", "env", "s", "if",
          "call", "int", "per", "machine", "workers", "cpu", "in", "to", "amount", "e1")  # fmt: skip
_RESERVED = frozenset({"if", "not", "true", "false", "unknown"})
_STRINGS = (
    "",
    "A",
    "OMP_NUM_THREADS",
    '"',
    "\\",
    "\n\t",
    "// no",
    "\\n",
    "\r",
    "}",
    "é",
    ">=1, <2",
    "lib*.so",
)
_UNITS = ("", "", "", "ns", "us", "ms", "s", "min", "h", "B", "KB", "GB", "KiB", "MiB", "TiB", "cycles", "%")
_BINARY = ("+", "-", "*", "/", "and", "or", "==", "!=", "<", "<=", ">", ">=")
_WORDS = {
    "binding": ("build", "process_start", "load", "import", "first_use", "session", "call", "unknown"),
    "scope": ("process", "thread", "children", "object", "session", "call", "machine", "unknown"),
    "idle": ("block", "spin_then_block", "spin", "yield", "unknown"),
    "work": ("compute", "bandwidth", "latency", "io", "mixed", "unknown"),
    "runs": ("native", "user_code", "unknown"),
    "fork": ("safe", "unsafe", "recreated", "unknown"),
    "per": ("session", "function", "object", "service", "call", "device"),
    "event": ("fork", "nesting", "threads"),
    "consequence": ("hang", "crash", "wrong_result", "slow"),
    "combine": ("first_set", "min", "max"),
    "switch": ("live", "session", "process"),
    "scale": ("linear", "log"),
    "type": ("int", "float", "bool", "text", "size", "duration"),
    "kind": ("gauge", "counter", "state"),
    "target": ("process", "children"),
    "lasts": ("process", "context", "call"),
    "malformed": ("ignored", "fails", "prefix", "default", "unknown"),
    "outcome": ("ignored", "fails"),
    "heir": ("threads", "fork", "children", "none"),
}


class Models:
    """Random values of the model, each of which the grammar can write."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng

    def maybe(self, make: Callable[[], T], share: float = 0.3) -> T | None:
        return make() if self.rng.random() < share else None

    def some(self, make: Callable[[], T], least: int = 0, most: int = 3) -> tuple[T, ...]:
        return tuple(make() for _ in range(max(least, min(most, int(self.rng.expovariate(0.9))))))

    def word(self, kind: str) -> str:
        return self.rng.choice(_WORDS[kind])

    def name(self) -> str:
        return self.rng.choice(_NAMES)

    def text(self) -> str:
        if self.rng.random() < 0.8:
            return self.rng.choice(_STRINGS)
        return "".join(chr(self.rng.choice((self.rng.randrange(128), self.rng.randrange(0xD800)))) for _ in range(5))

    def ref(self) -> m.Ref:
        return m.Ref(self.some(self.name, 1))

    def dotted(self) -> str:
        return self.ref().name

    def number(self) -> m.Number:
        r = self.rng
        value: float | int = r.choice(
            (0, 1, r.randrange(100), r.randrange(10**30), r.random(), 10 ** r.uniform(-300, 300))
        )
        return m.Number(value, r.choice(_UNITS))

    def expression(self, depth: int | None = None) -> m.Expr:
        depth = self.rng.choice((1, 1, 2, 3)) if depth is None else depth
        r, below = self.rng, depth - 1
        kind = r.randrange(10 if depth else 5)
        if kind == 0:
            return self.number()
        if kind == 1:
            return m.Text(self.text())
        if kind == 2:
            return r.choice((m.Truth(value=True), m.Truth(value=False), m.Unknown()))
        if kind <= 4:
            ref = self.ref()
            return m.Ref(("x", *ref.parts)) if ref.parts[0] in _RESERVED else ref
        if kind == 5:
            return m.Operation(r.choice(("neg", "not")), (self.expression(below),))
        if kind == 6:
            return m.Conditional(*(self.expression(below) for _ in range(3)))
        if kind == 7:
            function = r.choice(("min", "max", "floor", "pow", "clamp", "first", "is_set", "and", "note", "installed"))
            return m.Apply(function, self.some(lambda: self.expression(below)))
        return m.Operation(r.choice(_BINARY), (self.expression(below), self.expression(below)))

    def small(self) -> m.Expr:
        return self.expression(1)

    def type(self, depth: int = 2) -> m.Type:
        kind = self.rng.randrange(9)
        if kind == 0:
            return m.Type("choice", self.some(self.text, 1))
        if kind == 1:
            return m.Type("placement", resource=self.ref())
        if kind == 2 and depth:
            return m.Type("list", (), self.type(depth - 1))
        if kind == 3 and depth:
            return m.Type("sequence", (), self.type(depth - 1), self.rng.randrange(5), self.rng.randrange(10**9))
        if kind == 4 and depth:
            return m.Type("map", (), self.type(depth - 1))
        return m.Type(self.word("type"))

    def common(self) -> dict[str, Any]:
        condition = self.maybe(self.expression, 0.2)
        return {"condition": condition, "notes": self.some(self.text, 0, 2), "evidence": self.some(self.name)}

    def way(self) -> m.Way:
        kind = self.rng.choice(("env", "config", "call", "param"))
        name = self.text() if kind in {"env", "config"} else self.dotted()
        parameters = {"call": self.some(self.name), "param": (self.name(),)}.get(kind, ())
        tail = (self.maybe(self.small), self.maybe(self.text), self.maybe(self.text), self.maybe(self.small))
        lasts = self.maybe(lambda: self.word("lasts"))
        return m.Way(kind, name, self.word("binding"), parameters, *tail, lasts)

    def read(self) -> m.Read:
        kind = self.rng.choice(("call", "attribute", "native", "file", "log"))
        if kind in {"call", "attribute"}:
            return m.Read(kind, (self.dotted(),))
        if kind == "native":
            return m.Read("native", self.some(self.text, 1))
        return m.Read(kind, (self.text(),), self.maybe(self.text) if kind == "file" else None)

    def range(self) -> m.Range:
        return m.Range(self.small(), self.small(), self.maybe(self.small), self.maybe(lambda: self.word("scale")))

    def optional(self, *kinds: str) -> dict[str, Any]:
        return {k: self.maybe(lambda k=k: self.word(k)) for k in kinds}

    def demand(self) -> m.Demand:
        def idle() -> m.Idle:
            return m.Idle(self.word("idle"), self.maybe(self.small), self.maybe(self.expression))

        return m.Demand(
            self.name(),
            m.Ref(("cpu", "threads")) if self.rng.random() < 0.5 else self.ref(),
            amount=self.maybe(self.expression),
            created=self.maybe(lambda: self.word("binding")),
            idle=self.some(idle),
            runtime=self.maybe(self.name),
            inside=self.some(self.ref, 0, 2),
            pinned=self.maybe(self.expression),
            **self.optional("scope", "work", "runs", "fork"),
            **self.common(),
        )

    def assumption(self) -> m.Assumption:
        def forbids() -> m.Forbids:
            return m.Forbids(self.word("event"), self.maybe(self.ref), self.maybe(self.expression))

        return m.Assumption(
            self.name(),
            sizes=self.some(lambda: m.Sizes(self.ref(), self.some(self.ref, 1))),
            ignores=self.some(self.ref),
            requires=self.some(self.expression),
            forbids=self.some(forbids),
            remedies=self.some(self.text),
            **self.optional("consequence"),
            **self.common(),
        )

    def special(self) -> m.Special:
        if self.rng.random() < 0.4:
            return m.Special(self.small(), None, self.word("outcome"))
        return m.Special(self.small(), self.small())

    def control(self) -> m.Control:
        return m.Control(
            self.name(),
            self.type(),
            range=self.maybe(self.range),
            default=self.maybe(self.expression),
            ways=self.some(self.way),
            effective=self.maybe(self.expression),
            specials=self.some(self.special),
            levels=self.maybe(self.text),
            inherited=self.some(lambda: self.word("heir"), 0, 2),
            effect=self.maybe(lambda: self.word("scope")),
            bounds=self.some(self.ref),
            affects=self.some(self.ref),
            requires=self.some(self.expression),
            **self.optional("malformed", "combine", "per", "switch"),
            **self.common(),
        )

    def signal(self) -> m.Signal:
        return m.Signal(
            self.name(),
            self.word("kind"),
            read=self.maybe(self.read),
            observes=self.some(self.ref),
            unit=self.maybe(self.name),
            valid_after=self.maybe(lambda: self.word("binding")),
            unreliable=self.maybe(self.text),
            **self.common(),
        )

    def mitigation(self) -> m.Mitigation:
        target = self.maybe(lambda: self.word("target"), 0.6)
        return m.Mitigation(
            self.name(),
            env=self.some(self.text),
            limits=self.some(self.ref),
            value=self.maybe(self.expression),
            target=target,
            pool=self.maybe(self.ref) if target else None,
            unless_set=self.rng.random() < 0.5,
            **self.optional("lasts"),
            **self.common(),
        )

    def contract(self) -> m.Contract:
        def clause() -> m.Clause:
            make = (self.demand, self.assumption, self.control, self.signal, self.mitigation)
            return self.rng.choice(make)()

        return m.Contract(
            self.name(),
            packages=self.some(lambda: m.Package(self.text(), self.maybe(self.text))),
            natives=self.some(lambda: m.Native(self.some(self.text, 1))),
            summary=self.maybe(self.text),
            uses=self.some(self.name),
            carries=self.some(lambda: m.Carried(self.name(), self.maybe(self.text)), 0, 2),
            clauses=self.some(clause, 0, 2),
        )

    def file(self) -> m.File:
        return m.File(1, self.some(self.contract, 1, 2 if self.rng.random() < 0.1 else 1))
