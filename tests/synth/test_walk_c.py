"""What the C and C++ walker sees."""

import pytest

from synth.records import Kind, Observation, Role, When
from synth.walk.c_family import CIndex, walk_c


def walk(source: str, file: str = "src/m.cpp", **others: str) -> list[Observation]:
    files = {file: source.encode(), **{f"src/{name}.cpp": text.encode() for name, text in others.items()}}
    return walk_c(files[file], file, Role.LIBRARY, index=CIndex.build(files))


def reads(seen: list[Observation]) -> dict[str, Observation]:
    return {o.name: o for o in seen if o.kind is Kind.ENV_READ}


def of(seen: list[Observation], kind: Kind) -> list[tuple[str, str | None]]:
    return [(o.name, o.value) for o in seen if o.kind is kind]


@pytest.mark.parametrize(
    ("code", "default", "kind"),
    [
        ('int f(void) { return atoi(getenv("A")); }', None, "int"),
        ('int f(void) { char *s = getenv("A"); return s ? atoi(s) : 4; }', "4", "int"),
        (
            'int f(void) { const char *s = secure_getenv("A"); if (s) return strtol(s, 0, 10); else return 8; }',
            "8",
            "int",
        ),
        ('int n = DEF; void f(void) { char *s = getenv("A"); if (s != NULL) { n = strtol(s, 0, 10); } }', "DEF", "int"),
        ('void f(void) { int n = 2; char *s = getenv("A"); if (s) n = atoi(s); }', "2", "int"),
        ('bool f() { auto s = std::getenv("A"); return s && strcmp(s, "1") == 0; }', None, "bool"),
        ('double f() { return std::stod(std::getenv("A")); }', None, "float"),
        ('#define VAR "A"\nchar *f(void) { return getenv(VAR); }', None, None),
        ('static const char kVar[] = "A";\nchar *f(void) { return getenv(kVar); }', None, None),
        ('char *f(void) { return getenv("" "A"); }', None, None),
    ],
)
def test_reads(code, default, kind):
    seen = reads(walk(code))["A"]
    assert (seen.value, seen.value_type) == (default, kind)


def test_wrappers_across_files():
    seen = reads(
        walk(
            """
            int a = EnvInt("A_THREADS", 4);
            int f() { return EnvInt("B_THREADS", 2) + GET_ENV("C_JOBS", 3) + (Flag("D_ON") ? 1 : 0); }
            auto g() { return GetEnv<int>("E_SIZE", 7); }
            """,
            other="""
            int EnvInt(const char *name, int default_value) {
                const char *v = getenv(name);
                return v ? atoi(v) : default_value;
            }
            bool Flag(const std::string& key) { std::string full = "X_" + key; return getenv(full.c_str()) != nullptr; }
            #define GET_ENV(name, fallback) (getenv(name) ? atoi(getenv(name)) : (fallback))
            template <typename T> T GetEnv(const char* key, T default_value) { getenv(key); return default_value; }
            """,
        )
    )
    assert {n: (o.value, o.value_type) for n, o in seen.items()} == {
        "A_THREADS": ("4", "int"),
        "B_THREADS": ("2", "int"),
        "C_JOBS": ("3", "int"),
        "X_D_ON": (None, "bool"),
        "E_SIZE": ("7", "int"),
    }
    assert seen["A_THREADS"].when is When.IMPORT


def test_chain():
    seen = reads(walk('char *f() { char *s = getenv("A"); if (!s) s = getenv("B"); return s; }'))
    assert seen["A"].chain == seen["B"].chain != ""
    assert (seen["A"].order, seen["B"].order) == (0, 1)


def test_when():
    seen = reads(
        walk(
            """
            static int at_load = atoi(getenv("AT_LOAD"));
            static int helper(void) { return atoi(getenv("IN_INIT")); }
            PyMODINIT_FUNC PyInit_ext(void) { helper(); return 0; }
            static PyObject *set(PyObject *self, PyObject *args) { getenv("IN_METHOD"); return 0; }
            static PyMethodDef methods[] = {{"set_it", set, METH_VARARGS, ""}, {NULL, NULL, 0, NULL}};
            int once() { static int n = atoi(getenv("IN_STATIC")); return n; }
            int other() { return atoi(getenv("SOMEWHERE")); }
            """
        )
    )
    assert {n: o.when.value for n, o in seen.items()} == {
        "AT_LOAD": "import",
        "IN_INIT": "import",
        "IN_METHOD": "call",
        "IN_STATIC": "first_use",
        "SOMEWHERE": "unknown",
    }


def test_writes():
    seen = walk('void f() { setenv("A", "1", 0); setenv("B", "2", 1); putenv("C=3"); unsetenv("D"); }')
    writes = [(o.name, o.value, o.unless_set) for o in seen if o.kind is Kind.ENV_WRITE]
    assert writes == [("A", '"1"', True), ("B", '"2"', False), ("C", "3", False), ("D", None, False)]


def test_pools():
    seen = walk(
        """
        void f(int n) {
            for (int i = 0; i < n; i++) { pthread_create(&t[i], NULL, worker, NULL); }
            std::vector<std::thread> ts;
            for (int i = 0; i < n - 1; ++i) ts.emplace_back(run);
            #pragma omp parallel for num_threads(n)
            for (int i = 0; i < 10; i++) {}
            tbb::task_arena arena(n);
            tbb::global_control c(tbb::global_control::max_allowed_parallelism, n);
            ThreadPool pool(n);
            omp_set_num_threads(n);
        }
        void g() {
            #pragma omp parallel
            {}
            std::thread t(run);
        }
        """
    )
    assert of(seen, Kind.POOL) == [
        ("pthread_create", "n"),
        ("std::thread", "n - 1"),
        ("omp parallel", "n"),
        ("tbb::task_arena", "n"),
        ("tbb::global_control", "n"),
        ("ThreadPool", "n"),
        ("omp_set_num_threads", "n"),
        ("omp parallel", None),
        ("std::thread", "1"),
    ]


def test_probes_idle_and_fork():
    seen = walk(
        """
        void f() {
            long a = sysconf(_SC_NPROCESSORS_ONLN);
            sched_getaffinity(0, sizeof(m), &m);
            int b = omp_get_max_threads();
            int c = std::thread::hardware_concurrency();
            while (!done) { pthread_cond_wait(&cv, &m); }
            cond_.wait(lock);
            while (x) { sched_yield(); }
            while (y) { nanosleep(&ts, NULL); }
            while (z) { _mm_pause(); }
            while (!flag.load()) {}
            pthread_atfork(NULL, NULL, child);
            if (pid != getpid()) { restart(); }
        }
        """
    )
    assert [n for n, _ in of(seen, Kind.CPU_PROBE)] == [
        "sysconf(_SC_NPROCESSORS_ONLN)",
        "sched_getaffinity",
        "omp_get_max_threads",
        "std::thread::hardware_concurrency",
    ]
    assert [v for _, v in of(seen, Kind.IDLE)] == ["block", "block", "yield", "yield", "spin", "spin"]
    assert [n for n, _ in of(seen, Kind.FORK)] == ["pthread_atfork", "getpid"]


def test_method_tables_and_constants():
    seen = walk(
        """
        #define MAX_THREADS 64
        static const int kMaxWorkers = 8;
        #define VERSION 3
        static PyMethodDef m[] = {
            {"_set_num_threads", (PyCFunction)(void(*)(void)) Py_set, METH_VARARGS, "x"},
            {"get_num_threads", Py_get, METH_NOARGS, "x"},
            {"evaluate", Py_eval, METH_VARARGS, "x"},
        };
        static struct PyModuleDef def = { PyModuleDef_HEAD_INIT, "ext", NULL, -1, m };
        void bind(py::module_& m) { m.def("set_parallelism", &set_parallelism); }
        """,
        file="pkg/m.cpp",
    )
    assert of(seen, Kind.API_SET) == [("pkg.ext._set_num_threads", None), ("pkg.ext.set_parallelism", None)]
    assert of(seen, Kind.API_GET) == [("pkg.ext.get_num_threads", None)]
    assert of(seen, Kind.CONSTANT) == [("MAX_THREADS", "64"), ("kMaxWorkers", "8")]


@pytest.mark.parametrize(
    "source",
    [
        b'void f() { getenv("A"); ((((((',
        b'\xef\xbb\xbfvoid f() { getenv("A"); }',
        b'void f() { getenv("A"); } // \xff\xfe \0',
        b'void f() { getenv("A"); }\nint x = ' + b"(" * 3000 + b"1" + b")" * 3000 + b";",
        b'void f() { getenv("A"); }\n' + b"namespace a { " * 500 + b"}" * 500,
        b'#if 0\n#else\nvoid f() { getenv("A"); }\n',
    ],
)
def test_hostile_sources(source):
    assert "A" in reads(walk_c(source, "m.cc", Role.LIBRARY))
