"""Feed the walkers with damaged real files: `make fuzz-walk`.

Each case takes a few real files, damages them, and walks them as a release. Before the damaged part of each file stands
a read of a variable of its own, which must still be seen: broken syntax must not hide what is readable. A walker that
fails is a finding, and so is one whose work grows faster than its input: a span of the file is repeated, and the calls
made for twice as many repeats are counted.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from synth.records import Kind, Release, Walk
from synth.walk.tree import walk_release

ROOT = Path(__file__).resolve().parent.parent
CANARY = "FUZZ_CANARY_THREADS"
# a name that damage does not bind
_PYTHON = f'import os as fuzz_os\nCANARY = int(fuzz_os.environ.get("{CANARY}", "3"))\n\n'.encode()
_C = (
    f'#include <stdlib.h>\nstatic int canary(void) {{ const char* s = getenv("{CANARY}"); return s ? 1 : 0; }}\n\n'
).encode()
_RUST = (
    f'fn canary() -> usize {{ std::env::var("{CANARY}").map(|s| s.parse().unwrap_or(3)).unwrap_or(3) }}\n\n'.encode()
)
HEADS = {
    ".py": _PYTHON, ".pyi": _PYTHON, ".pyx": _PYTHON, ".pxd": b"", ".pxi": _PYTHON, ".rs": _RUST, ".c": _C, ".h": _C,
    ".hpp": _C, ".cpp": _C, ".cc": _C, ".cu": _C, ".cuh": _C, ".yaml": b"", ".toml": b"", ".cfg": b"", ".ini": b"",
    ".rst": b"", ".md": b"", ".html": b"", ".txt": b"",
}  # fmt: skip
MAX_FILE = 200_000
GROWTH = 2.5  # more calls than that for twice the input is more than linear
_SMALL_CALLS = 30_000  # below that, what each walk costs once is most of the count
_TOKENS = (
    b"(", b")", b"[", b"]", b"{", b"}", b'"', b"'", b'"""', b"\\\n", b"/*", b"*/", b"//", b"#", b"\0", b"\xef\xbb\xbf",
    b"\xff\xfe", b"\r", b"\r\n", b"\t", b"\x0c", b"lambda:", b"def f(", b"class C(", b"if ", b"os.environ[", b"getenv(",
    b"->", b"::", b"<", b">", b'r#"', b"f'{", b"}}", b"\xf0\x9f\x98\x80", b"\xc3", b"macro_rules! m {", b"#define A(",
    b"unsafe {", b"cdef ", b"async ", b"...", b"@", b"=", b"==", b",", b";",
)  # fmt: skip


@dataclass
class Report:
    """What a run found; `findings` maps a kind of trouble to the folder of a release that shows it."""

    cases: int = 0
    files: int = 0
    bytes: int = 0
    seen: int = 0
    grown: int = 0
    steepest: float = 0.0
    findings: dict[str, Path] = field(default_factory=dict)


def corpus(folders: list[Path]) -> list[Path]:
    """Real files in a fixed order."""
    found = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in HEADS and path.is_file() and not path.is_symlink() and 0 < path.stat().st_size <= MAX_FILE
    ]
    return sorted(found)


def own_files() -> list[Path]:
    """Files that every checkout has: its own, those of the environment and Python's headers."""
    site = Path(sysconfig.get_paths()["purelib"])
    folders = [ROOT / "synth", ROOT / "tests" / "synth", ROOT / "docs", Path(sysconfig.get_paths()["include"])]
    folders += [
        site / name for name in ("numpy", "joblib", "numexpr", "threadpoolctl", "sklearn/utils", "sklearn/tree")
    ]
    return corpus([folder for folder in folders if folder.is_dir()])


def damage(raw: bytes, chance: random.Random) -> bytes:
    """One or more ways of breaking a file."""
    for _ in range(chance.randint(1, 5)):
        start, end = sorted((chance.randint(0, len(raw)), chance.randint(0, len(raw))))
        end = min(end, start + chance.choice((3, 40, 400, 4000)))
        token = chance.choice(_TOKENS)
        kind = chance.randrange(10)
        if kind == 0:
            raw = raw[:start] + raw[end:]
        elif kind == 1:
            raw = raw[:start] + raw[start:end] * chance.randint(2, 6) + raw[end:]
        elif kind == 2:
            raw = raw[:start]
        elif kind == 3:
            raw = raw[:start] + token + raw[start:]
        elif kind == 4:
            raw = raw[:start] + token * chance.choice((10, 300, 3000)) + raw[start:]
        elif kind == 5:
            raw = raw.replace(b"\n", chance.choice((b" ", b"\r\n", b"\r", b"\n\n", b"\n  ")))
        elif kind == 6:
            raw = raw[:start] + chance.randbytes(chance.randint(1, 60)) + raw[end:]
        elif kind == 7:
            raw = raw[:start] + raw[start:end].swapcase() + raw[end:]
        elif kind == 8:
            raw = raw[:start] + bytes(reversed(raw[start:end])) + raw[end:]
        else:
            raw = raw.replace(chance.choice((b"(", b")", b":", b"'", b"{", b"}", b" ")), token, chance.randint(1, 9))
        raw = raw[: 2 * MAX_FILE]
    return raw


def write_case(folder: Path, paths: list[Path], chance: random.Random) -> None:
    """A release of damaged files, each with its canary before the damage."""
    package = folder / "pkg"
    package.mkdir()
    (package / "__init__.py").write_bytes(b"")
    for number, path in enumerate(paths):
        body = damage(path.read_bytes(), chance)
        (package / f"m{number}{path.suffix}").write_bytes(HEADS[path.suffix] + body)


def walk(folder: Path) -> Walk:
    """Walk a folder as a release."""
    return walk_release(
        Release(
            name="pkg", version="1", root=folder, kind="folder", filename="pkg", sha256="0" * 64,
            verified="unverified", location="pkg",
        )
    )  # fmt: skip


def troubles(folder: Path) -> Iterator[str]:
    """What is wrong with the walk of a case."""
    try:
        found = walk(folder)
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        yield f"walk_release: {type(error).__name__}"
        return
    hidden = {skip.file for skip in found.skipped}
    for skip in found.skipped:
        if "failed" in skip.why:
            yield f"{Path(skip.file).suffix}: {skip.why.partition(':')[2].strip()[:60]}"
    seen = {o.file for o in found.observations if o.kind is Kind.ENV_READ and o.name == CANARY}
    for path in sorted((folder / "pkg").iterdir()):
        name = f"pkg/{path.name}"
        searched = any(s.file == name and s.why.startswith("searched as text") for s in found.skipped)
        if (
            HEADS.get(path.suffix)
            and path.name != "__init__.py"
            and name not in seen
            and (name not in hidden or searched)
        ):
            yield f"{path.suffix}: the read before the damage is not seen"


def calls(action: Callable[[], object]) -> int:
    """Python-level and built-in calls that an action makes: work, as a number that no other load changes."""
    count = 0

    def tick(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(tick)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def growth(path: Path, folder: Path, chance: random.Random) -> tuple[float, str]:
    """(calls for twice the repeats over those for once, what was repeated) of a span of a file."""
    raw = path.read_bytes()
    start = chance.randint(0, max(0, len(raw) - 1))
    span = raw[start : start + chance.choice((1, 2, 5, 30, 200))]
    if chance.random() < 0.4:
        span = chance.choice(_TOKENS) + chance.choice(_TOKENS)
    repeats = max(1, 30_000 // max(1, len(span)))
    counts: list[int] = []
    for times in (repeats, 2 * repeats):
        case = folder / f"grown-{times}"
        (case / "pkg").mkdir(parents=True)
        (case / "pkg" / f"m{path.suffix}").write_bytes(raw[:start][-2_000:] + span * times + raw[start:][:2_000])
        counts.append(calls(lambda case=case: walk(case)))  # type: ignore[misc]
    ratio = counts[1] / max(1, counts[0]) if counts[1] > _SMALL_CALLS else 0.0
    return ratio, f"{path.suffix}: {span[:12]!r} repeated"


def run(files: list[Path], *, cases: int, seed: int, keep: Path, grow_every: int = 10, seconds: float = 1e9) -> Report:
    """Try cases until one of the bounds is reached."""
    chance = random.Random(seed)
    report = Report()
    deadline = time.monotonic() + seconds
    keep.mkdir(parents=True, exist_ok=True)
    for number in range(cases):
        if time.monotonic() > deadline:
            break
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            write_case(folder, chance.sample(files, min(len(files), 4)), chance)
            found = list(troubles(folder))
            report.cases += 1
            report.files += 4
            report.bytes += sum(p.stat().st_size for p in (folder / "pkg").iterdir())
            if number % grow_every == 0:
                ratio, what = growth(chance.choice(files), folder, chance)
                report.grown += 1
                report.steepest = max(report.steepest, ratio)
                if ratio > GROWTH:
                    found.append(f"grows {ratio:.1f} times: {what}")
            for trouble in found:
                if trouble not in report.findings:
                    place = keep / f"seed{seed}-case{number}"
                    shutil.copytree(folder, place, dirs_exist_ok=True)
                    report.findings[trouble] = place
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=Path, action="append", help="folder of real files; may be given again")
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz-walk"), help="where releases that show trouble go")
    args = parser.parse_args()
    files = corpus(args.files) if args.files else own_files()
    started = time.monotonic()
    report = run(files, cases=args.cases, seed=args.seed, keep=args.keep, seconds=args.seconds)
    seconds = time.monotonic() - started
    print(f"{report.cases} cases of {len(files)} files, {report.bytes / 1e6:.1f} MB in {seconds:.0f} s")
    print(f"{report.grown} files grown to twice their size: at most {report.steepest:.2f} times the calls")
    for trouble, place in report.findings.items():
        print(f"  {trouble}   ({place})")
    print(f"{len(report.findings)} kinds of trouble")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
