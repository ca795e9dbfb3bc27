"""Encoded pictures that worker processes make, where nothing native may make them."""

import os
import sys
from pathlib import Path

import pytest
import torch
from encoded_samples import CROP, WHOLE, Captions, Stream, Views, as_bytes, as_path, paths_below
from pictures import plain_folder, random_folder
from torch.utils._pytree import tree_flatten
from torch.utils.data import Subset

from fastloader import EncodedImage, FastLoader

pytestmark = pytest.mark.covering

EXACTLY = {"rtol": 0, "atol": 0, "equal_nan": True}  # "steps" has NaN where there is nothing
PROCESSES = [
    {"num_workers": 2},
    {"num_workers": 1, "multiprocessing_context": "spawn"},
    {"num_workers": 2, "persistent_workers": True},
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return paths_below(random_folder(tmp_path_factory.mktemp("kinds"), 5, others=True))


@pytest.fixture
def bad(tmp_path):
    found = paths_below(plain_folder(tmp_path, 8, classes=1))
    Path(found[5]).write_bytes(b"\xff\xd8\xff no picture")
    return found


def epochs_of(dataset, epochs=1, **options):
    torch.manual_seed(3)
    loader = FastLoader(dataset, **{"batch_size": 4, **options})
    return loader, [batch for _ in range(epochs) for batch in loader]


def made_by(loader):
    counted = loader.stats()["pictures"]
    return {who: counted[who] for who in ("pool", "pillow", "workers")}


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", [as_path, as_bytes])
@pytest.mark.parametrize("options", PROCESSES, ids=str)
def test_workers_make_the_pictures_of_the_decode_threads(paths, source, options):
    dataset = Views(paths, source=source)
    native, wanted = epochs_of(dataset, 2, shuffle=True, **options)
    loader, got = epochs_of(dataset, 2, shuffle=True, native=False, **options)
    torch.testing.assert_close(got, wanted, **EXACTLY)
    assert made_by(loader) == {"pool": 0, "pillow": 0, "workers": 10 * len(paths)}
    kinds = {1: "1 worker process, which makes", 2: "2 worker processes, which make"}
    assert f"{kinds[options['num_workers']]} the encoded pictures (native=False)" in loader.plan()
    for number in range(len(paths)):
        assert loader.replay(number) == native.replay(number)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "worker_backend": "thread"}], ids=str)
def test_without_worker_processes_threads_make_them(paths, options):
    loader, _ = epochs_of(Captions(paths), native=False, **options)
    assert made_by(loader) == {"pool": 0, "pillow": len(paths), "workers": 0}
    assert "decode threads for encoded pictures" in loader.plan()


def _subset(paths):
    return Subset(Captions(paths), [7, 2, 2, 9, -1, 4]), {"batch_size": 2}


def _repeating(paths):
    return Captions(paths), {"sampler": [3, 3, 3, 3, 1], "batch_size": 2}


def _batch_sampler(paths):
    return Captions(paths), {
        "batch_sampler": [(3, 1), torch.tensor([0, 5]), [2]],
        "batch_size": 1,
    }


def _not_batched(paths):
    return Views(paths), {"batch_size": None}


def _stream(paths):
    return Stream(paths), {"batch_size": 3}


KINDS = [_subset, _repeating, _batch_sampler, _not_batched, _stream]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__[1:])
def test_draws_are_those_of_the_decode_threads(paths, kind):
    dataset, options = kind(paths)
    _, wanted = epochs_of(dataset, num_workers=2, **options)
    loader, got = epochs_of(dataset, num_workers=2, native=False, **options)
    leaves, shape = tree_flatten(got)
    others, other_shape = tree_flatten(wanted)
    assert shape == other_shape
    for leaf, other in zip(leaves, others, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(leaf, other, **EXACTLY)
        else:
            assert type(leaf) is type(other) and leaf == other
    counted = made_by(loader)
    assert counted["workers"] > 0 == counted["pool"] + counted["pillow"]


class Ours(Captions):
    """Says in which process its samples are made."""

    def __getitem__(self, i):
        assert type(i) is int
        return EncodedImage(self.paths[i], CROP), os.getpid()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_the_rest_of_an_epoch_is_the_same_after_a_resume(paths):
    def made(native):
        torch.manual_seed(8)
        dataset = Ours(paths)
        return FastLoader(dataset, 2, shuffle=True, native=native, num_workers=2)

    whole = [images for images, _ in made(True)]
    loader = made(False)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    del iterator
    resumed = made(False)
    resumed.load_state_dict(state)
    got = [images for images, _ in resumed]
    torch.testing.assert_close(got, whole[2:], **EXACTLY)
    # With those before the state, which the dataset reads again.
    assert made_by(resumed)["workers"] == len(paths)


# --- bad samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [as_path, as_bytes])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_bad_sample_is_counted_here(bad, source, on_error):
    dataset = Captions(bad, CROP, source, return_parameters=True)
    native, wanted = epochs_of(dataset, num_workers=1, on_error=on_error)
    loader, got = epochs_of(dataset, num_workers=1, on_error=on_error, native=False)
    torch.testing.assert_close(
        [batch[:2] for batch in got], [batch[:2] for batch in wanted], **EXACTLY
    )
    assert [batch[2] for batch in got] == [batch[2] for batch in wanted]
    counted, others = loader.stats()["pictures"], native.stats()["pictures"]
    for name in ("bad", "seen", "last_bad"):
        assert counted[name] == others[name]
    assert made_by(loader) == {"pool": 0, "pillow": 0, "workers": 7}


def test_an_error_names_the_sample(bad):
    with pytest.raises(OSError) as raised:
        epochs_of(Captions(bad, WHOLE), num_workers=1, native=False)
    if sys.version_info >= (3, 11):
        assert f"sample 5, {bad[5]}" in raised.value.__notes__[0]


def test_more_samples_than_indices_are_refused(paths):
    class Two(Captions):
        def __getitems__(self, indices):
            return [self[i] for i in indices] * 2

    with pytest.raises(RuntimeError, match="the dataset made 8 samples of 4 indices"):
        epochs_of(Two(paths), num_workers=1, native=False)


def test_plan_says_why_encoded_pictures_stay_with_the_workers(paths):
    options = {"num_workers": 1, "native": False}
    loader, _ = epochs_of(Captions(paths), **options)
    assert ", 1 worker process, which makes the encoded pictures (native=False)" in loader.plan()
