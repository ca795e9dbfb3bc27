"""``close()``, from this thread and from another, on every way to run: a ``next()`` afterwards raises
StopIteration, and one that is under way raises one Error that says so."""

import multiprocessing
import sys
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import fastloader
from fastloader import DevicePrefetcher, FastLoader, transforms
from fastloader._core.sources import arrays as array_rows
from fastloader._core.sources import image_iterator
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures, children, eventually, nothing_left_running, running

pytestmark = pytest.mark.covering

IN_ORDER = [[2 * i, 2 * i + 1] for i in range(6)]


class Flag:
    """As an Event, for all processes. Whoever sets one of multiprocessing's waits for those that it
    wakes, and waits for ever if one of them was terminated."""

    def __init__(self):
        self.value = multiprocessing.RawValue("b", 0)

    def set(self):
        self.value.value = 1

    def wait(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.value.value and time.monotonic() < deadline:
            time.sleep(0.005)
        return bool(self.value.value)


class Gated(Pictures):
    """Waits at one index until told to go on, in whatever thread or process."""

    def __init__(self, at):
        super().__init__(12)
        self.at = at
        self.reached, self.go = Flag(), Flag()

    def __getitem__(self, index):
        if index == self.at:
            self.reached.set()
            self.go.wait(60)
        return super().__getitem__(index)


PYTHON_WAYS = ["none", "cpu", "twin", "streams"]
WORKERS = {
    "0": {"num_workers": 0},
    "2 processes": {"num_workers": 2},
    "2 persistent": {"num_workers": 2, "persistent_workers": True},
    "2 threads": {"num_workers": 2, "worker_backend": "thread"},
}


def delivery(enter_way, name):
    return {} if name == "none" else {**enter_way(name).options, "mean": MEAN, "std": STD}


@pytest.fixture(params=WORKERS)
def workers(request):
    return WORKERS[request.param]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(5)
    for number in range(40):  # more than what is made ahead
        folder = root / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        picture = random.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / f"{number}.jpg")
    return root


def native_images(root, **options):
    loader = FastLoader(ImageFolder(root, transforms.CenterCrop(8)), batch_size=2, **options)
    assert "native images" in loader.plan()
    return loader


def arrays(**options):
    data = TensorDataset(torch.arange(60, dtype=torch.uint8).reshape(12, 5), torch.arange(12))
    loader = FastLoader(data, batch_size=2, **options)
    assert "arrays" in loader.plan()
    return loader


def ends(loader, iterators):
    """Closed, the iterators give nothing more, and the loader can be used again."""
    for each in iterators:
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(each)
    assert len(list(loader)) == len(loader)
    loader.close()


@pytest.mark.parametrize("how", ["close", "with"])
@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_nothing_comes_after_close(enter_way, name, workers, how):
    before = running()
    loader = FastLoader(Pictures(12), batch_size=2, **workers, **delivery(enter_way, name))
    if how == "with":
        with loader:
            iterators = [iter(loader)]
            first = next(iterators[0])
    else:
        # The first of two, and one that was not asked for anything; persistent workers have but one.
        count = 1 if workers.get("persistent_workers") else 2
        iterators = [iter(loader) for _ in range(count)]
        first = next(iterators[0])
        loader.close()
    assert first[1].tolist() == IN_ORDER[0]
    eventually(lambda: not children(), lambda: f"workers {children()} gone")
    ends(loader, iterators)
    iterators.clear()
    nothing_left_running(before)


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}], ids=["0", "2"])
@pytest.mark.parametrize("name", PYTHON_WAYS)
@pytest.mark.parametrize("kind", ["arrays", "images"])
def test_nothing_comes_after_close_natively(enter_way, pictures, kind, name, options):
    to = {} if name == "none" else enter_way(name).options
    if kind == "images" and name != "none":
        to = {**to, "mean": MEAN, "std": STD}
    loader = (
        native_images(pictures, **options, **to) if kind == "images" else arrays(**options, **to)
    )
    iterators = [iter(loader), iter(loader)]
    next(iterators[0])
    loader.close()
    ends(loader, iterators)


@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_nothing_comes_after_a_device_prefetcher_was_closed(enter_way, name):
    options = delivery(enter_way, "cpu" if name == "none" else name)
    loader = DevicePrefetcher(DataLoader(Pictures(12), batch_size=2), **options)
    iterators = [iter(loader)]
    next(iterators[0])
    loader.close()
    ends(loader, iterators)


@pytest.fixture(params=["loader", "iterator"])
def close(request):
    """Whose close() ends the epoch."""
    return lambda loader, iterator: (loader if request.param == "loader" else iterator).close()


class Consumer(threading.Thread):
    """Iterates on a thread of its own, and keeps what it got and what ended it."""

    def __init__(self, iterator):
        super().__init__(daemon=True)
        self.iterator = iterator
        self.got = []
        self.errors = []
        self.start()

    def run(self):
        try:
            for batch in self.iterator:
                self.got.append(batch[1].tolist())
        except BaseException as error:
            self.errors.append(error)

    def got_at_least(self, count):
        return lambda: len(self.got) >= count

    def waits_for_the_third(self):
        """It is in that call of next(), which gives nothing until it is closed."""
        frame = sys._current_frames().get(self.ident) if len(self.got) == 2 else None
        while frame is not None and frame.f_code.co_name != "__next__":
            frame = frame.f_back
        return frame is not None

    def ended_by_close(self):
        self.join(30)
        assert not self.is_alive(), "next() still waits"
        assert [type(error) for error in self.errors] == [fastloader.Error], self.errors
        assert "the loader was closed while next()" in str(self.errors[0])


@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_close_while_another_thread_waits(enter_way, name, workers, close):
    """For a sample that does not come until the loader was closed, where anybody but the dataset can
    end the wait."""
    before = running()
    data = Gated(at=4)
    loader = FastLoader(data, batch_size=2, **workers, **delivery(enter_way, name))
    consumer = Consumer(iter(loader))
    assert data.reached.wait(60)
    eventually(consumer.waits_for_the_third, lambda: "two batches and no more")
    closed = threading.Thread(target=close, args=[loader, consumer.iterator])
    if workers["num_workers"] == 0:
        close(loader, consumer.iterator)  # the thread is in the dataset
        data.go.set()
    else:
        closed.start()
        consumer.join(30)
        ended = not consumer.is_alive()
        data.go.set()
        closed.join(60)
        assert ended, "next() waited for the sample"
    consumer.ended_by_close()
    assert consumer.got == IN_ORDER[:2]
    ends(loader, [consumer.iterator])
    del consumer
    nothing_left_running(before)


@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_close_from_inside_the_data_set(enter_way, name, close):
    """On the very thread that is in next()."""
    data = Pictures(12)

    class Closing:
        def __len__(self):
            return 12

        def __getitem__(self, index):
            if index == 5 and begun:
                close(loader, begun.pop())
            return data[index]

    loader = FastLoader(Closing(), batch_size=2, **delivery(enter_way, name))
    iterator = iter(loader)
    begun = [iterator]
    assert [next(iterator)[1].tolist() for _ in range(2)] == IN_ORDER[:2]
    with pytest.raises(fastloader.Error, match="closed while"):
        next(iterator)
    ends(loader, [iterator])


class Gate:
    """Holds the calling thread once, behind a call."""

    def __init__(self, monkeypatch, kind, name):
        self.reached, self.go = threading.Event(), threading.Event()
        real = getattr(kind, name)

        def call(*args, **named):
            result = real(*args, **named)
            if not self.reached.is_set():
                self.reached.set()
                assert self.go.wait(60)
            return result

        monkeypatch.setattr(kind, name, call)


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 2}], ids=["0", "2"])
@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_close_while_arrays_are_gathered(enter_way, monkeypatch, name, options, close):
    loader = arrays(**options, **({} if name == "none" else enter_way(name).options))
    gate = Gate(monkeypatch, array_rows.NativeArrays, "collated")
    consumer = Consumer(iter(loader))
    assert gate.reached.wait(60)
    closing = threading.Thread(target=close, args=[loader, consumer.iterator])
    closing.start()
    eventually(lambda: getattr(consumer.iterator, "_closed", True), lambda: "closed")
    gate.go.set()
    closing.join(60)
    consumer.ended_by_close()
    ends(loader, [consumer.iterator])


@pytest.mark.parametrize("where", ["_submit", "_next"])
@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_close_while_pictures_are_decoded(enter_way, monkeypatch, pictures, name, where, close):
    loader = native_images(pictures, **delivery(enter_way, name))
    list(loader)
    iterator = iter(loader)
    gate = Gate(monkeypatch, image_iterator.ImageIterator, where)
    consumer = Consumer(iterator)
    assert gate.reached.wait(60)
    closing = threading.Thread(target=close, args=[loader, consumer.iterator])
    closing.start()
    eventually(lambda: consumer.iterator._closed, lambda: "closed")
    gate.go.set()
    closing.join(60)
    consumer.ended_by_close()
    ends(loader, [consumer.iterator])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PYTHON_WAYS)
def test_close_at_any_moment(enter_way, name, workers, close):
    """Without a gate: whatever the other thread is at, it ends in one of three ways."""
    loader = FastLoader(Pictures(12), batch_size=2, **workers, **delivery(enter_way, name))
    for number in range(12):
        consumer = Consumer(iter(loader))
        wanted = number % 5
        eventually(consumer.got_at_least(wanted), lambda: "some batches came")
        close(loader, consumer.iterator)
        consumer.join(30)
        assert not consumer.is_alive()
        assert consumer.got == IN_ORDER[: len(consumer.got)]
        assert [type(each) for each in consumer.errors] in ([], [fastloader.Error]), consumer.errors
    loader.close()


def test_a_new_epoch_tells_the_thread_that_is_in_the_old_one(twin):
    """With persistent workers there is one iterator for life."""
    data = Gated(at=4)
    loader = FastLoader(
        data, batch_size=2, num_workers=1, persistent_workers=True, device="cpu", mean=MEAN, std=STD
    )
    consumer = Consumer(iter(loader))
    assert data.reached.wait(60)
    eventually(consumer.waits_for_the_third, lambda: f"{consumer.got} and no more")
    again = []
    second = threading.Thread(target=lambda: again.extend(b[1].tolist() for b in loader))
    second.start()
    consumer.ended_by_close()
    data.go.set()
    second.join(60)
    assert again == IN_ORDER
    loader.close()
