"""What stands in the place of a dataset of pictures."""

from __future__ import annotations

import bisect
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import ConcatDataset, Dataset, Subset

from fastloader._core.machine.process import HomeProcess
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.pictures.crop_seeds import CropSeeds, SeededKeys
from fastloader._core.pictures.native_images import NativeImages
from fastloader.transforms._recipe import draw


class InPlace(Dataset[Any]):
    """Stands in the place of ``dataset`` where samples are made: in workers, or on the loop's thread.
    Index batches come as `SeededKeys`. Those that come as the sampler gave them hold what is no index of
    a sample, and are for the dataset's own code, which says what is wrong.

    Args:
        dataset: the loader's.
        images: its pictures.
        began: called with this object whenever an epoch begins. It is held weakly.
    """

    # What collates in the place of the loader's collate_fn; None leaves that.
    collate: Callable[[Any], Any] | None = None

    def __init__(
        self, dataset: Any, images: NativeImages, began: Callable[[InPlace], None] | None = None
    ) -> None:
        self.own = dataset  # which workers are to show
        self.parts = list(parts_of(dataset))  # the datasets that hold the samples
        self.images = images
        self._began = None if began is None else weakref.WeakMethod(began)
        self._seeds: CropSeeds | None = None  # of the epoch begun last
        self._home: HomeProcess | None = None
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_began": None, "_seeds": None, "_home": None, "_opened": None}

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not SeededKeys:
            return self.own[key]
        return self.sample(key.keys, key.numbers[0], key.seeds[0])

    def __getitems__(self, keys: Any) -> list[Any]:
        if type(keys) is not SeededKeys:
            return [self.own[key] for key in keys]
        return [self.sample(*each) for each in keys]

    @abstractmethod
    def sample(self, key: Any, number: int, seed: int) -> Any:
        """Makes the sample of a ``key`` of the sampler's, which means this ``number``."""

    def begin_epoch(self, order: EpochOrder, seed: int) -> CropSeeds:
        """Returns the seeds of the samples. ``seed``: the epoch's."""
        repeats = order.may_repeat or self.images.repeats
        self._seeds = CropSeeds(seed, repeats, order.first_sample)
        began = None if self._began is None else self._began()
        if began is not None:
            began(self)
        return self._seeds

    def replay(self, index: int) -> dict[str, Any]:
        """What was drawn for a sample that was asked for in the epoch begun last."""
        assert self._seeds is not None
        seed, file = self._seeds.of(index), self.file(index)
        chain = self.images.chain
        height, width = self.store.open_rgb(file).size[::-1]
        return chain.replayed(draw.draw(chain, (height, width), seed, file), seed, file)

    def part(self, file: int) -> int:
        """The number of the dataset that a file is of, among ``parts``."""
        return bisect.bisect_right(self.images.starts, file) - 1

    def file(self, number: int) -> int:
        """The file of a sample."""
        indices = self.images.indices
        return number if indices is None else int(indices[number])

    @property
    def store(self) -> Any:
        """The pictures, opened in this process."""
        if self._home is None or not self._home.here:
            self._opened = self.images.store.opened()
            self._home = HomeProcess()
        return self._opened


def parts_of(dataset: Any) -> Iterator[Any]:
    """The datasets of which ``dataset`` is a selection: itself, unless it is a Subset or a
    ConcatDataset."""
    while kind_of(dataset) is Subset:
        dataset = dataset.dataset
    if kind_of(dataset) is not ConcatDataset:
        yield dataset
        return
    for each in dataset.datasets:
        yield from parts_of(each)
