"""How ``fastloader pack`` stores pictures."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from fastloader._core.machine import extension
from fastloader.cli.pack.source_error import SourceError


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How pictures are stored: as they are unless ``max_side`` or ``quality`` ask for less. Pictures
    that come without a file are stored as PNG, which loses nothing, unless ``quality`` is given.
    ``recode``: "baseline" writes progressive JPEGs anew as sequential ones of the same pixels.
    ``index``: whether JPEGs get a seek index; None: that is still to be decided, by `decided`."""

    max_side: int | None = None
    quality: int | None = None
    recode: str | None = None
    index: bool | None = None

    def __post_init__(self) -> None:
        if self.recode is not None and self.quality is not None:
            raise SourceError("--quality writes every picture anew: leave --recode out")
        if self.recode is not None and (extension.load() is None or extension.lacks_libjpeg()):
            raise SourceError(
                "--recode is done by the native module with libjpeg-turbo, which this installation "
                "lacks: `fastloader doctor` says why"
            )
        if self.index and extension.load() is None:
            raise SourceError(
                "--index is done by the native module, which this installation lacks: "
                "`fastloader doctor` says why"
            )

    def decided(self, kept: dict[str, Any] | None) -> Encoding:
        """With ``index`` as in the options of the file that is gone on with, or for a new file, None,
        wherever the native module can make one."""
        if self.index is not None:
            return self
        able = extension.load() is not None
        return dataclasses.replace(self, index=able if kept is None else bool(kept.get("index")))

    def options(self) -> dict[str, Any]:
        """As the file keeps them. What is not used is left out, as in files from before it came."""
        kept: dict[str, Any] = {"max_side": self.max_side, "quality": self.quality}
        if self.recode is not None:
            kept["recode"] = self.recode
        if self.index:
            kept["index"] = True
        return kept

    def seek_index(self, file: bytes) -> bytes:
        """Of a file as it will be stored."""
        if not self.index:
            return b""
        return extension.native.jpeg_seek_index(file) or b""

    def encode(self, image: Any) -> bytes:
        """The bytes of a file, from those of a file or from a Pillow image."""
        from fastloader.transforms._pillow import image_module, opened

        module = image_module()
        if isinstance(image, bytes):
            if self.max_side is None and self.quality is None:
                return self._kept(image)
            with opened(io.BytesIO(image)) as encoded:
                if self.quality is None and max(encoded.size) <= (self.max_side or 0):
                    return self._kept(image)
                picture = encoded.convert("RGB")
        else:
            picture = image
        longest = max(picture.size)
        if self.max_side is not None and longest > self.max_side:
            size = tuple(max(1, round(edge * self.max_side / longest)) for edge in picture.size)
            picture = picture.resize(size, module.Resampling.LANCZOS)
        out = io.BytesIO()
        if self.quality is None and not isinstance(image, bytes):
            picture.save(out, "PNG")
        else:
            picture.convert("RGB").save(out, "JPEG", quality=self.quality or 90)
        return out.getvalue()

    def _kept(self, file: bytes) -> bytes:
        if self.recode is None:
            return file
        sequential = extension.native.jpeg_as_sequential(file)
        return file if sequential is None else sequential
