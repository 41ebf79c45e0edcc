"""Facts about the machine, from made-up trees and from the real one."""

import os

import pytest

from lpcl.machine import facts, parse_cpu_list, quota_cores

CGROUP2 = "31 23 0:41 {top} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
CGROUP1 = (
    "32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {top} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MACHINE = {
    "proc/self/status": "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2\n",
    "proc/self/schedstat": "12345 6 7\n",
    "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n",
    "proc/meminfo": "MemTotal:       16384 kB\nMemFree: 1 kB\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Test CPU 3000\n\nprocessor\t: 1\n",
    "proc/sys/kernel/osrelease": "6.1.0-test\n",
    "sys/devices/system/cpu/present": "0-7\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,2\n",
    "sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1,3\n",
    "sys/devices/system/cpu/cpu2/topology/thread_siblings_list": "0,2\n",
    "sys/devices/system/cpu/cpu3/topology/thread_siblings_list": "1,3\n",
}


def test_hardware_facts(tmp_path):
    machine = facts(tree(tmp_path, MACHINE))
    assert (machine.logical, machine.online, machine.affinity, machine.physical) == (8, 4, 3, 2)
    assert (machine.numa_nodes, machine.memory_bytes) == (2, 16 << 20)
    assert (machine.cpu_model, machine.kernel) == ("Test CPU 3000", "6.1.0-test")
    assert machine.psi
    assert machine.schedstat
    assert machine.quota_cores is None
    assert machine.memory_limit_bytes is None
    assert "quota_cores" not in machine.sources
    assert machine.sources["affinity"] == "/proc/self/status"


def test_version_2_takes_the_tightest_group(tmp_path):
    files = {
        **MACHINE,
        "proc/self/cgroup": "0::/a.slice/b\n",
        "proc/self/mountinfo": CGROUP2.format(top="/"),
        "sys/fs/cgroup/a.slice/b/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a.slice/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/a.slice/b/memory.max": "8388608\n",
        "sys/fs/cgroup/a.slice/memory.max": "4194304\n",
        "sys/fs/cgroup/cpu.max": "300000 100000\n",
    }
    machine = facts(tree(tmp_path, files))
    assert machine.quota_cores == 1.5
    assert machine.cores == 2
    assert machine.memory_limit_bytes == 4 << 20
    assert machine.sources["quota_cores"] == "/sys/fs/cgroup/a.slice/cpu.max"
    assert machine.sources["memory_limit_bytes"] == "/sys/fs/cgroup/a.slice/memory.max"


def test_version_1(tmp_path):
    files = {
        **MACHINE,
        "proc/self/cgroup": "4:memory:/job\n1:cpu,cpuacct:/job/step\n0::/\n",
        "proc/self/mountinfo": CGROUP1.format(top="/"),
        "sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
    }
    machine = facts(tree(tmp_path, files))
    assert machine.quota_cores == 0.5
    assert machine.cores == 1
    assert machine.memory_limit_bytes is None


@pytest.mark.parametrize(
    ("top", "path"),
    [("/docker/abc", "/docker/abc"), ("/", "/"), ("/docker/abc", "/elsewhere"), ("/", "/../other")],
    ids=["host path in a container", "own namespace", "not below the mount", "above the namespace"],
)
def test_container_sees_its_own_group_at_the_mount(tmp_path, top, path):
    files = {
        "proc/self/cgroup": f"0::{path}\n",
        "proc/self/mountinfo": CGROUP2.format(top=top),
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
    }
    assert quota_cores(tree(tmp_path, files)).value == 2


def test_container_sees_a_group_below_the_mount(tmp_path):
    files = {
        "proc/self/cgroup": "0::/docker/abc/inner\n",
        "proc/self/mountinfo": CGROUP2.format(top="/docker/abc"),
        "sys/fs/cgroup/inner/cpu.max": "100000 100000\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
    }
    assert quota_cores(tree(tmp_path, files)).value == 1


def test_a_limit_above_the_machines_memory_is_none(tmp_path):
    files = {
        **MACHINE,
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": CGROUP2.format(top="/"),
        "sys/fs/cgroup/memory.max": "999999999999\n",
    }
    assert facts(tree(tmp_path, files)).memory_limit_bytes is None


def test_nothing_to_read_is_one_cpu(tmp_path):
    machine = facts(tmp_path)
    assert (machine.logical, machine.online, machine.affinity, machine.physical, machine.cores) == (1,) * 5
    assert (machine.memory_bytes, machine.numa_nodes) == (0, 1)
    assert not machine.psi
    assert not machine.schedstat


def test_cores_from_cpuinfo_when_there_is_no_topology(tmp_path):
    blocks = [f"processor\t: {n}\nphysical id\t: 0\ncore id\t\t: {n // 2}\n" for n in range(4)]
    machine = facts(tree(tmp_path, {"proc/cpuinfo": "\n".join(blocks)}))
    assert (machine.online, machine.physical) == (4, 2)
    assert machine.sources["physical"] == "/proc/cpuinfo"


def test_zero_schedstat_is_no_schedstat(tmp_path):
    assert not facts(tree(tmp_path, {"proc/self/schedstat": "0 0 0\n"})).schedstat


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-2,5\n", [0, 1, 2, 5]), ("7", [7]), ("", []), ("\n", []), ("x", []), ("3-1", [])]
)
def test_cpu_lists(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_this_machine():
    machine = facts()
    assert machine.affinity == len(os.sched_getaffinity(0))
    assert 1 <= machine.physical <= machine.online <= machine.logical
    assert machine.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.kernel == os.uname().release
