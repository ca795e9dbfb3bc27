"""Pictures that the decode threads of an actor make."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader._core.batch.augmentation import Augmentation, EpochDraws, SampleDraws
from fastloader._core.handoff import Handoff
from fastloader._core.machine import extension
from fastloader._core.observation.statistics import LeftOut, Statistics
from fastloader._core.pictures.bad_samples import ErrorPolicy
from fastloader._core.pictures.crop_seeds import SeededKeys
from fastloader._core.pictures.decoder import Decoder
from fastloader._core.pictures.in_place.in_place import InPlace
from fastloader._core.pictures.native_images import NativeImages
from fastloader._core.pictures.options import DecodeOptions
from fastloader._core.pictures.pending_batch import PendingBatch, Wanted
from fastloader._core.pictures.repair import Repair
from fastloader._core.sources.images.finish import Finish
from fastloader._core.sources.images.stores.folder import FolderStore
from fastloader.errors import Error
from fastloader.transforms._normalization import Normalization


@dataclasses.dataclass(frozen=True)
class PictureOptions:
    """How the pictures are made, and what becomes of them on the trainer. ``normalization``: what the
    actor applies. ``mixed_later``: whether the delivery erases and mixes."""

    threads: int
    decode: str
    truncated: str
    on_error: str
    normalization: Normalization | None
    channels_last: bool
    mixed_later: bool


@dataclasses.dataclass
class PictureBatch:
    """What comes of an index batch: the batch, or why there is none. ``tree`` is None if every sample
    was left out. ``bad``: the bad samples, and what was wrong with each. ``samples`` and ``seeds``:
    by which the delivery erases and mixes. ``counted``: whether the trainer has counted the bad
    ones."""

    tree: Any
    asked: int
    bad: list[tuple[str, BaseException]]
    samples: list[int]
    seeds: list[int]
    error: ExceptionWrapper | None = None
    counted: bool = False

    def pin_memory(self) -> PictureBatch:
        """Done by torch's thread, if the loader pins."""
        return dataclasses.replace(self, tree=pin_memory(self.tree))


class RemotePictures(InPlace):
    """Makes the batches of the native path in an actor: the same draws, and the same pixels. A batch
    depends on its index batch alone, so that any actor may make it.

    Args:
        images: pictures whose whole transform is known, and what a known collate_fn mixes.
        collate_fn: the loader's, for samples that are the dataset's own.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        options: PictureOptions,
        collate_fn: Callable[[Any], Any],
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self.options = options
        self._collate_fn = collate_fn
        # On the trainer: the loader's policy, and the draws of a delivery that erases and mixes.
        self.policy: ErrorPolicy | None = None
        self.draws: SampleDraws | None = None
        # In the actor: what makes the batches, and wraps the error that is being handled.
        self._maker: _Maker | None = None
        self.wrap: Callable[[], ExceptionWrapper] | None = None

    def __getstate__(self) -> dict[str, Any]:
        of_here = dict.fromkeys(("policy", "draws", "_maker", "wrap"))
        return {**super().__getstate__(), **of_here}

    # --- in the actor ------------------------------------------------------------------------------

    def __getitems__(self, keys: Any) -> Any:
        if type(keys) is not SeededKeys:
            return [self.own[key] for key in keys]  # the sampler's mistake, in the dataset's words
        if self._maker is None:
            self._maker = _Maker(self.images, self.options)
        assert self.wrap is not None
        return self._maker.made(keys, self.wrap)

    def sample(self, key: Any, number: int, seed: int) -> Any:
        raise NotImplementedError("pictures are made by the batch")

    def collate(self, samples: Any) -> Any:
        return samples if type(samples) is PictureBatch else self._collate_fn(samples)

    # --- on the trainer ----------------------------------------------------------------------------

    def received(self, batch: PictureBatch) -> Any:
        """The batch that is delivered. Its bad samples are counted as if they had been met here.

        Raises:
            LeftOut: if every sample was left out.
        """
        policy = self.policy
        if policy is not None and not batch.counted:
            batch.counted = True
            policy.seen += batch.asked
            for what, error in batch.bad:
                policy.count(what, error)
            if batch.bad:
                policy.check(*batch.bad[-1])
        if batch.error is not None:
            batch.error.reraise()
        if batch.tree is None:
            raise LeftOut
        if self.draws is not None:
            self.draws.give(batch.samples, batch.seeds)
        return batch.tree


class _NotedPolicy(ErrorPolicy):
    """Notes what is counted, for the trainer, which knows how much is allowed."""

    def begin(self) -> None:
        self.noted: list[tuple[str, BaseException]] = []

    def count(self, what: str, error: BaseException) -> None:
        self.noted.append((what, _sendable(error)))


class _Maker:
    """Decodes batches, as an `ImageIterator` does."""

    def __init__(self, images: NativeImages, options: PictureOptions) -> None:
        if extension.load() is None:
            raise Error(
                "pictures are decoded by fastloader's native module, which this node's installation "
                "lacks: install the same fastloader on all nodes"
            )
        _check_folder(images.store)
        chain = images.chain
        self._draws: SampleDraws | None = None
        erasing = chain.erasing if chain.floating else None
        if erasing is not None or images.mixing is not None:
            self._draws = SampleDraws(Augmentation(erasing, images.mixing))
        later: EpochDraws | None = self._draws if options.mixed_later else None
        handoff = Handoff(
            Statistics(),
            held_by_loop=False,
            normalization=options.normalization,
            draws=later,
            channels_last=options.channels_last,
        )
        self._finish = Finish(images, handoff, self._draws, pin=False)
        late = self._finish.normalizes
        decoding = DecodeOptions(
            options.threads,
            None if late else options.normalization,
            planar=not (late or options.channels_last),
            decode=options.decode,
            truncated=options.truncated,
        )
        self._policy = _NotedPolicy(options.on_error, None)
        self._decoder = Decoder(images, decoding, self._policy)
        self._decoder.memory.keep(2)
        self._images = images

    def made(self, keys: SeededKeys, wrap: Callable[[], ExceptionWrapper]) -> PictureBatch:
        self._policy.begin()
        numbers = keys.numbers
        samples = numbers
        if self._images.indices is not None:
            samples = self._images.indices[numbers].tolist()
        batch = PictureBatch(None, len(numbers), self._policy.noted, samples, keys.seeds)
        try:
            self._make(batch, keys)
        except Exception:
            batch.error = wrap()
        return batch

    def _make(self, batch: PictureBatch, keys: SeededKeys) -> None:
        decoder = self._decoder
        pending = PendingBatch(
            decoder, (None,), Wanted.of(self._images, keys.numbers), keys.seeds, None
        )
        pending.batch.wait()
        failures = pending.batch.failures()
        kept = None
        if failures or pending.bad:
            repair = Repair(decoder)
            try:
                kept = repair.done(pending, failures)
            finally:
                repair.stop()
        pending.check()
        if kept is not None and not kept:
            return
        batch.tree = self._finish.batch(pending, kept)
        if kept is not None:
            batch.samples = [batch.samples[each] for each in kept]
            if len(batch.seeds) > 1:
                batch.seeds = [batch.seeds[each] for each in kept]


def _check_folder(store: Any) -> None:
    """Raises FileNotFoundError if this node does not have the folder of the pictures, which would
    otherwise be so many bad samples."""
    if type(store) is not FolderStore or not len(store):
        return
    folder = os.path.dirname(store.name(0))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def _sendable(error: BaseException) -> BaseException:
    """The error, or one that says the same if it cannot be pickled."""
    from ray import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
