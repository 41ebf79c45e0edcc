"""What native libraries say: real ones, made by the C compiler of this machine, and damaged ones."""

import shutil
import subprocess

import pytest

from synth.evidence import collect, verify
from synth.records import Kind, Release, Role, When
from synth.walk.native import holds_text, is_binary, pieces, read_binary, walk_binary
from synth.walk.tree import walk_release

SOURCE = r"""
#include <stdlib.h>
#include <pthread.h>
static void *work(void *x) { return x; }
const char *keys[] = {"engine.num_threads", "engine.mode", "engine.cache_size", "other.cpu_count"};
int demo_set_num_threads(int n) { return n; }
int demo_get_num_threads(void) {
    pthread_t t;
    const char *s = getenv("DEMO_NUM_THREADS");
    if (!s) s = getenv("DEMO_SPIN_COUNT");
    if (!s) s = "ERROR_INVALID_THREADS MAX_THREADS DEMO_TITLE";
    return pthread_create(&t, 0, work, (void *)s) + (int)(long)keys;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("native")
    (folder / "demo.c").write_text(SOURCE)
    made = folder / "demo.so"
    command = [compiler, "-shared", "-fPIC", "-O0", "-o", str(made), str(folder / "demo.c"), "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    return made


def test_a_library(library):
    seen, why = walk_binary(library, "pkg/demo.so", Role.LIBRARY)
    assert why == ""
    assert {o.name for o in seen if o.kind is Kind.ENV_READ} == {"DEMO_NUM_THREADS", "DEMO_SPIN_COUNT"}
    assert {o.name for o in seen if o.kind is Kind.OPTION} == {"engine.num_threads", "engine.cache_size"}
    assert {o.name for o in seen if o.kind is Kind.API_SET} == {"demo_set_num_threads"}
    assert {o.name for o in seen if o.kind is Kind.API_GET} == {"demo_get_num_threads"}
    assert {o.name for o in seen if o.kind is Kind.POOL} == {"pthread_create"}
    assert all(o.method == "text" and o.detail.startswith("weak:") and o.language == "binary" for o in seen)


def test_a_runtime_of_its_own_file_looks_when_it_is_loaded(library):
    seen, _ = walk_binary(library, "pkg.libs/demo.so", Role.VENDORED)
    assert {o.when for o in seen if o.kind is Kind.ENV_READ} == {When.START}


def test_a_release(library, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text('"""Set DEMO_NUM_THREADS, or `engine.mode`."""\n')
    shutil.copy(library, tmp_path / "pkg/_demo.so")
    release = Release(
        name="pkg",
        version="1",
        root=tmp_path,
        kind="folder",
        filename="pkg",
        sha256="0" * 64,
        verified="unverified",
        location="pkg",
    )
    walk = walk_release(release)
    details = {o.name: o.detail for o in walk.observations if o.kind is Kind.ENV_READ}
    assert details["DEMO_NUM_THREADS"].endswith("the sources name it too")
    assert not details["DEMO_SPIN_COUNT"].endswith("the sources name it too")
    assert verify(collect(walk), tmp_path) == []
    (tmp_path / "pkg/_demo.so").write_bytes(b"\x7fELF")
    assert len(verify(collect(walk), tmp_path)) == len([o for o in walk.observations if o.language == "binary"])


@pytest.mark.parametrize("cut", [0, 4, 40, 200, 3000, 9000])
def test_damaged_libraries(library, tmp_path, cut):
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(library.read_bytes()[:cut])
    seen, why = walk_binary(damaged, "damaged.so", Role.LIBRARY)
    assert why or cut > 1000 or not seen


def test_hostile_headers(library, tmp_path):
    raw = bytearray(library.read_bytes())
    for start in range(16, 64, 4):
        broken = bytearray(raw)
        broken[start : start + 4] = b"\xff\xff\xff\xff"
        path = tmp_path / f"h{start}.so"
        path.write_bytes(broken)
        walk_binary(path, path.name, Role.LIBRARY)


def test_other_formats_are_searched_for_names_only(tmp_path):
    path = tmp_path / "demo.dll"
    path.write_bytes(b"MZ" + bytes(100) + b"DEMO_NUM_THREADS\0")
    assert read_binary(path).names == {"DEMO_NUM_THREADS": 102}
    assert walk_binary(path, "demo.dll", Role.LIBRARY)[0] == []  # nothing says that it reads variables


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A_NUM_THREADSB_POOL_SIZE", ["A_NUM_THREADS", "B_POOL_SIZE"]),
        ("GOMP_SPINCOUNT", ["GOMP_SPINCOUNT"]),
        ("A_THREADS_LIMIT", ["A_THREADS_LIMIT"]),
        ("A_MIN_STACKB_WORKER_THREADS", ["A_MIN_STACK", "B_WORKER_THREADS"]),
    ],
)
def test_texts_that_run_into_each_other(text, names):
    assert pieces(text) == names


def test_names_of_files():
    assert [is_binary(n) for n in ("a.so", "a.abi3.so", "a.so.1.2", "a.pyd", "a.dylib", "a.sofa", "so")] == [
        True,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_holds_text_stays_inside(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out.so").write_bytes(b"SECRET")
    (tmp_path / "in/link.so").symlink_to(tmp_path / "out.so")
    assert not holds_text(tmp_path / "in", "../out.so", "SECRET")
    assert not holds_text(tmp_path / "in", "link.so", "SECRET")
