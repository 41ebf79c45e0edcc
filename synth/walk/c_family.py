"""The C and C++ walker: from one file's tree to observations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from tree_sitter import Node

from synth.records import Kind, Observation, Role, When
from synth.walk.c_bindings import BINDERS, Bindings, bound_method, method
from synth.walk.c_env import walk_c_environment
from synth.walk.c_index import (
    C_SUFFIXES,
    DEEP,
    CFile,
    CIndex,
    call_arguments,
    called,
    function_name,
    language_of,
    last_name,
)
from synth.walk.c_settings import walk_settings
from synth.walk.syntax import CITED_LINES, PARSE_SECONDS, Cited, brief, lines_of, one_line, text_of
from synth.walk.words import about_pools

__all__ = ["C_SUFFIXES", "CIndex", "walk_c"]

_PROBES: dict[str, str] = {
    "sched_getaffinity": "affinity",
    "pthread_getaffinity_np": "affinity",
    "omp_get_num_procs": "processors that the OpenMP runtime sees",
    "omp_get_max_threads": "threads that the OpenMP runtime would use",
    "omp_get_thread_limit": "thread limit of the OpenMP runtime",
    "hardware_concurrency": "logical cpus",
    "get_nprocs": "online cpus",
    "get_nprocs_conf": "configured cpus",
    "GetSystemInfo": "logical cpus",
    "GetActiveProcessorCount": "logical cpus",
    "max_concurrency": "concurrency of the TBB arena",
    "numa_num_configured_nodes": "NUMA nodes",
    "cudaGetDeviceCount": "GPUs",
}
_SYSCONF = {
    "_SC_NPROCESSORS_ONLN": "online cpus",
    "_SC_NPROCESSORS_CONF": "configured cpus",
    "_SC_PHYS_PAGES": "memory",
    "_SC_AVPHYS_PAGES": "memory",
}
_AFFINITY = frozenset(
    {"sched_setaffinity", "pthread_setaffinity_np", "SetThreadAffinityMask", "hwloc_set_cpubind", "numa_run_on_node"}
)
_MACHINE_FILE = re.compile(
    r"\"(/sys/fs/cgroup[^\" ]*|[\w/]*(?:cpu\.max|cpu\.cfs_quota_us|memory\.max|memory\.limit_in_bytes)|"
    r"/proc/(?:self/)?(?:cgroup|cpuinfo|meminfo|status)|/sys/devices/system/(?:cpu|node)[^\" ]*)\""
)
# calls that set the size of a threading runtime's pool
_SETTERS = re.compile(
    r"^omp_set_(num_threads|dynamic|max_active_levels|nested)$|^\w+_set_num_threads(_local)?$|^\w+_Set_Num_Threads\w*$"
)
_BLOCKING = frozenset(
    {"pthread_cond_wait", "pthread_cond_timedwait", "sem_wait", "SleepConditionVariableCS", "WaitForSingleObject"}
)
_YIELDING = frozenset({"sched_yield", "pthread_yield", "SwitchToThread"})
_SLEEPING = frozenset({"nanosleep", "usleep", "sleep_for", "clock_nanosleep"})
_SPINNING = re.compile(r"^(_mm_pause|__builtin_ia32_pause|_?YieldProcessor|cpu_relax|__yield|CpuRelax|cpu_pause)$")
_CONDITION = re.compile(r"cv|cond", re.IGNORECASE)
_THREAD_TYPE = re.compile(r"\bstd::j?thread\b(?!::)")
_POOL_TYPE = re.compile(r"(^|[:<\s])(\w*[Tt]hread_?[Pp]ool\w*)\b")
_SETS = re.compile(r"^_*(set|Set)|_set_(num_)?threads")
_GETS = re.compile(r"^_*(get|Get)|(Count|_count)$")
_LIMIT = re.compile(r"THREAD|WORKER|CPUS|PROCS|CORES|MAX_JOBS|POOL_SIZE|SPIN|BLOCK_?TIME", re.IGNORECASE)
_NUMBER = re.compile(r"^\(?-?\s*(0x[0-9a-fA-F]+|\d+)\s*([uUlL]*|\*\s*\d+|<<\s*\d+)\)?$")
_MAKING = frozenset({"init_declarator", "function_declarator"})
_LOOPS = frozenset({"for_statement", "while_statement", "do_statement", "for_range_loop"})


@dataclass
class CWalk:
    """What the walkers of one C or C++ file share."""

    file: CFile
    cited: Cited
    index: CIndex
    threads: dict[str, bool] = field(default_factory=dict)  # which variables hold threads

    def function(self, node: Node) -> str:
        """Name of the function around a node."""
        return function_name(self.file.function(node))

    def when(self, node: Node) -> When:
        """When the code at a node runs."""
        if self.file.function(node) is None:
            return When.IMPORT
        for parent in islice(self.file.tree.ancestors(node), DEEP):
            if parent.type == "declaration" and re.match(
                r"\s*(static|thread_local)\b", self.file.tree.head(parent, 40)
            ):
                return When.FIRST_USE
            if parent.type == "function_definition":
                break
        return self.index.when(self.function(node))

    def see(  # noqa: PLR0913 - mirrors the record
        self,
        kind: Kind,
        name: str,
        node: Node,
        *,
        when: When | None = None,
        value: str | None = None,
        value_type: str | None = None,
        target: str = "",
        unless_set: bool = False,
        detail: str = "",
    ) -> Observation:
        """An observation at the statement around a node."""
        return self.cited.observe(
            kind,
            name,
            self.lines(node),
            function=self.function(node),
            when=self.when(node) if when is None else when,
            value=value,
            value_type=value_type,
            target=target,
            unless_set=unless_set,
            detail=detail,
        )

    def lines(self, node: Node) -> tuple[int, int]:
        """Lines of the simple statement around a node."""
        own = lines_of(node)
        for parent in islice(self.file.tree.ancestors(node), DEEP):
            if parent.type in ("declaration", "expression_statement", "return_statement", "field_declaration"):
                start, end = lines_of(parent)
                return (start, end) if end - start < CITED_LINES else own
            if parent.type in ("compound_statement", "function_definition", "translation_unit"):
                break
        return own if own[1] - own[0] < CITED_LINES else (own[0], own[0] + CITED_LINES - 1)


def walk_c(
    source: bytes,
    file: str,
    role: Role,
    language: Literal["c", "cpp"] | None = None,
    *,
    index: CIndex | None = None,
    seconds: float = PARSE_SECONDS,
) -> list[Observation]:
    """Observe one C or C++ file.

    Args:
        source: raw bytes.
        file: path relative to the release's root.
        role: role of the file.
        language: grammar to parse with; by the file's name if not given.
        index: cross-file facts; of this file alone if not given.
        seconds: parse limit.

    Raises:
        ParseTimeoutError: the file took too long to parse.
    """
    kind = language or language_of(file, source)
    facts = index if index is not None else CIndex.build({file: source})
    settings = walk_settings(source, file, role, kind, facts.settings)
    if not facts.worth_parsing(source):
        return settings
    walk = CWalk(facts.file(file, source, kind, seconds=seconds), Cited(source, file, role, kind), facts)
    found = [*settings, *walk_c_environment(walk.file, facts, walk.see)]
    pragmas: set[str] = set()
    bound = Bindings.of(walk.cited.raw, file)
    for node in walk.file.tree.nodes:
        if node.type == "call_expression":
            found.extend(_call(walk, node, bound))
        elif node.type == "preproc_call":
            found.extend(_pragma(walk, node, pragmas))
        elif node.type in ("declaration", "field_declaration"):
            found.extend(_declaration(walk, node))
        elif node.type == "new_expression":
            found.extend(_new(walk, node))
        elif node.type == "initializer_list":
            found.extend(method(walk, node, bound))
        elif node.type == "function_definition":
            found.extend(_exported(walk, node))
        elif node.type == "preproc_def":
            found.extend(_constant(walk, node))
        elif node.type in ("while_statement", "gnu_asm_expression"):
            found.extend(_spin(walk, node))
        elif node.type == "string_literal":
            found.extend(_machine_file(walk, node))
        elif node.type == "binary_expression" and "getpid" in walk.file.tree.head(node, 200):
            found.append(walk.see(Kind.FORK, "getpid", node, detail="compares the process id"))
    return sorted(found, key=lambda seen: (seen.line, seen.end_line, seen.kind, seen.name))


# calls


def _call(walk: CWalk, node: Node, bound: Bindings) -> Iterator[Observation]:
    name = called(node)
    last = last_name(name)
    arguments = call_arguments(node)
    if last in _PROBES:
        yield walk.see(Kind.CPU_PROBE, name if "::" in name else last, node, detail=_PROBES[last])
    elif last == "sysconf" and arguments and text_of(arguments[0]) in _SYSCONF:
        constant = text_of(arguments[0])
        yield walk.see(Kind.CPU_PROBE, f"sysconf({constant})", node, detail=_SYSCONF[constant])
    elif last == "pthread_create":
        value, how = _bound(walk, node)
        runs = f"runs {brief(arguments[2], 60)}" if len(arguments) > 2 else ""
        detail = "; ".join(part for part in (runs, how) if part)
        yield walk.see(Kind.POOL, "pthread_create", node, value=value, target="threads", detail=detail)
    elif _SETTERS.match(last):
        value = brief(arguments[-1]) if arguments else None
        yield walk.see(Kind.POOL, last, node, value=value, target="threads", detail="sets the size of a runtime's pool")
    elif last == "pthread_atfork":
        yield walk.see(Kind.FORK, "pthread_atfork", node)
    elif last == "fork" and not arguments and name in ("fork", "::fork"):
        yield walk.see(Kind.FORK, "fork", node)
    elif last in ("emplace_back", "push_back") and _holds_threads(walk, name):
        value, how = _bound(walk, node)
        yield walk.see(Kind.POOL, "std::thread", node, value=value, target="threads", detail=how)
    elif name == "std::async":
        yield walk.see(Kind.POOL, name, node, target="threads")
    elif last in ("make_unique", "make_shared") and _POOL_TYPE.search(text_of(node.child_by_field_name("function"))):
        yield _pool_made(walk, node, text_of(node.child_by_field_name("function")), arguments)
    elif last in BINDERS and arguments:
        yield from bound_method(walk, node, arguments, bound)
    elif last in _AFFINITY:
        yield walk.see(Kind.POOL, last, node, target="threads", detail="binds a thread to cpus")
    else:
        yield from _idle(walk, node, name, last)


def _idle(walk: CWalk, node: Node, name: str, last: str) -> Iterator[Observation]:
    if last in _BLOCKING:
        yield walk.see(Kind.IDLE, last, node, value="block")
    elif last in ("wait", "wait_for", "wait_until") and _CONDITION.search(re.split(r"\.|->", name)[0]):
        if "condition_variable" in walk.cited.raw[:0].decode() or re.search(r"\.|->", name):
            yield walk.see(Kind.IDLE, "condition_variable::wait", node, value="block")
    elif last in _YIELDING or name.endswith("this_thread::yield"):
        yield walk.see(Kind.IDLE, name if "::" in name else last, node, value="yield")
    elif last in _SLEEPING and _in_loop(walk, node):
        yield walk.see(Kind.IDLE, last, node, value="yield", detail="sleeps in a loop")
    elif _SPINNING.match(last):
        yield walk.see(Kind.IDLE, last, node, value="spin")


def _machine_file(walk: CWalk, node: Node) -> Iterator[Observation]:
    if node.end_byte - node.start_byte > 120 or not (match := _MACHINE_FILE.fullmatch(text_of(node))):
        return
    yield walk.see(Kind.CPU_PROBE, match[1], node, detail="file that describes the machine")


def _in_loop(walk: CWalk, node: Node) -> bool:
    for parent in walk.file.tree.ancestors(node):
        if parent.type in _LOOPS:
            return True
        if parent.type == "function_definition":
            return False
    return False


def _bound(walk: CWalk, node: Node) -> tuple[str | None, str]:
    """How often the loop around a node runs: the size of a pool that is made one by one."""
    for parent in walk.file.tree.ancestors(node):
        if parent.type == "for_statement":
            condition = parent.child_by_field_name("condition")
            right = condition.child_by_field_name("right") if condition is not None else None
            if right is not None:
                return brief(right), f"once for each `{brief(condition, 80)}`"
        if parent.type in ("while_statement", "for_range_loop"):
            condition = parent.child_by_field_name("condition") or parent.child_by_field_name("right")
            return brief(condition), "in a loop"
        if parent.type == "function_definition":
            break
    return "1", ""


def _holds_threads(walk: CWalk, name: str) -> bool:
    variable = re.split(r"\.|->", name)[-2] if re.search(r"\.|->", name) else ""
    variable = variable.strip("() ")
    if not re.fullmatch(r"\w+", variable):
        return False
    if variable not in walk.threads:
        walk.threads[variable] = _thread_list(walk.cited.raw, variable)
    return walk.threads[variable]


def _thread_list(raw: bytes, variable: str) -> bool:
    pattern = rf"(vector|deque|list|array)\s*<\s*std::j?thread\b[^;]*?>\s*&?\s*{re.escape(variable)}\b"
    if re.search(pattern.encode(), raw):
        return True
    return bool(re.fullmatch(r"(m_|_)?(threads?|workers?)(_list|s)?_?", variable)) and b"std::thread" in raw


def _pragma(walk: CWalk, node: Node, seen: set[str]) -> Iterator[Observation]:
    text = text_of(node).replace("\\\n", " ")
    match = re.match(r"\s*#\s*pragma\s+omp\s+(.*)", text, re.DOTALL)
    if not match or not re.search(r"\bparallel\b", match[1]):
        return
    size = re.search(r"\bnum_threads\s*\(((?:[^()]|\([^()]*\))*)\)", match[1])
    key = f"{walk.function(node)}|{size[1] if size else ''}"
    if key in seen:
        return  # one pool serves all regions of a function
    seen.add(key)
    detail = "" if size else "size from the OpenMP runtime"
    yield walk.see(
        Kind.POOL, "omp parallel", node, value=one_line(size[1]) if size else None, target="threads", detail=detail
    )


def _declaration(walk: CWalk, node: Node) -> Iterator[Observation]:
    kind = text_of(node.child_by_field_name("type"))
    declarator = node.child_by_field_name("declarator")
    if declarator is None:
        return
    arguments = _initial(node)
    if re.search(r"\b(task_arena|global_control|task_scheduler_init)\b", kind):
        value = brief(arguments[-1]) if arguments else None
        yield walk.see(Kind.POOL, one_line(kind), node, value=value, target="threads", detail="limits a TBB arena")
    elif _THREAD_TYPE.search(kind) and node.type == "declaration" and arguments:
        container = "<" in kind
        value = brief(arguments[0]) if container else "1"
        yield walk.see(Kind.POOL, "std::thread", node, value=value, target="threads")
    elif _POOL_TYPE.search(kind) and "<" not in kind and arguments and declarator.type in _MAKING:
        yield _pool_made(walk, node, kind, arguments)
    if node.type == "declaration" and re.search(r"\bconst(expr)?\b", walk.file.tree.head(node, 80)):
        yield from _constant_declaration(walk, node)


def _initial(node: Node) -> list[Node]:
    """Constructor arguments of a declaration."""
    declarator = node.child_by_field_name("declarator")
    if declarator is None:
        return []
    value = declarator.child_by_field_name("value")
    if declarator.type == "function_declarator":  # `T x(n)` looks like a function to the parser
        holder = declarator.child_by_field_name("parameters")
        return list(holder.named_children) if holder is not None else []
    if value is not None and value.type in ("argument_list", "initializer_list"):
        return list(value.named_children)
    return []


def _pool_made(walk: CWalk, node: Node, kind: str, arguments: list[Node]) -> Observation:
    match = _POOL_TYPE.search(kind)
    name = match[2] if match else one_line(kind)
    size = next((a for a in arguments if about_pools(text_of(a)) or a.type == "number_literal"), None)
    value = brief(size if size is not None else arguments[0]) if arguments else None
    return walk.see(Kind.POOL, name, node, value=value, target="threads", detail="" if arguments else "size not given")


def _new(walk: CWalk, node: Node) -> Iterator[Observation]:
    kind = text_of(node.child_by_field_name("type"))
    arguments = call_arguments(node)
    if _THREAD_TYPE.search(kind):
        value, how = _bound(walk, node)
        yield walk.see(Kind.POOL, "std::thread", node, value=value, target="threads", detail=how)
    elif _POOL_TYPE.search(kind):
        yield _pool_made(walk, node, kind, arguments)


def _spin(walk: CWalk, node: Node) -> Iterator[Observation]:
    if node.type == "gnu_asm_expression":
        if re.search(r"\"\s*(pause|yield|rep;?\s*nop)", text_of(node)):
            yield walk.see(Kind.IDLE, "asm pause", node, value="spin")
        return
    body = node.child_by_field_name("body")
    empty = body is not None and body.type in ("expression_statement", "compound_statement")
    if empty and body is not None and not body.named_children:
        condition = text_of(node.child_by_field_name("condition"))
        if re.search(r"\.load\(|->load\(|atomic|test_and_set|volatile|compare_exchange", condition):
            yield walk.see(Kind.IDLE, "busy loop", node, value="spin", detail=condition)


# what other native code can call


def _exported(walk: CWalk, node: Node) -> Iterator[Observation]:
    """Native functions that set or report thread counts: seen by ctypes, cffi and other libraries."""
    name = function_name(node)
    last = last_name(name)
    if (
        "::" in name
        or not re.search(r"threads?|Threads?", last)
        or re.search(r"\bstatic\b", walk.file.tree.head(node, 80))
    ):
        return
    if last in walk.index.methods or _inside_class(walk, node):
        return
    body = node.child_by_field_name("body")
    start = node.start_point[0] + 1
    end = min(body.start_point[0] + 1 if body is not None else start, start + 5)
    kind = Kind.API_SET if _SETS.match(last) else Kind.API_GET if _GETS.search(last) else None
    if kind is not None:
        yield walk.cited.observe(
            kind,
            last,
            (start, end),
            function=last,
            when=When.CALL,
            detail="weak: native function, not bound to Python here",
        )


def _inside_class(walk: CWalk, node: Node) -> bool:
    return any(p.type in ("class_specifier", "struct_specifier") for p in walk.file.tree.ancestors(node))


# constants


def _constant(walk: CWalk, node: Node) -> Iterator[Observation]:
    name = text_of(node.child_by_field_name("name"))
    value = text_of(node.child_by_field_name("value")).split("//")[0].split("/*")[0].strip()
    if _LIMIT.search(name) and _NUMBER.match(value):
        yield walk.cited.observe(Kind.CONSTANT, name, lines_of(node), when=When.BUILD, value=value, detail="macro")


def _constant_declaration(walk: CWalk, node: Node) -> Iterator[Observation]:
    declarator = node.child_by_field_name("declarator")
    value = declarator.child_by_field_name("value") if declarator is not None else None
    if declarator is None or value is None or declarator.type != "init_declarator":
        return
    name = function_name(node)
    if _LIMIT.search(name) and _NUMBER.match(text_of(value)):
        yield walk.see(Kind.CONSTANT, name, node, when=When.BUILD, value=brief(value), detail="constant")
