"""Makes the pictures of a batch: natively in the decode pool, or by Pillow behind the same methods."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader.transforms._chain import Chain
from fastloader.transforms._job import Job
from fastloader.transforms._recipe import draw

if TYPE_CHECKING:
    from fastloader import _native


class Files(Protocol):
    """The files that pictures are made from, by their numbers."""

    def name(self, index: int) -> str:
        """Returns what messages call a file."""
        ...

    def open_rgb(self, index: int) -> Any:
        """Opens a picture through Pillow, or raises why that fails. Called on any thread."""
        ...


# One picture that is made of each file of a batch: by a job for each kind of samples, all of which make
# pictures of one form, and which picture of its sample it is.
View = tuple[Sequence[Job], int]


@dataclasses.dataclass(frozen=True)
class PictureRequest:
    """The pictures of a batch, as they are asked for.

    ``views``: what is made of each position's file. ``files``: of each position, its number in the
    source of the jobs. ``samples``: what each position is drawn by; empty: its file. ``seeds``: one for
    each position, or one for all. ``kinds``: which of its views' jobs each position has; empty: the
    first. ``apart``: whether each picture is a tensor of its own, as the user's code would make it, and
    not a row of one that they share. ``frames``: so many positions are the frames of one clip, and
    ``rows`` gives clips of shape (T, C, H, W); None: they are pictures. ``numbers``: what is added to
    each position's number among the pictures of its sample; empty: nothing.
    """

    views: Sequence[View]
    files: list[int]
    samples: list[int]
    seeds: list[int]
    kinds: list[int] = dataclasses.field(default_factory=list)
    apart: bool = False
    frames: int | None = None
    numbers: list[int] = dataclasses.field(default_factory=list)

    def chain(self, view: int) -> Chain:
        """Returns the chain of a view for the first kind: those of the others have its form."""
        return self.views[view][0][0].chain

    def seed(self, position: int) -> int:
        return self.seeds[0] if len(self.seeds) == 1 else self.seeds[position]

    def jobs(self, position: int, kind: int | None = None) -> list[tuple[Job, int]]:
        """Returns the job of each view of a position, and which picture of the sample it is. ``kind``:
        None is the position's own."""
        if kind is None:
            kind = self.kinds[position] if self.kinds else 0
        added = self.numbers[position] if self.numbers else 0
        return [(jobs[kind], number + added) for jobs, number in self.views]

    def clips(self, rows: list[torch.Tensor]) -> list[torch.Tensor]:
        """Makes rows of clips from those of their frames, where the request is for clips. What failed
        holds anything."""
        frames = self.frames
        if frames is None:
            return rows
        found = []
        for begin in range(0, len(rows), frames):
            clip = rows[begin : begin + frames]
            alike = all(each.shape == clip[0].shape for each in clip)
            found.append(torch.stack(clip) if alike else _nothing())
        return found


class Other(NamedTuple):
    """A file that takes the place of a bad one, and which of its views' jobs it has."""

    file: int
    kind: int


class PictureBatch(Protocol):
    """The pictures of a batch that is being made: one or several views of one file for each position.
    Any thread may stop it. What could not be made is in `failures`, and may be done again."""

    def ready(self) -> bool:
        """Returns whether `wait` would return at once."""
        ...

    def wait(self) -> bool:
        """Waits until every position was tried. Returns False if the batch was stopped."""
        ...

    def stop(self) -> None:
        """Ends `wait`, and keeps any further position from being begun."""
        ...

    def failures(self) -> Sequence[tuple[int, str, Any]]:
        """Returns (position, reason, kind) of each picture that could not be made. ``kind``: the native
        FailureKind, or None."""
        ...

    def sizes(self) -> Sequence[tuple[int, int]]:
        """Returns the (height, width) of each position's picture; zeros where it was not read."""
        ...

    def take(self, view: int = 0) -> torch.Tensor:
        """Returns the pixels of a view, of shape (N, C, H, W). No position can be written any more."""
        ...

    def rows(self, view: int = 0) -> list[torch.Tensor]:
        """Returns the pixels of each position, of shape (C, H, W): rows of `take`, or tensors of their
        own where pictures have sizes of their own. What failed holds anything."""
        ...

    def redo(self, position: int, picture: Any, other: Other | None = None) -> None:
        """Makes a failed position of a Pillow picture. ``other``: the file that it is of, if it is not
        the position's own; that file's draws and job are taken then."""
        ...

    def decode_other(self, position: int, other: Other, seed: int) -> None:
        """Puts the picture of another file in the place of a failed one. Raises Error if it cannot be
        decoded."""
        ...


# Bytes of memory that wait for the next batch of pictures of sizes of their own.
_KEPT_SMALL = 64 << 20


class NativeBatch:
    """A batch in the decode pool of the process.

    Args:
        quota: the loader's share of the pool.
        memory: where the pictures are put: a pool, or the reservation of a slot for one view.
    """

    def __init__(self, request: PictureRequest, quota: Any, memory: Any) -> None:
        self._request = request
        if isinstance(memory, extension.native.BufferPool) and any(
            jobs[0].chain.size is None for jobs, _number in request.views
        ):
            memory.keep_small(_KEPT_SMALL)
        # By view; None where pictures have sizes of their own.
        self._apart: list[list[torch.Tensor] | None] = []
        if request.apart:
            self._apart = [_empty(jobs[0], request) for jobs, _number in request.views]
        self._batch = extension.native.DecodeBatch(
            views=[([_native_of(job) for job in jobs], number) for jobs, number in request.views],
            quota=quota,
            indices=request.files,
            samples=request.samples,
            seeds=request.seeds,
            kinds=request.kinds,
            memory=memory,
            outs=[
                [
                    frame.data_ptr()
                    for each in tensors or ()
                    for frame in ([each] if request.frames is None else each)
                ]
                for tensors in self._apart
            ],
            held=self._apart,
            numbers=request.numbers,
        )
        self.ready, self.wait, self.stop = self._batch.ready, self._batch.wait, self._batch.stop
        self.failures, self.sizes = self._batch.failures, self._batch.sizes

    def take(self, view: int = 0) -> torch.Tensor:
        return torch.from_dlpack(self._batch.take(view))

    def rows(self, view: int = 0) -> list[torch.Tensor]:
        apart = self._apart[view] if self._apart else None
        if apart is not None:
            return apart
        if self._request.chain(view).size is not None:
            taken_whole, frames = self.take(view), self._request.frames
            return list(taken_whole if frames is None else taken_whole.unflatten(0, (-1, frames)))
        taken = [self._batch.take_own(each, view) for each in range(len(self._request.files))]
        rows = [_nothing() if each is None else torch.from_dlpack(each)[0] for each in taken]
        # torch can resize only what it has allocated itself.
        if self._request.apart and self._request.frames is None:
            return [row.clone() for row in rows]
        return self._request.clips(rows)

    def redo(self, position: int, picture: Any, other: Other | None = None) -> None:
        pixels = np.ascontiguousarray(np.asarray(picture))
        height, width, _ = pixels.shape
        index, kind = (None, None) if other is None else other
        self._batch.transform_pixels(
            position, pixels=pixels.ctypes.data, height=height, width=width, index=index, kind=kind
        )

    def decode_other(self, position: int, other: Other, seed: int) -> None:
        self._batch.decode_other(position, index=other.file, seed=seed, kind=other.kind)


def _empty(job: Job, request: PictureRequest) -> list[torch.Tensor] | None:
    """Makes a tensor for each picture or clip; None if they have sizes of their own."""
    chain = job.chain
    if chain.size is None:
        return None
    dtype, channels, (height, width) = chain.dtype, chain.channels, chain.size
    shape: tuple[int, ...] = channels, height, width
    steps: tuple[int, ...] = (1, width * channels, channels)
    if job.planar:
        steps = height * width, width, 1
    count, frames = len(request.files), request.frames
    if frames is not None:
        shape, steps = (frames, *shape), (channels * height * width, *steps)
        count //= frames
    return [torch.empty_strided(shape, steps, dtype=dtype, device="cpu") for _ in range(count)]


def _nothing() -> torch.Tensor:
    return torch.empty((0, 0, 0), dtype=torch.uint8, device="cpu")


def _native_of(job: Job) -> _native.ImageJob:
    assert job.native is not None
    return job.native


@dataclasses.dataclass
class MadePart:
    """Holds what Pillow has made of a batch. ``pixels``: of each view, or of each position in it where
    pictures have sizes of their own. ``sizes``: the (height, width) of each position's picture.
    ``failed``: why there is none, by position."""

    pixels: list[torch.Tensor | list[torch.Tensor]]
    sizes: list[tuple[int, int]]
    failed: dict[int, str]


class PillowBatch:
    """A batch that Pillow makes on ``threads`` Python threads; without any, on the calling one.
    ``made``: what a worker has made already."""

    def __init__(
        self,
        request: PictureRequest,
        store: Files,
        threads: int,
        made: MadePart | None = None,
    ) -> None:
        self._store, self._request = store, request
        files = request.files
        self._samples = request.samples or files
        self._stopped = threading.Event()
        self._making: list[Future[None]] = []
        if made is not None:
            self.made = made
            return
        self.made = MadePart([], [(0, 0)] * len(files), {})
        for jobs, _number in request.views:
            chain = jobs[0].chain
            if chain.size is None:
                self.made.pixels.append([_nothing()] * len(files))
                continue
            shape = (len(files), chain.channels, *chain.size)
            self.made.pixels.append(torch.empty(shape, dtype=chain.dtype, device="cpu"))
        if not threads:
            for position in range(len(files)):
                self._make(position)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="fastloader-pillow")
        self._making = [pool.submit(self._make, position) for position in range(len(files))]
        pool.shutdown(wait=False)  # its threads end with the last picture

    def _make(self, position: int) -> None:
        if self._stopped.is_set():
            return
        try:
            self.redo(position, self._store.open_rgb(self._request.files[position]))
        except BaseException as error:
            self.made.failed[position] = str(error)
            if not isinstance(error, Exception):
                raise

    def ready(self) -> bool:
        return all(each.done() for each in self._making)

    def wait(self) -> bool:
        wait(self._making)
        return not self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()

    def failures(self) -> list[tuple[int, str, None]]:
        return [(position, reason, None) for position, reason in sorted(self.made.failed.items())]

    def sizes(self) -> list[tuple[int, int]]:
        return self.made.sizes

    def take(self, view: int = 0) -> torch.Tensor:
        pixels = self.made.pixels[view]
        assert isinstance(pixels, torch.Tensor)
        return pixels

    def rows(self, view: int = 0) -> list[torch.Tensor]:
        rows = list(self.made.pixels[view])
        if self._request.frames is not None:
            return self._request.clips(rows)
        return [row.clone() for row in rows] if self._request.apart else rows

    def redo(self, position: int, picture: Any, other: Other | None = None) -> None:
        self._write(position, picture, self._request.seed(position), other)

    def decode_other(self, position: int, other: Other, seed: int) -> None:
        self._write(position, self._store.open_rgb(other.file), seed, other)

    def _write(self, position: int, picture: Any, seed: int, other: Other | None) -> None:
        sample = self._samples[position] if other is None else other.file
        views = self._request.jobs(position, None if other is None else other.kind)
        for out, (job, number) in zip(self.made.pixels, views, strict=True):
            chain = job.chain
            made = draw.apply_chain(chain, picture, seed, sample, number)
            pixels = chain.pixels(made)
            if isinstance(out, list):
                out[position] = _finished(chain, pixels)
            elif chain.floating:
                chain.normalization.apply(pixels[None], out[position : position + 1])
            else:
                out[position] = pixels
        self.made.sizes[position] = picture.height, picture.width


def _finished(chain: Chain, pixels: torch.Tensor) -> torch.Tensor:
    """Normalises a picture of its own size as its chain says."""
    if not chain.floating:
        return pixels.contiguous()
    return chain.normalization.applied(pixels[None])[0]
