"""Runs the application once and returns what happened, whatever happened."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syspilot import inside as inside_reports
from syspilot.inside import InsideSpec
from syspilot.records import Disturbance, InsideReport, ProcessTrace, Run, ThreadTrace, Usage

_SUPERVISOR = Path(__file__).resolve().parent / "supervisor.py"
_STOP_LIMIT_S = 30.0
_TAIL_CHARS = 4_000


def run(  # noqa: PLR0913 - all but the command by name
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    configuration: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout_s: float | None = None,
    metric: re.Pattern[str] | None = None,
    sample: bool = True,
    inside: InsideSpec | None = None,
    echo: bool = False,
    run_dir: Path | str | None = None,
    stdin: Path | str | None = None,
    cpus: Sequence[int] | None = None,
    memory_limit_bytes: int | None = None,
    grace_s: float = 2.0,
) -> Run:
    """Run a command to its end in a session of its own, and leave no process of it behind.

    Args:
        command: program and arguments; looked up in `env`'s PATH.
        env: the whole environment of the command (nothing is inherited besides).
        configuration: what this environment stands for; only recorded.
        cwd: working folder, this process's by default.
        timeout_s: the whole tree is killed then.
        metric: finds the number that the application prints in standard output followed by standard error:
            the last match's last group, or the whole match.
        sample: whether threads are traced (costs less than 1 % of one core).
        inside: what to read inside its Python processes.
        echo: whether its output is repeated on ours.
        run_dir: keeps its `stdout`, `stderr` and reports; a temporary folder, removed at the end, by default.
        stdin: file to read as standard input, by default empty.
        cpus: CPUs it may use.
        memory_limit_bytes: address space of each process (RLIMIT_AS).
        grace_s: how long processes that outlive the root may take to end before they are killed and counted.

    Returns:
        The run. What fails is told by `status` and `cause`, never raised.

    Raises:
        KeyboardInterrupt: after the tree is gone.
    """
    temporary = run_dir is None
    folder = Path(tempfile.mkdtemp(prefix="syspilot-")) if run_dir is None else Path(run_dir).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result.json").unlink(missing_ok=True)
        variables = dict(env) if inside is None else inside_reports.environment(inside, folder, env)
        spec = {
            "command": list(command),
            "env": variables,
            "cwd": None if cwd is None else str(cwd),
            "stdin": None if stdin is None else str(stdin),
            "cpus": None if cpus is None else list(cpus),
            "memory_limit_bytes": memory_limit_bytes,
            "timeout_s": timeout_s,
            "grace_s": grace_s,
            "sample": sample,
            "echo": echo,
            "run_dir": str(folder),
            "remove_run_dir": temporary,
        }
        problem = _supervise(spec, folder, echo=echo)
        return _read_run(folder, dict(configuration or {}), metric, problem, with_inside=inside is not None)
    finally:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)


def _supervise(spec: dict[str, Any], folder: Path, *, echo: bool) -> str:
    """Start the supervisor and wait for its end; what it said if it failed."""
    log = folder / "supervisor.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR)],
            stdin=subprocess.PIPE,
            stdout=None if echo else subprocess.DEVNULL,
            stderr=None if echo else errors,
            start_new_session=True,  # the terminal's Ctrl-C is for the tuner, which then stops the supervisor
        )
        if process.stdin is None:
            raise AssertionError
        try:
            process.stdin.write(json.dumps(spec).encode() + b"\n")
            process.stdin.flush()
            process.wait()
        except BrokenPipeError:
            process.wait()
        finally:
            # Closing the line makes the supervisor kill the application's tree, if it still runs.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            _await_end(process)
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1] if text else f"code {process.returncode}"


def _await_end(process: subprocess.Popen[bytes]) -> None:
    """The supervisor needs a moment to kill the tree; one that does not end is killed itself."""
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _read_run(
    folder: Path,
    configuration: dict[str, str],
    metric: re.Pattern[str] | None,
    problem: str,
    *,
    with_inside: bool,
) -> Run:
    """Build the run from what the supervisor left in the run's folder."""
    try:
        result: dict[str, Any] = json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError):
        cause = f"the supervisor ended without a result ({problem})"
        return Run(configuration=configuration, status="killed", cause=cause)
    notes: list[str] = []
    out, err = result.get("stdout", {}), result.get("stderr", {})
    trace = result.get("trace", {})
    reports = inside_reports.collect(folder, notes) if with_inside else ()
    status, cause = result["status"], result["cause"]
    if status == "failed":
        cause = _cause(cause, err.get("tail", ""))
    if result.get("unkillable_processes"):
        notes.append(f"{result['unkillable_processes']} processes could not be killed")
    number = None
    if metric is not None and status == "ok":
        number, cause = _find_metric(metric, _text(folder / "stdout", out) + "\n" + _text(folder / "stderr", err))
        status = "ok" if number is not None else "no_metric"
    return Run(
        configuration=configuration,
        status=status,
        cause=cause,
        exit_code=result["exit_code"],
        signal=result["signal"],
        wall_s=result["wall_s"],
        metric=number,
        usage=Usage(**result.get("usage", {})),
        disturbance=Disturbance(**result.get("disturbance", {})),
        processes=_processes(trace.get("processes", []), reports),
        threads=tuple(ThreadTrace(**thread) for thread in trace.get("threads", [])),
        sample_times_s=tuple(trace.get("sample_times_s", ())),
        sampler_cpu_s=trace.get("sampler_cpu_s", 0.0),
        untraced_threads=trace.get("untraced_threads", 0),
        inside=reports,
        output_sha256=out.get("sha256", ""),
        output_bytes=out.get("bytes", 0),
        stdout_tail=out.get("tail", "")[-_TAIL_CHARS:],
        stderr_tail=err.get("tail", "")[-_TAIL_CHARS:],
        left_processes=result.get("left_processes", 0),
        notes=tuple(notes),
    )


def _processes(traces: list[dict[str, Any]], reports: Sequence[InsideReport]) -> tuple[ProcessTrace, ...]:
    """The traces, with the shared objects that the processes reported: maps of short ones are not sampled."""
    mapped: dict[int, set[str]] = {}
    for report in reports:
        mapped.setdefault(report.pid, set()).update(report.libraries)
    return tuple(
        ProcessTrace(**{**trace, "libraries": sorted({*trace["libraries"], *mapped.get(trace["pid"], ())})})
        for trace in traces
    )


def _cause(ending: str, stderr: str) -> str:
    """One line on a failed run: how it ended and the last thing it said."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"{ending}: `{lines[-1][:300]}`" if lines else ending


def _text(path: Path, stream: dict[str, Any]) -> str:
    """What was stored of a stream, and its end if that was beyond the cap."""
    text = path.read_bytes().decode("utf-8", "replace")
    if stream.get("bytes", 0) > stream.get("stored_bytes", 0):
        text += "\n" + stream["tail"]
    return text


def _find_metric(pattern: re.Pattern[str], text: str) -> tuple[float | None, str]:
    """The number that the last match holds, or None and why there is none."""
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return None, f"nothing in the output matches the metric `{pattern.pattern}`"
    found = last.group(last.re.groups)
    try:
        number = float(found or "")
    except ValueError:
        return None, f"the metric `{pattern.pattern}` matched `{found}`, which is not a number"
    if not math.isfinite(number):
        return None, f"the metric `{pattern.pattern}` matched `{found}`, which is not finite"
    return number, ""
