"""Makes jobs: what the native module does to each picture of a source, and one picture at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fastloader._core.machine import extension
from fastloader.errors import Error
from fastloader.transforms._chain import Chain
from fastloader.transforms._normalization import Normalization, make_spec
from fastloader.transforms._pillow import image_module, pixel_limits, warn_of_size
from fastloader.transforms._recipe import draw

if TYPE_CHECKING:
    from fastloader import _native


class Decode(NamedTuple):
    """The options for decoding files: FastLoader's ``decode`` and ``truncated``."""

    mode: str = "exact"
    truncated: str = "error"


def make_job(
    source: _native.Source,
    transform: _native.ImageTransform,
    recipe: _native.Recipe | None = None,
    *,
    decode: Decode = Decode(),  # noqa: B008  # it cannot be changed
    limits: tuple[int, int] | None = None,
    **options: Any,
) -> _native.ImageJob:
    """Makes a job over a source. Without ``output``, the (height, width) of a batch, its pictures keep
    the sizes that the transform gives them. ``limits``: `pixel_limits`; None takes those of now. The
    other options are those of the native ImageJob."""
    native = extension.native
    large, most = limits or pixel_limits()
    return native.ImageJob(
        source=source,
        transform=transform,
        recipe=recipe,
        any_size="output" not in options and not options.get("own_sizes"),
        planar=options.pop("planar", False),
        decode=getattr(native.DecodeMode, decode.mode.upper()),
        pad_truncated=decode.truncated == "pad",
        pixel_limit=most,
        large_pixels=large,
        **options,
    )


class Job:
    """Makes pictures by a chain, with the native module or, without ``native``, with Pillow: the same
    draws and the same pixels. A picture is drawn by its seed, its ``sample`` and its ``number`` among
    the pictures of that sample; parts of a sample that share these share their draws.

    ``planar``: whether pictures for batches come as NCHW, else as NHWC.
    """

    def __init__(self, chain: Chain, native: _native.ImageJob | None, planar: bool = True) -> None:
        self.chain = chain
        self.native = native
        self.planar = planar

    @classmethod
    def of_batches(
        cls,
        chain: Chain,
        source: _native.Source,
        normalization: Normalization | None,
        planar: bool = True,
        **options: Any,
    ) -> Job:
        """Makes a native job for batches, whose pictures all have the chain's size, or each its own if
        the chain does not say one. ``normalization``: what is done to them; None leaves bytes."""
        size, spec = chain.size, None
        if normalization is not None:
            spec = make_spec((1, chain.channels, *(size or (1, 1))), True, normalization)
        options |= {"own_sizes": True} if size is None else {"output": size}
        following = chain.following
        if following is not None and following.mask:
            options |= {"classes": list(following.classes), "wide": following.wide}
        return cls(
            chain,
            make_job(
                source,
                chain.native(),
                chain.native_recipe(),
                channels=chain.channels,
                normalize=spec,
                following=chain.native_following(),
                planar=planar,
                **options,
            ),
            planar,
        )

    @classmethod
    def of_pictures(cls, chain: Chain, source: _native.Source, **options: Any) -> Job:
        """Makes a native job that makes single RGB pictures, each of its own size."""
        following = chain.native_following()
        made = make_job(
            source, chain.native(), chain.native_recipe(), following=following, **options
        )
        return cls(chain, made)

    def over(self, source: _native.Source) -> Job:
        """Returns the same job over another source."""
        native = None if self.native is None else self.native.over(source)
        return Job(self.chain, native, self.planar)

    def draw(
        self, size: tuple[int, int], seed: int, sample: int, number: int = 0
    ) -> dict[str, Any]:
        """Returns what is drawn for a picture of this (height, width), as ``draw.draw`` documents."""
        if self.native is None:
            return draw.draw(self.chain, size, seed, sample, number)
        return self.native.draw(0, seed, size=size, sample=sample, number=number)

    def draw_file(
        self,
        index: int,
        open_rgb: Callable[[], Any],
        seed: int,
        sample: int | None = None,
        number: int = 0,
    ) -> dict[str, Any]:
        """Returns what is drawn for a file of the source, of which the native module reads no more than
        the size. ``open_rgb`` opens it by Pillow, which knows the sizes of other files than JPEGs.
        ``sample``: None is the index."""
        if self.native is not None:
            try:
                return self.native.draw(index, seed, sample=sample, number=number)
            except (Error, ValueError):
                pass
        width, height = open_rgb().size
        return self.draw((height, width), seed, index if sample is None else sample, number)

    def make_picture(
        self, index: int, seed: int, sample: int | None = None, number: int = 0, warn: bool = True
    ) -> Any:
        """Makes one picture natively, as a Pillow picture. ``warn``: whether a large one gives Pillow's
        warning.

        Raises:
            Error, ValueError: for a file that the native module cannot decode; Pillow may.
        """
        assert self.native is not None
        pixels, (height, width) = make_pixels(self.native, index, seed, sample, number, warn)
        return image_module().frombytes("RGB", (width, height), pixels)


def make_pixels(
    job: _native.ImageJob,
    index: int,
    seed: int = 0,
    sample: int | None = None,
    number: int = 0,
    warn: bool = True,
) -> tuple[bytearray, tuple[int, int]]:
    """Makes one picture by a job without ``output``: its RGB bytes, and its (height, width). It raises
    and warns as `Job.make_picture` does."""
    pixels, size, warning = job.picture(index, seed, sample, number)
    if warning and warn:
        warn_of_size(warning)
    return pixels, size
