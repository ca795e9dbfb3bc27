"""States that a loader refuses, and orders and iterators that have none: the error says why."""

import random

import pytest
from resuming import COUNT, NORMALISED
from side_by_side import since_2_6
from torch.utils.data import Sampler

from fastloader import Error, FastLoader
from support import Pictures, labels


def mid_epoch(**options):
    loader = FastLoader(Pictures(COUNT), **{"batch_size": 2, "shuffle": True, **options})
    next(iter(loader))
    return loader.state_dict()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"fastloader": 99}, "version 99, this fastloader reads 2"),
        ({"fastloader": 1}, "version 1, .* reads 2: load it with the fastloader that saved it, or"),
        ({"dataset_length": 12}, "dataset_length is 12, this loader's is 11"),
        (
            {"sampler": "BatchSampler of Mine"},
            "BatchSampler of Mine.*BatchSampler of RandomSampler",
        ),
        ({"sampler_length": 7}, "sampler_length is 7"),
        ({"generators": ["x"]}, "1 generators"),
        ({"dataset_state": {}}, "dataset has no load_state_dict"),
    ],
)
def test_states_that_do_not_fit(change, message):
    state = {**mid_epoch(), **change}
    with pytest.raises(ValueError, match=message):
        FastLoader(Pictures(COUNT), 2, shuffle=True).load_state_dict(state)


def test_what_is_no_state():
    loader = FastLoader(Pictures(COUNT), 2)
    with pytest.raises(ValueError, match=r"not a state of FastLoader.*_num_yielded"):
        loader.load_state_dict({"_num_yielded": 3})
    with pytest.raises(TypeError, match="got list"):
        loader.load_state_dict([])
    loader.load_state_dict({})
    assert len(labels(loader)) == 6


def test_another_sampler_or_dataset():
    with pytest.raises(ValueError, match=r"RandomSampler.*SequentialSampler"):
        FastLoader(Pictures(COUNT), 2).load_state_dict(mid_epoch())
    with pytest.raises(ValueError, match="dataset_length is 11, this loader's is 12"):
        FastLoader(Pictures(12), 2, shuffle=True).load_state_dict(mid_epoch())


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_begun_before_the_state_was_loaded(way, workers):
    state = mid_epoch()
    loader = FastLoader(
        Pictures(COUNT), 2, shuffle=True, num_workers=workers, **way.options, **NORMALISED
    )
    iterator = iter(loader)
    loader.load_state_dict(state)
    with pytest.raises(RuntimeError, match="call iter"):
        next(iterator)
    assert len(list(loader)) == 5


class Unseeded(Sampler):
    def __iter__(self):
        return iter(random.sample(range(COUNT), COUNT))

    def __len__(self):
        return COUNT


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_whose_order_cannot_be_drawn_again(way, workers):
    def make():
        return FastLoader(
            Pictures(COUNT), 2, sampler=Unseeded(), num_workers=workers, **way.options, **NORMALISED
        )

    random.seed(1)
    loader = make()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    fresh = make()
    fresh.load_state_dict(state)
    random.seed(2)
    with pytest.raises(Error, match="does not give the order"):
        list(fresh)
    # Seeded by the user as it was then, it is the same order.
    fresh.load_state_dict(state)
    random.seed(1)
    assert labels(fresh) == labels(iterator)


@pytest.mark.skipif(not since_2_6, reason="torch has no in_order")
def test_in_order_false():
    loader = FastLoader(Pictures(COUNT), 2, num_workers=2, in_order=False)
    assert not loader.state_dict()["begun"]
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["begun"]
    list(iterator)
    assert not loader.state_dict()["begun"]
