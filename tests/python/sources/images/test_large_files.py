"""A JPEG in a file that is much larger: sparse, or with something else behind the picture."""

import os
import random

import numpy as np
import pytest
from bombs import progressive
from pictures import picture
from PIL import Image
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from fastloader.transforms import _pillow
from fastloader.transforms._pillow import LARGE, CountedJpeg


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "c" / "a.jpg"
    path.parent.mkdir()
    picture(random.Random(1), 300, 200).save(path)
    wanted = np.asarray(Image.open(path).convert("RGB"))
    os.truncate(path, 1 << 40)
    return path, wanted


def test_it_is_read_as_far_as_the_picture_goes(large, monkeypatch):
    path, wanted = large
    reached = []
    reach = CountedJpeg._reach

    def noted(self, end):
        reach(self, end)
        reached.append(len(self._data))

    monkeypatch.setattr(CountedJpeg, "_reach", noted)
    assert np.array_equal(np.asarray(_pillow.open_rgb(str(path))), wanted)
    with _pillow.opened(path) as header:
        assert header.size == (300, 200)
    assert 0 < max(reached) <= 4 << 20


def test_loaders_have_it(large):
    path, _wanted = large
    dataset = ImageFolder(path.parent.parent, T.Resize((20, 30)))
    ((images, _),) = FastLoader(dataset, 1)
    ((theirs, _),) = DataLoader(dataset, 1)
    assert (images == theirs).all()


def test_its_scans_are_counted_before_pillow_has_them(tmp_path):
    path = tmp_path / "a.jpg"
    # More than is read at first, so that the scans come piece by piece.
    path.write_bytes(progressive(8000, 8000, 34, header=b"\xff\xfe\xff\xff" + bytes(65533)))
    os.truncate(path, LARGE + 1)
    with pytest.raises(Image.DecompressionBombError, match="more than 33 scans"):
        _pillow.open_rgb(str(path))


def test_a_file_that_ends(tmp_path):
    """It reads as a file does."""
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * 20000)
    checked = []
    with open(path, "rb") as file:
        jpeg = CountedJpeg(file, "a", lambda data: checked.append(len(data)), owned=False)
        assert jpeg.read(3) == b"\0\1\2" and jpeg.tell() == 3 and checked == [1 << 20]
        assert jpeg.seek(-1, os.SEEK_END) == 5119999 and jpeg.read() == b"\xff"
        assert jpeg.seek(256) == 256 and jpeg.seek(1, os.SEEK_CUR) == 257 and jpeg.read(1) == b"\1"
        assert checked == [1 << 20, 2 << 20, 4 << 20, 5120000]
        jpeg.close()
        assert not file.closed
