"""Keeps decode threads on the NUMA node of the device that their pictures go to.

A machine with several nodes (sockets, most often) reaches the memory of another node by a slower link,
on which the pictures would go twice: to the thread that decodes them, and to the device. The kernel
moves threads between nodes as it likes. A rank that its launcher has bound to one node needs nothing:
threads run where their process may.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import torch

from fastloader._core.machine import devices, extension
from fastloader._core.machine.limits import ranks_sharing

_log = logging.getLogger("fastloader")

_VARIABLE = "FASTLOADER_NUMA"
_ROOT = Path("/sys")  # where the kernel describes the machine
_NVIDIA, _DISPLAY = 0x10DE, 0x03  # a PCI device's vendor, and the class of its kind


def keep_decode_threads(device: torch.device | None, threads: int) -> None:
    """Keeps the decode threads of this process on the node of ``device``, if ``threads`` of them find
    room there beside those of the other ranks. If not, or for a device whose node nobody knows, they run
    where the process may. The loaders of a process share the threads: these keep to a node if all ask
    for that."""
    if extension.load() is None or not hasattr(os, "sched_getaffinity"):
        return
    nodes = processors_of_nodes(_ROOT)
    allowed = os.sched_getaffinity(0)
    if sum(bool(allowed & each) for each in nodes.values()) < 2:
        return
    near = None
    if _is_wanted() and (node := _node_of(device)) in nodes:
        near = processors_near(nodes, node, allowed, threads, _ranks_at(node, _ROOT))
        if near is not None:
            _log.info("fastloader: decode threads keep to NUMA node %d, that of %s", node, device)
    extension.native.keep_decode_threads(sorted(allowed if near is None else near))


def _is_wanted() -> bool:
    value = os.environ.get(_VARIABLE, "1")
    if value not in ("0", "1"):
        raise ValueError(
            f"{_VARIABLE}={value!r}: 0 lets decode threads run on every NUMA node, 1 keeps them on "
            "their device's"
        )
    return value == "1"


def _node_of(device: torch.device | None) -> int:
    """Returns the node at which a CUDA device is; -1 if it is another device, or that is not known."""
    if device is None or device.type != "cuda" or device.index is None:
        return -1
    if devices.native_cuda_problem():
        return -1
    return extension.native.numa_node(backend="cuda", device=device.index)


def processors_of_nodes(root: Path) -> dict[int, set[int]]:
    """Reads which processors each NUMA node has; nothing where the kernel does not say."""
    nodes = {}
    for folder in (root / "devices/system/node").glob("node*"):
        with contextlib.suppress(OSError, ValueError):
            ranges = (folder / "cpulist").read_text().strip()
            processors = {number for each in ranges.split(",") if each for number in _range(each)}
            if processors:  # a node may have memory alone
                nodes[int(folder.name.removeprefix("node"))] = processors
    return nodes


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def processors_near(
    nodes: dict[int, set[int]], node: int, allowed: set[int], threads: int, ranks: int
) -> set[int] | None:
    """Returns the processors of a node on which ``threads`` threads of each of so many ranks find room;
    None if they do not."""
    near = nodes[node] & allowed
    return near if near and threads * ranks <= len(near) else None


def _ranks_at(node: int, root: Path) -> int:
    """Returns how many of the ranks that share this one's processors have a GPU at the node, if each has
    one of its own."""
    at = []
    for folder in (root / "bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError, ValueError):
            vendor, kind = (int((folder / name).read_text(), 16) for name in ("vendor", "class"))
            if vendor == _NVIDIA and kind >> 16 == _DISPLAY:
                at.append(int((folder / "numa_node").read_text()))
    ranks = ranks_sharing()
    return max(1, -(-ranks * at.count(node) // len(at))) if at else ranks
