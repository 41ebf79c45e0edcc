"""What a server replied, taken apart without trusting any of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeGuard

from synth.llm.outcome import FailureKind, Usage

_REPEATS = 8  # of one stretch of text at the end of a reply that was cut off
_MAX_PERIOD = 400


@dataclass(frozen=True, slots=True)
class Completion:
    """The first choice of a completion.

    Attributes:
        usage: `None` if the server does not say.
    """

    text: str
    refusal: str
    finish_reason: str
    usage: Usage | None
    malformed: str = ""

    def problem(self) -> tuple[FailureKind | None, str]:
        """Why the text cannot be used, whatever it says; `(None, "")` if it can."""
        if self.malformed:
            return FailureKind.NOT_A_COMPLETION, self.malformed
        if self.refusal or self.finish_reason == "content_filter":
            return FailureKind.REFUSED, f"the model declined: {self.refusal[:200] or 'a filter stopped it'}"
        if self.finish_reason == "length":
            again = ", repeating itself" if repeats(self.text) else ""
            return FailureKind.TRUNCATED, f"the reply was cut off at the limit of tokens{again}"
        if self.finish_reason != "stop":
            return FailureKind.NOT_A_COMPLETION, f"the reply ended with `{self.finish_reason or 'nothing'}`, not `stop`"
        if not self.text.strip():
            return FailureKind.EMPTY, "the reply is empty"
        return None, ""


def completion_of(raw: bytes) -> Completion:
    """Read the body of a reply; what is not as the protocol says ends in `malformed`."""
    reply = json.loads(raw)  # the transport has seen that it is an object with choices
    usage = usage_of(reply.get("usage"))
    choice = reply["choices"][0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return Completion("", "", "", usage, "the reply holds no message")
    finish = choice.get("finish_reason")
    content, refusal = message.get("content"), message.get("refusal")
    if content is not None and not isinstance(content, str):
        return Completion("", "", str(finish), usage, "the reply's text is no text")
    return Completion(
        text=content or "",
        refusal=refusal if isinstance(refusal, str) else "",
        finish_reason=finish if isinstance(finish, str) else "",
        usage=usage,
    )


def usage_of(value: Any) -> Usage | None:
    """Tokens as the server counts them; `None` if it gives no counts that make sense."""
    if not isinstance(value, dict):
        return None
    sent, got = value.get("prompt_tokens"), value.get("completion_tokens")
    if not _count(sent) or not _count(got):
        return None
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(input=sent, output=got, cached=min(cached, sent) if _count(cached) else 0)


def _count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40


def repeats(text: str) -> bool:
    """Whether a text ends in one stretch again and again."""
    end = text[-_MAX_PERIOD * _REPEATS :]
    for period in range(1, min(_MAX_PERIOD, len(end) // _REPEATS) + 1):
        stretch = end[-period:]
        if stretch.strip() and end.endswith(stretch * _REPEATS):
            return True
    return False
