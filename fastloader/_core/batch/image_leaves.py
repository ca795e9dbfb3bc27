"""Finds the image leaves of a batch: which of its tensors the delivery normalises, and how they lie in
memory. Where a batch has several, they are checked against each other."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from fastloader._core.batch.tree import BatchTree, Key
from fastloader._core.machine.messages import users_level
from fastloader.transforms._normalization import Normalization


@dataclasses.dataclass(frozen=True)
class Image:
    """The layout of an image leaf in memory. ``shape`` is (N, C, H, W), whatever the order of the
    bytes. ``clips``: of a leaf of 5 dimensions, whose frames are these images, how many clips there are
    and how many frames each has."""

    shape: tuple[int, int, int, int]
    nhwc: bool
    pixels: torch.Tensor  # uint8, contiguous in the order that `nhwc` says
    clips: tuple[int, int] | None = None

    @property
    def delivered(self) -> tuple[int, ...]:
        """The shape of the normalised leaf: (N, C, H, W), or (N, T, C, H, W) of clips."""
        return self.shape if self.clips is None else (*self.clips, *self.shape[1:])


def find_images(
    tree: BatchTree, normalization: Normalization, check: LeafCheck | None = None
) -> dict[int, Image]:
    """Finds the image leaves, by leaf number. Where the samples come normalised, their floats get
    the dtype and the memory format that are asked for, in the tree, and are not among them. ``check``
    compares image leaves with each other.

    Raises:
        TypeError, ValueError: if there is no image leaf. Silence would deliver raw bytes to a model that
            expects normalised floats. Also if leaves look like images and cannot be normalised.
    """
    images: dict[int, Image] = {}
    done: list[Key] = []
    others: list[Leaf] = []
    wanted = normalization.image_key
    for index, (leaf, key) in enumerate(zip(tree.leaves, tree.keys, strict=True)):
        if index in tree.masks or (wanted is not None and not normalization.names(key)):
            continue
        if normalization.done and _is_normalized(leaf, normalization):
            tree.leaves[index] = normalization.laid_out(leaf)
            done.append(key)
            continue
        image = as_image(leaf, normalization)
        if image is not None:
            images[index] = image
        elif leaf.dtype is torch.uint8:
            others.append((key, leaf))
    if others:
        check_others(others, normalization)
    if not images and not done:
        raise _no_image(tree, normalization, wanted)
    if wanted is not None:
        if len(wanted) > 1:
            found = {*done, *(tree.keys[index] for index in images)}
            missing = tuple(key for key in wanted if key not in found)
            if missing:
                raise _no_image(tree, normalization, missing)
    elif len(images) + len(others) > 1:
        check = check or LeafCheck()
        check.compare(
            [(tree.keys[each], tree.leaves[each], images[each].delivered) for each in images],
            others,
            normalization,
        )
    return images


def as_image(leaf: torch.Tensor, normalization: Normalization) -> Image | None:
    if leaf.dtype is not torch.uint8:
        return None
    dimensions = leaf.dim()
    clips = None
    if dimensions == 4:
        if normalization.allows_channels(leaf.shape[1]):
            nchw = leaf
        elif normalization.allows_channels(leaf.shape[3]):
            nchw = leaf.permute(0, 3, 1, 2)
        else:
            return None
    elif dimensions == 5:
        if normalization.allows_channels(leaf.shape[2]):
            nchw = leaf.flatten(0, 1)
        elif normalization.allows_channels(leaf.shape[4]):
            nchw = leaf.permute(0, 1, 4, 2, 3).flatten(0, 1)
        else:
            return None
        clips = leaf.shape[0], leaf.shape[1]
    else:
        return None
    n, c, h, w = nchw.shape
    if nchw.is_contiguous():
        return Image((n, c, h, w), False, nchw, clips)
    if nchw.is_contiguous(memory_format=torch.channels_last):
        return Image((n, c, h, w), True, nchw, clips)
    # Any other order of strides, such as a crop's, is copied once.
    return Image((n, c, h, w), False, nchw.contiguous(), clips)


def _is_normalized(leaf: torch.Tensor, normalization: Normalization) -> bool:
    """Returns whether ``leaf`` holds pictures that the dataset's own transform has normalised."""
    return (
        leaf.is_floating_point()
        and leaf.dim() in (4, 5)
        and normalization.allows_channels(leaf.shape[-3])
    )


# ---- The image leaves of a batch, checked against each other and against what looks like them.


Leaf = tuple[Key, torch.Tensor]

# Tells of an outermost key whether the source made the pictures under it itself: True if it did, False
# if it did not, None if it made pictures and cannot tell what became of them.
MadeUnder = Callable[[Key], "bool | None"]


def made_none(_key: Key) -> bool:
    """Tells of a source that makes no pictures."""
    return False


def made_under_only(picture: Key) -> MadeUnder:
    """Tells of a source of pictures, which stand under this key unless the user's code collates them."""
    return lambda key: True if key == picture else None


class LeafCheck:
    """Checks the image leaves of one loader's batches against each other. Where `image_key` names them,
    the user has said which they are, and nothing is checked.

    Attributes: ``made_under``, of the epoch's source; ``warning``, what the training loop's thread is to
    say, which is empty for nothing; ``lays_out``, whether a `Layout` collates the batches, whose samples
    are meant to differ in shape.
    """

    def __init__(self) -> None:
        self.made_under: MadeUnder = made_none
        self.lays_out = False
        self.warning = ""
        self._warned = False

    def compare(
        self,
        found: Sequence[tuple[Key, torch.Tensor, Sequence[int]]],
        others: Sequence[Leaf],
        normalization: Normalization,
    ) -> None:
        """Compares the image leaves ``found``, given with the shapes in which they are delivered.
        ``others``: uint8 leaves beside them that are not normalised.

        Raises:
            ValueError: if one has one channel and another one three.
        """
        ones = [(key, leaf) for key, leaf, shape in found if shape[-3] == 1]
        if ones:
            threes = [(key, leaf) for key, leaf, shape in found if shape[-3] == 3]
            beside = [each for each in others if _has_three_channels(each[1])]
            self._refuse_masks(ones, threes or beside, normalization)
        if not (self._warned or self.lays_out):
            self._note_shapes(found)

    def _refuse_masks(
        self, ones: list[Leaf], threes: list[Leaf], normalization: Normalization
    ) -> None:
        for three in threes:
            for one in ones:
                if not (self.made_under(one[0]) and self.made_under(three[0])):
                    raise _one_beside_three(one, three, normalization)

    def _note_shapes(self, found: Sequence[tuple[Key, torch.Tensor, Sequence[int]]]) -> None:
        """Notes the warning, if image leaves that no source made have several shapes."""
        first = None
        for key, leaf, shape in found:
            if self.made_under(key) is not False:
                continue
            if first is None:
                first = key, leaf, shape
            elif tuple(shape[1:]) != tuple(first[2][1:]):
                self._warned = True
                self.warning = _several_shapes(first[:2], (key, leaf))
                return

    def say(self) -> None:
        """Warns, at the line of the user's code that asked for the batch."""
        text, self.warning = self.warning, ""
        warnings.warn(text, UserWarning, stacklevel=users_level())


def check_others(others: Iterable[Leaf], normalization: Normalization) -> None:
    """Checks uint8 leaves that are no image leaves for clips that were meant to be some.

    Raises:
        ValueError: for clips whose channels stand where a model of clips has them, and no reader of
            videos.
    """
    for key, leaf in others:
        if leaf.dim() == 5 and normalization.allows_channels(leaf.shape[1]):
            raise ValueError(
                f"{described([(key, leaf)])} looks like clips, and it has the channels at dimension 1 "
                "but not at 2: clips are (N, T, C, H, W). Let the dataset give (T, C, H, W), as "
                "clip.permute(1, 0, 2, 3) does, or say by image_key which leaf is normalised"
            )


def _has_three_channels(leaf: torch.Tensor) -> bool:
    """Returns whether an image leaf of three channels could look like this."""
    return leaf.dim() in (4, 5) and 3 in (leaf.shape[-3], leaf.shape[-1])


def _one_beside_three(one: Leaf, three: Leaf, normalization: Normalization) -> ValueError:
    first, second = one[0], three[0]
    text = (
        f"{described([one])} has one channel and {described([three])} has three, as a mask and its "
        "picture have, and "
    )
    if normalization.mean is None:
        return ValueError(
            f"{text}without a mean both would be normalised. Give image_key={second!r} to normalise "
            f"that one alone, or image_key=[{second!r}, {first!r}] if both hold pictures"
        )
    return ValueError(
        f"{text}mean has one number, by which the first would be normalised. Give mean and std three "
        f"numbers to normalise the second, or image_key={first!r} if the first holds the pictures"
    )


def _several_shapes(one: Leaf, other: Leaf) -> str:
    text = f"{described([one])} and {described([other])} differ in shape, and both are normalised. "
    if one[0] == other[0]:
        return f"{text}If both hold pictures, image_key={one[0]!r} says so and silences this"
    return (
        f"{text}If one of them holds no pictures, as a map of classes, name the other one by image_key, "
        f"as in image_key={one[0]!r}; image_key=[{one[0]!r}, {other[0]!r}] takes both and silences this"
    )


# ---- What a batch holds, in words.


def described(leaves: Iterable[tuple[Any, torch.Tensor]]) -> str:
    """Describes what a batch holds, for a message: its tensors with their keys."""
    parts = [
        f"[{key!r}] {str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape)}"
        for key, leaf in leaves
    ]
    return ", ".join(parts) or "no tensor at all"


def _no_image(
    tree: BatchTree, normalization: Normalization, keys: tuple[int | str, ...] | None
) -> Exception:
    """Makes the error of a batch without an image leaf under ``keys``; None for under any."""
    leaves = list(zip(tree.keys, tree.leaves, strict=True))
    channels = (
        "1 to 4 channels" if normalization.mean is None else f"{len(normalization.mean)} channels"
    )
    wanted = f"a uint8 tensor of 4 dimensions, NCHW or NHWC, or 5 for clips, with {channels}"
    where = "" if keys is None else f" under {' or '.join(repr(key) for key in keys)}"
    text = (
        f"mean, std or dtype asks for normalised images, but the batch has no image{where}: "
        f"an image leaf is {wanted}; this batch holds {described(leaves)}. "
    )
    if tree.masks:
        masks = " and ".join(f"[{tree.keys[index]!r}]" for index in tree.masks)
        text += f"A tv_tensors.Mask, as {masks}, is never an image. "
    named = normalization.image_key
    if named is not None and len(named) > len(keys or ()):  # the others hold images
        kept = [key for key in named if key not in (keys or ())]
        shown = repr(kept[0] if len(kept) == 1 else kept)
        return ValueError(f"{text}Let the samples have one there, or give image_key={shown}.")
    # Those under the keys that were asked for are no images, or there would be no error.
    elsewhere = [
        repr(key)
        for index, (key, leaf) in enumerate(leaves)
        if index not in tree.masks and as_image(leaf, normalization) is not None
    ]
    if elsewhere:
        return ValueError(f"{text}Give image_key={' or '.join(elsewhere)}, or leave it out.")
    looked_at = [leaf for key, leaf in leaves if normalization.names(key)]
    if any(leaf.is_floating_point() and leaf.dim() in (4, 5) for leaf in looked_at):
        return TypeError(
            text
            + "Let the dataset return uint8 (drop ToTensor and Normalize from its transform), or "
            "drop mean, std and dtype here."
        )
    if any(leaf.dtype is torch.uint8 and leaf.dim() in (4, 5) for leaf in looked_at):
        return ValueError(text + "Give mean and std one value per channel of the images.")
    return TypeError(
        text + "Collate images into one uint8 batch, or drop mean, std and dtype here."
    )
