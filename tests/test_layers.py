"""Who may import whom: import-linter holds the rules, and these tests hold import-linter to them."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("lpcl", "synth", "syspilot")
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(root):
    """Run the linter on a tree; its exit code and output."""
    done = subprocess.run(
        [LINTER, "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path):
    """The packages and the rules, to be changed."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_all_rules_are_kept():
    code, out = lint(ROOT)
    assert code == 0, out
    assert "Contracts: 7 kept, 0 broken." in out


def test_a_copy_is_judged_by_itself(copy):
    code, out = lint(copy)
    assert code == 0, out
    (copy / "lpcl/units.py").unlink()
    assert lint(copy)[1] != out, "the copy is read, not the installed packages"


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("lpcl/units.py", "import synth.records", "lpcl imports neither of the others"),
        ("lpcl/cli.py", "def f():\n    from syspilot import records", "lpcl imports neither of the others"),
        ("lpcl/units.py", "import requests", "the language needs lark and pydantic only"),
        ("lpcl/units.py", "def f():\n    import rich", "the language needs lark and pydantic only"),
        ("synth/records.py", "from syspilot.records import Run", "synth does not import the tuner"),
        ("syspilot/records.py", "import synth.records", "only the command line joins the tuner and the synthesiser"),
        ("synth/draft.py", "import openai", "only synth.llm imports openai"),
        ("synth/draft.py", "import tree_sitter", "only synth.walk imports tree-sitter"),
        ("synth/draft.py", "import tree_sitter_cpp", "only synth.walk imports tree-sitter"),
        ("synth/fetch.py", "from bs4 import BeautifulSoup", "only the readers of documents import bs4"),
    ],
)
def test_a_forbidden_import_is_caught(copy, file, line, broken):
    path = copy / file
    path.write_text(f"{path.read_text()}\n{line}\n")
    code, out = lint(copy)
    assert code == 1
    assert f"{broken} BROKEN" in out.replace("\n", " ")


def imports(package):
    """(file, top-level name) of every import below a package, at any depth of the code."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield path.relative_to(ROOT).as_posix(), alias.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are absolute"
                yield path.relative_to(ROOT).as_posix(), node.module.split(".")[0]


def test_the_language_needs_little():
    # the linter's rule is a list of what is forbidden; this is the list of what is allowed
    allowed = {*sys.stdlib_module_names, "lpcl", "lark", "pydantic", "packaging"}
    # The language server, with its protocol library, and the export of spaces are optional extras.
    extra = {"lpcl/lsp.py": {"pygls", "lsprotocol"}, "lpcl/configspace.py": {"ConfigSpace"}}
    assert [x for x in imports("lpcl") if x[1] not in allowed | extra.get(str(x[0]), set())] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_nobody_imports_tests_or_evaluation(package):
    assert [x for x in imports(package) if x[1] in {"tests", "evaluation", "examples", "pytest", "hypothesis"}] == []


def test_what_runs_inside_an_application_needs_nothing():
    # it is imported by interpreters that may have no package installed
    allowed = {*sys.stdlib_module_names, "syspilot"}
    found = [x for x in imports("syspilot/supervise") if x[1] not in allowed]
    found += [x for x in imports("syspilot/inject") if x[1] not in sys.stdlib_module_names]
    assert found == []
