# ruff: noqa: PTH100, PTH105, PTH118, PTH120, PTH123
# (pathlib takes longer to import than everything else here)
"""Runs one application under observation and leaves no process behind. Standard library only.

A script of its own, started by `runner` as `python -I -S supervisor.py`, so that the tuner's threads, signals
and children never mix with the application's. It reads one line of JSON (the spec) from standard input, which
stays open as the line to the tuner: when it closes, because the tuner stopped or died, the application's
whole tree is killed. `supervisor.py SPEC.json` reads the spec from a file instead, without that line.

Spec (all but `command`, `env` and `run_dir` optional):
    command, env, cwd, stdin (path), cpus (list), memory_limit_bytes, timeout_s, grace_s (for processes that
    outlive the root), sample (default true), echo, output_cap_bytes, run_dir, remove_run_dir (true: delete it
    if the tuner dies).
Result: `result.json` in `run_dir`, written atomically, next to the files `stdout` and `stderr`:
    status (ok, failed, timeout, killed, not_started), cause, exit_code, signal, wall_s, usage, disturbance,
    trace (see `supervise.sampler`), stdout and stderr (bytes, stored_bytes, sha256, tail), left_processes,
    unkillable_processes, supervisor_cpu_s.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # The package is made by hand: importing it for real would bring in its root module and what that needs,
    # and its folder on sys.path would let its file names shadow standard modules.
    _package = ModuleType("syspilot")
    _package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["syspilot"] = _package

from syspilot.supervise.capture import Capture
from syspilot.supervise.launch import Launcher, NotStartedError
from syspilot.supervise.sampler import Sampler
from syspilot.supervise.tree import MachineReading, Tree

_OUTPUT_CAP_BYTES = 64 << 20
_GRACE_S = 2.0
_KILL_ROUND_S = 0.02
_KILL_LIMIT_S = 15.0  # processes of another user, or in uninterruptible sleep, cannot be ended
_ECHO_ROUND_S = 0.05
_SPARE_FDS = 64
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """One run, from spec to result.

    Args:
        spec: see the module's docstring.
        control_fd: closes when the tuner stops or dies; None without a tuner.
    """

    def __init__(self, spec: dict[str, Any], control_fd: int | None) -> None:
        """Nothing is started before `run`."""
        self._spec = spec
        self._dir: str = spec["run_dir"]
        self._control_fd = control_fd
        self._tuner_fd: int | None = None
        self._wake_fd = -1
        self._poll = select.poll()
        self._streams: dict[int, Capture] = {}
        self._sampler: Sampler | None = None
        self._tree = Tree(0, self._note_end)
        self._start = 0.0
        self._end: float | None = None
        self._stop = ""  # why the run was ended from outside
        self.tuner_gone = False

    def run(self) -> dict[str, Any]:
        """Run the command to its end, its time-out or a stop, and return the result."""
        cap = int(self._spec.get("output_cap_bytes") or _OUTPUT_CAP_BYTES)
        echo = bool(self._spec.get("echo"))
        out = Capture(os.path.join(self._dir, "stdout"), cap, 1 if echo else None)
        err = Capture(os.path.join(self._dir, "stderr"), cap, 2 if echo else None)
        launcher = Launcher(self._spec, (out.write_fd, err.write_fd))
        self._listen(out, err)
        before = MachineReading()
        result: dict[str, Any] = {"version": 1, "exit_code": None, "signal": None}
        try:
            root, self._start = launcher.start()
        except NotStartedError as error:
            return {**result, "status": "not_started", "cause": str(error), "wall_s": 0.0}
        out.close_write_end()
        err.close_write_end()
        self._tree = Tree(root, self._note_end)
        if self._spec.get("sample", True):
            max_fds = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FDS
            self._sampler = Sampler(self._start, max(0, max_fds))
        try:
            self._watch()
        except BaseException:  # a fault of this program must not leave the application alone
            self._sampler = None
            self._end_rest(grace_s=0.0)
            raise
        after = MachineReading()
        completed = self._tree.root_status is not None
        left, unkillable, waited = self._end_rest(grace_s=self._grace_s() if completed else 0.0)
        if waited:  # the rest of the tree worked on: its CPU time is in the usage
            after = MachineReading()
        usage = self._tree.usage
        return {
            **result,
            **self._verdict(completed=completed),
            "wall_s": (self._end or after.at) - self._start,
            "usage": vars(usage),
            "disturbance": after.since(before, usage.user_s + usage.system_s),
            "trace": self._sampler.result() if self._sampler else {},
            "stdout": out.finish(),
            "stderr": err.finish(),
            "left_processes": left if completed else 0,
            "unkillable_processes": unkillable,
            "supervisor_cpu_s": time.process_time(),
        }

    def _grace_s(self) -> float:
        grace = self._spec.get("grace_s")
        return _GRACE_S if grace is None else float(grace)

    def _verdict(self, *, completed: bool) -> dict[str, Any]:
        """How the run ended."""
        if not completed or self._tree.root_status is None:
            if self._stop:
                return {"status": "killed", "cause": self._stop}
            return {"status": "timeout", "cause": f"no end within {self._spec['timeout_s']:g} s"}
        code = os.waitstatus_to_exitcode(self._tree.root_status)
        if code == 0:
            return {"status": "ok", "cause": "", "exit_code": 0}
        if code > 0:
            return {"status": "failed", "cause": f"exited with code {code}", "exit_code": code}
        try:
            name = signal.Signals(-code).name
        except ValueError:  # a real-time signal
            name = f"signal {-code}"
        return {"status": "failed", "cause": f"ended by {name}", "signal": -code}

    # ---- events

    def _listen(self, *streams: Capture) -> None:
        """Everything that can happen arrives at one poll: output, signals, the end of the tuner."""
        self._wake_fd, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_STOP_SIGNALS):
            signal.signal(number, lambda *_: None)
        self._poll.register(self._wake_fd, select.POLLIN)
        for stream in streams:
            self._streams[stream.read_fd] = stream
            self._poll.register(stream.read_fd, select.POLLIN)
        if self._control_fd is not None:
            self._poll.register(self._control_fd, select.POLLIN)
            try:  # a process forked from the tuner meanwhile may hold a copy of the control line's other end
                self._tuner_fd = os.pidfd_open(os.getppid())
            except OSError:
                return
            self._poll.register(self._tuner_fd, select.POLLIN)

    def _step(self, until: float) -> None:
        """Wait for something to happen, at most until a monotonic time, and deal with it."""
        timeout_s = until - time.monotonic()
        if self._sampler and self._end is None:
            timeout_s = min(timeout_s, self._sampler.due - time.monotonic())
        unshown = [stream.echo() for stream in self._streams.values()]
        if any(unshown):
            timeout_s = min(timeout_s, _ECHO_ROUND_S)
        for fd, _ in self._poll.poll(max(0, int(timeout_s * 1000) + 1)):
            if fd == self._wake_fd:
                numbers = os.read(fd, 4096)
                for number in _STOP_SIGNALS:
                    if number in numbers:
                        self._stop = f"stopped by {number.name}"
            elif fd in self._streams:
                self._drain(fd)
            else:
                self._stop = self._stop or "the tuner stopped the run"
                self._hang_up(fd)
        self._tree.reap()
        if self._sampler and self._end is None and (now := time.monotonic()) >= self._sampler.due:
            self._sampler.sample(now)

    def _drain(self, fd: int) -> None:
        self._streams[fd].drain()
        if not self._streams[fd].open:
            self._poll.unregister(fd)

    def _hang_up(self, fd: int) -> None:
        """The tuner closed the control line or is gone."""
        self.tuner_gone = True
        self._poll.unregister(fd)

    def _note_end(self) -> None:
        """The root has ended: take the time, and the last sample while /proc still knows it."""
        if self._end is not None:  # killed after its time was out
            return
        self._end = time.monotonic()
        if self._sampler:
            self._sampler.sample(self._end, final=True)

    # ---- phases

    def _watch(self) -> None:
        """Until the root ends, the time is out, or somebody stops the run."""
        timeout_s = self._spec.get("timeout_s")
        deadline = float("inf") if timeout_s is None else self._start + float(timeout_s)
        while self._tree.root_status is None and not self._stop:
            now = time.monotonic()
            if now >= deadline:
                break
            self._step(min(deadline, now + 60))
        self._note_end()

    def _end_rest(self, grace_s: float) -> tuple[int, int, bool]:
        """Wait for what outlives the root, then kill it: (killed, not to be killed, was anything left)."""
        self._tree.reap()
        if self._tree.empty:
            return 0, 0, False
        deadline = time.monotonic() + grace_s
        while not self._tree.empty and not self._stop and time.monotonic() < deadline:
            self._step(deadline)
        deadline = time.monotonic() + _KILL_LIMIT_S
        while not self._tree.empty and time.monotonic() < deadline:
            self._tree.kill()
            self._step(time.monotonic() + _KILL_ROUND_S)
        unkillable = 0 if self._tree.empty else len(self._tree.survivors())
        return len(self._tree.killed), unkillable, True


def write_result(run_dir: str, result: dict[str, Any]) -> None:
    """Write `result.json` so that a reader sees all of it or nothing."""
    path = os.path.join(run_dir, "result.json")
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(result))
    os.replace(temporary, path)


def main(argv: list[str]) -> int:
    """Run the spec of `argv[0]`, or that on standard input."""
    control_fd = None
    if argv:
        with open(argv[0], "rb") as file:
            line = file.read()
    else:
        control_fd = 0
        line = _read_line(control_fd)
    if not line:
        return 0  # the tuner died before it said what to run
    spec = json.loads(line)
    supervisor = Supervisor(spec, control_fd)
    result = supervisor.run()
    if supervisor.tuner_gone and spec.get("remove_run_dir"):
        shutil.rmtree(spec["run_dir"], ignore_errors=True)
        return 0
    write_result(spec["run_dir"], result)
    return 0


def _read_line(fd: int) -> bytes:
    """The spec, up to its line feed; empty if the other end closed before."""
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(fd, 1 << 16)
        if not part:
            return b""
        data += part
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
