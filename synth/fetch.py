"""From a target to an unpacked release, without running any of it.

An archive is downloaded once: the cache keeps it under its own digest, and checks that digest again whenever
it hands the archive out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, NamedTuple
from urllib.parse import urlsplit

import requests
import urllib3
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, sys_tags
from packaging.version import Version

from synth.indexes import (
    IndexConfig,
    IndexFile,
    IndexSession,
    Listing,
    list_files,
    local_path,
    network_error,
    read_stream,
    status_error,
)
from synth.installed import installed_release
from synth.records import Release, Skipped, SynthError, Target
from synth.targets import folder_identity, metadata_identity, read_filename
from synth.unpack import DEFAULT_LIMITS, Limits, unpack

Progress = Callable[[int, int | None], None]
"""Told of the bytes done, and of all bytes where they are known."""

_CHUNK_BYTES = 256 << 10
_ENTRY_SCHEMA = 1
_LISTED_VERSIONS = 5
# Digests that a file cannot be made to fit; the older ones are compared too, but prove nothing.
_STRONG = frozenset({"sha256", "sha384", "sha512"})
_COMPARED = _STRONG | {"md5", "sha1", "sha224"}
# Of a folder, what no release would hold.
_NOT_SOURCE = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".nox",
        ".venv",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        "__pycache__",
    }
)
_PLACES_HELP = "set PIP_INDEX_URL, or give --index-url or --find-links"
_LISTED_HELP = "try again later or name another version: the index and its files disagree"
_SPELLING = "check the spelling, or name another index with --index-url or PIP_INDEX_URL"


@dataclass(frozen=True)
class FetchLimits:
    """How much to read, and for how long.

    Attributes:
        download_bytes: largest archive.
        download_seconds: longest download.
        unpack: what may come out of the archive; also how much a folder may hold.
    """

    download_bytes: int = 1 << 30
    download_seconds: float = 1800.0
    unpack: Limits = DEFAULT_LIMITS


DEFAULT_FETCH_LIMITS = FetchLimits()


def fetch(  # noqa: PLR0913 (each is a choice of the command line)
    target: Target,
    *,
    config: IndexConfig,
    cache_dir: Path,
    work_dir: Path,
    prefer: Literal["sdist", "wheel"] = "sdist",
    progress: Progress | None = None,
    offline: bool = False,
    limits: FetchLimits = DEFAULT_FETCH_LIMITS,
    on_skip: Callable[[Skipped], None] | None = None,
) -> Release:
    """Get a release's files onto this machine.

    The newest version that the target allows is taken, as pip would choose it, except that `Requires-Python`
    is not looked at: nothing is installed. Pre-releases count only where nothing else fits, yanked files only
    for an exact version (PEP 592).

    Args:
        target: what the user named.
        config: where to look.
        cache_dir: keeps downloaded archives between runs.
        work_dir: gets one folder per unpacked release; an older one of the same archive is replaced.
        prefer: kind to take where a version has both.
        progress: told of the download.
        offline: use the cache and this machine's own files only.
        limits: how much to read.
        on_skip: told of each entry of the archive that is left out.

    Returns:
        The release; for a folder, `root` is the folder itself.

    Raises:
        SynthError: nothing fits the target (code 2), or the network fails (code 3).
    """
    if target.installed:
        return installed_release(target, work_dir)
    if target.path is not None:
        if target.path.is_dir():
            return _folder_release(target.path, limits.unpack)
        return _archive_release(target.path, work_dir, limits, on_skip)
    cache = _Cache(cache_dir)
    with IndexSession(config) as session:
        file = _choose_file(target, prefer, _all_files(target.name, config, session, cache, offline=offline))
        had = cache.get(file) or _download(file, session, cache, limits, progress)
    return Release(
        name=file.name,
        version=str(file.version),
        root=_unpack_fresh(had.path, had.sha256, work_dir, limits, on_skip),
        kind=file.kind,
        filename=file.filename,
        sha256=had.sha256,
        verified=had.verified,
        location=file.filename if file.source == "links" else "index",
    )


def folder_digest(folder: Path, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Digest a folder: SHA-256 of one line `digest  path` per file, sorted by path.

    Links, and folders that version control and tools keep for themselves, are left out.
    """
    whole = hashlib.sha256()
    total = 0
    try:
        for count, file in enumerate(_folder_files(folder), start=1):
            total += file.stat().st_size
            if count > limits.entries or total > limits.total_bytes:
                raise SynthError(
                    f"the folder holds more than {limits.entries:,} files or {limits.total_bytes:,} bytes",
                    help_text="give the folder of one project's sources",
                )
            relative = os.fsencode(file.relative_to(folder).as_posix())
            whole.update(_file_sha256(file).encode() + b"  " + relative + b"\n")
    except OSError as error:
        raise SynthError(
            f"cannot read all of the folder: {_reason(error)}", help_text="check its permissions"
        ) from error
    return whole.hexdigest()


class _Cache:
    """Archives by digest, and a note for each that says what it is.

    `archives/<sha256>/<filename>` and `entries/<name>/<filename>.json`.
    """

    def __init__(self, folder: Path) -> None:
        self.archives = folder / "archives"
        self.entries = folder / "entries"

    def get(self, file: IndexFile) -> _Had | None:
        """Find an archive whose digest is known and still right."""
        sha256 = file.digests.get("sha256", "")
        path = self.archives / sha256 / file.filename
        if not re.fullmatch("[0-9a-f]{64}", sha256) or not path.is_file():
            return None
        if _file_sha256(path) == sha256:
            return _Had(path, sha256, "index" if file.url else self._noted(file))
        path.unlink()
        if file.url:
            return None
        raise SynthError(
            f"the cached `{file.filename}` is damaged, and was removed",
            help_text="run again with a network connection",
        )

    def put(self, part: Path, file: IndexFile, had: _Had) -> None:
        """Move a complete download to its place."""
        had.path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(had.path)
        note = self.entries / file.name / f"{file.filename}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        entry = {
            "schema_version": _ENTRY_SCHEMA,
            "filename": file.filename,
            "source": file.source,
            "yanked": file.yanked,
        }
        entry |= {"sha256": had.sha256, "verified": had.verified}
        temporary = note.with_name(f"{note.name}.{os.getpid()}.part")
        try:
            temporary.write_text(json.dumps(entry), encoding="utf-8")
            temporary.replace(note)
        finally:
            temporary.unlink(missing_ok=True)

    def files(self, name: str) -> Iterator[IndexFile]:
        """List what is kept of one project; these have no URL."""
        folder = self.entries / name
        for note in sorted(folder.glob("*.json")) if folder.is_dir() else []:
            filename = note.name.removesuffix(".json")
            entry, parsed = _read_note(note), read_filename(filename)
            if parsed is None or parsed.name != name:
                continue
            file = IndexFile(
                name=name,
                version=parsed.version,
                kind=parsed.kind,
                filename=filename,
                digests={"sha256": str(entry.get("sha256"))},
                yanked=entry.get("yanked") is True,
                tags=parsed.tags,
                source="links" if entry.get("source") == "links" else "index",
            )
            if (self.archives / file.digests["sha256"] / filename).is_file():
                yield file

    def _noted(self, file: IndexFile) -> Literal["index", "unverified"]:
        entry = _read_note(self.entries / file.name / f"{file.filename}.json")
        return "index" if entry.get("verified") == "index" else "unverified"


class _Had(NamedTuple):
    """An archive on this machine."""

    path: Path
    sha256: str
    verified: Literal["index", "unverified"]


def _read_note(note: Path) -> dict[str, object]:
    try:
        entry = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    # A note of another schema says nothing; the archive is then fetched again.
    return entry if isinstance(entry, dict) and entry.get("schema_version") == _ENTRY_SCHEMA else {}


def _all_files(name: str, config: IndexConfig, session: IndexSession, cache: _Cache, *, offline: bool) -> Listing:
    """List what the configured places have; what is cached stands in for those that were not reached."""
    if not (config.index_urls or config.find_links or offline):
        raise SynthError("neither an index nor a find-links place is configured", help_text=_PLACES_HELP)
    listing = list_files(name, config, session, offline=offline)
    if offline or _network_failure(listing) is not None:
        cached = tuple(cache.files(name))
        if offline and not cached and not listing.known:
            raise SynthError(f"no archive of `{name}` is on this machine", help_text="run once while online")
        listing = replace(listing, files=listing.files + cached, known=listing.known or bool(cached))
    return listing


def _network_failure(listing: Listing) -> SynthError | None:
    return next((failure for failure in listing.failures if failure.code == 3), None)


def _choose_file(target: Target, prefer: str, listing: Listing) -> IndexFile:
    """Pick the file to read, or say why there is none."""
    specifier = SpecifierSet(target.specifier)
    best = _best(listing.files, specifier, prefer)
    network = _network_failure(listing)
    # Without an answer from everywhere, nothing but an exact version is known to be the right one.
    if network is not None and not (best is not None and _is_exact(specifier)):
        raise network
    if best is not None:
        return best
    if listing.failures:
        raise listing.failures[0]
    raise _nothing_fits(target, listing)


def _best(files: Sequence[IndexFile], specifier: SpecifierSet, prefer: str) -> IndexFile | None:
    groups: list[Sequence[IndexFile]] = [[file for file in files if not file.yanked]]
    if _is_exact(specifier):
        groups.append(files)
    for group in groups:
        fitting = list(specifier.filter({file.version for file in group}))
        if fitting:
            newest = max(fitting)
            order = {tag: position for position, tag in enumerate(sys_tags())}
            return min(
                (file for file in group if file.version == newest),
                key=lambda file: _rank(file, prefer, order),
            )
    return None


def _rank(file: IndexFile, prefer: str, order: dict[Tag, int]) -> tuple[bool, int, int, bool, float]:
    """Order the files of one version: wanted kind, most readable, with a digest, smallest."""
    tier, position = (0 if file.filename.endswith(".tar.gz") else 1), 0
    if file.kind == "wheel":
        fits = [order[tag] for tag in file.tags if tag in order]
        portable = any(t.platform.startswith("manylinux") and t.platform.endswith("_x86_64") for t in file.tags)
        tier, position = (0, min(fits)) if fits else (1 if portable else 2, 0)
    size = float("inf") if file.size_bytes is None else file.size_bytes
    return file.kind != prefer, tier, position, "sha256" not in file.digests, size


def _is_exact(specifier: SpecifierSet) -> bool:
    return any(
        part.operator == "===" or (part.operator == "==" and not part.version.endswith(".*")) for part in specifier
    )


def _nothing_fits(target: Target, listing: Listing) -> SynthError:
    name, specifier = target.name, SpecifierSet(target.specifier)
    if not listing.known:
        return SynthError(f"no project named `{name}` on the configured index", help_text=_SPELLING)
    if not listing.files:
        return SynthError(
            f"`{name}` has no sdist and no wheel on the configured index",
            help_text="unpack what it has and give the folder",
        )
    versions = sorted({file.version for file in listing.files if not file.yanked}, reverse=True)
    if any(specifier.filter({file.version for file in listing.files})):
        yanked = max(specifier.filter({file.version for file in listing.files}))
        return SynthError(
            f"every release of `{name}` that fits was yanked",
            help_text=f"to read one all the same: `{name}=={yanked}`",
        )
    newest = ", ".join(str(version) for version in versions[:_LISTED_VERSIONS])
    return SynthError(
        f"no version of `{name}` fits `{target.specifier}`",
        help_text=f"the newest are {newest}" if newest else "every release was yanked",
    )


def _download(
    file: IndexFile, session: IndexSession, cache: _Cache, limits: FetchLimits, progress: Progress | None
) -> _Had:
    part: Path | None = None
    try:
        cache.archives.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".part", dir=cache.archives)
        part = Path(name)
        with os.fdopen(handle, "wb") as out, _opened(file, session, limits) as (total, chunks):
            hashes = _copy(chunks, out, {"sha256", *(_COMPARED & file.digests.keys())}, progress, total)
        verified = _check_digests(file, hashes)
        had = _Had(cache.archives / hashes["sha256"] / file.filename, hashes["sha256"], verified)
        cache.put(part, file, had)
    except OSError as error:
        raise SynthError(
            f"cannot keep `{file.filename}` in the cache folder: {_reason(error)}",
            help_text="free some space, or name another cache folder",
            code=3,
        ) from error
    finally:  # an interrupt cleans up too; after success the file has moved
        if part is not None:
            part.unlink(missing_ok=True)
    return had


def _copy(
    chunks: Iterator[bytes],
    out: IO[bytes],
    algorithms: set[str],
    progress: Progress | None,
    total: int | None,
) -> dict[str, str]:
    hashers = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}
    done = 0
    for chunk in chunks:
        out.write(chunk)
        for hasher in hashers.values():
            hasher.update(chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def _check_digests(file: IndexFile, hashes: dict[str, str]) -> Literal["index", "unverified"]:
    compared = _COMPARED & file.digests.keys()
    for algorithm in compared:
        if hashes[algorithm] != file.digests[algorithm]:
            raise SynthError(
                f"`{file.filename}` is not the file that the index lists: its {algorithm} digest differs",
                help_text="try again; if it stays so, the index or a proxy on the way serves a changed file",
                code=3,
            )
    return "index" if compared & _STRONG else "unverified"


@contextmanager
def _opened(
    file: IndexFile, session: IndexSession, limits: FetchLimits
) -> Iterator[tuple[int | None, Iterator[bytes]]]:
    """Open a file's URL: its size as far as known, and its bytes."""
    if urlsplit(file.url).scheme == "file":
        path = local_path(file.url)
        if not path.is_file():
            raise SynthError(f"`{file.filename}` is listed but missing", help_text=_LISTED_HELP, code=3)
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            _check_size(file, size, limits)
            yield size, iter(lambda: stream.read(_CHUNK_BYTES), b"")
        return
    try:
        response = session.get(file.url, stream=True, headers={"Accept-Encoding": "identity"})
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise network_error(file.url, error) from None
    with response:
        if response.status_code in {404, 410}:
            raise SynthError(f"`{file.filename}` is listed but missing", help_text=_LISTED_HELP, code=3)
        if response.status_code >= 400:
            raise status_error(response.url, response.status_code)
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        _check_size(file, total, limits)
        # Not decoded: some servers declare the gzip of a .tar.gz to be theirs.
        yield (
            total,
            read_stream(response, max_bytes=limits.download_bytes, max_seconds=limits.download_seconds, decode=False),
        )


def _check_size(file: IndexFile, size: int | None, limits: FetchLimits) -> None:
    if size is not None and size > limits.download_bytes:
        raise SynthError(
            f"`{file.filename}` has {size:,} bytes, more than the {limits.download_bytes:,} that are read",
            help_text="raise the limit, or unpack the archive yourself and give the folder",
        )


def _unpack_fresh(
    archive: Path, sha256: str, work_dir: Path, limits: FetchLimits, on_skip: Callable[[Skipped], None] | None
) -> Path:
    dest = work_dir / f"{archive.name}.{sha256[:12]}"
    # What an earlier run left could have been changed since.
    if dest.is_dir() and not dest.is_symlink():
        shutil.rmtree(dest)
    return unpack(archive, dest, limits=limits.unpack, on_skip=on_skip)


def _archive_release(
    path: Path, work_dir: Path, limits: FetchLimits, on_skip: Callable[[Skipped], None] | None
) -> Release:
    parsed = read_filename(path.name)
    if parsed is None:
        raise SynthError(f"`{path.name}` does not say which project and version it holds")
    try:
        sha256 = _file_sha256(path)
    except OSError as error:
        raise SynthError(f"cannot read `{path.name}`: {_reason(error)}", help_text="check the path") from error
    root = _unpack_fresh(path, sha256, work_dir, limits, on_skip)
    name, version = metadata_identity(root)
    if (name or parsed.name) != parsed.name or Version(version or str(parsed.version)) != parsed.version:
        shutil.rmtree(work_dir / f"{path.name}.{sha256[:12]}")
        raise SynthError(
            f"`{path.name}` holds {name or parsed.name} {version or parsed.version}, which its name denies",
            help_text="give the archive the name that it was published under",
        )
    return Release(
        name=parsed.name,
        version=str(parsed.version),
        root=root,
        kind=parsed.kind,
        filename=path.name,
        sha256=sha256,
        verified="unverified",
        location=path.name,
    )


def _folder_release(path: Path, limits: Limits) -> Release:
    root = path.resolve()
    name, version = folder_identity(root)
    return Release(
        name=name,
        version=version,
        root=root,
        kind="folder",
        filename=_printable_name(root.name),
        sha256=folder_digest(root, limits=limits),
        verified="unverified",
        location=_printable_name(root.name),
    )


def _printable_name(name: str) -> str:
    # A folder's name is written to files and shown: only what is plain text of it.
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def _folder_files(folder: Path) -> Iterator[Path]:
    found: list[Path] = []
    for base, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if name not in _NOT_SOURCE]
        found += [Path(base, name) for name in names]
    # By the path's bytes, so that the order is the same under every locale and file system.
    for file in sorted(found, key=lambda file: os.fsencode(file.relative_to(folder).as_posix())):
        if stat.S_ISREG(file.lstat().st_mode):
            yield file


def _raise(error: OSError) -> None:
    raise error


def _file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "unknown error"
