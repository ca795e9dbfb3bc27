"""Pictures whose labels are their numbers: what tests of the native image path share."""

from torch.utils.data import Sampler

from fastloader import transforms as T

COUNT = 23
CROPS = T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()])


class Own(Sampler):
    def __init__(self, indices):
        self.indices = indices

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)
