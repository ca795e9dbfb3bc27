"""Collates samples so that encoded pictures stay encoded, or has the worker make them."""

from __future__ import annotations

import dataclasses
import sys
import uuid
from collections import UserList
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastloader._core.batch.layout import Layout
from fastloader._core.batch.tree import Key, MaskLeaf, outermost_keys, rebuild
from fastloader._core.machine import identity
from fastloader._core.pictures.notes import LEFT_OUT, take_notes
from fastloader._core.sources.collation import OF_TORCH, default_collate_change, other_kinds
from fastloader._core.sources.encoded.asked import find_asked, make
from fastloader._core.sources.encoded.batch import EncodedBatch, EncodedFiles
from fastloader._core.sources.encoded.making import Making, encoded_in
from fastloader._core.sources.encoded.taken_apart import take_apart
from fastloader._core.sources.encoded.told import ALONE, Made, Told, told_of
from fastloader._core.sources.names import named
from fastloader.datasets.companions import EncodedMask
from fastloader.datasets.encoded import (
    PICTURES_AND_CLIPS,
    EncodedPlace,
    Keeping,
    collate_encoded,
    count_pictures,
)
from fastloader.datasets.joint import ENCODED, FINISHED, STACKED, JointTarget, fetching
from fastloader.datasets.put_off import PutOff
from fastloader.errors import NotNative
from fastloader.transforms._job import Decode

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
            make(batch, find_asked(self.token))
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
            sample = max(samples, key=lambda each: len(encoded_in(each)))
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
        if self.batched and not isinstance(samples, list | tuple):
            return self.collate_fn(samples)  # what __getitems__ gives is its own affair
        if not any(map(_has_encoded, samples if self.batched else [samples])):
            tree = self.collate_fn(samples)
            return _made_batch(tree, len(samples), refused) if refused else tree
        if self.collate_fn is default_convert:
            kept = Keeping()
            tree = rebuild(samples, lambda each, _key: _keep(each, kept))
            return take_apart(default_convert(tree), kept.columns, None, self.stores)
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
            batch = take_apart(tree, kept.columns, len(samples), collation.stores)
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
