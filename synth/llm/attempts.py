"""Every attempt as a line of JSON, written the moment it ends, so that Ctrl-C loses nothing."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from synth.llm.outcome import Usage
from synth.records import SynthError

SCHEMA_VERSION = 1
MAX_REPLY_CHARS = 200_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request, or one recording in its place, and what came of it.

    Attributes:
        library, task, model, identity: what it was for, and whom it asked.
        template: digest of the template; `evidence`: ids that the prompt shows.
        request: digest of the canonical request with its identity: the name of its recording.
        ask: which question after replies that were no good; `send`: which send of that question.
        source: whether the server or the recordings replied.
        result: `ok`, or the kind of failure. error: what was wrong.
        status: of HTTP, 0 if there was none.
        reply: the text of the model, or the body of an error.
        cost: in the currency of the prices.
    """

    library: str
    task: str
    model: str
    identity: str
    template: str
    evidence: tuple[str, ...]
    request: str
    ask: int
    send: int
    source: str
    result: str
    status: int = 0
    finish_reason: str = ""
    usage: Usage | None = None
    cost: float = 0.0
    reply: str = ""
    error: str = ""


class AttemptLog:
    """Appends attempts to a file, if there is one, and counts them."""

    def __init__(self, path: Path | None, redact: Callable[[str], str] = str) -> None:
        """Write to `path`; nothing is opened before the first attempt."""
        self.path = path
        self._redact = redact
        self._lock = threading.Lock()
        self._count = 0

    @property
    def count(self) -> int:
        """Attempts so far."""
        with self._lock:
            return self._count

    def add(self, attempt: Attempt) -> None:
        """Append one line.

        Raises:
            SynthError: the file cannot be written.
        """
        record = asdict(attempt)
        record["usage"] = attempt.usage.model_dump() if attempt.usage is not None else None
        record["reply"] = self._redact(_bounded(attempt.reply))
        record["error"] = self._redact(_bounded(attempt.error))
        line = json.dumps({"schema_version": SCHEMA_VERSION, **record}, sort_keys=True) + "\n"
        with self._lock:
            self._count += 1
            if self.path is not None:
                _append(self.path, line.encode())


def _append(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # One write to a file opened for appending: lines of several processes do not mix.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)
    except OSError as error:
        raise SynthError(
            f"cannot write the attempts to `{path}`: {(error.strerror or str(error)).lower()}",
            help_text="choose another file",
            code=3,
        ) from error


def _bounded(text: str) -> str:
    left = len(text) - MAX_REPLY_CHARS
    return text if left <= 0 else f"{text[:MAX_REPLY_CHARS]}[{left} characters more]"
