"""Pictures that the native decoder hands to Pillow, in a ``next()`` that is broken off, or in an epoch
that is ended meanwhile: the batch comes with the next call, the next epoch begins, and nothing counts
twice."""

import signal
import threading
from pathlib import Path

import pytest
import torch
from pictures import plain_folder
from PIL import Image
from torch.utils.data import DataLoader

import fastloader
from exact import same_bits
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.pictures.decoder import PendingBatch
from fastloader._core.pictures.store import FolderStore
from fastloader.datasets import ImageFolder
from fastloader.errors import StoppedError
from fastloader.transforms._recipe.draws import Draws
from support import eventually, our_threads

pytestmark = pytest.mark.skipif(
    fastloader._core.machine.extension.load() is None, reason="needs the native module"
)

COUNT = 24  # in batches of two: more than are made ahead


def folder(root, odd=()):
    """Pictures of which those with the numbers in ``odd`` are Pillow's to decode."""
    plain_folder(root, COUNT, classes=1)
    paths = sorted((root / "c0").iterdir())
    for number in odd:
        Image.open(paths[number]).convert("RGB").save(paths[number], "BMP")
    return ImageFolder(str(root), T.Resize((24, 20)))


def make(dataset, **options):
    loader = FastLoader(dataset, 2, device="cpu", **options)
    assert loader.plan().startswith("native images")
    return loader


class Gate:
    """Pillow at work on some pictures, for as long as a test says; afterwards it is quick."""

    def __init__(self, monkeypatch, *numbers):
        self.begun = {number: threading.Event() for number in numbers}
        self.open = {number: threading.Event() for number in numbers}
        self.calls = []
        opened = FolderStore.open_rgb

        def held(files, index):
            self.calls.append(index)
            if index in self.begun and not self.begun[index].is_set():
                self.begun[index].set()
                assert self.open[index].wait(60)
            return opened(files, index)

        monkeypatch.setattr(FolderStore, "open_rgb", held)

    def let_through(self, *numbers):
        for number in numbers:
            self.open[number].set()


def in_time(work, seconds=20):
    """What ``work`` gives, on a thread that may be left behind."""
    given = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert given, "it hangs"
    return given[0]


def same(batches, wanted):
    assert len(batches) == len(wanted)
    for got, right in zip(batches, wanted):
        same_bits(got[0], right[0])
        assert torch.equal(got[1], right[1])


def interrupt(iterator):
    """Ctrl-C, twice in a row, while Pillow is at the picture that is wanted."""
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            main = threading.main_thread().ident
            threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGINT]).start()
            next(iterator)


ENDS = {"close": lambda iterator: iterator.close(), "drop": lambda _: None, "ctrl-c": interrupt}


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ENDS)
def test_the_next_epoch_begins_while_pillow_is_left_behind(tmp_path, twin, monkeypatch, end):
    """More often than there are slots in the ring: none is kept by a batch that nobody wants."""
    data = folder(tmp_path, odd=[2])
    wanted = list(DataLoader(data, 2))
    loader = make(data, num_workers=2)
    gates = []
    for _ in range(5):
        gates.append(Gate(monkeypatch, 2))
        iterator = iter(loader)
        next(iterator)
        assert gates[-1].begun[2].wait(60)
        ENDS[end](iterator)
        del iterator
        same(in_time(lambda: list(loader)), wanted)
    for gate in gates:
        gate.let_through(2)


@pytest.mark.exhaustive
def test_ctrl_c_loses_no_batch(tmp_path, device, monkeypatch):
    """Nor is anything decoded twice."""
    data = folder(tmp_path, odd=[2, 3, 9])
    wanted = list(DataLoader(data, 2))
    loader = make(data, num_workers=2)
    gate = Gate(monkeypatch, 2, 3, 9)
    iterator = iter(loader)
    seen = []
    # The next() that waits for Pillow: through torch's streams a batch is taken ahead.
    ahead = loader.stats()["path"] == "streams"
    held = {1 - ahead: [2, 3], 4 - ahead: [9]}
    for number in range(len(wanted)):
        if number in held:
            interrupt(iterator)
            gate.let_through(*held[number])
        assert loader.state_dict()["batches"] == len(seen)
        seen.append(next(iterator))
    assert next(iterator, None) is None
    same(seen, wanted)
    assert sorted(gate.calls) == [2, 3, 9]
    assert loader.stats()["images"]["seen"] == COUNT


BAD = {
    "raise": {},
    "skip": {"on_error": "skip", "max_errors": 1},
    "replace": {"on_error": "replace", "max_errors": 1},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_sample_is_counted_once(tmp_path, device, monkeypatch, kind):
    """Ctrl-C while Pillow is at it, and while Pillow is at what replaces it."""
    data = folder(tmp_path, odd=range(COUNT))
    Path(data.path(2)).write_bytes(b"no picture")
    gate = Gate(monkeypatch, 2)
    loader = make(data, num_workers=2, **BAD[kind])
    iterator = iter(loader)
    seen = []
    if loader.stats()["path"] != "streams":  # which takes a batch ahead
        seen.append(next(iterator))
    interrupt(iterator)
    gate.let_through(2)
    seen += [] if seen else [next(iterator)]
    if kind == "raise":
        with pytest.raises(Image.UnidentifiedImageError):
            next(iterator)
    else:
        assert len(next(iterator)[0]) == (1 if kind == "skip" else 2)
    rest = list(iterator)
    assert loader.stats()["images"]["bad"] == 1
    same([*seen, *rest], [wanted for number, wanted in enumerate(batches(data)) if number != 1])


def batches(data):
    good = [data[index] for index in range(COUNT) if index != 2]
    good.insert(2, good[0])
    return DataLoader(good, 2)


@pytest.mark.parametrize(("drawn", "expected"), [(3, StoppedError), (2, fastloader.Error)])
def test_an_epoch_that_ends_is_no_pictures_error(tmp_path, enter_way, monkeypatch, drawn, expected):
    """While a picture is decoded in the place of a bad one, a good picture or the bad one again: Pillow
    is not given that, too."""
    enter_way("cpu")
    monkeypatch.setattr(Draws, "below", lambda draws, count: drawn)
    data = folder(tmp_path)
    Path(data.path(2)).write_bytes(b"no picture")
    gate = Gate(monkeypatch)
    loader = make(data, num_workers=1, on_error="replace")
    raised = []

    class Closing:
        """In the place of a native batch."""

        def __init__(self, batch):
            self.batch = batch

        def __getattr__(self, name):
            return getattr(self.batch, name)

        def decode_other(self, *args, **named):
            loader.close()
            try:
                return self.batch.decode_other(*args, **named)
            except BaseException as error:
                raised.append(error)
                raise

    submit = PendingBatch.__init__

    def watched(pending, *args):
        submit(pending, *args)
        pending.batch = Closing(pending.batch)

    monkeypatch.setattr(PendingBatch, "__init__", watched)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(fastloader.Error, match="the loader was closed while"):
        next(iterator)
    eventually(lambda: raised, lambda: "the decoder gave up")
    assert [type(error) for error in raised] == [expected]
    eventually(lambda: not our_threads(), our_threads)
    assert gate.calls == [2]
