"""A folder of contracts, one sub-folder a library: `contract.lpcl`, `evidence.jsonl`, `METADATA.toml`, `reviews.jsonl`.

The last one is optional. Each of its lines says that somebody read a clause against its evidence; it names the clause
by a fingerprint of both, so it no longer counts once either changes.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from lpcl import model as m
from lpcl.check import check
from lpcl.diagnostics import Diagnostic, LpcError
from lpcl.format import clause_text
from lpcl.parse import parse, read_text

CONTRACT, EVIDENCE, METADATA, REVIEWS = "contract.lpcl", "evidence.jsonl", "METADATA.toml", "reviews.jsonl"
MAX_EVIDENCE_BYTES = 64 << 20
MAX_METADATA_BYTES = 1 << 20
MAX_NESTING = 32


class CorpusError(LpcError, OSError):
    """A corpus folder cannot be read at all."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A line of `evidence.jsonl`, as far as the language needs it.

    Attributes:
        place: `file:line` or an address; text: the source lines; source: the release they are from.
        vouched: rule | model | person: who wrote it down.
        raw: the whole record.
    """

    id: str
    place: str
    text: str
    source: str
    vouched: str
    raw: Mapping[str, Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Review:
    """Somebody read a clause against its evidence.

    Attributes:
        clause: `control threads`; fingerprint: of the clause and its evidence, see `fingerprint`.
        by: who; on: the day, ISO 8601; comment: what there is to say about it.
    """

    clause: str
    fingerprint: str
    by: str
    on: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One library of a corpus."""

    folder: Path
    contract: m.Contract
    cited: Mapping[str, Cited]
    metadata: Mapping[str, Any]
    diagnostics: tuple[Diagnostic, ...]
    reviews: Mapping[str, Review] = field(default_factory=dict)

    def trust(self, clause: m.Clause) -> str:
        """The trust level of a clause."""
        return trust(clause, self.cited, self.reviews)

    def review(self, clause: m.Clause) -> Review | None:
        """The review of a clause as it stands."""
        return self.reviews.get(fingerprint(clause, self.cited))

    def evidence(self, clause: m.Clause) -> tuple[Cited, ...]:
        """What the clause cites, in order; ids without a record are left out."""
        return tuple(self.cited[i] for i in clause.evidence if i in self.cited)


def fingerprint(clause: m.Clause, cited: Mapping[str, Cited]) -> str:
    """16 hex digits of what a reviewer reads: the clause in canonical form, and each evidence that it cites."""
    seen = []
    for i in sorted(set(clause.evidence)):
        raw = cited[i].raw if i in cited else {}
        inside = raw.get("seen")
        body = {k: v for k, v in inside.items() if k != "text"} if isinstance(inside, Mapping) else {}
        seen.append([i, raw.get("source"), raw.get("source_sha256"), body])
    identity = json.dumps([clause_text(clause), seen], sort_keys=True, default=str)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def trust(clause: m.Clause, cited: Mapping[str, Cited], reviews: Mapping[str, Review]) -> str:
    """How far a clause can be trusted.

    `drafted` if an evidence has no record, `reviewed` if somebody read it as it stands, else `grounded`.
    """
    if not clause.evidence or any(i not in cited for i in clause.evidence):
        return "drafted"
    return "reviewed" if fingerprint(clause, cited) in reviews else "grounded"


def read_reviews(
    path: Path, contract: m.Contract | None, cited: Mapping[str, Cited]
) -> tuple[dict[str, Review], list[Diagnostic]]:
    """The reviews by fingerprint, and what is wrong with them; no file is no review.

    Without a contract it is not asked whether a review is still of one of its clauses.
    """
    reviews: dict[str, Review] = {}
    found: list[Diagnostic] = []
    if not path.is_file():
        return reviews, found
    if path.stat().st_size > MAX_EVIDENCE_BYTES:
        return reviews, [Diagnostic("LP157", "error", "the file of reviews is too large", file=str(path))]
    current = None if contract is None else {fingerprint(c, cited) for c in contract.clauses}
    for n, line in enumerate(path.read_text("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        span = m.Span(n, 1, n, len(line) + 1)
        try:
            raw = json.loads(line)
            clause, key, by, on = (str(raw[k]) for k in ("clause", "fingerprint", "by", "on"))
            review = Review(clause, key, by, on, str(raw.get("comment", "")))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            message = f"line {n} is no review: {type(error).__name__}"
            found.append(Diagnostic("LP157", "error", message, span, file=str(path)))
            continue
        if current is not None and review.fingerprint not in current:
            message = f"the review of `{review.clause}` is of another clause than the contract has now"
            help_text = "read it again: `lpcl review`; a line that nobody will renew can go"
            found.append(Diagnostic("LP158", "warning", message, span, help_text, str(path)))
        reviews[review.fingerprint] = review
    return reviews, found


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
            if _nests(raw):
                raise ValueError  # noqa: TRY301  # what can just be read could not be written again
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


def _nests(value: object) -> bool:
    """Whether JSON nests deeper than any record needs."""
    stack = [(value, 0)]
    while stack:
        here, depth = stack.pop()
        if depth > MAX_NESTING:
            return True
        inside = here.values() if isinstance(here, dict) else here if isinstance(here, list) else ()
        stack.extend((x, depth + 1) for x in inside)
    return False


def load_entry(folder: Path) -> Entry | tuple[Diagnostic, ...]:
    """One library's folder; the diagnostics alone if its contract cannot be read."""
    path = folder / CONTRACT
    parsed = parse(read_text(path), file=str(path))
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
            if meta_path.stat().st_size > MAX_METADATA_BYTES:
                raise ValueError("too large")  # noqa: TRY301  # not to be read at all
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
    reviews, stale = read_reviews(folder / REVIEWS, contract, cited)
    found = (*parsed.diagnostics, *check(parsed.file, name=str(path)), *wrong, *missing, *stale)
    return Entry(folder, contract, cited, metadata, found, reviews)


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
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  # `lpcl check` does not need them
    from packaging.utils import canonicalize_name  # noqa: PLC0415
    from packaging.version import Version  # noqa: PLC0415

    for p in contract.packages:
        if canonicalize_name(p.name) != canonicalize_name(package):
            continue
        if version is None or p.versions is None:
            return True
        try:
            if SpecifierSet(p.versions).contains(Version(version), prereleases=True):
                return True
        except ValueError:  # a version or a range that is none: the checker says so
            return True
    return False


def covers_library(contract: m.Contract, base_name: str) -> bool:
    """Whether the contract is about a shared object of this base name."""
    return any(fnmatch.fnmatchcase(base_name, p) for n in contract.natives for p in n.patterns)
