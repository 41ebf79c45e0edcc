"""A run as a picture needs it: time columns, and per thread what it did in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from syspilot.records import ProcessTrace, Run, ThreadTrace

MAX_LANES = 40
MAX_COLUMNS = 300
# A column in which less than this many threads were runnable counts as idle, as in `hypotheses.runnable`.
BUSY = 0.2


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread, or several merged.

    Attributes:
        name: the kernel's name of the thread; tid: its id, None if merged; main: the first thread of its process.
        threads: how many it stands for.
        running, waiting: per column, threads on a CPU and threads that waited for one (0..1 for a single thread).
        cpu_s, delay_s: totals of the run. first_s, last_s: when it was seen.
    """

    name: str
    tid: int | None
    main: bool
    threads: int
    running: tuple[float, ...]
    waiting: tuple[float, ...]
    cpu_s: float
    delay_s: float
    first_s: float
    last_s: float

    @property
    def peak(self) -> float:
        """Most runnable threads in a column."""
        return max((a + b for a, b in zip(self.running, self.waiting, strict=True)), default=0.0)

    @property
    def waiting_share(self) -> float:
        """Share of its runnable time that it waited for a CPU."""
        total = self.cpu_s + self.delay_s
        return self.delay_s / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """A process and those of its threads that have a lane.

    Attributes:
        threads: how many threads it had, shown or not.
    """

    pid: int
    exe: str
    started: str
    threads: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is drawn of a run.

    Attributes:
        edges_s: edges of the columns, one more than there are columns, seconds after the start.
        groups: by process, in the order in which they started. others: the threads without a lane, merged.
        running, waiting: per column, over all threads.
        end_s: when the run ended. threads, processes: how many were traced.
    """

    edges_s: tuple[float, ...]
    groups: tuple[Group, ...]
    others: Lane | None
    running: tuple[float, ...]
    waiting: tuple[float, ...]
    end_s: float
    threads: int
    processes: int
    cpu_s: float
    delay_s: float

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Every lane, from top to bottom."""
        own = tuple(lane for group in self.groups for lane in group.lanes)
        return (*own, self.others) if self.others is not None else own

    @property
    def peak(self) -> float:
        """Most threads that were runnable in a column."""
        return max((a + b for a, b in zip(self.running, self.waiting, strict=True)), default=0.0)

    @property
    def busy_mean(self) -> float:
        """Runnable threads on average, over the columns in which the run was busy."""
        widths = [b - a for a, b in pairwise(self.edges_s)]
        columns = zip(self.running, self.waiting, widths, strict=True)
        busy = [((r + w) * dt, dt) for r, w, dt in columns if r + w > BUSY]
        time_s = sum(dt for _, dt in busy)
        return sum(total for total, _ in busy) / time_s if time_s > 0 else 0.0


def timeline(run: Run, *, max_lanes: int = MAX_LANES, max_columns: int = MAX_COLUMNS) -> Timeline | None:
    """What is drawn of a run; None if it was not sampled.

    Args:
        run: with the steps of its threads.
        max_lanes: threads with a lane of their own; the busiest get one.
        max_columns: at most; neighbouring samples are merged, so that no CPU time is lost.
    """
    edges, column_of = _columns(run.sample_times_s, max_columns)
    if len(edges) < 2:
        return None
    widths = [b - a for a, b in pairwise(edges)]
    ranked = sorted(run.threads, key=lambda t: (-(t.cpu_s + t.delay_s), t.first_s, t.tid))
    # One thread alone is never hidden behind "1 other".
    shown = ranked if len(ranked) <= max_lanes + 1 else ranked[:max_lanes]
    lanes = {(t.pid, t.tid): _lane(t, column_of, widths) for t in shown}
    rest = ranked[len(shown) :]
    others = _merge([_lane(t, column_of, widths) for t in rest]) if rest else None
    every = [*lanes.values(), others] if others is not None else list(lanes.values())
    return Timeline(
        edges_s=tuple(edges),
        groups=_groups(run, lanes),
        others=others,
        running=_sum((lane.running for lane in every), len(widths)),
        waiting=_sum((lane.waiting for lane in every), len(widths)),
        end_s=max(run.wall_s, edges[-1]),
        threads=len(run.threads),
        processes=len({t.pid for t in run.threads} | {p.pid for p in run.processes}),
        cpu_s=sum(t.cpu_s for t in run.threads),
        delay_s=sum(t.delay_s for t in run.threads),
    )


def _columns(times: Sequence[float], most: int) -> tuple[list[float], list[int]]:
    """The columns' edges, and for each sample the column that its interval belongs to."""
    edges = [0.0]
    column_of: list[int] = []
    # Samples are thinned by time and not by count: the sampler's intervals grow while it is short of its budget.
    bin_s = max(times, default=0.0) / most if len(times) > most else 0.0
    current = -1
    for time_s in times:
        if time_s > edges[-1]:
            here = min(most - 1, int(time_s / bin_s)) if bin_s else current + 1
            if here > current:
                edges.append(time_s)
            else:
                edges[-1] = time_s
            current = here
        # An interval without length, or one that runs backwards, counts to the column before it.
        column_of.append(max(0, len(edges) - 2))
    return edges, column_of


def _lane(thread: ThreadTrace, column_of: Sequence[int], widths: Sequence[float]) -> Lane:
    run_s, wait_s = [0.0] * len(widths), [0.0] * len(widths)
    for index, cpu_s, delay_s in thread.steps:
        if 0 <= index < len(column_of):
            run_s[column_of[index]] += cpu_s
            wait_s[column_of[index]] += delay_s
    # The kernel books a wait when it ends. What does not fit into the interval happened before it.
    carry = 0.0
    running, waiting = [0.0] * len(widths), [0.0] * len(widths)
    for i in range(len(widths) - 1, -1, -1):
        running[i] = min(1.0, max(0.0, run_s[i] / widths[i]))
        waited = max(0.0, wait_s[i]) + carry
        fits = min(waited, (1.0 - running[i]) * widths[i])
        waiting[i] = fits / widths[i]
        carry = waited - fits
    return Lane(
        name=thread.name,
        tid=thread.tid,
        main=thread.tid == thread.pid,
        threads=1,
        running=tuple(running),
        waiting=tuple(waiting),
        cpu_s=thread.cpu_s,
        delay_s=thread.delay_s,
        first_s=thread.first_s,
        last_s=thread.last_s,
    )


def _merge(lanes: Sequence[Lane]) -> Lane:
    columns = len(lanes[0].running)
    return Lane(
        name=f"{len(lanes)} others",
        tid=None,
        main=False,
        threads=len(lanes),
        running=_sum((lane.running for lane in lanes), columns),
        waiting=_sum((lane.waiting for lane in lanes), columns),
        cpu_s=sum(lane.cpu_s for lane in lanes),
        delay_s=sum(lane.delay_s for lane in lanes),
        first_s=min(lane.first_s for lane in lanes),
        last_s=max(lane.last_s for lane in lanes),
    )


def _sum(rows: Iterable[Sequence[float]], columns: int) -> tuple[float, ...]:
    total = [0.0] * columns
    for row in rows:
        for i, value in enumerate(row):
            total[i] += value
    return tuple(total)


def _groups(run: Run, lanes: dict[tuple[int, int], Lane]) -> tuple[Group, ...]:
    processes = {p.pid: p for p in run.processes}
    members: dict[int, list[Lane]] = {}
    for (pid, _), lane in lanes.items():
        members.setdefault(pid, []).append(lane)
    count: dict[int, int] = {}
    for thread in run.threads:
        count[thread.pid] = count.get(thread.pid, 0) + 1

    def start(pid: int) -> tuple[float, int]:
        process = processes.get(pid)
        return (process.first_s if process else min(x.first_s for x in members[pid])), pid

    ordered = sorted(members, key=start)
    return tuple(_group(pid, processes.get(pid), count[pid], members[pid]) for pid in ordered)


def _group(pid: int, process: ProcessTrace | None, threads: int, lanes: Sequence[Lane]) -> Group:
    return Group(
        pid=pid,
        exe=process.exe if process and process.exe else lanes[0].name,
        started=process.started if process else "",
        threads=threads,
        lanes=tuple(sorted(lanes, key=lambda x: (not x.main, x.first_s, x.tid or 0))),
    )
