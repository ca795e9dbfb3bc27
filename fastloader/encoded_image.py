"""``fastloader.EncodedImage`` and ``EncodedClip``, and what follows a picture: ``Companion`` and
``EncodedMask``. The classes lie in ``datasets``, because fastloader's own datasets give encoded pictures
as well."""

from fastloader.datasets.companions import Companion, EncodedMask
from fastloader.datasets.encoded import EncodedClip, EncodedImage

__all__ = ["Companion", "EncodedClip", "EncodedImage", "EncodedMask"]
