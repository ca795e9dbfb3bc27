"""``fastloader.EncodedImage``, which data sets of ours give as well, and so lies with them."""

from fastloader.datasets.encoded import EncodedImage

__all__ = ["EncodedImage"]
