# ruff: noqa: BLE001, INP001, PLC0415, S110, SIM105
# ruff: noqa: PTH100, PTH105, PTH112, PTH118, PTH119, PTH120, PTH123, PTH208
# This folder is no package: it goes on the application's PYTHONPATH (INP001). What goes wrong is swallowed
# (BLE001, S110, SIM105), and nothing is imported into the application before its exit (PLC0415, PTH).
"""Start-up hook inside each Python process of the application: reports what the process holds at its end.

`syspilot.inside` puts this folder in front of PYTHONPATH. At the start it touches `sys`, `os` and `atexit`
only; all the rest happens at the exit. It must never raise, never print, and never change what the
application does: without its variables it does nothing at all. Any interpreter from Python 3.8 on may run it.

A report is one JSON file per process (see `records.InsideReport`), written when the process exits or calls
`os._exit`, as multiprocessing's forked children do. The workers of `multiprocessing.Pool` are ended by a
signal, so they report after a task now and then. A forked child leaves a short note at once, which its report
replaces.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MAX_MODULES = 3000
_MAX_ITEMS = 300
_MAX_TEXT = 2000
_MAX_CHILDREN = 64  # forked by one process, that report; later ones only at powers of two
_WATCHDOG_S = 5.0
_SNAPSHOT_SHARE = 0.01  # of a pool worker's time
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
_EXIT = os._exit
_WRAPPED = "_syspilot_wrapped"


class _State:
    """What this process knows of itself until it reports."""

    folder = os.environ.get("SYSPILOT_INSIDE_DIR", "")
    spec = os.environ.get("SYSPILOT_INSIDE_SPEC", "")
    pid = 0
    parent = 0
    name = ""
    forked = False
    parent_threads: int | None = None
    threads_before_fork: int | None = None
    reported = False
    forks = 0
    snapshot_due = 0.0


def _arm() -> None:
    """This process begins."""
    _State.pid = os.getpid()
    _State.parent = os.getppid()
    _State.name = f"{_State.pid}-{os.urandom(4).hex()}.json"
    _State.reported = False
    _State.forks = 0


def _silent(number: int) -> bool:
    """Whether the child of this number keeps quiet: who forks thousands must not be slowed down."""
    return number > _MAX_CHILDREN and number & (number - 1) != 0


def _before_fork() -> None:
    try:
        _State.forks += 1
        if not _silent(_State.forks):
            _State.threads_before_fork = len(os.listdir("/proc/self/task"))
    except Exception:
        _State.threads_before_fork = None


def _after_fork_in_child() -> None:
    try:
        silent = _silent(_State.forks)
        _arm()
        _State.forked = True
        if silent:
            _State.reported = True
            return
        _State.parent_threads = _State.threads_before_fork
        threads = "null" if _State.parent_threads is None else str(_State.parent_threads)
        note = (
            f'{{"pid": {_State.pid}, "parent": {_State.parent}, "argv": [], "modules": {{}}, "forked": true, '
            f'"parent_threads_at_fork": {threads}, "notes": ["forked, without a report of its own"]}}'
        )
        fd = os.open(os.path.join(_State.folder, _State.name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, note.encode())
        finally:
            os.close(fd)
        _watch_pool_worker()
    except Exception:
        pass


def _watch_pool_worker() -> None:
    """Report from `multiprocessing.Pool` workers after tasks: the pool ends them with SIGTERM."""
    base: Any = getattr(sys.modules.get("multiprocessing.process"), "BaseProcess", None)
    if base is None or getattr(base.run, _WRAPPED, False):
        return
    original = base.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            target: Any = getattr(self, "_target", None)
            if getattr(target, "__module__", "") == "multiprocessing.pool" and target.__name__ == "worker":
                _wrap_put(self._args[1])
        except Exception:
            pass
        return original(self, *args, **kwargs)

    setattr(run, _WRAPPED, True)
    base.run = run


def _wrap_put(queue: Any) -> None:
    """Before a result goes out (the pool may be ended right after), report if it is time to."""
    import time

    original = queue.put

    def put(*args: Any, **kwargs: Any) -> Any:
        now = time.monotonic()
        if now >= _State.snapshot_due:
            try:
                _write(_collect())
            except Exception:
                pass
            after = time.monotonic()
            _State.snapshot_due = after + (after - now) / _SNAPSHOT_SHARE
        return original(*args, **kwargs)

    queue.put = put


# ---- what is reported


def _is_foreign(name: str, path: str | None) -> bool:
    """Whether a top-level module is neither of the standard library nor this one."""
    if name in sys.builtin_module_names or name in {"__main__", "__mp_main__"}:
        return False
    if path is not None and os.path.dirname(os.path.abspath(path)) == _OWN_FOLDER:
        return False
    standard = getattr(sys, "stdlib_module_names", None)
    if standard is not None:
        return name not in standard
    # Before Python 3.10 the standard library is told by its folder.
    folder = os.path.dirname(os.__file__) + os.sep
    return path is not None and (not path.startswith(folder) or "-packages" in path)


def _modules(notes: list[str]) -> dict[str, tuple[str | None, str | None]]:
    """Top-level modules outside the standard library, with version and file; runs no code of theirs."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for name, module in list(sys.modules.items()):
        values = getattr(module, "__dict__", None)
        if "." in name or not isinstance(values, dict):
            continue
        path = values.get("__file__")
        path = path if isinstance(path, str) else None
        if not _is_foreign(name, path):
            continue
        version = values.get("__version__")
        if len(found) >= _MAX_MODULES:
            notes.append(f"more than {_MAX_MODULES} modules")
            break
        found[name[:_MAX_TEXT]] = (version[:_MAX_TEXT] if type(version) is str else None, path)
    return found


def _mapped() -> list[str]:
    """Shared objects in this process's map."""
    found = set()
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            words = line.rstrip(b"\n").split(None, 5)
            if len(words) == 6 and b"x" in words[1] and words[5].startswith(b"/"):
                found.add(os.fsdecode(words[5]))
    return sorted(path for path in found if not path.endswith(" (deleted)") and ".so" in os.path.basename(path))


def _plain(value: Any) -> Any:
    """A number, text or boolean of plain type; numpy's numbers among others give theirs."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        return text[:_MAX_TEXT]
    if hasattr(value, "__index__"):
        return value.__index__()
    if hasattr(value, "__float__"):
        return value.__float__()
    raise TypeError(f"returned {type(value).__name__}, not a number, text or boolean")


def _reading(signal: str, value: Any, library: str | None = None, error: str | None = None) -> dict[str, Any]:
    return {"pid": os.getpid(), "signal": signal, "value": value, "library": library, "error": error}


def _call(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Call a function without arguments, or take an attribute, if its module is loaded already."""
    module = sys.modules.get(str(item["module"]))
    if module is None:
        return []
    try:
        target: Any = module
        for part in str(item["attr"]).split("."):
            target = getattr(target, part)
        value = target() if item.get("called", True) else target
        return [_reading(item["signal"], _plain(value))]
    except Exception as error:
        return [_reading(item["signal"], None, None, f"{type(error).__name__}: {error}"[:_MAX_TEXT])]


def _native(item: dict[str, Any], mapped: list[str]) -> list[dict[str, Any]]:
    """Call the first symbol that exists in each loaded copy of a library; loads nothing."""
    import ctypes
    import fnmatch

    types = {
        "int": ctypes.c_int,
        "long": ctypes.c_long,
        "size_t": ctypes.c_size_t,
        "double": ctypes.c_double,
        "bool": ctypes.c_bool,
        "char_p": ctypes.c_char_p,
    }
    found = []
    for path in mapped:
        name = os.path.basename(path)
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in item["library"]):
            continue
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            symbol = next((symbol for symbol in item["symbols"] if hasattr(library, symbol)), None)
            if symbol is None:
                found.append(_reading(item["signal"], None, path, "none of the symbols exists"))
                continue
            function = getattr(library, symbol)
            function.restype = types[str(item.get("restype", "int"))]
            found.append(_reading(item["signal"], _plain(function()), path))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:_MAX_TEXT]
            found.append(_reading(item["signal"], None, path, text))
    return found


def _start_method() -> str | None:
    module = sys.modules.get("multiprocessing")
    if module is None:
        return None
    method = module.get_start_method(allow_none=True) or module.get_all_start_methods()[0]
    return str(method)


def _collect() -> dict[str, Any]:
    """The whole report; each part that fails leaves a note instead."""
    import json

    notes: list[str] = []

    def attempt(part: str, function: Callable[[], Any], default: Any) -> Any:
        try:
            return function()
        except Exception as error:
            notes.append(f"{part}: {type(error).__name__}: {error}"[:_MAX_TEXT])
            return default

    def load() -> Any:
        with open(_State.spec, encoding="utf-8") as file:
            return json.load(file)

    spec = attempt("spec", load, {})
    wanted = spec if isinstance(spec, dict) else {}
    mapped = attempt("map", _mapped, [])
    report = {
        "pid": _State.pid,
        "parent": _State.parent,
        "argv": [str(word)[:_MAX_TEXT] for word in getattr(sys, "argv", [])[:_MAX_ITEMS]],
        "executable": str(sys.executable or ""),
        "path": [str(entry)[:_MAX_TEXT] for entry in sys.path[:_MAX_ITEMS]],
        "forked": _State.forked,
        "parent_threads_at_fork": _State.parent_threads,
        "modules": attempt("modules", lambda: _modules(notes), {}),
        "environ": {name: os.environ.get(name) for name in wanted.get("environ", [])},
        "start_method": attempt("start method", _start_method, None),
        "libraries": mapped,
    }
    threading = sys.modules.get("threading")
    if threading is not None:
        report["python_threads"] = attempt("threads", threading.active_count, None)

    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for item in wanted.get("signals", []):
            found += _call(item) if item["kind"] == "call" else _native(item, mapped)
        return found

    report["readings"] = attempt("readings", read, [])
    if _State.forks > _MAX_CHILDREN:
        notes.append(f"forked {_State.forks} children, of which most were not reported")
    report["notes"] = notes
    return report


def _write(report: dict[str, Any]) -> None:
    """One file, whole or not at all."""
    import json

    path = os.path.join(_State.folder, _State.name)
    temporary = os.path.join(_State.folder, "." + _State.name)
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(report))
    os.replace(temporary, path)


def _at_exit() -> None:
    if _State.reported or _State.pid != os.getpid():
        return
    _State.reported = True
    try:
        _write(_collect())
    except BaseException:
        pass


def _exit(status: int) -> None:
    """`os._exit`, after the report."""
    try:
        # Forked by one thread of several, this process may find a lock closed that nobody will open.
        if _State.forked and not _State.reported and _State.parent_threads != 1:
            import _thread

            done = _thread.allocate_lock()
            done.acquire()

            def watch() -> None:
                if not done.acquire(timeout=_WATCHDOG_S):
                    _EXIT(status)

            _thread.start_new_thread(watch, ())
            _at_exit()
            done.release()
        else:
            _at_exit()
    except BaseException:
        pass
    _EXIT(status)


def _chain() -> None:
    """Run the `sitecustomize` that this file stands before, if there is one, as if this one were not here."""
    own = sys.modules.get("sitecustomize")
    try:
        sys.path[:] = [entry for entry in sys.path if entry != _OWN_FOLDER]
        bootstrap: Any = sys.modules["_frozen_importlib"]
        external: Any = sys.modules["_frozen_importlib_external"]
        spec = external.PathFinder.find_spec("sitecustomize", sys.path)
        if own is None or spec is None or spec.loader is None:
            return
        module = bootstrap.module_from_spec(spec)
    except Exception:
        return
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # as it would end without this file: `site` tells the user
        sys.modules["sitecustomize"] = own
        raise


try:
    if _State.folder and _State.spec and os.path.isdir(_State.folder):
        _arm()
        atexit.register(_at_exit)
        os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
        _exit.__name__, _exit.__doc__ = _EXIT.__name__, _EXIT.__doc__
        os._exit = _exit  # type: ignore[assignment]
        if "--multiprocessing-fork" in getattr(sys, "orig_argv", ()):
            import multiprocessing.process  # noqa: F401 - this process is about to do so

            _watch_pool_worker()
except Exception:
    pass
_chain()
