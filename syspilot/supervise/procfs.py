# ruff: noqa: PTH110, PTH208
# (pathlib takes longer to import than the rest of the supervisor, and these calls are the sampler's hot path)
"""Reads of /proc: small, tolerant of processes that vanish, standard library only."""

from __future__ import annotations

import os
import re

# An executable mapping of a file: `start-end r-xp offset dev inode   /path`.
_EXECUTABLE = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ ..x. \S+ \S+ [1-9]\d* +(/.*)$", re.MULTILINE)
_CHUNK = 1 << 20


def read(path: str, size: int = 65536) -> bytes:
    """The first `size` bytes of a /proc file, empty if it cannot be read (the process may be gone)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size)
    except OSError:
        return b""
    finally:
        os.close(fd)


def read_whole(path: str, limit: int = 16 << 20) -> bytes:
    """A /proc file that may need several reads, up to `limit` bytes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts = []
    total = 0
    try:
        while total < limit and (part := os.read(fd, _CHUNK)):
            parts.append(part)
            total += len(part)
    except OSError:
        pass
    finally:
        os.close(fd)
    return b"".join(parts)


def libraries(proc: str, pid: int) -> set[str]:
    """Files that are mapped executable in a process: its program and its shared objects."""
    found = set(_EXECUTABLE.findall(read_whole(f"{proc}/{pid}/maps")))
    return {os.fsdecode(path) for path in found if not path.endswith(b" (deleted)")}


def stat_fields(data: bytes) -> list[bytes]:
    """Fields of a `stat` file from the third (state) on: the name before may hold blanks and brackets."""
    return data[data.rfind(b")") + 2 :].split()


def children(proc: str, pid: int, tid: int) -> list[int]:
    """Children that a thread forked, from `/proc/PID/task/TID/children` (needs CONFIG_PROC_CHILDREN)."""
    return [int(word) for word in read(f"{proc}/{pid}/task/{tid}/children").split()]


def has_children_files(proc: str = "/proc") -> bool:
    """Whether the kernel offers `/proc/PID/task/TID/children`."""
    pid = os.getpid()
    return os.path.exists(f"{proc}/{pid}/task/{pid}/children")


def parents(proc: str = "/proc") -> dict[int, int]:
    """One scan of /proc: pid -> parent's pid, for every process that is visible."""
    found = {}
    for name in os.listdir(proc):
        if name.isdigit():
            fields = stat_fields(read(f"{proc}/{name}/stat", 1024))
            if len(fields) > 1:
                found[int(name)] = int(fields[1])
    return found


def descendants(pid: int, proc: str = "/proc") -> set[int]:
    """Every living or zombie process below `pid`, by one scan of /proc."""
    below: dict[int, list[int]] = {}
    for child, parent in parents(proc).items():
        below.setdefault(parent, []).append(child)
    found: set[int] = set()
    queue = [pid]
    while queue:
        for child in below.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child)
    return found


def cpu_times(proc: str = "/proc") -> tuple[float, float, int]:
    """Busy and stolen CPU seconds of the machine since boot, and the number of CPUs, from /proc/stat."""
    tick = os.sysconf("SC_CLK_TCK")
    busy = steal = 0.0
    cpus = 0
    for line in read(f"{proc}/stat").splitlines():
        if not line.startswith(b"cpu"):
            break
        words = line.split()
        if words[0] != b"cpu":
            cpus += 1
            continue
        # user nice system idle iowait irq softirq steal; `guest` is contained in `user`
        ticks = [int(word) for word in words[1:9]]
        ticks += [0] * (8 - len(ticks))
        busy = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / tick
        steal = ticks[7] / tick
    return busy, steal, max(1, cpus)


def pressure_s(proc: str = "/proc") -> float | None:
    """Seconds since boot in which something waited for a CPU (PSI `some`), None without PSI."""
    for line in read(f"{proc}/pressure/cpu", 4096).splitlines():
        if line.startswith(b"some"):
            total = line.rpartition(b"total=")[2]
            return int(total) / 1e6 if total.isdigit() else None
    return None
