"""num_workers="auto" and depth="auto": the rules on made-up loops, and what they do to a real one."""

import copy
import os
import pickle
import threading
import time

import pytest
import torch
from pictures import plain_folder, throttle
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from fastloader import DevicePrefetcher, FastLoader
from fastloader._core.machine import extension, limits
from fastloader._core.observation.tuning import (
    MOST_DEPTH,
    DepthRule,
    Interval,
    ThreadRule,
    ThreadTuner,
)
from fastloader._core.pictures.store import FolderStore
from fastloader.datasets import ImageFolder
from fastloader.transforms import CenterCrop, Compose, RandomResizedCrop, Resize
from support import named_threads

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

native_only = pytest.mark.skipif(extension.load() is None, reason="the native module is not in use")


# --- the rules ------------------------------------------------------------------------------------


class Machine:
    """A training loop in numbers: pictures take ``read`` s of waiting and ``decode`` s of a processor
    each, the loop ``step`` s for each when it has them."""

    def __init__(self, processors, read=0.0, decode=0.001, step=0.0):
        self.processors, self.read, self.decode, self.step = processors, read, decode, step

    def interval(self, threads):
        each = self.read + self.decode
        rate = min(threads / each, self.processors / self.decode)
        if self.step:
            rate = min(rate, 1 / self.step)
        return Interval(
            seconds=1.0,
            waited=max(0.0, 1 - rate * self.step),
            pictures=round(rate),
            busy=rate * each,
            cpu=rate * self.decode,
        )


def settled(machine, rule=None, intervals=30):
    rule = rule or ThreadRule(machine.processors)
    chosen = [rule.observe(machine.interval(rule.threads)) for _ in range(intervals)]
    assert len(set(chosen[-10:])) == 1, chosen  # it has settled
    return rule


def test_all_processors_decode_while_the_loop_waits():
    rule = settled(Machine(8, decode=0.01))
    assert rule.threads == 8
    assert "waits 100 %" in rule.why and "decoding" in rule.why


def test_as_few_as_keep_the_loop_from_waiting():
    # 400 pictures/s of 2.5 ms: one thread's time, and some more
    rule = settled(Machine(8, decode=0.0025, step=1 / 400))
    assert rule.threads == 2
    assert "does not wait with 2" in rule.why
    assert settled(Machine(16, decode=0.01, step=1 / 1000)).threads == 13


def test_the_last_processor_is_taken_where_it_is_needed():
    rule = settled(Machine(4, decode=0.01, step=1 / 399))
    assert rule.threads == 4


def test_more_threads_than_processors_while_they_wait_for_storage():
    # With 2 processors 20 threads saturate them, were it not for the limit of 8 each.
    rule = settled(Machine(2, read=0.009, decode=0.001))
    assert rule.threads == 16
    # The loop takes 1000/s: ten threads
    rule = settled(Machine(4, read=0.009, decode=0.001, step=1 / 1000))
    assert 10 <= rule.threads <= 16


def test_a_storage_that_gets_no_faster_with_more_threads_gets_no_more():
    rule = ThreadRule(4)
    slow = Interval(seconds=1, waited=0.9, pictures=100, busy=4, cpu=0.2)
    assert [rule.observe(slow) for _ in range(7)] == [8, 8, 8, 4, 4, 4, 4]
    assert "no faster" in rule.why


def test_a_loop_that_waits_again_gets_all_back_and_keeps_them():
    rule = settled(Machine(8, decode=0.001, step=1 / 1000))
    assert rule.threads == 2
    uneven = Interval(seconds=1, waited=0.1, pictures=900, busy=1.8, cpu=1.8)
    assert rule.observe(uneven) == 8
    assert settled(Machine(8, decode=0.001, step=1 / 1000), rule).threads == 8
    assert "with fewer" in rule.why


def test_waiting_for_something_else_takes_and_gives_nothing():
    rule = ThreadRule(8)
    queued = Interval(seconds=1, waited=0.5, pictures=100, busy=1, cpu=0.1)
    assert {rule.observe(queued) for _ in range(5)} == {8}
    assert "not for threads" in rule.why


def test_another_loop_is_another_question():
    rule = settled(Machine(8, decode=0.001, step=1 / 1000))
    rule.observe(Interval(seconds=1, waited=0.1, pictures=900, busy=1.8, cpu=1.8))
    assert settled(Machine(8, decode=0.001, step=1 / 1000), rule).threads == 8
    assert settled(Machine(8, decode=0.001, step=1 / 250), rule).threads == 1


def test_a_pause_between_the_two_marks_changes_nothing():
    rule = ThreadRule(8)
    between = Interval(seconds=1, waited=0.015, pictures=100, busy=0.5, cpu=0.5)
    assert {rule.observe(between) for _ in range(10)} == {8}


def test_depth_grows_when_full_and_empty_take_turns():
    rule = DepthRule(3)
    # One swing is a pause for something.
    assert not any(rule.note_ready(ready) for ready in (0, 1, 3, 0))
    assert [rule.note_ready(ready) for ready in (2, 3, 1, 0)] == [False, False, False, True]
    assert rule.deepen(room=100)
    assert rule.depth == 6 and "none was" in rule.why
    assert not any(rule.note_ready(ready) for ready in (3, 0, 5, 0, 6, 0))  # six are full now
    assert [rule.note_ready(ready) for ready in (6, 0)] == [False, True]
    assert rule.deepen(room=100) and rule.depth == 12


@pytest.mark.parametrize("ready", [[0] * 50, [3] * 50, [1, 2] * 25, [3, 2, 1] * 20])
def test_depth_stays_where_more_would_not_help(ready):
    rule = DepthRule(3)
    assert not any(rule.note_ready(each) for each in ready)


def test_depth_does_not_take_the_beginning_of_an_epoch_for_a_swing():
    rule = DepthRule(3)
    for _ in range(10):
        rule.begin()
        assert not any(rule.note_ready(ready) for ready in (0, 3, 3))


def swing(rule):
    return [rule.note_ready(ready) for ready in (99, 0) * DepthRule.SWINGS][-1]


def test_depth_keeps_to_its_budget():
    rule = DepthRule(3, most=16)
    assert swing(rule) and rule.deepen(room=4)
    assert rule.depth == 4 and "budget for memory" in rule.why
    assert not swing(rule)  # it does not ask again
    rule = DepthRule(3)
    assert swing(rule) and not rule.deepen(room=2)
    assert rule.depth == 3 and "budget for memory" in rule.why
    rule = DepthRule(3)
    for _ in range(5):
        if swing(rule):
            rule.deepen(room=1000)
    assert rule.depth == MOST_DEPTH


# --- the loader -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("pictures"), count=48)


def folder(root):
    return ImageFolder(root, Compose([RandomResizedCrop(24)]))


@pytest.fixture
def impatient(monkeypatch):
    """Looks at every step, so that choices change in the middle of a short epoch."""
    monkeypatch.setattr(ThreadTuner, "SECONDS", 0.0)
    monkeypatch.setattr(ThreadTuner, "STEPS", 1)


def delivered(loader, epochs=2):
    return [[(images.clone(), labels.clone()) for images, labels in loader] for _ in range(epochs)]


def assert_equal(ours, theirs):
    assert [len(epoch) for epoch in ours] == [len(epoch) for epoch in theirs]
    for mine, other in zip(ours, theirs):
        for (images, labels), (others, other_labels) in zip(mine, other):
            assert torch.equal(images, others)
            assert torch.equal(labels, other_labels)


def test_order_and_pixels_do_not_depend_on_the_choice(root, impatient, monkeypatch, way):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)

    def run(**options):
        torch.manual_seed(5)
        options.update(way.options)
        return delivered(FastLoader(folder(root), 4, shuffle=True, mean=MEAN, std=STD, **options))

    plain = run(num_workers=2)
    # Whatever the rule says, at every batch something else.
    numbers = iter([5, 1, 3, 2, 7, 1] * 100)
    monkeypatch.setattr(
        ThreadRule, "observe", lambda rule, seen: setattr(rule, "threads", next(numbers))
    )
    monkeypatch.setattr(DepthRule, "note_ready", lambda rule, ready, store: rule.depth < 16)
    assert_equal(run(num_workers="auto", depth="auto"), plain)


@native_only
def test_threads_of_the_pool_follow_the_rule(root, impatient, monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 3)
    loader = FastLoader(folder(root), 4, num_workers="auto", device="cpu", mean=MEAN, std=STD)
    assert loader.num_workers == 3
    assert "3 decode threads (auto)" in loader.plan()
    chosen = []

    def observe(rule, seen):
        assert seen.seconds >= 0 and seen.pictures >= 0
        rule.threads = 1 + len(chosen) % 4
        chosen.append(rule.threads)
        return rule.threads

    monkeypatch.setattr(ThreadRule, "observe", observe)
    iterator = iter(loader)
    seen = set()
    for _ in iterator:
        seen.add(loader.stats()["images"]["threads"])
    assert seen >= {1, 2, 3, 4}
    iter(loader)  # the next epoch begins with a thread for each processor, or more
    assert loader.stats()["images"]["threads"] >= 3


@native_only
def test_decode_threads_yield_to_the_training_loop(root):
    loader = FastLoader(folder(root), 4, num_workers="auto")
    list(loader)
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    theirs = [
        os.getpriority(os.PRIO_PROCESS, task)
        for task, name in named_threads().items()
        if name == "fl-decode"
    ]
    assert theirs and set(theirs) == {min(19, mine + 5)}


@native_only
@pytest.mark.parametrize("backend", ["", "host"])
def test_an_uneven_loop_gets_a_deeper_store(root, monkeypatch, backend):
    """Bursts of quick steps between long ones: what a store of three, and as many on the device, cannot
    smooth over."""
    monkeypatch.setenv("FASTLOADER_BACKEND", backend)
    throttle(monkeypatch, FolderStore, 0.005)
    loader = FastLoader(
        folder(root), 2, num_workers=1, depth="auto", device="cpu", mean=MEAN, std=STD
    )
    for _ in range(4):
        for step, _ in enumerate(loader):
            if step % 12 == 11:
                time.sleep(0.3)
    chosen = loader.stats()["auto"]["depth"]["chosen"]
    assert chosen > 3
    assert loader.report().depth == chosen
    assert f'depth="auto": {chosen}, ' in str(loader.report())


def test_python_datasets_get_a_worker_for_each_processor(monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    loader = FastLoader(Priorities(), 4, num_workers="auto", prefetch_factor=3)
    assert loader.num_workers == 2
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    found = torch.cat(list(loader))
    assert set(found[:, 0].tolist()) == {min(19, mine + 5)}
    assert set(found[:, 1].tolist()) == {0, 1}
    why = loader.stats()["auto"]["num_workers"]
    assert why["chosen"] == 2 and "not changed" in why["why"]
    assert loader.report().auto["num_workers"].chosen == 2


class Priorities(Dataset):
    """(priority of whoever asks, number of the worker)"""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info().id
        nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        return torch.tensor([nice, worker])


def test_worker_threads_yield_too_and_the_users_init_runs(monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    begun = []
    loader = FastLoader(
        Priorities(), 4, num_workers="auto", worker_backend="thread", worker_init_fn=begun.append
    )
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert set(torch.cat(list(loader))[:, 0].tolist()) == {min(19, mine + 5)}
    assert sorted(begun) == [0, 1]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == mine


class Counting(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id, 20, info.num_workers))


def test_the_same_as_with_that_number(monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    for dataset in (Counting(), TensorDataset(torch.arange(40))):
        torch.manual_seed(3)
        theirs = [each for _ in range(2) for each in DataLoader(dataset, 3, num_workers=2)]
        torch.manual_seed(3)
        loader = FastLoader(dataset, 3, num_workers="auto", depth="auto")
        ours = [each for _ in range(2) for each in loader]
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_copies_stay_automatic_and_a_number_ends_it(root):
    loader = FastLoader(folder(root), 4, num_workers="auto", depth="auto")
    for made in (pickle.loads(pickle.dumps(loader)), copy.copy(loader)):
        assert set(made.stats()["auto"]) == {"num_workers", "depth"}
        assert len(list(made)) == 12
    loader.num_workers = 1
    assert set(loader.stats()["auto"]) == {"depth"}
    assert len(list(loader)) == 12
    assert "auto" not in FastLoader(folder(root), 4, num_workers=2, depth=4).stats()


@pytest.mark.parametrize("wrong", ["automatic", "4", ""])
def test_other_words_are_refused(root, wrong):
    with pytest.raises(TypeError):  # torch's words
        FastLoader(folder(root), num_workers=wrong)
    with pytest.raises(TypeError, match=r"depth must be .*'auto'"):
        FastLoader(folder(root), depth=wrong)


def test_a_prefetcher_takes_a_depth_of_its_own_choice():
    batches = [torch.full((2, 3, 4, 4), n, dtype=torch.uint8) for n in range(9)]
    made = list(DevicePrefetcher(batches, "cpu", mean=(0, 0, 0), std=(1, 1, 1), depth="auto"))
    assert [round(float(batch[0, 0, 0, 0]) * 255) for batch in made] == list(range(9))


@native_only
def test_auto_is_fine_without_a_shuffle_in_a_decoded_folder(root):
    dataset = ImageFolder(root, Compose([Resize(20), CenterCrop(20)]))
    ours = delivered(FastLoader(dataset, 5, num_workers="auto", depth="auto"), 1)
    theirs = delivered(DataLoader(dataset, 5), 1)
    assert_equal(ours, theirs)
