"""Where pictures lie, as the decode pool sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    pass


class Looking(Protocol):
    """A look at files, which has begun."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for so many seconds until it is over, and returns whether it is."""
        ...

    def check(self) -> None:
        """Waits, and raises a ValueError that names the file if one has changed."""
        ...


class ImageStore(Protocol):
    """Pictures, encoded or as pixels, numbered from 0. A recogniser makes a store, and many loaders may
    share it."""

    kind: str  # what a message calls several stores of this type
    packed: bool  # whether the pictures lie in one file, where each must be looked up first

    @property
    def upright(self) -> bool:
        """Whether pictures are turned as EXIF says before anything else."""
        ...

    @property
    def indexed(self) -> int:
        """How many seek indices there are for the JPEGs."""
        ...

    def __len__(self) -> int: ...

    def same(self, other: Any) -> bool:
        """Whether ``other`` has the same files, so that what was built on them can be kept."""
        ...

    def joined(self, others: Sequence[Any]) -> ImageStore:
        """The files of this store, followed by those of ``others``, which are of its type."""
        ...

    def opened(self) -> OpenStore:
        """These files for one loader, with a native source of their own. What the loader looks up there
        must not reach another loader that recognised the same files. Without the native module there
        is no source."""
        ...


class OpenStore(ImageStore, Protocol):
    """The store of one loader."""

    source: Any  # what decode threads read from: a class of csrc/source/, as `_native` has it
    seek_indices: Any | None  # `_native.SeekFiles`, which lie apart from the pictures

    def prepare(self, indices: list[int]) -> None:
        """Prepares these files, before a batch of them is submitted to the pool. Called on the thread
        that begins batches. It must not raise for a bad file: the decoder refuses that one."""
        ...

    def begin_look(self, indices: list[int]) -> Looking | None:
        """Begins to look whether what these files were read from, until now, is still what it was.
        None: each is read by itself, at once. A look may wait for a network, and the caller does not."""
        ...

    def name(self, index: int) -> str:
        """The name of a file, for messages about bad samples."""
        ...

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, or raises why that fails. Called on any thread."""
        ...

    def info(self, index: int) -> dict[str, Any]:
        """What stands beside a picture's pixels, as ``Image.info`` of a file that was opened."""
        ...
