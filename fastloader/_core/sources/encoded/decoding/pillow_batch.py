"""A part of a batch that Pillow decodes, where nothing native may."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch

from fastloader._core.sources.encoded.batch import MadePart
from fastloader._core.sources.encoded.files import EncodedFiles
from fastloader.transforms._chain import Chain
from fastloader.transforms._recipe import draw


class PillowBatch:
    """Does as the native module's DecodeBatch, with the same pixels, on ``threads`` Python threads.
    Without any it does so on the calling one. ``made``: what a worker has made already."""

    def __init__(
        self,
        files: EncodedFiles,
        indices: Sequence[int],
        views: Sequence[tuple[Chain, int]],
        samples: Sequence[int],
        seeds: Sequence[int],
        threads: int,
        made: MadePart | None = None,
    ) -> None:
        self._files, self._views, self._samples, self._seeds = files, views, samples, seeds
        self._stopped = threading.Event()
        self._making: list[Future[None]] = []
        if made is not None:
            self.made = made
            return
        self.made = MadePart([], [(0, 0)] * len(indices), {})
        for chain, _number in views:
            assert chain.size is not None
            shape = (len(indices), chain.channels, *chain.size)
            dtype = torch.float32 if chain.floating else torch.uint8
            self.made.pixels.append(torch.empty(shape, dtype=dtype, device="cpu"))
        if not threads:
            for place in enumerate(indices):
                self._make(*place)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="fastloader-pillow")
        self._making = [pool.submit(self._make, *place) for place in enumerate(indices)]
        pool.shutdown(wait=False)  # its threads end with the last picture

    def _make(self, position: int, file: int) -> None:
        if self._stopped.is_set():
            return
        try:
            self.transform(position, self._files.open_rgb(file))
        except BaseException as error:
            self.made.failed[position] = str(error)
            if not isinstance(error, Exception):
                raise

    def transform(self, position: int, picture: Any) -> None:
        """Makes the views of a sample of a Pillow picture."""
        seed = self._seeds[0] if len(self._seeds) == 1 else self._seeds[position]
        for out, (chain, number) in zip(self.made.pixels, self._views, strict=True):
            made = draw.made(chain, picture, seed, self._samples[position], number)
            pixels = torch.from_numpy(np.array(made)).permute(2, 0, 1)[: chain.channels]
            if chain.floating:
                chain.normalization.apply(pixels[None], out[position : position + 1])
            else:
                out[position] = pixels
        self.made.sizes[position] = picture.height, picture.width

    def wait(self) -> bool:
        """Waits for all samples. Returns False if the batch was stopped."""
        wait(self._making)
        return not self._stopped.is_set()

    def ready(self) -> bool:
        return all(each.done() for each in self._making)

    def stop(self) -> None:
        self._stopped.set()

    def failures(self) -> list[tuple[int, str, None]]:
        """(position, reason, kind), as the native batch has them."""
        return [(position, reason, None) for position, reason in sorted(self.made.failed.items())]

    def sizes(self) -> list[tuple[int, int]]:
        return self.made.sizes

    def take(self, view: int) -> torch.Tensor:
        return self.made.pixels[view]
