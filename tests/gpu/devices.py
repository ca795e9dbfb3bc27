"""The device under test: a CUDA GPU, or, to rehearse the tests where there is none, the host twin.

A test that takes the fixture ``gpu`` says what it needs of a device through these; only what is about
CUDA graphs or several GPUs asks for the real one.
"""

import contextlib
import os

import emulated_cuda
import torch
from ways import EMULATED

REHEARSAL = "FASTLOADER_GPU_TESTS"


def rehearsing():
    """FASTLOADER_GPU_TESTS=twin."""
    wanted = os.environ.get(REHEARSAL, "cuda")
    if wanted not in ("cuda", "twin"):
        raise ValueError(f"{REHEARSAL}={wanted!r}: use 'cuda' or 'twin'")
    return wanted == "twin"


class Cuda:
    """``name`` is what a loader takes as its device."""

    name = "cuda"
    backends = {"native": "", "streams": "torch"}  # what FASTLOADER_BACKEND chooses them by

    def holds(self, *tensors):
        return all(tensor.is_cuda for tensor in tensors)

    def empty(self, size):
        """Bytes in the device's memory."""
        return torch.empty(size, dtype=torch.uint8, device=self.name)

    def stream(self):
        return torch.cuda.Stream()

    def current(self):
        return torch.cuda.current_stream()

    def using(self, stream):
        return torch.cuda.stream(stream)

    def lag(self, cycles):
        """The current stream falls behind the host by this much."""
        torch.cuda._sleep(cycles)

    def synchronize(self):
        torch.cuda.synchronize()

    def empty_cache(self):
        torch.cuda.empty_cache()

    def memory(self):
        """(reserved, allocated) bytes, with nothing under way."""
        torch.cuda.synchronize()
        return torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    def capture(self, body):
        """``body`` as a CUDA graph, captured in torch's default, strictest mode."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        return graph


class Twin:
    """Has one queue, the calling thread, and nothing that could lag."""

    name = "cpu"
    backends = {"native": "host", "streams": "torch"}

    def holds(self, *tensors):
        return all(tensor.device.type == "cpu" for tensor in tensors)

    def empty(self, size):
        made = torch.empty(size, dtype=torch.uint8)
        if EMULATED:
            made = emulated_cuda.on_device(made)
            emulated_cuda.synchronize()  # it is filled in the order of the loop's stream
        return made

    def stream(self):
        return None

    def current(self):
        return None

    def using(self, stream):
        return contextlib.nullcontext()

    def lag(self, cycles):
        pass

    def synchronize(self):
        pass

    def empty_cache(self):
        pass

    def memory(self):
        return 0, 0

    def capture(self, body):
        body()
        return Again(body)


class Again:
    """What replays by doing it once more."""

    def __init__(self, body):
        self.replay = body
