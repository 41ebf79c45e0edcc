"""Walk a release: find its files, give each to its walker, collect what they saw."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path, PurePosixPath

from synth.cache import digest
from synth.docs import Names, is_document, walk_docs
from synth.records import Kind, Observation, Release, Role, Skipped, Walk
from synth.walk.c_family import C_SUFFIXES, CIndex, walk_c
from synth.walk.config_keys import Family, default_tables, families, walk_defaults
from synth.walk.cython import recited, walk_cython
from synth.walk.cython_source import CYTHON, WRITTEN, to_python
from synth.walk.environment import mentions_environment
from synth.walk.incremental import Known, Result, Store, Traced, in_processes, known_facts
from synth.walk.index import RUNS, PackageIndex
from synth.walk.native import is_binary, walk_binary
from synth.walk.python import walk_python
from synth.walk.python_docs import walk_docstrings
from synth.walk.roles import role_of
from synth.walk.rust import RUST_SUFFIXES, RustIndex, rust_role, walk_rust
from synth.walk.syntax import PARSE_SECONDS, NotParsedError
from synth.walk.tables import is_settings_file, walk_table
from synth.walk.text import walk_text
from synth.walk.trace import Trace

__all__ = ["Limits", "read_files", "role_of", "walk_release"]

PYTHON_SUFFIXES = frozenset({".py", ".pyi"})
# in lower case, the commonest first: a search for one word is far faster than one for alternatives
_HINTS = (
    b"set_", b"process", b"cache", b"limit", b"memory", b"thread", b"parallel", b"backend", b"environ", b"num_",
    b"pool", b"chunk", b"batch", b"buffer", b"worker", b"n_jobs", b"njobs", b"cpu", b"engine", b"executor",
    b"getenv", b"putenv", b"compress", b"fork", b"getpid", b"mmap", b"prefetch", b"affinity", b"sysconf",
    b"cgroup",
)  # fmt: skip
_TABLE_SUFFIXES = frozenset({".yaml", ".yml"})
_PARALLEL_FROM = 8_000_000  # bytes of source under which starting processes costs more than it saves

Progress = Callable[[int, int, str], None]
Task = tuple[str, str]  # (language group, path)


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
    rust: dict[str, bytes] = field(default_factory=dict)
    cython: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, bytes] = field(default_factory=dict)
    settings: dict[str, bytes] = field(default_factory=dict)
    binaries: list[str] = field(default_factory=list)  # read in place: they may be larger than memory
    skipped: list[Skipped] = field(default_factory=list)

    def count(self) -> int:
        return sum(len(group) for group in self._groups())

    def size(self) -> int:
        return sum(len(raw) for group in self._groups() for raw in group.values())

    def _groups(self) -> tuple[dict[str, bytes], ...]:
        return self.python, self.c, self.rust, self.cython, self.docs, self.tables, self.settings


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
    if CYTHON.search(name):
        return files.cython
    if suffix in RUST_SUFFIXES:
        return files.rust
    if is_document(path):
        return files.docs
    if suffix in _TABLE_SUFFIXES and role_of(path) in RUNS:
        return files.tables
    if is_settings_file(name) and role_of(path) in RUNS:
        return files.settings
    return None


def read_files(root: Path, limits: Limits) -> _Files:
    """Read the sources and docs of an unpacked release."""
    files = _Files()
    total = 0
    for path, status in _paths(root, files.skipped):
        if is_binary(path) and path.isprintable() and len(files.binaries) < limits.files:
            files.binaries.append(path)
            continue
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
    release: Release,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
    cache: Path | None = None,
) -> Walk:
    """Observe all files of a release.

    Args:
        release: the unpacked release; nothing in it is run or imported.
        progress: called with (files done, files in all, path) before each file.
        jobs: processes to walk with; one unless given, and for a small release in any case.
        limits: bounds of the walk.
        cache: folder that keeps what was made of each file for the next time; nothing is kept without.

    Returns:
        The observations in a fixed order. What could not be read stands in `skipped`, with the reason.
    """
    with _no_collector():
        return _walked(release, progress, jobs or 1, limits or Limits(), cache)


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


@dataclass
class _Run:
    """How one walk is done: what is kept, what is known of the Python files already, how many processes."""

    store: Store
    jobs: int
    progress: Progress | None
    known: Known | None = None

    def several(self, work: Callable[[Task], Result], tasks: list[Task], sizes: dict[Task, int]) -> Iterator[Result]:
        """Results in the order of the tasks."""
        for done, (task, result) in enumerate(zip(tasks, in_processes(work, tasks, sizes, self.jobs), strict=True)):
            if self.progress is not None:
                self.progress(done, len(tasks), task[1])
            yield result


def _walked(release: Release, progress: Progress | None, jobs: int, bounds: Limits, cache: Path | None) -> Walk:
    started = time.monotonic()
    files = read_files(release.root, bounds)
    jobs = jobs if files.size() > _PARALLEL_FROM else 1
    with Store(cache) as store:
        written = store.texts("cython", {p: raw for p, raw in files.cython.items() if WRITTEN.search(p)}, to_python)
        sources = {**files.python, **written}
        run = _Run(store, jobs, progress)
        if cache is not None or jobs > 1:
            run.known = known_facts(
                sources, store, role=role_of, wanted=_indexed, jobs=jobs, seconds=bounds.parse_seconds
            )
        python = PackageIndex.build(
            sources,
            role=role_of,
            keep=_hinted,
            seconds=bounds.parse_seconds,
            known=run.known.facts if run.known is not None else None,
        )
        worker = _Worker(files, python, bounds, written)
        results = _results(release, worker, run)
        observations = [seen for found, _ in results for seen in found]
        skipped = [*files.skipped, *(skip for _, skip in results if skip is not None)]
        observations += _binaries(release.root, files, skipped, store)
        observations += [
            *_documentation(files, observations, skipped, store),
            *_docstrings(files, python, observations, run),
        ]
    return Walk(
        release=release,
        observations=tuple(sorted(observations, key=_order)),
        skipped=tuple(sorted(skipped, key=lambda skip: (skip.file, skip.why))),
        files=files.count(),
        bytes=files.size(),
        seconds=round(time.monotonic() - started, 3),
    )


def _hinted(source: bytes) -> bool:
    """Whether a Python file has a word of what the walkers look for."""
    lower = source.lower()
    return any(hint in lower for hint in _HINTS)


def _indexed(path: str, source: bytes) -> bool:
    return role_of(path) in RUNS or mentions_environment(source)


def _results(release: Release, worker: _Worker, run: _Run) -> list[Result]:
    """What the walkers of sources say, from the cache where it holds."""
    files, store, bounds = worker.files, run.store, repr(worker.limits)
    if store.cache is None or run.known is None:
        tasks = worker.tasks()
        return list(run.several(worker.run, tasks, worker.sizes(tasks)))
    results: list[Result] = []
    for name, group in (("c", files.c), ("rust", files.rust)):
        parts = [part for path, raw in sorted(group.items()) for part in (path, digest(raw))]
        results += store.whole(
            [name, bounds, *parts],
            lambda name=name: list(run.several(worker.run, worker.group(name), worker.sizes(worker.group(name)))),  # type: ignore[misc]
        )
    tasks = worker.group("python", "cython")
    common = digest(bounds, repr(worker.families), repr(sorted(worker.python.failed.items())))
    raw_of = files.python | files.cython
    keys = {(group, path): store.key("walk", common, group, path, digest(raw_of[path])) for group, path in tasks}
    traced = Traced(
        Trace(worker.python, run.known.contents, run.known.faces), store, worker.run, itemgetter(1), run.jobs
    )
    found = traced.run(keys, worker.sizes(tasks), store.key("memo", release.name))
    rest = worker.group("settings", "table")
    return [*results, *(found[task] for task in tasks), *run.several(worker.run, rest, worker.sizes(rest))]


def _order(seen: Observation) -> tuple[str, int, int, str, str, int]:
    return seen.file, seen.line, seen.end_line, seen.kind, seen.name, seen.order


class _Worker:
    """Walks single files; what it needs for that is built once and shared."""

    def __init__(self, files: _Files, python: PackageIndex, limits: Limits, written: dict[str, bytes]) -> None:
        self.files, self.python, self.limits = files, python, limits
        self.written = written  # Cython sources as Python
        self.families = families(python)
        self.defaults = default_tables(python, self.families)
        names = b"|".join(re.escape(name.encode()) for name in sorted(python.wrapper_names()))
        self.wrapper = re.compile(rb"\b(" + names + rb")\b") if names else None

    @cached_property
    def native(self) -> CIndex:
        """What the files of the C family say about each other."""
        return CIndex.build(self.files.c)

    @cached_property
    def rust(self) -> RustIndex:
        """What the Rust files say about each other."""
        return RustIndex.build(self.files.rust, seconds=self.limits.parse_seconds)

    def tasks(self) -> list[Task]:
        """Every file worth parsing."""
        return sorted(self.group("python", "c", "cython", "rust", "settings", "table"), key=lambda task: task[1])

    def group(self, *names: str) -> list[Task]:
        """The files worth parsing of some language groups."""
        files = self.files
        worth: dict[str, Callable[[], Iterable[str]]] = {
            "python": lambda: (path for path, raw in files.python.items() if self._worth_python(path, raw)),
            "c": lambda: (path for path, raw in files.c.items() if self.native.worth(raw)),
            "cython": lambda: (path for path, raw in files.cython.items() if self._worth_python(path, raw)),
            "rust": lambda: (path for path in files.rust if self.rust.worth(path)),
            "settings": lambda: files.settings,
            "table": lambda: (path for path in files.tables if self._family(path) is not None),
        }
        return sorted((name, path) for name in names for path in worth[name]())

    def sizes(self, tasks: Iterable[Task]) -> dict[Task, int]:
        """Bytes of the file of each task."""
        files = self.files
        groups = {"python": files.python, "c": files.c, "cython": files.cython, "rust": files.rust}
        groups |= {"settings": files.settings, "table": files.tables}
        return {task: len(groups[task[0]][task[1]]) for task in tasks}

    def _family(self, path: str) -> Family | None:
        """The family whose defaults a file holds: named in the code, in the same top package."""
        *folders, name = path.split("/")
        return next((self.defaults[f"{f}/{name}"] for f in folders if f"{f}/{name}" in self.defaults), None)

    def _worth(self, raw: bytes) -> bool:
        return _hinted(raw) or bool(self.wrapper and self.wrapper.search(raw))

    def _worth_python(self, path: str, raw: bytes) -> bool:
        # outside of what an application imports, only the use of environment variables says anything
        return self._worth(raw) if role_of(path) in RUNS else mentions_environment(raw)

    def run(self, task: tuple[str, str]) -> Result:
        """Walk one file; whatever goes wrong becomes a reason, never an exception."""
        group, path = task
        role = role_of(path)
        try:
            return self._walk(group, path, role)
        except NotParsedError as error:
            groups = {"python": self.files.python, "c": self.files.c, "rust": self.files.rust}
            raw = groups.get(group, self.files.cython)[path]
            return walk_text(raw, path, role), Skipped(file=path, why=f"searched as text only: {error}")
        except Exception as error:  # noqa: BLE001 - one odd file must not lose the release
            return [], Skipped(file=path, why=f"the walker failed: {type(error).__name__}: {error}")

    def _walk(self, group: str, path: str, role: Role) -> Result:
        seconds = self.limits.parse_seconds
        if group == "python":
            raw = self.files.python[path]
            if path in self.python.failed:
                raise NotParsedError(self.python.failed[path])
            return walk_python(raw, path, role, self.python, known=self.families, seconds=seconds), None
        if group == "cython":
            return self._cython(path, role), None
        if group == "c":
            return walk_c(self.files.c[path], path, role, index=self.native, seconds=seconds), None
        if group == "rust":
            return walk_rust(self.files.rust[path], path, rust_role(path), index=self.rust), None
        if group == "settings":
            return walk_table(self.files.settings[path], path, role), None
        family = self._family(path)
        return (walk_defaults(self.files.tables[path], path, role, family) if family is not None else []), None

    def _cython(self, path: str, role: Role) -> list[Observation]:
        """The Python walkers over the source written as Python, and what only Cython has."""
        raw, written = self.files.cython[path], self.written.get(path)
        if written is None:
            return walk_cython(raw, path, role)
        if path in self.python.failed:
            raise NotParsedError(self.python.failed[path])
        found = walk_python(written, path, role, self.python, known=self.families, seconds=self.limits.parse_seconds)
        own = walk_cython(raw, path, role)
        known = {(seen.kind, seen.name, seen.line) for seen in own}
        seen_by_python = [o for o in recited(found, raw, path, role) if (o.kind, o.name, o.line) not in known]
        return [*seen_by_python, *own]


def _documentation(
    files: _Files, seen: Iterable[Observation], skipped: list[Skipped], store: Store
) -> list[Observation]:
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
    asked = digest(*sorted(names))
    wanted_names = Names(names)

    def read(paths: list[str]) -> Iterator[Result]:
        for path in paths:
            role = role_of(path)
            try:
                yield (
                    walk_docs(files.docs[path], path, role if role is not Role.LIBRARY else Role.DOC, wanted_names),
                    None,
                )
            except Exception as error:  # noqa: BLE001 - as for sources
                yield [], Skipped(file=path, why=f"the walker failed: {type(error).__name__}: {error}")

    keep = store.cache is not None
    keys = {p: store.key("doc", asked, p, digest(raw)) if keep else p for p, raw in sorted(files.docs.items())}
    results = store.each(keys, read)
    skipped.extend(skip for _, skip in results if skip is not None)
    return [observation for found, _ in results for observation in found]


_MENTIONED = re.compile(rb"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[\"'`]([a-z]\w*(?:\.\w+)+)[\"'`=]")
_MENTIONS_BYTES = 40_000_000  # of Python and prose that are searched for names that a binary holds


def _binaries(root: Path, files: _Files, skipped: list[Skipped], store: Store) -> list[Observation]:
    """What native libraries say. A text in one that looks like a key counts where the sources know keys of its kind."""

    def read(paths: list[str]) -> Iterator[Result]:
        for path in paths:
            carried = any(folder.endswith((".libs", ".dylibs")) for folder in path.split("/")[:-1])
            said, why = walk_binary(root / path, path, Role.VENDORED if carried else role_of(path))
            yield said, Skipped(file=path, why=why) if why else None

    keep = store.cache is not None
    keys = {p: store.key("binary", p, _digest_of(root / p)) if keep else p for p in files.binaries}
    results = store.each(keys, read)
    skipped.extend(skip for _, skip in results if skip is not None)
    found = [observation for said, _ in results for observation in said]
    if not any(seen.kind in (Kind.ENV_READ, Kind.OPTION) for seen in found):
        return found
    names, heads = _mentioned(files)
    kept: list[Observation] = []
    for seen in found:
        if seen.kind in (Kind.ENV_READ, Kind.OPTION) and seen.name in names:
            kept.append(seen.model_copy(update={"detail": f"{seen.detail}; the sources name it too"}))
        elif seen.kind is not Kind.OPTION or seen.name.partition(".")[0] in heads:
            kept.append(seen)
    return kept


def _mentioned(files: _Files) -> tuple[set[str], set[str]]:
    """Upper-case names and dotted keys in Python and prose, and the first parts of the keys."""
    names: set[str] = set()
    heads: set[str] = set()
    left = _MENTIONS_BYTES
    for group in (files.python, files.docs):
        for raw in group.values():
            left -= len(raw)
            if left < 0:
                return names, heads
            for match in _MENTIONED.finditer(raw):
                name = (match[1] or match[0]).decode()
                names.add(name)
                if match[1]:
                    heads.add(name.partition(".")[0])
    return names, heads


def _digest_of(path: Path) -> str:
    """Digest of a file that may be larger than memory."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return "unreadable"


_UPPER_NAME = re.compile(rb"[A-Z_][A-Z0-9_]{3,}")


def _docstrings(files: _Files, index: PackageIndex, seen: Iterable[Observation], run: _Run) -> list[Observation]:
    """Docstrings of the package that name an environment variable of it."""
    kinds = (Kind.ENV_READ, Kind.ENV_WRITE)
    names = {o.name for o in seen if o.kind in kinds and o.role in RUNS and "*" not in o.name and len(o.name) > 3}
    if not names:
        return []
    upper = {name.encode() for name in names if _UPPER_NAME.fullmatch(name.encode())}
    others = [name.encode() for name in sorted(names) if name.encode() not in upper]

    def read(task: Task) -> Result:
        raw = files.python[task[1]]
        if upper.isdisjoint(_UPPER_NAME.findall(raw)) and not any(name in raw for name in others):
            return [], None
        try:
            pyfile = index.pyfile(task[1], raw)
        except NotParsedError:
            return [], None
        return walk_docstrings(pyfile, raw, task[1], role_of(task[1]), names), None

    asked = digest(*sorted(names))
    paths = sorted(path for path in index.files.keys() & files.python.keys() if role_of(path) in RUNS)
    contents = run.known.contents if run.known is not None else {}
    keep = run.store.cache is not None
    keys = {
        ("docstrings", path): run.store.key("docstrings", asked, path, contents[path]) if keep else path
        for path in paths
    }
    sizes = {("docstrings", path): len(files.python[path]) for path in paths}
    results = run.store.each(keys, lambda tasks: in_processes(read, tasks, sizes, run.jobs))
    return [observation for found, _ in results for observation in found]
