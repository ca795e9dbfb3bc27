"""``fastloader.EncodedImage``, which data sets of ours give as well, and so lies with them."""

from fastloader.datasets._encoded.encoded_image import EncodedImage

__all__ = ["EncodedImage"]
