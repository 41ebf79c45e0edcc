"""Releases made to hurt: bounds are asserted by counting calls and by the peak memory of a child, never by time."""

# ruff: noqa: E501 - tables of spans

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation import fuzz_walk
from synth.records import Kind
from synth.walk.environment import touches_environment
from synth.walk.tree import Limits, walk_release
from tests.synth.test_walk_release import make, release

READ = 'import os\nA = os.environ.get("A_NUM_THREADS", "3")\n'
ROOT = Path(__file__).resolve().parents[2]


def names(walk):
    return {o.name for o in walk.observations if o.kind is Kind.ENV_READ}


def peak_of(folder, expect):
    """Peak memory in MiB of a child that walks a folder, which must see some names."""
    code = (
        "import json, resource, sys\n"
        "from pathlib import Path\n"
        "from evaluation.fuzz_walk import walk\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "found = walk(Path(sys.argv[1]))\n"
        "names = sorted({o.name for o in found.observations if o.kind == 'env_read'})\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(json.dumps([names, (after - before) / 1024, [s.why for s in found.skipped][:5], len(found.skipped)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=ROOT, check=True, timeout=500
    )
    found, peak, why, skipped = json.loads(done.stdout)
    assert set(expect) <= set(found)
    return peak, why, skipped


def sparse(path, megabytes, head=b""):
    """A large file that takes no room on the disk; read, it is NUL bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(megabytes << 20)


def test_a_generated_file_of_200_mb_is_not_read(tmp_path):
    make(tmp_path, {"pkg/__init__.py": READ})
    for suffix in ("py", "c", "rs", "pyx", "md", "html", "yaml"):
        sparse(tmp_path / "pkg" / f"big.{suffix}", 200, READ.encode())
    peak, why, skipped = peak_of(tmp_path, ["A_NUM_THREADS"])
    assert peak < 60
    assert skipped >= 6
    assert any("larger than" in reason for reason in why)


def test_a_binary_of_200_mb_is_not_held(tmp_path):
    make(tmp_path, {"pkg/__init__.py": READ})
    sparse(tmp_path / "pkg" / "_ext.so", 200, b"\x7fELF" + b"\0" * 100)
    peak, _, _ = peak_of(tmp_path, ["A_NUM_THREADS"])
    assert peak < 150


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("m.py", b"x = {'a': [1, 2, (3, 4)], 'b': f(1)}; "),
        ("m.c", b"int f(void) { return g(1, 2); } "),
        ("m.rs", b"fn f() { g(1, 2); } "),
        ("m.pyx", b"x = f(1, [2, 3]); "),
        ("m.md", b"word `CODE_THREADS` and [a](b) "),
        ("m.html", b"<p>word <code>CODE_THREADS</code></p>"),
    ],
)
def test_one_line_of_a_megabyte(tmp_path, name, line):
    suffix = Path(name).suffix
    head = fuzz_walk.HEADS[suffix].replace(b"\n\n", b"\n")
    make(tmp_path, {"pkg/__init__.py": READ, f"pkg/{name}": head + line * (1_000_000 // len(line))})
    wanted = ["A_NUM_THREADS", *([fuzz_walk.CANARY] if head else [])]
    peak, _, _ = peak_of(tmp_path, wanted)
    assert peak < 1_200


def test_a_hundred_thousand_small_files(tmp_path):
    for number in range(100):
        folder = tmp_path / "pkg" / f"p{number}"
        folder.mkdir(parents=True)
        for small in range(1_000):
            (folder / f"m{small}.py").write_bytes(b"x = 1\n")
    (tmp_path / "pkg" / "a.py").write_text(READ)
    peak, _, _ = peak_of(tmp_path, ["A_NUM_THREADS"])
    assert peak < 1_500


def test_more_files_than_the_bound(tmp_path):
    make(tmp_path, {f"pkg/m{n:03}.py": READ for n in range(50)})
    walk = walk_release(release(tmp_path), limits=Limits(files=10))
    assert walk.files == 10
    assert sum("more than 10 files" in s.why for s in walk.skipped) == 40
    walk = walk_release(release(tmp_path), limits=Limits(total_bytes=200))
    assert walk.bytes <= 200


def test_links_are_not_followed(tmp_path):
    make(tmp_path, {"pkg/a.py": READ})
    (tmp_path / "pkg" / "loop").symlink_to("..")
    (tmp_path / "pkg" / "self.py").symlink_to("self.py")
    (tmp_path / "pkg" / "out.py").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pkg" / "pipe.py")
    walk = walk_release(release(tmp_path))
    assert names(walk) == {"A_NUM_THREADS"}
    assert sorted(s.why for s in walk.skipped) == [
        "not a regular file",
        "symbolic link",
        "symbolic link",
        "symbolic link",
    ]


def test_folders_nested_deeply(tmp_path):
    folder = tmp_path
    for _ in range(300):
        folder = folder / "d"
        folder.mkdir()
    (folder / "a.py").write_text(READ)
    assert names(walk_release(release(tmp_path))) == {"A_NUM_THREADS"}


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (b"\xef\xbb\xbf" + READ.encode(), True),
        (READ.encode().replace(b"\n", b"\r\n"), True),
        (READ.encode() + b"# caf\xe9\n", True),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n" + READ.encode(), True),
        (READ.encode() + b"\x0c\x1a\n", True),
        (READ.encode("utf-16"), False),
        (READ.encode() + b"\0" * 10, False),
        (READ.encode() + b"x = '" + b"a" * 9_000 + b"\0'\n", True),
        (READ.encode() + b"\xed\xa0\x80\xf4\x90\x80\x80\n", True),
    ],
)
def test_encodings(tmp_path, raw, seen):
    walk = walk_release(make(tmp_path, {"pkg/a.py": raw}))
    assert ("A_NUM_THREADS" in names(walk)) is seen
    assert seen or [s.why for s in walk.skipped] in (["UTF-16 text"], ["binary"])


SPANS = {
    ".py": [b"x = a.b(c, d=1)\n", b"def f(n_jobs=1):\n    return f(n_jobs=n_jobs)\n", b"(", b"[1, ", b"a.", b"if x:\n ", b"'", b"f'{", b"lambda: ", b"@a\n", b"os.environ.get('X' + ", b"x = x = ", b"class A(A):\n    y = 1\n"],
    ".c": [b'getenv("X");\n', b"int f(int n) { return f(n); }\n", b"(", b"{", b"#define A A\n", b"#if 1\n", b"f(", b"a->", b"/*", b"std::", b"template<"],
    ".cpp": [b"auto f = [&](int n) { return n; };\n", b"a<", b"namespace a {"],
    ".rs": [b'fn f() { std::env::var("X"); }\n', b"(", b"{", b"macro_rules! m { () => {} }\n", b"a::", b"|x| ", b"#[a]\n", b"/*"],
    ".pyx": [b"cdef int f(int n) nogil:\n    return n\n", b"with nogil:\n ", b"prange(", b"cdef "],
    ".md": [b"- a\n", b"> ", b"[", b"`", b"|a|b|\n", b"#", b"**"],
    ".rst": [b".. envvar:: A_THREADS\n\n   x\n\n", b"* a\n", b"=\n", b"``A_B`` ", b"   "],
    ".html": [b"<p>A_THREADS</p>", b"<div>", b"<a ", b"<!--", b"</p>", b"<dl><dt>", b"&lt;"],
    ".yaml": [b"a:\n", b"  ", b"a: {", b"- "],
}  # fmt: skip


@pytest.mark.parametrize(("suffix", "span"), [(suffix, span) for suffix, spans in SPANS.items() for span in spans])
def test_work_grows_with_the_input(tmp_path, suffix, span):
    counts = []
    for times in (1, 2):
        folder = tmp_path / str(times)
        (folder / "pkg").mkdir(parents=True)
        body = fuzz_walk.HEADS[suffix] + span * (times * 12_000 // len(span))
        (folder / "pkg" / f"m{suffix}").write_bytes(body)
        counts.append(fuzz_walk.calls(lambda folder=folder: fuzz_walk.walk(folder)))
    assert counts[1] < 50_000 or counts[1] <= fuzz_walk.GROWTH * counts[0]


def test_damaged_real_files(tmp_path):
    report = fuzz_walk.run(fuzz_walk.own_files(), cases=25, seed=20, keep=tmp_path, grow_every=12)
    assert report.findings == {}
    assert report.cases == 25


def test_the_fuzzer_sees_trouble(tmp_path, monkeypatch):
    from synth.walk import tree

    real = tree.walk_python

    def broken(raw, path, role, *args, **kwargs):
        if path.endswith("m0.py"):
            raise ValueError("no")
        return [o for o in real(raw, path, role, *args, **kwargs) if not path.endswith("m1.py")]

    monkeypatch.setattr(tree, "walk_python", broken)
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text(READ)
    report = fuzz_walk.run(files, cases=6, seed=1, keep=tmp_path / "keep", grow_every=99)
    assert set(report.findings) == {".py: ValueError: no", ".py: the read before the damage is not seen"}


@pytest.mark.parametrize(
    ("source", "touches"),
    [
        (b'x = "#"; os.environ["A"]', True),
        (b'"""the environment"""\nx = 1  # environ', False),
        (b'f"""{os.environ}"""', True),
        (b"getattr(os, 'environ')", True),
        (b'x = """\n""" + os.getenv("A")', True),
        (b"'''it\\''s environ'''", False),
        (b'x = "unclosed\nos.environ', True),
    ],
)
def test_prose_about_the_environment_is_no_use_of_it(source, touches):
    assert touches_environment(source) is touches


@pytest.mark.parametrize("span", [b'"""', b"'''a", b'"\\', b"'\n", b"#\n", b'f"""', b"\\"])
def test_that_look_is_linear(span):
    calls = fuzz_walk.calls(lambda: touches_environment(b"environ" + span * 100_000))
    assert calls < 600_000
