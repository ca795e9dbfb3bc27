"""What the native decoder and Pillow make of the same bytes."""

import io
import random
import warnings

import numpy as np
from PIL import Image

from fastloader._core.machine import extension
from fastloader._core.pictures.store import FolderStore
from fastloader.errors import Error


def by_pillow(data):
    """The RGB pixels, or None where Pillow fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                return np.asarray(image.convert("RGB"))
        except Exception:  # Pillow's kinds of errors at damaged files are many
            return None


def natively(data, size, box=None, whole=False):
    """The RGB pixels of the box, or None where they are left to Pillow. ``size``: (width, height)."""
    native = extension.load()
    left, top, width, height = box or (0, 0, *size)
    out = np.zeros((height, width, 3), np.uint8)
    try:
        made = native.PictureDecoder().decode(
            data, box=(left, top, width, height), whole=whole, destination=out.ctypes.data
        )
    except (Error, ValueError, Image.DecompressionBombError):
        return None
    assert made == (height, width)
    return out


def random_box(rng, size):
    """(left, top, width, height) within a picture of (width, height)."""
    left, top = (rng.randrange(edge) for edge in size)
    return left, top, rng.randint(1, size[0] - left), rng.randint(1, size[1] - top)


def assert_same(rng, data, note):
    """That a file in good order is decoded natively, to Pillow's pixels: whole and in a box."""
    wanted = by_pillow(data)
    assert wanted is not None, note
    size = wanted.shape[1::-1]
    for whole in (False, True):
        assert_equal(natively(data, size, None, whole), wanted, note)
        left, top, width, height = box = random_box(rng, size)
        part = wanted[top : top + height, left : left + width]
        assert_equal(natively(data, size, box, whole), part, (note, box, whole))


def assert_equal(made, wanted, note):
    assert made is not None, (note, "left to Pillow")
    assert np.array_equal(made, wanted), (note, "other pixels")


def damaged(rng, data):
    """The bytes with some of them changed, cut off, taken out, put in or repeated."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind < 3 and at < len(data):
            data[at] = rng.choice([data[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
        elif kind == 3:
            del data[at : at + rng.randint(1, 20)]
        elif kind == 4:
            data[at:at] = data[at : at + rng.randint(1, 40)]
        else:
            del data[at:]
    return bytes(data)


def judge_damaged(rng, data, note):
    """Whether a damaged file was decoded natively. If so, Pillow has to succeed, with the same pixels;
    where only a box is decoded, it may fail at what lies below."""
    wanted = by_pillow(data)
    # Pillow's size; any will do where it fails.
    size = (8, 8) if wanted is None else wanted.shape[1::-1]
    made = natively(data, size, None if wanted is not None else (0, 0, 1, 1), whole=True)
    if made is None:
        return False
    assert wanted is not None, (note, data.hex(), "Pillow fails")
    assert np.array_equal(made, wanted), (note, data.hex())
    box = left, top, width, height = random_box(rng, size)
    part = natively(data, size, box)
    if part is not None:
        assert np.array_equal(part, wanted[top : top + height, left : left + width]), (note, box)
    return True


def count_pillows(monkeypatch):
    """A list that receives the number of each sample that is given to Pillow from now on."""
    seen = []
    opened = FolderStore.open_rgb

    def counted(store, index):
        seen.append(index)
        return opened(store, index)

    monkeypatch.setattr(FolderStore, "open_rgb", counted)
    return seen


def random_source():
    """A seed for a message, and its generator."""
    seed = random.randrange(1 << 32)
    return seed, random.Random(seed)
