"""Pictures in a MongoDB collection, and what limits their reader: pymongo alone, and the server.

All but the recipe ask for the same documents in the same order, a batch a query, and have as many
queries under way as there are threads, each on a connection of its own. All that ask the server run on
the processor that it leaves to them.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import PIL
import pymongo
from PIL import Image
from torch.utils.data import Dataset

from benchmarks.peers.collection import ORDER
from benchmarks.peers.scenarios import ENCODED, Settings
from benchmarks.peers.scenarios.pillow import cropped
from benchmarks.peers.scenarios.recipes.loaders import Epochs, dataloader
from benchmarks.peers.scenarios.sources import folder, readers
from benchmarks.peers.scenarios.sources.readers import CHAIN
from fastloader import FastLoader
from fastloader.datasets import MongoImages

KEY, IMAGE = "img_name", "bson_img"
FIELDS = {KEY: 1, IMAGE: 1, "_id": 0}  # as MongoImages asks for them


def versions() -> dict[str, str]:
    return {**folder.versions(), "pymongo": pymongo.version, "pillow": PIL.__version__}


def fastloader(settings: Settings) -> Epochs:
    confine(settings)
    return _epochs(_images(settings), settings)


def replayed(settings: Settings) -> Epochs:
    """Replies come from memory, as the driver hands them to MongoImages, which reads each of them anew.
    What the driver does before that, a copy of the reply included, is not in it."""
    images = _images(settings)
    replies = _replies(settings)
    # In the place of the driver. What leads to it for each batch stays, and what is made of the
    # documents.
    images._connection._ask = lambda work, stop=None: work(replies)  # type: ignore
    readers.confine_to_threads(settings)
    return _epochs(images, settings)


def drained(settings: Settings) -> Callable[[], Iterator[int]]:
    """pymongo alone. Nobody looks at the documents."""
    confine(settings)
    collection, batches = collection_of(settings), queries(settings)
    threads = ThreadPoolExecutor(settings.threads)

    def one(keys: list[str]) -> int:
        found = sum(1 for _document in collection.find({KEY: {"$in": keys}}, FIELDS))
        if found != len(keys):
            raise RuntimeError(f"{len(keys)} documents were asked for, and {found} came")
        return found

    return lambda: threads.map(one, batches)


def recipe(settings: Settings) -> Epochs:
    confine(settings)
    return dataloader(Recipe(settings), settings)


class Recipe(Dataset[Any]):
    """The well-known recipe: one ``find_one`` a picture, by a client that each worker makes itself."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.names, self.labels = order(settings)
        self.collection: Any = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        if self.collection is None:
            self.collection = collection_of(self.settings)
        jpeg = self.collection.find_one({KEY: self.names[index]})[IMAGE]
        if not jpeg.endswith(b"\xff\xd9"):
            jpeg += b"\xff\xd9"
        return cropped(Image.open(io.BytesIO(jpeg)).convert("RGB")), self.labels[index]


class Replies:
    """What the server has replied, by the first key of the query. Stands in the place of a database, and
    of its collection."""

    codec_options = bson.DEFAULT_CODEC_OPTIONS

    def __init__(self, replies: dict[str, list[bytes]]) -> None:
        self.replies = replies

    def __getitem__(self, name: str) -> Replies:
        return self

    @contextlib.contextmanager
    def find_raw_batches(self, query: Any, fields: Any) -> Iterator[list[bytes]]:
        assert fields == FIELDS
        yield self.replies[query[KEY]["$in"][0]]


@functools.cache  # new loaders find them there
def _replies(settings: Settings) -> Replies:
    with collection_of(settings).database.client as client:
        collection = client.get_default_database()[settings.collection]
        return Replies(
            {
                keys[0]: list(collection.find_raw_batches({KEY: {"$in": keys}}, FIELDS))
                for keys in queries(settings)
            }
        )


def order(settings: Settings) -> tuple[list[str], list[int]]:
    """(keys, labels) of the samples."""
    listed = json.loads(Path(settings.work, ORDER).read_text())
    return listed["path_list"], listed["label_list"]


def drawn(settings: Settings) -> list[int]:
    """The order of an epoch, the same for all."""
    count = len(order(settings)[0])
    return random.Random(0).sample(range(count), count)


def queries(settings: Settings) -> list[list[str]]:
    """The keys that are asked for together."""
    names, _labels = order(settings)
    keys = [names[index] for index in drawn(settings)]
    size = settings.batch_size
    return [keys[begin : begin + size] for begin in range(0, len(keys), size)]


def collection_of(settings: Settings) -> Any:
    client: Any = pymongo.MongoClient(settings.mongodb, connect=False)
    return client.get_default_database()[settings.collection]


def confine(settings: Settings) -> None:
    """Has this process, with all threads that it has, run where those run that ask the server."""
    assert settings.processor is not None
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {settings.processor})


def _images(settings: Settings) -> MongoImages:
    database = collection_of(settings).database.name
    return MongoImages(
        settings.mongodb,
        database,
        settings.collection,
        CHAIN,
        order=Path(settings.work, ORDER),
    )


def _epochs(dataset: MongoImages, settings: Settings) -> Epochs:
    loader: FastLoader[Any] = FastLoader(
        dataset,
        batch_size=settings.batch_size,
        sampler=drawn(settings),
        num_workers=settings.threads,
        worker_backend="thread",
        persistent_workers=True,
    )
    return Epochs(loader, loader, ENCODED)
