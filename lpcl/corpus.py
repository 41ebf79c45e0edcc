"""A folder of contracts, one sub-folder a library: `contract.lpcl`, `evidence.jsonl`, `METADATA.toml`."""

from __future__ import annotations

import fnmatch
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from lpcl import model as m
from lpcl.check import check
from lpcl.diagnostics import Diagnostic, LpcError
from lpcl.parse import parse

CONTRACT, EVIDENCE, METADATA = "contract.lpcl", "evidence.jsonl", "METADATA.toml"
MAX_EVIDENCE_BYTES = 64 << 20


class CorpusError(LpcError, OSError):
    """A corpus folder cannot be read at all."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A line of `evidence.jsonl`, as far as the language needs it.

    Attributes:
        place: `file:line` or an address; text: the source lines; source: the release they are from.
        vouched: rule | model | person: who stands for it.
        raw: the whole record.
    """

    id: str
    place: str
    text: str
    source: str
    vouched: str
    raw: Mapping[str, Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One library of a corpus."""

    folder: Path
    contract: m.Contract
    cited: Mapping[str, Cited]
    metadata: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...]

    def trust(self, clause: m.Clause) -> str:
        """The trust level of a clause: drafted, grounded or reviewed, that of its weakest evidence."""
        found = [self.cited[i] for i in clause.evidence if i in self.cited]
        if not found or len(found) < len(clause.evidence):
            return "drafted"
        return "reviewed" if all(c.vouched == "person" for c in found) else "grounded"

    def evidence(self, clause: m.Clause) -> tuple[Cited, ...]:
        """What the clause cites, in order; ids without a record are left out."""
        return tuple(self.cited[i] for i in clause.evidence if i in self.cited)


def shipped() -> Path:
    """The corpus that comes with the package: in a wheel inside of it, in a checkout beside it."""
    inside = Path(str(resources.files("lpcl").joinpath("_corpus")))
    return inside if inside.is_dir() else Path(__file__).resolve().parent.parent / "corpus"


def read_evidence(path: Path) -> tuple[dict[str, Cited], tuple[Diagnostic, ...]]:
    """The evidence file: records by id, and what is wrong with it."""
    cited: dict[str, Cited] = {}
    found: list[Diagnostic] = []
    if not path.is_file():
        return {}, (Diagnostic("LP150", "error", f"no `{EVIDENCE}` beside the contract", file=str(path)),)
    if path.stat().st_size > MAX_EVIDENCE_BYTES:
        return {}, (Diagnostic("LP151", "error", "the evidence file is too large", file=str(path)),)
    for n, line in enumerate(path.read_text("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        span = m.Span(n, 1, n, len(line) + 1)
        try:
            raw = json.loads(line)
            seen = raw["seen"]
            place = f"{seen['file']}:{seen['line']}"
            record = Cited(str(raw["id"]), place, str(seen["text"]), str(raw["source"]), str(raw["vouched"]), raw)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            message = f"line {n} is no evidence record: {type(error).__name__}"
            found.append(Diagnostic("LP152", "error", message, span, file=str(path)))
            continue
        if record.id in cited:
            found.append(Diagnostic("LP153", "error", f"evidence `{record.id}` stands twice", span, file=str(path)))
        cited[record.id] = record
    return cited, tuple(found)


def load_entry(folder: Path) -> Entry | tuple[Diagnostic, ...]:
    """One library's folder; the diagnostics alone if its contract cannot be read."""
    path = folder / CONTRACT
    parsed = parse(path.read_text("utf-8", "replace"), file=str(path))
    if not parsed.ok or parsed.file is None or len(parsed.file.contracts) != 1:
        extra: tuple[Diagnostic, ...] = ()
        if parsed.ok:
            extra = (Diagnostic("LP154", "error", "a corpus file holds exactly one contract", file=str(path)),)
        return (*parsed.diagnostics, *extra)
    contract = parsed.file.contracts[0]
    cited, wrong = read_evidence(folder / EVIDENCE)
    metadata: dict[str, Any] = {}
    meta_path = folder / METADATA
    if meta_path.is_file():
        try:
            metadata = tomllib.loads(meta_path.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            wrong = (*wrong, Diagnostic("LP155", "error", f"not TOML: {error}", file=str(meta_path)))
    else:
        wrong = (*wrong, Diagnostic("LP155", "error", f"no `{METADATA}` beside the contract", file=str(path)))
    missing = tuple(
        Diagnostic(
            "LP156",
            "error",
            f"`{m.clause_label(clause)}` cites `{i}`, which is not in {EVIDENCE}",
            clause.span,
            file=str(path),
        )
        for clause in contract.clauses
        for i in clause.evidence
        if i not in cited
    )
    found = (*parsed.diagnostics, *check(parsed.file, name=str(path)), *wrong, *missing)
    return Entry(folder, contract, cited, metadata, found)


def load(folders: Iterable[Path]) -> tuple[tuple[Entry, ...], tuple[Diagnostic, ...]]:
    """All libraries of several corpora; an earlier corpus wins over a later one by contract name.

    Returns:
        The entries without errors, sorted by contract name, and the diagnostics of all.
    """
    entries: dict[str, Entry] = {}
    found: list[Diagnostic] = []
    for corpus in folders:
        for folder in _folders(corpus):
            loaded = load_entry(folder)
            if not isinstance(loaded, Entry):
                found += loaded
                continue
            found += loaded.diagnostics
            if not any(d.severity == "error" for d in loaded.diagnostics):
                entries.setdefault(loaded.contract.name, loaded)
    return tuple(entries[k] for k in sorted(entries)), tuple(found)


def _folders(corpus: Path) -> Iterator[Path]:
    if not corpus.is_dir():
        raise CorpusError(f"`{corpus}` is no folder of contracts")
    if (corpus / CONTRACT).is_file():
        yield corpus
        return
    for folder in sorted(corpus.iterdir()):
        if not folder.name.startswith(".") and (folder / CONTRACT).is_file():
            yield folder


def covers(contract: m.Contract, package: str, version: str | None) -> bool:
    """Whether the contract is about this release of this distribution; an unknown version is covered."""
    for p in contract.packages:
        if canonicalize_name(p.name) != canonicalize_name(package):
            continue
        if version is None or p.versions is None:
            return True
        try:
            if SpecifierSet(p.versions).contains(Version(version), prereleases=True):
                return True
        except InvalidVersion:
            return True
    return False


def covers_library(contract: m.Contract, base_name: str) -> bool:
    """Whether the contract is about a shared object of this base name."""
    return any(fnmatch.fnmatchcase(base_name, p) for n in contract.natives for p in n.patterns)
