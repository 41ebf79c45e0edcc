"""What the sampler holds of each thread and process, and how it is written down."""

from __future__ import annotations

FIRST_MAPS_S = 0.3


class Thread:
    """One thread; `steps`: (sample index, CPU ns, delay ns) of the intervals in which it did anything."""

    __slots__ = (
        "alive",
        "cpu",
        "delay",
        "fd",
        "first",
        "forced",
        "last",
        "name",
        "seen",
        "steps",
        "tid",
        "yields",
    )

    def __init__(self, tid: int, now: float, fd: int | None) -> None:
        """A thread seen for the first time at `now` seconds."""
        self.tid = tid
        self.fd = fd
        self.first = self.last = now
        self.alive = True
        self.name = ""
        self.seen = 0
        self.cpu = self.delay = self.yields = self.forced = 0
        self.steps: list[tuple[int, int, int]] = []


class Process:
    """One process of the tree."""

    __slots__ = (
        "alive",
        "cmdline",
        "cpus_allowed",
        "ended",
        "exe",
        "first",
        "last",
        "libraries",
        "links",
        "map_key",
        "maps_due",
        "maps_gap",
        "parent",
        "peak",
        "pid",
        "seen",
        "signature",
        "started",
        "threads",
    )

    def __init__(self, pid: int, parent: int, now: float) -> None:
        """A process seen for the first time at `now` seconds."""
        self.pid = pid
        self.parent = parent
        self.first = self.last = now
        self.alive = True
        self.exe = self.cmdline = ""
        self.started = "exec"
        self.signature: tuple[str, str] = ("", "")
        self.libraries: set[str] = set()
        self.cpus_allowed: int | None = None
        self.threads: dict[int, Thread] = {}
        self.ended: list[Thread] = []  # dead threads, still reported
        self.links = -1
        self.peak = 1
        self.seen = 0
        self.maps_gap = FIRST_MAPS_S
        self.maps_due = now + FIRST_MAPS_S
        self.map_key: tuple[bytes, int] = (b"", 0)


def name_of(process: Process | None) -> str | None:
    """The kernel's name of a process: that of its first thread."""
    if process is None:
        return None
    threads = [*process.threads.values(), *process.ended]
    return next((thread.name for thread in threads if thread.tid == process.pid), None)


def process_values(process: Process) -> dict[str, object]:
    """A process as JSON values; see `records.ProcessTrace`."""
    return {
        "pid": process.pid,
        "parent": process.parent,
        "exe": process.exe or name_of(process) or "",  # the link of a zombie cannot be read
        "cmdline": process.cmdline,
        "libraries": sorted(process.libraries - {process.signature[0]}),
        "started": process.started,
        "peak_threads": process.peak,
        "cpus_allowed": process.cpus_allowed,
        "first_s": round(process.first, 6),
        "last_s": round(process.last, 6),
    }


def thread_values(process: Process, thread: Thread) -> dict[str, object]:
    """A thread as JSON values; see `records.ThreadTrace`."""
    return {
        "pid": process.pid,
        "tid": thread.tid,
        "name": thread.name,
        "parent": process.parent,
        "first_s": round(thread.first, 6),
        "last_s": round(thread.last, 6),
        "cpu_s": thread.cpu / 1e9,
        "delay_s": thread.delay / 1e9,
        "voluntary": thread.yields,
        "involuntary": thread.forced,
        "steps": [(index, cpu / 1e9, delay / 1e9) for index, cpu, delay in thread.steps],
    }
