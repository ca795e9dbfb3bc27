"""``fastloader.transformed``: a picture and its target through one transform of torchvision's v2, which
is put off until a FastLoader makes the batch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import SUPPORTED_NODES
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from fastloader._core.machine import identity
from fastloader.datasets.companions import EncodedMask
from fastloader.datasets.encoded import (
    PICTURES_AND_CLIPS,
    EncodedImage,
    EncodedPlace,
    ReadTransform,
    count_pictures,
    keeping,
    read_transform,
)
from fastloader.datasets.put_off import PutOff, collate_taken, looked_at, open_in_trees
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import is_conversion, steps_of
from fastloader.transforms._reader.kinds import check_hooks, kind_of
from fastloader.transforms._reader.torchvision import V2, is_v2
from fastloader.transforms._recipe.operations import (
    COLOUR,
    OPERATIONS,
    PADDING_MODES,
    TORCH_NEAREST,
    Following,
    Operation,
)
from fastloader.transforms.transform import shown

# ---- A transform, as pictures and targets see it.


class Split(NamedTuple):
    """The steps of a transform of v2: ``picture`` is it without those that only targets see, and
    ``target`` are those that targets see besides the geometry, which come last."""

    steps: tuple[Any, ...]
    picture: Any
    target: tuple[Any, ...]
    of_targets: int  # how many steps leave pictures alone


# Steps that leave pictures alone.
_OF_TARGETS = {
    (V2 + "_misc", "SanitizeBoundingBoxes"),
    (V2 + "_meta", "ClampBoundingBoxes"),
    (V2 + "_meta", "ConvertBoundingBoxFormat"),
}
_OWN = {"forward", "transform", "make_params", "check_inputs"}  # methods that an object may have
_TV = "torchvision.tv_tensors."
_MOVED = (
    (_TV + "_bounding_boxes", "BoundingBoxes"),
    (_TV + "_keypoints", "KeyPoints"),
    (_TV + "_mask", "Mask"),
)
_PICTURES = ((_TV + "_image", "Image"), (_TV + "_video", "Video"), ("PIL.Image", "Image"))

_splits: dict[int, tuple[Any, Split]] = {}  # by the id of a transform, with it
_splitting = threading.Lock()  # guards _splits
_MOST_SPLITS = 32


def split(transforms: Any) -> Split:
    """Splits a transform of v2. What was split last is kept for as long as it has the same steps.

    Raises:
        NotNative: for another transform, or one whose order does not allow it.
    """
    if not is_v2(transforms):
        raise NotNative(f"{shown(transforms)} is not one of torchvision.transforms.v2")
    steps = tuple(steps_of(transforms))
    kept, found = _splits.get(id(transforms), (None, None))
    if kept is transforms and found is not None and _are_same(found.steps, steps):
        # A step may have been patched since. Those of pictures are looked at when they are read.
        if sum(map(_is_of_targets, steps)) == found.of_targets:
            return found
    made = _split(steps)
    with _splitting:
        if len(_splits) >= _MOST_SPLITS:
            del _splits[next(iter(_splits))]
        _splits[id(transforms)] = transforms, made
    return made


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others))


def _split(steps: tuple[Any, ...]) -> Split:
    compose = identity.found(V2 + "_container", "Compose")
    assert compose is not None  # a step is of v2
    of_picture: list[Any] = []
    of_target: list[Any] = []
    pure = False  # whether targets are tensors by now, which no step moves
    for step in steps:
        if pure and not _stays(step):
            raise NotNative(
                f"{shown(step)} stands behind ToPureTensor(), and leaves targets alone there"
            )
        if kind_of(step) == "ToPureTensor":
            pure = True
            of_target.append(step)
        if _is_of_targets(step):
            of_target.append(step)
            continue
        if any(map(_is_of_targets, of_target)) and not _stays(step):
            raise NotNative(
                f"{shown(of_target[-1])} stands before {shown(step)}: put it behind all steps that move "
                "pixels"
            )
        of_picture.append(step)
        if kind_of(step) == "ToDtype" and isinstance(step.dtype, dict):
            of_target.append(step)
    if not of_picture:
        raise NotNative("no step of the transform is for pictures")
    picture = compose(of_picture)
    alone = len(steps) - len(of_picture)
    return Split(steps, picture, tuple(of_target), alone)


def _is_of_targets(step: Any) -> bool:
    kind = type(step)
    if (kind.__module__, kind.__qualname__) not in _OF_TARGETS:
        return False
    known = identity.found(kind.__module__, kind.__qualname__)
    if known is not kind or identity.change(kind, kind) or _OWN.intersection(vars(step)):
        return False
    check_hooks(step)
    return True


def _stays(step: Any) -> bool:
    """Returns whether a step neither moves pixels nor looks at anything but pictures."""
    return is_conversion(step) or kind_of(step) in ("Normalize", "ToDtype", "ConvertImageDtype")


# ---- A picture and its target.


class Joint:
    """A picture and its target on their way through a transform of both.

    Attributes: ``image`` and ``target``, what comes out, once ``made``.
    """

    def __init__(self, transforms: Any, source: EncodedImage, target: Any) -> None:
        self.transforms = transforms
        self.given = _mapped(target, lambda value: value)  # the user may go on with theirs
        self.source = source
        self.read: ReadTransform | None = None  # as it was when the pair was put off
        self.parts: Split | None = None
        self.made = False
        self.image: Any = None
        self.target: Any = None

    def make(self) -> tuple[Any, Any]:
        """Makes both by the transform itself, on this thread."""
        if not self.made:
            opened = _mapped(self.given, _open_mask)
            image, target = self.transforms(self.source.encoded.open_rgb(), opened)
            self.finish(image, _named(self.given, target))
        return self.image, self.target

    def look(self) -> tuple[Any, Any]:
        """Makes both for somebody who looks into them before their batch is made."""
        if not self.made:
            fetching.refused = "the dataset looks into the pair of transformed()"
        return self.make()

    def finish(self, image: Any, target: Any) -> None:
        self.image, self.target, self.made = image, target, True

    def masks(self, stacked: bool) -> dict[Any, EncodedMask]:
        """Returns the masks that follow the picture. ``stacked``: whether default_collate stacks them
        before anything else of the target could be moved.

        Raises:
            NotNative: if the picture, or what is in the target, cannot go natively.
        """
        self.parts = split(self.transforms)
        read = read_transform(self.parts.picture)
        if not (read.whole or (read.own_sizes and not stacked)):
            raise NotNative(read.why)
        of_target = [step for step in self.parts.target if kind_of(step) != "ToPureTensor"]
        if stacked and of_target:
            raise NotNative(f"{shown(of_target[0])}: {_STACKED}")
        (read.own_sizes or read).follower(Following(1, TORCH_NEAREST, True))
        self.read = read
        masks: dict[Any, EncodedMask] = {}
        pictures = _kinds(_PICTURES)
        moved = _kinds(_MOVED) if stacked else ()

        def note(value: Any) -> Any:
            if type(value) is EncodedMask:
                masks[len(masks)] = value
            elif isinstance(value, (EncodedImage, *pictures)):
                raise NotNative("the target has a picture, too")
            elif isinstance(value, moved):
                raise NotNative(f"{type(value).__name__} in the target: {_STACKED}")
            elif isinstance(value, np.ndarray) or _is_opened(value):
                raise NotNative(f"{type(value).__name__} in the target, which v2 may change")
            return value

        _mapped(self.given, note)
        return masks

    def move(self, made: Any, operations: Sequence[Operation]) -> None:
        """Finishes it. ``made``: the picture, or a dict of it and its masks; ``operations``: what was
        done to the picture."""
        from torchvision import tv_tensors

        picture = made["image"] if isinstance(made, dict) else made
        count = 0
        moved_kinds = _kinds(_MOVED)

        def moved(value: Any) -> Any:
            nonlocal count
            if type(value) is EncodedMask:
                count += 1
                return tv_tensors.Mask(made[count - 1])
            return _move(value, operations) if isinstance(value, moved_kinds) else value

        target = _mapped(self.given, moved)
        assert self.parts is not None  # it was put off
        stand_in = tv_tensors.Image(torch.zeros((3, 1, 1), dtype=torch.uint8, device="cpu"))
        for step in self.parts.target:
            _image, target = step(stand_in, target)
        self.finish(picture, target)


def _is_opened(value: Any) -> bool:
    """Returns whether torchvision's v2 looks into a container that `_mapped` does not open."""
    return type(value) in SUPPORTED_NODES or (
        isinstance(value, tuple) and hasattr(value, "_fields")
    )


_STACKED = "under default_collate nothing is moved but pictures and EncodedMasks"


def _kinds(places: Sequence[tuple[str, str]]) -> tuple[Any, ...]:
    """Returns those of torchvision's classes that there are."""
    return tuple(kind for place in places if (kind := identity.found(*place)) is not None)


def _open_mask(value: Any) -> Any:
    """Opens an `EncodedMask` as a tv_tensors.Mask of shape (H, W)."""
    if type(value) is not EncodedMask:
        return value
    opened = value.opened("")
    return type(opened)(opened[0])


def _named(given: Any, made: Any) -> Any:
    """Returns a target of the transform with the classes of its masks: where ``given`` has an
    `EncodedMask`."""
    if type(given) is EncodedMask:
        return type(made)(given.named(made[None]))
    if type(given) is dict:
        for key, each in given.items():
            if type(each) in (dict, list, tuple, EncodedMask):
                made[key] = _named(each, made[key])
        return made
    kinds = dict, list, tuple, EncodedMask
    if type(given) in (list, tuple) and any(type(each) in kinds for each in given):
        return type(made)(map(_named, given, made))
    return made


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Copies the dicts, lists and tuples of a target, which torchvision's v2 opens as well, with
    ``function(value)`` in the place of everything else."""
    if type(tree) is dict:
        return {key: _mapped(each, function) for key, each in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_mapped(each, function) for each in tree)
    return function(tree)


def _move(part: Any, operations: Sequence[Operation]) -> Any:
    """Moves boxes, key points or a mask as a picture was moved, by torchvision's own functions."""
    from torchvision.transforms.v2 import functional as F

    for name, numbers in operations:
        if OPERATIONS[name].effect == COLOUR:
            continue
        if name == "hflip":
            part = F.horizontal_flip(part)
        elif name == "vflip":
            part = F.vertical_flip(part)
        elif name == "resize":
            part = F.resize(part, [int(numbers[0]), int(numbers[1])])
        elif name == "pad":
            border, mode = [int(each) for each in numbers[:4]], PADDING_MODES[int(numbers[4])]
            part = F.pad(part, border, fill=int(numbers[5]), padding_mode=mode)
        else:
            assert name == "crop"  # a mask could not follow any other
            left, top, width, height = (int(each) for each in numbers)
            if min(left, top) < 0:
                # A centre crop of a smaller picture, of which torchvision rounds the boxes' places
                # otherwise than the picture's.
                part = F.center_crop(part, [height, width])
            else:
                part = F.crop(part, top, left, height, width)
    return part


# ---- What stands in a sample until its batch is made.


class _OfPair(PutOff):
    """A part of a pair that `transformed` puts off: what the transform makes of both, once, is kept in
    the pair."""

    __slots__ = ()

    joint: Any
    _part: ClassVar[int]

    def decode(self) -> Any:
        return self.joint.make()[self._part]

    def taken(self) -> Any:
        return self.decode()

    def look(self) -> Any:
        return self.joint.look()[self._part]

    def __reduce__(self) -> Any:
        return _as_made, (self.look(),)

    # Tensors are compared element by element.
    def __eq__(self, other: object) -> Any:
        return self.look() == looked_at(other)

    def __ne__(self, other: object) -> Any:
        return self.look() != looked_at(other)

    __hash__ = object.__hash__


class JointImage(_OfPair, EncodedImage):
    """The picture of a pair that is put off."""

    __slots__ = ("joint",)

    _part = 0

    def __init__(self, joint: Any, transform: Any, masks: Mapping[Any, EncodedMask]) -> None:
        super().__init__(joint.source.encoded, transform, with_=masks or None)
        self.joint = joint

    @property
    def size(self) -> Any:
        return self.look().size

    def _make(self) -> tuple[Any, None]:
        return self.decode(), None


class JointTarget(_OfPair):
    """The target of a pair that is put off."""

    __slots__ = ("joint",)

    _part = 1

    def __init__(self, joint: Any) -> None:
        self.joint = joint
        self.kept = None

    def __bool__(self) -> bool:
        return bool(self.joint.given)


def _as_made(value: Any) -> Any:
    return value


# What becomes of pairs in the samples of a batch: they are finished for who collates samples, or what
# default_collate makes of them is finished by the loop.
FINISHED, STACKED = "finished", "stacked"


class _Fetching(threading.local):
    """Says what becomes of what is put off while this thread fetches the samples of a batch, empty if it
    does not; and why it did not put off a pair, if so."""

    under_way = ""
    refused = ""


fetching = _Fetching()

open_in_trees(JointImage)
open_in_trees(JointTarget)

ENCODED = (*PICTURES_AND_CLIPS, JointImage)  # what stays encoded until a batch is made


def _collate_images(column: list[Any], *, collate_fn_map: Any = None) -> Any:
    """Collates the pictures of pairs for default_collate."""
    kept = keeping()
    if kept is None:  # another loader has fetched them on this thread
        return collate_taken(column, collate_fn_map=collate_fn_map)
    known = all(type(each) is JointImage for each in column)
    if not known or not kept.keeps() or any(each.joint.made for each in column):
        kept.made += count_pictures([each for each in column if type(each) is JointImage])
        kept.why = kept.why or "the pairs of transformed() are made before the batch"
        return collate_taken(column, collate_fn_map=collate_fn_map)
    joints = [each.joint for each in column]
    number = kept.pairs.get(id(joints[0]))  # of the same pictures, which stand twice in a sample
    if number is None or not _are_same(joints, [each.joint for each in kept.columns[number]]):
        number = kept.pairs[id(joints[0])] = kept.keep(column).column
    return EncodedPlace(number, "image" if column[0].with_ else None)


def _collate_targets(column: list[Any], *, collate_fn_map: Any = None) -> Any:
    """Collates the targets of pairs for default_collate: with places for the masks that follow pictures
    which are kept."""
    kept = keeping()
    if kept is None or not kept.keeps():
        return collate_taken(column, collate_fn_map=collate_fn_map)
    place = kept.pairs.get(id(getattr(column[0], "joint", None)))
    pictures = [] if place is None else kept.columns[place]
    joints: list[Any] = [each.joint if type(each) is JointTarget else None for each in column]
    if place is None or not _are_same(joints, [each.joint for each in pictures]):
        return collate_taken(column, collate_fn_map=collate_fn_map)
    where = list(_places_in(joints[0].given))
    if any(list(_places_in(each.given)) != where for each in joints[1:]):
        return collate_taken(column, collate_fn_map=collate_fn_map)
    functions = {**collate_fn_map, EncodedPlace: _collate_places}
    return collate([_placed(each.given, place) for each in joints], collate_fn_map=functions)


def _places_in(target: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Gives where the masks of a target stand, in their order."""
    if type(target) is EncodedMask:
        yield place
    elif type(target) is dict or type(target) in (list, tuple):
        items = target.items() if type(target) is dict else enumerate(target)
        for key, each in items:
            yield from _places_in(each, (*place, key))


def _placed(target: Any, column: int) -> Any:
    """Copies a target with places in the stead of its masks."""
    count = itertools.count()
    return _mapped(
        target,
        lambda each: EncodedPlace(column, next(count)) if type(each) is EncodedMask else each,
    )


def _collate_places(column: list[Any], *, collate_fn_map: Any = None) -> Any:
    return column[0]


default_collate_fn_map[JointImage] = _collate_images
default_collate_fn_map[JointTarget] = _collate_targets


# ---- The function.


_TARGETS = (dict, list, tuple, EncodedMask)  # what may be put off


def transformed(transforms: Callable[[Any, Any], Any], image: Any, target: Any) -> tuple[Any, Any]:
    """Applies a transform to a picture and its target: ``transforms(image, target)``, of which a
    FastLoader makes the picture on its decode threads. ::

        def __getitem__(self, i):
            image = EncodedImage(self.paths[i])
            boxes = tv_tensors.BoundingBoxes(self.boxes[i], format="XYXY", canvas_size=image.size)
            target = {"boxes": boxes, "labels": self.labels[i], "masks": EncodedMask(self.masks[i])}
            return fastloader.transformed(self.transforms, image, target)

    Anywhere else than in a FastLoader it is done at once, and the picture is Pillow's RGB picture. In a
    FastLoader the pair stands for itself until the samples of the batch are fetched: then the picture,
    and every `EncodedMask` in the target, are decoded and moved natively under one draw, straight into
    the batch of the default collate. For a collate_fn of your own and for ``batch=``, boxes, key points
    and masks of tensors are moved by torchvision's own functions. If anything looks into the pair
    before, or a step is not native, the transform itself makes it in the worker; so it does under the
    default collate if there is something else to move than masks that are encoded, or if pictures have
    several sizes.

    Args:
        transforms: A transform of torchvision.transforms.v2, or any function of a picture and a target.
        image: An `EncodedImage` without a transform, a path, or encoded bytes; anything else goes to
            ``transforms`` as it is.
        target: What v2 takes besides: dicts, lists and tuples of tv_tensors and others, or one of
            these. An `EncodedMask` becomes a tv_tensors.Mask of shape (H, W).

    Returns:
        What ``transforms`` returns, or a pair that becomes it.

    Raises:
        ValueError: for an `EncodedImage` that has a transform, companions or return_parameters.
    """
    if isinstance(image, EncodedImage):
        if image.transform is not None or image.with_ or image.return_parameters:
            raise ValueError(f"{image} has a transform, companions or return_parameters of its own")
    elif isinstance(image, str | bytes | bytearray | memoryview) or hasattr(image, "__fspath__"):
        image = EncodedImage(image)
    else:
        made: tuple[Any, Any] = transforms(image, target)
        return made
    joint = Joint(transforms, image, target)
    under_way = fetching.under_way
    if not under_way or type(target) not in _TARGETS:
        return joint.make()
    try:
        with identity.one_look():
            masks = joint.masks(under_way == STACKED)
    except NotNative as refusal:
        fetching.refused = str(refusal)
        return joint.make()
    assert joint.parts is not None
    return JointImage(joint, joint.parts.picture, masks), JointTarget(joint)
