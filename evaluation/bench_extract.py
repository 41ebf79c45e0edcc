"""Speed and memory of extraction, beside ripgrep and semgrep: `make bench-extract`.

All three look at the same trees, each in a process of its own, in turns: ours with an empty cache, ours again after one
file was changed, ripgrep with the names as one pattern, semgrep with the rules of `bench_extract.yaml`. ripgrep says
what reading costs and knows no syntax; semgrep matches syntax in one file at a time; neither follows a name through a
wrapper, a table or an import, and both leave the judging to the reader.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RULES = Path(__file__).with_name("bench_extract.yaml")
SOURCES = ("numpy==2.3.4", "scipy==1.16.3", "scikit-learn==1.7.2", "pandas==2.3.3", "pyarrow==22.0.0")
LARGE = "torch==2.9.1"  # as a wheel that carries sources and headers, but few binaries
SUFFIXES = ("py", "pyi", "pyx", "pxd", "pxi", "c", "cc", "cpp", "cxx", "h", "hpp", "cu", "cuh", "rs")
NAMES = (
    r"environ|getenv|putenv|n_?jobs|num_?(threads|workers)|max_workers|n_?threads|ThreadPool|ProcessPool|"
    r"omp_set_num_threads|cpu_count|sched_getaffinity|processes\s*="
)
JOBS = 2


def walk_tree(tree: Path, cache: Path | None, jobs: int) -> dict[str, Any]:
    """Walk and judge one tree in this process."""
    started = time.perf_counter()
    from synth.items import items_of
    from synth.records import Release
    from synth.walk.tree import walk_release

    release = Release(
        name=tree.name.partition("-")[0], version="0", root=tree, kind="folder", filename=tree.name,
        sha256="0" * 64, verified="unverified", location=tree.name,
    )  # fmt: skip
    extra: dict[str, Any] = {"cache": cache} if cache is not None else {}
    walk = walk_release(release, jobs=jobs, **extra)
    items = items_of(walk)
    return {
        "inner": time.perf_counter() - started,
        "found": len(items),
        "seen": len(walk.observations),
        "bytes": walk.bytes,
    }


def timed(command: list[str]) -> tuple[float, float, str]:
    """(wall seconds, peak MiB of the largest process, standard output) of a command."""
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode("utf-8", "replace")
        if child.returncode not in (0, 1):
            err.seek(0)
            raise SystemExit(f"`{' '.join(command[:3])}` failed: {err.read()[-2000:].decode('utf-8', 'replace')}")
    return seconds, usage.ru_maxrss / 1024, text


def ours(tree: Path, cache: Path | None) -> tuple[float, float, int]:
    command = [sys.executable, "-m", "evaluation.bench_extract", "--walk", str(tree), "--jobs", str(JOBS)]
    seconds, peak, text = timed([*command, *(["--cache", str(cache)] if cache is not None else [])])
    return seconds, peak, json.loads(text.splitlines()[-1])["found"]


def ripgrep(program: Path, tree: Path) -> tuple[float, float, int]:
    globs = [part for suffix in SUFFIXES for part in ("-g", f"*.{suffix}")]
    seconds, peak, text = timed([str(program), "-uu", "-n", "--no-heading", "-j", str(JOBS), *globs, NAMES, str(tree)])
    return seconds, peak, text.count("\n")


def semgrep(program: Path, tree: Path) -> tuple[float, float, int]:
    command = [
        str(program),
        "scan",
        "--config",
        str(RULES),
        "--metrics=off",
        "--disable-version-check",
        "--json",
        "--quiet",
    ]
    command += ["--no-git-ignore", "-j", str(JOBS), "--max-target-bytes", str(4 << 20), str(tree)]
    seconds, peak, text = timed(command)
    return seconds, peak, len(json.loads(text)["results"])


def changed(tree: Path, number: int) -> Path:
    """Change one file of the library: the largest but `number` of those of a middling size gets a line more."""
    files = sorted(
        (path for path in tree.rglob("*.py") if 5_000 < path.stat().st_size < 60_000 and "test" not in path.as_posix()),
        key=lambda path: (-path.stat().st_size, path),
    )
    path = files[number % len(files)]
    with path.open("ab") as file:
        file.write(f"\n\ndef _changed_{number}():\n    return {number}\n".encode())
    return path


def trees(folder: Path) -> Iterator[Path]:
    """The trees, unpacked; one that cannot be had is left out with a word."""
    from synth.cli import cache_dir
    from synth.fetch import fetch
    from synth.indexes import index_config
    from synth.records import SynthError
    from synth.targets import parse_target
    from synth.unpack import unpack

    for text in SOURCES:
        try:
            yield fetch(parse_target(text), config=index_config(), cache_dir=cache_dir(), work_dir=folder).root
        except SynthError as error:
            print(f"{text}: left out: {error}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--platform", "macosx_11_0_arm64", "--python-version", "312", "--dest", str(folder / "wheels"), LARGE]
    target = folder / LARGE.replace("==", "-")
    if not target.is_dir():
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        wheel = next((folder / "wheels").glob(f"{LARGE.partition('=')[0]}-*.whl"), None)
        if done.returncode != 0 or wheel is None:
            print(f"{LARGE}: left out: it cannot be had from the package index")
            return
        unpack(wheel, target)
    yield target


def find_ripgrep(folder: Path) -> Path | None:
    """The program `rg` from the path, else from its Debian package."""
    known = shutil.which("rg")
    if known:
        return Path(known)
    target = folder / "ripgrep"
    if not (target / "usr/bin/rg").is_file() and shutil.which("apt-get"):
        target.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", "ripgrep"]
        subprocess.run(command, cwd=target, capture_output=True, check=False, timeout=300)
        for archive in target.glob("*.deb"):
            subprocess.run(["dpkg", "-x", archive, target], check=False, capture_output=True, timeout=100)
    return target / "usr/bin/rg" if (target / "usr/bin/rg").is_file() else None


def find_semgrep(folder: Path) -> Path | None:
    """The program `semgrep` in an environment of its own."""
    target = folder / "semgrep"
    if not (target / "bin/semgrep").is_file():
        subprocess.run([sys.executable, "-m", "venv", target], check=True, timeout=300)
        command = [target / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "semgrep"]
        subprocess.run(command, capture_output=True, check=False, timeout=1800)
    return target / "bin/semgrep" if (target / "bin/semgrep").is_file() else None


def size_of(tree: Path) -> tuple[int, float]:
    """(files, MB) of source in a tree."""
    sizes = [
        p.stat().st_size for p in tree.rglob("*") if p.suffix[1:] in SUFFIXES and p.is_file() and not p.is_symlink()
    ]
    return len(sizes), sum(sizes) / 1e6


def bench(folder: Path, repeats: int, only: list[str]) -> list[dict[str, Any]]:
    """All trees, in turns."""
    rg, sg = find_ripgrep(folder), find_semgrep(folder)
    rows: list[dict[str, Any]] = []
    for tree in trees(folder / "trees"):
        if only and not any(tree.name.startswith(name) for name in only):
            continue
        runs: dict[str, list[tuple[float, float, int]]] = {"ours": [], "changed": [], "ripgrep": [], "semgrep": []}
        for number in range(repeats):
            with tempfile.TemporaryDirectory(dir=folder) as work:
                copy, cache = Path(work) / tree.name, Path(work) / "cache"
                shutil.copytree(tree, copy, symlinks=True)
                runs["ours"].append(ours(copy, cache))
                if rg is not None:
                    runs["ripgrep"].append(ripgrep(rg, copy))
                changed(copy, number)
                runs["changed"].append(ours(copy, cache))
                if sg is not None:
                    runs["semgrep"].append(semgrep(sg, copy))
        files, megabytes = size_of(tree)
        row: dict[str, Any] = {"tree": tree.name, "files": files, "megabytes": round(megabytes, 1)}
        for name, found in runs.items():
            if found:
                row[name] = {
                    "seconds": round(median(s for s, _, _ in found), 3),
                    "peak": round(max(p for _, p, _ in found)),
                    "found": found[-1][2],
                }
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    """What `bench` found, and the sums."""
    names = ("ours", "changed", "ripgrep", "semgrep")
    heads = (
        "tree",
        "files",
        "MB",
        "ours s",
        "MB/s",
        "MiB",
        "changed s",
        "share",
        "MiB",
        "ripgrep s",
        "semgrep s",
        "MiB",
    )
    lines = [heads]
    total = dict.fromkeys(names, 0.0)
    for row in rows:
        seconds = {name: row.get(name, {}).get("seconds", 0.0) for name in names}
        total = {name: total[name] + seconds[name] for name in names}
        first = max(seconds["ours"], 1e-9)
        cells = (row["tree"][:20], row["files"], row["megabytes"], seconds["ours"], row["megabytes"] / first)
        cells += (row["ours"]["peak"], seconds["changed"], f"{seconds['changed'] / first:.1%}", row["changed"]["peak"])
        cells += (seconds["ripgrep"], seconds["semgrep"], row.get("semgrep", {}).get("peak", 0))
        lines.append(tuple(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells))
    for line in lines:
        print("  ".join(cell.rjust(9) if place else cell.ljust(20) for place, cell in enumerate(line)))
    whole, first, again = sum(row["megabytes"] for row in rows), max(total["ours"], 1e-9), max(total["changed"], 1e-9)
    print(f"{whole:.0f} MB in {first:.1f} s: {whole / first:.1f} MB/s, {60 * len(rows) / first:.1f} packages a minute")
    print(f"after one changed file {again:.1f} s: {again / first:.1%} of the first run")
    for name in ("ripgrep", "semgrep"):
        if total[name]:
            shares = f"{first / total[name]:.2f} times as long, our second run {again / total[name]:.2f} times"
            print(f"beside {name} ({total[name]:.1f} s) our first run takes {shares}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "bench-extract", help="where trees and tools go")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="trees whose name starts so")
    parser.add_argument("--walk", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=JOBS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.walk is not None:
        print(json.dumps(walk_tree(args.walk, args.cache, args.jobs)))
        return 0
    args.folder.mkdir(parents=True, exist_ok=True)
    table(bench(args.folder, args.repeats, args.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
