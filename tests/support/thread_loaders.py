"""Loaders whose workers are threads, and a dataset for them."""

import torch
from torch.utils.data import Dataset

from fastloader import FastLoader


def make(dataset, workers=2, **options):
    return FastLoader(dataset, num_workers=workers, worker_backend="thread", **options)


class Numbers(Dataset):
    def __init__(self, count=23):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return index, torch.full((3,), float(index))
