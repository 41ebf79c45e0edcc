"""Look for texts on which the language breaks: damaged ones, random models, and bombs.

For every text: `parse`, `check` and `format` return and never raise; they end in time; every span lies inside the
text; the canonical form reads back to an equal file and is its own canonical form. Each case runs in a child
process under a watchdog, so that a hang or a crash is a finding too. A finding is cut down, written to a file, and
can be replayed:

  python evaluation/fuzz.py --cases 20000 --seed 7
  python evaluation/fuzz.py --minutes 30
  python evaluation/fuzz.py --replay out/fuzz/parse-IndexError-7-1234.lpcl
"""

# ruff: noqa: D102, D107  # the methods of `Models` are named for what they make

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from lpcl import cli  # noqa: E402  # the checkout's, wherever this is started from
from lpcl import model as m  # noqa: E402
from lpcl.check import check  # noqa: E402
from lpcl.diagnostics import Diagnostic, LpcError, render, render_json  # noqa: E402
from lpcl.format import file_text, format_text  # noqa: E402
from lpcl.parse import MAX_BYTES, Parsed, parse, parser  # noqa: E402

T = TypeVar("T")
Rng = random.Random
BATCH = 20
MEMORY = 4 << 30
# CPU seconds that a text may take, all checks together: a part for any text, and a part for each MB. Formatting
# proves itself, so that a text is parsed about ten times here; one token a character is the slowest (20 s a parse).
BASE_S, PER_MB_S = 5.0, 90.0
MAX_MESSAGE = 400

# ------------------------------------------------------------------ what must hold


@dataclass(frozen=True)
class Problem:
    """What went wrong: `kind` names the same bug for different texts, `detail` is for reading."""

    kind: str
    detail: str


def _raised(what: str, error: BaseException) -> Problem:
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((f.name for f in reversed(frames) if f"{os.sep}lpcl{os.sep}" in f.filename), "?")
    tail = "".join(traceback.format_exception(error)[-4:])
    # Our own errors have fixed messages, one a bug.
    name = f"{error}".replace(" ", "_")[:50] if isinstance(error, LpcError) else inner
    return Problem(f"{what}-{type(error).__name__}-{name}", tail[-1500:])


def _offset(starts: list[int], line: int, column: int) -> int:
    return starts[line - 1] + column - 1


def _bad_span(s: m.Span, starts: list[int], size: int) -> str:
    """Why a span is not one of a text whose lines start there, or `""`."""
    lines = len(starts)
    ends = [*starts[1:], size + 1]
    if not 1 <= s.line <= s.end_line <= lines:
        return "line"
    # The caret of "ends too early" stands one behind the last character.
    if not 1 <= s.column <= ends[s.line - 1] - starts[s.line - 1]:
        return "column"
    if not 1 <= s.end_column <= ends[s.end_line - 1] - starts[s.end_line - 1] + 1:
        return "end column"
    if (s.line, s.column) > (s.end_line, s.end_column):
        return "order"
    if not 0 <= s.start <= s.end <= size + 1:
        return "offset"
    if s.end and _offset(starts, s.line, s.column) != s.start:
        return "start offset"
    return ""


def _spans(node: object) -> Iterator[m.Span]:
    if isinstance(node, tuple):
        for part in node:
            yield from _spans(part)
    elif isinstance(node, m.Clause):
        yield node.span
        yield from (e.span for e in m.walk_expressions(node))


def _diagnostics(what: str, found: tuple[Diagnostic, ...], text: str, starts: list[int]) -> Iterator[Problem]:
    for d in found[:200]:
        why = _bad_span(d.span, starts, len(text))
        if why:
            yield Problem(f"{what}-span-{d.rule}-{why}", f"{d.span} of {d.rule} is outside the text")
        if what == "parse" and (len(d.message) > MAX_MESSAGE or len(d.help) > 2 * MAX_MESSAGE):
            yield Problem(f"{what}-length-{d.rule}", f"message of {len(d.message)} characters, help of {len(d.help)}")
    for d in found[:20]:
        render(d, text)
    render_json(found[:20])


def _parse(text: str, starts: list[int], found: list[Problem]) -> Parsed:
    parsed = parse(text)
    errors = [d for d in parsed.diagnostics if d.severity == "error"]
    if parsed.ok == bool(errors):
        found.append(Problem("parse-ok", f"ok is {parsed.ok} with {len(errors)} errors"))
    if len(parsed.diagnostics) > 20 * MAX_MESSAGE and not parsed.ok and "LP005" not in {d.rule for d in errors}:
        found.append(Problem("parse-many", f"{len(parsed.diagnostics)} diagnostics"))
    found += _diagnostics("parse", parsed.diagnostics, text, starts)
    if parsed.file is None:
        return parsed
    for span in _spans(tuple(c.clauses for c in parsed.file.contracts)):
        why = _bad_span(span, starts, len(text))
        if why:
            found.append(Problem(f"model-span-{why}{'' if parsed.ok else '-damaged'}", f"{span} of a clause"))
            break
    for span, comment in parsed.file.comments[:200]:
        if text[span.start : span.end] != comment or _bad_span(span, starts, len(text)):
            found.append(Problem("comment-span", f"{span} of {comment[:60]!r}"))
    return parsed


def _format(text: str, parsed: Parsed, found: list[Problem]) -> None:
    result, diagnostics = format_text(text)
    if (result is not None) != parsed.ok or diagnostics != parsed.diagnostics:
        found.append(Problem("format-parse", "format and parse do not agree on whether the text is right"))
    if result is None:
        return
    if parse(result).file != parsed.file:
        found.append(Problem("format-equal", "the canonical text reads as another file"))
    # The formatter has proved this for itself; for large texts once is enough.
    if len(result) < 50_000 and format_text(result)[0] != result:
        found.append(Problem("format-idempotent", "formatting the canonical text changes it"))


def _command_line(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        path = Path(folder, "x.lpcl")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        for arguments in (["check"], ["check", "--json"], ["fmt", "--check"]):
            code = cli.main([*arguments, str(path)])
            if code not in {0, 1, 2}:
                raise AssertionError(f"exit code {code} of {arguments}")


def examine(text: str) -> list[Problem]:
    """Everything that must hold of any text."""
    found: list[Problem] = []
    starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
    began = time.process_time()
    what = "parse"
    try:
        parsed = _parse(text, starts, found)
        what = "check"
        if parsed.file is not None:
            found += _diagnostics("check", check(parsed.file, name="x.lpcl"), text, starts)
        what = "format"
        _format(text, parsed, found)
        what = "cli"
        if len(text) % 16 == 0 and len(text) < 5000:  # some texts are enough: the layer is thin
            _command_line(text)
    except Exception as error:  # noqa: BLE001  # any exception is what this looks for
        found.append(_raised(what, error))
    seconds = time.process_time() - began
    if seconds > allowed(len(text)):
        found.append(Problem("slow", f"{seconds:.1f} s of CPU time for {len(text)} characters"))
    return found


def allowed(size: int) -> float:
    """CPU seconds that a text of this many characters may take."""
    return BASE_S + PER_MB_S * size / 1e6


# ------------------------------------------------------------------ random models

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
    "\ud800",
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
}


class Models:
    """Random values of the model, each of which the grammar can write."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng

    def maybe(self, make: Callable[[], T], share: float = 0.4) -> T | None:
        return make() if self.rng.random() < share else None

    def some(self, make: Callable[[], T], least: int = 0, most: int = 3) -> tuple[T, ...]:
        return tuple(make() for _ in range(self.rng.randint(least, most)))

    def word(self, kind: str) -> str:
        return self.rng.choice(_WORDS[kind])

    def name(self) -> str:
        return self.rng.choice(_NAMES)

    def text(self) -> str:
        if self.rng.random() < 0.8:
            return self.rng.choice(_STRINGS)
        return "".join(chr(self.rng.choice((self.rng.randrange(128), self.rng.randrange(0x11000)))) for _ in range(5))

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

    def expression(self, depth: int = 3) -> m.Expr:
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
            function = r.choice(("min", "max", "floor", "pow", "clamp", "first", "is_set", "and", "note"))
            return m.Apply(function, self.some(lambda: self.expression(below)))
        return m.Operation(r.choice(_BINARY), (self.expression(below), self.expression(below)))

    def small(self) -> m.Expr:
        return self.expression(1)

    def type(self, depth: int = 2) -> m.Type:
        kind = self.rng.randrange(8)
        if kind == 0:
            return m.Type("choice", self.some(self.text, 1))
        if kind == 1:
            return m.Type("placement", resource=self.ref())
        if kind == 2 and depth:
            return m.Type("list", (), self.type(depth - 1))
        if kind == 3 and depth:
            return m.Type("sequence", (), self.type(depth - 1), self.rng.randrange(5), self.rng.randrange(10**9))
        return m.Type(self.word("type"))

    def common(self) -> dict[str, Any]:
        condition = self.maybe(self.expression, 0.2)
        return {"condition": condition, "notes": self.some(self.text, 0, 2), "evidence": self.some(self.name)}

    def way(self) -> m.Way:
        kind = self.rng.choice(("env", "config", "call", "param"))
        name = self.text() if kind in {"env", "config"} else self.dotted()
        parameters = {"call": self.some(self.name), "param": (self.name(),)}.get(kind, ())
        tail = (self.maybe(self.small), self.maybe(self.text), self.maybe(self.text))
        return m.Way(kind, name, self.word("binding"), parameters, *tail)

    def read(self) -> m.Read:
        kind = self.rng.choice(("call", "native", "file", "log"))
        if kind == "call":
            return m.Read("call", (self.dotted(),))
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
            self.ref(),
            amount=self.maybe(self.expression),
            created=self.maybe(lambda: self.word("binding")),
            idle=self.some(idle),
            runtime=self.maybe(self.name),
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

    def control(self) -> m.Control:
        return m.Control(
            self.name(),
            self.type(),
            range=self.maybe(self.range),
            default=self.maybe(self.expression),
            ways=self.some(self.way),
            effective=self.maybe(self.expression),
            specials=self.some(lambda: m.Special(self.small(), self.small())),
            effect=self.maybe(lambda: self.word("scope")),
            bounds=self.some(self.ref),
            affects=self.some(self.ref),
            requires=self.some(self.expression),
            **self.optional("combine", "per", "switch"),
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
        return m.Mitigation(
            self.name(),
            env=self.some(self.text),
            limits=self.some(self.ref),
            value=self.maybe(self.expression),
            unless_set=self.rng.random() < 0.5,
            **self.optional("target"),
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
            clauses=self.some(clause),
        )

    def file(self) -> m.File:
        return m.File(1, self.some(self.contract, 1, 2))


# ------------------------------------------------------------------ bombs


def _inside(body: str) -> str:
    return f'lpcl 1\ncontract demo {{\n  package "demo"\n{body}\n}}\n'


def _default(text: str) -> str:
    return _inside(f'  control t: int {{ default {text} env "T" read load evidence e }}')


def _lines(line: str) -> Callable[[int], str]:
    """Many numbered lines in one contract, up to that many characters."""
    width = len(line) + 4

    def make(n: int) -> str:
        return _inside("".join(line.replace("#", str(i)).replace("@", str(i // 2)) + "\n" for i in range(n // width)))

    return make


# Each takes a number of characters, more or less, and gives a text of about that many.
BOMBS: dict[str, Callable[[int], str]] = {
    "minus": lambda n: _default("-" * n + "1"),
    "not": lambda n: _default("not " * (n // 4) + "true"),
    "sum": lambda n: _default("1+" * (n // 2) + "1"),
    "open sum": lambda n: _default("1+" * (n // 2)),
    "conditionals": lambda n: _default("if a then " * (n // 17) + "1" + " else 1" * (n // 17)),
    "conditions": lambda n: _default("if " * (n // 17) + "a" + " then 1 else 1" * (n // 17)),
    "calls": lambda n: _default("f(" * (n // 3) + ")" * (n // 3)),
    "wide call": lambda n: _default("min(" + "1," * (n // 2) + "1)"),
    "parentheses": lambda n: _default("(" * (n // 2) + "1" + ")" * (n // 2)),
    "parentheses open": lambda n: _default("(" * n),
    "parentheses closed": lambda n: _default("1" + ")" * n),
    "lists": lambda n: _inside("control t: " + "list(" * (n // 6) + "int" + ")" * (n // 6) + " {}"),
    "braces": lambda n: _inside("{" * (n // 2) + "}" * (n // 2)),
    "braces open": lambda n: "lpcl 1 contract a " + "{" * n,
    "braces closed": lambda n: "lpcl 1 contract a " + "}" * n,
    "string": lambda n: _default('"' + "a" * n + '"'),
    "string open": lambda n: _default('"' + "a" * n),
    "quotes": lambda n: _default('"' * n),
    "backslashes": lambda n: _default('"' + "\\" * n),
    "escaped quotes": lambda n: _default('"' + '\\"' * (n // 2)),
    "digits": lambda n: _default("9" * n),
    "digits with a unit": lambda n: _default("9" * n + "GiB"),
    "fraction": lambda n: _default("0." + "9" * n + "s"),
    "name": lambda n: _default("a" * n),
    "glued name": lambda n: _inside("control" + "a" * n + ": int { }"),
    "dots": lambda n: _default("a" + ".a" * (n // 2)),
    "slashes": lambda n: _inside("/" * n),
    "comments": lambda n: _inside("//\n" * (n // 3)),
    "spaces": lambda n: _inside(" \t\r\n" * (n // 4)),
    "words": lambda n: _inside("control " * (n // 8)),
    "contracts": lambda n: "lpcl 1" + "".join(f" contract a{i} {{}}" for i in range(n // 20)),
    "contracts of one name": lambda n: "lpcl 1" + " contract a {}" * (n // 14),
    "contracts open": lambda n: "lpcl 1" + " contract a {" * (n // 13),
    "version": lambda n: f"lpcl {'9' * n} contract a {{}}",
    "commented packages": _lines('// c#\n  package "a#"'),
    "bad clauses": _lines("  summary #"),
    "right and wrong": lambda n: _lines('  control c#: int { env "A#" read load evidence e }')(n) + "x",
    "wrong at the end": lambda n: _lines('  control c#: int { default # env "A#" read load }')(n).rstrip()[:-1] + "x }",
    "chain": _lines('  control c#: int { default c@ + 1 env "A#" read load evidence e }'),
    "one name twice": _lines('  control c: int { env "A#" read load evidence e }'),
    "dangling": _lines('  control c#: int { default nothing_#x env "A#" read load evidence e }'),
    "demands": _lines("  demand d#: cpu.threads { amount d@.amount evidence e }"),
    "notes": lambda n: _inside("  control t: int {" + ' note "x"' * (n // 9) + "}"),
    "ways": lambda n: _inside("  control t: int {" + "".join(f' env "A{i}" read load' for i in range(n // 22)) + "}"),
    "bounds": lambda n: _inside("  control t: int { bounds " + ", ".join(f"d{i}.idle" for i in range(n // 10)) + "}"),
    "choices": lambda n: _inside("  control t: choice(" + ", ".join(f'"c{i}"' for i in range(n // 8)) + ") {}"),
    "evidence": lambda n: _inside("  control t: int { evidence " + ", ".join(f"e{i}" for i in range(n // 8)) + "}"),
    "idle": lambda n: _inside("  demand d: cpu.threads {" + " idle spin" * (n // 10) + "}"),
    "natives": lambda n: _inside("  native " + ", ".join(f'"l{i}*"' for i in range(n // 8))),
    "properties twice": lambda n: _inside("  control t: int {" + " default 1" * (n // 10) + "}"),
    "stars": lambda n: _inside(f'  native "lib{"*?" * (n // 2)}.so"'),
    "proxy": lambda n: _inside(f'  control t: int {{ env "{"_PROXY" * (n // 6)}x" read load }}'),
    "acts": lambda n: _inside(f"  signal s: gauge {{ read call a.{'set_' * (n // 4)}() }}"),
    "powers": lambda n: _default("pow(9, " * min(20, n // 8) + "9" + ")" * min(20, n // 8)),
}  # fmt: skip

# ------------------------------------------------------------------ damaged texts

_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|\s+|\w+|.', re.DOTALL)
_CASE = re.compile(r"^\[case [^\]]*\]\n(.*?)^\[", re.DOTALL | re.MULTILINE)
_PIECES = (
    *'{}()":,.+-*/<>=!%\\\n\t \0\x0c;#\'',
    "//", "..", "/*", "*/", "lpcl", "lpcl 2", "contract", "control", "demand", "if ", "then ", "else ", "not ",
    "min(", "1", "4GiB", "0.5s", "evidence", "idle", "unknown", "value", "é", "\ud800", "\u2028", "\x85", "\r\n",
    "read", "\ufeff", "\u0301", "\uff11", "\u00a0", "99999999999999999999", "5min", "5mins", "1.", ".5", '"\\x"', '\\"',
)  # fmt: skip


def _sources() -> list[str]:
    corpus = [p.read_text("utf-8") for p in sorted((ROOT / "corpus").glob("*/contract.lpcl"))]
    cases: list[str] = []
    for path in sorted((ROOT / "tests" / "lpcl" / "cases").glob("*.txt")):
        cases += (c for c in _CASE.findall(path.read_text("utf-8")) if "lpcl" in c and len(c) < 5000)
    return [*corpus, *cases]


SOURCES = _sources()
VOCABULARY = sorted({t for s in SOURCES for t in _TOKENS.findall(s) if not t.isspace()} | set(_PIECES))


def _times(rng: Rng) -> int:
    return min(20, int(rng.expovariate(0.8)) + 1)


def by_tokens(rng: Rng) -> str:
    """A real text with tokens deleted, doubled, swapped, replaced, or runs of them moved."""
    words = _TOKENS.findall(rng.choice(SOURCES))
    for _ in range(_times(rng)):
        if len(words) < 2:
            break
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        how = rng.randrange(7)
        if how == 0:
            del words[i]
        elif how == 1:
            words.insert(i, words[j])
        elif how == 2:
            words[i], words[j] = words[j], words[i]
        elif how == 3:
            words[i] = rng.choice(VOCABULARY)
        elif how == 4:
            words.insert(i, rng.choice(VOCABULARY))
        elif how == 5:
            del words[i : i + rng.randrange(1, 12)]
        else:
            words[i:i] = words[j : j + rng.randrange(1, 30)]
    return "".join(words)


def by_bytes(rng: Rng) -> str:
    """A real text with bytes flipped, dropped, doubled or replaced; what is no UTF-8 is replaced as the reader does."""
    data = bytearray(rng.choice(SOURCES).encode())
    for _ in range(_times(rng)):
        i = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0:
            del data[i : i + rng.randrange(1, 40)]
        elif how == 1:
            data[i:i] = bytes([rng.randrange(256)])
        elif how == 2 and i < len(data):
            data[i] ^= 1 << rng.randrange(8)
        elif how == 3:
            data[i:i] = rng.choice(_PIECES).encode("utf-8", "surrogatepass")
        else:
            j = rng.randrange(len(data) + 1)
            data[i:i] = data[j : j + rng.randrange(1, 60)]
    errors = "surrogateescape" if rng.random() < 0.1 else "replace"
    return bytes(data).decode("utf-8", errors)


def by_words(rng: Rng) -> str:
    """Words of the language in any order, bare or where a clause or a value may stand."""
    soup = rng.choice(("", " ", " ", "\n")).join(rng.choices(VOCABULARY, k=rng.randrange(40)))
    return rng.choice((str, _inside, _default))(soup)


def by_splicing(rng: Rng) -> str:
    """The head of one text and the tail of another."""
    one, two = rng.choice(SOURCES), rng.choice(SOURCES)
    return one[: rng.randrange(len(one) + 1)] + two[rng.randrange(len(two) + 1) :]


def by_comments(rng: Rng) -> str:
    """A right text with comments between its tokens."""
    text = rng.choice(SOURCES)
    ends = [0, *(t.end() for t in _TOKENS.finditer(text))]
    for cut in sorted(rng.choices(ends, k=_times(rng)), reverse=True):
        comment = rng.choice(
            ("//c\n", " // c\n", "\n//c\n\n", '\n// "c\n// {\n', "\n\n//c // d \r\n", "///\n", "//}\n")
        )
        text = text[:cut] + comment + text[cut:]
    return text


@dataclass(frozen=True)
class Case:
    """One text; `model` is what it was printed from, if it was."""

    kind: str
    text: str
    model: m.File | None = None


_KINDS = ("tokens",) * 30 + ("bytes",) * 25 + ("words",) * 12 + ("splicing",) * 8 + ("comments",) * 8 + ("model",) * 16
DAMAGE = {"tokens": by_tokens, "bytes": by_bytes, "words": by_words, "splicing": by_splicing, "comments": by_comments}


def make_case(seed: int, index: int, largest: int) -> Case:
    """The case of that number: the same for the same seed, whatever ran before."""
    rng = Rng(f"{seed}:{index}")
    kind = rng.choice((*_KINDS, "bomb"))
    if kind == "model":
        file = Models(rng).file()
        text = file_text(file)
        if rng.random() < 0.3:  # a second, damaged form of it
            i = rng.randrange(len(text))
            return Case("damaged model", text[:i] + rng.choice(VOCABULARY) + text[i + rng.randrange(5) :])
        return Case("model", text, file)
    if kind == "bomb":
        name = rng.choice(sorted(BOMBS))
        size = int(10 ** rng.uniform(1, len(str(largest)) - 1 + 0.3))
        return Case(f"bomb: {name}", BOMBS[name](min(size, largest)))
    return Case(kind, DAMAGE[kind](rng))


def try_case(case: Case, look: Callable[[str], list[Problem]]) -> list[Problem]:
    found = look(case.text)
    if case.model is not None and not found:
        parsed = parse(case.text)
        if parsed.file != case.model or parsed.diagnostics:
            found.append(Problem("model-equal", "a printed model reads as another one"))
    return found


# ------------------------------------------------------------------ children and their watchdog


@dataclass(frozen=True)
class Finding:
    """A problem, the case that showed it, and the smallest text found that shows it."""

    problem: Problem
    index: int
    kind: str
    text: str


@dataclass
class Report:
    """What a run did."""

    cases: int = 0
    seconds: float = 0.0
    characters: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    repeats: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int, int, str] = (0.0, 0, 0, "")
    interrupted: bool = False

    def add(self, finding: Finding) -> None:
        """Keep the smallest text of each kind of problem."""
        kind = finding.problem.kind
        self.repeats[kind] += 1
        if kind not in self.findings or len(finding.text) < len(self.findings[kind].text):
            self.findings[kind] = finding


def shrink(text: str, still: Callable[[str], bool], seconds: float = 20.0) -> str:
    """A smaller text for which `still` holds: ever smaller runs of lines, then of characters, are cut out."""
    until = time.monotonic() + seconds
    for parts in (text.splitlines(keepends=True), None):
        left = list(text) if parts is None else parts
        size = len(left) // 2
        while size:
            i = 0
            while i < len(left) and time.monotonic() < until:
                shorter = left[:i] + left[i + size :]
                if still("".join(shorter)):
                    left = shorter
                else:
                    i += size
            size //= 2
        text = "".join(left)
    return text


@dataclass(frozen=True)
class Plan:
    """What to run: cases `first` to `first + cases` of a seed (None: no end), for at most that many seconds."""

    seed: int = 0
    cases: int | None = None
    first: int = 0
    seconds: float = float("inf")
    largest: int = MAX_BYTES + 100
    jobs: int | None = None
    look: Callable[[str], list[Problem]] = examine
    limit: Callable[[int], float] = allowed

    def batches(self) -> Iterator[tuple[int, int]]:
        until = time.monotonic() + self.seconds
        end = self.first + self.cases if self.cases is not None else sys.maxsize
        start = self.first
        while start < end and time.monotonic() < until:
            yield start, min(start + BATCH, end)
            start += BATCH


def _child(plan: Plan, pipe: Any, clock: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shown: set[str] = set()
    while (batch := pipe.recv()) is not None:
        done = Report()
        for index in range(*batch):
            case = make_case(plan.seed, index, plan.largest)
            clock[0], clock[1] = index, time.monotonic() + 3 * plan.limit(len(case.text))
            began = time.process_time()
            problems = try_case(case, plan.look)
            seconds = time.process_time() - began
            group = case.kind.split(":")[0]
            done.cases += 1
            done.kinds[group] += 1
            done.right[group] += not problems and len(case.text) < 10_000 and parse(case.text).ok
            done.characters += len(case.text)
            done.slowest = max(done.slowest, (seconds, len(case.text), index, case.kind))
            for problem in problems:
                text = case.text
                if problem.kind not in shown and problem.kind not in {"slow", "model-equal"}:
                    # Told before it is cut down: that may find a hang or a crash of its own.
                    pipe.send((Report(findings={problem.kind: Finding(problem, index, case.kind, text)}), False))
                    clock[1] = time.monotonic() + 60
                    kind = problem.kind
                    text = shrink(text, lambda t, kind=kind: any(p.kind == kind for p in plan.look(t)))
                shown.add(problem.kind)
                done.add(Finding(problem, index, case.kind, text))
        clock[1] = float("inf")
        pipe.send((done, True))


class Worker:
    """One child, the cases that it has, and the end of the time of its case."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("fork")
        self.plan = plan
        self.pipe, theirs = context.Pipe()
        self.clock = context.Array("d", [-1.0, float("inf")], lock=False)
        self.process = context.Process(target=_child, args=(plan, theirs, self.clock), daemon=True)
        self.process.start()
        theirs.close()
        self.batch: tuple[int, int] | None = None

    def give(self, batch: tuple[int, int]) -> None:
        self.batch = batch
        self.pipe.send(batch)

    def late(self) -> bool:
        return time.monotonic() > self.clock[1]

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def lost(self, what: str, why: str) -> tuple[Finding, tuple[int, int] | None]:
        """The finding for the case that it had, and what is left of its cases."""
        first, last = self.batch or (0, 0)
        index = max(first, int(self.clock[0]))
        case = make_case(self.plan.seed, index, self.plan.largest)
        detail = f"{why} on {len(case.text)} characters"
        problem = Problem(f"{what}-{case.kind.replace(': ', '-')}", detail)
        return Finding(problem, index, case.kind, case.text), ((index + 1, last) if index + 1 < last else None)


def _merge(total: Report, part: Report) -> None:
    total.cases += part.cases
    total.characters += part.characters
    total.kinds += part.kinds
    total.right += part.right
    total.slowest = max(total.slowest, part.slowest)
    total.repeats += part.repeats
    for kind, finding in part.findings.items():
        if kind not in total.findings or len(finding.text) < len(total.findings[kind].text):
            total.findings[kind] = finding


def _serve(worker: Worker, report: Report, *, ready: bool) -> tuple[str, tuple[int, int] | None]:
    """Take what a busy child has: "lost" and the rest of its cases if it is no more."""
    if ready:
        try:
            part, last = worker.pipe.recv()
            _merge(report, part)
        except (EOFError, OSError):
            worker.process.join(1)
            what, why = "died", f"status {worker.process.exitcode}"
        else:
            if last:
                worker.batch = None
            return "", None
    elif worker.late():
        what, why = "hang", "no result within three times the limit"
    else:
        return "", None
    finding, rest = worker.lost(what, why)
    report.add(finding)
    report.cases += 1
    worker.stop()
    return "lost", rest


def run(plan: Plan, progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Run a plan; Ctrl-C ends it early."""
    parser()  # built once, before the children are
    report, began = Report(), time.monotonic()
    left: list[tuple[int, int]] = []
    batches = plan.batches()
    workers: list[Worker] = []
    try:
        workers = [Worker(plan) for _ in range(plan.jobs or len(os.sched_getaffinity(0)))]
        while True:
            for worker in workers:
                if worker.batch is None and (batch := left.pop() if left else next(batches, None)) is not None:
                    worker.give(batch)
            busy = [w for w in workers if w.batch is not None]
            if not busy:
                break
            ready = wait([w.pipe for w in busy], timeout=0.1)
            for worker in busy:
                state, rest = _serve(worker, report, ready=worker.pipe in ready)
                if state == "lost":
                    left += [rest] if rest else []
                    workers[workers.index(worker)] = Worker(plan)
            report.seconds = time.monotonic() - began
            progress(report)
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        for worker in workers:
            worker.stop()
    report.seconds = time.monotonic() - began
    return report


# ------------------------------------------------------------------ command line


def _progress(report: Report) -> None:
    rate = report.cases / max(report.seconds, 1e-9)
    print(
        f"\r{report.cases} cases, {rate:.0f}/s, {len(report.findings)} findings ", end="", file=sys.stderr, flush=True
    )


def _write(finding: Finding, seed: int, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", finding.problem.kind)
    path = folder / f"{name}-{seed}-{finding.index}.lpcl"
    path.write_bytes(finding.text.encode("utf-8", "surrogatepass"))
    return path


def summary(report: Report, seed: int, folder: Path) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    rate = report.cases / max(report.seconds, 1e-9)
    print(f"seed {seed}: {report.cases} cases in {report.seconds:.1f} s, {rate:.0f} cases/s, "
          f"{report.characters / 1e6:.1f} M characters" + (", interrupted" if report.interrupted else ""))  # fmt: skip
    for kind, count in report.kinds.most_common():
        print(f"  {kind:14} {count:7}  of them right: {report.right[kind]}")
    seconds, size, index, kind = report.slowest
    print(f"  slowest: {seconds:.2f} s of CPU time, case {index} ({kind}), {size} characters")
    print(f"findings: {len(report.findings)}")
    for name, finding in sorted(report.findings.items()):
        path = _write(finding, seed, folder)
        print(f"  {name}: {report.repeats[name]} times, first kept: case {finding.index} ({finding.kind})")
        print("    " + finding.problem.detail.strip().replace("\n", "\n    "))
        print(f"    {len(finding.text)} characters; replay: python evaluation/fuzz.py --replay {path}")
        if name == "model-equal":
            print(f"    or: python evaluation/fuzz.py --seed {seed} --first {finding.index} --cases 1")


def replay(path: Path) -> int:
    """Examine one file, under the watchdog as well."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    report = run(Plan(cases=1, jobs=1, largest=10, look=lambda _: examine(text), limit=lambda _: allowed(len(text))))
    for finding in report.findings.values():
        print(f"{finding.problem.kind}: {finding.problem.detail}")
    print(f"{path}: {len(text)} characters, {len(report.findings)} findings, {report.seconds:.2f} s")
    return 1 if report.findings else 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, metavar="N", help="how many (default: 10000, or no end with --minutes)")
    options.add_argument("--seed", type=int, default=0, metavar="S", help="same seed, same cases (default: 0)")
    options.add_argument("--first", type=int, default=0, metavar="I", help="number of the first case (default: 0)")
    options.add_argument("--minutes", type=float, metavar="M", help="end after that long")
    options.add_argument(
        "--largest", type=int, default=MAX_BYTES + 100, metavar="C", help="characters of the largest bomb"
    )
    options.add_argument("--jobs", type=int, metavar="J", help="child processes (default: one a usable CPU)")
    options.add_argument(
        "--out", type=Path, default=Path("out/fuzz"), metavar="DIR", help="for texts (default: out/fuzz)"
    )
    options.add_argument("--replay", type=Path, metavar="FILE", help="examine one file")
    args = options.parse_args()
    if args.replay:
        return replay(args.replay)
    cases = args.cases if args.cases is not None or args.minutes is not None else 10_000
    seconds = float("inf") if args.minutes is None else 60 * args.minutes
    plan = Plan(args.seed, cases, args.first, seconds, args.largest, args.jobs)
    report = run(plan, _progress if sys.stderr.isatty() else lambda _: None)
    summary(report, args.seed, args.out)
    return 1 if report.findings else 130 if report.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
