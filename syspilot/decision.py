"""What a session found: the records that `--json` prints, the store keeps, and the exports write."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from lpcl.machine import Facts
from syspilot.hypotheses import Hazard, Hypothesis
from syspilot.records import SCHEMA_VERSION, Record
from syspilot.verify import SettingSeen

Verdict = Literal["confirmed", "refuted", "undecided"]


class ClauseSeen(Record):
    """A clause behind a claim: which contract, which clause, how far it is trusted, where its evidence stands."""

    contract: str
    clause: str
    trust: str
    evidence: tuple[str, ...]


class Conflict(Record):
    """A hypothesis and what became of it.

    Attributes:
        verdict: by intervention; undecided if none was made or it did not tell.
        strength: 0..1, what the profiled run alone says.
        remedy: the settings of the intervention that helped most (of the last one tried, if none helped).
        figures: signals with and without the remedy.
    """

    id: str
    kind: str
    claim: str
    pools: tuple[str, ...]
    verdict: Verdict
    strength: float
    clauses: tuple[ClauseSeen, ...]
    predicts: tuple[str, ...]
    observed: dict[str, float | int | str]
    remedy: dict[str, str] = {}
    remedies: tuple[dict[str, str], ...] = ()
    figures: dict[str, float | int | str] = {}


class HazardSeen(Record):
    """A correctness problem."""

    id: str
    kind: str
    claim: str
    consequence: str
    remedies: tuple[str, ...]
    clauses: tuple[ClauseSeen, ...]


class Sample(Record):
    """The objective of one configuration.

    Attributes:
        median, values: in the objective's unit; cv: coefficient of variation; n: runs.
    """

    median: float | None
    values: tuple[float, ...]
    cv: float
    n: int


class LibrarySeen(Record):
    """A library or native runtime that the application loads."""

    name: str
    kind: str
    version: str | None
    copies: tuple[str, ...]
    processes: int
    contract: str | None


class Trial(Record):
    """One run of the session, in order."""

    index: int
    phase: str
    configuration: dict[str, str]
    status: str
    cause: str
    objective: float | None
    wall_s: float
    cpu_s: float
    run_delay_s: float
    involuntary: int
    disturbed: bool


class Decision(Record):
    """The answer, with everything it rests on; what `doctor --json` and `tune --json` print.

    Attributes:
        configuration: variable or tunable -> value; empty means "leave it as it is".
        ratio, ci95: improvement over the default on fresh interleaved pairs, > 1 is better; None without pairs.
        runs: runs of the application, all counted; seconds_spent: their wall time.
        reason: why it is the answer, in a sentence.
    """

    schema_version: int = SCHEMA_VERSION
    mode: Literal["doctor", "tune"]
    command: tuple[str, ...]
    objective: str
    maximise: bool
    machine: Facts
    libraries: tuple[LibrarySeen, ...]
    uncovered: tuple[str, ...]
    pools: tuple[dict[str, str | float | bool | None], ...]
    conflicts: tuple[Conflict, ...]
    hazards: tuple[HazardSeen, ...]
    configuration: dict[str, str]
    settings: tuple[SettingSeen, ...]
    default: Sample
    best: Sample
    ratio: float | None
    ci95: tuple[float, float] | None
    pairs: int
    improved: bool
    runs: int
    seconds_spent: float
    trials: tuple[Trial, ...]
    reason: str
    params: dict[str, str] = {}
    interrupted: bool = False

    @property
    def confirmed(self) -> tuple[Conflict, ...]:
        """The conflicts that an intervention confirmed."""
        return tuple(c for c in self.conflicts if c.verdict == "confirmed")


def clause_records(item: Hypothesis | Hazard) -> tuple[ClauseSeen, ...]:
    """The clauses behind a claim, as records."""
    return tuple(
        ClauseSeen(contract=c.contract, clause=c.clause, trust=c.trust, evidence=c.places) for c in item.clauses
    )


# ----------------------------------------------------------------------- store


def key_of(command: Sequence[str], cwd: Path) -> str:
    """Identifies a command in a folder."""
    text = "\0".join((str(cwd.resolve()), *command))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save(decision: Decision, folder: Path) -> Path:
    """Write the decision where `run`, `explain` and the next session find it; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{decision.mode}.json"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(decision.model_dump_json(indent=2) + "\n", "utf-8")
    temporary.replace(path)
    return path


def load(path: Path) -> Decision:
    """Read a decision.

    Raises:
        ValueError: not a decision, or one of a newer release.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        data = None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        msg = f"`{path}` is no decision of syspilot"
        raise ValueError(msg)  # noqa: TRY004  # the file's content is wrong, not an argument's type
    if version > SCHEMA_VERSION:
        msg = f"`{path}` was written by a newer release (schema {version}, this one reads {SCHEMA_VERSION})"
        raise ValueError(msg)
    try:
        return Decision.model_validate(data)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        msg = f"`{path}` is no decision of syspilot: `{where}` is wrong or missing"
        raise ValueError(msg) from error


# --------------------------------------------------------------------- exports


def export(decision: Decision, form: str) -> str:
    """The configuration as an env file, a shell script or a Dockerfile snippet.

    Arguments of the application cannot be exported as variables; they are named in a comment.
    """
    env = {k: v for k, v in decision.configuration.items() if k not in decision.params}
    arguments = [decision.params[k].replace("{}", v) for k, v in decision.configuration.items() if k in decision.params]
    head = [f"# syspilot: {' '.join(map(shlex.quote, decision.command))}", f"# {_summary(decision)}"]
    head += [f"# start it with {' '.join(arguments)}"] if arguments else []
    body = {"env": _env_lines, "sh": _shell_lines, "dockerfile": _docker_lines}[form](env)
    return "\n".join([*(line.replace("\n", " ") for line in head), *body]) + "\n"


def _summary(decision: Decision) -> str:
    if not decision.configuration or decision.ratio is None or decision.ci95 is None:
        return "no setting is better than the default"
    when = time.strftime("%Y-%m-%d")
    low, high = decision.ci95
    return f"{decision.ratio:.2f}x the default (95 % interval {low:.2f} to {high:.2f}), measured {when}"


def _env_lines(env: Mapping[str, str]) -> list[str]:
    return [
        f"{k}={v}" if v.replace(".", "").replace("_", "").isalnum() else f'{k}="{_escape(v)}"' for k, v in env.items()
    ]


def _shell_lines(env: Mapping[str, str]) -> list[str]:
    return [f"export {k}={shlex.quote(v)}" for k, v in env.items()]


def _docker_lines(env: Mapping[str, str]) -> list[str]:
    # In a Dockerfile a value has one line, and a backslash stands before a quote, a dollar sign and itself only.
    return [
        f"# {k} has several lines, which a Dockerfile cannot hold"
        if "\n" in v or "\r" in v
        else f'ENV {k}="{_escape(v, also="")}"'
        for k, v in env.items()
    ]


def _escape(value: str, also: str = "`") -> str:
    return "".join(f"\\{c}" if c in f'\\"${also}' else c for c in value)
