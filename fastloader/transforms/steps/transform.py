"""What all transforms have in common."""

from __future__ import annotations

from typing import Any

from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.operations import Size
from fastloader.transforms._recipe.recipe import Step


class Transform:
    def __call__(self, image: Any) -> Any:
        return self.apply(image, Draw())

    def apply(self, image: Any, draw: Draw) -> Any:
        """Does the transform. ``draw(operation)`` gives the random numbers of that operation."""
        raise NotImplementedError

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inner})"


class RecipeTransform(Transform):
    """A transform whose work is a tree of steps on the pixels, which the native path does as well."""

    def step(self, size: Size | None) -> Step:
        """What is done, as a tree. ``size``: the height and width of the pictures that come, if all have
        the same, or None.

        Raises:
            NotNative: if it cannot be said before the picture is there.
        """
        raise NotImplementedError

    def size_after(self, size: Size | None) -> Size | None:
        """The height and width of what comes out, if it is the same for all pictures that come in, which
        have ``size`` or, with None, any."""
        return size

    def apply(self, image: Any, draw: Draw) -> Any:
        return draw.run(self.step(image.size[::-1]), image)
