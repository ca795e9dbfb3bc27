"""The decoder of one loader's encoded pictures: its share of the pool, its memory, its jobs."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastloader._core.machine import extension
from fastloader._core.machine.limits import own_threads
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.pictures.options import read_ahead
from fastloader._core.sources.encoded.batch import MadePart
from fastloader._core.sources.encoded.decoding.parts import Part
from fastloader._core.sources.encoded.decoding.pillow_batch import PillowBatch
from fastloader._core.sources.encoded.files import EncodedFiles
from fastloader.transforms._chain import Chain
from fastloader.transforms._normalization import Normalization, check_same_values, make_spec
from fastloader.transforms._pillow import pixel_limits
from fastloader.transforms._recipe import draw

if TYPE_CHECKING:
    from fastloader import _native


# How many jobs are kept: chains that a dataset makes anew for each sample would fill the memory.
_MOST_JOBS = 64


class EncodedDecoder:
    """Decodes what samples left encoded. ``native`` says whether the native module does; else Pillow
    does it all. ``decode`` and ``truncated`` are the loader's arguments. ``wanted``: how the delivery
    normalises.

    Attributes: ``threads``, how many decode; ``pool`` and ``pillow``, how many pictures the native
    threads and Pillow have made; ``workers``, how many were made where their samples were made, and
    ``why_made`` there, in words;
    ``decodes``, whether the threads have made one.
    """

    attempts = 1  # of a file; see `NativeImages`

    def __init__(
        self,
        native: bool,
        policy: ErrorPolicy,
        decode: str,
        truncated: str,
        wanted: Normalization | None,
    ) -> None:
        self.policy = policy
        self.threads = own_threads()
        self.pool = self.pillow = self.workers = 0
        self.decodes = False
        self.why_made = ""
        self.options = decode, truncated, wanted
        self.native = native
        self.quota: _native.DecodeQuota | None = None
        self.memory: _native.BufferPool | None = None
        if native:
            self.quota = extension.native.DecodeQuota(self.threads, read_ahead=read_ahead())
            self.memory = extension.native.BufferPool()
        self._chains: dict[bytes, Chain] = {}
        self._jobs: dict[Any, _native.ImageJob] = {}

    def count(self, made: int, redone: int, by_worker: bool) -> None:
        """Counts pictures: those that came out well, and those that Pillow did again. Without the native
        module all that no worker has made are Pillow's."""
        self.pillow += redone
        if by_worker:
            self.workers += made
            return
        self.decodes = True
        if not self.native:
            self.pillow += made
        else:
            self.pool += made

    def go_on_counting(self, before: EncodedDecoder) -> None:
        """Takes over the counts of the decoder in whose place this one is."""
        self.pool, self.pillow, self.workers = before.pool, before.pillow, before.workers

    def chain(self, pickled: bytes) -> Chain:
        found = self._chains.get(pickled)
        if found is None:
            _shorten(self._chains)
            found = pickle.loads(pickled)
            if self.options[2] is not None and found.floating:
                found = _left_to_delivery(found, self.options[2])
            self._chains[pickled] = found
        return found

    def submit(
        self,
        files: EncodedFiles,
        source: Any,
        part: Part,
        views: Sequence[tuple[bytes, int]],
        samples: list[int],
        seeds: list[int],
        made: MadePart | None,
        memory: Any,
    ) -> Any:
        """Begins a part of a batch. ``source``: the native one of its files. ``views``: the pickled
        chain of each view, and which picture of its sample it is. ``made``: the part, if a worker has
        made it. ``memory``: where to decode; None for the decoder's own memory."""
        if made is not None or not self.native:
            chains = [(self.chain(pickled), number) for pickled, number in views]
            return PillowBatch(files, part.files, chains, samples, seeds, self.threads, made)
        assert self.quota is not None and self.memory is not None
        return extension.native.DecodeBatch.of_views(
            views=[(self._job(pickled).over(source), number) for pickled, number in views],
            quota=self.quota,
            indices=part.files,
            samples=samples,
            seeds=seeds,
            memory=memory or self.memory,
        )

    def drawn(self, pickled: bytes, size: Any, seed: int, sample: int, number: int) -> Any:
        """What is drawn for a picture of this (height, width), as the native ``ImageJob.draw`` has
        it."""
        if not self.native:
            return draw.draw(self.chain(pickled), size, seed, sample, number)
        return self._job(pickled).draw(0, seed, size=size, sample=sample, number=number)

    def _job(self, pickled: bytes) -> _native.ImageJob:
        large, most = pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
        key = pickled, large, most
        found = self._jobs.get(key)
        if found is None:
            _shorten(self._jobs)
            found = self._jobs[key] = self._made_job(self.chain(pickled), large, most)
        return found

    def _made_job(self, chain: Chain, large: int, most: int) -> _native.ImageJob:
        native, (decode, truncated, _) = extension.native, self.options
        assert chain.size is not None
        spec = None
        if chain.floating:
            spec = make_spec((1, chain.channels, *chain.size), True, chain.normalization)
        no_files = native.FolderSource(np.empty(0, np.uint8), np.empty(0, np.uint64))
        return native.ImageJob(
            source=no_files,
            transform=chain.native(),
            planar=True,
            recipe=chain.native_recipe(),
            output=chain.size,
            channels=chain.channels,
            normalize=spec,
            decode=getattr(native.DecodeMode, decode.upper()),
            pad_truncated=truncated == "pad",
            pixel_limit=most,
            large_pixels=large,
        )


def _left_to_delivery(chain: Chain, wanted: Normalization) -> Chain:
    """The chain without the end that normalises, which the delivery does.

    Raises:
        ValueError: if the two do not do the same.
    """
    own = chain.normalization
    said = "ToTensor()" if own.mean is None else f"Normalize(mean={own.mean}, std={own.std})"
    check_same_values(own, wanted, "the transform of an EncodedImage", said)
    if chain.erasing is not None:
        raise ValueError(
            "the transform of an EncodedImage erases behind Normalize, and mean and std are given to "
            "FastLoader, too: leave them out there"
        )
    return dataclasses.replace(chain, floating=False, mean=None, std=None)


def _shorten(kept: dict[Any, Any]) -> None:
    """Drops the oldest entry of a full one."""
    if len(kept) >= _MOST_JOBS:
        del kept[next(iter(kept))]
