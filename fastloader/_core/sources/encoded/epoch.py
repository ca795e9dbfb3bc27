"""The encoded pictures of one epoch."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from fastloader._core.handoff import LentMemory
from fastloader._core.observation.statistics import LeftOut
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.sources.encoded.batch import EncodedBatch
from fastloader._core.sources.encoded.decoding.decoder import EncodedDecoder
from fastloader._core.sources.encoded.decoding.drawn_batch import DrawnBatch
from fastloader._core.sources.encoded.decoding.keys import DrawnBy, EpochKeys, sample_key
from fastloader._core.sources.encoded.decoding.pending import PendingPictures
from fastloader._core.sources.encoded.rows import kept_rows, with_row
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization
from fastloader.transforms._recipe.draws import REPLACEMENT, Draws

_MOST_REMEMBERED = 100_000  # samples, for replay()
_MOST_ATTEMPTS = 10  # to find a sample in the place of a bad one


class EncodedEpoch:
    """Decodes the batches of one epoch. ``keys`` gives what is called once, when the keys of a batch
    are wanted. ``make(index, batched)`` makes the batch of one index, or its sample alone,
    to stand in a bad one's place. ``refused``: why a batch without encoded pictures is refused; empty if
    it is not. ``memory``: where batches are decoded, if the delivery has lent some. ``wanted``: how the
    delivery normalises."""

    def __init__(
        self,
        decoder: Callable[[], EncodedDecoder],
        policy: ErrorPolicy,
        keys: Callable[[], Callable[[], EpochKeys] | None],
        dataset: Any,
        make: Callable[[Any, bool], Any],
        refused: str,
        memory: LentMemory | None,
        wanted: Normalization | None,
    ) -> None:
        self.wanted = wanted
        self.seen = False  # whether a batch with an encoded picture has come
        self._made_decoder, self._policy = decoder, policy
        self._made_keys = keys
        self._keys: EpochKeys | None = None
        self._dataset = dataset
        self._make = make
        self.refused = refused
        self._lent = memory
        # By the number of a batch that was asked for: its indices, and how many samples come before it.
        self.asked: dict[int, tuple[Any, int]] = {}
        self.position = 0
        self.pending: list[PendingPictures] = []
        self._records: collections.deque[DrawnBatch] = collections.deque()
        self._places: dict[int, tuple[DrawnBatch, int]] = {}  # by number

    def begin(self, number: int, batch: Any) -> None:
        """Begins to decode a batch that has come, if there is something to decode."""
        asked = self.asked.pop(number, None)
        # Persistent workers still send what the epoch before had asked for.
        if asked is None or type(batch) is not EncodedBatch:
            return
        self.seen = True
        try:
            self._begin(batch, *asked)
        except Exception as error:  # raised in the place of the batch, when its turn comes
            batch.error = error

    def _begin(self, batch: EncodedBatch, index: Any, position: int) -> None:
        decoder = self._made_decoder()
        decoder.workers += batch.made
        decoder.why_made = batch.why or decoder.why_made
        if not batch.columns:
            return
        drawn_by = batch.drawn_by
        if drawn_by is None:
            drawn_by = self.keys().of(self._dataset, batch.samples, index, position)
        memory = None if self._lent is None else self._lent.pool()
        batch.pending = PendingPictures(decoder, batch, drawn_by, memory)
        self.pending.append(batch.pending)

    def keys(self) -> EpochKeys:
        if self._keys is None:
            made = self._made_keys()
            assert made is not None  # the iterator lives: it is what calls
            self._keys = made()
        return self._keys

    @staticmethod
    def ready(batch: Any) -> bool:
        """Whether `finished` would not have to wait for decode threads."""
        return type(batch) is not EncodedBatch or batch.pending is None or batch.pending.ready()

    def finished(self, batch: Any) -> Any:
        """The batch with its pictures.

        Raises:
            LeftOut: if all samples of the batch were skipped.
        """
        if self.refused and (type(batch) is not EncodedBatch or not batch.columns):
            raise ValueError(self.refused)
        if type(batch) is not EncodedBatch:
            return batch
        if batch.error is not None:
            raise batch.error
        pending: PendingPictures | None = batch.pending
        if pending is None:
            return batch.tree
        if not pending.counted:
            pending.counted = True
            self._policy.seen += len(pending.keys)
        try:
            tree = pending.finished()
        except Exception:
            self._drop(pending)
            raise
        self._drop(pending)
        self._remember(pending)
        for position, error in pending.replaced.items():
            tree = self._with_other(tree, batch.samples, pending, position, error)
        if not pending.dropped:
            return tree
        count = len(pending.keys)
        kept = [each for each in range(count) if each not in pending.dropped]
        if not kept:
            raise LeftOut
        return kept_rows(tree, count, kept)

    def _drop(self, pending: PendingPictures) -> None:
        with contextlib.suppress(ValueError):  # closed meanwhile
            self.pending.remove(pending)
        pending.forget()

    def _with_other(
        self,
        tree: Any,
        samples: int | None,
        pending: PendingPictures,
        position: int,
        error: BaseException,
    ) -> Any:
        """The batch with another sample in a bad one's place: a function of the seed and the bad one's
        index."""
        number, seed = pending.numbers[position], pending.seed(position)
        if self.keys().iterable:
            raise Error("on_error='replace' needs a dataset with indices") from error
        draws = Draws(seed, number, REPLACEMENT)
        for _ in range(_MOST_ATTEMPTS):
            other = draws.below(len(self._dataset))
            try:
                batch = self._make(other, samples is not None)
                if type(batch) is EncodedBatch:
                    mine = self._made_decoder()
                    policy = dataclasses.replace(self._policy, on_error="raise")
                    decoder = EncodedDecoder(mine.native, policy, *mine.options)
                    key = sample_key(self._dataset, other, position)
                    drawn_by = DrawnBy([other], [key], [seed])
                    batch = PendingPictures(decoder, batch, drawn_by).finished()
            except Exception:
                continue
            return batch if samples is None else with_row(tree, samples, position, batch)
        raise Error(
            f"no replacement for sample {number}: ten others, drawn at random, could not be decoded "
            "either"
        ) from error

    def _remember(self, pending: PendingPictures) -> None:
        record = pending.record
        assert record is not None
        self._records.append(record)
        for position, number in enumerate(record.numbers):
            self._places[number] = record, position
        while len(self._places) > _MOST_REMEMBERED:
            old = self._records.popleft()
            for number in old.numbers:
                if self._places.get(number, (None,))[0] is old:
                    del self._places[number]

    def replay(self, index: int) -> Any:
        if index not in self._places:
            raise ValueError(
                f"sample {index} was not among the last {len(self._places)} of the epoch"
            )
        record, position = self._places[index]
        return record.replay(position)

    def stop(self) -> None:
        """Ends the decoding, from any thread."""
        stop(self.pending)


def stop(pending: list[PendingPictures]) -> None:
    """Ends what is being decoded. Not a method for who must hold no dataset, which an epoch does."""
    for each in list(pending):
        each.stop()
    pending.clear()
