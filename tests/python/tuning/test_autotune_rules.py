"""What decides nothing, or must decide at once: the rules behind "auto" on many machines, and their
figures."""

import errno
import os
import random
import statistics

import pytest
import torch
from image_source import image_source
from pictures import plain_folder
from torch.utils.data import Dataset, Sampler, TensorDataset

from fastloader import FastLoader
from fastloader._core.machine import extension, limits
from fastloader._core.observation.statistics import Statistics
from fastloader._core.observation.tuning import DepthRule, Interval, ThreadRule, ThreadTuner
from fastloader.datasets import ImageFolder
from fastloader.transforms import Compose, Resize

native_only = pytest.mark.skipif(extension.load() is None, reason="without the native module")


class Machine:
    """Processors, a storage with a limit of its own, and a loop, in seconds for each picture."""

    def __init__(self, draws):
        self.processors = draws.choice([1, 2, 3, 4, 8, 16, 64])
        self.decode = 10 ** draws.uniform(-3.5, -1.7)
        self.read = draws.choice([0, self.decode * 10 ** draws.uniform(-1.5, 1.3)])
        alone = self.processors / (self.read + self.decode)
        self.limit = draws.choice([1e9, alone * draws.uniform(0.3, 6)])
        self.step = draws.choice([0, self.decode / self.processors * 10 ** draws.uniform(-1, 1.5)])

    def rate(self, threads):
        rate = min(threads / (self.read + self.decode), self.processors / self.decode, self.limit)
        return min(rate, 1 / self.step) if self.step else rate

    def interval(self, threads, noise=1.0, pause=0.0):
        rate = self.rate(threads) * noise
        behind = not self.step or rate < 0.98 / self.step
        busy = threads if behind else min(threads, rate * (self.read + self.decode))
        return Interval(
            seconds=1 + pause,
            waited=max(0.0, 1 - rate * self.step),
            pictures=max(1, round(1000 * rate)) / 1000,
            busy=busy,
            cpu=min(busy, rate * self.decode),
        )


@pytest.mark.parametrize("noise", [0, 0.02])
def test_on_any_machine_it_settles_near_the_best(noise):
    lost, changed = [], 0
    for seed in range(300):
        draws = random.Random(seed)
        machine = Machine(draws)
        rule = ThreadRule(machine.processors)
        chosen = [
            rule.observe(machine.interval(rule.threads, max(0.5, draws.gauss(1, noise))))
            for _ in range(90)
        ]
        changed += len(set(chosen[60:])) > 1
        best = max(machine.rate(threads) for threads in range(1, 8 * machine.processors + 1))
        lost.append(1 - statistics.mean(machine.rate(each) for each in chosen[60:]) / best)
    assert max(lost) < (0.05 if noise == 0 else 0.1)
    assert sum(loss > 0.05 for loss in lost) <= 3
    assert changed <= (0 if noise == 0 else 6)


def test_a_pause_in_the_loop_takes_no_thread_away():
    rule = ThreadRule(8)
    usual = Interval(seconds=1, waited=0.0, pictures=500, busy=5.9, cpu=5.9)
    pause = Interval(seconds=30, waited=0.0, pictures=500, busy=5.9, cpu=5.9)
    assert {rule.observe(pause if n % 7 == 3 else usual) for n in range(60)} == {8}


def test_a_pause_does_not_end_an_attempt():
    rule = ThreadRule(4)
    slow = Interval(seconds=1, waited=0.9, pictures=100, busy=4, cpu=0.2)
    assert rule.observe(slow) == 8
    rule.observe(Interval(seconds=9, waited=0.9, pictures=130, busy=8, cpu=0.3))
    faster = Interval(seconds=1, waited=0.9, pictures=130, busy=8, cpu=0.3)
    assert [rule.observe(faster) for _ in range(2)][-1] == 16


def test_a_storage_that_takes_a_seventh_of_the_time_is_worth_threads():
    rule = ThreadRule(8)
    mixed = Interval(seconds=1, waited=0.9, pictures=100, busy=8, cpu=6.8)
    assert [rule.observe(mixed) for _ in range(3)] == [8, 8, 16]


def test_what_was_enough_comes_back_also_above_the_processors():
    rule = ThreadRule(4)
    rule.observe(Interval(seconds=1, waited=0.9, pictures=100, busy=4, cpu=0.2))
    rule.observe(Interval(seconds=1, waited=0.9, pictures=200, busy=8, cpu=0.4))
    assert rule.threads == 16
    calm = Interval(seconds=1, waited=0.0, pictures=300, busy=9.2, cpu=0.6)
    assert [rule.observe(calm) for _ in range(3)][-1] == 12
    assert rule.observe(Interval(seconds=1, waited=0.05, pictures=290, busy=12, cpu=0.6)) == 16
    assert {rule.observe(calm) for _ in range(9)} == {16}


def test_swings_far_apart_are_pauses_of_the_loop():
    rule = DepthRule(3)
    for _ in range(5):
        rule.note_ready(3)
        assert not rule.note_ready(0)
        assert not any(rule.note_ready(1) for _ in range(3 * DepthRule.APART))


def test_two_stores_are_two_stores():
    rule, full, empty = DepthRule(3), Numbers(), Numbers()
    for _ in range(20):
        assert not rule.note_ready(3, full)
        assert not rule.note_ready(0, empty)


# --- what it is told ------------------------------------------------------------------------------


class Pool:
    """A source, in the hands of the test."""

    def __init__(self, threads=4, most=1000):
        self.threads = threads
        self.most = most
        self.spent = {"pictures": 0, "read": 0.0, "decode": 0.0, "finish": 0.0}

    def cpu_seconds(self):
        return self.spent["decode"]

    def times(self):
        return dict(self.spent)

    def set_threads(self, threads):
        if threads > self.most:
            raise RuntimeError("Resource temporarily unavailable")
        self.threads = threads

    def work(self, pictures, read=0.0, decode=0.0):
        self.spent["pictures"] += pictures
        self.spent["read"] += read
        self.spent["decode"] += decode


@pytest.fixture
def seen(monkeypatch):
    """Every interval that a rule is told of."""
    told = []
    observe = ThreadRule.observe

    def noted(rule, interval):
        told.append(interval)
        return observe(rule, interval)

    monkeypatch.setattr(ThreadRule, "observe", noted)
    return told


def steps(counted, number, step_s=0.0, wait_s=0.0):
    counted.steps += number
    counted.step_s += step_s
    counted.wait_s += wait_s


def test_what_an_epoch_begins_with_counts_for_nothing(seen):
    tuner, pool, counted = ThreadTuner(4), Pool(), Statistics()
    tuner.STEPS = 16
    for _ in range(4):  # epochs of 6 steps, too short for a look each
        tuner.filling(4, counted, pool)
        pool.work(96, decode=3.0)
        counted.wait_s += 0.9
        counted.edge_wait_s += 0.9
        tuner.taken(counted, pool)
        pool.work(60, decode=0.6)
        steps(counted, 6, step_s=0.5, wait_s=0.1)
        tuner.taken(counted, pool)
    [look] = seen  # after 16 steps
    assert look.pictures == 180
    assert look.seconds == pytest.approx(1.8)
    assert look.waited == pytest.approx(0.3)
    assert look.busy == look.cpu == pytest.approx(1.8)


def test_a_loop_that_waits_does_not_wait_for_the_next_look():
    tuner, pool, counted = ThreadTuner(8), Pool(8), Statistics()
    tuner.filling(8, counted, pool)
    tuner.taken(counted, pool)
    for _ in range(3):
        steps(counted, 16, step_s=32.0)
        pool.work(512, decode=8.0)
        tuner.taken(counted, pool)
    assert pool.threads == 1
    steps(counted, 1, step_s=2.0, wait_s=1.0)
    tuner.taken(counted, pool)
    assert pool.threads == 8


def test_a_thread_that_is_refused_costs_no_batch(caplog):
    tuner, pool, counted = ThreadTuner(4), Pool(most=5), Statistics()
    tuner.filling(4, counted, pool)
    tuner.taken(counted, pool)
    for _ in range(5):
        steps(counted, 16, wait_s=1.0)
        pool.work(100, read=3.8, decode=0.2)
        tuner.taken(counted, pool)
    assert pool.threads == tuner.rule.threads == 4
    assert "no more than 4" in tuner.rule.why
    assert caplog.text.count("Resource temporarily unavailable") == 1


def test_a_share_that_changes_begins_anew():
    """Without a launcher's word the ranks of a machine are counted at the first iter()."""
    tuner, pool, counted = ThreadTuner(8), Pool(8), Statistics()
    tuner.filling(2, counted, pool)
    assert tuner.rule.share == tuner.rule.threads == pool.threads == 2


def test_a_child_does_not_wait_for_the_parents_lock():
    tuner, pool, counted = ThreadTuner(4), Pool(), Statistics()
    tuner.filling(4, counted, pool)
    tuner.taken(counted, pool)
    tuner._lock.acquire()  # as another thread may have it at the fork
    tuner._home.pid = os.getppid()
    tuner.filling(4, counted, Pool())  # times that begin at nothing again
    tuner.taken(counted, pool)
    assert not tuner._lock.locked()


# --- the loader -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("pictures"), count=24)


def folder(root):
    return ImageFolder(root, Compose([Resize((8, 8))]))


@native_only
def test_the_end_of_an_epoch_is_no_swing(root):
    loader = FastLoader(folder(root), 4, num_workers=2, depth="auto")
    for _ in range(5):
        for _ in loader:
            for each in list(image_source(loader).last._flight):  # a loop so slow that all is ready
                each.batch.wait()
    assert loader.stats()["auto"]["depth"]["chosen"] == 3


class Drawing(Sampler):
    """Asks the generator that the loop uses, too, for each index."""

    def __len__(self):
        return 24

    def __iter__(self):
        for _ in range(24):
            yield int(torch.randint(24, ()))


@native_only
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_sampler_draws_does_not_depend_on_the_depth(root, monkeypatch, workers):
    def labels():
        torch.manual_seed(1)
        loader = FastLoader(folder(root), 2, sampler=Drawing(), num_workers=workers, depth="auto")
        return [(targets.tolist(), float(torch.rand(()))) for _, targets in loader]

    usual = labels()
    monkeypatch.setattr(DepthRule, "note_ready", lambda rule, ready, store: rule.depth < 16)
    assert labels() == usual


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_priority_that_cannot_be_lowered_kills_no_worker(monkeypatch, backend, code):
    def refused(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    monkeypatch.setattr(os, "setpriority", refused)
    loader = FastLoader(Numbers(), 4, num_workers="auto", worker_backend=backend)
    assert torch.cat(list(loader)).tolist() == list(range(8))


class ReadOnly(FastLoader):
    @property
    def worker_init_fn(self):
        return None

    @worker_init_fn.setter
    def worker_init_fn(self, value):
        if "_iterator" in self.__dict__:
            raise AttributeError("it is as the class says")


@pytest.mark.parametrize("ring", ["0", ""])
@pytest.mark.parametrize("workers", [1, "auto"])
def test_a_subclass_may_refuse_another_init_function(monkeypatch, ring, workers):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    monkeypatch.setenv("FASTLOADER_WORKER_RING", ring)
    assert len(list(ReadOnly(Numbers(), 4, num_workers=workers))) == 2


def test_auto_may_be_set_later(root, monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    loader = FastLoader(folder(root), 4)
    loader.num_workers = "auto"
    assert loader.num_workers == 2
    assert len(list(loader)) == 6
    assert loader.stats()["auto"]["num_workers"]["chosen"] >= 1
    with pytest.raises(TypeError, match=r"num_workers='many'.*'auto'"):
        loader.num_workers = "many"


def test_it_says_where_there_is_nothing_to_choose(root, monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    loader = FastLoader(TensorDataset(torch.arange(8)), 4, num_workers="auto", depth="auto")
    assert "nothing was iterated yet" in loader.stats()["auto"]["num_workers"]["why"]
    assert "nothing was iterated yet" in loader.stats()["auto"]["depth"]["why"]
    list(loader)
    auto = loader.stats()["auto"]
    assert "not watched" in auto["num_workers"]["why"]
    assert auto["depth"]["chosen"] is None and "prefetch_factor" in auto["depth"]["why"]
    assert 'depth="auto": nothing, ' in str(loader.report())
    loader = FastLoader(Numbers(), 4, depth="auto")
    list(loader)
    assert loader.stats()["auto"]["depth"]["chosen"] is None


@native_only
def test_a_ring_without_look_ahead_is_not_called_automatic(monkeypatch):
    monkeypatch.setenv("FASTLOADER_BACKEND", "host")
    loader = FastLoader(Numbers(), 4, device="cpu", depth="auto")
    list(loader)
    assert loader.report().depth == loader.stats()["auto"]["depth"]["chosen"] == 2
    loader.num_workers = 1  # now there is; the ring of before is of no use
    loader.prefetch_factor = 2
    list(loader)
    assert loader.report().depth == loader.stats()["auto"]["depth"]["chosen"] == 3


def test_timms_door(root, monkeypatch):
    monkeypatch.setattr(limits, "threads_within", lambda _quota: 2)
    from fastloader.compat.timm import create_loader

    loader = create_loader(
        folder(root),
        (3, 8, 8),
        4,
        num_workers="auto",
        persistent_workers=True,
        device=torch.device("cpu"),
    )
    assert len(list(loader)) == 6


def test_a_state_of_other_workers_says_how_to_go_on(monkeypatch):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(20))

    processors = [3]
    monkeypatch.setattr(limits, "threads_within", lambda _quota: processors[0])
    loader = FastLoader(Stream(), 2, num_workers="auto")
    next(iter(loader))
    state = loader.state_dict()
    processors[0] = 2
    with pytest.raises(ValueError, match=r"2 \(by auto\).*give num_workers=3"):
        FastLoader(Stream(), 2, num_workers="auto").load_state_dict(state)
