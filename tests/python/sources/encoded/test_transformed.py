"""A picture and its target through one transform of torchvision's v2: the same as it makes, natively."""

import random

import numpy as np
import pytest
import torch
from pictures import import_torchvision, save_jpeg
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from fastloader import EncodedImage, EncodedMask, FastLoader, transformed
from support import same

import_torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402

pytestmark = pytest.mark.covering

COUNT = 6
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,) * 3, (0.2,) * 3)]
WORKERS = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "worker_backend": "thread"},
    {"native": False},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Pictures of several sizes with palette masks."""
    root, rng = tmp_path_factory.mktemp("joint"), random.Random(7)
    for number in range(COUNT):
        width, height = rng.randint(31, 90), rng.randint(31, 90)
        save_jpeg(rng, str(root / f"{number}.jpg"), width, height)
        indices = np.random.default_rng(number).integers(0, 9, (height, width), dtype=np.uint8)
        mask = Image.fromarray(indices, "P")
        mask.putpalette([rng.randrange(256) for _ in range(768)])
        mask.save(root / f"{number}.png")
    return root


class Scenes(Dataset):
    """Integer boxes in one sample, floats in the next, of every format; masks as file and as tensor."""

    FORMATS = ("XYXY", "XYWH", "CXCYWH")

    def __init__(self, root, transforms):
        self.root, self.transforms = root, transforms

    def __len__(self):
        return COUNT

    def pair(self, index):
        image = EncodedImage(str(self.root / f"{index}.jpg"))
        height, width = image.size
        rng = np.random.default_rng(index)
        count = int(rng.integers(2, 6))
        corners = np.sort(rng.integers(0, min(height, width), (count, 2, 2)), axis=1)
        corners[:, 1] += 1
        kind = torch.int64 if index % 2 else torch.float32
        boxes = tv_tensors.BoundingBoxes(
            torch.from_numpy(corners.reshape(count, 4)).to(kind),
            format="XYXY",
            canvas_size=(height, width),
        )
        boxes = F.convert_bounding_box_format(boxes, new_format=self.FORMATS[index % 3])
        points = torch.from_numpy(rng.random((count, 2)) * [width, height]).float()
        masks = torch.from_numpy(rng.integers(0, 2, (count, height, width), dtype=np.uint8))
        target = {
            "boxes": boxes,
            "labels": torch.arange(count),
            "points": tv_tensors.KeyPoints(points, canvas_size=(height, width)),
            "inner": [{"masks": tv_tensors.Mask(masks)}, ("a", index)],
            "semantic": self.semantic(index),
        }
        return image, target

    def semantic(self, index):
        return EncodedMask(str(self.root / f"{index}.png"), classes={3: 7}, dtype=torch.int64)

    def __getitem__(self, index):
        return transformed(self.transforms, *self.pair(index))


def plain(samples):
    return samples


def same_parts(got, wanted):
    """As `same`, with what torchvision's kinds of tensors know besides."""
    if isinstance(wanted, dict):
        assert type(got) is dict and list(got) == list(wanted)
        for key, each in wanted.items():
            same_parts(got[key], each)
    elif isinstance(wanted, list | tuple):
        assert type(got) is type(wanted) and len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            same_parts(one, other)
    else:
        same(got, wanted)
        if isinstance(wanted, tv_tensors.TVTensor):
            for name in ("format", "canvas_size", "clamping_mode"):
                assert getattr(got, name, None) == getattr(wanted, name, None), name


def samples_of(kind, dataset, seed=5, **options):
    torch.manual_seed(seed)
    loader = kind(dataset, batch_size=4, collate_fn=plain, **options)
    return loader, [sample for batch in loader for sample in batch]


FIXED = {
    "flips": [v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)],
    "resize": [v2.Resize((40, 33)), v2.RandomHorizontalFlip(1.0)],
    "shorter edge": [v2.Resize(37, max_size=60), v2.CenterCrop((36, 36))],
    "smaller than the crop": [v2.CenterCrop((101, 94))],
    "padded": [v2.Pad((3, 4, 5, 6), fill=9), v2.Resize((50, 50)), v2.CenterCrop(41)],
    "colours": [v2.Grayscale(3), v2.Resize((40, 40)), v2.RandomSolarize(100, 1.0)],
}


@pytest.mark.parametrize("options", WORKERS, ids=str)
@pytest.mark.parametrize("name", FIXED)
def test_what_nothing_is_drawn_for_is_torchvisions(root, name, options):
    sized = [v2.Resize((40, 40))] if name == "flips" else []
    whole = v2.Compose([*sized, *FIXED[name], v2.SanitizeBoundingBoxes(), *FLOATS])
    loader, got = samples_of(FastLoader, Scenes(root, whole), **options)
    _, wanted = samples_of(DataLoader, Scenes(root, whole))
    same_parts([target for _, target in got], [target for _, target in wanted])
    for (picture, _), (other, _) in zip(got, wanted, strict=True):
        assert type(picture) is type(other) is tv_tensors.Image
        torch.testing.assert_close(picture, other, rtol=1e-5, atol=1e-5)
    assert "natively" in loader.plan() or options.get("native") is False


def redone(part, box, steps):
    """What v2 makes of a part with the picture's draws."""
    if not isinstance(part, tv_tensors.TVTensor):
        return part
    part = F.resized_crop(part, box["top"], box["left"], box["height"], box["width"], [30, 44])
    return F.horizontal_flip(part) if "hflip" in steps else part


@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_one_draw_is_for_all_parts(root, options):
    random_steps = [v2.RandomResizedCrop((30, 44)), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)]
    dataset = Scenes(root, v2.Compose([*random_steps, v2.ClampBoundingBoxes(), v2.PILToTensor()]))
    loader, got = samples_of(FastLoader, dataset, **options)
    boxes = set()
    for index, (_, target) in enumerate(got):
        steps = dict(loader.replay(index)["steps"])
        box = steps["crop"]
        boxes.add(str(box))
        _image, given = dataset.pair(index)
        given["semantic"] = tv_tensors.Mask(given["semantic"].opened("")[0])

        wanted = {key: redone(part, box, steps) for key, part in given.items() if key != "inner"}
        wanted["boxes"] = F.clamp_bounding_boxes(wanted["boxes"])
        same_parts(
            {key: target[key] for key in ("boxes", "labels", "points")},
            {key: wanted[key] for key in ("boxes", "labels", "points")},
        )
        classes = torch.full((256,), 255)
        classes[3] = 7
        assert torch.equal(target["semantic"], classes[wanted["semantic"].long()])
        masks = redone(given["inner"][0]["masks"], box, steps)
        assert torch.equal(target["inner"][0]["masks"], masks)
    assert len(boxes) > 1


def test_every_other_way_does_it_at_once(root):
    dataset = Scenes(root, v2.Compose([v2.RandomResizedCrop(20), v2.RandomHorizontalFlip()]))
    torch.manual_seed(3)
    picture, target = dataset[1]
    torch.manual_seed(3)
    image, given = dataset.pair(1)
    given["semantic"] = tv_tensors.Mask(given["semantic"].opened("")[0])
    wanted, other = dataset.transforms(Image.open(image.source).convert("RGB"), given)
    assert picture == wanted and type(target) is dict
    same_parts(target["boxes"], other["boxes"])
    assert target["semantic"].dtype is torch.int64
    picture = transformed(lambda image, target: (image, target), Image.new("RGB", (3, 4)), {})[0]
    assert picture.size == (3, 4)


@pytest.mark.parametrize("options", WORKERS[:2], ids=str)
@pytest.mark.parametrize(
    "steps, why",
    [
        ([v2.RandomRotation(40), v2.Resize((20, 20)), v2.ToImage()], "rotate of a mask"),
        (
            [v2.SanitizeBoundingBoxes(), v2.RandomResizedCrop(24), v2.ToImage()],
            "stands before RandomResizedCrop",
        ),
        ([v2.Resize((20, 20)), v2.Lambda(lambda part: part)], "Lambda"),
    ],
    ids=["rotated", "sanitized first", "a function"],
)
def test_what_is_not_native_is_made_with_dataloaders_draws(root, steps, why, options):
    dataset = Scenes(root, v2.Compose(steps))
    loader, got = samples_of(FastLoader, dataset, **options)
    assert why in loader.plan() and loader.stats()["pictures"]["workers"] == COUNT
    workers = {"num_workers": options.get("num_workers", 0)}
    _, wanted = samples_of(DataLoader, dataset, **workers)
    same_parts([target for _, target in got], [target for _, target in wanted])
    for (picture, _), (other, _) in zip(got, wanted, strict=True):
        assert type(picture) is type(other)
        assert np.array_equal(np.asarray(picture), np.asarray(other))


class Looking(Scenes):
    """Looks into the pair, adds to it, and computes with it."""

    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        target["id"] = index
        target["count"] = len(target["boxes"])
        assert "boxes" in target and set(target) == set(target.keys())
        stacked = torch.stack([image, image]) + torch.cat([image[None]] * 2)
        return 2 * image - 1, target, tuple(image.shape), image.size(), stacked, np.asarray(image)


@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_whoever_looks_into_the_pair_gets_what_is_made(root, options):
    dataset = Looking(root, v2.Compose([v2.Resize((20, 30)), *FLOATS]))
    loader, got = samples_of(FastLoader, dataset, **options)
    _, wanted = samples_of(DataLoader, dataset)
    same_parts([sample[:-1] for sample in got], [sample[:-1] for sample in wanted])
    assert all(np.array_equal(a[-1], b[-1]) for a, b in zip(got, wanted, strict=True))
    assert "the dataset looks into the pair" in loader.plan()


def test_steps_that_change_between_epochs_are_seen(root):
    whole = v2.Compose([v2.Resize((20, 30)), v2.RandomHorizontalFlip(1.0), v2.PILToTensor()])
    dataset = Scenes(root, whole)
    loader, flipped = samples_of(FastLoader, dataset)
    del whole.transforms[1]
    turned = [sample for batch in loader for sample in batch]
    for (picture, target), (other, again) in zip(flipped, turned, strict=True):
        assert torch.equal(picture, other.flip(-1))
        assert torch.equal(target["semantic"], again["semantic"].flip(-1))


def test_a_patched_step_is_left_to_python(root, monkeypatch):
    whole = v2.Compose([v2.Resize((20, 30)), v2.ToImage(), v2.SanitizeBoundingBoxes()])
    loader, _ = samples_of(FastLoader, Scenes(root, whole))
    assert "natively" in loader.plan()
    monkeypatch.setattr(v2.SanitizeBoundingBoxes, "transform", lambda self, part, params: part)
    loader, got = samples_of(FastLoader, Scenes(root, whole))
    assert "natively" not in loader.plan()
    _, wanted = samples_of(DataLoader, Scenes(root, whole))
    same_parts([target for _, target in got], [target for _, target in wanted])


def test_the_thread_fetches_no_longer_once_an_epoch_has_failed(root):
    class Failing(Scenes):
        def __getitem__(self, index):
            if index == 2:
                raise KeyError(index)
            return super().__getitem__(index)

    dataset = Failing(root, v2.Compose([v2.Resize((20, 30)), v2.PILToTensor()]))
    with pytest.raises(KeyError):
        samples_of(FastLoader, dataset)
    assert type(dataset[0][1]) is dict
    (batch,) = DataLoader([dataset[0][0]], batch_size=1)
    assert batch.shape == (1, 3, 20, 30)


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("options", WORKERS[:2], ids=str)
def test_a_bad_picture_takes_its_target_with_it(root, tmp_path, policy, options):
    class Broken(Scenes):
        def pair(self, index):
            image, target = super().pair(index)
            if index == 1:
                path = tmp_path / "bad.jpg"
                path.write_bytes(b"\xff\xd8\xff and no more")
                image = EncodedImage(str(path))
            return image, {**target, "index": index}

    dataset = Broken(root, v2.Compose([v2.Resize((20, 30)), v2.PILToTensor()]))
    _, got = samples_of(FastLoader, dataset, on_error=policy, **options)
    found = [target["index"] for _, target in got]
    if policy == "skip":
        assert found == [0, 2, 3, 4, 5]
    else:
        assert found[0] == 0 and found[1] != 1 and found[2:] == [2, 3, 4, 5]
    assert all(picture.shape == (3, 20, 30) for picture, _ in got)


def test_what_a_pair_cannot_have_is_an_error(root):
    image = EncodedImage(str(root / "0.jpg"), v2.Resize(3))
    with pytest.raises(ValueError, match="has a transform, companions or return_parameters"):
        transformed(v2.Identity(), image, {})


def test_the_size_comes_from_the_header(root):
    for number in range(COUNT):
        with Image.open(root / f"{number}.jpg") as opened:
            width, height = opened.size
        assert EncodedImage(str(root / f"{number}.jpg")).size == (height, width)
        data = (root / f"{number}.png").read_bytes()
        assert EncodedImage(data).size == (height, width)
