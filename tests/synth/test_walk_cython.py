"""What the Cython walker sees: the source written as Python, and what Cython has of its own."""

from pathlib import Path

import pytest

from synth.evidence import collect, verify
from synth.records import Kind, Observation, Release, Role, When
from synth.walk.cython import walk_cython
from synth.walk.cython_source import to_python
from synth.walk.python_scope import parse_python
from synth.walk.tree import walk_release


def release(root: Path, files: dict[str, str]) -> Release:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
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


def of(seen, kind: Kind) -> list[tuple[str, str | None]]:
    return [(o.name, o.value) for o in seen if o.kind is kind]


@pytest.mark.parametrize(
    ("cython", "python"),
    [
        ("cimport numpy as np", "import numpy as np"),
        ("from libc.math cimport sin", "from libc.math import sin"),
        ("cdef int n = 4", "n = 4"),
        ("cdef double *p = &x, q", "p = x"),
        ("cdef int n", "pass"),
        (
            "cpdef int f(int n=4, double[:, ::1] x not None, *, bint flag=True) except -1:",
            "def f(n=4, x, *, flag=True):",
        ),
        ("cdef inline void g(self, const char* name, **kwargs) noexcept nogil:", "def g(self, name, **kwargs):"),
        ("cdef (int, int) pair(int a):", "def pair(a):"),
        ("def h(np.ndarray[float, ndim=1] x, int n_threads=-1):", "def h(x, n_threads=-1):"),
        ("cdef class Tree(Base):", "class Tree(Base):"),
        ("DEF SIZE = 8", "SIZE = 8"),
        ("IF UNAME == 'x':", "if UNAME == 'x':"),
        ("x = <int> y + <double*>z", "x =  y + z"),
        ("p = new vector[int]()", "p = vector[int]()"),
        ("ctypedef int number", "pass"),
        ('include "helper.pxi"', "from .helper__pxi import *"),
        ("property size:", "class size:"),
    ],
)
def test_statements(cython, python):
    assert to_python(cython.encode()).decode().rstrip(" ") == python


def test_lines_are_kept():
    source = '''"""Doc
string."""
cdef extern from "omp.h":
    int omp_get_max_threads()
    void omp_set_num_threads(int n)

cdef:
    int a = 1
    double[:] x = f(
        1,
        2)

cpdef double work(
    double[:, ::1] data,  # the data
    int n_threads=1,
) noexcept nogil:
    cdef int i
    for i in prange(10, num_threads=n_threads):
        pass
'''
    out = to_python(source.encode())
    assert out.count(b"\n") == source.count("\n")
    lines = out.decode().split("\n")
    assert lines[12].strip() == "def work(data, n_threads=1):"
    assert lines[17].strip() == "for i in prange(10, num_threads=n_threads):"
    assert lines[7].strip() == "a = 1"
    assert not parse_python(out).root_node.has_error


def test_parallel_loops_and_openmp():
    seen = walk_cython(
        b"""
cdef int effective():
    return min(omp_get_max_threads(), openmp.omp_get_num_procs())

def run(int n_threads):
    # prange(10, num_threads=3)
    with nogil, parallel(num_threads=n_threads):
        for i in prange(10, schedule='static'):
            pass
    for j in prange(10, nogil=True):
        pass
    omp_set_num_threads(n_threads)
    getenv("A_NAME")

class K:
    def f(self):
        for i in prange(
            10,
            num_threads=self.n,
        ):
            pass
""",
        "m.pyx",
        Role.LIBRARY,
    )
    assert of(seen, Kind.POOL) == [
        ("cython.parallel.parallel", "n_threads"),
        ("omp_set_num_threads", "n_threads"),
        ("cython.parallel.prange", "self.n"),
    ]
    assert of(seen, Kind.CPU_PROBE) == [("omp_get_max_threads", None), ("omp_get_num_procs", None)]
    assert of(seen, Kind.ENV_READ) == [("A_NAME", None)]
    last = [o for o in seen if o.kind is Kind.POOL][-1]
    assert (last.function, last.when, last.line, last.end_line) == ("K.f", When.CALL, 17, 20)


def test_names_cross_includes_and_modules(tmp_path):
    made = release(
        tmp_path,
        {
            "pkg/__init__.py": "from pkg.lib import set_cpu_count, cpu_count, Reader\n",
            "pkg/lib.pyx": 'include "config.pxi"\ncdef class Reader:\n'
            "    def __init__(self, path, *, int num_threads=4):\n        pass\n",
            "pkg/config.pxi": "import os\ndef set_cpu_count(int count):\n    cset(count)\n\ndef cpu_count():\n"
            '    return int(os.environ.get("PKG_THREADS", 2))\n',
        },
    )
    walk = walk_release(made)
    seen = list(walk.observations)
    assert of(seen, Kind.API_SET) == [("pkg.set_cpu_count", None)]
    assert of(seen, Kind.API_GET) == [("pkg.cpu_count", None)]
    assert of(seen, Kind.PARAM) == [("pkg.Reader(num_threads=)", "4")]
    assert [(o.name, o.value, o.language) for o in seen if o.kind is Kind.ENV_READ] == [("PKG_THREADS", "2", "cython")]
    assert verify(collect(walk), tmp_path) == []


@pytest.mark.parametrize(
    "source",
    [
        b"cdef int f(((((((",
        b"cdef class",
        b'x = """never ended\n' + b"cdef int y\n" * 50,
        b"cdef:\n" + b"    int a = (\n" * 300,
        b"def f(" + b"int x, " * 20_000 + b"):\n    pass\n",
        b"\xff\xfe\0cdef int n = 4\n",
        b"{{py:\nfor x in y\n}}\ncdef int {{name}}_n = {{value}}\n",
    ],
)
def test_hostile_sources(source):
    out = to_python(source)
    assert out.count(b"\n") == source.count(b"\n")
    parse_python(out)
    walk_cython(source, "m.pyx", Role.LIBRARY)


def test_observations_are_of_one_language(tmp_path):
    made = release(tmp_path, {"a/__init__.py": "", "a/b.pyx": "import os\nX = os.environ.get('A_B_C')\n"})
    seen: list[Observation] = list(walk_release(made).observations)
    assert {(o.language, o.when) for o in seen if o.kind is Kind.ENV_READ} == {("cython", When.IMPORT)}
