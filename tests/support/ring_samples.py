"""Samples whose batches worker processes put into shared slots, and what the loader says of these."""

import torch
from torch.utils.data import Dataset


def workers(loader):
    return loader.stats()["workers"]


class Samples(Dataset):
    """Sample i is full of i."""

    def __init__(self, count=24, shape=(40, 40), dtype=torch.float32):
        self.count, self.shape, self.dtype = count, shape, dtype

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full(self.shape, index, dtype=self.dtype), index


def check(batch, first, count=4):
    images, labels = batch
    assert labels.tolist() == list(range(first, first + count))
    assert torch.equal(images, labels.view(-1, 1, 1).float().expand_as(images))
