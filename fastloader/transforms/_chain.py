"""A chain of transforms, as it was read from the user's: what to do to each picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastloader._core.machine import extension
from fastloader.errors import NotNative
from fastloader.transforms._erasing import Erasing
from fastloader.transforms._normalization import Normalization
from fastloader.transforms._pillow import pass_order
from fastloader.transforms._recipe import sized
from fastloader.transforms._recipe.operations import (
    INTERPOLATIONS,
    WARPS,
    Following,
    NamedOperation,
    Operation,
    Size,
    named,
)
from fastloader.transforms._recipe.recipe import Step

if TYPE_CHECKING:
    from fastloader import _native


@dataclasses.dataclass
class Chain:
    """A head, whose steps have one order and decide what of a picture is decoded
    (csrc/image/image_transform.h); a recipe, which is done to the pixels then; and an end.

    ``size`` and ``grey`` are of what comes out. While a chain is read, they are of what comes to its
    next step; before the first step, of the dataset's pictures.
    """

    size: Size | None = None  # (height, width); None if it differs from picture to picture
    grey: bool = False  # whether the pictures have one channel, as mode L has it
    random_crop: tuple[float, float, float, float] | None = None
    shorter: int | None = None
    max_size: int | None = None
    exact: Size | None = None
    cover: Size | None = None
    fit: Size | None = None
    center_crop: Size | None = None
    fill: tuple[int, int, int] = (0, 0, 0)
    horizontal_flip: float = 0.0
    vertical_flip: float = 0.0
    filter: str = "bilinear"  # or "bicubic", or "random": one of them for each sample
    recipe: tuple[Step, ...] = ()
    recipe_names: tuple[str, ...] = ()  # of the transforms that it is made of
    tensor: bool = False  # whether it ends in a tensor
    floating: bool = False  # whether that is of floats in 0..1, normalised if mean is set
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    erasing: Erasing | None = None  # of the tensor; once the chain is read, in the units of its end
    erased_in: str = (
        ""  # the units where it stands: "bytes", "floats" in 0..1, or those of the "end"
    )
    following: Following | None = None  # of a picture that follows the one whose chain this is

    @property
    def scaled(self) -> bool:
        """Whether a step of the head resizes."""
        return any(each is not None for each in (self.exact, self.shorter, self.cover, self.fit))

    @property
    def channels(self) -> int:
        return 1 if self.grey else 3

    @property
    def random(self) -> bool:
        """Whether anything is drawn for a picture."""
        flips = (self.horizontal_flip, self.vertical_flip)
        if self.random_crop is not None or self.filter == "random" or any(0 < p < 1 for p in flips):
            return True
        return any(step.random for step in self.recipe)

    @property
    def normalization(self) -> Normalization:
        """The normalisation of a chain that ends in floats."""
        return Normalization(self.mean, self.std, torch.float32, False, None)

    def normalization_for(self, wanted: Normalization | None) -> Normalization | None:
        """Returns the normalisation that the chain itself asks for, with the dtype and memory format of
        ``wanted``, the loader's; None if the chain ends in bytes."""
        if not self.floating:
            return None
        own = self.normalization
        return own if wanted is None else dataclasses.replace(wanted, mean=own.mean, std=own.std)

    def native(self) -> _native.ImageTransform:
        """Makes the native module's form of the head."""
        native = extension.native
        return native.ImageTransform(
            random_crop=None if self.random_crop is None else list(self.random_crop),
            shorter=self.shorter,
            max_size=self.max_size,
            exact=self.exact,
            cover=self.cover,
            fit=self.fit,
            center_crop=self.center_crop,
            fill=list(self.fill),
            horizontal_flip=self.horizontal_flip,
            vertical_flip=self.vertical_flip,
            filter=getattr(native.Interpolation, self.filter.upper()),
            pass_order=getattr(native.PassOrder, pass_order()),
        )

    def native_following(self) -> _native.Following | None:
        following = self.following
        if following is None:
            return None
        return extension.native.Following(
            factor=following.factor, resampling=following.resampling, mask=following.mask
        )

    def native_recipe(self) -> _native.Recipe | None:
        return extension.native.Recipe(self.recipe) if self.recipe else None

    def operations(self, drawn: Mapping[str, Any]) -> list[Operation]:
        """Lists every operation on a picture, one after the other. ``drawn`` is what the native module's
        ``ImageJob.draw`` gives for it."""
        found: list[Operation] = []
        factor = 1 if self.following is None else self.following.factor
        scaled = drawn["scaled"][0] // factor, drawn["scaled"][1] // factor
        if self.random_crop is not None:
            found.append(("crop", [edge // factor for edge in drawn["box"]]))
        if self.scaled:
            found.append(("resize", [*scaled, INTERPOLATIONS.index(drawn["interpolation"])]))
        if self.center_crop is not None:
            found += self._center_cropped(scaled, self.center_crop)
        found += [(name, []) for name in ("hflip", "vflip") if drawn[name]]
        return [*self.followed(found), *drawn["operations"]]

    def followed(self, operations: list[Operation]) -> list[Operation]:
        """Returns the operations that the picture's lead has as those of the picture itself."""
        if self.following is None:
            return operations
        made = map(self.following.follow, operations)
        return [operation for operation in made if operation is not None]

    def follower(self, following: Following) -> Chain:
        """Returns the chain of a picture that follows the one of this chain.

        Raises:
            NotNative: if nothing can follow, in words that go on from the follower's name.
        """
        size = self.size
        if size is not None:
            size = size[0] * following.factor, size[1] * following.factor
        if not following.mask:
            if self.erasing is not None and following.factor != 1:
                raise NotNative("random erasing is drawn for pictures of one size")
            return dataclasses.replace(self, size=size, following=following)
        for step in self.recipe:
            _check_mask_step(step)
        if len(set(self.fill)) > 1:
            raise NotNative(f"a mask cannot be filled with {self.fill}")
        return dataclasses.replace(
            self,
            size=size,
            grey=True,
            floating=False,
            mean=None,
            std=None,
            erasing=None,
            following=following,
        )

    def lead_size(self, size: Size) -> Size:
        """Returns the size of the lead of a picture of this one; its own, if it follows none.

        Raises:
            ValueError: if it is not so many times as large as any.
        """
        factor = 1 if self.following is None else self.following.factor
        if size[0] % factor or size[1] % factor:
            raise ValueError(
                f"a picture of {size[1]}x{size[0]} pixels is not {factor} times as large as another one"
            )
        return size[0] // factor, size[1] // factor

    def pixels(self, picture: Any) -> torch.Tensor:
        """Returns the pixels of a Pillow picture that came out of the steps, of shape (C, H, W).

        Raises:
            ValueError: for an index of more than 8 bits in a mask of such.
        """
        array = np.array(picture)
        if self.following is None or not self.following.mask:
            return torch.from_numpy(array).permute(2, 0, 1)[: self.channels]
        wide, classes = self.following.wide, self.following.classes
        if not wide and array[..., 1].any():
            lower, upper = array[array[..., 1] > 0][0, :2].tolist()
            raise ValueError(
                f"a mask with the index {upper << 8 | lower} has more than 8 bits: give "
                "EncodedMask(..., bits=16)"
            )
        kind = np.uint16 if wide else np.uint8
        indices = array[..., 0].astype(kind)
        if wide:
            indices |= array[..., 1].astype(kind) << 8
        if classes:
            indices = np.asarray(classes, kind)[indices]
        return torch.from_numpy(indices)[None]

    @property
    def dtype(self) -> torch.dtype:
        """The type of what comes out."""
        if self.following is not None and self.following.wide:
            return torch.uint16
        return torch.float32 if self.floating else torch.uint8

    def replayed(
        self, drawn: Mapping[str, Any], seed: int, sample: int, number: int = 0
    ) -> dict[str, Any]:
        """Makes what `FastLoader.replay` gives for picture ``number`` of a sample, from what was
        ``drawn`` for it."""
        kept = ("box", "hflip", "vflip", "interpolation")
        steps = [*self.steps(drawn), *self.erased(seed, sample, number)]
        return {**{name: drawn[name] for name in kept}, "steps": steps}

    def steps(self, drawn: Mapping[str, Any]) -> list[NamedOperation]:
        """Lists the same as `operations`, with names for their numbers."""
        return [named(operation) for operation in self.operations(drawn)]

    def erased(self, seed: int, sample: int, number: int = 0) -> list[NamedOperation]:
        """Lists the last step of picture ``number`` of a sample, which erases a box of it."""
        if self.erasing is None or self.size is None:
            return []
        boxes, _ = self.erasing.draw([seed], [sample], *self.size, number)
        top, bottom, left, right = boxes[0].tolist()
        box = {"top": top, "left": left, "height": bottom - top, "width": right - left}
        return [("erase", {**box, "value": self.erasing.value})] if bottom > top else []

    def _center_cropped(self, size: Size, crop: Size) -> list[Operation]:
        found: list[Operation] = []
        height, width = size
        if any(self.fill):
            # As CenterCrop does it: what is odd of the border is on the right and below.
            lacks = [max(0, crop[1] - width), max(0, crop[0] - height)]
            border = [lacks[0] // 2, lacks[1] // 2, (lacks[0] + 1) // 2, (lacks[1] + 1) // 2]
            if any(border):
                found.append(("pad", [float(each) for each in (*border, 0, *self.fill)]))
                height, width = height + lacks[1], width + lacks[0]
        left, top = sized.center(width, crop[1]), sized.center(height, crop[0])
        return [*found, ("crop", [float(each) for each in (left, top, crop[1], crop[0])])]

    def __str__(self) -> str:
        """Says in words what is done, with sizes as height x width."""
        words = []
        if self.random_crop is not None:
            low, high, thin, wide = self.random_crop
            words.append(f"random crop of {low:g} to {high:g} (ratio {thin:.3g} to {wide:.3g})")
        for size, what in (
            (self.exact, "to"),
            (self.cover, "in shape, to cover"),
            (self.fit, "in shape, to fit into"),
        ):
            if size is not None:
                words.append(f"resize {what} {size[0]}x{size[1]}")
        if self.shorter is not None:
            limit = "" if self.max_size is None else f", the longer one to at most {self.max_size}"
            words.append(f"resize the shorter edge to {self.shorter}{limit}")
        if self.scaled:
            words[-1] += f" ({self.filter})"
        if self.center_crop is not None:
            words.append(f"centre crop {self.center_crop[0]}x{self.center_crop[1]}")
            if any(self.fill):
                words[-1] += f" on {self.fill}"
        for probability, name in (
            (self.horizontal_flip, "horizontal"),
            (self.vertical_flip, "vertical"),
        ):
            if probability:
                words.append(f"{name} flip ({probability:g})")
        words += self.recipe_names
        if self.mean is not None:
            words.append("normalised float32")
        else:
            words.append("float32 in 0..1" if self.floating else "uint8")
        if self.grey:
            words[-1] += " of one channel"
        if self.erasing is not None:
            words.append(f"random erasing ({self.erasing.probability:g})")
        return ", ".join(words)


# The steps whose operations are, or may be, in WARPS, and those that end with three numbers of a fill.
_WARPING = (*WARPS, "affine_about", "affine_about_v2", "random_perspective")
_FILLING = ("pad", "random_crop", "crop_or_pad")


def _check_mask_step(step: Step) -> None:
    """Raises NotNative if a mask cannot go through the step as torchvision's v2 has it."""
    if step.kind == "mix":
        raise NotNative("a mix has no form for a mask")
    if step.operation in _WARPING:
        raise NotNative(f"{step.operation} of a mask is left to torchvision")
    if step.operation in _FILLING and len({number.a for number in step.numbers[-3:]}) > 1:
        raise NotNative(f"{step.operation} cannot fill a mask with several numbers")
    for child in step.children:
        _check_mask_step(child)
