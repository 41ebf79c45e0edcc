"""The rest of the language on one text: composing, comparing, annotating, editing, reading a corpus.

What is random here follows from the text, so that a text alone tells what was done with it.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from lpcl import cli, editor
from lpcl import model as m
from lpcl.annotate import github, sarif
from lpcl.compose import ComposeError, compose, installed_values, machine_values
from lpcl.corpus import CONTRACT, EVIDENCE, METADATA, REVIEWS, Entry, covers, covers_library, load_entry
from lpcl.diagnostics import Diagnostic
from lpcl.diff import compare
from lpcl.diff_render import render_json, render_markdown, render_text
from lpcl.explain import why
from lpcl.nesting import tree
from lpcl.parse import Parsed, parse
from lpcl.space import space
from lpcl.ways import ways_to

Rng = random.Random
LONG = 30_000
_CORPUS = Path(__file__).resolve().parents[2] / "corpus"
_MACHINES: tuple[dict[str, Any], ...] = (
    {"logical": 16, "online": 16, "affinity": 8, "physical": 8, "quota": 2.5, "cores": 2.5, "memory": 1 << 34,
     "memory_limit": None, "numa_nodes": 2, "gpus": 0, "os": "linux", "arch": "x86_64"},
    {"logical": 1, "online": 1, "affinity": 1, "physical": None, "quota": None, "cores": 1, "memory": 1 << 30,
     "memory_limit": 1 << 29, "numa_nodes": 1, "gpus": None, "os": "darwin", "arch": "aarch64"},
    {},
)  # fmt: skip
_SETTINGS = ("", "0", "1", "4", "-1", "4,2,1", "auto", "true", "x", " 8 ", "1e3", "9" * 400, "4GiB", "50%", "4x", "é")
_GOOD = {"id": b'"e1"', "file": b'"a.py"', "line": b"7", "text": b'"x = 1"', "source": b'"d==1"', "vouched": b'"rule"'}
_BAD = (b'"e1"', b"7", b"null", b"[]", b"{}", b"true", b'""', b"1.5", b'{"file": 1, "line": [], "text": null}',
        b"9" * 5000, b"[" * 30_000, b'{"a":' * 30_000, b'"\\ud800"', b"NaN", b"-Infinity", b"1e999", b"\xff", bytes(1),
        b"'", b"\r", b"{{", b"2020-01-01", b"0x7f", b"inf", b"[[1]]", b"{a.b = 1, a = 2}", b'"""',
        b"\xed\xa0\x80")  # fmt: skip
# Opens pools inside of its workers and limits them, so that there is something to nest in.
_OUTER = """lpcl 1 contract outer { uses demo, libgomp
  demand workers: cpu.processes { amount n scope process runs user_code }
  demand helpers: cpu.threads { amount 2 scope object runs user_code inside workers, demo.pool }
  control n: int { default machine.cores env "OUTER" read call bounds workers.amount }
  mitigate inner { sets env "OMP_NUM_THREADS", "A", "T" to max(1, floor(machine.cores / n)) in children of workers
    unless_set }
  mitigate pools { limits demo.pool.amount, demo.t.amount to 1 in children } }"""


class BrokenError(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Given:
    """A text, what it reads as, and all findings about it."""

    text: str
    parsed: Parsed
    findings: tuple[Diagnostic, ...]

    @property
    def rng(self) -> Rng:
        """Random numbers of this text."""
        return Rng(zlib.crc32(self.text.encode("utf-8", "surrogatepass")))

    @property
    def contracts(self) -> tuple[m.Contract, ...]:
        """The contracts of a right text that is not too long for what is tried here."""
        right = self.parsed.ok and self.parsed.file is not None and len(self.text) < LONG
        return self.parsed.file.contracts if right and self.parsed.file is not None else ()


@lru_cache(maxsize=1)
def shipped() -> tuple[m.Contract, ...]:
    """The contracts of the corpus that are not too long to be taken for each text."""
    files = (parse(p.read_text("utf-8")).file for p in sorted(_CORPUS.glob("*/contract.lpcl")))
    return tuple(c for f in files if f is not None for c in f.contracts if len(c.clauses) < 15)


@lru_cache(maxsize=1)
def _outer() -> m.Contract:
    file = parse(_OUTER).file
    if file is None:
        raise BrokenError("the outer contract is no contract")
    return file.contracts[0]


def _working(rng: Rng, contract: m.Contract) -> m.Contract:
    """It with more pools of workers and more ways to size them than chance gives it."""
    clauses: list[m.Clause] = []
    pools = [d.name for d in contract.demands]
    for clause in contract.clauses:
        new: m.Clause = clause
        if isinstance(clause, m.Demand) and rng.random() < 0.8:
            resource = m.Ref(("cpu", rng.choice(("threads", "processes"))))
            runs, scope = rng.choice(("native", "user_code")), rng.choice(("process", "thread", "object", "call"))
            new = replace(clause, resource=resource, runs=runs, scope=scope)
        elif isinstance(clause, m.Control) and pools and rng.random() < 0.5:
            bounds = (m.Ref((rng.choice(pools), rng.choice(("amount", "idle")))),)
            new = replace(clause, bounds=bounds, type=rng.choice((clause.type, m.Type("int"))))
        clauses.append(new)
    return replace(contract, clauses=tuple(clauses))


def _demand(what: bool, message: str) -> None:
    if not what:
        raise BrokenError(message)


def system(given: Given) -> None:
    """Compose it with shipped contracts and settings; explain every name; size every pool."""
    if not given.contracts:
        return
    rng = given.rng
    own = [_working(rng, c) if rng.random() < 0.7 else c for c in given.contracts]
    contracts = [*own, *rng.sample(shipped(), 2), *([_outer()] if rng.random() < 0.5 else [])]
    labels = sorted({w.label for c in contracts for x in c.controls for w in x.ways})
    environ = {label: rng.choice(_SETTINGS) for label in labels if rng.random() < 0.6} | {"OTHER": "1"}
    machine = machine_values(rng.choice(_MACHINES)) | (installed_values(["numpy"]) if rng.random() < 0.5 else {})
    releases = rng.choice(({}, {"demo": "2.0"}, {"numpy": "no version"}, {c.name: "1.5" for c in contracts}))
    try:
        composed = compose(contracts, machine, environ, releases=releases)
    except ComposeError:
        return  # two contracts of one name
    again = compose(reversed(contracts), machine, environ, releases=releases)
    _demand(again == composed, "the order of the contracts makes a difference")
    _demand(tree(again) == tree(composed), "the order of the contracts makes a difference to the tree")
    list(composed.findings)
    names = [c.name for x in given.contracts for c in x.clauses]
    for name in [*rng.sample(names, min(4, len(names))), "machine.cores", "machine.x", "", ".", "a.b.c.total"]:
        why(composed, name)
        why(composed, f"{given.contracts[0].name}.{name}.amount")
        why(composed, f"{given.contracts[0].name}.{name}.total")
    for contract in own:
        for demand in contract.demands[:2]:
            ways_to(contract, machine, demand, amount=2, environ=environ)
            ways_to(contract, machine, demand, quiet=True)
        covers(contract, "demo", "1.0")
        covers(contract, "demo", "no version")
        covers_library(contract, "libdemo.so.1")
    if sum(len(c.clauses) for c in contracts) < 30:
        here = space(composed)
        here.violations({p.label: rng.choice((p.default, 1, "x", None)) for p in here.parameters})


def diff(given: Given) -> None:
    """Compare it with itself, with itself in another order, with less of itself, and with a shipped one."""
    rng = given.rng
    for contract in given.contracts[:2]:
        _demand(compare(contract, contract) == (), "a contract differs from itself")
        names = [c.name for c in contract.clauses]
        if len(set(names)) == len(names):  # two clauses of one name are an error, and their order is all they have
            shuffled = replace(contract, clauses=tuple(rng.sample(contract.clauses, len(names))))
            _demand(compare(contract, shuffled) == (), "the order of the clauses is a difference")
        others = [replace(contract, clauses=contract.clauses[1:]), rng.choice(shipped())]
        if contract.clauses:
            fewer = replace(contract.clauses[0], evidence=(), condition=None, notes=("x",))
            others.append(replace(contract, summary="x", clauses=(fewer, *contract.clauses[1:])))
        for other in others:
            for changes in (compare(contract, other), compare(other, contract)):
                render_text(changes)
                render_markdown(changes)
                json.loads(render_json(changes))


def annotating(given: Given) -> None:
    """Its findings as SARIF and as commands of GitHub, one line each."""
    rng = given.rng
    found = [replace(d, file=rng.choice(("x.lpcl", "/a b/c:d,e.lpcl", "", "é%\n.lpcl"))) for d in given.findings]
    log = json.loads(json.dumps(sarif(found, "0")))
    _demand(len(log["runs"][0]["results"]) == len(found), "a finding is lost in SARIF")
    text = github(found)
    lines = text.removesuffix("\n").split("\n") if found else []
    _demand(len(lines) == len(found) and all(x.startswith("::") for x in lines), "a finding is not one command")


def editing(given: Given) -> None:
    """Every question of an editor, at places of it."""
    text, rng = given.text, given.rng
    if len(text) > LONG // 6:
        return
    editor.outline(text)
    editor.diagnostics(text, {})
    words = [i for i, c in enumerate(text) if c.isalpha()]
    for offset in (rng.choice((0, len(text))), *rng.choices(words or [0], k=2)):
        here = (text, min(offset, len(text)))
        editor.word_at(*here)
        editor.hover(*here, {})
        editor.complete(*here)
        for start, end in [*editor.occurrences(*here), editor.definition(*here) or (0, 0)]:
            _demand(0 <= start <= end <= len(text), "a place is outside the text")


def _damaged(rng: Rng, data: bytes) -> bytes:
    """Bytes of which some are gone, doubled, or others."""
    i, j = rng.randrange(len(data)), rng.randrange(len(data))
    how = rng.randrange(8)
    if how == 0:
        return data[:i] + data[j:]
    if how == 1:
        return data[:i] + bytes([rng.randrange(256)]) + data[i:]
    if how == 2:
        return data[:i] + rng.choice(_BAD) + data[i + 1 :]
    return data[:i] + data[j : j + 50] + data[i:] if how == 3 else data


def _value(rng: Rng, good: bytes) -> bytes:
    how = rng.random()
    if how < 0.01:  # deep, and as JSON right: what reads it may still write it
        n = rng.choice((200, rng.randrange(960, 1000)))
        return b"[" * n + b"]" * n
    return rng.choice(_BAD) if how < 0.08 else good


def _record(rng: Rng) -> bytes:
    """A line of evidence, some of whose values are others."""
    found = {k: _value(rng, v) for k, v in _GOOD.items()} | {"id": _value(rng, rng.choice((b'"e"', b'"e1"', b'"e2"')))}
    seen = b", ".join(b'"%b": %b' % (k.encode(), found[k]) for k in ("file", "line", "text"))
    rest = b", ".join(b'"%b": %b' % (k.encode(), found[k]) for k in ("id", "source", "vouched") if rng.random() < 0.97)
    return _damaged(rng, _value(rng, b'{"seen": %b, %b}' % (_value(rng, b"{%b}" % seen), rest)))


def _review(rng: Rng) -> bytes:
    """A line about a clause that was read."""
    fields = ("clause", "fingerprint", "by", "on", "comment")
    pairs = (b'"%b": %b' % (k.encode(), _value(rng, b'"x"')) for k in fields if rng.random() < 0.97)
    return _damaged(rng, _value(rng, b"{%b}" % b", ".join(pairs)))


def _metadata(rng: Rng) -> bytes:
    table = b"name = %b\nkind = %b\n[[review]]\nby = { name = %b, at = %b }\n"
    return _damaged(rng, table % tuple(_value(rng, v) for v in (b'"demo"', b'"python"', b'"x"', b"2020-01-01")))


def folder(given: Given) -> None:
    """It as an entry of a corpus whose other files are damaged."""
    rng = given.rng
    with tempfile.TemporaryDirectory(dir=_fast()) as name:
        here = Path(name)
        # Of a contract that does not read nothing else is looked at.
        text = given.text if given.parsed.ok or rng.random() < 0.3 else _OUTER
        (here / CONTRACT).write_bytes(text.encode("utf-8", "surrogatepass"))
        if rng.random() < 0.9:
            (here / EVIDENCE).write_bytes(b"\n".join(_record(rng) for _ in range(rng.randrange(6))))
        if rng.random() < 0.9:
            (here / METADATA).write_bytes(_metadata(rng))
        if rng.random() < 0.6:
            (here / REVIEWS).write_bytes(b"\n".join(_review(rng) for _ in range(rng.randrange(4))))
        entry = load_entry(here)
        if not isinstance(entry, Entry):
            github(entry)
            return
        for clause in entry.contract.clauses:
            entry.trust(clause)
            entry.evidence(clause)
        github(entry.diagnostics)
        if len(given.text) < LONG // 6:
            editor.hover(text, text.find("evidence"), entry.cited)


@lru_cache(maxsize=1)
def _fast() -> str | None:
    """A file system in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def command_line(given: Given) -> None:
    """It through the command line."""
    if len(given.text) > LONG:
        return
    with (
        tempfile.TemporaryDirectory(dir=_fast()) as name,
        redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")),
        redirect_stderr(io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")),
    ):
        path = Path(name, "x.lpcl")
        path.write_bytes(given.text.encode("utf-8", "surrogatepass"))
        for arguments in (["check"], ["check", "--json"], ["check", "--format", "sarif"], ["fmt", "--check"]):
            code = cli.main([*arguments, str(path)])
            _demand(code in {0, 1, 2}, f"exit code {code} of {arguments}")


PARTS: dict[str, Callable[[Given], None]] = {
    "system": system,
    "diff": diff,
    "annotations": annotating,
    "editor": editing,
    "folder": folder,
    "command line": command_line,
}
