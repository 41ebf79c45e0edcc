"""What the words of a name say: the resource, what speaks for a control, what speaks against one.

A name is cut into upper-case words joined by `_`, whether it was a variable, a dotted key or a parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(text: str) -> re.Pattern[str]:
    return re.compile(rf"(^|_)({text})(_|$)")


# The resource of an item; the first that matches.
_CLASSES = (
    ("spin", r"SPIN\w*|BLOCKTIME|WAIT_POLICY|BUSY_?WAIT|IDLE_SPIN\w*|YIELDS?"),
    ("cpu.affinity", r"AFFINITY|(PROC|THREAD|CORE)_BIND|BINDING|PINNING|PIN_THREADS?|PLACES|NUMA\w*|CPU_BIND\w*"),
    ("gpu.memory", r"(GPU|CUDA|DEVICE|VRAM|HIP)_(\w+_)?(MEM\w*|ALLOC\w*|POOL)|PREALLOCATE|PIN_MEMORY|PINNED\w*"),
    ("memory", r"MEM(ORY)?_(\w+_)?POOL|POOL_MEMORY"),
    (
        "cpu.threads",
        (
            r"\w*THREADS?|\w*POOLS?|THREADING\w*|THREADPOOLS?|PARALLEL(ISM|IZE|IZATION)?|N?CPUS?|N?CORES?|CPU_COUNT|CONCURREN\w+|OMP|"
            r"OPENMP|EXECUTORS?|INTRA_OP\w*|INTER_OP\w*|NOGIL|POOL_SIZE"
        ),
    ),
    (
        "cpu.processes",
        (
            r"N_?JOBS?|N?WORKERS?|NUM_WORKERS|PROCESS(ES)?|MULTIPROCESSING|N?PROCS?|NPROCESSES|START_METHOD|MP_CONTEXT|MULTIPROCESSING_(CONTEXT|METHOD)|"
            r"FORKSERVER|MAX_JOBS|JOBS|REPLICAS"
        ),
    ),
    ("gpu", r"N?GPUS?|COMPUTE_CAPABILITY|(CUDA|GPU|PTX)_CC|CUDA|DEVICES?|ROCM|HIP|CUDNN|CUBLAS\w*|NCCL\w*|STREAMS"),
    ("cache", r"\w*CACHE(S|D|ABLE|SIZE)?|CACHING|MEMOI[SZ]E|LRU"),
    (
        "memory",
        (
            r"MEM|MEMORY|WORKING_MEMORY|MEMMAP|N?BYTES|BUFFERS?|BUFFERING|BUFFER_?SIZE|BUFSIZE|ARENAS?|MALLOC\w*|JEMALLOC\w*|"
            r"(DE)?ALLOC(S|ATORS?|ATIONS?)?|HEAP|MMAP\w*|SPILL\w*|LOW_MEMORY|GC|RSS|MEM_FRACTION|"
            r"(RE)?CHUNK\w*|BATCH\w*|BLOCK_?SIZE|PAGE_?SIZE|ROW_GROUP\w*|PRE_?DISPATCH|HUGE_?PAGES?|RECYCLE"
        ),
    ),
    (
        "io",
        (
            r"IO|DISK|F?ADVI[SC]E|[FM]ADV\w*|TEMP\w*|TMP\w*|SCRATCH|COMPRESS\w*|CODEC|ZSTD|LZ4|FSYNC|READ_?AHEAD|FETCH\w*|PRE_?FETCH\w*|DOWNLOADS?|"
            r"UPLOADS?|TRANSFERS?|CONNECT\w*|CONNECTIONS?|COMM|TCP|STORAGE|BANDWIDTH|RETRY|RETRIES|BACKLOG|KEEP_?ALIVE|SHARD\w*"
        ),
    ),
    (
        "scheduler",
        (
            r"SCHEDULERS?|SCHEDULING|QUEUE_?(SIZE|LEN\w*|DEPTH|LIMIT|CAPACITY|MAX\w*)|MAX_QUEUE\w*|QUEUED|STEAL\w*|BACKENDS?|ENGINE|LAYER|DISPATCH\w*|N?PARTITIONS?|PARTITION\w*|MORSEL\w*|TASKS_PER\w*|MAX_TASKS\w*|PREFER|"
            r"REQUIRE|FUSE|FUSION|SHUFFLE|STREAMING|SATURATION|INFLIGHT|OCCUPANCY|ADAPTIVE|GRANULARITY|TILE\w*|BLOCKS?"
        ),
    ),
)
_CLASS_PATTERNS = tuple((name, _words(pattern)) for name, pattern in _CLASSES)
# How an engine works, without a resource of its own.
_ENGINE = _words(
    r"OPT|OPTIMI[SZ]\w*|JIT|LLVM|VECTORI[SZ]\w*|SIMD|AVX\w*|SSE\w*|NEON|SVE|MKL\w*|BLAS|LAPACK|ONEDNN|DNNL|XLA|"
    r"COMPUTE|FAST_?MATH|FAST|BOUNDS_?CHECK\w*|CPU_(FEATURES?|TARGETS?|NAME)|TARGET_CPU|ISA|UNROLL\w*|INLINE\w*|LAZY|EAGER|ASYNC\w*|AUTOTUNE\w*|TUNING|TURBO|COMPILE|COMPILATION|PRECOMPILE\w*|"
    r"FLUSH\w*|THRESHOLD|LIMITS?|CAPACITY|BUDGET|INTERVAL|TICK|HEARTBEAT|TTL|DELAY|LATENCY|LINGER|"
    r"MAX_?SIZE|MIN_?SIZE|WINDOW|DEPTH|RECURSION_LIMIT|PRECISION|TF32|HALF|AMP|ACCURACY|PUSHDOWN|PRUN\w*|"
    r"CSE|QUERY_PLAN\w*|PLANNER|REORDER\w*|SORTED|INDEXING|ESTIMATE\w*|COST\w*|SAMPLE_?SIZE|TIMEOUTS?|IDLE|WAIT|SLEEP|MAX_\w+|LOCALITY|"
    r"WORK_?SIZE|WARMUP|ASSUME|EVENT_?LOOP|LIFETIME|RUNTIME_FILTERS?|BLOOM\w*|PROMOTE|COALESCE|REUSE|COPY|PROACTIVE\w*|PICKLE\w*|SERIALI[SZ]\w*"
)
_ROLES = re.compile(r"(?:(?<=_)|^)(WORKERS?|SCHEDULERS?|CLIENT|PROCESS|DEVICES?|EXECUTORS?|ENGINE|BACKENDS?)(?=_|$)")
_COUNTS = _words(
    r"N?_?JOBS?|N_?WORKERS|NUM_WORKERS|MAX_WORKERS|WORKERS?|[^\W_]*THREADS?|N?CPUS?|CPU_COUNT|N?CORES?|N?PROCS?|"
    r"PARALLELISM|CONCURRENCY|NUM_PROC(ESSES)?|INTRA_OP|INTER_OP"
)
_SINGLE = re.compile(r"(^|_)(THREAD|WORKER|CPU|CORE|PROCESS|JOB|PROC)(_|$)")

# What no application sets to run faster. (words, reason, whether a name about resources is excused)
_AGAINST = (
    (
        (
            r"DEBUG\w*|TRACE\w*|TRACING|LOG|LOGS|LOGGING|LOGGER|LOG_?LEVEL|VERBOSE|VERBOSITY|WARN|WARNINGS?|DUMP\w*|PRINT\w*|"
            r"PROFILE|PROFILING|PROFILER|DIAGNOSTICS?|DISPLAY|COLOU?RS?|HIGHLIGHT\w*|SILENCE|QUIET|BANNER|SHOW|PROGRESS\w*|TQDM\w*|"
            r"STACKTRACES?|TRACEBACKS?|TIMINGS|BACKTRACES?|TELEMETRY|ANALYTICS|METRICS?|STATS|STATISTICS_LOG|ERRORS?|ASSERT\w*|DASHBOARD|"
            r"WIDGETS?|HTML|REPR|FMT|FORMAT\w*|EXPLAIN|CRASH\w*|FAULTHANDLER|SYSTEM_MONITOR|MONITORING|SVG|REPORT\w*|EVENTS?_LOG|HISTORY|"
            r"NVTX|RENDER\w*|STYLE\w*|VIZ|VISUALI[SZ]\w*|PLOT\w*|THEME|SYNTAX|TABLE_(WIDTH|HEIGHT|STYLE)"
        ),
        "diagnostics or display: it changes what is shown, not what is taken from the machine",
        False,
    ),
    (
        (
            r"TOKEN|SECRET\w*|PASSWORD|PASSWD|CREDENTIALS?|CERT\w*|AUTH\w*|USERNAME|API_?KEY|ACCESS_KEY|PRIVATE_KEY|SSL\w*|TLS|"
            r"CIPHERS|SECURITY|UNSECURED?|ACCOUNTS?|LICEN[CS]E|ENCRYPT\w*|TRUST\w*"
        ),
        "a credential or about security",
        False,
    ),
    (
        r"TEST|TESTS|TESTING|TESTED|DOCTEST|FUZZ\w*|COVERAGE|MOCK\w*|PYTEST|UNITTEST|RUN_SLOW|CI",
        "for the project's own tests",
        False,
    ),
    (
        r"SEED|INVARIANT|ENV_VARS?|GUARDS?|POISON\w*|TOPOLOGY|DETERMINISTIC|VERSIONS?|SANITI[SZ]\w*|VALIDAT\w*|UPDATE\w*|NOTIF\w*",
        "it changes results, checks or habits, not the use of resources",
        False,
    ),
    (
        (
            r"LEARNING|DROP|DROPOUT|BAGGING|FEATURE_\w+|LEAF|LEAVES|TREES?|LAMBDA|ALPHA|GAMMA|ETA|LOSS|OBJECTIVE|EPOCHS?|"
            r"ITERATIONS?|MAX_ITER|STEPS|LR|DECAY|MOMENTUM|REGULARI\w*|WEIGHTS?|CATEGOR\w+|CAT|ENTROPY|SIGMOID|SUBSAMPLE|"
            r"COLSAMPLE\w*|BOOSTING|DELTA|TOLERANCE|TOL|TEMPERATURE|BEAMS?|SAMPLING_RATE"
        ),
        "a setting of a model or its training, not of resources",
        True,
    ),
    (
        (
            r"BUILD\w*|COMPILER|CC|CXX|\w*CFLAGS|\w*LDFLAGS|INSTALL\w*|SETUP|WHEEL|CMAKE\w*|ARCH_LIST|NVCC\w*|INCLUDE\w*|SDK|"
            r"TOOLCHAIN|LINKER|SYSROOT"
        ),
        "for the build",
        True,
    ),
    (
        (
            r"URL|URI|HOST|HOSTS|HOSTNAMES?|PIDS?|FD|FDS|UID|GID|UMASK|SIGNALS?|PORT|PORTS|ADDR\w*|ENDPOINTS?|PROXY|SERVERS?|INTERFACE|IFNAME|DOMAIN|IP|REGION|"
            r"BUCKET|PROTOCOL|SCHEME|HTTP\w*|WEBHOOK|EMAIL|CONTACT|LINK|PRELOAD\w*|ALLOWED_(HOSTS?|ORIGINS?|IMPORTS?|DOMAINS?|NAMES?|PATHS?|USERS?)"
        ),
        "an address or a name of something",
        True,
    ),
    (
        (
            r"HOME|PATH|PATHS|DIR|DIRS|DIRECTORY|DIRECTORIES|FILE|FILES|FILENAME|CONFIG|ROOT|PREFIX|LIB|LIBRARY|FOLDER|LOCATION|"
            r"INI|CONF|EXECUTABLE|BINARY|BIN|PLUGIN\w*|MODULE\w*"
        ),
        "a place on disk or a module to load",
        True,
    ),
    (
        (
            r"STRICT\w*|DEPRECAT\w*|COMPAT\w*|CHECK|CHECKS|CHECKING|LEGACY|OFFLINE|RAISE\w*|"
            r"ENCODING|TIMEZONE|LOCALE|LANGUAGE|SAFE|UNSAFE|INSECURE|AGREE\w*|CONSENT|OPT_OUT|IGNORE|SKIP\w*|REMOTE_CODE|"
            r"NAME|NAMES|ID|IDS|INDEX|TAG|TAGS|LABELS?|TITLE|EXPERIMENTAL|BETA|NIGHTLY|STYLE|SEPARATOR|QUOTE|EPOCH"
        ),
        "it changes behaviour, checks or names, not the use of resources",
        True,
    ),
)
_REASONS = tuple((_words(pattern), reason, excused) for pattern, reason, excused in _AGAINST)
# What the operating system, a launcher or a hosted machine provides.
_PROVIDED = re.compile(
    r"^(NUMBER_OF_PROCESSORS|PROCESSOR_\w+|HOSTNAME|COMPUTERNAME|USER|USERNAME|LOGNAME|PWD|OLDPWD|XDG_\w+|SHELL|TERM\w*|"
    r"COLUMNS|LINES|TMP|TEMP|TMPDIR|LANG|LC_\w+|TZ|TZDIR|DISPLAY|WAYLAND_DISPLAY|SYSTEMROOT|WINDIR|APPDATA|LOCALAPPDATA|PROGRAMFILES\w*|"
    r"PROGRAMDATA|HOME|USERPROFILE|PATH|EDITOR|VISUAL|PAGER|SSH_\w+|SUDO_\w+|MSYSTEM|OSTYPE|PATHEXT|COMSPEC|"
    r"SLURM_\w+|PBS_\w+|LSB_\w+|LSF_\w+|SGE_\w+|OMPI_\w+|PMI_\w+|PMIX_\w+|MPI_LOCAL\w+|MV2_COMM\w+|FLUX_\w+|TORQUE_\w+|"
    r"CONDA_\w+|MAMBA_\w+|VIRTUAL_ENV|PIPENV_\w+|CI|CI_\w+|GITHUB_\w+|GITLAB_\w+|TRAVIS\w*|APPVEYOR\w*|CIRCLE\w+|TEAMCITY_\w+|"
    r"JENKINS_\w+|TF_BUILD|READTHEDOCS|PYTEST_\w+|PYTHON\w+|KUBERNETES_\w+|POD_\w+|AWS_\w+|AZURE_\w+|GCP_\w+|GOOGLE_\w+|"
    r"GCE_\w+|GAE_\w+|K_SERVICE|FUNCTION_\w+|LAMBDA_\w+|ECS_\w+|SM_\w+|SAGEMAKER_\w+|TRAINING_JOB_\w+|COLAB_\w+|KAGGLE_\w+|"
    r"DATABRICKS_\w+|SPACE_ID|JPY_\w+|JUPYTER\w*|SPYDER\w*|PYCHARM\w*|VSCODE_\w+|NOTEBOOK_\w+|INSIDE_\w+|"
    r"RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_\w+|MASTER_ADDR|MASTER_PORT|"
    r"NNODES|(\w+_)?(RANK|WORLD_SIZE)|JOB_ID|TASK_ID|"
    r"(HTTPS?|FTP|NO|ALL)_PROXY|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|SSL_CERT_\w+|CUDA_(HOME|PATH)|ROCM_(HOME|PATH)|"
    r"LD_\w+|DYLD_\w+|PKG_CONFIG\w*|CARGO\w*|RUSTFLAGS|RUST_BACKTRACE|OUT_DIR|TARGET|PROFILE|NO_COLOR|CLICOLOR\w*|FORCE_COLOR)$",
    re.IGNORECASE,
)
_CARRIED = re.compile(
    r"^(externals?|external_libs|_?vendor(ed)?|third_?party|third-party|3rd_?party|_?extern(al)?|bundled|subprojects|deps|"
    r"dependencies)$",
    re.IGNORECASE,
)
_SCRATCH = _words(r"TEMP\w*|TMP\w*|SCRATCH|SPILL\w*|CACHE|SWAP")
_EXCUSING = frozenset({"cpu.threads", "cpu.processes", "cpu.affinity", "memory", "gpu.memory", "cache"})
_QUANTITY = re.compile(
    r"^-?\d[\d_]*(\.\d+)?(e-?\d+)?\s*"
    r"(%|[kmgt]i?b?|bytes?|ms|us|µs|ns|s|m|min|h|d|sec(onds?)?|minutes?|hours?|days?|milliseconds?)?$",
    re.IGNORECASE,
)


def upper(name: str) -> str:
    """The words of a name in upper case, joined by `_`."""
    return re.sub(r"[\W_]+", "_", _CAMEL.sub("_", name)).strip("_").upper()


def _telling(name: str) -> list[str]:
    """The parts of a name that say what it sets, the most telling first."""
    parameter = re.search(r"([\w.]*)\((\w+)=\)$", name)
    if parameter is not None:
        return [parameter[2], ".".join(parameter[1].split(".")[-2:])]
    parts = name.split(".")
    return [name] if len(parts) == 1 else [parts[-1], *reversed([".".join(parts[-n:]) for n in (3, 2)])]


def resource_of(name: str) -> str | None:
    """The resource that a name speaks of: that of its last telling word; for a dotted name its last component first."""
    for place, text in enumerate(_telling(name)):
        words = re.sub(r"_PER_\w+$", "", upper(text))
        if place:  # what a section is called after is not yet what an option of it sets
            words = _ROLES.sub("_", words)
        best: tuple[int, str] | None = None
        for kind, pattern in _CLASS_PATTERNS:
            end = max((m.end(2) for m in pattern.finditer(words)), default=-1)
            if end >= 0 and (best is None or end > best[0]):
                best = (end, kind)
        if best is not None:
            return best[1]
    return None


def counts(name: str) -> bool:
    """Whether a name is a number of threads, workers or processors."""
    words = upper(_telling(name)[0])
    found = _COUNTS.search(words)
    if found is None:
        return False
    # in the singular it counts after a word for a number: `NUM_WORKER`, but not `THREAD_GUARD`
    return not _SINGLE.fullmatch(found[0].strip("_")) or bool(
        re.search(rf"(^|_)(N|NUM|NB|MAX|MIN|COUNT)_{found[2]}", words)
    )


def carried(folder: str) -> bool:
    """Whether a folder of this name holds other projects' code."""
    return bool(_CARRIED.match(folder))


def provided(name: str) -> bool:
    """Whether a variable comes from the operating system, a launcher or a hosted machine."""
    return bool(_PROVIDED.match(name))


def scratch(name: str) -> bool:
    """Whether a name is that of a place for data that is made again where it is lost."""
    words = upper(name)
    return bool(_SCRATCH.search(words) and re.search(r"(^|_)(DIR|DIRECTORY|FOLDER|LOCATION|PATH)$", words))


def starts_processes(text: str) -> bool:
    """Whether a default is a way to start processes."""
    return text.strip("'\" ").lower() in ("spawn", "fork", "forkserver")


def quantity(text: str) -> bool:
    """Whether a default is a number, a size or a duration."""
    return bool(_QUANTITY.match(text.strip("'\" ")))


_MODIFIERS = frozenset(
    {
        "COUNT",
        "NUM",
        "SIZE",
        "SIZES",
        "LIMIT",
        "LIMITS",
        "MAX",
        "MIN",
        "MAXIMUM",
        "MINIMUM",
        "BYTES",
        "KB",
        "MB",
        "GB",
        "MIB",
        "GIB",
        "POLICY",
        "MODE",
        "LEVEL",
        "ENABLED",
        "ENABLE",
        "DISABLED",
        "FRACTION",
        "RATIO",
        "PERCENT",
        "THRESHOLD",
        "CAPACITY",
        "USED",
        "USE",
        "TOTAL",
        "DEFAULT",
        "S",
        "MS",
        "US",
        "SECS",
        "SECONDS",
        "MINUTES",
        "TIMEOUT",
        "TTL",
        "INTERVAL",
        "TARGET",
        "PER",
        "WORKER",
        "NODE",
        "HIGH",
        "LOW",
        "FACTOR",
        "BUDGET",
        "RESERVE",
        "STRATEGY",
        "TYPE",
        "METHOD",
        "KIND",
        "OFF",
        "PRIORITY",
        "ON",
    }
)


def headed(name: str) -> bool:
    """Whether the word that a name is about, its last without modifiers, speaks of a resource."""
    words = upper(_telling(name)[0]).split("_")
    tails = {"_".join(words[-n:]) for n in (1, 2, 3)}
    while len(words) > 1 and words[-1] in _MODIFIERS:
        words.pop()
    tails |= {words[-1], "_".join(words[-2:])}
    return counts(name) or any(p.fullmatch(tail) for _, p in _CLASS_PATTERNS for tail in tails)


_CLASS_PATH = re.compile(r"^['\"]?[A-Za-z_]\w*(\.\w+)*([.:][A-Z]\w*)['\"]?$|^(staticmethod|classmethod|lambda)\b")


def loads(text: str) -> bool:
    """Whether a default names a class or is a function: something to load or call, not a value to tune."""
    return bool(_CLASS_PATH.match(text))


_SPEAKS_FOR = re.compile(
    r"\b(performance|faster|slower|slow|speed\w*|throughput|latency|parallel\w*|multi-?thread\w*|threads?|workers|"
    r"processes|cpus?|cores?|memory|ram|caches?|cached|caching|buffer\w*|batch\w*|chunk\w*|concurren\w+|spill\w*|"
    r"pre-?fetch\w*|compress\w*|bytes|megabytes|mib|gib|overhead|optimi[sz]\w*|schedul\w+|queue\w*|block sizes?|"
    r"vectori[sz]\w*|simd|gpu|pools?|spin\w*|affinity|numa|allocat\w+|bandwidth|overlap\w*|fus(?:e|ed|ion)|inlin\w+|"
    r"unroll\w*|jit|compilation|load[- ]balanc\w*|steal\w*|expensive|costs?|back ?pressure|saturat\w+|row groups?|"
    r"partitions?)\b",
    re.IGNORECASE,
)
_SPEAKS_AGAINST = re.compile(
    r"\b(debug\w*|logs?|logged|logging|print(?:s|ed|ing)?|dump(?:s|ed|ing)?|warn\w*|messages?|display\w*|"
    r"progress bars?|tests?|testing|deprecated|developers?|diagnos\w+|assert\w*|validat\w*|url|"
    r"colou?rs?|telemetry|verbos\w+|trac(?:e|es|ing|eback)|stack traces?|annotat\w+|names? of|"
    r"path to|location of|security|authenticat\w+|html|"
    r"pretty|profil(?:e|er|ing)|inspect\w*|exceptions?|errors?|crash\w*|highlight\w*|dashboard|show(?:s|n)?)\b",
    re.IGNORECASE,
)


def shown(name: str) -> bool:
    """Whether a name speaks of diagnostics, display, credentials or tests."""
    return any(pattern.search(upper(name)) for pattern, _, _ in _REASONS[:3])


def describes(text: str) -> int:
    """How clearly a description speaks of performance: distinct words for it less twice those against it."""
    given = {m[1].lower() for m in _SPEAKS_FOR.finditer(text)}
    against = {m[1].lower() for m in _SPEAKS_AGAINST.finditer(text)}
    return len(given) - 2 * len(against)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a name says.

    Attributes:
        resource: that it speaks of, or None.
        engine: it speaks of how an engine works.
        against: why it is no control, or "".
    """

    resource: str | None
    engine: bool
    against: str


def read(name: str, *, key: bool = False) -> Reading:
    """Read the words of a variable or, with `key`, of a dotted configuration key."""
    words = upper(name)
    resource = resource_of(name) if key else resource_of(words)
    engine = bool(_ENGINE.search(words))
    if not key and provided(name):
        return Reading(resource, engine, "provided by the operating system, a launcher or a hosted machine: a fact")
    for pattern, reason, excused in _REASONS:
        if not pattern.search(words):
            continue
        if excused and _excused(name, words, reason, Reading(resource, engine, "")):
            continue
        return Reading(resource, engine, reason)
    return Reading(resource, engine, "")


def _excused(name: str, words: str, reason: str, reading: Reading) -> bool:
    """Whether what a name says about resources outweighs a word against it."""
    if reason.startswith("a place"):
        options = words.endswith(("_CONF", "_CONFIG")) and reading.resource in _EXCUSING
        code = re.search(r"(^|_)(MODULES?|PLUGINS?|LIBRARY)(_|$)", words)
        # a name ends in what it holds: `X_FILE` is a place, `FILE_X` a property of files
        property_ = not re.search(
            r"(^|_)(DIRS?|DIRECTOR(Y|IES)|PATHS?|FILES?|FILENAME|HOME|ROOT|FOLDER|LOCATION|LIB|CONF|CONFIG|INI)$", words
        )
        if property_ and code is None and reading.resource is not None and ("." not in name or headed(name)):
            return True
        return options or bool(_SCRATCH.search(words) and code is None)  # where scratch data goes does matter
    if reading.resource in _EXCUSING and headed(name):
        return True
    if reason == "for the build":
        return reading.resource is not None or reading.engine
    return reading.engine and reason.startswith("it changes")
