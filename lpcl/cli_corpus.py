"""`lpcl corpus`: what a folder of contracts holds, how far each clause can be trusted, and who read it."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path

from lpcl.corpus import Entry, load, shipped
from lpcl.diagnostics import render

LEVELS = ("drafted", "grounded", "reviewed")
_START, _END = "<!-- corpus: made by `make corpus-table` -->\n", "<!-- corpus: end -->\n"


def run(args: argparse.Namespace) -> int:
    """Print the table, or write it into a page; returns the exit code."""
    entries, found = load([args.folder or shipped()])
    for d in found:
        if d.severity == "error":
            print(render(d, None))
    rows = [_row(e) for e in entries]
    if args.into:
        return _into(args.into, entries, rows)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print(_text(rows))
    return int(any(d.severity == "error" for d in found))


def _row(e: Entry) -> dict[str, object]:
    trust = Counter(e.trust(c) for c in e.contract.clauses)
    reviews = [r for c in e.contract.clauses if (r := e.review(c)) is not None]
    return {
        "contract": e.contract.name,
        "read": str(e.metadata.get("read", "")),
        "clauses": len(e.contract.clauses),
        "trust": {level: trust[level] for level in LEVELS if trust[level]},
        "reviewers": sorted({r.by for r in reviews}),
        "drafters": sorted({c.vouched for c in e.cited.values()}),
    }


def _trust(row: dict[str, object]) -> str:
    counts = row["trust"]
    return ", ".join(f"{n} {level}" for level, n in counts.items()) if isinstance(counts, dict) else ""


def _text(rows: list[dict[str, object]]) -> str:
    width = max((len(str(r["contract"])) for r in rows), default=8)
    return "\n".join(
        f"{r['contract']!s:<{width}}  {r['clauses']!s:>4} clauses  {_trust(r):<28}  {r['read']}" for r in rows
    )


def _into(page: Path, entries: tuple[Entry, ...], rows: list[dict[str, object]]) -> int:
    """Replace the part of a page between the two marks."""
    text = page.read_text("utf-8")
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        print(f"lpcl: error: `{page}` has no place for the table\n  help: put the lines {_START}{_END} there")
        return 2
    lines = ["| contract | read | clauses | trust |", "|---|---|---|---|"]
    for entry, row in zip(entries, rows, strict=True):
        link = os.path.relpath(entry.folder / "contract.lpcl", page.parent)
        lines.append(f"| [{row['contract']}]({link}) | {row['read']} | {row['clauses']} | {_trust(row)} |")
    page.write_text(before + start + "\n".join(lines) + "\n" + end + after, "utf-8")
    return 0
