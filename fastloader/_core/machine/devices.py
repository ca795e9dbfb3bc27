"""Everything that touches torch's devices: which exist, their streams, which stream owns which memory.
No other file mentions ``torch.cuda``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import RandomSampler

from fastloader._core.machine import extension


def accelerator_type() -> str | None:
    """Returns the device type of the accelerator that torch can use here, or None."""
    if hasattr(torch, "accelerator"):  # torch >= 2.6
        if not torch.accelerator.is_available():
            return None
        current = torch.accelerator.current_accelerator()
        return None if current is None else current.type
    candidates = ["cuda", "xpu", torch._C._get_privateuse1_backend_name(), "mps"]
    return next((kind for kind in candidates if _device_count(kind) > 0), None)


def can_pin() -> bool:
    """Returns whether there is an accelerator for which torch's pin_memory pins memory."""
    return accelerator_type() not in (None, "mps")


def default_device() -> torch.device:
    """Returns the device on which torch makes a tensor if no device is named."""
    if hasattr(torch, "accelerator"):  # torch >= 2.6
        return torch.get_default_device()  # starts no CUDA for a default that has a number
    # An empty tensor tells it: torch.get_default_device of torch 2.4 raises AttributeError once a
    # default was taken back, and does not see `with torch.device(...)`.
    return torch.empty(0).device


def _module(kind: str) -> Any:
    return getattr(torch, kind, None)


def _device_count(kind: str, initialise: bool = True) -> int:
    """Counts the devices of a kind. With ``initialise=False`` this does not start CUDA, which forked
    children could not use after that: torch asks NVML instead, if it is there."""
    module = _module(kind)
    if kind == "cuda" and not initialise:
        return int(module.device_count())
    if module is None or not hasattr(module, "is_available") or not module.is_available():
        return 0
    return int(module.device_count()) if hasattr(module, "device_count") else 1


def check_device(device: str | int | torch.device | None) -> torch.device | None:
    """Does what `resolve_device` can do without starting CUDA: raises its errors, and returns the
    device, without a number if none was given. None for None and for "auto"."""
    return None if device is None or device == "auto" else _existing(device, initialise=False)


def resolve_device(device: str | int | torch.device | None) -> torch.device | None:
    """Returns the device that an argument ``device`` means. ``None`` stays None. ``"auto"`` is the
    accelerator if there is one, else the CPU. A type without a number gets the current device of that
    type.

    Raises:
        TypeError: for what names no device, before anything is started.
        ValueError: for a device that does not exist here, before anything is started.
    """
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
    """Reads ``FASTLOADER_BACKEND``: "" (fastloader chooses), "host" (deliver to the CPU through the host
    twin) or "torch" (only torch's streams, without the native prefetch thread)."""
    value = os.environ.get("FASTLOADER_BACKEND", "")
    if value not in ("", "host", "torch"):
        raise ValueError(
            f"FASTLOADER_BACKEND={value!r}: use 'host' (the twin, for device='cpu'), 'torch' "
            "(torch's streams only) or nothing"
        )
    return value


def native_cuda_problem() -> str:
    """Explains why the native prefetch thread cannot serve torch's CUDA devices; empty when it can."""
    if extension.load() is None:
        return "the native module is not in use"
    if torch.version.hip is not None:
        return f"this torch is built for ROCm {torch.version.hip}, the native module for CUDA"
    return str(extension.native.cuda_info()["problem"])


def cuda_name() -> str | None:
    """Returns the name of the current CUDA device; None without one."""
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def consumer_stream(device: torch.device) -> int:
    """Returns the handle of the stream on which the calling thread computes. 0 is the legacy default
    stream and, on the CPU, the calling thread itself."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


def is_capturing(device: torch.device) -> bool:
    """Returns whether the current stream is being captured into a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def forbid_capture(device: torch.device) -> None:
    """Raises RuntimeError if the current stream is being captured into a CUDA graph. A replay would read
    the same batch again, whose memory was recycled long ago."""
    if is_capturing(device):
        raise RuntimeError(
            "next() was called while a CUDA graph is being captured. Take the batch before the "
            "capture and copy it into the graph's static input before each replay"
        )


def is_out_of_memory(error: BaseException) -> bool:
    # The older name, which stays: torch.OutOfMemoryError is there from torch 2.5 on.
    return isinstance(error, torch.cuda.OutOfMemoryError)


def ordinary_tensors() -> contextlib.AbstractContextManager[Any]:
    """Makes the tensors that are made inside no inference tensors, whatever mode the caller is in now,
    and records no operation on them. For memory that is made ahead of its batch."""
    return _outside_inference_mode() if torch.is_inference_mode_enabled() else _NOTHING


@contextlib.contextmanager
def _outside_inference_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.no_grad():  # leaving the mode switches gradients on
        yield


_NOTHING = contextlib.nullcontext()


class StreamSide:
    """The side stream of one accelerator, through torch's own device module. If torch does not have
    streams for the device (MPS), everything happens on the device's only queue. torch.cpu has the same
    names, which do nothing: so tests run this path without an accelerator."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module = _module(device.type)
        self._side: Any = None
        if device.type == "cpu":
            self._side = self._module.Stream()
        elif hasattr(self._module, "Stream"):
            self._side = self._module.Stream(device=device)

    def consumer(self) -> Any:
        """Returns the training loop's current stream; compare with ``==``."""
        return None if self._side is None else self._module.current_stream(self.device)

    def begin(self) -> contextlib.AbstractContextManager[Any]:
        """Runs the work inside on the side stream, after everything that the training loop has queued so
        far. So the loop's memory that the allocator has just recycled is safe to write."""
        if self._side is None:
            return contextlib.nullcontext()
        self._side.wait_stream(self.consumer())
        return self._module.stream(self._side)

    def hand_over(self, to: Any) -> None:
        """Makes stream ``to`` wait for everything on the side stream."""
        if self._side is not None:
            to.wait_stream(self._side)

    @property
    def can_tell(self) -> bool:
        """Whether the device says when a copy is done. If it does not (MPS), the caller of a copy has to
        wait for it, or the memory that is copied from may be gone by then."""
        return self._side is not None and hasattr(self._module, "Event")

    def mark(self) -> Any:
        """Records an event after everything on the side stream, with ``query`` and ``synchronize``."""
        event = self._module.Event()
        event.record(self._side)
        return event


def move(value: Any, device: torch.device, non_blocking: bool = True) -> Any:
    """Moves ``value`` to ``device`` by its own ``to``, on the current stream."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=non_blocking)
    return value.to(device)


def record_stream(tensors: list[torch.Tensor], device: torch.device) -> None:
    """Tells the allocator that the current stream reads ``tensors``, which another stream made."""
    if device.type != "cuda":
        return
    stream = torch.cuda.current_stream(device)
    for tensor in tensors:
        tensor.record_stream(stream)


# Nsight Systems and Nsight Compute set it in what they start. Without such a tool nothing listens.
_NVTX_LISTENS = "NVTX_INJECTION64_PATH" in os.environ


class _NvtxRange:
    def __init__(self, name: str) -> None:
        torch.cuda.nvtx.range_push(name)

    def __exit__(self, *_: object) -> None:
        torch.cuda.nvtx.range_pop()


def is_profiling() -> bool:
    """Returns whether torch's profiler (emit_nvtx too) is on."""
    return getattr(torch.autograd.profiler, "_is_profiler_enabled", False)


def open_range(name: str) -> Any | None:
    """Opens a range on the calling thread, which its ``__exit__`` ends, if torch's profiler (emit_nvtx
    too) or an NVTX tool listens. Otherwise returns None, for the price of two look-ups."""
    if is_profiling():
        opened = torch.profiler.record_function(name)
        opened.__enter__()
        return opened
    if _NVTX_LISTENS and torch.cuda.is_available():
        return _NvtxRange(name)
    return None


def free_memory(device: torch.device) -> int | None:
    """Returns the free bytes on ``device``; None if its memory is the machine's, or the number is
    unknown."""
    if device.type != "cuda":
        return None
    return int(torch.cuda.mem_get_info(device)[0])


def synchronize(device: torch.device | None) -> bool:
    """Waits for what was queued on ``device`` or, for None and the CPU, on a GPU that the process uses
    all the same. Returns whether there was a device to wait for."""
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


# ---- Draws for a loader on the CPU, whatever ``torch.set_default_device`` says.
#
# With another default device torch's own draws would go there. But "meta" has no values to
# give, and torch refuses the permutation that RandomSampler asks of a CPU generator. The user's
# own code keeps the device that the user has set.


def of(generator: torch.Generator | None) -> torch.device:
    """Returns the device on which ``generator`` draws. It refuses any other."""
    return torch.device("cpu") if generator is None else generator.device


def drawn_seed(generator: torch.Generator | None) -> int:
    """Draws a seed as torch's iterators draw the seed of their workers."""
    drawn = torch.empty((), dtype=torch.int64, device=of(generator))
    return int(drawn.random_(generator=generator).item())


@contextlib.contextmanager
def for_draws(generator: torch.Generator | None) -> Iterator[None]:
    """Sets the device around torch code that draws from ``generator`` or the global one without naming
    a device."""
    if of(generator) == default_device():
        yield
    else:
        with of(generator):
            yield


class UsersOwn:
    """An iterable whose ``iter()`` runs under the default device that was set when this was made, even
    inside `for_draws`."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._device = default_device()

    def __iter__(self) -> Iterator[Any]:
        with self._device:
            return iter(self._source)


def drawn(sampler: Any, keys: Iterator[Any]) -> Iterator[Any]:
    """Gives ``keys`` of an iterator over torch's ``sampler``, or over batches of it, drawn on the right
    device."""
    if type(sampler) is not RandomSampler or default_device().type == "cpu":
        return keys
    return _drawn(keys, of(sampler.generator))


def _drawn(keys: Iterator[Any], device: torch.device) -> Iterator[Any]:
    while True:
        with device:
            try:
                key = next(keys)
            except StopIteration:
                return
        yield key
