"""The form that a reply must have: a JSON object of a model, or text of a grammar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from synth.llm.config import LlmConfig
from synth.llm.reply import BadReplyError, extract, validated
from synth.llm.schema import check_grammar, check_schema, digest, strict_schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)
Check = Callable[[T], Sequence[str]]  # complaints about a value; empty if it is taken


class Form(Protocol[T_co]):
    """What the client needs to know about a form."""

    def request(self, config: LlmConfig) -> Mapping[str, Any]:
        """Fields of the request that make a server hold to the form, checked; raises `BadSchemaError`."""

    def read(self, text: str) -> tuple[T_co, str]:
        """The value of a reply, and what was cut off around it; raises `BadReplyError`."""

    @property
    def digest(self) -> str:
        """Name of the schema or grammar."""


class JsonForm(Generic[M]):
    """One JSON object, in the strict form of a pydantic model."""

    def __init__(self, model: type[M], evidence: Sequence[str] = (), check: Check[M] | None = None) -> None:
        """Ask for `model`, citing only ids of `evidence`, and refuse what `check` complains about."""
        self._model = model
        self._evidence = tuple(evidence)
        self._check = check
        self.schema = strict_schema(model, self._evidence)

    @property
    def digest(self) -> str:
        """Name of the schema."""
        return digest(repr(self.schema))

    def request(self, config: LlmConfig) -> Mapping[str, Any]:
        """The schema as far as the endpoint takes one."""
        check_schema(self.schema)
        if config.schema_mode == "schema":
            named = {"name": self._model.__name__, "schema": self.schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        return {"response_format": {"type": "json_object"}} if config.schema_mode == "json" else {}

    def read(self, text: str) -> tuple[M, str]:
        """The object, validated whether or not the server promised anything."""
        found = extract(text)
        value = validated(self._model, found.value, self._evidence)
        refuse(self._check, value)
        return value, found.trimmed


@dataclass(frozen=True, slots=True)
class GrammarForm(Generic[T]):
    """Text of a Lark grammar.

    Attributes:
        lark: the grammar, as llguidance reads it.
        parse: reads the text; raises `BadReplyError`.
        check: complaints about what was read.
    """

    lark: str
    parse: Callable[[str], T]
    check: Check[T] | None = None

    @property
    def digest(self) -> str:
        """Name of the grammar."""
        return digest(self.lark)

    def request(self, config: LlmConfig) -> Mapping[str, Any]:
        """The grammar as the endpoint takes it; nothing where it takes none, since the reply is parsed anyway."""
        if config.grammar == "none":
            return {}
        check_grammar(self.lark)
        if config.grammar == "structured_outputs":
            return {"structured_outputs": {"grammar": self.lark}}
        return {"grammar": f"%llguidance {{}}\n{self.lark}"}

    def read(self, text: str) -> tuple[T, str]:
        """What the text says."""
        value = self.parse(text)
        refuse(self.check, value)
        return value, ""


class RejectedReplyError(BadReplyError):
    """A reply of the right form that the caller's own check does not take."""


def refuse(check: Check[T] | None, value: T) -> None:
    """Raise what a check complains about."""
    complaints = check(value) if check is not None else ()
    if complaints:
        raise RejectedReplyError(*complaints)
