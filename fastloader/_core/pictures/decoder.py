"""Decodes the pictures of one loader: its share of the pool, its memory, its jobs, and its batches that
are under way."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from fastloader._core.batch.tree import flatten
from fastloader._core.machine import extension
from fastloader._core.machine.process import HomeProcess, ProcessLock
from fastloader._core.pictures.batch import (
    Files,
    MadePart,
    NativeBatch,
    PictureBatch,
    PictureRequest,
    PillowBatch,
)
from fastloader._core.pictures.images import DecodeOptions, ErrorPolicy, NativeImages, read_ahead
from fastloader._core.pictures.store import Looking
from fastloader.errors import StoppedError
from fastloader.transforms._job import Job
from fastloader.transforms._pillow import pixel_limits

if TYPE_CHECKING:
    from fastloader import _native

# ---- What the pictures of one loader are made with.


class Decoder:
    """Makes batches of pictures for one loader, with its share of the decode pool and its recycled
    memory; without ``native`` by Pillow.

    Args:
        threads: how many decode. Without any Pillow works on the calling thread.
        before: the decoder in whose place this one is; what its threads did goes on being counted.
    """

    def __init__(
        self, threads: int, policy: ErrorPolicy, native: bool = True, before: Decoder | None = None
    ) -> None:
        self.policy = policy
        self.threads = threads  # the quota's number, which takes a lock to read there
        self.quota: _native.DecodeQuota | None = None
        self.memory: _native.BufferPool | None = None
        self._home = HomeProcess()
        self._done_before = {} if before is None else before.times()
        self._telling = ProcessLock()  # guards the next one
        self._told: dict[str, float] = {}  # the times of which `new_times` has told
        if native:
            assert extension.load() is not None
            self.quota = extension.native.DecodeQuota(threads, read_ahead=read_ahead())
            self.memory = extension.native.BufferPool()

    def begin(
        self,
        request: PictureRequest,
        store: Files,
        memory: Any = None,
        made: MadePart | None = None,
    ) -> PictureBatch:
        """Begins a batch. ``memory``: where to decode; None for the decoder's own memory. ``made``: the
        pictures, if a worker has made them."""
        if self.quota is None or made is not None:
            return PillowBatch(request, store, self.threads, made)
        return NativeBatch(request, self.quota, self.memory if memory is None else memory)

    @property
    def here(self) -> bool:
        """Whether it was made in this process, and not in one that has forked this one off."""
        return self._home.here

    def times(self) -> dict[str, float]:
        """Returns what the decode threads have done for this loader, as ``DecodeQuota.times`` has it."""
        # Not asked in a forked child: the parent's threads did the work, and may still be at it.
        own: dict[str, float] = {}
        if self.quota is not None and self._home.here:
            own = self.quota.times()
        before = self._done_before
        return {name: own.get(name, 0) + before.get(name, 0) for name in {**own, **before}}

    def new_times(self) -> dict[str, float]:
        """Returns what the decode threads have done since this was called last."""
        with self._telling.lock:
            now, before = self.times(), self._told
            self._told = now
        return {name: each - before.get(name, 0) for name, each in now.items()}

    def add_times(self, times: dict[str, float]) -> None:
        """Adds what threads of another process have done for this loader."""
        done = self._done_before
        self._done_before = {
            name: done.get(name, 0) + times.get(name, 0) for name in {**done, **times}
        }

    @staticmethod
    def cpu_seconds() -> float:
        """Returns how long the decode threads of this process were on a processor."""
        return extension.native.decode_cpu_seconds()

    def set_threads(self, threads: int) -> None:
        """Sets how many threads decode from now on. Raises the reason if the system gives no thread."""
        if threads != self.threads:
            assert self.quota is not None
            self.quota.threads = threads
            self.threads = threads


class ImageDecoder(Decoder):
    """Decodes the pictures of a dataset whose files are known. The loader keeps it over its epochs as
    long as it `serves`, with the file list, the transform, the share of the pool and the recycled
    memory."""

    quota: _native.DecodeQuota
    memory: _native.BufferPool

    def __init__(
        self,
        images: NativeImages,
        options: DecodeOptions,
        policy: ErrorPolicy,
        before: Decoder | None = None,
    ) -> None:
        super().__init__(options.threads, policy, before=before)
        self.options = options
        self.images = images
        if options.tuner is not None:
            extension.native.lower_decode_priority()
        self.store = images.store.opened()
        self._pixel_limits = pixel_limits()
        self.jobs = [
            Job.of_batches(
                chain,
                self.store.source,
                options.normalization,
                options.planar,
                decode=options.decode,
                limits=self._pixel_limits,
                seek_indices=self.store.seek_indices,
                upright=self.store.upright,
                table=options.table,
            )
            for chain in images.distinct_chains
        ]

    def serves(self, images: NativeImages, options: DecodeOptions) -> bool:
        """Returns whether this decoder can be reused for these ``images`` and ``options``. A forked
        child makes its own, because another thread may have held the memory's lock when it was
        forked."""
        return (
            self._home.here
            and self.options == options
            and self._pixel_limits == pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
            and self.images.chain == images.chain
            and self.images.chains == images.chains
            and self.images.attempts == images.attempts
            and self.images.container is images.container
            and self.images.form == images.form
            and self.images.same_files(images)
        )

    def drawn(self, file: int, seed: int) -> dict[str, Any]:
        """Returns what is drawn for a file: its box, flips and interpolation, and all its steps."""
        job = self.jobs[self.kind(file)]
        found = job.draw_file(file, lambda: self.store.open_rgb(file), seed)
        return job.chain.replayed(found, seed, file)

    def kind(self, file: int) -> int:
        """Returns which of the jobs a file has."""
        return next(iter(self.images.kinds([file])), 0)

    @property
    def sample_bytes(self) -> int:
        """The bytes of a sample's pixels."""
        native = self.jobs[0].native
        assert native is not None
        return native.sample_bytes

    def leaf_bytes(self, samples: int) -> list[int]:
        """Returns the bytes of a batch's pixels, and of its labels."""
        return [samples * self.sample_bytes, samples * 8]

    def stats(self) -> dict[str, Any]:
        return {
            "jpegs": jpeg_counts(self.times()),
            "threads": self.quota.threads,
            "buffers": self.memory.stats(),
            "scratch_bytes": extension.native.decode_scratch_bytes(),
            "waited": int(self.times().get("waited", 0)),
        }


def jpeg_counts(times: dict[str, float]) -> dict[str, Any]:
    """Counts who decoded the JPEGs, out of ``DecodeQuota.times``: our ``own`` decoder or ``libjpeg``,
    and ``why`` our own one left them to it. ``indexed``: with a seek index. ``unfit_index``: without
    theirs, which is damaged or belongs to another file."""
    prefix = "jpegs: "
    counted = {name[len(prefix) :]: int(n) for name, n in times.items() if name.startswith(prefix)}
    own = counted.pop("none", 0)
    return {
        "own": own,
        "libjpeg": sum(counted.values()),
        "why": {k: n for k, n in counted.items() if n},
        "indexed": int(times.get("indexed", 0)),
        "unfit_index": int(times.get("unfit", 0)),
    }


# ---- A batch of pictures in the decode pool, or what takes its place.


_TURN = 0.1  # seconds between two looks for the end of the epoch
_SPARES = 10  # samples that are tried if the columns of no sample in a batch can be read


@dataclasses.dataclass(frozen=True)
class RequestedSamples:
    """The samples of a batch, as they were asked for: their ``keys``, the ``files`` of their pictures,
    and ``others``, the rest of their columns, collated. ``bad``: what was raised by the samples whose
    columns cannot be read, by their positions."""

    keys: list[int]
    files: list[int]
    others: list[Any]
    bad: dict[int, Exception]

    @classmethod
    def of(cls, images: NativeImages, keys: list[int]) -> RequestedSamples:
        files = keys if images.indices is None else images.indices[keys].tolist()
        # A batch has its full size until the policy is asked, so the slot is reserved for that.
        # The spares come from everywhere, since a bad shard may hold the columns of the first thousand.
        spares = range(0, len(images.store), -(-len(images.store) // _SPARES))
        return cls(keys, files, *images.form.read(files, spares))


class PendingBatch:
    """A batch in the decode pool, in the slot of ``reservation`` or else in recycled memory. ``drawn``
    holds its index batch, and no other batch shares it. ``files``: of which it is made, once the bad
    ones are repaired. ``bad``: the samples that nothing can repair, as in `RequestedSamples`. ``apart``:
    as in `PictureRequest`."""

    def __init__(
        self,
        decoder: ImageDecoder,
        drawn: tuple[Any],
        requested: RequestedSamples,
        seeds: list[int],
        reservation: Any | None,
        apart: bool = False,
    ) -> None:
        self.reservation = reservation
        self.requested = requested
        self.keys = requested.keys
        self.bad = requested.bad
        self.files = list(requested.files)
        self.seeds = seeds
        self.drawn = drawn
        self._store = decoder.store
        self._look: Looking | None = None
        self._stopped = False
        begun = time.perf_counter()
        decoder.store.prepare(self.files)
        self.locate_s = time.perf_counter() - begun
        kinds = decoder.images.kinds(self.files)
        request = PictureRequest([(decoder.jobs, 0)], self.files, [], seeds, kinds, apart)
        self.batch = decoder.begin(request, decoder.store, reservation)

    def begin_look(self) -> None:
        """Begins the store's look at what the pictures were read from, once the pool is done with
        them."""
        if self._look is None and self.batch.ready():
            self._look = self._store.begin_look(self.files)

    def check(self, again: bool = False) -> None:
        """Waits for the look at the files, and raises ValueError if one has changed. The labels of the
        batch may then be those of other pictures. ``again``: more was read since a look began.

        Raises:
            StoppedError: if the batch was stopped meanwhile.
        """
        if again:
            self._look = None
        self.begin_look()
        look = self._look
        if look is None:
            return
        while not look.wait(_TURN):
            if self._stopped:
                raise StoppedError("the epoch was ended while files were looked at")
        look.check()

    def stop(self) -> None:
        """Makes the pool give the batch up, from any thread."""
        self._stopped = True
        self.batch.stop()

    def has_room(self, others: list[Any]) -> bool:
        """Returns whether a sample with these columns, collated alone, may take a place in the batch. A
        slot is reserved for the columns that were wanted."""
        if self.reservation is None:
            return True
        own, reserved = bytes_of(others), bytes_of(self.requested.others)
        return len(own) <= len(reserved) and all(
            len(self.keys) * each <= room for each, room in zip(own, reserved)
        )


def bytes_of(others: list[Any]) -> list[int]:
    """Returns the bytes of each tensor in the columns of samples."""
    leaves = flatten(others).leaves if others else []
    return [leaf.numel() * leaf.element_size() for leaf in leaves]


@dataclasses.dataclass
class PendingError:
    """The error that the sampler raised, in the place of a batch."""

    drawn: tuple[Any]
    error: BaseException
    reservation: Any | None
