# ruff: noqa: PTH115, PTH116, PTH119, PTH208
# (pathlib takes longer to import than the rest of the supervisor, and these calls are the hot path)
"""Samples every thread of a process tree from outside, through /proc, at a bounded cost.

Needs no root and no dependency. The cost is kept under a share of one core: the CPU time spent so far decides
when the next sample is due. In the steady state a sample is one read of /proc/loadavg (whose last field tells
whether any process or thread was created since) and one `pread` of a kept file descriptor per thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from syspilot.supervise import procfs
from syspilot.supervise.trace import Process, Thread, name_of, process_values, thread_values

INTERVAL_S = 0.05
BUDGET_SHARE = 0.007
CREDIT_S = 0.001  # what the first samples may spend ahead of the budget
MAX_SAMPLES = 2000
MAX_STEPS = 200_000  # over all threads: about 30 MB at worst
MAX_THREADS = 2000
MAX_PROCESSES = 1000
NEW_PER_SAMPLE = 32  # a burst of short-lived processes must not make one sample long
CHILD_READS = 16  # threads, other than the first of their process, asked for children per pass
STATUS_EVERY = 8  # samples; dearer than the rest, so the threads take turns
MAPS_COST_S = 0.002  # assumed until the first reading tells
_STATUS = re.compile(rb"^Name:\t(.*)[\s\S]*\nvoluntary_ctxt_switches:\t(\d+)\nnonvoluntary_ctxt_switches:\t(\d+)")
CMDLINE_CHARS = 500


class Sampler:
    """Samples the descendants of this process.

    Args:
        start: monotonic time of the application's start, seconds.
        max_fds: how many descriptors may be kept open.
        proc: where procfs is mounted.
    """

    def __init__(self, start: float, max_fds: int = 400, proc: str = "/proc") -> None:
        """Nothing is read before the first `sample`."""
        self._start = start
        self._proc = proc
        self._pid = os.getpid()
        self._by_children = procfs.has_children_files(proc)
        self._interval = INTERVAL_S
        self._fds_left = max_fds
        # Without scheduler statistics the file is missing or all zero; this process has run, so it cannot be.
        has_schedstat = procfs.read(f"{proc}/self/schedstat", 128)[:2] not in {b"", b"0 "}
        self._times_file = "schedstat" if has_schedstat else "stat"
        self._tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
        self._loadavg = os.open(f"{proc}/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._last_pid = b""
        self._pending = True  # discovery is due although no process was created
        self._live: dict[int, Process] = {}
        self._dead: list[Process] = []
        self._signatures: set[tuple[str, str]] = set()
        self._first: Process | None = None  # the root
        self._count = 0  # threads that are held, dead or alive
        self._steps = 0
        self._turn = 0
        self._maps_cost = MAPS_COST_S
        self.times: list[float] = []
        self.cpu_s = 0.0
        self.untraced_threads = 0
        self.untraced_processes = 0
        self.due = start

    def sample(self, now: float, *, final: bool = False) -> None:
        """Take one sample; `now` is monotonic time. `final` also refreshes names and context switches."""
        before = time.thread_time()
        elapsed = now - self._start
        index = len(self.times)
        self.times.append(elapsed)
        for process in list(self._live.values()):
            self._read_threads(process, elapsed, index, final=final)
        self._discover(elapsed, index)
        if not final:
            self._read_maps(elapsed)
        if len(self.times) >= MAX_SAMPLES or self._steps >= MAX_STEPS:
            self._halve()
        self.cpu_s += time.thread_time() - before
        affordable = self._start + (self.cpu_s - CREDIT_S) / BUDGET_SHARE
        self.due = max(now + self._interval, affordable)

    # ---- threads

    def _read_threads(self, process: Process, elapsed: float, index: int, *, final: bool) -> None:
        """Read every known thread of a process once."""
        process.seen += 1
        gone = []
        for thread in process.threads.values():
            if not self._read_thread(process, thread, elapsed, index):
                gone.append(thread)
                continue
            thread.seen += 1
            if final or (thread.seen + thread.tid) % STATUS_EVERY == 0:
                self._read_status(process, thread)
        for thread in gone:
            self._bury(process, thread)
        if gone:
            self._pending = True
            process.links = -1
        if process.threads:
            process.last = elapsed
            if process.seen <= 2 and process.started == "fork":  # it may still be on its way to an exec
                self._identify(process)
        elif not self._list_threads(process, elapsed, index):
            self._end(process)

    def _read_thread(self, process: Process, thread: Thread, elapsed: float, index: int) -> bool:
        """Add what a thread did since the last sample; False if it is gone."""
        try:
            if thread.fd is not None:
                data = os.pread(thread.fd, 1024, 0)
            else:
                data = procfs.read(f"{self._proc}/{process.pid}/task/{thread.tid}/{self._times_file}", 1024)
        except OSError:
            return False
        if self._times_file == "schedstat":
            words = data.split()
            if len(words) < 2:
                return False
            cpu, delay = int(words[0]), int(words[1])
        else:
            words = procfs.stat_fields(data)
            if len(words) < 13:
                return False
            cpu, delay = (int(words[11]) + int(words[12])) * self._tick_ns, 0
        if cpu != thread.cpu or delay != thread.delay:
            thread.steps.append((index, cpu - thread.cpu, delay - thread.delay))
            self._steps += 1
            thread.cpu = cpu
            thread.delay = delay
        thread.last = elapsed
        return True

    def _read_status(self, process: Process, thread: Thread) -> None:
        """Name and context switches."""
        data = procfs.read(f"{self._proc}/{process.pid}/task/{thread.tid}/status", 8192)
        match = _STATUS.search(data)
        if match is None:
            return
        thread.name = match[1].decode("utf-8", "replace")
        thread.yields, thread.forced = int(match[2]), int(match[3])

    def _list_threads(self, process: Process, elapsed: float, index: int) -> bool:
        """Look for new threads of a process; False if it has none left."""
        path = f"{self._proc}/{process.pid}/task"
        try:
            links = os.stat(path).st_nlink
            if links == process.links:  # as many threads as before and none of them died
                return True
            tids = [int(name) for name in os.listdir(path)]
        except OSError:
            return False
        process.links = links
        process.peak = max(process.peak, len(tids))
        for tid in tids:
            if tid not in process.threads:
                self._add_thread(process, tid, elapsed, index)
        return bool(process.threads)

    def _add_thread(self, process: Process, tid: int, elapsed: float, index: int) -> None:
        """Start tracing a thread, as far as the limits allow."""
        if self._count >= MAX_THREADS and not self._forget_threads():
            self.untraced_threads += 1
            return
        fd = None
        if self._fds_left > 0:
            try:
                path = f"{self._proc}/{process.pid}/task/{tid}/{self._times_file}"
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
            self._fds_left -= 1
        thread = Thread(tid, elapsed, fd)
        process.threads[tid] = thread
        self._count += 1
        if not self._read_thread(process, thread, elapsed, index):
            self._bury(process, thread)
            return
        name = procfs.read(f"{self._proc}/{process.pid}/task/{tid}/comm", 64)
        thread.name = name.decode("utf-8", "replace").strip()

    def _bury(self, process: Process, thread: Thread) -> None:
        """A thread ended: give its descriptor back, keep its record."""
        del process.threads[thread.tid]
        if thread.fd is not None:
            os.close(thread.fd)
            thread.fd = None
            self._fds_left += 1
        thread.alive = False
        process.ended.append(thread)

    def _forget_threads(self) -> bool:
        """Make room: drop the half of the ended threads that used the least CPU time."""
        owners = [(thread.cpu, process, thread) for process in self._all() for thread in process.ended]
        owners.sort(key=lambda owner: owner[0])
        victims = owners[: (len(owners) + 1) // 2]
        doomed = {id(thread) for _, _, thread in victims}
        for process in {id(owner[1]): owner[1] for owner in victims}.values():
            process.ended = [thread for thread in process.ended if id(thread) not in doomed]
        self._steps -= sum(len(thread.steps) for _, _, thread in victims)
        self._count -= len(victims)
        self.untraced_threads += len(victims)
        return bool(victims)

    # ---- processes

    def _all(self) -> list[Process]:
        return self._dead + list(self._live.values())

    def _discover(self, elapsed: float, index: int) -> None:
        """Find processes and threads that were created since the last sample."""
        last_pid = os.pread(self._loadavg, 128, 0).split()[-1]
        if last_pid == self._last_pid and not self._pending:
            return
        self._last_pid = last_pid
        self._pending = False
        for process in list(self._live.values()):
            self._list_threads(process, elapsed, index)
        new = 0
        for pid, parent in self._children():
            if pid in self._live:
                continue
            if new == NEW_PER_SAMPLE:
                self._pending = True
                break
            new += 1
            self._add_process(pid, parent, elapsed, index)

    def _children(self) -> list[tuple[int, int]]:
        """(pid, parent) of the tree's processes, as far as known parents show them; parents come first."""
        if not self._by_children:
            table = procfs.parents(self._proc)
            return [(pid, table[pid]) for pid in sorted(procfs.descendants(self._pid, self._proc)) if pid in table]
        found: list[tuple[int, int]] = []
        # Most children are forked by first threads: the others are asked in turns.
        others = [
            (process.pid, tid) for process in self._live.values() for tid in process.threads if tid != process.pid
        ]
        start = self._turn % max(1, len(others))
        self._turn = start + CHILD_READS
        others = (others[start:] + others[:start])[:CHILD_READS]
        queue = [(child, pid) for pid, tid in others for child in procfs.children(self._proc, pid, tid)]
        queue += [(pid, self._pid) for pid in procfs.children(self._proc, self._pid, self._pid)]
        for pid, parent in queue:  # it grows meanwhile: parents come before their children
            if len(found) >= 4 * MAX_PROCESSES:
                break
            found.append((pid, parent))
            queue += [(child, pid) for child in procfs.children(self._proc, pid, pid)]
        return found

    def _add_process(self, pid: int, parent: int, elapsed: float, index: int) -> None:
        """Start tracing a process, as far as the limits allow."""
        if len(self._live) + len(self._dead) >= MAX_PROCESSES and not self._forget_processes():
            self.untraced_processes += 1
            return
        process = Process(pid, parent, elapsed)
        self._live[pid] = process
        self._identify(process)
        if self._first is None:
            self._first = process
            process.started = "root"
        if process.signature[0]:
            self._signatures.add(process.signature)
        above = self._live.get(parent)
        if process.started == "fork" and above is not None and above.signature == process.signature:
            process.libraries |= above.libraries  # a forked process starts with its parent's map
        self._list_threads(process, elapsed, index)
        if not process.signature[0] and name_of(process) == name_of(above or self._first):
            process.started = "fork"  # a zombie has no link to read; exec would have changed its name
        if not process.threads:  # a zombie that nobody has reaped, or already gone
            self._end(process)

    def _identify(self, process: Process) -> None:
        """Program and arguments; whether forked or executed, by the program image's addresses."""
        path = f"{self._proc}/{process.pid}"
        try:
            exe = os.readlink(f"{path}/exe")
        except OSError:
            return
        fields = procfs.stat_fields(procfs.read(f"{path}/stat", 1024))
        # startstack moves with each exec (address randomisation) and is kept by fork; 0 means not readable.
        stack = fields[25].decode() if len(fields) > 25 else "0"
        cmdline = procfs.read(f"{path}/cmdline", 4096).replace(b"\0", b" ").strip().decode("utf-8", "replace")
        signature = (exe, stack if stack != "0" else cmdline)
        if process.signature[0] and signature != process.signature:
            process.libraries = set()
            if process.started == "fork":
                process.started = "exec"
            self._signatures.add(signature)
        elif not process.signature[0] and signature in self._signatures:
            process.started = "fork"
        process.signature = signature
        with contextlib.suppress(OSError):
            process.cpus_allowed = len(os.sched_getaffinity(process.pid))
        process.exe = os.path.basename(exe)
        process.cmdline = cmdline[:CMDLINE_CHARS]

    def _end(self, process: Process) -> None:
        """A process ended: move it to the dead."""
        for thread in list(process.threads.values()):
            self._bury(process, thread)
        process.alive = False
        del self._live[process.pid]
        self._dead.append(process)

    def _forget_processes(self) -> bool:
        """Make room: drop the half of the ended processes (not the root) that used the least CPU time."""
        ended = [process for process in self._dead if process.started != "root"]
        ended.sort(key=lambda process: sum(thread.cpu for thread in process.ended))
        victims = ended[: (len(ended) + 1) // 2]
        doomed = {id(process) for process in victims}
        self._dead = [process for process in self._dead if id(process) not in doomed]
        for process in victims:
            self._count -= len(process.ended)
            self._steps -= sum(len(thread.steps) for thread in process.ended)
            self.untraced_threads += len(process.ended)
        self.untraced_processes += len(victims)
        return bool(victims)

    def _read_maps(self, elapsed: float) -> None:
        """Read at most one process map, if one is due and the budget has room for it."""
        if self.cpu_s + self._maps_cost > elapsed * BUDGET_SHARE + CREDIT_S:
            return
        for process in self._live.values():
            if elapsed < process.maps_due:
                continue
            process.maps_gap *= 2
            process.maps_due = elapsed + process.maps_gap
            self._identify(process)
            size = procfs.read(f"{self._proc}/{process.pid}/statm", 128).split(b" ", 1)[0]
            key = (size, len(process.threads))
            if key == process.map_key:
                continue
            process.map_key = key
            before = time.thread_time()
            process.libraries |= procfs.libraries(self._proc, process.pid)
            self._maps_cost = max(0.0002, 0.5 * self._maps_cost + 0.5 * (time.thread_time() - before))
            return

    # ---- bounds and result

    def _halve(self) -> None:
        """Merge neighbouring samples: half the resolution, for what was and for what comes."""
        count = len(self.times)
        self.times = [self.times[min(index + 1, count - 1)] for index in range(0, count, 2)]
        self._interval *= 2
        self._steps = 0
        for process in self._all():
            for thread in [*process.threads.values(), *process.ended]:
                merged: list[tuple[int, int, int]] = []
                for index, cpu, delay in thread.steps:
                    if merged and merged[-1][0] == index // 2:
                        merged[-1] = (index // 2, merged[-1][1] + cpu, merged[-1][2] + delay)
                    else:
                        merged.append((index // 2, cpu, delay))
                thread.steps = merged
                self._steps += len(merged)

    def result(self) -> dict[str, object]:
        """Close the descriptors; all as JSON values, see `ThreadTrace` and `ProcessTrace`."""
        for process in list(self._live.values()):
            self._end(process)
        os.close(self._loadavg)
        processes = sorted(self._dead, key=lambda process: (process.first, process.pid))
        return {
            "sample_times_s": [round(moment, 6) for moment in self.times],
            "sampler_cpu_s": self.cpu_s,
            "untraced_threads": self.untraced_threads,
            "untraced_processes": self.untraced_processes,
            "processes": [process_values(process) for process in processes],
            "threads": [thread_values(process, thread) for process in processes for thread in process.ended],
        }
