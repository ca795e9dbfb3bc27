"""The native image path: batches decoded by the C++ pool, in the sampler's order."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from fastloader import _extension, _geometry
from fastloader._lowering import Lowered
from fastloader._normalization import Normalization
from fastloader._statistics import Statistics
from fastloader.datasets._pillow import open_rgb
from fastloader.errors import Error

REPLACEMENT = 3  # the operation whose random numbers choose a replacement; crop.h has 0 to 2
AHEAD = 3  # batches in the pool: one being finished, one being begun, one in reserve


@dataclasses.dataclass
class ErrorPolicy:
    """What becomes of samples that can neither be decoded natively nor by Pillow.

    ``on_error``: "raise", "skip" or "replace". ``max_errors``: how many may be skipped or replaced in
    the loader's life, as a count (int) or as a share of the samples seen (float); None is no limit.
    """

    on_error: str
    max_errors: int | float | None
    bad: int = 0
    seen: int = 0
    last: collections.deque[str] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=20)
    )

    def count(self, what: str, error: BaseException) -> None:
        """One more bad sample. Raises when that is too many."""
        self.bad += 1
        self.last.append(f"{what}: {type(error).__name__}: {error}")
        if self.max_errors is None or self.on_error == "raise":
            return
        allowed: float = self.max_errors
        if isinstance(self.max_errors, float):
            # A rate says nothing about the first few samples.
            allowed = self.max_errors * max(self.seen, 1000)
        if self.bad > allowed:
            raise Error(
                f"{self.bad} of {self.seen} samples could not be read, more than "
                f"max_errors={self.max_errors} allows; the last: {what}"
            ) from error


def make_policy(on_error: str, max_errors: int | float | None) -> ErrorPolicy:
    """Checks the arguments."""
    if on_error not in ("raise", "skip", "replace"):
        raise ValueError(f"on_error={on_error!r}: use 'raise', 'skip' or 'replace'")
    if max_errors is not None:
        if isinstance(max_errors, bool) or not isinstance(max_errors, int | float):
            raise TypeError(f"max_errors must be a count, a rate or None, got {max_errors!r}")
        if max_errors < 0 or (isinstance(max_errors, float) and max_errors > 1):
            raise ValueError(f"max_errors={max_errors}: a count from 0, or a rate from 0.0 to 1.0")
        if on_error == "raise":
            raise ValueError("max_errors is for on_error='skip' or 'replace'; 'raise' allows none")
    return ErrorPolicy(on_error, max_errors)


class ImageSource:
    """What a loader keeps over its epochs: the file list, the transform, its share of the pool."""

    def __init__(
        self,
        lowered: Lowered,
        threads: int,
        normalization: Normalization | None,
        planar: bool,
        truncated: str,
        policy: ErrorPolicy,
    ) -> None:
        self.policy = policy
        native = _extension.load()
        assert native is not None
        self.native = native
        self.lowered = lowered
        self.memory = native.BufferPool()
        self.quota = native.DecodeQuota(threads)
        transform = lowered.chain.native(native)
        spec = None
        if normalization is not None:
            scale, bias = normalization.constants(3)
            height, width = transform.output
            spec = native.NormalizeSpec(
                nchw=(1, 3, height, width),
                in_nhwc=True,
                out_nhwc=normalization.channels_last,
                dtype=normalization.dtype_name,
                scale=scale,
                bias=bias,
            )
        self.folder = native.FolderSource(lowered.paths, lowered.ends)
        self.job = native.ImageJob(
            source=self.folder,
            transform=transform,
            planar=planar,
            normalize=spec,
            pad_truncated=truncated == "pad",
        )


class Submitted:
    """One batch in the pool."""

    def __init__(self, source: ImageSource, keys: list[int], seeds: list[int]) -> None:
        self.keys = keys
        self.files = list(keys)
        if source.lowered.indices is not None:
            self.files = source.lowered.indices[keys].tolist()
        self.seeds = seeds
        self.batch = source.native.DecodeBatch(
            job=source.job,
            quota=source.quota,
            indices=self.files,
            seeds=seeds,
            memory=source.memory,
        )


class ImageIterator(Iterator[Any]):
    """[images, labels] as default_collate makes them from (image, class) samples.

    Crops are drawn from (base seed of the epoch, sample index); where the sampler may visit an index
    twice (``repeats``), the position in the epoch joins the key. ``length()`` is the number of batches;
    ``pin`` puts them into torch's pinned memory, as DataLoader's pin_memory does.
    """

    def __init__(
        self,
        source: ImageSource,
        index_batches: Iterator[Any],
        base_seed: int,
        repeats: bool,
        length: Callable[[], int],
        statistics: Statistics,
        pin: bool,
    ) -> None:
        self._source = source
        self._length = length
        self._statistics = statistics
        self._pin = pin
        self._index_batches: Iterator[Any] | None = index_batches
        self.base_seed = base_seed
        self._repeats = repeats
        self._position = 0
        self._flight: collections.deque[Submitted | BaseException] = collections.deque()
        self._pid = os.getpid()
        # sample index -> seed, of the batches submitted last: what replay() is asked for
        self.seeds: collections.OrderedDict[int, int] = collections.OrderedDict()
        weakref.finalize(self, _cancel, self._flight, self._pid)
        self._top_up()

    def _top_up(self) -> None:
        while self._index_batches is not None and len(self._flight) < AHEAD:
            try:
                keys = [int(key) for key in next(self._index_batches)]
                self._flight.append(self._submit(keys))
            except StopIteration:
                self._index_batches = None
            except Exception as error:  # of the sampler: takes its batch's place
                self._flight.append(error)

    def _submit(self, keys: list[int]) -> Submitted:
        length = len(self._source.lowered)
        for key in keys:
            if not -length <= key < length:
                raise IndexError(f"the sampler gave index {key}; the dataset has {length} samples")
        keys = [key + length if key < 0 else key for key in keys]
        if self._repeats:
            start = self._position
            seeds = [_mixed(self.base_seed, start + i) for i in range(len(keys))]
        else:
            seeds = [self.base_seed]
        self._position += len(keys)
        submitted = Submitted(self._source, keys, seeds)
        for i, key in enumerate(keys):
            self.seeds[key] = seeds[0] if len(seeds) == 1 else seeds[i]
            self.seeds.move_to_end(key)
        while len(self.seeds) > 100_000:
            self.seeds.popitem(last=False)
        return submitted

    def __next__(self) -> Any:
        if self._pid != os.getpid():
            raise RuntimeError(
                f"this iterator belongs to process {self._pid}, this is {os.getpid()}: call iter() on "
                "the loader to get one here"
            )
        with self._statistics.waiting():
            delivered = self._next()
        self._statistics.batches += 1
        return delivered

    def _next(self) -> list[torch.Tensor]:
        self._top_up()
        if not self._flight:
            raise StopIteration
        first = self._flight[0]
        if isinstance(first, BaseException):
            self._flight.popleft()
            try:
                raise first
            finally:
                del first  # or this frame and the error would hold each other
        first.batch.wait()
        if not self._flight or self._flight[0] is not first:
            raise StopIteration  # closed meanwhile, on another thread or at exit
        self._flight.popleft()
        self._top_up()
        self._source.policy.seen += len(first.keys)
        failures = first.batch.failures()
        kept = self._repair(first, failures) if failures else None
        images = torch.from_dlpack(first.batch.take())
        labels = torch.from_numpy(self._source.lowered.targets[first.files].astype(np.int64))
        if kept is not None:
            if not kept:
                raise Error(
                    f"every sample of the batch was skipped; the last: {self._source.policy.last[-1]}"
                )
            images, labels = images[kept], labels[kept]
        if self._pin:
            images, labels = images.pin_memory(), labels.pin_memory()
        return [images, labels]

    def __len__(self) -> int:
        return self._length()

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def _repair(self, submitted: Submitted, failures: list[tuple[int, str]]) -> list[int] | None:
        """What the native decoder cannot do, Pillow may; if it cannot either, its exception says why,
        and the policy what to do. Returns the positions to keep, None for all."""
        with concurrent.futures.ThreadPoolExecutor(self._source.quota.threads) as pool:
            done = [pool.submit(self._redo, submitted, position) for position, _ in failures]
        policy = self._source.policy
        skipped = set()
        for (position, _reason), future in zip(failures, done):
            error = future.exception()
            if error is None:
                continue
            path = self._source.folder.name(submitted.files[position])
            what = f"sample {submitted.keys[position]}, {path}"
            if policy.on_error == "raise" or not isinstance(error, Exception):
                policy.count(what, error)
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(what)
                raise error
            policy.count(what, error)
            if policy.on_error == "skip":
                skipped.add(position)
            else:
                self._replace(submitted, position, error)
        if not skipped:
            return None
        return [position for position in range(len(submitted.keys)) if position not in skipped]

    def _redo(self, submitted: Submitted, position: int) -> None:
        path = self._source.folder.name(submitted.files[position])
        pixels = np.ascontiguousarray(np.asarray(open_rgb(path)))
        height, width, _ = pixels.shape
        submitted.batch.transform_pixels(
            position, pixels=pixels.ctypes.data, height=height, width=width
        )

    def _replace(self, submitted: Submitted, position: int, error: BaseException) -> None:
        """Puts another sample, a function of the seed and the bad one's index, in its place."""
        lowered = self._source.lowered
        seed = submitted.seeds[0] if len(submitted.seeds) == 1 else submitted.seeds[position]
        draws = _geometry.Draws(seed, submitted.keys[position], REPLACEMENT)
        for _ in range(10):
            key = draws.below(len(lowered))
            file = key if lowered.indices is None else int(lowered.indices[key])
            try:
                submitted.batch.decode_other(position, index=file, seed=seed)
            except Error:
                continue
            submitted.files[position] = file
            return
        raise Error(
            f"no replacement for sample {submitted.keys[position]}: ten others, drawn at random, could "
            "not be decoded either"
        ) from error

    def replay(self, index: int) -> dict[str, Any]:
        """The box and flips of a sample that was submitted in this epoch."""
        if index not in self.seeds:
            raise ValueError(
                f"sample {index} was not among the last {len(self.seeds)} of the epoch"
            )
        lowered = self._source.lowered
        file = index if lowered.indices is None else int(lowered.indices[index])
        seed = self.seeds[index]
        try:
            found: dict[str, Any] = self._source.job.geometry(file, seed)
        except Error:
            # Not a JPEG: Pillow knows its size.
            height, width = open_rgb(self._source.folder.name(file)).size[::-1]
            found = lowered.chain.native(self._source.native).geometry(
                height=height, width=width, index=file, seed=seed
            )
        return found

    def stats(self) -> dict[str, Any]:
        source = self._source
        return {"threads": source.quota.threads, "buffers": source.memory.stats()}

    def close(self) -> None:
        """Ends the epoch early; at most one sample per thread is still worked on."""
        self._index_batches = None
        _cancel(self._flight, self._pid)


def _cancel(flight: collections.deque[Any], pid: int) -> None:
    if pid == os.getpid():
        flight.clear()


def _mixed(seed: int, position: int) -> int:
    """splitmix64: another seed for each position."""
    mask = (1 << 64) - 1
    z = (seed + 0x9E3779B97F4A7C15 * (position + 1)) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def available_threads() -> int:
    """Processors this process may use: its affinity, and its control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cgroup_quota()
    return max(1, min(count or 1, quota))


def _cgroup_quota() -> int:
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            limit, period = file.read().split()
        if limit != "max":
            return max(1, int(limit) // int(period))
    except (OSError, ValueError):
        pass
    return 1 << 16
