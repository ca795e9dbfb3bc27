"""Subclasses with attributes and properties of their own, whatever these are called."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fastloader import FastLoader
from support import MEAN, STD, Pictures, same

# Every attribute that FastLoader ever kept under a name of its own.
PRIVATE = (
    *("_source", "_position", "_arrays", "_rings", "_delivery", "_tuner", "_policy", "_images"),
    *("_array_memory", "_thread_iterators", "_headspace", "_said", "_automatic", "_shard"),
)


class Crowded(FastLoader):
    """Uses every such name for itself, before and after FastLoader's constructor."""

    def __init__(self, *args, **kwargs):
        for name in PRIVATE:
            setattr(self, name, f"before {name}")
        super().__init__(*args, **kwargs)
        for name in PRIVATE:
            assert getattr(self, name) == f"before {name}"
            setattr(self, name, f"after {name}")

    def kept(self):
        return all(getattr(self, name) == f"after {name}" for name in PRIVATE)


def arrays():
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(torch.randn(11, 3, generator=generator), torch.arange(11))


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", [Pictures(11), arrays()], ids=["python", "arrays"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "worker_backend": "thread"},
        {"num_workers": "auto", "depth": "auto"},
        {"num_workers": 1, "persistent_workers": True},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()) or "plain",
)
def test_private_names_are_the_subclasss(data, options):
    options = {**options, "batch_size": 3, "shuffle": True}
    torch.manual_seed(8)
    wanted = list(DataLoader(data, 3, shuffle=True))
    torch.manual_seed(8)
    loader = Crowded(data, **options)
    iterator = iter(loader)
    got = [next(iterator)]
    state = loader.state_dict()
    got += iterator
    same(got, wanted)
    loader.load_state_dict(state)
    same(list(loader), wanted[1:])
    loader.set_epoch(3)
    assert loader.plan() and loader.stats()["batches"] and str(loader.report())
    loader.close()
    for again in (loader, copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert again.kept()
        assert len(list(again)) == 4
        again.close()


def test_private_names_are_the_subclasss_on_every_way(way):
    """With delivery, which keeps things of its own."""
    wanted = list(FastLoader(Pictures(8), 3, mean=MEAN, std=STD, **way.options))
    loader = Crowded(Pictures(8), 3, mean=MEAN, std=STD, **way.options)
    same(list(loader), wanted)
    assert loader.kept()


class OfItsOwnDevice(FastLoader):
    @property
    def device(self):
        return "mine"


@pytest.mark.parametrize("options", [{}, {"device": "cpu", "mean": MEAN, "std": STD}])
def test_a_property_that_takes_nothing(options):
    loader = OfItsOwnDevice(Pictures(7), 2, **options)
    same(list(loader), list(FastLoader(Pictures(7), 2, **options)))
    assert loader.device == "mine"
    # What frameworks rebuild the loader from is what was given.
    assert vars(loader)["device"] == options.get("device")
    again = pickle.loads(pickle.dumps(loader))
    assert again.device == "mine"
    same(list(again), list(loader))


class PlainNumber(FastLoader):
    """Tells the number of workers by a property, without the type that we gave it."""

    @property
    def num_workers(self):
        return int(self.given)

    @num_workers.setter
    def num_workers(self, value):
        self.given = value


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_auto_stays_auto_behind_a_property(backend):
    loader = PlainNumber(Pictures(7), 2, num_workers="auto", worker_backend=backend)
    assert type(loader.num_workers) is int
    for each in (loader, copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert each.stats()["auto"]["num_workers"]["chosen"] == loader.num_workers
        same(list(each), list(DataLoader(Pictures(7), 2)))
        each.close()
    loader.num_workers = 1
    assert "auto" not in loader.stats()
    loader.num_workers = "auto"
    assert "num_workers" in loader.stats()["auto"]


class Refusing(PlainNumber):
    num_workers = PlainNumber.num_workers.setter(lambda self, value: self._accept(value))

    def _accept(self, value):
        if value == 5:
            raise ValueError("five is refused")
        self.given = value


@pytest.mark.parametrize(
    ("kind", "value", "error", "said"),
    [
        (FastLoader, "six", TypeError, "num_workers='six': use a whole number"),
        (Refusing, 5, ValueError, "five is refused"),
    ],
)
def test_a_number_that_is_refused_leaves_auto_as_it_was(kind, value, error, said):
    loader = kind(Pictures(7), 2, num_workers="auto")
    with pytest.raises(error, match=said):
        loader.num_workers = value
    assert "num_workers" in loader.stats()["auto"]
    loader.num_workers = 1
    with pytest.raises(error, match=said):
        loader.num_workers = value
    assert "auto" not in loader.stats()


class OneFewer(PlainNumber):
    num_workers = PlainNumber.num_workers.getter(lambda self: int(self.given) - 1)


def test_a_number_that_is_not_the_one_of_auto_is_not_auto():
    assert "auto" not in OneFewer(Pictures(7), 2, num_workers="auto").stats()
    loader = FastLoader(Pictures(7), 2, num_workers="auto")
    vars(loader)["num_workers"] = loader.num_workers + 1
    assert "auto" not in loader.stats()


DELIVERY = ("device", "mean", "std", "dtype", "channels_last", "image_key", "depth")


@pytest.mark.parametrize("name", [*DELIVERY, "on_error", "max_errors", "distributed"])
def test_what_would_only_take_effect_in_a_rebuilt_loader_is_refused(name):
    """A framework that rebuilds the loader reads the constructor's arguments off the attributes."""

    class Inherits(FastLoader):
        pass

    for kind in (FastLoader, Inherits):
        loader = kind(Pictures(4), batch_size=2)
        before = getattr(loader, name)
        said = f"{name} attribute should not be set after {kind.__name__} is initialized"
        with pytest.raises(ValueError, match=said):
            setattr(loader, name, (0.5,))
        assert getattr(loader, name) is before


@pytest.mark.parametrize("name", DELIVERY)
def test_a_class_with_a_constructor_of_its_own_is_rebuilt_through_that(name):
    """A plain DataLoader to us, in which the name is free."""

    class Own(FastLoader):
        def __init__(self, data, mine):
            super().__init__(data, batch_size=2)
            setattr(self, name, mine)

    loader = Own(Pictures(4), "mine")
    again = copy.deepcopy(loader)
    assert getattr(again, name) == "mine"
    same(list(again), list(DataLoader(Pictures(4), 2)))
