"""Keeps the encoded pictures of a loader and of one epoch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

from fastloader._core.batch.tree import Key
from fastloader._core.handoff import LentMemory, SamplePart
from fastloader._core.machine import extension
from fastloader._core.machine.limits import counted
from fastloader._core.machine.process import HomeProcess
from fastloader._core.observation.statistics import LOOP, LeftOut, Stage
from fastloader._core.order.loader import Loader
from fastloader._core.pictures.decoder import jpeg_counts
from fastloader._core.pictures.images import (
    DrawnBy,
    EpochKeys,
    ErrorPolicy,
    LastSamples,
    sample_key,
)
from fastloader._core.pictures.in_place import RowPictures
from fastloader._core.pictures.notes import PictureNotes
from fastloader._core.pictures.repair import draw_others, no_replacement
from fastloader._core.sources.arguments import NO_LIBJPEG, requires_native
from fastloader._core.sources.encoded.batch import EncodedBatch, kept_rows, with_row
from fastloader._core.sources.encoded.decoder import DrawnBatch, EncodedDecoder, PendingPictures
from fastloader._core.sources.encoded.told import ALONE, KEPT, OWN, TOGETHER, ToldParts
from fastloader.errors import Error
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization

# ---- Where the pictures of an epoch stand in its batches.


class PicturePlaces:
    """The outermost keys under which samples have had encoded pictures."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._elsewhere = False  # whether a user's function has had some of them

    def add(self, keys: Collection[Key] | None) -> None:
        """Adds those of a batch; None if the user's code has collated the pictures."""
        if keys is None:
            self._elsewhere = True
        else:
            self._keys.update(keys)

    def made_under(self, key: Key) -> bool | None:
        """Tells as `MadeUnder` has it."""
        return True if key in self._keys else None if self._elsewhere else False


# ---- The encoded pictures of one epoch.


class EncodedEpoch:
    """Decodes the batches of one epoch. ``keys`` gives what is called once, when the keys of a batch are
    needed. ``make(index, batched)`` makes the batch of one index, or its sample alone, to stand in a bad
    one's place. ``refused``: why a batch without encoded pictures is refused; empty if it is not.
    ``memory``: where batches are decoded, if the delivery has lent some. ``wanted``: how the delivery
    normalises."""

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
        self.places = PicturePlaces()
        self._made_decoder, self._policy = decoder, policy
        self._made_keys = keys
        self._keys: EpochKeys | None = None
        self._dataset = dataset
        self._make = make
        self.refused = refused
        self.required = False  # whether a picture that Python makes is refused, too
        self._lent = memory
        # By the number of a batch that was asked for: its indices, and how many samples come before it.
        self.asked: dict[int, tuple[Any, int]] = {}
        self.position = 0
        self.told = ToldParts()
        self.pending: list[PendingPictures] = []
        self._last: LastSamples[tuple[DrawnBatch, int]] = LastSamples()  # where each stands

    def begin(self, number: int, batch: Any) -> None:
        """Begins to decode a batch that has come, if there is something to decode."""
        request = self.asked.pop(number, None)
        # Persistent workers still send what the epoch before had asked for.
        if request is None or type(batch) is not EncodedBatch or batch.holds_none:
            return
        self.seen = True
        try:
            self._begin(batch, *request)
        except Exception as error:  # raised in the place of the batch, when its turn comes
            batch.error = error

    def _begin(self, batch: EncodedBatch, index: Any, position: int) -> None:
        decoder = self._made_decoder()
        decoder.workers += batch.made
        decoder.why_made = batch.why or decoder.why_made
        self.told.note(batch.told)
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
        """Returns whether `finished` would not have to wait for decode threads."""
        return type(batch) is not EncodedBatch or batch.pending is None or batch.pending.ready()

    def finished(self, batch: Any) -> Any:
        """Returns the batch with its pictures.

        Raises:
            LeftOut: if all samples of the batch were skipped.
        """
        if type(batch) is not EncodedBatch:
            if self.refused:
                raise ValueError(self.refused)
            return batch
        if self.required:
            _check_made(batch)
        if batch.notes is not None:
            self._count(batch, batch.notes)
        elif self.refused and not batch.columns:
            raise ValueError(self.refused)
        if batch.left_out:
            raise LeftOut
        if batch.error is not None:
            raise batch.error
        if batch.made:
            self.places.add(batch.made_under)
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
        self.places.add(pending.places)
        assert pending.record is not None
        self._remember(pending.record)
        for position, error in pending.replaced.items():
            tree = self._with_other(tree, batch.samples, pending, position, error)
        if not pending.dropped:
            return tree
        count = len(pending.keys)
        kept = [each for each in range(count) if each not in pending.dropped]
        if not kept:
            raise LeftOut
        return kept_rows(tree, count, kept)

    def _count(self, batch: EncodedBatch, notes: PictureNotes) -> None:
        """Counts once what was noted where the batch was made."""
        if notes.counted:
            return
        if isinstance(self._dataset, RowPictures):
            self._dataset.received(notes)
        else:
            decoder = self._made_decoder()
            decoder.add_times(notes.times)
            for record in batch.records:
                record.arrived(decoder)
                self._remember(record)
        notes.count(self._policy)

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
        """Puts another sample in a bad one's place: a function of the seed and the bad one's index."""
        number, seed = pending.numbers[position], pending.seed(position)
        if self.keys().iterable:
            raise Error("on_error='replace' needs a dataset with indices") from error
        for other in draw_others(seed, number, len(self._dataset)):
            try:
                batch = self._make(other, samples is not None)
                if type(batch) is EncodedBatch:
                    own = self._made_decoder()
                    policy = dataclasses.replace(self._policy, on_error="raise")
                    decoder = EncodedDecoder(own.native, policy, own.decode, own.normalization)
                    key = sample_key(self._dataset, other, position)
                    drawn_by = DrawnBy([other], [key], [seed])
                    batch = PendingPictures(decoder, batch, drawn_by).finished()
            except Exception:
                continue
            return batch if samples is None else with_row(tree, samples, position, batch)
        raise no_replacement(number) from error

    def _remember(self, record: DrawnBatch) -> None:
        for position, number in enumerate(record.numbers):
            self._last.remember(number, (record, position))

    def replay(self, index: int) -> Any:
        record, position = self._last.of(index)
        return record.replay(position)

    def stop(self) -> None:
        """Ends the decoding, from any thread."""
        stop(self.pending)


def _check_made(batch: EncodedBatch) -> None:
    """Raises ValueError if Python has made a picture of the batch, with ``native="require"``."""
    for place, _last, made in batch.told:
        if made.how == ALONE:
            which = f"the pictures {place}".rstrip()
            raise ValueError(
                f"native='require', and Python makes {which} of this batch: {made.why}. "
                "docs/native.md has the table of what is native; native=True lets Python make them all "
                "the same"
            )


def stop(pending: list[PendingPictures]) -> None:
    """Ends the decoding. It is a free function, because a finalizer calls it and must not keep the
    epoch, and so the dataset, alive."""
    for each in list(pending):
        each.stop()
    pending.clear()


# ---- What one loader keeps for the pictures that its samples leave encoded.


_ABSENT = "the native module is not in use"


def _absent() -> str:
    """Says why there are no decode threads for encoded pictures."""
    return "native=False" if extension.load() is not None else _ABSENT


def own_code(where: str) -> str:
    """Says that the dataset's own code makes a part of a sample."""
    return f"the dataset's own code, {where}"


class EncodedPictures:
    """Begins the epochs of one loader. Attributes: ``last``, the last of them, if no other source has
    made an epoch since; ``refused``, why a batch without encoded pictures is refused, if it is;
    ``memory``, where the delivery of epochs that begin now lets pictures be decoded; ``stores``, whether
    that of iterators that begin now takes a `StoredMask`."""

    refused = ""
    stores = False
    memory: LentMemory | None = None

    def __init__(self, policy: ErrorPolicy) -> None:
        self._policy = policy
        self._home = HomeProcess()
        # Apart from the epochs, which hold the dataset: the delivery's threads hold this.
        self.places = PicturePlaces()
        self._decoder: EncodedDecoder | None = None
        self.last: EncodedEpoch | None = None
        self._told = ToldParts()  # of the last epoch before it that was told some

    def epoch(
        self,
        loader: Loader,
        keys: Callable[[], Callable[[], EpochKeys] | None],
        dataset: Any,
        make: Callable[[Any, bool], Any],
    ) -> EncodedEpoch:
        normalization = loader._runtime.normalization
        settings = bool(loader.native), Decode(loader.decode, loader.truncated), normalization
        self.last = EncodedEpoch(
            lambda: self._make_decoder(*settings),
            self._policy,
            keys,
            dataset,
            make,
            self.refused,
            self.memory,
            normalization,
        )
        self.last.places, self.last.required = self.places, requires_native(loader)
        return self.last

    def _make_decoder(
        self, native: bool, decode: Decode, normalization: Normalization | None
    ) -> EncodedDecoder:
        """Makes the decoder with the first picture, and then gives the same one. A forked child makes
        its own."""
        native = native and extension.load() is not None
        if not native and decode != Decode():
            raise ValueError(
                f"decode={decode.mode!r} and truncated={decode.truncated!r} are for the native "
                "decoder, which is not in use"
            )
        if native and decode.truncated != "error" and extension.lacks_libjpeg():
            raise ValueError(f"truncated={decode.truncated!r}: {NO_LIBJPEG}")
        before = self._decoder
        if before is not None and self._home.here:
            settings = before.native, before.decode, before.normalization
            if settings == (native, decode, normalization):
                return before
        made = EncodedDecoder(native, self._policy, decode, normalization, before=before)
        self._decoder, self._home = made, HomeProcess()
        return made

    def plan_words(self, workers: int) -> str:
        """Says for ``plan()`` who makes the pictures, once one was made. The workers were named
        before."""
        decoder = self._decoder
        if decoder is None:
            return ""
        words = ""
        if decoder.decodes:
            words = f", {counted(decoder.threads, 'decode thread')} for encoded pictures"
        if not decoder.workers:
            return words
        why = decoder.why_made or _absent()
        if words:
            return f"{words}, others made with their samples ({why})"
        makes = "which makes" if workers == 1 else "which make"
        maker = makes if workers else "the loop's thread makes"
        return f", {maker} the encoded pictures ({why})"

    @property
    def all_native(self) -> bool:
        """Whether encoded pictures have come, and the decode threads made all of the last epoch that had
        some."""
        decoder, told = self._decoder, self._last_told()
        return (
            decoder is not None
            and decoder.native
            and {how for by_whom in told.made.values() for how in by_whom} - {OWN} != set()
            and not any(ALONE in by_whom for by_whom in told.made.values())
        )

    def _last_told(self) -> ToldParts:
        return self.last.told if self.last is not None and self.last.told.made else self._told

    def parts(self, where: str, decoding: str) -> list[SamplePart]:
        """Lists the parts of a sample for ``plan()``, once encoded pictures have come: of the last epoch
        that had some.

        Args:
            where: in which workers, or where else, samples are made, in words.
            decoding: on how many decode threads, where a collate_fn gets what they make, in words.
        """
        told = self._last_told()
        return [
            self._part(told.named(place), by_whom, where, decoding)
            for place, by_whom in told.made.items()
        ]

    def _part(self, place: str, by_whom: dict[str, str], where: str, decoding: str) -> SamplePart:
        decoder = self._decoder
        assert decoder is not None  # made with the first picture
        if OWN in by_whom:
            return SamplePart(place, own_code(where))
        here = "" if decoder.native else _absent()
        by_python = f"made by Pillow {where}"
        words = {
            KEPT: f"made natively, {counted(decoder.threads, 'decode thread')}, straight into the batch",
            TOGETHER: f"made natively {where}, {decoding}, a tensor for each sample",
            ALONE: f"made by Python {where}",
        }
        if here:
            words[KEPT] = by_python if decoder.workers else f"made by Pillow on {LOOP}"
            words[TOGETHER] = by_python
        # Pictures of one place may have several transforms, or be sometimes in samples of other lengths.
        whys = [why if how == ALONE else here or why for how, why in by_whom.items()]
        made = ", others ".join(words[how] for how in (KEPT, TOGETHER, ALONE) if how in by_whom)
        return SamplePart(place, made, "pictures", next(filter(None, whys), ""))

    def begin(self, refused: str) -> None:
        """Forgets the last epoch. ``refused``: of the one that begins."""
        if self.last is not None and self.last.told.made:
            self._told = self.last.told
        self.last, self.refused = None, refused

    def replay(self, index: int) -> Any | None:
        """Returns what was drawn for a sample of the epoch begun last; None if it had no encoded
        pictures."""
        return None if self.last is None or not self.last.seen else self.last.replay(index)

    def stats(self) -> dict[str, Any]:
        decoder = self._decoder
        if decoder is None:
            return {}
        return {
            "pictures": {
                "pool": decoder.pool,
                "workers": decoder.workers,
                "pillow": decoder.pillow,
                "jpegs": jpeg_counts(self._times()),
                "threads": decoder.threads,
                "seen": self._policy.seen,
                "bad": self._policy.bad,
                "last_bad": list(self._policy.last),
            }
        }

    def _times(self) -> dict[str, float]:
        """Returns what the decode threads have done for this loader, as ``DecodeQuota.times`` has it."""
        return {} if self._decoder is None else self._decoder.times()

    def stages(self) -> Iterator[Stage]:
        decoder, times = self._decoder, self._times()
        if decoder is None or not times:
            return
        count = int(times.get("pictures", 0))
        for name in ("read", "decode", "recipe", "finish"):
            if count and times[name]:
                where = "decode threads"
                yield Stage(
                    name, times[name], count, "file", where, decoder.threads, bound="decode"
                )
