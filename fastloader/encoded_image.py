"""``fastloader.EncodedImage``, and what follows it: ``Companion`` and ``EncodedMask``. The classes lie
in ``datasets``, because fastloader's own datasets give encoded pictures as well."""

from fastloader.datasets.companions import Companion, EncodedMask
from fastloader.datasets.encoded import EncodedImage

__all__ = ["Companion", "EncodedImage", "EncodedMask"]
