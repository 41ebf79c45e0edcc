"""The values that flow through the tuner, each frozen and writable to disk.

`Command -> Run -> (system, hypotheses) -> Decision`. An application run that fails is a result
(`Run.status`), never an exception.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1

Status = Literal["ok", "failed", "timeout", "killed", "not_started", "no_metric"]


class Record(BaseModel):
    """Base of all records: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Usage(Record):
    """What a whole process tree used, from rusage of every process reaped.

    Attributes:
        user_s, system_s: CPU seconds. voluntary, involuntary: context switches. minor_faults, major_faults: page
        faults. max_rss_bytes: largest resident set of any one process.
    """

    user_s: float = 0.0
    system_s: float = 0.0
    voluntary: int = 0
    involuntary: int = 0
    minor_faults: int = 0
    major_faults: int = 0
    max_rss_bytes: int = 0

    @property
    def cpu_s(self) -> float:
        """User and system time together, CPU seconds."""
        return self.user_s + self.system_s


class Disturbance(Record):
    """What else the machine did during a run.

    Attributes:
        others_share: CPU time of other processes over the machine's capacity (cores x wall), 0..1.
        steal_share: time the hypervisor took away, 0..1.
        psi_some_cpu: share of the wall time in which something waited for a CPU (`None` without PSI).
    """

    others_share: float = 0.0
    steal_share: float = 0.0
    psi_some_cpu: float | None = None


class ThreadTrace(Record):
    """One thread as sampled from outside.

    Attributes:
        pid, tid: ids; name: the kernel's `comm`; parent: pid of the parent process.
        first_s, last_s: first and last sample that saw it, seconds after the start.
        cpu_s: user and system time; delay_s: time runnable but waiting for a CPU (schedstat); voluntary and
            involuntary: context switches; all as of the last sample.
        steps: per sample interval in which it did anything: (sample index, cpu seconds, delay seconds).
    """

    pid: int
    tid: int
    name: str
    parent: int
    first_s: float
    last_s: float
    cpu_s: float
    delay_s: float
    voluntary: int = 0
    involuntary: int = 0
    steps: tuple[tuple[int, float, float], ...] = ()


class ProcessTrace(Record):
    """One process as sampled from outside.

    Attributes:
        exe: executable's base name; cmdline: arguments, at most 500 characters.
        libraries: real paths of the shared objects in its map (executable mappings), sorted.
        started: `root`, `fork` (runs the parent's program image: no exec seen) or `exec`.
        peak_threads: most threads alive in one sample.
        cpus_allowed: size of its affinity mask.
    """

    pid: int
    parent: int
    exe: str
    cmdline: str
    libraries: tuple[str, ...] = ()
    started: Literal["root", "fork", "exec"] = "exec"
    peak_threads: int = 1
    cpus_allowed: int | None = None
    first_s: float = 0.0
    last_s: float = 0.0


class Reading(Record):
    """One contract signal read inside a process, at its exit or a safe point.

    Attributes:
        signal: `contract.signal`; library: the shared object asked, for native signals (one per copy).
        value: what it returned (number, string or boolean), or None with `error`.
    """

    pid: int
    signal: str
    value: float | int | str | bool | None
    library: str | None = None
    error: str | None = None


class InsideReport(Record):
    """What the start-up hook saw inside one Python process.

    Attributes:
        modules: top-level module -> (version or None, file or None), for modules outside the standard library.
        native_readings: see `Reading`.
        environ: the values of the variables that were asked for, as the process sees them at exit.
        python_threads: threads that `threading` knew at exit; start_method: multiprocessing's, if it was loaded.
        forked: whether it was forked, rather than started, from a Python process.
        parent_threads_at_fork: number of OS threads the parent had when it forked this process, else None.
        libraries: shared objects in its map at that moment; notes: parts of the report that could not be had.
    """

    pid: int
    parent: int
    argv: tuple[str, ...]
    modules: dict[str, tuple[str | None, str | None]]
    readings: tuple[Reading, ...] = ()
    environ: dict[str, str | None] = {}
    python_threads: int | None = None
    start_method: str | None = None
    forked: bool = False
    parent_threads_at_fork: int | None = None
    executable: str = ""
    path: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Run(Record):
    """One run of the application, complete or not.

    Attributes:
        configuration: what was set for this run: tunable name -> value as text; empty for the default.
        wall_s: from exec to exit of the root process (monotonic clock).
        metric: the number that the application printed, if `--metric` was given.
        objective: what is compared: `metric` or `wall_s`.
        sample_times_s: when each sample was taken; `sampler_cpu_s`: what sampling cost in all.
        output_sha256: digest of standard output; stdout_tail, stderr_tail: last 4,000 characters.
        left_processes: how many outlived the root and its grace and were killed.
        output_bytes: length of standard output; untraced_threads: threads beyond what is traced; notes: what
            else was out of order, none of which makes the run invalid.
    """

    schema_version: int = SCHEMA_VERSION
    configuration: dict[str, str] = {}
    status: Status
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    wall_s: float = 0.0
    metric: float | None = None
    usage: Usage = Usage()
    disturbance: Disturbance = Disturbance()
    processes: tuple[ProcessTrace, ...] = ()
    threads: tuple[ThreadTrace, ...] = ()
    sample_times_s: tuple[float, ...] = ()
    sampler_cpu_s: float = 0.0
    inside: tuple[InsideReport, ...] = ()
    output_sha256: str = ""
    stdout_tail: str = ""
    stderr_tail: str = ""
    left_processes: int = 0
    output_bytes: int = 0
    untraced_threads: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the run gave a result that can be compared."""
        return self.status == "ok"
