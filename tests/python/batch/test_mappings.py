"""Mappings that can move themselves, such as the ones of Hugging Face, are opened as mappings are: their
tensors go through the rings, and are normalised."""

import collections

import pytest
import torch
from pictures import plain_folder
from torch.utils.data import Dataset, TensorDataset

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, EncodedImage, FastLoader
from fastloader._core.batch.augmentation import Augmentation, RandomErasing
from fastloader._core.batch.tree import Movable, flatten, rebuild
from fastloader._core.machine import devices
from fastloader.datasets import ImageFolder
from fastloader.transforms import Compose, Resize
from support import MEAN, STD, Pictures, random_images, same


class Encoding(collections.UserDict):
    """As transformers' BatchEncoding and BatchFeature, without what they need."""

    def __init__(self, data=None, note=""):
        super().__init__(data)
        self.note = note

    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getstate__(self):
        return {"data": self.data, "note": self.note}

    def __setstate__(self, state):
        self.data, self.note = state["data"], state["note"]

    def to(self, device, **_):
        raise AssertionError("its tensors were to go through the ring")


class MovableDict(dict):
    to = Encoding.to


class Graph(dict):
    """A dict with a tensor beside its items."""

    def __init__(self, items, edges):
        super().__init__(items)
        self.edges = edges
        self.went_to = None

    def to(self, device):
        self.went_to = device
        return self


def batch_of(kind, start=0):
    ids = torch.arange(start, start + 4 * 600).reshape(4, 600)
    return kind({"input_ids": ids, "attention_mask": torch.ones(4, 600), "text": ["a", "b"]})


def rows(samples):
    return batch_of(Encoding, samples[0])


def kinds():
    yield Encoding
    yield MovableDict
    transformers = pytest.importorskip("transformers")
    yield transformers.BatchEncoding
    yield transformers.BatchFeature


@pytest.mark.parametrize("number", range(4))
def test_they_are_opened(way, number):
    kind = list(kinds())[number] if number > 1 else (Encoding, MovableDict)[number]
    image = random_images(5, 4, 3, 5, 7)
    given = batch_of(kind)
    given["pixel_values"] = image
    with DevicePrefetcher([given], "cpu", mean=MEAN, std=STD, image_key="pixel_values") as delivery:
        (out,) = list(delivery)
        if way.path == "engine":  # all of it was copied into the ring
            ring = delivery.stats()["ring"]
            assert ring["copied_bytes"] == sum(
                each.nbytes for each in given.values() if isinstance(each, torch.Tensor)
            )
    assert type(out) is kind and out is not given
    same_bits(out["pixel_values"], normalised(image, MEAN, STD, torch.float32))
    del out["pixel_values"]
    same(out, batch_of(kind))
    assert given["pixel_values"] is image


def test_what_they_hold_beside_their_items_stays(way):
    with DevicePrefetcher([Encoding({"x": torch.ones(3)}, "kept")], "cpu") as delivery:
        (out,) = list(delivery)
    assert out.note == "kept" and torch.equal(out.x, torch.ones(3))


def test_one_with_a_tensor_beside_its_items_moves_itself(way):
    graph = Graph({"x": torch.ones(3)}, edges=torch.arange(4))
    with DevicePrefetcher([(graph, torch.zeros(2))], "cpu") as delivery:
        ((out, _),) = list(delivery)
    assert out is graph
    assert graph.went_to == (None if way.path == "cpu" else way.target)
    assert type(flatten(graph).template) is Movable


@pytest.mark.parametrize("workers", [1, 2])
def test_they_come_through_the_workers_ring(way, workers):
    loader = FastLoader(range(0, 40, 4), 1, num_workers=workers, collate_fn=rows, **way.options)
    for number, batch in enumerate(loader):
        same(batch, batch_of(Encoding, 4 * number))
    if way.name != "pure":
        counted = loader.stats()["workers"]
        assert counted["slots_used"] == 10 and counted["fallbacks"] == 0


# --- pin_memory, where another accelerator than CUDA is there ---------------------------------------


@pytest.mark.parametrize(("kind", "batches"), [("xpu", 3), ("mps", 0), (None, 0)])
def test_native_pictures_are_pinned_for_torchs_streams(
    tmp_path, enter_way, monkeypatch, kind, batches
):
    enter_way("streams")
    pinned = []

    def pin(tensor, device=None):
        pinned.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(devices, "accelerator_type", lambda: kind)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    folder = ImageFolder(plain_folder(tmp_path, count=12), Compose([Resize((8, 8))]))
    loader = FastLoader(folder, 4, pin_memory=True, device="cpu", mean=MEAN, std=STD)
    assert "native images" in loader.plan()
    assert len(list(loader)) == 3
    assert len(pinned) == 2 * batches


@pytest.mark.parametrize("kind", ["python", "workers", "arrays", "pictures", "erased"])
def test_what_is_normalised_on_the_cpu_is_pinned(tmp_path, enter_way, monkeypatch, kind):
    """Not the bytes that it is made of."""
    enter_way("cpu")
    pinned = []

    def pin(tensor, device=None):
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(devices, "accelerator_type", lambda: "xpu")
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    data = Pictures(12)
    if kind == "arrays":
        data = TensorDataset(data.images, torch.arange(12))
    elif kind in ("pictures", "erased"):
        data = ImageFolder(plain_folder(tmp_path, count=12), Compose([Resize((8, 8))]))
    loader = FastLoader(
        data, 4, pin_memory=True, mean=MEAN, std=STD, num_workers=2 * (kind == "workers")
    )
    if kind == "erased":
        loader._runtime.delivery.augment(Augmentation(RandomErasing(0.9), None))
    batches = list(loader)
    assert len(batches) == 3
    assert {id(tensor) for batch in batches for tensor in batch} == {id(each) for each in pinned}


class Encoded(Dataset):
    def __init__(self, root):
        self.paths = sorted(root.glob("*/*"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return EncodedImage(self.paths[index], Compose([Resize((8, 8))])), torch.tensor(index)


def dict_of(samples):
    return {"pixels": torch.stack([each[0] for each in samples]), "more": [torch.ones(2)]}


@pytest.mark.skipif(not hasattr(torch, "accelerator"), reason="torch.accelerator came later")
@pytest.mark.parametrize("how", [{}, {"collate_fn": dict_of}, {"batch": "list"}, {"batch": "pad"}])
@pytest.mark.parametrize("kind", ["known", "encoded"])
@pytest.mark.parametrize("workers", [0, 1])
def test_every_tensor_that_the_loop_gets_is_pinned(tmp_path, monkeypatch, kind, how, workers):
    """With pin_memory and no device, whoever made the pictures."""

    class Pinned(torch.Tensor):
        pass

    def pin(tensor, device=None):
        return tensor.as_subclass(Pinned)

    monkeypatch.setattr(devices, "accelerator_type", lambda: "xpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda number: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    root = plain_folder(tmp_path, count=12)
    data = Encoded(root) if kind == "encoded" else ImageFolder(root, Compose([Resize((8, 8))]))
    loader = FastLoader(data, 4, pin_memory=True, num_workers=workers, **how)
    found = []
    for batch in loader:
        rebuild(batch, lambda value, _key: found.append(type(value)))
    assert len(found) > 3 and set(found) == {Pinned}


class Layers(collections.ChainMap):
    """A ChainMap with something of its own."""

    note = ""


@pytest.mark.parametrize("kind", [collections.ChainMap, Layers])
def test_each_map_of_a_chain_keeps_its_items(way, kind):
    images = random_images(8, 4, 3, 5, 7)
    hidden = torch.arange(3.0)
    defaults = {"image": hidden, "scale": torch.arange(4.0)}
    given = kind({"image": images}, collections.OrderedDict(label=torch.arange(4)), defaults)
    given.note = "kept"
    (got,) = DevicePrefetcher([given], "cpu", mean=MEAN, std=STD, image_key="image")
    assert type(got) is kind and got.note == "kept"
    assert [type(each) for each in got.maps] == [dict, collections.OrderedDict, dict]
    assert [list(each) for each in got.maps] == [["image"], ["label"], ["image", "scale"]]
    same_bits(got["image"], normalised(images, MEAN, STD, torch.float32))
    same(dict(got.maps[1]), dict(given.maps[1]))
    same(got.maps[2], defaults)
    got.maps[2]["scale"].zero_()  # the dataset's own are left alone
    del got["image"]  # what it hid comes to light
    assert torch.equal(got["image"], hidden)
    assert list(given.maps[0]) == ["image"] and torch.equal(given["image"], images)
