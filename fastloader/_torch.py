"""Everything that touches torch's devices: which there are, their streams, whose memory is whose.
No other file mentions ``torch.cuda``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from fastloader import _extension


def accelerator_type() -> str | None:
    """The device type of the accelerator torch can use here, or None."""
    if hasattr(torch, "accelerator"):  # torch >= 2.6
        if not torch.accelerator.is_available():
            return None
        current = torch.accelerator.current_accelerator()
        return None if current is None else current.type
    candidates = ["cuda", "xpu", torch._C._get_privateuse1_backend_name(), "mps"]
    return next((kind for kind in candidates if _device_count(kind) > 0), None)


def can_pin() -> bool:
    """Whether there is an accelerator that torch's pin_memory pins memory for."""
    return accelerator_type() not in (None, "mps")


def default_device() -> torch.device:
    """Where torch makes a tensor of which nobody says where."""
    if hasattr(torch, "accelerator"):  # torch >= 2.6
        return torch.get_default_device()  # starts no CUDA for a default that has a number
    # torch 2.4's raises AttributeError once a default was taken back, and does not see
    # `with torch.device(...)`.
    return torch.empty(0).device


def _module(kind: str) -> Any:
    return getattr(torch, kind, None)


def _device_count(kind: str, initialise: bool = True) -> int:
    """Where ``initialise`` is False, without starting CUDA in this process, after which its forked
    children could not use it: torch then asks NVML, where there is one."""
    module = _module(kind)
    if kind == "cuda" and not initialise:
        return int(module.device_count())
    if module is None or not hasattr(module, "is_available") or not module.is_available():
        return 0
    return int(module.device_count()) if hasattr(module, "device_count") else 1


def check_device(device: str | int | torch.device | None) -> torch.device | None:
    """What can be said of `resolve_device` without starting CUDA: its errors, and the device, without a
    number where none was given. None for None and for "auto"."""
    return None if device is None or device == "auto" else _existing(device, initialise=False)


def resolve_device(device: str | int | torch.device | None) -> torch.device | None:
    """``None`` stays None; ``"auto"`` is the accelerator if there is one, else the CPU; a type
    without a number gets the current device of that type. Raises TypeError for what names no device
    and ValueError for a device that does not exist here, before anything is started."""
    if device is None:
        return None
    made = _existing(accelerator_type() or "cpu" if device == "auto" else device)
    if made.type == "cpu" or made.index is not None:
        return made
    module = _module(made.type)
    current = module.current_device() if hasattr(module, "current_device") else 0
    return torch.device(made.type, current)


def _existing(device: str | int | torch.device, initialise: bool = True) -> torch.device:
    if isinstance(device, bool) or not isinstance(device, str | int | torch.device):
        raise TypeError(
            f"device must be None, 'auto', a string such as 'cuda:0' or a torch.device, got {device!r}"
        )
    try:
        made = torch.device(device)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={device!r} names no device: {reason}") from None
    if made.type == "cpu":
        return torch.device("cpu")
    count = _device_count(made.type, initialise)
    if count == 0:
        raise ValueError(
            f"device={device!r}: torch {torch.__version__} finds no {made.type} device here. "
            "Use device='auto' to take an accelerator if there is one and the CPU otherwise; "
            "`fastloader doctor` says what was found"
        )
    if made.index is not None and made.index >= count:
        raise ValueError(
            f"device={device!r}: there are {count} {made.type} devices, numbered from 0"
        )
    return made


def forced_backend() -> str:
    """``FASTLOADER_BACKEND``: "" (choose), "host" (deliver to the CPU through the host twin) or
    "torch" (streams of torch only, no native prefetch thread)."""
    value = os.environ.get("FASTLOADER_BACKEND", "")
    if value not in ("", "host", "torch"):
        raise ValueError(
            f"FASTLOADER_BACKEND={value!r}: use 'host' (the twin, for device='cpu'), 'torch' "
            "(torch's streams only) or nothing"
        )
    return value


def native_cuda_problem() -> str:
    """Why the native prefetch thread cannot serve torch's CUDA devices; empty when it can."""
    native = _extension.load()
    if native is None:
        return "the native module is not in use"
    if torch.version.hip is not None:
        return f"this torch is built for ROCm {torch.version.hip}, the native module for CUDA"
    return str(native.cuda_info()["problem"])


def cuda_name() -> str | None:
    """What the current CUDA device is called; None without one."""
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def consumer_stream(device: torch.device) -> int:
    """Handle of the stream that the calling thread computes on. 0 is the legacy default stream, and
    on the CPU the calling thread itself."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


def is_capturing(device: torch.device) -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def forbid_capture(device: torch.device) -> None:
    """Raises RuntimeError when the current stream is being captured into a CUDA graph: a replay
    would read the same, long recycled, batch again."""
    if is_capturing(device):
        raise RuntimeError(
            "next() was called while a CUDA graph is being captured. Take the batch before the "
            "capture and copy it into the graph's static input before each replay"
        )


def is_out_of_memory(error: BaseException) -> bool:
    # torch.OutOfMemoryError from torch 2.5 on; the older name stays.
    return isinstance(error, torch.cuda.OutOfMemoryError)


def ordinary_tensors() -> contextlib.AbstractContextManager[Any]:
    """For memory made ahead of its batch: the tensors made inside are no inference tensors, whatever
    mode the caller is in at the moment, and no operation on them is recorded."""
    return _outside_inference_mode() if torch.is_inference_mode_enabled() else _NOTHING


@contextlib.contextmanager
def _outside_inference_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.no_grad():  # leaving the mode switches gradients on
        yield


_NOTHING = contextlib.nullcontext()


class StreamSide:
    """The side stream of one accelerator, through torch's own device module. Where torch has no
    streams for the device (MPS), everything happens on the one queue there is. torch.cpu has the same
    names, doing nothing, which is how this path is rehearsed without an accelerator."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module = _module(device.type)
        self._side: Any = None
        if device.type == "cpu":
            self._side = self._module.Stream()
        elif hasattr(self._module, "Stream"):
            self._side = self._module.Stream(device=device)

    def consumer(self) -> Any:
        """The consumer's current stream; compare with ``==``."""
        return None if self._side is None else self._module.current_stream(self.device)

    def begin(self) -> contextlib.AbstractContextManager[Any]:
        """Work inside runs on the side stream, after everything the consumer has queued so far: its
        memory that the allocator has just recycled is safe to write."""
        if self._side is None:
            return contextlib.nullcontext()
        self._side.wait_stream(self.consumer())
        return self._module.stream(self._side)

    def hand_over(self, to: Any) -> None:
        """Stream ``to`` waits for everything on the side stream."""
        if self._side is not None:
            to.wait_stream(self._side)

    @property
    def can_tell(self) -> bool:
        """Whether the device says when a copy is done. Where it does not (MPS), whoever copies has to
        wait for it, or the source may be gone by then."""
        return self._side is not None and hasattr(self._module, "Event")

    def mark(self) -> Any:
        """An event behind everything on the side stream, with ``query`` and ``synchronize``."""
        event = self._module.Event()
        event.record(self._side)
        return event


def move(value: Any, device: torch.device, non_blocking: bool = True) -> Any:
    """``value`` on ``device`` by its own ``to``, on the current stream."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=non_blocking)
    return value.to(device)


def record_stream(tensors: list[torch.Tensor], device: torch.device) -> None:
    """Tells the allocator that the current stream reads ``tensors``, made on another one."""
    if device.type != "cuda":
        return
    stream = torch.cuda.current_stream(device)
    for tensor in tensors:
        tensor.record_stream(stream)


# Set by Nsight Systems and Nsight Compute in what they start; without a tool NVTX has no listener.
_NVTX_LISTENS = "NVTX_INJECTION64_PATH" in os.environ


class _NvtxRange:
    def __init__(self, name: str) -> None:
        torch.cuda.nvtx.range_push(name)

    def __exit__(self, *_: object) -> None:
        torch.cuda.nvtx.range_pop()


def is_profiling() -> bool:
    """Whether torch's profiler (emit_nvtx too) is on."""
    return getattr(torch.autograd.profiler, "_is_profiler_enabled", False)


def open_range(name: str) -> Any | None:
    """A range on the calling thread, to be ended by its ``__exit__``, if torch's profiler (emit_nvtx
    too) or an NVTX tool listens. Otherwise None, for the price of two look-ups."""
    if is_profiling():
        opened = torch.profiler.record_function(name)
        opened.__enter__()
        return opened
    if _NVTX_LISTENS and torch.cuda.is_available():
        return _NvtxRange(name)
    return None


def free_memory(device: torch.device) -> int | None:
    """Bytes free on ``device``; None where it is the machine's memory, or nobody can tell."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.mem_get_info(device)[0])


def synchronize(device: torch.device | None) -> bool:
    """Waits for what was queued on ``device``, or, for None and the CPU, on the GPU that the process
    uses all the same. Returns whether there was anything to wait for."""
    if device is None or device.type == "cpu":
        if not torch.cuda.is_initialized():
            return False
        torch.cuda.synchronize()
        return True
    module = _module(device.type)
    if not hasattr(module, "synchronize"):
        return False
    module.synchronize(*([device] if device.type == "cuda" else []))
    return True
