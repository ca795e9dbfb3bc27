"""``ImageDataset``, which is timm's, with timm's rule for files that cannot be read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from fastloader.compat.timm.readers import create_reader
from fastloader.transforms._pillow import naming, opened

_log = logging.getLogger("fastloader")


class ImageDataset(Dataset[Any]):
    """Gives samples ``(picture, target)``.

    Args:
        root: A folder of pictures, or what else timm's readers take.
        reader: With None (default), ``root`` is a folder; see `ReaderImageFolder`. A name such as
            "tfds/..." is one of timm's readers, which needs timm. An object gives (file, target) for an
            index.
        split, class_map: Passed to the reader.
        load_bytes: Whether samples hold the file's bytes instead of a picture; default False.
        input_img_mode: Pillow's mode of pictures; default "RGB". "" or None leaves the file's mode.
        transform, target_transform: Functions of the picture and of the target; default None.
        additional_features: Unless None (default), samples also hold what the reader gives after the
            target.
        kwargs: Passed to the reader.

    A file that cannot be read (OSError) is skipped with a warning, and the next one is taken in its
    place. After ``TIMM_DATASET_MAX_RETRIES`` (environment; default 10) such files in a row, a
    RuntimeError is raised. ``skipped`` counts them in this process, and FastLoader's native path counts
    them in ``stats()["images"]["bad"]``. A target of None is -1.
    """

    def __init__(
        self,
        root: Any,
        reader: Any = None,
        split: str = "train",
        class_map: Any = None,
        load_bytes: bool = False,
        input_img_mode: str | None = "RGB",
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        additional_features: Any = None,
        **kwargs: Any,
    ) -> None:
        if reader is None or isinstance(reader, str):
            reader = create_reader(
                reader or "",
                root=root,
                split=split,
                class_map=class_map,
                additional_features=additional_features,
                **kwargs,
            )
        self.reader = reader
        self.load_bytes = load_bytes
        self.input_img_mode = input_img_mode
        self.transform = transform
        self.target_transform = target_transform
        self.additional_features = additional_features
        self.skipped = 0
        self._max_retries = int(os.environ.get("TIMM_DATASET_MAX_RETRIES") or 10)
        if self._max_retries < 1:
            raise ValueError(f"TIMM_DATASET_MAX_RETRIES={self._max_retries}: at least one try")

    def __getitem__(self, index: int) -> Any:
        image, target, features = self._read(index)
        if self.transform is not None:
            image = self.transform(image)
        if target is None:
            target = -1
        elif self.target_transform is not None:
            target = self.target_transform(target)
        if self.additional_features is None:
            return image, target
        return image, target, *features

    def _read(self, index: int) -> tuple[Any, Any, list[Any]]:
        last: OSError | None = None
        for _ in range(self._max_retries):
            try:
                file, target, *features = self.reader[index]
                return self._open(file), target, features
            except OSError as error:
                _log.warning("Skipped sample (index %s). %s", index, error)
                self.skipped += 1
                last = error
                index = (index + 1) % len(self.reader)
        raise RuntimeError(f"Failed to load {self._max_retries} consecutive samples") from last

    def _open(self, file: Any) -> Any:
        if self.load_bytes:
            with file:
                return file.read()
        with naming(str(getattr(file, "name", "")), repr(file)):
            image = opened(file)
            if not self.input_img_mode:
                if image.fp is not file and hasattr(file, "close"):
                    file.close()  # because a JPEG is in memory
                return image  # not decoded, and with its file open, as in timm
            with image:
                converted = image.convert(self.input_img_mode)
        if hasattr(file, "close"):  # Pillow closes only what it has opened itself
            file.close()
        return converted

    def __len__(self) -> int:
        return len(self.reader)

    def filename(self, index: int, basename: bool = False, absolute: bool = False) -> Any:
        """The name of a sample's file, relative to the root."""
        return self.reader.filename(index, basename, absolute)

    def filenames(self, basename: bool = False, absolute: bool = False) -> Any:
        return self.reader.filenames(basename, absolute)
