"""Pairs of `transformed` under default_collate: pictures and masks go straight into the batch."""

import itertools
import random
import typing
from collections import OrderedDict

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


# ---- Samples that a pair was not made for.

CORNERS = torch.tensor([[1.0, 2.0, 10.0, 12.0]])
BOXES = tv_tensors.BoundingBoxes(CORNERS, format="XYXY", canvas_size=(30, 30))


class Named(typing.NamedTuple):
    boxes: typing.Any


def remapped(of, image, mask, i):
    made, target = transformed(of.chain, image, mask)
    valid = target != 7
    target[target == 7] = 5
    return made, target, valid


def normalized_behind(of, image, mask, i):
    made, target = transformed(of.chain, image, {"mask": mask})
    return v2.Normalize((0.5,) * 3, (0.5,) * 3)(made, target)


def unlabelled(of, image, mask, i):
    made, target = transformed(of.chain, image, {"mask": mask})
    return made, target if i % 2 else {"mask": torch.zeros((32, 30), dtype=torch.int64)}


def unlabelled_before(of, image, mask, i):
    given = mask if i % 2 else torch.zeros((32, 30), dtype=torch.int64)
    return transformed(of.chain, image, {"mask": given})


def dropped_targets(of, image, mask, i):
    return transformed(of.chain, image, {"mask": mask} if i % 2 else {"number": i})[0], i


def in_any_order(of, image, mask, i):
    other = EncodedMask(of.root / f"{i}.png", classes={each: 100 + each for each in range(9)})
    return transformed(
        of.chain, image, {"a": mask, "b": other} if i % 2 else {"b": other, "a": mask}
    )


def of_two_dtypes(of, image, mask, i):
    dtype = torch.int64 if i % 2 else torch.int32
    return transformed(of.chain, image, EncodedMask(of.root / f"{i}.png", dtype=dtype))


def the_picture_twice(of, image, mask, i):
    made, target = transformed(of.chain, image, mask)
    return made, target, made


def in_other_containers(of, image, mask, i):
    target = {"mask": mask, "a": OrderedDict(boxes=BOXES), "b": Named(BOXES)}
    return transformed(of.chain, image, target)


def in_lists(of, image, mask, i):
    return transformed(of.chain, image, [{"mask": mask}, [i, [mask]]])


def an_array(of, image, mask, i):
    return transformed(of.chain, image, {"mask": mask, "array": np.arange(4.0)})


def one_dict_for_all(of, image, mask, i):
    of.target.update(mask=mask, number=i)
    made = transformed(of.chain, image, of.target)
    of.target["number"] = -1
    return made


def one_flip_for_all(of, image, mask, i):
    of.flip.p = float(i % 2)
    return transformed(of.own, image, mask)


PURE = [v2.Resize((32, 30)), v2.ToImage(), v2.ToPureTensor()]


def behind_pure_tensors(of, image, mask, i):
    return transformed(v2.Compose([*PURE, v2.RandomHorizontalFlip(1.0)]), image, mask)


def pure_tensors(of, image, mask, i):
    return transformed(v2.Compose(PURE), image, mask)


ODD = [
    remapped,
    normalized_behind,
    unlabelled,
    unlabelled_before,
    dropped_targets,
    in_any_order,
    of_two_dtypes,
    the_picture_twice,
    in_other_containers,
    in_lists,
    an_array,
    one_dict_for_all,
    one_flip_for_all,
    behind_pure_tensors,
    pure_tensors,
]


class OddScenes(Scenes):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.target = {}
        self.flip = v2.RandomHorizontalFlip()
        self.own = v2.Compose([v2.Resize((32, 30)), self.flip, *END])


@pytest.mark.parametrize("collate_fn", [None, list], ids=["default", "list"])
@pytest.mark.parametrize("way", ["loop", "processes", "pure"])
@pytest.mark.parametrize("make", ODD)
def test_whatever_a_dataset_does_with_pairs(root, make, way, collate_fn):
    got = list(FastLoader(OddScenes(root, make), 4, collate_fn=collate_fn, **WAYS[way]))
    workers = WAYS[way].get(
        "num_workers", 0
    )  # stacks have other dtypes in a worker, with DataLoader, too
    wanted = list(DataLoader(OddScenes(root, make), 4, collate_fn=collate_fn, num_workers=workers))
    for one, other in zip(leaves(got), leaves(wanted), strict=True):
        assert type(one) is type(other)
        if isinstance(other, torch.Tensor) and other.is_floating_point():
            torch.testing.assert_close(
                torch.as_tensor(one), torch.as_tensor(other), rtol=0, atol=1e-6
            )
        elif isinstance(other, np.ndarray):
            assert np.array_equal(one, other) and one.dtype == other.dtype
        else:
            same(one, other)


def leaves(value):
    if isinstance(value, dict):
        assert type(value) in (dict, OrderedDict)
        return [leaf for key in sorted(value) for leaf in [key, *leaves(value[key])]]
    if isinstance(value, list | tuple):
        return [type(value), *(leaf for each in value for leaf in leaves(each))]
    return [value]


def some_of_another_file(of, image, mask, i):
    made, target = transformed(of.chain, image, {"mask": mask})
    return made, target if i % 2 else {"mask": torch.full((20, 20), 77, dtype=torch.uint8)}


@pytest.mark.parametrize("make", [some_of_another_file, the_picture_twice])
@pytest.mark.parametrize("collate_fn", [None, list], ids=["default", "list"])
@pytest.mark.parametrize("way", WAYS)
def test_a_picture_and_its_mask_never_part(tmp_path, way, collate_fn, make):
    columns = np.tile(np.arange(60, dtype=np.uint8), (40, 1))
    for number in range(COUNT):
        Image.fromarray(columns).save(tmp_path / f"{number} mask.png")
        Image.fromarray(np.stack([columns] * 3, -1)).save(tmp_path / f"{number}.png")
    chain = v2.Compose([v2.RandomCrop((20, 20)), v2.RandomHorizontalFlip(), v2.ToImage()])

    class Columns(Scenes):
        def __getitem__(self, index):
            image = EncodedImage(self.root / f"{index}.png")
            return self.make(self, image, EncodedMask(self.root / f"{index} mask.png"), index)

    loader = FastLoader(Columns(tmp_path, make, chain), 4, collate_fn=collate_fn, **WAYS[way])
    seen = 0
    for batch in loader:
        samples = batch if collate_fn else zip(*map(rows, batch), strict=True)
        for picture, target, *again in samples:
            mask = torch.as_tensor(target["mask"] if isinstance(target, dict) else target)
            if mask[0, 0] != 77:
                assert torch.equal(torch.as_tensor(picture)[0], mask)
                seen += 1
            assert all(torch.equal(picture, other) for other in again)
    assert seen >= COUNT // 2


def rows(part):
    return [{"mask": each} for each in part["mask"]] if isinstance(part, dict) else part


def test_nothing_but_steps_for_targets(root):
    dataset = Scenes(root, boxes, v2.ClampBoundingBoxes())
    got = list(FastLoader(dataset, 4, collate_fn=list))
    wanted = list(DataLoader(dataset, 4, collate_fn=list))
    for one, other in zip(itertools.chain(*got), itertools.chain(*wanted), strict=True):
        assert one[0].tobytes() == other[0].tobytes()
        same(one[1]["boxes"], other[1]["boxes"])


def test_one_sample_alone_is_of_the_transforms_class(root):
    class Pictures(Dataset):
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            return EncodedImage(root / f"{index}.jpg", FIXED)

    for options in ({}, {"num_workers": 1}, {"native": False}):
        made = list(FastLoader(Pictures(), batch_size=None, **options))
        assert {type(each) for each in made} == {tv_tensors.Image}


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
