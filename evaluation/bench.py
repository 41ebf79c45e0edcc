"""Benchmarks: extraction speed, and what profiling costs the application. Run through `make bench`.

Everything is repeated and interleaved; what counts are medians and ratios, since machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ("numexpr==2.14.2", "joblib==1.6.0", "threadpoolctl==3.8.0")
METRIC = re.compile(r"seconds ([0-9.]+)")


def machine_block() -> str:
    from lpcl.machine import facts

    m = facts()
    load = os.getloadavg()[0]
    cpus = f"{m.cores} of {m.logical} CPUs usable"
    return f"machine: {m.cpu_model or 'unknown CPU'}, {cpus}, kernel {m.kernel}, load {load:.2f}"


def walk_once(folder: str) -> None:
    """Walk releases that are unpacked already, in this process; prints one JSON line."""
    from synth.evidence import collect
    from synth.fetch import fetch
    from synth.indexes import index_config
    from synth.targets import parse_target
    from synth.walk.tree import walk_release

    releases = [
        fetch(parse_target(t), config=index_config(), cache_dir=Path(folder) / "cache", work_dir=Path(folder) / t)
        for t in RELEASES
    ]
    started = time.perf_counter()
    walks = [walk_release(r) for r in releases]
    evidence = sum(len(collect(w)) for w in walks)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = sum(w.bytes for w in walks)
    files = sum(w.files for w in walks)
    print(json.dumps({"seconds": seconds, "bytes": size, "files": files, "evidence": evidence, "peak": peak}))


def bench_walk(repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for _ in range(repeats + 1):
            command = [sys.executable, __file__, "--walk-once", folder]
            out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
            rows.append(json.loads(out.splitlines()[-1]))
    rows = rows[1:]  # the first fills the cache of archives and of compiled modules
    seconds = [r["seconds"] for r in rows]
    size = rows[0]["bytes"]
    print(f"walk + evidence of {', '.join(RELEASES)}")
    print(f"  {rows[0]['files']} files, {size / 1e6:.2f} MB, {rows[0]['evidence']} pieces of evidence, {repeats} runs")
    print(f"  seconds: median {median(seconds):.3f} (min {min(seconds):.3f}, max {max(seconds):.3f})")
    print(f"  {size / 1e6 / median(seconds):.2f} MB/s; peak memory {median([r['peak'] for r in rows]) / 2**20:.0f} MiB")


def bench_overhead(pairs: int) -> None:
    from lpcl.corpus import load, shipped
    from syspilot.measure import paired_ratio, spread
    from syspilot.runner import run
    from syspilot.verify import inside_spec

    # One pool at one thread and many rounds: the steadiest form of the application, so that the ratio can be told.
    env = dict(os.environ) | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "examples" / "cluster_and_project.py"), "--rounds", "600"]
    spec = inside_spec([e.contract for e in load([shipped()])[0]])
    plain, profiled, sampler, disturbed = [], [], [], 0
    for i in range(pairs + 1):
        order = ("plain", "profiled") if i % 2 else ("profiled", "plain")
        for kind in order:
            profile = kind == "profiled"
            r = run(command, env=env, metric=METRIC, sample=profile, inside=spec if profile else None)
            if not r.ok:
                sys.exit(f"the application failed: {r.cause}")
            if i == 0:
                continue  # warm-up
            (plain if kind == "plain" else profiled).append(r.wall_s)
            disturbed += r.disturbance.others_share > 0.08
            if kind == "profiled":
                sampler.append(r.sampler_cpu_s / r.wall_s)
    ratio = paired_ratio(profiled, plain)
    print(f"doctor's overhead: profiled and plain runs of {Path(command[1]).name}, {pairs} interleaved pairs")
    print(f"  plain    wall: median {median(plain):.3f} s, CV {spread(plain):.1%}")
    print(f"  profiled wall: median {median(profiled):.3f} s, CV {spread(profiled):.1%}")
    print(f"  ratio {ratio.value:.4f} (95 % interval {ratio.low:.4f} to {ratio.high:.4f}); goal: under 1.02")
    print(f"  sampler: {median(sampler):.2%} of one core; runs disturbed by other programs: {disturbed} of {2 * pairs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--walk-once", metavar="DIR", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.walk_once:
        walk_once(args.walk_once)
        return
    print(machine_block())
    bench_walk(args.repeats)
    bench_overhead(args.pairs)


if __name__ == "__main__":
    main()
