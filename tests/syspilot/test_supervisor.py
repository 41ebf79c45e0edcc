"""The supervisor as a process of its own, and the parts it is made of."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import syspilot
from syspilot.supervise import procfs, sampler
from syspilot.supervise.capture import Capture
from syspilot.supervise.sampler import Sampler
from tests.syspilot.processes import LIMIT_S, PYTHON, TREE, Mailbox, is_gone, open_fds, wait_gone

SUPERVISOR = Path(syspilot.__file__).parent / "supervisor.py"


@pytest.fixture
def mailbox(tmp_path):
    box = Mailbox(tmp_path)
    yield box
    box.close()


def start(run_dir, command, **spec):
    process = subprocess.Popen([sys.executable, "-I", "-S", SUPERVISOR], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    document = {"command": command, "env": dict(os.environ), "run_dir": str(run_dir), **spec}
    process.stdin.write(json.dumps(document).encode() + b"\n")
    process.stdin.flush()
    return process


def finish(process, run_dir):
    process.wait(LIMIT_S)
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    return json.loads((run_dir / "result.json").read_bytes())


def supervise(run_dir, command, **spec):
    return finish(start(run_dir, command, **spec), run_dir)


def test_needs_nothing_but_the_standard_library(tmp_path):
    program = (
        "import runpy, sys; sys.argv[1:] = [sys.argv[1]]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if 'packages' in (getattr(sys.modules[name], '__file__', '') or '')])"
    )
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"command": ["true"], "env": {}, "run_dir": str(tmp_path)}))
    program = program.replace("sys.argv[0]", repr(str(SUPERVISOR)))
    out = subprocess.run([sys.executable, "-I", "-S", "-c", program, spec], capture_output=True, check=True, text=True)
    assert out.stdout == "[]\n"
    assert json.loads((tmp_path / "result.json").read_bytes())["status"] == "ok"


def test_time_out_kills_the_whole_tree(tmp_path, mailbox):
    result = supervise(tmp_path, [*PYTHON, TREE + "time.sleep(1000)", str(mailbox.path)], timeout_s=2)
    assert result["status"] == "timeout"
    assert result["cause"] == "no end within 2 s"
    assert result["left_processes"] == 0
    assert all(is_gone(pid) for pid in mailbox.pids(3))


def test_what_outlives_the_root_is_killed_and_counted(tmp_path, mailbox):
    result = supervise(tmp_path, [*PYTHON, TREE, str(mailbox.path)], grace_s=0.1)
    assert result["status"] == "ok"
    assert result["left_processes"] == 2
    assert all(is_gone(pid) for pid in mailbox.pids(3))


def test_what_ends_within_the_grace_is_not_counted(tmp_path):
    script = "import os\nif os.fork() == 0:\n  r, w = os.pipe(); sum(range(10**6))\n  os._exit(0)"
    result = supervise(tmp_path, [*PYTHON, script], grace_s=LIMIT_S)
    assert (result["status"], result["left_processes"]) == ("ok", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_kills_the_tree_and_leaves_a_result(tmp_path, mailbox, number):
    process = start(tmp_path, [*PYTHON, TREE + "time.sleep(1000)", str(mailbox.path)])
    pids = mailbox.pids(3)
    process.send_signal(number)
    result = finish(process, tmp_path)
    assert (result["status"], result["cause"]) == ("killed", f"stopped by {number.name}")
    assert all(is_gone(pid) for pid in pids)


def test_closing_the_line_kills_the_tree(tmp_path, mailbox):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    command = [*PYTHON, TREE + "time.sleep(1000)", str(mailbox.path)]
    process = start(run_dir, command, remove_run_dir=True)
    pids = mailbox.pids(3)
    process.stdin.close()
    process.wait(LIMIT_S)
    process.stderr.close()
    assert all(is_gone(pid) for pid in pids)
    assert not run_dir.exists()


def test_the_root_does_not_outlive_a_killed_supervisor(tmp_path, mailbox):
    script = "import os, sys, time; os.write(os.open(sys.argv[1], 1), b'%d\\n' % os.getpid()); time.sleep(1000)"
    process = start(tmp_path, [*PYTHON, script, str(mailbox.path)])
    (pid,) = mailbox.pids(1)
    process.kill()
    wait_gone(pid)
    process.wait(LIMIT_S)
    process.stdin.close()
    process.stderr.close()


def test_a_fault_of_the_supervisor_ends_the_tree(tmp_path, mailbox):
    # The fault comes with the first sample after all three processes have told their pids.
    program = """
import json, os, sys
from syspilot.supervise.sampler import Sampler
from syspilot.supervisor import main
def sample(self, now, final=False):
    if os.path.exists(sys.argv[2]):
        raise RuntimeError("a fault")
Sampler.sample = sample
main(sys.argv[1:2])
"""
    spec = tmp_path / "spec.json"
    command = [*PYTHON, TREE + "time.sleep(1000)", str(mailbox.path)]
    spec.write_text(json.dumps({"command": command, "env": {}, "run_dir": str(tmp_path)}))
    process = subprocess.Popen(
        [sys.executable, "-c", program, spec, tmp_path / "now"], stderr=subprocess.PIPE, cwd=SUPERVISOR.parents[1]
    )
    pids = mailbox.pids(3)
    (tmp_path / "now").touch()
    _, errors = process.communicate(timeout=LIMIT_S)
    assert b"RuntimeError: a fault" in errors
    assert all(is_gone(pid) for pid in pids)


def test_output_beyond_the_cap_is_drained_hashed_and_counted(tmp_path):
    script = "import os\nfor n in range(200): os.write(1, bytes([65 + n % 26]) * 4096)\nos.write(1, b'end')"
    result = supervise(tmp_path, [*PYTHON, script], output_cap_bytes=10_000)
    whole = b"".join(bytes([65 + n % 26]) * 4096 for n in range(200)) + b"end"
    assert (tmp_path / "stdout").read_bytes() == whole[:10_000]
    assert result["stdout"]["bytes"] == len(whole)
    assert result["stdout"]["stored_bytes"] == 10_000
    assert result["stdout"]["sha256"] == hashlib.sha256(whole).hexdigest()
    assert result["stdout"]["tail"].endswith("Rend")


def test_the_application_finds_default_signals_and_no_stray_descriptor(tmp_path):
    script = (
        "import os, signal; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1],"
        " os.getsid(0) == os.getpid(), signal.pthread_sigmask(0, ()))"
    )
    supervise(tmp_path, [*PYTHON, script])
    assert (tmp_path / "stdout").read_text() == "[0, 1, 2] True set()\n"
    command = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"]
    supervise(tmp_path, command)
    masks = [int(line.split()[1], 16) for line in (tmp_path / "stdout").read_text().splitlines()]
    # Whoever started the tests may ignore one of the C library's own real-time signals (32 and up): that is inherited.
    assert [mask & (2**31 - 1) for mask in masks] == [0, 0]


def test_usage_counts_each_process_once(tmp_path):
    # The child reaps its own child; an orphan is left to the supervisor. Each says what it used.
    script = """
import os, resource
def work():
    sum(range(3 * 10**6))
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(1, b"%d\\n" % int(1e6 * (used.ru_utime + used.ru_stime)))
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild:
        os.waitpid(grandchild, 0)
        if os.fork():
            work()
            os._exit(0)
    work()
    os._exit(0)
os.waitpid(child, 0)
work()
"""
    result = supervise(tmp_path, [*PYTHON, script], grace_s=LIMIT_S)
    told = [int(line) / 1e6 for line in (tmp_path / "stdout").read_text().splitlines()]
    assert len(told) == 4
    used = result["usage"]["user_s"] + result["usage"]["system_s"]
    assert used >= sum(told)
    # What is not told (start, exit) is far less than any of the four parts, which all do the same work.
    assert used < sum(told) + min(told)


def test_echo_repeats_both_streams(tmp_path):
    spec = tmp_path / "spec.json"
    command = [*PYTHON, "import os; os.write(1, b'out'); os.write(2, b'err')"]
    spec.write_text(json.dumps({"command": command, "env": {}, "run_dir": str(tmp_path), "echo": True}))
    shown = subprocess.run([sys.executable, "-I", "-S", SUPERVISOR, spec], capture_output=True, check=True)
    assert (shown.stdout, shown.stderr) == (b"out", b"err")


def test_a_stuck_reader_of_the_echo_does_not_hold_the_application_up(tmp_path):
    spec = tmp_path / "spec.json"
    command = [*PYTHON, "import os; [os.write(1, b'x' * 65536) for _ in range(100)]"]
    spec.write_text(json.dumps({"command": command, "env": {}, "run_dir": str(tmp_path), "echo": True}))
    process = subprocess.Popen([sys.executable, "-I", "-S", SUPERVISOR, spec], stdout=subprocess.PIPE)
    process.wait(LIMIT_S)  # nobody reads meanwhile
    process.stdout.close()
    assert json.loads((tmp_path / "result.json").read_bytes())["stdout"]["bytes"] == 100 * 65536


def test_affinity_and_memory_limit(tmp_path):
    cpu = min(os.sched_getaffinity(0))
    script = "import os, resource; print(os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_AS)[0])"
    supervise(tmp_path, [*PYTHON, script], cpus=[cpu], memory_limit_bytes=1 << 30)
    assert (tmp_path / "stdout").read_text() == f"{{{cpu}}} {1 << 30}\n"


def test_capture_survives_a_full_disk(tmp_path):
    capture = Capture("/dev/full", 1 << 20, None)
    os.write(capture.write_fd, b"text")
    assert capture.finish()["bytes"] == 4


# ---- the sampler, in this process


@pytest.fixture
def child():
    """A process with three threads, each of which does some work per line it is sent."""
    script = """
import sys, threading
lines = threading.Semaphore(0)
def work():
    while lines.acquire():
        sum(range(200_000))
        print("done", flush=True)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    lines.release()
"""
    process = subprocess.Popen([*PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"

    def work():
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"

    process.work = work
    yield process
    process.stdin.close()
    process.stdout.close()
    process.kill()
    process.wait()


def only_child_of(tracer, process):
    """Other children of this process are none of the sampler's business here."""
    tracer._children = lambda: [(process.pid, os.getpid())]
    return tracer


def sample_work(process, rounds, **limits):
    begin = time.monotonic()
    tracer = only_child_of(Sampler(begin, **limits), process)
    for number in range(rounds):
        tracer.sample(begin + number)
        process.work()
    tracer.sample(begin + rounds, final=True)
    return tracer.result()


@pytest.mark.parametrize("max_fds", [0, 1, 100])
def test_steps_add_up(child, max_fds):
    before = open_fds()
    trace = sample_work(child, 10, max_fds=max_fds)
    assert open_fds() == before
    (process,) = trace["processes"]
    assert (process["pid"], process["parent"], process["started"]) == (child.pid, os.getpid(), "root")
    assert process["peak_threads"] == 3
    assert process["cpus_allowed"] == len(os.sched_getaffinity(0))
    assert len(trace["threads"]) == 3
    assert len(trace["sample_times_s"]) == 11
    for thread in trace["threads"]:
        assert sum(step[1] for step in thread["steps"]) == pytest.approx(thread["cpu_s"])
        assert sum(step[2] for step in thread["steps"]) == pytest.approx(thread["delay_s"])
        assert all(0 <= step[0] < 11 for step in thread["steps"])
        assert thread["name"].startswith("python")
    assert sum(thread["cpu_s"] for thread in trace["threads"]) > 0
    assert trace["sampler_cpu_s"] > 0


def test_a_long_run_keeps_bounded_samples(child, monkeypatch):
    monkeypatch.setattr(sampler, "MAX_SAMPLES", 8)
    trace = sample_work(child, 50)
    times = trace["sample_times_s"]
    assert len(times) <= 8
    assert times == sorted(times)
    for thread in trace["threads"]:
        assert sum(step[1] for step in thread["steps"]) == pytest.approx(thread["cpu_s"])
        assert all(0 <= step[0] < len(times) for step in thread["steps"])


def test_threads_beyond_the_limit_are_counted(child, monkeypatch):
    monkeypatch.setattr(sampler, "MAX_THREADS", 2)
    trace = sample_work(child, 3)
    assert len(trace["threads"]) == 2
    assert trace["untraced_threads"] > 0


def test_without_scheduler_statistics(child, monkeypatch):
    real = procfs.read
    monkeypatch.setattr(
        procfs, "read", lambda path, size=65536: b"" if path.endswith("self/schedstat") else real(path, size)
    )
    trace = sample_work(child, 30)
    assert sum(thread["cpu_s"] for thread in trace["threads"]) > 0


def test_libraries_are_read_when_due(child):
    begin = time.monotonic()
    tracer = only_child_of(Sampler(begin), child)
    tracer.sample(begin)
    tracer.sample(begin + 10)
    (process,) = tracer.result()["processes"]
    assert any(Path(name).name.startswith("libc.") for name in process["libraries"])
    assert os.path.realpath(sys.executable) not in process["libraries"]


def test_processes_are_found_with_and_without_children_files(child):
    assert child.pid in procfs.descendants(os.getpid())
    if not procfs.has_children_files():
        pytest.skip("this kernel has no children files")
    begin = time.monotonic()
    for by_children in (True, False):
        tracer = Sampler(begin)
        tracer._by_children = by_children
        tracer.sample(begin)
        assert child.pid in {process["pid"] for process in tracer.result()["processes"]}


def test_fork_and_exec_are_told_apart(tmp_path, mailbox):
    script = """
import os, subprocess, sys
r, w = os.pipe()
forked = os.fork()
if forked == 0:
    os.close(w)
    os.read(r, 1)
    os._exit(0)
executed = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={})
with open(sys.argv[1], "w") as mail:
    print(os.getpid(), forked, executed.pid, file=mail, flush=True)
sys.stdin.read()
"""
    stdin_r, stdin_w = os.pipe()
    process = subprocess.Popen([*PYTHON, script, mailbox.path], stdin=stdin_r)
    os.close(stdin_r)
    root, forked, executed = map(int, mailbox.lines(1)[0].split())
    begin = time.monotonic()
    tracer = Sampler(begin)
    tracer._children = lambda: [(root, os.getpid()), (forked, root), (executed, root)]
    for moment in range(4):
        tracer.sample(begin + moment)
    os.close(stdin_w)
    process.wait(LIMIT_S)
    kinds = {process["pid"]: (process["started"], process["exe"]) for process in tracer.result()["processes"]}
    program = Path(sys.executable).resolve().name
    assert kinds[root] == ("root", program)
    assert kinds[forked] == ("fork", program)
    assert kinds[executed][0] == "exec"
