"""The ways to run a loader on this machine, for fixtures and for programs that a test starts."""

import dataclasses
import os
from pathlib import Path

import emulated_cuda
import torch

# What "twin" and "streams" deliver to: with FASTLOADER_TEST_DEVICE=cuda it is a GPU, and the tests,
# which look at batches on the CPU, see them brought back.
TEST_VARIABLE = "FASTLOADER_TEST_DEVICE"
TEST_DEVICE = os.environ.get(TEST_VARIABLE, "")

# With FASTLOADER_TEST_CUDA=emulated, "twin" is the CUDA backend on an emulated runtime. So it is in the
# programs that a test starts: Python imports sitecustomize from the first of these folders.
EMULATED = {emulated_cuda.VARIABLE: "emulated"} if emulated_cuda.wanted() else {}
# Of these programs only: nobody asks them for their misuses, so that the first one ends them.
STRICT = {"CUDA_EMULATED_STRICT": "1", "CUDA_EMULATED_LEAKS": "report"} if EMULATED else {}
if EMULATED:
    emulated_cuda.install()
    _support = Path(__file__).resolve().parent
    _paths = [str(_support / "at_start"), str(_support), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to run on this machine. ``options`` go into every loader, ``env`` into subprocesses."""

    name: str
    env: dict
    path: str  # what stats() calls it when images are normalised

    @property
    def options(self):
        return {"device": "cpu"}

    @property
    def target(self):
        """The device that batches go to on their way."""
        there = TEST_DEVICE.startswith("cuda") and self.path != "cpu"
        return torch.device("cuda", 0) if there else torch.device("cpu")

    def __str__(self):
        return self.name


WAYS = {
    "cpu": Way("cpu", {}, "cpu"),
    "twin": Way("twin", {"FASTLOADER_BACKEND": "host", **EMULATED, **STRICT}, "engine"),
    "streams": Way("streams", {"FASTLOADER_BACKEND": "torch"}, "streams"),
    "pure": Way("pure", {"FASTLOADER_NATIVE": "0"}, "cpu"),
}
