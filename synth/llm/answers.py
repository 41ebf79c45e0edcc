"""What models are asked for: small records of enums and short texts, each with the evidence that it rests on.

"unknown" is an answer everywhere. Whether a name is a control is never asked: it follows from its kind.
"""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from synth.llm.config import Task
from synth.llm.schema import EVIDENCE_ID

MAX_TEXT = 300
MAX_ITEMS = 40
MAX_CONTRACT_CHARS = 60_000


def _shown(value: str, info: ValidationInfo) -> str:
    context = info.context or {}
    if value not in context.get("evidence", frozenset()):
        raise ValueError(f"there is no evidence `{value[:40]}`")
    return value


def _plain(value: str) -> str:
    """Text of one line, as it may stand in a contract."""
    if len(value) > MAX_TEXT:
        raise ValueError(f"more than {MAX_TEXT} characters")
    if any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} for c in value):
        raise ValueError("a character that cannot be seen")
    return value


def _english(value: str) -> str:
    """Most letters are ASCII; a summary in another script helps no reader of the corpus."""
    letters = [c for c in value if c.isalpha()]
    if not letters:
        raise ValueError("no words")
    if sum(c.isascii() for c in letters) * 10 < len(letters) * 9:
        raise ValueError("not English")
    return value


EvidenceId = Annotated[str, AfterValidator(_shown), Field(json_schema_extra={"format": EVIDENCE_ID})]
Evidence = Annotated[list[EvidenceId], Field(max_length=MAX_ITEMS)]
SomeEvidence = Annotated[list[EvidenceId], Field(min_length=1, max_length=MAX_ITEMS)]
Text = Annotated[str, AfterValidator(_plain)]
Words = Annotated[str, AfterValidator(_plain), AfterValidator(_english)]


class Asked(BaseModel):
    """Base of all answers: exactly the keys that were asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ControlKind(StrEnum):
    """What a name sets."""

    THREADS = "threads"
    PROCESSES = "processes"
    IO_WORKERS = "io_workers"
    AFFINITY = "affinity"
    WAIT_POLICY = "wait_policy"
    SCHEDULE = "schedule"
    BACKEND = "backend"
    MEMORY = "memory"
    CACHE = "cache"
    CHUNK = "chunk"
    GPU_DEVICE = "gpu_device"
    GPU_MEMORY = "gpu_memory"
    CODE_PATH = "code_path"
    DIAGNOSTICS = "diagnostics"
    NUMERICS = "numerics"
    PLACE = "place"
    ADDRESS = "address"
    CREDENTIAL = "credential"
    BUILD = "build"
    TEST = "test"
    FACT = "fact"
    OTHER = "other"
    UNKNOWN = "unknown"


_RESOURCES: dict[ControlKind, str] = {
    ControlKind.THREADS: "cpu.threads",
    ControlKind.PROCESSES: "cpu.processes",
    ControlKind.IO_WORKERS: "io.threads",
    ControlKind.AFFINITY: "cpu.time",
    ControlKind.WAIT_POLICY: "cpu.time",
    ControlKind.SCHEDULE: "cpu.time",
    ControlKind.BACKEND: "cpu.time",
    ControlKind.MEMORY: "memory.bytes",
    ControlKind.CACHE: "memory.bytes",
    ControlKind.CHUNK: "memory.bytes",
    ControlKind.GPU_DEVICE: "gpu.devices",
    ControlKind.GPU_MEMORY: "gpu.memory",
    ControlKind.CODE_PATH: "cpu.time",
}

Binding = Literal["build", "process_start", "load", "import", "first_use", "session", "call", "unknown"]
Scope = Literal["process", "thread", "children", "object", "session", "call", "machine", "unknown"]


class DefaultKind(StrEnum):
    """Where the value comes from that holds if nobody sets the name."""

    CONSTANT = "constant"
    LOGICAL = "logical_cpus"
    PHYSICAL = "physical_cores"
    AFFINITY = "affinity"
    QUOTA = "quota"
    MEMORY = "memory"
    OTHER_NAME = "other_name"
    EXPRESSION = "expression"
    UNSET = "unset"
    UNKNOWN = "unknown"


class Special(Asked):
    """A value that means something else than itself."""

    value: Text
    meaning: Literal["all_cpus", "automatic", "unlimited", "off", "ignored", "error", "other"]
    evidence: SomeEvidence


class ControlAnswer(Asked):
    """One name: what it sets, what holds otherwise, when it is read, how far it reaches.

    Attributes:
        default_text: the value or expression as the evidence writes it, "" if it shows none.
        wins_over: other names that count for less, the strongest first.
    """

    kind: ControlKind
    value_type: Literal["int", "float", "bool", "text", "size", "duration", "choice", "list", "unknown"]
    default_kind: DefaultKind
    default_text: Text
    read: Binding
    scope: Scope
    wins_over: Annotated[list[Text], Field(max_length=MAX_ITEMS)]
    specials: Annotated[list[Special], Field(max_length=MAX_ITEMS)]
    kind_evidence: Evidence
    default_evidence: Evidence
    read_evidence: Evidence

    @property
    def is_control(self) -> bool | None:
        """Whether it changes what is taken from the machine; `None` if that is not known."""
        return None if self.kind is ControlKind.UNKNOWN else self.kind in _RESOURCES

    @property
    def resource(self) -> str:
        """What it bounds, in the language's words, "" if nothing."""
        return _RESOURCES.get(self.kind, "")


class PoolAnswer(Asked):
    """One pool: who runs in it and how it waits."""

    runs: Literal["native", "user_code", "unknown"]
    idle: Literal["block", "spin", "spin_then_block", "yield", "unknown"]
    fork: Literal["safe", "unsafe", "recreated", "unknown"]
    created: Binding
    scope: Scope
    work: Literal["compute", "bandwidth", "latency", "io", "mixed", "unknown"]
    size_text: Text
    runs_evidence: Evidence
    idle_evidence: Evidence
    fork_evidence: Evidence
    created_evidence: Evidence
    size_evidence: Evidence


class Claim(Asked):
    """One statement of a passage, with the words that make it."""

    about: Text
    kind: Literal[
        "default", "read", "scope", "range", "special", "precedence", "fork", "nesting", "idle", "deprecated",
        "limit", "interaction", "other",
    ]  # fmt: skip
    value: Text
    quote: Text
    evidence: EvidenceId


class ClaimsAnswer(Asked):
    """What a passage of documentation states."""

    claims: Annotated[list[Claim], Field(max_length=MAX_ITEMS)]


class Interaction(Asked):
    """One library's setting that changes another library's resources."""

    other: Text
    name: Text
    kind: Literal["sets", "limits", "reads", "shares_runtime", "runs_inside", "conflicts", "unknown"]
    where: Literal["process", "children", "unknown"]
    evidence: SomeEvidence


class InteractionsAnswer(Asked):
    """How a library meets others."""

    interactions: Annotated[list[Interaction], Field(max_length=MAX_ITEMS)]


class SummaryAnswer(Asked):
    """One line for people."""

    summary: Words
    evidence: SomeEvidence


class ContractAnswer(Asked):
    """A whole contract as text, for servers without grammars; the language's own parser checks it."""

    lpcl: Annotated[str, Field(max_length=MAX_CONTRACT_CHARS)]


class Change(Asked):
    """What the critic would change in a draft, and by which evidence."""

    clause: Text
    property: Text
    action: Literal["replace", "remove", "unknown"]
    value: Text
    reason: Text
    evidence: SomeEvidence


class CriticAnswer(Asked):
    """Changes of a draft; none is the usual answer."""

    changes: Annotated[list[Change], Field(max_length=MAX_ITEMS)]


def answer_models() -> dict[Task, type[Asked]]:
    """The model of each task."""
    return {
        "control": ControlAnswer,
        "pool": PoolAnswer,
        "claims": ClaimsAnswer,
        "interactions": InteractionsAnswer,
        "summary": SummaryAnswer,
        "contract": ContractAnswer,
        "critic": CriticAnswer,
    }
