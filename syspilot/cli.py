"""`syspilot`: parse, call, render."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syspilot.app import Tunable
    from syspilot.decision import Decision
    from syspilot.session import Options

EXAMPLES = """examples:
  syspilot synth numexpr==2.14.2 --out contracts       contracts from a release
  syspilot evidence numexpr==2.14.2 --top 20           what a release holds: controls, pools, look-alikes
  syspilot doctor -- python app.py                     which pools are there, which get in each other's way
  syspilot tune --metric 'seconds ([0-9.]+)' -- python app.py
  syspilot tune --env APP_JOBS=1..16 --param workers=1..8:"--workers {}" -- python app.py
  syspilot run -- python app.py                        with the configuration that tune found
  syspilot export dockerfile -- python app.py          that configuration for a Dockerfile
  syspilot explain -- python app.py                    why: clauses and their evidence

exit codes: 0 fine, 1 findings (doctor) or no improvement (tune), 2 bad input or usage, 3 a tool or the network failed,
130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    command: list[str] = []
    if "--" in args:
        cut = args.index("--")
        args, command = args[:cut], args[cut + 1 :]
    parser = _parser()
    options = parser.parse_args(args)
    options.command_line = command
    try:
        code = int(options.call(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("syspilot: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away, for example `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="syspilot",
        description="find and fix resource conflicts between the libraries of one application",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"syspilot {metadata.version('syspilot-lpc')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_synth(commands)
    for name, help_text in (
        ("doctor", "profile one run: pools, conflicts, hazards"),
        ("tune", "find, measure and confirm a configuration"),
    ):
        sub = _sub(commands, name, help_text, f"example: syspilot {name} --metric 'seconds ([0-9.]+)' -- python app.py")
        _add_session(sub, name)
        sub.set_defaults(call=_doctor if name == "doctor" else _tune)
    run = _sub(commands, "run", "run with the configuration that tune found", "example: syspilot run -- python app.py")
    run.add_argument("--dry-run", action="store_true", help="print the command instead of running it")
    run.set_defaults(call=_run)
    export = _sub(commands, "export", "print that configuration", "example: syspilot export sh -- python app.py")
    export.add_argument("form", choices=["env", "sh", "dockerfile"])
    export.set_defaults(call=_export)
    explain = _sub(
        commands, "explain", "why: the clauses and their evidence", "example: syspilot explain -- python app.py"
    )
    explain.add_argument("--contracts", action="append", type=Path, default=[], metavar="DIR", help=_CONTRACTS_HELP)
    explain.set_defaults(call=_explain)
    for sub in (run, export, explain):
        sub.add_argument("--state", type=Path, default=Path(".syspilot"), metavar="DIR", help=_STATE_HELP)
        sub.add_argument("--decision", type=Path, metavar="FILE", help="use this decision instead of the stored one")
    return parser


_CONTRACTS_HELP = "folder of contracts, looked into before the shipped ones; may be given several times"
_STATE_HELP = "where decisions and histories are kept (default: .syspilot)"


def _sub(commands: argparse._SubParsersAction, name: str, help_text: str, epilog: str) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    sub: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=help_text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"syspilot {name} [options]"
        + (" {env,sh,dockerfile}" if name == "export" else "")
        + ("" if name == "synth" else " -- COMMAND [ARGUMENT ...]"),
    )
    return sub


def _add_synth(commands: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    from synth import cli as synth_cli  # noqa: PLC0415  # the only place that joins the two packages

    synth_cli.add(commands)


def _add_session(sub: argparse.ArgumentParser, name: str) -> None:
    sub.add_argument("--metric", metavar="REGEX", help="the number to improve, as the application prints it")
    sub.add_argument("--maximise", action="store_true", help="larger is better (default: smaller)")
    sub.add_argument(
        "--env", action="append", default=[], metavar="NAME=1..16", help="a variable the application reads"
    )
    sub.add_argument(
        "--param", action="append", default=[], metavar='NAME=1..16:"--flag {}"', help="an argument of the application"
    )
    sub.add_argument("--contracts", action="append", type=Path, default=[], metavar="DIR", help=_CONTRACTS_HELP)
    default_runs = 4 if name == "doctor" else 16
    sub.add_argument(
        "--max-runs", type=int, default=default_runs, metavar="N", help="runs at most (default: %(default)s)"
    )
    sub.add_argument("--timeout", type=float, metavar="SECONDS", help="of one run (default: 10 times the default's)")
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    sub.add_argument("--report", type=Path, metavar="FILE", help="write an HTML report here too")
    sub.add_argument("--state", type=Path, default=Path(".syspilot"), metavar="DIR", help=_STATE_HELP)
    sub.add_argument("--echo", action="store_true", help="show the application's output")
    sub.add_argument("--exit-zero", action="store_true", help="exit 0 whatever was found")
    if name == "doctor":
        sub.add_argument("--no-intervene", action="store_true", help="one profiled run only: nothing is confirmed")
    else:
        sub.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")
        sub.add_argument("--export", choices=["env", "sh", "dockerfile"], help="print the configuration in this form")
        sub.add_argument("--output", type=Path, metavar="FILE", help="write the export here instead")


def _fail(message: str, help_text: str = "", code: int = 2) -> int:
    print(f"syspilot: error: {message}", file=sys.stderr)
    if help_text:
        print(f"  help: {help_text}", file=sys.stderr)
    return code


# ---------------------------------------------------------------- doctor, tune


def _doctor(args: argparse.Namespace) -> int:
    return _session(args, "doctor")


def _tune(args: argparse.Namespace) -> int:
    return _session(args, "tune")


def _session(args: argparse.Namespace, mode: str) -> int:
    from syspilot.app import UsageError  # noqa: PLC0415  # start quickly for --help
    from syspilot.session import ApplicationError  # noqa: PLC0415

    try:
        return _session_inner(args, mode)
    except UsageError as error:
        return _fail(str(error), error.help)
    except OSError as error:
        where = error.filename or "a file"
        return _fail(f"`{where}` cannot be written: {error.strerror}", "choose another place: --state, --report", 3)
    except ApplicationError as error:
        tail = error.run.stderr_tail.strip().splitlines()[-5:]
        code = _fail(str(error), error.help)
        for line in tail:
            print(f"  | {line}", file=sys.stderr)
        return code


def _tunables(args: argparse.Namespace) -> tuple[Tunable, ...]:
    from syspilot.app import UsageError, parse_tunable  # noqa: PLC0415

    tunables = [parse_tunable(t, "env") for t in args.env] + [parse_tunable(t, "param") for t in args.param]
    names = [t.name for t in tunables]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UsageError(f"`{twice}` is given twice", "give each tunable a name of its own")
    return tuple(tunables)


def _options(args: argparse.Namespace, mode: str, history: Path) -> Options:
    """What the arguments ask for; raises UsageError for what cannot be done."""
    from syspilot.app import UsageError  # noqa: PLC0415
    from syspilot.session import Options  # noqa: PLC0415

    if not args.command_line:
        raise UsageError("no application to run", f"put it behind `--`: syspilot {mode} -- python app.py")
    if args.max_runs < 1:
        raise UsageError("`--max-runs` must be at least 1", "the default is enough for most applications")
    if args.timeout is not None and not 0 < args.timeout < math.inf:
        raise UsageError("`--timeout` must be a number of seconds above 0", "for example --timeout 60")
    if getattr(args, "output", None) is not None and not args.export:
        raise UsageError("`--output` without `--export`", "add --export env, sh or dockerfile")
    try:
        metric = re.compile(args.metric) if args.metric else None
    except re.error as error:
        message = f"`{args.metric}` is no regular expression: {error}"
        raise UsageError(message, "for example 'seconds ([0-9.]+)'") from error
    profile_only = getattr(args, "no_intervene", False)
    return Options(
        metric=metric,
        maximise=args.maximise,
        max_runs=1 if profile_only else args.max_runs,
        timeout_s=args.timeout,
        seed=getattr(args, "seed", 0),
        history=history,
        echo=args.echo,
        interventions=0 if profile_only else 1,
    )


def _session_inner(args: argparse.Namespace, mode: str) -> int:
    from lpcl.corpus import CorpusError  # noqa: PLC0415
    from lpcl.machine import facts  # noqa: PLC0415
    from syspilot import decision as d  # noqa: PLC0415
    from syspilot import show  # noqa: PLC0415
    from syspilot.app import Application, UsageError  # noqa: PLC0415
    from syspilot.report import render  # noqa: PLC0415
    from syspilot.session import Session  # noqa: PLC0415
    from syspilot.tune import doctor, tune  # noqa: PLC0415

    folder = args.state / d.key_of(args.command_line, Path.cwd())
    options = _options(args, mode, folder / f"{mode}-history.jsonl")
    application = Application(tuple(args.command_line), _tunables(args))
    try:
        entries = show.load_contracts(args.contracts)
    except CorpusError as error:
        raise UsageError(str(error), "name a folder that `syspilot synth --out` wrote") from error
    with show.Progress(quiet=args.json) as progress:
        session = Session(application, entries, facts(), dict(os.environ), options, progress.notify)
        decision = (doctor if mode == "doctor" else tune)(session)
    saved = d.save(decision, folder)
    shown = decision.configuration or next((c.remedy for c in decision.confirmed), {})
    default, best = session.representative({}), session.representative(shown) if shown else None
    report = args.report or folder / f"{mode}.html"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(render(decision, default, best), "utf-8")
    if args.json:
        print(decision.model_dump_json(indent=2))
    else:
        show.decision(decision, report=report, saved=saved)
    if getattr(args, "export", None):
        _write_export(d.export(decision, args.export), args.output, quiet=args.json)
    return 130 if decision.interrupted else _exit_code(decision, exit_zero=args.exit_zero)


def _exit_code(decision: Decision, *, exit_zero: bool) -> int:
    if exit_zero:
        return 0
    if decision.mode == "doctor":
        return int(bool(decision.confirmed or decision.hazards))
    return int(not decision.improved)


def _write_export(text: str, output: Path | None, *, quiet: bool) -> None:
    if output is not None:
        output.write_text(text, "utf-8")
    elif not quiet:
        print(text, end="")


# ---------------------------------------------------------- run, export, explain


def _stored(args: argparse.Namespace) -> Decision | int:
    """The decision to use, or the exit code after saying why there is none."""
    from syspilot import decision as d  # noqa: PLC0415

    path = args.decision
    if path is None:
        if not args.command_line:
            return _fail("no application named", "put it behind `--`, as for `syspilot tune`")
        path = args.state / d.key_of(args.command_line, Path.cwd()) / "tune.json"
    if not path.is_file():
        command = shlex.join(args.command_line) or "COMMAND"
        return _fail(f"no decision is stored for `{command}`", f"find one first: syspilot tune -- {command}")
    try:
        return d.load(path)
    except ValueError as error:
        return _fail(str(error), "run `syspilot tune` again")


def _run(args: argparse.Namespace) -> int:
    from syspilot.app import Application, Tunable  # noqa: PLC0415

    stored = _stored(args)
    if isinstance(stored, int):
        return stored
    command = tuple(args.command_line) or stored.command
    tunables = tuple(Tunable(name, "param", (), template) for name, template in stored.params.items())
    argv, env = Application(command, tunables).prepare(stored.configuration, os.environ)
    words = [f"{k}={shlex.quote(v)}" for k, v in stored.configuration.items() if k not in stored.params]
    if args.dry_run:
        print(" ".join([*words, shlex.join(argv)]))
        return 0
    unsure = " (from a session that was interrupted: not confirmed)" if stored.interrupted else ""
    print(f"syspilot: {' '.join(words) or 'the default configuration'}{unsure}", file=sys.stderr)
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  # running the user's command is what this is for
    except OSError as error:
        return _fail(f"`{argv[0]}` cannot be started: {error.strerror}", "check the command behind `--`")


def _export(args: argparse.Namespace) -> int:
    from syspilot import decision as d  # noqa: PLC0415

    stored = _stored(args)
    if isinstance(stored, int):
        return stored
    print(d.export(stored, args.form), end="")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from syspilot import show  # noqa: PLC0415

    stored = _stored(args)
    if isinstance(stored, int):
        return stored
    show.explain(stored, show.load_contracts(args.contracts))
    return 0
