"""Facts about the machine as a process here may use it: CPUs, quota, memory, and what the kernel can tell.

Every reader takes the root of the file system that it reads, so that a test can point it at a made-up tree.
"""

from __future__ import annotations

import math
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lpcl.expr import Value

_ROOT = Path("/")
# cgroup v1 writes "no limit" as the largest page-aligned number.
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Facts:
    """What contracts may ask of a machine, and a little more for reports.

    Attributes:
        logical: CPUs that exist; online: CPUs that are up; affinity: CPUs in this process's mask; physical: cores.
        quota_cores: CPU quota of the cgroup in cores, None if unlimited.
        memory_bytes: total; memory_limit_bytes: cgroup limit, None if unlimited. numa_nodes: count.
        sources: fact name -> the file or call it came from.
    """

    logical: int
    online: int
    affinity: int
    physical: int
    quota_cores: float | None
    memory_bytes: int
    memory_limit_bytes: int | None
    numa_nodes: int
    cpu_model: str = ""
    kernel: str = ""
    psi: bool = False
    schedstat: bool = False
    os: str = ""
    arch: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        """CPUs usable at once; see `usable_cores`."""
        return usable_cores(self.affinity, self.quota_cores)

    def values(self) -> dict[str, Value]:
        """Name as in `machine.NAME` -> value."""
        return {
            "logical": self.logical,
            "online": self.online,
            "affinity": self.affinity,
            "physical": self.physical,
            "quota": self.quota_cores,
            "cores": self.cores,
            "memory": self.memory_bytes,
            "memory_limit": self.memory_limit_bytes,
            "numa_nodes": self.numa_nodes,
            "gpus": None,
            "os": self.os or None,
            "arch": self.arch or None,
        }


def usable_cores(affinity_cpus: int, quota: float | None) -> int:
    """CPUs that a process can use at once: those of its mask, capped by the quota (rounded up), at least 1."""
    return max(1, affinity_cpus if quota is None else min(affinity_cpus, math.ceil(quota)))


class Mount(NamedTuple):
    """One cgroup file system.

    Attributes:
        version: 1 or 2.
        point: where it is mounted; top: the group that is mounted there (`/` but in some containers).
        controllers: of version 1.
    """

    version: int
    point: PurePosixPath
    top: PurePosixPath
    controllers: frozenset[str]


class Limit(NamedTuple):
    """A limit and the file that it came from (empty without a limit)."""

    value: float | None
    source: str


def facts(root: Path = _ROOT) -> Facts:
    """Read the facts about this machine.

    Args:
        root: what to take as the root of the file system.

    Returns:
        The facts, with the source of each. What cannot be read falls back to the next best source, in the end
        to one CPU and no limit.
    """
    online = _cpu_list(root, "sys/devices/system/cpu/online") or _cpuinfo_cpus(root) or [0]
    present = _cpu_list(root, "sys/devices/system/cpu/present") or online
    allowed, affinity_source = affinity(root, online)
    cores, cores_source = physical_cores(root, online)
    quota = quota_cores(root)
    memory = memory_bytes(root)
    limit = memory_limit_bytes(root)
    # A "limit" at or above what the machine has limits nothing.
    limited = limit.value is not None and (memory == 0 or limit.value < memory)
    sources = {
        "logical": "/sys/devices/system/cpu/present",
        "online": "/sys/devices/system/cpu/online",
        "affinity": affinity_source,
        "physical": cores_source,
        "quota_cores": quota.source,
        "memory_bytes": "/proc/meminfo",
        "memory_limit_bytes": limit.source if limited else "",
        "numa_nodes": "/sys/devices/system/node",
        "cpu_model": "/proc/cpuinfo",
        "kernel": "/proc/sys/kernel/osrelease",
        "psi": "/proc/pressure/cpu",
        "schedstat": "/proc/self/schedstat",
        "os": "uname",
        "arch": "uname",
    }
    return Facts(
        logical=len(present),
        online=len(online),
        affinity=len(allowed),
        physical=cores,
        quota_cores=quota.value,
        memory_bytes=memory,
        memory_limit_bytes=int(limit.value) if limited and limit.value is not None else None,
        numa_nodes=numa_nodes(root),
        cpu_model=cpu_model(root),
        kernel=_text(root, "proc/sys/kernel/osrelease").strip(),
        psi=_text(root, "proc/pressure/cpu").startswith("some"),
        # Without scheduler statistics the file is missing or all zero, and this process has run.
        schedstat=_text(root, "proc/self/schedstat").split()[:1] not in ([], ["0"]),
        os=platform.system().lower(),
        arch=platform.machine(),
        sources={fact: source for fact, source in sources.items() if source},
    )


def parse_cpu_list(text: str) -> list[int]:
    """CPU numbers of a list in the kernel's notation, such as `0-3,8,10-11`; empty if it is not one."""
    found: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            return []
        first = int(match[1])
        found.extend(range(first, int(match[2] or first) + 1))
    return found


def affinity(root: Path, online: list[int]) -> tuple[list[int], str]:
    """CPUs in this process's mask (cpusets of cgroups are in it), and the source."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", _text(root, "proc/self/status"), re.MULTILINE)
    if match is not None and (allowed := parse_cpu_list(match[1])):
        return allowed, "/proc/self/status"
    if root == _ROOT:
        return sorted(os.sched_getaffinity(0)), "sched_getaffinity"
    return online, "/sys/devices/system/cpu/online"


def physical_cores(root: Path, online: list[int]) -> tuple[int, str]:
    """Cores among the online CPUs: threads of one core (SMT) count once; and the source."""
    cores = set()
    for cpu in online:
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _text(root, f"{folder}/thread_siblings_list").strip()
        package = _text(root, f"{folder}/physical_package_id").strip()
        core = _text(root, f"{folder}/core_id").strip()
        if siblings:
            cores.add(siblings)
        elif core:
            cores.add(f"{package}/{core}")
    if cores:
        return len(cores), "/sys/devices/system/cpu/cpu*/topology"
    for block in _text(root, "proc/cpuinfo").split("\n\n"):
        package_id = re.search(r"^physical id\s*:\s*(\d+)", block, re.MULTILINE)
        core_id = re.search(r"^core id\s*:\s*(\d+)", block, re.MULTILINE)
        if core_id is not None:
            cores.add(f"{package_id[1] if package_id else 0}/{core_id[1]}")
    if cores:
        return len(cores), "/proc/cpuinfo"
    return len(online), "/sys/devices/system/cpu/online"


def numa_nodes(root: Path = _ROOT) -> int:
    """NUMA nodes that are online, at least 1."""
    nodes = _cpu_list(root, "sys/devices/system/node/online")
    return max(1, len(nodes))


def cpu_model(root: Path = _ROOT) -> str:
    """The processor's name; on ARM, where there is none, its implementer and part."""
    text = _text(root, "proc/cpuinfo")
    for key in ("model name", "Model", "cpu model", "uarch", "cpu"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
        if match is not None:
            return match[1].strip()
    implementer = re.search(r"^CPU implementer\s*:\s*(\S+)", text, re.MULTILINE)
    part = re.search(r"^CPU part\s*:\s*(\S+)", text, re.MULTILINE)
    return f"ARM {implementer[1]} {part[1]}" if implementer and part else ""


def memory_bytes(root: Path = _ROOT) -> int:
    """Memory of the machine, 0 if unknown."""
    match = re.search(r"^MemTotal:\s*(\d+) kB", _text(root, "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


# ---- cgroups


def cgroup_mounts(root: Path = _ROOT) -> list[Mount]:
    """The cgroup file systems that /proc/self/mountinfo names."""
    mounts = []
    for line in _text(root, "proc/self/mountinfo").splitlines():
        before, separator, after = line.partition(" - ")
        words, kinds = before.split(), after.split()
        if not separator or len(words) < 5 or len(kinds) < 1:
            continue
        top, point = PurePosixPath(_unescape(words[3])), PurePosixPath(_unescape(words[4]))
        if kinds[0] == "cgroup2":
            mounts.append(Mount(2, point, top, frozenset()))
        elif kinds[0] == "cgroup" and len(kinds) > 2:
            mounts.append(Mount(1, point, top, frozenset(kinds[2].split(","))))
    return mounts


def cgroup_folders(root: Path, version: int, controller: str) -> list[PurePosixPath]:
    """Folders of this process's group and of each group above it, for one controller, innermost first.

    In a container the path of /proc/self/cgroup may be the host's while only the container's own group is
    mounted: what is above the mounted group is not visible.
    """
    path = _own_group(root, version, controller)
    if path is None:
        return []
    for mount in cgroup_mounts(root):
        if mount.version != version or (version == 1 and controller not in mount.controllers):
            continue
        own = mount.point
        if ".." not in path.parts and path.is_relative_to(mount.top):
            own = mount.point / path.relative_to(mount.top)
        return [folder for folder in (own, *own.parents) if folder.is_relative_to(mount.point)]
    return []


def quota_cores(root: Path = _ROOT) -> Limit:
    """The tightest CPU quota of this process's groups, in cores, and its file."""
    limits = []
    for folder in cgroup_folders(root, 2, ""):
        words = _text(root, folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            limits.append(Limit(int(words[0]) / int(words[1]), str(folder / "cpu.max")))
    for folder in cgroup_folders(root, 1, "cpu"):
        quota = _number(root, folder / "cpu.cfs_quota_us")
        period = _number(root, folder / "cpu.cfs_period_us")
        if quota is not None and period is not None and quota > 0 and period > 0:
            limits.append(Limit(quota / period, str(folder / "cpu.cfs_quota_us")))
    return _tightest(limits)


def memory_limit_bytes(root: Path = _ROOT) -> Limit:
    """The tightest memory limit of this process's groups, in bytes, and its file."""
    limits = []
    files = [folder / "memory.max" for folder in cgroup_folders(root, 2, "")]
    files += [folder / "memory.limit_in_bytes" for folder in cgroup_folders(root, 1, "memory")]
    for file in files:
        value = _number(root, file)
        if value is not None and 0 < value < _UNLIMITED_BYTES:
            limits.append(Limit(value, str(file)))
    return _tightest(limits)


def _tightest(limits: list[Limit]) -> Limit:
    return min(limits, key=lambda limit: limit.value or 0.0, default=Limit(None, ""))


def _own_group(root: Path, version: int, controller: str) -> PurePosixPath | None:
    """This process's group in a hierarchy, from /proc/self/cgroup (`id:controllers:path`)."""
    for line in _text(root, "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if version == 2 and number == "0" and not controllers:
            return PurePosixPath(path or "/")
        if version == 1 and controller in controllers.split(","):
            return PurePosixPath(path or "/")
    return None


def _unescape(text: str) -> str:
    """Blanks and the like are octal escapes in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _cpu_list(root: Path, path: str) -> list[int]:
    return parse_cpu_list(_text(root, path))


def _cpuinfo_cpus(root: Path) -> list[int]:
    found = re.findall(r"^processor\s*:\s*(\d+)", _text(root, "proc/cpuinfo"), re.MULTILINE)
    return [int(number) for number in found]


def _number(root: Path, path: PurePosixPath) -> int | None:
    text = _text(root, path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _text(root: Path, path: str | PurePosixPath) -> str:
    """A file below the root, empty if it cannot be read (PSI that is switched off fails only when read)."""
    try:
        return (root / str(path).lstrip("/")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
