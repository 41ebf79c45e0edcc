"""The wheel: what is in it, and that it works where no checkout is near."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRY = ("METADATA.toml", "contract.lpcl", "evidence.jsonl")


def files(folder):
    """Paths of the files below a folder of the checkout, as far as a wheel should hold them."""
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {p.as_posix() for p in found if "__pycache__" not in p.parts and p.suffix != ".pyc"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as a release is, by the build backend of this environment."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as zipped:
        assert zipped.testzip() is None
        return zipped.namelist()


def test_top_level_names(wheel, names):
    dist_info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    assert dist_info.startswith("syspilot_lpc-")
    assert {n.split("/")[0] for n in names} == {"lpcl", "synth", "syspilot", dist_info}
    assert wheel.name.endswith("-py3-none-any.whl")


def test_nothing_stands_twice(names):
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", ["lpcl", "synth", "syspilot"])
def test_packages_are_whole(names, package):
    inside = {n.removeprefix(f"{package}/") for n in names if n.startswith(f"{package}/")}
    inside = {n for n in inside if not n.startswith(("_corpus/", "_prompts/"))}
    assert inside == files(ROOT / package)


def test_what_is_not_code(names):
    assert {"lpcl/grammar.lark", "syspilot/templates/report.html.j2", "syspilot/inject/sitecustomize.py"} <= set(names)


def test_the_corpus_is_inside(names):
    inside = {n.removeprefix("lpcl/_corpus/") for n in names if n.startswith("lpcl/_corpus/")}
    assert inside == files(ROOT / "corpus")
    assert {f"{library}/{name}" for library in ("openblas", "libgomp") for name in ENTRY} <= inside


def test_the_prompts_are_inside(names):
    inside = {n.removeprefix("synth/_prompts/") for n in names if n.startswith("synth/_prompts/")}
    assert inside == files(ROOT / "prompts")


def test_nothing_else_is_inside(names):
    parts = {part for n in names for part in n.split("/")}
    assert parts.isdisjoint(
        {"tests", "evaluation", "examples", "docs", "__pycache__", "out", ".venv", "corpus", "prompts"}
    )
    assert [n for n in names if n.endswith((".pyc", ".pyo", ".orig", ".rej", "~"))] == []


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as zipped:
        (name,) = [n for n in zipped.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(zipped.read(name).decode())
        entry_points = zipped.read(name.replace("METADATA", "entry_points.txt")).decode()
        licences = [n for n in zipped.namelist() if n.endswith("/LICENSE")]
    assert metadata["Name"] == "syspilot-lpc"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert len(licences) == 1
    assert "lpcl = lpcl.cli:main" in entry_points
    assert "syspilot = syspilot.cli:main" in entry_points


def test_building_leaves_the_checkout_alone(wheel):
    assert not (ROOT / "dist").exists() or wheel.name not in {p.name for p in (ROOT / "dist").iterdir()}
    assert not (ROOT / "lpcl/_corpus").exists()
    assert not (ROOT / "synth/_prompts").exists()


# ---------------------------------------------------------------- installed


class Installed:
    """A fresh environment with the wheel and what it needs."""

    def __init__(self, base, wheel):
        self.home = base / "env"
        self.away = base / "away"
        self.away.mkdir()
        venv.create(self.home, with_pip=True)
        self.bin = self.home / "bin"
        done = self.run(
            "python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", wheel
        )
        assert done.returncode == 0, done.stderr

    def run(self, *command, **env):
        clean = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}}
        # tests must not depend on the state of the user's folders
        clean |= {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.home / "cache")}
        program, *args = map(str, command)
        return subprocess.run(
            [self.bin / program, *args],
            cwd=self.away,
            env=clean | env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def python(self, code):
        done = self.run("python", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    base = tmp_path_factory.mktemp("installed")
    yield Installed(base, wheel)
    shutil.rmtree(base / "env", ignore_errors=True)


index = pytest.mark.index  # its dependencies come from the configured package index


@index
def test_it_is_not_the_checkout(installed):
    out = installed.python(
        "import lpcl, synth, syspilot, sys\n"
        "print(*(m.__file__ for m in (lpcl, synth, syspilot)), sep='\\n')\n"
        f"assert {str(ROOT)!r} not in sys.path"
    )
    assert all(line.startswith(str(installed.home)) for line in out.splitlines())


@index
def test_dependencies_are_complete(installed):
    done = installed.run("python", "-m", "pip", "check", "--disable-pip-version-check")
    assert done.returncode == 0, done.stdout
    # every module can be imported with what the wheel asks for, development tools aside
    installed.python(
        "import importlib, pkgutil\n"
        "for package in ('lpcl', 'synth', 'syspilot'):\n"
        "    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + '.'):\n"
        "        if found.name != 'lpcl.lsp':\n"  # needs the extra `lsp`
        "            importlib.import_module(found.name)\n"
    )
    done = installed.run("lpcl", "lsp")
    assert done.returncode == 2
    assert "pip install 'syspilot-lpc[lsp]'" in done.stderr


@index
def test_the_shipped_corpus_as_installed(installed):
    corpus = Path(installed.python("from lpcl.corpus import shipped; print(shipped())").strip())
    assert corpus.is_relative_to(installed.home)
    assert files(corpus) == files(ROOT / "corpus")
    done = installed.run("lpcl", "check", corpus)
    count = len(list(corpus.glob("*/contract.lpcl")))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{count} contracts: 0 errors, 0 warnings\n"
    assert installed.run("lpcl", "fmt", "--check", corpus).returncode == 0


@index
def test_show(installed):
    done = installed.run("lpcl", "show", "openblas")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (ROOT / "corpus/openblas/contract.lpcl").read_text()
    unknown = installed.run("lpcl", "show", "no-such")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "openblas" in unknown.stderr


@index
def test_folders_of_the_same_name_do_not_hide_it(installed):
    # what lies in the working folder is neither imported nor taken for the shipped corpus
    for name in ("corpus", "prompts", "lpcl", "synth", "syspilot"):
        (installed.away / name).mkdir()
    (installed.away / "lpcl/__init__.py").write_text("raise SystemExit('hidden')\n")
    try:
        done = installed.run("lpcl", "show", "openblas")
        assert done.returncode == 0, done.stderr
        assert installed.run("syspilot", "--version").returncode == 0
    finally:
        for name in ("corpus", "prompts", "lpcl", "synth", "syspilot"):
            shutil.rmtree(installed.away / name)


@index
def test_version(installed, wheel):
    version = wheel.name.split("-")[1]
    for program in ("syspilot", "lpcl"):
        done = installed.run(program, "--version")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{program} {version}\n", "")


@index
def test_doctor(installed):
    done = installed.run("syspilot", "doctor", "--no-intervene", "--json", "--", "python", "-c", "print(1)")
    assert done.returncode == 0, done.stderr
    decision = json.loads(done.stdout)
    assert decision["mode"] == "doctor"
    assert decision["command"] == ["python", "-c", "print(1)"]
    (report,) = installed.away.glob(".syspilot/*/doctor.html")
    assert "</html>" in report.read_text()
    assert sorted(p.name for p in installed.away.iterdir()) == [".syspilot"]


@index
def test_synth(installed):
    package = installed.away / "pkg-src/pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('import os\nn = int(os.environ.get("PKG_NUM_THREADS", "4"))\n')
    try:
        done = installed.run("syspilot", "synth", "./pkg-src", "--out", "contracts")
        assert (done.returncode, done.stderr) == (0, "")
        checked = installed.run("lpcl", "check", "contracts")
        assert (checked.returncode, checked.stdout) == (0, "1 contract: 0 errors, 0 warnings\n")
        shipped = installed.python("from lpcl.corpus import shipped; print(shipped())").strip()
        refused = installed.run("syspilot", "synth", "./pkg-src", "--out", shipped)
        assert refused.returncode == 2
        assert "is the shipped corpus" in refused.stderr
    finally:
        shutil.rmtree(installed.away / "pkg-src")
        shutil.rmtree(installed.away / "contracts", ignore_errors=True)
