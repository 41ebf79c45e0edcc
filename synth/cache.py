"""Results by content: what was made of a file is found again as long as the file and the program are the same.

One SQLite file. A value is JSON, compressed, beside the digest of its bytes: one that does not fit its digest counts as
not there, and a file that SQLite refuses is removed. The cache is never needed: where it cannot be written, nothing is
kept.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SCHEMA = 1
_MAX_VALUE_BYTES = 64 << 20  # of one value after decompression
_BATCH = 400
_BUSY_SECONDS = 5.0


def digest(*parts: bytes | str) -> str:
    """Digest of parts, each with its length, so that no two lists of parts read alike."""
    found = blake2b(digest_size=20)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(len(raw).to_bytes(8, "big"))
        found.update(raw)
    return found.hexdigest()


def program_version(folder: Path) -> str:
    """Digest of the program's own sources below a folder: results of another version are never found."""
    parts: list[bytes | str] = []
    for path in sorted(folder.rglob("*.py")):
        parts += [path.relative_to(folder).as_posix(), path.read_bytes()]
    return digest(*parts)


class ResultCache:
    """Values by key, bounded in size: those longest unused go first."""

    def __init__(self, path: Path, *, max_bytes: int = 1 << 30) -> None:
        """Open or make the file; without one, nothing is found and nothing is kept."""
        self.path, self.max_bytes = path, max_bytes
        self.hits = self.misses = 0
        self._new: list[tuple[str, bytes, bytes, int]] = []
        self._used: set[str] = set()
        self._db = self._open(again=True)

    def __enter__(self) -> Self:
        """As opened."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write what is new, remove what is too much."""
        self.close()

    def get(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of those keys that are there and whole."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, Any] = {}
        for start in range(0, len(wanted), _BATCH):
            part = wanted[start : start + _BATCH]
            for key, check, packed in self._rows(part):
                value = _unpacked(packed, check)
                if value is not None:
                    found[key] = value
        self._used.update(found)
        self.hits += len(found)
        self.misses += len(wanted) - len(found)
        return found

    def put(self, key: str, value: Any) -> None:
        """Keep a value, which must be JSON and not null."""
        packed = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)
        self._new.append((key, blake2b(packed, digest_size=16).digest(), packed, int(time.time())))

    def close(self) -> None:
        """Write and close."""
        if self._db is None:
            return
        try:
            with self._db:
                self._db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", self._new)
                now = int(time.time())
                self._db.executemany("UPDATE results SET used = ? WHERE key = ?", ((now, key) for key in self._used))
                self._prune(self._db)
        except sqlite3.Error:
            pass  # a full disk or another process: the next run does the work again
        finally:
            self._db.close()
            self._db = None

    def _rows(self, keys: list[str]) -> list[tuple[str, bytes, bytes]]:
        if self._db is None:
            return []
        marks = ",".join("?" * len(keys))
        try:
            rows = self._db.execute(f"SELECT key, sum, value FROM results WHERE key IN ({marks})", keys).fetchall()  # noqa: S608
        except sqlite3.Error:
            self._broken()
            return []
        return [(k, s, v) for k, s, v in rows if isinstance(k, str) and isinstance(s, bytes) and isinstance(v, bytes)]

    def _prune(self, db: sqlite3.Connection) -> None:
        total = db.execute("SELECT COALESCE(SUM(LENGTH(value)), 0) FROM results").fetchone()[0]
        if total <= self.max_bytes:
            return
        gone: list[str] = []
        for key, size in db.execute("SELECT key, LENGTH(value) FROM results ORDER BY used, key"):
            if total <= self.max_bytes * 0.8:
                break
            gone.append(key)
            total -= size
        db.executemany("DELETE FROM results WHERE key = ?", ((key,) for key in gone))

    def _open(self, *, again: bool) -> sqlite3.Connection | None:
        db: sqlite3.Connection | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA):
                raise sqlite3.DatabaseError("of another version")  # noqa: TRY301 - handled as any other file that does not fit
            columns = "key TEXT PRIMARY KEY, sum BLOB, value BLOB, used INTEGER"
            db.execute(f"CREATE TABLE IF NOT EXISTS results ({columns}) WITHOUT ROWID")
            db.execute(f"PRAGMA user_version = {_SCHEMA}")
            db.execute("SELECT key, sum, value, used FROM results LIMIT 1").fetchone()
        except sqlite3.DatabaseError as error:
            if db is not None:
                db.close()
            if isinstance(error, sqlite3.OperationalError) or not again:
                return None  # locked, read-only or no place: not damaged
            self.path.unlink(missing_ok=True)
            return self._open(again=False)
        except OSError:
            return None
        return db

    def _broken(self) -> None:
        """Give up a file that SQLite cannot read."""
        if self._db is not None:
            self._db.close()
            self._db = None
        self.path.unlink(missing_ok=True)


def _unpacked(packed: bytes, check: bytes) -> Any | None:
    if blake2b(packed, digest_size=16).digest() != check:
        return None
    try:
        stream = zlib.decompressobj()
        raw = stream.decompress(packed, _MAX_VALUE_BYTES)
        return json.loads(raw) if not stream.unconsumed_tail else None
    except (zlib.error, ValueError, RecursionError):
        return None
