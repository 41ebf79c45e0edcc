"""`lpcl review`: a contract's clauses beside the lines that they rest on, and a record of who read them.

Nothing here changes a contract. A record is made for a clause as it stands; what has been read already is not asked for
again until it changes.
"""

from __future__ import annotations

import argparse
import getpass
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from lpcl import model as m
from lpcl.change import printable
from lpcl.corpus import REVIEWS, Cited, Entry, Review, fingerprint, load_entry
from lpcl.format import clause_text

MAX_LINES = 60


def run(args: argparse.Namespace) -> int:
    """Show the sheet of a folder, or accept clauses of it; returns the exit code."""
    folder: Path = args.folder
    loaded = load_entry(folder)
    if not isinstance(loaded, Entry) or any(d.severity == "error" for d in loaded.diagnostics):
        print(f"lpcl: error: `{folder}` has errors\n  help: lpcl check {folder}", file=sys.stderr)
        return 2
    if args.accept:
        return _accept(loaded, args.accept, args.by or _reader(), args.comment)
    open_clauses = [c for c in loaded.contract.clauses if args.all or loaded.review(c) is None]
    for clause in open_clauses:
        print("\n".join(sheet(loaded, clause, args.source)) + "\n")
    count = len(loaded.contract.clauses)
    done = sum(loaded.review(c) is not None for c in loaded.contract.clauses)
    print(f"{loaded.contract.name}: {done} of {count} clauses reviewed")
    return 0


def sheet(entry: Entry, clause: m.Clause, source: Path | None = None) -> Iterator[str]:
    """A clause, its trust, and each evidence; with an unpacked release also the lines themselves."""
    review = entry.review(clause)
    by = f" by {review.by} on {review.on}" if review is not None else ""
    yield f"# {m.clause_label(clause)}: {entry.trust(clause)}{by}"
    yield clause_text(clause)
    for cited in entry.evidence(clause):
        detail = (cited.raw.get("seen") or {}).get("detail", "")
        yield printable(f"-- {cited.id} ({cited.vouched}) {cited.source} {cited.place}: {detail}")
        yield from _lines(cited, source)


def _lines(cited: Cited, source: Path | None) -> Iterator[str]:
    seen = cited.raw.get("seen") or {}
    name, first = str(seen.get("file", "")), int(seen.get("line") or 0)
    last = int(seen.get("end_line") or first)
    if source is None or first < 1:
        return
    path = source / PurePosixPath(name)
    if ".." in PurePosixPath(name).parts or not path.is_file():
        yield "   (not in the source)"
        return
    lines = path.read_text("utf-8", "replace").splitlines()[first - 1 : last]
    for n, line in enumerate(lines[:MAX_LINES], first):
        yield f"   {n:>5}  {printable(line)}"
    if len(lines) > MAX_LINES:
        yield f"   ... {len(lines) - MAX_LINES} more"


def _reader() -> str:
    try:
        found = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return getpass.getuser()
    return found.stdout.strip() or getpass.getuser()


def _accept(entry: Entry, names: list[str], by: str, comment: str) -> int:
    clauses = entry.contract.clauses
    known = {c.name: c for c in clauses}
    unknown = [n for n in names if n != "all" and n not in known]
    if unknown:
        help_text = f"its clauses are {', '.join(known)}"
        print(
            f"lpcl: error: `{entry.contract.name}` has no clause `{unknown[0]}`\n  help: {help_text}", file=sys.stderr
        )
        return 2
    chosen = clauses if "all" in names else tuple(known[n] for n in dict.fromkeys(names))
    today = datetime.now(UTC).date().isoformat()
    reviews = {k: r for k, r in entry.reviews.items() if k in {fingerprint(c, entry.cited) for c in clauses}}
    fresh = [c for c in chosen if entry.review(c) is None]
    for clause in fresh:
        key = fingerprint(clause, entry.cited)
        reviews[key] = Review(m.clause_label(clause), key, by, today, comment)
    order = {fingerprint(c, entry.cited): n for n, c in enumerate(clauses)}
    text = "".join(
        json.dumps(asdict(reviews[k]), sort_keys=True) + "\n" for k in sorted(reviews, key=order.__getitem__)
    )
    path = entry.folder / REVIEWS
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.replace(path)
    print(f"{entry.contract.name}: {len(fresh)} clauses accepted by {by}")
    return 0
