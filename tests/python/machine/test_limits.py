"""How many threads and how much memory this process may use: affinity and control groups."""

import os
import subprocess
import sys

import pytest
from pictures import plain_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import limits
from fastloader.datasets import ImageFolder
from support import HANG, script_environment


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
    assert limits.threads_within(limits.cpu_quota(tmp_path)) == wanted


def test_a_loader_takes_as_many(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 5)
    dataset = ImageFolder(plain_folder(tmp_path, 3), T.Resize((8, 8)))
    made = FastLoader(dataset, 2)
    if not made.plan().startswith("native images"):
        pytest.skip("the native module is not in use")
    assert "5 decode threads" in made.plan()
    next(iter(made))
    assert made.stats()["images"]["threads"] == 5


# --- ranks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own, together, ranks_here, quota, wanted",
    [
        (200, 200, 8, None, 25),
        (25, 200, 8, None, 25),  # bound to processors of its own
        (26, 208, 8, None, 26),
        (24, 200, 8, None, 24),  # some are nobody's
        (50, 200, 8, None, 25),  # two ranks to a set
        (100, 200, 8, None, 25),  # four to a socket
        (50, 50, 8, None, 6),  # the launcher was bound, and so are all
        (3, 200, 2, None, 3),
        (4, 4, 8, None, 1),
        (200, 200, 1, None, 200),
        (25, 200, 1, None, 25),
        (200, 200, 8, 100.5, 12),  # which is shared, bound or not
        (25, 200, 8, 100.0, 12),
        (25, 200, 8, 400.0, 25),
        (2, 200, 8, 100.0, 2),
    ],
)
def test_a_ranks_part_of_the_processors(monkeypatch, own, together, ranks_here, quota, wanted):
    monkeypatch.setattr(limits, "_ranks_here", None)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks_here))
    monkeypatch.setattr(limits, "usable_processors", lambda: own)
    monkeypatch.setattr(limits, "threads_within", lambda limit: min(own, int(limit or own)))
    monkeypatch.setattr(limits, "cpu_quota", lambda: quota)
    for known in (True, False):
        monkeypatch.setattr(limits, "launchers_processors", lambda _: together if known else None)  # noqa: B023
        monkeypatch.setattr(limits, "installed_processors", lambda: 1000 if known else together)  # noqa: B023
        assert limits.own_threads() == wanted
    # What an agreement has counted is exact. Memory is shared by all ranks of the machine.
    monkeypatch.setattr(limits, "available_memory", lambda: ranks_here << 20)
    monkeypatch.setattr(limits, "_ranks_sharing", None)
    sharing = max(1, round(ranks_here * own / together))
    limits.note_ranks_here(ranks_here, min(sharing, ranks_here))
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert limits.own_threads() == wanted
    assert limits.memory_budget() == (1 << 20) // 8


@pytest.mark.parametrize(
    "files, wanted",
    [
        ({}, 64),
        ({"cpuset.cpus.effective": "0-7,16-23,40\n"}, 17),
        ({"job/cpuset.cpus.effective": "3\n", "cpuset.cpus.effective": "0-63\n"}, 1),
        ({"job/cpuset.cpus.effective": "\n", "cpuset.cpus.effective": "0-31\n"}, 32),
        ({"cpuset/job/cpuset.cpus": "2-5\n"}, 4),
    ],
)
def test_a_groups_processors(tmp_path, monkeypatch, files, wanted):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    group(tmp_path, "4:cpuset:/job\n0::/job\n", files)
    assert limits.installed_processors(tmp_path) == wanted


RANK = """
import os, sys
from fastloader._core.machine import limits
first = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {first})
print(limits.usable_processors(), limits.launchers_processors("LOCAL_WORLD_SIZE"))
"""


@pytest.mark.processes
@pytest.mark.parametrize("way", ["direct", "by a script", "no launcher"])
def test_the_launchers_processors_are_found(way):
    """Also through a script of the rank's own that has bound itself."""
    command, variables = [sys.executable, "-c", RANK], {"LOCAL_WORLD_SIZE": "2"}
    if way == "by a script":
        binds = (
            "import os, subprocess, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        )
        command = [
            sys.executable,
            "-c",
            f"{binds}subprocess.run(sys.argv[1:], check=True)",
            *command,
        ]
    if way == "no launcher":
        variables = {}
    env = {**script_environment(), **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, check=True, timeout=HANG
    )
    here = len(os.sched_getaffinity(0))
    assert done.stdout.split() == ["1", "None" if way == "no launcher" else str(here)]
