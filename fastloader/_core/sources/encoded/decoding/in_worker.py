"""Pictures that a worker process makes itself, because nothing native makes them in the main process."""

from __future__ import annotations

from typing import Any

from torch.utils.data import get_worker_info

from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.sources.encoded.batch import EncodedBatch
from fastloader._core.sources.encoded.decoding.decoder import EncodedDecoder
from fastloader._core.sources.encoded.decoding.keys import EpochKeys, WorkerSamples
from fastloader._core.sources.encoded.decoding.pending import PendingPictures
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization


class KeyedIndex:
    """An index batch on its way to a worker process, with the `EpochKeys`, the position of its first
    sample, how many it has, and how the delivery normalises. Unpickled there it is the index batch
    again, because the dataset is to see what the sampler gave; `make` knows the rest."""

    def __init__(
        self,
        index: Any,
        keys: EpochKeys,
        position: int,
        samples: int,
        wanted: Normalization | None,
    ) -> None:
        self._asked = index, keys, position, samples, wanted

    def __reduce__(self) -> Any:
        return _arrived, self._asked


# What this worker process was asked for last. torch's worker loop takes an index batch when it is done
# with the one before it.
_asked: tuple[Any, EpochKeys, int, Normalization | None] | None = None
_samples: WorkerSamples  # of an iterable dataset in the epoch of that
_decoder: EncodedDecoder | None = None


def _arrived(
    index: Any, keys: EpochKeys, position: int, samples: int, wanted: Normalization | None
) -> Any:
    global _asked, _samples
    info = get_worker_info()
    assert info is not None
    if keys.iterable:
        if _asked is None or _asked[1] != keys:
            _samples = WorkerSamples(keys.before)
        position = _samples.take(info.id, samples)
    _asked = index, keys, position, wanted
    return index


def make(batch: EncodedBatch) -> None:
    """Makes the pictures of the batch that this worker was asked for. What cannot be made is left to the
    main process, which tries again, and counts it."""
    global _decoder
    info = get_worker_info()
    if _asked is None or info is None:
        return
    index, keys, position, wanted = _asked
    try:
        drawn_by = keys.of(info.dataset, batch.samples, index, position)
    except Error:  # which the main process raises, too
        return
    if _decoder is None:
        _decoder = EncodedDecoder(False, ErrorPolicy("raise", None), "exact", "error", wanted)
        _decoder.threads = 0
    try:
        made = PendingPictures(_decoder, batch, drawn_by).parts_made()
    except ValueError:  # of a chain, as above
        return
    bad = {batch_part.files[place] for batch_part, its in made for place in its.failed}
    batch.files = batch.files.only(bad)
    batch.drawn_by, batch.parts = drawn_by, [its for _part, its in made]
