"""Pictures and masks that follow an `EncodedImage` under one draw."""

import pickle
import random
import warnings
from pathlib import Path

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
from pictures import import_torchvision, open_as_torchvision, upstream_pillow
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, default_collate

from fastloader import Companion, EncodedImage, EncodedMask, FastLoader
from fastloader import transforms as T
from support import MEAN, STD, same

v1 = import_torchvision().transforms
v2 = pytest.importorskip("torchvision.transforms.v2")

pytestmark = pytest.mark.covering

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
    _, got = batches_of(
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


def as_they_are(samples):
    return samples


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"native": False}], ids=str)
def test_pictures_of_their_own_sizes(files, options):
    dataset = Followed(files, T.Compose([T.Resize(12), T.RandomHorizontalFlip()]))
    loader, got = batches_of(dataset, collate_fn=as_they_are, **options)
    check(loader, [default_collate([sample]) for batch in got for sample in batch], files)
    _, listed = batches_of(dataset, batch="list", **options)
    for batch, (parts, numbers) in zip(got, listed, strict=True):
        of_samples = [dict(zip(parts, values, strict=True)) for values in zip(*parts.values())]
        same(of_samples, [sample for sample, _ in batch])
        assert numbers.tolist() == [number for _, number in batch]
    assert loader.stats()["pictures"]["workers"] == 5 * COUNT


class Alone(Followed):
    def __getitem__(self, i):
        return super().__getitem__(i)[0]


@pytest.mark.parametrize("kind", [Alone, Followed])
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"native": False}], ids=str)
def test_batch_pad_pads_masks_with_what_they_ignore(files, kind, options):
    resized = T.Compose([T.Resize(12), T.RandomHorizontalFlip()])
    _, wanted = batches_of(Followed(files, resized), batch="list")
    _, got = batches_of(kind(files, resized), batch="pad", pad_to=8, **options)
    for batch, (parts, _) in zip(got, wanted, strict=True):
        padded = batch if kind is Alone else batch[0]
        tensor, outside = padded["image"]
        assert all(edge % 8 == 0 for edge in tensor.shape[2:])
        for place, (picture, mask) in enumerate(zip(parts["image"], parts["mask"], strict=True)):
            height, width = picture.shape[1:]
            assert torch.equal(tensor[place, :, :height, :width], picture)
            assert torch.equal(padded["mask"][place, :height, :width], mask)
            assert (padded["mask"][place][outside[place]] == 255).all()
            assert int(outside[place].sum()) == outside[place].numel() - height * width


class Several(Dataset):
    """Samples whose pictures have other companions each, and one that has none."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return self.files.count

    def __getitem__(self, i):
        with_ = {f"mask {i % 2}": EncodedMask(self.files.of(i, "mask"))} if i % 3 else None
        plain = EncodedImage(self.files.of(i), CROP)
        return EncodedImage(self.files.of(i), CROP, with_=with_), [plain], i


@pytest.mark.parametrize("way", ["workers", "pillow", "collate_fn"])
def test_other_companions_in_each_sample(files, way):
    options = {**WAYS[way], "collate_fn": as_they_are}
    wanted_by, wanted = batches_of(Several(files), collate_fn=as_they_are)
    loader, got = batches_of(Several(files), **options)
    same(got, wanted)
    for number in range(COUNT):
        assert loader.replay(number) == wanted_by.replay(number)
    with pytest.raises(TypeError, match="companions of several kinds in with_, such as"):
        batches_of(Several(files))


class Nested(Dataset):
    """Two pictures with companions in containers, of one file and of another one."""

    def __init__(self, files, parameters=True):
        self.files, self.parameters = files, parameters

    def __len__(self):
        return self.files.count

    def __getitem__(self, i):
        large, mask = self.files.of(i, "large"), self.files.of(i, "mask")
        wide = EncodedMask(self.files.of(i, "wide"), bits=16, dtype=torch.int32)
        with_ = {"mask": EncodedMask(mask)}
        first = EncodedImage(self.files.of(i), CROP, self.parameters, with_)
        second = EncodedImage(mask, CROP, with_=[EncodedMask(mask), wide, Companion(large, SCALE)])
        return {"views": [first, (second, i)]}


@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_two_pictures_with_companions_in_one_sample(files, way):
    wanted_by, wanted = batches_of(Nested(files))
    # The parameters of each sample have as many rows as it has steps, and these do not stack.
    loader, got = batches_of(Nested(files, "collate_fn" not in way), **WAYS[way])
    for batch, other in zip(got, wanted, strict=True):
        if "collate_fn" in way:
            batch["views"][0] = [batch["views"][0], other["views"][0][1]]
        torch.testing.assert_close(batch, other, rtol=0, atol=0, equal_nan=True)
    for batch in wanted:
        (first, parameters), (second, numbers) = batch["views"]
        assert list(first) == ["image", "mask"] and len(second) == 4
        for row, number in enumerate(numbers.tolist()):
            of_first, of_second = loader.replay(number)
            assert [of_first, of_second] == wanted_by.replay(number)
            assert T.named_steps(parameters["steps"][row]) == of_first["steps"]
            indices = indices_of(files.of(number, "mask"))
            for made, steps in ((first["mask"], of_first), (second[1], of_second)):
                wanted = moved_by_torchvision(v2, indices, steps["steps"])
                assert torch.equal(made[row].int(), wanted)
            assert of_second["with"].keys() == {1, 2, 3}
            with Image.open(files.of(number, "mask")) as opened:
                picture = opened.convert("RGB")
            made = T.PILToTensor()(T.apply(picture, of_second["steps"]))
            assert torch.equal(second[0][row], made)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=str)
def test_a_sample_that_is_not_batched(files, options):
    loader, got = batches_of(Followed(files, CROP), batch_size=None, shuffle=False, **options)
    assert got[0][0]["mask"].shape == (24, 24)
    check(loader, [(default_collate([sample]), torch.tensor([i])) for sample, i in got], files)


class Stream(IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        for i in range(first, len(self.dataset), step):
            yield self.dataset[i]


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets(files, workers):
    found = []
    for options in ({}, {"native": False}, {"collate_fn": collated}):
        _, got = batches_of(
            Stream(Followed(files, CROP)), shuffle=None, num_workers=workers, **options
        )
        found.append(got)
    same(found[1], found[0])
    same(found[2], found[0])
    assert sorted(i for _, numbers in found[0] for i in numbers.tolist()) == list(range(COUNT))


class OtherChain(Followed):
    def companions(self, i):
        classes = {index: 255 - index for index in range(0, 256, 2)}
        return {
            **super().companions(i),
            "mask": EncodedMask(self.files.of(i, "mask"), classes, ignore=3, dtype=torch.int64),
            "wide": EncodedMask(self.files.of(i, "wide"), {7: 9}, ignore=512, bits=16),
            "large": Companion(self.files.of(i, "large"), SCALE, "nearest"),
        }


@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_several_transforms_in_one_batch(files, way):
    other = T.Compose([T.RandomCrop(40, pad_if_needed=True), T.Resize((24, 24))])
    dataset = ConcatDataset([Followed(files, CROP), OtherChain(files, other)])
    wanted_by, wanted = batches_of(dataset)
    _, got = batches_of(dataset, **WAYS[way])
    same(got, wanted)
    for batch, numbers in wanted:
        for row, number in enumerate(numbers.tolist()):
            found = [wanted_by.replay(each) for each in (number, COUNT + number)]
            masks = []
            for classes, drawn in zip((False, True), found):
                indices = indices_of(files.of(number, "mask"))
                moved = moved_by_torchvision(v2, indices, drawn["steps"])
                masks.append(torch.where(moved % 2 == 0, 255 - moved, 3) if classes else moved)
            assert any(torch.equal(batch["mask"][row].int(), mask) for mask in masks)


def test_the_rest_of_an_epoch_after_a_resume(files):
    def made():
        torch.manual_seed(8)
        return FastLoader(
            Followed(files, CROP), 2, shuffle=True, generator=torch.Generator(), num_workers=2
        )

    whole = list(made())
    loader = made()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    del iterator
    resumed = made()
    resumed.load_state_dict(state)
    same(list(resumed), whole[2:])


@pytest.mark.parametrize("options", [{"decode": "fast"}, {"truncated": "pad"}], ids=str)
def test_masks_beside_other_ways_to_decode(files, options):
    """A picture of a part of its size, or with a part of its rows, and masks as ever."""
    _, wanted = batches_of(Followed(files, CROP))
    for more in ({}, {"collate_fn": collated}):
        _, got = batches_of(Followed(files, CROP), **options, **more)
        for (batch, _), (other, _) in zip(got, wanted, strict=True):
            for key in ("mask", "wide"):
                same(batch[key], other[key])


def test_a_plain_data_loader_and_decode(files):
    """They draw by torch's default generator; what they draw is one for all."""

    class Coordinates(Dataset):
        """The red of a picture says where each pixel was, and so do its companions."""

        def __len__(self):
            return 6

        def __getitem__(self, i):
            grid = np.arange(15 * 16, dtype=np.uint8).reshape(15, 16)
            rgb = png_of(Image.fromarray(np.stack([grid] * 3, -1)))
            large = png_of(
                Image.fromarray(np.kron(np.stack([grid] * 3, -1), np.ones((4, 4, 1), "u1")))
            )
            chain = T.Compose([T.RandomCrop(9), T.RandomHorizontalFlip(), T.RandomVerticalFlip()])
            with_ = (EncodedMask(png_of(Image.fromarray(grid))), Companion(large, 4))
            return EncodedImage(rgb, chain, True, with_)

    for workers in (0, 2):
        (pictures, mask, large), parameters = next(
            iter(DataLoader(Coordinates(), 6, num_workers=workers))
        )
        same(pictures[:, 0], mask)
        same(large[:, :, 1::4, 2::4], pictures)
        assert parameters["box"].shape == (6, 4)
        assert len({each.numpy().tobytes() for each in mask}) > 1
    made, drawn = Coordinates()[0].decode()
    assert type(made) is tuple and drawn["size"].tolist() == [15, 16]
    same(made[0][0], made[1])


def test_masks_of_other_formats(files, tmp_path, way):
    """Pillow decodes them."""
    kinds = [("BMP", {}), ("TIFF", {}), ("GIF", {}), ("JPEG", {}), ("PPM", {})]

    class Formats(Followed):
        def companions(self, i):
            kind, options = kinds[i % len(kinds)]
            path = tmp_path / f"{i}.{kind}"
            if not path.exists():
                with Image.open(self.files.of(i, "mask")) as image:
                    image.convert("L").save(path, kind, **options)
            return {"mask": EncodedMask(path)}

    loader, got = batches_of(Formats(files, CROP), **way.options)
    for batch, numbers in got:
        for row, number in enumerate(numbers.tolist()):
            indices = indices_of(tmp_path / f"{number}.{kinds[number % len(kinds)][0]}")
            wanted = moved_by_torchvision(v2, indices, loader.replay(number)["steps"])
            assert torch.equal(batch["mask"][row].cpu().int(), wanted)


# --- by torchvision's v2, in one call ---------------------------------------------------------------


def ways_of_v2():
    from torchvision import tv_tensors

    end = [v2.Resize((12, 10)), v2.ToImage()]
    fills = {tv_tensors.Mask: 9, "others": (1, 2, 3)}
    plain = {tv_tensors.Mask: 9, "others": 5}
    return {
        "a rotation": v2.Compose([v2.RandomRotation(30), *end]),
        "an elastic transform": v2.Compose([v2.Resize((60, 45)), v2.ElasticTransform(20.0), *end]),
        "an affine one": v2.Compose([v2.RandomAffine(20, (0.1, 0.2), shear=5), *end]),
        "a perspective": v2.Compose([v2.Resize(30), v2.RandomPerspective(0.5, 1), *end]),
        "fills by kind": v2.Compose([v2.Pad(3, fill=fills), v2.RandomHorizontalFlip(), *end]),
        "plain fills by kind": v2.Compose([v2.Pad(3, fill=plain), v2.RandomVerticalFlip(), *end]),
        "fills of several numbers": v2.Compose([v2.ColorJitter(0.5), v2.RandomRotation(9), *end]),
        "floats": v2.Compose(
            [
                v2.RandomRotation(30),
                *end,
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        ),
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ways_of_v2())
def test_what_is_not_native_is_one_call_of_v2(files, name, workers):
    from torchvision import tv_tensors

    chain = ways_of_v2()[name]
    for i in range(0, COUNT, 3):
        image = Followed(files, chain, large=False)[i][0]
        torch.manual_seed(i)
        made = image.decode()
        torch.manual_seed(i)
        picture = open_as_torchvision(files.of(i))
        masks = [
            tv_tensors.Mask(torch.from_numpy(indices_of(files.of(i, key)))[None])
            for key in ("mask", "wide")
        ]
        wanted = chain([picture, picture, *masks])
        assert list(made) == ["image", "same", "mask", "wide"]
        for key, each in zip(made, wanted, strict=True):
            plain = each.as_subclass(torch.Tensor)
            assert torch.equal(made[key].as_subclass(torch.Tensor).int(), plain.int().squeeze(0)), (
                key
            )
        assert (made["mask"].dtype, made["wide"].dtype) == (torch.int64, torch.uint16)
    loader, got = batches_of(Followed(files, chain, large=False), num_workers=workers)
    assert loader.stats()["pictures"]["workers"] == 4 * COUNT
    for batch, _ in got:
        same(batch["image"].as_subclass(torch.Tensor), batch["same"].as_subclass(torch.Tensor))


def test_classes_and_sizes_in_one_call_of_v2(files):
    chain = v2.Compose([v2.RandomRotation(0), v2.Resize((6, 5)), v2.ToImage()])
    number = next(i for i in range(COUNT) if min(indices_of(files.of(i, "mask")).shape) > 1)

    def made_with(mask, parameters=False):
        image = EncodedImage(files.of(number), chain, parameters, with_=[mask])
        return image.decode()

    path, wide = files.of(number, "mask"), files.of(number, "wide")
    _, plain = made_with(EncodedMask(path))
    _, named = made_with(EncodedMask(path, {0: 5, 255: 1}, ignore=7, dtype=torch.int16))
    assert plain.dtype == torch.uint8 and named.dtype == torch.int16
    assert torch.equal(named.int(), torch.where(plain == 0, 5, torch.where(plain == 255, 1, 7)))
    same(
        made_with(EncodedMask(wide, range(1 << 16), bits=16))[1],
        made_with(EncodedMask(wide, bits=16))[1],
    )
    with pytest.raises(
        ValueError, match=r"wide\.png: a mask with the index \d+ has more than 8 bits"
    ):
        made_with(EncodedMask(wide))
    with pytest.raises(
        ValueError, match="bytes in memory, the companion 1, has 900x1 pixels, and the"
    ):
        made_with(EncodedMask(png_of(Image.new("L", (900, 1)))))
    with pytest.raises(ValueError, match="return_parameters, and Python makes EncodedImage"):
        made_with(EncodedMask(path), parameters=True)


def test_decode_checks_sizes(files):
    image = EncodedImage(files.of(0), CROP, with_=[png_of(Image.new("RGB", (900, 1)))])
    with pytest.raises(
        ValueError, match="bytes in memory, the companion 1, has 900x1 pixels, and the"
    ):
        image.decode()


class Inverted:
    def __call__(self, image):
        return image


@pytest.mark.parametrize(
    ("chain", "large", "says"),
    [
        (
            v2.ElasticTransform(),
            True,
            r"large.* 3, None\): scale and interpolation are for .*, and this",
        ),
        (Inverted(), False, r"with_ needs a transform that is native to the end.*\.Inverted"),
        (T.Compose([T.RandomRotation(5), T.Resize((5, 5))]), False, "rotate of a mask is left to"),
        (
            v1.Compose([v1.RandomRotation(5), v1.ToTensor()]),
            False,
            r"transforms\.Compose, and it is",
        ),
        (T.Compose([T.Resize((5, 5)), T.AugMix()]), False, "'mask': a mix has no form for a mask"),
        (
            T.Compose([T.Pad(2, fill=(1, 2, 3)), T.Resize((5, 5))]),
            False,
            "'mask': pad cannot fill a mask with several numbers",
        ),
        (
            T.Compose([CROP, T.ToTensor(), T.RandomErasing(1)]),
            True,
            "'large': random erasing is drawn",
        ),
    ],
)
def test_what_neither_does(files, chain, large, says):
    for options in ({}, {"collate_fn": collated}):
        with pytest.raises(TypeError, match=says):
            batches_of(Followed(files, chain, large), **options)


def test_pictures_alone_follow_where_masks_cannot(files):
    """Companions of the picture's own size go through any native chain."""
    chain = T.Compose([CROP, T.AugMix(), T.RandomRotation(20), T.RandAugment()])
    _, got = batches_of(Followed(files, chain, large=False, masks=False))
    for batch, _ in got:
        same(batch["same"], batch["image"])


# --- what does not fit, or cannot be read -------------------------------------------------------------

BAD = 5


class Broken(Followed):
    def __init__(self, files, what, root):
        super().__init__(files, CROP)
        self.what, self.file = what, root / "damaged.png"
        whole = Path(files.of(BAD, "mask")).read_bytes()
        self.file.write_bytes(whole[: len(whole) // 2])

    def companions(self, i):
        made = super().companions(i)
        if i == BAD:
            made["mask"] = {
                "damaged": lambda: EncodedMask(self.file, dtype=torch.int64),
                "missing": lambda: EncodedMask("/nowhere/a.png", dtype=torch.int64),
                "in colours": lambda: EncodedMask(self.files.of(i, "large"), dtype=torch.int64),
                "too wide": lambda: EncodedMask(self.files.of(i, "wide"), dtype=torch.int64),
                "of another size": lambda: EncodedMask(self.other, dtype=torch.int64),
                "of another scale": lambda: made["mask"],
            }[self.what]()
            if self.what == "of another scale":
                made["large"] = Companion(self.other, SCALE)
        return made

    @property
    def other(self):
        return png_of(Image.new("L", (900, 900)))


BROKEN = {
    "damaged": r"damaged\.png",
    "missing": r"No such file or directory: '/nowhere/a\.png'",
    "in colours": r"05\.large\.jpg: a picture of mode RGB is no mask: its modes are 1, L, P, I;16",
    "too wide": r"05\.wide\.png: a mask with the index \d+ has more than 8 bits: give EncodedMask",
    "of another size": r"sample 5, \d+ bytes in memory, the companion 'mask', has 900x900 pixels, and "
    r"the picture of (\d+x\d+) wants \1",
    "of another scale": r"sample 5, \d+ bytes in memory, the companion 'large', has 900x900 pixels, and "
    r"the picture of \d+x\d+ and scale=3 wants \d+x\d+",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", BROKEN)
def test_a_bad_companion_makes_a_bad_sample(files, tmp_path, what, way):
    dataset = Broken(files, what, tmp_path)
    with pytest.raises((OSError, ValueError), match=BROKEN[what]) as caught:
        batches_of(dataset, shuffle=False, **WAYS[way])
    said = [str(caught.value), *getattr(caught.value, "__notes__", ["sample 5"])]
    assert any("sample 5" in each for each in said)
    kept = [number for number in range(COUNT) if number != BAD]
    loader, got = batches_of(dataset, shuffle=False, on_error="skip", **WAYS[way])
    assert [number for _, numbers in got for number in numbers.tolist()] == kept
    assert all(len(value) == len(numbers) for batch, numbers in got for value in batch.values())
    check(loader, got, files)
    counted = loader.stats()["pictures"]
    assert (counted["bad"], counted["seen"]) == (1, COUNT)
    assert "sample 5" in counted["last_bad"][0]
    loader, got = batches_of(dataset, shuffle=False, on_error="replace", **WAYS[way])
    numbers = [number for _, its in got for number in its.tolist()]
    assert [a for a, b in zip(numbers, range(COUNT)) if a != b] == [numbers[BAD]]
    other = numbers[BAD]
    for key in ("mask", "wide"):
        assert got[1][0][key].shape == (4, 24, 24)
        values = got[1][0][key][1].int().unique().tolist()
        assert set(values) <= set(np.unique(indices_of(files.of(other, key))).tolist())


def test_a_sample_with_several_bad_companions_is_counted_once(files, tmp_path):
    class Worse(Broken):
        def companions(self, i):
            made = super().companions(i)
            if i == BAD:
                made["wide"] = EncodedMask(self.other, bits=16)
                made["same"] = self.other
            return made

    for what in ("of another size", "damaged"):
        loader, _ = batches_of(Worse(files, what, tmp_path), on_error="skip", max_errors=1)
        assert loader.stats()["pictures"]["bad"] == 1


# --- arguments ----------------------------------------------------------------------------------------


def test_they_can_be_pickled(files):
    """With bytes, as workers and Ray actors get them."""
    mask = Path(files.of(0, "mask")).read_bytes()
    made = [
        EncodedMask(mask, {0: 4}, 7, torch.int64),
        EncodedMask(memoryview(mask), [3] * 256, bits=16),
        Companion(files.of(0), 1, "box"),
    ]
    for with_ in (dict(zip("abc", made)), made, tuple(made)):
        image = EncodedImage(files.of(0), CROP, True, with_)
        again = pickle.loads(pickle.dumps(image))
        assert repr(again) == repr(image) and repr(again.with_) == repr(image.with_)
        assert again.return_parameters and again.named is isinstance(with_, dict)
        torch.manual_seed(1)
        wanted, _ = image.decode()
        torch.manual_seed(1)
        same(again.decode()[0], wanted)
    assert repr(made[0]) == f"EncodedMask('{len(mask)} bytes in memory', bits=8, dtype=torch.int64)"
    assert repr(made[2]) == f"Companion({files.of(0)!r}, 1, 'box')"


def test_no_companions_are_none(files):
    for with_ in ({}, (), None):
        image = EncodedImage(files.of(0), T.Resize((5, 4)), with_=with_)
        assert image.decode().shape == (3, 5, 4)
        assert pickle.loads(pickle.dumps(image)).with_ == {}


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: EncodedImage("a", with_="b"),
            TypeError,
            "with_ is a dict or a sequence .*not a str",
        ),
        (lambda: EncodedImage("a", with_=b"b"), TypeError, "not a bytes"),
        (lambda: EncodedImage("a", with_=3), TypeError, "not a int"),
        (lambda: EncodedImage("a", with_={"image": "b"}), ValueError, "has the key 'image'"),
        (lambda: EncodedImage("a", with_=[None]), TypeError, "an encoded picture is a path"),
        (
            lambda: EncodedImage("a", with_=[EncodedImage("b")]),
            TypeError,
            "this is a .*EncodedImage",
        ),
        (lambda: Companion("a", 1.5), TypeError, "scale=1.5: a whole number is needed"),
        (lambda: Companion("a", 0), ValueError, "scale=0: a whole number from 1 to 64"),
        (lambda: Companion("a", 65), ValueError, "scale=65: a whole number from 1 to 64"),
        (lambda: Companion("a", 2, "thick"), ValueError, "interpolation='thick': use one of"),
        (lambda: EncodedMask(3), TypeError, "an encoded picture is a path"),
        (
            lambda: EncodedMask("a", bits=4),
            ValueError,
            "bits=4: the indices of a mask have 8 or 16",
        ),
        (lambda: EncodedMask("a", bits=8.0), ValueError, r"bits=8\.0"),
        (lambda: EncodedMask("a", dtype="int64"), TypeError, r"dtype='int64' is no torch\.dtype"),
        (
            lambda: EncodedMask("a", {256: 1}),
            ValueError,
            "an index of classes=256: .* from 0 to 255",
        ),
        (lambda: EncodedMask("a", {3: 256}), ValueError, r"classes\[3\]=256: .* from 0 to 255"),
        (lambda: EncodedMask("a", [0, 1.5]), TypeError, r"classes\[1\]=1\.5: a whole number"),
        (lambda: EncodedMask("a", range(257)), ValueError, "an index of classes=256"),
        (lambda: EncodedMask("a", "abc"), TypeError, "classes is a sequence or a dict .*not a str"),
        (lambda: EncodedMask("a", {1, 2}), TypeError, "not a set"),
        (lambda: EncodedMask("a", 3), TypeError, "not a int"),
        (
            lambda: EncodedMask("a", ignore=-1),
            ValueError,
            "ignore=-1: a whole number from 0 to 255",
        ),
    ],
)
def test_wrong_arguments(make, error, says):
    with pytest.raises(error, match=says):
        make()


# --- layouts ----------------------------------------------------------------------------------------


OWN_SIZES = T.Compose([T.Resize(20), T.RandomHorizontalFlip()])


def _same(picture):
    return picture


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"native": False}])
def test_a_sample_that_is_only_a_picture_with_companions_has_their_keys(files, options):
    dataset = Alone(files, OWN_SIZES, large=False)
    _, whole = batches_of(dataset, batch="pad", **options)
    _, (batch, *_) = batches_of(dataset, batch="pad", image_key="image", **options)
    assert torch.equal(batch["image"].tensor, whole[0]["image"].tensor)
    assert isinstance(batch["same"], list)  # no key of it was given
    _, (batch, *_) = batches_of(dataset, batch="list", image_key="image", dtype=torch.float32)
    assert {each.dtype for each in batch["image"]} == {torch.float32}
    assert {each.dtype for each in batch["same"]} == {torch.uint8}
    with pytest.raises(ValueError, match=r"under image_key='photo' to pad.*'image'"):
        batches_of(dataset, batch="pad", image_key="photo", **options)


@pytest.mark.parametrize("transform", [CROP, "not native"])
@pytest.mark.parametrize("kind", [dict, list])
def test_companions_of_a_lone_picture_need_no_warning(files, kind, transform):
    chain = CROP
    if transform != CROP:
        chain = v2.Compose([v2.Resize(20), v2.CenterCrop(16), v2.Lambda(_same), v2.PILToTensor()])

    class Pairs(Followed):
        def __getitem__(self, i):
            large = {"large": Companion(self.files.of(i, "large"), scale=SCALE)}
            if transform != CROP:
                large = {"large": Companion(self.files.of(i))}
            with_ = large if kind is dict else list(large.values())
            return EncodedImage(self.files.of(i), self.transform, with_=with_)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loader, (batch, *_) = batches_of(Pairs(files, chain), mean=MEAN, std=STD)
    made = batch.values() if kind is dict else batch
    assert all(each.is_floating_point() for each in made)
    under = loader._runtime.fallback.encoded.places.made_under
    assert all(under(key) for key in (("image", "large") if kind is dict else (0, 1)))


@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
def test_companions_that_stand_further_inside_come_as_they_were_made(files, layout):
    class Views(Followed):
        def __getitem__(self, i):
            lead = super().__getitem__(i)[0]
            return {"views": [lead, lead], "still": EncodedImage(self.files.of(i), OWN_SIZES)}

    dataset = Views(files, OWN_SIZES, large=False)
    _, got = batches_of(dataset, batch=layout)
    _, samples = batches_of(dataset, collate_fn=list)
    assert type(got[0]["views"][0][0]) is dict
    same([batch["views"] for batch in got], [[each["views"] for each in row] for row in samples])


@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
@pytest.mark.parametrize("odd", ["fewer", "none", "another kind"])
def test_a_layout_refuses_companions_of_several_kinds(files, layout, odd):
    class Odd(Followed):
        def companions(self, i):
            found = {"same": self.files.of(i), "mask": EncodedMask(self.files.of(i, "mask"))}
            if i == 2:
                if odd == "another kind":
                    return {**found, "mask": self.files.of(i)}
                return {"same": found["same"]} if odd == "fewer" else {}
            return found

    for dataset in (Odd(files, OWN_SIZES), Odd(files, CROP)):
        with pytest.raises(TypeError, match=r"under 0 have several kinds of companions: a picture"):
            batches_of(dataset, batch=layout)


def test_padding_is_what_the_ignored_index_becomes(files):
    class Small(Followed):
        def companions(self, i):
            ignored = EncodedMask(self.files.of(i, "mask"), classes={}, dtype=torch.int8)
            return {"mask": ignored}

    _, (batch, *_) = batches_of(Small(files, OWN_SIZES), batch="pad", pad_to=8)
    assert batch[0]["mask"].dtype is torch.int8 and set(batch[0]["mask"].flatten().tolist()) == {-1}


def test_the_error_names_two_pictures_that_differ(files):
    class Odd(Followed):
        def companions(self, i):
            return {"same": self.files.of(i)} if i < 3 else {"other": self.files.of(i)}

    with pytest.raises(TypeError, match=r"such as \{'same': .*\} and \{'other': .*03"):
        batches_of(Odd(files, CROP), shuffle=False)


def test_the_reason_of_a_picture_that_python_makes_is_the_companions(files):
    turned = v2.Compose([v2.Resize((20, 20)), v2.RandomRotation(20), v2.PILToTensor()])
    loader, _ = batches_of(Followed(files, turned, large=False), collate_fn=list)
    assert (
        "made by Python on the training loop's thread: the companion 'mask': rotate"
        in loader.plan()
    )
    with pytest.raises(ValueError, match="is made by Python: the companion 'mask': rotate"):
        batches_of(Followed(files, turned, large=False), collate_fn=list, decode="fast")


def test_decode_names_the_mask_with_too_large_an_index(files):
    image = EncodedImage(files.of(1), CROP, with_=[EncodedMask(files.of(1, "wide"))])
    with pytest.raises(
        ValueError, match=r"01\.wide\.png: a mask with the index \d+ has more than 8"
    ):
        image.decode()
    with pytest.raises(
        ValueError, match=r"01\.wide\.png: a mask with the index \d+ has more than 8"
    ):
        list(DataLoader([image, image], 2))
