"""The pictures of a dataset: their store, their labels, and their transform."""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any

from fastloader._core.batch.augmentation import Mixing
from fastloader._core.pictures.store import ImageStore
from fastloader.datasets._formats.sample_form import PLAIN, SampleForm
from fastloader.transforms._chain import Chain
from fastloader.transforms.tensors import Rolled


@dataclasses.dataclass
class NativeImages:
    """A dataset of pictures in flat arrays.

    ``indices`` maps the dataset's indices to files; None is one to one. ``attempts``: how many files
    are tried for one sample, the bad one and those after it, which is timm's rule. ``starts``: the
    first file of each dataset that was concatenated; "after it" stays within a dataset. ``name``: what
    ``plan()`` calls it; empty: as its class. ``repeats``:
    whether two indices are of one file. ``container``: the type that holds images and labels in a batch,
    list or tuple. ``form``: what else is in a sample. ``mixing``: what is mixed in the batches.
    """

    store: ImageStore
    targets: Any  # one for each file
    indices: Any | None
    chain: Chain
    name: str = ""
    attempts: int = 1
    starts: tuple[int, ...] = (0,)
    repeats: bool = False
    container: type = list
    form: SampleForm = PLAIN
    mixing: Mixing | Rolled | None = None

    def next_file(self, file: int) -> int:
        """The file after ``file`` in its dataset; after the last, the first."""
        part = bisect.bisect_right(self.starts, file)
        end = self.starts[part] if part < len(self.starts) else len(self.store)
        return file + 1 if file + 1 < end else self.starts[part - 1]

    def __len__(self) -> int:
        return len(self.store) if self.indices is None else len(self.indices)

    def same_files(self, other: NativeImages) -> bool:
        """Whether the arrays are the same objects, which `recognize_images` gives again while nothing
        changes."""
        return (
            self.store.same(other.store)
            and self.targets is other.targets
            and self.indices is other.indices
        )
