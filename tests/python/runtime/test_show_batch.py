"""``loader.show_batch()``: the pictures are those that went in, and the loader stays as it was."""

import gc
import random
import sys

import numpy as np
import pytest
import torch
from pictures import plain_folder
from remote_shards import make_shard
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, Subset
from torchrun import torchrun

from fastloader import FastLoader
from fastloader._core.batch.augmentation import RandomErasing
from fastloader._core.batch.shown_pictures import find_pictures
from fastloader.compat.timm.loader import ErasingLoader
from fastloader.datasets import ImageFolder, ShardwiseSampler, TarImages
from fastloader.transforms import CenterCrop, Compose, RandomResizedCrop, Resize
from support import MEAN, STD

pytest.importorskip("matplotlib")


class Noise(Dataset):
    """Pictures that depend on every random state there is."""

    classes = ["cat", "dog", "$5"]

    def __init__(self, kind=tuple):
        self.kind = kind

    def __len__(self):
        return 9

    def __getitem__(self, index):
        draws = torch.rand(1).item() + np.random.rand() + random.random()
        picture = torch.full((3, 6, 8), int(80 * draws), dtype=torch.uint8)
        picture[:, 0, 0] = index
        if self.kind is dict:
            return {"other": torch.zeros(3, 2, 2), "pixels": picture, "label": index % 3}
        return picture, index % 3


def drawn(figure):
    """The pixels and the title of each cell."""
    cells = [cell for cell in figure.axes if cell.get_images()]
    return [np.asarray(cell.get_images()[0].get_array()) for cell in cells], [
        cell.get_title() for cell in cells
    ]


def bytes_of(images):
    return [np.asarray(one.permute(1, 2, 0)) for one in images]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_normalisation_is_undone(way, dtype, channels_last):
    loader = FastLoader(
        Noise(), 9, device="cpu", mean=MEAN, std=STD, dtype=dtype, channels_last=channels_last
    )
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    raw, _ = next(iter(DataLoader(Noise(), 9)))
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    pictures, titles = drawn(loader.show_batch())
    assert titles == ["cat", "dog", r"\$5"] * 3
    tolerance = {torch.float16: 1, torch.bfloat16: 3}.get(dtype, 0)
    for one, other in zip(pictures, bytes_of(raw), strict=True):
        assert np.abs(one.astype(int) - other.astype(int)).max() <= tolerance
    loader.close()


def test_the_batch_of_the_loop(way):
    loader = FastLoader(Noise(), 4, device="cpu", mean=MEAN, std=STD)
    batch = next(iter(loader))
    pictures, titles = drawn(loader.show_batch(batch, count=3))
    assert len(pictures) == 3 and titles == ["cat", "dog", r"\$5"]
    assert [int(one[0, 0, 0]) for one in pictures] == [0, 1, 2]
    assert len(drawn(loader.show_batch(batch))[0]) == 4
    loader.close()


def test_image_key_and_dicts(way):
    loader = FastLoader(Noise(dict), 4, device="cpu", mean=MEAN, std=STD, image_key="pixels")
    pictures, titles = drawn(loader.show_batch())
    assert [int(one[0, 0, 0]) for one in pictures] == [0, 1, 2, 3] and titles[1] == "dog"
    loader.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("generator", [False, True])
def test_the_loop_goes_on_as_without_it(workers, generator):
    """The same batches, counters and state, before and in the middle of an epoch."""

    def run(shows):
        torch.manual_seed(0), np.random.seed(0), random.seed(0)
        own = torch.Generator().manual_seed(3) if generator else None
        loader = FastLoader(Noise(), 2, shuffle=True, num_workers=workers, generator=own)
        seen = []
        for _ in range(2):
            if shows:
                loader.show_batch()
            for number, (images, labels) in enumerate(loader):
                if shows and number == 1:
                    before = loader.state_dict(), loader.stats()["batches"]
                    loader.show_batch()
                    assert before == (loader.state_dict(), loader.stats()["batches"])
                seen.append((images.tolist(), labels.tolist()))
        loader.close()
        return seen, torch.rand(1), np.random.rand(), random.random()

    assert run(True) == run(False)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_dataset_is_told_of_no_epoch(workers):
    class Counted(Noise):
        epoch = -1

        def set_epoch(self, epoch):
            self.epoch = epoch

    loader = FastLoader(Counted(), 2, num_workers=workers)
    loader.set_epoch(5)
    for _batch in loader:
        assert loader.dataset.epoch == 5
        loader.show_batch()
    assert loader.dataset.epoch == 5


@pytest.mark.processes
@pytest.mark.parametrize("shows", ["before", "within"])
def test_a_rank_may_look_alone(tmp_path, shows):
    """Without asking the others, who are at something else."""
    source = """
    os.environ["FASTLOADER_RANK_TIMEOUT"] = "5"
    loader = FastLoader(Pictures(16), 2, shuffle=True, distributed="pad")
    if RANK == 0 and ARGUMENT == "before":
        loader.show_batch()
    seen = []
    for epoch in range(2):
        for _, labels in loader:
            seen += labels.tolist()
            if RANK == 0 and ARGUMENT == "within":
                loader.show_batch()
    report(seen)
    """
    first, second = torchrun(tmp_path, 2, source, shows)
    for epoch in (slice(0, 8), slice(8, 16)):
        assert sorted(first[epoch] + second[epoch]) == list(range(16))


def test_another_default_device():
    with torch.device("meta"):
        figure = FastLoader(Noise(), 2, device="cpu", mean=MEAN, std=STD).show_batch(
            (torch.zeros(2, 3, 4, 4, device="cpu"), torch.zeros(2, device="cpu"))
        )
    assert len(drawn(figure)[0]) == 2


def test_it_shows_what_the_next_epoch_begins_with(tmp_path):
    dataset = ImageFolder(plain_folder(tmp_path, count=8), Compose([RandomResizedCrop(16)]))
    loader = FastLoader(dataset, 4, shuffle=True, generator=torch.Generator().manual_seed(1))
    pictures, titles = drawn(loader.show_batch())
    images, labels = next(iter(loader))
    assert titles == [dataset.classes[label] for label in labels]
    for one, other in zip(pictures, bytes_of(images), strict=True):
        assert np.array_equal(one, other)
    loader.close()


def test_persistent_workers_and_samplers_stay():
    sampler = RandomSampler(Noise(), generator=torch.Generator().manual_seed(2))
    loader = FastLoader(Noise(), 3, sampler=sampler, num_workers=1, persistent_workers=True)
    list(loader)
    before, workers = sampler.generator.get_state(), loader._iterator
    loader.show_batch()
    assert torch.equal(before, sampler.generator.get_state()) and loader._iterator is workers
    assert len(list(loader)) == 3
    loader.close()


def test_names_of_classes_through_subsets_and_a_picture_for_notebooks(tmp_path):
    dataset = ImageFolder(plain_folder(tmp_path, count=4), Compose([Resize(8), CenterCrop(8)]))
    loader = FastLoader(Subset(Subset(dataset, [3, 2, 1]), [0]), 1)
    figure = loader.show_batch()
    assert drawn(figure)[1] == [dataset.classes[dataset.samples[3][1]]]
    assert figure._repr_png_().startswith(b"\x89PNG")
    loader.close()


@pytest.mark.parametrize(
    "low, high, note", [(0, 1, ""), (0, 255, ""), (-2, 2, "stretched from -2.00")]
)
def test_floats_that_the_loader_did_not_make(low, high, note):
    images = torch.linspace(low, high, 2 * 3 * 4 * 4).view(2, 3, 4, 4)
    shown = find_pictures([images], None, None, 16)
    assert note in shown.note and bool(note) == bool(shown.note) and shown.titles == []
    assert shown.pixels[0].min() == 0 and shown.pixels[1].max() == 255


@pytest.mark.parametrize("shape", [(2, 1, 5, 6), (2, 5, 6, 1), (2, 5, 6, 3)])
def test_grey_and_nhwc(shape):
    shown = find_pictures(
        (torch.ones(shape, dtype=torch.uint8), torch.tensor([7, 9])), None, ["a"], 9
    )
    assert shown.pixels[0].shape == (5, 6, 3) and shown.titles == ["7", "9"]


def test_refusals(monkeypatch):
    rows = FastLoader(torch.utils.data.TensorDataset(torch.rand(4, 3)), 2)
    with pytest.raises(ValueError, match=r"no pictures to show.*\[0\] float32 \(2, 3\)"):
        rows.show_batch()
    with pytest.raises(ValueError, match=r"no pictures to show.*no tensor at all"):
        rows.show_batch(["x"])
    with pytest.raises(ValueError, match="count=0"):
        rows.show_batch(count=0)
    with pytest.raises(TypeError, match="count must be a whole number of pictures, got '4'"):
        rows.show_batch(count="4")
    with pytest.raises(ValueError, match="the batch is empty"):
        rows.show_batch(torch.zeros(0, 3, 4, 4))
    with pytest.raises(ValueError, match="has no batch to show"):
        FastLoader(Noise(), 10, drop_last=True).show_batch()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "fastloader._core.picture_grid", raising=False)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        rows.show_batch()


class Counting(Sampler):
    """Counts its epochs, and whether their iterators have ended."""

    def __init__(self):
        self.epoch, self.ended = 0, []

    def __iter__(self):
        self.epoch += 1
        return self.numbers(self.ended)

    @staticmethod
    def numbers(ended):
        try:
            yield from range(9)
        finally:
            ended.append(True)

    def __len__(self):
        return 9


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_sampler_that_counts_stays_where_it_is(workers, grouped):
    sampler = Counting()
    order = {"batch_sampler": BatchSampler(sampler, 4, False)} if grouped else {"sampler": sampler}
    loader = FastLoader(Noise(), num_workers=workers, **order)
    gc.collect()
    gc.disable()
    try:
        loader.show_batch()
        # At once, not in the middle of the interpreter's end.
        assert sampler.ended == [True]
    finally:
        gc.enable()
    assert sampler.epoch == 0


@pytest.mark.parametrize("received", [0, 2])
def test_a_shardwise_sampler_stays_where_it_is(tmp_path, received):
    rng = random.Random(3)
    for shard in range(4):
        (tmp_path / f"{shard:06}.tar").write_bytes(make_shard(rng, tmp_path, shard)[0])
    chain = Compose([Resize(8), CenterCrop(8)])
    dataset = TarImages(str(tmp_path / "{000000..000003}.tar"), chain)

    def run(shows):
        sampler = ShardwiseSampler(dataset, 1, 0, buffer=2)
        loader, seen = FastLoader(dataset, 4, sampler=sampler), []
        for _ in range(2):
            for number, (images, _) in enumerate(loader):
                seen.append(images.clone())
                if shows and number == received:
                    loader.show_batch()
            seen.append(sampler.state_dict())
        return seen, loader.state_dict()

    (seen, state), (wanted, same_state) = run(True), run(False)
    assert state == same_state and len(seen) == len(wanted)
    for one, other in zip(seen, wanted):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_what_is_erased_later_stays():
    def run(shows):
        torch.manual_seed(1)
        erasing = RandomErasing(0.9, mode="pixel")
        loader = ErasingLoader(Noise(), 4, mean=MEAN, std=STD, random_erasing=erasing, shuffle=True)
        seen = []
        for _ in range(2):
            if shows:
                loader.show_batch()
            torch.manual_seed(2), np.random.seed(3), random.seed(4)
            seen.append(torch.cat([images.clone() for images, _ in loader]))
        return torch.stack(seen)

    assert torch.equal(run(True), run(False))
