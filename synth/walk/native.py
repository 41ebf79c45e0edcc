"""Native binaries of a release: which runtimes they link, which functions they import and offer, which names they hold.

All of it is weak evidence: a text in a binary that looks like a variable may be anything. It gains weight where the
binary can read variables at all, and a reader joins it with what the sources say.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from synth.records import Kind, Observation, Role, When
from synth.walk.words import about_pools, about_resources

BINARY = re.compile(r"\.(so|dylib|pyd|dll)(\.\d+)*$")
SYMBOLS = 400_000  # of one file
NAMES = 400  # texts of one file that are reported
SCANNED_BYTES = 400 * 1024 * 1024  # of the constants of one file
_MAX_NEEDED = 200
_ENTRY = struct.Struct("<IBBHQQ")  # a 64-bit symbol: name, info, other, section, value, size

_GETTERS = frozenset({"getenv", "secure_getenv", "__secure_getenv"})
_PROBES = {
    "sched_getaffinity": "affinity",
    "pthread_getaffinity_np": "affinity",
    "get_nprocs": "online cpus",
    "omp_get_max_threads": "threads that the OpenMP runtime would use",
    "omp_get_num_procs": "processors that the OpenMP runtime sees",
    "_ZNSt6thread20hardware_concurrencyEv": "logical cpus",
}
_POOLS = {
    "GOMP_parallel": "omp parallel",
    "GOMP_parallel_start": "omp parallel",
    "__kmpc_fork_call": "omp parallel",
    "omp_set_num_threads": "omp_set_num_threads",
    "pthread_create": "pthread_create",
    "sched_setaffinity": "sched_setaffinity",
    "pthread_setaffinity_np": "pthread_setaffinity_np",
}
_THREAD_START = re.compile(r"^_ZNSt6thread15_M_start_thread")
_TBB = re.compile(
    r"^_ZN3tbb\w*(task_arena|global_control|task_scheduler|create_coroutine|execute_and_wait|allocate_arena)"
)
_FORKS = frozenset({"pthread_atfork", "__register_atfork"})
_SETS = re.compile(r"^[A-Za-z][A-Za-z0-9_]*?_?[sS]et_?[nN]um_?[tT]hreads\w*$")
_GETS = re.compile(r"^[A-Za-z][A-Za-z0-9_]*?_?[gG]et_?([mM]ax_|[nN]um_?)[tT]hreads\w*$")

_RUN = re.compile(rb"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_WORD = (
    r"THREADS?|NTHREADS|NUM_THREADS|WORKERS?|CPUS?|CORES?|PROCS|PARALLELISM|CONCURRENCY|AFFINITY|SPIN|BLOCKTIME|PLACES|POLICY|SIZE|COUNT|"
    r"LIMIT|MEMORY|CACHE|STACK|BYTES|MB|LEVEL|TIMEOUT|ENABLED?|DISABLED?"
)
_GLUED = re.compile(rf"^({_WORD})(?=[A-Z])")
_WHOLE = re.compile(rf"^({_WORD})$")
_ENDS = re.compile(rf"(^|_)({_WORD})$")
# first words of constants; a variable begins with the name of who reads it
_PLAIN = re.compile(
    r"^(MAX|MIN|NUM|NUMBER|DEFAULT|BATCH|BUFFER|SINGLE|MULTI|DYNAMIC|STATIC|NESTED|PREFER\w*|WITHIN|ALLOW|ALL|PER|FORCE|NO|NOT|USE|"
    r"HAS|IS|SET|GET|CPU|GPU|THREAD\w*|MEMORY|CACHE|CHUNK|POOL|WORKER\w*|CORE|PARALLEL\w*|CONCURRENT|SELF|CLIENT|SERVER|LEGACY|RLIMIT|"
    r"TOTAL|LOCAL|GLOBAL|SHARED|PRIVATE|FIXED|AUTO|NEED|ENABLE|DISABLE|CAP|ICC|SC|MALLCTL|TARGET|INPUT|OUTPUT|READ|WRITE|DNN|STACK)$"
)
_DOTTED = re.compile(rb"(?<![\x20-\x7e])([a-z][a-z0-9_]{1,40}(?:\.[a-z0-9_]{2,60}){1,4})(?=\x00)")
_SUFFIX = re.compile(
    r"\.(h|hh|hpp|c|cc|cpp|cxx|cu|cuh|rs|py|pyx|so|json|proto|txt|md|inc|inl|s|o|a|dll|exe|html|xml|csv|ptx)$"
)
_CONTROL = re.compile(
    r"(^|_)(N?THREADS?|NTHR|THREADING|WORKERS?|N?CPUS?|N?CORES?|N?PROCS?|PARALLEL\w*|CONCURREN\w+|AFFINITY|PROC_BIND|SPIN\w*|"
    r"BLOCKTIME|WAIT_POLICY|NUMA|POOL_SIZE|MEM(ORY)?_(LIMIT|POOL|FRACTION|BUDGET)\w*|CACHE_(SIZE|CAPACITY|LIMIT)|BATCH_SIZE|"
    r"CHUNK_SIZE|BUFFER_SIZE|STACK_?SIZE|NESTED|DYNAMIC|SCHEDULE|MAX_ACTIVE_LEVELS|PLACES|CORETYPE|ARENA\w*)(_|$)"
)
_SPEAKS = re.compile(
    r"(^|_)(N?THREADS?|WORKERS?|N?CPUS?|CORES?|PARALLEL\w*|CONCURREN\w+|AFFINIT\w+|SPIN\w*|NUMA|MEM(ORY)?|CACHE|BATCH|CHUNK|BUFFER|"
    r"ARENA\w*|SHRINK\w*|PREPACKING|POOL\w*|BLOCK_BASE|ALLOCATORS?)(_|$)"
)
# parts of the names of constants that are never variables
_CONSTANT = re.compile(
    r"(^|_)(ERR|ERROR|ERRORS|STATUS|INVALID|UNSUPPORTED|FAILED|FAILURE|NOT|UNKNOWN|TYPE|ATTR|ATTRIBUTE|OPCODE|FLAG|FLAGS|"
    r"PROPERTY|EVENT|EXCEPTION|DEPRECATED|SUCCESS|MISMATCH|OUT|SYNTAX|TOKEN|TAG|EXT|KHR|NV|ARB)(_|$)"
)


@dataclass
class Binary:
    """What one binary says."""

    needed: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)  # text -> offset in the file
    keys: dict[str, int] = field(default_factory=dict)  # dotted text -> offset
    why: str = ""

    @property
    def reads(self) -> bool:
        """Whether the binary can read variables: it imports or carries a function for it."""
        return bool(_GETTERS & (self.imported | self.exported))

    @property
    def is_runtime(self) -> bool:
        """Whether others set thread counts through it, and Python does not import it."""
        modules = any(name.startswith("PyInit_") for name in self.exported)
        return not modules and any(_SETS.match(name) and not name.startswith("_Z") for name in self.exported)


def is_binary(path: str) -> bool:
    """Whether a file is a native library by its name."""
    return bool(BINARY.search(path.rpartition("/")[2]))


def read_binary(path: Path) -> Binary:
    """Read a native library; one that is damaged says what can be read, and why not more."""
    found = Binary()
    try:
        if path.stat().st_size == 0:
            return Binary(why="empty")
        with path.open("rb") as file, closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            if data[:4] != b"\x7fELF":
                found.why = "no ELF file: searched for names only"
                _search(data, 0, min(len(data), SCANNED_BYTES), found)
                return found
            _read_elf(ELFFile(file), data, found)
    except (
        OSError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        struct.error,
        AssertionError,
        ELFError,
    ) as error:
        found.why = f"{type(error).__name__}: {error}"[:200]
    except Exception as error:  # noqa: BLE001 - the parser of a hostile file may raise anything
        found.why = f"the binary could not be read: {type(error).__name__}"
    return found


def _read_elf(elf: Any, data: mmap.mmap, found: Binary) -> None:
    size = len(data)
    dynamic = elf.get_section_by_name(".dynamic")
    if dynamic is not None:
        for place, tag in enumerate(dynamic.iter_tags("DT_NEEDED")):
            if place >= _MAX_NEEDED:
                break
            found.needed.append(str(tag.needed)[:200])
    symbols, strings = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".dynstr")
    if symbols is not None and strings is not None and elf.elfclass == 64 and elf.little_endian:
        _symbols(data, _span(symbols, size), _span(strings, size), found)
    left = SCANNED_BYTES
    for name in (".rodata", ".rdata", ".data.rel.ro", ".data"):
        section = elf.get_section_by_name(name)
        if section is None or left <= 0 or section["sh_type"] == "SHT_NOBITS":
            continue
        start, end = _span(section, size)
        end = min(end, start + left)
        left -= end - start
        _search(data, start, end, found)


def _span(section: Any, size: int) -> tuple[int, int]:
    start = min(int(section["sh_offset"]), size)
    return start, min(start + int(section["sh_size"]), size)


def _symbols(data: mmap.mmap, table: tuple[int, int], strings: tuple[int, int], found: Binary) -> None:
    names = data[strings[0] : strings[1]]
    start, end = table
    end = min(end, start + SYMBOLS * _ENTRY.size)
    raw = data[start : end - (end - start) % _ENTRY.size]
    for name, _info, _other, section, _value, _size in _ENTRY.iter_unpack(raw):
        if not 0 < name < len(names):
            continue
        stop = names.find(b"\0", name, name + 400)
        if stop > name:
            text = names[name:stop].decode("ascii", "replace")
            (found.exported if section else found.imported).add(text.partition("@")[0])


def _search(data: mmap.mmap, start: int, end: int, found: Binary) -> None:
    for match in _RUN.finditer(data, start, end):
        if len(found.names) >= NAMES:
            break
        if match.end() - match.start() > 400 or data[match.start() - 1 : match.start()] in b"_0123456789":
            continue
        text, after = match[0].decode(), data[match.end() : match.end() + 1]
        if after == b"_":
            continue
        if after.islower() and not _ENDS.search(text):  # texts run into each other: the last capital begins the next
            text = text[:-1]
            if not _ENDS.search(text):
                continue
        for name in pieces(text):
            if name not in found.names and like_a_variable(name):
                found.names[name] = match.start()
    for match in _DOTTED.finditer(data, start, end):
        key = match[1].decode()
        if len(found.keys) >= NAMES:
            break
        last = key.rpartition(".")[2]
        if key not in found.keys and "._" not in key and _SPEAKS.search(last.upper()) and not _SUFFIX.search(key):
            found.keys[key] = match.start(1)


def like_a_variable(name: str) -> bool:
    """Whether a text is written and named as a variable that sizes or places something."""
    head = name.partition("_")[0]
    return bool(_CONTROL.search(name)) and not _CONSTANT.search(name) and len(head) > 1 and not _PLAIN.match(head)


def pieces(text: str) -> list[str]:
    """Names that stand in one run of capitals: texts that are not ended by a NUL run into each other.

    `A_NUM_THREADSB_SIZE` -> `A_NUM_THREADS`, `B_SIZE`.
    """
    out: list[str] = []
    current: list[str] = []
    parts = text.split("_")
    for place, part in enumerate(parts):
        glued = None if _WHOLE.match(part) else _GLUED.match(part)
        if glued and current and place + 1 < len(parts):
            out.append("_".join([*current, glued[1]]))
            current = [part[glued.end() :]]
        else:
            current.append(part)
    out.append("_".join(current))
    return [name for name in out if "_" in name and 4 < len(name) <= 80]


def holds_text(base: Path, file: str, text: str) -> bool:
    """Whether a file below a folder holds a text; links are not followed."""
    path = base / file
    try:
        if path.is_symlink() or not path.resolve().is_relative_to(base.resolve()) or not path.is_file():
            return False
        with path.open("rb") as opened, closing(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            return data.find(text.encode()) >= 0
    except (OSError, ValueError):
        return False


def walk_binary(path: Path, file: str, role: Role) -> tuple[list[Observation], str]:
    """Observations of one native library, and why not all of it was read."""
    binary = read_binary(path)
    found = [*_linked(binary, file, role), *_offered(binary, file, role)]
    # a runtime of its own file looks when it is loaded, one that is linked into something else when it is first used
    alone = role is Role.VENDORED or binary.is_runtime
    for name, offset in sorted(binary.names.items()) if binary.reads else []:
        detail = f"weak: text in a binary that can read variables, at offset {offset:#x}"
        seen = _see(Kind.ENV_READ, name, file, role, detail=detail)
        found.append(seen.model_copy(update={"when": When.START if alone else When.FIRST_USE}))
    heads = [key.partition(".")[0] for key in binary.keys]
    modules = set(re.split(r"[/.]", file))  # what is below these is a Python name, not a key
    for key, offset in sorted(binary.keys.items()):
        if key.partition(".")[0] not in modules and heads.count(key.partition(".")[0]) > 1:
            detail = f"weak: text in a binary that looks like a key, at offset {offset:#x}"
            found.append(_see(Kind.OPTION, key, file, role, detail=detail))
    return found, binary.why


def _see(  # noqa: PLR0913 - mirrors the record
    kind: Kind,
    name: str,
    file: str,
    role: Role,
    *,
    detail: str,
    text: str = "",
    target: str = "",
    value: str | None = None,
) -> Observation:
    text = text or name
    return Observation(
        kind=kind,
        name=name,
        file=file,
        line=1,
        end_line=1,
        text=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        when=When.UNKNOWN,
        role=role,
        value=value,
        target=target,
        method="text",
        language="binary",
        detail=detail,
    )


def _linked(binary: Binary, file: str, role: Role) -> Iterator[Observation]:
    """What the binary takes from others."""
    libraries = ", ".join(n for n in binary.needed if re.search(r"omp|blas|tbb|mkl|thread|rt\b|cuda|hwloc|numa", n))
    tail = f"; links {libraries}" if libraries else ""
    for symbol in sorted(binary.imported):
        if symbol in _PROBES:
            detail = f"weak: imported function, {_PROBES[symbol]}{tail}"
            name = "std::thread::hardware_concurrency" if symbol.startswith("_ZNSt6thread") else symbol
            yield _see(Kind.CPU_PROBE, name, file, role, detail=detail, text=symbol)
        elif symbol in _POOLS or _THREAD_START.match(symbol):
            name = _POOLS.get(symbol, "std::thread")
            yield _see(
                Kind.POOL, name, file, role, detail=f"weak: imported function{tail}", text=symbol, target="threads"
            )
        elif symbol in _FORKS:
            yield _see(Kind.FORK, "pthread_atfork", file, role, detail="weak: imported function", text=symbol)
    tbb = next((s for s in sorted(binary.imported) if _TBB.match(s)), None)
    if tbb is not None:
        yield _see(Kind.POOL, "tbb", file, role, detail=f"weak: imported function{tail}", text=tbb, target="threads")


def _offered(binary: Binary, file: str, role: Role) -> Iterator[Observation]:
    """Functions that set or report thread counts, for ctypes and other libraries."""
    for symbol in sorted(binary.exported):
        if len(symbol) > 60 or symbol.startswith("_Z"):
            continue
        kind = Kind.API_SET if _SETS.match(symbol) else Kind.API_GET if _GETS.match(symbol) else None
        if kind is not None and about_pools(symbol) and about_resources(symbol):
            yield _see(kind, symbol, file, role, detail="weak: exported function of a binary")
