"""Evidence: observations with ids, ranked, deduplicated, written to disk and checked against the files again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from synth.records import SCHEMA_VERSION, Evidence, Kind, Observation, Role, SynthError, Walk, When
from synth.walk.native import holds_text
from synth.walk.syntax import digest_of_lines

__all__ = ["collect", "digest_of_lines", "identify", "read_jsonl", "source_of", "verify", "write_jsonl"]

MAX_ALSO = 50
# how much a reader wants to see each kind, before role and method are looked at
_KIND_WEIGHT = {
    Kind.ENV_READ: 1.0,
    Kind.API_SET: 0.95,
    Kind.PARAM: 0.8,
    Kind.OPTION: 0.8,
    Kind.POOL: 0.85,
    Kind.ENV_WRITE: 0.85,
    Kind.API_GET: 0.75,
    Kind.CPU_PROBE: 0.7,
    Kind.IDLE: 0.6,
    Kind.FORK: 0.6,
    Kind.CONSTANT: 0.55,
    Kind.DOC: 0.5,
}
_ROLE_WEIGHT = {
    Role.LIBRARY: 1.0,
    Role.VENDORED: 0.8,
    Role.DOC: 0.5,
    Role.EXAMPLE: 0.25,
    Role.BENCHMARK: 0.2,
    Role.TEST: 0.15,
    Role.BUILD: 0.2,
}
_PUBLIC_KINDS = frozenset({Kind.API_SET, Kind.API_GET, Kind.PARAM})
_DEEPER = 0.9  # for each package or class more that an application has to name
_DOCUMENTED_BONUS = 0.05  # prose of the release names it too


def identify(seen: Observation) -> str:
    """Id of an observation: what was seen and the digest of its bytes, not its place."""
    content = f"{seen.kind}\0{seen.name}\0{seen.function}\0{seen.target}\0{seen.sha256}"
    return "e" + hashlib.sha256(content.encode()).hexdigest()[:8]


def source_of(walk: Walk) -> str:
    """`name==version:filename` of the release."""
    release = walk.release
    return f"{release.name}=={release.version}:{release.filename}"


def collect(walk: Walk) -> list[Evidence]:
    """Evidence of a walk, best first.

    Observations of the same kind, name and content become one, with the other places in `also`. The order and the
    ids depend on the observations alone.
    """
    documented = {seen.name for seen in walk.observations if seen.kind is Kind.DOC}
    groups: dict[tuple[str, ...], list[Observation]] = {}
    for seen in walk.observations:
        key = (seen.kind, seen.name, seen.sha256, seen.target, str(seen.value), seen.chain and str(seen.order))
        groups.setdefault(key, []).append(seen)
    best: list[tuple[float, Observation, tuple[str, ...]]] = []
    for members in groups.values():
        members.sort(key=lambda seen: (-_rank(seen, documented), seen.file, seen.line))
        first, *others = members
        also = tuple(dict.fromkeys(f"{seen.file}:{seen.line}" for seen in others))[:MAX_ALSO]
        best.append((_rank(first, documented), first, also))
    best.sort(key=lambda item: (-item[0], item[1].kind, item[1].name, item[1].file, item[1].line, item[1].end_line))
    return _numbered(walk, best)


def _numbered(walk: Walk, best: list[tuple[float, Observation, tuple[str, ...]]]) -> list[Evidence]:
    taken: set[str] = set()
    found: list[Evidence] = []
    for rank, seen, also in best:
        name = base = identify(seen)
        attempt = 0
        while name in taken:  # a collision of digests, or the same bytes seen twice in one way
            attempt += 1
            name = "e" + hashlib.sha256(f"{base}{attempt}".encode()).hexdigest()[:8]
        taken.add(name)
        found.append(
            Evidence(
                id=name,
                rank=round(rank, 4),
                source=source_of(walk),
                source_sha256=walk.release.sha256,
                seen=seen,
                also=also,
            )
        )
    return found


def _rank(seen: Observation, documented: set[str]) -> float:
    rank = _KIND_WEIGHT[seen.kind] * _ROLE_WEIGHT[seen.role]
    if seen.method == "text":
        rank *= 0.6
    if seen.detail.startswith("weak:"):
        rank *= 0.6
    if "*" in seen.name and seen.kind is Kind.ENV_READ:
        rank *= 0.85
    if seen.name.startswith("_"):
        rank *= 0.7
    if seen.kind in _PUBLIC_KINDS:
        depth = seen.name.partition("(")[0].count(".")
        rank *= _DEEPER ** max(0, depth - 2)
    if seen.when is When.BUILD:
        rank *= 0.5
    if seen.kind is Kind.CONSTANT or seen.kind is Kind.DOC:
        return min(rank, 1.0)
    if seen.name in documented:
        rank += _DOCUMENTED_BONUS
    if seen.chain:
        rank += 0.02
    return max(0.0, min(rank - 0.05, 1.0))


def write_jsonl(path: Path, evidence: Iterable[Evidence]) -> None:
    """Write one record per line, in the order given."""
    lines = [item.model_dump_json() + "\n" for item in evidence]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def read_jsonl(path: Path) -> list[Evidence]:
    """Read what `write_jsonl` wrote.

    Raises:
        SynthError: a line is not a record, or was written by a newer version.
    """
    found: list[Evidence] = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SynthError(f"cannot read `{path}`: {error.strerror or error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            version = record.get("schema_version") if isinstance(record, dict) else None
            if isinstance(version, int) and version > SCHEMA_VERSION:
                raise SynthError(
                    f"`{path}` line {number} has schema version {version}, this program reads up to {SCHEMA_VERSION}",
                    help_text="update syspilot-lpc",
                )
            found.append(Evidence.model_validate(record))
        except (ValueError, ValidationError) as error:
            raise SynthError(
                f"`{path}` line {number} is not evidence: {str(error).splitlines()[0]}",
                help_text="write it again with `syspilot synth`",
            ) from error
    return found


def verify(evidence: Iterable[Evidence], root: Path) -> list[str]:
    """Read the cited lines again and compare digests.

    Returns:
        One message for each piece of evidence that does not hold; empty if all do.
    """
    problems: list[str] = []
    files: dict[str, bytes | None] = {}
    base = root.resolve()
    for item in evidence:
        seen = item.seen
        if seen.language == "binary":  # it has no lines, and may be larger than memory
            if not holds_text(base, seen.file, seen.text):
                problems.append(f"{item.id}: `{seen.file}` does not hold `{seen.text}`")
            continue
        if seen.file not in files:
            files[seen.file] = _read_inside(base, seen.file)
        raw = files[seen.file]
        if raw is None:
            problems.append(f"{item.id}: `{seen.file}` is not in the release")
        elif digest_of_lines(raw, seen.line, seen.end_line) != seen.sha256:
            problems.append(f"{item.id}: `{seen.file}` lines {seen.line}-{seen.end_line} differ from what was cited")
    return problems


def _read_inside(base: Path, file: str) -> bytes | None:
    path = base / file
    try:
        if path.is_symlink() or not path.resolve().is_relative_to(base) or not path.is_file():
            return None
        return path.read_bytes()
    except OSError:
        return None
