"""The native image path takes samples in torch's order, draws what torch draws, and gives each sample
the same crop however it is worked on."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
from pictures import plain_folder, script
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import HANG, same

COUNT = 23
CROPS = T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("order"), COUNT, classes=COUNT))


@pytest.fixture(scope="module")
def crops(root):
    return ImageFolder(root, CROPS)


@pytest.fixture(scope="module")
def whole(root):
    return ImageFolder(root, T.Resize((12, 10)))


def generator(seed):
    return torch.Generator().manual_seed(seed)


class Own(Sampler):
    def __init__(self, indices):
        self.indices = indices

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


CASES = {
    "sequential": lambda: {"batch_size": 4},
    "one": lambda: {},
    "drop_last": lambda: {"batch_size": 4, "drop_last": True},
    "shuffle": lambda: {"batch_size": 4, "shuffle": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": generator(5)},
    "subset": lambda: {"batch_size": 2, "sampler": SubsetRandomSampler([1, 3, 5], generator(6))},
    "weighted": lambda: {
        "batch_size": 4,
        "sampler": WeightedRandomSampler([1.0] * COUNT, 31, generator=generator(7)),
    },
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 4, False)},
    "list of batches": lambda: {"batch_sampler": [[1, 2], [5], [0, 3, 4]]},
    "distributed": lambda: {
        "batch_size": 4,
        "sampler": DistributedSampler(range(COUNT), num_replicas=2, rank=1),
    },
    "own": lambda: {"batch_size": 3, "sampler": Own([3, 3, -1, 0, 22, 3])},
    "iterable": lambda: {"batch_size": 3, "sampler": range(5, 19)},
    "tensors": lambda: {"batch_size": 3, "sampler": Own(list(torch.arange(6)))},
    "empty": lambda: {"batch_size": 3, "sampler": Own([])},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("workers", [0, 2])
def test_order_and_generators_are_torchs(whole, device, name, workers):
    def observe(kind, **options):
        torch.manual_seed(9)
        loader = kind(whole, num_workers=workers, **CASES[name](), **options)
        seen = []
        for _ in range(3):
            seen.append([[images.clone(), labels] for images, labels in loader])
            seen.append(torch.get_rng_state())
            if loader.generator is not None:
                seen.append(loader.generator.get_state())
        seen.append(len(loader))
        return seen

    with_ours = observe(FastLoader, **device)
    same(with_ours, observe(DataLoader))


@pytest.mark.parametrize("name", ["shuffle", "generator"])
def test_order_is_torchs_with_persistent_workers(whole, device, name):
    """Their seed is drawn once, at the first epoch."""

    def observe(kind, **options):
        torch.manual_seed(9)
        seen = []
        loader = kind(whole, num_workers=1, persistent_workers=True, **CASES[name](), **options)
        for _ in range(3):
            seen.append([[images.clone(), labels] for images, labels in loader])
            seen.append(torch.get_rng_state())
        return seen

    same(observe(FastLoader, **device), observe(DataLoader))


def test_epochs_of_persistent_workers_get_crops_of_their_own(crops):
    def epochs(closing):
        options = {"num_workers": 1, "persistent_workers": True, "generator": generator(2)}
        loader = FastLoader(crops, COUNT, **options)
        boxes = []
        for _ in range(3):
            next(iter(loader))
            boxes.append([loader.replay(i)["box"] for i in range(COUNT)])
            if closing:
                loader.close()
        return boxes

    first, again, closed = epochs(False), epochs(False), epochs(True)
    assert first == again
    assert first[0] != first[1] != first[2] != first[0]
    # close() ends the workers, so that the next epoch draws anew.
    assert closed[0] == first[0] and closed[1] != first[1]


def test_structure_is_default_collates(whole, device):
    batch = next(iter(FastLoader(whole, 4, **device)))
    reference = next(iter(DataLoader(whole, 4)))
    assert type(batch) is type(reference) is list and len(batch) == 2
    assert batch[1].dtype == torch.int64 and batch[1].device == reference[1].device
    same(batch, reference)


def test_nothing_is_drawn_before_iter(crops, device):
    state, own = torch.get_rng_state(), generator(3)
    before = own.get_state()
    loader = FastLoader(crops, 4, shuffle=True, generator=own, **device)
    loader.plan(), len(loader), loader.stats(), repr(loader)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(own.get_state(), before)
    iter(loader)
    assert torch.equal(torch.get_rng_state(), state)  # its generator was given
    assert not torch.equal(own.get_state(), before)


# --- crops --------------------------------------------------------------------------------------


def epoch(dataset, seed=1, **options):
    """{label: picture}; the label is the sample's index."""
    torch.manual_seed(seed)
    options = {"batch_size": 4, "num_workers": 2, **options}
    seen = {}
    for images, labels in FastLoader(dataset, **options):
        for image, label in zip(images, labels.tolist()):
            seen.setdefault(label, []).append(image.clone())
    return seen


def test_same_seed_same_crops_for_any_number_of_threads(crops, device):
    reference = epoch(crops, shuffle=True)
    for workers in (0, 1, 2, 3, 7):
        same(epoch(crops, shuffle=True, num_workers=workers, **device), reference)


def test_crops_do_not_depend_on_order_or_batches(crops):
    """They are a function of (base seed, sample index), and both samplers draw the base seed first."""
    reference = epoch(crops, shuffle=True)
    for options in (
        {"shuffle": False},
        {"shuffle": True, "batch_size": 7},
        {"shuffle": False, "batch_size": 1, "num_workers": 1},
    ):
        got = epoch(crops, **options)
        same({label: got[label] for label in reference}, reference)


def test_crops_do_not_depend_on_the_rank_layout(crops):
    def boxes(ranks):
        found = {}
        for rank in range(ranks):
            sampler = DistributedSampler(range(COUNT), num_replicas=ranks, rank=rank, seed=ranks)
            loader = FastLoader(crops, 4, sampler=sampler, generator=generator(2))
            list(loader)
            found |= {index: loader.replay(index)["box"] for index in sampler}
        return found

    alone = boxes(1)
    assert len(alone) == COUNT
    assert boxes(2) == boxes(5) == alone


def test_another_seed_other_crops(crops):
    one, other = epoch(crops, 1), epoch(crops, 2)
    assert sum(not torch.equal(one[i][0], other[i][0]) for i in one) >= COUNT - 2


def test_another_epoch_other_crops(crops, device):
    torch.manual_seed(1)
    loader = FastLoader(crops, COUNT, **device)
    (one, _), (other, _) = (next(iter(loader)) for _ in range(2))
    assert sum(not torch.equal(a, b) for a, b in zip(one, other)) >= COUNT - 2


def test_same_crops_across_processes(crops, root):
    import hashlib

    source = """
        import hashlib, sys, torch
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        chain = T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()])
        torch.manual_seed(1)
        loader = FastLoader(ImageFolder(sys.argv[1], chain), 4, shuffle=True, num_workers=3)
        digest = hashlib.sha256()
        for images, labels in loader:
            digest.update(images.numpy().tobytes() + labels.numpy().tobytes())
        print(digest.hexdigest())
    """
    torch.manual_seed(1)
    digest = hashlib.sha256()
    for images, labels in FastLoader(crops, 4, shuffle=True, num_workers=1):
        digest.update(images.numpy().tobytes() + labels.numpy().tobytes())
    assert script(source, root).stdout.strip() == digest.hexdigest()


def test_views_share_the_crops_of_their_samples(crops):
    """A sample's key is its place in the folder, whichever Subset it comes through."""
    reference = epoch(crops)
    some = [5, 17, 2, 11]
    for view in (Subset(crops, some), Subset(Subset(crops, [0, *some, 3]), [1, 2, 3, 4])):
        same(epoch(view), {i: reference[i] for i in some})


def test_a_sample_that_two_parts_of_a_concatenation_share_gets_two_crops(crops):
    seen = epoch(ConcatDataset([crops, crops]))
    assert all(len(images) == 2 for images in seen.values())
    assert sum(not torch.equal(*images) for images in seen.values()) >= COUNT - 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"sampler": WeightedRandomSampler([1.0, *[0.0] * (COUNT - 1)], 12)},
        lambda: {"sampler": RandomSampler(range(1), replacement=True, num_samples=12)},
        lambda: {"sampler": RandomSampler(range(COUNT), num_samples=2 * COUNT)},
        lambda: {"sampler": Own([0] * 12)},
        lambda: {"batch_sampler": [[0, 0, 0], [0, 0]]},
    ],
    ids=["weighted", "replacement", "more than once around", "own", "batches"],
)
def test_repeated_samples_get_different_crops(crops, make):
    options = make()
    if "batch_sampler" in options:
        options["batch_size"] = 1
    seen = epoch(crops, **options)
    assert len(seen[0]) >= 2
    different = {image.numpy().tobytes() for image in seen[0]}
    assert len(different) >= len(seen[0]) - 1
    # ... and are the same on every run, for any number of threads.
    same(
        epoch(
            crops,
            **{**make(), **({"batch_size": 1} if "batch_sampler" in options else {})},
            num_workers=3,
        ),
        seen,
    )


def test_replay_knows_what_came_and_only_that(crops):
    loader = FastLoader(crops, 4)
    with pytest.raises(ValueError, match="no epoch"):
        loader.replay(0)
    for images, _labels in loader:
        assert images.shape[1:] == (3, 12, 12)
    for index in range(COUNT):
        found = loader.replay(index)
        left, top, width, height = found["box"]
        assert min(left, top) >= 0 and min(width, height) >= 1
        assert type(found["hflip"]) is bool and found["vflip"] is False
    with pytest.raises(ValueError):
        loader.replay(COUNT)
    with pytest.raises(ValueError, match="Python path"):
        FastLoader(crops, 4, native=False).replay(0)


# --- iterators ----------------------------------------------------------------------------------


def labels(loader):
    return [batch[1].tolist() for batch in loader]


IN_ORDER = [list(range(COUNT))[i : i + 4] for i in range(0, COUNT, 4)]


def test_early_breaks(whole, device):
    loader = FastLoader(whole, 4, **device)
    for _ in range(20):
        for _batch in loader:
            break
    assert labels(loader) == IN_ORDER


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_early_break_leaves_the_generator_as_torch_does(whole, workers):
    """RandomSampler draws once more at its end, and torch asks it as far ahead as its workers go."""

    def scenario(kind, taken, options):
        generator = torch.Generator().manual_seed(3)
        loader = kind(whole, 5, shuffle=True, generator=generator, num_workers=workers, **options)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        state = generator.get_state()
        del iterator
        return [state, *(labels for _, labels in loader)]

    for options in ({}, {"prefetch_factor": 1}, {"drop_last": True}):
        for taken in range(COUNT // 5 + 1):
            same(scenario(FastLoader, taken, options), scenario(DataLoader, taken, options))


def test_two_iterators_and_zip(crops, device):
    loader = FastLoader(crops, 4, **device)
    a, b = iter(loader), iter(loader)
    (one, first), (other, second) = next(a), next(b)
    assert torch.equal(first, second) and not torch.equal(one, other)
    assert [x[1].tolist() for x in itertools.chain(a)] == IN_ORDER[1:]
    assert [x[1].tolist() for x in b] == IN_ORDER[1:]
    assert [(x[1].tolist(), y[1].tolist()) for x, y in zip(loader, loader)] == list(
        zip(IN_ORDER, IN_ORDER)
    )


def test_an_ended_iterator_stays_ended(whole, device):
    iterator = iter(FastLoader(whole, 20, **device))
    assert len(list(iterator)) == 2
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


def test_close_ends_iterators_and_the_loader_goes_on(whole, device):
    loader = FastLoader(whole, 4, **device)
    iterator = iter(loader)
    kept = next(iterator)
    copy = kept[0].clone()
    loader.close()
    loader.close()
    with pytest.raises((StopIteration, RuntimeError)):
        for _ in range(10):
            next(iterator)
    same(kept[0], copy)
    assert labels(loader) == IN_ORDER
    with FastLoader(whole, 4, **device) as again:
        next(iter(again))


def test_loader_may_go_before_its_iterator_and_the_batches(crops, device):
    torch.manual_seed(1)
    reference = [images.clone() for images, _ in FastLoader(crops, 4, **device)]
    torch.manual_seed(1)
    loader = FastLoader(crops, 4, **device)
    iterator = iter(loader)
    first = next(iterator)[0]
    del loader
    gc.collect()
    rest = [images for images, _ in iterator]
    del iterator
    gc.collect()
    same([first, *rest], reference)


def test_iterators_that_are_dropped_leave_nothing(whole, device):
    loader = FastLoader(whole, 4, **device)
    iterators = [iter(loader) for _ in range(5)]
    for iterator in iterators:
        next(iterator)
    loop = [iterators]
    loop.append(loop)
    del iterators, iterator, loop
    gc.collect()
    assert labels(loader) == IN_ORDER


def test_iterators_on_many_threads(crops):
    """One pool serves them all."""
    torch.manual_seed(1)
    results, seeds = {}, {}

    def work(number):
        own = generator(number % 2)
        loader = FastLoader(crops, 4, generator=own, num_workers=1)
        results[number] = [images.clone() for images, _ in loader]
        seeds[number] = number % 2

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        same(results[number], results[number % 2])
    assert not torch.equal(results[0][0], results[1][0])


def test_sampler_error_takes_its_batchs_place(whole, device):
    class Broken(Own):
        def __iter__(self):
            yield from range(6)
            raise KeyError("sampler")

    iterator = iter(FastLoader(whole, 2, sampler=Broken([0] * 9), **device))
    for first in (0, 2, 4):
        assert next(iterator)[1].tolist() == [first, first + 1]
    with pytest.raises(KeyError, match="sampler"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("bad", [COUNT, -COUNT - 1, 10**6])
def test_index_beyond_the_end(whole, device, bad):
    iterator = iter(FastLoader(whole, 2, sampler=Own([0, 1, bad, 2, 3, 4]), **device))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(IndexError):
        next(iterator)
    assert next(iterator)[1].tolist() == [3, 4]


def test_batch_without_an_index(whole, device):
    batches = Own([[0, 1], [], [2]])
    with pytest.raises(IndexError):
        list(DataLoader(whole, batch_sampler=batches))
    iterator = iter(FastLoader(whole, batch_sampler=batches, **device))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(IndexError):
        next(iterator)
    assert next(iterator)[1].tolist() == [2]


@pytest.mark.parametrize("bad", [1.0, "1", None])
def test_index_that_is_none(whole, device, bad):
    iterator = iter(FastLoader(whole, 2, sampler=Own([0, 1, bad, 2, 3, 4]), **device))
    assert next(iterator)[1].tolist() == [0, 1]
    with pytest.raises(TypeError):
        next(iterator)
    assert next(iterator)[1].tolist() == [3, 4]


def test_loader_pickles_and_copies(crops):
    import pickle

    loader = FastLoader(crops, 4, shuffle=True, generator=generator(3))
    next(iter(loader))
    loader.generator.manual_seed(3)
    again = pickle.loads(pickle.dumps(loader))
    same(
        [[i.clone(), x] for i, x in again],
        [[i.clone(), x] for i, x in loader],
    )


# --- processes ----------------------------------------------------------------------------------

START = """
    import os, signal, sys, threading, torch
    from fastloader import FastLoader, transforms as T
    from fastloader.datasets import ImageFolder
    dataset = ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(12)]))
    loader = FastLoader(dataset, 2, num_workers=2, device="cpu")
"""
DELIVERIES = pytest.mark.parametrize("backend", ["", "host", "torch"])


def environment(backend):
    return {"FASTLOADER_BACKEND": backend} if backend else {}


@DELIVERIES
def test_fork(root, backend):
    source = textwrap.dedent(START) + textwrap.dedent("""
        it = iter(loader); next(it)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                try:
                    next(it)
                except RuntimeError as error:
                    assert "process" in str(error) or "fork" in str(error), error
                    labels = [x for _, y in loader for x in y.tolist()]
                    assert labels == dataset.targets.tolist(), labels
                    code = 0
            except BaseException:
                import traceback; traceback.print_exc()
            finally:
                os._exit(code)
        import time
        deadline = time.monotonic() + 20
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done: break
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); sys.exit("the child hung")
            time.sleep(0.01)
        assert status == 0, status
        assert sum(len(y) for _, y in it) == len(dataset) - 2
    """)
    script(source, root, env=environment(backend), timeout=HANG)


ENDINGS = {
    "half-used iterator": ("it = iter(loader); next(it)", 0),
    "untouched iterator": ("it = iter(loader)", 0),
    "two": ("a, b = iter(loader), iter(loader); next(a); next(b)", 0),
    "exit in the loop": ("for batch in loader: sys.exit(7)", 7),
    "kept batches": ("kept = list(loader)", 0),
    "in a module": ("sys.held = (loader, iter(loader)); next(sys.held[1])", 0),
    "cycle": ("it = iter(loader); next(it); loop = [it]; loop.append(loop); del it, loop", 0),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_end_of_the_process(root, name):
    """No hang, no crash, no noise; the three deliveries at once, each in its own process."""
    body, status = ENDINGS[name]
    source = textwrap.dedent(START) + "\n" + body
    failures = []

    def run(backend):
        done = script(source, root, env=environment(backend), timeout=HANG, check=False)
        if done.returncode != status or done.stderr.strip():
            failures.append((backend, done.returncode, done.stderr))

    threads = [threading.Thread(target=run, args=(each,)) for each in ("", "host", "torch")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@DELIVERIES
def test_ctrl_c(root, backend, tmp_path):
    """A picture that never comes holds next() up; Ctrl-C still arrives."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "empty.jpg").touch()
    source = textwrap.dedent(START) + textwrap.dedent("""
        import threading
        from fastloader import _files

        _files.open_rgb = lambda path: threading.Event().wait()
        it = iter(loader)
        print("ready", flush=True)
        try:
            next(it)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(5)
    """)
    import pictures

    environ = {**os.environ, **environment(backend)}
    paths = [os.path.dirname(os.path.dirname(sys.modules["fastloader"].__file__))]
    environ["PYTHONPATH"] = os.pathsep.join([*paths, os.path.dirname(pictures.__file__)])
    process = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )
    try:
        assert process.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out.strip()) == (5, "interrupted"), err
