"""Regular expressions over raw text: weak evidence, for files that do not parse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from synth.records import Kind, Observation, Role
from synth.walk.syntax import Cited, line_at, line_index

_LANGUAGES = {
    ".pyx": "cython",
    ".pxd": "cython",
    ".pxi": "cython",
    ".rs": "rust",
    ".py": "python",
    ".pyi": "python",
    ".c": "c",
    ".h": "c",
}
_NAME = rb"[\"']([A-Za-z_][A-Za-z0-9_]{2,80})[\"']"
_READ = re.compile(
    rb"(?:getenv|secure_getenv|environ\s*\.\s*get|environ\s*\.\s*pop|env\s*::\s*var(?:_os)?|option_env!|env!)\s*\(\s*b?"
    + _NAME
    + rb"(?:\s*,\s*([^,()\n]{1,60}(?:\([^()\n]*\))?))?"
)
_SUBSCRIPT = re.compile(rb"environ\s*\[\s*" + _NAME + rb"\s*\](?!\s*=[^=])")
_MEMBER = re.compile(_NAME + rb"\s+(?:not\s+)?in\s+(?:os\s*\.\s*)?environ\b")
_WRITE = re.compile(
    rb"(?:environ\s*\[\s*" + _NAME + rb"\s*\]\s*=[^=]|(?:putenv|setenv|environ\s*\.\s*setdefault|env\s*::\s*set_var)"
    rb"\s*\(\s*" + _NAME + rb")"
)
_PROBE = re.compile(
    rb"\b(omp_get_max_threads|omp_get_num_procs|omp_get_thread_limit|cpu_count|sched_getaffinity|available_parallelism|"
    rb"num_cpus::get(?:_physical)?|hardware_concurrency)\s*\("
)
_POOL = re.compile(rb"\b(prange|parallel|ThreadPoolBuilder::new|thread::spawn)\s*\(([^\n]{0,200})")
_SIZE = re.compile(rb"num_threads\s*[=(]\s*([\w.]+(?:\([^()]*\))?)")
_COMMENT = re.compile(rb"^\s*(#|//|/\*|\*)")


def walk_text(source: bytes, file: str, role: Role) -> list[Observation]:
    """Observe a file by regular expressions; every observation has `method="text"`."""
    suffix = "." + file.rpartition(".")[2]
    cited = Cited(source, file, role, _LANGUAGES.get(suffix, "cpp" if suffix.startswith((".c", ".h")) else "text"))
    starts = line_index(source)
    found = [
        cited.observe(kind, name, (line, line), value=value, target=target)
        for kind, name, offset, value, target in _matches(source)
        for line in [line_at(starts, offset)]
        if not _commented(source, starts[line - 1])
    ]
    return [seen.model_copy(update={"method": "text"}) for seen in found]


def _commented(source: bytes, start: int) -> bool:
    return bool(_COMMENT.match(source[start : start + 200]))


def _matches(source: bytes) -> Iterator[tuple[Kind, str, int, str | None, str]]:
    for pattern in (_READ, _SUBSCRIPT, _MEMBER):
        for match in pattern.finditer(source):
            default = match[2].decode("utf-8", "replace").strip() if pattern is _READ and match[2] else None
            yield Kind.ENV_READ, match[1].decode(), match.start(), None if default == "None" else default, ""
    for match in _WRITE.finditer(source):
        yield Kind.ENV_WRITE, (match[1] or match[2]).decode(), match.start(), None, "process"
    for match in _PROBE.finditer(source):
        yield Kind.CPU_PROBE, match[1].decode(), match.start(), None, ""
    for match in _POOL.finditer(source):
        size = _SIZE.search(match[2])
        name = match[1].decode()
        if name in ("prange", "parallel") and size is None:
            continue
        yield Kind.POOL, name, match.start(), size[1].decode("utf-8", "replace") if size else None, "threads"
