"""A collate_fn of the user's gets the samples that the dataset would make, of pictures that decode
threads made: in workers, on worker threads and on the loop's thread."""

import functools
import random

import numpy as np
import pytest
import torch
from pictures import import_torchvision, plain_folder
from PIL import Image, UnidentifiedImageError
from side_by_side import since_2_6
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate, get_worker_info

from fastloader import Error, FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")
tv = import_torchvision()
v1 = tv.transforms
v2 = pytest.importorskip("torchvision.transforms.v2")
tv_tensors = pytest.importorskip("torchvision.tv_tensors")

COUNT = 23
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WAYS = {
    "loop": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
}
ENDS = {
    "floats": lambda: [v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "unit floats": lambda: [v1.ToTensor()],
    "bytes": lambda: [v1.PILToTensor()],
    "v2": lambda: [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)],
    "v2, bytes": lambda: [v2.ToImage()],
    "v2, pure": lambda: [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()],
    "converted": lambda: [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("rows"), COUNT)


def folder(root, end="floats", **options):
    chain = v1.Compose([v1.Resize(40), v1.CenterCrop(32), *ENDS[end]()])
    return tv.datasets.ImageFolder(str(root), chain, **options)


def as_they_are(samples):
    return list(samples)


def to_dict(samples):
    return {
        "pixels": torch.stack([each[0] for each in samples]),
        "labels": [each[1] for each in samples],
    }


def kinds(value):
    """The types in a batch, with dtypes and strides: what a function may do without a copy depends on
    these."""
    if isinstance(value, torch.Tensor):
        steps = [step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1]
        return type(value), value.dtype, value.shape, steps
    if isinstance(value, dict):
        return {key: kinds(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [kinds(each) for each in value]
    return type(value)


def check(dataset, collate_fn, options, size=5, **both):
    loader = FastLoader(dataset, size, collate_fn=collate_fn, **options, **both)
    assert loader.plan().startswith("native images: "), loader.plan()
    ours, theirs = list(loader), list(DataLoader(dataset, size, collate_fn=collate_fn, **both))
    assert kinds(ours) == kinds(theirs)
    same(ours, theirs)
    return loader


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_samples_are_the_datasets(root, way, end):
    check(folder(root, end), as_they_are, WAYS[way])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_pictures_of_sizes_of_their_own(root, way, end):
    """Of the files' and of the shorter edge's; grey ones too, and those that only Pillow knows."""
    for steps in ([], [v1.Resize(20)], [v1.Resize(20), v1.Grayscale()]):
        if end == "floats" and len(steps) == 2:
            continue  # Normalize has three means
        if end.startswith("v2") and "bytes" not in end and len(steps) == 2:
            continue
        dataset = tv.datasets.ImageFolder(str(root), v1.Compose([*steps, *ENDS[end]()]))
        loader = check(dataset, as_they_are, WAYS[way])
        shapes = {row.shape for batch in loader for row, _label in batch}
        assert len(shapes) > 1


@pytest.mark.parametrize("way", WAYS)
def test_functions(root, way):
    dataset = folder(root, target_transform=lambda label: (label, str(label)))
    for function in (to_dict, default_collate, lambda samples: tuple(zip(*samples, strict=True))):
        check(dataset, function, WAYS[way])
    check(dataset, None, WAYS[way], size=None)
    check(dataset, None, WAYS[way])  # the target_transform alone is the user's


@pytest.mark.parametrize("way", WAYS)
def test_selections(root, way):
    dataset = folder(root)
    check(Subset(dataset, [3, 1, -1, 3]), as_they_are, WAYS[way], size=3)
    check(ConcatDataset([dataset, Subset(dataset, [2, 5])]), to_dict, WAYS[way], drop_last=True)
    check(dataset, as_they_are, WAYS[way], size=1, batch_sampler=[[4, 2], [], [22, -23, 4]])


@pytest.mark.parametrize("way", WAYS)
def test_draws_are_those_of_the_native_path(root, way):
    """The same as with default_collate, and `replay` tells them."""
    chain = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.PILToTensor()])
    batches = []
    for collate_fn in (to_dict, None):
        torch.manual_seed(5)
        dataset = ImageFolder(root, chain)
        loader = FastLoader(dataset, 4, shuffle=True, collate_fn=collate_fn, **WAYS[way])
        batches.append([list(each.values()) if collate_fn else each for each in loader])
        drawn = [loader.replay(index) for index in range(COUNT)]
        batches[-1].append(drawn)
    assert batches[0][-1] == batches[1][-1]
    same([each[0] for each in batches[0][:-1]], [each[0] for each in batches[1][:-1]])


def keeping(kept, samples):
    rows = [each[0] for each in samples]
    kept += [(rows[0], rows[0].clone()), (rows[1].numpy(), rows[1].clone().numpy())]
    kept.append((torch.utils.dlpack.to_dlpack(rows[2]), rows[2].clone()))
    kept.append((torch.stack(rows), torch.stack([each.clone() for each in rows])))
    return rows[3:]


@pytest.mark.parametrize("way", ["loop", "threads"])
def test_what_a_function_keeps_stays(root, way):
    """A row, an array, a capsule, a stack and a list of views, over 50 batches."""
    dataset, kept, returned = folder(root), [], []
    for _epoch in range(13):
        for views in FastLoader(
            dataset, 5, drop_last=True, collate_fn=functools.partial(keeping, kept), **WAYS[way]
        ):
            returned.append((views, [each.clone() for each in views]))
    assert len(returned) >= 50
    for one, other in [*kept, *returned]:
        if type(one).__name__ == "PyCapsule":
            one = torch.utils.dlpack.from_dlpack(one)
        same(one if isinstance(one, list) else torch.as_tensor(one),
             other if isinstance(other, list) else torch.as_tensor(other))  # fmt: skip


class KeepsInWorkers:
    """Keeps stacks and rows in the worker, and checks those of before each time."""

    def __init__(self):
        self.kept = []

    def __call__(self, samples):
        for one, other in self.kept:
            assert torch.equal(one, other)
        rows = [each[0] for each in samples]
        stack = torch.stack(rows)
        self.kept += [(stack, stack.clone()), (rows[0], rows[0].clone())]
        return stack, len(self.kept)


def test_what_a_function_keeps_in_a_worker_stays(root):
    loader = FastLoader(folder(root), 2, collate_fn=KeepsInWorkers(), num_workers=1)
    batches = [(stack.clone(), count) for stack, count in loader]
    assert batches[-1][1] == 2 * len(batches)
    wanted = [
        to_dict(each)["pixels"] for each in DataLoader(folder(root), 2, collate_fn=as_they_are)
    ]
    same([stack for stack, _count in batches], wanted)


def where(samples):
    info = get_worker_info()
    return None if info is None else (info.id, info.num_workers, type(info.dataset).__name__)


@pytest.mark.parametrize("way", WAYS)
def test_where_the_function_runs(root, way):
    found = set(FastLoader(folder(root), 5, collate_fn=where, **WAYS[way]))
    workers = {(number, 2, "ImageFolder") for number in range(2)}
    assert found == (workers if WAYS[way] else {None})


@pytest.mark.parametrize("way", WAYS)
def test_pictures_that_only_pillow_knows_and_bad_ones(tmp_path, way):
    root = plain_folder(tmp_path, 6)
    paths = sorted(root.glob("*/*.jpg"))
    Image.open(paths[1]).convert("P").save(paths[1], "GIF")
    check(folder(root), to_dict, WAYS[way], size=3)
    paths[4].write_bytes(b"no picture")
    for loader in (DataLoader, FastLoader):
        options = WAYS[way] if loader is FastLoader else {}
        batches = iter(loader(folder(root), 3, collate_fn=to_dict, **options))
        next(batches)
        with pytest.raises(UnidentifiedImageError, match="cannot identify image file"):
            next(batches)


@pytest.mark.parametrize("end", ["floats", "bytes", "v2"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_erased_is_that_of_the_native_path(tmp_path, way, end):
    """Also in a picture that only Pillow knows."""
    root = plain_folder(tmp_path, 9)
    path = sorted(root.glob("*/*.jpg"))[4]
    Image.open(path).convert("P").save(path, "GIF")
    kind = v2.RandomErasing if end == "v2" else v1.RandomErasing
    value = 0 if end == "bytes" else "random"
    batches = []
    for collate_fn in (to_dict, None):
        torch.manual_seed(5)
        dataset = folder(root, end)
        dataset.transform.transforms.append(kind(0.9, value=value))
        loader = FastLoader(dataset, 4, shuffle=True, collate_fn=collate_fn, **WAYS[way])
        assert loader.plan().startswith("native images: "), loader.plan()
        batches.append(torch.cat([each["pixels"] if collate_fn else each[0] for each in loader]))
    if end == "bytes":
        same(*batches)
    # The default collate normalises and erases in one kernel.
    assert torch.allclose(*batches, rtol=0, atol=1e-6)
    torch.manual_seed(5)
    plain = FastLoader(folder(root, end), 4, shuffle=True, collate_fn=to_dict)
    whole = torch.cat([each["pixels"] for each in plain])
    assert (whole != batches[0]).flatten(1).any(1).sum() >= 6


def names(samples):
    return [(each[0].shape, each[1]) for each in samples]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("way", WAYS)
def test_bad_samples(tmp_path, way, on_error):
    """Left out or replaced before the function is called, as with the default collate."""
    root = plain_folder(tmp_path, 12, classes=12)
    paths = sorted(root.glob("*/*.jpg"))
    for bad in (1, 4, 5, 6, 7):
        paths[bad].write_bytes(b"no picture")
    found = []
    for collate_fn in (names, None):
        torch.manual_seed(5)
        loader = FastLoader(
            folder(root), 4, collate_fn=collate_fn, on_error=on_error, max_errors=5, **WAYS[way]
        )
        labels = [
            [label for _, label in batch] if collate_fn else batch[1].tolist() for batch in loader
        ]
        images = loader.stats()["images"]
        found.append((labels, images["seen"], images["bad"], images["last_bad"]))
    assert found[0] == found[1]
    if on_error == "skip":
        assert found[0][0] == [[0, 2, 3], [8, 9, 10, 11]]
    assert found[0][1:3] == (12, 5) and "sample 1" in found[0][3][0]


@pytest.mark.parametrize("way", WAYS)
def test_bad_samples_that_are_not_batched(tmp_path, way):
    root = plain_folder(tmp_path, 6, classes=6)
    sorted(root.glob("*/*.jpg"))[2].write_bytes(b"no picture")
    loader = FastLoader(folder(root), None, on_error="skip", **WAYS[way])
    assert [label for _, label in loader] == [0, 1, 3, 4, 5]


def test_too_many_bad_samples(tmp_path):
    root = plain_folder(tmp_path, 6)
    for path in root.glob("*/*.jpg"):
        path.write_bytes(b"no picture")
    loader = FastLoader(
        folder(root), 2, collate_fn=names, on_error="skip", max_errors=3, num_workers=2
    )
    with pytest.raises(Error, match="4 of 4 samples could not be read, more than max_errors=3"):
        list(loader)


@pytest.mark.parametrize("way", WAYS)
def test_what_decode_threads_did_is_reported(root, way):
    loader = FastLoader(folder(root), 5, collate_fn=to_dict, **WAYS[way])
    for epoch in (1, 2):
        list(loader)
        stages = loader.stats()["stages"]
        assert stages["decode"]["count"] == epoch * COUNT and stages["decode"]["seconds"] > 0
    images = loader.stats()["images"]
    assert images["jpegs"]["own"] == 2 * COUNT and images["seen"] == 2 * COUNT
    assert images["read_bytes"] == 2 * sum(path.stat().st_size for path in root.glob("*/*.jpg"))
    assert "decode threads" in str(loader.report())


RANDOM = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.PILToTensor()])


def rows_of(batches):
    return [(row, label) for batch in batches for row, label in batch]


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_goes_on_from_a_state(root, way):
    """With the draws that the rest would have had."""
    torch.manual_seed(5)
    options = {"shuffle": True, "collate_fn": as_they_are, **WAYS[way]}
    loader = FastLoader(ImageFolder(root, RANDOM), 4, **options)
    whole = []
    for batch in loader:
        whole.append(batch)
        if len(whole) == 2:
            state = loader.state_dict()
    other = FastLoader(ImageFolder(root, RANDOM), 4, **options)
    other.load_state_dict(state)
    same(rows_of(other), rows_of(whole[2:]))


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_workers_that_live_on(root, backend):
    """Each epoch has other draws, and the same as with workers that end."""
    epochs = []
    for lives in (True, False):
        torch.manual_seed(5)
        loader = FastLoader(
            ImageFolder(root, RANDOM),
            4,
            collate_fn=as_they_are,
            num_workers=2,
            persistent_workers=lives,
            worker_backend=backend,
            generator=torch.Generator().manual_seed(3),
        )
        epochs.append([rows_of(loader) for _ in range(3)])
        loader.close()
    assert not torch.equal(epochs[0][0][0][0], epochs[0][1][0][0])
    for epoch in epochs[0]:
        assert [label for _, label in epoch] == [label for _, label in epochs[0][0]]
    same(*([epoch[0] for epoch in each[:1]] for each in epochs))


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_batches_in_any_order(tmp_path, backend):
    dataset, found = ImageFolder(plain_folder(tmp_path, 12, classes=12), RANDOM), []
    for options in ({}, {"in_order": False, "num_workers": 2, "worker_backend": backend}):
        torch.manual_seed(5)
        batches = list(FastLoader(dataset, 2, collate_fn=as_they_are, **options))
        found.append(rows_of(sorted(batches, key=lambda batch: batch[0][1])))
    same(*found)


def test_another_transform_in_the_middle_of_an_epoch(root):
    dataset = folder(root)
    batches = iter(FastLoader(dataset, 5, collate_fn=as_they_are))
    next(batches)
    dataset.transform = v1.Compose([v1.Resize((8, 8)), v1.PILToTensor()])
    same(next(batches), [dataset[index] for index in range(5, 10)])


def test_generators_stand_as_if_the_transforms_drew_nothing(root):
    chain = T.Compose([T.RandomResizedCrop(24), T.ToTensor()])

    def draws(samples):
        return torch.rand(()).item(), random.random(), float(np.random.rand())

    for dataset in (
        ImageFolder(root, chain),
        ImageFolder(root, T.Compose([T.Resize((8, 8)), T.ToTensor()])),
    ):
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        found = list(FastLoader(dataset, 12, collate_fn=draws))
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        torch.empty((), dtype=torch.int64).random_()  # the epoch's seed
        assert found == [draws(None) for _ in found]


@pytest.mark.parametrize("way", WAYS)
def test_flips_behind_the_conversion(root, tmp_path, way):
    """They do there what they do before it. Nothing is drawn to find out what a transform makes, and a
    picture that only Pillow knows has the same draws."""
    for flips in (
        [v1.RandomHorizontalFlip(1.0)],
        [v1.RandomVerticalFlip(1.0), v1.RandomHorizontalFlip(0.0)],
    ):
        chain = v1.Compose([v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), *flips])
        check(tv.datasets.ImageFolder(str(root), chain), as_they_are, WAYS[way])
    plain_folder(tmp_path, 6)
    picture = next(tmp_path.glob("*/*.jpg"))
    Image.open(picture).quantize(16).save(picture.with_suffix(".gif"))
    ours = T.Compose([T.Resize((9, 9)), T.ToTensor(), T.RandomHorizontalFlip()])
    theirs = v1.Compose([v1.Resize((9, 9)), v1.PILToTensor(), v1.RandomHorizontalFlip()])
    for dataset in (ImageFolder(tmp_path, ours), tv.datasets.ImageFolder(str(tmp_path), theirs)):
        found = []
        for collate_fn in (to_dict, None):
            torch.manual_seed(7)
            loader = FastLoader(dataset, 3, collate_fn=collate_fn, **WAYS[way])
            assert loader.plan().startswith("native images: ")
            batches = [list(batch.values()) if collate_fn else batch for batch in loader]
            found.append(torch.cat([batch[0] for batch in batches]))
        same(*found)


class Counting(ImageFolder):
    """Has attributes that say nothing of its samples, and changes them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, target_transform=self.count, **kwargs)
        self.side, self.share, self.counted = 320, 0.5, 0

    def count(self, label):
        self.counted += 1
        return label


@pytest.mark.parametrize("context", ["fork", "spawn", None])
def test_attributes_that_say_nothing_of_the_samples(root, tmp_path, context):
    chain = T.Compose([T.RandomResizedCrop(24), T.ToTensor()])
    workers = {"num_workers": 1, "multiprocessing_context": context} if context else {}
    made = []
    for kind in (Counting, ImageFolder):
        torch.manual_seed(5)
        dataset = kind(str(root), chain)
        loader = FastLoader(dataset, 4, collate_fn=as_they_are, **workers)
        samples = []
        for batch in loader:
            dataset.note = len(samples)
            samples += batch
        assert loader.stats()["images"]["seen"] == COUNT
        made.append(samples)
    same(*made)


def test_a_transform_that_is_replaced_in_the_middle_of_an_epoch(root):
    dataset = folder(root)
    loader = FastLoader(dataset, 4, collate_fn=as_they_are)
    batches = iter(loader)
    next(batches)
    dataset.transform = v1.Compose([v1.Resize((7, 5)), v1.ToTensor()])
    assert next(batches)[0][0].shape == (3, 7, 5)


def looking_around(samples):
    """What a function may do with a stack, in a worker process."""
    rows = [each[0] for each in samples]
    traced = torch.jit.trace(lambda a, b: torch.stack([a, b]), (rows[0], rows[1]))
    both = traced(rows[0], rows[1]), traced(rows[1], rows[0])
    stacked = torch.stack(rows)
    view = stacked[0]
    array = torch.from_numpy(np.zeros(6)).resize_(2, 2)
    stacked.resize_(1, 3, 4, 4).fill_(2.0)
    modes = torch._C._len_torch_function_stack()
    return [*both, view.clone(), array, stacked, stacked.is_shared(), modes]


@pytest.mark.parametrize("way", WAYS)
def test_a_stack_is_torchs_own(root, way):
    check(folder(root), looking_around, WAYS[way], drop_last=True)


def test_what_stays_python(root):
    """A step of the user's, and steps of the older kind behind ToImage."""
    steps = [v1.Resize(40), v1.CenterCrop(32)]
    for chain in (
        v1.Compose([*steps, lambda picture: picture, v1.ToTensor()]),
        v1.Compose([*steps, v2.ToImage(), v1.ConvertImageDtype(torch.float32)]),
    ):
        dataset = tv.datasets.ImageFolder(str(root), chain)
        loader = FastLoader(dataset, 4, collate_fn=as_they_are, native=True)
        assert loader.plan().startswith("Python path: "), loader.plan()
        with pytest.warns(match="collate_fn"):
            same(list(loader), list(DataLoader(dataset, 4, collate_fn=as_they_are)))
