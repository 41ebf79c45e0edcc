"""What the Python walker sees, form by form."""

import textwrap

import pytest

from synth.records import Kind, Observation, Role, When
from synth.walk.index import PackageIndex, module_name
from synth.walk.python import walk_python
from synth.walk.syntax import ParseTimeoutError, digest_of_lines


def walk(files: dict[str, str] | str, file: str = "pkg/mod.py", role: Role = Role.LIBRARY) -> list[Observation]:
    """Walk one file of a package made of `files`."""
    if isinstance(files, str):
        files = {file: files}
    sources = {name: textwrap.dedent(text).encode() for name, text in files.items()}
    sources.setdefault("pkg/__init__.py", b"")
    index = PackageIndex.build(sources)
    return walk_python(sources[file], file, role, index)


def reads(seen: list[Observation]) -> dict[str, Observation]:
    return {o.name: o for o in seen if o.kind is Kind.ENV_READ}


def of(seen: list[Observation], kind: Kind) -> list[Observation]:
    return [o for o in seen if o.kind is kind]


@pytest.mark.parametrize(
    "code",
    [
        'import os\nx = os.environ["A_THREADS"]\n',
        'import os\nx = os.environ.get("A_THREADS")\n',
        'import os\nx = os.getenv("A_THREADS")\n',
        'import os as o\nx = o.environ.get("A_THREADS")\n',
        'from os import environ\nx = environ["A_THREADS"]\n',
        'from os import getenv as g\nx = g("A_THREADS")\n',
        'import os\nenv = os.environ\nx = env.get("A_THREADS")\n',
        'import os\nget = os.environ.get\nx = get("A_THREADS")\n',
        'import os\nif "A_THREADS" in os.environ:\n    y = 1\n',
        'import os\nx = os.environ.pop("A_THREADS", None)\n',
        'import os\nx = os.environ.setdefault("A_THREADS", "1")\n',
        'import os\nNAME = "A_THREADS"\nx = os.environ.get(NAME)\n',
        'import os\nPREFIX = "A_"\nx = os.environ.get(PREFIX + "THREADS")\n',
        'import os\nx = os.environ.get("%s_THREADS" % "A")\n',
        'import os\nx = os.environ.get("{}_{}".format("A", "threads".upper()))\n',
        'import os\nP = "A"\nx = os.environ.get(f"{P}_THREADS")\n',
        'import os\ndef f(environ=os.environ):\n    return environ.get("A_THREADS")\n',
        'import os\nclass C:\n    NAME = "A_THREADS"\n    def f(self):\n        return os.environ[self.NAME]\n',
        'import os\nclass C:\n    env = os.environ\n    x = env["A_THREADS"]\n',
        """import os
class C:
    def __init__(self):
        self.env = os.environ
    def f(self):
        return self.env["A_THREADS"]
""",
    ],
)
def test_forms_of_a_read(code):
    assert list(reads(walk(code))) == ["A_THREADS"]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nx = os.environ.get(name)\n",
        'x = other.environ.get("A")\n',
        'd = {}\nx = d.get("A_THREADS")\n',
        'import os\nx = os.environ.get(f"{a}{b}")\n',
    ],
)
def test_what_is_no_read_of_a_known_variable(code):
    assert not reads(walk(code))


def test_names_of_tables_and_loops():
    seen = walk(
        """
        import os
        TABLE = {"A_ONE": 1, "A_TWO": 2}
        class C:
            VARS = ["B_ONE", "B_TWO"]
            def f(self):
                for v in self.VARS:
                    print(os.environ.get(v))
        for name in TABLE:
            print(os.environ.get(name))
        for v in ("C_ONE",):
            os.environ.get(v)
        x = [os.getenv(k) for k, _ in (("D_ONE", 1), ("D_TWO", 2))]
        """
    )
    assert set(reads(seen)) == {"A_ONE", "A_TWO", "B_ONE", "B_TWO", "C_ONE", "D_ONE", "D_TWO"}


def test_name_from_another_module():
    seen = walk(
        {
            "pkg/__init__.py": "from pkg.names import *\n",
            "pkg/names.py": 'VAR = "A_THREADS"\nclass Names:\n    OTHER = "A_OTHER"\n',
            "pkg/mod.py": """
                import os
                from . import names
                from .names import VAR, Names as N
                a = os.environ.get(VAR)
                b = os.environ.get(names.Names.OTHER)
                c = os.environ.get(N.OTHER + "_2")
            """,
        }
    )
    assert set(reads(seen)) == {"A_THREADS", "A_OTHER", "A_OTHER_2"}


def test_unknown_parts_make_a_family():
    seen = walk(
        """
        import os
        def f(kind):
            return os.environ.get(f"A_{kind}_THREADS"), os.environ.get("BB_" + kind)
        for name, value in os.environ.items():
            if name.startswith("C_"):
                print(value)
        """
    )
    assert set(reads(seen)) == {"A_*_THREADS", "BB_*", "C_*"}


@pytest.mark.parametrize(
    ("code", "default", "kind"),
    [
        ('x = int(os.environ.get("A", 10))', "10", "int"),
        ('x = float(os.environ.get("A", "0.5"))', '"0.5"', "float"),
        ('x = os.environ.get("A") or "d"', '"d"', None),
        ('x = os.environ.get("A", "1") == "1"', '"1"', "bool"),
        ('x = os.environ.get("A", "").lower() in ("1", "true", "yes")', '""', "bool"),
        ('x = os.environ.get("A", "a,b").split(",")', '"a,b"', "list"),
        ('try:\n    x = int(os.environ["A"])\nexcept KeyError:\n    x = 4', "4", "int"),
        ('if "A" in os.environ:\n    x = int(os.environ["A"])\nelse:\n    x = n()', "n()", "int"),
        ('x = 7\nif "A" in os.environ:\n    x = int(os.environ["A"])', "7", "int"),
        ('x = os.environ.get("A")\nif x is None:\n    x = 3', "3", None),
        ('x = int(os.environ["A"]) if "A" in os.environ else 5', "5", "int"),
        ('x = os.environ.get("A")\ny = int(x)', None, "int"),
        ('def f():\n    if "A" in os.environ:\n        return int(os.environ["A"])\n    return 8', "8", "int"),
        ('x: int = os.environ.get("A")', None, "int"),
        ('x = bool(int(os.getenv("A", "0")))', '"0"', "int"),
    ],
)
def test_defaults_and_types(code, default, kind):
    seen = reads(walk("import os\n" + code + "\n"))["A"]
    assert (seen.value, seen.value_type) == (default, kind)


@pytest.mark.parametrize(
    "code",
    [
        'x = os.environ.get("A", os.environ.get("B", 1))',
        'x = os.environ.get("A") or os.environ.get("B") or 1',
        'if "A" in os.environ:\n    x = os.environ["A"]\nelif "B" in os.environ:\n    x = os.environ["B"]',
        'x = os.environ.get("A")\nif x is None:\n    x = os.environ.get("B")',
        'try:\n    x = os.environ["A"]\nexcept KeyError:\n    x = os.environ["B"]',
        'def f():\n    if "A" in os.environ:\n        return os.environ["A"]\n    return os.environ.get("B")',
        'x = os.environ["A"] if "A" in os.environ else os.environ.get("B")',
        'def f():\n    for v in ("A", "B"):\n        if v in os.environ:\n            return os.environ[v]',
        'x = next((os.environ[v] for v in ("A", "B") if v in os.environ), None)',
        'x = os.environ.get("A")\nx = x or os.environ.get("B")',
    ],
)
def test_fallback_chains(code):
    seen = reads(walk("import os\n" + code + "\n"))
    assert seen["A"].chain
    assert seen["A"].chain == seen["B"].chain
    assert (seen["A"].order, seen["B"].order) == (0, 1)


@pytest.mark.parametrize(
    "code",
    [
        'x = os.environ.get("A")\ny = os.environ.get("B")',
        'if "A" in os.environ or "B" in os.environ:\n    x = 1',
        'for v in ("A", "B"):\n    print(os.environ.get(v))',
        'if linux:\n    x = os.environ["A"]\nelse:\n    x = os.environ["B"]',
    ],
)
def test_what_is_no_chain(code):
    seen = reads(walk("import os\n" + code + "\n"))
    assert [seen[name].chain for name in ("A", "B")] == ["", ""]


def test_a_test_and_the_use_that_it_guards_are_one_read():
    seen = walk('import os\nif "A" in os.environ and os.environ["A"] != "":\n    x = int(os.environ["A"])\n')
    assert [(o.line, o.value_type) for o in of(seen, Kind.ENV_READ)] == [(3, "int")]


def test_wrappers():
    seen = walk(
        {
            "pkg/env.py": """
                import os
                def env_int(name, default=1):
                    return int(os.environ.get("PKG_" + name.upper(), default))
                def read(name, convert, default):
                    value = os.environ.get(name)
                    return default if value is None else convert(value)
                def outer(name):
                    return env_int(name + "_threads", 3)
                class Var:
                    def __init__(self, name, default=None):
                        self.name = name
                    def __get__(self, owner, kind):
                        return os.environ.get(self.name)
                class Flag(Var):
                    pass
            """,
            "pkg/mod.py": """
                from pkg.env import env_int, outer as o, read, Flag
                from pkg import env
                A = env_int("threads", 4)
                B = env.env_int(name="jobs")
                C = read("X_RATIO", float, 0.5)
                D = o("io")
                class Settings:
                    flag = Flag("X_FLAG")
                def f(nested):
                    def inner(key):
                        return env.os.environ[key]
                    return inner("X_INNER")
                def f2(environ):
                    def inner(key, cast):
                        return cast(environ.get(key))
                    return inner("X_PASSED", int)
            """,
        }
    )
    found = reads(seen)
    assert (found["PKG_THREADS"].value, found["PKG_THREADS"].value_type) == ("4", "int")
    assert found["PKG_JOBS"].value == "1"
    assert (found["X_RATIO"].value, found["X_RATIO"].value_type) == ("0.5", "float")
    assert found["X_RATIO"].when is When.IMPORT
    assert found["PKG_IO_THREADS"].value_type == "int"
    assert found["X_FLAG"].when is When.CALL
    assert found["X_PASSED"].value_type == "int"


def test_when():
    seen = reads(
        walk(
            {
                "pkg/__init__.py": "from pkg.mod import setup\nsetup()\n",
                "pkg/mod.py": """
                    import functools, os
                    A = os.environ.get("AT_MODULE")
                    def setup():
                        return helper()
                    def helper():
                        return os.environ.get("AT_IMPORT")
                    def later():
                        return os.environ.get("AT_CALL")
                    @functools.lru_cache
                    def cached():
                        return os.environ.get("AT_FIRST")
                    _pool = None
                    def pool():
                        global _pool
                        x = os.environ.get("EACH_TIME")
                        if _pool is None:
                            _pool = os.environ.get("ONCE")
                        return _pool
                    table = {"x": lambda: os.environ.get("IN_LAMBDA")}
                    class Config:
                        def __init__(self):
                            self.load()
                        def load(self):
                            self.x = os.environ.get("IN_INIT")
                    config = Config()
                    if __name__ == "__main__":
                        later()
                """,
            }
        )
    )
    assert {name: o.when.value for name, o in seen.items()} == {
        "AT_MODULE": "import",
        "AT_IMPORT": "import",
        "AT_CALL": "call",
        "AT_FIRST": "first_use",
        "EACH_TIME": "call",
        "ONCE": "first_use",
        "IN_LAMBDA": "call",
        "IN_INIT": "import",
    }
    built = walk('import os\nx = os.environ["X_BUILD"]\n', "setup.py", Role.BUILD)
    assert reads(built)["X_BUILD"].when is When.BUILD


def test_writes():
    seen = walk(
        """
        import os, subprocess
        os.environ["W_SET"] = "1"
        os.environ.setdefault("W_DEFAULT", "2")
        os.environ.update({"W_MANY": "3"}, W_KEY="4")
        if "W_GUARDED" not in os.environ:
            os.environ["W_GUARDED"] = "5"
        os.putenv("W_PUT", "6")
        def start(n):
            env = os.environ.copy()
            env["C_SET"] = str(n)
            subprocess.Popen(["x"], env=env)
        def start2(n):
            subprocess.Popen(["x"], env={"C_KEPT": "1", **os.environ})
        def start3(n):
            subprocess.Popen(["x"], env={**os.environ, "C_FORCED": "1"})
        class Backend:
            VARS = ["C_ONE", "C_TWO"]
            def worker_env(self, n):
                default = max(cpu_count() // n, 1)
                env = {}
                for var in self.VARS:
                    value = os.environ.get(var, default)
                    env[var] = str(value)
                return env
        """
    )
    writes = {o.name: (o.target, o.unless_set, o.value) for o in of(seen, Kind.ENV_WRITE)}
    assert writes == {
        "W_SET": ("process", False, '"1"'),
        "W_DEFAULT": ("process", True, '"2"'),
        "W_MANY": ("process", False, '"3"'),
        "W_KEY": ("process", False, '"4"'),
        "W_GUARDED": ("process", True, '"5"'),
        "W_PUT": ("process", False, '"6"'),
        "C_SET": ("child", False, "n"),
        "C_KEPT": ("child", True, '"1"'),
        "C_FORCED": ("child", False, '"1"'),
        "C_ONE": ("child", True, "max(cpu_count() // n, 1)"),
        "C_TWO": ("child", True, "max(cpu_count() // n, 1)"),
    }
    assert not reads(seen), "a read that only makes a write conditional is no use of the variable"


def test_pools():
    seen = walk(
        """
        import concurrent.futures as cf, multiprocessing as mp, os, threading
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing.pool import ThreadPool as TP
        SIZE = 4
        class Mine(ThreadPoolExecutor):
            pass
        class Sized(cf.ProcessPoolExecutor):
            def __init__(self, jobs, name):
                super().__init__(max_workers=jobs)
        def f(n_jobs, ctx):
            workers = min(32, os.cpu_count())
            ThreadPoolExecutor(max_workers=workers)
            cf.ProcessPoolExecutor(n_jobs)
            mp.Pool(SIZE)
            mp.get_context("spawn").Pool(processes=3)
            TP()
            Mine(7)
            Sized("x", name="y")
            threads = [threading.Thread(target=g) for _ in range(n_jobs)]
            ctx.Process(target=g)
        """
    )
    pools = [(o.name, o.value, o.target) for o in of(seen, Kind.POOL) if o.function == "f"]
    assert pools == [
        ("concurrent.futures.ThreadPoolExecutor", "workers", "threads"),
        ("concurrent.futures.ProcessPoolExecutor", "n_jobs", "processes"),
        ("multiprocessing.Pool", "SIZE", "processes"),
        ("multiprocessing.Pool", "3", "processes"),
        ("multiprocessing.pool.ThreadPool", None, "threads"),
        ("Mine", "7", "threads"),
        ("Sized", '"x"', "processes"),
        ("threading.Thread", "n_jobs", "threads"),
        ("multiprocessing.Process", "1", "processes"),
    ]
    first = next(o for o in seen if o.name.endswith("ThreadPoolExecutor") and o.function == "f")
    assert "workers = min(32, os.cpu_count())" in first.detail
    assert [(o.name, o.value) for o in of(seen, Kind.CONSTANT)] == [("SIZE", "4")]


def test_probes_and_forks():
    seen = walk(
        """
        import multiprocessing, os, psutil
        a = os.cpu_count()
        b = len(os.sched_getaffinity(0))
        c = os.sysconf("SC_NPROCESSORS_ONLN")
        d = open("/sys/fs/cgroup/cpu.max").read()
        e = psutil.cpu_count(logical=False)
        f = multiprocessing.cpu_count()
        os.register_at_fork(after_in_child=print)
        multiprocessing.set_start_method("spawn")
        ctx = multiprocessing.get_context("forkserver")
        if os.getpid() != a:
            pass
        """
    )
    assert [o.name for o in of(seen, Kind.CPU_PROBE)] == [
        "os.cpu_count",
        "os.sched_getaffinity",
        "os.sysconf(SC_NPROCESSORS_ONLN)",
        "/sys/fs/cgroup/cpu.max",
        "psutil.cpu_count",
        "multiprocessing.cpu_count",
    ]
    assert [(o.name, o.value) for o in of(seen, Kind.FORK)] == [
        ("os.register_at_fork", None),
        ("multiprocessing.set_start_method", "spawn"),
        ("multiprocessing.get_context", "forkserver"),
        ("os.getpid", None),
    ]


API = {
    "pkg/__init__.py": """
        from pkg._impl import Engine, get_num_threads, limits, set_num_threads, start, _hidden
        from pkg.sub.deep import run as go
        __all__ = ["Engine", "get_num_threads", "limits", "set_num_threads", "start", "go"]
    """,
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "def run(data, n_jobs=None, batch_size='auto', backend=None, **options):\n"
    "    return options.pop('max_nbytes', '1M')\n",
    "pkg/_impl.py": """
        import contextlib
        from concurrent.futures import ThreadPoolExecutor
        DEFAULTS = {"n_jobs": Sentinel(2)}
        _threads = 1
        _cache = None
        def set_num_threads(n):
            global _threads
            _threads = n
        def get_num_threads():
            return _threads
        def get_thread_of(name):
            return 1
        def get_worker_count():
            global _threads
            _threads += 1
            return _threads
        def _hidden(n_jobs=1):
            pass
        @contextlib.contextmanager
        def limits(limits=None):
            yield
        class Engine:
            def __init__(self, workers=DEFAULTS["n_jobs"], *, memory=None, verbose=0, size=1):
                self.pool = ThreadPoolExecutor(size)
            def set_workers(self, n):
                pass
            def _private(self, n_jobs=1):
                pass
        def start(data, **kwargs):
            return prepare(kwargs)
        OPTIONS = [("optimization", "high"), ("order", "K")]
        def prepare(kw):
            rest = kw.copy()
            for name, default in OPTIONS:
                value = rest.pop(name, default)
    """,
}


def test_public_api():
    seen = walk(API, "pkg/_impl.py")
    names = {kind: [o.name for o in of(seen, kind)] for kind in (Kind.API_SET, Kind.API_GET, Kind.PARAM)}
    assert names[Kind.API_SET] == ["pkg.set_num_threads", "pkg.limits", "pkg.Engine.set_workers"]
    assert names[Kind.API_GET] == ["pkg.get_num_threads"]
    assert set(names[Kind.PARAM]) == {
        "pkg.Engine(workers=)",
        "pkg.Engine(memory=)",
        "pkg.Engine(size=)",
        "pkg.limits(limits=)",
        "pkg.start(optimization=)",
    }
    workers = next(o for o in seen if o.name == "pkg.Engine(workers=)")
    assert workers.value == 'DEFAULTS["n_jobs"]'
    assert workers.detail.endswith('DEFAULTS["n_jobs"] = Sentinel(2)')
    assert next(o for o in seen if o.name == "pkg.start(optimization=)").value == "'high'"


def test_parameters_by_re_exported_name():
    seen = walk(API, "pkg/sub/deep.py")
    assert {(o.name, o.value, o.value_type) for o in of(seen, Kind.PARAM)} == {
        ("pkg.go(backend=)", "None", None),
        ("pkg.go(batch_size=)", "'auto'", "str"),
        ("pkg.go(n_jobs=)", "None", None),
        ("pkg.go(max_nbytes=)", "'1M'", "str"),
    }


def test_composed_names_of_a_configuration():
    seen = walk(
        {
            "pkg/config.py": """
                import os
                config = {}
                def collect():
                    for name, value in os.environ.items():
                        if name.startswith("PKG_"):
                            config[name[4:].lower().replace("__", ".")] = value
                def get(key, default=None):
                    return config.get(key, default)
                collect()
            """,
            "pkg/mod.py": """
                from pkg import config
                def compute():
                    return config.get("num-workers", 4), config.get("array.chunk-size")
            """,
        }
    )
    found = reads(seen)
    assert (found["PKG_NUM_WORKERS"].value, found["PKG_NUM_WORKERS"].when) == ("4", When.CALL)
    assert "PKG_ARRAY__CHUNK_SIZE" in found


def test_settings_classes():
    seen = walk(
        """
        from pydantic import Field
        from pydantic_settings import BaseSettings, SettingsConfigDict
        class Settings(BaseSettings):
            model_config = SettingsConfigDict(env_prefix="PKG_")
            threads: int = 4
            jobs: int = Field(2, alias="PKG_N_JOBS")
        """
    )
    assert {name: o.value for name, o in reads(seen).items()} == {"PKG_THREADS": "4", "PKG_N_JOBS": "2"}


def test_an_observation_cites_its_lines():
    code = 'import os\n\nx = int(\n    os.environ.get("A", "é")\n)\n'
    seen = reads(walk(code))["A"]
    assert (seen.line, seen.end_line) == (3, 5)
    assert seen.text == code.split("\n", 2)[2]
    assert seen.sha256 == digest_of_lines(code.encode(), 3, 5)


@pytest.mark.parametrize(
    "source",
    [
        b'import os\nx = os.environ["A"]\ndef f(:\n  ((((\n',
        b'\xef\xbb\xbfimport os\nx = os.environ["A"]\n',
        b'import os\nx = os.environ["A"]\n# \xe9\xff\n',
        b'import os\r\nx = os.environ["A"]\r\n',
        b'import os\nx = os.environ["A"]\nprint "python 2"\nexec "x"\n',
        b'import os\nx = os.environ["A"]\ny = "\0"\n',
        b'import os\nx = os.environ["A"]\ny = ' + b"[" * 3000 + b"]" * 3000 + b"\n",
        b'import os\nx = os.environ["A"]\n' + b"".join(b" " * i + b"if x:\n" for i in range(300)) + b" " * 300 + b"y\n",
        b'import os\nx = os.environ["A"]\ny = ' + b"a." * 5000 + b"b\n",
        b'import os\nx = os.environ["A"]\ny = ' + b"1 + " * 5000 + b"1\n",
        b'import os\nx = os.environ["A"]\nx = x\ny = x\nclass C:\n    a = b\n    b = a\n    z = os.environ[a]\n',
    ],
)
def test_hostile_sources(source):
    index = PackageIndex.build({"m.py": source})
    assert "A" in reads(walk_python(source, "m.py", Role.LIBRARY, index))


def test_too_many_indentations_are_not_given_to_the_parser():
    source = b"".join(b" " * i + b"if x:\n" for i in range(3000)) + b" " * 3000 + b"y\n"
    assert "indentations" in PackageIndex.build({"m.py": source}).failed["m.py"]


def test_parse_limit():
    source = b"x=1+" * 500_000
    index = PackageIndex.build({"m.py": source}, seconds=0.05)
    assert "m.py" in index.failed
    with pytest.raises(ParseTimeoutError):
        walk_python(source, "m.py", Role.LIBRARY, index, seconds=0.05)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("src/pkg/sub/mod.py", "pkg.sub.mod"),
        ("pkg/__init__.py", "pkg"),
        ("single.py", "single"),
        ("python-package/other/mod.py", "other.mod"),
    ],
)
def test_module_names(path, name):
    packages = {"src/pkg", "src/pkg/sub", "pkg", "python-package/other"}
    assert module_name(path, packages)[0] == name
