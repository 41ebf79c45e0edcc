"""`lpcl`: check, format and show contracts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpcl.diagnostics import Diagnostic, LpcError, render, render_json

if TYPE_CHECKING:
    from lpcl.model import File

EXAMPLES = """examples:
  lpcl check corpus/                 every contract of a corpus, with its evidence
  lpcl check contract.lpcl --json    findings for programs
  lpcl fmt contract.lpcl             rewrite in canonical form
  lpcl fmt --check corpus/           only say which files are not
  lpcl show openblas                 a contract of the shipped corpus
  lpcl diff old.lpcl new.lpcl        exit 1 if a tuned configuration may notice
  lpcl compose openblas libgomp --set OMP_NUM_THREADS=1 --why openblas.workers.amount

exit codes: 0 fine, 1 findings, 2 bad input or usage"""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib import metadata  # noqa: PLC0415  # slow to load; only --version needs it

        print(f"lpcl {metadata.version('syspilot-lpc')}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="lpcl",
        description="check, format and show Library Performance Contracts",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="find what is wrong with contracts")
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    check.add_argument("--json", action="store_true", help="findings as one JSON array; the same as --format json")
    check.add_argument("--format", choices=["text", "json", "sarif", "github"], default="text", help="default: text")
    fmt = commands.add_parser("fmt", help="rewrite contracts in canonical form")
    fmt.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    fmt.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is not canonical")
    show = commands.add_parser("show", help="print a contract")
    show.add_argument("contract", help="a file, a folder, or the name of a contract of the shipped corpus")
    show.add_argument("--json", action="store_true", help="as JSON; `lpcl schema` describes it")
    commands.add_parser("schema", help="print the JSON Schema of contracts as JSON")
    diff = commands.add_parser("diff", help="what differs between two contracts, and what that means")
    diff.add_argument("old", help="a file, a folder, or the name of a contract of the shipped corpus")
    diff.add_argument("new", help="the same")
    diff.add_argument("--format", choices=["text", "json", "markdown"], default="text", help="default: text")
    compose = commands.add_parser("compose", help="one system from several contracts and a machine")
    compose.add_argument(
        "contracts", nargs="+", metavar="CONTRACT", help="a file, a folder, or a shipped contract's name"
    )
    compose.add_argument("--machine", default="this", metavar="FILE|this", help="a JSON file of facts (default: this)")
    compose.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a way that is set")
    compose.add_argument("--release", action="append", default=[], metavar="NAME=VERSION", help="what is installed")
    compose.add_argument("--installed", metavar="NAME,...", help="all distributions that are installed")
    compose.add_argument("--configspace", metavar="FILE|-", help="write the joint space as a ConfigSpace (JSON)")
    compose.add_argument("--why", metavar="NAME", help="explain a number, for example openblas.workers.amount")
    compose.add_argument("--json", action="store_true", help="one JSON object")
    review = commands.add_parser(
        "review", help="a contract's clauses beside their evidence; record that they were read"
    )
    review.add_argument("folder", type=Path, help="a folder of a corpus, such as corpus/openblas")
    review.add_argument("--source", type=Path, metavar="FOLDER", help="the unpacked release: show the cited lines too")
    review.add_argument("--all", action="store_true", help="show clauses that were reviewed already too")
    review.add_argument("--accept", action="append", metavar="CLAUSE|all", help="record that a clause is right")
    review.add_argument("--by", metavar="NAME", help="who read it (default: git's user.name)")
    review.add_argument("--comment", default="", help="what there is to say about it")
    corpus = commands.add_parser("corpus", help="a folder of contracts: clauses, trust levels, reviewers")
    corpus.add_argument("folder", type=Path, nargs="?", help="default: the shipped corpus")
    corpus.add_argument("--json", action="store_true", help="one JSON array")
    corpus.add_argument("--into", type=Path, metavar="PAGE", help="write the table into this Markdown page")
    commands.add_parser("lsp", help="language server on standard input and output (needs the extra `lsp`)")
    args = parser.parse_args(argv)
    try:
        code = _COMMANDS[args.command](args)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads us, `head` for example, has seen enough; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, UnicodeError, LpcError) as error:
        print(f"lpcl: error: {error}", file=sys.stderr)
        return 2
    return code


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            # Hidden folders are what an interrupted writer left.
            inside = (p.relative_to(path) for p in path.rglob("*.lpcl"))
            yield from sorted(path / p for p in inside if not any(part.startswith(".") for part in p.parts))
        else:
            yield path


def _check(args: argparse.Namespace) -> int:
    from lpcl.check import check  # noqa: PLC0415  # start quickly for --help and --version
    from lpcl.corpus import EVIDENCE, Entry, load_entry  # noqa: PLC0415
    from lpcl.parse import parse, read_text  # noqa: PLC0415

    found: list[Diagnostic] = []
    texts: dict[str, str] = {}
    count = 0
    for path in _files(args.paths):
        count += 1
        text = texts[str(path)] = read_text(path)
        if path.name == "contract.lpcl" and (path.parent / EVIDENCE).exists():
            loaded = load_entry(path.parent)
            found += loaded.diagnostics if isinstance(loaded, Entry) else loaded
            continue
        parsed = parse(text, file=str(path))
        found += parsed.diagnostics
        if parsed.ok and parsed.file is not None:
            found += check(parsed.file, name=str(path))
    if not count:
        print("lpcl: error: no `.lpcl` file there", file=sys.stderr)
        return 2
    form = "json" if args.json else args.format
    if form == "json":
        print(render_json(found))
    elif form in {"sarif", "github"}:
        print(_annotations(found, form), end="")
    else:
        for d in found:
            print(render(d, texts.get(d.file)))
        errors = sum(d.severity == "error" for d in found)
        print(f"{count} contract{'s' * (count != 1)}: {errors} errors, {len(found) - errors} warnings")
    return 1 if found else 0


def _annotations(found: Sequence[Diagnostic], form: str) -> str:
    import json  # noqa: PLC0415
    from importlib import metadata  # noqa: PLC0415

    from lpcl.annotate import github, sarif  # noqa: PLC0415

    if form == "github":
        text = github(found)
        return text if not text or text.endswith("\n") else text + "\n"
    return json.dumps(sarif(found, metadata.version("syspilot-lpc")), indent=2) + "\n"


def _fmt(args: argparse.Namespace) -> int:
    from lpcl.format import format_text  # noqa: PLC0415
    from lpcl.parse import read_text  # noqa: PLC0415

    code, count = 0, 0
    for path in _files(args.paths):
        count += 1
        text = read_text(path)
        result, diagnostics = format_text(text, file=str(path))
        if result is None:
            for d in diagnostics:
                print(render(d, text), file=sys.stderr)
            code = 2
        elif result != text:
            print(f"{'would change' if args.check else 'changed'} {path}")
            if args.check:
                code = max(code, 1)
            else:
                path.write_text(result, "utf-8", newline="\n")
    if not count:
        print("lpcl: error: no `.lpcl` file there", file=sys.stderr)
        return 2
    return code


def _locate(name: str) -> Path | None:
    """The contract's file: a path, a folder, or a name of the shipped corpus."""
    from lpcl.corpus import CONTRACT, shipped  # noqa: PLC0415

    path = Path(name)
    if path.is_dir():
        path /= CONTRACT
    if not path.is_file():
        path = shipped() / name / CONTRACT
    if path.is_file():
        return path
    print(f"lpcl: error: no contract `{name}`", file=sys.stderr)
    names = sorted(p.parent.name for p in shipped().glob(f"*/{CONTRACT}"))
    print(f"  help: the shipped ones are {', '.join(names)}", file=sys.stderr)
    return None


def _read(name: str) -> File | None:
    """A file of contracts; None after saying what is wrong with it."""
    from lpcl.parse import parse, read_text  # noqa: PLC0415

    path = _locate(name)
    if path is None:
        return None
    text = read_text(path)
    parsed = parse(text, file=str(path))
    if parsed.ok:
        return parsed.file
    for d in parsed.diagnostics:
        print(render(d, text), file=sys.stderr)
    return None


def _show(args: argparse.Namespace) -> int:
    if args.json:
        import json  # noqa: PLC0415

        from lpcl.exchange import to_json  # noqa: PLC0415

        file = _read(args.contract)
        if file is None:
            return 2
        print(json.dumps(to_json(file), indent=2))
        return 0
    path = _locate(args.contract)
    if path is None:
        return 2
    print(path.read_text("utf-8"), end="")
    return 0


def _schema(_: argparse.Namespace) -> int:
    import json  # noqa: PLC0415

    from lpcl.exchange import json_schema  # noqa: PLC0415

    print(json.dumps(json_schema(), indent=2))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from lpcl.diff import compare  # noqa: PLC0415
    from lpcl.diff_render import render_json as as_json  # noqa: PLC0415
    from lpcl.diff_render import render_markdown, render_text  # noqa: PLC0415

    old, new = _read(args.old), _read(args.new)
    if old is None or new is None:
        return 2
    if len(old.contracts) != 1 or len(new.contracts) != 1:
        print("lpcl: error: a file holds more than one contract\n  help: split it", file=sys.stderr)
        return 2
    changes = compare(old.contracts[0], new.contracts[0])
    form = {"text": render_text, "json": as_json, "markdown": render_markdown}[args.format]
    print(form(changes).rstrip("\n"))
    return int(any(c.severity in {"breaking", "behavioural"} for c in changes))


def _compose(args: argparse.Namespace) -> int:
    from lpcl.cli_compose import run  # noqa: PLC0415

    paths = [_locate(name) for name in args.contracts]
    if any(p is None for p in paths):
        return 2
    return run(args, [p for p in paths if p is not None])


def _review(args: argparse.Namespace) -> int:
    from lpcl.cli_review import run  # noqa: PLC0415

    return run(args)


def _corpus(args: argparse.Namespace) -> int:
    from lpcl.cli_corpus import run  # noqa: PLC0415

    return run(args)


def _lsp(_: argparse.Namespace) -> int:
    try:
        from lpcl.lsp import create  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        print(f"lpcl: error: the language server needs `{error.name}`", file=sys.stderr)
        print("  help: pip install 'syspilot-lpc[lsp]'", file=sys.stderr)
        return 2
    create().start_io()
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "check": _check,
    "fmt": _fmt,
    "show": _show,
    "schema": _schema,
    "diff": _diff,
    "compose": _compose,
    "review": _review,
    "corpus": _corpus,
    "lsp": _lsp,
}
