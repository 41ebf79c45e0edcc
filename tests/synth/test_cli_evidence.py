"""`syspilot evidence` as a user runs it, and the scores of it against lists."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from synth.extract import _companions
from synth.records import Release

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("syspilot")
SOURCE = """\
import os

N = int(os.environ.get("PKG_NUM_THREADS", "4"))
HOME = os.environ.get("PKG_HOME")
os.environ["MKL_NUM_THREADS"] = "1"


def run(work, n_jobs=2):
    return work, n_jobs
"""
FIELDS = [
    "name",
    "aliases",
    "kind",
    "verdict",
    "resource",
    "type",
    "default",
    "read_when",
    "scope",
    "precedence",
    "provider",
    "certain",
    "evidence",
    "why",
]


def folder(base, name="pkg", source=SOURCE):
    root = base / f"{name}-src"
    (root / name).mkdir(parents=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1.0"\n')
    (root / name / "__init__.py").write_text(source)
    return root


@pytest.fixture
def evidence(tmp_path):
    def run(*args):
        command = [COMMAND, "evidence", *map(str, args), "--cache", str(tmp_path / "cache")]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)

    return run


def test_one_object_a_line_with_the_fields_in_order(tmp_path, evidence):
    done = evidence(folder(tmp_path), "--json")
    assert done.returncode == 0
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(list(item) == FIELDS for item in items)
    assert all(list(place) == ["where", "line"] for item in items for place in item["evidence"])
    by_name = {item["name"]: item for item in items}
    assert by_name["PKG_NUM_THREADS"]["verdict"] == "control"
    assert by_name["PKG_HOME"]["verdict"] == "not_control"
    assert by_name["MKL_NUM_THREADS"]["verdict"] == "mitigation"
    assert by_name["pkg.run(n_jobs=)"]["kind"] == "param"
    assert "pkg 1.0" in done.stderr


def test_a_table_for_people(tmp_path, evidence):
    done = evidence(folder(tmp_path))
    assert done.returncode == 0
    head, columns, first, *_ = done.stdout.splitlines()
    assert head.startswith("pkg 1.0")
    assert columns.split() == ["name", "kind", "verdict", "resource", "default", "read", "at"]
    assert first.split()[:5] == ["PKG_NUM_THREADS", "env", "control", "cpu.threads", "4"]


def test_filters_and_top(tmp_path, evidence):
    root = folder(tmp_path)
    done = evidence(root, "--json", "--kind", "env", "--verdict", "control")
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["PKG_NUM_THREADS"]
    assert len(evidence(root, "--json", "--top", "2").stdout.splitlines()) == 2
    done = evidence(root, "--top", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`--top` must be at least 1" in done.stderr


def test_several_targets_one_of_which_fails(tmp_path, evidence):
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    done = evidence(one, tmp_path / "missing.tar.gz", two, "--json")
    assert done.returncode == 2
    assert done.stdout.count('"PKG_NUM_THREADS"') == 2
    assert "missing.tar.gz" in done.stderr


def test_sources_cannot_write_to_the_terminal(tmp_path, evidence):
    source = 'import os\nx = os.environ.get("PKG_THREADS", "\x1b]0;owned\x07")\n'
    done = evidence(folder(tmp_path, source=source))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("requires", "found"),
    [
        (["other-core==1.0"], ["other-core"]),
        (["other>=1.0,<1.1; extra == 'other'"], ["other"]),
        (["other-64==1.0; extra == 'wide'"], []),
        (["other>=1.0"], []),
        (["other==2.0"], []),
        (["pkg[all]==1.0"], []),
        (["other @ https://example.invalid/x.whl", "(((", "other-core==1.0"], ["other-core"]),
    ],
)
def test_releases_that_belong_together(tmp_path, requires, found):
    lines = [f"Requires-Dist: {text}" for text in requires]
    (tmp_path / "PKG-INFO").write_text("\n".join(["Metadata-Version: 2.1", "Name: pkg", "Version: 1.0", *lines]) + "\n")
    release = Release(
        name="pkg",
        version="1.0",
        root=tmp_path,
        kind="sdist",
        filename="pkg-1.0.tar.gz",
        sha256="0" * 64,
        verified="unverified",
        location="pkg-1.0.tar.gz",
    )
    assert _companions(release) == found


# the scores


def run_eval(*args, cwd):
    script = ROOT / "evaluation" / "eval_extract.py"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False, env=env)


def test_without_lists_it_says_where_they_are_expected(tmp_path):
    done = run_eval(cwd=tmp_path)
    assert done.returncode == 2
    assert "no lists in" in done.stderr
    assert "--gold DIR" in done.stderr


def test_scores_by_kind():
    sys.path.insert(0, str(ROOT / "evaluation"))
    try:
        from eval_extract import score
    finally:
        sys.path.pop(0)
    control = {"read_when": "import", "default": "64 (A_MAX) when unset", "scope": "process", "scoring": "required"}
    raw = {
        "library": "some",
        "version": "1",
        "controls": [
            {"name": "A_THREADS", "kind": "env", **control},
            {"name": "A_MISSING", "kind": "env", **control},
            {"name": "Pool(size=)", "kind": "param", **control, "scoring": "optional"},
        ],
        "not_controls": [{"name": "A_DEBUG", "why": "it prints"}],
        "not_control_patterns": ["A_TEST_.*"],
        "unreviewed_patterns": [{"pattern": "B_.*"}],
    }
    base = {"aliases": [], "kind": "env", "verdict": "control", "read_when": "import", "scope": "process"}
    items = [
        {**base, "name": "A_THREADS", "default": "64 (A_MAX)"},
        {**base, "name": "A_DEBUG", "default": "unset"},
        {**base, "name": "A_TEST_X", "default": "unset"},
        {**base, "name": "B_X", "default": "unset"},
        {**base, "name": "C_X", "default": "unset"},
        {**base, "name": "D_X", "default": "unset", "verdict": "not_control"},
        {**base, "name": "some.Pool(size=)", "kind": "param", "default": "4"},
        {**base, "name": "some.Pool(other=)", "kind": "param", "default": "4"},
    ]
    lines = {line.kind: line for line in score(raw, items)}
    env = lines["env"]
    assert (env.required, env.found_required, env.found, env.false, env.kept) == (2, 1, 1, 3, 2)
    assert (env.binding, env.default, env.scope) == ([1, 1], [1, 1], [1, 1])
    assert (env.missing, sorted(env.wrong)) == (["A_MISSING"], ["A_DEBUG", "A_TEST_X", "C_X"])
    assert (lines["param"].found, lines["param"].false) == (1, 0)
    assert env.held_out
    assert lines["all"].required == 2
