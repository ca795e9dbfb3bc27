"""Errors arrive in order, as themselves, and iteration may go on: as with DataLoader."""

import contextlib
import gc
import traceback
import weakref

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from fastloader import FastLoader
from support import MEAN, STD, Pictures, eventually, run_script

pytestmark = pytest.mark.covering

NORMALISED = {"mean": MEAN, "std": STD}


class TwoArguments(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class Unbuildable(Exception):
    def __init__(self, *, only_by_keyword):
        super().__init__(only_by_keyword)


MAKERS = {
    "ValueError": lambda: ValueError("bad picture"),
    "KeyError": lambda: KeyError("missing key"),
    "OSError": lambda: FileNotFoundError(2, "No such file", "a.jpg"),
    "two arguments": lambda: TwoArguments(7, "seven"),
    "unbuildable": lambda: Unbuildable(only_by_keyword=3),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "no"),
}


class Faulty(Pictures):
    """Raises at some indices."""

    def __init__(self, make, at=(5,), count=24):
        super().__init__(count)
        self.make = make
        self.at = at

    def __getitem__(self, index):
        if index in self.at:
            self.deliberately_fail()
        return super().__getitem__(index)

    def deliberately_fail(self):
        raise self.make()


def observe(loader, limit=40):
    """Labels and exceptions in the order of their arrival."""
    seen = []
    iterator = iter(loader)
    while len(seen) < limit:
        try:
            seen.append(next(iterator)[1].tolist())
        except StopIteration:
            return seen
        except Exception as error:
            seen.append((type(error), str(error).splitlines()[0], getattr(error, "code", None)))
    raise AssertionError(f"no end: {seen}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_errors_arrive_as_with_torch(way, name, workers):
    # Early, in the middle, twice in a row, and in the last batch.
    data = Faulty(MAKERS[name], at=(0, 9, 10, 23))
    plain = observe(DataLoader(data, batch_size=2, num_workers=workers))
    options = {"batch_size": 2, "num_workers": workers, **NORMALISED, **way.options}
    loader = FastLoader(data, **options)
    assert sum(isinstance(each, tuple) for each in plain) == 4
    assert observe(loader) == plain
    assert loader.stats()["errors"] == 4
    assert observe(loader) == plain  # and the next epoch


@pytest.mark.exhaustive
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize(
    "at", [(), (0,), (3,), (7,), (0, 1, 2, 3), (2, 4, 6), tuple(range(8))], ids=str
)
def test_errors_at_every_place_of_the_ring(twin, depth, at):
    data = Faulty(MAKERS["KeyError"], at=at, count=8)
    loader = FastLoader(data, num_workers=1, depth=depth, **NORMALISED, **twin.options)
    plain = observe(DataLoader(data, num_workers=1))
    for _ in range(2):
        assert observe(loader) == plain


def test_the_very_exception_with_its_traceback(way):
    error = ValueError("mine")
    loader = FastLoader(Faulty(lambda: error, at=(2,)), **NORMALISED, **way.options)
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(ValueError) as caught:
        next(iterator)
    assert caught.value is error
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "deliberately_fail" and "__getitem__" in names
    error.__traceback__ = None  # it leads from the dataset to the iterator


@pytest.mark.exhaustive
def test_the_traceback_from_a_worker(way):
    data = Faulty(MAKERS["ValueError"], at=(2,))
    iterator = iter(FastLoader(data, num_workers=2, **NORMALISED, **way.options))
    next(iterator), next(iterator)
    with pytest.raises(
        ValueError, match="Caught ValueError in DataLoader worker process"
    ) as caught:
        next(iterator)
    assert "deliberately_fail" in str(caught.value) and "bad picture" in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_errors(way, workers):
    def collate(samples):
        if samples[0][1] == 4:
            raise ArithmeticError("cannot collate")
        return torch.utils.data.default_collate(samples)

    options = {"batch_size": 2, "num_workers": workers, "collate_fn": collate}
    plain = observe(DataLoader(Pictures(8), **options))
    assert observe(FastLoader(Pictures(8), **options, **NORMALISED, **way.options)) == plain
    assert plain[2][0] is ArithmeticError


@pytest.mark.parametrize("workers", [0, 2])
def test_sampler_errors(way, workers):
    class Sampler:
        def __iter__(self):
            yield from (0, 1, 2)
            raise LookupError("sampler lost its way")

    def until_error(loader):
        seen = []
        try:
            for batch in loader:
                seen.append(batch[1].tolist())
        except LookupError as error:
            seen.append(str(error))
        return seen

    # Torch's workers are sent four batches ahead: with them the error comes from iter().
    plain = until_error(DataLoader(Pictures(), sampler=Sampler(), num_workers=workers))
    loader = FastLoader(
        Pictures(), sampler=Sampler(), num_workers=workers, **NORMALISED, **way.options
    )
    assert until_error(loader) == plain
    assert plain[-1] == "sampler lost its way"


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_dataset_errors(way, workers):
    class Source(IterableDataset):
        def __iter__(self):
            for index in range(3):
                yield torch.zeros(3, 2, 2, dtype=torch.uint8), index
            raise BufferError("stream broke")

    plain = observe(DataLoader(Source(), num_workers=workers))
    loader = FastLoader(Source(), num_workers=workers, **NORMALISED, **way.options)
    assert observe(loader) == plain
    assert any(each[0] is BufferError for each in plain if isinstance(each, tuple))


@pytest.mark.exhaustive
def test_worker_init_errors(way):
    def fail(worker):
        raise OSError(f"worker {worker} will not start")

    options = {"num_workers": 1, "worker_init_fn": fail}
    with pytest.raises(OSError, match="worker 0 will not start"):
        next(iter(FastLoader(Pictures(), **options, **NORMALISED, **way.options)))


# In a process of its own: torch raises the death of a worker in the main thread, wherever that is,
# also while the interpreter ends.
KILLED = """
    import os, signal
    from fastloader import FastLoader
    from support import MEAN, STD, Pictures

    class Suicidal(Pictures):
        def __getitem__(self, index):
            if index == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(index)

    loader = FastLoader(Suicidal(), num_workers=1, device="cpu", mean=MEAN, std=STD)
    seen = []
    try:
        for _, label in loader:
            seen.append(label.item())
    except RuntimeError as error:
        assert "DataLoader worker" in str(error), error
    except (ConnectionError, EOFError):
        pass  # the worker died while it handed over a batch; torch says no more
    else:
        raise AssertionError("no error")
    # Torch looks for dead workers while batches still lie in the queue.
    assert seen == list(range(len(seen))) and len(seen) <= 4, seen
    print("done", flush=True)
    os._exit(0)
"""


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_killed_worker_is_an_error_and_not_a_hang(way):
    assert run_script(KILLED, env=way.env).stdout == "done\n"


@pytest.mark.exhaustive
def test_worker_timeout(way, tmp_path):
    gate = torch.multiprocessing.get_context("fork").Event()

    class Slow(Pictures):
        def __getitem__(self, index):
            if index == 1:
                gate.wait(60)
            return super().__getitem__(index)

    loader = FastLoader(Slow(), num_workers=1, timeout=1, **NORMALISED, **way.options)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iterator)
    gate.set()
    del iterator
    loader.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
def test_delivered_batches_survive_an_error(way, workers):
    data = Faulty(MAKERS["ValueError"], at=(3,))
    loader = FastLoader(data, num_workers=workers, **NORMALISED, **way.options)
    kept = []
    with pytest.raises(ValueError):
        for image, label in loader:
            kept.append((image, image.clone(), label))
    assert [label.item() for *_, label in kept] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(ValueError):
            list(loader)
    assert all(torch.equal(image, copied) for image, copied, _ in kept)


@contextlib.contextmanager
def nothing_collected():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.exhaustive
def test_an_error_keeps_nothing_alive(way):
    """No reference cycle: what the loop held is freed at once, not when the collector comes by."""
    loader = FastLoader(Faulty(MAKERS["ValueError"], at=(1,)), **NORMALISED, **way.options)
    iterator = iter(loader)
    next(iterator)
    with nothing_collected():
        with contextlib.suppress(ValueError):
            next(iterator)
        seen = weakref.ref(iterator)
        del iterator
        assert seen() is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 1])
def test_a_refused_batch_keeps_nothing_alive(way, workers):
    data = [(torch.rand(2, 3, 4, 4), number) for number in range(3)]
    loader = FastLoader(data, batch_size=None, num_workers=workers, **NORMALISED, **way.options)
    iterator = iter(loader)
    with nothing_collected():
        with contextlib.suppress(TypeError):
            next(iterator)
        seen = weakref.ref(iterator)
        del iterator
        # The pump may be just leaving its handler.
        eventually(lambda: seen() is None, lambda: f"{seen()} freed")
