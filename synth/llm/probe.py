"""What an endpoint really enforces, found out by asking: some take a schema or grammar, answer 200, and ignore it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from synth.llm.client import Ask, Client
from synth.llm.config import LlmConfig
from synth.llm.outcome import Answer, Failure, FailureKind
from synth.llm.schema import digest
from synth.llm.templates import Message, Prompt
from synth.records import Record

_WORD = "zq-73"  # what no model says by itself
_QUESTION = "Greet the reader in one short sentence."
_GRAMMAR = f'start: "{_WORD}"'
_SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "enum": [_WORD]}},
    "required": ["word"],
    "additionalProperties": False,
}
_STOPPING = frozenset(
    {FailureKind.AUTH, FailureKind.NOT_FOUND, FailureKind.CONNECTION, FailureKind.QUOTA, FailureKind.BUDGET}
)


class Enforced(Record):
    """What came of the probe.

    Attributes:
        schemas: a JSON schema decides the reply. grammars: a Lark grammar does.
        finish: a reply that was cut off says so.
        usage: replies say how many tokens they took.
        reachable: whether any reply came. problem: why not.
    """

    schemas: bool = False
    grammars: bool = False
    finish: bool = False
    usage: bool = False
    reachable: bool = False
    problem: str = ""

    def apply(self, config: LlmConfig) -> LlmConfig:
        """Settings that ask for no more than is enforced; what is not enforced is still validated."""
        return config.model_copy(
            update={
                "schema_mode": "schema" if self.schemas else "none",
                "grammar": config.grammar if self.grammars else "none",
            }
        )

    def line(self) -> str:
        """For people."""
        if not self.reachable:
            return f"the endpoint cannot be used: {self.problem}"
        said = {"JSON schemas": self.schemas, "grammars": self.grammars, "finish reasons": self.finish}
        return "the endpoint " + ", ".join(f"{'enforces' if yes else 'ignores'} {what}" for what, yes in said.items())


@dataclass(frozen=True, slots=True)
class _ProbeForm:
    """Sends fields as they are and takes any text."""

    fields: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return digest(repr(sorted(self.fields.items())))

    def request(self, config: LlmConfig) -> Mapping[str, Any]:
        _ = config
        return self.fields

    def read(self, text: str) -> tuple[str, str]:
        return text, ""


def probe(client: Client) -> Enforced:
    """Ask an endpoint three short questions; they go through recordings, budget and log like all others."""
    free = _ask(client, {}, tokens=1)
    if isinstance(free, Failure) and free.kind in _STOPPING:
        return Enforced(problem=free.message)
    cut = isinstance(free, Failure) and free.kind is FailureKind.TRUNCATED
    named = {"name": "probe", "schema": _SCHEMA, "strict": True}
    schema = _ask(client, {"response_format": {"type": "json_schema", "json_schema": named}}, tokens=60)
    grammar = _grammar(client)
    counted = [o for o in (free, schema, grammar) if o is not None and o.usage.input > 0]
    return Enforced(
        schemas=_says(schema, _WORD),
        grammars=grammar is not None and _says(grammar, _WORD, exactly=True),
        finish=cut,
        usage=bool(counted),
        reachable=any(isinstance(o, Answer) or o.kind is FailureKind.TRUNCATED for o in (free, schema)),
        problem=free.message if isinstance(free, Failure) else "",
    )


def _grammar(client: Client) -> Answer[str] | Failure | None:
    handed: dict[Literal["llguidance", "structured_outputs", "none"], dict[str, Any]] = {
        "llguidance": {"grammar": f"%llguidance {{}}\n{_GRAMMAR}"},
        "structured_outputs": {"structured_outputs": {"grammar": _GRAMMAR}},
    }
    fields = handed.get(client.config.grammar)
    return _ask(client, fields, tokens=60) if fields is not None else None


def _ask(client: Client, fields: Mapping[str, Any], *, tokens: int) -> Answer[str] | Failure:
    prompt = Prompt("probe", (Message("user", _QUESTION),), digest(_QUESTION), ())
    return client.ask(Ask("(probe)", prompt, _ProbeForm(fields), max_output_tokens=tokens, reasks=0))


def _says(outcome: Answer[str] | Failure, word: str, *, exactly: bool = False) -> bool:
    if isinstance(outcome, Failure):
        return False
    return outcome.text.strip() == word if exactly else word in outcome.text and outcome.text.strip().startswith("{")
