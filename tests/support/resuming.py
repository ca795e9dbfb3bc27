"""A loader that goes on from a state, beside one that never stopped."""

import itertools
import json
import pickle
import random

import torch

from support import MEAN, STD, same

NORMALISED = {"mean": MEAN, "std": STD}
COUNT = 11


def through_json(state):
    assert pickle.loads(pickle.dumps(state)) == state
    return json.loads(json.dumps(state))


def check_resuming(make, received, make_other=None, epochs_before=1, state_of_user=True):
    """Runs a loader for ``epochs_before`` epochs and ``received`` batches, None for up to the end, and
    compares what then follows, over two epochs, with what a fresh one gives from the state."""
    loader = make()
    for _ in range(epochs_before):
        list(loader)
    if received is None:
        list(loader)
        iterator = iter(())
    else:
        iterator = iter(loader)
        list(itertools.islice(iterator, received))
    state, users = through_json(loader.state_dict()), torch.get_rng_state()
    wanted = [list(iterator), torch.get_rng_state(), list(loader), torch.get_rng_state()]
    # The fresh process has drawn other numbers by then, and set the user's generator back.
    torch.manual_seed(random.randrange(1 << 30))
    fresh = (make_other or make)()
    fresh.load_state_dict(state)
    if state_of_user:
        torch.set_rng_state(users)
    again = fresh.state_dict()
    assert again == state
    got = [[] if received is None else list(fresh), torch.get_rng_state()]
    got += [list(fresh), torch.get_rng_state()]
    same(got, wanted)
    if loader.generator is not None:
        assert torch.equal(fresh.generator.get_state(), loader.generator.get_state())
    return state
