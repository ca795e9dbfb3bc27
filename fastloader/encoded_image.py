"""``fastloader.EncodedImage``. The class lies in ``datasets``, because fastloader's own datasets give it
as well."""

from fastloader.datasets.encoded import EncodedImage

__all__ = ["EncodedImage"]
