"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

import evaluation.fuzz
from evaluation.fuzz.holds import allowed, examine
from evaluation.fuzz.workers import Finding, Plan, Report, run
from lpcl.parse import MAX_BYTES


class Progress:
    """Says how far a run is, every few seconds: on a terminal in one line, else in lines of a log."""

    def __init__(self, cases: int | None, seed: int, folder: Path) -> None:
        """Start the clock."""
        self.cases, self.seed, self.folder = cases, seed, folder
        self.last, self.before = time.monotonic(), 0
        self.kept: dict[str, Finding] = {}
        self.terminal = sys.stderr.isatty()

    def __call__(self, report: Report) -> None:
        """Print if it is time; write findings at once, for a run may end in any way."""
        for kind, finding in report.findings.items():
            before = self.kept.get(kind)
            if before is not finding:
                if before is not None:
                    _path(before, self.seed, self.folder).unlink(missing_ok=True)  # a smaller text shows the same
                self.kept[kind] = finding
                _write(finding, self.seed, self.folder)
        passed = time.monotonic() - self.last
        if passed < (1 if self.terminal else 30):
            return
        rate = (report.cases - self.before) / passed
        self.last, self.before = time.monotonic(), report.cases
        of = f" of {self.cases}" if self.cases else ""
        text = f"{report.cases}{of} cases in {report.seconds:.0f} s, {rate:.0f}/s now, {len(report.findings)} findings"
        print(f"\r{text} " if self.terminal else text, end="" if self.terminal else "\n", file=sys.stderr, flush=True)


def _path(finding: Finding, seed: int, folder: Path) -> Path:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", finding.problem.kind)
    return folder / f"{name}-{seed}-{finding.index}.lpcl"


def _write(finding: Finding, seed: int, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(finding, seed, folder)
    path.write_bytes(finding.text.encode("utf-8", "surrogatepass"))
    return path


def summary(report: Report, seed: int, folder: Path) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    rate = report.cases / max(report.seconds, 1e-9)
    print(f"seed {seed}: {report.cases} cases in {report.seconds:.1f} s, {rate:.0f} cases/s, "
          f"{report.characters / 1e6:.1f} M characters" + (", interrupted" if report.interrupted else ""))  # fmt: skip
    for kind, count in report.kinds.most_common():
        print(f"  {kind:14} {count:8}")
    for part, count in report.parts.most_common():
        print(f"  with {part:14} {count:8}")
    seconds, size, index, kind = report.slowest
    print(f"  slowest: {seconds:.2f} s of CPU time, case {index} ({kind}), {size} characters")
    print(f"findings: {len(report.findings)}")
    for name, finding in sorted(report.findings.items()):
        path = _write(finding, seed, folder)
        print(f"  {name}: {report.repeats[name]} times, first kept: case {finding.index} ({finding.kind})")
        print("    " + finding.problem.detail.strip().replace("\n", "\n    "))
        print(f"    {len(finding.text)} characters; replay: python -m evaluation.fuzz --replay {path}")
        print(f"    or: python -m evaluation.fuzz --seed {seed} --first {finding.index} --cases 1")


def replay(path: Path) -> int:
    """Examine one file, under the watchdog as well."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
    limit = allowed(len(text))
    report = run(Plan(cases=1, jobs=1, largest=10, look=lambda *_: examine(text), limit=lambda _: limit))
    for finding in report.findings.values():
        print(f"{finding.problem.kind}: {finding.problem.detail}")
    print(f"{path}: {len(text)} characters, {len(report.findings)} findings, {report.seconds:.2f} s")
    return 1 if report.findings else 0


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python -m evaluation.fuzz",
        description=evaluation.fuzz.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--cases", type=int, metavar="N", help="how many (default: 10000, or no end with --minutes)")
    options.add_argument("--seed", type=int, default=0, metavar="S", help="same seed, same cases (default: 0)")
    options.add_argument("--first", type=int, default=0, metavar="I", help="number of the first case (default: 0)")
    options.add_argument("--minutes", type=float, metavar="M", help="end after that long")
    options.add_argument(
        "--largest", type=int, default=MAX_BYTES + 100, metavar="C", help="characters of the largest bomb"
    )
    options.add_argument("--jobs", type=int, metavar="J", help="child processes (default: one a usable CPU)")
    options.add_argument(
        "--out", type=Path, default=Path("out/fuzz"), metavar="DIR", help="for texts (default: out/fuzz)"
    )
    options.add_argument("--replay", type=Path, metavar="FILE", help="examine one file")
    args = options.parse_args()
    if args.replay:
        return replay(args.replay)
    cases = args.cases if args.cases is not None or args.minutes is not None else 10_000
    seconds = float("inf") if args.minutes is None else 60 * args.minutes
    plan = Plan(args.seed, cases, args.first, seconds, args.largest, args.jobs)
    report = run(plan, Progress(cases, args.seed, args.out))
    summary(report, args.seed, args.out)
    return 1 if report.findings else 130 if report.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
