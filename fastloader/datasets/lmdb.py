"""``LMDBDataset``: pictures in one memory-mapped file."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastloader._core.machine.mapped_memory import read_view
from fastloader._core.machine.messages import SILENT, progress
from fastloader.datasets._formats.lmdb_files import (
    TARGETS,
    DamagedError,
    Environment,
    Record,
    decode_record,
    key_of,
    open_environment,
    read_meta,
)
from fastloader.datasets._formats.paths import is_url
from fastloader.datasets._formats.sample_form import shown_dataset
from fastloader.datasets._remote.shard_cache import ShardCache
from fastloader.datasets.pictures import Pictures, checked_index
from fastloader.transforms._pillow import decoded_rgb
from fastloader.transforms._python_chain import as_tensor_chain


class LMDBDataset(Pictures, called="LMDB files"):
    """Pictures that ``fastloader pack`` put into one file.

    The file is mapped into memory, read-only. All processes of the machine that read it share its pages
    through the page cache, and the native path decodes straight from them, with the seek indices that
    ``fastloader pack`` put beside them (docs/seek-index.md). Opening the file reads the labels and no
    picture.

    A file in an object store (``s3://``, ``gs://``, ``az://``, ``https://``) is fetched into a
    `ShardCache` first, as a whole.

    Args:
        path: The file, or the folder of an environment in folder form, or the URL of a file.
        transform: The function that is applied to each picture, as in `ImageFolder`; default None.
        target_transform: A function of the label; None (default) leaves the label.
        legacy: Whether to read a file of the well-known recipe; default False. Such a file has pickled
            ``__keys__`` and ``__len__``. Its values are a pickled array, or a pickled tuple of image
            (bytes of a file, or array) and label. They are unpickled as tuples, lists, numbers, text,
            bytes and numpy arrays only. Python reads such a file, and not the native path.
        samples: The form of a legacy file's samples. "pictures" (default): (picture, label). "as
            stored": whatever was pickled, with an `EncodedImage` for each encoded picture, which has
            the ``transform``.
        cache: Where a file that comes from a URL is kept, and how to reach it. Default None: a
            `ShardCache` with its defaults. Not used for a path.

    Attributes:
        path: the path or URL.
        classes: names, or None if the file has none.
        class_to_idx: name to label.
        targets: labels, an int64 array (-1: none; None for a legacy file, whose labels are known sample
            by sample).
        indexed: how many pictures have a seek index.

    Samples are (picture, label), as with `ImageFolder`. A dataset may be pickled, and used after a fork
    or in a spawned process. A packing that was interrupted can be read as far as it got, with a
    warning.

    Raises:
        ImportError: if the lmdb package is missing, or obstore for a URL.
        FileNotFoundError, PermissionError, BlockingIOError: if the file is missing, may not be read,
            or is being packed.
        fastloader.errors.Error: for a URL, if the store cannot be read, or the cache has no room.
        ValueError: if the file is no LMDB file, is cut off or of another version, or is a legacy file
            without ``legacy=True``. Also for ``samples`` where they mean nothing. From indexing, if a
            record is damaged; the error names its key.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        legacy: bool = False,
        samples: str = "pictures",
        cache: ShardCache | None = None,
    ) -> None:
        given = os.fspath(path)
        self.cache = (cache or ShardCache()) if is_url(given) else None
        self._object = None if self.cache is None else self.cache.connection.head(given)
        self.path = given if self.cache else os.path.abspath(os.path.expanduser(given))
        self.transform = transform
        self.target_transform = target_transform
        if samples not in ("pictures", "as stored"):
            raise ValueError(f"samples={samples!r}: 'pictures' or 'as stored'")
        if samples == "as stored" and not legacy:
            raise ValueError("samples='as stored' is for legacy=True: other files hold pictures")
        if samples == "as stored" and target_transform is not None:
            raise ValueError(
                "samples='as stored' has no targets that target_transform could change"
            )
        self.legacy = legacy
        self.as_stored = samples == "as stored"
        self.classes: list[str] | None = None
        self.class_to_idx: dict[str, int] | None = None
        self.targets: Any = None
        self.indexed = 0
        self._keys: Any = None  # the keys of a legacy file
        self._environment: Environment | None = None
        with self._damage_noticed():
            if legacy:
                from fastloader.datasets._formats import lmdb_legacy

                self._keys = lmdb_legacy.read_keys(self.environment)
                self._count = len(self._keys)
            else:
                self._read_meta(self.environment)

    def _read_meta(self, environment: Environment) -> None:
        meta = read_meta(environment)
        if meta is None:
            if environment.get(b"__keys__") is not None or environment.get(b"__len__") is not None:
                raise ValueError(
                    f"{self.path} was made by the recipe that pickles its samples. Unpickling is safe "
                    "only for files that you trust: legacy=True reads it, restricted to arrays, "
                    "numbers, text and bytes; `fastloader pack` makes a file without pickles of it"
                )
            raise ValueError(f"{self.path} is an LMDB file, but not one of `fastloader pack`")
        self._count = int(meta["count"])
        self._version = int(meta["version"])
        self.indexed = int(meta.get("indexed") or 0)
        self.classes = meta["classes"]
        if self.classes is not None:
            self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        if meta["complete"]:
            targets = environment.read(TARGETS)
            if targets is None or len(targets) != 8 * self._count:
                raise DamagedError(f"{self.path} is damaged: the key {TARGETS!r} does not fit")
            self.targets = np.frombuffer(targets, dtype="<i8")
        else:
            warnings.warn(
                f"{self.path}: packing was interrupted after {self._count} samples, which is what there "
                "is to read. Run the same `fastloader pack` again to complete it",
                RuntimeWarning,
                stacklevel=3,
            )
            labels = [self.record(index).label for index in range(self._count)]
            self.targets = np.array(labels, dtype="<i8")

    @property
    def environment(self) -> Environment:
        """The open file. A process that gets this object by pickle opens the file anew."""
        if self._environment is None:
            with self._damage_noticed():
                self._environment = self._opened()
        return self._environment

    def _opened(self) -> Environment:
        if self.cache is None or self._object is None:
            return open_environment(self.path)
        url, size = self.path, self._object.size
        with progress(f"fetching {url}", size, "bytes", SILENT) as line:
            held = self.cache.fetch(self._object, line=line)
        try:
            return open_environment(held.path)  # which holds it from here on
        finally:
            held.close()

    @contextlib.contextmanager
    def _damage_noticed(self) -> Iterator[None]:
        """Makes an error name the URL, and the cache forget a file that is damaged: that may have
        happened on the way."""
        try:
            yield
        except ValueError as error:
            if self.cache is None or self._object is None:
                raise
            text = str(error).replace(self.cache.path(self._object), self.path)
            if not isinstance(error, DamagedError):
                raise ValueError(text) from None
            self.cache.forget(self._object)
            raise DamagedError(text) from None

    def record(self, index: int) -> Record:
        """Returns the label, picture, name and seek index of a sample. Picture and index are views of
        the mapping, and valid as long as `environment` lives.

        Raises:
            DamagedError: a ValueError, if the record is missing or damaged.
        """
        key = key_of(index)
        data = self.environment.get(key)
        if data is None:
            raise DamagedError(f"{self.path}: sample {index} is missing (key {key!r})")
        try:
            return decode_record(data, key, self._version)
        except DamagedError as error:
            raise DamagedError(f"{self.path}: {error}") from None

    def will_need(self, indices: list[int]) -> None:
        """Asks the system to read these records ahead, all at the same time. Waits for nothing."""
        self.environment.will_need(indices, self._count)

    def name(self, index: int) -> str:
        """Returns the name of sample ``index`` at its source: a path relative to the packed folder."""
        index = checked_index(index, len(self))
        if self.legacy:
            return repr(self._keys[index])
        return self.record(index).name

    def image_bytes(self, index: int) -> bytes:
        """Reads the encoded picture, as it was packed."""
        index = checked_index(index, len(self))
        if self.legacy:
            raise ValueError("a legacy file holds pickles, not pictures")
        return self._image(index)[0]

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, in RGB, and upright if ``upright`` says so."""
        image, called = self._image(index)
        return decoded_rgb(io.BytesIO(image), called, self.upright)

    def _image(self, index: int) -> tuple[bytes, str]:
        """Reads the encoded picture, and returns it with what messages call it."""
        self.will_need([index])
        record = self.record(index)
        called = f"{record.name} in {self.path}"
        try:
            return read_view(record.image, called), called
        except OSError as error:
            raise DamagedError(str(error)) from None

    def __repr__(self) -> str:
        return shown_dataset(self, {"File": self.path})

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        index = checked_index(index, len(self))
        if not self.legacy:
            return super().__getitem__(index)
        from fastloader.datasets._formats import lmdb_legacy

        key = self._keys[index]
        with self._damage_noticed():
            if self.as_stored:
                return lmdb_legacy.read_stored(self.environment, key, self.transform)
            image, target = lmdb_legacy.read_sample(self.environment, key)
        if self.transform is not None:
            image = as_tensor_chain(self.transform)(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def _label(self, index: int) -> int:
        return self.record(index).label

    def _elsewhere(self) -> None:
        """Returns None, because the file is mapped. A file from a URL is in the cache."""

    def _plan_note(self) -> str:
        return "" if self.cache is None else " (in the cache)"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environment": None}
