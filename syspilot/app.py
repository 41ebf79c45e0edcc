"""The application: its command, what it exposes to be tuned, and what a run shows that it loads."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shlex
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lpcl.corpus import Entry, covers, covers_library
from syspilot.records import Run

MAX_SCRIPT_BYTES = 2 << 20
MAX_VALUES = 4096


class UsageError(Exception):
    """The command line cannot be used as given; `help` is the fix in one line."""

    def __init__(self, message: str, help_text: str = "") -> None:
        """Keep the fix apart from the message."""
        super().__init__(message)
        self.help = help_text


@dataclass(frozen=True, slots=True)
class Tunable:
    """Something that the application itself exposes.

    Attributes:
        name: as the user named it; kind: `env` (a variable that it reads) or `param` (an argument).
        values: what it may be set to, as text; whole numbers ascend.
        template: for a parameter: the arguments, with `{}` for the value.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    template: str = ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The values as whole numbers, if all of them are; else empty."""
        try:
            return tuple(int(v) for v in self.values)
        except ValueError:
            return ()


def parse_tunable(text: str, kind: str) -> Tunable:
    """`NAME=1..16`, `NAME=1..16..4`, `NAME=a,b,c`; for a parameter with `:"--flag {}"` behind it.

    Raises:
        UsageError: the text has another form.
    """
    example = "--env APP_JOBS=1..16" if kind == "env" else '--param workers=1..16:"--workers {}"'
    name, equals, rest = text.partition("=")
    domain, colon, template = rest.partition(":") if kind == "param" else (rest, "", "")
    pattern = r"[A-Za-z_][A-Za-z0-9_]*" if kind == "env" else r"[A-Za-z_][A-Za-z0-9_.-]*"
    if not equals or not re.fullmatch(pattern, name):
        raise UsageError(f"`{text}` is no tunable", f"write it like {example}")
    if kind == "param" and (not colon or not _one_field(template)):
        raise UsageError(f"`{text}` has no argument with one `{{}}` in it", f"write it like {example}")
    return Tunable(name, kind, _domain(domain, text, example), template.strip())


def _one_field(template: str) -> bool:
    try:
        fields = [f for _, f, _, _ in string.Formatter().parse(template) if f is not None]
        shlex.split(template)
    except ValueError:
        return False
    return fields == [""]


def _domain(domain: str, text: str, example: str) -> tuple[str, ...]:
    match = re.fullmatch(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(\d{1,9}))?", domain.strip())
    if match:
        low, high, step = int(match[1]), int(match[2]), int(match[3] or 1)
        if low > high or step < 1:
            raise UsageError(f"the range of `{text}` is empty", f"write it like {example}")
        if (high - low) // step >= MAX_VALUES:
            raise UsageError(f"`{text}` has more than {MAX_VALUES} values", "give a step: LOW..HIGH..STEP")
        return tuple(str(v) for v in range(low, high + 1, step))
    if re.fullmatch(r"(?=.*\d)[-+.\d]*\.\.[-+.\d]*", domain.strip()):
        raise UsageError(f"the range of `{text}` is not one of whole numbers", f"write it like {example}")
    values = tuple(dict.fromkeys(v.strip() for v in domain.split(",") if v.strip()))
    if not values:
        raise UsageError(f"`{text}` gives no values", f"write it like {example}")
    return values


@dataclass(frozen=True, slots=True)
class Application:
    """A command and what it exposes."""

    command: tuple[str, ...]
    tunables: tuple[Tunable, ...] = ()

    def prepare(self, configuration: Mapping[str, str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command and environment of a run under a configuration.

        A name of a `param` tunable goes into the arguments: behind its flag if the command has that already, else
        at the end. Every other name is an environment variable.
        """
        command, env = list(self.command), dict(environ)
        params = {t.name: t for t in self.tunables if t.kind == "param"}
        for name, value in configuration.items():
            if name in params:
                command = _with_argument(command, shlex.split(params[name].template), value)
            else:
                env[name] = value
        return command, env


def _with_argument(command: list[str], template: Sequence[str], value: str) -> list[str]:
    filled = [part.replace("{}", value) for part in template]
    where = next((i for i, part in enumerate(template) if "{}" in part), 0)
    prefix = template[where].partition("{}")[0]
    flag = template[where - 1] if where > 0 else prefix.removesuffix("=")
    if flag.startswith("-"):
        new = filled[max(0, where - 1) : where + 1]
        glued = where == 0 and not prefix.endswith("=")  # `-j{}`
        for at, part in enumerate(command[1:], 1):
            if part == flag and not glued and at + 1 < len(command):
                return [*command[:at], *new, *command[at + 2 :]]
            if part.startswith(prefix if glued else f"{flag}="):
                return [*command[:at], *new, *command[at + 1 :]]
    return [*command, *filled]


def static_imports(command: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """Top-level modules that the script of a Python command imports, read from its text; empty if there is none."""
    for argument in command:
        path = cwd / argument
        if argument.endswith(".py") and path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES:
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return ()
            return tuple(sorted(set(_imported(tree))))
    return ()


def _imported(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@dataclass(frozen=True, slots=True)
class Library:
    """Something that the application loads.

    Attributes:
        name: distribution or, for a native runtime, the contract's name or the shared object's base name.
        kind: `package` or `native`.
        version: as far as it is known.
        copies: real paths of the shared objects, for native runtimes.
        modules: top-level modules, for packages.
        pids: processes that have it.
        entry: its contract, or None.
    """

    name: str
    kind: str
    version: str | None
    copies: tuple[str, ...]
    pids: tuple[int, ...]
    entry: Entry | None = field(compare=False, repr=False, default=None)
    modules: tuple[str, ...] = ()


def discover(run: Run, entries: Sequence[Entry]) -> tuple[Library, ...]:
    """What a run loaded, each with its contract if there is one; sorted by kind and name."""
    found = [*_packages(run, entries), *_natives(run, entries)]
    return tuple(sorted(found, key=lambda x: (x.kind, x.name)))


def _packages(run: Run, entries: Sequence[Entry]) -> list[Library]:
    pids: dict[str, set[int]] = {}
    versions: dict[str, str | None] = {}
    folders = {
        str(Path(file).parent.parent if Path(file).name == "__init__.py" else Path(file).parent)
        for report in run.inside
        for _, file in report.modules.values()
        if file
    }
    owners = _owners(folders)
    for report in run.inside:
        for module, (version, _) in report.modules.items():
            if module not in owners:
                continue  # a module of the application itself, or of the interpreter
            name, known = owners[module]
            pids.setdefault(name, set()).add(report.pid)
            versions[name] = known or version
    result = []
    for name, where in pids.items():
        entry = next((e for e in entries if covers(e.contract, name, versions[name])), None)
        tops = tuple(sorted(m for m, (owner, _) in owners.items() if owner == name))
        result.append(Library(name, "package", versions[name], (), tuple(sorted(where)), entry, tops))
    return result


def _owners(folders: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """Top-level module -> (distribution, version), read from the metadata in these folders."""
    owners: dict[str, tuple[str, str | None]] = {}
    for dist in importlib.metadata.distributions(path=sorted(folders)):
        metadata = dist.metadata  # each access reads and parses it again
        name = metadata["Name"] if metadata is not None else None
        if not name:
            continue
        version = metadata["Version"]
        tops = (dist.read_text("top_level.txt") or "").split()
        if not tops:
            tops = [
                f.parts[0].removesuffix(".py").split(".")[0]
                for f in dist.files or ()
                if (len(f.parts) > 1 or f.suffix in {".py", ".so"}) and f.parts[0] not in {"..", "bin"}
                if not f.parts[0].endswith((".dist-info", ".libs", ".data"))
            ]
        for top in tops:
            owners.setdefault(top, (name, version))
    return owners


def _natives(run: Run, entries: Sequence[Entry]) -> list[Library]:
    copies: dict[str, set[str]] = {}
    pids: dict[str, set[int]] = {}
    by_name = {e.contract.name: e for e in entries}
    seen = [(p.pid, lib) for p in run.processes for lib in p.libraries]
    seen += [(r.pid, lib) for r in run.inside for lib in r.libraries]
    for pid, library in seen:
        base = library.rsplit("/", 1)[-1]
        for entry in entries:
            if covers_library(entry.contract, base):
                copies.setdefault(entry.contract.name, set()).add(library)
                pids.setdefault(entry.contract.name, set()).add(pid)
    return [
        Library(name, "native", None, tuple(sorted(copies[name])), tuple(sorted(pids[name])), by_name[name])
        for name in copies
    ]
