"""Collates samples so that encoded pictures stay encoded, or has the worker make them."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
import threading
import uuid
from collections import UserList
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate, default_convert, get_worker_info
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastloader._core.batch.layout import Layout, Parts
from fastloader._core.batch.tree import Key, MaskLeaf, outermost_keys, rebuild
from fastloader._core.machine import identity
from fastloader._core.machine.limits import counted
from fastloader._core.machine.process import ProcessLock
from fastloader._core.pictures.images import (
    DrawnBy,
    EpochKeys,
    ErrorPolicy,
    WorkerSamples,
    sample_key,
)
from fastloader._core.pictures.notes import LEFT_OUT, NotedPolicy, PictureNotes, take_notes
from fastloader._core.pictures.repair import draw_others, no_replacement
from fastloader._core.sources.collation import OF_TORCH, default_collate_change, other_kinds
from fastloader._core.sources.encoded.batch import (
    EncodedBatch,
    EncodedColumn,
    EncodedFiles,
    Follows,
)
from fastloader._core.sources.encoded.decoder import DrawnBatch, EncodedDecoder, PendingPictures
from fastloader._core.sources.encoded.stored import with_stored_masks, without_dtypes
from fastloader._core.sources.encoded.told import ALONE, AS_KEPT, TOGETHER, Made, Told, told_of
from fastloader._core.sources.names import named
from fastloader.datasets.companions import EncodedMask
from fastloader.datasets.encoded import (
    PICTURES_AND_CLIPS,
    EncodedClip,
    EncodedImage,
    EncodedPlace,
    Keeping,
    ReadTransform,
    collate_encoded,
    collated,
    count_pictures,
    read_transform,
)
from fastloader.datasets.joint import (
    ENCODED,
    FINISHED,
    STACKED,
    JointImage,
    JointTarget,
    fetching,
)
from fastloader.datasets.picture_source import PictureSource
from fastloader.datasets.put_off import PutOff
from fastloader.errors import Error, NotNative
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization

# ---- Pictures that are made where their samples are made: because nothing native makes them in the
# main process, or because the user's collate_fn is to get them.


class KeyedIndex:
    """An index batch on its way to what makes its samples, with the `EpochKeys`, the position of its
    first sample, how many it has, how the delivery normalises, and whose it is: the `EncodedCollation`'s
    ``token``. Where it has arrived, unpickled in a
    worker process, it is the index batch again, because the dataset is to see what the sampler gave;
    what makes the pictures there knows the rest."""

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


class _Asked:
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
        self.found: dict[str, _Asked] = {}


_asked_by = _AskedByLoader()


def _asked(token: str) -> _Asked:
    """Returns what this thread was asked for last by the loader of that token."""
    known = _asked_by.found
    # Taken out and put back, so that the loader of longest ago comes first.
    asked = known.pop(token) if token in known else _Asked()
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
    asked = _asked(token)
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


def _decoder_of(
    native: bool, threads: int, decode: Decode, wanted: Normalization | None
) -> EncodedDecoder:
    key = native, threads, decode, wanted
    with _making.lock:
        found = _decoders.get(key)
        if found is None or not found.here:
            policy = ErrorPolicy("raise", None)
            found = _decoders[key] = EncodedDecoder(native, policy, decode, wanted, threads)
        return found


def make(batch: EncodedBatch, asked: _Asked) -> None:
    """Makes the pictures of the batch that this worker was ``asked`` for. What cannot be made is left to
    the main process, which tries again, and counts it."""
    drawn_by = asked.drawn_by(batch.samples)
    if drawn_by is None:  # which the main process finds, too
        return
    assert asked.request is not None
    decoder = _decoder_of(False, 0, Decode(), asked.request[3])
    try:
        pending = PendingPictures(decoder, batch, drawn_by)
    except ValueError:  # of a chain, as above
        return
    made = pending.parts_made()
    bad = {batch_part.files[place] for batch_part, its in made for place in its.failed}
    bad |= pending.unfit_files()  # which the main process names
    batch.files = batch.files.only(bad)
    batch.drawn_by, batch.parts = drawn_by, [its for _part, its in made]


# ---- The loader's collate_fn, around which encoded pictures stay encoded.


_KNOWN = len(OF_TORCH) + len(ENCODED) + 2  # the functions of torch's map, and ours
_MOST_TOLD = 64  # of the lists of `EncodedCollation._told`


# How torch begins when it cannot stack, and what is added.
_UNEQUAL = "stack expects each tensor to be equal size"
_SIZES = (
    ". FastLoader's batch='list' or batch='pad' lays out samples of several sizes (docs/batches.md)"
)


def puts_off(collate_fn: Callable[[Any], Any], batched: bool) -> str:
    """Returns what becomes of what is put off in the samples of a batch, for `fetching`."""
    if not batched:
        return ""
    return STACKED if collate_fn is default_collate else FINISHED


class EncodedCollation:
    """Collates samples by ``collate_fn``. If that is torch's own, pictures stay encoded for the decode
    threads of the loader, unless something is to be done to them that only Python knows. Any other one
    gets samples whose pictures are made already.

    Args:
        makes: whether a worker process makes all of them, because the main process has nothing native
            for them.
        native: on how many threads pictures are decoded for a collate_fn that is not torch's, and how;
            None: by their samples' thread, one after the other.
        on_error: what is done about samples with pictures that cannot be made for such a function.
        noted: whether what makes the samples leaves notes of their pictures, as `RowPictures` does.
        batched: whether it gets lists of samples, or one sample.
        normalizes: whether the delivery normalises images. Then what torch's collate_fn makes of
            tv_tensors.Mask, which is a plain tensor, is marked as a `MaskLeaf`.

    Attributes: ``token``, by which the index batches of its loader are known; ``puts_off``, what becomes
    of what is put off in the samples that it gets, for `fetching`; ``stores``, whether the delivery
    takes a `StoredMask`.
    """

    stores = False

    def __init__(
        self,
        collate_fn: Callable[[Any], Any],
        makes: bool = False,
        native: tuple[int, Decode] | None = None,
        on_error: str = "raise",
        noted: bool = False,
        batched: bool = True,
        normalizes: bool = False,
    ) -> None:
        self.collate_fn = collate_fn
        self.batched = batched
        self.token = uuid.uuid4().hex  # drawn from none of the user's generators
        self._noted = noted
        self.makes = makes
        self.native = native
        self.on_error = on_error
        # What the loop is told, by whom the pictures of a batch are made.
        self._told: dict[tuple[Made, ...], tuple[Told, ...]] = {}
        self._marks = normalizes and collate_fn is default_collate
        self.puts_off = puts_off(collate_fn, batched)

    def __call__(self, samples: Any) -> Any:
        fetching.under_way = ""
        # One try for all ways, because a call more is much beside a small batch.
        try:
            notes = take_notes() if self._noted else None
            if notes is not None:
                batch = EncodedBatch(None, EncodedFiles(()), [], [], None, 0, notes=notes)
                batch.left_out = samples is LEFT_OUT or (bool(notes.bad) and not samples)
                if not batch.left_out:
                    batch.tree = self.collate_fn(samples)
                return batch
            if not PutOff.any_made:
                if self._marks and _MASKS in sys.modules:
                    # As `_marking`, written out.
                    functions = {_mask or _mask_kind(): _collate_masks, **default_collate_fn_map}
                    return collate(samples, collate_fn_map=functions)
                return self.collate_fn(samples)
            if self.collate_fn is default_collate:
                with Keeping(_change) as keeping:
                    # So many functions are torch's and ours, unless `_change` says no.
                    functions = default_collate_fn_map
                    if len(functions) > _KNOWN:
                        functions = _map(keeping)
                    if self._marks and _MASKS in sys.modules:  # as `_marking`, again
                        functions = {_mask or _mask_kind(): _collate_masks, **functions}
                    tree = collate(samples, collate_fn_map=functions)
                refused, fetching.refused = fetching.refused, ""
                if not keeping.columns and not keeping.made:
                    if not refused:
                        return tree
                    batch = _made_batch(tree, len(samples), refused)
                else:
                    keeping.why = refused or keeping.why
                    batch = _kept_batch(samples, tree, keeping, self)
            else:
                batch = self._collated(samples)
        except RuntimeError as error:
            if self.collate_fn is not default_collate or not str(error).startswith(_UNEQUAL):
                raise
            raise RuntimeError(f"{error}{_SIZES}") from error
        if type(batch) is not EncodedBatch:
            return batch
        if self.makes and batch.columns:
            make(batch, _asked(self.token))
        if batch.made:
            batch.made_under = self._keys_of_pictures(samples, batch.tree)
        if batch.told:
            batch.told = self._told.get(batch.told) or self._find_places(samples, batch.told)
        return batch

    def _find_places(self, samples: Any, made: tuple[Made, ...]) -> tuple[Told, ...]:
        """Returns what the loop is told, which is found out once for all batches whose pictures are made
        by the same. Of samples with several numbers of pictures, the one with the most speaks."""
        sample = samples
        if self.batched:
            sample = max(samples, key=lambda each: len(_encoded_in(each)))
        if len(self._told) >= _MOST_TOLD:
            self._told = {}
        told = self._told[made] = told_of(sample, made)
        return told

    def _keys_of_pictures(self, samples: Any, tree: Any) -> frozenset[Key] | None:
        """Returns the outermost keys of encoded pictures in the batch ``tree`` of these samples; None if
        that is up to the user's collate_fn."""
        torchs = self.collate_fn is default_collate or self.collate_fn is default_convert
        if not torchs and type(self.collate_fn) is not Layout:
            return None
        sample = samples[0] if self.batched else samples
        if type(sample) in ENCODED:
            return frozenset(outermost_keys(tree))
        found: set[Key] = set()

        def note(each: Any, key: Key) -> Any:
            if type(each) in ENCODED:
                found.add(key)
            return each

        rebuild(sample, note)
        return frozenset(found)

    def _collated(self, samples: Any) -> Any:
        refused, fetching.refused = fetching.refused, ""
        if not any(map(_has_encoded, samples if self.batched else [samples])):
            tree = self.collate_fn(samples)
            return _made_batch(tree, len(samples), refused) if refused else tree
        if self.collate_fn is default_convert:
            kept = Keeping()
            tree = rebuild(samples, lambda each, _key: _keep(each, kept))
            return _encoded(default_convert(tree), kept.columns, None, self.stores)
        making = Making(samples if self.batched else [samples], self)
        finished = making.finished()
        if not making.made:  # masks alone, or targets of pairs
            tree = self.collate_fn(finished if self.batched else finished[0])
            return _made_batch(tree, len(finished), refused) if refused else tree
        gets = f"collate_fn is {named(self.collate_fn)}, which gets tensors"
        if type(self.collate_fn) is Layout:
            gets = f"{self.collate_fn}, which lays out tensors"
        batch = _made_batch(None, making.made, making.why or gets)
        batch.told = making.by_whom(gets)
        batch.notes, batch.records = making.notes, making.records
        batch.left_out = not finished
        if finished:
            batch.tree = self.collate_fn(finished if self.batched else finished[0])
        return batch


class Making:
    """Makes the pictures in the samples of one batch: of samples with as many pictures together,
    natively, and each of the others by itself.

    Args:
        collation: says how, on how many threads, and what is done about bad samples.

    Attributes: ``made``, how many pictures there were, and ``why``, by whom or why so, in words;
    ``notes``, of the samples; ``records``, what was drawn for those that were made together.
    """

    def __init__(self, samples: list[Any], collation: EncodedCollation) -> None:
        self._samples = samples
        self._collation = collation
        self._native = collation.native
        # The user's code gets tensors that share nothing.
        layout = collation.collate_fn
        self._apart = type(layout) is not Layout or not layout.joins
        self._asked = _asked(collation.token)
        self._images = [_encoded_in(sample) for sample in samples]
        self._stores = collation.stores and type(layout) is Layout
        if self._stores:
            laid_out = _laid_out(samples)
            self._images = [
                [without_dtypes(each) if _is_parts(each, laid_out) else each for each in images]
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
                        (type(each), each.form, _form_of(each), _look_into(each)) for each in images
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
            laid_out = _laid_out(self._samples)

        def filled(each: Any, _key: Any) -> Any:
            if type(each) is JointTarget or type(each) is EncodedMask:
                return each.taken()
            if type(each) not in ENCODED:
                return each
            made = next(pictures)
            if type(each) is JointImage:
                return made
            if not _is_parts(each, laid_out):
                return made
            if self._stores:
                made = with_stored_masks(made, each)
            companions = each.with_.items()
            masks = {key: of.ignore for key, of in companions if isinstance(of, EncodedMask)}
            return Parts(made, masks)

        return filled

    def _make_alone(self, row: int, place: int) -> None:
        image = self._images[row][place]
        its = _look_into(image) or read_transform(image.transform).why
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
            refused = _look_into(column[0]) or taken.add(number, column, own_sizes=True)
            if refused is None:
                places.append(place)
            else:
                self._whys.setdefault(place, refused)
            number += column[0].draws
        if not places:
            return set()
        if self._native is None:
            decoder = _decoder_of(False, 0, Decode(), None)
        else:
            decoder = _decoder_of(True, *self._native, None)
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


def _kept_batch(
    samples: Any, tree: Any, kept: Keeping, collation: EncodedCollation
) -> EncodedBatch:
    """Puts the pictures into the batch that default_collate has made. They stay encoded unless something
    else than torch's own functions collates them, or what they are in."""
    why = kept.why or "a function of default_collate_fn_map gets tensors"
    if not kept.columns:
        return _made_batch(tree, kept.made, why)
    hidden = "they stand where default_collate hides them"
    batch = None
    if _places(tree) == list(range(len(kept.columns))):
        try:
            batch = _encoded(tree, kept.columns, len(samples), collation.stores)
        except NotNative as refusal:  # of pairs
            hidden = str(refusal)
    if batch is not None:
        if kept.made:
            batch.made, batch.why = batch.made + kept.made, batch.why or why
            # Those of which a function's containers were made are not told from the others.
            batch.told = (Made(ALONE, f"{why}, of some of them"),)
        return batch
    # The places are where nobody would find them, in a sequence of one's own for example.
    made = sum(map(count_pictures, kept.columns))
    functions = default_collate_fn_map
    if collation._marks and _MASKS in sys.modules:
        functions = _marking(functions)
    tree = collate(samples, collate_fn_map=functions)
    return _made_batch(tree, made, hidden)


def _change() -> str:
    """Explains why default_collate does not do what torch's source and ours say; empty if it does."""
    for kind in PICTURES_AND_CLIPS:
        function = default_collate_fn_map.get(kind)
        if function is not collate_encoded:
            return f"default_collate_fn_map has {identity.true_name(function)} for {kind.__name__}"
    return default_collate_change()


def _map(kept: Keeping) -> dict[Any, Any]:
    """Returns torch's map of collating functions. The functions of others get pictures that are made."""
    ours = *ENCODED, JointTarget, EncodedMask
    others = [kinds for kinds in other_kinds() if kinds not in ours]
    return {
        **default_collate_fn_map,
        **{kinds: kept.making(default_collate_fn_map[kinds]) for kinds in others},
    }


# Where tv_tensors.Mask is, which a sample can only hold once this was imported.
_MASKS = "torchvision.tv_tensors._mask"
_mask: Any = None  # the class, once it was found


def _marking(functions: dict[Any, Any]) -> dict[Any, Any]:
    """Returns a map of collating functions that also marks masks, unless it has one of its own for
    them."""
    return {_mask or _mask_kind(): _collate_masks, **functions}


def _mask_kind() -> Any:
    """Returns tv_tensors.Mask, or what no sample holds while that module is being imported."""
    global _mask
    _mask = identity.found(_MASKS, "Mask")
    return _mask or MaskLeaf


def _collate_masks(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Collates masks as default_collate does, as tensors."""
    made = collate_fn_map[torch.Tensor](batch, collate_fn_map=collate_fn_map)
    return made.as_subclass(MaskLeaf) if type(made) is torch.Tensor else made


def _made_batch(tree: Any, made: int, why: str) -> EncodedBatch:
    """Makes a batch whose pictures were all made with their samples."""
    told = (Made(ALONE, why),)
    return EncodedBatch(tree, EncodedFiles(()), [], [], None, made, why=why, told=told)


def _places(tree: Any) -> list[int]:
    """Lists the columns whose places are found in a batch."""
    found: list[int] = []

    def note(each: Any, _key: Any) -> Any:
        if type(each) is EncodedPlace:
            found.append(each.column)
        return each

    rebuild(tree, note)
    return [*dict.fromkeys(found)]  # several parts of one may stand in it


def _keep(value: Any, kept: Keeping) -> Any:
    if type(value) is EncodedMask:
        return value.taken()
    return kept.keep([value]) if type(value) in ENCODED else value


def _encoded_in(sample: Any) -> list[EncodedImage]:
    """Lists the encoded pictures of a sample."""
    found: list[EncodedImage] = []

    def note(each: Any, _key: Any) -> Any:
        if type(each) in ENCODED:
            found.append(each)
        return each

    rebuild(sample, note)
    return found


def _look_into(image: EncodedImage) -> str | None:
    """Returns why what comes out for a picture or a clip is made already; None if it is not."""
    if type(image) is JointImage:
        return "the dataset looks into the pair of transformed()" if image.joint.made else None
    return None if image.kept is None else _LOOK


_LOOK = "the dataset looks into an encoded picture"


def _outermost(sample: Any) -> list[Any]:
    """Lists what a layout lays out of a sample."""
    if isinstance(sample, Mapping):
        return list(sample.values())
    sequence = isinstance(sample, Sequence) and not isinstance(sample, str | bytes)
    return list(sample) if sequence else [sample]


def _laid_out(samples: list[Any]) -> set[int]:
    """Returns the ids of what a layout lays out: it leaves what stands further inside as it is."""
    return {id(each) for each in itertools.chain(*map(_outermost, samples))}


def _is_parts(image: EncodedImage, laid_out: set[int]) -> bool:
    """Returns whether a layout gets `Parts` of this picture."""
    return bool(image.with_) and id(image) in laid_out and not image.return_parameters


def _has_encoded(value: Any) -> bool:
    """Returns whether there is an encoded picture, or what belongs to one, in a sample."""
    if type(value) in ENCODED or type(value) in (JointTarget, EncodedMask):
        return True
    if isinstance(value, Mapping):
        return any(map(_has_encoded, value.values()))
    if isinstance(value, list | tuple | UserList):
        return any(map(_has_encoded, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_has_encoded(getattr(value, each.name)) for each in dataclasses.fields(value))
    return False


def _encoded(
    tree: Any, columns: list[list[EncodedImage]], samples: int | None, stores: bool
) -> EncodedBatch:
    """Takes columns apart. Those with which Python has to do are made here. ``stores``: whether masks
    stay as they are stored."""
    finished: dict[int, Any] = {}
    taken = TakenApart(stores)
    made, why, number = 0, "", 0
    told = [AS_KEPT] * len(columns)
    for place, column in enumerate(columns):
        refused = taken.add(number, column)
        number += column[0].draws
        if refused is None:
            finished[place] = EncodedPlace(taken.last)
            continue
        if type(column[0]) is JointImage:
            raise NotNative(refused)
        finished[place] = _make_column(column, samples, stores)
        made += count_pictures(column)
        why = why or refused
        told[place] = Made(ALONE, refused)
    if any(type(each) is not EncodedPlace or each.column != n for n, each in finished.items()):
        tree = rebuild(tree, lambda each, _key: _replaced(each, finished))
    batch = taken.batch(tree, samples, made, why)
    batch.told = tuple(told)
    return batch


class TakenApart:
    """Takes columns of pictures apart: into files, each once, and chains. ``stores``: whether masks stay
    as they are stored."""

    def __init__(self, stores: bool = False) -> None:
        self._stores = stores
        self.columns: list[EncodedColumn] = []
        self.last = 0  # the column of the pictures that were added last
        self._sources: list[PictureSource] = []
        self._numbers: dict[Any, int] = {}  # of the sources
        self._chains: dict[bytes, int] = {}

    def add(self, number: int, column: list[EncodedImage], own_sizes: bool = False) -> str | None:
        """Adds the pictures that stand in one place of every sample: those of this ``number`` in their
        samples. ``own_sizes``: also those whose sizes differ. Returns None, or why Python has to do with
        them, and nothing was added."""
        # Each transform once, because looking whether it has changed takes a while.
        transforms = {id(each.transform): each.transform for each in column}
        read = {key: read_transform(transform) for key, transform in transforms.items()}
        for key, each in read.items():
            if own_sizes and each.own_sizes is not None:
                read[key] = each.own_sizes
            elif not each.whole:
                return each.why
        of_column = [read[id(each.transform)] for each in column]
        followers: dict[Any, list[bytes]] = {}
        unlike = _unlike(column, lambda each: each.form)
        if unlike:
            raise TypeError(
                "the EncodedClips in one place of a batch are clips of several lengths, or are not all "
                f"shared: {' and '.join(map(repr, unlike))}"
            )
        if any(each.with_ for each in column):
            refused = _check_alike(column) or _find_followers(column, of_column, followers)
            if refused:
                return refused
        for image in column:
            if image.kept is not None:
                return _LOOK
        first, self.last = column[0], len(self.columns)
        self._append(number, column, [each.encoded_chain for each in of_column])
        made = self.columns[-1]
        made.parameters, made.named = first.return_parameters, first.named
        if type(first) is EncodedClip:
            made.frames, made.shared = len(first.frames), first.shared
        elif any(each.wrap for each in of_column):
            made.wraps = [each.wrap for each in of_column]
        for key, chains in followers.items():
            companions = [each.with_[key] for each in column]
            of = companions[0]
            self._append(number, companions, chains)
            self.columns[-1].follows = Follows(
                self.last, key, of.scale, of.following.mask, of.dtype, self._stores
            )
            if not of.following.mask:
                self.columns[-1].wraps = made.wraps
        return None

    def _append(self, number: int, pictures: Sequence[Any], chains: Sequence[bytes]) -> None:
        files = [self._number(source) for each in pictures for source in each.sources]
        numbers = [self._chains.setdefault(chain, len(self._chains)) for chain in chains]
        self.columns.append(EncodedColumn(number, files, numbers, False))

    def _number(self, source: PictureSource) -> int:
        same = source.same
        if same not in self._numbers:
            self._numbers[same] = len(self._sources)
            self._sources.append(source)
        return self._numbers[same]

    def batch(self, tree: Any, samples: int | None, made: int = 0, why: str = "") -> EncodedBatch:
        files = EncodedFiles(self._sources)
        return EncodedBatch(tree, files, self.columns, list(self._chains), samples, made, why=why)


def _form_of(image: EncodedImage) -> Any:
    """Returns the form of an encoded picture's companions: one place of a batch has those of one."""
    if not image.with_:
        return ()
    return image.named, *(
        (key, type(of), of.scale, of.following.wide, of.dtype) for key, of in image.with_.items()
    )


def _unlike(column: list[EncodedImage], form: Callable[[Any], Any]) -> list[EncodedImage]:
    """Returns two pictures of a column that have not the same ``form``; none if all have it."""
    wanted = form(column[0])
    other = next((each for each in column if form(each) != wanted), None)
    return [] if other is None else [column[0], other]


def _check_alike(column: list[EncodedImage]) -> str:
    """Raises TypeError unless as many companions of one kind follow each picture of a column."""
    unlike = _unlike(column, _form_of)
    if unlike:
        described = " and ".join(repr(each.with_) for each in unlike)
        raise TypeError(
            "the EncodedImages in one place of a batch have companions of several kinds in with_, such "
            f"as {described}: give each the same keys, kinds, scale, bits and dtype"
        )
    return ""


def _find_followers(
    column: list[EncodedImage], read: list[ReadTransform], found: dict[Any, list[bytes]]
) -> str:
    """Finds the chains of companions by key; returns why there are none for one of them."""
    for key in column[0].with_:
        try:
            found[key] = [
                of.follower(each.with_[key].following)[1]
                for each, of in zip(column, read, strict=True)
            ]
        except NotNative as refusal:
            return f"the companion {key!r}: {refusal}"
    return ""


def _replaced(value: Any, finished: dict[int, Any]) -> Any:
    if type(value) is not EncodedPlace:
        return value
    made = finished[value.column]
    return EncodedPlace(made.column, value.part) if type(made) is EncodedPlace else made


def _make_column(column: list[EncodedImage], samples: int | None, stores: bool) -> Any:
    first = column[0]
    # What was seen by who has looked into one has its dtype already.
    stores = stores and not _unlike(column, _form_of) and not any(each.kept for each in column)
    if stores:
        column = list(map(without_dtypes, column))
    made = column[0].taken() if samples is None else collated(column, default_collate_fn_map)
    return with_stored_masks(made, first) if stores else made
