"""Pairs of `transformed` under default_collate: pictures and masks go straight into the batch."""

import random

import numpy as np
import pytest
import torch
from pictures import import_torchvision, save_jpeg
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

from fastloader import EncodedImage, EncodedMask, FastLoader, transformed
from fastloader._core.machine import extension
from fastloader.datasets.joint import fetching
from support import same

import_torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

COUNT = 10
WAYS = {
    "loop": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "pure": {"native": False},
    "pure processes": {"native": False, "num_workers": 2},
}
END = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
FIXED = v2.Compose([v2.Resize((32, 30)), v2.RandomHorizontalFlip(1.0), *END])
CROPS = v2.Compose(
    [v2.RandomResizedCrop((24, 20), antialias=True), v2.RandomHorizontalFlip(), *END]
)
SMALL = v2.Compose([v2.Resize((8, 8)), v2.PILToTensor()])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("stacked"), random.Random(3)
    for number in range(COUNT):
        width, height = rng.randint(31, 90), rng.randint(31, 90)
        save_jpeg(rng, str(root / f"{number}.jpg"), width, height)
        indices = np.random.default_rng(number).integers(0, 9, (height, width), dtype=np.uint8)
        Image.fromarray(indices).save(root / f"{number}.png")
    return root


class Scenes(Dataset):
    def __init__(self, root, make, chain=FIXED):
        self.root, self.make, self.chain = root, make, chain

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        image = EncodedImage(self.root / f"{index}.jpg")
        mask = EncodedMask(self.root / f"{index}.png", classes={3: 7}, dtype=torch.int64)
        return self.make(self, image, mask, index)


def in_a_dict(of, image, mask, i):
    return transformed(
        of.chain, image, {"mask": mask, "label": torch.tensor(i), "number": i, "a": "b"}
    )


def alone(of, image, mask, i):
    return transformed(of.chain, image, mask)


def in_a_list(of, image, mask, i):
    return transformed(of.chain, image, [mask, i])


def in_a_tuple(of, image, mask, i):
    return transformed(of.chain, image, (i, mask))


def twice(of, image, mask, i):
    other = EncodedMask(of.root / f"{i}.png")
    made, target = transformed(of.chain, image, {"mask": mask, "again": {"mask": other}})
    return {"in": {"image": made}, "target": target, "small": EncodedImage(image.source, SMALL)}


def two_pairs(of, image, mask, i):
    first = transformed(of.chain, image, mask)
    return first, transformed(of.chain, EncodedImage(image.source), {"number": i, "mask": mask})


def picture_only(of, image, mask, i):
    return transformed(of.chain, image, {"mask": mask})[0]


def target_only(of, image, mask, i):
    return transformed(of.chain, image, {"mask": mask})[1]


def no_mask(of, image, mask, i):
    return transformed(of.chain, image, {"label": i})


def target_first(of, image, mask, i):
    made, target = transformed(of.chain, image, {"mask": mask})
    return target, made


def boxes(of, image, mask, i):
    corners = torch.tensor([[1.0, 2.0, 10.0, 12.0]])
    box = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=image.size)
    return transformed(of.chain, image, {"mask": mask, "boxes": box})


def looked_into(of, image, mask, i):
    made, target = transformed(of.chain, image, {"mask": mask})
    target["number"] = i
    return made, target


def sometimes_looked_into(of, image, mask, i):
    made, target = transformed(of.chain, image, {"mask": mask})
    return made + 0 if i % 3 == 0 else made, target


# Where masks stand.
NATIVE = {
    in_a_dict: ["[1]['mask']"],
    alone: ["[1]"],
    in_a_list: ["[1][0]"],
    in_a_tuple: ["[1][1]"],
    twice: ["['target']['mask'] to ['target']['again']['mask']"],
    two_pairs: ["[0][1]", "[1][1]['mask']"],
    picture_only: [],
    no_mask: [],
}
PYTHONS = {
    target_first: "the pairs of transformed() are made before the batch",
    target_only: "",
    boxes: "BoundingBoxes in the target: under default_collate nothing is moved but",
    looked_into: "the dataset looks into the pair of transformed()",
    sometimes_looked_into: "the dataset looks into the pair of transformed()",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [*NATIVE, *PYTHONS])
def test_the_batches_are_dataloaders(root, make, way):
    dataset = Scenes(root, make)
    loader = FastLoader(dataset, 4, **WAYS[way])
    same(list(loader), list(DataLoader(dataset, 4)))
    plan = loader.plan()
    assert not fetching.under_way
    if "native" in WAYS[way] or extension.load() is None:
        return
    if make in PYTHONS:
        assert PYTHONS[make] in plan and "straight into the batch" not in plan
    else:
        pictures = [line for line in plan.splitlines()[1:] if "pictures" in line]
        assert pictures and all("straight into the batch" in line for line in pictures)
        for place in NATIVE[make]:
            assert any(place in line for line in pictures), place


@pytest.mark.parametrize("way", WAYS)
def test_one_draw_is_for_both_whoever_collates(root, way):
    """The draws are those of a collate_fn that gets samples, and the mask has its picture's."""
    dataset = Scenes(root, in_a_dict, CROPS)
    seen = []
    for collate_fn in (None, lambda samples: torch.utils.data.default_collate(samples)):
        torch.manual_seed(11)
        loader = FastLoader(dataset, 4, shuffle=True, collate_fn=collate_fn, **WAYS[way])
        seen.append(list(loader))
        for index in range(COUNT):
            drawn = loader.replay(index)
            assert (
                list(drawn["with"]) == [0]
                and drawn["with"][0]["steps"][0][:1] == drawn["steps"][0][:1]
            )
    same(*seen)


def test_masks_are_cut_where_pictures_are(tmp_path):
    """Each file is a picture of the numbers of its columns, and a mask of the same."""
    columns = np.tile(np.arange(60, dtype=np.uint8), (40, 1))
    Image.fromarray(columns).save(tmp_path / "mask.png")
    Image.fromarray(np.stack([columns] * 3, -1)).save(tmp_path / "picture.png")
    chain = v2.Compose([v2.RandomCrop((20, 20)), v2.RandomHorizontalFlip(), v2.ToImage()])

    class Columns(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            image = EncodedImage(tmp_path / "picture.png")
            return transformed(chain, image, EncodedMask(tmp_path / "mask.png"))

    loader = FastLoader(Columns(), 4, num_workers=2)
    firsts = set()
    for pictures, masks in loader:
        assert torch.equal(pictures[:, 0], masks)
        firsts.update(masks[:, 0, 0].tolist())
    assert len(firsts) > 3


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("way", WAYS)
def test_a_bad_picture_takes_its_masks_with_it(root, tmp_path, policy, way):
    for number in range(COUNT):
        for kind in ("jpg", "png"):
            content = (root / f"{number}.{kind}").read_bytes()
            name = tmp_path / f"{number}.{kind}"
            name.write_bytes(
                content[:30] if (number, kind) in ((2, "jpg"), (5, "png")) else content
            )
    dataset = Scenes(tmp_path, in_a_dict)
    loader = FastLoader(dataset, 4, on_error=policy, **WAYS[way])
    pictures, targets = zip(*loader, strict=True)
    numbers = torch.cat([each["number"] for each in targets]).tolist()
    kept = [number for number in range(COUNT) if number not in (2, 5)]
    assert set(numbers) == set(kept)
    assert len(numbers) == (len(kept) if policy == "skip" else COUNT)
    whole = [dataset[number] for number in kept]
    wanted = {number: sample for number, sample in zip(kept, whole, strict=True)}
    rows = zip(
        numbers, torch.cat(pictures), torch.cat([each["mask"] for each in targets]), strict=True
    )
    for number, picture, mask in rows:
        image, target = wanted[number]
        torch.testing.assert_close(picture, torch.as_tensor(image), rtol=1e-5, atol=1e-5)
        assert torch.equal(mask, torch.as_tensor(target["mask"]))


def test_the_loop_fetches_no_longer_once_a_sample_has_failed(root):
    def broken(of, image, mask, i):
        made = alone(of, image, mask, i)
        if i == 1:
            raise KeyboardInterrupt
        return made

    with pytest.raises(KeyboardInterrupt):
        list(FastLoader(Scenes(root, broken), 4))
    assert not fetching.under_way
    assert type(Scenes(root, alone)[0][0]) is tv_tensors.Image


def test_other_loaders_in_a_dataset_get_what_is_made(root):
    """A dataset iterates a DataLoader of its own while it is fetched."""
    inner = Scenes(root, in_a_dict)

    class Outer(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            (batch,) = DataLoader(torch.utils.data.Subset(inner, [index, index + 2]), 2)
            return batch

    for options in ({}, {"num_workers": 1}):
        same(list(FastLoader(Outer(), 2, **options)), list(DataLoader(Outer(), 2)))


def test_iterable_datasets(root):
    class Stream(IterableDataset):
        def __iter__(self):
            dataset = Scenes(root, in_a_dict)
            yield from (dataset[index] for index in range(COUNT))

    for options in ({}, {"num_workers": 1}, {"num_workers": 1, "worker_backend": "thread"}):
        loader = FastLoader(Stream(), 4, **options)
        same(list(loader), list(DataLoader(Stream(), 4)))
        assert "straight into the batch" in loader.plan() or extension.load() is None


def test_masks_are_never_normalized(root):
    loader = FastLoader(
        Scenes(root, alone, v2.Compose([v2.Resize((32, 30)), v2.ToImage()])),
        4,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
    )
    for (pictures, masks), number in zip(loader, range(0, COUNT, 4)):
        assert pictures.dtype == torch.float32 and masks.dtype == torch.int64
        # Those of FIXED, which flips.
        wanted = [Scenes(root, alone)[each][1] for each in range(number, min(number + 4, COUNT))]
        assert torch.equal(masks, torch.stack([torch.as_tensor(each) for each in wanted]).flip(-1))


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_every_delivery(root, tmp_path, way, on_error):
    """Masks cross as they are stored, and get their dtype on the device."""
    for name in root.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    if on_error != "raise":
        (tmp_path / "4.jpg").write_bytes(b"no picture")
    dataset = Scenes(tmp_path, in_a_dict)
    batches = list(FastLoader(dataset, 4, on_error=on_error, num_workers=2, **way.options))
    pictures = torch.cat([picture for picture, _target in batches]).cpu()
    masks = torch.cat([target["mask"] for _picture, target in batches]).cpu()
    numbers = torch.cat([target["number"] for _picture, target in batches]).tolist()
    assert (
        len(numbers) == (COUNT - 1 if on_error == "skip" else COUNT) and masks.dtype == torch.int64
    )
    for number, picture, mask in zip(numbers, pictures, masks, strict=True):
        image, target = Scenes(root, in_a_dict)[number]
        torch.testing.assert_close(picture, torch.as_tensor(image), rtol=1e-5, atol=1e-5)
        assert torch.equal(mask, torch.as_tensor(target["mask"]))
