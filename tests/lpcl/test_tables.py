"""The cache of parse tables: it holds what Lark builds, and nothing depends on it."""

import json
import os
import re
import subprocess
import sys

import pytest

from lpcl import tables

TEXT = 'lpcl 1 contract a { package "a" control c: int { default 1 env "C" read load evidence e1 } }'
READ = "import sys; from lpcl.parse import parse; p = parse(sys.argv[1]); print(p.ok, 'lark.lark' in sys.modules)"


def read(folder):
    """Whether a process reads a text, and whether it had Lark build tables for that."""
    environ = os.environ | {"LPCL_CACHE": str(folder) if folder else ""}
    done = subprocess.run([sys.executable, "-c", READ, TEXT], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture
def cache(tmp_path):
    assert read(tmp_path / "cache")[0] == "True"
    (path,) = (tmp_path / "cache").iterdir()
    return path


def shape(table):
    """A table with its states numbered in the order in which they are reached: Lark numbers them as sets fall."""
    number, rows = {table.start: 0}, []
    for state in (todo := [table.start]):
        row = []
        for symbol, target in sorted((table.actions[state] | table.after[state]).items(), key=lambda x: x[0]):
            if isinstance(target, int) and target not in number:
                number[target] = len(number)
                todo.append(target)
            row.append((symbol, number[target] if isinstance(target, int) else target))
        words = table.words.get(state, {})
        rows.append((row, sorted(re.findall(r"\?P<(\w+)>", table.patterns.sources[state])), words))
    return rows, number[table.end], table.kept, table.any, table.keywords


def same(one, other):
    assert shape(one) == shape(other)


def test_the_cache_holds_what_is_built(cache):
    _, body = cache.read_text().split("\n")
    kept = tables._from_plain(json.loads(body))
    for start in tables.STARTS:
        same(kept[start], tables._table_of(json.loads(json.dumps(tables._build(start)))))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-100],
        lambda text: text.replace("1", "2", 50),
        lambda text: "[]",
        lambda text: "\n{}",
        lambda text: f"{tables._digest('{}')}\n{{}}",
        lambda text: f"{tables._digest('[' * 100_000)}\n" + "[" * 100_000,
        lambda text: "x" * (tables.MAX_CACHE_BYTES + 1),
        lambda text: "\udcff",
    ],
)
def test_a_damaged_cache_is_built_anew(cache, damage):
    cache.write_bytes(damage(cache.read_text()).encode("utf-8", "surrogateescape"))
    assert read(cache.parent)[0] == "True"
    digest, body = cache.read_text().split("\n")
    assert digest == tables._digest(body)
    assert [p.name for p in cache.parent.iterdir()] == [cache.name], "nothing half written is left"


def test_a_folder_that_takes_no_files_costs_time_only(tmp_path):
    (tmp_path / "file").write_text("")
    assert read(tmp_path / "file" / "below")[0] == "True"
    assert read(None)[0] == "True"


def test_a_kept_table_spares_the_building(cache, monkeypatch):
    monkeypatch.setenv("LPCL_CACHE", str(cache.parent))
    monkeypatch.setattr(tables, "_build", lambda start: pytest.fail("built again"))
    tables._loaded.cache_clear()
    try:
        same(tables._loaded()["start"], tables.table("start"))
    finally:
        tables._loaded.cache_clear()
