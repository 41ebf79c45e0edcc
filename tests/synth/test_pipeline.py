"""Targets become entries on disk: whole or not at all, never over a person's work, one bad one among good ones."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from lpcl.check import check
from lpcl.corpus import Entry, load, load_entry, shipped
from synth import pipeline
from synth.evidence import read_jsonl, verify, write_jsonl
from synth.indexes import index_config
from synth.pipeline import Options, synthesise
from synth.records import SynthError

ROOT = Path(__file__).parents[2]
SOURCE = """\
import os

threads = int(os.environ.get("{prefix}_NUM_THREADS", "{default}"))


def set_num_threads(n):
    global threads
    threads = n
"""
ENTRY = ["METADATA.toml", "contract.lpcl", "evidence.jsonl"]
needs_no_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def source(name="pkg", default=4):
    return SOURCE.format(prefix=name.upper(), default=default)


def folder(base, name="pkg", *, default=4, files=None):
    root = base / f"{name}-src"
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1.0"\n')
    (root / name / "__init__.py").write_text(source(name, default))
    for path, content in (files or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def sdist(base, name="pkg", version="1.0", members=()):
    path = base / f"{name}-{version}.tar.gz"
    base.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for file, content in {
            "PKG-INFO": f"Name: {name}\nVersion: {version}\n",
            f"{name}/__init__.py": source(name),
        }.items():
            add(tar, tarfile.TarInfo(f"{name}-{version}/{file}"), content.encode())
        for member, content in members:
            add(tar, member, content)
    return path


def add(tar, member, content):
    member.size = len(content) if content is not None else 0
    tar.addfile(member, io.BytesIO(content) if content is not None else None)


def wheel(base, name="pkg", version="1.0"):
    base.mkdir(parents=True, exist_ok=True)
    path = base / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr(f"{name}/__init__.py", source(name))
        zipped.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        zipped.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        zipped.writestr(f"{name}-{version}.dist-info/RECORD", "")
    return path


def options(tmp_path, **more):
    links = more.pop("find_links", [])
    config = index_config(find_links=[str(x) for x in links], no_index=True)
    values = {"out": tmp_path / "out", "cache": tmp_path / "cache", "config": config} | more
    return Options(**values)


def one(target, opts):
    (result,) = synthesise([str(target)], opts)
    return result


def tree(root):
    """Everything below a folder: path -> bytes, None for a folder, the target of a link."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


def valid(entry):
    loaded = load_entry(entry)
    assert isinstance(loaded, Entry)
    assert [d.message for d in loaded.diagnostics] == []
    return loaded


# ------------------------------------------------------------------- whole path


def test_a_local_folder(tmp_path):
    root = folder(tmp_path)
    before = tree(root)
    result = one(root, options(tmp_path))
    assert result.error is None
    assert result.folder == tmp_path / "out/pkg"
    assert sorted(p.name for p in result.folder.iterdir()) == ENTRY
    entry = valid(result.folder)
    assert entry.contract == result.contract
    assert entry.contract.control("threads").env_names() == ("PKG_NUM_THREADS",)
    evidence = read_jsonl(result.folder / "evidence.jsonl")
    assert len(evidence) == result.evidence
    assert verify(evidence, root) == []
    assert entry.metadata["name"] == "pkg"
    assert entry.metadata["drafter"] == "rules"
    assert result.release.sha256 in entry.metadata["read"]
    assert tree(root) == before, "a folder that is read is not changed"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["pkg"]


def test_a_local_sdist(tmp_path):
    result = one(sdist(tmp_path / "dist"), options(tmp_path))
    assert result.error is None
    assert (result.release.kind, result.release.filename) == ("sdist", "pkg-1.0.tar.gz")
    entry = valid(result.folder)
    assert entry.contract.packages[0].versions == "==1.0"
    assert str(tmp_path) not in (result.folder / "METADATA.toml").read_text()


def test_a_release_that_is_a_wheel_only(tmp_path):
    wheel(tmp_path / "links", "wheely")
    result = one("wheely", options(tmp_path, find_links=[tmp_path / "links"]))
    assert result.error is None
    assert (result.release.kind, result.release.version) == ("wheel", "1.0")
    assert valid(result.folder).contract.control("threads").env_names() == ("WHEELY_NUM_THREADS",)


@pytest.mark.parametrize("prefer", ["sdist", "wheel"])
def test_what_is_preferred_is_read(tmp_path, prefer):
    wheel(tmp_path / "links")
    sdist(tmp_path / "links")
    result = one("pkg==1.0", options(tmp_path, find_links=[tmp_path / "links"], prefer=prefer))
    assert result.release.kind == prefer
    assert valid(result.folder).contract.controls


def test_the_cache_stands_in_for_the_index(tmp_path):
    sdist(tmp_path / "links")
    first = one("pkg", options(tmp_path, find_links=[tmp_path / "links"]))
    shutil.rmtree(tmp_path / "links")
    again = one("pkg==1.0", options(tmp_path, out=tmp_path / "again", offline=True))
    assert again.error is None
    assert tree(first.folder) == tree(again.folder)


def test_two_runs_write_the_same_bytes(tmp_path):
    root = folder(tmp_path)
    one(root, options(tmp_path))
    one(root, options(tmp_path, out=tmp_path / "again"))
    assert tree(tmp_path / "out") == tree(tmp_path / "again")
    one(root, options(tmp_path))  # over the first
    assert tree(tmp_path / "out") == tree(tmp_path / "again")


def test_nothing_to_state_writes_nothing(tmp_path):
    root = folder(tmp_path, files={"pkg/__init__.py": "def add(a, b):\n    return a + b\n"})
    result = one(root, options(tmp_path))
    assert (result.error, result.folder) == (None, None)
    assert result.nothing == "no control, pool or signal in 1 files"
    assert not (tmp_path / "out").exists()


def test_a_release_without_sources(tmp_path):
    root = tmp_path / "binary"
    root.mkdir()
    (root / "lib.so").write_bytes(b"\x7fELF\0\0")
    result = one(root, options(tmp_path))
    assert result.nothing == "the release holds no source that can be read"


def test_nothing_is_imported_or_built(tmp_path):
    trap = "import pathlib\npathlib.Path(__file__).with_name('RAN').touch()\n"
    root = folder(tmp_path, files={"setup.py": trap, "pkg/trap.py": trap, "conftest.py": trap})
    assert one(root, options(tmp_path)).error is None
    assert list(root.rglob("RAN")) == []
    assert list(root.rglob("*.pyc")) == []


def test_steps_are_told(tmp_path):
    steps = []
    root = folder(tmp_path)
    synthesise([str(root)], options(tmp_path), steps.append)
    assert {s.target for s in steps} == {str(root)}
    assert [t for n, t in enumerate(s.text for s in steps) if n == 0 or t != steps[n - 1].text] == [
        "fetch",
        "walk",
        "draft",
    ]


# ------------------------------------------------------------------ bad targets


def test_one_bad_target_among_good_ones(tmp_path):
    targets = [
        str(folder(tmp_path, "one")),
        str(tmp_path / "missing.tar.gz"),
        "no-such-project",
        "not a requirement",
        str(folder(tmp_path, "two")),
    ]
    results = synthesise(targets, options(tmp_path, find_links=[tmp_path]))
    assert [r.target for r in results] == targets
    assert [r.error is None for r in results] == [True, False, False, False, True]
    assert all(r.error.code == 2 for r in results[1:4])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["one", "two"]
    entries, findings = load([tmp_path / "out"])
    assert [e.contract.name for e in entries] == ["one", "two"]
    assert findings == ()


def broken_archives(base):
    whole = sdist(base).read_bytes()
    wheel_bytes = wheel(base / "w").read_bytes()
    return {
        "pkg-1.0.tar.gz": [b"", b"no archive", whole[: len(whole) // 2], whole[:-8], b"\0" * 512],
        "pkg-1.0-py3-none-any.whl": [b"", b"no archive", wheel_bytes[: len(wheel_bytes) // 2]],
        "pkg-1.0.zip": [b"PK\x03\x04"],
    }


BROKEN = (
    [("pkg-1.0.tar.gz", n) for n in range(5)]
    + [("pkg-1.0-py3-none-any.whl", n) for n in range(3)]
    + [("pkg-1.0.zip", 0)]
)


@pytest.mark.parametrize(("name", "number"), BROKEN)
def test_broken_archives_leave_no_entry(tmp_path, name, number):
    content = broken_archives(tmp_path / "good")[name][number]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / name).write_bytes(content)
    result = one(tmp_path / "bad" / name, options(tmp_path))
    assert isinstance(result.error, SynthError)
    assert result.error.code == 2
    assert result.folder is None
    assert not (tmp_path / "out").exists()


def test_a_broken_release_leaves_the_older_entry(tmp_path):
    one(sdist(tmp_path / "dist"), options(tmp_path))
    before = tree(tmp_path / "out")
    (tmp_path / "dist/pkg-1.0.tar.gz").write_bytes(b"no archive")
    assert one(tmp_path / "dist/pkg-1.0.tar.gz", options(tmp_path)).error is not None
    assert tree(tmp_path / "out") == before


# --------------------------------------------------------- whole or not at all


def older(tmp_path):
    """An entry of an older release, and the folder of the next one."""
    one(folder(tmp_path, default=4), options(tmp_path))
    return tree(tmp_path / "out"), folder(tmp_path, default=8)


FAULTS = [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("boom")]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("step", ["write_jsonl", "_metadata"])
@pytest.mark.parametrize("had", [True, False])
def test_a_fault_while_writing(tmp_path, monkeypatch, fault, step, had):
    before, root = older(tmp_path) if had else ({}, folder(tmp_path))

    def failing(*args):
        if step == "write_jsonl":
            write_jsonl(args[0], args[1][:1])  # a part of it is written
        raise fault

    monkeypatch.setattr(pipeline, step, failing)
    if isinstance(fault, OSError):
        try:
            result = one(root, options(tmp_path))
        except OSError:
            pass  # `test_an_unusable_output_folder` is about how this is told
        else:
            assert result.error is not None
    else:
        with pytest.raises(type(fault)):
            one(root, options(tmp_path))
    assert tree(tmp_path / "out") == before
    monkeypatch.undo()
    assert one(root, options(tmp_path)).error is None
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["pkg"]
    assert tree(tmp_path / "out") != before


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_while_the_entry_is_exchanged(tmp_path, monkeypatch, number):
    before, root = older(tmp_path)
    calls = []
    rename = Path.rename

    def interrupted(self, target):
        calls.append(self)
        if len(calls) == number:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one(root, options(tmp_path))
    assert tree(tmp_path / "out") == before


LIMITED = """\
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
from synth.cli import synth  # noqa
from syspilot.cli import main
sys.exit(main(sys.argv[1:]))
"""


def limited(tmp_path, root, limit):
    """Run the real command where no file may grow beyond a limit, as on a full disk."""
    command = [sys.executable, "-c", LIMITED.format(limit=limit), "synth", str(root)]
    command += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.mark.parametrize("limit", [0, 200, 700])
def test_a_full_disk_leaves_the_older_entry(tmp_path, limit):
    before, root = older(tmp_path)
    done = limited(tmp_path, root, limit)
    assert done.returncode != 0
    assert tree(tmp_path / "out") == before
    assert limited(tmp_path, root, 1 << 20).returncode == 0
    assert tree(tmp_path / "out") != before


def test_a_full_disk_is_told_in_one_line(tmp_path):
    done = limited(tmp_path, folder(tmp_path), 200)
    assert done.returncode in {2, 3}
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("syspilot: error: ")


def unusable(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    return {
        "below a file": tmp_path / "file/out",
        "a file": tmp_path / "file",
        "a loop": tmp_path / "loop",
        "proc": Path("/proc/x"),
    }


@pytest.mark.parametrize(
    "what",
    [
        "a file",
        *(pytest.param(w) for w in ("below a file", "a loop", "proc")),
    ],
)
def test_an_unusable_output_folder(tmp_path, what):
    opts = options(tmp_path, out=unusable(tmp_path)[what])
    try:
        error = one(folder(tmp_path), opts).error
    except SynthError as raised:
        error = raised
    assert isinstance(error, SynthError)
    assert error.code == 2


@needs_no_root
def test_an_output_folder_without_permission(tmp_path):
    before, root = older(tmp_path)
    (tmp_path / "out").chmod(0o500)
    try:
        assert one(root, options(tmp_path)).error is not None
    finally:
        (tmp_path / "out").chmod(0o700)
    assert tree(tmp_path / "out") == before


KILLED = """\
import os, sys
from pathlib import Path
from synth import pipeline
real = pipeline.write_jsonl
def write(path, evidence):
    real(path, evidence)
    os.kill(os.getpid(), 9)
pipeline.write_jsonl = write
from syspilot.cli import main
main(sys.argv[1:])
"""


def test_a_killed_run_does_not_harm_the_older_entry(tmp_path):
    before, root = older(tmp_path)
    command = [sys.executable, "-c", KILLED, "synth", str(root)]
    command += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, timeout=120, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    left = tree(tmp_path / "out")
    assert {k: v for k, v in left.items() if not k.startswith(".")} == before
    assert one(root, options(tmp_path)).error is None
    assert valid(tmp_path / "out/pkg").contract.control("threads").default.value == 8


def test_what_a_killed_run_left_is_no_entry(tmp_path):
    one(folder(tmp_path), options(tmp_path))
    shutil.copytree(tmp_path / "out/pkg", tmp_path / "out/.pkg.1.new")
    (tmp_path / "out/.pkg.1.new/METADATA.toml").unlink()
    entries, findings = load([tmp_path / "out"])
    assert [e.folder.name for e in entries] == ["pkg"]
    assert findings == ()


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("file"),
        pytest.param("link"),
        "empty folder",
    ],
)
def test_something_else_under_the_entry_s_name(tmp_path, what):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    match what:
        case "file":
            (out / "pkg").write_text("mine")
        case "link":
            (out / "pkg").symlink_to(elsewhere)
        case _:
            (out / "pkg").mkdir()
    result = one(folder(tmp_path), options(tmp_path))
    assert tree(elsewhere) == {"mine.txt": b"mine"}
    assert [p.name for p in out.iterdir()] == ["pkg"], "nothing but entries is left"
    if result.error is None:
        valid(out / "pkg")


# ------------------------------------------------------------- a person's work


def reviewed(tmp_path):
    """An entry of which a person vouches for one record."""
    one(folder(tmp_path), options(tmp_path))
    path = tmp_path / "out/pkg/evidence.jsonl"
    first, *rest = read_jsonl(path)
    write_jsonl(path, [first.model_copy(update={"vouched": "person"}), *rest])
    return path, folder(tmp_path, default=8)


def test_a_reviewed_entry_is_refused(tmp_path):
    _, root = reviewed(tmp_path)
    before = tree(tmp_path / "out")
    results = synthesise([str(root), str(folder(tmp_path, "other"))], options(tmp_path))
    assert results[0].error.code == 2
    assert "was reviewed by a person" in str(results[0].error)
    assert "--force" in results[0].error.help
    assert results[1].error is None
    assert {k: v for k, v in tree(tmp_path / "out").items() if not k.startswith("other")} == before


def test_a_reviewed_entry_is_replaced_by_force(tmp_path):
    path, root = reviewed(tmp_path)
    assert one(root, options(tmp_path, force=True)).error is None
    assert {e.vouched for e in read_jsonl(path)} == {"rule"}


@pytest.mark.parametrize("damage", ["newer", "cut"])
def test_a_reviewed_entry_that_cannot_be_read_is_refused(tmp_path, damage):
    path, root = reviewed(tmp_path)
    lines = path.read_text().splitlines()
    if damage == "newer":
        lines = [json.dumps(json.loads(line) | {"schema_version": 99}) for line in lines]
    else:
        lines[-1] = lines[-1][:40]
    path.write_text("\n".join(lines) + "\n")
    before = tree(tmp_path / "out")
    assert one(root, options(tmp_path)).error is not None
    assert tree(tmp_path / "out") == before


def test_a_person_s_files_in_an_entry_survive(tmp_path):
    one(folder(tmp_path), options(tmp_path))
    (tmp_path / "out/pkg/allow.toml").write_text("[[allow]]\n")
    one(folder(tmp_path, default=8), options(tmp_path))
    assert (tmp_path / "out/pkg/allow.toml").exists()


def test_the_shipped_corpus_is_refused(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus"
    shutil.copytree(shipped(), corpus)
    monkeypatch.setattr(pipeline, "shipped", lambda: corpus)
    (tmp_path / "link").symlink_to(corpus)
    before = tree(corpus)
    for out in (corpus, corpus / "../corpus", tmp_path / "link"):
        with pytest.raises(SynthError, match="is the shipped corpus") as caught:
            one(folder(tmp_path), options(tmp_path, out=out))
        assert caught.value.code == 2
        assert "--force" in caught.value.help
    assert tree(corpus) == before
    assert one(folder(tmp_path), options(tmp_path, out=corpus, force=True)).error is None
    assert (corpus / "pkg/contract.lpcl").is_file()


def test_the_shipped_corpus_is_the_real_one(tmp_path):
    # beside the stand-in above: refused before anything is read
    before = tree(shipped())
    with pytest.raises(SynthError, match="is the shipped corpus"):
        one(folder(tmp_path), options(tmp_path, out=shipped()))
    assert tree(shipped()) == before


# ------------------------------------------------------------------- odd names


def test_a_folder_with_an_odd_name(tmp_path):
    root = folder(tmp_path).rename(tmp_path / 'a "b" \\ $(c) é\n\t')
    result = one(f"{root}/.", options(tmp_path))
    assert result.error is None
    valid(result.folder)


def test_a_folder_with_a_delete_in_its_name(tmp_path):
    root = folder(tmp_path).rename(tmp_path / "a\x7fb")
    result = one(root, options(tmp_path))
    tomllib.loads((result.folder / "METADATA.toml").read_text())


@pytest.mark.parametrize("where", ["folder", "file"])
def test_names_that_are_not_utf_8(tmp_path, where):
    root = folder(tmp_path)
    if where == "folder":
        root = root.rename(tmp_path / os.fsdecode(b"a\xffb"))
    else:
        (root / os.fsdecode(b"pkg/b\xffd.py")).write_text(source("other"))
    result = one(root, options(tmp_path))
    assert result.error is None
    valid(result.folder)


def test_a_refused_control_leaves_the_pool(tmp_path):
    code = """\
import os
from concurrent.futures import ThreadPoolExecutor
num_threads = int(os.environ.get("UV_NUM_THREADS", "4"))
def run():
    return ThreadPoolExecutor(num_threads)
"""
    result = one(folder(tmp_path, "uv", files={"uv/__init__.py": code}), options(tmp_path))
    assert [d.resource.name for d in result.contract.demands] == ["cpu.threads"]
    assert not [d for d in check_file(result) if d.severity == "error"]


def check_file(result):
    return check(pipeline.m.File(pipeline.m.LANGUAGE_VERSION, (result.contract,)))
