"""What a collate_fn of the user's gets in the place of `EncodedImage`s: what they decode to, made
together where their samples are made."""

import dataclasses
import typing

import pytest
import torch
from pictures import import_torchvision, plain_folder
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from support import same

v1 = import_torchvision().transforms
v2 = pytest.importorskip("torchvision.transforms.v2")

COUNT = 14
LARGE = T.Compose(
    [T.Resize(40), T.CenterCrop(32), T.ToTensor(), T.Normalize((0.5,) * 3, (0.25,) * 3)]
)
SMALL = T.Compose([T.Resize((12, 10)), T.PILToTensor()])
CROPS = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()])
WAYS = {
    "loop": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "pure": {"native": False, "num_workers": 2},
}


class Pair(typing.NamedTuple):
    low: typing.Any
    high: typing.Any


@dataclasses.dataclass
class Held:
    picture: typing.Any
    number: int


SAMPLES = {
    "a tuple": lambda path, i: (EncodedImage(path, LARGE), i),
    "a dict": lambda path, i: {
        "a": EncodedImage(path, LARGE),
        "b": [EncodedImage(path, SMALL)],
        "i": i,
    },
    "a namedtuple": lambda path, i: Pair(EncodedImage(path, SMALL), EncodedImage(path, LARGE)),
    "a dataclass": lambda path, i: Held(EncodedImage(path, LARGE), i),
    "as many as it likes": lambda path, i: ([EncodedImage(path, SMALL) for _ in range(i % 3)], i),
    "several sizes": lambda path, i: (EncodedImage(path, LARGE if i % 2 else SMALL), i),
    "of any size": lambda path, i: (EncodedImage(path, T.PILToTensor()), EncodedImage(path, SMALL)),
    "torchvision's, of any size": lambda path, i: (
        EncodedImage(path, v1.Compose([v1.Resize(20), v1.ToTensor()])),
        EncodedImage(path, v2.Compose([v2.Resize(20), v2.ToImage()])),
        EncodedImage(path, v1.PILToTensor()),
    ),
    "without a transform": lambda path, i: (EncodedImage(path), i),
    "a step of the user's": lambda path, i: EncodedImage(path, T.Compose([*LARGE.transforms, abs])),
    "a step of the user's, numbered": lambda path, i: (
        EncodedImage(path, T.Compose([*LARGE.transforms, abs])),
        i,
    ),
    "a Pillow picture": lambda path, i: EncodedImage(path, lambda picture: picture.resize((9, 8))),
    "bytes": lambda path, i: EncodedImage(path.read_bytes(), SMALL),
}


class Samples(Dataset):
    def __init__(self, paths, make):
        self.paths, self.make = paths, make

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.make(self.paths[index], index)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return sorted(plain_folder(tmp_path_factory.mktemp("own"), COUNT).glob("*/*.jpg"))


def as_they_are(samples):
    return samples


def decoded(value):
    if type(value) is EncodedImage:
        return decoded(value.decode())
    if isinstance(value, dict):
        return {key: decoded(each) for key, each in value.items()}
    if isinstance(value, Pair):
        return Pair(*map(decoded, value))
    if dataclasses.is_dataclass(value):
        return Held(decoded(value.picture), value.number)
    if isinstance(value, list | tuple):
        return type(value)(map(decoded, value))
    return value


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_function_gets(paths, way, name):
    dataset = Samples(paths, SAMPLES[name])
    loader = FastLoader(dataset, 4, collate_fn=as_they_are, **WAYS[way])
    wanted = decoded([dataset[index] for index in range(COUNT)])
    got = [sample for batch in loader for sample in batch]
    assert list(map(type, got)) == list(map(type, wanted))
    same(shown(got), shown(wanted))


NORMALIZE = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FLOATS = [v2.ToDtype(torch.float32, scale=True)]
ENDS = {
    "bytes": [v2.ToImage()],
    "floats": [v2.ToImage(), *FLOATS],
    "normalized": [v2.ToImage(), *FLOATS, NORMALIZE],
    "pure": [v2.ToImage(), *FLOATS, v2.ToPureTensor()],
    "pil_to_tensor": [v2.PILToTensor(), *FLOATS],
    "the older kind": [v1.ToTensor(), v1.Normalize((0.4,) * 3, (0.2, 0.3, 0.4))],
}


@pytest.mark.parametrize("size", [20, (20, 24)], ids=["any size", "one size"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_the_function_gets_torchvisions_tensors(paths, way, end, size):
    """Of torchvision's class; floats within what one rounding in the place of three may change."""
    chain = v2.Compose([v2.Resize(size), *ENDS[end]])

    def make(path, i):
        low = path if i % 2 else path.read_bytes()
        return EncodedImage(path, chain), EncodedImage(path, chain, with_={"low": low})

    loader = FastLoader(Samples(paths, make), 4, collate_fn=as_they_are, **WAYS[way])
    got = [sample for batch in loader for sample in batch]
    for path, (alone, pair) in zip(paths, got, strict=True):
        with Image.open(path) as opened:
            wanted = chain(opened.convert("RGB"))
        for each in (alone, pair["image"], pair["low"], EncodedImage(path, chain).decode()):
            assert type(each) is type(wanted)
            torch.testing.assert_close(each, wanted, rtol=0, atol=0 if end == "bytes" else 2e-6)
    natively = ["made natively" in line for line in loader.plan().splitlines()[1:]]
    assert all(natively) or way == "pure" or extension.load() is None


def shown(value):
    """Pillow pictures and dataclasses as what `same` compares."""
    if dataclasses.is_dataclass(value):
        return {"picture": value.picture, "number": value.number}
    if isinstance(value, list):
        return [shown(each) for each in value]
    return value.tobytes() if hasattr(value, "tobytes") else value


def views(path, i):
    return [EncodedImage(path, CROPS) for _ in range(4)], EncodedImage(path, CROPS, True)


@pytest.mark.parametrize("sampler", [None, [3, 3, 5, 1, 3]])
def test_draws(paths, sampler):
    """They depend on the seed, the sample and which of its pictures it is: not on who makes them, nor on
    the collate_fn."""
    epochs = []
    for options in WAYS.values():
        torch.manual_seed(3)
        loader = FastLoader(
            Samples(paths, views), 3, sampler=sampler, collate_fn=as_they_are, **options
        )
        epochs.append([sample for batch in loader for sample in batch])
    torch.manual_seed(3)
    columns = list(FastLoader(Samples(paths, views), 3, sampler=sampler))
    for epoch in epochs:
        for place in range(4):
            pictures = torch.cat([batch[0][place] for batch in columns])
            same(torch.stack([sample[0][place] for sample in epoch]), pictures)
        boxes = torch.cat([batch[1][1]["box"] for batch in columns])
        same(torch.stack([sample[1][1]["box"] for sample in epoch]), boxes)
        assert not torch.equal(epoch[0][0][0], epoch[0][0][1])


class Stream(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        info = get_worker_info()
        part = self.paths if info is None else self.paths[info.id :: info.num_workers]
        for path in part:
            yield EncodedImage(path, CROPS), path.name


@pytest.mark.parametrize("way", ["loop", "processes", "threads"])
def test_iterable_datasets(paths, way):
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        loader = FastLoader(Stream(paths), 3, collate_fn=as_they_are, **WAYS[way])
        found.append([sample for batch in loader for sample in batch])
    same(*found)
    assert sorted(name for _, name in found[0]) == sorted(path.name for path in paths)


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_picture(paths, tmp_path, way):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no picture")
    dataset = Samples([*paths[:4], bad], SAMPLES["a dict"])
    batches = iter(FastLoader(dataset, 4, collate_fn=as_they_are, **WAYS[way]))
    next(batches)
    with pytest.raises(OSError, match=r"bad\.jpg"):
        next(batches)


def numbers(samples):
    return [sample[1] for sample in samples]


@pytest.mark.parametrize(
    "name", ["a tuple", "as many as it likes", "a step of the user's, numbered"]
)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("way", WAYS)
def test_bad_samples(paths, tmp_path, way, on_error, name):
    """Left out or replaced before the function is called: the same samples as with the default
    collate."""
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no picture")
    its = [*paths]
    its[1] = its[4] = its[5] = its[6] = its[7] = bad
    dataset = Samples(its, SAMPLES[name])
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        loader = FastLoader(
            dataset, 4, collate_fn=numbers, on_error=on_error, max_errors=5, **WAYS[way]
        )
        found.append(list(loader))
    assert found[0] == found[1]
    gone = {1, 4, 5, 6, 7} - ({6} if name == "as many as it likes" else set())  # it has none
    pictures = loader.stats()["pictures"]
    assert pictures["bad"] == len(gone) and pictures["seen"] == COUNT
    assert all("bad.jpg" in each for each in pictures["last_bad"])
    if on_error == "skip":
        kept = [number for number in range(COUNT) if number not in gone]
        assert [number for batch in found[0] for number in batch] == kept
    else:
        assert [len(batch) for batch in found[0]] == [4, 4, 4, 2]
        for position, number in enumerate(number for batch in found[0] for number in batch):
            assert (number == position) == (position not in gone) and number not in gone
        if name == "a tuple":
            torch.manual_seed(5)
            default = list(FastLoader(dataset, 4, on_error=on_error, **WAYS[way]))
            assert [batch[1].tolist() for batch in default] == found[0]


@pytest.mark.parametrize("way", WAYS)
def test_replay(paths, way):
    """As with the default collate."""
    drawn = []
    for collate_fn in (as_they_are, None):
        torch.manual_seed(3)
        loader = FastLoader(
            Samples(paths, views), 4, shuffle=True, collate_fn=collate_fn, **WAYS[way]
        )
        list(loader)
        drawn.append([loader.replay(index) for index in range(COUNT)])
        if way != "pure":
            pictures = loader.stats()["pictures"]
            assert sum(pictures["jpegs"][each] for each in ("own", "libjpeg")) >= COUNT
    assert drawn[0] == drawn[1]


class Beside(Dataset):
    """Iterates a loader of its own for each sample."""

    def __init__(self, paths):
        self.paths = paths
        self.inner = FastLoader(Samples(paths[:3], SAMPLES["a tuple"]), 2, collate_fn=as_they_are)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        next(iter(self.inner))
        return views(self.paths[index], index)


@pytest.mark.parametrize("way", WAYS)
def test_a_loader_within_a_dataset(paths, way):
    """Its samples do not take the place of those that the outer one is asked for."""
    found = []
    for kind in (Beside, lambda paths: Samples(paths, views)):
        torch.manual_seed(3)
        loader = FastLoader(kind(paths), 4, collate_fn=as_they_are, on_error="replace", **WAYS[way])
        found.append([sample for batch in loader for sample in batch])
        loader.replay(3)
    for place in range(4):
        same(*([sample[0][place] for sample in samples] for samples in found))


def test_parameters_are_those_of_each_sample_alone(paths):
    chains = T.Compose([T.RandomApply([T.ColorJitter(0.5)], 0.5), *CROPS.transforms])

    def one(path, _i):
        return EncodedImage(path, chains, True)

    (batch,) = FastLoader(Samples(paths, one), COUNT, collate_fn=as_they_are)
    places = {each.untyped_storage().data_ptr() for _, found in batch for each in found.values()}
    assert len(places) == COUNT * len(batch[0][1])
    assert len({found["steps"].shape for _, found in batch}) > 1


def test_who_makes_them_is_said(paths):
    for name, said in (
        ("a tuple", "natively, on 1 decode thread each"),
        ("a step of the user's", "<built-in function abs> comes after the conversion"),
    ):
        loader = FastLoader(Samples(paths, SAMPLES[name]), 4, collate_fn=as_they_are, num_workers=2)
        list(loader)
        assert f", 2 worker processes, which make the encoded pictures ({said}" in loader.plan()


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_that_is_a_list_and_not_batched(paths, way):
    def make(path, _i):
        return [EncodedImage(path, SMALL), EncodedImage(path, LARGE)]

    got = list(FastLoader(Samples(paths, make), None, collate_fn=as_they_are, **WAYS[way]))
    same(got, [[each.decode() for each in make(path, 0)] for path in paths])


def test_not_batched(paths):
    got = list(
        FastLoader(Samples(paths, SAMPLES["a tuple"]), None, collate_fn=lambda sample: sample)
    )
    same(got, [(EncodedImage(path, LARGE).decode(), number) for number, path in enumerate(paths)])
