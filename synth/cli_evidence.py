"""`syspilot evidence`: what a release holds, one item a name."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.extract import Extraction
    from synth.items import Item
    from synth.progress import Step

EXAMPLES = """examples:
  syspilot evidence numexpr==2.14.2                       controls, pools, signals and look-alikes, as a table
  syspilot evidence numexpr==2.14.2 --json                one JSON object a line
  syspilot evidence ./dist/mylib-1.0.tar.gz --verdict control --top 20

A target is NAME, NAME==VERSION, a local sdist or wheel, or a folder. Nothing of it is built, installed or imported.
Releases that a release pins to its own version (one project in pieces) are read with it."""
KINDS = ("env", "api", "config", "param")
VERDICTS = ("control", "not_control", "signal", "demand", "mitigation")
_HEADS = ("name", "kind", "verdict", "resource", "default", "read", "at")
_WIDTHS = (46, 6, 11, 13, 26, 13, 40)


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `evidence` to the commands."""
    from synth.cli import add_index_options  # noqa: PLC0415  # the module that adds this one

    sub = commands.add_parser(
        "evidence",
        help="what a release holds: controls, pools, signals, look-alikes",
        description="list what a release holds: controls, pools, signals, and what only looks like a control",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("targets", nargs="+", metavar="TARGET")
    sub.add_argument("--json", action="store_true", help="print one JSON object a line")
    sub.add_argument("--top", type=int, metavar="N", help="the N most important items of each target only")
    sub.add_argument("--kind", action="append", choices=KINDS, help="items of this kind only; may be given again")
    sub.add_argument("--verdict", action="append", choices=VERDICTS, help="items judged so only; may be given again")
    sub.add_argument("--alone", action="store_true", help="do not read the releases that belong to this one")
    sub.add_argument(
        "--docs",
        action="append",
        default=[],
        metavar="PLACE",
        help="read documents too: an address (with the pages below it), a folder of pages, or `project` for the "
        "address that the release's metadata names; may be given again",
    )
    sub.add_argument("--jobs", type=int, metavar="N", help="processes to read large releases with (default: all CPUs)")
    add_index_options(sub)
    sub.set_defaults(call=evidence)


def evidence(args: argparse.Namespace) -> int:
    """`syspilot evidence`."""
    from synth.cli import cache_dir, fail  # noqa: PLC0415  # start quickly for --help
    from synth.extract import Sources, extract  # noqa: PLC0415
    from synth.indexes import index_config  # noqa: PLC0415  # loads the network libraries
    from synth.records import SynthError  # noqa: PLC0415

    if args.top is not None and args.top < 1:
        return fail("`--top` must be at least 1", "leave it out for all items", 2)
    if args.jobs is not None and args.jobs < 1:
        return fail("`--jobs` must be at least 1", "leave it out for one a CPU", 2)
    try:
        config = index_config(
            index_url=args.index_url,
            extra_index_urls=args.extra_index_url,
            find_links=args.find_links,
            no_index=args.no_index,
        )
    except SynthError as error:
        return fail(str(error), error.help, error.code)
    sources = Sources(
        args.cache or cache_dir(),
        config,
        prefer=args.prefer,
        offline=args.offline,
        companions=not args.alone,
        jobs=len(os.sched_getaffinity(0)),
        docs=tuple(args.docs),
    )
    code = 0
    progress = _Progress()
    for result in extract(args.targets, sources, progress.notify):
        progress.clear()
        if result.error is not None:
            failed = result.error
            shown = str(failed) if "://" in result.target else f"{result.target}: {failed}"
            code = max(code, fail(shown, failed.help, failed.code))
            continue
        _show(result, _wanted(result.items, args), as_json=args.json)
    return code


def _wanted(items: tuple[Item, ...], args: argparse.Namespace) -> list[Item]:
    found = [
        item
        for item in items
        if (not args.kind or item.kind in args.kind) and (not args.verdict or item.verdict in args.verdict)
    ]
    return found[: args.top]


class _Progress:
    """One line on a terminal's stderr; nothing elsewhere."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()
        self.last = ""

    def notify(self, step: Step) -> None:
        """Show one step."""
        from synth.cli import printable  # noqa: PLC0415

        share = f" {100 * step.done // step.total} %" if step.total else ""
        line = printable(f"{step.target}: {step.text}{share}")[:100]
        if self.on and line != self.last:
            self.last = line
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self.on and self.last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _show(result: Extraction, items: list[Item], *, as_json: bool) -> None:
    from synth.cli import printable  # noqa: PLC0415

    names = " + ".join(f"{r.name} {r.version} ({r.filename}, {r.verified})" for r in result.releases)
    summary = f"{names}: {len(items)} of {len(result.items)} items, {result.files} files, {result.bytes / 1e6:.2f} MB"
    if as_json:
        for item in items:
            print(json.dumps(as_dict(item), ensure_ascii=False))
        print(printable(f"{summary}, {result.seconds:.1f} s"), file=sys.stderr)
        return
    print(printable(f"{summary}, {result.seconds:.1f} s"))
    rows = [_row(item) for item in items]
    widths = [max([len(head), *(len(row[i]) for row in rows)]) for i, head in enumerate(_HEADS)]
    for row in [list(_HEADS), *rows] if rows else []:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _row(item: Item) -> list[str]:
    from synth.cli import printable  # noqa: PLC0415

    place = item.evidence[0] if item.evidence else None
    doubt = "" if item.certain else "?"
    cells = (
        item.name,
        item.kind,
        item.verdict + doubt,
        item.resource,
        item.default,
        item.read_when,
        f"{place.where}:{place.line}" if place is not None else "",
    )
    return [_short(printable(cell), width) for cell, width in zip(cells, _WIDTHS, strict=True)]


def _short(text: str, width: int) -> str:
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= width else text[: width - 3] + "..."


def as_dict(item: Item) -> dict[str, object]:
    """An item as a JSON object."""
    return item.model_dump(mode="json", exclude={"rank"})
