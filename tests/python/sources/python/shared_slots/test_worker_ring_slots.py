"""Who holds a shared slot: none is used again under a live tensor, and each comes back."""

import threading

import pytest
import torch
from ring_samples import Samples, check, workers
from torch.utils.data import DataLoader, IterableDataset, default_collate

from fastloader import FastLoader
from fastloader._core.machine import extension

pytestmark = [
    pytest.mark.skipif(extension.load() is None, reason="the native module is not in use"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.usefixtures("forced"),
]


def test_every_batch_kept_is_right_though_slots_run_out():
    loader = FastLoader(Samples(160, shape=(80, 80)), batch_size=4, num_workers=2)
    for _epoch in range(2):
        kept = list(loader)
        for number, batch in enumerate(kept):
            check(batch, 4 * number)
        counted = workers(loader)
        assert counted["slots_held"] == counted["slots"]
        del batch, kept
        assert workers(loader)["slots_held"] == 0
    assert counted["slots_used"] + counted["fallbacks"] == 80
    assert counted["why"] == {"no slot was free": counted["fallbacks"]}


def test_a_view_keeps_its_slot():
    loader = FastLoader(Samples(400, shape=(80, 80)), batch_size=4, num_workers=2)
    iterator = iter(loader)
    row = next(iterator)[0][2, 3:5].numpy()
    second = next(iterator)[0].unbind()[1]
    for number, batch in enumerate(iterator, start=2):
        check(batch, 4 * number)
        assert (row == 2).all() and (second == 5).all()
    assert workers(loader)["fallbacks"] == 0
    del batch
    assert workers(loader)["slots_held"] == 2
    del row, second
    assert workers(loader)["slots_held"] == 0


def test_a_slot_comes_back_on_any_thread_and_after_the_loader():
    loader = FastLoader(Samples(16, shape=(80, 80)), batch_size=4, num_workers=1)
    held = [next(iter(loader))]
    assert workers(loader)["slots_held"] == 1
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert workers(loader)["slots_held"] == 0
    batch = next(iter(loader))
    loader.close()
    del loader
    check(batch, 0)


def test_kept_labels_keep_no_pictures():
    loader = FastLoader(Samples(400, shape=(80, 80)), batch_size=4, num_workers=2)
    kept = [labels for _images, labels in loader]
    assert torch.cat(kept).tolist() == list(range(400))
    assert workers(loader)["fallbacks"] == 0 and workers(loader)["slots_held"] == 0


def test_writing_into_a_batch_is_allowed():
    loader = FastLoader(Samples(80, shape=(80, 80)), batch_size=4, num_workers=2)
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
        batch[0].fill_(-1)
        batch[1].zero_()


class Cache(Samples):
    """Keeps what default_collate made of its samples, as torch's workers may."""

    def __init__(self):
        super().__init__(40, shape=(80, 80))
        self.cache = {}

    def __getitem__(self, index):
        key = index % 8
        if key not in self.cache:
            self.cache[key] = default_collate([torch.full((80, 80), float(key))])
        return self.cache[key], index


def test_a_worker_may_keep_what_it_collated():
    loader = FastLoader(Cache(), batch_size=4, num_workers=1)
    for _epoch in range(2):
        for batch in loader:
            for image, label in zip(*batch):
                assert (image == label % 8).all()
    assert workers(loader)["slots_used"] + workers(loader)["fallbacks"] == 20


class KeepLast:
    def __init__(self):
        self.last = []

    def __call__(self, samples):
        images, labels = default_collate(samples)
        for earlier, value in self.last:
            assert (earlier == value).all(), "a slot was written to under the worker's own tensor"
        self.last.append((images[1], labels[1].item()))
        return images, labels


def test_slots_that_a_worker_holds_for_ever_are_not_used_again():
    loader = FastLoader(Samples(160, (80, 80)), batch_size=4, num_workers=1, collate_fn=KeepLast())
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
    assert workers(loader)["slots_used"] == workers(loader)["slots"]
    assert workers(loader)["why"] == {"the worker's own code holds its slots": 35}


class Chunks(IterableDataset):
    """Collates eight samples at once and yields them by four."""

    def __iter__(self):
        for first in range(0, 80, 8):
            images = default_collate([torch.full((80, 80), float(first + i)) for i in range(8)])
            labels = torch.arange(first, first + 8)
            yield images[:4].clone(), labels[:4]
            yield images[4:].contiguous(), labels[4:]
            yield images, labels


def test_an_iterable_dataset_may_collate_ahead():
    loader = FastLoader(Chunks(), batch_size=None, num_workers=1)
    for number, batch in enumerate(loader):
        first = 8 * (number // 3)
        if number % 3 == 2:
            check(batch, first, 8)
        else:
            check(batch, first + 4 * (number % 3))
    assert number == 29


class Shards(IterableDataset):
    """Worker 0 ends at once, worker 1 late: torch asks the ended one for batches all the same."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for index in range(1 if info.id == 0 else 60):
            yield torch.full((80, 80), float(index)), index


@pytest.mark.parametrize("persistent", [False, True])
def test_a_shard_that_ends_early_keeps_no_slot(persistent):
    loader = FastLoader(Shards(), batch_size=2, num_workers=2, persistent_workers=persistent)
    for _epoch in range(6):
        batches = list(loader)
        wanted = list(DataLoader(Shards(), batch_size=2, num_workers=2))
        assert [b[1].tolist() for b in batches] == [b[1].tolist() for b in wanted]
        del batches
    for _epoch in range(6):
        for batch in loader:
            assert (batch[0][0] == batch[1][0]).all()
    assert workers(loader)["slots_held"] <= 1


@pytest.mark.parametrize("persistent", [False, True])
def test_early_breaks_bring_every_slot_back(persistent):
    loader = FastLoader(
        Samples(400, (80, 80)), batch_size=4, num_workers=2, persistent_workers=persistent
    )
    for _epoch in range(10):
        for number, batch in enumerate(loader):
            check(batch, 4 * number)
            if number == 3:
                break
        del batch
    # A persistent iterator keeps what came before its turn until the next epoch begins.
    early = (
        sum(len(info) == 2 for info in loader._iterator._task_info.values()) if persistent else 0
    )
    counted = workers(loader)
    assert counted["fallbacks"] == 0 and counted["slots_held"] == early, counted
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
    assert workers(loader)["fallbacks"] == 0


def test_out_of_order():
    pytest.importorskip("torch", minversion="2.6")
    loader = FastLoader(Samples(400, (80, 80)), batch_size=4, num_workers=3, in_order=False)
    seen = []
    for images, labels in loader:
        assert torch.equal(images, labels.view(-1, 1, 1).float().expand_as(images))
        seen += labels.tolist()
    assert sorted(seen) == list(range(400))
    assert workers(loader)["slots_used"] > 0


def test_two_iterators_have_a_ring_each():
    loader = FastLoader(Samples(80, (80, 80)), batch_size=4, num_workers=1)
    for number, (one, other) in enumerate(zip(loader, loader)):
        check(one, 4 * number)
        check(other, 4 * number)
        one[0].zero_()
        check(other, 4 * number)


class Sized(Samples):
    def __getitem__(self, index):
        return torch.full((1 << (20 if index == 2 else 10),), float(index)), index


def test_a_batch_that_does_not_fit_takes_torchs_way(monkeypatch):
    from fastloader._core.sources.python import shared_slots

    monkeypatch.setattr(shared_slots, "memory_limit", lambda: 1)  # slots of one megabyte
    loader = FastLoader(Sized(6), batch_size=1, num_workers=1)
    for index, (values, _label) in enumerate(loader):
        assert (values == index).all() and values.numel() == 1 << (20 if index == 2 else 10)
        assert values.is_shared() == (index == 2)
    assert workers(loader)["why"] == {"did not fit into a slot": 1}


def test_a_ring_that_cannot_be_had_is_said_once(monkeypatch, caplog):
    from fastloader._core.sources.python import shared_slots

    monkeypatch.setattr(shared_slots, "memory_limit", lambda: 1 << 60)
    loader = FastLoader(Samples(), batch_size=4, num_workers=1)
    with pytest.raises(Exception, match="bytes of shared memory failed"):
        iter(loader)
    monkeypatch.delenv("FASTLOADER_WORKER_RING")
    for _epoch in range(2):
        for number, batch in enumerate(loader):
            check(batch, 4 * number)
    said = [each.message for each in caplog.records if "torch's shared memory" in each.message]
    assert len(said) == 1 and "shared memory failed" in said[0]
    assert "shared memory failed" in workers(loader)["why_no_ring"]
