"""Collates samples so that encoded pictures stay encoded, or has the worker make them."""

from __future__ import annotations

import dataclasses
from collections import UserList
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import default_collate, default_convert, get_worker_info
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastloader._core.batch.tree import rebuild
from fastloader._core.machine import identity
from fastloader._core.pictures.images import EpochKeys, ErrorPolicy, WorkerSamples
from fastloader._core.sources.collation import OF_TORCH, default_collate_change, other_kinds
from fastloader._core.sources.encoded.batch import EncodedBatch, EncodedColumn, EncodedFiles
from fastloader._core.sources.encoded.decoder import EncodedDecoder, PendingPictures
from fastloader._core.sources.names import named
from fastloader.datasets.encoded import (
    EncodedImage,
    EncodedPlace,
    Keeping,
    collate_encoded,
    collated,
    read_transform,
)
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization

# ---- Pictures that a worker process makes itself, because nothing native makes them in the
# main process.


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
        normalization: Normalization | None,
    ) -> None:
        self._request = index, keys, position, samples, normalization

    def __reduce__(self) -> Any:
        return _arrived, self._request


# What this worker process was asked for last. torch's worker loop takes an index batch when it is done
# with the one before it.
_request: tuple[Any, EpochKeys, int, Normalization | None] | None = None
_samples: WorkerSamples  # of an iterable dataset in the epoch of that
_decoder: EncodedDecoder | None = None


def _arrived(
    index: Any, keys: EpochKeys, position: int, samples: int, normalization: Normalization | None
) -> Any:
    global _request, _samples
    info = get_worker_info()
    assert info is not None
    if keys.iterable:
        if _request is None or _request[1] != keys:
            _samples = WorkerSamples(keys.before)
        position = _samples.take(info.id, samples)
    _request = index, keys, position, normalization
    return index


def make(batch: EncodedBatch) -> None:
    """Makes the pictures of the batch that this worker was asked for. What cannot be made is left to the
    main process, which tries again, and counts it."""
    global _decoder
    info = get_worker_info()
    if _request is None or info is None:
        return
    index, keys, position, normalization = _request
    try:
        drawn_by = keys.of(info.dataset, batch.samples, index, position)
    except Error:  # which the main process raises, too
        return
    if _decoder is None:
        policy = ErrorPolicy("raise", None)
        _decoder = EncodedDecoder(False, policy, normalization=normalization, threads=0)
    try:
        made = PendingPictures(_decoder, batch, drawn_by).parts_made()
    except ValueError:  # of a chain, as above
        return
    bad = {batch_part.files[place] for batch_part, its in made for place in its.failed}
    batch.files = batch.files.only(bad)
    batch.drawn_by, batch.parts = drawn_by, [its for _part, its in made]


# ---- The loader's collate_fn, around which encoded pictures stay encoded.


_KNOWN = len(OF_TORCH) + 1  # the functions of torch's map, and ours


class EncodedCollation:
    """Collates samples by ``collate_fn``. If that is torch's own, pictures stay encoded for the decode
    threads of the loader, unless something is to be done to them that only Python knows. Any other one
    gets samples whose pictures are made already. ``makes``: whether a worker process makes all of
    them, because the main process has nothing native for them."""

    def __init__(self, collate_fn: Callable[[Any], Any], makes: bool = False) -> None:
        self.collate_fn = collate_fn
        self.makes = makes

    def __call__(self, samples: Any) -> Any:
        if not EncodedImage.any_made:
            return self.collate_fn(samples)
        if self.collate_fn is default_collate:
            with Keeping(_change) as keeping:
                # So many functions are torch's and ours, unless `_change` says no.
                if len(default_collate_fn_map) <= _KNOWN:
                    tree = default_collate(samples)
                else:
                    tree = collate(samples, collate_fn_map=_map(keeping))
            if not keeping.columns and not keeping.made:
                return tree
            batch = _kept_batch(samples, tree, keeping)
        else:
            batch = self._collated(samples)
        if self.makes and type(batch) is EncodedBatch and batch.columns:
            make(batch)
        return batch

    def _collated(self, samples: Any) -> Any:
        if not any(map(_has_encoded, samples if isinstance(samples, list) else [samples])):
            return self.collate_fn(samples)
        if self.collate_fn is default_convert:
            kept = Keeping()
            tree = rebuild(samples, lambda each, _key: _keep(each, kept))
            return _encoded(default_convert(tree), kept.columns, None)
        made = 0

        def make(each: Any, _key: Any) -> Any:
            nonlocal made
            if type(each) is not EncodedImage:
                return each
            made += 1
            return each.decode()

        batch = self.collate_fn(rebuild(samples, make))
        return _made_batch(
            batch, made, f"collate_fn is {named(self.collate_fn)}, which gets tensors"
        )


def _kept_batch(samples: Any, tree: Any, kept: Keeping) -> EncodedBatch:
    """Puts the pictures into the batch that default_collate has made. They stay encoded unless something
    else than torch's own functions collates them, or what they are in."""
    why = kept.why or "a function of default_collate_fn_map gets tensors"
    if not kept.columns:
        return _made_batch(tree, kept.made, why)
    if _places(tree) == list(range(len(kept.columns))):
        batch = _encoded(tree, kept.columns, len(samples))
        if kept.made:
            batch.made, batch.why = batch.made + kept.made, batch.why or why
        return batch
    # The places are where nobody would find them, in a sequence of one's own for example.
    made = sum(map(len, kept.columns))
    return _made_batch(
        default_collate(samples), made, "they stand where default_collate hides them"
    )


def _change() -> str:
    """Explains why default_collate does not do what torch's source and ours say; empty if it does."""
    function = default_collate_fn_map.get(EncodedImage)
    if function is not collate_encoded:
        return f"default_collate_fn_map has {identity.true_name(function)} for EncodedImage"
    return default_collate_change()


def _map(kept: Keeping) -> dict[Any, Any]:
    """Returns torch's map of collating functions. The functions of others get pictures that are made."""
    others = [kinds for kinds in other_kinds() if kinds is not EncodedImage]
    return {
        **default_collate_fn_map,
        **{kinds: kept.making(default_collate_fn_map[kinds]) for kinds in others},
    }


def _made_batch(tree: Any, made: int, why: str) -> EncodedBatch:
    """Makes a batch whose pictures were all made with their samples."""
    return EncodedBatch(tree, EncodedFiles(()), [], [], None, made, why=why)


def _places(tree: Any) -> list[int]:
    """Lists the columns whose places are found in a batch."""
    found: list[int] = []

    def note(each: Any, _key: Any) -> Any:
        if type(each) is EncodedPlace:
            found.append(each.column)
        return each

    rebuild(tree, note)
    return found


def _keep(value: Any, kept: Keeping) -> Any:
    return kept.keep([value]) if type(value) is EncodedImage else value


def _has_encoded(value: Any) -> bool:
    """Returns whether there is an encoded picture in a sample."""
    if type(value) is EncodedImage:
        return True
    if isinstance(value, Mapping):
        return any(map(_has_encoded, value.values()))
    if isinstance(value, list | tuple | UserList):
        return any(map(_has_encoded, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_has_encoded(getattr(value, each.name)) for each in dataclasses.fields(value))
    return False


def _encoded(tree: Any, columns: list[list[EncodedImage]], samples: int | None) -> EncodedBatch:
    """Takes columns apart. Those with which Python has to do are made here."""
    finished: dict[int, Any] = {}
    taken: list[EncodedColumn] = []
    sources: list[Any] = []
    numbers: dict[Any, int] = {}  # of the sources
    chains: dict[bytes, int] = {}
    made, why = 0, ""
    for place, column in enumerate(columns):
        # Each transform once, because looking whether it has changed takes a while.
        transforms = {id(each.transform): each.transform for each in column}
        read = {number: read_transform(transform) for number, transform in transforms.items()}
        if not all(each.whole for each in read.values()):
            finished[place] = _make_column(column, samples)
            made += len(column)
            why = why or next(each.why for each in read.values() if not each.whole)
            continue
        files = []
        for each in column:
            source = each.encoded
            same = source.same
            if same not in numbers:
                numbers[same] = len(sources)
                sources.append(source)
            files.append(numbers[same])
        pickled = [read[id(each.transform)].encoded_chain for each in column]
        of_column = [chains.setdefault(chain, len(chains)) for chain in pickled]
        finished[place] = EncodedPlace(len(taken))
        taken.append(EncodedColumn(place, files, of_column, column[0].return_parameters))
    if len(taken) < len(columns):
        tree = rebuild(tree, lambda each, _key: _replaced(each, finished))
    return EncodedBatch(tree, EncodedFiles(sources), taken, list(chains), samples, made, why=why)


def _replaced(value: Any, finished: dict[int, Any]) -> Any:
    return finished[value.column] if type(value) is EncodedPlace else value


def _make_column(column: list[EncodedImage], samples: int | None) -> Any:
    return column[0].decode() if samples is None else collated(column, default_collate_fn_map)
