"""Looks into a loader: at what has its pictures decoded."""

from fastloader._core.sources.images import ImageSource


def image_source(loader):
    """The loader's source of pictures, with its decoder and the epoch begun last."""
    (found,) = (each for each in loader._runtime.sources if isinstance(each, ImageSource))
    return found
