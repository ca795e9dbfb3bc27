"""Batches that lie in the shared slots, in other processes; and what the slots cost over their life."""

import collections
import copy
import gc
import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from ring_samples import Samples, check, workers

from fastloader import FastLoader
from fastloader._core.machine import extension
from support import children, eventually

pytestmark = [
    pytest.mark.skipif(extension.load() is None, reason="the native module is not in use"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.usefixtures("forced"),
]


# --- other processes ----------------------------------------------------------------------------


def test_batches_can_be_copied_pickled_and_shared():
    loader = FastLoader(Samples(400, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    batch = next(iterator)
    copies = [copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))]
    shared = next(iterator)
    shared[0].share_memory_()
    assert shared[0].is_shared()
    for number, each in enumerate(iterator, start=2):
        check(each, 4 * number)
    del each, batch
    for each in copies:
        check(each, 0)
    check(shared, 4)
    assert workers(loader)["slots_held"] == 0  # sharing moved it to memory of its own


def receive(queue, answers):
    batch = queue.get()
    answers.put(batch[0].sum().item())
    queue.get()


def test_a_batch_can_be_sent_to_another_process():
    context = torch.multiprocessing.get_context("fork")
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    loader = FastLoader(Samples(80, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    process = context.Process(target=receive, args=(queue, answers), daemon=True)
    process.start()
    queue.put(next(iterator))
    for number, batch in enumerate(iterator, start=1):
        check(batch, 4 * number)
    assert answers.get() == (0 + 1 + 2 + 3) * 6400
    queue.put(None)
    process.join()


def test_a_forked_child_keeps_seeing_its_batches():
    loader = FastLoader(Samples(400, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(loader)
    batch = next(iterator)
    go, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(go, 1)  # until the parent has had every other batch
            check(batch, 0)
            batch[0].fill_(7)
            del batch
            os._exit(0)
        finally:
            os._exit(1)
    del batch
    for number, each in enumerate(iterator, start=1):
        check(each, 4 * number)
    assert workers(loader)["fallbacks"] == 0
    os.write(tell, b"g")
    assert os.waitpid(child, 0)[1] == 0
    os.close(go), os.close(tell)
    # With the child gone, all slots serve again.
    del each
    for _epoch in range(2):
        for number, each in enumerate(loader):
            check(each, 4 * number)


class Holding(Samples):
    """A dataset made of a batch of another loader, as a validation set may be."""

    def __init__(self, batch):
        super().__init__(40)
        self.batch = batch

    def __getitem__(self, index):
        return self.batch[0][index % 4].clone(), index % 4


def test_workers_forked_over_a_live_batch():
    first = FastLoader(Samples(200, (80, 80)), batch_size=4, num_workers=1)
    iterator = iter(first)
    second = FastLoader(
        Holding(next(iterator)), batch_size=4, num_workers=2, persistent_workers=True
    )
    check(next(iter(second)), 0)
    second.dataset.batch = None  # the workers still have it
    for number, each in enumerate(iterator, start=1):
        check(each, 4 * number)
    for _epoch in range(3):
        for batch in second:
            check(batch, 0)


def test_a_child_makes_rings_of_its_own():
    loader = FastLoader(Samples(40, (80, 80)), batch_size=4, num_workers=1)
    check(next(iter(loader)), 0)  # leaves an idle ring, which the parent goes on using
    child = os.fork()
    if child == 0:
        try:
            for number, batch in enumerate(loader):
                check(batch, 4 * number)
            assert number == 9 and workers(loader)["slots_used"] >= 10
            os._exit(0)
        finally:
            os._exit(1)
    for number, batch in enumerate(loader):
        check(batch, 4 * number)
    assert os.waitpid(child, 0)[1] == 0


# --- what it costs ------------------------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Descriptors(Samples):
    def __getitem__(self, index):
        return torch.full((80, 80), float(index)), descriptors()


def files_of_torch():
    return set(re.findall(r"/dev/shm/torch_\w+", Path("/proc/self/maps").read_text()))


def test_no_file_and_no_descriptor_for_a_batch():
    loader = FastLoader(Descriptors(400), batch_size=4, num_workers=2)
    iterator = iter(loader)
    kept = collections.deque([next(iterator)], maxlen=2)
    before = descriptors()
    of_others = files_of_torch()  # which batches of earlier tests may still hold
    in_worker = set()
    for number, batch in enumerate(iterator):
        kept.append(batch)
        if number % 10 == 5:
            assert descriptors() == before
            assert files_of_torch() <= of_others
            in_worker |= set(batch[1].tolist())
    assert len(in_worker) <= 2, in_worker  # one figure for each worker
    assert workers(loader)["fallbacks"] == 0


def mappings():
    gc.collect()
    return Path("/proc/self/maps").read_text().count("memfd:fastloader")


def test_the_ring_is_reused_and_its_memory_bounded():
    before = mappings()
    loader = FastLoader(Samples(80, (80, 80)), batch_size=4, num_workers=2)
    list(loader)
    bytes_before = workers(loader)["ring_bytes"]
    for _epoch in range(5):
        for _batch in loader:
            pass
    del _batch
    assert mappings() == before + 1
    assert workers(loader)["ring_bytes"] <= max(bytes_before, 10 * 110_000)
    loader.close()
    eventually(lambda: not children(), children)
    assert mappings() == before
