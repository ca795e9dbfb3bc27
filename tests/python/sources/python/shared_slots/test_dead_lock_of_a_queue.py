"""A worker that ends in the middle of sending takes the lock of the queue with it: nobody who waits at
that queue, and nobody who waits for him, waits for ever."""

import gc
import os
import threading

import pytest
import torch

from fastloader import FastLoader
from support import HANG, MEAN, STD, Pictures, children, eventually, forget_forks

IN_ORDER = [[2 * i, 2 * i + 1] for i in range(6)]


class Gated(Pictures):
    """Waits at one index, in the worker, until told to go on. By plain memory: a lock would die, too."""

    def __init__(self, at, count=12):
        super().__init__(count)
        self.at = at
        self.reached = torch.zeros(()).share_memory_()
        self.go = torch.zeros(()).share_memory_()

    def __getitem__(self, index):
        if index == self.at:
            self.reached.fill_(1)
            eventually(lambda: self.go.item(), lambda: "told to go on", seconds=HANG)
        return super().__getitem__(index)

    def wait_until_reached(self):
        eventually(lambda: self.reached.item(), lambda: f"at index {self.at}", seconds=HANG)


@pytest.fixture(autouse=True)
def _terminated_at_once(monkeypatch):
    """A worker that does not end by itself within this time is terminated by torch."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.02)


def let_the_lock_die(torchs):
    """As a worker does that ends with it: it was taken, and nobody is there to give it back."""
    assert torchs._data_queue._wlock.acquire(timeout=30)


def make(data, name, enter_way):
    options = {} if name == "none" else {**enter_way(name).options, "mean": MEAN, "std": STD}
    return FastLoader(data, batch_size=2, num_workers=1, persistent_workers=True, **options)


def left_behind():
    """Threads, processes and descriptors of this process. torch terminates a worker without waiting for
    it: multiprocessing holds its descriptors until it next looks for the dead, which is here."""
    torch.multiprocessing.active_children()
    gc.collect()
    forget_forks()
    return threading.active_count(), len(children()), len(os.listdir("/proc/self/fd"))


def shut_down_as_lightning_does(loader):
    loader._iterator._shutdown_workers()
    loader._iterator = None


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(10))
def test_shutting_down_while_the_pump_waits(twin, enter_way, part):
    """The order that hung, once in a great many runs: the pump waits for a batch, the workers are shut
    down, the lock is gone, and the next epoch waits for the pump. 200 times in all.
    Nothing is left of them."""
    before = None
    for rounds in (1, 20):  # the first one leaves what a process has once
        data = Gated(at=2)
        loader = make(data, "twin", enter_way)
        for _ in range(rounds):
            hang(data, loader)
        data.go.fill_(1)
        assert [batch[1].tolist() for batch in loader] == IN_ORDER
        loader.close()
        del data, loader
        if before is None:
            eventually(lambda: not children(), lambda: f"{children()} gone")
            before = left_behind()
    eventually(
        lambda: all(now <= then for now, then in zip(left_behind(), before)),
        lambda: f"{left_behind()} is no more than {before}",
    )


def hang(data, loader):
    iterator = iter(loader)
    assert next(iterator)[1].tolist() == IN_ORDER[0]
    data.wait_until_reached()  # the pump waits for the second batch
    let_the_lock_die(loader._iterator)
    shut_down_as_lightning_does(loader)
    pump = iterator._epoch.pump
    loader._runtime.delivery.end_iterators()
    assert not pump.is_alive()
    with pytest.raises(StopIteration):
        next(iterator)
    data.reached.zero_()


@pytest.mark.parametrize("name", ["none", "cpu", "twin", "streams"])
def test_close_while_the_lock_is_dead(enter_way, name):
    """And the thread that waits in next() is told."""
    data = Gated(at=2)
    loader = make(data, name, enter_way)
    iterator = iter(loader)
    ended = []

    def consume():
        try:
            for batch in iterator:
                ended.append(batch[1].tolist())
        except RuntimeError as error:
            ended.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    data.wait_until_reached()
    let_the_lock_die(loader._iterator)
    loader.close()
    consumer.join(30)
    assert not consumer.is_alive()
    assert "the loader was closed" in ended[-1]
    eventually(lambda: not children(), lambda: f"{children()} gone")
