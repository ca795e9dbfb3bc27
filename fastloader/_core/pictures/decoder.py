"""The decoder of one loader's pictures: its native job, its share of the pool, its memory."""

from __future__ import annotations

from typing import Any

from fastloader._core.machine import extension
from fastloader._core.machine.process import HomeProcess
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.pictures.options import DecodeOptions, read_ahead
from fastloader.errors import Error
from fastloader.transforms._normalization import make_spec
from fastloader.transforms._pillow import pixel_limits


class Decoder:
    """Decodes the pictures of one loader. The loader keeps it over its epochs as long as it `serves`,
    with the file list, the transform, the share of the pool and the recycled memory."""

    def __init__(
        self,
        images: NativeImages,
        options: DecodeOptions,
        policy: ErrorPolicy,
        before: Decoder | None = None,
    ) -> None:
        self.policy = policy
        # What the loader's threads did for the decoders before this one.
        self._done_before = {} if before is None else before.times()
        self.options = options
        self._home = HomeProcess()
        normalization = options.normalization
        assert extension.load() is not None
        native = extension.native
        self.images = images
        self.memory = native.BufferPool()
        self.quota = native.DecodeQuota(options.threads, read_ahead=read_ahead())
        self.threads = options.threads  # the quota's number, which takes a lock to read there
        if options.tuner is not None:
            native.lower_decode_priority()
        transform = images.chain.native()
        spec = None
        size = images.chain.size
        assert size is not None
        if normalization is not None:
            spec = make_spec((1, images.chain.channels, *size), True, normalization)
        self.store = images.store.opened()
        self._pixel_limits = pixel_limits()
        large, most = self._pixel_limits
        self.job = native.ImageJob(
            source=self.store.source,
            transform=transform,
            planar=options.planar,
            recipe=images.chain.native_recipe(),
            output=size,
            channels=images.chain.channels,
            normalize=spec,
            decode=getattr(native.DecodeMode, options.decode.upper()),
            pad_truncated=options.truncated == "pad",
            pixel_limit=most,
            large_pixels=large,
            seek_indices=self.store.seek_indices,
            upright=self.store.upright,
        )

    def serves(self, images: NativeImages, options: DecodeOptions) -> bool:
        """Whether this decoder does for ``images`` and ``options``. A forked child makes its own,
        because another thread may have held the memory's lock when it was forked."""
        return (
            self._home.here
            and self.options == options
            and self._pixel_limits == pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
            and self.images.chain == images.chain
            and self.images.attempts == images.attempts
            and self.images.container is images.container
            and self.images.form == images.form
            and self.images.same_files(images)
        )

    def drawn(self, file: int, seed: int) -> dict[str, Any]:
        """What is drawn for a file: its box, flips and interpolation, and all its steps."""
        try:
            found = self.job.draw(file, seed)
        except Error:
            # The file is no JPEG, but Pillow knows its size.
            found = self.job.draw(file, seed, self.store.open_rgb(file).size[::-1])
        return self.images.chain.replayed(found, seed, file)

    def leaf_bytes(self, samples: int) -> list[int]:
        """The bytes of a batch's pixels, and of its labels."""
        return [samples * self.job.sample_bytes, samples * 8]

    def times(self) -> dict[str, float]:
        """What the decode threads have done for this loader, as ``DecodeQuota.times`` has it."""
        # Not asked in a forked child: the parent's threads did the work, and may still be at it.
        mine: dict[str, float] = self.quota.times() if self._home.here else {}
        before = self._done_before
        return {name: mine.get(name, 0) + before.get(name, 0) for name in {**mine, **before}}

    def set_threads(self, threads: int) -> None:
        """Sets how many threads decode from now on. Raises the reason if the system gives no thread."""
        if threads != self.threads:
            self.quota.threads = threads
            self.threads = threads

    def stats(self) -> dict[str, Any]:
        return {
            "jpegs": jpeg_counts(self.times()),
            "threads": self.quota.threads,
            "buffers": self.memory.stats(),
            "scratch_bytes": extension.native.decode_scratch_bytes(),
            "waited": int(self.times().get("waited", 0)),
        }


def jpeg_counts(times: dict[str, float]) -> dict[str, Any]:
    """Who decoded the JPEGs, out of ``DecodeQuota.times``: our ``own`` decoder or ``libjpeg``, and
    ``why`` our own one left them to it. ``indexed``: with a seek index. ``unfit_index``: without theirs,
    which is damaged or belongs to another file."""
    prefix = "jpegs: "
    counted = {name[len(prefix) :]: int(n) for name, n in times.items() if name.startswith(prefix)}
    own = counted.pop("none", 0)
    return {
        "own": own,
        "libjpeg": sum(counted.values()),
        "why": {k: n for k, n in counted.items() if n},
        "indexed": int(times.get("indexed", 0)),
        "unfit_index": int(times.get("unfit", 0)),
    }
