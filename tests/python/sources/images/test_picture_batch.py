"""The decode pool and Pillow make the same pictures behind the same methods."""

import numpy as np
import pytest
import torch
from PIL import Image

from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader._core.pictures.batch import Other, PictureRequest
from fastloader._core.pictures.decoder import Decoder
from fastloader._core.pictures.images import ErrorPolicy
from fastloader.datasets.picture_source import PictureSource
from fastloader.transforms._job import Job
from fastloader.transforms._reader.chain import read_chain

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")

CHAIN = T.Compose(
    [
        T.RandomResizedCrop(16),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4),
        T.ToTensor(),
        T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
    ]
)
BYTES = T.Compose([T.Resize((9, 12)), T.PILToTensor()])
POSITIONS = [2, 0, 1, 3]  # of files
KEYS = [7, 5, 6, 7]


class Files:
    """Four files, of which the third is damaged."""

    def __init__(self, folder):
        rng = np.random.default_rng()
        self.paths = []
        for number, size in enumerate([(40, 30), (31, 47), (20, 20), (64, 33)]):
            pixels = rng.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
            path = folder / f"{number}.png"
            Image.fromarray(pixels).save(path)
            self.paths.append(str(path))
        (folder / "2.png").write_bytes(b"no picture")

    def name(self, index):
        return self.paths[index]

    def open_rgb(self, index):
        return PictureSource(self.paths[index]).open_rgb()

    def source(self):
        paths = [path.encode() for path in self.paths]
        ends = np.cumsum([len(path) for path in paths], dtype=np.uint64)
        return extension.native.FolderSource(np.frombuffer(b"".join(paths), np.uint8), ends)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture(params=[[5], [5, 6, 7, 8]], ids=["a seed for all", "a seed for each"])
def both(files, request):
    """The same batch, of two views, by the pool and by Pillow, once all was tried."""
    source, begun = files.source(), []
    for native in (True, False):
        views = []
        for number, transform in enumerate((CHAIN, BYTES)):
            chain = read_chain(transform, ours_ends_in_tensor=True)
            job = Job(chain, None)
            if native:
                normalization = chain.normalization if chain.floating else None
                job = Job.of_batches(chain, source, normalization)
            views.append(([job], number))
        decoder = Decoder(2, ErrorPolicy("raise", None), native)
        batch = decoder.begin(PictureRequest(views, POSITIONS, KEYS, request.param), files)
        assert batch.wait() and batch.ready()
        begun.append(batch)
    assert type(begun[0]) is not type(begun[1])
    return begun


def check_same(both):
    for view in (0, 1):
        natively, by_pillow = (batch.take(view) for batch in both)
        assert natively.dtype == by_pillow.dtype and natively.shape == by_pillow.shape
        torch.testing.assert_close(natively, by_pillow, rtol=0, atol=0)


def test_failures_and_sizes(both):
    for batch in both:
        [(position, reason, _kind)] = batch.failures()
        assert position == 0 and reason
        assert [tuple(size) for size in batch.sizes()][1:] == [(30, 40), (47, 31), (33, 64)]


def test_a_picture_that_is_made_again(both):
    picture = Image.fromarray(np.random.default_rng().integers(0, 256, (50, 40, 3), dtype=np.uint8))
    for batch in both:
        batch.redo(0, picture)
    check_same(both)


@pytest.mark.parametrize("again", ["redo", "decode_other"])
def test_another_file_takes_a_bad_ones_place(both, files, again):
    for batch in both:
        if again == "redo":
            batch.redo(0, files.open_rgb(3), Other(3, 0))
        else:
            batch.decode_other(0, Other(3, 0), 5)
    check_same(both)


def test_a_batch_that_is_stopped(files):
    chain = read_chain(BYTES, ours_ends_in_tensor=True)
    for native in (True, False):
        job = Job.of_batches(chain, files.source(), None) if native else Job(chain, None)
        decoder = Decoder(1, ErrorPolicy("raise", None), native)
        # So many that this thread may be off its processor for long, and some are left to stop.
        batch = decoder.begin(PictureRequest([([job], 0)], POSITIONS * 5000, [], [1]), files)
        batch.stop()
        assert batch.wait() is False
