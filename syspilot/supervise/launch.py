# ruff: noqa: PTH110, PTH118
# (pathlib takes longer to import than the rest of the supervisor)
"""Starts the application in a session of its own."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import struct
import time
from typing import Any, NoReturn

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_WANTED_FDS = 4096
_STAMP = struct.Struct("d")
# What Python ignores at its own start and what a program expects to find at its default.
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)


class NotStartedError(Exception):
    """The command could not be executed; the message is the cause."""


class Launcher:
    """Starts one command.

    Args:
        spec: see `syspilot.supervisor`.
        outputs: write ends for standard output and standard error.
    """

    def __init__(self, spec: dict[str, Any], outputs: tuple[int, int]) -> None:
        """Become the reaper of the application's orphans and make room for the sampler's descriptors."""
        self._spec = spec
        self._command = [str(word) for word in spec["command"]]
        self._env = {str(name): str(value) for name, value in spec["env"].items()}
        self._outputs = outputs
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._fd_limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft, hard = self._fd_limits
        wanted = _WANTED_FDS if hard == resource.RLIM_INFINITY else min(_WANTED_FDS, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def start(self) -> tuple[int, float]:
        """Start the command: its pid and the monotonic time just before the exec.

        Raises:
            NotStartedError: with the cause.
        """
        stdin = self._open_stdin()
        report_r, report_w = os.pipe2(os.O_CLOEXEC)
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._child(own, stdin, report_w)
        os.close(report_w)
        os.close(stdin)
        with os.fdopen(report_r, "rb") as report:
            data = report.read()  # ends when the exec closes the other end, or the child gives up
        if len(data) == _STAMP.size:
            return pid, float(_STAMP.unpack(data)[0])
        os.waitpid(pid, 0)
        raise NotStartedError(self._explain(data[_STAMP.size :] if data[:1] != b"{" else data))

    def _open_stdin(self) -> int:
        path = self._spec.get("stdin") or os.devnull
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NotStartedError(f"cannot read standard input from `{path}`: {error.strerror}") from None

    def _child(self, supervisor: int, stdin: int, report: int) -> NoReturn:
        """Between fork and exec: never returns."""
        stage = "start"
        try:
            os.setsid()
            # Without its supervisor nobody would end the application.
            self._libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(1)
            for number in _DEFAULT_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for source, target in ((stdin, 0), (self._outputs[0], 1), (self._outputs[1], 2)):
                os.dup2(source, target)
            stage = "cwd"
            if self._spec.get("cwd"):
                os.chdir(self._spec["cwd"])
            stage = "cpus"
            if self._spec.get("cpus"):
                os.sched_setaffinity(0, self._spec["cpus"])
            stage = "memory"
            resource.setrlimit(resource.RLIMIT_NOFILE, self._fd_limits)
            if self._spec.get("memory_limit_bytes"):
                limit = int(self._spec["memory_limit_bytes"])
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            stage = "exec"
            os.write(report, _STAMP.pack(time.monotonic()))
            self._exec()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
            text = getattr(error, "strerror", None) or str(error)
            message = {"stage": stage, "errno": getattr(error, "errno", None), "text": text}
            os.write(report, json.dumps(message).encode())
        finally:
            os._exit(127)

    def _exec(self) -> None:
        """Execute the command, looked up in the application's PATH (not the tuner's) as a shell does."""
        name = self._command[0]
        denied: OSError | None = None
        missing: OSError | None = None
        for path in self._candidates(name):
            try:
                os.execve(path, self._command, self._env)  # noqa: S606 - no shell is what is wanted
            except (FileNotFoundError, NotADirectoryError) as error:
                missing = error
            except PermissionError as error:
                denied = denied or error
        raise denied or missing or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _candidates(self, name: str) -> list[str]:
        if "/" in name:
            return [name]
        folders = self._env.get("PATH", os.defpath).split(os.pathsep)
        return [os.path.join(folder or ".", name) for folder in folders]

    def _explain(self, data: bytes) -> str:
        """One line on why the command could not be started, from the child's report."""
        name = self._command[0]
        try:
            report = json.loads(data)
        except ValueError:
            return f"command `{name}` could not be started"
        stage, number, text = report["stage"], report["errno"], report["text"]
        if stage == "cwd":
            return f"cannot enter the working folder `{self._spec['cwd']}`: {text}"
        if stage == "cpus":
            return f"cannot bind the command to CPUs {self._spec['cpus']}: {text}"
        if stage == "memory":
            return f"cannot limit the memory to {self._spec.get('memory_limit_bytes')} bytes: {text}"
        if number in {errno.ENOENT, errno.ENOTDIR}:
            if os.path.exists(os.path.join(self._spec.get("cwd") or "", name)) and "/" in name:
                return f"command `{name}` cannot run: the interpreter of its first line does not exist"
            return f"command `{name}` not found"
        if number == errno.EACCES:
            return f"command `{name}` is not executable"
        if number == errno.ENOEXEC:
            return f"command `{name}` is neither a program nor a script with a `#!` line"
        return f"command `{name}` could not be started: {text}"
