"""Words by which names tell that they are about the resources of a machine."""

from __future__ import annotations

import re

# one component of a snake_case or camelCase name each
_POOLS = (
    r"n?_?threads?|nthreads?|threading|threadpools?|n?_?workers?|n?_?jobs|njobs|nproc|nprocs|procs?|process(es)?|"
    r"cpus?|ncpus?|cores?|ncores?|parallel|parallelism|concurrent|concurrency|pools?|executors?|schedulers?|"
    r"openmp|omp|blas|gpus?|devices?|affinity|numa|streams?|shards?|replicas?"
)
_MEMORY = (
    r"mem|memory|memmap|mmap|nbytes|cache|caches|cached|buffers?|buffering|prealloc\w*|preallocate|arenas?|allocator|"
    r"spill|swap|pinned|heap|quota|limits?|capacity|budget"
)
_WORK = (
    r"batch|batches|batched|batchsize|chunks?|chunked|chunksize|blocks?|blocksize|prefetch|prefetcher|queues?|backlog|"
    r"partitions?|npartitions|tiles?|granularity|split|compress|compression|codec|shuffle"
)
_ENGINE = (
    r"backends?|engine|jit|nogil|gil|vectorize|simd|avx\d*|fast_?math|optimi[sz]e|optimi[sz]ations?|opt|accuracy|"
    r"precision|spin|idle|timeout|lazy|eager|streaming|fuse|fusion|pipeline"
)
_SIZE_VERBS = re.compile(r"^(set|reduce|limit|resize|shrink|trim)_(\w+_)?(size|bytes)(_|$)")
_STRONG = re.compile(rf"(^|_)({_POOLS}|{_MEMORY}|{_WORK})(_|$)")
_POOL = re.compile(rf"(^|_)({_POOLS})(_|$)")
_ANY = re.compile(rf"(^|_)({_POOLS}|{_MEMORY}|{_WORK}|{_ENGINE})(_|$)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UPPER = re.compile(r"THREAD|JOBS|WORKER|PROC|CPU|CORE|PARALLEL|CONCURREN|MEM|CACHE|CHUNK|BATCH|BUFFER|POOL|GPU|DEVICE")

# parameter names that are controls of performance wherever they stand
_COUNT = re.compile(
    r"^(n_?jobs|n_?threads?|nthreads?|num_?threads|threads|thread_count|max_threads|threads_per_\w+|"
    r"(?!use_|has_|is_)\w+_threads|inter_op\w*|intra_op\w*|"
    r"(n|num|nb|max|min|io|cpu|data|inner|default|total|initial)?_?workers|workers_per_\w+|processes|"
    r"\w+_(num|max)_(workers|threads|proc|procs|processes|cpus)|num_\w+_(workers|threads)|"
    r"n_?proc(s|esses)?|num_?proc(s|esses)?|max_processes|n_?cpus?|num_?cpus?|cpus|ncores|n_?cores|num_?cores|cores|"
    r"n_?gpus|num_?gpus|parallelism|concurrency|max_(concurrency|concurrent_\w+|inflight\w*)|pool_size|use_threads|"
    r"multi_?thread\w*|max_n?bytes|n_?streams|pool_threads)$",
    re.IGNORECASE,
)
# names that also stand for data: controls only where they have a default
_CHOICE = re.compile(
    r"^(parallel|pool|executor|scheduler|backend|device|devices|gpu_id|engine|(pre_?)?dispatch|"
    r"(\w+_)?batch_?size|(\w+_)?chunk_?size|chunks|(\w+_)?block_?size|block_shape|chunk_shape|mmap\w*|memory_map|"
    r"(use|allow|enable)_mmap|low_memory|memory|(\w+_)?memory|memory_limit|max_mem\w*|mem_limit|(\w+_)?cache_?size|"
    r"cache|(use|enable|disable)_cache|cache_capacity|(\w+_)?buffer_?size|buffering|prefetch\w*|queue_size|"
    r"max_?queue\w*|compress|compression(_level)?|copy(_\w)?|(use|enable|allow)_\w*(parallel|threads?)\w*|"
    r"nogil|fast_?math|jit|streaming|split_\w*(groups|chunks|blocks)|npartitions|limits?|pin_memory|"
    r"persistent_workers|\w+_(prefetch_factor|pin_memory|persistent_workers)|cpu_affinity|start_method|mp_context|spill\w*|(temp|tmp|spill|scratch)_(folder|dir\w*)|"
    r"optimi[sz]ations?|bounds_?check|inline|(worker|idle|thread)_\w*timeout)$",
    re.IGNORECASE,
)


_REPORT = re.compile(
    r"(^|_)(n?_?threads?|nthreads?|threading|threadpools?|n?_?workers?|n?_?jobs|nproc|nprocs|cpus?|ncpus?|cores?|ncores?|"
    r"parallelism|concurrency|pool|executor|scheduler|openmp|blas|gpus?|working_memory|memory_(limit|usage|info)|"
    r"cache_(size|info)|mem_limit|chunk_?size|batch_?size|config)(_|$)"
)


def reports_resources(name: str) -> bool:
    """Whether what a function of this name returns is a size or state of a pool, a limit or a configuration."""
    return bool(_REPORT.search(parts_of(name)))


def parts_of(name: str) -> str:
    """A name in snake case, for the patterns here."""
    return _CAMEL.sub("_", name).lower().replace(".", "_").strip("_")


def about_pools(name: str) -> bool:
    """Whether a name speaks of threads, workers or processors."""
    return bool(_POOL.search(parts_of(name)))


def about_resources(name: str) -> bool:
    """Whether a name speaks of pools, memory or units of work."""
    parts = parts_of(name)
    return bool(_STRONG.search(parts) or _SIZE_VERBS.search(parts))


def about_performance(name: str) -> bool:
    """Whether a name speaks of resources or of how an engine works."""
    return bool(_ANY.search(parts_of(name)))


def resource_constant(name: str) -> bool:
    """Whether an upper-case identifier speaks of resources."""
    return bool(_UPPER.search(name))


def counting_parameter(name: str) -> bool:
    """Whether a parameter of this name is a number of threads, workers, jobs or the like."""
    return bool(_COUNT.match(name))


def control_parameter(name: str) -> bool:
    """Whether a parameter of this name is a control of performance, given that it has a default."""
    return bool(_COUNT.match(name) or _CHOICE.match(name))
