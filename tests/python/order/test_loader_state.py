"""What ``state_dict()`` gives has the keys that `LoaderState` promises."""

import pytest
import torch
from side_by_side import since_2_6
from torch.utils.data import IterableDataset

from fastloader import FastLoader
from fastloader._core.order.progress import LoaderState


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(9))


LOADERS = {
    "shuffled": (list(range(9)), {"shuffle": True}),
    "own generator": (list(range(9)), {"shuffle": True, "generator": torch.Generator()}),
    "workers": (list(range(9)), {"num_workers": 1, "persistent_workers": True}),
    "iterable": (Numbers(), {}),
}
if since_2_6:  # torch's in_order
    LOADERS["in any order"] = (list(range(9)), {"num_workers": 2, "in_order": False})


@pytest.mark.parametrize("name", LOADERS)
def test_keys(name):
    dataset, options = LOADERS[name]
    with FastLoader(dataset, 2, **options) as loader:
        states = [loader.state_dict()]
        for _ in loader:
            states.append(loader.state_dict())
        states.append(loader.state_dict())
    assert [state["begun"] for state in states] == [False, *[True] * 5, False]
    for state in states:
        assert LoaderState.__required_keys__ <= state.keys() <= LoaderState.__annotations__.keys()


class Stateful(list):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("begun", [False, True], ids=["between epochs", "within one"])
def test_the_warning_of_states_that_lack_names_the_line_that_asked(begun):
    with FastLoader(Stateful(range(4)), 2, num_workers=1, persistent_workers=True) as loader:
        list(loader)
        iterator = iter(loader)
        for _ in range(1 if begun else 3):
            next(iterator, None)
        with pytest.warns(UserWarning, match="were not asked for their") as caught:
            loader.state_dict()
    assert [each.filename for each in caught] == [__file__]
