"""The synthesiser's part of the command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from lpcl.corpus import Entry
    from synth.pipeline import Result
    from synth.progress import Step

SYNTH_EXAMPLES = """examples:
  syspilot synth numexpr==2.14.2 joblib==1.6.0 --out contracts
  syspilot synth ./dist/mylib-1.0.tar.gz --out contracts
  syspilot synth --explain numexpr.threads --out contracts     the source lines behind a clause

A target is NAME, NAME==VERSION, a local sdist or wheel, or a folder. Nothing of it is built, installed or imported.
Without a language model: the rule drafter writes the contract."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `synth` to the commands."""
    sub = commands.add_parser(
        "synth",
        help="draft contracts from releases of packages",
        description="draft Library Performance Contracts from releases of packages",
        epilog=SYNTH_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("targets", nargs="*", metavar="TARGET")
    sub.add_argument(
        "--out", type=Path, default=Path("contracts"), metavar="DIR", help="corpus folder (default: contracts)"
    )
    sub.add_argument("--explain", metavar="CLAUSE", help="print the evidence of a clause, for example numexpr.threads")
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    sub.add_argument("--force", action="store_true", help="also replace entries that a person reviewed")
    add_index_options(sub)
    sub.set_defaults(call=synth)
    _add_evidence(commands)


def add_index_options(sub: argparse.ArgumentParser) -> None:
    """The options that say where releases come from."""
    sub.add_argument(
        "--prefer", choices=["sdist", "wheel"], default="sdist", help="which archive to read (default: sdist)"
    )
    sub.add_argument("--index-url", metavar="URL", help="package index (default: as pip is configured)")
    sub.add_argument("--extra-index-url", action="append", default=[], metavar="URL")
    sub.add_argument("--find-links", action="append", default=[], metavar="PATH_OR_URL")
    sub.add_argument("--no-index", action="store_true", help="use --find-links only")
    sub.add_argument("--offline", action="store_true", help="use archives of the cache only")
    sub.add_argument(
        "--cache", type=Path, metavar="DIR", help="where archives are kept (default: the user's cache folder)"
    )


def _add_evidence(commands: argparse._SubParsersAction[Any]) -> None:
    from synth import cli_evidence  # noqa: PLC0415  # a command of its own

    cli_evidence.add(commands)


def cache_dir() -> Path:
    """The user's cache folder for archives."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "syspilot"


def fail(message: str, help_text: str, code: int) -> int:
    """Say what went wrong on stderr; returns the exit code."""
    print(f"syspilot: error: {printable(message)}", file=sys.stderr)
    if help_text:
        print(f"  help: {printable(help_text)}", file=sys.stderr)
    return code


def synth(args: argparse.Namespace) -> int:
    """`syspilot synth`."""
    from synth.records import SynthError  # noqa: PLC0415  # start quickly for --help

    try:
        if args.explain:
            return _explain(args)
        if not args.targets:
            return fail("no target named", "for example: syspilot synth numexpr==2.14.2 --out contracts", 2)
        return _synth(args)
    except SynthError as error:
        return fail(str(error), error.help, error.code)


def _synth(args: argparse.Namespace) -> int:
    from synth.indexes import index_config  # noqa: PLC0415  # loads the network libraries
    from synth.pipeline import Options, synthesise  # noqa: PLC0415

    config = index_config(
        index_url=args.index_url,
        extra_index_urls=args.extra_index_url,
        find_links=args.find_links,
        no_index=args.no_index,
    )
    options = Options(
        args.out, args.cache or cache_dir(), config, prefer=args.prefer, offline=args.offline, force=args.force
    )
    with _Progress(args.targets) as progress:
        results = synthesise(args.targets, options, progress.notify)
    if args.json:
        print(json.dumps({"results": [_as_dict(r) for r in results]}, indent=2))
    else:
        for r in results:
            _print(r)
    return max((r.error.code for r in results if r.error is not None), default=0)


class _Progress:
    """A line per target on a terminal; nothing elsewhere, where the results say it all."""

    def __init__(self, targets: list[str]) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.fields[target]}", markup=False),
            TextColumn("[dim]{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            # not `console.is_terminal`, which FORCE_COLOR makes true
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self.tasks = {t: self.bar.add_task("waiting", total=None, target=t) for t in dict.fromkeys(targets)}

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def notify(self, step: Step) -> None:
        """Show one step."""
        self.bar.update(self.tasks[step.target], description=step.text, completed=step.done, total=step.total)


def _counts(result: Result) -> dict[str, int]:
    contract = result.contract
    if contract is None:
        return {}
    return {
        "demands": len(contract.demands),
        "assumptions": len(contract.assumptions),
        "controls": len(contract.controls),
        "signals": len(contract.signals),
        "mitigations": len(contract.mitigations),
    }


def _print(r: Result) -> None:
    if r.error is not None:
        # a URL can hold a password
        fail(str(r.error) if "://" in r.target else f"{r.target}: {r.error}", r.error.help, r.error.code)
        return
    release = r.release
    assert release is not None  # noqa: S101  # set wherever there is no error
    if r.nothing:
        print(f"{release.name} {release.version}: nothing to state: {r.nothing}")
        return
    counts = ", ".join(f"{n} {k if n != 1 else k[:-1]}" for k, n in _counts(r).items() if n)
    print(f"{release.name} {release.version}: {counts}")
    print(
        f"  from {release.filename} ({release.verified}), {r.files} files, {r.bytes / 1e6:.2f} MB, "
        f"{r.evidence} pieces of evidence, {r.seconds:.1f} s; drafter: rules, no model was used"
    )
    for x in r.dropped:
        print(f"  dropped {x.clause}: {x.why}")
    if r.rejected:
        names = ", ".join(f"{x.name}" for x in r.rejected[:6]) + (" ..." if len(r.rejected) > 6 else "")
        print(f"  no controls: {names}")
    print(f"  {r.folder}")


def _as_dict(r: Result) -> dict[str, object]:
    release = r.release
    return {
        "target": r.target,
        "name": release.name if release else None,
        "version": release.version if release else None,
        "kind": release.kind if release else None,
        "sha256": release.sha256 if release else None,
        "verified": release.verified if release else None,
        "folder": str(r.folder) if r.folder else None,
        "drafter": "rules",
        "clauses": _counts(r),
        "evidence": r.evidence,
        "rejected": [{"name": x.name, "why": x.why, "place": x.place} for x in r.rejected],
        "dropped": [{"clause": x.clause, "why": x.why} for x in r.dropped],
        "skipped": [{"file": x.file, "why": x.why} for x in r.skipped],
        "files": r.files,
        "bytes": r.bytes,
        "seconds": r.seconds,
        "nothing": r.nothing,
        "error": None if r.error is None else {"message": str(r.error), "help": r.error.help, "code": r.error.code},
    }


# --------------------------------------------------------------------- explain


def _explain(args: argparse.Namespace) -> int:
    from lpcl import model as m  # noqa: PLC0415
    from lpcl.corpus import CorpusError, load, shipped  # noqa: PLC0415
    from lpcl.format import contract_text  # noqa: PLC0415

    folders = [args.out] if args.out.is_dir() else []
    try:
        entries, _ = load([*folders, shipped()])
    except CorpusError as error:
        return fail(str(error), "name the folder that `syspilot synth --out` wrote", 2)
    found = _matching(entries, args.explain)
    if not found:
        names = [f"{e.contract.name}.{c.name}" for e in entries for c in e.contract.clauses]
        near = [n for n in names if args.explain.rsplit(".", 1)[-1].lower() in n.lower()][:5] or names[:5]
        return fail(f"no clause `{args.explain}`", f"for example {', '.join(near)}" if near else "run synth first", 2)
    for entry, clause in found:
        for line in contract_text(m.Contract(entry.contract.name, clauses=(clause,))).rstrip().split("\n"):
            print(printable(line))
        for cited in entry.evidence(clause):
            seen = cited.raw["seen"]
            place = f"{cited.id}  {cited.source.split(':')[0]}  {cited.place}  ({seen.get('kind')}, by {cited.vouched})"
            print(f"\n{printable(place)}")
            if seen.get("detail"):
                print(f"  {printable(str(seen['detail']))}")
            for n, line in enumerate(cited.text.splitlines(), int(seen["line"])):
                print(f"  {n:>5} | {printable(line)}")
        print()
    return 0


def printable(line: str) -> str:
    """A text that is safe to show on a terminal."""
    # Sources are hostile text: no control characters reach the terminal.
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)


def _matching(entries: tuple[Entry, ...], wanted: str) -> list[tuple[Entry, Any]]:
    contract, _, name = wanted.rpartition(".")
    out = []
    for entry in entries:
        for clause in entry.contract.clauses:
            ways = {w.label for w in getattr(clause, "ways", ())} | {w.name for w in getattr(clause, "ways", ())}
            by_name = clause.name == name and contract in {"", entry.contract.name}
            if by_name or wanted in ways or wanted in getattr(clause, "env", ()):
                out.append((entry, clause))
    return out
