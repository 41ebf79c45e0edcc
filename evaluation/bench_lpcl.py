"""Speed of reading LPCL, beside HCL and YAML files of the same content, and what a command costs to start.

Every contract of the corpus is exported to HCL and to YAML from its model: clauses become blocks or mappings, and
expressions become strings, as a configuration language without them would hold them. So the other readers build
plain dicts and do less than LPCL's parser, which builds and places every expression. Repeats are interleaved: a
round runs each reader once, on one CPU-bound process; what counts are medians and ratios.

  python evaluation/bench_lpcl.py
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from lpcl import model as m  # noqa: E402  # the checkout's
from lpcl import tables  # noqa: E402
from lpcl.check import check  # noqa: E402
from lpcl.format import expression, file_text, type_text  # noqa: E402
from lpcl.parse import parse, parser  # noqa: E402

GOALS_MS = {"lpcl --version": 150, "lpcl check FILE": 300}

# ------------------------------------------------------------------ the same content in other languages


def plain(node: object) -> Any:
    """A part of the model as strings, numbers, lists and mappings; what is not given is left out."""
    if isinstance(node, m.Number) and not node.unit:
        return node.value
    if isinstance(node, m.Text | m.Truth):
        return node.value
    if isinstance(node, m.Ref):
        return node.name
    if isinstance(node, m.Expr):
        return expression(node)
    if isinstance(node, m.Type):
        return type_text(node)
    if isinstance(node, tuple):
        return [plain(x) for x in node]
    if is_dataclass(node) and not isinstance(node, type):
        named = ((f.name, getattr(node, f.name)) for f in fields(node) if f.name not in {"span", "comments"})
        return {k: plain(v) for k, v in named if v is not None and v != () and v is not False}
    return node


def as_data(file: m.File) -> dict[str, Any]:
    """A file as data: contracts by name, clauses by kind and name."""
    contracts: dict[str, Any] = {}
    for c in file.contracts:
        head = plain(replace(c, clauses=()))
        for clause in c.clauses:
            body = plain(clause)
            head.setdefault(m.KEYWORDS[type(clause)], {})[body.pop("name")] = body
        contracts[head.pop("name")] = head
    return {"lpcl": file.version, "contract": contracts}


def _hcl_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_hcl_value, value))}]"
    # JSON's strings are HCL's, but for the two characters that open a template.
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _hcl_block(title: str, body: dict[str, Any], indent: str) -> list[str]:
    lines = [f"{indent}{title} {{"]
    inside = indent + "  "
    for key, value in body.items():
        if key in m.KEYWORDS.values():
            for name, clause in value.items():
                lines += _hcl_block(f"{key} {json.dumps(name)}", clause, inside)
        elif isinstance(value, dict):
            lines += _hcl_block(key, value, inside)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                lines += _hcl_block(key, item, inside)
        else:
            lines.append(f"{inside}{key} = {_hcl_value(value)}")
    return [*lines, f"{indent}}}"]


def as_hcl(data: dict[str, Any]) -> str:
    """The data as HCL: a labelled block a contract and a clause."""
    lines = [f"lpcl = {data['lpcl']}"]
    for name, body in data["contract"].items():
        lines += ["", *_hcl_block(f"contract {json.dumps(name)}", body, "")]
    return "\n".join(lines) + "\n"


def _leaves(value: object) -> int:
    if isinstance(value, dict):
        return sum(_leaves(v) for k, v in value.items() if k != "__is_block__")
    return sum(map(_leaves, value)) if isinstance(value, list) else 1


# ------------------------------------------------------------------ reading


def corpus(size: int) -> m.File:
    """The corpus, repeated under new names until its text has about that many characters."""
    files = [parse(p.read_text("utf-8")).file for p in sorted((ROOT / "corpus").glob("*/contract.lpcl"))]
    contracts = [c for f in files if f is not None for c in f.contracts]
    length = len(file_text(m.File(1, tuple(contracts))))
    many: list[m.Contract] = []
    for i in range(max(1, round(size / length))):
        for c in contracts:
            name = f"{c.name}_{i}"
            many.append(replace(c, name=name))
    return m.File(1, tuple(many))


def _read_lpcl(text: str) -> m.File:
    parsed = parse(text)
    if not parsed.ok or parsed.file is None:
        sys.exit(f"the corpus does not parse: {parsed.diagnostics[0]}")
    return parsed.file


def readers(file: m.File) -> dict[str, tuple[str, Callable[[str], object]]]:
    """Name -> (text, what reads it); every reader is proved on its text before it is timed."""
    import hcl2
    import yaml

    data = as_data(file)
    lpcl_text, hcl_text = file_text(file), as_hcl(data)
    yaml_text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    if _read_lpcl(lpcl_text) != file or yaml.safe_load(yaml_text) != data:
        sys.exit("the exported text reads as something else")
    if _leaves(hcl2.loads(hcl_text)) != _leaves(data):
        sys.exit("the HCL text does not hold what the contracts hold")
    rows: dict[str, tuple[str, Callable[[str], object]]] = {
        "lpcl parse": (lpcl_text, _read_lpcl),
        "lpcl parse + check": (lpcl_text, lambda t: check(_read_lpcl(t))),
        "python-hcl2 loads": (hcl_text, hcl2.loads),
        "yaml safe_load": (yaml_text, yaml.safe_load),
    }
    if hasattr(yaml, "CSafeLoader"):
        rows["yaml CSafeLoader"] = (yaml_text, lambda t: yaml.load(t, Loader=yaml.CSafeLoader))
    return rows


def bench_reading(size: int, repeats: int) -> None:
    file = corpus(size)
    parser()
    rows = readers(file)
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    order = list(rows)
    for i in range(repeats + 1):
        for name in order:
            text, read = rows[name]
            gc.collect()
            began = time.perf_counter()
            read(text)
            if i:  # the first round warms up
                seconds[name].append(time.perf_counter() - began)
        order.append(order.pop(0))
    base = seconds["lpcl parse + check"]
    count = len(file.contracts)
    print(f"reading {count} contracts of the same content, {repeats} interleaved repeats")
    print(f"  {'':20} {'KB':>6} {'median s':>9} {'min':>7} {'max':>7} {'MB/s':>7} {'contracts/s':>12}  time / lpcl's")
    for name, (text, _) in rows.items():
        took, kb = median(seconds[name]), len(text.encode()) / 1e3
        ratios = sorted(a / b for a, b in zip(seconds[name], base, strict=True))
        ratio = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        spread = f"{took:9.3f} {min(seconds[name]):7.3f} {max(seconds[name]):7.3f}"
        print(f"  {name:20} {kb:6.0f} {spread} {kb / 1e3 / took:7.2f} {count / took:12.0f}  {ratio}")


# ------------------------------------------------------------------ starting


def bench_start(repeats: int) -> None:
    file = next(iter(sorted((ROOT / "corpus").glob("*/contract.lpcl"))))
    script = [sys.executable, str(Path(sys.executable).with_name("lpcl"))]
    if not Path(script[1]).exists():
        script = [sys.executable, "-c", "import sys; from lpcl.cli import main; sys.exit(main())"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "lpcl --version": [*script, "--version"],
        "lpcl --help": [*script, "--help"],
        "lpcl check FILE": [*script, "check", str(file)],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for i in range(repeats + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
            if i:
                seconds[name].append(time.perf_counter() - began)
    began = time.perf_counter()
    tables._loaded.__wrapped__()  # noqa: SLF001  # what a fresh process does
    loaded = time.perf_counter()
    parser.__wrapped__()
    built = time.perf_counter()
    print(f"whole processes, {repeats} interleaved repeats; FILE is {file.relative_to(ROOT)}")
    for name, took in seconds.items():
        goal = f"  goal: under {GOALS_MS[name]}" if name in GOALS_MS else ""
        line = f"median {1e3 * median(took):6.1f} ms (min {1e3 * min(took):.1f}, max {1e3 * max(took):.1f})"
        print(f"  {name:20} {line}{goal}")
    print(f"  of which the parser's tables: {1e3 * (loaded - began):.0f} ms from the cache")
    print(f"  and {1e3 * (built - loaded):.0f} ms more where they must be built first")


def machine_line() -> str:
    cpu = ""
    if Path("/proc/cpuinfo").is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
        cpu = found[1] if found else ""
    usable = len(os.sched_getaffinity(0))
    versions = " ".join(f"{n} {metadata.version(n)}" for n in ("lark", "python-hcl2", "pyyaml"))
    return (
        f"machine: {cpu or platform.machine()}, {usable} CPUs usable, kernel {platform.release()}, "
        f"load {os.getloadavg()[0]:.2f}; Python {platform.python_version()}, {versions}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", type=int, default=300_000, metavar="C", help="characters of LPCL (default: 300000)")
    options.add_argument("--repeats", type=int, default=7, metavar="N", help="of the readers (default: 7)")
    options.add_argument("--starts", type=int, default=15, metavar="N", help="of each command (default: 15)")
    options.add_argument("--keep", type=Path, metavar="DIR", help="also write the three texts there")
    args = options.parse_args()
    try:
        print(machine_line())
    except metadata.PackageNotFoundError as missing:
        sys.exit(f"{missing.name} is missing: pip install --group bench")
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        for name, (text, _) in readers(corpus(args.size)).items():
            suffix = {"lpcl": "lpcl", "python-hcl2": "hcl", "yaml": "yaml"}[name.split(maxsplit=1)[0]]
            (args.keep / f"contracts.{suffix}").write_text(text, "utf-8")
    bench_reading(args.size, args.repeats)
    bench_start(args.starts)


if __name__ == "__main__":
    main()
