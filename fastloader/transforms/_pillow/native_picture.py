"""Pictures that the native module makes one at a time, with Pillow's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastloader._core.machine import extension
from fastloader.transforms._pillow import pixel_limits, warn_of_size

if TYPE_CHECKING:
    from fastloader import _native


def picture_job(**options: Any) -> _native.ImageJob:
    """An ImageJob of any size, with the limits that ``Image.MAX_IMAGE_PIXELS`` says now."""
    large, most = pixel_limits()
    return extension.native.ImageJob(
        planar=False, any_size=True, pixel_limit=most, large_pixels=large, **options
    )


def made_picture(job: _native.ImageJob, *which: int) -> tuple[Any, tuple[int, int]]:
    """(RGB bytes, (height, width)) of what ``ImageJob.picture`` makes, with Pillow's warning of a large
    one."""
    pixels, size, warning = job.picture(*which)
    if warning:
        warn_of_size(warning)
    return pixels, size
