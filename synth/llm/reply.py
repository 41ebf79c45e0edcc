"""From the text of a reply to a value: strict JSON, no more around it than a fence or some prose."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from synth.llm.config import plain_message

M = TypeVar("M", bound=BaseModel)
MAX_DEPTH = 64
MAX_COMPLAINTS = 5
MAX_COMPLAINT_CHARS = 300
_FENCE = "```"
# A string that does not end takes all that is left: so no text is looked at twice.
_TOKENS = re.compile(r'"(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z)|[{}\[\]]', re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class BadReplyError(Exception):
    """A reply that is not of the form asked for; `complaints` say what is wrong, for the model and for people."""

    def __init__(self, *complaints: str) -> None:
        """Keep a few complaints, each on one bounded line."""
        kept = tuple(" ".join(c.split())[:MAX_COMPLAINT_CHARS] for c in complaints[:MAX_COMPLAINTS])
        super().__init__("; ".join(kept))
        self.complaints = kept


@dataclass(frozen=True, slots=True)
class Extracted:
    """The one JSON object of a text, and what stood around it: "", "fence" or "prose"."""

    value: dict[str, Any]
    trimmed: str


def extract(text: str) -> Extracted:
    """Find the JSON object of a reply.

    Raises:
        BadReplyError: there is none, or more than one, or it is not strict JSON.
    """
    text = _THOUGHT.sub("", text)
    stripped = text.strip().removeprefix("\ufeff")
    if stripped.startswith("{") and _ends_once(stripped):
        return Extracted(_object(stripped), "")
    fences = [f for f in _fenced(text) if f.lstrip().startswith("{")]
    if len(fences) > 1:
        raise BadReplyError("the reply holds several blocks of JSON; answer with exactly one object")
    if fences:
        return Extracted(_object(fences[0].strip()), "fence")
    return Extracted(_object(_only_object(stripped)), "prose")


def _fenced(text: str) -> list[str]:
    """The blocks between lines that start with a fence."""
    found: list[str] = []
    block: list[str] | None = None
    for line in text.split("\n"):
        if line.lstrip(" \t").startswith(_FENCE):
            if block is None:
                block = []
            else:
                found.append("\n".join(block))
                block = None
        elif block is not None:
            block.append(line)
    return found


def _ends_once(text: str) -> bool:
    """Whether the first object ends where the text does, or never."""
    end = _end_of(text, 0)
    return end is None or end == len(text)


def _end_of(text: str, start: int) -> int | None:
    """Where the object that starts at `start` ends; counts braces outside of strings, so it never recurses."""
    depth = 0
    for match in _TOKENS.finditer(text, start):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return None


def _only_object(text: str) -> str:
    found: list[str] = []
    at = text.find("{")
    while at >= 0:
        end = _end_of(text, at)
        if end is None:
            if not found:
                raise BadReplyError("the reply starts an object and does not end it")
            break
        found.append(text[at:end])
        at = text.find("{", end)
    if not found:
        raise BadReplyError("the reply holds no JSON object; answer with the object alone")
    if len(found) > 1:
        raise BadReplyError("the reply holds several JSON objects; answer with exactly one")
    return found[0]


def _object(text: str) -> dict[str, Any]:
    if _depth(text) > MAX_DEPTH:
        raise BadReplyError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadReplyError(f"not JSON: {error.msg.lower()} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits is one
        raise BadReplyError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadReplyError("the reply is JSON, but no object")
    return value


def _depth(text: str) -> int:
    depth = most = 0
    for match in _TOKENS.finditer(text):
        if match[0] in "{[":
            depth += 1
            most = max(most, depth)
        elif match[0] in "}]":
            depth -= 1
    return most


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadReplyError(f"the key `{key}` stands twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise BadReplyError(f"`{name}` is no JSON value")


def validated(model: type[M], value: dict[str, Any], evidence: Sequence[str]) -> M:
    """Check a value against its model; ids of evidence must be among those that were shown.

    Raises:
        BadReplyError: what is wrong with it, without quoting more than names.
    """
    try:
        return model.model_validate(value, context={"evidence": frozenset(evidence)})
    except ValidationError as error:
        complaints = []
        for found in error.errors(include_url=False, include_context=False):
            where = ".".join(str(part) for part in found["loc"]) or "the object"
            complaints.append(f"`{where}`: {plain_message(found['msg'])}")
        raise BadReplyError(*complaints) from None
