"""fastloader.compat.prefetch_generator beside the original, and where it is better."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader.compat.prefetch_generator import (
    BackgroundGenerator,
    DataLoaderX,
    background,
    prefetch,
)
from support import HANG, MEAN, STD, Pictures, same

try:
    import prefetch_generator as original
except ImportError:
    original = None

DATA = Pictures(10)


def producers():
    return [each for each in threading.enumerate() if each.name == "BackgroundGenerator"]


@pytest.fixture(autouse=True)
def _no_thread_left():
    gc.collect()
    for thread in producers():
        thread.join(10)
    assert not producers()
    yield
    gc.collect()
    for thread in producers():
        thread.join(10)
    assert not producers(), "a thread outlived its generator"


both = pytest.mark.parametrize(
    "make",
    [
        BackgroundGenerator,
        pytest.param(
            getattr(original, "BackgroundGenerator", None),
            marks=pytest.mark.skipif(
                original is None, reason="prefetch_generator is not installed"
            ),
        ),
    ],
    ids=["ours", "original"],
)


class Faulty:
    """Gives ``count`` numbers, then raises ``error``."""

    def __init__(self, count, error):
        self.count = count
        self.error = error

    def __iter__(self):
        yield from range(self.count)
        raise self.error


@pytest.mark.exhaustive
@both
@pytest.mark.parametrize("ahead", [-1, 0, 1, 3, 50])
def test_order(make, ahead):
    assert list(make(iter(range(20)), ahead)) == list(range(20))


@both
def test_any_iterable_and_preprocessing(make):
    assert list(make([3, 1, 2], 2, lambda x: -x)) == [-3, -1, -2]
    assert list(make("abc", max_prefetch=2)) == ["a", "b", "c"]


@both
def test_exception_in_its_place_then_the_end_for_ever(make):
    error = KeyError("broken", 7)
    taken = make(Faulty(3, error), 1)
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError) as caught:
        next(taken)
    assert caught.value is error
    for _ in range(3):
        with pytest.raises(StopIteration):
            taken.next()
    assert taken.Continue is False


@both
def test_look_ahead(make):
    """max_prefetch items wait, one more is finished: not one beyond that is begun."""
    begun = []
    reached = threading.Semaphore(0)

    def source():
        for number in range(10):
            begun.append(number)
            reached.release()
            yield number

    taken = make(source(), 2)
    for _ in range(3):
        assert reached.acquire(timeout=10)
    assert not reached.acquire(timeout=0.2)
    assert begun == [0, 1, 2]
    assert next(taken) == 0
    assert reached.acquire(timeout=10)
    assert list(taken) == list(range(1, 10))


@both
def test_unbounded(make):
    done = threading.Event()

    def source():
        yield from range(1000)
        done.set()

    taken = make(source(), 0)
    assert done.wait(10)
    assert list(taken) == list(range(1000))


@both
def test_attributes(make):
    source = iter([1])
    taken = make(source, 4)
    assert taken.generator is source and taken.preprocess_func is None
    assert iter(taken) is taken and list(taken) == [1] and taken.queue.qsize() in (0, 1)
    taken.join(10)
    assert not taken.is_alive()


@pytest.mark.parametrize("error", [KeyboardInterrupt("k"), SystemExit(3), GeneratorExit("g")])
def test_base_exceptions_arrive(error):
    taken = BackgroundGenerator(Faulty(1, error))
    assert next(taken) == 0
    with pytest.raises(type(error)) as caught:
        next(taken)
    assert caught.value is error
    assert list(taken) == []


@pytest.mark.parametrize("ahead", [1, 5])
def test_dropping_it_ends_the_thread_and_frees_everything(ahead):
    class Item:
        pass

    made = weakref.WeakSet()
    closed = threading.Event()

    def source():
        try:
            while True:
                item = Item()
                made.add(item)
                yield item
                del item
        finally:
            closed.set()

    taken = BackgroundGenerator(source(), ahead)
    next(taken)
    (thread,) = producers()
    del taken
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    assert closed.is_set(), "the generator's finally clause has not run"
    assert not made


def test_dropping_while_the_source_works():
    inside, go_on = threading.Event(), threading.Event()

    def source():
        yield 0
        inside.set()
        go_on.wait(30)
        yield 1
        raise AssertionError("advanced after it was dropped")

    taken = BackgroundGenerator(source())
    next(taken)
    assert inside.wait(10)
    (thread,) = producers()
    del taken
    go_on.set()
    thread.join(10)
    assert not thread.is_alive()


def test_close_and_context_manager():
    with BackgroundGenerator(iter(range(1000)), 3) as taken:
        assert next(taken) == 0
    assert not taken.is_alive()
    assert list(taken) == []
    taken.close()
    assert taken.queue.empty()


def test_close_wakes_a_waiting_consumer():
    go_on = threading.Event()

    def source():
        go_on.wait(30)
        yield 1

    taken = BackgroundGenerator(source())
    got = []
    waiting = threading.Thread(target=lambda: got.append(list(taken)))
    waiting.start()
    taken._closing()
    waiting.join(10)
    go_on.set()
    assert got == [[]]


def test_length_and_attributes_pass_through():
    loader = DataLoader(DATA, batch_size=4)
    taken = BackgroundGenerator(loader)
    assert len(taken) == 3 and taken.batch_size == 4 and taken.dataset is DATA
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = taken.nothing_of_the_kind
    with pytest.raises(TypeError, match="len"):
        len(BackgroundGenerator(x for x in [1]))
    with pytest.raises(NotImplementedError, match="thread"):
        pickle.dumps(taken)


@both
def test_it_is_true_with_and_without_a_length(make):
    assert make(x for x in [1]) and make([])


def test_the_end_reaches_every_thread_that_waits():
    go_on = threading.Event()

    def source():
        go_on.wait(10)
        yield 1

    taken = BackgroundGenerator(source())
    got = []
    waiting = [threading.Thread(target=lambda: got.extend(taken), daemon=True) for _ in range(4)]
    for thread in waiting:
        thread.start()
    go_on.set()
    for thread in waiting:
        thread.join(10)
    assert not any(thread.is_alive() for thread in waiting) and got == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((5,), "iterable, got int"), (([1], 1.5), "max_prefetch"), (([1], True), "max_prefetch")],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(TypeError, match=message):
        BackgroundGenerator(*arguments)


def test_decorator_with_and_without_parentheses():
    @background
    def bare(count):
        """Counts."""
        yield from range(count)

    @background()
    def empty(count):
        yield from range(count)

    @background(max_prefetch=3)
    def named(count):
        yield from range(count)

    @prefetch(2)
    def positional(count):
        yield from range(count)

    for function, ahead in ((bare, 1), (empty, 1), (named, 3), (positional, 2)):
        taken = function(count=4)
        assert isinstance(taken, BackgroundGenerator) and taken.max_prefetch == ahead
        assert list(taken) == list(range(4)) == list(function(4))
    assert bare.__name__ == "bare" and bare.__doc__ == "Counts."


def test_decorated_methods():
    class Corpus:
        def __init__(self, lines):
            self.lines = lines

        @background(2)
        def batches(self):
            yield from self.lines

    assert list(Corpus([1, 2]).batches()) == [1, 2]


def test_ten_thousand_generators_leave_nothing():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    for _ in range(100):
        next(BackgroundGenerator(iter(range(5))))
    gc.collect()
    before = threading.active_count(), descriptors(), len(gc.get_objects())
    for turn in range(10_000):
        taken = BackgroundGenerator(iter(range(5)), turn % 3)
        next(taken)
        if turn % 2:
            list(taken)
    del taken
    for thread in producers():
        thread.join(10)
    gc.collect()
    after = threading.active_count(), descriptors(), len(gc.get_objects())
    # Fewer where an earlier test's threads end meanwhile.
    assert after[0] <= before[0] and after[1] <= before[1]
    assert after[2] - before[2] < 200


def test_a_forked_child_says_what_is_wrong():
    taken = BackgroundGenerator(iter(range(5)))
    next(taken)
    pid = os.fork()
    if pid == 0:
        try:
            next(taken)
        except RuntimeError as error:
            fine = "after the fork" in str(error)
            # One made here works, and the parent's may be dropped.
            fine = fine and list(BackgroundGenerator([1, 2])) == [1, 2]
            del taken
            gc.collect()
            os._exit(0 if fine else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(taken) == [1, 2, 3, 4]


@pytest.mark.processes
@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "os.kill(os.getpid(), 2)"])
def test_exit_with_a_thread_at_work(end):
    """Neither a thread that waits for room nor one inside the source keeps the process."""
    program = f"""
import os, time
from fastloader.compat.prefetch_generator import BackgroundGenerator
def slow():
    yield 1
    time.sleep(1000)
a = BackgroundGenerator(iter(range(10**9)), 1)
b = BackgroundGenerator(slow(), 1)
next(a), next(b)
try:
    {end}
except KeyboardInterrupt:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=HANG, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


# --- DataLoaderX ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_x_gives_what_data_loader_gives(workers):
    options = {"batch_size": 3, "shuffle": True, "num_workers": workers}
    expected = list(DataLoader(DATA, **options, generator=torch.Generator().manual_seed(1)))
    loader = DataLoaderX(DATA, **options, generator=torch.Generator().manual_seed(1))
    assert isinstance(loader, DataLoader) and len(loader) == 4
    taken = iter(loader)
    assert isinstance(taken, BackgroundGenerator) and len(taken) == 4
    same(list(taken), expected)


@pytest.mark.exhaustive
def test_data_loader_x_delivers(way):
    options = {"batch_size": 4, "mean": MEAN, "std": STD, **way.options}
    same(list(DataLoaderX(DATA, **options)), list(FastLoader(DATA, **options)))


def test_data_loader_x_with_persistent_workers_and_early_breaks():
    loader = DataLoaderX(DATA, batch_size=2, num_workers=2, persistent_workers=True, max_prefetch=2)
    expected = list(DataLoader(DATA, batch_size=2))
    for _ in range(5):
        for _batch in loader:
            break
        same(list(loader), expected)


def test_data_loader_x_can_be_pickled():
    loader = DataLoaderX(DATA, batch_size=2, max_prefetch=3)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    assert again.max_prefetch == 3
    same(list(again), list(loader))


def test_the_tutorials_own_subclass():
    class Own(FastLoader):
        def __iter__(self):
            return BackgroundGenerator(super().__iter__(), max_prefetch=4)

    same(list(Own(DATA, batch_size=4)), list(DataLoader(DATA, batch_size=4)))


@pytest.mark.processes
def test_import_needs_no_torch():
    program = (
        "import sys; import fastloader.compat.prefetch_generator as p; "
        "assert list(p.BackgroundGenerator([1])) == [1]; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], timeout=HANG, check=True)
