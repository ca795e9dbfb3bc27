"""The layouts of a batch: the same values in each of them, whoever makes the samples and wherever they
go."""

import collections
import itertools
import sys
import threading

import numpy as np
import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from fastloader import EncodedImage, FastLoader, Packed, Padded
from fastloader import transforms as T
from fastloader._core.batch.tree import rebuild
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import same

COUNT, SIZE = 11, 4
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALIZED = {"mean": MEAN, "std": STD}
MAKERS = {
    "loop": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "Python": {"native": False},
    "Python's processes": {"native": False, "num_workers": 2},
}
Sample = collections.namedtuple("Sample", "picture, label, boxes, more, name")


class Samples(Dataset):
    """What detection has: a picture of its own size, a number, boxes, more in a dict, and a text."""

    def __init__(self, kind, dtype=torch.uint8, encoded=None):
        self.kind, self.dtype, self.encoded = kind, dtype, encoded

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        size = 3 + index % 4, 2 + index % 5
        picture = torch.randint(0, 256, (3, *size), generator=draw, dtype=torch.uint8)
        if self.encoded is not None:
            picture = EncodedImage(self.encoded[index])
        elif self.dtype is torch.float32:
            picture = picture / 255
        boxes = np.full((index % 3, 4), index, np.float32)
        sample = Sample(
            picture, index, boxes, {"area": [index], "at": torch.ones(index)}, f"{index}"
        )
        if self.kind == "tuple":
            return tuple(sample)
        return sample if self.kind == "namedtuple" else self.kind(sample._asdict())


def expected(dataset, layout, pad_to=1, value=0.0, normalize=None):
    """What the batches are to be, made by hand of the samples."""
    for begin in range(0, len(dataset), SIZE):
        samples = [dataset[index] for index in range(begin, min(begin + SIZE, len(dataset)))]
        pictures = [each["picture"] for each in samples]
        if isinstance(pictures[0], EncodedImage):
            pictures = [each.decode() for each in pictures]
        if normalize is not None:
            pictures = list(map(normalize, pictures))
        boxes = [torch.from_numpy(each["boxes"]) for each in samples]
        made = {
            "picture": laid_out(pictures, layout, pad_to, value),
            "label": torch.tensor([each["label"] for each in samples]),
            "boxes": packed(boxes) if layout == "packed" else boxes,
            "more": [each["more"] for each in samples],
            "name": [each["name"] for each in samples],
        }
        yield made


def packed(rows):
    ends = list(itertools.accumulate(map(len, rows), initial=0))
    shapes = torch.tensor([tuple(each.shape) for each in rows])
    return Packed(torch.cat(rows), torch.tensor(ends, dtype=torch.int32), shapes)


def laid_out(pictures, layout, pad_to, value):
    if layout == "list":
        return pictures
    if layout == "packed":
        shapes = torch.tensor([tuple(each.shape) for each in pictures])
        flat = packed([each.permute(1, 2, 0).flatten(0, 1) for each in pictures])
        return flat._replace(shapes=shapes)
    sides = [-(-max(each.shape[side] for each in pictures) // pad_to) * pad_to for side in (1, 2)]
    tensor = torch.full((len(pictures), 3, *sides), value, dtype=pictures[0].dtype)
    mask = torch.ones((len(pictures), *sides), dtype=torch.bool)
    for place, picture in enumerate(pictures):
        _, height, width = picture.shape
        tensor[place, :, :height, :width] = picture
        mask[place, :height, :width] = False
    return Padded(tensor, mask)


def check(ours, theirs, kind=dict):
    ours = list(ours)
    assert all(type(each) is kind for each in ours)
    same(ours, list(theirs))


@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
@pytest.mark.parametrize("maker", MAKERS)
def test_samples_of_anybody(maker, layout, way):
    options = {**MAKERS[maker], **way.options, "batch": layout}
    if layout == "pad":
        options |= {"pad_to": 4, "pad_value": 7}
    dataset = Samples(dict)
    check(FastLoader(dataset, SIZE, **options), expected(dataset, layout, 4, 7))


@pytest.mark.parametrize("kind", ["tuple", "namedtuple", collections.OrderedDict])
def test_containers(kind):
    """The outermost one is that of default_collate."""
    for batch in FastLoader(Samples(kind), SIZE, batch="list"):
        if kind == "tuple":
            assert type(batch) is list
            batch = Sample(*batch)._asdict()
        elif kind == "namedtuple":
            assert type(batch) is Sample
            batch = batch._asdict()
        else:
            assert type(batch) is kind
        assert type(batch["picture"]) is list and type(batch["more"]) is list
        assert type(batch["more"][0]) is dict and type(batch["label"]) is torch.Tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
def test_normalized_on_the_way(layout, channels_last, dtype, way):
    """Each picture as in a batch of its own; the padding is not normalised."""
    options = {"channels_last": channels_last, "dtype": dtype, **NORMALIZED, **way.options}
    pictures = [Samples("tuple")[index][0] for index in range(COUNT)]
    more = {"pad_value": -1.5, "pad_to": 5} if layout == "pad" else {}
    alone = [
        each[0].cpu() for each in FastLoader([each[None] for each in pictures], None, **options)
    ]
    loader = FastLoader(Samples("tuple"), SIZE, batch=layout, **options, **more)
    for number, batch in enumerate(loader):
        wanted = alone[number * SIZE : (number + 1) * SIZE]
        same(batch[0], laid_out(wanted, layout, 5, -1.5))
        if layout == "list":
            if way.target.type == "cpu":
                assert len({each.untyped_storage().data_ptr() for each in batch[0]}) == 1
            large = next(each for each in batch[0] if min(each.shape) > 1)
            assert large.permute(1, 2, 0).is_contiguous() is channels_last
        if layout == "pad":
            wide = batch[0].tensor
            assert wide.is_contiguous(memory_format=torch.channels_last) is channels_last


@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_known_folder(tmp_path_factory, layout, maker):
    """Decode threads make the pictures, of sizes of their own."""
    root = plain_folder(tmp_path_factory.mktemp("layouts"), COUNT)
    for chain in (
        T.Compose([T.Resize(20), T.PILToTensor()]),
        T.Compose([T.Resize(24), T.ToTensor()]),
    ):
        dataset = ImageFolder(root, chain)
        loader = FastLoader(dataset, SIZE, batch=layout, **MAKERS[maker])
        if extension.load() is not None and "Python" not in maker:
            assert loader.plan().startswith("native images: "), loader.plan()
            assert f"; batch={layout!r}" in loader.plan()
        theirs = DataLoader(dataset, SIZE, collate_fn=list)
        for found, samples in zip(loader, theirs, strict=True):
            same(found[0], laid_out([picture for picture, _ in samples], layout, 1, 0))
            assert found[1].tolist() == [label for _, label in samples]


@pytest.mark.parametrize("maker", MAKERS)
def test_encoded_images(tmp_path_factory, maker):
    root = plain_folder(tmp_path_factory.mktemp("layouts"), COUNT)
    dataset = Samples(dict, encoded=sorted(root.glob("*/*")))
    loader = FastLoader(dataset, SIZE, batch="list", **MAKERS[maker])
    check(loader, expected(dataset, "list"))
    loader = FastLoader(dataset, SIZE, batch="pad", pad_to=32, **MAKERS[maker])
    check(loader, expected(dataset, "pad", 32))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"device": "cpu"}])
def test_nested(options):
    """What is ragged in its first dimension; pictures are refused by name."""
    rows = [{"tokens": torch.arange(n + 2), "points": torch.rand(n + 1, 2)} for n in range(COUNT)]
    for number, batch in enumerate(FastLoader(rows, SIZE, batch="nested", **options)):
        samples = rows[number * SIZE : (number + 1) * SIZE]
        for key, found in batch.items():
            assert found.layout is torch.jagged
            same(list(found.unbind()), [each[key] for each in samples])
    with pytest.raises(ValueError, match="batch='pad' or batch='packed'"):
        next(iter(FastLoader(Samples(dict), SIZE, batch="nested", **options)))


def test_tensors_of_no_dimension():
    numbers = [{"n": torch.tensor(n), "x": np.float32(n), "y": n / 2, "z": True} for n in range(4)]
    (batch,) = FastLoader(numbers, SIZE, batch="list")
    assert type(batch["n"]) is list and len(batch["n"]) == 4
    for layout in ("packed", "nested"):
        (batch,) = FastLoader(numbers, SIZE, batch=layout)
        same(batch, default_collate(numbers))


def test_samples_without_a_container():
    tensors = [torch.arange(n) for n in range(5)]
    same(list(FastLoader(tensors, 3, batch="list")), [tensors[:3], tensors[3:]])
    (batch,) = FastLoader(tensors, 5, batch="packed")
    same(batch, packed(tensors))


def test_arrays():
    pictures, labels = torch.arange(7 * 3 * 2 * 5).view(7, 3, 2, 5).to(torch.uint8), torch.arange(7)
    loader = FastLoader(TensorDataset(pictures, labels), SIZE, batch="list")
    assert "batch='list'" in loader.plan()
    for number, batch in enumerate(loader):
        rows = slice(number * SIZE, number * SIZE + SIZE)
        same(batch, [list(pictures[rows]), list(labels[rows])])


def test_an_iterable_dataset_and_a_batch_sampler():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([torch.arange(n) for n in range(5)])

    tensors = list(Stream())
    same(list(FastLoader(Stream(), 3, batch="list")), [tensors[:3], tensors[3:]])
    loader = FastLoader(tensors, batch_sampler=[[4, 1], [2]], batch="list")
    same(list(loader), [[tensors[4], tensors[1]], [tensors[2]]])


def test_it_goes_on_from_a_state():
    loader = FastLoader(Samples(dict), SIZE, batch="pad", num_workers=2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = FastLoader(Samples(dict), SIZE, batch="pad", num_workers=2)
    other.load_state_dict(state)
    same(list(other), list(batches))


REFUSED = [
    (
        {"batch": "rows"},
        ValueError,
        "batch='rows': use 'stack', 'list', 'pad', 'nested' or 'packed'",
    ),
    ({"batch": "list", "collate_fn": list}, ValueError, "batch='list' and a collate_fn"),
    ({"batch": "list", "batch_size": None}, ValueError, "batch_size=None"),
    ({"batch": "pad", "pad_to": 0}, ValueError, "pad_to=0"),
    ({"batch": "pad", "pad_to": 1.5}, TypeError, "pad_to must be a whole number"),
    ({"batch": "pad", "pad_value": "0"}, TypeError, "pad_value must be a number"),
    ({"batch": "list", "pad_to": 8}, ValueError, "pad_to is for batch='pad'"),
    ({"pad_value": 1}, ValueError, "pad_value is for batch='pad', and batch is 'stack'"),
]


@pytest.mark.parametrize("arguments, kind, words", REFUSED)
def test_what_is_refused(arguments, kind, words):
    with pytest.raises(kind, match=words.replace("(", "[(]")):
        FastLoader(Samples(dict), **arguments)


MIXED = [torch.zeros(3, 4, 4, dtype=torch.uint8), torch.zeros(1, 4, 5, dtype=torch.uint8)]


@pytest.mark.parametrize("workers", [0, 1])
def test_pictures_that_do_not_go_together(workers):
    same(list(FastLoader(MIXED, 2, batch="list", num_workers=workers)), [MIXED])
    for more in ({"batch": "pad"}, {"batch": "packed"}, {"batch": "list", "dtype": torch.float32}):
        with pytest.raises(ValueError, match="uint8 of 1 channels and uint8 of 3 channels"):
            list(FastLoader(MIXED, 2, num_workers=workers, **more))
    for value in (0.5, 256):
        with pytest.raises(ValueError, match="are bytes"):
            list(FastLoader(MIXED[:1], 2, batch="pad", pad_value=value))
    with pytest.raises(ValueError, match="differ in more than their first dimension"):
        rows = [torch.zeros(2, 3), torch.zeros(2, 4)]
        list(FastLoader(rows, 2, batch="packed", num_workers=workers))
    with pytest.raises(TypeError, match=r"torch\.float32, torch\.int64"):
        list(FastLoader([torch.zeros(2), torch.arange(3)], 2, batch="nested"))


def test_a_key_for_pictures():
    """Of two things that look like pictures, only that one is padded."""
    samples = [{"picture": torch.rand(3, 4, n), "features": torch.rand(1, 4, n)} for n in (2, 3)]
    (batch,) = FastLoader(samples, 2, batch="pad", image_key="picture")
    assert type(batch["picture"]) is Padded and type(batch["features"]) is list
    (batch,) = FastLoader(samples, 2, batch="pad")
    assert type(batch["features"]) is Padded


def test_kinds_of_tensors_that_are_no_pictures():
    import_torchvision()
    kinds = pytest.importorskip("torchvision.tv_tensors")
    pixels = torch.zeros(3, 4, 4, dtype=torch.uint8)
    samples = [(kinds.Image(pixels), kinds.Mask(pixels), kinds.Mask(pixels[0]))] * 2
    (batch,) = FastLoader(samples, 2, batch="pad")
    assert type(batch[0]) is Padded
    assert [type(each) for each in batch[1] + batch[2]] == [kinds.Mask] * 4


def test_a_loader_made_again_of_its_attributes():
    loader = FastLoader(Samples(dict), SIZE, batch="pad", pad_to=4)
    again = FastLoader(
        loader.dataset,
        loader.batch_size,
        collate_fn=loader.collate_fn,
        batch=loader.batch,
        pad_to=loader.pad_to,
        pad_value=loader.pad_value,
    )
    same(list(again), list(loader))
    with pytest.raises(ValueError, match="batch attribute should not be set"):
        loader.batch = "list"

    class Own(FastLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.batch = 3  # as of a DataLoader

    assert len(next(iter(Own(range(8), 4)))) == 4


@pytest.mark.parametrize("layout", ["stack", "list", "pad"])
def test_threads_share_an_iterator(layout, way):
    """Each gets other batches."""
    count = 400
    samples = [
        (torch.zeros(3, 2, 2 + n % (1 if layout == "stack" else 3)), n) for n in range(count)
    ]
    batches = iter(FastLoader(samples, 1, batch=layout, **way.options))
    found, interval = [], sys.getswitchinterval()

    def take():
        for _pictures, numbers in batches:
            found.append(int(numbers))

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=take) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(found) == list(range(count))


def test_an_error_takes_the_place_of_its_batch(way):
    """Also one that comes when the batch is opened; the loader goes on."""
    samples = [
        (torch.zeros(3, 2, 2, dtype=torch.float16 if n == 2 else torch.float32), n)
        for n in range(5)
    ]
    loader = FastLoader(samples, 1, batch="pad", pad_value=1e5, **way.options)
    batches, found = iter(loader), []
    for _ in samples:
        try:
            found.append(int(next(batches)[1]))
        except RuntimeError:
            found.append("error")
    assert found == [0, 1, "error", 3, 4] and list(batches) == []
    assert loader.stats()["errors"] == 1


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"device": "cpu", "dtype": torch.float32}]
)
@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
def test_the_default_device_is_the_models(layout, options):
    samples = [(torch.zeros(3, 2, 2 + n, dtype=torch.uint8), np.zeros(n)) for n in range(3)]
    loader = FastLoader(samples, 3, batch=layout, **options)
    with torch.device("meta"):
        (batch,) = loader
    found = []
    rebuild(batch, lambda value, _key: found.append(value))
    assert len(found) > 3 and {each.device.type for each in found} == {"cpu"}


class Movable(collections.namedtuple("Movable", "picture, label")):
    def to(self, *args, **kwargs):
        return Movable(self.picture.to(*args, **kwargs), self.label)


@pytest.mark.parametrize("layout", ["list", "pad", "packed"])
def test_samples_that_move_themselves(layout, way):
    samples = [Movable(torch.rand(3, 2, 2 + n), n) for n in range(3)]
    ((pictures, label),) = FastLoader(samples, 3, batch=layout, **way.options)
    same(pictures, laid_out([each.picture for each in samples], layout, 1, 0))
    assert label.tolist() == [0, 1, 2]


class Rows(list):
    pass


@pytest.mark.parametrize("kind", [list, Rows, collections.UserList, collections.deque, tuple])
def test_sequences(kind):
    """As default_collate has them."""
    samples = [kind([torch.zeros(n), n]) for n in range(3)]
    (batch,) = FastLoader(samples, 3, batch="list")
    (stacked,) = FastLoader([kind([0, n]) for n in range(3)], 3)
    assert type(batch) is type(stacked)
    same(list(batch), [[torch.zeros(n) for n in range(3)], torch.arange(3)])


class Own(collections.UserDict):
    note = ""


def test_what_a_mapping_has_besides_its_items():
    sample = Own(x=torch.zeros(2))
    sample.note = "kept"
    (batch,) = FastLoader([sample, sample], 2, batch="list")
    assert type(batch) is Own and batch.note == "kept" and type(batch["x"]) is list


def test_nothing_to_pad():
    for samples, said in (
        (
            [(torch.zeros(4, 5, 5), 1)],
            r"there is no picture to pad.*\[0\] torch.float32 \(4, 5, 5\)",
        ),
        ([{"x": torch.zeros(3, 5, 5)}], "under image_key='picture'"),
    ):
        more = {"image_key": "picture"} if type(samples[0]) is dict else {}
        with pytest.raises(ValueError, match=said):
            next(iter(FastLoader(samples, 1, batch="pad", **more)))


def test_bytes_beside_what_is_normalised():
    samples = [(torch.zeros(3, 2, 2, dtype=torch.uint8), torch.zeros(1, 2, 2, dtype=torch.uint8))]
    with pytest.raises(ValueError, match=r"pad_value=0.5: the pictures under 1 are bytes"):
        next(iter(FastLoader(samples, 1, batch="pad", pad_value=0.5, **NORMALIZED)))


def test_lists_without_a_delivery_are_of_the_samples_own_tensors():
    samples = [(torch.rand(3, 4, 5), 0), (torch.rand(3, 4, 6), 1)]
    ((pictures, _labels),) = FastLoader(samples, 2, batch="list")
    assert all(found is given for found, (given, _) in zip(pictures, samples, strict=True))


def test_a_function_that_is_assigned():
    loader = FastLoader(Samples(dict), SIZE, batch="list")
    loader.collate_fn = default_collate
    with pytest.raises(ValueError, match="batch='list' lays out the batches"):
        loader.collate_fn = list


def test_what_is_in_the_way_is_named_first(tmp_path):
    root = plain_folder(tmp_path, COUNT)
    dataset = ImageFolder(root, T.Compose([T.Resize(20), abs]))
    if extension.load() is None:
        pytest.skip("the native module is not in use")
    plan = FastLoader(dataset, SIZE, batch="list").plan()
    assert plan.index("abs") < plan.index("batch='list'"), plan


def test_the_default_collate_names_the_argument(tmp_path):
    """Where samples of several sizes do not stack."""
    for options in ({}, {"num_workers": 1}, {"num_workers": 1, "worker_backend": "thread"}):
        with pytest.raises(RuntimeError, match=r"equal size.*batch='list' or batch='pad'"):
            next(iter(FastLoader(Samples(dict), SIZE, **options)))
    root = plain_folder(tmp_path, COUNT)
    known = ImageFolder(root, T.Compose([T.Resize(20), T.PILToTensor()]))
    with pytest.raises(RuntimeError, match=r"equal size.*batch='list' or batch='pad'"):
        list(FastLoader(known, SIZE))
