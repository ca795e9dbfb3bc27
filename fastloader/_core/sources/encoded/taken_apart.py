"""Takes columns of encoded pictures apart, into files, chains and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data._utils.collate import default_collate_fn_map

from fastloader._core.batch.tree import rebuild
from fastloader._core.sources.encoded.batch import (
    EncodedBatch,
    EncodedColumn,
    EncodedFiles,
    Follows,
)
from fastloader._core.sources.encoded.stored import with_stored_masks, without_dtypes
from fastloader._core.sources.encoded.told import ALONE, AS_KEPT, Made
from fastloader.datasets.encoded import (
    EncodedClip,
    EncodedImage,
    EncodedPlace,
    ReadTransform,
    collated,
    count_pictures,
    read_transform,
)
from fastloader.datasets.joint import JointImage
from fastloader.datasets.picture_source import PictureSource
from fastloader.errors import NotNative


def take_apart(
    tree: Any, columns: list[list[EncodedImage]], samples: int | None, stores: bool
) -> EncodedBatch:
    """Takes columns apart. Those with which Python has to do are made here. ``stores``: whether masks
    stay as they are stored."""
    finished: dict[int, Any] = {}
    taken = TakenApart(stores)
    made, why, number = 0, "", 0
    told = [AS_KEPT] * len(columns)
    for place, column in enumerate(columns):
        refused = _unlike_pairs(column) or taken.add(number, column)
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


def _read_transforms(column: list[EncodedImage]) -> list[ReadTransform]:
    """Reads the transform of each picture. That of a pair was read when the pair was put off: it may
    have changed since."""
    read: dict[int, ReadTransform] = {}  # each once: to look whether one has changed takes a while
    of_column = []
    for each in column:
        made = each.joint.read if type(each) is JointImage else read.get(id(each.transform))
        if made is None:
            made = read[id(each.transform)] = read_transform(each.transform)
        of_column.append(made)
    return of_column


def _unlike_pairs(column: list[EncodedImage]) -> str | None:
    """Returns why the pairs of a column are made each by itself, where default_collate stacks them; None
    if they are not, or are no pairs."""
    if type(column[0]) is not JointImage:
        return None
    pairs: list[Any] = column
    if any(each.joint.made for each in pairs):  # since the pictures were kept
        return "the pairs of transformed() are made before the batch"
    chains = [each.joint.read.chain for each in pairs]
    forms = {(chain.size, chain.floating, chain.channels) for chain in chains}
    if len(forms) > 1 or find_unlike(column, form_of):
        return "the pairs of transformed() in one batch have several kinds of pictures or masks"
    return None


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
        of_column = _read_transforms(column)
        for place, each in enumerate(of_column):
            if own_sizes and each.own_sizes is not None:
                of_column[place] = each.own_sizes
            elif not each.whole:
                return each.why
        followers: dict[Any, list[bytes]] = {}
        unlike = find_unlike(column, lambda each: each.form)
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
                return LOOK
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


def look_into(image: EncodedImage) -> str | None:
    """Returns why what comes out for a picture or a clip is made already; None if it is not."""
    if type(image) is JointImage:
        return "the dataset looks into the pair of transformed()" if image.joint.made else None
    return None if image.kept is None else LOOK


LOOK = "the dataset looks into an encoded picture"


def form_of(image: EncodedImage) -> Any:
    """Returns the form of an encoded picture's companions: one place of a batch has those of one."""
    if not image.with_:
        return ()
    return image.named, *(
        (key, type(of), of.scale, of.following.wide, of.dtype) for key, of in image.with_.items()
    )


def find_unlike(column: list[EncodedImage], form: Callable[[Any], Any]) -> list[EncodedImage]:
    """Returns two pictures of a column that have not the same ``form``; none if all have it."""
    wanted = form(column[0])
    other = next((each for each in column if form(each) != wanted), None)
    return [] if other is None else [column[0], other]


def _check_alike(column: list[EncodedImage]) -> str:
    """Raises TypeError unless as many companions of one kind follow each picture of a column."""
    unlike = find_unlike(column, form_of)
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
    stores = stores and not find_unlike(column, form_of) and not any(each.kept for each in column)
    if stores:
        column = list(map(without_dtypes, column))
    made = column[0].taken() if samples is None else collated(column, default_collate_fn_map)
    return with_stored_masks(made, first) if stores else made
