"""Runs of real applications, good and bad."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from syspilot.runner import run
from tests.syspilot.processes import LIMIT_S, PYTHON, TREE, Mailbox, is_gone, open_fds, wait_gone

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """Each run must leave no descriptor, no child and no temporary folder behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = open_fds()
    yield
    assert open_fds() == before
    assert list(scratch.iterdir()) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def mailbox(tmp_path, nothing_left):
    box = Mailbox(tmp_path)
    yield box
    box.close()


def python(script, *args, **options):
    return run([*PYTHON, script, *args], env=os.environ, **options)


def test_a_good_run():
    result = python("print('hello'); sum(range(10**6))", configuration={"OMP_NUM_THREADS": "1"})
    assert (result.status, result.cause, result.exit_code, result.signal) == ("ok", "", 0, None)
    assert result.configuration == {"OMP_NUM_THREADS": "1"}
    assert result.stdout_tail == "hello\n"
    assert result.output_sha256 == hashlib.sha256(b"hello\n").hexdigest()
    assert result.output_bytes == 6
    assert result.wall_s > 0
    assert result.usage.cpu_s > 0
    assert result.usage.max_rss_bytes > 1 << 20
    assert result.processes[0].started == "root"
    assert result.threads
    assert 0 <= result.disturbance.others_share <= 1


def test_without_sampling():
    result = python("pass", sample=False)
    assert result.ok
    assert (result.processes, result.threads, result.sample_times_s, result.sampler_cpu_s) == ((), (), (), 0)


def test_the_environment_is_the_given_one_only():
    result = run(["env"], env={"PATH": os.environ["PATH"], "A": "x=y z", "B": "caf\udce9"})
    assert sorted(result.stdout_tail.splitlines()) == sorted([f"PATH={os.environ['PATH']}", "A=x=y z", "B=caf\ufffd"])


def test_exit_code_and_last_line_of_the_errors():
    result = python("raise ValueError('boom')")
    assert (result.status, result.exit_code) == ("failed", 1)
    assert result.cause == "exited with code 1: `ValueError: boom`"
    assert python("raise SystemExit(42)").exit_code == 42


def test_ended_by_a_signal():
    result = python("import os; os.kill(os.getpid(), 11)")
    assert (result.status, result.exit_code, result.signal) == ("failed", None, signal.SIGSEGV)
    assert result.cause == "ended by SIGSEGV"


def test_what_cannot_start(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("text")
    stray = tmp_path / "stray"
    stray.write_text("#!/no/such/interpreter\n")
    stray.chmod(0o755)
    headless = tmp_path / "headless"
    headless.write_text("text")
    headless.chmod(0o755)

    def cause(command, **options):
        result = run(command, env=os.environ, **options)
        assert result.status == "not_started"
        return result.cause

    assert cause(["no-such-command"]) == "command `no-such-command` not found"
    assert cause([str(tmp_path / "none")]).endswith("none` not found")
    assert cause([str(plain)]) == f"command `{plain}` is not executable"
    assert cause([str(tmp_path)]) == f"command `{tmp_path}` is not executable"
    assert cause([str(headless)]).endswith("is neither a program nor a script with a `#!` line")
    assert cause([str(stray)]).endswith("the interpreter of its first line does not exist")
    assert "no/such: No such file" in cause(["true"], cwd="/no/such").replace("`", "")
    assert "cannot read standard input" in cause(["true"], stdin="/no/such")
    assert "cannot bind the command to CPUs" in cause(["true"], cpus=[100_000])
    assert "null" in cause(["tr\0ue"])


def test_a_relative_command_is_looked_up_in_its_working_folder(tmp_path):
    script = tmp_path / "app"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    assert run(["./app"], env=os.environ, cwd=tmp_path).stdout_tail == f"{tmp_path}\n"


def test_time_out_ends_the_whole_tree(mailbox):
    result = python(TREE + "time.sleep(1000)", str(mailbox.path), timeout_s=2)
    assert result.status == "timeout"
    assert result.exit_code is None
    assert all(is_gone(pid) for pid in mailbox.pids(3))


def test_forks_away(mailbox):
    result = python(TREE, str(mailbox.path), grace_s=0.1)
    assert (result.status, result.left_processes) == ("ok", 2)
    assert all(is_gone(pid) for pid in mailbox.pids(3))


def test_prints_nothing_and_closes_its_output():
    assert python("pass").output_sha256 == hashlib.sha256(b"").hexdigest()
    result = python("import os; os.close(1); os.close(2); sum(range(10**6))")
    assert (result.status, result.output_bytes) == ("ok", 0)


def test_prints_200_megabytes():
    result = python("import os\nblock = b'x' * (1 << 20)\nfor _ in range(200): os.write(1, block)")
    assert result.ok
    # A blocking write to a pipe writes all of it.
    assert result.output_bytes == 200 << 20
    whole = hashlib.sha256()
    for _ in range(200):
        whole.update(b"x" * (1 << 20))
    assert result.output_sha256 == whole.hexdigest()
    assert result.stdout_tail == "x" * 4000


def test_reads_standard_input(tmp_path):
    assert python("import sys; print(repr(sys.stdin.read()))").stdout_tail == "''\n"
    (tmp_path / "input").write_text("text")
    result = python("import sys; print(repr(sys.stdin.read()))", stdin=tmp_path / "input")
    assert result.stdout_tail == "'text'\n"


def test_usage_covers_2000_short_children():
    script = """
import os, resource
told = 0.0
for _ in range(2000):
    r, w = os.pipe()
    if os.fork() == 0:
        sum(range(5000))
        used = resource.getrusage(resource.RUSAGE_SELF)
        os.write(w, b"%r" % (used.ru_utime + used.ru_stime))
        os._exit(0)
    os.close(w)
    told += float(os.read(r, 100))
    os.close(r)
    os.wait()
print(told)
"""
    result = python(script)
    assert result.ok
    assert result.usage.cpu_s >= float(result.stdout_tail)
    assert len(result.processes) <= 1000


def test_metric():
    pattern = re.compile(r"rate = (\S+)")
    assert python("print('rate = 1.5'); print('rate = 2.5')", metric=pattern).metric == 2.5
    assert python("import sys; print('rate = 3e2', file=sys.stderr)", metric=pattern).metric == 300
    assert python("print('take 17')", metric=re.compile(r"\d+")).metric == 17

    def no_metric(script):
        result = python(script, metric=pattern)
        assert (result.status, result.metric) == ("no_metric", None)
        return result.cause

    assert no_metric("pass") == r"nothing in the output matches the metric `rate = (\S+)`"
    assert no_metric("print('rate = fast')").endswith("matched `fast`, which is not a number")
    assert no_metric("print('rate = nan')").endswith("matched `nan`, which is not finite")
    assert python("print('rate = 1'); raise SystemExit(3)", metric=pattern).status == "failed"


def test_metric_behind_64_megabytes_of_output():
    script = "import os\nfor _ in range(70): os.write(1, b'x' * (1 << 20))\nos.write(1, b'\\nrate = 4\\n')"
    assert python(script, metric=re.compile(r"rate = (\S+)")).metric == 4


def test_a_kept_folder_holds_the_output(tmp_path):
    result = python("print('hello')", run_dir=tmp_path / "run")
    assert result.ok
    assert (tmp_path / "run" / "stdout").read_text() == "hello\n"


def test_echo(capfd):
    assert python("print('shown')", echo=True).stdout_tail == "shown\n"
    assert capfd.readouterr().out == "shown\n"


INTERRUPTED = """
import os, sys
from syspilot.runner import run
before = os.listdir("/proc/self/fd")
try:
    run(sys.argv[1:], env=os.environ)
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("interrupted", os.listdir("/proc/self/fd") == before)
"""


def helper(script, mailbox, scratch):
    command = [sys.executable, "-c", script, *PYTHON, TREE + "time.sleep(1000)", mailbox.path]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_interrupt_ends_the_tree_before_it_is_raised(mailbox, tmp_path):
    tuner = helper(INTERRUPTED, mailbox, tmp_path / "scratch")
    pids = mailbox.pids(3)
    tuner.send_signal(signal.SIGINT)
    out, _ = tuner.communicate(timeout=LIMIT_S)
    assert out == "interrupted True\n"
    assert all(is_gone(pid) for pid in pids)


def test_a_killed_tuner_leaves_no_process(mailbox, tmp_path):
    tuner = helper(INTERRUPTED, mailbox, tmp_path / "scratch")
    pids = mailbox.pids(3)
    supervisor = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    roots = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}
    supervisors = [pid for pid in {supervisor, *roots} if b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    tuner.kill()
    tuner.communicate()
    for pid in [*pids, *supervisors]:
        wait_gone(pid)
    assert supervisors


def test_a_supervisor_that_dies_is_told(monkeypatch, tmp_path):
    broken = tmp_path / "supervisor.py"
    broken.write_text("raise RuntimeError('no way')")
    monkeypatch.setattr("syspilot.runner._SUPERVISOR", broken)
    result = python("pass")
    assert result.status == "killed"
    assert result.cause == "the supervisor ended without a result (RuntimeError: no way)"
