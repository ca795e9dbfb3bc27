"""``MongoImages``: pictures in a MongoDB collection."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastloader.datasets._formats.mongo_collections import (
    TWICE,
    BadDocument,
    Connection,
    Documents,
    GridFiles,
    Keys,
    is_label,
    mongo_module,
    read_list,
    servers_of,
    whole_numbers,
)
from fastloader.datasets._formats.sample_form import Counters
from fastloader.datasets.picture_source import PictureSource
from fastloader.datasets.pictures import Pictures, checked_index
from fastloader.transforms._pillow import naming, opened

_LONGEST_TIMEOUT = 1_000_000  # milliseconds of it are a number of 32 bits
_BEGIN, _END = b"\xff\xd8", b"\xff\xd9"  # of a JPEG


class MongoImages(Pictures):
    """Pictures in documents of a MongoDB collection, or in GridFS.

    The documents of a batch come by one query, for whatever number of samples, and carry the fields that
    are needed. Each process makes a client of its own when it first asks for a sample. `FastLoader` asks
    in its workers, and decodes the pictures on its C++ threads: ``num_workers`` is how many batches are
    asked for at the same time, and ``worker_backend="thread"`` spares copies between processes.

    Args:
        uri: ``mongodb://...`` or ``mongodb+srv://...``, with user, password, TLS and other options of
            the driver.
        database, collection: Where the documents are. With ``gridfs`` the collection is the bucket's
            name, by default "fs".
        transform: The function that is applied to each picture, as in `ImageFolder`. Default None: a
            Pillow picture.
        target_transform: A function of the label; None (default) leaves the label.
        image: The field of encoded pictures.
        key: The field by which documents are asked for, which must have an index. GridFS: "filename".
        label: The field of labels, whole numbers; with a dot, a field within a field. None: there is
            none, and labels are -1. Not asked for if ``order`` has labels.
        order: Which samples there are, in their order. A path: the JSON file of the well-known recipe,
            ``{"path_list": [keys], "label_list": [labels]}``. A list: the keys. None (default): all
            documents, by ascending ``_id``, read once here.
        gridfs: Whether pictures are files in GridFS; default False. Of several files of a name, the
            newest counts.
        return_index: Whether a sample is (picture, label, index); default False.
        mode: Pillow's mode of pictures. "RGB" (default) is decoded natively, others by Pillow in the
            worker.
        timeout: Seconds after which a server that does not answer is an error; default 30. A connection
            that is lost is made again until then, with pauses.

    Attributes:
        targets: the labels if they are known beforehand, an int64 array, else None.
        keys: the samples' keys.

    A JPEG without its end marker gets one, as the well-known recipe does it. ``counts()`` says how many
    did, and how often a query was tried again. A document that is missing, or has no picture, is an
    error of its sample, which ``on_error`` may leave out if the transform is known
    (docs/encoded-images.md).

    Raises:
        ImportError: if pymongo is missing.
        fastloader.errors.Error: which names the server, and never the password, for what the driver
            raises.
        ValueError: if the key has no index, there is no sample, or ``order`` is another file.
    """

    def __init__(
        self,
        uri: str,
        database: str,
        collection: str = "fs",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        image: str = "bson_img",
        key: str = "img_name",
        label: str | None = "label",
        order: str | os.PathLike[str] | Sequence[Any] | None = None,
        gridfs: bool = False,
        return_index: bool = False,
        mode: str = "RGB",
        timeout: float = 30.0,
    ) -> None:
        mongo_module()
        for name, value in (("uri", uri), ("database", database), ("collection", collection)):
            if not isinstance(value, str):
                raise TypeError(f"{name} is text, not a {type(value).__name__}")
        if not uri.startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError(f"a URI begins with mongodb:// or mongodb+srv://, not as {uri[:10]!r}")
        if not 0 < timeout <= _LONGEST_TIMEOUT:
            raise ValueError(f"timeout={timeout}: seconds, above 0 and at most {_LONGEST_TIMEOUT}")
        if isinstance(order, str | os.PathLike):
            label = None  # that file has them
        self.database, self.collection = database, collection
        self.transform, self.target_transform = transform, target_transform
        self.return_index, self.mode = return_index, mode
        self._counters = Counters(("retries", "repaired"))
        self._connection = Connection(uri, database, timeout, self._counters)
        self._documents = (
            GridFiles(collection, label) if gridfs else Documents(collection, key, image, label)
        )
        self._connection.call(self._documents.check_index)
        self.targets: Any = None
        self.keys = Keys(self._read_order(order, label))
        if not len(self.keys):
            raise ValueError(f"{self}: there is no sample")

    def _read_order(self, order: Any, label: str | None) -> Sequence[Any]:
        if order is None:
            found = self._connection.call(lambda database: list(self._documents.all_keys(database)))
            if label is not None:
                self.targets = whole_numbers([each for _key, each in found], f"the field {label!r}")
            keys: Sequence[Any] = [key for key, _label in found]
        elif isinstance(order, str | os.PathLike):
            keys, self.targets = read_list(order)
        else:
            keys = list(order)
        if self.targets is None and label is None:
            self.targets = np.full(len(keys), -1, np.int64)
        return keys

    def name(self, index: int) -> str:
        """Returns what messages call sample ``index``."""
        documents = self._documents
        return f"{documents.key}={self.keys[index]!r} in {self.database}.{documents.collection}"

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture."""
        index = checked_index(index, len(self))
        key = self.keys[index]
        found = self._connection.call(lambda database: self._documents.of(database, [key]))
        source = self._source_of(index, key in found, found.get(key, (None, None))[0])
        if source.problem is not None:
            raise BadDocument(source.problem)
        return bytes(source.data)

    def counts(self) -> dict[str, int]:
        """Counts what was done since this object was made, in all processes: "retries", queries that
        were tried again; "repaired", JPEGs that got their end marker."""
        return self._counters.totals()

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Makes the samples of a batch by one query. If there is a transform and the mode is RGB, their
        pictures are `EncodedImage`s, which ``default_collate`` makes to tensors."""
        indices = [checked_index(index, len(self)) for index in indices]
        keys = [self.keys[index] for index in indices]
        found = self._connection.call(lambda database: self._documents.of(database, keys))
        return [
            self._sample(index, found.get(key)) for index, key in zip(indices, keys, strict=True)
        ]

    def _sample(self, index: int, found: tuple[Any, Any] | None) -> Any:
        picture, label = (None, None) if found is None else found
        source = self._source_of(index, found is not None, picture)
        if self.targets is not None:
            label = int(self.targets[index])
        elif source.problem is None and not is_label(label):
            problem = f"{source.name}: the label is {label!r}, no whole number"
            source = PictureSource(b"", source.called, problem)
        label = -1 if label is None or not is_label(label) else int(label)
        if self.target_transform is not None:
            label = self.target_transform(label)
        sample = self._encoded(source), label
        return (*sample, index) if self.return_index else sample

    def _source_of(self, index: int, there: bool, picture: Any) -> PictureSource:
        """Returns the bytes of a picture, or what is wrong with its document, as a source."""
        name = self.name(index)
        if not there:
            return PictureSource(b"", name, f"there is no document with {name}")
        if picture is TWICE:
            return PictureSource(b"", name, f"two documents have {name}: keys must be unique")
        if not isinstance(picture, bytes | memoryview):
            field = self._documents.image
            what = (
                f"no {field!r}" if picture is None else f"a {type(picture).__name__} as {field!r}"
            )
            return PictureSource(b"", name, f"the document with {name} has {what}, and no picture")
        if picture[: len(_BEGIN)] == _BEGIN and picture[-len(_END) :] != _END:
            self._counters.add("repaired")
            picture = bytes(picture) + _END
        return PictureSource(picture, name)

    def _encoded(self, source: PictureSource) -> Any:
        if source.problem is not None and (self.transform is None or self.mode != "RGB"):
            raise BadDocument(source.problem)
        if self.mode == "RGB":
            return super()._encoded(source)
        held = io.BytesIO(source.data)
        with naming(source.name, repr(held)), opened(held, source.name) as file:
            picture = file.convert(self.mode)
        return picture if self.transform is None else self.transform(picture)

    def __repr__(self) -> str:
        servers = servers_of(self._connection.uri)
        return (
            f"Dataset MongoImages\n    Number of datapoints: {len(self.keys)}\n"
            f"    Location: {servers}/{self.database}.{self.collection}\n"
            f"    Transform: {self.transform!r}"
        )
