"""Datasets of several transforms in one batch: native, each sample under the transform of its part."""

import pytest
import torch
from pictures import import_torchvision, plain_folder
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import MEAN, STD, same

tv = import_torchvision()
v1 = tv.transforms
native = pytest.mark.skipif(extension.load() is None, reason="needs the native module")

COUNT = 11
WAYS = {"loop": {}, "workers": {"num_workers": 2}}
ENDS = {
    "bytes": lambda: [v1.PILToTensor()],
    "floats": lambda: [v1.ToTensor(), v1.Normalize(MEAN, STD)],
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    made = [tmp_path_factory.mktemp(f"part{number}") for number in range(3)]
    for number, root in enumerate(made):
        plain_folder(root, COUNT + number, classes=COUNT + number)
    return made


def parts(roots, end):
    """Three folders, two of which have one transform, and a part of the last one."""
    square = v1.Compose([v1.Resize((24, 20)), *ENDS[end]()])
    cut = v1.Compose([v1.Resize(40), v1.CenterCrop((24, 20)), v1.Grayscale(3), *ENDS[end]()])
    folders = [
        tv.datasets.ImageFolder(str(root), chain)
        for root, chain in zip(roots, (square, cut, square), strict=True)
    ]
    return [*folders[:2], Subset(folders[2], [2, 0, 5])]


def nested(roots, end):
    first, second, third = parts(roots, end)
    return ConcatDataset([ConcatDataset([first, second]), third, Subset(second, [1, 3])])


MAKERS = {"flat": lambda roots, end: ConcatDataset(parts(roots, end)), "nested": nested}


@native
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("collate_fn", [None, list], ids=["default", "own"])
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_dataloaders(roots, way, collate_fn, make, end):
    dataset = MAKERS[make](roots, end)
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(4)).tolist()
    options = {"sampler": order, "collate_fn": collate_fn}
    loader = FastLoader(dataset, 5, **options, **WAYS[way])
    assert loader.plan().startswith("native images: "), loader.plan()
    assert "2 transforms: " in loader.plan()
    ours, theirs = list(loader), list(DataLoader(dataset, 5, **options))
    if end == "bytes" or collate_fn is not None:
        return same(ours, theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one[0], other[0], rtol=0, atol=2e-6)
        same(one[1], other[1])


def test_draws_of_a_part_are_those_of_the_part_alone(roots):
    """With the numbers that its files have in the whole; `replay` tells them."""
    light = T.Compose([T.RandomResizedCrop((24, 20)), T.PILToTensor()])
    heavy = T.Compose(
        [T.RandomResizedCrop((24, 20)), T.RandomHorizontalFlip(), T.RandAugment(), T.PILToTensor()]
    )
    folders = [ImageFolder(root, chain) for root, chain in zip(roots, (light, heavy), strict=False)]
    dataset, found = ConcatDataset(folders), {}
    for name, more in {
        "native": {},
        "workers": {"num_workers": 2},
        "own": {"collate_fn": list},
    }.items():
        torch.manual_seed(3)
        loader = FastLoader(dataset, 4, shuffle=True, **more)
        batches = list(loader)
        if name == "own":
            pixels = torch.stack([row for batch in batches for row, _ in batch])
        else:
            pixels = torch.cat([batch[0] for batch in batches])
        found[name] = pixels, [loader.replay(index) for index in range(len(dataset))]
    torch.manual_seed(3)
    batches = DataLoader(range(len(dataset)), 4, shuffle=True)
    order = [index for batch in batches for index in batch.tolist()]
    pixels, drawn = found["native"]
    for other in found.values():
        same(other[0], pixels)
        assert other[1] == drawn
    paths = [path for each in folders for path, _label in each.samples]
    for place, index in enumerate(order):
        with Image.open(paths[index]) as opened:
            made = T.apply(opened.convert("RGB"), drawn[index]["steps"])
        same(pixels[place], v1.functional.pil_to_tensor(made))
    names = [{name for name, _ in each["steps"]} for each in drawn]
    assert set().union(*names[:COUNT]) < set().union(*names[COUNT:])


@native
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples(tmp_path, on_error):
    """A sample in a bad one's place has the transform of its own part."""
    roots = [plain_folder(tmp_path / str(number), 8, classes=8) for number in range(2)]
    for root in roots:
        for path in sorted(root.glob("*/*.jpg"))[2:5]:
            path.write_bytes(b"no picture")
    square = v1.Compose([v1.Resize((12, 12)), v1.PILToTensor()])
    grey = v1.Compose([v1.Resize((12, 12)), v1.Grayscale(3), v1.PILToTensor()])
    folders = [
        tv.datasets.ImageFolder(str(root), chain)
        for root, chain in zip(roots, (square, grey), strict=True)
    ]
    dataset = ConcatDataset(folders)
    batches = list(FastLoader(dataset, 4, on_error=on_error))
    pixels = torch.cat([each[0] for each in batches])
    labels = torch.cat([each[1] for each in batches])
    assert len(labels) == (10 if on_error == "skip" else 16)
    wanted = {}
    for number, folder in enumerate(folders):
        for path, label in folder.samples:
            if label not in (2, 3, 4):
                wanted[number, label] = folder.transform(folder.loader(path))
    for row, label in zip(pixels, labels.tolist(), strict=True):
        part = int((row[0] == row[1]).all())
        same(row, wanted[part, label])


@pytest.mark.parametrize(
    ("steps", "said", "begins"),
    [
        # Which default_collate stacks where a batch has one size.
        ([v1.Resize((20, 24)), v1.PILToTensor()], "the size of the pictures is", "native images: "),
        ([v1.Resize((24, 20)), v1.ToTensor()], "whether they are floats is", "Python path: "),
    ],
)
def test_transforms_that_end_differently(roots, steps, said, begins):
    first = tv.datasets.ImageFolder(
        str(roots[0]), v1.Compose([v1.Resize((24, 20)), v1.PILToTensor()])
    )
    other = tv.datasets.ImageFolder(str(roots[1]), v1.Compose(steps))
    plan = FastLoader(ConcatDataset([first, other]), 4).plan()
    assert said in plan and plan.startswith(begins), plan


@pytest.mark.parametrize("way", WAYS)
def test_transforms_of_several_sizes(roots, way):
    """For a function, or a layout, that does not stack."""
    chains = [
        v1.Compose([v1.Resize(30), v1.CenterCrop((24, 20)), v1.PILToTensor()]),
        v1.Compose([v1.Resize((17, 31)), v1.PILToTensor()]),
        v1.Compose([v1.Resize(19), v1.PILToTensor()]),
    ]
    folders = [
        tv.datasets.ImageFolder(str(roots[number % 2]), chain)
        for number, chain in enumerate(chains)
    ]
    dataset = ConcatDataset([folders[0], ConcatDataset(folders[1:])])
    theirs = list(DataLoader(dataset, 4, collate_fn=list, shuffle=False))
    loader = FastLoader(dataset, 4, collate_fn=list, **WAYS[way])
    assert loader.plan().startswith("native images: "), loader.plan()
    same(list(loader), theirs)
    listed = FastLoader(dataset, 4, batch="list", **WAYS[way])
    for (pictures, _labels), samples in zip(listed, theirs, strict=True):
        same(pictures, [picture for picture, _ in samples])


class Mixed(Dataset):
    """Samples of two recipes, one of which has a second view of its file."""

    def __init__(self, paths):
        self.paths = paths
        self.chains = [
            T.Compose([T.RandomResizedCrop(24), T.ToTensor(), T.Normalize(MEAN, STD)]),
            T.Compose([T.Resize((24, 24)), T.Grayscale(3), T.ToTensor(), T.Normalize(STD, MEAN)]),
        ]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        return EncodedImage(path, self.chains[index % 2]), EncodedImage(path, self.chains[0])


@pytest.mark.parametrize("way", ["loop", "workers", "pure"])
def test_encoded_images_of_several_recipes(roots, enter_way, way):
    """Each column is one tensor, into whose rows the pictures are decoded: the same as one by one."""
    if way == "pure":
        enter_way("pure")
    paths = sorted(roots[0].glob("*/*.jpg"))
    dataset, found = Mixed(paths), []
    for size in (5, 1):
        torch.manual_seed(3)
        loader = FastLoader(dataset, size, **WAYS.get(way, {}))
        batches = list(loader)
        found.append([torch.cat([each[place] for each in batches]) for place in range(2)])
        drawn = [loader.replay(index) for index in range(len(paths))]
    same(*found)
    for index in range(1, len(paths), 2):
        same(found[0][0][index], EncodedImage(paths[index], dataset.chains[1]).decode())
        assert drawn[index][0]["box"] != drawn[index][1]["box"]
