"""Makes the pictures in samples for a collate_fn that gets finished samples."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import IterableDataset

from fastloader._core.batch.layout import Layout, Parts
from fastloader._core.batch.tree import rebuild
from fastloader._core.machine.limits import counted
from fastloader._core.pictures.images import DrawnBy, sample_key
from fastloader._core.pictures.notes import NotedPolicy, PictureNotes
from fastloader._core.pictures.repair import draw_others, no_replacement
from fastloader._core.sources.encoded.asked import decoder_of, find_asked
from fastloader._core.sources.encoded.decoder import DrawnBatch, PendingPictures
from fastloader._core.sources.encoded.stored import with_stored_masks, without_dtypes
from fastloader._core.sources.encoded.taken_apart import TakenApart, form_of, look_into
from fastloader._core.sources.encoded.told import ALONE, TOGETHER, Made
from fastloader.datasets.companions import EncodedMask
from fastloader.datasets.encoded import EncodedImage, count_pictures, read_transform
from fastloader.datasets.joint import ENCODED, FINISHED, JointImage, JointTarget, fetching
from fastloader.errors import Error
from fastloader.transforms._job import Decode


class Making:
    """Makes the pictures in the samples of one batch: of samples with as many pictures together,
    natively, and each of the others by itself.

    Args:
        collation: the `EncodedCollation`, which says how, on how many threads, and what is done about
            bad samples.

    Attributes: ``made``, how many pictures there were, and ``why``, by whom or why so, in words;
    ``notes``, of the samples; ``records``, what was drawn for those that were made together.
    """

    def __init__(self, samples: list[Any], collation: Any) -> None:
        self._samples = samples
        self._collation = collation
        self._native: tuple[int, Decode] | None = collation.native
        # The user's code gets tensors that share nothing.
        layout = collation.collate_fn
        self._apart = type(layout) is not Layout or not layout.joins
        self._asked = find_asked(collation.token)
        self._images = [encoded_in(sample) for sample in samples]
        self._stores = collation.stores and type(layout) is Layout
        if self._stores:
            laid_out = find_laid_out(samples)
            self._images = [
                [without_dtypes(each) if is_parts(each, laid_out) else each for each in images]
                for images in self._images
            ]
        self.made = sum(map(count_pictures, self._images))
        self._pictures: list[list[Any]] = [[None] * len(each) for each in self._images]
        self._drawn_by = self._asked.drawn_by(len(samples) if collation.batched else None)
        self.why = ""
        self._policy = NotedPolicy(collation.on_error)
        self._whys: dict[int, str] = {}  # by the place of the pictures that are made each by itself
        self._bad: dict[int, BaseException] = {}  # by the position of the sample
        self.notes = PictureNotes(len(samples), self._policy.noted)
        self.records: list[DrawnBatch] = []

    def finished(self) -> list[Any]:
        """Returns the samples with their pictures: without those that were left out."""
        left = {(row, place) for row, each in enumerate(self._images) for place in range(len(each))}
        if self._drawn_by is not None:
            alike: dict[Any, list[int]] = {}
            for row, images in enumerate(self._images):
                if images:
                    forms = tuple(
                        (type(each), each.form, form_of(each), look_into(each)) for each in images
                    )
                    alike.setdefault(forms, []).append(row)
            for rows in alike.values():
                left -= self._make_together(rows, self._drawn_by)
        for row, place in sorted(left):
            if row not in self._bad:
                self._make_alone(row, place)
        if not left and self._native is not None:
            self.why = f"natively, on {counted(self._native[0], 'decode thread')} each"
        if not self._bad:
            return rebuild(self._samples, self._filling())
        if self._policy.on_error == "replace":
            for row, error in sorted(self._bad.items()):
                self._replace(row, error)
            return rebuild(self._samples, self._filling())
        kept = [row for row in range(len(self._samples)) if row not in self._bad]
        self._pictures = [self._pictures[row] for row in kept]
        return rebuild([self._samples[row] for row in kept], self._filling())

    def by_whom(self, else_why: str) -> tuple[Made, ...]:
        """Returns by whom the pictures are made, in their places of the samples, once these are
        finished. ``else_why``: what keeps them from the loop if their transform does not."""
        how = ALONE if self._drawn_by is None else TOGETHER
        return tuple(
            Made(ALONE if place in self._whys else how, self._whys.get(place) or else_why)
            for place in range(max(map(len, self._images)))
        )

    def _filling(self) -> Callable[[Any, Any], Any]:
        pictures = itertools.chain.from_iterable(self._pictures)
        laid_out: set[int] = set()
        if type(self._collation.collate_fn) is Layout:
            laid_out = find_laid_out(self._samples)

        def filled(each: Any, _key: Any) -> Any:
            if type(each) is JointTarget or type(each) is EncodedMask:
                return each.taken()
            if type(each) not in ENCODED:
                return each
            made = next(pictures)
            if type(each) is JointImage:
                return made
            if not is_parts(each, laid_out):
                return made
            if self._stores:
                made = with_stored_masks(made, each)
            companions = each.with_.items()
            masks = {key: of.ignore for key, of in companions if isinstance(of, EncodedMask)}
            return Parts(made, masks)

        return filled

    def _make_alone(self, row: int, place: int) -> None:
        image = self._images[row][place]
        its = look_into(image) or read_transform(image.transform).why
        why = self._whys.setdefault(place, its)
        self.why = self.why or why
        if self._native is not None and self._native[1] != Decode():
            mode, truncated = self._native[1].mode, self._native[1].truncated
            raise ValueError(
                f"decode={mode!r}, truncated={truncated!r}: for pictures on the native path, and "
                f"{image} is made by Python: {why}"
            )
        try:
            self._pictures[row][place] = image.taken()
        except Exception as error:
            if self._policy.on_error == "raise":
                raise
            number = row if self._drawn_by is None else self._drawn_by.numbers[row]
            self._policy.count(f"sample {number}, {image.encoded.name}", error)
            self._bad[row] = error

    def _make_together(self, rows: list[int], drawn_by: DrawnBy) -> set[tuple[int, int]]:
        """Makes the pictures of these samples, which have as many each, of the same forms, and returns
        (sample, place) of those that are made."""
        taken, places, number = TakenApart(), [], 0
        count = len(self._images[rows[0]])
        for place in range(count):
            column = [self._images[row][place] for row in rows]
            refused = look_into(column[0]) or taken.add(number, column, own_sizes=True)
            if refused is None:
                places.append(place)
            else:
                self._whys.setdefault(place, refused)
            number += column[0].draws
        if not places:
            return set()
        if self._native is None:
            decoder = decoder_of(False, 0, Decode(), None)
        else:
            decoder = decoder_of(True, *self._native, None)
        own = copy.copy(decoder)  # with this batch's policy
        own.policy = self._policy
        batch = taken.batch(None, len(rows))
        pending = PendingPictures(own, batch, drawn_by.only(rows), apart=self._apart)
        made = pending.rows()
        self._bad.update((rows[each], error) for each, error in pending.replaced.items())
        # The policy has counted them, with what was wrong.
        self._bad.update((rows[each], _left_out) for each in pending.dropped)
        record = pending.record
        assert record is not None
        for place, column, (number, _) in zip(places, made, pending.leads(), strict=True):
            for position, (row, picture) in enumerate(zip(rows, column, strict=True)):
                image = self._images[row][place]
                if type(image) is JointImage and row not in self._bad:
                    if not image.joint.made:  # or it stands twice in the batch
                        image.joint.move(picture, record.operations(number, position))
                    picture = image.joint.image
                self._pictures[row][place] = picture
        self.notes.add_times(decoder.new_times())
        if len(places) == count:
            self.records.append(record)
        return {(row, place) for row in rows for place in places}

    def _replace(self, row: int, error: BaseException) -> None:
        """Puts another sample in a bad one's place: a function of the seed and the bad one's index."""
        dataset = self._asked.of_dataset()
        if self._drawn_by is None or isinstance(dataset, IterableDataset):
            raise Error("on_error='replace' needs a dataset with indices") from error
        drawn_by = self._drawn_by.only([row])
        (number,), (seed,) = drawn_by.numbers, drawn_by.seeds
        for other in draw_others(seed, number, len(dataset)):
            try:
                fetching.under_way = FINISHED
                sample = dataset[other]
                fetching.under_way = ""
                making = Making([sample], self._collation)
                making._policy = NotedPolicy("raise")
                making._drawn_by = DrawnBy([other], [sample_key(dataset, other, row)], [seed])
                making.finished()
            except Exception:
                continue
            self._samples[row], self._images[row] = sample, making._images[0]
            self._pictures[row] = making._pictures[0]
            return
        raise no_replacement(number) from error


_left_out = Error("left out")


def encoded_in(sample: Any) -> list[EncodedImage]:
    """Lists the encoded pictures of a sample."""
    found: list[EncodedImage] = []

    def note(each: Any, _key: Any) -> Any:
        if type(each) in ENCODED:
            found.append(each)
        return each

    rebuild(sample, note)
    return found


def _outermost(sample: Any) -> list[Any]:
    """Lists what a layout lays out of a sample."""
    if isinstance(sample, Mapping):
        return list(sample.values())
    sequence = isinstance(sample, Sequence) and not isinstance(sample, str | bytes)
    return list(sample) if sequence else [sample]


def find_laid_out(samples: list[Any]) -> set[int]:
    """Returns the ids of what a layout lays out: it leaves what stands further inside as it is."""
    return {id(each) for each in itertools.chain(*map(_outermost, samples))}


def is_parts(image: EncodedImage, laid_out: set[int]) -> bool:
    """Returns whether a layout gets `Parts` of this picture."""
    return bool(image.with_) and id(image) in laid_out and not image.return_parameters
