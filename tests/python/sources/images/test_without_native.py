"""Where the native module is not in use, Python makes the batches of the native path: the same draws,
the same pixels, in the same order."""

import concurrent.futures
import logging
import threading

import numpy as np
import pytest
import torch
from image_source import image_source
from numbered_pictures import Own
from pictures import plain_folder, random_folder, script, upstream_pillow
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import SampleDraws
from fastloader._core.machine import extension
from fastloader._core.pictures.images import CropSeeds
from fastloader.cli.__main__ import main
from fastloader.compat.timm import FastCollateMixup, ImageDataset, RepeatAugSampler
from fastloader.datasets import ImageFolder, LMDBDataset
from support import MEAN, STD, generator, same

pytestmark = [
    pytest.mark.skipif(extension.load() is None, reason="needs the native module"),
    upstream_pillow,
]

COUNT = 14
WAYS = [{}, {"num_workers": 2}, {"num_workers": 2, "worker_backend": "thread"}]
SPAWNED = {"num_workers": 1, "multiprocessing_context": "spawn"}
HEAD = [T.RandomResizedCrop((16, 18), interpolation="random"), T.RandomHorizontalFlip()]
RECIPE = [T.RandAugment(2, 9), T.ColorJitter(0.4, 0.4, 0.4), T.RandomErasing(0.7, value=(3, 99, 7))]
FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]


class Mirrored:
    """A step that nobody knows, which needs a Pillow picture."""

    def __call__(self, image):
        return image.transpose(0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("plain"), COUNT, classes=4))


@pytest.fixture(scope="module")
def packed(root, tmp_path_factory):
    pytest.importorskip("lmdb")
    path = tmp_path_factory.mktemp("packed") / "set.lmdb"
    assert main(["pack", root, str(path)]) == 0
    return str(path)


def folder(root, *steps, **options):
    return ImageFolder(root, T.Compose(steps or HEAD), **options)


def both(monkeypatch, make, epochs=2, ways=WAYS):
    """What ``make(way)`` gives with the native module, and in each way without it: the batches of the
    epochs and what `replay` says of the last one."""

    def run(way, plan):
        torch.manual_seed(7)
        loader = make(way)
        assert loader.plan().startswith(plan), loader.plan()
        found = [[as_copied(batch) for batch in loader] for _ in range(epochs)]
        replayed = []
        for index in range(len(loader.dataset)):
            try:
                replayed.append(loader.replay(index))
            except (ValueError, OSError) as error:
                assert "was not among" in str(error) or "cannot identify" in str(error)
                replayed.append(None)
        loader.close()
        return found, replayed

    wanted = run({"num_workers": 2}, "native images: ")
    assert any(wanted[1])
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    for way in ways:
        same(run(way, "Python path: the native module is not in use: "), wanted)
    return wanted


def as_copied(batch):
    return type(batch)(each.clone() for each in batch)


CHAINS = {
    "bytes": [*HEAD, T.PILToTensor()],
    "no draws": [T.Resize(20), T.CenterCrop((14, 22)), T.ToTensor()],
    "floats": [*HEAD, *FLOATS],
    "recipe": [*HEAD, *RECIPE[:2], T.PILToTensor()],
    "erased bytes": [*HEAD, RECIPE[1], T.PILToTensor(), RECIPE[2]],
    "erased floats": [*HEAD, *FLOATS, T.RandomErasing(0.7, value=(0.5, -1, 0.25))],
    "erased between": [*HEAD, T.ToTensor(), T.RandomErasing(0.7, value=0.5), FLOATS[1]],
    "deviates": [*HEAD, *FLOATS, T.RandomErasing(0.7, value="random")],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHAINS)
def test_chains(root, monkeypatch, name):
    dataset = folder(root, *CHAINS[name])
    both(monkeypatch, lambda way: FastLoader(dataset, 4, shuffle=True, **way))


MIXERS = {
    "mixup": (T.MixUp(alpha=0.8, num_classes=4), (T.PILToTensor(),)),
    "cutmix": (T.CutMix(num_classes=4), FLOATS),
    "one of them": (
        T.RandomChoice([T.CutMix(num_classes=4), T.MixUp(num_classes=4)], [1, 2]),
        (*FLOATS, T.RandomErasing(0.7)),
    ),
    "timm": (FastCollateMixup(0.8, 1.0, num_classes=4), (T.PILToTensor(),)),
    "timm element": (FastCollateMixup(0.8, mode="elem", num_classes=4), (T.PILToTensor(),)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MIXERS)
def test_mixed_batches(root, monkeypatch, name):
    collate, end = MIXERS[name]
    dataset = folder(root, *HEAD, *end)
    both(
        monkeypatch,
        lambda way: FastLoader(dataset, 4, shuffle=True, drop_last=True, collate_fn=collate, **way),
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"dtype": torch.float16, "channels_last": True}], ids=str)
@pytest.mark.parametrize("mixed", [False, True])
def test_the_loader_normalises(root, monkeypatch, options, mixed):
    dataset = folder(root, *CHAINS["erased bytes"])
    options = {"mean": MEAN, "std": STD, "device": "cpu", "drop_last": True, **options}
    if mixed:
        options["collate_fn"] = MIXERS["mixup"][0]
    both(monkeypatch, lambda way: FastLoader(dataset, 4, shuffle=True, **options, **way))


ORDERS = {
    "replacement": lambda d: {"sampler": RandomSampler(d, replacement=True, num_samples=30)},
    "weighted": lambda d: {"sampler": WeightedRandomSampler([1.0] * len(d), 20)},
    "more samples": lambda d: {"sampler": RandomSampler(d, num_samples=33)},
    "own sampler": lambda d: {"sampler": Own([3, 3, 1, 0, -1, 3, -len(d)])},
    "own batches": lambda d: {"batch_sampler": Own([[1, 1], (2, 3, 4), [0]])},
    "tensors": lambda d: {"batch_sampler": Own([torch.tensor([2, 2, 0]), np.array([1, 5])])},
    "batches": lambda d: {"batch_sampler": BatchSampler(RandomSampler(d), 3, True)},
    "rank": lambda d: {"sampler": DistributedSampler(d, 3, rank=1, shuffle=True)},
    "repeated": lambda d: {"sampler": RepeatAugSampler(d, 2, 1, selected_round=0)},
    "generator": lambda d: {"shuffle": True, "generator": generator(5)},
    "reversed": lambda d: {"sampler": Own(range(len(d))[::-1]), "generator": generator(9)},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ORDERS)
def test_orders(root, monkeypatch, name):
    dataset = folder(root)

    def make(way):
        options = ORDERS[name](dataset)
        return FastLoader(
            dataset, **({} if "batch_sampler" in options else {"batch_size": 4}), **options, **way
        )

    both(monkeypatch, make)


def test_shares_of_ranks_have_one_seed(root, monkeypatch):
    """That of the run, which the ranks agree on."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        dataset = folder(root)
        both(
            monkeypatch, lambda way: FastLoader(dataset, 4, shuffle=True, distributed="pad", **way)
        )
    finally:
        torch.distributed.destroy_process_group()


SELECTIONS = {
    "subset": lambda root: Subset(folder(root), [5, 2, -1, 0, 7]),
    "repeating": lambda root: Subset(folder(root), [5, 2, 5, 0, 7, 2]),
    "concatenated": lambda root: ConcatDataset([folder(root), Subset(folder(root), [3, 1])]),
    "picked": lambda root: Subset(ConcatDataset([folder(root), folder(root)]), range(20, 2, -2)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SELECTIONS)
def test_selections(root, monkeypatch, name):
    dataset = SELECTIONS[name](root)
    both(monkeypatch, lambda way: FastLoader(dataset, 3, shuffle=True, **way))


@pytest.mark.processes
def test_packed_files(packed, monkeypatch):
    dataset = LMDBDataset(packed, T.Compose(CHAINS["recipe"]))
    both(
        monkeypatch,
        lambda way: FastLoader(dataset, 4, shuffle=True, **way),
        epochs=1,
        ways=[*WAYS, SPAWNED],
    )


def test_files_of_any_kind(tmp_path, monkeypatch):
    root = str(random_folder(tmp_path, 3, others=True))
    dataset = folder(root, *CHAINS["floats"], is_valid_file=lambda path: "damaged" not in path)
    both(monkeypatch, lambda way: FastLoader(dataset, 4, **way), epochs=1)


def test_persistent_workers_draw_anew_in_each_epoch(root, monkeypatch):
    dataset = folder(root)

    def make(way):
        options = {"num_workers": 1, **way, "persistent_workers": True}
        return FastLoader(dataset, 4, shuffle=True, **options)

    batches, _ = both(monkeypatch, make, epochs=4)
    (one, two) = (torch.cat([images for images, _ in epoch]) for epoch in batches[:2])
    assert not torch.equal(one, two)


@pytest.mark.exhaustive
@pytest.mark.parametrize("saved_by", ["native", "Python"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("way", WAYS[1:], ids=str)
def test_states_go_on_in_either(root, monkeypatch, saved_by, persistent, way):
    """From the middle of the second epoch, and from its end, into the third."""
    dataset = folder(root)

    def loader(which):
        monkeypatch.setenv("FASTLOADER_NATIVE", "1" if which == "native" else "0")
        order = generator(4)
        made = FastLoader(
            dataset,
            3,
            sampler=RandomSampler(dataset, replacement=True, generator=order),
            generator=order,
            persistent_workers=persistent,
            **way,
        )
        assert made.plan().startswith(which), made.plan()
        return made

    saving = loader(saved_by)
    list(saving)
    states, wanted = [], []
    for batch in saving:
        wanted.append(as_copied(batch))
        states.append(saving.state_dict())
    wanted += [as_copied(batch) for batch in saving]
    saving.close()
    for received in (2, len(states)):
        going = loader("Python" if saved_by == "native" else "native")
        going.load_state_dict(states[received - 1])
        found = [as_copied(batch) for _ in range(2) for batch in going]
        going.close()
        same(found, wanted[received:])


def test_a_file_that_cannot_be_read_is_timms_next_one(tmp_path, monkeypatch, caplog):
    root = plain_folder(tmp_path, 9)
    paths = sorted(root.glob("*/*.jpg"))
    for number in (2, 3, 8):
        paths[number].write_bytes(b"\xff\xd8\xff nothing")
    transform = T.Compose([*HEAD, T.PILToTensor(), T.RandomErasing(1, value=(3, 99, 7))])
    with caplog.at_level(logging.WARNING, "fastloader"):
        both(
            monkeypatch,
            lambda way: FastLoader(ImageDataset(str(root), transform=transform), 4, **way),
        )
    assert sum("skipped" in record.getMessage() for record in caplog.records) >= 9


def test_errors_are_the_datasets(tmp_path, root, monkeypatch):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    damaged = plain_folder(tmp_path, 4)
    next(damaged.glob("*/*.jpg")).write_bytes(b"\xff\xd8\xff nothing")
    for way in WAYS:
        with pytest.raises(OSError, match="cannot identify"):
            list(FastLoader(folder(str(damaged)), 4, **way))
        loader = FastLoader(folder(root), batch_sampler=Own([[0], [COUNT], [1]]), **way)
        batches = iter(loader)
        assert next(batches)[1].tolist() == [0]
        with pytest.raises(IndexError, match=f"sample {COUNT} of {COUNT}"):
            next(batches)
        assert len(next(batches)[1]) == 1
        with pytest.raises(ValueError, match=r"on_error='skip'.*the native module is not"):
            iter(FastLoader(folder(root), 4, on_error="skip", **way))


def test_two_batches_at_a_time_keep_their_draws(root, monkeypatch):
    """Both threads have told whose batch comes next before either draws for it."""
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    loader = FastLoader(folder(root, *CHAINS["deviates"]), 4)
    made = image_source(loader).stand_in(loader, None, "").dataset
    seeds = CropSeeds(5, False, 0)
    batches = [made.__getitems__(seeds.with_seeds(keys, COUNT, True)) for keys in ([0, 1], [2, 3])]
    wanted = [made.collate(samples) for samples in batches]
    given = threading.Barrier(2, timeout=30)
    give = SampleDraws.give

    def give_and_wait(self, *samples):
        give(self, *samples)
        given.wait()

    monkeypatch.setattr(SampleDraws, "give", give_and_wait)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        same(list(threads.map(made.collate, batches)), wanted)


BEGINNINGS = {
    "folder": lambda root, packed: folder(root, *HEAD, Mirrored(), T.PILToTensor()),
    "packed": lambda root, packed: LMDBDataset(
        packed, T.Compose([*HEAD, RECIPE[0], Mirrored(), T.PILToTensor()])
    ),
    "concatenated": lambda root, packed: ConcatDataset(
        [
            folder(root, *HEAD, Mirrored(), T.PILToTensor(), target_transform=change)
            for change in (None, float)
        ]
    ),
    "subset": lambda root, packed: Subset(folder(root, *HEAD, Mirrored(), T.ToTensor()), [3, 0, 3]),
}


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize("name", BEGINNINGS)
def test_beginnings_draw_by_the_sample(root, packed, monkeypatch, name):
    """The same pictures whatever the workers, and with the native module or without it."""
    dataset = BEGINNINGS[name](root, packed)
    options = {"collate_fn": tuple} if name == "concatenated" else {}
    found = []
    for native in ("1", "0"):
        monkeypatch.setenv("FASTLOADER_NATIVE", native)
        for way in [*WAYS, SPAWNED] if name == "packed" and native == "1" else WAYS:
            torch.manual_seed(11)
            loader = FastLoader(dataset, 3, shuffle=True, **options, **way)
            plan = loader.plan()
            if native == "1":
                assert plan.startswith("Python path: native up to "), plan
            else:
                words = "the native module is not in use: with the native path's draws up to "
                assert plan.startswith("Python path: " + words), plan
            batches = [list(loader) for _ in range(2)]
            found.append((batches, [loader.replay(index) for index in range(len(dataset))]))
    for each in found[1:]:
        same(each, found[0])
    (first, second), replayed = found[0]
    assert not all(torch.equal(a, b) for a, b in zip(flat(first), flat(second)))
    if name == "folder":
        again = FastLoader(folder(root, *HEAD, T.PILToTensor()), 3, shuffle=True)
        torch.manual_seed(11)
        for _ in range(2):
            list(again)
        assert replayed == [again.replay(index) for index in range(COUNT)]


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
def test_a_bad_file_leaves_the_others_their_draws(tmp_path):
    """It is the dataset's own sample, which counts it."""
    root = plain_folder(tmp_path, 6, classes=1)
    found = []
    for damaged in (False, True):
        if damaged:
            next(root.glob("*/001.jpg")).write_bytes(b"\xff\xd8\xff nothing")
        dataset = ImageDataset(str(root), transform=T.Compose([*HEAD, Mirrored(), T.PILToTensor()]))
        torch.manual_seed(3)
        found.append(torch.cat([images for images, _ in FastLoader(dataset, 2)]))
    assert dataset.skipped == 1
    assert [torch.equal(*pair) for pair in zip(*found)] == [True, False, *[True] * 4]


def flat(batches):
    return [
        each
        for batch in batches
        for sample in (batch if isinstance(batch, tuple) else [batch])
        for each in sample[:1]
    ]


def test_replay_before_an_epoch(root, monkeypatch):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    loader = FastLoader(folder(root), 4)
    with pytest.raises(ValueError, match="no epoch was begun"):
        loader.replay(0)
    next(iter(loader))
    with pytest.raises(ValueError, match="sample 9 was not among"):
        loader.replay(9)


def test_native_false_keeps_torchs_draws(root, monkeypatch):
    dataset = folder(root, *CHAINS["bytes"])
    found = []
    for native in ("1", "0"):
        monkeypatch.setenv("FASTLOADER_NATIVE", native)
        torch.manual_seed(1)
        loader = FastLoader(dataset, 4, native=False)
        assert loader.plan().startswith("Python path: native=False;")
        found.append(list(loader))
    torch.manual_seed(1)
    wanted = list(torch.utils.data.DataLoader(dataset, 4))
    same(found, [wanted, wanted])


EPOCHS = """
import sys, torch, fastloader
from fastloader import FastLoader, transforms as T
from fastloader.datasets import ImageFolder
chain = T.Compose([T.RandomResizedCrop(16), T.ColorJitter(0.4), T.ToTensor(), T.RandomErasing(0.5)])
loader = FastLoader(ImageFolder(sys.argv[1], chain), 4, shuffle=True, num_workers=2)
torch.manual_seed(3)
batches = [list(loader) for _ in range(2)]
torch.save((fastloader.build_info()["native"]["loaded"], batches), sys.argv[2])
"""


@pytest.mark.processes
def test_in_a_process_that_never_had_it(root, tmp_path):
    found = []
    for native in ("1", "0"):
        path = tmp_path / native
        script(EPOCHS, root, str(path), env={"FASTLOADER_NATIVE": native})
        found.append(torch.load(path))
    assert [loaded for loaded, _ in found] == [True, False]
    same(found[1][1], found[0][1])
