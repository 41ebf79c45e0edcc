"""From sources to judged items: what is a control, what is none and why, when it binds, how far it reaches."""

import textwrap

import pytest

from synth import lexicon
from synth.items import items_of
from synth.records import Release
from synth.walk.tree import walk_release


@pytest.fixture
def items(tmp_path):
    """Items of a package made of files, by name."""

    def made(files, name="pkg"):
        files = {"pkg/__init__.py": files} if isinstance(files, str) else files
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(textwrap.dedent(text))
        release = Release(
            name=name,
            version="1.0",
            root=tmp_path,
            kind="folder",
            filename=name,
            sha256="0" * 64,
            verified="unverified",
            location=name,
        )
        return {item.name: item for item in items_of(walk_release(release))}

    return made


def test_a_variable_with_its_default_time_and_place(items):
    found = items('import os\nN = int(os.environ.get("PKG_NUM_THREADS", 4))\n')["PKG_NUM_THREADS"]
    assert (found.kind, found.verdict, found.resource, found.type) == ("env", "control", "cpu.threads", "int")
    assert (found.default, found.read_when, found.scope, found.provider) == ("4", "import", "process", "pkg")
    assert [(p.where, p.line) for p in found.evidence] == [("pkg/__init__.py", 2)]
    assert found.certain


def test_a_chain_says_what_is_tried_next(items):
    found = items(
        """
        import os
        N = os.environ.get("PKG_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or os.cpu_count()
        """
    )
    assert found["PKG_NUM_THREADS"].default == "unset -> OMP_NUM_THREADS -> os.cpu_count()"
    assert found["OMP_NUM_THREADS"].default == "unset -> os.cpu_count()"
    assert "the first that is set of PKG_NUM_THREADS, OMP_NUM_THREADS" in found["PKG_NUM_THREADS"].precedence


def test_two_questions_in_a_row_are_no_chain(items):
    found = items(
        """
        import os
        def where():
            if os.environ.get("PKG_DEVICE", "") == "TPU":
                return launch()
            elif os.environ.get("PKG_BATCH_SIZE", "8") == "9":
                return other()
        """
    )
    assert found["PKG_DEVICE"].precedence == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("PKG_LOG_LEVEL", "diagnostics"),
        ("PKG_TOKEN", "credential"),
        ("PKG_HOME", "place"),
        ("PKG_SERVER_URL", "address"),
        ("PKG_RUN_SLOW", "tests"),
        ("PKG_SEED", "results"),
        ("LOCAL_RANK", "launcher"),
        ("SLURM_CPUS_PER_TASK", "launcher"),
        ("PKG_WORKER_ID", "names"),
        ("PKG_WHATEVER", "no resource"),
        ("_PKG_THREADS", "private"),
    ],
)
def test_look_alikes_keep_their_reason(items, name, why):
    found = items(f'import os\nx = os.environ.get("{name}")\n')[name]
    assert found.verdict == "not_control"
    assert why in found.why


def test_tests_and_the_build_are_not_the_library(items):
    found = items(
        {
            "pkg/__init__.py": "",
            "tests/test_it.py": 'import os\nx = os.environ["PKG_TEST_THREADS"]\n',
            "setup.py": 'import os\nx = os.environ["PKG_BUILD_JOBS"]\n',
        }
    )
    assert (found["PKG_TEST_THREADS"].verdict, found["PKG_TEST_THREADS"].why) == ("not_control", "read by tests only")
    assert found["PKG_BUILD_JOBS"].why == "read while the package is built only"


def test_what_is_only_shown_is_no_control(items):
    found = items('import os\ndef dump_settings():\n    return os.environ.get("MKL_NUM_THREADS", "N/A")\n')
    assert found["MKL_NUM_THREADS"].verdict == "not_control"


def test_a_comment_beside_it_decides_where_the_name_does_not(items):
    found = items(
        """
        import os
        # how many rows are kept in memory before they are spilled
        X = os.environ.get("PKG_KEPT", "10")
        # print stack traces of exceptions while testing
        Y = os.environ.get("PKG_OPT_Y", "0")
        """
    )
    assert found["PKG_KEPT"].verdict == "control"
    assert found["PKG_OPT_Y"].verdict == "not_control"


def test_writes_are_mitigations(items):
    found = items('import os\nos.environ.setdefault("KMP_BLOCKTIME", "1")\n')["KMP_BLOCKTIME"]
    assert found.verdict == "mitigation"
    assert "unless it is set" in found.why


def test_a_table_of_readers_is_not_a_childs_environment(items):
    code = 'import os\nenvironment_variables = {"PKG_THREADS": lambda: int(os.getenv("PKG_THREADS", "3"))}\n'
    assert items(code)["PKG_THREADS"].default == "3"


def test_a_key_of_a_family_has_the_variable_as_an_alias(items):
    found = items(
        {
            "pkg/__init__.py": "",
            "pkg/config.py": """
                import os
                def collect():
                    out = {}
                    for name, value in os.environ.items():
                        if name.startswith("PKG_"):
                            out[name[4:].lower().replace("__", ".")] = value
                    return out
                def get(key, default=None):
                    return collect().get(key, default)
                DEFAULTS = "pkg.yaml"
            """,
            "pkg/pkg.yaml": "worker:\n  memory:\n    target: 0.6  # when to spill\n  title: x\n",
        }
    )
    key = found["worker.memory.target"]
    assert (key.kind, key.verdict, key.default, key.resource) == ("config", "control", "0.6", "memory")
    assert key.aliases == ("PKG_WORKER__MEMORY__TARGET",)
    assert found["worker.title"].verdict == "not_control"


def test_signals_demands_and_mitigations_are_told_apart(items):
    found = items(
        """
        import os
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(max_workers=8)
        def get_num_threads():
            return os.cpu_count()
        def set_num_threads(n):
            global pool
            pool = n
        """
    )
    verdicts = {name: item.verdict for name, item in found.items()}
    assert verdicts["pkg.get_num_threads"] == "signal"
    assert verdicts["pkg.set_num_threads"] == "control"
    assert verdicts["os.cpu_count"] == "signal"
    assert [n for n, v in verdicts.items() if v == "demand"] == [
        "concurrent.futures.ThreadPoolExecutor in pkg/__init__.py"
    ]


def test_a_setter_that_keeps_its_state_in_a_thread_reaches_that_thread(items):
    found = items(
        """
        import threading
        _local = threading.local()
        def _state():
            return _local.__dict__
        def set_config(working_memory=None, verbose=None):
            _state()["working_memory"] = working_memory
        def set_num_threads(n):
            global count
            count = n
        """
    )
    assert found["pkg.set_config"].scope == "thread"
    assert found["pkg.set_config(working_memory=)"].scope == "thread"
    assert found["pkg.set_num_threads"].scope == "process"


def test_the_default_of_an_option_stands_in_the_packages_table(items):
    found = items(
        """
        _settings = {"working_memory": 1024, "n_jobs": None}
        def set_config(working_memory=None, n_jobs=None):
            _settings.update(working_memory=working_memory, n_jobs=n_jobs)
        """
    )
    assert found["pkg.set_config(working_memory=)"].default == "1024 (None)"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def run(image, limit=None):\n    pass\n", "pkg.run(limit=)"),
        ("def get_logs(workers=None):\n    pass\n", "pkg.get_logs(workers=)"),
        ("class WorkerState:\n    def __init__(self, n_threads=None):\n        pass\n", "pkg.WorkerState(n_threads=)"),
    ],
)
def test_parameters_that_only_look_like_controls(items, code, name):
    found = items(code).get(name)
    assert found is None or found.verdict == "not_control"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("set_num_threads", "control"),
        ("set_cache_size", "control"),
        ("set_thread_state", "not_control"),
        ("set_log_buffer_size", "not_control"),
    ],
)
def test_setters_by_what_they_set(items, name, verdict):
    found = items(f"value = 0\ndef {name}(n):\n    global value\n    value = n\n").get(f"pkg.{name}")
    assert (found.verdict if found is not None else "not_control") == verdict


def test_of_many_callables_with_one_parameter_the_others_step_back(items):
    classes = "\n".join(f"class C{i}:\n    def __init__(self, n_jobs=None):\n        pass\n" for i in range(30))
    found = list(items(f'{classes}\nimport os\nx = os.environ.get("PKG_CACHE_SIZE", "1")\n'))
    assert found.index("PKG_CACHE_SIZE") < 12


def test_the_order_does_not_depend_on_anything_but_the_release(items):
    code = 'import os\nx = os.environ.get("PKG_THREADS")\ny = os.environ.get("PKG_CACHE_MB")\n'
    assert list(items(code)) == list(items(code))


# the words of names


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("PKG_NUM_THREADS", "cpu.threads"),
        ("PKG_MEMORY_PER_WORKER", "memory"),
        ("OMP_WAIT_POLICY", "spin"),
        ("KMP_AFFINITY", "cpu.affinity"),
        ("GPU_MEMORY_FRACTION", "gpu.memory"),
        ("pkg.mod.Estimator(n_jobs=)", "cpu.processes"),
        ("pkg.set_process_memory_fraction", "memory"),
        ("scheduler.work-stealing", "scheduler"),
        ("PKG_COMPRESSION", "io"),
        ("PKG_COLOUR", None),
    ],
)
def test_the_last_telling_word_names_the_resource(name, resource):
    assert lexicon.resource_of(name) == resource


@pytest.mark.parametrize(
    ("name", "is_count"),
    [("MAX_WORKERS", True), ("NUM_WORKER", True), ("THREAD_GUARD", False), ("pkg.f(nthread=)", True), ("CPU", False)],
)
def test_a_number_of_workers(name, is_count):
    assert lexicon.counts(name) == is_count


@pytest.mark.parametrize(
    ("text", "is_quantity"),
    [("4", True), ("10MiB", True), ("'5s'", True), ("0.6", True), ("1_000", True), ("auto", False), ("a4", False)],
)
def test_quantities(text, is_quantity):
    assert lexicon.quantity(text) == is_quantity


def test_the_default_of_a_field_is_what_the_field_says(items):
    found = items(
        """
        from dataclasses import dataclass, field
        @dataclass
        class Arguments:
            dataloader_num_workers: int = field(default=3, metadata={"help": "How many."})
            batch_size: int = 8
        """
    )
    assert found["pkg.Arguments(dataloader_num_workers=)"].default == "3"
    assert found["pkg.Arguments(batch_size=)"].default == "8"


def test_what_a_package_offers_counts_wherever_it_is_defined(items):
    code = "class Loader:\n    def __init__(self, num_workers=0):\n        pass\n"
    found = items(
        {
            "pkg/__init__.py": "",
            "pkg/utils/__init__.py": "from pkg.utils.loader import Loader\n",
            "pkg/utils/loader.py": code,
            "pkg/utils/hidden.py": code.replace("Loader", "Other"),
        }
    )
    assert found["pkg.utils.Loader(num_workers=)"].verdict == "control"
    assert found["pkg.utils.hidden.Other(num_workers=)"].verdict == "not_control"
