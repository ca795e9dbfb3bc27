"""Pictures that a dataset gives as they are encoded, and the loader's threads make."""

import gc
import weakref

import numpy as np
import pytest
import torch
from encoded_samples import (
    CROP,
    WHOLE,
    Captions,
    Stream,
    Views,
    as_bytes,
    as_path,
    as_tensor,
    as_view,
    paths_below,
)
from pictures import open_as_torchvision, plain_folder, random_folder
from torch.utils.data import DataLoader, Subset, default_collate
from torch.utils.data._utils import collate

import fastloader
from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder, encoded
from support import same

pytestmark = pytest.mark.covering

WORKERS = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "worker_backend": "thread"},
    {"num_workers": 1, "multiprocessing_context": "spawn"},
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return paths_below(plain_folder(tmp_path_factory.mktemp("plain"), 11))


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory):
    return paths_below(random_folder(tmp_path_factory.mktemp("kinds"), 5, others=True))


def batches_of(dataset, seed=3, **options):
    torch.manual_seed(seed)
    loader = FastLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})
    return loader, list(loader)


def made_by(loader):
    counted = loader.stats()["pictures"]
    return {who: counted[who] for who in ("pool", "pillow", "workers")}


# --- the same as a folder -------------------------------------------------------------------------


def test_pictures_are_those_of_a_folder(tmp_path, way):
    root = plain_folder(tmp_path, 9, classes=1)
    chain = T.Compose([*CROP.transforms, T.ToTensor(), T.RandomErasing(0.7)])
    _, wanted = batches_of(ImageFolder(str(root), chain), **way.options)
    loader, got = batches_of(Captions(paths_below(root), chain), num_workers=2, **way.options)
    if way.name == "pure":
        pytest.skip("a folder draws from torch's generator without the native module")
    for (images, *_), (others, *_) in zip(got, wanted, strict=True):
        same(images, others)
    assert loader.plan().startswith("Python path: ")
    assert "decode threads for encoded pictures" in loader.plan()
    assert "2 worker processes, " in loader.plan()


def test_pillow_makes_the_same_pictures_without_the_native_module(all_kinds, enter_way):
    _, wanted = batches_of(Views(all_kinds))
    loader, got = batches_of(Views(all_kinds), native=False, num_workers=2)
    assert made_by(loader) == {"pool": 0, "pillow": 0, "workers": 5 * len(all_kinds)}
    enter_way("pure")
    _, pure = batches_of(Views(all_kinds))
    for batch, other, another in zip(got, wanted, pure, strict=True):
        exactly = {
            "rtol": 0,
            "atol": 0,
            "equal_nan": True,
        }  # "steps" has NaN where there is nothing
        torch.testing.assert_close(batch, other, **exactly)
        torch.testing.assert_close(another, other, **exactly)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
@pytest.mark.parametrize("source", [as_path, as_bytes, as_view, as_tensor])
def test_neither_workers_nor_the_kind_of_source_matter(all_kinds, source, options):
    _, wanted = batches_of(Captions(all_kinds))
    loader, got = batches_of(Captions(all_kinds, source=source), **options)
    assert len(got) == len(wanted)
    for batch, other in zip(got, wanted):
        same(batch, other)
    counted = loader.stats()["pictures"]
    assert counted["pool"] + counted["pillow"] == len(all_kinds)
    assert counted["workers"] == 0


def test_every_picture_is_what_replay_says(all_kinds, way):
    dataset = Captions(all_kinds, T.Compose([*CROP.transforms, T.PILToTensor()]))
    loader, got = batches_of(dataset, num_workers=2, **way.options)
    for images, numbers, texts in got:
        for image, number, text in zip(images, numbers.tolist(), texts):
            assert text == f"text {number}"
            picture = open_as_torchvision(all_kinds[number])
            made = T.apply(picture, loader.replay(number)["steps"])
            assert torch.equal(T.PILToTensor()(made), image.cpu())
    with pytest.raises(ValueError, match="sample 99 was not among the last"):
        loader.replay(99)


def test_a_subset_keeps_the_pictures_of_its_dataset(paths):
    dataset = Captions(paths, WHOLE)
    picked = [7, 2, 2, 9, -1]
    _, got = batches_of(Subset(dataset, picked), shuffle=False)
    _, wanted = batches_of(dataset, shuffle=False, sampler=[each % len(paths) for each in picked])
    for batch, other in zip(got, wanted, strict=True):
        same(batch[0], other[0])


def test_the_epochs_differ_and_a_seed_repeats_them(paths):
    torch.manual_seed(1)
    loader = FastLoader(Captions(paths), 4, num_workers=2, persistent_workers=True)
    first, second = list(loader), list(loader)
    assert not any(torch.equal(a[0], b[0]) for a, b in zip(first, second))
    torch.manual_seed(1)
    other = FastLoader(Captions(paths), 4, num_workers=1, persistent_workers=True)
    for epoch in (first, second):
        for batch, again in zip(epoch, list(other), strict=True):
            same(batch, again)


def test_a_sampler_that_repeats_gives_other_crops(paths):
    _, got = batches_of(Captions(paths), shuffle=False, sampler=[3, 3, 3, 3], batch_size=2)
    images = torch.cat([batch[0] for batch in got])
    assert len({image.numpy().tobytes() for image in images}) == 4


@pytest.mark.parametrize("options", WORKERS[:3], ids=str)
def test_the_rest_of_an_epoch_is_the_same_after_a_resume(paths, options):
    def made():
        torch.manual_seed(8)
        return FastLoader(Captions(paths), 2, shuffle=True, generator=torch.Generator(), **options)

    whole = list(made())
    loader = made()
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    del iterator
    resumed = made()
    resumed.load_state_dict(state)
    for batch, wanted in zip(resumed, whole[2:], strict=True):
        same(batch, wanted)


# --- several views ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [as_path, as_bytes])
@pytest.mark.parametrize("options", WORKERS[:3], ids=str)
def test_views_are_drawn_one_by_one(all_kinds, source, options, way):
    loader, got = batches_of(Views(all_kinds, source=source), **options, **way.options)
    for batch in got:
        large, small = batch["views"]
        for row, number in enumerate(batch["target"].tolist()):
            drawn = loader.replay(number)
            assert len(drawn) == 5
            picture = open_as_torchvision(all_kinds[number])
            if min(picture.size) > 20:
                assert len({str(each["steps"]) for each in drawn}) == 5
            for view, (images, parameters) in enumerate(large):
                steps = T.named_steps(parameters["steps"][row])
                assert steps == drawn[view]["steps"]
                assert tuple(parameters["box"][row].tolist()) == tuple(drawn[view]["box"])
                assert tuple(parameters["size"][row].tolist()) == picture.size[::-1]
                assert bool(parameters["hflip"][row]) == drawn[view]["hflip"]
                made = T.PILToTensor()(T.apply(picture, steps))
                assert torch.equal(made, images[row].cpu())
            for view, images in enumerate(small, start=2):
                made = T.ToTensor()(T.apply(picture, drawn[view]["steps"]))
                torch.testing.assert_close(images[row].cpu(), made, rtol=0, atol=1e-6)


class Counting(Views):
    """Each view of a source of its own."""

    def __getitem__(self, i):
        views = [EncodedImage(as_bytes(self.paths[i]), CROP) for _ in range(3)]
        return views, i


def test_views_of_one_source_are_read_once(paths):
    loader, _ = batches_of(Views(paths))
    assert loader.report().stages["read"].count == len(paths)
    loader, _ = batches_of(Counting(paths))
    assert loader.report().stages["read"].count == 3 * len(paths)


# --- what is not left to the loader's threads -------------------------------------------------------


class Inverted:
    def __call__(self, image):
        return T.PILToTensor()(image.point(lambda value: 255 - value))


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_a_step_of_ones_own_runs_where_the_samples_are_made(paths, options):
    chain = T.Compose([T.Resize((9, 7)), Inverted()])
    loader, got = batches_of(Captions(paths, chain), shuffle=False, **options)
    for images, numbers, _ in got:
        for image, number in zip(images, numbers.tolist()):
            assert torch.equal(image, chain(open_as_torchvision(paths[number])))
    assert loader.stats()["pictures"]["workers"] == len(paths)


def doubled(samples):
    images, numbers, _ = default_collate(samples)
    return {"images": images, "numbers": numbers * 2}


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_a_collate_fn_of_ones_own_gets_tensors(paths, options):
    loader, got = batches_of(Captions(paths, WHOLE), shuffle=False, collate_fn=doubled, **options)
    for batch in got:
        for image, number in zip(batch["images"], batch["numbers"].tolist()):
            wanted = WHOLE(open_as_torchvision(paths[number // 2]))
            assert torch.equal(image, T.PILToTensor()(wanted))
    assert loader.stats()["pictures"]["workers"] == len(paths)


def as_doubles(batch, *, collate_fn_map=None):
    return torch.stack([torch.as_tensor(each) for each in batch]).double()


class Pair:
    def __init__(self, *pair):
        self.pair = pair


def halves(batch, *, collate_fn_map=None):
    pairs = [each.pair for each in batch]
    images, numbers = (
        collate.collate([*each], collate_fn_map=collate_fn_map) for each in zip(*pairs)
    )
    return images // 2, numbers


class Pairs(Captions):
    def __getitem__(self, i):
        picture, number, _ = super().__getitem__(i)
        return Pair(picture, number), picture


def pictures_as_doubles(batch, *, collate_fn_map=None):
    return encoded.collate_encoded(batch, collate_fn_map=collate_fn_map).double()


def lists_in_halves(batch, *, collate_fn_map=None):
    columns = [collate.collate([*each], collate_fn_map=collate_fn_map) for each in zip(*batch)]
    return [columns[0] // 2, *columns[1:]]


# With how many of the 11 pictures are made where their samples are.
MAPS = [
    (torch.Tensor, as_doubles, Captions, 11),
    (EncodedImage, pictures_as_doubles, Captions, 11),
    (tuple, lists_in_halves, Captions, 11),
    (Pair, halves, Pairs, 11),  # and the ones beside the pairs are not
    (Pair, halves, Captions, 0),
]


@pytest.mark.parametrize("options", WORKERS[:3], ids=str)
@pytest.mark.parametrize(("kind", "function", "dataset", "made"), MAPS)
def test_the_functions_of_torchs_map_collate_the_pictures(
    monkeypatch, paths, kind, function, dataset, made, options
):
    monkeypatch.setitem(collate.default_collate_fn_map, kind, function)
    loader = FastLoader(dataset(paths, WHOLE), 4, **options)
    same([*loader], [*DataLoader(dataset(paths, WHOLE), 4)])
    assert loader.stats()["pictures"]["workers"] == made
    assert not made or "default_collate_fn_map" in loader.plan()
    if kind is torch.Tensor:
        assert f"default_collate_fn_map has {__name__}.as_doubles for Tensor" in loader.plan()
        monkeypatch.delitem(collate.default_collate_fn_map, kind)
        with pytest.raises(TypeError, match="Tensor"):
            list(FastLoader(dataset(paths, WHOLE), 4, **options))
        monkeypatch.undo()
        same([*loader], [*DataLoader(dataset(paths, WHOLE), 4)])
        assert loader.stats()["pictures"]["pool"] == len(paths)


def test_without_a_transform_it_is_the_pictures_own_pixels(paths):
    for images, *_ in DataLoader(Captions(paths, None), 1):
        assert images.dtype == torch.uint8 and images.shape[1] == 3
    for batch, path in zip(FastLoader(Captions(paths, None), 1), paths, strict=True):
        assert (batch[0][0].permute(1, 2, 0).numpy() == np.asarray(open_as_torchvision(path))).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_data_loader_takes_it_too(paths, workers):
    for images, numbers, _ in DataLoader(Captions(paths, WHOLE), 4, num_workers=workers):
        for image, number in zip(images, numbers.tolist()):
            wanted = WHOLE(open_as_torchvision(paths[number]))
            assert torch.equal(image, T.PILToTensor()(wanted))
    for batch in DataLoader(Views(paths), 4, num_workers=workers):
        (images, parameters), _ = batch["views"][0]
        for row, number in enumerate(batch["target"].tolist()):
            steps = T.named_steps(parameters["steps"][row])
            made = T.apply(open_as_torchvision(paths[number]), steps)
            assert torch.equal(T.PILToTensor()(made), images[row])


@pytest.mark.parametrize("options", WORKERS[:3], ids=str)
def test_a_sample_that_is_not_batched(paths, options, way):
    loader, got = batches_of(Views(paths), batch_size=None, shuffle=False, **options, **way.options)
    assert len(got) == len(paths)
    for number, sample in enumerate(got):
        assert sample["target"] == number
        (image, parameters), _ = sample["views"][0]
        steps = T.named_steps(parameters["steps"])
        made = T.apply(open_as_torchvision(paths[number]), steps)
        assert torch.equal(T.PILToTensor()(made), image.cpu())
        assert loader.replay(number)[0]["steps"] == steps


@pytest.mark.parametrize("options", WORKERS[:3], ids=str)
def test_an_iterable_dataset(paths, options):
    _, got = batches_of(Stream(paths), shuffle=None, **options)
    assert sorted(number for _, numbers in got for number in numbers.tolist()) == list(
        range(len(paths))
    )
    _, again = batches_of(Stream(paths), shuffle=None, **options)
    for batch, other in zip(got, again, strict=True):
        same(batch, other)
    assert len({image.numpy().tobytes() for images, _ in got for image in images}) == len(paths)


class Choosing(Captions):
    """A transform by the sample: all come out alike, and every third is Python's to finish."""

    def __getitem__(self, i):
        chains = [T.Resize((9, 7)), T.Compose([T.RandomCrop(5), T.Resize((9, 7))])]
        return EncodedImage(self.paths[i], chains[i % 2]), i


def test_transforms_may_differ_from_sample_to_sample(paths):
    loader, got = batches_of(Choosing(paths), num_workers=2)
    for images, numbers in got:
        for image, number in zip(images, numbers.tolist()):
            made = T.apply(open_as_torchvision(paths[number]), loader.replay(number)["steps"])
            assert torch.equal(T.PILToTensor()(made), image)


class OtherSizes(Captions):
    def __getitem__(self, i):
        return EncodedImage(self.paths[i], T.Resize((9, 7 + i % 2)))


def test_pictures_of_different_sizes_are_refused_by_name(paths):
    with pytest.raises(
        RuntimeError, match=r"tensors of \(3, 9, [78]\) torch.uint8 and \(3, 9, [78]\)"
    ):
        batches_of(OtherSizes(paths))


@pytest.mark.parametrize("source", [3, None, [1, 2], np.zeros(4), torch.zeros(3)])
def test_a_source_of_another_type_is_refused(source):
    with pytest.raises(TypeError, match="an encoded picture is a path, or bytes"):
        EncodedImage(source)


def test_nothing_is_kept_of_an_epoch(paths):
    loader, got = batches_of(Captions(paths, source=as_bytes), num_workers=2)
    made = loader._runtime.fallback.encoded._decoder
    before = made.memory.stats()
    assert before["in_use"] == len(got)
    del got
    gc.collect()
    assert made.memory.stats()["in_use"] == 0


# --- decode_image -----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [as_path, as_bytes, as_view, as_tensor])
def test_decode_image_gives_pillows_pixels(all_kinds, source, way):
    for path in all_kinds:
        wanted = np.asarray(open_as_torchvision(path))
        assert np.array_equal(fastloader.decode_image(source(path)), wanted)
        tensor = fastloader.decode_image(source(path), as_tensor=True)
        assert torch.equal(tensor, torch.from_numpy(wanted.copy()).permute(2, 0, 1))


@pytest.mark.parametrize("interpolation", ["box", "bilinear", "bicubic", "hamming", "lanczos"])
def test_a_region_is_cropped_and_resized_as_by_pillow(all_kinds, interpolation, way):
    from PIL import Image

    rng = np.random.default_rng(7)
    for path in all_kinds:
        picture = open_as_torchvision(path)
        left, top = (int(rng.integers(edge)) for edge in picture.size)
        width, height = (
            int(rng.integers(1, edge - start + 1)) for edge, start in zip(picture.size, (left, top))
        )
        size = tuple(int(each) for each in rng.integers(1, 60, 2))
        got = fastloader.decode_image(
            path, (left, top, width, height), size, interpolation=interpolation
        )
        cropped = picture.crop((left, top, left + width, top + height))
        wanted = cropped.resize(size[::-1], Image.Resampling[interpolation.upper()])
        assert np.array_equal(got, np.asarray(wanted))


def test_what_decode_image_refuses(paths, tmp_path, way):
    with pytest.raises(ValueError, match=r"region=\(0, 0, 999, 1\) is not in .*, a picture of"):
        fastloader.decode_image(paths[0], (0, 0, 999, 1))
    with pytest.raises(ValueError, match=r"region=\(0, -1, 1, 1\)"):
        fastloader.decode_image(paths[0], (0, -1, 1, 1))
    with pytest.raises(ValueError, match="size="):
        fastloader.decode_image(paths[0], size=(0, 3))
    with pytest.raises(TypeError, match="size is a sequence of 2 whole numbers"):
        fastloader.decode_image(paths[0], size=3)
    with pytest.raises(ValueError, match="interpolation='cubic'"):
        fastloader.decode_image(paths[0], interpolation="cubic")
    with pytest.raises(FileNotFoundError, match="nothing"):
        fastloader.decode_image(tmp_path / "nothing.jpg")
    with pytest.raises(OSError, match="cannot identify"):
        fastloader.decode_image(b"JPEG?")
    with pytest.raises(OSError):
        fastloader.decode_image(b"")


@pytest.mark.parametrize("options", WORKERS[:3], ids=str)
def test_an_iterator_ends_with_its_last_reference(paths, options):
    loader = FastLoader(Captions(paths), 2, **options)
    iterator = iter(loader)
    next(iterator)
    gone = weakref.ref(iterator)
    gc.collect()
    gc.disable()
    try:
        del iterator
        assert gone() is None
    finally:
        gc.enable()
