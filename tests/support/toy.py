"""A source of twenty lines: enough to be delivered on every path."""

import itertools
from collections.abc import Sequence

import torch
from torch.utils.data import default_collate

from fastloader._core.handoff import SamplePart, Source
from fastloader._core.observation.statistics import Figures, LoopIterator, Stage
from fastloader._core.sources.arguments import check_no_image_options
from fastloader._core.sources.collation import check_collation


class Toys(Sequence):
    """Pictures and their numbers, by a dataset that no source but `ToySource` makes batches of."""

    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index], index


class ToyIterator(LoopIterator):
    def __init__(self, dataset, index_batches, handoff):
        super().__init__(handoff.statistics if handoff.held_by_loop else None)
        self._dataset, self._slots = dataset, handoff.slots
        # The first one is drawn here, as by torch with workers: a pump would draw it, and with it the
        # order, while the loop may be asking for a state.
        first = list(itertools.islice(index_batches, 1))
        self._index_batches = itertools.chain(first, index_batches)

    def _next(self):
        batch = default_collate([self._dataset[index] for index in next(self._index_batches)])
        if self._slots is not None:
            sizes = [leaf.nbytes for leaf in batch]
            self._slots.present(self._slots.reserve_for(sizes, samples=len(batch[0])))
        return batch


class ToyPlan:
    name = "toys"
    normalization = draws = None
    normalizes = exclusive = pins = False
    fills_slots = ahead = True
    workers = ""
    iterator = ToyIterator

    def __init__(self, source, dataset):
        self._source, self._dataset = source, dataset

    def __str__(self):
        return self.name

    def open(self, order, handoff):
        self._source.opened += 1
        index_batches = order.index_batches()
        order.epoch_seed()
        return self.iterator(self._dataset, index_batches, handoff)

    def parts(self):
        return [SamplePart("[0]", f"made by {self.name}", "pictures"), SamplePart("[1]", "counted")]

    def follow_loop(self, batches):
        return None


class ToySource(Source):
    serves = Toys
    makes = ToyPlan
    where = "the toy"
    depth = None
    opened = 0

    def plan(self, loader, wanted):
        if not isinstance(loader.dataset, self.serves):
            return None
        check_collation(loader)
        check_no_image_options(loader, "the dataset is of toys")
        return self.makes(self, loader.dataset)

    def figures(self, loader):
        if not self.opened:
            return Figures()
        played = Stage("play", 1.0, self.opened, "batch", self.where, bound="Python")
        return Figures((played,), threads=1, depth=self.depth)

    def stats(self, loader):
        return {"toys": self.opened} if self.opened else {}


def some_toys(count):
    pictures = torch.randint(0, 256, (count, 3, 6, 5), dtype=torch.uint8)
    return Toys(pictures)
