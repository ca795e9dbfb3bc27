"""Pictures and masks that follow an `EncodedImage` under one draw."""

import pickle
import random

import numpy as np
import pytest
import torch
from followed import (
    SCALE,
    Files,
    Followed,
    as_larger,
    indices_of,
    moved_by_torchvision,
    png_of,
    random_chain,
)
from PIL import Image
from pictures import import_torchvision, open_as_torchvision, upstream_pillow
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, default_collate

from fastloader import Companion, EncodedImage, EncodedMask, FastLoader
from fastloader import transforms as T
from support import MEAN, STD, same

v1 = import_torchvision().transforms
v2 = pytest.importorskip("torchvision.transforms.v2")

COUNT = 10


def collated(samples):
    return default_collate(samples)


WAYS = {
    "native": {},
    "workers": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "pillow": {"native": False},
    "pillow in workers": {"native": False, "num_workers": 2},
    "collate_fn": {"collate_fn": collated},
    "collate_fn in workers": {"collate_fn": collated, "num_workers": 2},
    "collate_fn and pillow": {"collate_fn": collated, "native": False},
}
CROP = T.Compose([T.RandomResizedCrop(24, (0.1, 1)), T.RandomHorizontalFlip(), T.ColorJitter(0.4)])
PADDED = [T.Pad((2, 1), 5, mode) for mode in ("constant", "edge", "reflect", "symmetric")]
CHAINS = {
    "a random crop that is resized": CROP,
    "a crop with padding": T.RandomCrop((21, 40), padding=3, pad_if_needed=True, fill=4),
    "a crop of what is padded otherwise": T.RandomCrop(
        20, padding=1, pad_if_needed=True, padding_mode="edge"
    ),
    "the shorter edge": T.Compose([T.Resize(17), T.CenterCrop(13)]),
    "the longer edge, too": T.Compose([T.Resize(17, max_size=19), T.CenterCrop((25, 12))]),
    "both edges": T.Compose([T.Resize((12, 30), interpolation="bicubic"), T.RandomVerticalFlip()]),
    "larger than the picture": T.CenterCrop((330, 310)),
    "pads": T.Compose([T.Resize((9, 7)), *PADDED]),
    "colours": T.Compose(
        [T.RandomResizedCrop(8), T.RandomEqualize(1), T.GaussianBlur(3), T.Grayscale()]
    ),
    "choices": T.Compose(
        [
            T.RandomApply([T.Resize((14, 9)), T.ColorJitter(0.5)], 0.5),
            T.RandomChoice([T.Pad(4), T.RandomHorizontalFlip(1), T.RandomVerticalFlip(1)]),
            T.RandomOrder([T.Pad(1, fill=9), T.RandomHorizontalFlip()]),
            T.Resize((11, 10)),
        ]
    ),
    "torchvision's v1": v1.Compose([v1.RandomResizedCrop(12), v1.RandomVerticalFlip()]),
    "torchvision's v2": v2.Compose(
        [
            v2.RandomResizedCrop((12, 40)),
            v2.RandomApply([v2.Pad(5, fill=3)]),
            v2.ColorJitter(0.4, 0.4),
            v2.Resize((24, 20)),
        ]
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("followed"), COUNT, 7)


def batches_of(dataset, seed=3, **options):
    torch.manual_seed(seed)
    loader = FastLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})
    return loader, list(loader)


def in_bytes(transform):
    """The transform with an end that gives a tensor, if it is torchvision's."""
    if type(transform) is v1.Compose:
        return v1.Compose([transform, v1.PILToTensor()])
    return v2.Compose([transform, v2.PILToTensor()]) if type(transform) is v2.Compose else transform


def check(loader, batches, files):
    """Each companion is what its steps make of its file, and its steps are those of the picture."""
    for batch, numbers in batches:
        for row, number in enumerate(numbers.tolist()):
            drawn = loader.replay(number)
            steps = drawn["steps"]
            assert drawn["with"]["same"]["steps"] == steps
            if "large" in batch:
                assert drawn["with"]["large"]["steps"] == as_larger(steps, SCALE)
                assert drawn["with"]["large"]["box"] == tuple(SCALE * edge for edge in drawn["box"])
            pictures = {"image": steps, "same": steps, "large": as_larger(steps, SCALE)}
            for key in pictures.keys() & batch.keys():
                source = files.of(number, "large" if key == "large" else "")
                made = T.PILToTensor()(T.apply(open_as_torchvision(source), pictures[key]))
                assert torch.equal(batch[key][row].cpu(), made[: batch[key].shape[1]]), key
            for key in {"mask", "wide"} & batch.keys():
                indices = indices_of(files.of(number, key))
                wanted = moved_by_torchvision(v2, indices, steps)
                assert torch.equal(batch[key][row].cpu().int(), wanted), (key, number, steps)


# --- values -----------------------------------------------------------------------------------------


@upstream_pillow
@pytest.mark.parametrize("name", CHAINS)
def test_companions_are_what_torchvision_makes(files, name):
    loader, got = batches_of(Followed(files, in_bytes(CHAINS[name])))
    assert [tuple(batch[0]) for batch in got] == [("image", "same", "mask", "wide", "large")] * 3
    assert {str(batch[0]["mask"].dtype) for batch in got} == {"torch.int64"}
    assert {str(batch[0]["wide"].dtype) for batch in got} == {"torch.uint16"}
    check(loader, got, files)
    counted = loader.stats()["pictures"]
    assert counted["workers"] == 0
    assert "decode threads for encoded pictures" in loader.plan()


@upstream_pillow
@pytest.mark.parametrize("seed", range(6))
def test_random_chains(tmp_path, seed):
    random_chains(tmp_path, seed)


@upstream_pillow
@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 260))
def test_more_random_chains(tmp_path, seed):
    random_chains(tmp_path, seed)


def random_chains(tmp_path, seed):
    rng = random.Random(seed)
    files = Files(tmp_path, 6, seed)
    dataset = Followed(files, random_chain(rng))
    try:
        loader, got = batches_of(dataset, seed)
    except ValueError as error:
        # A border that is larger than the picture, or one of its edges that is resized to nothing.
        assert any(each in str(error) for each in ("padding", "not 0", "too thin")), error
        return
    check(loader, got, files)
    same(batches_of(dataset, seed, native=False)[1], got)
    same(batches_of(dataset, seed, collate_fn=collated)[1], got)


# --- ways to make them ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(WAYS)[1:])
@pytest.mark.parametrize("name", ["choices", "torchvision's v2"])
def test_all_ways_make_the_same(files, name, way):
    dataset = Followed(files, in_bytes(CHAINS[name]))
    wanted_by, wanted = batches_of(dataset)
    loader, got = batches_of(dataset, **WAYS[way])
    same(got, wanted)
    for number in range(COUNT):
        assert loader.replay(number) == wanted_by.replay(number)
    counted = loader.stats()["pictures"]
    made = {each: counted[each] for each in ("pool", "pillow", "workers")}
    who = {"pillow": "pillow", "pillow in workers": "workers"}.get(way, "pool")
    if "collate_fn" in way:
        who = "workers"
    assert made == {**dict.fromkeys(made, 0), who: 5 * COUNT}


def test_floats_and_erasing(files, way):
    end = [T.ToTensor(), T.Normalize(MEAN, STD), T.RandomErasing(1, value="random")]
    chain = T.Compose([*CROP.transforms, *end])
    loader, got = batches_of(Followed(files, chain, large=False), **way.options)
    _, plain = batches_of(Followed(files, CROP, large=False))
    for (batch, _), (other, _) in zip(got, plain, strict=True):
        same(batch["image"], batch["same"])
        assert batch["image"].dtype == torch.float32
        same(
            {key: batch[key] for key in ("mask", "wide")},
            {key: other[key] for key in ("mask", "wide")},
        )
    names = [name for name, _ in loader.replay(0)["with"]["same"]["steps"]]
    assert names[-1] == "erase"
    assert "erase" not in [name for name, _ in loader.replay(0)["with"]["mask"]["steps"]]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"batch_size": 3}], ids=str)
def test_the_delivery_normalises_pictures_and_no_masks(files, way, options):
    _, wanted = batches_of(Followed(files, CROP), **{"batch_size": 3, **options})
    loader, got = batches_of(
        Followed(files, CROP), mean=MEAN, std=STD, **{"batch_size": 3, **options, **way.options}
    )
    for (batch, numbers), (other, again) in zip(got, wanted, strict=True):
        same(numbers.cpu(), again)
        for key, value in other.items():
            if key in ("mask", "wide"):
                same(batch[key].cpu(), value)
            else:
                float_of = T.Normalize(MEAN, STD)(value.float() / 255)
                torch.testing.assert_close(batch[key].cpu(), float_of, rtol=1e-5, atol=1e-5)


def test_without_the_native_module(files, enter_way):
    dataset = Followed(files, CROP)
    _, wanted = batches_of(dataset)
    enter_way("pure")
    for options in ({}, {"num_workers": 2}, {"collate_fn": collated}):
        same(batches_of(dataset, **options)[1], wanted)
