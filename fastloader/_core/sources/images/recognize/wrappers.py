"""Subset and ConcatDataset over known datasets."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from typing import Any

import numpy as np

from fastloader._core.order.position import holds_twice
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.pictures.store import ImageStore
from fastloader._core.sources.images.last_time import last_time
from fastloader._core.sources.sequences import by_place, picked_by
from fastloader.datasets._formats.sample_form import SampleForm
from fastloader.errors import NotNative


def subset(dataset: Any, inner: NativeImages) -> NativeImages:
    picked = picked_by(dataset)
    picked = np.where(picked < 0, picked + len(inner), picked)
    if picked.size and (picked.min() < 0 or picked.max() >= len(inner)):
        raise NotNative("a Subset holds indices that its dataset has not")
    indices = picked if inner.indices is None else inner.indices[picked]
    kept = last_time.get(dataset)
    if kept is not None and np.array_equal(kept[0], indices):
        indices, repeats = kept
    else:
        repeats = holds_twice(indices)
    last_time[dataset] = indices, repeats
    name = f"Subset of {inner.name}"
    return dataclasses.replace(inner, indices=indices, name=name, repeats=repeats)


def concatenated(dataset: Any, parts: list[NativeImages]) -> NativeImages:
    first = parts[0]
    sizes = by_place(dataset.cumulative_sizes, "the sizes of a ConcatDataset")
    if not np.array_equal(sizes, np.cumsum([len(part) for part in parts])):
        raise NotNative("the datasets of a ConcatDataset have other sizes than when it was made")
    if any(part.chain != first.chain for part in parts):
        raise NotNative("the datasets of a ConcatDataset have different transforms")
    if any(part.attempts != first.attempts for part in parts):
        raise NotNative("the datasets of a ConcatDataset treat bad samples differently")
    form = _joined_form(parts)
    kept = last_time.get(dataset)
    if kept is not None and _same_files(kept[0], parts):
        joined: NativeImages = kept[1]
        return dataclasses.replace(joined, chain=first.chain, attempts=first.attempts, form=form)
    joined = dataclasses.replace(_join(parts), form=form)
    last_time[dataset] = (parts, joined)
    return joined


def _same_files(some: list[NativeImages], others: list[NativeImages]) -> bool:
    return len(some) == len(others) and all(a.same_files(b) for a, b in zip(some, others))


def _join(parts: list[NativeImages]) -> NativeImages:
    first = parts[0]
    counts = np.cumsum([0, *(len(part.store) for part in parts)])
    indices = None
    if any(part.indices is not None for part in parts):
        indices = np.concatenate(
            [
                (np.arange(len(part)) if part.indices is None else part.indices) + before
                for part, before in zip(parts, counts)
            ]
        )
    return NativeImages(
        _joined([part.store for part in parts]),
        np.concatenate([part.targets for part in parts]),
        indices,
        first.chain,
        "ConcatDataset of " + ", ".join(part.name for part in parts),
        first.attempts,
        tuple(int(before) + start for part, before in zip(parts, counts) for start in part.starts),
        any(part.repeats for part in parts),
    )


def _joined_form(parts: list[NativeImages]) -> SampleForm:
    """The form of the samples of these datasets, one after the other."""
    forms = [part.form for part in parts]
    if len({(form.keys, form.reader is None) for form in forms}) > 1:
        raise NotNative("the datasets of a ConcatDataset have samples of different forms")
    if forms[0].reader is None:
        return forms[0]
    counts = [len(part.store) for part in parts]
    return SampleForm(forms[0].keys, ConcatReader([form.reader for form in forms], counts))


@dataclasses.dataclass(frozen=True)
class ConcatReader:
    """Reads the columns of datasets, one after the other, which have so many samples each."""

    readers: list[Any]
    counts: list[int]

    def __call__(self, files: list[int]) -> list[tuple[Any, ...]]:
        ends = list(itertools.accumulate(self.counts))
        rows = []
        for file in files:
            part = bisect.bisect_right(ends, file)
            rows += self.readers[part]([file - ends[part] + self.counts[part]])
        return rows


def _joined(stores: list[ImageStore]) -> ImageStore:
    first, *others = stores
    if any(type(other) is not type(first) for other in others):
        kinds = sorted({store.kind for store in stores}, key=str.lower)
        raise NotNative(f"a ConcatDataset holds {' and '.join(kinds)}")
    if any(other.upright != first.upright for other in others):
        raise NotNative(
            "a ConcatDataset holds datasets that turn pictures as EXIF says, and others"
        )
    return first.joined(others)
