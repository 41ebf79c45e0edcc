"""Walking whole releases: odd files, roles, order, and two real ones."""

import os
from pathlib import Path

import pytest

from synth.evidence import collect, verify
from synth.records import Kind, Observation, Release, Role, Walk, When
from synth.walk import tree
from synth.walk.roles import role_of
from synth.walk.tree import Limits, walk_release


def release(root: Path) -> Release:
    return Release(
        name="pkg",
        version="1.0",
        root=root,
        kind="folder",
        filename="pkg",
        sha256="0" * 64,
        verified="unverified",
        location="pkg",
    )


def make(root: Path, files: dict[str, str | bytes]) -> Release:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return release(root)


READ = 'import os\nx = os.environ.get("{}")\n'


def test_languages_and_roles(tmp_path):
    walk = walk_release(
        make(
            tmp_path,
            {
                "pkg/__init__.py": READ.format("A_PY"),
                "pkg/ext.c": 'void f(void) { getenv("A_C"); }\n',
                "pkg/fast.pyx": "cdef int n = int(os.environ.get('A_PYX', 2))\n",
                "pkg/externals/x.py": READ.format("A_VENDORED"),
                "pkg/tests/test_x.py": READ.format("A_TEST"),
                "setup.py": READ.format("A_BUILD"),
                "benchmarks/b.py": READ.format("A_BENCH"),
                "examples/e.py": READ.format("A_EXAMPLE"),
                "docs/use.rst": "Set ``A_PY`` to something.\n",
                "docs/conf.py": READ.format("A_CONF"),
            },
        )
    )
    found = {o.name: (o.role, o.language, o.method) for o in walk.observations if o.kind is Kind.ENV_READ}
    assert found == {
        "A_PY": (Role.LIBRARY, "python", "syntax"),
        "A_C": (Role.LIBRARY, "c", "syntax"),
        "A_PYX": (Role.LIBRARY, "cython", "syntax"),
        "A_VENDORED": (Role.VENDORED, "python", "syntax"),
        "A_TEST": (Role.TEST, "python", "syntax"),
        "A_BUILD": (Role.BUILD, "python", "syntax"),
        "A_BENCH": (Role.BENCHMARK, "python", "syntax"),
        "A_EXAMPLE": (Role.EXAMPLE, "python", "syntax"),
        "A_CONF": (Role.DOC, "python", "syntax"),
    }
    assert [o.name for o in walk.observations if o.kind is Kind.DOC] == ["A_PY"]
    evidence = collect(walk)
    assert verify(evidence, tmp_path) == []
    assert evidence[0].seen.name == "A_PY"
    assert (walk.files, walk.skipped) == (10, ())


def test_odd_files_are_skipped_with_a_reason(tmp_path):
    made = make(
        tmp_path,
        {
            "pkg/__init__.py": READ.format("A"),
            "pkg/binary.py": b"\0\1\2",
            "pkg/wide.py": "x = 1".encode("utf-16"),
            "pkg/long.py": b"x = [" + b"1, " * 1_700_000 + b"]",
            "pkg/latin.py": b'# caf\xe9\nimport os\nx = os.environ["LATIN"]\n',
            "pkg/bom.py": b'\xef\xbb\xbfimport os\nx = os.environ["BOM"]\n',
            "pkg/broken.py": 'import os\nx = os.environ["BROKEN"]\ndef f(:\n',
            "pkg/deep.py": b"x = " + b"(" * 20_000 + b")" * 20_000,
        },
    )
    (tmp_path / "pkg/loop").symlink_to(tmp_path / "pkg", target_is_directory=True)
    (tmp_path / "pkg/link.py").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pkg/pipe.py")
    walk = walk_release(made)
    assert {o.name for o in walk.observations} == {"A", "LATIN", "BOM", "BROKEN"}
    assert {skip.file: skip.why for skip in walk.skipped} == {
        "pkg/binary.py": "binary",
        "pkg/wide.py": "UTF-16 text",
        "pkg/long.py": "larger than 4194304 bytes (5100006)",
        "pkg/loop": "symbolic link",
        "pkg/link.py": "symbolic link",
        "pkg/pipe.py": "not a regular file",
    }


def test_a_file_that_takes_too_long_is_searched_as_text(tmp_path):
    source = READ.format("A_LATE") + "y = " + "x=1+" * 200_000
    walk = walk_release(make(tmp_path, {"m.py": source}), limits=Limits(parse_seconds=0.02))
    assert [(o.name, o.method) for o in walk.observations] == [("A_LATE", "text")]
    assert "searched as text only" in walk.skipped[0].why


def test_a_failing_walker_loses_one_file_only(tmp_path, monkeypatch):
    made = make(tmp_path, {"a.py": READ.format("A"), "b.py": READ.format("B")})
    whole = tree.walk_python

    def failing(source, file, *args, **options):
        if file == "a.py":
            raise RecursionError("too deep")
        return whole(source, file, *args, **options)

    monkeypatch.setattr(tree, "walk_python", failing)
    walk = walk_release(made)
    assert [o.name for o in walk.observations] == ["B"]
    assert [(skip.file, skip.why) for skip in walk.skipped] == [("a.py", "the walker failed: RecursionError: too deep")]


def test_limits(tmp_path):
    made = make(tmp_path, {f"m{i}.py": READ.format(f"V_{i}") for i in range(5)})
    walk = walk_release(made, limits=Limits(files=3))
    assert {o.name for o in walk.observations} == {"V_0", "V_1", "V_2"}
    assert len(walk.skipped) == 2


def test_same_result_in_parallel(tmp_path, monkeypatch):
    made = make(tmp_path, {f"pkg/m{i}.py": READ.format(f"V_{i}") for i in range(40)})
    one = walk_release(made)
    monkeypatch.setattr(tree, "_PARALLEL_FROM", 0)
    two = walk_release(made, jobs=2)
    assert two.observations == one.observations
    assert len(one.observations) == 40


def test_progress(tmp_path):
    calls = []
    walk_release(make(tmp_path, {"a.py": READ.format("A")}), progress=lambda *call: calls.append(call))
    assert calls == [(0, 1, "a.py")]


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("pkg/core.py", Role.LIBRARY),
        ("src/pkg/tools/x.py", Role.LIBRARY),
        ("pkg/test/x.py", Role.TEST),
        ("pkg/conftest.py", Role.TEST),
        ("tests/x.c", Role.TEST),
        ("pkg/_vendor/x.py", Role.VENDORED),
        ("third_party/tbb/x.cpp", Role.VENDORED),
        ("third_party/tbb/test/x.cpp", Role.TEST),
        ("doc/x.rst", Role.DOC),
        ("README.md", Role.DOC),
        ("setup.py", Role.BUILD),
        ("build_tools/x.py", Role.BUILD),
        ("asv_benchmarks/x.py", Role.BENCHMARK),
    ],
)
def test_role_of(path, role):
    assert role_of(path) is role


def real(name: str, version: str, tmp_path: Path) -> Walk:
    from synth.fetch import fetch
    from synth.indexes import index_config
    from synth.targets import parse_target

    target = parse_target(f"{name}=={version}")
    got = fetch(target, config=index_config(), cache_dir=tmp_path / "cache", work_dir=tmp_path / "work")
    walk = walk_release(got)
    assert verify(collect(walk), got.root) == []
    return walk


def named(walk: Walk, kind: Kind, name: str) -> list[Observation]:
    return [
        o for o in walk.observations if o.kind is kind and o.name == name and o.role in (Role.LIBRARY, Role.VENDORED)
    ]


@pytest.mark.index
def test_a_release_with_a_native_pool(tmp_path):
    walk = real("numexpr", "2.14.2", tmp_path)
    most = named(walk, Kind.ENV_READ, "NUMEXPR_MAX_THREADS")
    assert {(o.language, o.when) for o in most} == {("cpp", When.IMPORT), ("python", When.IMPORT)}
    native = next(o for o in most if o.language == "cpp")
    assert (native.value, native.value_type) == ("DEFAULT_MAX_THREADS", "int")
    first = next(o for o in named(walk, Kind.ENV_READ, "NUMEXPR_NUM_THREADS") if o.when is When.IMPORT)
    second = next(o for o in named(walk, Kind.ENV_READ, "OMP_NUM_THREADS") if o.when is When.IMPORT)
    assert first.chain == second.chain != ""
    assert (first.order, second.order) == (0, 1)
    assert first.value == "n_cores"
    (pool,) = named(walk, Kind.POOL, "pthread_create")
    assert (pool.value, pool.target) == ("gs.nthreads", "threads")
    assert {o.value for o in named(walk, Kind.IDLE, "pthread_cond_wait")} == {"block"}
    assert named(walk, Kind.API_SET, "numexpr.set_num_threads")
    assert named(walk, Kind.API_GET, "numexpr.get_num_threads")
    assert named(walk, Kind.CPU_PROBE, "os.sysconf(SC_NPROCESSORS_ONLN)")
    assert named(walk, Kind.CONSTANT, "DEFAULT_MAX_THREADS")[0].value == "64"
    assert named(walk, Kind.PARAM, "numexpr.evaluate(optimization=)")


@pytest.mark.index
def test_a_release_that_sets_variables_for_its_children(tmp_path):
    walk = real("joblib", "1.6.0", tmp_path)
    (limit,) = [o for o in named(walk, Kind.ENV_READ, "LOKY_MAX_CPU_COUNT") if o.value_type]
    assert (limit.when, limit.value_type) == (When.CALL, "int")
    (switch,) = named(walk, Kind.ENV_READ, "JOBLIB_MULTIPROCESSING")
    assert (switch.when, switch.value, switch.value_type) == (When.IMPORT, "1", "int")
    for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA", "NUMEXPR"):
        (write,) = named(walk, Kind.ENV_WRITE, f"{name}_NUM_THREADS")
        assert (write.target, write.unless_set, write.value) == ("child", True, "max(cpu_count() // n_jobs, 1)")
        assert not named(walk, Kind.ENV_READ, f"{name}_NUM_THREADS")
    assert named(walk, Kind.ENV_WRITE, "VECLIB_MAXIMUM_THREADS")
    assert named(walk, Kind.PARAM, "joblib.Parallel(n_jobs=)")
    assert named(walk, Kind.API_SET, "joblib.parallel_config")
    assert named(walk, Kind.API_GET, "joblib.cpu_count")
