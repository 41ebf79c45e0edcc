"""Pools, looks at the machine and fork handling in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.records import Kind, Observation
from synth.walk.python_env import FileWalk
from synth.walk.python_environ import arguments_of
from synth.walk.python_flow import cited_lines, size_argument, unfolded
from synth.walk.python_scope import dotted
from synth.walk.python_values import strings
from synth.walk.syntax import brief, descend, text_of


@dataclass(frozen=True)
class _Pool:
    """How a pool's constructor is called: what it makes, and where its size stands."""

    target: str
    keywords: tuple[str, ...]
    place: int | None
    each: bool = False  # one worker per call: the number is that of the loop around it


_EXECUTOR_SIZE = ("max_workers", "num_workers", "n_workers", "workers", "max_threads", "processes", "n_jobs")
_THREADS = _Pool("threads", _EXECUTOR_SIZE, 0)
_PROCESSES = _Pool("processes", _EXECUTOR_SIZE, 0)
# standard library constructors, by absolute dotted name
_STANDARD: dict[str, _Pool] = {
    "concurrent.futures.ThreadPoolExecutor": _THREADS,
    "concurrent.futures.thread.ThreadPoolExecutor": _THREADS,
    "concurrent.futures.ProcessPoolExecutor": _PROCESSES,
    "concurrent.futures.process.ProcessPoolExecutor": _PROCESSES,
    "concurrent.futures.InterpreterPoolExecutor": _THREADS,
    "multiprocessing.Pool": _PROCESSES,
    "multiprocessing.pool.Pool": _PROCESSES,
    "multiprocessing.pool.ThreadPool": _THREADS,
    "multiprocessing.dummy.Pool": _THREADS,
    "multiprocessing.Process": _Pool("processes", (), None, each=True),
    "multiprocessing.process.BaseProcess": _Pool("processes", (), None, each=True),
    "multiprocessing.context.Process": _Pool("processes", (), None, each=True),
    "threading.Thread": _Pool("threads", (), None, each=True),
    "os.fork": _Pool("processes", (), None, each=True),
}
_BASES: dict[str, _Pool] = {
    **_STANDARD,
    "concurrent.futures.Executor": _Pool("", _EXECUTOR_SIZE, 0),
    "concurrent.futures._base.Executor": _Pool("", _EXECUTOR_SIZE, 0),
}
_ALIASES = {"futures": "concurrent.futures", "mp": "multiprocessing", "concurrent": "concurrent"}
_CONTEXT = re.compile(r"(^|[._])(mp|multiprocessing|ctx|context|mp_context|get_context\(\))$", re.IGNORECASE)
_CONTEXT_METHODS = {"Pool": "multiprocessing.Pool", "Process": "multiprocessing.Process"}
_PROBES: dict[str, str] = {
    "os.cpu_count": "logical cpus",
    "os.process_cpu_count": "cpus of this process",
    "multiprocessing.cpu_count": "logical cpus",
    "os.sched_getaffinity": "affinity",
    "os.getloadavg": "load",
    "psutil.cpu_count": "cpus as psutil counts them",
    "psutil.virtual_memory": "memory",
    "psutil.cpu_affinity": "affinity",
    "psutil.Process().cpu_affinity": "affinity",
    "resource.getrlimit": "resource limits",
    "numa.get_max_node": "NUMA nodes",
}
_SYSCONF = {
    "SC_NPROCESSORS_ONLN": "online cpus",
    "SC_NPROCESSORS_CONF": "configured cpus",
    "SC_PHYS_PAGES": "memory",
    "SC_AVPHYS_PAGES": "memory",
}
_MACHINE_FILE = re.compile(
    r"/sys/fs/cgroup|/proc/(self/)?(cgroup|cpuinfo|meminfo|status)\b|/sys/devices/system/(cpu|node)|cpu\.max|cpu\.cfs_"
)
_FORK = frozenset(
    {
        "os.register_at_fork",
        "multiprocessing.set_start_method",
        "multiprocessing.get_context",
        "multiprocessing.set_forkserver_preload",
        "multiprocessing.util.register_after_fork",
    }
)


def walk_pools(walk: FileWalk) -> list[Observation]:
    """Observations of pools, machine probes and fork handling in a file."""
    found: list[Observation] = []
    for node in walk.pyfile.tree.nodes:
        if node.type == "call":
            found.extend(_call(walk, node))
        elif node.type == "string":
            found.extend(_machine_file(walk, node))
        elif node.type == "comparison_operator" and "getpid" in walk.pyfile.tree.head(node, 200):
            found.append(_see(walk, Kind.FORK, "os.getpid", node, detail="compares the process id"))
    return found


def _see(
    walk: FileWalk, kind: Kind, name: str, node: Node, *, value: str | None = None, target: str = "", detail: str = ""
) -> Observation:
    return walk.cited.observe(
        kind,
        name,
        cited_lines(walk.pyfile, node),
        function=walk.function(node),
        when=walk.when(node),
        value=value,
        target=target,
        detail=detail,
    )


def absolute_name(walk: FileWalk, name: str, node: Node) -> str:
    """Absolute dotted name of what is called, through imports, aliases and variables that hold a module."""
    resolved = walk.index.absolute(walk.pyfile.module, name)
    if resolved == name:
        head, _, rest = name.partition(".")
        source = walk.pyfile.imports.get(head)
        if source is not None:
            resolved = ".".join(part for part in (*source, rest) if part)
        elif rest:
            for definition in walk.pyfile.definitions(head, walk.pyfile.scope(node))[:3]:
                made = definition.node
                inner = dotted(made.child_by_field_name("function")) if made is not None and made.type == "call" else ""
                if inner:
                    return f"{walk.index.absolute(walk.pyfile.module, inner)}().{rest}"
    head, _, rest = resolved.partition(".")
    return f"{_ALIASES[head]}.{rest}" if head in _ALIASES and rest else resolved


def _call(walk: FileWalk, node: Node) -> Iterator[Observation]:
    name = dotted(node.child_by_field_name("function"))
    if not name:
        return
    absolute = absolute_name(walk, name, node)
    if absolute in _PROBES:
        yield _see(walk, Kind.CPU_PROBE, absolute, node, detail=_PROBES[absolute])
        return
    if absolute in ("os.sysconf", "sysconf"):
        yield from _sysconf(walk, node)
        return
    if absolute in _FORK or absolute.endswith(".set_start_method"):
        positional, _ = arguments_of(node)
        method = strings(walk.pyfile.value(positional[0])) if positional else []
        given = ", ".join(method) or (brief(positional[0]) if positional else "")
        if absolute.endswith("get_context") and not given:
            return
        yield _see(walk, Kind.FORK, absolute, node, value=given or None)
        return
    pool = _pool_of(walk, name, absolute)
    if pool is not None:
        owner, _, last = absolute.rpartition(".")
        through = _CONTEXT_METHODS[last] if last in _CONTEXT_METHODS and owner not in ("", "multiprocessing") else ""
        yield _pool(walk, node, through if through and _CONTEXT.search(owner) else absolute, pool)
    elif absolute.endswith("run_in_executor"):
        positional, _ = arguments_of(node)
        if positional and text_of(positional[0]) == "None":
            yield _see(walk, Kind.POOL, "asyncio.run_in_executor", node, target="threads", detail="default executor")


def _pool_of(walk: FileWalk, name: str, absolute: str) -> _Pool | None:
    if absolute in _STANDARD:
        return _STANDARD[absolute]
    owner, _, last = absolute.rpartition(".")
    if last in _CONTEXT_METHODS and _CONTEXT.search(owner):
        return _STANDARD[_CONTEXT_METHODS[last]]
    if last in ("ThreadPoolExecutor", "ProcessPoolExecutor", "ThreadPool") and not owner.startswith("self"):
        return _THREADS if last.startswith("Thread") else _PROCESSES
    entity = walk.index.resolve(walk.pyfile.module, name)
    if entity is None or "." in entity[1]:
        return None
    facts = walk.index.modules[entity[0]]
    if entity[1] not in facts.classes:
        return None
    for base in walk.index.ancestry(*entity):
        found = _BASES.get(base)
        if found is None:
            tail = base.rpartition(".")[2]
            if tail in ("ThreadPoolExecutor", "ProcessPoolExecutor", "ThreadPool"):
                found = _THREADS if tail.startswith("Thread") else _PROCESSES
        if found is not None:
            return _sized(walk, entity, found)
    return None


def _sized(walk: FileWalk, entity: tuple[str, str], pool: _Pool) -> _Pool:
    """A subclass may name its size otherwise, and a plain executor says what it makes by its name only."""
    target = pool.target
    if not target:
        target = "processes" if re.search(r"process", entity[1], re.IGNORECASE) else "threads"
    maker = walk.index.function(walk.index.resolve(entity[0], f"{entity[1]}.__init__"))
    if maker is None or pool.each:
        return _Pool(target, pool.keywords, pool.place, pool.each)
    named = [p.name for p in maker.parameters if re.search(_SIZE_WORD, p.name)]
    place = next((i for i, p in enumerate(maker.parameters) if p.name in named), None)
    return _Pool(target, (*named, *pool.keywords), place)


_SIZE_WORD = r"worker|thread|process|jobs|size|cpus|cores|concurrency"


def _pool(walk: FileWalk, node: Node, name: str, pool: _Pool) -> Observation:
    if pool.each:
        return _one_by_one(walk, node, name, pool)
    size = size_argument(node, pool.keywords, pool.place)
    if size is None:
        splat = any(child.type == "dictionary_splat" for child in _children(node))
        detail = "size from the caller" if splat else "size not given"
        return _see(walk, Kind.POOL, name, node, target=pool.target, detail=detail)
    value, notes = unfolded(walk.pyfile, size)
    return _see(walk, Kind.POOL, name, node, value=value, target=pool.target, detail=notes)


def _children(call: Node) -> list[Node]:
    holder = call.child_by_field_name("arguments")
    return holder.named_children if holder is not None else []


def _one_by_one(walk: FileWalk, node: Node, name: str, pool: _Pool) -> Observation:
    _, named = arguments_of(node)
    job = named.get("target")
    what = f"runs {brief(job, 60)}" if job is not None else ""
    for parent in walk.pyfile.tree.ancestors(node):
        source: Node | None = None
        if parent.type == "for_statement":
            source = parent.child_by_field_name("right")
        elif parent.type in ("list_comprehension", "generator_expression"):
            clause = next((c for c in parent.named_children if c.type == "for_in_clause"), None)
            source = clause.child_by_field_name("right") if clause is not None else None
        elif parent.type == "while_statement":
            source = parent.child_by_field_name("condition")
        elif parent.type in ("function_definition", "class_definition"):
            break
        if source is not None and text_of(source) in ("True", "1"):
            what = "; ".join(part for part in (what, "in an endless loop") if part)
            return _see(walk, Kind.POOL, name, node, target=pool.target, detail=what)
        if source is not None:
            value, notes = unfolded(walk.pyfile, _count(source))
            detail = "; ".join(part for part in (what, notes) if part)
            return _see(walk, Kind.POOL, name, node, value=value, target=pool.target, detail=detail)
    return _see(walk, Kind.POOL, name, node, value="1", target=pool.target, detail=what)


def _count(source: Node) -> Node:
    """`range(n)` -> `n`."""
    if source.type == "call" and dotted(source.child_by_field_name("function")) in ("range", "xrange"):
        positional, _ = arguments_of(source)
        if len(positional) == 1:
            return positional[0]
    return source


def _sysconf(walk: FileWalk, node: Node) -> Iterator[Observation]:
    positional, _ = arguments_of(node)
    for name in strings(walk.pyfile.value(positional[0])) if positional else []:
        if name in _SYSCONF:
            yield _see(walk, Kind.CPU_PROBE, f"os.sysconf({name})", node, detail=_SYSCONF[name])


def _machine_file(walk: FileWalk, node: Node) -> Iterator[Observation]:
    text = text_of(node)
    if len(text) > 300 or not _MACHINE_FILE.search(text):
        return
    parent = walk.pyfile.tree.parent(node)
    if parent is not None and parent.type in ("expression_statement", "concatenated_string", "raise_statement"):
        return
    content = "".join(text_of(c) for c in descend(node) if c.type == "string_content")
    if " " in content.strip():
        return
    yield _see(walk, Kind.CPU_PROBE, content, node, detail="file that describes the machine")
