"""The Cython walker: the Python walkers over the source written as Python, and what Cython has of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from synth.records import Kind, Observation, Role, When
from synth.walk.syntax import Cited, line_at, line_index, one_line

__all__ = ["recited", "walk_cython"]

HITS = 2_000
_PARALLEL = re.compile(rb"(?<![\w.])(?:cython\s*\.\s*parallel\s*\.\s*|parallel\s*\.\s*)?(prange|parallel)\s*\(")
_OMP = re.compile(rb"\b(?:openmp\s*\.\s*)?(omp_[a-z_]+)\s*\(([^()\n]{0,120}(?:\([^()\n]*\))?[^()\n]{0,60})\)")
_PROBES = {
    "omp_get_max_threads": "threads that the OpenMP runtime would use",
    "omp_get_num_procs": "processors that the OpenMP runtime sees",
    "omp_get_thread_limit": "thread limit of the OpenMP runtime",
    "omp_get_num_threads": "threads of the current OpenMP team",
}
_GETENV = re.compile(rb"(?<![\w.])(?:libc\s*\.\s*stdlib\s*\.\s*)?getenv\s*\(\s*b?[\"'](\w+)[\"']\s*\)")
_WRITE = re.compile(rb"(?<![\w.])setenv\s*\(\s*b?[\"'](\w+)[\"']\s*,\s*b?[\"']?([^,\"')]*)[\"']?\s*,\s*(\w+)\s*\)")
_FUNCTION = re.compile(
    rb"^([ \t]*)(?:(?:cdef|cpdef|def|async\s+def)\b[^\n=]*?\b([A-Za-z_]\w*)\s*\(|(?:cdef\s+)?class\s+(\w+))",
    re.MULTILINE,
)
_COMMENT = re.compile(rb"^[^\n\"']*#")
_SIZE = re.compile(r"\bnum_threads\s*=\s*((?:[^(),]|\((?:[^()]|\([^()]*\))*\))+)")
_SCHEDULE = re.compile(r"\bschedule\s*=\s*[\"'](\w+)[\"']")


def recited(found: list[Observation], source: bytes, file: str, role: Role) -> list[Observation]:
    """Observations of the source written as Python, with the lines of the Cython source."""
    cited = Cited(source, file, role, "cython")
    out: list[Observation] = []
    for seen in found:
        text, digest = cited.span(seen.line, seen.end_line)
        out.append(seen.model_copy(update={"text": text, "sha256": digest, "language": "cython"}))
    return out


def walk_cython(source: bytes, file: str, role: Role) -> list[Observation]:
    """Observe what only Cython has: parallel loops, OpenMP calls and `getenv` of the C library."""
    if not re.search(rb"prange|parallel|omp_|getenv|setenv", source):
        return []
    places = _Places(source)
    cited = Cited(source, file, role, "cython")
    found = [*_loops(source, cited, places), *_openmp(source, cited, places), *_environment(source, cited, places)]
    return sorted(found, key=lambda seen: (seen.line, seen.end_line, seen.kind, seen.name))


class _Places:
    """Which line and function an offset stands in."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = line_index(source)
        self.owners = [
            (line_at(self.starts, m.start()), len(m[1].expandtabs()), (m[2] or m[3]).decode())
            for m in _FUNCTION.finditer(source)
        ]
        self.strings = _docstrings(source)

    def line(self, offset: int) -> int:
        return line_at(self.starts, offset)

    def code(self, offset: int) -> bool:
        start = self.starts[self.line(offset) - 1]
        if _COMMENT.match(self.source[start:offset]):
            return False
        return not any(a <= offset < b for a, b in self.strings)

    def function(self, offset: int) -> str:
        line = self.line(offset)
        start = self.starts[line - 1]
        body = self.source[start : start + 400]
        width = len(body[: len(body) - len(body.lstrip(b" \t"))].expandtabs())
        names: list[str] = []
        for at, indent, name in reversed(self.owners):
            if at < line and indent < width:
                names.insert(0, name)
                width = indent
                if indent == 0:
                    break
        return ".".join(names)


def _docstrings(source: bytes) -> list[tuple[int, int]]:
    return [m.span() for m in re.finditer(rb"\"\"\".*?\"\"\"|'''.*?'''", source, re.DOTALL)]


def _when(function: str) -> When:
    return When.CALL if function else When.IMPORT


def _loops(source: bytes, cited: Cited, places: _Places) -> Iterator[Observation]:
    seen: set[tuple[str, str]] = set()
    for count, match in enumerate(_PARALLEL.finditer(source)):
        if count > HITS:
            return
        if not places.code(match.start()):
            continue
        arguments = _arguments(source, match.end())
        size = _SIZE.search(arguments)
        function = places.function(match.start())
        name = match[1].decode()
        if size is None and name == "prange" and any(f == function for f, _ in seen):
            continue  # it shares the team of the parallel block around
        value = one_line(size[1]) if size else None
        if (function, value or "") in seen:
            continue
        seen.add((function, value or ""))
        first = places.line(match.start())
        last = first + arguments.count("\n")
        schedule = _SCHEDULE.search(arguments)
        parts = ["" if size else "size from the OpenMP runtime", f"schedule {schedule[1]}" if schedule else ""]
        yield cited.observe(
            Kind.POOL,
            f"cython.parallel.{name}",
            (first, last),
            function=function,
            when=_when(function),
            value=value,
            target="threads",
            detail="; ".join(part for part in parts if part),
        )


def _arguments(source: bytes, start: int) -> str:
    depth, end = 1, start
    limit = min(len(source), start + 4_000)
    while end < limit and depth:
        depth += {40: 1, 41: -1}.get(source[end], 0)
        end += 1
    return source[start : end - 1].decode("utf-8", "replace")


def _openmp(source: bytes, cited: Cited, places: _Places) -> Iterator[Observation]:
    for count, match in enumerate(_OMP.finditer(source)):
        if count > HITS:
            return
        name = match[1].decode()
        setter = re.fullmatch(r"omp_set_(num_threads|dynamic|nested|max_active_levels|schedule)", name)
        if (name not in _PROBES and not setter) or not places.code(match.start()):
            continue
        line, function = places.line(match.start()), places.function(match.start())
        start = places.starts[line - 1]
        if re.match(rb"\s*(?:cdef\s+)?(?:extern\s+)?(?:int|void|bint|double)\s+omp_", source[start : start + 80]):
            continue  # a declaration
        if setter:
            value = one_line(match[2].decode("utf-8", "replace"))
            detail = (
                "sets the size of a runtime's pool"
                if setter[1] == "num_threads"
                else "sets how the runtime makes teams"
            )
            yield cited.observe(
                Kind.POOL,
                name,
                (line, line),
                function=function,
                when=_when(function),
                value=value,
                target="threads",
                detail=detail,
            )
        else:
            yield cited.observe(
                Kind.CPU_PROBE, name, (line, line), function=function, when=_when(function), detail=_PROBES[name]
            )


def _environment(source: bytes, cited: Cited, places: _Places) -> Iterator[Observation]:
    for match in _GETENV.finditer(source):
        if places.code(match.start()):
            line, function = places.line(match.start()), places.function(match.start())
            yield cited.observe(Kind.ENV_READ, match[1].decode(), (line, line), function=function, when=_when(function))
    for match in _WRITE.finditer(source):
        if places.code(match.start()):
            line, function = places.line(match.start()), places.function(match.start())
            yield cited.observe(
                Kind.ENV_WRITE,
                match[1].decode(),
                (line, line),
                function=function,
                when=_when(function),
                value=match[2].decode("utf-8", "replace"),
                target="process",
                unless_set=match[3] == b"0",
            )
