"""What the start-up hook is asked to read inside the application's Python processes, and what it answers."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from syspilot.records import InsideReport, Record

_HOOK_FOLDER = Path(__file__).resolve().parent / "inject"
_REPORTS = "inside"
_SPEC = "inside-spec.json"
_MAX_REPORTS = 512
_MAX_REPORT_BYTES = 2 << 20
_MAX_TOTAL_BYTES = 64 << 20


class CallSignal(Record):
    """A function of a Python module, called without arguments if the module is loaded, or an attribute of it.

    Attributes:
        signal: `contract.signal`, as the reading names it.
        module: in `sys.modules`; attr: a name in it, dotted if need be; called: False to take the attribute as it is.
    """

    kind: Literal["call"] = "call"
    signal: str
    module: str
    attr: str
    called: bool = True


class NativeSignal(Record):
    """A C function without arguments, called once in each loaded copy of a library.

    Attributes:
        signal: `contract.signal`, as the reading names it.
        library: patterns of base names (`libgomp*.so*`); symbols: the first that exists is called.
        restype: its C type.
    """

    kind: Literal["native"] = "native"
    signal: str
    library: tuple[str, ...]
    symbols: tuple[str, ...]
    restype: Literal["int", "long", "size_t", "double", "bool", "char_p"] = "int"


class InsideSpec(Record):
    """What to read in each Python process at its end.

    Attributes:
        signals: the readings; environ: environment variables whose values are wanted.
    """

    signals: tuple[CallSignal | NativeSignal, ...] = Field(default=())
    environ: tuple[str, ...] = ()


def environment(spec: InsideSpec, run_dir: Path, base_env: Mapping[str, str]) -> dict[str, str]:
    """Prepare a run's folder for the start-up hook.

    Args:
        spec: what to read.
        run_dir: the run's folder; it must live until the application has ended.
        base_env: the application's whole environment.

    Returns:
        `base_env` with what brings the hook into every Python process that inherits it.
    """
    folder = run_dir.resolve()
    reports = folder / _REPORTS
    reports.mkdir(exist_ok=True)
    path = folder / _SPEC
    path.write_text(spec.model_dump_json(), encoding="utf-8")
    old = base_env.get("PYTHONPATH")
    return {
        **base_env,
        "PYTHONPATH": f"{_HOOK_FOLDER}{os.pathsep}{old}" if old else str(_HOOK_FOLDER),
        "SYSPILOT_INSIDE_DIR": str(reports),
        "SYSPILOT_INSIDE_SPEC": str(path),
    }


def collect(run_dir: Path, notes: list[str] | None = None) -> tuple[InsideReport, ...]:
    """Read the reports of a run's processes.

    They come from the application, so sizes are bounded and each one is checked; what is wrong is left out.

    Args:
        run_dir: as given to `environment`.
        notes: receives a line for each report that was left out.

    Returns:
        The reports, by pid.
    """
    notes = [] if notes is None else notes
    try:
        names = sorted(os.listdir(run_dir / _REPORTS))  # noqa: PTH208 - a listing without a stat each
    except OSError:
        return ()
    names = [name for name in names if name.endswith(".json") and not name.startswith(".")]
    if len(names) > _MAX_REPORTS:
        notes.append(f"only {_MAX_REPORTS} of {len(names)} reports from inside were read")
    reports = []
    total = 0
    for name in names[:_MAX_REPORTS]:
        try:
            data = _read(run_dir / _REPORTS / name)
            total += len(data)
            if total > _MAX_TOTAL_BYTES:
                notes.append("reports from inside were left out: too many bytes")
                break
            reports.append(InsideReport.model_validate(json.loads(data)))
        except (OSError, ValueError, RecursionError) as error:
            problem = "not as expected" if isinstance(error, ValidationError) else str(error)
            notes.append(f"report from inside `{name[:100]}` was left out: {problem}")
    # A child that was forked and then executed another Python left a note and, under the same pid, a report.
    complete = {report.pid for report in reports if report.modules or report.executable}
    kept = [report for report in reports if report.executable or report.pid not in complete]
    return tuple(sorted(kept, key=lambda report: report.pid))


def _read(path: Path) -> bytes:
    """A plain file, not through a link, up to the limit."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("not a plain file")
        if info.st_size > _MAX_REPORT_BYTES:
            raise ValueError(f"larger than {_MAX_REPORT_BYTES} bytes")
        return os.read(fd, _MAX_REPORT_BYTES)
    finally:
        os.close(fd)
