"""Walk a release: find its files, give each to its walker, collect what they saw."""

from __future__ import annotations

import gc
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path, PurePosixPath

from synth.docs import DOC_SUFFIXES, walk_docs
from synth.records import Kind, Observation, Release, Role, Skipped, Walk
from synth.walk.c_family import C_SUFFIXES, CIndex, walk_c
from synth.walk.config_keys import Family, default_tables, families, walk_defaults
from synth.walk.index import ENVIRONMENT, RUNS, PackageIndex
from synth.walk.python import walk_python
from synth.walk.python_docs import walk_docstrings
from synth.walk.roles import role_of
from synth.walk.syntax import PARSE_SECONDS, NotParsedError
from synth.walk.text import TEXT_SUFFIXES, walk_text

__all__ = ["Limits", "read_files", "role_of", "walk_release"]

PYTHON_SUFFIXES = frozenset({".py", ".pyi"})
_PYTHON_HINT = re.compile(
    rb"environ|getenv|putenv|(?i:thread|process|pool|executor|worker|n_?jobs|cpu|affinity|sysconf|cgroup|fork|getpid|"
    rb"parallel|memory|cache|chunk|batch|backend|buffer|limit|num_|set_|engine|prefetch|mmap|compress)"
)
_TABLE_SUFFIXES = frozenset({".yaml", ".yml"})
_DOC_NAMES = frozenset({"PKG-INFO", "METADATA", "README"})
_PARALLEL_FROM = 8_000_000  # bytes of source under which starting processes costs more than it saves

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Limits:
    """Bounds of a walk.

    Attributes:
        file_bytes: larger files are skipped.
        files: files looked at; the rest is skipped.
        parse_seconds: parse time of one file.
        total_bytes: bytes read in all.
    """

    file_bytes: int = 4 * 1024 * 1024
    files: int = 100_000
    parse_seconds: float = PARSE_SECONDS
    total_bytes: int = 2 * 1024**3


@dataclass
class _Files:
    """Readable source files of a release by language."""

    python: dict[str, bytes] = field(default_factory=dict)
    c: dict[str, bytes] = field(default_factory=dict)
    docs: dict[str, bytes] = field(default_factory=dict)
    text: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, bytes] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    def count(self) -> int:
        return sum(len(group) for group in self._groups())

    def size(self) -> int:
        return sum(len(raw) for group in self._groups() for raw in group.values())

    def _groups(self) -> tuple[dict[str, bytes], ...]:
        return self.python, self.c, self.docs, self.text, self.tables


def _paths(root: Path, skipped: list[Skipped]) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files below `root` in a fixed order; links and special files are not followed."""
    stack = [""]
    while stack:
        folder = stack.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            skipped.append(Skipped(file=folder or ".", why=f"cannot be listed: {error.strerror or error}"))
            continue
        below: list[str] = []
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                skipped.append(Skipped(file=path, why=f"cannot be read: {error.strerror or error}"))
                continue
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in (".git", ".hg", ".svn", "__pycache__", "node_modules"):
                    below.append(path)
            elif stat.S_ISLNK(status.st_mode):
                skipped.append(Skipped(file=path, why="symbolic link"))
            elif stat.S_ISREG(status.st_mode):
                yield path, status
            else:
                skipped.append(Skipped(file=path, why="not a regular file"))
        stack.extend(reversed(below))


def _group(files: _Files, path: str) -> dict[str, bytes] | None:
    name = path.rpartition("/")[2]
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in PYTHON_SUFFIXES:
        return files.python
    if suffix in C_SUFFIXES:
        return files.c
    if suffix in DOC_SUFFIXES or name in _DOC_NAMES:
        return files.docs
    if suffix in _TABLE_SUFFIXES and role_of(path) in RUNS:
        return files.tables
    return files.text if suffix in TEXT_SUFFIXES else None


def read_files(root: Path, limits: Limits) -> _Files:
    """Read the sources and docs of an unpacked release."""
    files = _Files()
    total = 0
    for path, status in _paths(root, files.skipped):
        group = _group(files, path)
        if group is None:
            continue
        why = ""
        if not path.isprintable():
            files.skipped.append(Skipped(file=ascii(path)[1:-1], why="its name is not plain text"))
            continue
        if status.st_size > limits.file_bytes:
            why = f"larger than {limits.file_bytes} bytes ({status.st_size})"
        elif files.count() >= limits.files:
            why = f"more than {limits.files} files"
        elif total + status.st_size > limits.total_bytes:
            why = f"more than {limits.total_bytes} bytes in all"
        raw = b""
        if not why:
            try:
                raw = (root / path).read_bytes()
            except OSError as error:
                why = f"cannot be read: {error.strerror or error}"
        why = why or _unreadable(raw)
        if why:
            files.skipped.append(Skipped(file=path, why=why))
            continue
        total += len(raw)
        group[path] = raw
    twins = [path for path in files.python if path.endswith(".pyi") and path[:-1] in files.python]
    for path in twins:  # a stub beside its module says nothing new
        del files.python[path]
    return files


def _unreadable(raw: bytes) -> str:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16 text"
    return "binary" if b"\0" in raw[:8192] else ""


def walk_release(
    release: Release, *, progress: Progress | None = None, jobs: int | None = None, limits: Limits | None = None
) -> Walk:
    """Observe all files of a release.

    Args:
        release: the unpacked release; nothing in it is run or imported.
        progress: called with (files done, files in all, path) before each file.
        jobs: processes to walk with; one unless given, and for a small release in any case.
        limits: bounds of the walk.

    Returns:
        The observations in a fixed order. What could not be read stands in `skipped`, with the reason.
    """
    with _no_collector():
        return _walked(release, progress, jobs, limits or Limits())


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keep the cycle collector from visiting millions of nodes, none of which is in a cycle, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _walked(release: Release, progress: Progress | None, jobs: int | None, bounds: Limits) -> Walk:
    started = time.monotonic()
    files = read_files(release.root, bounds)
    python = PackageIndex.build(
        files.python,
        role=role_of,
        keep=lambda source: bool(_PYTHON_HINT.search(source)),
        seconds=bounds.parse_seconds,
    )
    native = CIndex.build(files.c)
    worker = _Worker(files, python, native, bounds)
    todo = worker.tasks()
    if jobs is not None and jobs > 1 and files.size() > _PARALLEL_FROM:
        results = _in_parallel(worker, todo, jobs, progress)
    else:
        results = _one_by_one(worker, todo, progress)
    observations = [seen for found, _ in results for seen in found]
    skipped = [*files.skipped, *(skip for _, skip in results if skip is not None)]
    observations += [
        *_documentation(files, observations, skipped),
        *_docstrings(files, python, observations),
    ]
    return Walk(
        release=release,
        observations=tuple(sorted(observations, key=_order)),
        skipped=tuple(sorted(skipped, key=lambda skip: (skip.file, skip.why))),
        files=files.count(),
        bytes=files.size(),
        seconds=round(time.monotonic() - started, 3),
    )


def _order(seen: Observation) -> tuple[str, int, int, str, str, int]:
    return seen.file, seen.line, seen.end_line, seen.kind, seen.name, seen.order


Result = tuple[list[Observation], Skipped | None]


class _Worker:
    """Walks single files; what it needs for that is built once and shared."""

    def __init__(self, files: _Files, python: PackageIndex, native: CIndex, limits: Limits) -> None:
        self.files, self.python, self.native, self.limits = files, python, native, limits
        self.families = families(python)
        self.defaults = default_tables(python, self.families)
        names = b"|".join(re.escape(name.encode()) for name in sorted(python.wrapper_names()))
        self.wrapper = re.compile(rb"\b(" + names + rb")\b") if names else None

    def tasks(self) -> list[tuple[str, str]]:
        """(language group, path) of every file worth parsing."""
        found = [("python", path) for path, raw in self.files.python.items() if self._worth_python(path, raw)]
        found += [("c", path) for path, raw in self.files.c.items() if self.native.worth(raw)]
        found += [("text", path) for path in self.files.text]
        found += [("table", path) for path in self.files.tables if self._family(path) is not None]
        return sorted(found, key=lambda task: task[1])

    def _family(self, path: str) -> Family | None:
        """The family whose defaults a file holds: named in the code, in the same top package."""
        *folders, name = path.split("/")
        return next((self.defaults[f"{f}/{name}"] for f in folders if f"{f}/{name}" in self.defaults), None)

    def _worth(self, raw: bytes) -> bool:
        return bool(_PYTHON_HINT.search(raw) or (self.wrapper and self.wrapper.search(raw)))

    def _worth_python(self, path: str, raw: bytes) -> bool:
        # outside of what an application imports, only the use of environment variables says anything
        return self._worth(raw) if role_of(path) in RUNS else bool(ENVIRONMENT.search(raw))

    def run(self, task: tuple[str, str]) -> Result:
        """Walk one file; whatever goes wrong becomes a reason, never an exception."""
        group, path = task
        role = role_of(path)
        try:
            if group == "python":
                if path in self.python.failed:
                    return walk_text(self.files.python[path], path, role), Skipped(
                        file=path, why=f"searched as text only: {self.python.failed[path]}"
                    )
                raw, seconds = self.files.python[path], self.limits.parse_seconds
                return walk_python(raw, path, role, self.python, known=self.families, seconds=seconds), None
            if group == "c":
                raw = self.files.c[path]
                return walk_c(raw, path, role, index=self.native, seconds=self.limits.parse_seconds), None
            family = self._family(path) if group == "table" else None
            if family is not None:
                return walk_defaults(self.files.tables[path], path, role, family), None
            return walk_text(self.files.text[path], path, role), None
        except NotParsedError as error:
            raw = (self.files.python if group == "python" else self.files.c)[path]
            return walk_text(raw, path, role), Skipped(file=path, why=f"searched as text only: {error}")
        except Exception as error:  # noqa: BLE001 - one odd file must not lose the release
            return [], Skipped(file=path, why=f"the walker failed: {type(error).__name__}: {error}")


def _one_by_one(worker: _Worker, todo: list[tuple[str, str]], progress: Progress | None) -> list[Result]:
    results: list[Result] = []
    for done, task in enumerate(todo):
        if progress is not None:
            progress(done, len(todo), task[1])
        results.append(worker.run(task))
    return results


_shared: _Worker | None = None


def _run_shared(task: tuple[str, str]) -> Result:
    return _shared.run(task) if _shared is not None else ([], None)


def _in_parallel(worker: _Worker, todo: list[tuple[str, str]], jobs: int, progress: Progress | None) -> list[Result]:
    """As `_one_by_one`, in forked processes: trees cannot be sent, only inherited."""
    global _shared  # noqa: PLW0603 - the only way to hand the trees to forked processes
    _shared = worker
    results: list[Result] = []
    try:
        with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("fork")) as pool:
            for done, (task, result) in enumerate(zip(todo, pool.map(_run_shared, todo, chunksize=16), strict=True)):
                if progress is not None:
                    progress(done, len(todo), task[1])
                results.append(result)
    finally:
        _shared = None
    return results


def _documentation(files: _Files, seen: Iterable[Observation], skipped: list[Skipped]) -> list[Observation]:
    """Prose that names what the code walkers found."""
    wanted = {kind: set[str]() for kind in Kind}
    for observation in seen:
        if observation.role in (Role.LIBRARY, Role.VENDORED):
            wanted[observation.kind].add(observation.name)
    names = (
        wanted[Kind.ENV_READ]
        | wanted[Kind.ENV_WRITE]
        | wanted[Kind.API_SET]
        | wanted[Kind.API_GET]
        | wanted[Kind.PARAM]
    )
    found: list[Observation] = []
    for path, raw in sorted(files.docs.items()):
        role = role_of(path)
        try:
            found.extend(walk_docs(raw, path, role if role is not Role.LIBRARY else Role.DOC, names))
        except Exception as error:  # noqa: BLE001 - as for sources
            skipped.append(Skipped(file=path, why=f"the walker failed: {type(error).__name__}: {error}"))
    return found


def _docstrings(files: _Files, index: PackageIndex, seen: Iterable[Observation]) -> list[Observation]:
    """Docstrings of the package that name an environment variable of it."""
    kinds = (Kind.ENV_READ, Kind.ENV_WRITE)
    names = {o.name for o in seen if o.kind in kinds and o.role in RUNS and "*" not in o.name and len(o.name) > 3}
    if not names:
        return []
    pattern = re.compile(rb"\b(" + b"|".join(re.escape(name.encode()) for name in sorted(names)) + rb")\b")
    found: list[Observation] = []
    for path in sorted(index.files):
        raw = files.python[path]
        if role_of(path) in RUNS and pattern.search(raw):
            try:
                found.extend(walk_docstrings(index.pyfile(path, raw), raw, path, role_of(path), names))
            except NotParsedError:
                continue
    return found
