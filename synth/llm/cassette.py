"""Recorded replies, found again by the content of the request that they answer.

The key covers everything that decides a reply: the request's body, which model it is for, the digests of template and
evidence, and which ask it is. Change one of them and it is another recording. A recording holds no headers of the
request, and so no key.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from synth.records import Record, SynthError

SCHEMA_VERSION = 1
MAX_RECORDING_BYTES = 64 << 20


class Mode(StrEnum):
    """How recordings are used."""

    REPLAY = "replay"  # only recordings; a request without one is an error
    RECORD = "record"  # a recording where there is one, else ask and keep the reply
    REFRESH = "refresh"  # ask always, and replace the recording
    OFF = "off"  # ask always, read and keep nothing


class Identity(Record):
    """What decides a reply beside the body of the request.

    Attributes:
        model: name at an address, or the digest of the model's file.
        ask: 0 for the first ask, 1 for the first one after a reply that was no good ...
        template, grammar: digests of what the prompt was made of, "" if there is none.
        evidence: ids of the evidence that the prompt shows.
    """

    model: str
    task: str
    ask: int = 0
    template: str = ""
    grammar: str = ""
    evidence: tuple[str, ...] = ()


class Recording(Record):
    """One reply on disk."""

    schema_version: int = SCHEMA_VERSION
    key: str
    identity: Identity
    library: str
    request: Any
    reply: Any


class Counts(Record):
    """How often the recordings were of use.

    Attributes:
        broken: files that could not be used, and were asked for again.
    """

    hits: int = 0
    misses: int = 0
    stored: int = 0
    broken: tuple[str, ...] = ()


class CassetteMissError(SynthError):
    """Nothing was recorded for a request, and nothing may be asked."""


def canonical(value: Any) -> str:
    """One text for one JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def key_of(request: Any, identity: Identity) -> str:
    """Name of the recording of a request."""
    return hashlib.sha256(canonical([request, identity.model_dump(mode="json")]).encode()).hexdigest()


class Cassette:
    """A folder of recordings. Safe to use from threads and from several processes."""

    def __init__(self, folder: Path | None, mode: Mode) -> None:
        """Use a folder; it is created with the first recording.

        Raises:
            SynthError: recordings are wanted and there is no folder for them.
        """
        if folder is None and mode is not Mode.OFF:
            raise SynthError("no folder for recordings is named", help_text="name one, or switch recordings off")
        self.folder = folder
        self.mode = mode
        self._lock = threading.Lock()
        self._hits = self._misses = self._stored = 0
        self._broken: list[str] = []

    @property
    def counts(self) -> Counts:
        """So far."""
        with self._lock:
            return Counts(hits=self._hits, misses=self._misses, stored=self._stored, broken=tuple(self._broken))

    def describe(self) -> str:
        """One line for the report of a run: where, how, and how often."""
        if self.folder is None or self.mode is Mode.OFF:
            return "recordings: off"
        c = self.counts
        broken = f", {len(c.broken)} unreadable" if c.broken else ""
        return f"recordings: {self.folder} ({self.mode}): {c.hits} used, {c.misses} missing, {c.stored} kept{broken}"

    def path(self, key: str) -> Path:
        """Where a recording stands."""
        if self.folder is None:
            raise SynthError("no folder for recordings is named")
        return self.folder / key[:2] / f"{key}.json"

    def find(self, request: Any, identity: Identity) -> Any | None:
        """The recorded reply; `None` if the request is to be sent.

        Raises:
            CassetteMissError: in replay, if there is none, or none that can be used.
        """
        if self.mode in {Mode.OFF, Mode.REFRESH}:
            return None
        key = key_of(request, identity)
        found, problem = self._read(key)
        with self._lock:
            if found is not None:
                self._hits += 1
                return found.reply
            self._misses += 1
            if problem:
                self._broken.append(f"{key}: {problem}")
        if self.mode is Mode.REPLAY:
            raise CassetteMissError(
                f"no recording of task `{identity.task}`, ask {identity.ask}, for {identity.model}, evidence "
                f"{_few(identity.evidence)}: {problem or 'none is there'} ({key})",
                help_text="record it with an endpoint, or check what changed: model, prompt, grammar or evidence",
                code=3,
            )
        return None

    def _read(self, key: str) -> tuple[Recording | None, str]:
        path = self.path(key)
        try:
            with path.open("rb") as opened:
                raw = opened.read(MAX_RECORDING_BYTES + 1)
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}"
        if len(raw) > MAX_RECORDING_BYTES:
            return None, f"`{path}` is too large"
        try:
            value = json.loads(raw)
            if isinstance(value, dict) and int(value.get("schema_version", 0)) > SCHEMA_VERSION:
                return None, f"`{path}` was written by a newer version"
            found = Recording.model_validate(value)
        except (ValueError, TypeError, RecursionError, ValidationError):
            return None, f"`{path}` is no recording"
        if found.key != key or key_of(found.request, found.identity) != key:
            return None, f"`{path}` is the recording of another request"
        return found, ""

    def keep(self, request: Any, identity: Identity, library: str, reply: Any) -> None:
        """Write a reply down, whole or not at all.

        Raises:
            SynthError: the folder cannot be written.
        """
        if self.mode not in {Mode.RECORD, Mode.REFRESH}:
            return
        key = key_of(request, identity)
        # Not through pydantic: a model may answer with half a surrogate pair, which is no UTF-8.
        record = {
            "schema_version": SCHEMA_VERSION,
            "key": key,
            "identity": identity.model_dump(mode="json"),
            "library": library,
            "request": request,
            "reply": reply,
        }
        path = self.path(key)
        text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, text.encode())
        except OSError as error:
            raise SynthError(
                f"cannot write the recording `{path}`: {(error.strerror or str(error)).lower()}",
                help_text="choose another folder, or switch recordings off",
                code=3,
            ) from error
        with self._lock:
            self._stored += 1


def _write_whole(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _few(ids: Sequence[str], most: int = 12) -> str:
    if not ids:
        return "(none)"
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more
