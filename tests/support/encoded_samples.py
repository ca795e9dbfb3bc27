"""Datasets that give their pictures as they are encoded."""

from pathlib import Path

import torch
from torch.utils.data import Dataset, IterableDataset

from fastloader import EncodedImage
from fastloader import transforms as T

CROP = T.Compose(
    [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)]
)
SMALL = T.Compose([T.RandomResizedCrop(12, (0.05, 0.4)), T.RandomGrayscale(0.3), T.ToTensor()])
WHOLE = T.Resize((10, 8))


def paths_below(root):
    return sorted(str(path) for path in Path(root).rglob("*") if path.is_file())


def as_path(path):
    return path


def as_bytes(path):
    return Path(path).read_bytes()


def as_view(path):
    return memoryview(as_bytes(path))


def as_tensor(path):
    return torch.frombuffer(bytearray(as_bytes(path)), dtype=torch.uint8)


class Captions(Dataset):
    """(picture, number, text)"""

    def __init__(self, paths, transform=CROP, source=as_path, **options):
        self.paths, self.transform, self.source, self.options = paths, transform, source, options

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        picture = EncodedImage(self.source(self.paths[i]), self.transform, **self.options)
        return picture, i, f"text {i}"


class Views(Captions):
    """Several views of one picture, of several sizes, in a nested sample."""

    def __getitem__(self, i):
        source = self.source(self.paths[i])
        large = [EncodedImage(source, CROP, return_parameters=True) for _ in range(2)]
        small = [EncodedImage(source, SMALL) for _ in range(3)]
        return {"views": (large, small), "target": i}


class Stream(IterableDataset):
    def __init__(self, paths, transform=CROP):
        self.paths, self.transform = paths, transform

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        for i in range(first, len(self.paths), step):
            yield EncodedImage(self.paths[i], self.transform), i
