"""What becomes of one question to a model: an answer, or a failure that says of which kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import Field

from synth.records import Record

T = TypeVar("T")


class FailureKind(StrEnum):
    """Why there is no answer."""

    BUDGET = "budget"  # the next request might have cost more than is allowed
    MISSING = "missing"  # replay mode, and nothing was recorded for this request
    BAD_REQUEST = "bad_request"  # the server refuses this request, or our own check of schema and grammar does
    AUTH = "auth"  # no key, or one that the server does not take
    NOT_FOUND = "not_found"  # no such model or address
    QUOTA = "quota"  # the account is used up; waiting does not help
    RATE_LIMIT = "rate_limit"  # 429 until the last attempt
    SERVER = "server"  # 5xx until the last attempt
    CONNECTION = "connection"  # no connection, or one that broke off
    TIMEOUT = "timeout"  # no whole reply in the time allowed
    TOO_LARGE = "too_large"  # a reply beyond the limit
    NOT_A_COMPLETION = "not_a_completion"  # a reply that is not what the protocol says
    EMPTY = "empty"  # a completion without text
    TRUNCATED = "truncated"  # cut off at the limit of tokens
    REFUSED = "refused"  # the model or a filter declined
    INVALID = "invalid"  # text that is not of the form asked for
    REJECTED = "rejected"  # of the right form, but the caller's own check refuses it
    STOPPED = "stopped"  # the user stopped the run before it was asked


# What another question with the complaint behind it may mend; everything else stays as it is.
REASKED = frozenset(
    {FailureKind.EMPTY, FailureKind.TRUNCATED, FailureKind.INVALID, FailureKind.REJECTED, FailureKind.NOT_A_COMPLETION}
)
# What the same request, sent again later, may get past.
RETRIED = frozenset({FailureKind.RATE_LIMIT, FailureKind.SERVER, FailureKind.CONNECTION, FailureKind.TIMEOUT})


class Usage(Record):
    """Tokens of one or more attempts.

    Attributes:
        input, output: tokens as the server counted them; `cached`: those of `input` that came from its cache.
        unsure: tokens at most, of attempts that may have been charged but got no count.
    """

    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    cached: int = Field(default=0, ge=0)
    unsure: int = Field(default=0, ge=0)

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            unsure=self.unsure + other.unsure,
        )

    @property
    def total(self) -> int:
        """All tokens, the unsure ones included."""
        return self.input + self.output + self.unsure


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A reply that passed every check.

    Attributes:
        value: parsed and validated.
        text: the text that it was read from.
        requests: requests that were sent for it; 0 if all came from the recordings.
        replayed: replies that came from the recordings.
        trimmed: what had to be cut off around the text: "", "fence" or "prose".
    """

    value: T
    text: str
    usage: Usage
    requests: int
    replayed: int
    trimmed: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, and why.

    Attributes:
        message: for people, without secrets.
        help: the fix in one line, or "".
        complaints: what was wrong with each reply that came.
        requests, replayed: as of an answer.
    """

    kind: FailureKind
    message: str
    help: str = ""
    complaints: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    replayed: int = 0
