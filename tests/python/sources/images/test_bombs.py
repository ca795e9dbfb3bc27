"""Small files that would keep a decoder busy for minutes: refused by name, on every way, before Pillow
has them, and nobody waits for one."""

import _thread
import decimal
import fractions
import io
import random
import sys
import threading
import time
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from bombs import progressive
from pictures import jpeg_kinds, needs_libjpeg, picture, plain_folder, save_jpeg
from PIL import Image
from torch.utils.data import DataLoader, default_collate

import fastloader
from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.pictures.store import FolderStore
from fastloader.cli import check
from fastloader.datasets import ImageFolder
from fastloader.transforms import _pillow

CHAIN = T.Resize((24, 20))
HUGE = progressive(8000, 8000, 5000)  # a minute
MANY = progressive(40, 30, 101)
LIMIT = 2 * 89478485  # pixels
# The native decoder leaves these to Pillow.
FOR_PILLOW = progressive(8000, 8000, 5000, arithmetic=True)

needs_native = pytest.mark.skipif(
    fastloader._core.machine.extension.load() is None, reason="needs the native module"
)


@pytest.fixture
def guard(monkeypatch):
    """From its call on, Pillow decodes nothing of what a test calls a bomb. A loader that is made behind
    it takes the Python path, because Pillow was changed."""
    opened = Image.open

    def guarded(file, *arguments, **options):
        name = getattr(file, "name", "")
        assert "bomb" not in str(name), "Pillow was given a bomb"
        return opened(file, *arguments, **options)

    return lambda: monkeypatch.setattr(Image, "open", guarded)


def folder(root, *bombs):
    """Four pictures, and the bombs behind them."""
    plain_folder(root, 4, classes=1)
    for number, data in enumerate(bombs):
        (root / "c0" / f"zbomb{number}.jpg").write_bytes(data)
    return ImageFolder(str(root), CHAIN)


REFUSED = [
    pytest.param(HUGE, "8000x8000 pixels has more than 33 scans", id="scans times pixels"),
    pytest.param(MANY, "40x30 pixels has more than 100 scans", id="scans"),
    pytest.param(FOR_PILLOW, "8000x8000 pixels has more than 33 scans", id="arithmetic"),
]


@pytest.mark.parametrize(("data", "words"), REFUSED)
def test_an_indexed_sample_is_refused(tmp_path, guard, data, words):
    dataset = folder(tmp_path, data)
    guard()
    with pytest.raises(Image.DecompressionBombError, match=words) as raised:
        dataset[4]
    assert "; 100 are the most, and 2147483648 for scans times pixels" in str(raised.value)
    assert dataset.path(4) in str(raised.value)
    assert dataset[0][0].shape == (3, 24, 20)


@pytest.mark.exhaustive
@needs_native
@pytest.mark.parametrize(("data", "words"), REFUSED)
def test_the_native_path_refuses_in_the_same_words(tmp_path, device, guard, data, words):
    dataset = folder(tmp_path, data)
    loader = FastLoader(dataset, 2, num_workers=2, **device)
    assert loader.plan().startswith("native images")
    iterator = iter(loader)
    guard()
    assert len(next(iterator)[0]) == len(next(iterator)[0]) == 2
    with pytest.raises(Image.DecompressionBombError, match=words) as raised:
        next(iterator)
    with pytest.raises(Image.DecompressionBombError) as alone:
        dataset[4]
    # A loader names the sample and its file in a note besides.
    name = f"{dataset.path(4)}: "
    assert str(raised.value).removeprefix(name) == str(alone.value).removeprefix(name)


@needs_native
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_refused_sample_is_a_bad_sample(tmp_path, guard, on_error):
    dataset = folder(tmp_path, MANY)
    iterator = iter(FastLoader(dataset, 5, on_error=on_error))
    guard()
    ((images, _labels),) = iterator
    assert len(images) == (4 if on_error == "skip" else 5)


@pytest.mark.parametrize("data", [HUGE, FOR_PILLOW], ids=["progressive", "arithmetic"])
def test_worker_processes_refuse(tmp_path, data):
    dataset = folder(tmp_path, data, data)
    begun = time.process_time()
    loader = FastLoader(dataset, 1, num_workers=2, native=False)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    for _ in range(2):
        with pytest.raises(Image.DecompressionBombError, match="more than 33 scans"):
            next(iterator)
    loader.close()
    assert time.process_time() - begun < 5


@needs_native
@needs_libjpeg
def test_close_while_every_thread_is_at_one(tmp_path, device):
    """Of the most scans that are allowed: nothing but the end of the epoch ends these early."""
    dataset = folder(tmp_path, *[progressive(8000, 8000, 33)] * 6)
    loader = FastLoader(dataset, 2, num_workers=3, **device)
    iterator = iter(loader)
    before = fastloader._native.decode_cpu_seconds()
    while fastloader._native.decode_cpu_seconds() - before < 0.1:  # they are under way
        time.sleep(0.01)
    begun = time.process_time()
    loader.close()
    assert time.process_time() - begun < 1
    del iterator
    # Nobody goes on with any: the pool is another loader's at once.
    assert len(list(FastLoader(torch.utils.data.Subset(dataset, range(4)), 2, num_workers=3))) == 2


class Gate:
    """Pillow at work on a file, for as long as a test says."""

    def __init__(self, monkeypatch, then=lambda: None):
        self.begun = threading.Event()
        self.open = threading.Event()
        self.left = threading.Event()
        opened = FolderStore.open_rgb

        def held(files, index):
            if "bomb" not in files.name(index):
                return opened(files, index)
            self.begun.set()
            then()
            self.open.wait(60)
            self.left.set()
            raise OSError("too late")

        monkeypatch.setattr(FolderStore, "open_rgb", held)


@needs_native
def test_close_while_pillow_repairs(tmp_path, device, monkeypatch):
    gate = Gate(monkeypatch)
    loader = FastLoader(folder(tmp_path, b"no picture"), 5, num_workers=2, **device)
    iterator = iter(loader)
    ended = []

    def consume():
        try:
            next(iterator)
        except (StopIteration, fastloader.Error) as error:
            ended.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert gate.begun.wait(60)
    loader.close()
    consumer.join(60)
    assert ended and not gate.left.is_set()
    gate.open.set()


@needs_native
def test_ctrl_c_while_pillow_repairs(tmp_path, enter_way, monkeypatch):
    enter_way("cpu")
    gate = Gate(monkeypatch, then=_thread.interrupt_main)
    loader = FastLoader(folder(tmp_path, b"no picture"), 5, num_workers=2)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    assert gate.begun.is_set() and not gate.left.is_set()
    gate.open.set()
    assert gate.left.wait(60)


def test_real_pictures_have_few_scans(tmp_path):
    rng = random.Random(5)
    for name, mode, options in jpeg_kinds():
        path = tmp_path / f"{name}.jpg"
        save_jpeg(rng, path, mode=mode, **options)
        data = path.read_bytes()
        assert _pillow.excess(data, LIMIT) is None, name
        # Wherever the bytes end.
        for cut in rng.sample(range(len(data)), 20):
            assert _pillow.excess(data[:cut], LIMIT) is None, name
    for noise in range(50):
        data = b"\xff\xd8\xff" + random.Random(noise).randbytes(3000)
        _pillow.excess(data, LIMIT)


def test_what_looks_like_a_scan_in_a_segment_is_none():
    """A thumbnail in EXIF is a JPEG in a JPEG."""
    buffer = io.BytesIO()
    picture(random.Random(1), 60, 50).save(
        buffer, "JPEG", progressive=True, comment=b"\xff\xda" * 500
    )
    assert _pillow.excess(buffer.getvalue(), LIMIT) is None
    assert _pillow.decoded_rgb(io.BytesIO(buffer.getvalue())).size == (60, 50)


@pytest.mark.parametrize("scans", [99, 100, 101, 400])
def test_both_decoders_count_alike(tmp_path, scans):
    dataset = folder(tmp_path, progressive(40, 30, scans))
    reason = _pillow.excess(progressive(40, 30, scans), LIMIT)
    assert (reason is None) == (scans <= 100)
    if fastloader._core.machine.extension.load() is None:
        return
    loader = FastLoader(dataset, 5)
    if reason is None:
        ((images, _labels),) = loader
        assert torch.equal(images[4], dataset[4][0])
        return
    with pytest.raises(Image.DecompressionBombError) as raised:
        next(iter(loader))
    assert str(raised.value).removeprefix(f"{dataset.path(4)}: ") == reason


# --- Image.MAX_IMAGE_PIXELS ---------------------------------------------------------------------


def outcome(make):
    """(exception or None, warnings) of it."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            make()
            raised = None
        except Exception as error:
            raised = error
    bombs = [each for each in heard if each.category is Image.DecompressionBombWarning]
    return type(raised), str(raised), [str(each.message) for each in bombs]


@needs_native
@pytest.mark.parametrize("limit", [None, 1_000_000, 1200, 1199, 1000, 600, 599, 100, 0])
def test_the_pixel_limit_is_the_users(tmp_path, device, monkeypatch, limit):
    """1200 pixels: fine, worth a warning, refused; as Pillow has it."""
    (tmp_path / "c").mkdir()
    picture(random.Random(2), 40, 30).save(tmp_path / "c" / "a.jpg")
    dataset = ImageFolder(str(tmp_path), CHAIN)
    loader = FastLoader(dataset, 1, **device)
    list(loader)  # the limit is looked at in each epoch
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    wanted = outcome(lambda: list(DataLoader(dataset, 1)))
    assert outcome(lambda: list(loader)) == wanted
    if limit is not None and limit < 1200:
        assert wanted[2] or wanted[0] is Image.DecompressionBombError


def begun(dataset):
    """What Python finishes, of a picture that was begun natively."""
    known = ImageFolder(dataset.root, T.Compose([CHAIN, lambda made: torch.tensor(made.size)]))
    loader = FastLoader(known, 1)
    assert "native up to" in loader.plan(), loader.plan()
    return loader


def checked(dataset):
    """`fastloader check` has the error, and says nothing of a large picture, which is sound."""
    store = FolderStore(dataset.paths, dataset.ends)
    error = check._Trial(store).error(0)
    if error is not None:
        raise error


# Each makes the picture of a dataset.
ALONE = {
    "decode_image": lambda dataset: fastloader.decode_image(dataset.path(0)),
    "decode_image of bytes": lambda dataset: fastloader.decode_image(
        Path(dataset.path(0)).read_bytes()
    ),
    "a part": lambda dataset: fastloader.decode_image(dataset.path(0), (0, 0, 3, 3)),
    "EncodedImage": lambda dataset: fastloader.EncodedImage(dataset.path(0), CHAIN).decode(),
    "whole": lambda dataset: fastloader.EncodedImage(dataset.path(0)).decode(),
    "finished by Python": lambda dataset: list(begun(dataset)),
    "check": checked,
}


@pytest.mark.exhaustive
@needs_native
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("how", ALONE)
def test_the_limit_holds_outside_of_batches(tmp_path, monkeypatch, how, kind):
    """Above once, Pillow warns and goes on."""
    (tmp_path / "c").mkdir()
    path = tmp_path / "c" / "a.jpg"
    picture(random.Random(2), 40, 30).save(path, kind)
    dataset = ImageFolder(str(tmp_path), CHAIN)
    for limit in (None, 1_000_000, 1200, 1199, 600, 599, 1200):  # it changes
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        wanted = outcome(lambda: Image.open(path).load())
        got = outcome(lambda: ALONE[how](dataset))
        if how == "check":
            wanted = (*wanted[:2], got[2])
        assert (got[0], got[2]) == (wanted[0], wanted[2]), limit


@needs_native
def test_a_worker_warns_and_goes_on(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    picture(random.Random(2), 40, 30).save(tmp_path / "c" / "a.jpg")
    path = str(tmp_path / "c" / "a.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 800)

    class One(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return fastloader.EncodedImage(path, CHAIN)

    def collate(samples):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            return default_collate(samples), [str(each.message) for each in heard]

    ((made, (heard,)),) = DataLoader(One(), 1, num_workers=1, collate_fn=collate)
    assert made.shape == (1, 3, 24, 20) and "exceeds limit of 800 pixels" in heard


def test_a_picture_without_end_is_refused_in_pillows_words(tmp_path):
    """Not for its scans, of which it has one."""
    data = progressive(65535, 65535, 1)
    reason = _pillow.excess(data, LIMIT)
    assert reason.startswith("Image size (4294836225 pixels) exceeds limit of 178956970 pixels")
    assert _pillow.excess(data, 1 << 33) is None


ODD = [
    float("inf"),
    float("nan"),
    -5,
    -float("inf"),
    599.4,
    599.6,
    1199.5,
    1200.5,
    1 << 80,
    True,
    np.int64(700),
    np.int64(500),
    np.float32(1e30),
    fractions.Fraction(1201, 2),
    decimal.Decimal("Infinity"),
]


@needs_native
@pytest.mark.parametrize("limit", ODD, ids=repr)
def test_a_pixel_limit_may_be_any_number(tmp_path, monkeypatch, limit):
    (tmp_path / "c").mkdir()
    picture(random.Random(2), 40, 30).save(tmp_path / "c" / "a.jpg")
    dataset = ImageFolder(str(tmp_path), CHAIN)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    wanted = outcome(lambda: list(DataLoader(dataset, 1)))
    got = outcome(lambda: list(FastLoader(dataset, 1)))
    # The limit stands in the message as a whole number of pixels.
    assert (got[0], len(got[2])) == (wanted[0], len(wanted[2]))


@needs_native
@pytest.mark.parametrize("limit", ["9", [9], 1j])
def test_a_pixel_limit_that_is_none(tmp_path, monkeypatch, limit):
    dataset = folder(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(
        TypeError, match=r"PIL\.Image\.MAX_IMAGE_PIXELS is .*: it is a number of pixels"
    ):
        list(FastLoader(dataset, 1))


@needs_native
def test_a_warning_that_a_filter_makes_an_error(tmp_path, device, monkeypatch):
    dataset = folder(tmp_path)
    large = Path(dataset.path(3))
    picture(random.Random(2), 400, 300).save(large)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        iterator = iter(FastLoader(dataset, 2, **device))
        assert len(next(iterator)[0]) == 2
        with pytest.raises(Image.DecompressionBombWarning, match="120000 pixels"):
            next(iterator)


def test_the_limit_is_pillows_own_while_another_thread_imports_pillow(monkeypatch):
    limits = _pillow.pixel_limits()
    monkeypatch.setitem(sys.modules, "PIL.Image", types.ModuleType("PIL.Image"))
    assert _pillow.pixel_limits() == limits == (89478485, 2 * 89478485)
