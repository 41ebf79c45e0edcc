"""The words by which the rule drafter tells controls from look-alikes, and the machine facts behind probes."""

from __future__ import annotations

import re

# What the operating system or a launcher provides: facts that a library reads, not controls of the library.
_PROVIDED = re.compile(
    r"^(NUMBER_OF_PROCESSORS|PROCESSOR_\w+|HOSTNAME|COMPUTERNAME|USER|USERNAME|LOGNAME|PWD|TMP|TEMP|TMPDIR|"
    r"XDG_\w+|SHELL|TERM|COLUMNS|LINES|LANG|LC_\w+|TZ|DISPLAY|SYSTEMROOT|WINDIR|APPDATA|LOCALAPPDATA|PROGRAMFILES\w*|"
    r"SLURM_\w+|PBS_\w+|LSB_\w+|SGE_\w+|CONDA_\w+|VIRTUAL_ENV|CI|GITHUB_\w+|READTHEDOCS|PYTEST_\w+|PYTHON\w+)$"
)
_NOT_PERFORMANCE = (
    (
        re.compile(
            r"(^|_)(DEBUG\w*|TRACE\w*|LOG|LOGS|LOGGING|LOGLEVEL|VERBOSE|VERBOSITY|WARN|WARNINGS?|DUMP\w*|PRINT|PROFILE|"
            r"PROFILING|DIAGNOSTICS?|DISPLAY|COLOR|SILENCE|QUIET|BANNER)(_|$)"
        ),
        "diagnostics: it changes what is printed, not what is taken from the machine",
    ),
    (re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|CREDENTIALS?|CERT|AUTH|USERNAME)(_|$)"), "a credential"),
    (re.compile(r"(^|_)(URL|URI|HOST|HOSTNAME|PORT|ADDRESS|ENDPOINT|PROXY|SERVER|INTERFACE)(_|$)"), "an address"),
    (re.compile(r"(^|_)(TEST|TESTS|TESTING|BENCHMARK|FUZZ|COVERAGE)(_|$)"), "for the project's own tests"),
    (re.compile(r"(^|_)(BUILD\w*|COMPILER?|CC|CXX|CFLAGS|LDFLAGS|INSTALL|SETUP|WHEEL|CMAKE\w*)(_|$)"), "for the build"),
    (
        re.compile(
            r"(^|_)(SANITIZE|SANITISE|STRICT|DEPRECAT\w*|VERSION|COMPAT\w*|EXPERIMENTAL|VALIDATE|CHECK\w*|SEED)(_|$)"
        ),
        "it changes behaviour or checks, not the use of resources",
    ),
    (
        re.compile(r"(^|_)(HOME|PATH|DIR|DIRECTORY|FILE|FILENAME|CONFIG|ROOT|PREFIX|LIB|LIBRARY)(_|$)"),
        "a place on disk",
    ),
)
_RESOURCES = (
    (re.compile(r"(^|_)\w*THREADS?\w*(_|$)|(^|_)(PARALLEL\w*|CPUS?|CORES?|CONCURREN\w+|NUM_PROCS?|OMP)(_|$)"), "cpu.threads"),
    (re.compile(r"(^|_)(JOBS?|N?WORKERS?|PROCESS(ES)?|MULTIPROCESSING|NPROCS?|EXECUTORS?|DEPTH|START_METHOD)(_|$)"), "cpu.processes"),
    (re.compile(r"(^|_)(GPUS?|CUDA|DEVICES?|ROCM|HIP)(_|$)"), "gpu.devices"),
    (
        re.compile(r"(^|_)(MEM\w*|CACHE\w*|BUFFER\w*|ARENAS?|MALLOC|ALLOCATOR|SPILL\w*|BYTES|NBYTES|MMAP|HEAP|TEMP_FOLDER|PICKLER)(_|$)"),
        "memory.bytes",
    ),
    (re.compile(r"(^|_)(CHUNK\w*|BATCH\w*|BLOCKS?|BLOCK_?SIZE|MORSEL\w*|PREFETCH\w*|QUEUE\w*|PARTITIONS?|TILE\w*)(_|$)"), "memory.bytes"),
    (re.compile(r"(^|_)(SPIN\w*|WAIT\w*|BLOCKTIME|IDLE|AFFINITY|BIND|PIN\w*|PLACES|NUMA|TIMEOUT|BACKEND|ENGINE|LAYER|SCHEDUL\w+)(_|$)"), "cpu.time"),
)  # fmt: skip
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FILLERS = frozenset(
    {"num", "n", "nb", "number", "of", "the", "get", "set", "count", "default", "env", "to", "current", "nr"}
)

# Machine fact behind a probe, the first that matches.
_PROBES = (
    (re.compile(r"cgroup|cfs_quota|cpu\.max"), "machine.quota"),
    (re.compile(r"affinity|available_parallelism|process_cpu_count|omp_get_(num_procs|max_threads)|hardware_concurrency"), "machine.affinity"),
    (re.compile(r"NPROCESSORS_ONLN|os\.cpu_count|multiprocessing\.cpu_count|get_nprocs\b|num_cpus::get\b"), "machine.online"),
    (re.compile(r"NPROCESSORS_CONF|get_nprocs_conf"), "machine.logical"),
    (re.compile(r"physical|cpuinfo"), "machine.physical"),
    (re.compile(r"virtual_memory|SC_PHYS_PAGES|meminfo"), "machine.memory"),
)  # fmt: skip


def plain_words(name: str) -> tuple[str, ...]:
    """The words of a name, lower case, with `nthreads` taken apart: `NUMEXPR_NUM_THREADS` -> numexpr, num, threads."""
    parts = _CAMEL.sub("_", name.rsplit(".", 1)[-1]).lower().strip("_").split("_")
    joined = {"nthreads", "nthread", "njobs", "nproc", "nprocs", "ncores", "nworkers"}
    return tuple(p[1:] if p in joined else p for p in parts if p)


def _singular(word: str) -> str:
    return word if word.endswith("ss") else word.removesuffix("s")


def words(name: str) -> tuple[str, ...]:
    """As `plain_words`, in the singular, so that `n_thread` and `nthreads` compare equal."""
    return tuple(_singular(w) for w in plain_words(name))


def short(name: str, package: str) -> str:
    """A clause name: the words of a name that say what it is about."""
    about = stem(name, package)
    return "_".join(w for w in plain_words(name) if _singular(w) in about) or "_".join(plain_words(name))


def stem(name: str, package: str) -> frozenset[str]:
    """What a name is about, without fillers and the package's own name: two names with one stem are one control."""
    own = set(words(package.replace("-", "_")))
    found = frozenset(w for w in words(name) if w not in _FILLERS and w not in own)
    return found or frozenset(words(name))


def provided(name: str) -> bool:
    """Whether a variable comes from the operating system or a launcher."""
    return bool(_PROVIDED.match(name))


def resource_of(name: str) -> str | None:
    """The resource that a name speaks of, or None."""
    upper = _CAMEL.sub("_", name).upper().replace(".", "_")
    return next((resource for pattern, resource in _RESOURCES if pattern.search(upper)), None)


def rejected(name: str) -> str | None:
    """Why a variable is no performance control, or None if it looks like one."""
    if provided(name):
        return "provided by the operating system or a launcher: a fact, not a control"
    resource = resource_of(name)
    for pattern, reason in _NOT_PERFORMANCE:
        if pattern.search(name.upper()) and not (reason == "a place on disk" and resource == "memory.bytes"):
            return reason
    return None if resource else "its name speaks of no resource"


def fact_of(probe: str) -> str | None:
    """`os.sched_getaffinity` -> `machine.affinity`."""
    return next((fact for pattern, fact in _PROBES if pattern.search(probe)), None)
