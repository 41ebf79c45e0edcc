"""The application's process tree: who ended, what they used, and how to end the rest."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable

from syspilot.supervise import procfs

# The machine's counters move in ticks: less than this per CPU is no sign of anything in a short run.
_ROUNDING_S = 0.01


class Usage:
    """Sum of the rusage of every process that was reaped."""

    def __init__(self) -> None:
        """Nothing reaped yet."""
        self.user_s = self.system_s = 0.0
        self.voluntary = self.involuntary = self.minor_faults = self.major_faults = self.max_rss_bytes = 0

    def add(self, used: resource.struct_rusage) -> None:
        """Add one process together with the children that it reaped itself (the kernel sums those)."""
        self.user_s += used.ru_utime
        self.system_s += used.ru_stime
        self.voluntary += used.ru_nvcsw
        self.involuntary += used.ru_nivcsw
        self.minor_faults += used.ru_minflt
        self.major_faults += used.ru_majflt
        self.max_rss_bytes = max(self.max_rss_bytes, used.ru_maxrss * 1024)


class Tree:
    """The children of this process, a subreaper: the root, and each orphan that its descendants leave.

    Args:
        root: pid of the application's root process.
        on_root_exit: called when the root has ended and is not reaped yet, so that /proc still knows it.
    """

    def __init__(self, root: int, on_root_exit: Callable[[], None]) -> None:
        """Start with the root alive."""
        self.root = root
        self.root_status: int | None = None
        self.empty = False
        self.usage = Usage()
        self.killed: set[int] = set()
        self._on_root_exit = on_root_exit

    def reap(self) -> None:
        """Take in every child that has ended; sets `empty` when no descendant is left."""
        while not self.empty:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self.empty = True
                return
            if ended is None:
                return
            if ended.si_pid == self.root and self.root_status is None:
                self._on_root_exit()
            pid, status, used = os.wait4(ended.si_pid, 0)
            self.usage.add(used)
            if pid == self.root:
                self.root_status = status

    def survivors(self) -> set[int]:
        """Every descendant that is left, zombies included."""
        return procfs.descendants(os.getpid())

    def kill(self) -> None:
        """Send SIGKILL to every descendant that is visible now.

        A process forked meanwhile is met in the next round: with its parent dead it is a child of ours.
        """
        for pid in self.survivors():
            state = procfs.stat_fields(procfs.read(f"/proc/{pid}/stat", 1024))[:1]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)  # also a zombie: other threads of it may live on
                if state not in ([], [b"Z"]):
                    self.killed.add(pid)


class MachineReading:
    """The whole machine's counters at one moment, for what else it did during the run."""

    def __init__(self) -> None:
        """Read them now."""
        self.at = time.monotonic()
        self.busy_s, self.steal_s, self.cpus = procfs.cpu_times()
        self.pressure_s = procfs.pressure_s()
        own = os.times()
        self.own_s = own.user + own.system

    def since(self, before: MachineReading, tree_s: float) -> dict[str, float | None]:
        """Shares since an earlier reading, less the tree's (`tree_s` CPU seconds) and this process's own."""
        wall_s = max(self.at - before.at, 1e-9)
        capacity_s = self.cpus * wall_s
        others_s = self.busy_s - before.busy_s - tree_s - (self.own_s - before.own_s)
        others_s -= _ROUNDING_S * self.cpus
        pressure = None
        if self.pressure_s is not None and before.pressure_s is not None:
            pressure = max(0.0, self.pressure_s - before.pressure_s) / wall_s
        return {
            "others_share": min(1.0, max(0.0, others_s / capacity_s)),
            "steal_share": min(1.0, max(0.0, (self.steal_s - before.steal_s) / capacity_s)),
            "psi_some_cpu": pressure,
        }
