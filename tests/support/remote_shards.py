"""Shards in a store of objects, and what every dataset of them must give."""

import hashlib
import io
import os
import random
import tarfile

import numpy as np
import object_stores
from faulty_proxy import FaultyProxy
from pictures import save_jpeg
from PIL import Image

from fastloader.datasets import ShardCache

SHARDS, EACH = 5, 8
NAMES = "/train/x-{0000..0004}.tar"


def make_shard(rng, folder, shard, pictures=None, first=0):
    """The shard, and the (picture, label, text) of its samples. ``pictures``: such samples, whose
    pictures and texts it has. ``first``: how much its labels are higher."""
    out, files = io.BytesIO(), []
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in range(EACH):
            save_jpeg(rng, folder / "x.jpg", 60, 40)
            file, text = (folder / "x.jpg").read_bytes(), rng.randbytes(30).hex()
            if pictures is not None:
                file, _, text = pictures[number]
            label = shard * EACH + number + first
            for ending, content in (("jpg", file), ("cls", b"%d" % label), ("txt", text.encode())):
                info = tarfile.TarInfo(f"{shard}/{number:03}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            files.append((file, label, text))
    return out.getvalue(), files


def tar_of(numbers):
    """Without any picture that could be decoded: what counts is the order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number in numbers:
            for ending, content in (("jpg", b"%d" % number), ("cls", b"%d" % number)):
                info = tarfile.TarInfo(f"{number}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Store:
    """A server with shards, and a proxy before it."""

    def __init__(self, kind, work):
        self.kind = kind
        self.server = object_stores.started(kind, work)
        self.proxy = FaultyProxy(self.server.port)
        self.rng = random.Random(os.urandom(8))
        self.work = work
        self.shards, self.files = [], []
        for shard in range(SHARDS):
            content, files = make_shard(self.rng, work, shard)
            self.shards.append(content)
            self.files += files
            self.server.put(f"train/x-{shard:04}.tar", content)

    def url(self, names=NAMES):
        return self.server.url(self.proxy.port) + names

    def cache(self, folder, most=None, timeout=30.0):
        options = self.server.options(self.proxy.port)
        return ShardCache(folder, most, storage_options=options, timeout=timeout)

    def room_for(self, shards):
        return int(max(map(len, self.shards)) * (shards + 0.5))


def sha(content):
    return hashlib.sha256(content).hexdigest()


def check_samples(dataset, files):
    assert len(dataset) == len(files)
    found = [sha(dataset.image_bytes(index)) for index in range(len(dataset))]
    assert found == [sha(file) for file, *_ in files]
    assert dataset.targets.tolist() == [label for _, label, _ in files]


def check_batches(loader, files, size=(20, 24)):
    seen = []
    for images, labels in loader:
        for image, label in zip(images, labels.tolist(), strict=True):
            picture = Image.open(io.BytesIO(files[label][0])).convert("RGB")
            picture = picture.resize(size, Image.Resampling.BILINEAR)
            assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(picture))
            seen.append(label)
    assert sorted(seen) == list(range(len(files)))
    return seen
