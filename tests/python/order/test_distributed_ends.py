"""``distributed="exact"``: an epoch that ends unevenly, stopped at every step and gone on with by
another number of ranks. Ranks are threads over one store, so that all stops can be tried."""

import itertools
import json
import math
import os
import random

import pytest
import torch
from thread_ranks import ThreadRanks

from fastloader import Error, FastLoader

LONG = os.environ.get("FASTLOADER_LONG") == "1"

# (ranks, samples, batch size) whose ends are uneven: in samples, in batches, or in nothing.
EPOCHS = [
    (world, length, size)
    for world in range(1, 6)
    for length in (3, 10, 12, 13, 14)
    for size in (1, 2, 3)
]
STATES = ("own", "first", "last")  # that a rank goes on with


@pytest.fixture
def ranks(monkeypatch):
    return ThreadRanks(monkeypatch)


def begin(length, size):
    # A generator of its own: threads that are ranks share the global one.
    options = {"shuffle": True, "generator": torch.Generator().manual_seed(5), "collate_fn": list}
    return FastLoader(list(range(length)), size, distributed="exact", **options)


def take(loader, count=None, ask=True, held=None):
    """The keys of one pass, or of its first batches, under the number of its epoch. ``ask``: also for
    a batch that does not exist. ``held`` gets the iterator, which would be but a look if it was dropped
    after one batch."""
    count = len(loader) if count is not None and not ask and count > len(loader) else count
    iterator = iter(loader)
    if held is not None:
        held.append(iterator)
    epoch = loader._runtime.position.current.epoch
    return {epoch: [key for batch in itertools.islice(iterator, count) for key in batch]}


def stop(ranks, world, length, size, step, ask):
    """What the ranks received, and their states."""

    def work(_rank):
        loader, held = begin(length, size), []
        return take(loader, step, ask, held), json.loads(json.dumps(loader.state_dict()))

    done = ranks.run(world, work)
    return [each[0] for each in done], [each[1] for each in done]


def go_on(ranks, world, length, size, states):
    """The passes from a state for each rank, up to epoch 1. A rank's state may be of its beginning,
    where others have the uneven end of epoch 0 before them."""

    def work(rank):
        loader = begin(length, size)
        loader.load_state_dict(states[rank])
        passes = [take(loader)]
        while max(passes[-1]) < 1:
            passes.append(take(loader))
        return passes

    done = ranks.run(world, work)
    for each in done:
        if isinstance(each, Error):
            raise each
    return [one for each in done for one in each]


def keys_of(epoch, passes):
    return sorted(key for each in passes for key in each.get(epoch, []))


def steps(world, length, size):
    """Of the rank with most batches, and one more."""
    return range(math.ceil(math.ceil(length / world) / size) + 2)


def every_stop(epochs):
    for world, length, size in epochs:
        for step in steps(world, length, size):
            for ask in (True, False):
                yield world, length, size, step, ask


def check_stop(ranks, world, length, size, step, ask, others, chosen):
    received, states = stop(ranks, world, length, size, step, ask)
    shortest = math.ceil(length // world / size)
    if step <= shortest:
        assert all(state == states[0] for state in states)
    for other in others:
        for choice in chosen:
            picked = {"own": states, "first": states[:1], "last": states[-1:]}[choice]
            # The last rank's state is as good as the first's while all have received as many.
            if choice == "last" and step > shortest:
                continue
            passes = go_on(
                ranks, other, length, size, [picked[r % len(picked)] for r in range(other)]
            )
            case = (world, length, size, step, ask, other, choice)
            assert keys_of(0, [*received, *passes]) == list(range(length)), case
            assert keys_of(1, passes) == list(range(length)), case


def test_a_stop_at_any_step_of_an_uneven_epoch(ranks):
    """A few of the stops; those where one rank has its last batch and another none are among them."""
    rng = random.Random(seed := random.randrange(1 << 30))
    ends = [(4, 10, 2, 2, True), (4, 10, 2, 2, False), (4, 9, 2, 2, True), (3, 10, 1, 4, False)]
    cases = [*ends, *rng.sample(list(every_stop(EPOCHS)), 12)]
    print("seed", seed)
    for case in cases:
        check_stop(ranks, *case, others=[case[0], rng.randint(1, 5)], chosen=STATES)


@pytest.mark.skipif(not LONG, reason="every stop: FASTLOADER_LONG=1, or .ci/long ranks")
@pytest.mark.parametrize("world", range(1, 6))
@pytest.mark.parametrize("length", [3, 10, 12, 13, 14])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("other", range(1, 6))
def test_a_stop_at_every_step_to_every_number_of_ranks(ranks, world, length, size, other):
    for case in every_stop([(world, length, size)]):
        check_stop(ranks, *case, others=[other], chosen=STATES)


def test_stop_after_stop(ranks):
    """Each with another number of ranks, from the first rank's state."""
    rng = random.Random(seed := random.randrange(1 << 30))
    for _ in range(3):
        length, size = rng.randint(20, 40), rng.randint(1, 3)
        received, states = stop(ranks, rng.randint(1, 5), length, size, rng.randint(1, 4), True)
        for _ in range(3):
            state, step = states[0], rng.randint(1, 3)

            def work(_rank, state=state, step=step, length=length, size=size):
                loader = begin(length, size)
                loader.load_state_dict(state)
                held = []
                return take(loader, step, held=held), loader.state_dict()

            done = ranks.run(rng.randint(1, 5), work)
            received += [each[0] for each in done]
            states = [each[1] for each in done]
            assert keys_of(0, received) == sorted(set(keys_of(0, received))), seed
        received += go_on(ranks, 2, length, size, [states[0]] * 2)
        assert keys_of(0, received) == list(range(length)), seed


@pytest.mark.parametrize("which", ["step", "epoch"])
def test_ranks_that_were_not_stopped_together_are_told(ranks, which):
    """Rank 0 had one batch more than rank 1, which had some left, or was an epoch ahead."""
    states = [stop(ranks, 2, 11, 2, step, True)[1] for step in (2, 1)]
    ahead = {**states[0][0], "epoch": 1} if which == "epoch" else states[0][0]
    behind = states[0][1] if which == "epoch" else states[1][1]

    def work(rank):
        loader = begin(11, 2)
        loader.load_state_dict([ahead, behind][rank])
        return take(loader)

    said = ranks.run(2, work)
    assert all(isinstance(each, Error) for each in said)
    wanted = (
        "the epoch is 1 on rank 0 and 0 on rank 1"
        if which == "epoch"
        else "the number of samples consumed is 8 on rank 0 and 4 on rank 1"
    )
    assert wanted in str(said[0])
