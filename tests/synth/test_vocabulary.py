"""Names: which two are one control, which are none, and what they speak of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import expr
from lpcl.check import RESOURCES
from synth import vocabulary as v

# ------------------------------------------------------------------- one stem


@pytest.mark.parametrize(
    ("names", "stem"),
    [
        (
            [
                "nthreads",
                "n_threads",
                "n_thread",
                "nb_threads",
                "num_threads",
                "NumThreads",
                "numThreads",
                "NThreads",
                "threads",
                "thread_count",
                "_nthreads",
                "get_num_threads",
                "set_num_threads",
                "numexpr.set_num_threads",
                "numexpr.utils.get_num_threads",
                "NUMEXPR_NUM_THREADS",
                "numexpr_default_number_of_threads",
            ],
            {"thread"},
        ),
        (["n_jobs", "njobs", "num_jobs", "JOBS", "NUMEXPR_JOBS"], {"job"}),
        (["ncores", "n_cores", "NUM_CORES"], {"core"}),
        (["nworkers", "n_workers", "numWorkers"], {"worker"}),
        (["NUMEXPR_MAX_THREADS", "max_threads", "maxThreads", "set_max_threads"], {"max", "thread"}),
        (["set_vml_num_threads", "NUMEXPR_VML_THREADS"], {"vml", "thread"}),
    ],
)
def test_names_of_one_control(names, stem):
    assert {name: v.stem(name, "numexpr") for name in names} == dict.fromkeys(names, frozenset(stem))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("num_threads", "max_threads"),
        ("num_threads", "num_jobs"),
        ("num_threads", "vml_num_threads"),
        ("OMP_NUM_THREADS", "NUMEXPR_NUM_THREADS"),  # another library's
        ("num_threads", "thread_name"),
        ("io_threads", "num_threads"),
    ],
)
def test_names_of_two_controls(one, other):
    assert v.stem(one, "numexpr") != v.stem(other, "numexpr")


def test_the_package_s_own_name_says_nothing_new():
    assert v.stem("SCIKIT_LEARN_NUM_THREADS", "scikit-learn") == v.stem("num_threads", "scikit-learn")
    # but a name that holds nothing else keeps it
    assert v.stem("NUMEXPR", "numexpr") == {"numexpr"}
    assert v.stem("num", "numexpr") == {"num"}


@pytest.mark.parametrize(
    ("name", "package", "short"),
    [
        ("NUMEXPR_NUM_THREADS", "numexpr", "threads"),
        ("NUMEXPR_MAX_THREADS", "numexpr", "max_threads"),
        ("numexpr.set_vml_num_threads", "numexpr", "vml_threads"),
        ("JOBLIB_TEMP_FOLDER", "joblib", "temp_folder"),
        ("n_jobs", "joblib", "jobs"),
        ("chunkSize", "x", "chunk_size"),
        ("NUM", "numexpr", "num"),
    ],
)
def test_short_names(name, package, short):
    assert v.short(name, package) == short


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_name(name, package):
    assert v.stem(name, package) == v.stem(name, package)
    assert isinstance(v.short(name, package), str)
    assert v.resource_of(name) is None or v.resource_of(name) in RESOURCES
    fact = v.fact_of(name)
    assert fact is None or fact.removeprefix("machine.") in expr.MACHINE_FACTS


# ------------------------------------------------------------- no controls, why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        # look-alikes of case 35
        ("NPY_NUM_BUILD_JOBS", "for the build"),
        ("JAX_TEST_NUM_THREADS", "for the project's own tests"),
        ("NUMBA_PARALLEL_DIAGNOSTICS", "diagnostics"),
        ("SC_NPROCESSORS_ONLN", "its name speaks of no resource"),
        # facts
        ("NUMBER_OF_PROCESSORS", "provided by the operating system or a launcher"),
        ("PROCESSOR_ARCHITECTURE", "provided by"),
        ("HOSTNAME", "provided by"),
        ("TMPDIR", "provided by"),
        ("CONDA_PREFIX", "provided by"),
        ("CI", "provided by"),
        ("GITHUB_ACTIONS", "provided by"),
        ("PYTEST_XDIST_WORKER_COUNT", "provided by"),
        ("PYTHONHASHSEED", "provided by"),
        ("PYTHON_CPU_COUNT", "provided by"),
        ("LC_ALL", "provided by"),
        # what is printed
        ("NUMEXPR_DEBUG", "diagnostics"),
        ("PKG_THREADS_DEBUG", "diagnostics"),
        ("PKG_LOG_LEVEL", "diagnostics"),
        ("PKG_VERBOSE", "diagnostics"),
        ("PKG_PROFILE_MEMORY", "diagnostics"),
        ("PKG_DUMP_CACHE", "diagnostics"),
        # secrets and addresses
        ("HF_TOKEN", "a credential"),
        ("PKG_API_KEY", "a credential"),
        ("PKG_WORKER_PASSWORD", "a credential"),
        ("PKG_URL", "an address"),
        ("PKG_WORKER_HOST", "an address"),
        ("PKG_WORKER_PORT", "an address"),
        ("HTTPS_PROXY", "an address"),
        # tests and builds
        ("PKG_TEST_JOBS", "for the project's own tests"),
        ("PKG_BENCHMARK_THREADS", "for the project's own tests"),
        ("CMAKE_BUILD_PARALLEL_LEVEL", "for the build"),
        ("PKG_BUILD_CORES", "for the build"),
        ("PKG_CC", "for the build"),
        # behaviour
        ("NUMEXPR_SANITIZE", "it changes behaviour or checks"),
        ("PKG_NO_THREADS_CHECK", "it changes behaviour or checks"),
        ("PKG_SEED", "it changes behaviour or checks"),
        # places
        ("PKG_DATA_DIR", "a place on disk"),
        ("PKG_CONFIG", "a place on disk"),
        ("HOME", "a place on disk"),
        # nothing known
        ("PKG_FOO", "its name speaks of no resource"),
        ("LD_PRELOAD", "its name speaks of no resource"),
        ("_", "its name speaks of no resource"),
        ("", "its name speaks of no resource"),
    ],
)
def test_rejected(name, why):
    reason = v.rejected(name)
    assert reason is not None
    assert reason.startswith(why)


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("NUMEXPR_NUM_THREADS", "cpu.threads"),
        ("NUMEXPR_MAX_THREADS", "cpu.threads"),
        ("OMP_NUM_THREADS", "cpu.threads"),
        ("POLARS_MAX_THREADS", "cpu.threads"),
        ("NUMBA_THREADING_LAYER", "cpu.threads"),
        ("TOKENIZERS_PARALLELISM", "cpu.threads"),
        ("LOKY_MAX_CPU_COUNT", "cpu.threads"),
        ("pkgNumThreads", "cpu.threads"),
        ("VECLIB_MAXIMUM_THREADS", "cpu.threads"),
        ("JOBLIB_START_METHOD", "cpu.processes"),
        ("PKG_WORKERS", "cpu.processes"),
        ("PKG_N_JOBS", "cpu.processes"),
        ("CUDA_VISIBLE_DEVICES", "gpu.devices"),
        ("MALLOC_ARENA_MAX", "memory.bytes"),
        ("JOBLIB_TEMP_FOLDER", "memory.bytes"),
        ("PKG_CACHE_DIR", "memory.bytes"),  # where a cache lies decides what it costs
        ("PKG_CHUNK_SIZE", "memory.bytes"),
        ("KMP_AFFINITY", "cpu.time"),
        ("PKG_SPIN_COUNT", "cpu.time"),
        ("PKG_BACKEND", "cpu.time"),
        # the forbidden word is only a part of another
        ("PKG_TOKENIZER_THREADS", "cpu.threads"),
        ("PKG_PORTABLE_THREADS", "cpu.threads"),
        ("PKG_KEYED_CACHE", "memory.bytes"),
        ("PKG_LATEST_BUFFER", "memory.bytes"),
    ],
)
def test_controls(name, resource):
    assert v.rejected(name) is None
    assert v.resource_of(name) == resource
    assert resource in RESOURCES


def test_block_time_is_a_time():
    assert v.resource_of("KMP_BLOCKTIME") == "cpu.time"


@pytest.mark.parametrize("name", ["SLURM_CPUS_PER_TASK", "SLURM_NPROCS", "PBS_NUM_PROCS"])
def test_what_a_batch_system_provides(name):
    assert v.provided(name)


@pytest.mark.parametrize(
    ("probe", "fact"),
    [
        ("os.cpu_count", "machine.online"),
        ("multiprocessing.cpu_count", "machine.online"),
        ("sysconf(_SC_NPROCESSORS_ONLN)", "machine.online"),
        ("get_nprocs", "machine.online"),
        ("num_cpus::get", "machine.online"),
        ("sysconf(_SC_NPROCESSORS_CONF)", "machine.logical"),
        ("get_nprocs_conf", "machine.logical"),
        ("os.sched_getaffinity", "machine.affinity"),
        ("os.process_cpu_count", "machine.affinity"),
        ("omp_get_num_procs", "machine.affinity"),
        ("std::thread::hardware_concurrency", "machine.affinity"),
        ("/sys/fs/cgroup/cpu.max", "machine.quota"),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "machine.quota"),
        ("num_cpus::get_physical", "machine.physical"),
        ("/proc/cpuinfo", "machine.physical"),
        ("psutil.virtual_memory", "machine.memory"),
        ("time.time", None),
        ("", None),
    ],
)
def test_facts_behind_probes(probe, fact):
    assert v.fact_of(probe) == fact
