"""What stands in a sample for a picture that is made later: whoever looks into it gets what is made,
once, and a FastLoader's batch has the same."""

import copy
import dataclasses
import itertools
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from followed import Files, indices_of
from pictures import import_torchvision, open_as_torchvision, upstream_pillow
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate, default_convert
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader import EncodedClip, EncodedImage, EncodedMask, FastLoader, transformed
from fastloader import transforms as T
from fastloader.datasets.put_off import PutOff
from support import same

import_torchvision()
v2 = pytest.importorskip("torchvision.transforms.v2")
tv_tensors = pytest.importorskip("torchvision.tv_tensors")

pytestmark = pytest.mark.covering


def turned(pixels):
    return 255 - pixels


COUNT = 7
SIZED = v2.Compose([v2.Resize((20, 30)), v2.PILToTensor()])
CROP = v2.Compose(
    [v2.RandomCrop(12, pad_if_needed=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
)
OURS = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.PILToTensor()])
IN_PYTHON = v2.Compose([v2.Resize((20, 30)), v2.PILToTensor(), v2.Lambda(turned)])
WAYS = {
    "loop": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "pillow": {"native": False},
    "pillow in processes": {"native": False, "num_workers": 2},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("put_off"), COUNT, 3)


def as_it_is(samples):
    return samples


def stacked_alone(samples):
    return {"mask": torch.stack([sample["mask"] for sample in samples])}


class Hidden:
    """No container that anybody opens."""

    def __init__(self, image):
        self.image = image


class Samples(Dataset):
    def __init__(self, files, make, count=COUNT):
        self.files, self.make, self.count = files, make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(self.files.of(index), index)


def epoch(kind, dataset, seed=5, **options):
    torch.manual_seed(seed)
    loader = kind(dataset, **{"batch_size": 3, **options})
    return loader, list(loader)


def made_by_torchvision(files, transform=SIZED):
    return [transform(open_as_torchvision(files.of(number))) for number in range(COUNT)]


# --- a plain DataLoader, and whoever takes a sample --------------------------------------------------


def stacked(batch):
    return torch.stack([image for image, _ in batch]), torch.tensor([number for _, number in batch])


def stacked_by_numpy(batch):
    return np.stack([image for image, _ in batch]), [number for _, number in batch]


def transposed(batch):
    return tuple(zip(*batch))


def of_shapes(batch):
    """As many collate_fns pad to the largest."""
    height = max(image.shape[-2] for image, _ in batch)
    rows = torch.zeros(len(batch), 3, height, batch[0][0].shape[-1], dtype=batch[0][0].dtype)
    for row, (image, _) in zip(rows, batch, strict=True):
        row[:, : image.shape[1]] = image
    return rows.to(torch.float32), [image.to(torch.float32).permute(1, 2, 0) for image, _ in batch]


def reckoned(batch):
    return [
        (2 * image - 1, image[0] / 255, image.float().mean(), -image, 1 - image)
        for image, _ in batch
    ]


OWN = [stacked, stacked_by_numpy, transposed, of_shapes, reckoned]


@upstream_pillow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transform", [SIZED, IN_PYTHON], ids=["native", "python"])
@pytest.mark.parametrize("own", OWN)
def test_a_collate_fn_of_dataloader_gets_what_torchvision_makes(files, own, transform, workers):
    dataset = Samples(files, lambda path, number: (EncodedImage(path, transform), number))
    _, got = epoch(DataLoader, dataset, collate_fn=own, num_workers=workers)
    made = list(zip(made_by_torchvision(files, transform), range(COUNT), strict=True))
    assert len(got) == 3
    for place, batch in enumerate(got):
        wanted = own(made[3 * place : 3 * place + 3])
        if own is transposed:
            assert all(type(image) is EncodedImage for image in batch[0])
            same(tuple(image.clone() for image in batch[0]), wanted[0])
            same(batch[1], wanted[1])
        elif own is stacked_by_numpy:
            assert batch[0].dtype == np.uint8 and np.array_equal(batch[0], wanted[0])
        else:
            same(batch, wanted)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_looks_see_one_draw(files, workers):
    def looked(batch):
        return [
            (image, image.clone(), torch.stack([image, image]), np.asarray(image))
            for image in batch
        ]

    dataset = Samples(files, lambda path, _: EncodedImage(path, CROP))
    _, batches = epoch(DataLoader, dataset, collate_fn=looked, num_workers=workers)
    drawn = set()
    for image, pixels, both, array in itertools.chain.from_iterable(batches):
        # It has crossed from the worker with what was seen there.
        assert type(image) is EncodedImage
        for each in (pixels, both[0], both[1], torch.from_numpy(array), copy.copy(image)):
            assert torch.equal(image, each)
        drawn.add(pixels.numpy().tobytes())
    assert len(drawn) == COUNT
    image = dataset[0]
    assert {image.clone().numpy().tobytes() for _ in range(8)} == {np.asarray(image).tobytes()}
    # Each call of `decode` draws.
    assert len({image.decode().numpy().tobytes() for _ in range(20)}) > 1


@pytest.mark.parametrize("workers", [0, 2])
def test_dataloaders_default_collate_takes_what_was_seen(files, workers):
    def some_seen(path, number):
        image = EncodedImage(path, CROP)
        return (
            image,
            (image + 0 if number % 2 else torch.zeros(3, 12, 12, dtype=torch.uint8)),
            number,
        )

    _, batches = epoch(DataLoader, Samples(files, some_seen), num_workers=workers)
    for images, seen, numbers in batches:
        assert images.shape[1:] == (3, 12, 12)
        assert [torch.equal(*pair) for pair in zip(images, seen)] == [n % 2 == 1 for n in numbers]


def test_a_look_draws_as_a_call_does(files):
    torch.manual_seed(8)
    seen = EncodedImage(files.of(1), CROP) + 0
    torch.manual_seed(8)
    assert torch.equal(seen, EncodedImage(files.of(1), CROP).decode())


@pytest.mark.parametrize("end", [[], [v2.Lambda(turned)]], ids=["native", "python"])
def test_an_image_that_the_dataset_holds_is_drawn_for_anew(files, end):
    """Being collated is no look."""
    transform = v2.Compose([CROP, *end])
    held = [EncodedImage(files.of(number), transform) for number in range(COUNT)]
    for kind in (DataLoader, FastLoader):
        for own in (default_collate, as_it_is) if kind is FastLoader else (default_collate,):
            _, first = epoch(kind, held, seed=1, collate_fn=own)
            _, second = epoch(kind, held, seed=2, collate_fn=own)
            first, second = (
                torch.cat([torch.stack(list(each)) for each in its]) for its in (first, second)
            )
            assert not torch.equal(first, second)
    assert all(each.kept is None for each in held)


# --- what an EncodedImage stays -----------------------------------------------------------------------


def unlooked(files):
    return [
        EncodedImage(files.of(1), CROP),
        EncodedImage(files.of(1), CROP, with_={"mask": EncodedMask(files.of(1, "mask"))}),
        EncodedClip([files.of(1)] * 3, CROP),
        EncodedMask(files.of(1, "mask")),
    ]


def test_who_only_handles_one_does_not_look(files, monkeypatch):
    monkeypatch.setattr(PutOff, "decode", None)
    monkeypatch.setattr(EncodedImage, "decode", None)
    for image in unlooked(files):
        assert image and image == image and image != 1 and image != unlooked(files)[0]
        assert {image: 1}[image] == 1 and image in [image]
        assert not isinstance(image, Mapping | Sequence | torch.Tensor | np.ndarray)
        assert not dataclasses.is_dataclass(image)
        assert type(image).__name__ in repr(image) and f"{image}" == repr(image)
        for name in (
            "_repr_html_",
            "_ipython_display_",
            "_ipython_canary_method_should_not_exist_",
            "__rich_repr__",
            "__array_interface__",
            "__cuda_array_interface__",
            "__fspath__",
            "__copy__",
            "__setstate__",
            "_fields",
            "_is_view",
        ):
            assert not hasattr(image, name), name
        assert default_convert(image) is image and pin_memory([image])[0] is image
        again = pickle.loads(pickle.dumps(image))
        assert type(again) is type(image) and repr(again) == repr(image) and again.kept is None
        assert copy.copy(image).kept is None and copy.deepcopy(image).kept is None
        assert [sources.name for sources in again.sources] == [each.name for each in image.sources]
        assert image.kept is None
    clip = unlooked(files)[2]
    assert (clip.shared, len(clip.frames)) == (True, 3)
    with Image.open(files.of(1)) as opened:
        assert unlooked(files)[0].size == opened.size[::-1]
    for wrong in (EncodedImage, EncodedMask, EncodedClip):
        with pytest.raises(TypeError, match=r"an encoded picture is a path|frames is a sequence"):
            wrong(EncodedImage(files.of(1)))


def test_each_kind_stands_for_what_decode_makes(files):
    path = files.of(1)
    fixed = T.Compose([T.Resize((14, 15)), T.PILToTensor()])
    pixels = EncodedImage(path, fixed).decode()
    mask = EncodedMask(files.of(1, "mask"))
    named = EncodedImage(path, fixed, with_={"mask": mask})
    assert list(named) == ["image", "mask"] and len(named) == 2 and "mask" in named
    assert torch.equal(named["image"], pixels) and named["mask"].shape == (14, 15)
    assert dict(named).keys() == {"image", "mask"}
    first, second = EncodedImage(path, fixed, with_=[mask])
    assert torch.equal(first, pixels) and second.shape == (14, 15)
    picture, drawn = EncodedImage(path, OURS, return_parameters=True)
    assert picture.shape == (3, 16, 16) and drawn["box"].shape == (4,)
    clip = EncodedClip([path, files.of(1)], fixed)
    assert len(clip) == 2 and torch.equal(clip, torch.stack([pixels, pixels]))
    pillow = EncodedImage(path, lambda opened: opened.resize((9, 8)))
    assert (pillow.height, pillow.mode, pillow.convert("L").size) == (8, "RGB", (9, 8))
    assert np.asarray(pillow).shape == (8, 9, 3) and not hasattr(pillow, "shape")
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Image' and 'int'"):
        pillow + 1
    image = EncodedImage(path, fixed)
    assert torch.equal(torch.as_tensor(image), pixels) and torch.equal(
        torch.zeros(()) + image, pixels
    )
    image[0] = 7
    image += 1
    assert type(image) is torch.Tensor and image[0].unique().tolist() == [8]


def test_errors_are_those_of_decoding(tmp_path, files):
    missing = EncodedImage(str(tmp_path / "none.jpg"), SIZED)
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"\xff\xd8\xff and no more")
    for look in (
        lambda image: image.shape,
        lambda image: hasattr(image, "shape"),
        lambda image: getattr(image, "shape", None),
        lambda image: torch.stack([image]),
        np.asarray,
        len,
        lambda image: image + 1,
    ):
        with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
            look(missing)
        with pytest.raises(OSError, match=r"bad\.jpg"):
            look(EncodedImage(str(bad), SIZED))
    failing = EncodedImage(files.of(0), lambda picture: picture.nothing)
    for look in (lambda image: image.shape, lambda image: hasattr(image, "shape")):
        with pytest.raises(
            RuntimeError, match=r"00\.png.* cannot be made: .* has no attribute 'nothing'"
        ):
            look(failing)

    class Unfinished(EncodedImage):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match="cannot give its attribute 'transform'"):
        Unfinished().transform  # noqa: B018
    with pytest.raises(AttributeError, match="_source"):  # of which its repr speaks
        Unfinished().shape  # noqa: B018


# --- a FastLoader -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("own", [None, as_it_is], ids=["default", "own"])
@pytest.mark.parametrize("transform", [CROP, OURS, IN_PYTHON], ids=["v2", "ours", "python"])
def test_the_batch_has_what_the_dataset_has_seen(files, transform, own, way):
    def seen(path, number):
        image = EncodedImage(path, transform)
        return {"image": image, "seen": image + 0, "shape": image.shape[0], "number": number}

    options = {} if own is None else {"collate_fn": own}
    loader, batches = epoch(FastLoader, Samples(files, seen), **options, **WAYS[way])
    if own is not None:
        batches = list(map(default_collate, batches))
    assert [batch["number"].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    for batch in batches:
        assert type(batch["image"]) is torch.Tensor and batch["image"].dtype == batch["seen"].dtype
        assert torch.equal(batch["image"], batch["seen"])
    plan = loader.plan()
    if transform is not IN_PYTHON or own is not None:
        assert "the dataset looks into an encoded picture" in plan
    assert loader.stats()["pictures"]["workers"] == COUNT
    if way in ("loop", "processes"):  # and the draws are those of DataLoader
        workers = {"num_workers": WAYS[way].get("num_workers", 0)}
        _, wanted = epoch(DataLoader, Samples(files, seen), **workers)
        for batch, other in zip(batches, wanted, strict=True):
            assert torch.equal(batch["image"], other["image"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("own", [None, as_it_is], ids=["default", "own"])
def test_only_some_are_looked_into(files, own, way):
    """What was seen stays; nobody's look changes what is drawn for the others."""

    def make(looks):
        def some(path, number):
            images = [EncodedImage(path, OURS) for _ in range(3)]
            seen = torch.zeros(3, 16, 16, dtype=torch.uint8)
            if looks and number % 2:
                seen = images[1] + 0
            return *images, seen, number

        return Samples(files, some)

    options = {"shuffle": False, **WAYS[way], **({} if own is None else {"collate_fn": own})}
    loader, got = epoch(FastLoader, make(True), **options)
    _, without = epoch(FastLoader, make(False), **options)
    if own is not None:
        got, without = list(map(default_collate, got)), list(map(default_collate, without))
    for (first, second, third, seen, numbers), others in zip(got, without, strict=True):
        assert torch.equal(first, others[0]) and torch.equal(third, others[2])
        for row, number in enumerate(numbers.tolist()):
            if number % 2:
                assert torch.equal(second[row], seen[row])
            elif (
                own is not None
            ):  # default_collate's column is made together, with DataLoader's draws
                assert torch.equal(second[row], others[1][row])
    assert "[1]: " in loader.plan() and "the dataset looks into an encoded picture" in loader.plan()
    if own is None and way != "pillow in processes":
        assert loader.replay(0) is not None


@pytest.mark.parametrize("way", WAYS)
def test_some_pairs_are_looked_into(files, way):
    def some(path, number):
        image = EncodedImage(path)
        boxes = tv_tensors.BoundingBoxes([[1, 2, 5, 6]], format="XYXY", canvas_size=image.size)
        image, target = transformed(CROP, image, {"boxes": boxes, "number": number})
        seen = (image + 0, target["boxes"] + 0) if number % 2 else None
        return image, target, seen

    loader, batches = epoch(FastLoader, Samples(files, some), collate_fn=as_it_is, **WAYS[way])
    for image, target, seen in itertools.chain.from_iterable(batches):
        assert image.shape == (3, 12, 12) and type(target) is dict
        if target["number"] % 2:
            assert torch.equal(image, seen[0]) and torch.equal(target["boxes"], seen[1])
    assert "the dataset looks into the pair of transformed()" in loader.plan()
    assert loader.replay(0)["box"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("own", [None, as_it_is], ids=["default", "own"])
def test_parameters_and_companions_come_out_as_seen(files, own, way):
    def seen(path, number):
        drawn = EncodedImage(path, OURS, return_parameters=True)
        mask = EncodedMask(files.of(number, "mask"), dtype=torch.int64)
        named = EncodedImage(path, OURS, with_={"mask": mask})
        clip = EncodedClip([path, path], OURS)
        return [drawn, named, clip, drawn[0] + 0, drawn[1]["box"] + 0, dict(named), clip + 0]

    options = {} if own is None else {"collate_fn": own}
    _, batches = epoch(FastLoader, Samples(files, seen), **options, **WAYS[way])
    for batch in batches:
        for drawn, named, clip, *wanted in [batch] if own is None else batch:
            same([drawn[0], drawn[1]["box"], named, clip], wanted)


def test_batches_that_are_not_made_of_their_indices_are_as_seen(files):
    """Nobody knows by what to draw for them, and what was seen is there."""

    class Fewer(Samples):
        def __getitems__(self, indices):
            return [self[index] for index in indices[:-1]]

    def seen(path, number):
        image = EncodedImage(path, OURS)
        return image, image + 0

    loader, batches = epoch(FastLoader, Fewer(files, seen), collate_fn=as_it_is)
    assert [len(batch) for batch in batches] == [2, 2, 0]
    for image, pixels in itertools.chain.from_iterable(batches):
        assert torch.equal(image, pixels)
    assert "the dataset looks into an encoded picture" in loader.plan()


def test_one_sample_at_a_time_is_as_seen(files):
    def seen(path, number):
        image = EncodedImage(path, OURS)
        return image, image + 0, EncodedMask(files.of(number, "mask"))

    for own in ({}, {"collate_fn": lambda sample: sample}):
        for image, pixels, mask in FastLoader(Samples(files, seen), batch_size=None, **own):
            assert torch.equal(image, pixels) and mask.dtype == torch.uint8


@pytest.mark.parametrize("kind", ["list", "pad"])
def test_layouts_take_what_was_seen(files, kind):
    def make(looks):
        def scene(path, number):
            with_ = {"mask": EncodedMask(files.of(number, "mask"))}
            image = EncodedImage(path, SIZED, with_=with_)
            return {"image": image, "shape": image["mask"].shape[0] if looks else 20}

        return Samples(files, scene)

    _, got = epoch(FastLoader, make(True), batch=kind)
    _, wanted = epoch(FastLoader, make(False), batch=kind)
    for batch, other in zip(got, wanted, strict=True):
        assert list(batch["image"]) == ["image", "mask"]
        assert batch["shape"].unique().tolist() == [20]
        masks, others = (list(each["image"]["mask"]) for each in (batch, other))
        assert len(masks) == len(others) and all(map(torch.equal, masks, others))


@pytest.mark.parametrize("way", WAYS)
def test_fastloader_itself_does_not_look(files, monkeypatch, way):
    def refuse(image):
        raise AssertionError("looked")

    def unseen(path, number):
        image = EncodedImage(path, OURS)
        return image, [EncodedImage(path, OURS, with_=[path])], EncodedClip([path], OURS), number

    monkeypatch.setattr(PutOff, "look", refuse)
    for options in ({}, {"collate_fn": as_it_is}, {"batch": "list"}, {"batch_size": None}):
        _, batches = epoch(FastLoader, Samples(files, unseen), **WAYS[way], **options)
        assert batches
    # One that a collate_fn makes reaches the loop as it is, as with DataLoader.
    made = {
        "collate_fn": lambda samples: [EncodedImage(files.of(0)), Hidden(EncodedImage(files.of(0)))]
    }
    for pin in (False, True):
        loader = FastLoader(torch.arange(4), 2, pin_memory=pin, **made, **WAYS[way])
        for image, hidden in loader:
            assert type(image) is type(hidden.image) is EncodedImage and image.kept is None


def test_nor_does_what_delivers_its_batches(files, way):
    def made(samples):
        return torch.stack(samples), [EncodedImage(files.of(0)), EncodedMask(files.of(0, "mask"))]

    for numbers, held in FastLoader(torch.arange(4), 2, collate_fn=made, **way.options):
        assert numbers.shape == (2,) and [type(each) for each in held] == [
            EncodedImage,
            EncodedMask,
        ]
        assert all(each.kept is None for each in held)


# --- a mask that follows no picture -------------------------------------------------------------------


CLASSES = {0: 255, **{number: number - 1 for number in range(1, 256)}}
MASKS = {
    "indices": ("mask", {}, torch.uint8),
    "classes": ("mask", {"classes": CLASSES, "dtype": torch.int64}, torch.int64),
    "wide": ("wide", {"bits": 16}, torch.uint16),
}


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """As `files`, all of one size."""
    return Files(tmp_path_factory.mktemp("alike"), COUNT, 4, sizes=lambda rng: 23)


@pytest.mark.parametrize("own", [None, as_it_is, stacked_alone], ids=["default", "own", "stacked"])
@pytest.mark.parametrize(
    "kind, options",
    [
        *((FastLoader, each) for each in WAYS.values()),
        (DataLoader, {}),
        (DataLoader, {"num_workers": 2}),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", MASKS)
def test_a_mask_alone_is_what_lies_in_its_file(alike, monkeypatch, form, kind, options, own):
    monkeypatch.setattr(PutOff, "any_made", False)
    name, of, dtype = MASKS[form]
    dataset = Samples(
        alike, lambda _path, number: {"mask": EncodedMask(alike.of(number, name), **of)}
    )
    options = options if own is None else {"collate_fn": own, **options}
    _, batches = epoch(kind, dataset, **options)
    if own is as_it_is:
        expected = torch.Tensor if kind is FastLoader else EncodedMask
        assert {type(sample["mask"]) for batch in batches for sample in batch} == {expected}
        batches = list(map(default_collate, batches))
    made = []
    for number in range(COUNT):
        indices = torch.from_numpy(indices_of(alike.of(number, name)))
        wanted = indices if form != "classes" else torch.tensor([255, *range(255)])[indices.long()]
        made.append(wanted.to(dtype))
    same([batch["mask"] for batch in batches], [torch.stack(made[at : at + 3]) for at in (0, 3, 6)])


@pytest.mark.parametrize("own", [None, as_it_is], ids=["default", "own"])
@pytest.mark.parametrize("way", WAYS)
def test_a_mask_stands_beside_a_picture(alike, way, own):
    """The one moves, and the other does not."""

    def beside(path, number):
        return EncodedImage(path, OURS), EncodedMask(alike.of(number, "mask")), number

    options = {} if own is None else {"collate_fn": own}
    loader, batches = epoch(FastLoader, Samples(alike, beside), **options, **WAYS[way])
    for images, masks, numbers in batches if own is None else map(default_collate, batches):
        assert images.shape[1:] == (3, 16, 16)
        for mask, number in zip(masks, numbers.tolist(), strict=True):
            assert torch.equal(mask.int(), torch.from_numpy(indices_of(alike.of(number, "mask"))))
    assert loader.replay(0)["box"] and "looks" not in loader.plan()


@pytest.mark.parametrize("kind", [DataLoader, FastLoader])
@pytest.mark.parametrize("own", [default_collate, as_it_is, stacked_alone])
def test_errors_of_a_mask_alone_name_its_file(tmp_path, files, kind, own):
    bad = tmp_path / "broken.png"
    bad.write_bytes(Path(files.of(0, "mask")).read_bytes()[:60])
    colours = tmp_path / "colours.png"
    Image.new("RGB", (3, 4)).save(colours)
    for path, of in (
        (bad, {}),
        (colours, {}),
        (files.of(1, "wide"), {}),
        (tmp_path / "none.png", {}),
    ):
        with pytest.raises((OSError, ValueError), match=str(path).rpartition("/")[2]):
            for batch in kind([{"mask": EncodedMask(path, **of)}], collate_fn=own):
                batch[0]["mask"].shape  # noqa: B018


def test_masks_beside_tensors(files):
    """A dataset gives a mask where there is one, and a tensor where there is none."""
    size = tuple(EncodedMask(files.of(0, "mask")).decode().shape)

    class Some(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            mask = EncodedMask(files.of(0, "mask"))
            return torch.zeros(size, dtype=torch.uint8) if index in (1, 2) else mask

    for batch_size in (2, 4):
        loader = FastLoader(Some(), batch_size)
        got, wanted = list(loader), list(DataLoader(Some(), batch_size))
        assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))
        assert all(type(one) is torch.Tensor for one in got)
