"""Which delivery brings a loader's batches: one line in PATHS is enough to be asked."""

import pytest
import torch
from torch.utils.data import TensorDataset

from fastloader import FastLoader
from fastloader._core.delivery import delivery, engine_path
from fastloader._core.delivery.cpu import PlainPath
from fastloader._core.delivery.path import DeliveryIterator, DeliveryPath
from fastloader._core.machine import extension
from fastloader.errors import Error
from support import MEAN, STD, Pictures


class NegatingIterator(DeliveryIterator):
    def _next(self):
        images, labels = next(self._batches)
        return images, -labels


class NegatingPath(DeliveryPath):
    """Delivers to the CPU what is not normalised."""

    name = "negating"
    words = "negated for {device}"

    @classmethod
    def serves(cls, spec, device):
        return device is not None and device.type == "cpu" and spec.normalization is None

    def begin(self, plan, order, draws):
        return NegatingIterator(plan.open(order, self._handoff(plan, draws)), self.statistics)


@pytest.fixture
def paths(monkeypatch):
    """Puts these paths in the place of all there are."""

    def put(*kinds):
        monkeypatch.setattr(delivery, "PATHS", kinds)

    return put


@pytest.mark.parametrize("dataset", [Pictures(7), TensorDataset(*[torch.arange(7)] * 2)])
def test_a_path_is_chosen_by_its_line(paths, dataset):
    paths(NegatingPath, *delivery.PATHS)
    loader = FastLoader(dataset, 3, device="cpu")
    assert loader.plan().splitlines()[0].endswith("; batches are negated for cpu")
    labels = torch.cat([labels for _, labels in loader])
    assert labels.tolist() == [-number for number in range(7)]
    stats = loader.stats()
    assert stats["path"] == "negating" and stats["batches"] == 3


def test_the_first_that_serves_is_taken(paths):
    paths(*delivery.PATHS, NegatingPath)
    assert FastLoader(Pictures(4), device="cpu").stats()["path"] == "torch"
    paths(NegatingPath, *delivery.PATHS[:-1])
    assert FastLoader(Pictures(4)).stats()["path"] == "torch"
    assert FastLoader(Pictures(4), device="cpu", mean=MEAN, std=STD).stats()["path"] == "cpu"


def test_a_device_that_no_path_serves_is_named(paths):
    paths(PlainPath)
    with pytest.raises(Error, match="no delivery brings batches to device cpu"):
        FastLoader(Pictures(4), device="cpu", mean=MEAN, std=STD)


@pytest.fixture
def without_cuda(monkeypatch):
    native = extension.load()
    if native is None or native.build_info()["cuda"]["compiled_in"]:
        pytest.skip("needs a native module without CUDA")
    monkeypatch.delenv("FASTLOADER_BACKEND", raising=False)
    monkeypatch.setattr(engine_path, "_warned", set())


def test_the_first_use_of_cuda_warns_of_a_build_without_it_once(without_cuda, recwarn):
    device = torch.device("cuda", 0)
    assert not engine_path.EnginePath.serves(None, device)
    assert not engine_path.EnginePath.serves(None, device)
    (warning,) = recwarn
    said = str(warning.message)
    assert said.startswith("cuda:0 is served by torch's own streams, which is slower: ")
    assert "built without CUDA" in said and "nvcc" in said and "FASTLOADER_CUDA=on pip" in said
