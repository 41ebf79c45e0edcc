"""Walk what has changed: facts and results of files that are the same, and that would be told the same, are taken over.

Facts of a Python file hold for its bytes, its path and its module's name. The result of a Python file holds for its
bytes and the answers of the index (`synth.walk.trace`). Groups of files whose walkers know nothing of the rest hold
together.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from synth.cache import ResultCache, digest, program_version
from synth.records import Observation, Role, Skipped
from synth.walk.index import module_name, packages_of
from synth.walk.python_facts import Facts, gather
from synth.walk.python_scope import PyFile, parse_python
from synth.walk.stored import NotStorableError, facts_from_json, facts_to_json, result_from_json, result_to_json
from synth.walk.syntax import NotParsedError
from synth.walk.trace import Trace, UntraceableError, asked_from_json, asked_to_json

Result = tuple[list[Observation], Skipped | None]
Walker = Callable[[Any], Result]
T = TypeVar("T", bound=Hashable)

_CHUNK_BYTES = 400_000  # of source handed to a process at once
_COLLECT_BYTES = 4_000_000  # of source after which a process frees the trees that refer to each other
_FEW = 12  # files walked before the others are looked at, so that what they find out is there to compare with
_PROGRAM = Path(__file__).parent.parent


class Store:
    """What is kept between runs, and how its keys are made; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, *, max_bytes: int = 1 << 30) -> None:
        """Open the cache of a folder."""
        self.cache = ResultCache(folder / "results.db", max_bytes=max_bytes) if folder is not None else None
        self._version = program_version(_PROGRAM) if folder is not None else ""

    def __enter__(self) -> Self:
        """As opened."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write what is new."""
        if self.cache is not None:
            self.cache.close()

    def key(self, *parts: bytes | str) -> str:
        """Key of a value that these parts and the program decide."""
        return digest(self._version, *parts)

    def get(self, keys: Iterable[str]) -> dict[str, Any]:
        """Values that are there."""
        return self.cache.get(keys) if self.cache is not None else {}

    def put(self, key: str, value: Any) -> None:
        """Keep a value."""
        if self.cache is not None:
            self.cache.put(key, value)

    def texts(self, name: str, sources: Mapping[str, bytes], rewrite: Callable[[bytes], bytes]) -> dict[str, bytes]:
        """What sources are rewritten to, by path."""
        if self.cache is None:
            return {path: rewrite(source) for path, source in sources.items()}
        keys = {path: self.key(name, source) for path, source in sources.items()}
        stored = self.get(keys.values())
        found: dict[str, bytes] = {}
        for path, source in sources.items():
            kept = stored.get(keys[path])
            text = kept.get("text") if isinstance(kept, dict) else None
            if isinstance(text, str):
                found[path] = text.encode("latin-1", "replace")
            else:
                found[path] = rewrite(source)
                self.put(keys[path], {"text": found[path].decode("latin-1")})
        return found

    def whole(self, parts: Sequence[bytes | str], compute: Callable[[], list[Result]]) -> list[Result]:
        """Results of a group of files that these parts decide together."""
        key = self.key("group", *parts) if self.cache is not None else ""
        stored = self.get([key]).get(key) if key else None
        if isinstance(stored, dict) and isinstance(stored.get("group"), list):
            found = [result_from_json(item) for item in stored["group"]]
            if all(result is not None for result in found):
                return [result for result in found if result is not None]
        results = compute()
        if key:
            self.put(key, {"group": [result_to_json(*result) for result in results]})
        return results

    def each(self, keys: Mapping[T, str], compute: Callable[[list[T]], Iterable[Result]]) -> list[Result]:
        """Results of files that each are decided by its key, in the order of the mapping."""
        stored = self.get(keys.values())
        found: dict[T, Result] = {}
        for item, key in keys.items():
            result = result_from_json(stored[key]) if key in stored else None
            if result is not None:
                found[item] = result
        missing = [item for item in keys if item not in found]
        for item, result in zip(missing, compute(missing), strict=True):
            found[item] = result
            self.put(keys[item], result_to_json(*result))
        return [found[item] for item in keys]


# processes

_work: Callable[[Any], Any] | None = None


def _start() -> None:
    gc.disable()
    gc.freeze()  # what was there before is not looked at when trees are freed


def _run(chunk: list[Any]) -> list[Any]:
    if _work is None:
        return []
    done = [_work(item) for item in chunk]
    gc.collect()
    return done


def in_processes(work: Callable[[Any], Any], items: Sequence[T], sizes: Mapping[T, int], jobs: int) -> Iterator[Any]:
    """Results in the order of the items, worked out in forked processes: what is large is inherited, not sent."""
    global _work  # noqa: PLW0603 - the only way to hand trees and sources to forked processes
    chunks = list(_chunks(items, sizes, _CHUNK_BYTES))
    if jobs <= 1 or len(chunks) < 2:
        yield from _here(work, items, sizes)
        return
    _work = work
    try:
        with ProcessPoolExecutor(min(jobs, len(chunks)), get_context("fork"), initializer=_start) as pool:
            for part in pool.map(_run, chunks):
                yield from part
    finally:
        _work = None


def _here(work: Callable[[Any], Any], items: Sequence[T], sizes: Mapping[T, int]) -> Iterator[Any]:
    done, frozen = 0, False
    try:
        for item in items:
            yield work(item)
            done += sizes.get(item, 0)
            if done > _COLLECT_BYTES:
                done = 0
                gc.collect()
                if not frozen:  # what is left by then stays to the end, and need not be looked at again
                    gc.freeze()
                    frozen = True
    finally:
        if frozen:
            gc.unfreeze()


def _chunks(items: Sequence[T], sizes: Mapping[T, int], limit: int) -> Iterator[list[T]]:
    part: list[T] = []
    size = 0
    for item in items:
        part.append(item)
        size += sizes.get(item, 0) + 1_000
        if size >= limit:
            yield part
            part, size = [], 0
    if part:
        yield part


# facts


class Known:
    """Facts of the Python files of a release: by path, with the digests that traces need."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.facts: dict[str, Facts] = {}
        self.faces: dict[str, str] = {}
        self.contents: dict[str, str] = {}


def known_facts(
    sources: Mapping[str, bytes],
    store: Store,
    *,
    role: Callable[[str], Role],
    wanted: Callable[[str, bytes], bool],
    jobs: int,
    seconds: float,
) -> Known:
    """Facts from the cache, and those of the other files worked out in several processes.

    Args:
        sources: path -> bytes of all Python files, which decide the names of modules.
        store: where facts are kept.
        role: role of a path.
        wanted: whether the index looks at a file.
        jobs: processes.
        seconds: parse limit of a file.

    Returns:
        What could be found; a file that does not parse is not among it.
    """
    known = Known()
    packages = packages_of(sources)
    todo: dict[str, str] = {}
    names: dict[str, tuple[str, bool]] = {}
    for path, source in sources.items():
        known.contents[path] = digest(source)
        if wanted(path, source):
            names[path] = module_name(path, packages)
            name, is_package = names[path]
            todo[path] = store.key("facts", path, name, str(is_package), role(path), known.contents[path])
    stored = store.get(todo.values())
    missing: list[str] = []
    for path, key in todo.items():
        if not (key in stored and _take(known, path, stored[key])):
            missing.append(path)

    def one(path: str) -> str | None:
        try:
            tree = parse_python(sources[path], seconds=seconds)
            name, is_package = names[path]
            facts = gather(PyFile(tree.root_node, name, is_package=is_package), path, role(path))
            return json.dumps(facts_to_json(facts), separators=(",", ":"))
        except (NotParsedError, NotStorableError):
            return None
        except Exception:  # noqa: BLE001 - the index meets it again and gives the reason
            return None

    sizes = {path: len(sources[path]) for path in missing}
    for path, text in zip(missing, in_processes(one, missing, sizes, jobs), strict=True):
        value = json.loads(text) if text is not None else None
        if value is not None and _take(known, path, value):
            store.put(todo[path], value)
    return known


def _take(known: Known, path: str, stored: Any) -> bool:
    read = facts_from_json(stored)
    if read is None or read[0].file != path:
        return False
    known.facts[path], known.faces[path] = read
    return True


# walks


class Traced:
    """Walks Python files, or takes over what an earlier walk said."""

    def __init__(self, trace: Trace, store: Store, walk: Walker, path: Callable[[Any], str], jobs: int) -> None:
        """Take over what was found out once for all files.

        Args:
            trace: of the index that `walk` asks.
            store: where results are kept.
            walk: gives the result of a task.
            path: of the file of a task.
            jobs: processes.
        """
        self.trace, self.store, self.walk, self.jobs, self.path = trace, store, walk, jobs, path
        self.walked = 0
        self._sent: set[str] = set()

    def run(self, keys: Mapping[T, str], sizes: Mapping[T, int], memo_key: str) -> dict[T, Result]:
        """Results by task.

        Args:
            keys: task -> key of all that decides its result but the index.
            sizes: bytes of each task's file.
            memo_key: where what was found out once is kept: the same for the next run on the same release.
        """
        before = self.store.get([memo_key]).get(memo_key)
        memos: dict[str, Any] = dict(before) if isinstance(before, dict) else {}
        self.trace.restore(memos.items())
        stored = self.store.get(keys.values())
        absent = [task for task, key in keys.items() if key not in stored]
        results: dict[T, Result] = {}
        first = absent if len(absent) <= _FEW else []
        self._walk(first, keys, sizes, 1, results, memos)
        stale = [] if first else absent
        for task, key in keys.items():
            if key in stored and task not in results:
                taken = self._taken(stored[key])
                if taken is None:
                    stale.append(task)
                else:
                    results[task] = taken
        self._walk(stale, keys, sizes, self.jobs, results, memos)
        self.store.put(memo_key, memos)
        return results

    def _taken(self, value: Any) -> Result | None:
        """An earlier result, if everything would be answered as before."""
        try:
            if self.trace.answers(asked_from_json(value["asked"])) != value["answers"]:
                return None
        except (UntraceableError, ValueError, TypeError, KeyError):
            return None
        return result_from_json(value.get("result"))

    def _walk(
        self,
        tasks: list[T],
        keys: Mapping[T, str],
        sizes: Mapping[T, int],
        jobs: int,
        results: dict[T, Result],
        memos: dict[str, Any],
    ) -> None:
        self.walked += len(tasks)
        for task, (result, asked, answers, found) in zip(
            tasks, in_processes(self._one, tasks, sizes, jobs), strict=True
        ):
            results[task] = result
            memos.update(found)
            if asked is not None:
                kept = {"asked": asked, "answers": answers, "result": result_to_json(*result)}
                self.store.put(keys[task], kept)

    def _one(self, task: T) -> tuple[Result, str | None, str, dict[str, Any]]:
        """(result, what was asked, the answers, what was found out once) of one walk."""
        result, asked = self.trace.recorded(lambda: self.walk(task), self.path(task))
        found = dict(self.trace.memos(self._sent))
        self._sent.update(found)
        try:
            text = asked_to_json(asked)
            return result, text, self.trace.answers(asked_from_json(text)), found
        except UntraceableError:
            return result, None, "", found
