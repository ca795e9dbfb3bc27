"""Breaking out, closing, collecting, forking: no hang, no leak, and the loader can go on."""

import copy
import gc
import os
import pickle
import weakref

import pytest
import torch
from ways import EMULATED

from exact import normalised, same_bits
from fastloader import FastLoader
from support import (
    HANG,
    MEAN,
    STD,
    Pictures,
    children,
    eventually,
    labels,
    native_threads,
    nothing_left_running,
    our_threads,
    resident_bytes,
    ring_threads,
    run_script,
    running,
)

pytestmark = pytest.mark.covering

NORMALISED = {"mean": MEAN, "std": STD}
WORKERS = pytest.mark.parametrize("workers", [0, 2])
IN_ORDER = [[2 * i, 2 * i + 1] for i in range(6)]


def make(way, workers=0, **options):
    options = {"batch_size": 2, "num_workers": workers, **NORMALISED, **way.options, **options}
    return FastLoader(options.pop("dataset", None) or Pictures(12), **options)


@pytest.mark.exhaustive
@WORKERS
def test_early_break(way, workers):
    before = running()
    loader = make(way, workers)
    for _ in range(3):
        for _batch in loader:
            break
    assert labels(loader) == IN_ORDER
    del loader
    nothing_left_running(before)


@pytest.mark.exhaustive
def test_300_early_breaks_cost_nothing(way):
    loader = make(way)

    def break_often(times):
        for _ in range(times):
            for _batch in loader:
                break

    break_often(50)
    threads, descriptors = native_threads(), len(os.listdir("/proc/self/fd"))
    memory = resident_bytes()
    break_often(300)
    assert native_threads() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert resident_bytes() - memory < 8 << 20


@pytest.mark.exhaustive
def test_early_breaks_with_workers_leave_no_process(way):
    loader = make(way, 1)
    descriptors = None
    for number in range(8):
        for _batch in loader:
            break
        gc.collect()
        eventually(lambda: not children(), lambda: f"{children()} gone")
        if number == 2:
            descriptors = len(os.listdir("/proc/self/fd"))
    # A queue's own thread closes its end of the pipe, after the worker has ended.
    eventually(
        lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 4,
        lambda: f"{len(os.listdir('/proc/self/fd'))} descriptors down to {descriptors} and 4",
    )


@WORKERS
def test_exception_in_the_loop(way, workers):
    loader = make(way, workers)
    with pytest.raises(ZeroDivisionError):
        for _batch in loader:
            1 / 0  # noqa: B018
    assert labels(loader) == IN_ORDER


@WORKERS
def test_two_iterators_at_once(way, workers):
    loader = make(way, workers)
    one, other = iter(loader), iter(loader)
    seen = [[], []]
    for _ in range(6):
        seen[0].append(next(one)[1].tolist())
        seen[1].append(next(other)[1].tolist())
    assert seen == [IN_ORDER, IN_ORDER]
    for each in (one, other):
        with pytest.raises(StopIteration):
            next(each)


@pytest.mark.exhaustive
@WORKERS
def test_zip_of_a_loader_with_itself(way, workers):
    data = Pictures(12)
    loader = make(way, workers, dataset=data)
    for _ in range(2):
        pairs = list(zip(loader, loader))
        assert len(pairs) == 6
        for (image, label), (again, same) in pairs:
            assert torch.equal(label, same)
            same_bits(image, again)
            same_bits(image, normalised(data.images[label], MEAN, STD, torch.float32))


def test_nested_loops(way):
    loader = make(way)
    assert [labels(loader) for _ in loader] == [IN_ORDER] * 6


@pytest.mark.exhaustive
@WORKERS
def test_a_half_used_iterator_is_collected(way, workers):
    before = running()
    loader = make(way, workers)
    iterator = iter(loader)
    next(iterator)
    cycle = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    gc.collect()
    assert labels(loader) == IN_ORDER
    del loader
    nothing_left_running(before)


def test_a_data_set_that_leads_to_its_iterator_is_collected(way):
    """As one does that knows its trainer, which holds the iterator."""
    before = running()
    data = Pictures(12)
    loader = make(way, dataset=data)
    data.iterator = iter(loader)
    next(data.iterator)
    gone = weakref.ref(data)
    del data, loader
    gc.collect()
    assert gone() is None
    nothing_left_running(before)


@pytest.mark.exhaustive
@WORKERS
def test_an_iterator_outlives_its_loader(way, workers):
    iterator = iter(make(way, workers))
    gc.collect()
    assert [batch[1].tolist() for batch in iterator] == IN_ORDER


@WORKERS
def test_stop_iteration_stays(way, workers):
    iterator = iter(make(way, workers))
    list(iterator)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


@WORKERS
@pytest.mark.parametrize("state", ["fresh", "begun", "half", "ended", "two"])
def test_close_from_every_state(way, workers, state):
    before = running()
    loader = make(way, workers)
    kept = []
    iterators = []
    if state != "fresh":
        iterators = [iter(loader) for _ in range(2 if state == "two" else 1)]
    if state in ("half", "two"):
        kept = [next(each) for each in iterators]
    if state == "ended":
        kept = list(iterators[0])
    copies = [image.clone() for image, _ in kept]
    loader.close()
    loader.close()
    assert ring_threads() <= before
    for each in iterators:
        with pytest.raises(StopIteration):
            next(each)
    assert all(torch.equal(image, copied) for (image, _), copied in zip(kept, copies))
    assert labels(loader) == IN_ORDER  # iterating afterwards starts anew
    loader.close()
    iterators.clear()
    each = None
    nothing_left_running(before)


@WORKERS
def test_context_manager(way, workers):
    before = running()
    with make(way, workers) as loader:
        assert labels(loader) == IN_ORDER
        iterator = iter(loader)
        next(iterator)
    assert ring_threads() <= before
    del iterator
    nothing_left_running(before)
    with pytest.raises(RuntimeError, match="mine"):
        with make(way, workers) as loader:
            next(iter(loader))
            raise RuntimeError("mine")


def test_close_frees_the_ring_though_somebody_holds_an_iterator(twin):
    big = Pictures(4, size=(1000, 1000))
    loader = make(twin, dataset=big, batch_size=4, depth=4, mean=None, std=None, image_key=None)
    iterators = [iter(loader)]
    next(iterators[0])
    loader.close()
    small = resident_bytes()
    iterators = [iter(loader) for _ in range(3)]
    for each in iterators:
        next(each)
    assert resident_bytes() - small > 30 << 20
    loader.close()
    assert resident_bytes() - small < 10 << 20


@WORKERS
def test_the_next_epoch_uses_the_same_threads(twin, workers):
    before = native_threads()
    loader = make(twin, workers)
    labels(loader)
    threads = {tid: name for tid, name in native_threads().items() if tid not in before}
    # Of the twin's two streams, for copies and for kernels, each is a thread. CUDA's are none here.
    streams = [] if EMULATED else ["fl-twin", "fl-twin"]
    assert sorted(name.rstrip("-0123456789") for name in threads.values()) == [
        "fl-prefetch",
        "fl-reaper",
        *streams,
    ]
    for _ in range(3):
        labels(loader)
        next(iter(loader))
        gc.collect()
    assert threads.items() <= native_threads().items()
    assert native_threads().keys() <= {*before, *threads}
    assert loader.stats()["ring"]["slot_growths"] == 0


def test_the_default_depth(twin):
    for workers, depth, wanted in [(0, None, 2), (1, None, 3), (0, 5, 5)]:
        loader = make(twin, workers, depth=depth)
        labels(loader)
        assert loader.stats()["ring"]["depth"] == wanted


def test_persistent_workers_with_early_breaks(way):
    loader = make(way, 2, persistent_workers=True)
    for _batch in loader:
        break
    workers = children()
    assert len(workers) == 2
    assert labels(loader) == IN_ORDER
    for _batch in loader:
        break
    assert labels(loader) == IN_ORDER
    assert children() == workers


@pytest.mark.exhaustive
@WORKERS
def test_pickle_and_copies(way, workers):
    loader = make(way, workers, depth=2)
    labels(loader)
    for again in (pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)):
        assert type(again) is FastLoader and again.depth == 2 and again.mean == MEAN
        assert labels(again) == IN_ORDER
        again.close()
    assert labels(loader) == IN_ORDER
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(loader))


def test_statistics(way):
    loader = make(way)
    assert loader.stats()["batches"] == 0 and loader.stats()["path"] == way.path
    labels(loader)
    labels(loader)
    stats = loader.stats()
    assert stats["batches"] == 12 and stats["errors"] == 0 and stats["wait_s"] > 0
    loader.close()
    assert loader.stats()["batches"] == 12


# The garbage collector may end an iterator while its thread is anywhere, locks included.
COLLECTED = """
    import gc, sys
    from fastloader import FastLoader
    from support import MEAN, STD, Pictures

    loader = FastLoader(Pictures(4), device="cpu", mean=MEAN, std=STD)
    list(loader)
    for number in range(300):
        gc.disable()
        iterator = iter(loader)
        next(iterator)
        cycle = [iterator]
        cycle.append(cycle)
        del iterator, cycle
        gc.set_threshold(1 + number % 12, 1, 1)
        gc.enable()
        loader.close()
        if number % 3:
            next(iter(loader))
        gc.set_threshold(700, 10, 10)
    print("done")
"""


@pytest.mark.processes
def test_collection_in_the_middle_of_close(twin):
    assert run_script(COLLECTED, env=twin.env, timeout=HANG).stdout == "done\n"


FORK = """
    import os, sys, torch
    torch.set_num_threads(1)  # OpenMP does not survive a fork
    from fastloader import FastLoader
    from support import MEAN, STD, Pictures, children, eventually, labels, native_threads

    loader = FastLoader(Pictures(8), batch_size=2, num_workers=int(sys.argv[1]), device="cpu",
                        mean=MEAN, std=STD)
    right = labels(loader)
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                next(iterator)
            except RuntimeError as error:
                assert str(os.getpid()) in str(error) and "iter()" in str(error), error
            else:
                assert False, "the inherited iterator went on"
            assert not native_threads()
            del iterator
            {begin}
            loader.close()
            assert not native_threads()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [batch[1].tolist() for batch in iterator] == right[1:]
    assert labels(loader) == right
    print("done")
"""


# What the child may do with the loader. CUDA serves no child of a process that has used it.
ANEW = "assert labels(loader) == right and labels(loader) == right"
REFUSED = """
            for _ in range(2):
                try:
                    iter(loader)
                except RuntimeError as error:
                    assert "forked after CUDA was first used" in str(error), error
                else:
                    assert False, "an epoch began"
            eventually(lambda: not children(), lambda: f"{children()} gone")
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@WORKERS
def test_fork(way, workers):
    if workers and way.path == "cpu":
        pytest.skip("torch's own worker iterator cannot be told apart in a child")
    source = FORK
    if not workers and way.path == "cpu":  # nothing of the parent's is missing here
        source = FORK.replace("except RuntimeError as error:", "except ZeroDivisionError as error:")
        source = source.replace('assert False, "the inherited iterator went on"', "pass")
    source = source.replace("{begin}", REFUSED.strip() if EMULATED else ANEW)
    assert run_script(source, workers, env=way.env).stdout == "done\n"


FORK_AND_DROP = """
    import os, sys, torch
    torch.set_num_threads(1)
    from fastloader import FastLoader
    from support import MEAN, STD, Pictures

    go = torch.multiprocessing.get_context("fork").Event()

    class Gated(Pictures):
        def __getitem__(self, index):
            assert go.wait(60)
            return super().__getitem__(index)

    delivered = {"device": "cpu", "mean": MEAN, "std": STD} if sys.argv[1] == "yes" else {}
    loader = FastLoader(Gated(8), batch_size=2, num_workers=2, timeout=20, **delivered)
    iterator = iter(loader)
    child = os.fork()
    if child == 0:
        del iterator
        os._exit(0)
    os.waitpid(child, 0)
    go.set()  # not before, or the workers might be done with what they have been given
    print(*(batch[1].tolist() for batch in iterator))
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("delivered", ["yes", "no"])
def test_an_iterator_dropped_in_a_forked_child_leaves_the_parents_workers_alone(way, delivered):
    """With DataLoader they are told to end, and the parent waits for ever."""
    done = run_script(FORK_AND_DROP, delivered, env=way.env)
    assert done.stdout == "[0, 1] [2, 3] [4, 5] [6, 7]\n", done.stderr
    assert done.stderr == ""


def test_a_pump_thread_only_where_there_are_workers(twin):
    iterator = iter(make(twin, 0))
    next(iterator)
    assert "fastloader-pump" not in our_threads()
    iterator = iter(make(twin, 1))
    next(iterator)
    assert "fastloader-pump" in our_threads()
