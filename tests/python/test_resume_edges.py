"""Beginning epochs and saving states where it is easy to get wrong: two threads at once, epochs
without a batch, copies of a loader."""

import threading

import pytest
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

from fastloader import FastLoader
from support import Pictures, labels

COUNT = 11


def generator(seed):
    return torch.Generator().manual_seed(seed)


# --- two threads ----------------------------------------------------------------------------------


class Gate(Sampler):
    """Batches whose first ``__iter__`` waits until it is let through."""

    batches = ([0, 1, 2], [3, 4], [5, 6, 7], [8, 9, 10])

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

    def __iter__(self):
        if not self.entered.is_set():
            self.entered.set()
            assert self.open.wait(30)
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_threads_that_call_iter_at_once(way, workers):
    gate = Gate()
    loader = FastLoader(Pictures(COUNT), batch_sampler=gate, num_workers=workers, **way.options)
    got = {}

    def run(name):
        try:
            got[name] = labels(loader)
        except Exception as error:
            got[name] = error

    threads = [threading.Thread(target=run, args=[name]) for name in ("first", "second")]
    threads[0].start()
    assert gate.entered.wait(30)
    threads[1].start()
    threads[1].join(0.3)  # it fails here, or waits for the first
    gate.open.set()
    for thread in threads:
        thread.join(30)
    assert got == {"first": list(gate.batches), "second": list(gate.batches)}
    loader.close()


# --- epochs without a batch -----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 2])
def test_arrays_without_a_batch_draw_as_torch_does(rows):
    """One seed for the life of persistent workers, in epochs without a batch, too."""

    def after(kind):
        own = generator(7)
        dataset = TensorDataset(torch.arange(rows))
        loader = kind(
            dataset, 3, sampler=range(rows), drop_last=True, num_workers=1,
            persistent_workers=True, generator=own,
        )  # fmt: skip
        states = []
        for _ in range(3):
            assert list(loader) == []
            states.append(own.get_state().tolist())
        return states

    assert after(FastLoader) == after(DataLoader)
