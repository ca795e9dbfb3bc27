"""The order of the epoch that begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from fastloader._core.batch.augmentation import Augmentation, EpochDraws
from fastloader._core.machine import devices
from fastloader._core.order.generators import splitmix64
from fastloader._core.order.loader import Loader
from fastloader._core.order.position import Position, may_repeat


class EpochOrder:
    """The order of one epoch, for the plan that opens the epoch, within `Position.begin`."""

    def __init__(self, position: Position, loader: Loader) -> None:
        self._position = position
        self._loader = loader

    @property
    def index_sampler(self) -> Position:
        """The sampler whose length is the number of index batches. It outlives the epoch's beginning."""
        return self._position

    def index_batches(self, draw: Callable[[Any], Iterator[Any]] = iter) -> Iterator[Any]:
        """Gives the sampler's index batches for the epoch, drawn by ``draw``. The progress notes them,
        and counts a batch as received for each that the loop's iterator gives. They are drawn in order
        and on one thread at a time. What the sampler raises takes its batch's place."""
        return self._position.iterate(draw)

    def take_base_seed(self, drawn: int) -> int:
        """Returns the seed that torch would give its workers: the one just ``drawn``, or the one of the
        state from which the epoch goes on. It is for a source that draws exactly as torch's iterators
        do: with persistent workers it draws in the first epoch only, and remembers."""
        current = self._position.current
        assert current is not None
        current.epoch_seed = current.take_seed(drawn)
        return current.epoch_seed

    def epoch_seed(self, drawn: int | None = None) -> int:
        """Draws the seed of what a source draws in this epoch, such as crops. A source asks for it once
        in each epoch, behind `index_batches` and before the first index batch, even if it draws nothing
        itself: torch draws a seed there, from the generator that the order comes from, so without it the
        next epoch's order would be another one. With a ShardSampler all ranks have the same seed, so
        that a picture's crop does not depend on the rank that decodes it. ``drawn``: the seed that
        torch's own iterator has drawn there."""
        position, loader, current = self._position, self._loader, self._position.current
        assert current is not None
        if loader.persistent_workers and position.last_seed is not None:
            # torch draws a seed in the first epoch only, and so must we, or the later epochs would have
            # another order. Their seeds follow from the first one.
            seed = splitmix64(position.last_seed, 1)
        elif drawn is not None:
            seed = drawn
        else:
            seed = devices.drawn_seed(loader.generator)
        run_seed = position.run_seed
        if current.saved is not None and run_seed is None:
            seed = cast("int", current.saved["epoch_seed"])  # None only with a run's seed
        current.epoch_seed = position.last_seed = seed
        current.take_seed(seed)  # of torch's iterator, if that has not done so
        if run_seed is None:
            return seed
        return position.run_epoch_seed(run_seed)

    def begin_draws(self, augmentation: Augmentation) -> EpochDraws:
        """Begins the draws of what is erased and mixed in the epoch. A plan calls it before the source
        begins: the source may draw from the same generator, sooner on one path and later on another."""
        return self._position.begin_draws(augmentation)

    def supersede(self) -> None:
        """Ends the last epoch of a loader that has one iterator for life. This epoch takes it away."""
        if self._loader._iterator is not None:
            self._position.supersede()

    @property
    def may_repeat(self) -> bool:
        """Whether the sampler may visit an index twice in an epoch; True if that is unknown."""
        return may_repeat(self._position.samplers.sampler)

    @property
    def first_sample(self) -> int:
        """The number of this pass's first sample, for the crops of samplers that may repeat. Each rank
        counts in a range of its own, because RepeatAugSampler gives a picture to several ranks at the
        same place."""
        return (self._position.samplers.rank << 40) + self._position.samples_before()
