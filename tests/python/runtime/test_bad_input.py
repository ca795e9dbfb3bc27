"""Bad input: the right type of error, saying which value and what is allowed, before any thread
starts where that is possible, else in the batch's place."""

import re

import numpy as np
import pytest
import torch

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, FastLoader
from fastloader._core.delivery import engine
from support import MEAN, STD, Pictures, running

pytestmark = pytest.mark.covering

NORMALISED = {"mean": MEAN, "std": STD}
WORKERS = pytest.mark.parametrize("workers", [0, 2])
NAN, INFINITY = float("nan"), float("inf")

# (arguments, type of the error, what its message contains: the value and what is allowed)
ARGUMENTS = {
    "mean of 5": ({"mean": (0.1,) * 5}, ValueError, ["mean", "5", "1 to 4"]),
    "std of 5": ({"std": (0.1,) * 5}, ValueError, ["std", "5", "1 to 4"]),
    "mean of 0": ({"mean": ()}, ValueError, ["mean", "0", "1 to 4"]),
    "lengths": ({"mean": MEAN, "std": (1.0,)}, ValueError, ["mean has 3", "std has 1"]),
    "zero": ({"mean": MEAN, "std": (0.2, 0.0, 0.2)}, ValueError, ["std", "0.0", "zero"]),
    "nan": ({"mean": (NAN, 0.1, 0.1)}, ValueError, ["mean", "nan", "finite"]),
    "infinity": ({"std": (INFINITY, 1, 1)}, ValueError, ["std", "inf", "finite"]),
    "overflow": ({"std": (1e-300, 1, 1)}, ValueError, ["1e-300", "float32"]),
    "both in 0..255": (
        {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375)},
        ValueError,
        ["123.675", "0..1", "mean=(0.485, 0.456, 0.406)", "std=(0.229, 0.224, 0.225)"],
    ),
    "mean in 0..255": ({"mean": (127.5,)}, ValueError, ["127.5", "0..1", "mean=(0.5,)"]),
    "std in 0..255": ({"std": (255.0,) * 3}, ValueError, ["255", "std=(1.0, 1.0, 1.0)"]),
    "string mean": ({"mean": "0.5"}, TypeError, ["mean", "'0.5'", "number"]),
    "strings": ({"mean": ("a", "b", "c")}, TypeError, ["mean", "'a'", "numbers"]),
    "number": ({"mean": 0.5}, TypeError, ["mean", "0.5", "sequence"]),
    "None inside": ({"std": (None, 1, 1)}, TypeError, ["std", "None", "numbers"]),
    "int8": ({"dtype": torch.int8}, ValueError, ["torch.int8", "float32", "float16", "bfloat16"]),
    "float64": ({"dtype": torch.float64}, ValueError, ["torch.float64", "bfloat16"]),
    "dtype name": ({"dtype": "float32"}, TypeError, ["dtype", "'float32'", "torch.dtype"]),
    "channels_last": ({"channels_last": True}, ValueError, ["channels_last", "mean", "dtype"]),
    "channels_last type": (
        {"channels_last": torch.channels_last, **NORMALISED},
        TypeError,
        ["channels_last", "bool"],
    ),
    "image_key alone": ({"image_key": 0}, ValueError, ["image_key=0", "mean"]),
    "image_key type": ({"image_key": 1.5, **NORMALISED}, TypeError, ["image_key", "1.5", "key"]),
    "image_key bool": ({"image_key": True, **NORMALISED}, TypeError, ["image_key", "True"]),
    "depth 0": ({"depth": 0}, ValueError, ["depth=0", "1 to"]),
    "depth -1": ({"depth": -1}, ValueError, ["depth=-1", "1 to"]),
    "depth large": ({"depth": 10**6}, ValueError, ["depth=1000000", "1 to"]),
    "depth True": ({"depth": True}, TypeError, ["depth", "True", "whole number"]),
    "depth x": ({"depth": "x"}, TypeError, ["depth", "'x'", "whole number"]),
    "depth 2.0": ({"depth": 2.0}, TypeError, ["depth", "2.0", "whole number"]),
    "nonsense": ({"device": "nonsense"}, ValueError, ["'nonsense'", "device"]),
    "empty": ({"device": ""}, ValueError, ["''", "device"]),
    "meta": ({"device": "meta"}, ValueError, ["'meta'"]),
    "3.5": ({"device": 3.5}, TypeError, ["device", "3.5", "'auto'"]),
    "True": ({"device": True}, TypeError, ["device", "True"]),
    "list": ({"device": ["cpu"]}, TypeError, ["device", "cpu"]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(way, name):
    arguments, kind, words = ARGUMENTS[name]
    before = running()
    options = {**way.options, **arguments}
    for build in (
        lambda: FastLoader(Pictures(), **options),
        lambda: FastLoader(Pictures(), num_workers=2, **options),
        lambda: DevicePrefetcher([], **options),
    ):
        with pytest.raises(kind) as caught:
            build()
        assert type(caught.value) is kind
        assert all(word in str(caught.value) for word in words), caught.value
    assert running() == before


@pytest.mark.parametrize(
    "given", [42, "seed", np.random.default_rng(1)], ids=lambda given: type(given).__name__
)
def test_a_generator_that_is_none(given):
    with pytest.raises(TypeError, match=r"generator=.*: use a torch\.Generator"):
        FastLoader(Pictures(), generator=given)


@pytest.mark.parametrize("workers", ["4", "x", 2.0, None], ids=repr)
def test_workers_that_are_no_number(workers):
    with pytest.raises(
        TypeError, match=re.escape(f"num_workers={workers!r}: use a whole number or 'auto'")
    ):
        FastLoader(Pictures(), num_workers=workers)


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7", torch.device("cuda")], ids=str)
def test_cuda_where_there_is_none(device):
    with pytest.raises(ValueError) as caught:
        FastLoader(Pictures(), device=device)
    message = str(caught.value)
    assert str(device) in message and "no cuda device" in message and "auto" in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without CUDA")
def test_auto_takes_the_cpu_where_there_is_nothing_else():
    loader = FastLoader(Pictures(), device="auto", **NORMALISED)
    assert loader.stats()["device"] == "cpu"


def test_unknown_arguments():
    with pytest.raises(TypeError, match="std_dev"):
        FastLoader(Pictures(), std_dev=STD)
    with pytest.raises(TypeError, match="batch_size"):
        DevicePrefetcher([], batch_size=3)
    with pytest.raises(TypeError):
        FastLoader(Pictures(), 1, None, None, None, 0, None, False, False, 0, None, None, None, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [0]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"multiprocessing_context": "nonsense", "num_workers": 1},
        {"multiprocessing_context": "fork"},
    ],
    ids=str,
)
def test_torchs_own_errors(way, arguments):
    with pytest.raises((ValueError, TypeError)) as wanted:
        torch.utils.data.DataLoader(Pictures(), **arguments)
    with pytest.raises((ValueError, TypeError)) as got:
        FastLoader(Pictures(), **arguments, **way.options, **NORMALISED)
    assert (type(got.value), str(got.value)) == (type(wanted.value), str(wanted.value))


@pytest.mark.parametrize("name", ["batch_size", "sampler", "dataset", "drop_last"])
def test_attributes_that_torch_protects(name):
    with pytest.raises(ValueError, match=name):
        setattr(FastLoader(Pictures(), device="cpu"), name, None)


@pytest.mark.parametrize("name", ["FASTLOADER_BACKEND", "FASTLOADER_NATIVE"])
def test_environment(monkeypatch, name):
    monkeypatch.setenv(name, "banana")
    with pytest.raises(ValueError, match=f"{name}='banana'"):
        FastLoader(Pictures(), device="cpu", **NORMALISED)


@pytest.mark.parametrize("value", [3, None, object()])
def test_prefetcher_of_what_cannot_be_iterated(value):
    with pytest.raises(TypeError, match=type(value).__name__):
        DevicePrefetcher(value, "cpu")


# --- batches ------------------------------------------------------------------------------------

GOOD = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5)

BATCHES = {
    "float": (torch.rand(2, 3, 4, 5), TypeError, ["float32", "(2, 3, 4, 5)", "ToTensor"]),
    "float64": (torch.rand(2, 3, 4, 5).double(), TypeError, ["float64", "uint8"]),
    "channels": (GOOD[:, :2], ValueError, ["(2, 2, 4, 5)", "3 channels"]),
    "3 dimensions": (GOOD[0], TypeError, ["(3, 4, 5)", "4 dimensions"]),
    "int64": (GOOD.long(), TypeError, ["int64", "uint8"]),
    "no tensor": ("text", TypeError, ["no tensor at all", "uint8"]),
    "list": ([GOOD[0], GOOD[1]], TypeError, ["uint8", "Collate"]),
}


class Mixed(torch.utils.data.Dataset):
    """Batches (batch_size=None) of which the one at 2 is bad."""

    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.bad if index == 2 else (GOOD + index, index)


def deliver_around(loader, at):
    """All batches, with the exception that came instead of number ``at``."""
    iterator = iter(loader)
    seen, failure = [], None
    for number in range(6):
        if number == at:
            with pytest.raises(Exception) as caught:
                next(iterator)
            failure = caught.value
        else:
            seen.append(next(iterator))
    with pytest.raises(StopIteration):
        next(iterator)
    return seen, failure


@pytest.mark.parametrize("name", BATCHES)
@WORKERS
def test_batches_without_an_image(way, name, workers):
    batch, kind, words = BATCHES[name]
    options = {"batch_size": None, "num_workers": workers, **NORMALISED, **way.options}
    loader = FastLoader(Mixed((batch, 2)), **options)
    seen, failure = deliver_around(loader, 2)
    assert type(failure) is kind
    assert all(word in str(failure) for word in words), failure
    assert [index for _, index in seen] == [0, 1, 3, 4, 5]
    for image, index in seen:
        same_bits(image, normalised(GOOD + index, MEAN, STD, torch.float32))
    loader.close()


@WORKERS
def test_image_key_that_leads_nowhere(way, workers):
    loader = FastLoader(
        Pictures(4), num_workers=workers, image_key="x", **NORMALISED, **way.options
    )
    with pytest.raises((TypeError, ValueError), match="'x'"):
        next(iter(loader))
    loader.close()


@WORKERS
def test_a_batch_larger_than_the_machine_allows(twin, monkeypatch, workers):
    monkeypatch.setattr(engine, "max_slot_bytes", lambda depth: 4096)
    options = {"batch_size": None, "num_workers": workers, **NORMALISED, **twin.options}
    loader = FastLoader(Mixed((torch.zeros(2, 3, 40, 50, dtype=torch.uint8), 2)), **options)
    for _ in range(2):
        seen, failure = deliver_around(loader, 2)
        assert type(failure) is ValueError
        assert "4096" in str(failure) and "12" in str(failure) and "batch_size" in str(failure)
        for image, index in seen:
            same_bits(image, normalised(GOOD + index, MEAN, STD, torch.float32))
    loader.close()


@WORKERS
def test_a_batch_that_outgrows_its_slot(twin, workers):
    class Growing(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return torch.full((1, 3, 30 * (index + 1), 40), index, dtype=torch.uint8), index

    options = {"batch_size": None, "num_workers": workers, **NORMALISED, **twin.options}
    loader = FastLoader(Growing(), **options)
    kept = list(loader)
    assert loader.stats()["ring"]["slot_growths"] > 0
    for index, (image, label) in enumerate(kept):
        assert label == index and image.shape == (1, 3, 30 * (index + 1), 40)
        pixels = torch.full(image.shape, index, dtype=torch.uint8)
        same_bits(image, normalised(pixels, MEAN, STD, torch.float32))


def test_delivered_batches_do_not_change_when_a_later_one_is_bad(way):
    loader = FastLoader(Mixed("bad"), batch_size=None, **NORMALISED, **way.options)
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(2)]
    copies = [image.clone() for image, _ in kept]
    with pytest.raises(TypeError):
        next(iterator)
    loader.close()
    assert all(torch.equal(image, copied) for (image, _), copied in zip(kept, copies))
