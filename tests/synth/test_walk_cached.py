"""What is taken over from an earlier walk is what a walk of now would say, whatever was changed in between."""

# ruff: noqa: E501 - modules as strings

import random
import shutil
import sqlite3

import pytest

from synth.records import Kind
from synth.walk import incremental
from synth.walk.tree import Limits, walk_release
from tests.synth.test_walk_release import make, release

FILES = {
    "pkg/__init__.py": "from pkg.core import run, set_threads\nfrom . import limits\n__all__ = ['run', 'set_threads']\n",
    "pkg/limits.py": "DEFAULT = 4\nPREFIX = 'PKG_'\nNAME = 'PKG_MAX_WORKERS'\n",
    "pkg/_env.py": "import os\nfrom pkg.limits import PREFIX\n\ndef read(name, default=None):\n    return os.environ.get(PREFIX + name, default)\n",
    "pkg/core.py": (
        "import os\nfrom concurrent.futures import ThreadPoolExecutor\nfrom pkg._env import read\nfrom pkg import limits\n\n"
        "def size():\n    return int(read('NUM_THREADS', limits.DEFAULT))\n\n"
        "def run(work, n_jobs=None):\n    with ThreadPoolExecutor(n_jobs or size()) as pool:\n        return pool.map(work)\n\n"
        "def set_threads(n):\n    global _n\n    _n = n\n"
    ),
    "pkg/sub/__init__.py": "",
    "pkg/sub/a.py": "import os\nfrom pkg.limits import NAME\nfrom pkg._env import read\nV = os.environ.get(NAME, '2')\nW = read('CACHE_SIZE')\n",
    "pkg/sub/b.py": "from pkg.core import run\n\nclass Base:\n    def fit(self, n_jobs=1):\n        return run(len, n_jobs=n_jobs)\n",
    "pkg/sub/c.py": "from pkg.sub.b import Base\n\nclass Child(Base):\n    def __init__(self, n_workers=2):\n        self.n_workers = n_workers\n",
    "pkg/fast.pyx": "import os\ncdef int n = int(os.environ.get('PKG_FAST_THREADS', 2))\ndef go(int num_threads=1):\n    return num_threads\n",
    "pkg/ext.c": '#include <stdlib.h>\nint f(void) { return atoi(getenv("PKG_C_THREADS")); }\n',
    "pkg/lib.rs": 'fn f() -> usize { std::env::var("PKG_RS_THREADS").unwrap().parse().unwrap() }\n',
    "docs/use.rst": "Set ``PKG_NUM_THREADS`` or call ``set_threads``.\n",
}  # fmt: skip


def same(root, cache, jobs=1):
    """A walk with a cache, after a check that one without says the same."""
    walk = walk_release(release(root), cache=cache, jobs=jobs)
    fresh = walk_release(release(root))
    assert walk.observations == fresh.observations
    assert walk.skipped == fresh.skipped
    assert (walk.files, walk.bytes) == (fresh.files, fresh.bytes)
    return walk


@pytest.fixture
def walked(monkeypatch):
    """Tasks that were really walked since the last look."""
    seen = []
    real = incremental.Traced._walk

    def watched(self, tasks, *args, **kwargs):
        seen.extend(path for _, path in tasks)
        return real(self, tasks, *args, **kwargs)

    monkeypatch.setattr(incremental.Traced, "_walk", watched)

    def look():
        found, seen[:] = list(seen), []
        return found

    return look


def test_nothing_changed(tmp_path, walked):
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    first = same(root, cache)
    assert {o.name for o in first.observations if o.kind is Kind.ENV_READ} >= {
        "PKG_NUM_THREADS", "PKG_MAX_WORKERS", "PKG_CACHE_SIZE", "PKG_FAST_THREADS", "PKG_C_THREADS", "PKG_RS_THREADS",
    }  # fmt: skip
    assert walked()
    same(root, cache)
    assert walked() == []


@pytest.mark.parametrize(
    ("file", "old", "new", "again"),
    [
        ("pkg/sub/b.py", "return run", "x = 1\n        return run", {"pkg/sub/b.py"}),
        ("pkg/limits.py", "'PKG_MAX_WORKERS'", "'PKG_MOST_WORKERS'", {"pkg/limits.py", "pkg/sub/a.py"}),
        ("pkg/limits.py", "DEFAULT = 4", "# more\nDEFAULT = 5", {"pkg/limits.py", "pkg/core.py"}),
        ("pkg/limits.py", "'PKG_'", "'OTHER_'", {"pkg/limits.py", "pkg/sub/a.py", "pkg/core.py"}),
        ("pkg/sub/b.py", "n_jobs=1", "n_jobs=7", {"pkg/sub/b.py"}),
        ("pkg/_env.py", "PREFIX + name", "name", {"pkg/_env.py", "pkg/core.py", "pkg/sub/a.py"}),
        ("pkg/__init__.py", "'set_threads'", "'limits'", {"pkg/core.py"}),
        ("pkg/core.py", "ThreadPool", "ProcessPool", {"pkg/core.py"}),
        ("pkg/ext.c", "PKG_C", "PKG_D", set()),
        ("docs/use.rst", "PKG_NUM", "PKG_CACHE_SIZE PKG_NUM", set()),
    ],
)
def test_one_thing_changed(tmp_path, walked, file, old, new, again):
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    same(root, cache)
    walked()
    path = root / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    same(root, cache)
    assert again <= set(walked())


def test_files_come_and_go(tmp_path):
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    same(root, cache)
    (root / "pkg/sub/__init__.py").unlink()
    same(root, cache)
    make(
        root,
        {
            "pkg/sub/__init__.py": "from pkg.sub.a import V\n",
            "pkg/new.py": "from pkg._env import read\nread('NEW_THREADS')\n",
        },
    )
    assert "PKG_NEW_THREADS" in {o.name for o in same(root, cache).observations}
    (root / "pkg/sub/b.py").rename(root / "pkg/sub/z.py")
    same(root, cache)
    shutil.rmtree(root / "pkg/sub")
    same(root, cache)


def test_many_changes_by_chance(tmp_path):
    """Lines are moved, doubled and dropped; each time both walks must agree."""
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    chance = random.Random(5)
    for _ in range(40):
        path = root / chance.choice(sorted(FILES))
        lines = path.read_text().splitlines(keepends=True)
        if lines:
            place = chance.randrange(len(lines))
            kind = chance.randrange(4)
            if kind == 0:
                del lines[place]
            elif kind == 1:
                lines.insert(chance.randrange(len(lines)), lines[place])
            elif kind == 2:
                lines[place] = lines[place].replace("PKG", "ABC").replace("n_jobs", "n_workers")
            else:
                lines = FILES[path.relative_to(root).as_posix()].splitlines(keepends=True)
            path.write_text("".join(lines))
        same(root, cache)


def test_several_processes(tmp_path, monkeypatch):
    from synth.walk import tree

    monkeypatch.setattr(tree, "_PARALLEL_FROM", 0)
    monkeypatch.setattr(incremental, "_CHUNK_BYTES", 1)
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    for _ in range(2):
        same(root, cache, jobs=2)
    path = root / "pkg/limits.py"
    path.write_text(path.read_text() + "MORE = 1\n")
    same(root, cache, jobs=2)
    assert walk_release(release(root), jobs=2).observations == walk_release(release(root)).observations


def test_a_cache_of_other_results_is_not_believed(tmp_path):
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    same(root, cache)
    for value in (b"garbage", b""):
        with sqlite3.connect(cache / "results.db") as db:
            db.execute("UPDATE results SET value = ?", (value,))
        db.close()
        same(root, cache)


@pytest.mark.parametrize(
    "value",
    [
        "[]",
        "{}",
        '{"facts":["o",0],"face":"x"}',
        '{"facts":["o",99],"face":1}',
        "[[]]",
        '"x"',
        '{"asked":"{}","answers":"","result":{}}',
        '{"asked":"[1","answers":""}',
        '{"seen":[{"kind":"nothing"}],"skip":null}',
    ],
)
def test_values_of_a_wrong_shape(tmp_path, monkeypatch, value):
    import json

    from synth.cache import ResultCache

    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES)
    monkeypatch.setattr(ResultCache, "get", lambda self, keys: {key: json.loads(value) for key in keys})
    same(root, cache)


def test_memory_of_what_cannot_be_parsed(tmp_path):
    root, cache = tmp_path / "r", tmp_path / "c"
    make(root, FILES | {"pkg/deep.py": "x = " + "(" * 5_000 + "\nimport os\nos.environ.get('PKG_DEEP_THREADS')\n"})
    for _ in range(2):
        walk = same(root, cache)
    assert walk_release(release(root), cache=cache, limits=Limits(parse_seconds=9.0)).observations == walk.observations
