"""The transforms of torchvision that the native image path knows, under torchvision's names.

They describe what to do: a loader reads them and does it in C++. Called on a Pillow image, they do the
same with Pillow, and so they work in a plain DataLoader. The distribution is torchvision's, but the
draws are not: one number from torch's default generator seeds a counter-based generator.
"""

from __future__ import annotations

import typing as _typing

from fastloader.transforms import (
    _apply,
    geometry,
    pixels,
    policies,
    structure,
    tensors,
    transform,
)
from fastloader.transforms._apply import *  # noqa: F403
from fastloader.transforms.geometry import *  # noqa: F403
from fastloader.transforms.pixels import *  # noqa: F403
from fastloader.transforms.policies import *  # noqa: F403
from fastloader.transforms.structure import *  # noqa: F403
from fastloader.transforms.tensors import *  # noqa: F403
from fastloader.transforms.transform import *  # noqa: F403

if not _typing.TYPE_CHECKING:
    # A type checker follows the stars. A list that is computed would be an empty one to it.
    _families = (_apply, geometry, pixels, policies, structure, tensors, transform)
    __all__ = sorted(name for family in _families for name in family.__all__)
