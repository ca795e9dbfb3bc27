"""Remembers what a thread that makes samples was asked for, and makes the pictures of a batch where they
are made, because nothing native does in the main process."""

from __future__ import annotations

import threading
from typing import Any

from torch.utils.data import get_worker_info

from fastloader._core.machine.process import ProcessLock
from fastloader._core.pictures.images import DrawnBy, EpochKeys, ErrorPolicy, WorkerSamples
from fastloader._core.sources.encoded.batch import EncodedBatch
from fastloader._core.sources.encoded.decoder import EncodedDecoder, PendingPictures
from fastloader.errors import Error
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization


class KeyedIndex:
    """An index batch on its way to what makes its samples, with the `EpochKeys`, the position of its
    first sample, how many it has, how the delivery normalises, and whose it is: the `EncodedCollation`'s
    ``token``. Where it has arrived, unpickled in a worker process, it is the index batch again, because
    the dataset is to see what the sampler gave; what makes the pictures there knows the rest."""

    def __init__(
        self,
        index: Any,
        keys: EpochKeys,
        position: int,
        samples: int,
        normalization: Normalization | None,
        token: str,
    ) -> None:
        self._request = index, keys, position, samples, normalization, token

    def arrived(self, dataset: Any = None) -> Any:
        """Returns the index batch, on the thread that makes its samples. ``dataset``: the one that does;
        None in a worker, which knows it."""
        return _arrived(*self._request, dataset)

    def __reduce__(self) -> Any:
        return _arrived, self._request


class Asked:
    """Remembers what a thread was asked for last by one loader: a worker takes an index batch when it is
    done with the one before it. ``samples``: of an iterable dataset, in the epoch of that."""

    request: tuple[Any, EpochKeys, int, Normalization | None] | None = None
    samples: WorkerSamples | None = None
    dataset: Any = None

    def of_dataset(self) -> Any:
        """Returns the dataset that makes the samples."""
        info = get_worker_info()
        return self.dataset if info is None else info.dataset

    def drawn_by(self, samples: int | None) -> DrawnBy | None:
        """Returns the keys of the batch; None if it is not known, or not made of its indices."""
        if self.request is None:
            return None
        index, keys, position, _normalization = self.request
        try:
            return keys.of(self.of_dataset(), samples, index, position)
        except Error:
            return None


# How many loaders' requests a thread remembers: a dataset may iterate loaders of its own.
_MOST_LOADERS = 16


class _AskedByLoader(threading.local):
    def __init__(self) -> None:
        self.found: dict[str, Asked] = {}


_asked_by = _AskedByLoader()


def find_asked(token: str) -> Asked:
    """Returns what this thread was asked for last by the loader of that token."""
    known = _asked_by.found
    # Taken out and put back, so that the loader of longest ago comes first.
    asked = known.pop(token) if token in known else Asked()
    known[token] = asked
    if len(known) > _MOST_LOADERS:
        del known[next(iter(known))]
    return asked


def _arrived(
    index: Any,
    keys: EpochKeys,
    position: int,
    samples: int,
    normalization: Normalization | None,
    token: str,
    dataset: Any = None,
) -> Any:
    asked = find_asked(token)
    asked.dataset = dataset
    info = get_worker_info()
    if keys.iterable and info is not None:
        if asked.samples is None or asked.request is None or asked.request[1] != keys:
            asked.samples = WorkerSamples(keys.before)
        position = asked.samples.take(info.id, samples)
    asked.request = index, keys, position, normalization
    return index


_making = ProcessLock()  # guards: _decoders
_decoders: dict[Any, EncodedDecoder] = {}  # by what they are made with


def decoder_of(
    native: bool, threads: int, decode: Decode, wanted: Normalization | None
) -> EncodedDecoder:
    key = native, threads, decode, wanted
    with _making.lock:
        found = _decoders.get(key)
        if found is None or not found.here:
            policy = ErrorPolicy("raise", None)
            found = _decoders[key] = EncodedDecoder(native, policy, decode, wanted, threads)
        return found


def make(batch: EncodedBatch, asked: Asked) -> None:
    """Makes the pictures of the batch that this worker was ``asked`` for. What cannot be made is left to
    the main process, which tries again, and counts it."""
    drawn_by = asked.drawn_by(batch.samples)
    if drawn_by is None:  # which the main process finds, too
        return
    assert asked.request is not None
    decoder = decoder_of(False, 0, Decode(), asked.request[3])
    try:
        pending = PendingPictures(decoder, batch, drawn_by)
    except ValueError:  # of a chain, as above
        return
    made = pending.parts_made()
    bad = {batch_part.files[place] for batch_part, its in made for place in its.failed}
    bad |= pending.unfit_files()  # which the main process names
    batch.files = batch.files.only(bad)
    batch.drawn_by, batch.parts = drawn_by, [its for _part, its in made]
