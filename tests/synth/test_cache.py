"""Results by content: found again, bounded, and safe against damage."""

import sqlite3
import subprocess
import sys
import zlib
from hashlib import blake2b

import pytest

from synth.cache import ResultCache, digest, program_version


def test_found_again(tmp_path):
    with ResultCache(tmp_path / "a" / "r.db") as cache:
        cache.put("k", {"x": [1, None, "\u00e9"]})
        cache.put("l", [])
    with ResultCache(tmp_path / "a" / "r.db") as cache:
        assert cache.get(["k", "l", "m", "k"]) == {"k": {"x": [1, None, "\u00e9"]}, "l": []}
        assert (cache.hits, cache.misses) == (2, 1)
        assert len(cache.get([str(n) for n in range(2_000)])) == 0


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_made_anew(tmp_path, damage):
    path = tmp_path / "r.db"
    path.write_bytes(damage)
    with ResultCache(path) as cache:
        assert cache.get(["k"]) == {}
        cache.put("k", 1)
    with ResultCache(path) as cache:
        assert cache.get(["k"]) == {"k": 1}


def test_a_file_damaged_in_the_middle(tmp_path):
    path = tmp_path / "r.db"
    with ResultCache(path) as cache:
        for n in range(500):
            cache.put(f"k{n}", "x" * 500 + str(n))
    raw = bytearray(path.read_bytes())
    for at in range(5_000, len(raw), 97):
        raw[at] ^= 0xFF
    path.write_bytes(raw)
    with ResultCache(path) as cache:
        found = cache.get([f"k{n}" for n in range(500)])
    assert all(value == "x" * 500 + key[1:] for key, value in found.items())


def test_a_value_that_does_not_fit_its_digest(tmp_path):
    path = tmp_path / "r.db"
    with ResultCache(path) as cache:
        for key in "abcd":
            cache.put(key, "right")
    bomb = zlib.compress(b'"' + b"0" * (80 << 20) + b'"')
    deep = zlib.compress(b"[" * 200_000)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE results SET value = ? WHERE key = 'a'", (zlib.compress(b'"wrong"'),))
        db.execute(
            "UPDATE results SET value = ?, sum = ? WHERE key = 'b'", (bomb, blake2b(bomb, digest_size=16).digest())
        )
        db.execute(
            "UPDATE results SET value = ?, sum = ? WHERE key = 'c'", (deep, blake2b(deep, digest_size=16).digest())
        )
    db.close()
    with ResultCache(path) as cache:
        assert cache.get("abcd") == {"d": "right"}


def test_another_version_is_made_anew(tmp_path):
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 77")
    db.close()
    with ResultCache(path) as cache:
        cache.put("k", 1)
    with ResultCache(path) as cache:
        assert cache.get(["k"]) == {"k": 1}


def test_bounded(tmp_path):
    path = tmp_path / "r.db"
    for turn in range(6):
        with ResultCache(path, max_bytes=40_000) as cache:
            for n in range(20):
                cache.put(
                    f"{turn}-{n}", digest(str(turn), str(n)) * 30 + "".join(digest(str(m), str(n)) for m in range(30))
                )
    with sqlite3.connect(path) as db:
        assert 0 < db.execute("SELECT SUM(LENGTH(value)) FROM results").fetchone()[0] <= 40_000
    db.close()


def test_no_place_to_write(tmp_path):
    (tmp_path / "file").write_text("")
    with ResultCache(tmp_path / "file" / "r.db") as cache:
        cache.put("k", 1)
        assert cache.get(["k"]) == {}
    (tmp_path / "folder").mkdir()
    with ResultCache(tmp_path / "folder") as cache:
        cache.put("k", 1)


def test_two_at_once(tmp_path):
    path = tmp_path / "r.db"
    code = (
        "import sys; from pathlib import Path; from synth.cache import ResultCache\n"
        "with ResultCache(Path(sys.argv[1])) as c:\n    [c.put(sys.argv[2] + str(n), n) for n in range(300)]"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    assert [child.wait(60) for child in children] == [0, 0]
    with ResultCache(path) as cache:
        assert len(cache.get([f"{name}{n}" for name in "ab" for n in range(300)])) == 600


def test_digests_and_versions(tmp_path):
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("a") == digest(b"a")
    (tmp_path / "x.py").write_text("1")
    first = program_version(tmp_path)
    (tmp_path / "x.py").write_text("2")
    assert program_version(tmp_path) != first
