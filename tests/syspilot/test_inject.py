"""The start-up hook inside real Python applications, and what is made of its reports."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syspilot.inside import CallSignal, InsideSpec, NativeSignal, collect, environment
from syspilot.runner import run

HOOK_FOLDER = Path(__file__).resolve().parents[2] / "syspilot" / "inject"
OPENBLAS = NativeSignal(
    signal="numpy.openblas_threads",
    library=("libscipy_openblas*.so*", "libopenblas*.so*"),
    symbols=("openblas_get_num_threads", "scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads"),
)
NUMEXPR = CallSignal(signal="numexpr.threads", module="numexpr", attr="get_num_threads")
SPEC = InsideSpec(signals=(OPENBLAS, NUMEXPR), environ=("OPENBLAS_NUM_THREADS", "NOT_SET"))

WORKER = """
import os, sys
import numpy

def work(number):
    matrix = numpy.ones((64, 64))
    return float((matrix @ matrix)[0, 0]) + number
"""


def python(script, *args, spec=SPEC, env=None, **options):
    variables = {**os.environ, **(env or {})}
    result = run([sys.executable, "-c", script, *args], env=variables, inside=spec, **options)
    assert result.ok, result
    return result


def python_file(tmp_path, script, *args, **options):
    (tmp_path / "worker.py").write_text(WORKER)
    path = tmp_path / "app.py"
    path.write_text("from worker import work\n" + script)
    result = run([sys.executable, str(path), *args], env=dict(os.environ), inside=SPEC, **options)
    assert result.ok, result
    return result


def readings(report, signal):
    return [reading.value for reading in report.readings if reading.signal == signal]


def test_reports_modules_readings_and_environment():
    script = "import numpy, numexpr\nmatrix = numpy.ones((64, 64))\nmatrix @ matrix"
    result = python(script, env={"OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "3"})
    (report,) = result.inside
    assert report.pid == result.processes[0].pid
    assert report.argv == ("-c",)
    assert report.executable == sys.executable
    version, path = report.modules["numpy"]
    assert version == importlib.metadata.version("numpy")
    assert path.endswith("numpy/__init__.py")
    assert not {"json", "os", "sys", "sitecustomize", "__main__"} & set(report.modules)
    assert readings(report, "numpy.openblas_threads") == [1]
    assert readings(report, "numexpr.threads") == [3]
    assert report.environ == {"OPENBLAS_NUM_THREADS": "1", "NOT_SET": None}
    assert (report.forked, report.parent_threads_at_fork) == (False, None)
    assert any("openblas" in name for name in report.libraries)
    assert any("openblas" in name for name in result.processes[0].libraries)
    assert report.notes == ()


def test_nothing_is_imported_for_a_reading():
    result = python("pass")
    assert result.inside[0].readings == ()
    assert "numexpr" not in result.inside[0].modules


def test_readings_that_fail_are_told():
    spec = InsideSpec(
        signals=(
            CallSignal(signal="a.missing", module="os", attr="no.such"),
            CallSignal(signal="a.dotted", module="os", attr="path.sep", called=False),
            CallSignal(signal="a.object", module="os", attr="times"),
            NativeSignal(signal="a.symbol", library=("libc.so*", "libc-*"), symbols=("no_such",)),
            NativeSignal(signal="a.pid", library=("libc.so*", "libc-*"), symbols=("no_such", "getpid")),
        )
    )
    (report,) = python("pass", spec=spec).inside
    found = {reading.signal: reading for reading in report.readings}
    assert "AttributeError" in found["a.missing"].error
    assert found["a.dotted"].value == "/"
    assert "times_result" in found["a.object"].error
    assert found["a.symbol"].error == "none of the symbols exists"
    assert found["a.pid"].value == report.pid
    assert Path(found["a.pid"].library).name.startswith("libc")


def test_a_forked_child_reports_through_os_exit():
    script = """
import os, threading
release = threading.Event()
threads = [threading.Thread(target=release.wait) for _ in range(3)]
for thread in threads: thread.start()
if os.fork() == 0:
    os._exit(0)
os.wait()
release.set()
"""
    parent, child = sorted(python(script).inside, key=lambda report: report.forked)
    assert (child.forked, child.parent, child.parent_threads_at_fork) == (True, parent.pid, 4)
    assert child.executable
    assert (parent.forked, parent.python_threads) == (False, 1)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_report(tmp_path, method):
    script = """
import multiprocessing, sys
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    child = multiprocessing.Process(target=work, args=(1,))
    child.start()
    child.join()
    print(child.pid)
"""
    result = python_file(tmp_path, script, method)
    report = {report.pid: report for report in result.inside}[int(result.stdout_tail)]
    assert readings(report, "numpy.openblas_threads")
    assert report.start_method == method
    assert report.forked == (method != "spawn")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pool_workers_report_although_a_signal_ends_them(tmp_path, method):
    script = """
import multiprocessing, os, sys
def who(number):
    work(number)
    return os.getpid()
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(2) as pool:
        print(*set(pool.map(who, range(8), chunksize=1)))
"""
    result = python_file(tmp_path, script, method)
    reports = {report.pid: report for report in result.inside}
    workers = [int(word) for word in result.stdout_tail.split()]
    assert workers
    for pid in workers:
        assert readings(reports[pid], "numpy.openblas_threads")


def test_loky_workers_report(tmp_path):
    script = """
import os
from joblib import Parallel, delayed
if __name__ == "__main__":
    Parallel(2)(delayed(work)(number) for number in range(4))
"""
    result = python_file(tmp_path, script)
    workers = [report for report in result.inside if report.start_method == "loky"]
    assert workers
    # joblib gives each of two workers half of the machine's threads.
    expected = max(1, len(os.sched_getaffinity(0)) // 2)
    assert any(readings(report, "numpy.openblas_threads") == [expected] for report in workers)


def test_a_subprocess_reports():
    script = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'timeit', '-n1', 'pass'], check=True)"
    assert len(python(script).inside) == 2


def test_an_isolated_interpreter_has_no_report():
    result = run([sys.executable, "-I", "-c", "pass"], env=os.environ, inside=SPEC)
    assert (result.status, result.inside) == ("ok", ())


def test_a_process_that_forks_hundreds_is_not_followed_into_each():
    script = """
import os
for _ in range(200):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""
    result = python(script)
    assert len(result.inside) == 1 + 64 + 1  # the parent, the first 64 children and the 128th
    (parent,) = [report for report in result.inside if not report.forked]
    assert parent.notes == ("forked 200 children, of which most were not reported",)


def test_the_users_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')\nMARK = 1\n")
    script = "import sys, sitecustomize; print(sitecustomize.MARK, sitecustomize.__file__)\nprint(sys.path[1])"
    result = python(script, env={"PYTHONPATH": str(tmp_path)})
    assert result.stdout_tail == f"mine\n1 {tmp_path}/sitecustomize.py\n{tmp_path}\n"
    assert len(result.inside) == 1


def test_a_broken_sitecustomize_of_the_user_fails_as_ever(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('broken')\n")
    env = {"PYTHONPATH": str(tmp_path)}
    result = python("print('on')", env=env)
    plain = run([sys.executable, "-c", "print('on')"], env={**os.environ, **env})
    assert result.stdout_tail == plain.stdout_tail == "on\n"
    assert result.stderr_tail == plain.stderr_tail
    assert "broken" in result.stderr_tail
    assert len(result.inside) == 1


def test_the_hook_is_not_on_the_applications_path():
    result = python("import sys; print([entry for entry in sys.path if 'inject' in entry])")
    assert result.stdout_tail == "[]\n"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SYSPILOT_INSIDE_DIR": "/no/such", "SYSPILOT_INSIDE_SPEC": "/no/such"},
        {"SYSPILOT_INSIDE_DIR": "", "SYSPILOT_INSIDE_SPEC": "x"},
        {"SYSPILOT_INSIDE_DIR": "/dev/null", "SYSPILOT_INSIDE_SPEC": "/dev/null"},
        {"SYSPILOT_INSIDE_DIR": "/proc", "SYSPILOT_INSIDE_SPEC": "/dev/null"},
    ],
    ids=["none", "missing", "empty", "no folder", "not writable"],
)
def test_without_sound_variables_the_hook_keeps_quiet(variables):
    env = {**os.environ, **variables, "PYTHONPATH": str(HOOK_FOLDER)}
    script = "import os, sys\nif os.fork() == 0: os._exit(3)\nos.wait()\nprint('on')\nsys.exit(7)"
    out = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout, out.stderr) == (7, "on\n", "")


@pytest.mark.parametrize("text", ["", "not json", "[1, 2]", '{"signals": [{"kind": "call"}]}'])
def test_with_a_malformed_spec_there_is_still_a_report(tmp_path, text):
    env = environment(InsideSpec(), tmp_path, os.environ)
    (tmp_path / "inside-spec.json").write_text(text)
    out = subprocess.run([sys.executable, "-c", "pass"], env=env, capture_output=True, check=False)
    assert (out.returncode, out.stderr) == (0, b"")
    assert len(collect(tmp_path)) == 1


def test_the_start_imports_next_to_nothing(tmp_path):
    command = [sys.executable, "-c", "import sys; print(*sys.modules)"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    env = environment(SPEC, tmp_path, os.environ)
    hooked = subprocess.run(command, capture_output=True, text=True, check=False, env=env).stdout.split()
    assert set(hooked) - set(plain) == {"__future__", "atexit", "sitecustomize"}


# ---- reports are the application's word


def report_file(run_dir, name, content):
    folder = run_dir / "inside"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


GOOD = {"pid": 5, "parent": 1, "argv": [], "modules": {"numpy": ["2.0", None]}, "executable": "python"}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 100_000, b"[]", {**GOOD, "pid": "many"}, {**GOOD, "extra": 1}, b" " * (3 << 20), b"\xff"],
    ids=["empty", "cut", "deep", "list", "wrong type", "unknown field", "too large", "not text"],
)
def test_a_malformed_report_is_dropped_with_a_note(tmp_path, content):
    report_file(tmp_path, "1-a.json", content)
    report_file(tmp_path, "2-b.json", GOOD)
    notes = []
    (report,) = collect(tmp_path, notes)
    assert report.modules == {"numpy": ("2.0", None)}
    assert len(notes) == 1
    assert notes[0].startswith("report from inside `1-a.json` was left out: ")


def test_a_link_or_a_pipe_is_no_report(tmp_path):
    report_file(tmp_path, "real", GOOD)
    (tmp_path / "inside" / "1.json").symlink_to(tmp_path / "inside" / "real")
    os.mkfifo(tmp_path / "inside" / "2.json")
    (tmp_path / "inside" / "3.json").mkdir()
    notes = []
    assert collect(tmp_path, notes) == ()
    assert len(notes) == 3


def test_only_so_many_reports_are_read(tmp_path):
    for number in range(600):
        report_file(tmp_path, f"{number}.json", GOOD)
    notes = []
    assert len(collect(tmp_path, notes)) == 512
    assert notes == ["only 512 of 600 reports from inside were read"]


def test_no_folder_is_no_report(tmp_path):
    assert collect(tmp_path) == ()


def test_the_note_of_a_fork_gives_way_to_a_report_of_the_same_process(tmp_path):
    note = {**GOOD, "modules": {}, "executable": "", "forked": True}
    report_file(tmp_path, "5-a.json", note)
    report_file(tmp_path, "5-b.json", GOOD)
    (report,) = collect(tmp_path)
    assert not report.forked
