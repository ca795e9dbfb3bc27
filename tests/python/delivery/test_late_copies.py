"""Through torch's streams: what is copied from lives until the copy is done, however late that is."""

import gc

import pytest
import torch
from late_copies import LateDevice
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import Dataset

from fastloader import DevicePrefetcher, FastLoader
from support import MEAN, STD


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setenv("FASTLOADER_BACKEND", "torch")
    device = LateDevice()
    device.install(monkeypatch)
    return device


class Tagged(torch.Tensor):
    pass


class Fresh(Dataset):
    """Each batch in memory that nobody else holds."""

    def __init__(self, count=40, kind=torch.Tensor):
        self.count = count
        self.kind = kind

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        row = torch.full((3000,), float(index))
        return row if self.kind is torch.Tensor else row.as_subclass(self.kind)


def check(batches, count=40):
    seen = torch.cat([each.as_subclass(torch.Tensor) for each in batches])
    assert torch.equal(seen, torch.arange(float(count))[:, None].expand(count, 3000))


class Memory(list):
    """Of the rows it has made."""

    def row(self):
        made = torch.ones(1000)
        self.append(StorageWeakRef(made.untyped_storage()))
        return made

    def alive(self):
        return sum(not each.expired() for each in self)


def collated_tagged(samples):
    return torch.stack(samples).as_subclass(Tagged)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [torch.Tensor, Tagged])
def test_sources_live_until_their_copies_are_done(late, workers, kind):
    collate = None if kind is torch.Tensor else collated_tagged
    loader = FastLoader(Fresh(kind=kind), 4, num_workers=workers, device="cpu", collate_fn=collate)
    batches = list(loader)
    late.finish()
    assert late.queued == 10 and late.lost == 0
    check(batches)


def test_images_live_until_their_copies_are_done(late):
    """What is copied here is the copy that an image in an odd order of strides needs first."""
    images = torch.randint(0, 256, (2, 3, 8, 10), dtype=torch.uint8)
    batches = [(images[:, :, :, ::2], torch.tensor([n])) for n in range(6)]
    assert len(list(DevicePrefetcher(batches, "cpu", mean=MEAN, std=STD))) == 6
    late.finish()
    assert late.queued == 12 and late.lost == 0


def test_a_batch_that_fails_on_its_way_is_read_until_its_copies_are_done(late):
    class Refuses:
        def to(self, device):
            raise RuntimeError("not there")

    memory = Memory()
    iterator = iter(DevicePrefetcher(((memory.row(), Refuses()) for _ in range(2)), "cpu"))
    with pytest.raises(RuntimeError, match="not there"):
        next(iterator)
    assert late.queued == memory.alive() == 1
    late.finish()
    assert late.lost == 0


def test_a_loader_that_goes_leaves_no_copy_without_its_source(late):
    for _ in FastLoader(Fresh(), 4, device="cpu"):
        break
    gc.collect()
    late.finish()
    assert late.queued and late.lost == 0


def test_no_more_than_a_few_batches_are_held(late):
    memory = Memory()
    delivered = []
    for batch in DevicePrefetcher((memory.row() for _ in range(20)), "cpu"):
        delivered.append(batch)
        assert memory.alive() <= 3
    assert memory.alive() == 0  # nothing once the epoch is over
    assert torch.equal(torch.stack(delivered), torch.ones(20, 1000))


def test_a_device_that_cannot_tell_is_waited_for(monkeypatch):
    """MPS, where torch has no streams."""
    monkeypatch.setenv("FASTLOADER_BACKEND", "torch")
    device = LateDevice(tells=False)
    device.install(monkeypatch)
    check(list(FastLoader(Fresh(), 4, device="cpu")))
    assert device.blocking == 10 and device.queued == 0
    tagged = FastLoader(Fresh(kind=Tagged), 4, device="cpu", collate_fn=collated_tagged)
    check(list(tagged))
    assert device.queued == 0
