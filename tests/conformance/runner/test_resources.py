"""How many workers fit: the least of cores, quota and memory, whoever grants them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchstone.conformance.runner.resources import available_memory, cores, fitting_jobs, oom_kills

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def test_the_machine_alone(tmp_path):
    root = machine(tmp_path, {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {20 * GIB // 1024} kB\n"})
    assert cores(root) == 8
    assert available_memory(root) == 20 * GIB
    assert fitting_jobs(2 * GIB, root) == 8
    assert fitting_jobs(8 * GIB, root) == 2
    assert fitting_jobs(64 * GIB, root) == 1


def test_a_container_of_version_2_and_the_group_above_it(tmp_path):
    group = "sys/fs/cgroup/pod/box"
    root = machine(
        tmp_path,
        {
            "proc/meminfo": f"MemAvailable: {100 * GIB // 1024} kB\n",
            "proc/self/cgroup": "0::/pod/box\n",
            f"{group}/cpu.max": "350000 100000\n",
            f"{group}/memory.max": "max\n",
            f"{group}/memory.current": f"{2 * GIB}\n",
            f"{group}/memory.stat": "inactive_file 0\n",
            "sys/fs/cgroup/pod/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/memory.max": f"{10 * GIB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{6 * GIB}\n",
            "sys/fs/cgroup/pod/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
        },
    )
    assert cores(root) == 3
    assert available_memory(root) == 6 * GIB, "what files are cached for can be had"
    assert fitting_jobs(2 * GIB, root) == 3
    assert fitting_jobs(4 * GIB, root) == 1


def test_a_container_of_version_1(tmp_path):
    root = machine(
        tmp_path,
        {
            "proc/meminfo": f"MemAvailable: {100 * GIB // 1024} kB\n",
            "proc/self/cgroup": "5:cpu,cpuacct:/box\n4:memory:/box\n1:name=systemd:/\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{4 * GIB}",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{GIB}",
            "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 0\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "0",
        },
    )
    assert cores(root) == 1
    assert available_memory(root) == 3 * GIB


def test_a_system_that_tells_nothing(tmp_path):
    assert fitting_jobs(8 * GIB, tmp_path) == 8


def test_what_the_system_has_killed(tmp_path):
    assert oom_kills(tmp_path) == 0
    assert oom_kills(machine(tmp_path, {"proc/vmstat": "pgfault 12\noom_kill 7\noom_kill_other 9\n"})) == 7
