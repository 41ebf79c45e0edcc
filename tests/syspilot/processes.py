"""Real processes for the tests, and ways to wait for them without sleeping."""

import os
import select
import sys
import time
from pathlib import Path

LIMIT_S = 60  # no test waits this long unless something is broken
PYTHON = [sys.executable, "-S", "-E", "-c"]  # without `site`: starts quickly

# Three levels: a child, a daemon in a session of its own (double fork), and this process; each tells its pid.
TREE = """
import os, sys, time
mail = os.open(sys.argv[1], os.O_WRONLY)
def tell():
    os.write(mail, b"%d\\n" % os.getpid())
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            tell()
            time.sleep(1000)
        os._exit(0)
    tell()
    time.sleep(1000)
tell()
"""


class Mailbox:
    """A named pipe in which processes leave lines."""

    def __init__(self, folder: Path):
        self.path = folder / "mailbox"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)  # our own writer: it never ends

    def lines(self, count):
        """Wait for this many lines."""
        text = b""
        deadline = time.monotonic() + LIMIT_S
        waiter = select.poll()
        waiter.register(self._fd, select.POLLIN)
        while text.count(b"\n") < count:
            left = deadline - time.monotonic()
            assert left > 0, f"only {text!r} arrived"
            if waiter.poll(left * 1000):
                text += os.read(self._fd, 65536)
        return text.decode().splitlines()

    def pids(self, count):
        return [int(line) for line in self.lines(count)]

    def close(self):
        os.close(self._fd)


def wait_gone(pid):
    """Wait until a process has ended (it may still be a zombie of a process that is not ours)."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        waiter = select.poll()
        waiter.register(fd, select.POLLIN)
        assert waiter.poll(LIMIT_S * 1000), f"process {pid} is still there"
    finally:
        os.close(fd)


def is_gone(pid):
    """Whether no such process exists at all, not even a zombie."""
    return not Path(f"/proc/{pid}").exists()


def open_fds():
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
