"""Child processes that run the cases, each under a watchdog, and what they found, cut down."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from evaluation.fuzz.deeper import shipped
from evaluation.fuzz.derive import clause
from evaluation.fuzz.holds import Problem, allowed, examine
from evaluation.fuzz.texts import Case, make_case, seeds
from lpcl.parse import MAX_BYTES, parse, parser

BATCH = 50
MEMORY = 4 << 30
# A case that takes this many times the CPU time that it may take hangs.
PATIENCE = 4


@dataclass(frozen=True)
class Finding:
    """A problem, the case that showed it, and the smallest text found that shows it."""

    problem: Problem
    index: int
    kind: str
    text: str


@dataclass
class Report:
    """What a run did."""

    cases: int = 0
    seconds: float = 0.0
    characters: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    repeats: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int, int, str] = (0.0, 0, 0, "")
    interrupted: bool = False

    def add(self, finding: Finding) -> None:
        """Keep the smallest text of each kind of problem."""
        kind = finding.problem.kind
        self.repeats[kind] += 1
        if kind not in self.findings or len(finding.text) < len(self.findings[kind].text):
            self.findings[kind] = finding


def shrink(text: str, still: Callable[[str], bool], seconds: float = 20.0) -> str:
    """A smaller text for which `still` holds: ever smaller runs of lines, then of characters, are cut out."""
    until = time.monotonic() + seconds
    for parts in (text.splitlines(keepends=True), None):
        left = list(text) if parts is None else parts
        size = len(left) // 2
        while size:
            i = 0
            while i < len(left) and time.monotonic() < until:
                shorter = left[:i] + left[i + size :]
                if still("".join(shorter)):
                    left = shorter
                else:
                    i += size
            size //= 2
        text = "".join(left)
    return text


@dataclass(frozen=True)
class Plan:
    """What to run: cases `first` to `first + cases` of a seed (None: no end), for at most that many seconds."""

    seed: int = 0
    cases: int | None = None
    first: int = 0
    seconds: float = float("inf")
    largest: int = MAX_BYTES + 100
    jobs: int | None = None
    look: Callable[[str, frozenset[str]], list[Problem]] = examine
    limit: Callable[[int], float] = allowed

    def batches(self) -> Iterator[tuple[int, int]]:
        """First and last of each run of cases that a child takes at once."""
        until = time.monotonic() + self.seconds
        end = self.first + self.cases if self.cases is not None else sys.maxsize
        start = self.first
        while start < end and time.monotonic() < until:
            yield start, min(start + BATCH, end)
            start += BATCH


def try_case(case: Case, look: Callable[[str, frozenset[str]], list[Problem]]) -> list[Problem]:
    """What is wrong with a case."""
    found = look(case.text, case.parts)
    if case.model is not None and not found:
        parsed = parse(case.text)
        if parsed.file != case.model or parsed.diagnostics:
            found.append(Problem("model-equal", "a printed model reads as another one"))
    return found


def _child(plan: Plan, pipe: Any, clock: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What the parent has built stays; a text leaves little behind, and nearly all of it without cycles.
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    shown: set[str] = set()
    while (batch := pipe.recv()) is not None:
        done = Report()
        for index in range(*batch):
            case = make_case(plan.seed, index, plan.largest)
            clock[0], clock[1] = index, time.monotonic() + PATIENCE * plan.limit(len(case.text))
            began = time.process_time()
            problems = try_case(case, plan.look)
            seconds = time.process_time() - began
            group = case.kind.split(":")[0]
            done.cases += 1
            done.kinds[group] += 1
            done.parts.update(case.parts)
            done.characters += len(case.text)
            done.slowest = max(done.slowest, (seconds, len(case.text), index, case.kind))
            for problem in problems:
                text = case.text
                if problem.kind not in shown and problem.kind not in {"slow", "model-equal"}:
                    # Told before it is cut down: that may find a hang or a crash of its own.
                    pipe.send((Report(findings={problem.kind: Finding(problem, index, case.kind, text)}), False))
                    clock[1] = time.monotonic() + 60
                    text = shrink(text, partial(_shows, plan, problem))
                shown.add(problem.kind)
                done.add(Finding(problem, index, case.kind, text))
        clock[1] = float("inf")
        pipe.send((done, True))


def _shows(plan: Plan, problem: Problem, text: str) -> bool:
    parts = frozenset({problem.part} if problem.part else ())
    return any(p.kind == problem.kind for p in plan.look(text, parts))


class Worker:
    """One child, the cases that it has, and the end of the time of its case."""

    def __init__(self, plan: Plan) -> None:
        """Start it."""
        context = multiprocessing.get_context("fork")
        self.plan = plan
        self.pipe, theirs = context.Pipe()
        self.clock = context.Array("d", [-1.0, float("inf")], lock=False)
        self.process = context.Process(target=_child, args=(plan, theirs, self.clock), daemon=True)
        self.process.start()
        theirs.close()
        self.batch: tuple[int, int] | None = None

    def give(self, batch: tuple[int, int]) -> None:
        """Send it cases."""
        self.batch = batch
        self.pipe.send(batch)

    def late(self) -> bool:
        """Whether its case takes longer than any may."""
        return bool(time.monotonic() > self.clock[1])

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def lost(self, what: str, why: str) -> tuple[Finding, tuple[int, int] | None]:
        """The finding for the case that it had, and what is left of its cases."""
        first, last = self.batch or (0, 0)
        index = max(first, int(self.clock[0]))
        case = make_case(self.plan.seed, index, self.plan.largest)
        detail = f"{why} on {len(case.text)} characters"
        problem = Problem(f"{what}-{case.kind.replace(': ', '-')}", detail)
        return Finding(problem, index, case.kind, case.text), ((index + 1, last) if index + 1 < last else None)


def _merge(total: Report, part: Report) -> None:
    total.cases += part.cases
    total.characters += part.characters
    total.kinds += part.kinds
    total.parts += part.parts
    total.slowest = max(total.slowest, part.slowest)
    total.repeats += part.repeats
    for kind, finding in part.findings.items():
        if kind not in total.findings or len(finding.text) < len(total.findings[kind].text):
            total.findings[kind] = finding


def _serve(worker: Worker, report: Report, *, ready: bool) -> tuple[str, tuple[int, int] | None]:
    """Take what a busy child has: "lost" and the rest of its cases if it is no more."""
    if ready:
        try:
            part, last = worker.pipe.recv()
            _merge(report, part)
        except (EOFError, OSError):
            worker.process.join(1)
            what, why = "died", f"status {worker.process.exitcode}"
        else:
            if last:
                worker.batch = None
            return "", None
    elif worker.late():
        what, why = "hang", f"no result within {PATIENCE} times the limit"
    else:
        return "", None
    finding, rest = worker.lost(what, why)
    report.add(finding)
    report.cases += 1
    worker.stop()
    return "lost", rest


def run(plan: Plan, progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Run a plan; Ctrl-C ends it early."""
    # Built once, before the children are.
    parser()
    seeds()
    shipped()
    clause(random.Random(0))
    report, began = Report(), time.monotonic()
    left: list[tuple[int, int]] = []
    batches = plan.batches()
    workers: list[Worker] = []
    try:
        workers = [Worker(plan) for _ in range(plan.jobs or len(os.sched_getaffinity(0)))]
        while True:
            for worker in workers:
                if worker.batch is None and (batch := left.pop() if left else next(batches, None)) is not None:
                    worker.give(batch)
            busy = [w for w in workers if w.batch is not None]
            if not busy:
                break
            ready = wait([w.pipe for w in busy], timeout=0.1)
            for worker in busy:
                state, rest = _serve(worker, report, ready=worker.pipe in ready)
                if state == "lost":
                    left += [rest] if rest else []
                    workers[workers.index(worker)] = Worker(plan)
            report.seconds = time.monotonic() - began
            progress(report)
    except KeyboardInterrupt:
        report.interrupted = True
    finally:
        for worker in workers:
            worker.stop()
    report.seconds = time.monotonic() - began
    return report
