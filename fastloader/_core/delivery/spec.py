"""What is asked of a delivery, checked: the depth of its ring, and the path that follows from the
device."""

from __future__ import annotations

import warnings

import torch

from fastloader._core.machine import devices, extension
from fastloader.transforms._normalization import Normalization

_MAX_DEPTH = 64


def check_environment(normalization: Normalization | None) -> None:
    native = extension.load()
    if native is not None and normalization is not None:
        native.active_isa()  # a wrong FASTLOADER_FORCE_ISA is told here, not at the first batch
    devices.forced_backend()  # so is a wrong FASTLOADER_BACKEND


def checked_depth(depth: int | str | None) -> int | None:
    if depth is None or depth == "auto":
        return None
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise TypeError(f"depth must be a whole number of batches, 'auto' or None, got {depth!r}")
    if not 1 <= depth <= _MAX_DEPTH:
        raise ValueError(f"depth={depth}: the ring holds 1 to {_MAX_DEPTH} batches")
    return depth


def choose_path(device: torch.device | None, normalization: Normalization | None) -> str:
    forced = devices.forced_backend()
    if device is None:
        return "torch" if normalization is None else "cpu"
    if forced == "torch":
        return "streams"
    if device.type == "cpu":
        if forced == "host":
            if extension.load() is None:
                raise ValueError(
                    "FASTLOADER_BACKEND=host needs the native module, which is not in use: "
                    + (extension.problem() or "it is switched off or was left out on purpose")
                )
            return "engine"
        return "torch" if normalization is None else "cpu"
    if device.type == "cuda":
        problem = devices.native_cuda_problem()
        if not problem:
            return "engine"
        if extension.load() is not None:
            _warn_once(f"{device} is served by torch's own streams, which is slower: {problem}")
    return "streams"


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)
