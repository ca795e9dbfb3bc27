"""What the tests of ``compat.accelerate`` prepare and look at."""

import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, WeightedRandomSampler

from support import generator

COUNT = 11


def make_accelerator(accumulation=None, **settings):
    import accelerate

    plugin = accumulation and accelerate.utils.GradientAccumulationPlugin(num_steps=accumulation)
    return accelerate.Accelerator(
        cpu=True,
        dataloader_config=accelerate.utils.DataLoaderConfiguration(**settings),
        gradient_accumulation_plugin=plugin,
    )


class Numbers(Dataset):
    """Gives its indices, and notes which were asked for."""

    def __init__(self, count=COUNT):
        self.count = count
        self.read = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        return torch.zeros(1), index


class Grouped(BatchSampler):
    """Batches of a size each, which a user made."""

    def __init__(self, count, batch_size):
        super().__init__(RandomSampler(range(count), generator=generator(8)), batch_size, False)


SAMPLING = {
    "in order": lambda data: {"batch_size": 3},
    "shuffled": lambda data: {"batch_size": 3, "shuffle": True},
    "own generator": lambda data: {"batch_size": 3, "shuffle": True, "generator": generator(5)},
    "dropped": lambda data: {"batch_size": 3, "shuffle": True, "drop_last": True},
    "weighted": lambda data: {
        "batch_size": 2,
        "sampler": WeightedRandomSampler([1.0, 2.0, 3.0] * 4, 9, generator=generator(6)),
    },
    "batch sampler": lambda data: {"batch_sampler": Grouped(len(data), 4)},
}


def observed(prepared, epochs=3):
    """What a loop sees: labels, and Accelerate's account at each step."""
    seen = []
    for _ in range(epochs):
        state = prepared.gradient_state
        for batch in prepared:
            active = state.active_dataloader is prepared
            seen.append((batch[1].tolist(), state.end_of_dataloader, state.remainder, active))
        seen.append((prepared.iteration, state.in_dataloader))
    return seen
