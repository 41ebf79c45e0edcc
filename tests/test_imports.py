"""Importing any module changes nothing, says nothing, reaches nobody, and loads no heavy library in passing."""

import json
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PACKAGES = ("lpcl", "synth", "syspilot")
MODULES = sorted(
    [*PACKAGES, *(m.name for p in PACKAGES for m in pkgutil.walk_packages(import_module(p).__path__, f"{p}."))]
)
HEAVY = {"openai", "tree_sitter", "bs4", "requests", "numpy", "docutils", "rich", "pandas", "sklearn", "scipy"}

# Runs in a fresh interpreter, which forks for each module: each is imported into an interpreter that has seen none.
PROBE = r"""
import importlib, json, logging, os, signal, sys, threading

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.putenv", "os.unsetenv", "os.chdir", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn",
    "os.spawn", "os.kill", "os.setxattr", "subprocess.Popen", "shutil.rmtree", "shutil.move", "tempfile.mkstemp",
    "tempfile.mkdtemp", "signal.pthread_kill", "syslog.openlog", "webbrowser.open", "urllib.Request",
    "_thread.start_new_thread",
}


def by(frame):
    names = []
    while frame is not None:
        names.append(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return names


def state():
    handlers = {s.name: repr(signal.getsignal(s)) for s in signal.valid_signals() if isinstance(s, signal.Signals)}
    root = logging.getLogger()
    return {
        "environ": dict(os.environ), "cwd": os.getcwd(), "signals": handlers,
        "logging": [repr(h) for h in root.handlers], "level": root.level, "threads": threading.active_count(),
        "path": list(sys.path), "hooks": [repr(sys.excepthook), repr(sys.displayhook), repr(threading.excepthook)],
        "recursion": sys.getrecursionlimit(), "argv": list(sys.argv),
    }


def child(name, out):
    seen = []

    def hook(event, args):
        if event == "open":
            mode, flags = args[1] or "", args[2] or 0
            if isinstance(args[0], int) or not (set("wax+") & set(mode) or flags & WRITES):
                return
        elif not (event.startswith("socket.") or event in CHANGES):
            return
        stack = by(sys._getframe(1))
        # urllib3 asks the kernel for IPv6 by binding a socket; nothing is sent
        harmless = event in {"socket.__new__", "socket.bind"} and "urllib3.util.connection" in stack
        if harmless:
            return
        seen.append([event, str(args)[:200], [n for n in stack if n and not n.startswith("importlib")][:4]])

    before = state()
    sys.addaudithook(hook)
    importlib.import_module(name)
    found, after = list(seen), state()
    changed = {k: [before[k], after[k]] for k in before if before[k] != after[k]}
    json.dump({"events": found, "changed": changed, "modules": sorted(sys.modules)}, out)


results = {}
for name in sys.argv[1:]:
    read, write = os.pipe()
    said_read, said_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(said_write, 1)
        os.dup2(said_write, 2)
        with os.fdopen(write, "w") as out:
            child(name, out)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(write)
    os.close(said_write)
    with os.fdopen(read) as answer:
        text = answer.read()
    with os.fdopen(said_read) as said:
        results[name] = {"said": said.read(), **(json.loads(text) if text else {})}
    os.waitpid(pid, 0)
json.dump(results, sys.stdout)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Module name -> what importing it did."""
    cwd = tmp_path_factory.mktemp("cwd")
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(cwd), "XDG_CACHE_HOME": str(cwd / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *MODULES],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr == ""
    assert list(cwd.iterdir()) == []
    return json.loads(done.stdout)


def test_the_list_of_modules_is_whole():
    root = Path(__file__).parents[1]
    files = {p for package in PACKAGES for p in (root / package).rglob("*.py") if "inject" not in p.parts}
    names = {".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for p in files}
    assert set(MODULES) == names


@pytest.mark.parametrize("name", MODULES)
def test_importing_changes_nothing(imported, name):
    found = imported[name]
    assert found["said"] == ""
    assert found["changed"] == {}
    assert found["events"] == []
    assert name in found["modules"]


def test_the_probe_can_fail(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import logging, os, signal, socket\n"
        "os.environ['X_BAD'] = '1'\n"
        "os.chdir('/')\n"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
        "logging.basicConfig()\n"
        "socket.socket().close()\n"
        "open('/dev/null', 'w').close()\n"
        "print('hello')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "bad"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(done.stdout)["bad"]
    assert found["said"] == "hello\n"
    assert set(found["changed"]) == {"environ", "cwd", "signals", "logging"}
    assert {e[0] for e in found["events"]} >= {"os.putenv", "os.chdir", "socket.__new__", "open"}


def loaded(found, libraries=HEAVY):
    return sorted(libraries & {m.split(".")[0] for m in found["modules"]})


@pytest.mark.parametrize(
    "name", [m for m in MODULES if m.split(".")[0] in {"lpcl", "syspilot"}] + ["synth", "synth.cli"]
)
def test_heavy_libraries_are_not_loaded(imported, name):
    # what lays text out on a terminal is loaded by nothing but the commands that do
    allowed = {"rich"} if name == "syspilot.show" else set()
    assert set(loaded(imported[name])) <= allowed


@pytest.mark.parametrize(
    "name", ["synth.records", "synth.vocabulary", "synth.translate", "synth.draft", "synth.ground"]
)
def test_drafting_needs_no_heavy_library(imported, name):
    assert loaded(imported[name]) == []


@pytest.mark.parametrize("name", [m for m in MODULES if m.startswith("synth")])
def test_nothing_loads_a_model_s_client(imported, name):
    assert loaded(imported[name], {"openai", "numpy", "docutils", "rich", "httpx"}) == []


@pytest.mark.parametrize("name", [m for m in MODULES if m.startswith("synth")])
def test_only_the_walkers_load_tree_sitter(imported, name):
    walking = ("synth.walk", "synth.pipeline", "synth.evidence", "synth.docs", "synth.extract", "synth.items")
    if not name.startswith(walking):
        assert loaded(imported[name], {"tree_sitter"}) == []


@pytest.mark.parametrize("name", ["lpcl", "lpcl.cli", "syspilot", "syspilot.cli", "synth.cli"])
def test_command_lines_start_light(imported, name):
    assert loaded(imported[name], HEAVY | {"pydantic", "lark", "jinja2", "markdown_it", "packaging"}) == []


@pytest.mark.parametrize(
    "args",
    [
        ["lpcl", "--help"],
        ["lpcl", "--version"],
        ["lpcl", "show", "openblas"],
        ["syspilot", "--help"],
        ["syspilot", "--version"],
        ["syspilot", "synth", "--help"],
        ["syspilot", "tune", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_the_like_load_nothing_heavy(tmp_path, args):
    code = (
        "import json, sys\n"
        f"from {args[0]}.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout
    assert loaded({"modules": json.loads(done.stderr)}, HEAVY | {"pydantic", "jinja2"}) == []
