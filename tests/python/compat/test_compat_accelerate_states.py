"""States of ``compat.accelerate``'s loaders: of any place, of a rest, in each way, by ``save_state`` and
``load_state``. What they give besides: test_compat_accelerate.py."""

import importlib
import pickle

import pytest
import torch
from accelerate_runs import COUNT, SAMPLING, Numbers, make_accelerator
from pictures import plain_folder

from fastloader import FastLoader
from support import MEAN, STD, Pictures, Stream, generator, labels, same

accelerate = pytest.importorskip("accelerate")
DataLoaderDispatcher = accelerate.data_loader.DataLoaderDispatcher
DataLoaderShard = accelerate.data_loader.DataLoaderShard

ours = importlib.import_module("fastloader.compat.accelerate")
prepare, skip_first_batches = ours.prepare, ours.skip_first_batches

pytestmark = pytest.mark.covering


@pytest.fixture(autouse=True)
def _forget_accelerate(forget_accelerate):
    FastLoader._is_accelerate_prepared.warned = False


def resumed(make, received, epochs):
    """(what a run gets behind ``received`` batches of its last epoch, what a fresh one gets from there,
    the fresh one)"""
    prepared = make()
    prepared.state_dict()  # from here on it keeps its state
    for _ in range(epochs):
        list(prepared)
    iterator = iter(prepared)
    for _ in range(received):
        next(iterator)
    state, random = pickle.loads(pickle.dumps(prepared.state_dict())), torch.get_rng_state()
    wanted = [[batch for batch in iterator], *([*prepared] for _ in range(2))]
    again = make()
    torch.manual_seed(99)
    again.load_state_dict(state)
    assert again.state_dict() == state
    torch.set_rng_state(random)
    read = getattr(again.dataset, "read", None)
    got = [[*again]]
    if read is not None and not again.num_workers:
        assert len(read) == sum(len(each) for _, each in got[0])
    return wanted, [*got, [*again], [*again]], again


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seedable", [False, True])
@pytest.mark.parametrize("sampling", SAMPLING)
def test_a_state_of_any_place_restores_order_and_epochs(sampling, seedable, workers):
    accelerator = make_accelerator(use_seedable_sampler=seedable)

    def make():
        torch.manual_seed(4)
        data = Numbers()
        options = SAMPLING[sampling](data)
        return prepare(FastLoader(data, num_workers=workers, **options), accelerator)

    length = len(make())
    places = [(0, 1), (1, 0), (1, length - 1), (2, 2)]
    for epochs, received in places[-1:] if workers else places:
        wanted, got, again = resumed(make, received, epochs)
        same(got, wanted)
        assert again.iteration == epochs + 3


def test_behind_the_last_batch_the_state_is_of_the_next_epoch():
    """Trainers count batches and save there, before the loop has ended."""
    accelerator = make_accelerator()

    def make():
        options = {"shuffle": True, "generator": generator(1)}
        return prepare(FastLoader(Numbers(), 2, **options), accelerator)

    prepared = make()
    prepared.state_dict()
    for _ in prepared:
        state = prepared.state_dict()
    assert prepared.received(state) == 0 and state["epoch"] == 1
    again = make()
    again.load_state_dict(state)
    assert [labels(again), labels(again)] == [labels(prepared), labels(prepared)]


def test_a_state_of_a_rest():
    """A run that had skipped batches is broken off as well."""
    accelerator = make_accelerator(use_seedable_sampler=True)

    def make():
        torch.manual_seed(4)
        return prepare(FastLoader(Numbers(), 2, shuffle=True), accelerator)

    whole = labels(make())
    prepared = make()
    prepared.state_dict()
    iterator = iter(skip_first_batches(prepared, 2))
    next(iterator), next(iterator)
    state = prepared.state_dict()  # save_state asks the loader, not its rest
    assert prepared.received(state) == 4
    again = make()
    again.load_state_dict(state)
    assert labels(again) == whole[4:]


@pytest.mark.parametrize("workers", [0, 2])
def test_crops_of_the_rest_are_those_of_the_unbroken_run(tmp_path, workers):
    from fastloader import transforms
    from fastloader.datasets import ImageFolder

    chain = [transforms.RandomResizedCrop(12), transforms.RandomHorizontalFlip()]
    folder = ImageFolder(str(plain_folder(tmp_path, 12, classes=2)), transforms.Compose(chain))
    accelerator = make_accelerator()

    def make():
        options = {"shuffle": True, "generator": generator(2), "mean": MEAN, "std": STD}
        return prepare(FastLoader(folder, 3, num_workers=workers, **options), accelerator)

    wanted, got, _ = resumed(make, 2, 1)
    same(got, wanted)
    assert torch.is_floating_point(got[0][0][0])


@pytest.mark.parametrize("way", ["cpu", "twin", "streams", "pure"])
def test_states_in_each_way(enter_way, way):
    way = enter_way(way)
    accelerator = make_accelerator()

    def make():
        options = {"shuffle": True, "generator": generator(2), "mean": MEAN, "std": STD}
        return prepare(FastLoader(Pictures(COUNT), 3, **options, **way.options), accelerator)

    wanted, got, again = resumed(make, 2, 1)
    same(got, wanted)
    assert again.stats()["path"] == way.path
    again.close()


@pytest.mark.parametrize("received", [0, 2, 4])
def test_save_state_and_load_state(tmp_path, received):
    pytest.importorskip("torchdata")  # which the setting needs
    accelerator = make_accelerator(use_stateful_dataloader=True)

    def make():
        return prepare(FastLoader(Numbers(), 3, shuffle=True), accelerator)

    torch.manual_seed(5)
    prepared = make()
    list(prepared)
    iterator = iter(prepared)
    for _ in range(received):
        next(iterator)
    accelerator.save_state(str(tmp_path))
    wanted = [[each.tolist() for _, each in iterator], labels(prepared), labels(prepared)]
    if received == 4:  # the loop had not ended, and the epoch had
        assert wanted.pop(0) == []
    accelerator.free_memory()
    torch.manual_seed(6)
    again = make()
    accelerator.load_state(str(tmp_path))
    if received == 0:
        # The epoch had begun for the loop only: nothing was received.
        assert [labels(again), labels(again), labels(again)] == wanted
    else:
        assert [labels(again) for _ in wanted] == wanted


def test_a_state_that_nobody_kept():
    prepared = prepare(FastLoader(Numbers(), 2), make_accelerator())
    iterator = iter(prepared)
    next(iterator)
    with pytest.raises(ValueError, match="began before a state was asked for"):
        prepared.state_dict()
    del iterator
    iterator = iter(prepared)  # it was asked for now
    next(iterator)
    assert prepared.received(prepared.state_dict()) == 1


def test_a_dataset_without_a_state_stops_no_loop():
    """FastLoader has none for this epoch: an error for who asks."""

    class Own(Numbers):
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    loader = FastLoader(Own(), 2, num_workers=1, worker_backend="thread")
    prepared = prepare(loader, make_accelerator())
    prepared.state_dict()
    for number, _ in enumerate(prepared):
        if number < 5:
            with pytest.raises(ValueError, match="worker_backend='thread'"):
                prepared.state_dict()
    assert prepared.state_dict()["epoch"] == 1


def test_batches_in_flight_come_first():
    """With in_order=False. What was received is not what the sampler gave first."""
    accelerator = make_accelerator()

    def make():
        return prepare(FastLoader(Numbers(), 2, num_workers=2, in_order=False), accelerator)

    prepared = make()
    prepared.state_dict()
    iterator = iter(prepared)
    before = [next(iterator)[1].tolist() for _ in range(2)]
    state = prepared.state_dict()
    assert prepared.received(state) == 2 and state["missing"]
    again = make()
    again.load_state_dict(state)
    assert sorted(before + labels(again)) == labels(prepare(FastLoader(Numbers(), 2), accelerator))


def test_states_of_other_loaders():
    accelerator = make_accelerator()
    prepared = prepare(FastLoader(Numbers(), 2), accelerator)
    with pytest.raises(ValueError, match="no 'accelerate'"):
        prepared.load_state_dict(FastLoader(Numbers(), 2).state_dict())
    state = prepared.state_dict()
    with pytest.raises(ValueError, match=r"batches 6, here 4.* as many processes"):
        prepare(FastLoader(Numbers(), 3), accelerator).load_state_dict(state)
    with pytest.raises(ValueError, match="processes 2, here 1"):
        other = {"processes": 2, "batches": 6}
        prepared.load_state_dict({**state, "accelerate": other})


def test_an_iterable_dataset_goes_on():
    accelerator = make_accelerator(dispatch_batches=False)

    def make():
        return prepare(FastLoader(Stream(10), 3), accelerator)

    wanted, got, _ = resumed(make, 2, 1)
    same(got, wanted)
