"""Arguments, attributes and what frameworks do to a loader: as with DataLoader."""

import copy
import inspect
import itertools
import multiprocessing
import pickle

import pytest
import torch
from side_by_side import Numbers, batches, image, rebuilt, same_for_both, since_2_6
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from fastloader import FastLoader
from support import MEAN, STD, children, eventually, random_images

pytestmark = pytest.mark.covering


class Endless(IterableDataset):
    def __iter__(self):
        for number in itertools.count():
            yield image(number), number

    def __repr__(self):
        return "Endless()"


SAMPLER = SequentialSampler(range(10))
WRONG = {
    "num_workers": {"num_workers": -1},
    "timeout": {"timeout": -1},
    "prefetch_factor alone": {"prefetch_factor": 2},
    "prefetch_factor": {"num_workers": 1, "prefetch_factor": -2},
    "persistent_workers": {"persistent_workers": True},
    "sampler and shuffle": {"sampler": SAMPLER, "shuffle": True},
    "batch_sampler and batch_size": {"batch_sampler": [[1]], "batch_size": 2},
    "batch_sampler and shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch_sampler and sampler": {"batch_sampler": [[1]], "sampler": SAMPLER},
    "batch_sampler and drop_last": {"batch_sampler": [[1]], "drop_last": True},
    "drop_last alone": {"batch_size": None, "drop_last": True},
    "batch_size": {"batch_size": 0},
    "batch_size bool": {"batch_size": True},
    "batch_size float": {"batch_size": 2.5},
    "drop_last": {"drop_last": 1},
    "context without workers": {"multiprocessing_context": "spawn"},
    "context": {"num_workers": 1, "multiprocessing_context": "teleport"},
    "context object": {"num_workers": 1, "multiprocessing_context": object},
    "iterable and shuffle": {"dataset": Endless(), "shuffle": True},
    "iterable and sampler": {"dataset": Endless(), "sampler": [1]},
    "iterable and batch_sampler": {"dataset": Endless(), "batch_sampler": [[1]]},
    "several": {"num_workers": -1, "timeout": -1, "batch_size": 0},
    "empty and shuffle": {"dataset": [], "shuffle": True},
    "unknown": {"workers": 2},
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_that_are_refused(fast, case):
    def scenario(make):
        arguments = dict(WRONG[case])
        try:
            make(arguments.pop("dataset", Numbers()), **arguments)
        except Exception as error:
            said = str(error).replace("FastLoader", "DataLoader")
            return type(error), said.replace(f"{object!r}", "").replace(f"{SAMPLER!r}", "")
        return "accepted"

    same_for_both(fast, scenario)


ACCEPTED = {
    "nothing": {},
    "positional": {"batch_size": 4, "shuffle": True},
    "iterable shuffle False": {"dataset": Endless(), "shuffle": False, "batch_size": 3},
    "batch_sampler": {"batch_sampler": [[1, 2]]},
    "no batches": {"batch_size": None},
    "workers": {"num_workers": 2, "timeout": 4.5, "persistent_workers": True},
    "prefetch": {"num_workers": 1, "prefetch_factor": 7},
    **({"order": {"num_workers": 1, "in_order": False}} if since_2_6 else {}),
    "context": {"num_workers": 1, "multiprocessing_context": "spawn"},
    "pin": {"pin_memory": True, "pin_memory_device": "cuda"},
    "functions": {"worker_init_fn": print, "collate_fn": list, "generator": torch.Generator()},
}
ATTRIBUTES = (
    *("batch_size", "drop_last", "num_workers", "prefetch_factor", "pin_memory", "timeout"),
    *("pin_memory_device", "worker_init_fn", "generator", "collate_fn"),
    *(["in_order"] if since_2_6 else []),
    *("persistent_workers", "_iterator", "_dataset_kind", "_auto_collation"),
    "_IterableDataset_len_called",
)


@pytest.mark.parametrize("case", ACCEPTED)
def test_attributes(fast, case):
    def scenario(make):
        arguments = dict(ACCEPTED[case])
        dataset = arguments.pop("dataset", Numbers())
        loader = make(dataset, **arguments)
        assert isinstance(loader, DataLoader) and loader.dataset is dataset
        batched = loader.batch_sampler is not None
        assert loader._index_sampler is (loader.batch_sampler if batched else loader.sampler)
        missing = object()
        seen = [(name, getattr(loader, name, missing)) for name in ATTRIBUTES]
        seen = [(name, None if value is missing else value) for name, value in seen]
        seen += [type(loader.sampler), type(loader.batch_sampler)]
        context = loader.multiprocessing_context
        seen.append(context and context.get_start_method())
        assert type(loader).__name__ in repr(loader) and hash(loader)
        try:
            seen.append(len(loader))
        except TypeError as error:
            seen.append(str(error))
        return seen

    same_for_both(fast, scenario)


GUARDED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def test_attribute_guards(fast):
    """The words name the class, so that a subclass is told by its own name."""

    def scenario(make):
        loader = make(Numbers())
        for name in GUARDED:
            with pytest.raises(ValueError) as caught:
                setattr(loader, name, None)
            wanted = (
                f"{name} attribute should not be set after {type(loader).__name__} is initialized"
            )
            assert str(caught.value) == wanted
        loader.mine, loader.timeout, loader.generator = 7, 3, None
        return loader.mine, loader.timeout, loader.generator

    same_for_both(fast, scenario)


OURS = ("device", "mean", "std", "dtype", "channels_last", "image_key", "depth")


@pytest.mark.parametrize("name", OURS)
def test_our_arguments_are_fixed_as_well(name):
    """A value that would have no effect is refused. Whose the name is in a loader that delivers
    nothing: test_subclasses.py."""
    loader = FastLoader(Numbers(), device="cpu", mean=MEAN, std=STD)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after FastLoader is"):
        setattr(loader, name, None)


def test_collate_fn_and_workers_may_be_set(fast):
    def scenario(make):
        loader = make(Numbers(4), batch_size=2)
        seen = batches(loader)
        loader.collate_fn = lambda samples: torch.stack([sample[0] for sample in samples])
        seen += batches(loader)
        loader.num_workers, loader.prefetch_factor = 1, 3
        loader.worker_init_fn = lambda worker: None
        seen += batches(loader)
        loader.num_workers = 0
        return seen + batches(loader)

    assert len(same_for_both(fast, scenario)) == 8


def test_multiprocessing_context_setter(fast):
    def scenario(make):
        loader = make(Numbers(), num_workers=1)
        seen = [loader.multiprocessing_context]
        for value in ("fork", multiprocessing.get_context("spawn"), None, "moon", 3):
            try:
                loader.multiprocessing_context = value
            except (ValueError, TypeError) as error:
                seen.append((type(error), str(error)))
            context = loader.multiprocessing_context
            seen.append(context and context.get_start_method())
        return seen

    same_for_both(fast, scenario)


def twice(samples):
    return torch.utils.data.default_collate(samples + samples)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy"])
def test_copies(fast, how):
    def scenario(make):
        generator = torch.Generator().manual_seed(3)
        arguments = {"shuffle": True, "generator": generator, "collate_fn": twice, "num_workers": 1}
        loader = make(Numbers(6), batch_size=2, multiprocessing_context="fork", **arguments)
        seen = batches(loader)
        copied = {
            "pickle": lambda: pickle.loads(pickle.dumps(loader)),
            "copy": lambda: copy.copy(loader),
            "deepcopy": lambda: copy.deepcopy(loader),
        }[how]()
        assert type(copied) is type(loader)
        seen += [copied.num_workers, copied.multiprocessing_context.get_start_method()]
        with pytest.raises(ValueError):
            copied.batch_size = 3
        return seen + batches(copied) + batches(loader)

    same_for_both(fast, scenario)


def test_iterators_cannot_be_pickled(fast):
    def scenario(make):
        for workers in (0, 1):
            with pytest.raises(NotImplementedError):
                pickle.dumps(iter(make(Numbers(), num_workers=workers)))

    same_for_both(fast, scenario)


# --- what frameworks do ----------------------------------------------------------------------------


def test_the_signature_begins_with_torchs():
    ours = inspect.signature(FastLoader.__init__).parameters
    theirs = inspect.signature(DataLoader.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert (ours[name].default, ours[name].kind) == (parameter.default, parameter.kind)
    for name in list(ours)[len(theirs) :]:
        assert ours[name].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.exhaustive
def test_rebuilding_from_attributes(fast):
    def scenario(make):
        options = {"num_workers": 1, "persistent_workers": True, "collate_fn": twice}
        loader = make(Numbers(6), batch_size=2, **options)
        again = rebuilt(loader, sampler=[5, 3, 1, 0])
        batched = {"batch_size": 1, "sampler": None, "drop_last": False}
        other = rebuilt(loader, batch_sampler=BatchSampler([4, 4, 2], 2, False), **batched)
        return [batches(again), batches(other), again.persistent_workers]

    same_for_both(fast, scenario)


def test_our_arguments_survive_rebuilding():
    options = {"device": "cpu", "mean": MEAN, "std": STD, "channels_last": True, "depth": 5}
    loader = FastLoader(Numbers(6), **options, dtype=torch.float16, image_key=0, native=False)
    again = rebuilt(loader, sampler=RandomSampler(range(6)))
    for name in (*options, "dtype", "image_key", "native", "on_error", "max_errors", "truncated"):
        assert getattr(again, name) is getattr(loader, name)
    assert next(iter(again))[0].dtype is torch.float16


def subclass(base):
    """Overrides what people override."""

    class Sub(base):
        def __init__(self, *args, note="", **kwargs):
            self.note = note
            self.seen = 0
            kwargs.setdefault("collate_fn", self.collate)
            super().__init__(*args, **kwargs)

        def collate(self, samples):
            return torch.utils.data.default_collate(samples)

        def __iter__(self):
            for batch in super().__iter__():
                self.seen += 1
                yield batch

        def __len__(self):
            return 100 + super().__len__()

    return Sub


@pytest.mark.parametrize("workers", [0, 2])
def test_subclasses(fast, workers):
    def scenario(make):
        kind = subclass(DataLoader if make is DataLoader else FastLoader)
        more = getattr(make, "keywords", {})
        loader = kind(Numbers(6), batch_size=2, num_workers=workers, note="x", **more)
        with pytest.raises(ValueError, match="set after Sub is initialized"):
            loader.dataset = []
        return [batches(loader), loader.seen, len(loader), loader.note, isinstance(loader, kind)]

    same_for_both(fast, scenario)


def test_get_iterator_may_be_overridden(fast):
    """As torch's own __iter__ calls it."""

    class Own(FastLoader):
        asked = 0

        def _get_iterator(self):
            self.asked += 1
            return super()._get_iterator()

    for persistent in (False, True):
        loader = Own(Numbers(4), num_workers=1, persistent_workers=persistent, **fast.keywords)
        list(loader), list(loader)
        assert loader.asked == (1 if persistent else 2)


# --- the iterator ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("arrays", [False, True], ids=["", "arrays"])
def test_what_is_read_off_the_iterator(fast, arrays, workers):
    pictures = TensorDataset(random_images(8, 8, 3, 4, 5), torch.arange(8))
    dataset = pictures if arrays else Numbers(8)

    def scenario(make):
        iterator = iter(make(dataset, batch_size=2, num_workers=workers))
        assert iter(iterator) is iterator
        seen = []
        for _ in range(2):
            next(iterator)
            seen += [len(iterator), iterator._num_yielded, iterator._num_workers]
            seen += [iterator._auto_collation, iterator._drop_last, iterator._persistent_workers]
            # Arrays need no processes.
            processes = [] if arrays else getattr(iterator, "_workers", [])
            seen += [hasattr(iterator, "_workers"), len(processes)]
            seen += [hasattr(iterator, "_no_such_thing"), hasattr(iterator, "_pin_memory_thread")]
            seen += [iterator._base_seed, iterator._dataset is dataset, iterator._dataset_kind]
            seen.append(len(iterator._index_sampler))
        assert len(list(iterator)) == 2
        seen += [len(iterator), iterator._num_yielded]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)
        return seen

    same_for_both(fast, scenario)


def test_shutting_workers_down_through_the_iterator(fast):
    loader = fast(Numbers(40), num_workers=2)
    iterator = iter(loader)
    next(iterator)
    assert len(children()) == 2
    iterator._shutdown_workers()
    eventually(lambda: not children(), lambda: f"{children()} gone")
    assert len(list(loader)) == 40


def test_shutting_workers_down_as_lightning_does(fast):
    """``loader._iterator._shutdown_workers(); loader._iterator = None``, in the middle of an epoch."""
    loader = fast(Numbers(40), num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    loader._iterator._shutdown_workers()
    loader._iterator = None
    eventually(lambda: not children(), lambda: f"{children()} gone")
    assert len(list(loader)) == 40
    del loader, iterator


class _Slots:
    __slots__ = ("left",)

    def __init__(self):
        self.left = [1, 2]

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop()


@pytest.mark.parametrize(
    "make_iterator", [lambda: iter([1, 2]), lambda: (each for each in [1, 2]), _Slots]
)
def test_get_iterator_may_give_any_iterator(make_iterator):
    """One that takes no attribute, too. It counts nothing, so that a state would not be true."""

    class Own(FastLoader):
        def _get_iterator(self):
            return make_iterator()

    loader = Own(Numbers(4))
    loader.state_dict()
    assert sorted(loader) == [1, 2]
    with pytest.raises(ValueError, match="overrides _get_iterator"):
        loader.state_dict()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("arrays", [False, True], ids=["", "arrays"])
def test_index_sampler_may_be_overridden(fast, arrays, workers):
    def scenario(make):
        plain = make is DataLoader

        class Own(DataLoader if plain else FastLoader):
            @property
            def _index_sampler(self):
                return [[0, 2], [3]]

        kwargs = {} if plain else fast.keywords
        dataset = (
            TensorDataset(random_images(4, 4, 3, 4, 5), torch.arange(4)) if arrays else Numbers(4)
        )
        loader = Own(dataset, num_workers=workers, **kwargs)
        return [len(loader), *(batches(loader) for _ in range(2))]

    same_for_both(fast, scenario)


@pytest.mark.parametrize("workers", [0, 1])
def test_get_iterator_may_be_called(workers):
    """As by those who prefetch: the same batches and draws, and no epoch of the loader's."""
    seen = []
    for kind in (DataLoader, FastLoader):
        torch.manual_seed(3)
        loader = kind(list(range(9)), 2, shuffle=True, num_workers=workers)
        made = [each.tolist() for each in loader._get_iterator()]
        seen.append([made, [each.tolist() for each in loader], torch.rand(()).item()])
    assert seen[0] == seen[1]
