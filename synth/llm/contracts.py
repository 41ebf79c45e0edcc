"""Whole contracts from a model: text of the language, under its grammar or inside of JSON, read by its own parser."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from lpcl import model as m
from lpcl.check import check
from lpcl.parse import parse
from synth.llm.answers import ContractAnswer
from synth.llm.config import LlmConfig
from synth.llm.forms import Check, GrammarForm, JsonForm, refuse
from synth.llm.reply import BadReplyError


@cache
def grammar() -> str:
    """The language's grammar, the only one there is."""
    return resources.files("lpcl").joinpath("grammar.lark").read_text("utf-8")


def read_contract(text: str) -> m.Contract:
    """The one contract of a text.

    Raises:
        BadReplyError: what the parser or the checker finds, a line each; warnings are for the reviewer.
    """
    parsed = parse(text)
    if parsed.file is None or not parsed.ok:
        raise BadReplyError(*(f"line {d.span.line}: {d.message}" for d in parsed.diagnostics))
    if len(parsed.file.contracts) != 1:
        raise BadReplyError(f"the text holds {len(parsed.file.contracts)} contracts; write exactly one")
    errors = [d for d in check(parsed.file) if d.severity == "error"]
    if errors:
        raise BadReplyError(*(f"line {d.span.line}: {d.rule}: {d.message}" for d in errors))
    return parsed.file.contracts[0]


class ContractForm:
    """A contract, in the form that an endpoint can be held to.

    Set the template's `guided` to `guided(config)`: the question has to ask for the form that is sent.
    """

    def __init__(self, check: Check[m.Contract] | None = None) -> None:
        """Refuse contracts that `check` complains about."""
        self._check = check
        self._text = GrammarForm(grammar(), read_contract)
        self._json = JsonForm(ContractAnswer)

    @staticmethod
    def guided(config: LlmConfig) -> bool:
        """Whether the endpoint takes the grammar."""
        return config.grammar != "none"

    @property
    def digest(self) -> str:
        """Name of grammar and schema."""
        return f"{self._text.digest}{self._json.digest}"

    def request(self, config: LlmConfig) -> Mapping[str, Any]:
        """The grammar where it is taken, else the schema."""
        return self._text.request(config) if self.guided(config) else self._json.request(config)

    def read(self, text: str) -> tuple[m.Contract, str]:
        """The contract, whichever form it came in."""
        trimmed = ""
        source = text
        if not text.lstrip().startswith(("lpcl", "//")):
            answer, trimmed = self._json.read(text)
            source = answer.lpcl
        contract = read_contract(source)
        refuse(self._check, contract)
        return contract, trimmed
