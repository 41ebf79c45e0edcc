"""The values that flow through the synthesiser, each frozen and writable to disk.

`Target -> Release -> Observation -> Evidence -> contract`: a target is what the user named, a release is an
unpacked tree of files, an observation is one thing that one walker saw at one place, and a piece of evidence is
an observation that was ranked, deduplicated and given an id that a contract can cite.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class SynthError(Exception):
    """A target could not be handled; `code` is the exit code, `help` the fix in one line."""

    def __init__(self, message: str, *, help_text: str = "", code: int = 2) -> None:
        """Keep the fix apart from the message, so that each front end can lay it out."""
        super().__init__(message)
        self.help = help_text
        self.code = code


class Record(BaseModel):
    """Base of all records: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Target(Record):
    """What the user named on the command line.

    Attributes:
        text: the argument as typed.
        name: normalised project name (PEP 503); for a folder or an archive, what its metadata or file name says.
        specifier: PEP 440 specifier such as `==2.14.2`, or `""` for the newest release.
        path: local archive or folder, if the target is one.
        installed: an installed distribution, by its name, or by the path of its metadata folder.
    """

    text: str
    name: str
    specifier: str = ""
    path: Path | None = None
    installed: bool = False


class Release(Record):
    """One unpacked release.

    Attributes:
        root: folder that holds the files (the archive's single top folder is already entered).
        kind: what the files came from.
        filename: archive file name, or the folder's name.
        sha256: digest of the archive, or of the sorted (path, digest) list for a folder.
        verified: how the digest was checked: against the index, or not at all (local files).
        location: where it came from, without credentials: `index` or a file name, never a host name or local path.
    """

    name: str
    version: str
    root: Path
    kind: Literal["sdist", "wheel", "folder"]
    filename: str
    sha256: str
    verified: Literal["index", "unverified"]
    location: str


class Kind(StrEnum):
    """What a walker saw."""

    ENV_READ = "env_read"  # the code reads environment variable `name`
    ENV_WRITE = "env_write"  # the code sets environment variable `name` (its own process or its children)
    API_SET = "api_set"  # public callable that sets a pool size or limit
    API_GET = "api_get"  # public callable that reports one, without side effects
    PARAM = "param"  # parameter `callable(parameter=)` of a public callable that sizes a pool or a limit
    POOL = "pool"  # a pool of threads or processes is created here; `name` is the constructor called
    CPU_PROBE = "cpu_probe"  # the code looks at the machine: cpu_count, affinity, cgroup files, OMP API
    IDLE = "idle"  # how idle workers wait: condition wait, spin, yield; `value` is block | spin | yield
    FORK = "fork"  # fork handling: pid checks, pthread_atfork, register_at_fork, start methods
    OPTION = "option"  # a configuration key or attribute `name` that the package offers
    CONSTANT = "constant"  # a named constant that an expression above refers to
    DOC = "doc"  # prose of the release that names a control; `name` is the control named


class When(StrEnum):
    """When code at a place runs, in the terms of the language's binding times."""

    BUILD = "build"
    START = "process_start"
    IMPORT = "import"
    FIRST_USE = "first_use"
    CALL = "call"
    UNKNOWN = "unknown"


class Role(StrEnum):
    """What part of the release a file is; only `library` and `vendored` can carry a control alone."""

    LIBRARY = "library"
    VENDORED = "vendored"
    TEST = "test"
    EXAMPLE = "example"
    BENCHMARK = "benchmark"
    BUILD = "build"
    DOC = "doc"


class Observation(Record):
    """One thing seen at one place.

    Attributes:
        name: environment variable, dotted public name, `callable(parameter=)`, or constructor called.
        file: path relative to the release's root, with `/`.
        line, end_line: 1-based, inclusive.
        text: the source lines, at most 2,000 characters.
        sha256: digest of the raw bytes of exactly these lines in the file (line ends included).
        function: dotted qualified name of the enclosing function or class, `""` at module level.
        value: default, written value or size expression, as source text; `None` where none was seen.
        value_type: int | float | bool | str | path | list, as far as the parsing code shows it.
        order: position in a fallback chain (`A`, else `B`): 0 for the name that wins, 1 for the next ...; chain
            members share `chain`.
        chain: id of the fallback chain, `""` if none; unique within a release.
        target: for a write: `process` (its own environment) or `child` (an environment handed to children);
            for a pool: what is created: `threads` or `processes`.
        unless_set: for a write: true if the code leaves a value alone that the user has set.
        method: `syntax` (from the tree) or `text` (a regular expression over raw text: weak evidence).
        key: the configuration key that a variable sets (`a.b.c`), `""` if the variable stands for itself.
        scope: process | thread | object, where the code shows how far a setting reaches.
        feeds: name of what the value goes to (a variable, field, parameter), where the code shows it.
        offered: a callable that its module lists in `__all__`, or that a package re-exports.
        about: what comments at the place say about it, on one line.
        language: python | c | cpp | cython | rust | rst | markdown | html | text.
        detail: anything else that a reader of the evidence wants in one line.
    """

    kind: Kind
    name: str
    file: str
    line: int
    end_line: int
    text: str
    sha256: str
    function: str = ""
    when: When = When.UNKNOWN
    role: Role = Role.LIBRARY
    value: str | None = None
    value_type: str | None = None
    order: int = 0
    chain: str = ""
    target: str = ""
    unless_set: bool = False
    method: Literal["syntax", "text"] = "syntax"
    language: str = "python"
    detail: str = ""
    key: str = ""
    scope: str = ""
    feeds: str = ""
    about: str = ""
    offered: bool = False


class Evidence(Record):
    """An observation with an id that a contract cites; one line of `evidence.jsonl`.

    Attributes:
        id: `e` and eight hexadecimal digits, derived from what was seen and the digest of its bytes, so that it
            survives a move to another line.
        rank: 0..1, how much a reader should trust and want it; higher first.
        source: `name==version:filename` of the release.
        vouched: who stands for it.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    rank: float = Field(ge=0, le=1)
    source: str
    source_sha256: str = ""
    vouched: Literal["rule", "model", "person"] = "rule"
    seen: Observation
    also: tuple[str, ...] = ()  # other places with the same content, as `file:line`


class Skipped(Record):
    """A file that was not read, and why: nothing is dropped silently."""

    file: str
    why: str


class Walk(Record):
    """What the walkers saw in one release.

    Attributes:
        files: files read, bytes: their size in bytes, seconds: wall time of the walk.
    """

    release: Release
    observations: tuple[Observation, ...]
    skipped: tuple[Skipped, ...]
    files: int
    bytes: int
    seconds: float
