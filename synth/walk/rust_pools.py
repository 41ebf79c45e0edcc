"""Pools, looks at the machine, idle waiting and fork handling in Rust."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.rust_index import HITS, RustFile, RustIndex, call_arguments, called, is_code, is_test, last_name
from synth.walk.syntax import CITED_LINES, Cited, lines_of, one_line, text_of

_PROBES: tuple[tuple[bytes, str, str], ...] = (
    (rb"\bavailable_parallelism\s*\(", "std::thread::available_parallelism", "cpus by affinity and cgroup quota"),
    (rb"\bnum_cpus\s*::\s*get_physical\s*\(", "num_cpus::get_physical", "physical cores"),
    (rb"\bnum_cpus\s*::\s*get\s*\(", "num_cpus::get", "logical cpus, affinity and cgroup quota on Linux"),
    (rb"\bcurrent_num_threads\s*\(", "rayon::current_num_threads", "threads of the current rayon pool"),
    (rb"\bsched_getaffinity\s*\(", "sched_getaffinity", "affinity"),
    (rb"\bcore_affinity\s*::\s*get_core_ids\s*\(", "core_affinity::get_core_ids", "affinity"),
    (rb"\b_SC_NPROCESSORS_ONLN\b", "sysconf(_SC_NPROCESSORS_ONLN)", "online cpus"),
    (rb"\b_SC_PHYS_PAGES\b", "sysconf(_SC_PHYS_PAGES)", "memory"),
    (rb"\bSystem\s*::\s*new(?:_all|_with_specifics)?\s*\(", "sysinfo::System", "memory and cpus"),
    (rb"\bcgroup_limits\s*\(", "sysinfo::cgroup_limits", "memory limit of the cgroup"),
)
_MACHINE_FILE = re.compile(
    rb"\"(/sys/fs/cgroup[^\"]*|/proc/(?:self/)?(?:cgroup|cpuinfo|meminfo|status)|/sys/devices/system/(?:cpu|node)[^\"]*)\""
)
_POOLS = re.compile(
    rb"\b(ThreadPoolBuilder\s*::\s*(?:new|default)|rayon\s*::\s*ThreadPoolBuilder\s*::\s*new|"
    rb"Builder\s*::\s*new_multi_thread|Runtime\s*::\s*new|thread\s*::\s*spawn|thread\s*::\s*scope|thread\s*::\s*Builder\s*::\s*new|"
    rb"ThreadPool\s*::\s*(?:new|with_name)|Pool\s*::\s*new|spawn_blocking|rayon\s*::\s*spawn(?:_fifo)?|rayon\s*::\s*join|rayon\s*::\s*scope)\s*\("
)
_GLOBAL = re.compile(rb"\.\s*(par_iter(?:_mut)?|into_par_iter|par_chunks(?:_mut)?|par_bridge|par_sort\w*)\s*\(")
_SIZES = frozenset({"num_threads", "worker_threads", "max_blocking_threads", "max_threads", "thread_count"})
_IDLE: tuple[tuple[bytes, str, str], ...] = (
    (rb"\bspin_loop\s*\(", "spin_loop", "spin"),
    (rb"\bthread\s*::\s*yield_now\s*\(", "thread::yield_now", "yield"),
    (rb"\bthread\s*::\s*park(?:_timeout)?\s*\(", "thread::park", "block"),
    (rb"\b(?:condvar|cvar|cond|cv)\w*\s*\.\s*wait(?:_while|_timeout\w*)?\s*\(", "Condvar::wait", "block"),
)
_FORKS: tuple[tuple[bytes, str, str], ...] = (
    (rb"\bpthread_atfork\s*\(", "pthread_atfork", ""),
    (rb"\blibc\s*::\s*fork\s*\(|\bunistd\s*::\s*fork\s*\(", "fork", ""),
    (rb"\bregister_at_fork\b", "os.register_at_fork", ""),
    (
        rb"\bprocess\s*::\s*id\s*\(\s*\)\s*(?:!=|==)|(?:!=|==)\s*(?:std\s*::\s*)?process\s*::\s*id\s*\(",
        "process::id",
        "compares the process id",
    ),
)
_AFFINITY = re.compile(rb"\b(sched_setaffinity|set_for_current|pthread_setaffinity_np|set_thread_affinity)\s*\(")
_LIMIT = re.compile(
    rb"\b(?:const|static)\s+([A-Z_][A-Z0-9_]*(?:THREAD|WORKER|CPUS|CONCURREN|POOL|BATCH|CHUNK|CACHE|BUFFER|MEMORY|PREFETCH)[A-Z0-9_]*)"
    rb"\s*:\s*([ui](?:8|16|32|64|size)|f32|f64)\s*=\s*([^;{}\n]{1,80});"
)


def walk_rust_pools(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    """Observations of pools, probes, idle waiting and forks in a file."""
    raw = file.raw
    if re.search(rb"[Pp]ool|Runtime|thread|tokio|rayon|spawn_blocking", raw):
        yield from _pools(index, file, cited)
    if b"par_" in raw:
        yield from _global(index, file, cited)
    for patterns, kind in ((_PROBES, Kind.CPU_PROBE), (_FORKS, Kind.FORK)):
        for pattern, name, detail in patterns:
            for node, around in _places(file, re.compile(pattern)):
                yield _see(index, file, cited, kind, name, node, around, detail=detail)
    for pattern, name, value in _IDLE:
        for node, around in _places(file, re.compile(pattern)):
            yield _see(index, file, cited, Kind.IDLE, name, node, around, value=value)
    for match in _MACHINE_FILE.finditer(raw):
        around = file.at(match.start(), match.end())
        if around and "comment" not in around[-1].type and not is_test(around):
            name = match[1].decode("utf-8", "replace")
            yield _see(
                index, file, cited, Kind.CPU_PROBE, name, around[-1], around, detail="file that describes the machine"
            )
    for match in _AFFINITY.finditer(raw):
        around = file.at(match.start(), match.start() + 1)
        if is_code(around) and not is_test(around):
            detail = "binds a thread to cpus"
            yield _see(
                index, file, cited, Kind.POOL, match[1].decode(), around[-1], around, target="threads", detail=detail
            )
    yield from _constants(index, file, cited)


def _places(file: RustFile, pattern: re.Pattern[bytes]) -> Iterator[tuple[Node, list[Node]]]:
    for place, match in enumerate(pattern.finditer(file.raw)):
        if place > HITS:
            return
        around = file.at(match.start(), match.start() + 1)
        if is_code(around) and not is_test(around) and not any(n.type == "use_declaration" for n in around):
            yield around[-1], around


def _see(  # noqa: PLR0913 - it mirrors the record
    index: RustIndex,
    file: RustFile,
    cited: Cited,
    kind: Kind,
    name: str,
    node: Node,
    around: list[Node],
    *,
    value: str | None = None,
    target: str = "",
    detail: str = "",
) -> Observation:
    return cited.observe(
        kind,
        name,
        statement_lines(node, around),
        function=index.place_name(file, around),
        when=index.when(file, around),
        value=value,
        target=target,
        detail=detail,
    )


def statement_lines(node: Node, around: list[Node]) -> tuple[int, int]:
    """Lines of the simple statement around a node."""
    own = lines_of(node)
    best = own
    for parent in reversed(around):
        if parent.type in ("block", "function_item", "source_file", "declaration_list", "match_block"):
            break
        start, end = lines_of(parent)
        if end - start < CITED_LINES:
            best = (start, end)
        else:
            break
    return best if best[1] - best[0] < CITED_LINES else (own[0], own[0] + CITED_LINES - 1)


def _pools(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    for place, match in enumerate(_POOLS.finditer(file.raw)):
        if place > HITS:
            return
        around = file.at(match.start(), match.start() + 1)
        if not is_code(around) or is_test(around):
            continue
        name = re.sub(r"\s+", "", match[1].decode())
        call, sizes = _built(around)
        if call is None:
            continue
        if name.startswith(("Pool::", "ThreadPool::")) and not _thread_pool(name, call):
            continue
        if name == "Runtime::new" and b"tokio" not in file.raw:
            continue
        value, detail = _size(index, file, name, call, sizes, around)
        label = {"Builder::new_multi_thread": "tokio::runtime::Builder", "Runtime::new": "tokio::runtime::Runtime"}.get(
            name, name
        )
        label = re.sub(r"^(rayon::)?ThreadPoolBuilder::\w+$", "rayon::ThreadPoolBuilder", label)
        label = re.sub(r"^thread::", "std::thread::", label)
        yield _see(index, file, cited, Kind.POOL, label, call, around, value=value, target="threads", detail=detail)


def _thread_pool(name: str, call: Node) -> bool:
    arguments = call_arguments(call)
    return name.startswith("ThreadPool::") and len(arguments) <= 2


def _built(around: list[Node]) -> tuple[Node | None, dict[str, str]]:
    """The whole chain of builder calls around a constructor, and the sizes that are set in it."""
    place = next((i for i in range(len(around) - 1, -1, -1) if around[i].type == "call_expression"), -1)
    if place < 0:
        return None, {}
    whole, sizes = around[place], {}
    for parent in reversed(around[:place]):
        if parent.type == "call_expression":
            name = last_name(called(parent))
            function = parent.child_by_field_name("function")
            if function is None or not (function.start_byte <= whole.start_byte < function.end_byte):
                break
            arguments = call_arguments(parent)
            if name in _SIZES and arguments:
                sizes[name] = one_line(text_of(arguments[0]))
            whole = parent
        elif parent.type not in ("field_expression", "try_expression", "await_expression", "generic_function"):
            break
    return whole, sizes


def _size(
    index: RustIndex, file: RustFile, name: str, call: Node, sizes: dict[str, str], around: list[Node]
) -> tuple[str | None, str]:
    if sizes:
        main = next((k for k in ("num_threads", "worker_threads", "max_threads", "thread_count") if k in sizes), "")
        rest = "; ".join(f"{k}({index.resolved(v, file.path)})" for k, v in sizes.items() if k != main)
        return (index.resolved(sizes[main], file.path) if main else None), rest
    if "ThreadPoolBuilder" in name:
        later = _later_size(file, around)
        if later:
            return index.resolved(later, file.path), ""
        return None, "size not given: RAYON_NUM_THREADS, else the cpus that the process may use"
    if "new_multi_thread" in name or name == "Runtime::new":
        later = _later_size(file, around)
        if later:
            return index.resolved(later, file.path), ""
        return None, "size not given: TOKIO_WORKER_THREADS, else the cpus that the process may use"
    if name == "spawn_blocking":
        return None, "runs on the blocking pool of the tokio runtime"
    if name.startswith("rayon::"):
        return None, "runs on the current rayon pool"
    if name.startswith("ThreadPool::"):
        arguments = call_arguments(call)
        return (one_line(text_of(arguments[-1])) if arguments else None), ""
    loop = next(
        (
            n
            for n in reversed(around)
            if n.type in ("for_expression", "while_expression", "loop_expression", "function_item")
        ),
        None,
    )
    if loop is not None and loop.type == "for_expression":
        source = text_of(loop.child_by_field_name("value"))
        bound = re.fullmatch(r"\(?\s*0\s*\.\.\s*(.+?)\)?", source)
        return index.resolved(bound[1] if bound else one_line(source), file.path), "once for each turn of a loop"
    return "1", ""


def _later_size(file: RustFile, around: list[Node]) -> str | None:
    """`let b = Builder::new(); b.worker_threads(n);`."""
    holder = next((n for n in reversed(around) if n.type == "let_declaration"), None)
    block = next((n for n in reversed(around) if n.type == "block"), None)
    if holder is None or block is None:
        return None
    text = file.raw[holder.end_byte : min(block.end_byte, holder.end_byte + 4_000)].decode("utf-8", "replace")
    match = re.search(r"\.\s*(?:num_threads|worker_threads)\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", text)
    return one_line(match[1]) if match else None


def _global(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    """One observation for each function that runs on the current rayon pool."""
    seen: set[str] = set()
    for node, around in _places(file, _GLOBAL):
        function = index.place_name(file, around)
        if function in seen or len(seen) > 20:
            continue
        seen.add(function)
        detail = "runs on the current rayon pool; the global one is made at first use"
        yield _see(
            index, file, cited, Kind.POOL, "rayon parallel iterator", node, around, target="threads", detail=detail
        )


def _constants(index: RustIndex, file: RustFile, cited: Cited) -> Iterator[Observation]:
    for match in _LIMIT.finditer(file.raw):
        around = file.at(match.start(), match.start() + 1)
        if is_code(around) and not is_test(around):
            line = file.raw.count(b"\n", 0, match.start()) + 1
            value = index.resolved(one_line(match[3].decode("utf-8", "replace")), file.path)
            yield cited.observe(
                Kind.CONSTANT, match[1].decode(), (line, line), when=When.BUILD, value=value, detail="constant"
            )
