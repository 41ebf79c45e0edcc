"""From a target to its items: fetch, walk, judge; with the releases that a release pins to its own version."""

from __future__ import annotations

import shutil
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from synth.binaries import add_binaries
from synth.fetch import fetch
from synth.indexes import IndexConfig
from synth.items import Item, items_of
from synth.progress import Notify, Step
from synth.records import Release, Skipped, SynthError
from synth.targets import parse_target
from synth.walk.tree import walk_release

MAX_COMPANIONS = 4
_METADATA_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Sources:
    """Where releases come from.

    Attributes:
        cache: where archives are kept between runs.
        companions: read the releases too that a release pins to its own version.
        jobs: processes.
        results: keep what was made of each file for the next time, below the cache.
        docs: addresses, folders, or `project` for what the metadata names: documents to read beside the release.
    """

    cache: Path
    config: IndexConfig
    prefer: Literal["sdist", "wheel"] = "sdist"
    offline: bool = False
    companions: bool = True
    jobs: int = 1
    results: bool = True
    docs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """What became of one target.

    Attributes:
        releases: the target's release, then its companions.
        seconds: wall time; bytes: of source read.
    """

    target: str
    releases: tuple[Release, ...] = ()
    items: tuple[Item, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: SynthError | None = None


def extract(targets: Sequence[str], sources: Sources, notify: Notify = lambda _: None) -> Iterator[Extraction]:
    """Work through targets, one after the other; one that fails is a result and does not stop the others."""
    for text in targets:
        started = time.monotonic()
        try:
            result = _one(text, sources, notify)
        except SynthError as error:
            result = Extraction(text, error=error)
        except OSError as error:
            reason = f"a file cannot be written or read: {(error.strerror or str(error)).lower()}"
            result = Extraction(text, error=SynthError(reason, help_text="check the cache folder: --cache", code=3))
        yield replace(result, seconds=round(time.monotonic() - started, 3))


def _one(text: str, sources: Sources, notify: Notify) -> Extraction:
    skipped: list[Skipped] = []
    with TemporaryDirectory(prefix="syspilot-evidence-") as work:
        release = _fetched(text, text, sources, Path(work), notify, skipped)
        releases = [release]
        if sources.companions:
            _with_binaries(text, release, sources, Path(work), notify, skipped)
        for name in _companions(release) if sources.companions and release.kind != "folder" else []:
            pinned = f"{name}=={release.version}"
            try:
                other = _fetched(text, pinned, sources, Path(work), notify, skipped)
            except SynthError as error:
                skipped.append(Skipped(file=pinned, why=f"released together, but not read: {error}"))
                continue
            _with_binaries(text, other, sources, Path(work), notify, skipped)
            # one tree, so that what one piece reads through the other is followed
            shutil.move(other.root, release.root / f"{other.name}-{other.version}")
            releases.append(other)
        walk = walk_release(
            release,
            jobs=sources.jobs,
            cache=sources.cache / "results" if sources.results else None,
            progress=lambda done, total, _file: notify(Step(text, "walk", done, total)),
        )
        notify(Step(text, "judge"))
        found = tuple(items_of(walk))
        found = _with_changes(found, release)
        for place in sources.docs:
            found = _documented(text, place, found, release, sources, notify, skipped)
    return Extraction(text, tuple(releases), found, (*skipped, *walk.skipped), walk.files, walk.bytes)


def _with_changes(items: tuple[Item, ...], release: Release) -> tuple[Item, ...]:
    from synth.docs_items import with_changes  # noqa: PLC0415 - as below

    return with_changes(items, release.root)


def _documented(
    shown: str,
    place: str,
    items: tuple[Item, ...],
    release: Release,
    sources: Sources,
    notify: Notify,
    skipped: list[Skipped],
) -> tuple[Item, ...]:
    """Items with what the documents of a place add."""
    from synth.docs_items import documents_of, joined  # noqa: PLC0415 - the network and HTML are not always needed

    notify(Step(shown, "read documents"))
    names = [name for item in items for name in (item.name, *item.aliases)]
    read = documents_of(
        place, release.root, names, cache=sources.cache, offline=sources.offline, on_skip=skipped.append
    )
    return tuple(joined(items, read))


def _fetched(shown: str, text: str, sources: Sources, work: Path, notify: Notify, skipped: list[Skipped]) -> Release:
    notify(Step(shown, f"fetch {text}"))
    return fetch(
        parse_target(text),
        config=sources.config,
        cache_dir=sources.cache,
        work_dir=work,
        prefer=sources.prefer,
        offline=sources.offline,
        progress=lambda done, total: notify(Step(shown, f"fetch {text}", done, total)),
        on_skip=skipped.append,
    )


def _with_binaries(
    shown: str, release: Release, sources: Sources, work: Path, notify: Notify, skipped: list[Skipped]
) -> None:
    """Add the native libraries of the wheel to the sources: they show what is linked into it."""
    if release.kind != "sdist":
        return
    pinned = f"{release.name}=={release.version}"
    try:
        wheel = _fetched(shown, pinned, replace(sources, prefer="wheel"), work / "wheels", notify, skipped)
    except SynthError as error:
        skipped.append(Skipped(file=pinned, why=f"its wheel was not read: {error}"))
        return
    add_binaries(release, wheel)


def _companions(release: Release) -> list[str]:
    """Distributions that a release pins to its own version: one project that is released in pieces.

    Those of an extra count where the extra is called as the distribution, so that builds of one thing for other
    machines are not read as well.
    """
    try:
        own = Version(release.version)
    except InvalidVersion:
        return []
    found: list[str] = []
    for extra, requirement in _requirements(release.root):
        name = canonicalize_name(requirement.name)
        named = not extra or canonicalize_name(extra) == name
        if named and name != release.name and _pinned(requirement, own):
            found.append(name)
    return list(dict.fromkeys(found))[:MAX_COMPANIONS]


def _pinned(requirement: Requirement, own: Version) -> bool:
    """Whether a requirement allows this version and, by its own words, starts there."""
    specifiers = list(requirement.specifier)
    lowest = [s for s in specifiers if s.operator in ("==", ">=", "~=") and "*" not in s.version]
    bounded = any(s.operator in ("==", "<", "<=", "~=") for s in specifiers)
    try:
        starts = any(Version(s.version) == own for s in lowest)
    except InvalidVersion:
        return False
    return starts and bounded and requirement.specifier.contains(own, prereleases=True)


def _requirements(root: Path) -> Iterator[tuple[str, Requirement]]:
    """(extra, requirement) of a release, from its metadata files."""
    for path in (root / "PKG-INFO", *sorted(root.glob("*.dist-info/METADATA"))):
        for text in _metadata_lines(path):
            requirement = _parsed(text)
            if requirement is not None:
                yield _extra_of(requirement), requirement
    try:
        raw = (root / "pyproject.toml").read_bytes()[:_METADATA_BYTES]
        project = tomllib.loads(raw.decode("utf-8")).get("project", {})
    except (OSError, ValueError):
        return
    if not isinstance(project, dict):
        return
    groups = project.get("optional-dependencies", {})
    tables = [("", project.get("dependencies", []))]
    tables += list(groups.items()) if isinstance(groups, dict) else []
    for extra, texts in tables:
        for text in texts if isinstance(texts, list) else []:
            requirement = _parsed(text) if isinstance(text, str) else None
            if requirement is not None:
                yield extra, requirement


def _extra_of(requirement: Requirement) -> str:
    words = str(requirement.marker or "").replace("'", '"').split('extra == "')
    return words[1].split('"')[0] if len(words) > 1 else ""


def _metadata_lines(path: Path) -> list[str]:
    try:
        if path.is_symlink() or path.stat().st_size > _METADATA_BYTES:
            return []
        fields, _ = parse_email(path.read_bytes())
    except (OSError, ValueError):
        return []
    return fields.get("requires_dist") or []


def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
