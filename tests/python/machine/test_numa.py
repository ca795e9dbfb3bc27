"""Decode threads on the NUMA node of their device, on machines that are made of files."""

import json
import os

import pytest
import torch

from fastloader._core.machine import numa
from support import run_script

NODES = {0: "0-3,8-11", 1: "4-7,12-15"}
GPUS = {"0000:1a:00.0": 0, "0000:3b:00.0": 0, "0000:5e:00.0": 1, "0000:af:00.0": 1}


def machine(folder, nodes, gpus=()):
    """Writes what the kernel says of a machine into ``folder``."""
    for node, processors in nodes.items():
        path = folder / f"devices/system/node/node{node}"
        path.mkdir(parents=True)
        (path / "cpulist").write_text(f"{processors}\n")
    for address, node in dict(gpus).items():
        path = folder / "bus/pci/devices" / address
        path.mkdir(parents=True)
        (path / "vendor").write_text("0x10de\n")
        (path / "class").write_text("0x030200\n")
        (path / "numa_node").write_text(f"{node}\n")
    return folder


def test_what_the_kernel_says(tmp_path):
    root = machine(tmp_path, {**NODES, 2: ""}, GPUS)  # a node may have memory alone
    (tmp_path / "devices/system/node/has_cpu").write_text("0-1\n")
    assert numa.processors_of_nodes(root) == {
        0: {0, 1, 2, 3, 8, 9, 10, 11},
        1: {4, 5, 6, 7, 12, 13, 14, 15},
    }
    assert numa.processors_of_nodes(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("node", "allowed", "threads", "ranks", "near"),
    [
        (0, set(range(16)), 4, 2, {0, 1, 2, 3, 8, 9, 10, 11}),
        (1, set(range(16)), 8, 1, {4, 5, 6, 7, 12, 13, 14, 15}),
        (1, set(range(16)), 5, 2, None),  # they would crowd half of the machine
        (0, set(range(16)), 16, 1, None),  # one rank alone uses both
        (0, {2, 3, 4, 5}, 2, 1, {2, 3}),  # bound across the border
        (0, {4, 5, 6}, 1, 1, None),  # bound to the other node: the launcher knows better
    ],
)
def test_threads_that_find_room_at_the_device(tmp_path, node, allowed, threads, ranks, near):
    nodes = numa.processors_of_nodes(machine(tmp_path, NODES))
    assert numa.processors_near(nodes, node, allowed, threads, ranks) == near


@pytest.mark.parametrize(
    ("gpus", "ranks", "at"),
    [
        (GPUS, 4, (2, 2)),
        (GPUS, 1, (1, 1)),
        (dict.fromkeys(GPUS, 0), 4, (4, 1)),  # all at one socket
        ({}, 4, (4, 4)),  # nobody knows, so the most there can be
    ],
)
def test_ranks_at_a_node(tmp_path, monkeypatch, gpus, ranks, at):
    root = machine(tmp_path, NODES, gpus)
    network = root / "bus/pci/devices/0000:02:00.0"
    network.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "class": "0x020000", "numa_node": "0"}.items():
        (network / name).write_text(text)
    monkeypatch.setattr(numa, "ranks_sharing", lambda: ranks)
    assert tuple(numa._ranks_at(node, root) for node in (0, 1)) == at


# One loader of pictures, or two, over devices whose nodes are made up. Prints where threads run.
PROGRAM = """
import json, os, sys
from pathlib import Path
from pictures import plain_folder
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import numa
from fastloader.datasets import ImageFolder

root, nodes = Path(sys.argv[1]), json.loads(sys.argv[2])
numa._ROOT = root / "sys"
numa._node_of = lambda device: nodes.pop(0)
numa.ranks_sharing = lambda: 1

def where():
    found = set()
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "fl-decode":
            found.add(tuple(os.sched_getaffinity(int(task.name))))
    return sorted(found)

transform = T.Compose([T.Resize(8), T.CenterCrop(8), T.ToTensor()])
data = ImageFolder(plain_folder(root / "data", 8), transform)
said = []
for _ in nodes.copy():
    assert len(list(FastLoader(data, 4, num_workers=1))) == 2
    said.append(where())
print(json.dumps(said))
"""


def places(tmp_path, nodes, **environment):
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("two processors of this machine are the nodes, and it has one")
    machine(tmp_path / "sys", {0: own[0], 1: own[1]})
    said = run_script(PROGRAM, str(tmp_path), json.dumps(nodes), env=environment).stdout
    names = {(own[0],): "0", (own[1],): "1", tuple(own): "both"}  # or more than both
    return [[names[tuple(each)] for each in places] for places in json.loads(said)]


@pytest.mark.processes
def test_where_threads_run(tmp_path):
    assert places(tmp_path, [1]) == [["1"]]


@pytest.mark.processes
def test_loaders_of_two_nodes_share_the_threads(tmp_path):
    assert places(tmp_path, [0, 0, 1]) == [["0"], ["0"], ["both"]]


@pytest.mark.processes
def test_a_loader_whose_device_has_no_node_lets_them_go_everywhere(tmp_path):
    assert places(tmp_path, [1, -1, 1]) == [["1"], ["both"], ["both"]]


@pytest.mark.processes
def test_the_variable_turns_it_off(tmp_path):
    assert places(tmp_path, [1], FASTLOADER_NUMA="0") == [["both"]]


def test_the_variable_says_0_or_1(monkeypatch):
    monkeypatch.setenv("FASTLOADER_NUMA", "off")
    with pytest.raises(
        ValueError, match="FASTLOADER_NUMA='off': 0 lets decode threads run on every"
    ):
        numa._is_wanted()


def test_a_device_of_which_nobody_knows_the_node():
    assert numa._node_of(None) == -1
    assert numa._node_of(torch.device("cpu")) == -1
    assert numa._node_of(torch.device("cuda")) == -1
