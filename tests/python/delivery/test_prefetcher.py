"""DevicePrefetcher: delivery for any iterable of batches."""

import typing
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, FastLoader
from fastloader._core.machine import devices
from support import MEAN, STD, Pictures, nothing_left_running, running

pytestmark = pytest.mark.covering

NORMALISED = {"mean": MEAN, "std": STD}
DATA = Pictures(10)


def batches():
    return [(DATA.images[i : i + 2], torch.arange(i, i + 2)) for i in range(0, 10, 2)]


class OnlyIter:
    def __iter__(self):
        return iter(batches())


SOURCES = {
    "list": batches,
    "tuple": lambda: tuple(batches()),
    "generator": lambda: (batch for batch in batches()),
    "object": OnlyIter,
    "loader": lambda: DataLoader(DATA, batch_size=2),
    "loader with workers": lambda: DataLoader(DATA, batch_size=2, num_workers=2),
    "persistent": lambda: DataLoader(DATA, batch_size=2, num_workers=2, persistent_workers=True),
}
HAS_LENGTH = {"list", "tuple", "loader", "loader with workers", "persistent"}


def check(delivered):
    assert [label.tolist() for _, label in delivered] == [[i, i + 1] for i in range(0, 10, 2)]
    for image, label in delivered:
        same_bits(image, normalised(DATA.images[label], MEAN, STD, torch.float32))


@pytest.mark.parametrize("name", SOURCES)
def test_sources(way, name):
    before = running()
    delivery = DevicePrefetcher(SOURCES[name](), "cpu", **NORMALISED)
    check(list(delivery))
    if name == "generator":
        assert list(delivery) == []  # used up, as any generator
    else:
        check(list(delivery))
        next(iter(delivery))
        check(list(delivery))
    if name in HAS_LENGTH:
        assert len(delivery) == 5
    else:
        with pytest.raises(TypeError):
            len(delivery)
    delivery.close()
    delivery.close()
    del delivery
    nothing_left_running(before)


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "generator"])
def test_without_normalising(way, name):
    for _ in range(2):
        for (image, label), (wanted, number) in zip(
            DevicePrefetcher(SOURCES[name](), "cpu"), batches(), strict=True
        ):
            assert torch.equal(image, wanted) and torch.equal(label, number)


def test_a_generator_advances_only_when_asked_and_on_this_thread(way):
    import threading

    asked = []

    def generate():
        for batch in batches():
            asked.append(threading.get_ident())
            yield batch

    for number, _ in enumerate(DevicePrefetcher(generate(), "cpu", **NORMALISED), 1):
        assert asked == [threading.get_ident()] * number


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["generator", "loader with workers"])
def test_errors_of_the_source(way, name):
    class Faulty(Pictures):
        def __getitem__(self, index):
            if index == 4:
                raise LookupError("lost")
            return super().__getitem__(index)

    def generate():
        yield from batches()[:2]
        raise LookupError("lost")

    source = generate() if name == "generator" else DataLoader(Faulty(10), 2, num_workers=2)
    iterator = iter(DevicePrefetcher(source, "cpu", **NORMALISED))
    seen = [next(iterator), next(iterator)]
    with pytest.raises(LookupError, match="lost"):
        next(iterator)
    assert [label.tolist() for _, label in seen] == [[0, 1], [2, 3]]


def test_context_manager_and_device(way):
    with DevicePrefetcher(batches(), "cpu", **NORMALISED) as delivery:
        assert delivery.device == way.target
        check(list(delivery))
        assert delivery.stats()["batches"] == 5 and delivery.stats()["path"] == way.path
    assert DevicePrefetcher([], None).device is None


def test_two_at_once_and_nested(way):
    inner = DevicePrefetcher(batches(), "cpu")
    outer = DevicePrefetcher(inner, "cpu", **NORMALISED)
    assert len(list(zip(outer, outer))) == 5
    check(list(outer))


def test_nothing_to_deliver(way):
    assert list(DevicePrefetcher([], "cpu", **NORMALISED)) == []


class Shown:
    """An iterator that counts its own ``progress``, and can be neither closed nor referred to weakly."""

    __slots__ = ("progress",)

    def __init__(self):
        self.progress = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.progress += 1
        return self.progress


def test_close_leaves_an_iterator_alone_that_is_only_passed_on():
    class Iterable:
        def __iter__(self):
            return Shown()

    with DevicePrefetcher(Iterable(), "cpu") as loader:
        iterator = iter(loader)
        assert next(iterator) == 1
    assert next(iterator) == 2


@pytest.mark.parametrize("dataset", [Pictures(8), torch.arange(8)], ids=["python", "arrays"])
def test_close_leaves_the_iterator_of_a_plain_fastloader_alone(dataset):
    with FastLoader(dataset, batch_size=2) as ours:
        with DevicePrefetcher(ours, "cpu") as loader:
            iterator = iter(loader)
            next(iterator)
        assert len(list(iterator)) == 3


def test_batches_may_be_reused_by_their_source(way):
    """A source that fills one buffer again and again: what was delivered stays."""
    buffer = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)

    def fill():
        for value in range(5):
            yield buffer.fill_(value)

    kept = list(DevicePrefetcher(fill(), "cpu", **NORMALISED))
    for value, image in enumerate(kept):
        pixels = torch.full((2, 3, 4, 4), value, dtype=torch.uint8)
        same_bits(image, normalised(pixels, MEAN, STD, torch.float32))


@pytest.mark.parametrize("found", [None, "cuda"])
def test_the_default_device_is_the_accelerator_or_the_cpu(monkeypatch, found):
    monkeypatch.setattr(devices, "accelerator_type", lambda: found)
    monkeypatch.setattr(devices, "_device_count", lambda kind, *_: int(kind == found))
    monkeypatch.setattr(devices, "_module", lambda kind: SimpleNamespace(current_device=lambda: 0))
    monkeypatch.setattr(devices, "native_cuda_problem", lambda: "")
    prefetcher = DevicePrefetcher([])
    assert prefetcher.device == torch.device(found or "cpu")
    # Which of several is decided at the first iter(), for a loader made before set_device().
    prefetcher._delivery.settle()
    assert prefetcher.device == torch.device("cpu" if found is None else "cuda:0")


def test_what_torch_calls_the_accelerator_is_found():
    """The other half of the test above: on this machine, without a stand-in."""
    if not hasattr(torch, "accelerator"):
        pytest.skip("torch < 2.6 knows no accelerator")
    found = torch.accelerator.current_accelerator(check_available=True)
    assert DevicePrefetcher([]).device.type == ("cpu" if found is None else found.type)


def test_generic():
    """Its type parameter is for readers: what is made is the class itself, and works."""
    made = DevicePrefetcher[torch.Tensor](batches(), "cpu", **NORMALISED)
    assert type(made) is DevicePrefetcher
    assert typing.get_args(DevicePrefetcher[torch.Tensor]) == (torch.Tensor,)
    check(list(made))
