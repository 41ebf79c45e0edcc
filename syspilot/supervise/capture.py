"""Takes in what the application prints, so that it never blocks on a full pipe."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select

_CHUNK = 1 << 20
_TAIL_BYTES = 16_384
_TAIL_CHARS = 4_000
_ECHO_BYTES = 1 << 20
_SET_PIPE_SIZE = fcntl.F_SETPIPE_SZ


class Capture:
    """One stream of the application: hashed whole, stored up to a cap, echoed if wanted.

    Args:
        path: the file that receives the stream's first `cap_bytes` bytes.
        cap_bytes: what is beyond is drained and counted, not stored.
        echo_fd: where to repeat the stream, or None. A reader that does not keep up loses output there rather
            than holding the application up.
    """

    def __init__(self, path: str, cap_bytes: int, echo_fd: int | None) -> None:
        """Create the pipe and the file."""
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        with contextlib.suppress(OSError):  # above the user's pipe limit: the default works too
            fcntl.fcntl(self.write_fd, _SET_PIPE_SIZE, _CHUNK)  # fewer wake-ups
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._cap = cap_bytes
        self._hash = hashlib.sha256()
        self._tail = b""
        self._echo_fd = echo_fd
        self._echo = bytearray()
        self.stored = 0
        self.total = 0
        self.open = True

    def drain(self, rounds: int = 4) -> None:
        """Read what is there, at most `rounds` chunks; notes the end of the stream in `open`."""
        for _ in range(rounds):
            if not self.open:
                return
            try:
                data = os.read(self.read_fd, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.open = False
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        self.total += len(data)
        self._hash.update(data)
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        room = self._cap - self.stored
        if room > 0:
            try:
                self.stored += os.write(self._file, data[:room])
            except OSError:  # a full disk: as if the cap were reached
                self._cap = self.stored
        if self._echo_fd is not None and len(self._echo) < _ECHO_BYTES:
            self._echo += data
            self.echo()

    def echo(self, timeout_ms: int = 0) -> bool:
        """Pass on what the reader of the echo takes without blocking; True if anything is left to pass on."""
        while self._echo and self._echo_fd is not None:
            waiter = select.poll()
            waiter.register(self._echo_fd, select.POLLOUT)
            # What is shared with the user's shell must stay blocking. Writable: PIPE_BUF bytes have room.
            if not waiter.poll(timeout_ms):
                return True
            try:
                written = os.write(self._echo_fd, self._echo[: select.PIPE_BUF])
            except OSError:  # the reader went away
                self._echo_fd = None
                return False
            del self._echo[:written]
        return False

    def close_write_end(self) -> None:
        """Only the application holds the write end from here on."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def finish(self) -> dict[str, object]:
        """Take in the rest, close everything and return what was seen as JSON values."""
        self.close_write_end()
        self.drain(rounds=64)  # a pipe holds one chunk; whoever still writes is outside the tree
        self.echo(timeout_ms=1000)
        os.close(self.read_fd)
        os.close(self._file)
        return {
            "bytes": self.total,
            "stored_bytes": self.stored,
            "sha256": self._hash.hexdigest(),
            "tail": self._tail.decode("utf-8", "replace")[-_TAIL_CHARS:],
        }
