"""How many threads and how much memory this process may use: affinity and control groups."""

import os

import pytest
from pictures import plain_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import limits, ranks
from fastloader.datasets import ImageFolder


def group(root, membership, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def eight(monkeypatch):
    """A process that may use eight processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def test_cgroup_2_takes_the_narrowest_of_the_nested_groups(tmp_path):
    files = {
        "job/step/cpu.max": "max 100000",
        "job/cpu.max": "250000 100000",
        "cpu.max": "400000 100000",
        "job/step/memory.max": "max",
        "job/memory.max": "1073741824",
    }
    group(tmp_path, "0::/job/step\n", files)
    assert limits.cpu_quota(tmp_path) == 2.5
    assert limits.memory_limit(tmp_path) == 1 << 30


def test_cgroup_1_in_a_container_that_does_not_see_its_own_path(tmp_path):
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "150000",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "536870912",
    }
    group(tmp_path, "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n", files)
    assert limits.cpu_quota(tmp_path) == 1.5
    assert limits.memory_limit(tmp_path) == 1 << 29


def test_memory_that_a_group_holds_is_not_to_be_had(tmp_path):
    files = {
        "job/step/memory.max": "max",
        "job/memory.max": "1000000",
        "job/memory.current": "800000",
        "job/memory.stat": "anon 350000\ninactive_file 300000\nactive_file 100000\nodd line here",
    }
    group(tmp_path, "0::/job/step\n", files)
    assert limits.available_memory(tmp_path) == 600_000
    (tmp_path / "proc/meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 500 kB\n")
    assert limits.available_memory(tmp_path) == 500 * 1024


def test_memory_of_version_1_in_use(tmp_path):
    files = {
        "memory/memory.limit_in_bytes": "1000",
        "memory/memory.usage_in_bytes": "1200",  # more than the limit for a moment
        "memory/memory.stat": "active_file 1\ntotal_active_file 100\ntotal_inactive_file 0",
    }
    group(tmp_path, "4:memory:/docker/abc\n", files)
    assert limits.available_memory(tmp_path) == 0


def test_memory_is_guessed_where_nothing_tells(tmp_path):
    assert limits.available_memory(tmp_path) == 1 << 30


def test_no_limit_in_either_version(tmp_path):
    files = {
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9223372036854771712",
    }
    group(tmp_path, "2:cpu:/\n1:memory:/\n", files)
    assert limits.cpu_quota(tmp_path) is None
    assert limits.memory_limit(tmp_path) is None


def test_no_cgroup_files_at_all(tmp_path):
    assert limits.cpu_quota(tmp_path) is None
    assert limits.memory_limit(tmp_path) is None


VERSION_1 = "3:cpu,cpuacct:/batch/job\n"


@pytest.mark.parametrize(
    "membership, files, wanted",
    [
        ("", {}, 8),
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "300000 100000"}, 3),
        ("0::/\n", {"cpu.max": "390000 100000"}, 3),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("0::/\n", {"cpu.max": "1600000 100000"}, 8),
        ("0::/slice/job\n", {"slice/cpu.max": "500000 100000", "slice/job/cpu.max": "max 1"}, 5),
        ("0::/../other\n", {"other/cpu.max": "400000 100000"}, 4),
        (
            VERSION_1,
            {
                "cpu,cpuacct/batch/job/cpu.cfs_quota_us": "200000",
                "cpu,cpuacct/batch/job/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/batch/cpu.cfs_quota_us": "600000",
                "cpu,cpuacct/batch/cpu.cfs_period_us": "100000",
            },
            2,
        ),
        (
            VERSION_1,
            {
                "cpu/batch/job/cpu.cfs_quota_us": "-1",
                "cpu/batch/job/cpu.cfs_period_us": "100000",
                "cpu/batch/cpu.cfs_quota_us": "300000",
                "cpu/batch/cpu.cfs_period_us": "50000",
            },
            6,
        ),
        (VERSION_1, {"cpu/cpu.cfs_quota_us": "100000"}, 8),
        ("0::/\n", {"cpu.max": "garbage"}, 8),
    ],
)
def test_threads_are_the_smaller_of_affinity_and_quota(tmp_path, eight, membership, files, wanted):
    group(tmp_path, membership, files)
    assert limits.available_threads(tmp_path) == wanted


def test_a_loader_takes_as_many(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "available_threads", lambda: 5)
    dataset = ImageFolder(plain_folder(tmp_path, 3), T.Resize((8, 8)))
    made = FastLoader(dataset, 2)
    if not made.plan().startswith("native images"):
        pytest.skip("the native module is not in use")
    assert "5 decode threads" in made.plan()
    next(iter(made))
    assert made.stats()["images"]["threads"] == 5
