"""A ``next()`` that is broken off, by Ctrl-C or for want of memory: no batch is lost, none is counted
that the loop did not get, and nothing hangs."""

import signal

import pytest
import torch
from interrupts import interrupts
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from exact import normalised, same_bits
from fastloader import FastLoader
from fastloader._core.delivery import engine as ring_engine
from fastloader._core.delivery import streams
from fastloader._core.delivery.engine import RingEpoch
from fastloader._core.delivery.engine_path import EngineIterator
from fastloader._core.handoff import NotYet
from fastloader._core.sources.python.lookahead import Lookahead
from support import MEAN, STD, Pictures

pytestmark = pytest.mark.covering

WORKERS = pytest.mark.parametrize("workers", [0, 2])
IN_ORDER = [[2 * i, 2 * i + 1] for i in range(6)]


def make(way, data, workers=0, **options):
    options = {"mean": MEAN, "std": STD, **way.options, **options}
    return FastLoader(data, batch_size=2, num_workers=workers, **options)


def check(data, batches, wanted=IN_ORDER):
    assert [label.tolist() for _, label in batches] == wanted
    for image, label in batches:
        same_bits(image, normalised(data.images[label], MEAN, STD, torch.float32))


class OutOfMemory:
    """Raises what torch raises without memory while `full()` says so, and counts the calls, and those
    that were refused."""

    def __init__(self, monkeypatch, way):
        self.calls = self.refused = 0
        self.full = lambda: False
        kind, name = {
            "twin": (ring_engine.Engine, "make_credit"),
            "streams": (streams.StreamDelivery, "_issue"),
        }[way.name]
        real = getattr(kind, name)

        def call(*args):
            self.calls += 1
            if self.full():
                self.refused += 1
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return real(*args)

        monkeypatch.setattr(kind, name, call)


@pytest.fixture(params=["twin", "streams"])
def device_way(request, enter_way):
    return enter_way(request.param)


@WORKERS
def test_out_of_memory_consumes_no_batch(device_way, monkeypatch, workers):
    """Twice in a row, which was once too often for the ring; and the state, each time, is that of what
    came before."""
    data = Pictures(12, seed=71)
    loader = make(device_way, data, workers)
    memory = OutOfMemory(monkeypatch, device_way)
    iterator = iter(loader)
    seen, failed, ended = [], 0, False
    while not ended:
        memory.full = (lambda: True) if len(seen) in (0, 3) else (lambda: False)
        for _ in range(2):
            try:
                seen.append(next(iterator))  # without memory: what there was some for already
            except torch.cuda.OutOfMemoryError:
                failed += 1
            except StopIteration:
                ended = True
            state = loader.state_dict()
            assert ended or (state["batches"], state["samples"]) == (len(seen), 2 * len(seen))
        memory.full = lambda: False
        if not ended:
            seen += [next(iterator)] if len(seen) < 6 else []
    assert failed >= 2
    check(data, seen)


@WORKERS
def test_a_state_behind_an_error_resumes_with_what_is_missing(device_way, monkeypatch, workers):
    data = Pictures(12, seed=72)
    loader = make(device_way, data, workers)
    memory = OutOfMemory(monkeypatch, device_way)
    iterator = iter(loader)
    seen = [next(iterator), next(iterator)]
    memory.full = lambda: True
    with pytest.raises(torch.cuda.OutOfMemoryError):
        for _ in range(6):
            seen.append(next(iterator))
    state = loader.state_dict()
    memory.full = lambda: False
    resumed = make(device_way, data, workers)
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert state["batches"] == len(seen)
    assert [label.tolist() for _, label in rest] == IN_ORDER[len(seen) :]
    assert [label.tolist() for _, label in iterator] == IN_ORDER[len(seen) :]


class Slow(Pictures):
    """Waits at one index until told to go on."""

    def __init__(self, count, at):
        super().__init__(count)
        self.at = at
        self.reached = torch.multiprocessing.get_context("fork").Event()
        self.go = torch.multiprocessing.get_context("fork").Event()

    def __getitem__(self, index):
        if index == self.at:
            self.reached.set()
            self.go.wait(60)
        return super().__getitem__(index)


def set_timeout(iterator, seconds):
    """In the middle of an epoch: nothing is to time out because the machine is busy."""
    if "_timeout" not in iterator.__dict__:
        iterator = iterator._batches
    assert iterator._timeout > 0
    iterator._timeout = seconds


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("name", ["none", "cpu", "twin", "streams"])
def test_a_timeout_consumes_no_batch(enter_way, name, backend):
    options = {} if name == "none" else {**enter_way(name).options, "mean": MEAN, "std": STD}
    data = Slow(12, at=4)

    def make_one():
        return FastLoader(
            data, batch_size=2, num_workers=1, timeout=60, worker_backend=backend, **options
        )

    loader = make_one()
    iterator = iter(loader)
    assert next(iterator)[1].tolist() == IN_ORDER[0]
    assert data.reached.wait(60)
    set_timeout(iterator, 1)
    assert next(iterator)[1].tolist() == IN_ORDER[1]  # torch's streams look ahead in there
    for _ in range(2):
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            next(iterator)
    state = loader.state_dict()
    assert (state["batches"], state["samples"]) == (2, 4)
    set_timeout(iterator, 60)
    data.go.set()
    assert [batch[1].tolist() for batch in iterator] == IN_ORDER[2:]
    resumed = make_one()
    resumed.load_state_dict(state)
    assert [batch[1].tolist() for batch in resumed] == IN_ORDER[2:]


class Prefetcher:
    """Stands before the native one, so that its calls can be broken off."""

    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        return getattr(self.real, name)

    def push(self, *args):
        return self.real.push(*args)

    def deliver(self, *args):
        return self.real.deliver(*args)

    def give_credit(self, **named):
        return self.real.give_credit(**named)

    def wait_arrival(self, *args):
        return self.real.wait_arrival(*args)


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize(
    "call",
    [
        (Prefetcher, "push"),
        (Prefetcher, "deliver"),
        (Prefetcher, "give_credit"),
        (Prefetcher, "wait_arrival"),
        (EngineIterator, "_unflatten"),
        (EngineIterator, "_top_up"),
        (RingEpoch, "put_batch"),
    ],
    ids=lambda call: call[1],
)
@WORKERS
def test_ctrl_c_anywhere(twin, monkeypatch, call, when, workers):
    """In each step of next(), once and twice in a row, at each batch: the next call has the batch."""
    if workers and call[1] in ("push", "put_batch"):
        pytest.skip("on the pump's thread, which gets no signals")
    data = Pictures(12, seed=73)
    due = interrupts(monkeypatch, *call, when)
    make_engine = ring_engine.Engine.__init__

    def make_watched(engine, *args):
        make_engine(engine, *args)
        engine.prefetcher = Prefetcher(engine.prefetcher)

    monkeypatch.setattr(ring_engine.Engine, "__init__", make_watched)
    for times in (1, 2):
        hits = 0
        for at in range(6):
            loader = make(twin, data, workers)
            iterator = iter(loader)
            seen = [next(iterator) for _ in range(at)]
            due.extend(range(times))
            while True:
                try:
                    seen.append(next(iterator))
                except KeyboardInterrupt:
                    hits += 1
                except StopIteration:
                    break
                assert loader.state_dict()["batches"] == len(seen)
            due.clear()
            check(data, seen)
        assert hits >= 3 * times


def test_ctrl_c_while_an_index_is_drawn(twin, monkeypatch):
    """With workers the sampler is asked when a batch is taken, and once for each batch."""
    due = []

    class Interrupted(SequentialSampler):
        def __iter__(self):
            for index in super().__iter__():
                if due:
                    due.pop()
                    signal.raise_signal(signal.SIGINT)
                yield index

    data = Pictures(12, seed=74)
    loader = FastLoader(
        data, batch_size=2, sampler=Interrupted(data), num_workers=1, device="cpu",
        mean=MEAN, std=STD,
    )  # fmt: skip
    iterator = iter(loader)
    seen = [next(iterator)]
    due.append(None)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(6):
            seen.append(next(iterator))
    seen += list(iterator)
    # A generator that has raised is at its end, as with DataLoader; what had been drawn comes whole.
    assert [label.tolist() for _, label in seen] == IN_ORDER[: len(seen)]
    assert len(seen) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_out_of_memory_ahead_lowers_the_depth(twin, monkeypatch, caplog, workers):
    """Once, and for good: the next steps do not try again what there was no memory for."""
    data = Pictures(24, seed=75)
    loader = make(twin, data, workers, depth=4)
    memory = OutOfMemory(monkeypatch, twin)
    iterator = iter(loader)
    seen = [next(iterator)]
    engine = iterator._epoch.engine
    assert not engine.prefetcher.uncredited(True)  # there is memory for all four
    full_at = memory.calls + 1  # for the fourth behind the next batch
    memory.full = lambda: memory.calls == full_at
    seen.append(next(iterator))
    assert memory.calls == full_at and loader.stats()["ring"]["depth"] == 3
    assert "depth 3 from now on" in caplog.text
    for step in range(
        1, 5
    ):  # there is memory for three behind each, and so for one more at each step
        seen.append(next(iterator))
        assert memory.calls == full_at + step
    seen += list(iterator)
    in_order = [[2 * i, 2 * i + 1] for i in range(12)]
    check(data, seen, in_order)
    check(data, list(loader), in_order)
    assert loader.stats()["ring"]["depth"] == 3
    assert caplog.text.count("out of memory") == 1


@pytest.mark.parametrize("late", [0, 7])
def test_without_memory_for_a_second_batch_nothing_is_tried_ahead(
    device_way, monkeypatch, caplog, late
):
    """Also if the worker has no batch ready until the loop has taken ``late``. From then on the worker
    has one ready whenever the loop looks ahead, however busy the machine is."""
    data = Pictures(24, seed=76)

    def when_it_is_time(self):
        if len(seen) < late:
            raise NotYet
        return next(self)

    monkeypatch.setattr(Lookahead, "next_if_there", when_it_is_time)
    loader = make(device_way, data, 1)
    memory = OutOfMemory(monkeypatch, device_way)
    held = []  # the batch that the loop has, from the moment that it is the loop's
    kind, name = {
        "twin": (EngineIterator, "_unflatten"),
        "streams": (streams.StreamDelivery, "hand_over"),
    }[device_way.name]
    hand_over = getattr(kind, name)

    def hold(*args):
        held.append(hand_over(*args))
        return held[-1]

    monkeypatch.setattr(kind, name, hold)
    memory.full = lambda: bool(held)
    seen, refused = [], []
    for _ in range(2):
        iterator = iter(loader)
        held.clear()
        for batch in iterator:
            seen.append(batch)
            refused.append(memory.refused)
            held.clear()
    check(data, seen, [[2 * i, 2 * i + 1] for i in range(12)] * 2)
    assert "only when it is asked for" in caplog.text
    # Each refusal lowers the depth, three at first, or ends the looking ahead: none comes twice.
    assert refused[-1] == caplog.text.count("out of memory") <= 3
    assert memory.calls == len(seen) + refused[-1]


@pytest.mark.parametrize("name", ["twin", "streams", "arrays"])
def test_the_mode_of_the_moment_stays_with_its_batch(enter_way, name):
    """Validation in the middle of training: what is made ahead under inference_mode is trained on."""
    if name == "arrays":
        data = TensorDataset(torch.rand(12, 5), torch.arange(12))
        loader = FastLoader(data, batch_size=2, num_workers=2)
    else:
        loader = make(enter_way(name), Pictures(12), 2)
    iterator = iter(loader)
    batches = [next(iterator)]
    with torch.inference_mode():
        batches.append(next(iterator))
    batches += list(iterator)
    weight = torch.ones((), requires_grad=True)
    for number, (inputs, _) in enumerate(batches):
        if name != "arrays" or number != 1:
            assert not inputs.is_inference(), number
            (inputs * weight).sum().backward()  # an inference tensor cannot be saved for it


def test_dataloader_loses_nothing_by_a_timeout_either():
    """What `test_a_timeout_consumes_no_batch` holds us to is what torch does."""
    data = Slow(12, at=4)
    iterator = iter(DataLoader(data, batch_size=2, num_workers=1, timeout=60))
    assert [next(iterator)[1].tolist() for _ in range(2)] == IN_ORDER[:2]
    set_timeout(iterator, 1)
    with pytest.raises(RuntimeError, match="timed out"):
        next(iterator)
    set_timeout(iterator, 60)
    data.go.set()
    assert [batch[1].tolist() for batch in iterator] == IN_ORDER[2:]
