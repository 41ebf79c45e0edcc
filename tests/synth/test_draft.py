"""From small packages on disk to drafted contracts: what is stated, what is not, and that each clause is cited."""

import random
import shutil
import textwrap

import pytest

from lpcl import format as fmt
from lpcl import model as m
from lpcl.check import check
from lpcl.expr import evaluate
from lpcl.parse import parse
from synth.draft import draft
from synth.evidence import collect, verify
from synth.records import Kind, Release
from synth.walk.tree import walk_release


def walk(root, files, name="pkg"):
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(textwrap.dedent(content).encode() if isinstance(content, str) else content)
    return walk_release(
        Release(
            name=name,
            version="1.0",
            root=root,
            kind="folder",
            filename="pkg",
            sha256="0" * 64,
            verified="unverified",
            location="pkg",
        )
    )


def drafted(root, files, name="pkg"):
    """The draft of a package, proved to print, to parse to itself, to check clean and to cite what exists."""
    evidence = collect(walk(root, files, name))
    made = draft(name, "1.0", evidence)
    parsed, findings = read_back(made.contract)
    assert parsed.ok, [d.message for d in parsed.diagnostics]
    assert parsed.file.contracts == (made.contract,)
    assert findings == []
    known = {e.id for e in evidence}
    assert all(c.evidence and set(c.evidence) <= known for c in made.contract.clauses)
    assert verify(evidence, root) == []
    return made


def read_back(contract):
    text = fmt.file_text(m.File(m.LANGUAGE_VERSION, (contract,)))
    parsed = parse(text)
    return parsed, [(d.rule, d.message) for d in check(parsed.file)] if parsed.ok else []


def env(made, clause=None):
    """Control name -> its variables."""
    found = {c.name: c.env_names() for c in made.contract.controls if c.env_names()}
    return found if clause is None else found[clause]


def rejected(made):
    return {r.name: r.why for r in made.rejected}


def default(made, name):
    return made.contract.control(name).default


POOL_C = """\
    #include <pthread.h>
    #include <stdlib.h>
    #define DEFAULT_MAX_THREADS 64
    static long global_max_threads = DEFAULT_MAX_THREADS;
    static int nthreads;
    static pthread_cond_t more; static pthread_mutex_t lock; static pthread_t pool[DEFAULT_MAX_THREADS];
    static void *work(void *at) {
        pthread_mutex_lock(&lock);
        while (!nthreads)
            pthread_cond_wait(&more, &lock);
        pthread_mutex_unlock(&lock);
        return 0;
    }
    int start(void) {
        int i;
        for (i = 0; i < nthreads; i++)
            pthread_create(&pool[i], 0, work, 0);
        return 0;
    }
    PyMODINIT_FUNC PyInit_pool(void) {
        char *text = getenv("PKG_MAX_THREADS");
        char *end;
        if (text != NULL) {
            global_max_threads = strtol(text, &end, 10);
        }
        return 0;
    }
"""
CORE = """\
    import os

    from pkg import pool

    def detect():
        if "PKG_NUM_THREADS" in os.environ:
            return int(os.environ["PKG_NUM_THREADS"])
        elif "OMP_NUM_THREADS" in os.environ:
            return int(os.environ["OMP_NUM_THREADS"])
        return 8

    nthreads = detect()

    def set_num_threads(nthreads):
        return pool.set(nthreads)

    def get_num_threads():
        return nthreads
"""
INIT = "from pkg.core import get_num_threads, set_num_threads\n"
LIBRARY = {"pkg/__init__.py": INIT, "pkg/core.py": CORE, "pkg/pool.c": POOL_C}


def test_a_native_pool_with_its_controls(tmp_path):
    made = drafted(tmp_path, LIBRARY)
    contract = made.contract
    assert contract.name == "pkg"
    assert contract.packages == (m.Package("pkg", "==1.0"),)

    threads = contract.control("threads")
    assert [w.label for w in threads.ways] == ["PKG_NUM_THREADS", "OMP_NUM_THREADS", "pkg.set_num_threads()"]
    assert [w.binding for w in threads.ways] == ["import", "import", "call"]
    assert threads.ways[2].parameters == ("nthreads",)
    assert (threads.type.name, threads.combine, threads.effect) == ("int", "first_set", "process")
    assert threads.bounds == (m.Ref(("workers", "amount")),)

    most = contract.control("max_threads")
    assert (most.env_names(), most.default, most.combine) == (("PKG_MAX_THREADS",), m.Number(64), None)

    (workers,) = contract.demands
    assert workers.resource.name == "cpu.threads"
    assert workers.amount == m.Ref(("threads",))
    assert [i.mode for i in workers.idle] == ["block"]
    assert (workers.runs, workers.scope) == ("native", "process")
    # what no rule saw is said to be unknown
    assert (workers.work, workers.fork) == ("unknown", "unknown")

    (signal,) = contract.signals
    assert signal.read == m.Read("call", ("pkg.get_num_threads",))
    assert signal.observes == (m.Ref(("workers", "amount")),)


def test_the_macro_that_a_default_came_from_is_cited(tmp_path):
    evidence = collect(walk(tmp_path, LIBRARY))
    made = draft("pkg", "1.0", evidence)
    cited = {e.seen.name for e in evidence if e.id in made.contract.control("max_threads").evidence}
    assert cited >= {"PKG_MAX_THREADS", "DEFAULT_MAX_THREADS"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('N = 4\nx = int(os.environ.get("PKG_NUM_THREADS", N))', m.Unknown()),  # no constant by its look
        ('LIMIT = 4\nx = int(os.environ.get("PKG_NUM_THREADS", LIMIT))', m.Number(4)),
        ('LIMIT = 4\nx = int(os.environ.get("PKG_NUM_THREADS") or LIMIT)', m.Number(4)),
        ('LIMIT = "4"\nx = int(os.environ.get("PKG_NUM_THREADS", LIMIT))', m.Number(4)),
        ('x = int(os.environ.get("PKG_NUM_THREADS", "4"))', m.Number(4)),
        ('x = int(os.environ.get("PKG_NUM_THREADS", " 4 "))', m.Number(4)),
        ('x = int(os.environ.get("PKG_NUM_THREADS", 2 * 2))', m.Operation("*", (m.Number(2), m.Number(2)))),
        ('x = int(os.environ.get("PKG_NUM_THREADS", compute()))', m.Unknown()),
        ('x = int(os.environ.get("PKG_NUM_THREADS", "auto"))', m.Unknown()),
        ('x = os.environ.get("PKG_NUM_THREADS")', m.Unknown()),
        ('x = os.environ["PKG_NUM_THREADS"]', m.Unknown()),
        pytest.param(
            'x = float(os.environ.get("PKG_CACHE_FRACTION", "0.5"))',
            m.Number(0.5),
        ),
        ('x = os.environ.get("PKG_BACKEND", "loky")', m.Text("loky")),
    ],
)
def test_defaults(tmp_path, source, expected):
    made = drafted(tmp_path, {"pkg/__init__.py": f"import os\n{source}\n"})
    (control,) = made.contract.controls
    assert control.default == expected


def test_a_default_that_is_not_understood_is_noted(tmp_path):
    source = 'import os\nx = int(os.environ.get("PKG_NUM_THREADS", compute(1,\n   "a\\tb")))\n'
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    (control,) = made.contract.controls
    assert control.notes == ('default in the source: compute(1, "a\\tb")',)


def test_the_same_name_for_two_constants_in_c(tmp_path):
    source = """\
        #ifdef _WIN32
        #define DEFAULT_MAX_THREADS 1
        #else
        #define DEFAULT_MAX_THREADS 64
        #endif
        static long most = DEFAULT_MAX_THREADS;
        PyMODINIT_FUNC PyInit_pool(void) {
            char *text = getenv("PKG_MAX_THREADS");
            if (text != NULL) most = atoi(text);
            return 0;
        }
    """
    made = drafted(tmp_path, {"pkg/pool.c": source})
    assert default(made, "max_threads") in {m.Unknown(), m.Number(64)}


def test_constants_of_one_name_in_two_modules(tmp_path):
    made = drafted(
        tmp_path,
        {
            "pkg/a.py": 'import os\nDEFAULT = 4\nn = int(os.environ.get("PKG_NUM_THREADS", DEFAULT))\n',
            "pkg/b.py": 'import os\nDEFAULT = 9\nn = int(os.environ.get("PKG_NUM_WORKERS", DEFAULT))\n',
        },
    )
    assert default(made, "threads") in {m.Number(4), m.Unknown()}
    assert default(made, "workers") in {m.Number(9), m.Unknown()}


# -------------------------------------------------------------------- chains


CHAINS = {
    "or": 'n = int(os.environ.get("PKG_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or LIMIT)',
    "get": 'n = int(os.environ.get("PKG_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", LIMIT)))',
    "if": """\
if "PKG_NUM_THREADS" in os.environ:
    n = int(os.environ["PKG_NUM_THREADS"])
elif "OMP_NUM_THREADS" in os.environ:
    n = int(os.environ["OMP_NUM_THREADS"])
else:
    n = LIMIT
""",
}


@pytest.mark.parametrize("form", CHAINS)
def test_a_fallback_chain_is_one_control(tmp_path, form):
    made = drafted(tmp_path, {"pkg/__init__.py": f"import os\nLIMIT = 4\n{CHAINS[form]}\n"})
    (control,) = made.contract.controls
    assert control.env_names() == ("PKG_NUM_THREADS", "OMP_NUM_THREADS")
    assert (control.name, control.combine) == ("threads", "first_set")


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(
            form,
        )
        for form in CHAINS
    ],
)
def test_the_default_of_a_chain_is_that_of_its_last_link(tmp_path, form):
    made = drafted(tmp_path, {"pkg/__init__.py": f"import os\nLIMIT = 4\n{CHAINS[form]}\n"})
    assert default(made, "threads") == m.Number(4)
    assert made.contract.control("threads").notes == ()


@pytest.mark.parametrize("second", ["NUMBER_OF_PROCESSORS", "PKG_TEST_THREADS", "LD_THREADS", "PYTHON_THREADS"])
def test_a_link_that_is_no_control_is_no_way(tmp_path, second):
    source = f'import os\nn = int(os.environ.get("PKG_NUM_THREADS") or os.environ.get("{second}") or 1)\n'
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert env(made, "threads") == ("PKG_NUM_THREADS",)
    assert second in rejected(made)


@pytest.mark.parametrize("first", ["PYTHON_CPU_COUNT", "PKG_BUILD_THREADS"])
def test_a_rejected_first_link_does_not_hide_the_next(tmp_path, first):
    source = f'import os\nn = int(os.environ.get("{first}") or os.environ.get("PKG_NUM_THREADS") or 1)\n'
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert env(made) == {"threads": ("PKG_NUM_THREADS",)}
    assert set(rejected(made)) == {first}


def test_two_reads_without_a_chain_are_two_controls(tmp_path):
    source = 'import os\na = int(os.environ.get("PKG_THREADS", 1))\nb = int(os.environ.get("PKG_JOBS", 2))\n'
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert env(made) == {"threads": ("PKG_THREADS",), "jobs": ("PKG_JOBS",)}
    assert [c.combine for c in made.contract.controls] == [None, None]


def test_the_earliest_read_says_when(tmp_path):
    source = """\
        import os
        def late():
            return int(os.environ.get("PKG_NUM_THREADS", 2))
        early = int(os.environ.get("PKG_NUM_THREADS", 3))
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    (control,) = made.contract.controls
    assert [w.binding for w in control.ways] == ["import"]
    assert control.default == m.Number(3)
    assert len(control.evidence) == 2


# --------------------------------------------------------------- mitigations


KIDS = """\
    import os
    import subprocess

    def child_env(n_jobs):
        env = os.environ.copy()
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            if name not in env:
                env[name] = str(max(os.cpu_count() // n_jobs, 1))
        return env

    def run(command, n_jobs=1):
        return subprocess.Popen(command, env=child_env(n_jobs))
"""


def test_a_cap_for_children(tmp_path):
    made = drafted(tmp_path, {"pkg/__init__.py": "from pkg.kids import run\n", "pkg/kids.py": KIDS})
    (cap,) = made.contract.mitigations
    assert set(cap.env) == {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert (cap.target, cap.unless_set) == ("children", True)
    jobs = next(c.name for c in made.contract.controls if c.ways[0].name == "pkg.run")
    for cores, n_jobs, value in ((8, 2, 4), (8, 3, 2), (2, 16, 1)):
        facts = {"machine.cores": cores, "machine.online": cores, jobs: n_jobs}
        assert evaluate(cap.value, facts) == value
    assert env(made) == {}, "what a library sets for others is no control of it"


def test_os_cpu_count_is_not_the_usable_cpus(tmp_path):
    made = drafted(tmp_path, {"pkg/kids.py": KIDS})
    (cap,) = made.contract.mitigations
    facts = {"machine.online": 64, "machine.cores": 4}
    facts |= {c.name: 2 for c in made.contract.controls}
    assert evaluate(cap.value, facts) in {32, None}


def test_values_places_and_targets_keep_mitigations_apart(tmp_path):
    source = """\
        import os

        os.environ.setdefault("KMP_INIT_AT_FORK", "FALSE")

        def one():
            os.environ["OMP_NUM_THREADS"] = "1"
            os.environ["MKL_NUM_THREADS"] = "1"
            os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

        def two(n):
            os.environ["OMP_NUM_THREADS"] = compute(n)
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    found = {(c.env, c.target, c.unless_set): c.value for c in made.contract.mitigations}
    assert found == {
        (("KMP_INIT_AT_FORK",), "process", True): m.Text("FALSE"),
        (("MKL_NUM_THREADS", "OMP_NUM_THREADS"), "process", False): m.Text("1"),
        (("OMP_WAIT_POLICY",), "process", False): m.Text("PASSIVE"),
        (("OMP_NUM_THREADS",), "process", False): m.Unknown(),
    }
    unknown = next(c for c in made.contract.mitigations if c.value == m.Unknown())
    assert unknown.notes == ("value in the source: compute(n)",)


def test_many_variables_of_one_cap_are_all_cited(tmp_path):
    names = [f"LIB{n}_NUM_THREADS" for n in range(12)]
    source = "import os\ndef cap():\n" + "".join(f'    os.environ["{n}"] = "1"\n' for n in names)
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    (cap,) = made.contract.mitigations
    assert set(cap.env) == set(names)
    assert len(cap.evidence) == 12


@pytest.mark.parametrize("forbidden", ["X_TOKEN", "NO_PROXY", "GIT_TERMINAL_PROMPT", "HOME"])
def test_a_forbidden_variable_does_not_take_others_with_it(tmp_path, forbidden):
    source = f'import os\ndef cap():\n    os.environ["OMP_NUM_THREADS"] = "1"\n    os.environ["{forbidden}"] = "1"\n'
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert [c.env for c in made.contract.mitigations] == [("OMP_NUM_THREADS",)]
    assert forbidden in rejected(made)


@pytest.mark.parametrize("forbidden", ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PATH"])
def test_code_loading_variables_are_not_stated(tmp_path, forbidden):
    source = f'import os\ndef cap():\n    os.environ["OMP_NUM_THREADS"] = "1"\n    os.environ["{forbidden}"] = "1"\n'
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert [c.env for c in made.contract.mitigations] == [("OMP_NUM_THREADS",)]
    assert rejected(made) == {forbidden: "set by the library, but not stated"}


def test_a_variable_called_underscore(tmp_path):
    drafted(tmp_path, {"pkg/__init__.py": 'import os\nos.environ["_"] = "1"\n'})


# ---------------------------------------------------------- pools and parameters


def test_a_python_pool_runs_user_code(tmp_path):
    source = """\
        from concurrent.futures import ThreadPoolExecutor

        def run(work, n_workers=4):
            with ThreadPoolExecutor(max_workers=n_workers) as pool:
                return list(pool.map(work, range(10)))
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    (pool,) = made.contract.demands
    (control,) = made.contract.controls
    assert (pool.resource.name, pool.runs, pool.created) == ("cpu.threads", "user_code", "call")
    assert pool.amount == m.Ref((control.name,))
    assert control.ways == (m.Way("param", "pkg.run", "call", ("n_workers",)),)
    assert (control.default, control.effect) == (m.Number(4), "call")
    assert control.bounds == (m.Ref((pool.name, "amount")),)


def test_processes_and_threads_are_two_demands(tmp_path):
    source = """\
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

        def run(n):
            return ProcessPoolExecutor(n), ThreadPoolExecutor(3)
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert {d.resource.name for d in made.contract.demands} == {"cpu.processes", "cpu.threads"}


def test_a_single_thread_is_no_pool(tmp_path):
    source = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
    assert drafted(tmp_path, {"pkg/__init__.py": source}).contract.clauses == ()


def test_a_spinning_worker(tmp_path):
    spinning = POOL_C.replace("pthread_cond_wait(&more, &lock);", "_mm_pause();")
    made = drafted(tmp_path, {**LIBRARY, "pkg/pool.c": spinning})
    assert [i.mode for d in made.contract.demands for i in d.idle] == ["spin"]


def test_a_process_id_check_makes_the_pool_anew(tmp_path):
    forked = POOL_C.replace(
        "int start(void) {", "static pid_t owner;\nint start(void) {\n if (getpid() != owner) clear();"
    )
    made = drafted(tmp_path, {**LIBRARY, "pkg/pool.c": forked})
    assert [d.fork for d in made.contract.demands] == ["recreated"]


def test_c_divides_whole_numbers(tmp_path):
    made = drafted(tmp_path, {**LIBRARY, "pkg/pool.c": POOL_C.replace("i < nthreads;", "i < nthreads / 2;")})
    (pool,) = made.contract.demands
    assert evaluate(pool.amount, {"threads": 3}) in {1, None}


def test_what_is_looked_at_and_what_is_not(tmp_path):
    probes = {
        "import os\nn = os.cpu_count()\n": ({"machine.online"}, {"machine.affinity", "machine.quota"}),
        "import os\nn = len(os.sched_getaffinity(0))\n": ({"machine.affinity"}, {"machine.quota"}),
    }
    for n, (source, (sizes, ignores)) in enumerate(probes.items()):
        made = drafted(tmp_path / str(n), {"pkg/__init__.py": source})
        (assumption,) = made.contract.assumptions
        assert {f.name for s in assumption.sizes for f in s.facts} == sizes
        assert {f.name for f in assumption.ignores} == ignores


# ------------------------------------------------------------ what is no control


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NPY_NUM_BUILD_JOBS", "for the build"),
        ("JAX_TEST_NUM_THREADS", "for the project's own tests"),
        ("NUMBA_PARALLEL_DIAGNOSTICS", "diagnostics"),
        ("NUMBER_OF_PROCESSORS", "provided by"),
        ("NUMEXPR_SANITIZE", "it changes behaviour"),
        ("PKG_WORKER_TOKEN", "a credential"),
        ("X_TOKEN", "a credential"),
        ("LD_PRELOAD", "its name speaks of no resource"),
        ("LD_NUM_THREADS", "it can load code"),
        ("DYLD_THREADS", "it can load code"),
        ("PYTHONPATH", "provided by"),
        ("__THREADS", "it can load code"),
        ("PKG_PROXY_THREADS", "an address"),
    ],
)
def test_look_alikes_are_rejected_with_a_reason(tmp_path, name, why):
    made = drafted(tmp_path, {"pkg/__init__.py": f'import os\nx = int(os.environ.get("{name}", "1"))\n'})
    assert made.contract.controls == ()
    assert [r.name for r in made.rejected] == [name]
    assert made.rejected[0].why.startswith(why)
    assert made.rejected[0].place == "pkg/__init__.py:2"


@pytest.mark.parametrize(
    "name",
    [
        "NUMBA_THREADING_LAYER",
        "NUMBA_THREADING_LAYER_PRIORITY",
        pytest.param(
            "TOKENIZERS_PARALLELISM",
        ),
        *(
            pytest.param(n)
            for n in (
                "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM",
                "POLARS_THREAD_NAME",
                "F2PY_THREAD_LOCAL_DECL",
                "PER_THREAD_OUTPUT",
                "OMP_PROC_BIND",
            )
        ),
    ],
)
def test_look_alikes_are_no_number_of_threads(tmp_path, name):
    made = drafted(tmp_path, {"pkg/__init__.py": f'import os\nx = os.environ.get("{name}")\n'})
    assert "int" not in {c.type.name for c in made.contract.controls}


@pytest.mark.parametrize("path", ["tests/test_x.py", "docs/conf.py", "benchmarks/b.py", "examples/e.py", "setup.py"])
def test_evidence_beside_the_library_states_nothing(tmp_path, path):
    source = """\
        import os
        from concurrent.futures import ThreadPoolExecutor
        n = int(os.environ.get("OMP_NUM_THREADS", "4"))
        os.environ["OMP_THREAD_LIMIT"] = "1"
        pool = ThreadPoolExecutor(n)
    """
    assert drafted(tmp_path, {"pkg/__init__.py": "", path: source}).contract.clauses == ()


@pytest.mark.parametrize(("package", "name"), [("uv", "UV_NUM_THREADS"), ("awscrt", "AWS_MAX_WORKERS")])
def test_what_the_checker_forbids_is_rejected_with_a_reason(tmp_path, package, name):
    source = f'import os\nn = int(os.environ.get("{name}", "4"))\n'
    made = drafted(tmp_path, {f"{package}/__init__.py": source}, package)
    assert made.contract.controls == ()
    assert name in rejected(made)


NO_NAMES = [
    "my threads",
    "2THREADS",
    "A-THREADS",
    "",
    "A=THREADS",
    "*THREADS*",
    pytest.param("THREADS\\n"),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_no_name_of_a_variable(tmp_path, name):
    walked = walk(tmp_path, {"pkg/__init__.py": f'import os\nx = os.environ.get("{name}", "1")\n'})
    made = draft("pkg", "1.0", collect(walked))
    assert made.contract.controls == ()


# -------------------------------------------------------------- hostile names


THREADS = 'import os\nn = int(os.environ.get("PKG_NUM_THREADS", "1"))\n'


@pytest.mark.parametrize(
    "name",
    [
        "my-pkg",
        "zope.interface",
        "a_b",
        "x2",
        "class",
        "import",
        "lpcl",
        "contract",
        "unknown",
        "if",
        "true",
        "min",
        "machine",
    ],
)
def test_names_of_packages(tmp_path, name):
    made = drafted(tmp_path, {"pkg/__init__.py": THREADS}, name)
    assert made.contract.packages[0].name == name
    assert len(made.contract.controls) == 1


@pytest.mark.parametrize("name", ["3to2", "2captcha-python", "größe"])
def test_names_of_packages_that_are_no_names_of_contracts(tmp_path, name):
    made = drafted(tmp_path, {"pkg/__init__.py": THREADS}, name)
    assert made.contract.packages[0].name == name


@pytest.mark.parametrize(
    "word", ["if", "true", "not", "unknown", "and", "contract", "evidence", "value", "machine", "min"]
)
def test_keywords_as_parameters_of_size(tmp_path, word):
    name = f"{word}_threads" if word in {"if", "not", "and"} else word
    source = f"""\
        from concurrent.futures import ThreadPoolExecutor

        def {word if word not in {"if", "not", "and"} else "run"}({name}=2, n_jobs=3):
            return ThreadPoolExecutor({name}), ThreadPoolExecutor(n_jobs)
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert made.contract.demands


@pytest.mark.parametrize(
    "source",
    [
        "def run(größe_threads=2):\n    return ThreadPoolExecutor(größe_threads)\n",
        "class Größe:\n    def __init__(self, n_jobs=2):\n        self.pool = ThreadPoolExecutor(n_jobs)\n",
    ],
)
def test_letters_beyond_ascii(tmp_path, source):
    drafted(tmp_path, {"pkg/__init__.py": f"from concurrent.futures import ThreadPoolExecutor\n{source}"})


@pytest.mark.parametrize("file", ["my-tool.py", "2d.py", "größe.py"])
def test_modules_that_cannot_be_imported(tmp_path, file):
    source = """\
        from concurrent.futures import ThreadPoolExecutor

        def set_num_threads(n):
            global threads
            threads = n

        def run(n_jobs=2):
            return ThreadPoolExecutor(n_jobs)
    """
    made = drafted(tmp_path, {"pkg/__init__.py": THREADS, f"pkg/{file}": source})
    assert env(made) == {"threads": ("PKG_NUM_THREADS",)}
    assert [w.label for c in made.contract.controls for w in c.ways] == ["PKG_NUM_THREADS"]


def test_text_beyond_ascii(tmp_path):
    source = """\
        import os
        x = os.environ.get("PKG_BACKEND", "größe \N{SNOWMAN}")
        y = int(os.environ.get("PKG_JOBS", größe("é\\\\")))
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source})
    assert default(made, "backend") == m.Text("größe \N{SNOWMAN}")
    assert made.contract.control("jobs").notes == ('default in the source: größe("é\\\\")',)


def test_colliding_names_are_told_apart(tmp_path):
    source = """\
        import os
        from concurrent.futures import ThreadPoolExecutor

        a = int(os.environ.get("PKG_THREADS", "1"))
        b = int(os.environ.get("PKG_NUM_THREADS", "2"))
        c = int(os.environ.get("PKG_WORKERS_", "3"))
        d = int(os.environ.get("pkg_n_threads", "4"))

        class Run:
            def __init__(self, threads=1):
                self.pool = ThreadPoolExecutor(threads)

        def run(threads=2):
            return ThreadPoolExecutor(threads)
    """
    made = drafted(tmp_path, {"pkg/__init__.py": source, "pkg/pool.c": POOL_C})
    names = [c.name for c in made.contract.clauses]
    assert len(names) == len(set(names))
    assert {w.name for c in made.contract.controls for w in c.ways if w.kind == "env"} >= {
        "PKG_THREADS",
        "PKG_NUM_THREADS",
        "PKG_WORKERS_",
        "pkg_n_threads",
    }
    assert {w.label for c in made.contract.controls for w in c.ways} >= {"pkg.Run(threads=)", "pkg.run(threads=)"}


# -------------------------------------------------------------- nothing, order


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"pkg/__init__.py": ""},
        {"pkg/__init__.py": "def add(a, b):\n    return a + b\n", "README.md": "# adds\n"},
        {"pkg/data.bin": b"\0\1\2"},
    ],
)
def test_nothing_to_state(tmp_path, files):
    made = draft("pkg", "1.0", collect(walk(tmp_path, files)))
    assert made.contract.clauses == ()
    assert made.rejected == ()


ALL = {**LIBRARY, "pkg/kids.py": KIDS, "pkg/more.py": CHAINS["or"], "pkg/again/kids.py": KIDS, "pkg/twin.c": POOL_C}
ALL["pkg/more.py"] = "import os\nLIMIT = 4\n" + CHAINS["or"]


def text_of(made):
    return fmt.file_text(m.File(m.LANGUAGE_VERSION, (made.contract,))), made.rejected


def test_the_same_release_gives_the_same_draft(tmp_path):
    one = draft("pkg", "1.0", collect(walk(tmp_path / "one", ALL)))
    again = draft("pkg", "1.0", collect(walk(tmp_path / "one", {})))
    # written in another order, into another folder
    other = draft("pkg", "1.0", collect(walk(tmp_path / "other", dict(reversed(ALL.items())))))
    assert text_of(one) == text_of(again) == text_of(other)
    assert one.contract.clauses


def test_the_order_of_observations_does_not_matter(tmp_path):
    walked = walk(tmp_path, ALL)
    wanted = collect(walked)
    draw = random.Random(7)
    for _ in range(20):
        seen = list(walked.observations)
        draw.shuffle(seen)
        evidence = collect(walked.model_copy(update={"observations": tuple(seen)}))
        assert [e.id for e in evidence] == [e.id for e in wanted]
        assert text_of(draft("pkg", "1.0", evidence)) == text_of(draft("pkg", "1.0", wanted))


def test_a_file_that_moves_keeps_its_ids(tmp_path):
    before = draft("pkg", "1.0", collect(walk(tmp_path / "a", LIBRARY)))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    core = tmp_path / "b/pkg/core.py"
    core.write_text("# a comment more\n\n" + core.read_text())
    after = draft("pkg", "1.0", collect(walk(tmp_path / "b", {})))
    assert text_of(before) == text_of(after)


def test_what_is_seen_twice_is_stated_once(tmp_path):
    made = draft("pkg", "1.0", collect(walk(tmp_path, {"pkg/a.py": THREADS, "pkg/b.py": THREADS})))
    (control,) = made.contract.controls
    assert control.env_names() == ("PKG_NUM_THREADS",)
    assert Kind.ENV_READ in {e.seen.kind for e in collect(walk(tmp_path, {}))}
