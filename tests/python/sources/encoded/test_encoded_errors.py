"""Encoded pictures that cannot be read, and epochs that end before their pictures are made."""

import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from encoded_samples import CROP, WHOLE, Captions, Views, as_bytes, paths_below
from pictures import needs_libjpeg, open_as_torchvision, plain_folder
from torch.utils.data import Dataset

from fastloader import EncodedImage, Error, FastLoader
from fastloader import transforms as T
from support import same

pytestmark = pytest.mark.covering

WORKERS = [{}, {"num_workers": 2}, {"num_workers": 2, "worker_backend": "thread"}]
BAD = 5


@pytest.fixture
def paths(tmp_path):
    found = paths_below(plain_folder(tmp_path, 11, classes=1))
    Path(found[BAD]).write_bytes(b"\xff\xd8\xff no picture")
    return found


def batches_of(dataset, **options):
    torch.manual_seed(3)
    loader = FastLoader(dataset, 4, **options)
    got = []
    iterator = iter(loader)
    while True:
        try:
            got.append(next(iterator))
        except StopIteration:
            return loader, got
        except Exception as error:
            got.append(error)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_an_error_takes_its_batchs_place_and_names_the_file(paths, options, way):
    loader, got = batches_of(Captions(paths, WHOLE), **options, **way.options)
    assert [type(each) for each in got[::2]] == [list, list]
    assert isinstance(got[1], OSError)
    if sys.version_info >= (3, 11):
        assert any(paths[BAD] in note for note in [*got[1].__notes__, str(got[1])])
        assert any(f"sample {BAD}" in note for note in got[1].__notes__)
    assert got[2][1].tolist() == [8, 9, 10]
    assert loader.stats()["pictures"]["bad"] == 1


@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_skip_leaves_the_sample_out_of_every_leaf(paths, options, way):
    loader, got = batches_of(
        Captions(paths, WHOLE, as_bytes), on_error="skip", **options, **way.options
    )
    assert [len(batch[0]) for batch in got] == [4, 3, 3]
    assert got[1][1].tolist() == [4, 6, 7]
    assert list(got[1][2]) == ["text 4", "text 6", "text 7"]
    for images, numbers, _ in got:
        for image, number in zip(images, numbers.tolist()):
            wanted = T.PILToTensor()(WHOLE(open_as_torchvision(paths[number])))
            assert torch.equal(image.cpu(), wanted)
    counted = loader.stats()["pictures"]
    assert (counted["bad"], counted["seen"]) == (1, 11)
    assert "sample 5" in counted["last_bad"][0]


def test_skip_of_a_whole_batch_goes_on_with_the_next(paths, way):
    for each in range(4, 8):
        Path(paths[each]).write_bytes(b"no picture")
    loader, got = batches_of(Captions(paths, WHOLE), on_error="skip", num_workers=1, **way.options)
    assert [batch[1].tolist() for batch in got] == [[0, 1, 2, 3], [8, 9, 10]]
    assert loader.stats()["pictures"]["bad"] == 4


@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_replace_takes_the_whole_sample(paths, options, way):
    _, got = batches_of(Captions(paths, WHOLE), on_error="replace", **options, **way.options)
    assert [len(batch[0]) for batch in got] == [4, 4, 3]
    other = got[1][1].tolist()[1]
    assert other != BAD
    assert got[1][2][1] == f"text {other}"
    wanted = T.PILToTensor()(WHOLE(open_as_torchvision(paths[other])))
    assert torch.equal(got[1][0][1].cpu(), wanted)
    _, again = batches_of(Captions(paths, WHOLE), on_error="replace", **way.options)
    for batch, same_batch in zip(got, again, strict=True):
        same(batch, same_batch)


def test_replace_finds_nothing_where_all_are_bad(paths):
    for path in paths:
        Path(path).write_bytes(b"no picture")
    _, got = batches_of(Captions(paths, WHOLE), on_error="replace")
    assert all(isinstance(each, Error) and "no replacement for" in str(each) for each in got)


def test_too_many_bad_samples_are_refused(paths):
    for path in paths[:3]:
        Path(path).write_bytes(b"no picture")
    _, got = batches_of(Captions(paths, WHOLE), on_error="skip", max_errors=2)
    assert isinstance(got[0], Error) and "3 of 4 samples could not be read" in str(got[0])


def test_skip_of_one_view_drops_all_of_its_sample(paths):
    class Pair(Dataset):
        def __len__(self):
            return len(paths)

        def __getitem__(self, i):
            return EncodedImage(paths[i], WHOLE), EncodedImage(paths[i - 1], CROP), i

    _, got = batches_of(Pair(), on_error="skip")
    assert [batch[2].tolist() for batch in got] == [[0, 1, 2, 3], [4, 7], [8, 9, 10]]
    assert [len(batch[0]) for batch in got] == [len(batch[1]) for batch in got] == [4, 2, 3]


class PathsAndBytes(Captions):
    def __getitem__(self, i):
        source = Path(self.paths[i]).read_bytes() if i % 2 else self.paths[i]
        return EncodedImage(source, WHOLE), i


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_paths_and_bytes_in_one_batch(paths, options, way):
    Path(paths[2]).unlink()
    loader, got = batches_of(PathsAndBytes(paths), **options, **way.options)
    assert isinstance(got[0], FileNotFoundError) and paths[2] in str(got[0])
    loader, got = batches_of(PathsAndBytes(paths), on_error="skip", **options, **way.options)
    assert [batch[1].tolist() for batch in got] == [[0, 1, 3], [4, 6, 7], [8, 9, 10]]
    for images, numbers in got:
        for image, number in zip(images, numbers.tolist()):
            wanted = T.PILToTensor()(WHOLE(open_as_torchvision(paths[number])))
            assert torch.equal(image.cpu(), wanted)
    counted = loader.stats()["pictures"]
    processes = options.get("num_workers") and options.get("worker_backend") != "thread"
    if way.name == "pure" and processes:
        assert (counted["workers"], counted["pool"] + counted["pillow"]) == (len(paths) - 2, 0)
    else:
        assert (counted["workers"], counted["pool"] + counted["pillow"]) == (0, len(paths) - 2)


def test_options_of_pictures_are_refused_where_there_are_none(paths):
    class Numbers(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return i

    _, got = batches_of(Numbers(), on_error="skip")
    assert "on_error='skip': for pictures on the native path" in str(got[0])

    class Odd:
        def __call__(self, image):
            return torch.zeros(3)

    _, got = batches_of(Captions(paths[:4], Odd()), truncated="pad")
    assert all("truncated='pad'" in str(each) for each in got)


@needs_libjpeg
def test_truncated_pictures_are_padded_if_asked(paths):
    whole = as_bytes(paths[0])
    Path(paths[0]).write_bytes(whole[: len(whole) * 2 // 3])
    _, got = batches_of(Captions(paths[:4], WHOLE))
    assert isinstance(got[0], OSError) and "truncated" in str(got[0])
    _, got = batches_of(Captions(paths[:4], WHOLE), truncated="pad")
    assert len(got[0][0]) == 4


def test_a_large_picture_is_warned_of(paths, monkeypatch):
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 800)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches_of(Captions(paths[:4], WHOLE))
    assert any(each.category is Image.DecompressionBombWarning for each in caught)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    _, got = batches_of(Captions(paths[:4], WHOLE))
    assert isinstance(got[0], Image.DecompressionBombError)


# --- epochs that end ----------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_an_iterator_that_is_dropped_leaves_nothing_behind(paths, options, way):
    loader = FastLoader(Views(paths[:5]), 2, **options, **way.options)
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        del iterator
    loader.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_close_ends_a_next_that_waits_for_pillow(paths, options, way, monkeypatch):
    """Pillow stands still at the bad file, and another thread closes the loader."""
    begun, go_on = threading.Event(), threading.Event()

    def stands(_file, *_name):
        begun.set()
        go_on.wait(60)
        raise OSError("let go")

    monkeypatch.setattr("fastloader.datasets.picture_source.open_rgb", stands)
    if way.name == "pure":
        pytest.skip("Pillow decodes every picture there")
    loader = FastLoader(Captions(paths, WHOLE), 4, **options, **way.options)
    raised = []

    def run():
        try:
            for _ in loader:
                pass
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(60)
    loader.close()
    thread.join(60)
    assert not thread.is_alive()
    go_on.set()
