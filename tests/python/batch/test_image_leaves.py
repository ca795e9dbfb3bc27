"""Which tensors of a batch are normalised: what image_key names, and never a mask. Image leaves that do
not go together are an error, or get a warning."""

import copy
import importlib
import warnings

import numpy as np
import pytest
import torch
from encoded_samples import Views, paths_below
from pictures import import_torchvision, plain_folder
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Augmentation, RandomErasing
from fastloader.datasets import ImageFolder
from support import MEAN, STD, random_images, same

NORMALISED = {"mean": MEAN, "std": STD}
PICTURES = random_images(1, 6, 3, 8, 9)
SMALL = random_images(2, 6, 3, 4, 5)
MASKS = random_images(3, 6, 1, 8, 9)
PLACES = {"dict": ("picture", "other"), "tuple": (0, 1)}


class Samples(Dataset):
    """Tensors of each sample, and its number, in a tuple or a dict."""

    def __init__(self, *columns, kind="tuple"):
        self.columns, self.kind = columns, kind

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, index):
        row = [*(column[index] for column in self.columns), index]
        return (
            tuple(row) if self.kind == "tuple" else dict(zip(("picture", "other", "number"), row))
        )


def floats(images):
    return normalised(images, MEAN, STD, torch.float32)


def warned_by(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [each for each in caught if "differ in shape" in str(each.message)]


# ---- image_key.


@pytest.mark.covering
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("listed", [list, tuple])
def test_a_list_of_keys(way, kind, both, listed, workers):
    one, two = PLACES[kind]
    key = listed([one, two] if both else [one])
    dataset = Samples(PICTURES, SMALL, PICTURES.flip(0), kind=kind)
    options = {**NORMALISED, **way.options, "image_key": key, "num_workers": workers}
    (batch,) = FastLoader(dataset, 6, **options)
    same_bits(batch[one], floats(PICTURES))
    if both:
        same_bits(batch[two], floats(SMALL))
    else:
        same(batch[two], SMALL)
    if kind == "tuple":
        same(batch[2], PICTURES.flip(0))


def test_the_keys_of_a_prefetcher_name_what_is_nested(way):
    batch = {"views": [PICTURES, SMALL], "more": (PICTURES,), "rest": SMALL}
    with DevicePrefetcher([batch], "cpu", image_key=("views", "more"), **NORMALISED) as delivery:
        (out,) = delivery
    same_bits(out["views"][0], floats(PICTURES))
    same_bits(out["views"][1], floats(SMALL))
    same_bits(out["more"][0], floats(PICTURES))
    same(out["rest"], SMALL)


@pytest.mark.parametrize("missing", ["number", "absent"])
@pytest.mark.parametrize("first", [False, True])
def test_a_key_without_an_image_is_named(way, missing, first):
    keys = [missing, "picture"] if first else ["picture", missing]
    loader = FastLoader(
        Samples(PICTURES, SMALL, kind="dict"), 3, image_key=keys, **NORMALISED, **way.options
    )
    with pytest.raises(
        ValueError, match=rf"no image under '{missing}':.*\['picture'\] uint8.*image_key='picture'"
    ):
        next(iter(loader))
    all_wrong = FastLoader(
        Samples(PICTURES, SMALL, kind="dict"), 3, image_key=["a", "b"], **NORMALISED, **way.options
    )
    with pytest.raises(
        ValueError, match=r"no image under 'a' or 'b':.*Give image_key='picture' or"
    ):
        next(iter(all_wrong))


@pytest.mark.parametrize("layout", ["stack", "pad"])
@pytest.mark.parametrize(
    "key, error, words",
    [
        ([], ValueError, r"image_key=\[\] names no image"),
        ([0, 2.5], TypeError, r"image_key .* got \[0, 2.5\], in which 2.5 is neither"),
        ([True], TypeError, "True is neither"),
        (2.5, TypeError, r"image_key must be an index or a key .* got 2\.5$"),
        ({0}, TypeError, "image_key must be"),
    ],
)
def test_what_names_nothing(layout, key, error, words):
    with pytest.raises(error, match=words):
        FastLoader(Samples(PICTURES), 2, image_key=key, batch=layout, **NORMALISED)
    if layout == "pad":  # the layout's alone
        with pytest.raises(error, match=words):
            FastLoader(Samples(PICTURES), 2, image_key=key, batch=layout)


def test_a_loader_with_a_list_of_keys_is_copied_and_hashed():
    loader = FastLoader(Samples(PICTURES, SMALL), 6, image_key=[0, 1], **NORMALISED)
    assert loader.image_key == [0, 1]
    hash(loader._runtime.normalization)
    (batch,) = copy.copy(loader)
    same_bits(batch[1], floats(SMALL))


def test_known_pictures_contradict_the_key_that_is_not_theirs(tmp_path):
    dataset = ImageFolder(plain_folder(tmp_path), T.Resize((8, 9)))
    with pytest.raises(ValueError, match=r"image_key=1: the picture .* is under 0"):
        FastLoader(dataset, 2, image_key=[0, 1], **NORMALISED)
    batch = next(iter(FastLoader(dataset, 2, image_key=[0], **NORMALISED)))
    assert batch[0].dtype == torch.float32


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("layout", ["pad", "list"])
@pytest.mark.parametrize("normalises", [False, True])
def test_a_list_of_keys_and_a_layout(way, layout, normalises, workers):
    options = {**NORMALISED, **way.options} if normalises else {}
    dataset = Samples(PICTURES, SMALL, random_images(8, 6, 3, 2, 2))
    loader = FastLoader(dataset, 6, image_key=[0, 1], batch=layout, num_workers=workers, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        (batch,) = loader
    for got, given in zip(batch, (PICTURES, SMALL)):
        got = got.tensor if layout == "pad" else torch.stack(got)
        same_bits(got, floats(given)) if normalises else same(got, given)
    same(torch.stack(batch[2]), dataset.columns[2])


@pytest.mark.parametrize("missing", [3, 7])
def test_a_layouts_key_without_a_picture_is_named(way, missing):
    dataset = Samples(PICTURES, SMALL, SMALL)
    with pytest.raises(ValueError, match=f"no picture under image_key={missing} to pad"):
        next(iter(FastLoader(dataset, 3, image_key=[0, missing], batch="pad")))
    for layout in ("pad", "list"):
        loader = FastLoader(
            dataset, 3, image_key=[0, missing], batch=layout, **NORMALISED, **way.options
        )
        with pytest.raises(ValueError, match=rf"(no image under |image_key=){missing}\b"):
            next(iter(loader))


class Lengths(Samples):
    """Clips of several lengths and sizes."""

    def __getitem__(self, index):
        return random_images(index, 1 + index % 3, 3, 4 + index, 5), *super().__getitem__(index)


def test_samples_that_are_laid_out_have_no_shapes_to_compare(way):
    for dataset in (Samples(PICTURES, SMALL), Lengths(PICTURES, SMALL)):
        loader = FastLoader(dataset, 3, batch="list", **NORMALISED, **way.options)
        assert not warned_by(lambda loader=loader: list(loader))
    same_bits(next(iter(loader))[0][2], floats(random_images(2, 3, 3, 6, 5)))


# ---- Several shapes.


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("tensors", [False, True])
def test_two_shapes_are_warned_of_once(way, workers, tensors):
    dataset = Samples(PICTURES, SMALL)
    if tensors:
        dataset = TensorDataset(PICTURES, SMALL, torch.arange(6))
    loader = FastLoader(dataset, 2, num_workers=workers, **NORMALISED, **way.options)
    (warning,) = warned_by(lambda: [list(loader) for _ in range(2)])
    text = str(warning.message)
    for part in ("[0] uint8 (2, 3, 8, 9)", "[1] uint8 (2, 3, 4, 5)", "image_key=[0, 1]"):
        assert part in text
    assert warning.category is UserWarning and warning.filename == __file__
    # Another loader is warned of again, and both leaves are normalised all the same.
    other = FastLoader(dataset, 6, **NORMALISED, **way.options)
    assert len(warned_by(lambda: same_bits(next(iter(other))[1], floats(SMALL)))) == 1


def test_a_prefetcher_warns_too(way):
    with DevicePrefetcher([(PICTURES, SMALL)] * 3, "cpu", **NORMALISED) as delivery:
        assert len(warned_by(lambda: [list(delivery), list(delivery)])) == 1


def test_a_warning_that_is_an_error_comes_once(way):
    loader = FastLoader(Samples(PICTURES, SMALL), 2, **NORMALISED, **way.options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        iterator = iter(loader)
        with pytest.raises(UserWarning, match="differ in shape"):
            next(iterator)
        assert len(list(iterator)) == 2


@pytest.mark.parametrize(
    "columns, options",
    [
        ((PICTURES, PICTURES.flip(0)), {}),
        ((PICTURES, SMALL), {"image_key": [0, 1]}),
        ((PICTURES, SMALL), {"image_key": 1}),
        ((PICTURES, MASKS), {}),
        ((PICTURES, SMALL.float()), {}),
    ],
)
def test_what_needs_no_warning(way, columns, options):
    loader = FastLoader(Samples(*columns), 2, **options, **NORMALISED, **way.options)
    assert not warned_by(lambda: list(loader))


def test_clips_beside_pictures_are_two_shapes(way):
    clips = PICTURES.unflatten(0, (3, 2))
    with DevicePrefetcher([(clips, PICTURES[:3])], "cpu", **NORMALISED) as delivery:
        (warning,) = warned_by(lambda: list(delivery))
    assert "(3, 2, 3, 8, 9)" in str(warning.message)


class WithRaw(Dataset):
    """Encoded pictures of two sizes, and uint8 tensors beside them."""

    def __init__(self, paths, *raw, chain=T.Compose, size=(10, 8)):
        self.paths, self.raw, self.chain, self.size = paths, raw, chain, size

    def __len__(self):
        return 6

    def __getitem__(self, index):
        one = EncodedImage(self.paths[index], T.Resize(self.size))
        other = EncodedImage(self.paths[index], self.chain([T.Resize((5, 6))]))
        return {"one": one, "other": other, "raw": [each[index] for each in self.raw]}


class InPython:
    """A transform that nothing native knows."""

    def __init__(self, steps):
        self.chain = T.Compose(steps)

    def __call__(self, image):
        pixels = torch.from_numpy(np.array(self.chain(image)))
        return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)


def as_default(samples):
    return default_collate(samples)


@pytest.mark.covering
@pytest.mark.parametrize("collate_fn", [None, as_default])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("chain", [T.Compose, InPython])
def test_encoded_pictures_of_several_sizes_need_no_warning(
    way, tmp_path, chain, workers, collate_fn
):
    dataset = WithRaw(paths_below(plain_folder(tmp_path)), chain=chain)
    options = {**NORMALISED, **way.options, "num_workers": workers, "collate_fn": collate_fn}
    loader = FastLoader(dataset, 3, **options)

    def check():
        batch = next(iter(loader))
        assert batch["one"].shape[2:] == (10, 8) and batch["other"].shape[2:] == (5, 6)
        assert batch["one"].dtype == batch["other"].dtype == torch.float32

    assert not warned_by(check)


def test_views_of_encoded_pictures_need_no_warning(way, tmp_path):
    dataset = Views(paths_below(plain_folder(tmp_path)))
    loader = FastLoader(dataset, 3, dtype=torch.float32, **way.options)
    assert not warned_by(lambda: list(loader))


@pytest.mark.parametrize("chain", [T.Compose, InPython])
def test_tensors_beside_encoded_pictures_are_compared_with_each_other(way, tmp_path, chain):
    paths = paths_below(plain_folder(tmp_path))
    one = FastLoader(WithRaw(paths, SMALL, chain=chain), 3, **NORMALISED, **way.options)
    assert not warned_by(lambda: list(one))
    two = FastLoader(WithRaw(paths, SMALL, PICTURES, chain=chain), 3, **NORMALISED, **way.options)
    (warning,) = warned_by(lambda: list(two))
    assert "['raw'] uint8 (3, 3, 4, 5) and ['raw'] uint8 (3, 3, 8, 9)" in str(warning.message)


# ---- One channel beside three.


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_mask_beside_a_picture_is_an_error(way, workers, channels_last):
    columns = [PICTURES, MASKS]
    if channels_last:
        columns = [each.permute(0, 2, 3, 1) for each in columns]
    dataset = Samples(*columns, kind="dict")
    options = {"num_workers": workers, **way.options}
    loader = FastLoader(dataset, 3, dtype=torch.float32, **options)
    shapes = [tuple(each[:3].shape) for each in columns]
    with pytest.raises(ValueError) as caught:
        next(iter(loader))
    for part in (f"['other'] uint8 {shapes[1]}", f"['picture'] uint8 {shapes[0]}"):
        assert part in str(caught.value)
    assert "image_key='picture'" in str(caught.value)
    one = FastLoader(dataset, 3, mean=[0.5], std=[0.5], **options)
    with pytest.raises(ValueError, match=r"'other'.*'picture'.*one number.*image_key='other'"):
        next(iter(one))


def test_what_image_key_asks_for_is_no_mistake(way):
    dataset = Samples(PICTURES, MASKS)
    for key in (0, [0]):
        (batch,) = FastLoader(dataset, 6, dtype=torch.float32, image_key=key, **way.options)
        assert batch[0].dtype == torch.float32
        same(batch[1], MASKS)
    (batch,) = FastLoader(dataset, 6, dtype=torch.float32, image_key=[0, 1], **way.options)
    assert torch.allclose(batch[1], MASKS / 255)
    (batch,) = FastLoader(dataset, 6, mean=[0.5], std=[0.5], image_key=1, **way.options)
    same(batch[0], PICTURES)
    (batch,) = FastLoader(dataset, 6, **NORMALISED, **way.options)
    same(batch[1], MASKS)


class Grey(WithRaw):
    """A grey picture and a coloured one, both encoded."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        chain = self.chain([T.Grayscale(), T.Resize((10, 8))])
        return {**sample, "other": EncodedImage(self.paths[index], chain)}


@pytest.mark.covering
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("chain", [T.Compose, InPython])
def test_encoded_pictures_of_one_and_three_channels_are_no_mistake(way, tmp_path, chain, workers):
    paths = paths_below(plain_folder(tmp_path))
    options = {"num_workers": workers, **way.options}
    batch = next(iter(FastLoader(Grey(paths, chain=chain), 3, dtype=torch.float32, **options)))
    assert batch["one"].shape[1] == 3 and batch["other"].shape[1] == 1
    assert batch["one"].dtype == batch["other"].dtype == torch.float32
    with pytest.raises(ValueError, match=r"\['raw'\] uint8 \(3, 1, 8, 9\) has one channel and"):
        next(iter(FastLoader(WithRaw(paths, MASKS), 3, dtype=torch.float32, **way.options)))


# ---- tv_tensors.Mask.


class Masked(Dataset):
    """A picture with masks as torchvision's v2 transforms know them."""

    def __init__(self, encoded=None):
        self.encoded = encoded
        import_torchvision()
        importlib.import_module("torchvision.tv_tensors")

    def __len__(self):
        return 6

    def __getitem__(self, index):
        mask = importlib.import_module("torchvision.tv_tensors").Mask
        picture = PICTURES[index]
        if self.encoded is not None:
            picture = EncodedImage(self.encoded[index], T.Resize((8, 9)))
        inside = {"three": mask(PICTURES.flip(0)[index]), "one": [mask(MASKS[index])]}
        return picture, inside, index


@pytest.mark.covering
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("asked", [NORMALISED, {"dtype": torch.float16}], ids=["mean", "dtype"])
def test_masks_are_never_normalised(way, tmp_path, asked, encoded, workers):
    dataset = Masked(paths_below(plain_folder(tmp_path)) if encoded else None)
    loader = FastLoader(dataset, 3, num_workers=workers, **asked, **way.options)
    for (image, target, _), (_, wanted, _) in zip(loader, DataLoader(Masked(), 3)):
        assert image.is_floating_point()
        same(target, wanted)  # plain tensors, too


def test_masks_with_their_class_are_never_normalised(way):
    Masked()
    mask = importlib.import_module("torchvision.tv_tensors").Mask(PICTURES.clone())
    with DevicePrefetcher([(PICTURES, mask)], "cpu", **NORMALISED) as delivery:
        ((image, got),) = delivery
    same_bits(image, floats(PICTURES))
    assert type(got) is type(mask) and torch.equal(got, mask)


def test_a_mask_that_is_named_is_no_image(way):
    loader = FastLoader(Masked(), 3, image_key=[0, 1], **NORMALISED, **way.options)
    with pytest.raises(ValueError, match=r"no image under 1:.*tv_tensors.Mask, as \[1\]"):
        next(iter(loader))


def test_masks_beside_what_is_erased(way):
    """The delivery that erases opens batches in another way."""
    loader = FastLoader(Masked(), 3, **NORMALISED, **way.options)
    loader._runtime.delivery.augment(Augmentation(RandomErasing(probability=0), None))
    image, target, _ = next(iter(loader))
    same_bits(image, floats(PICTURES[:3]))
    same(target["three"], PICTURES.flip(0)[:3])
