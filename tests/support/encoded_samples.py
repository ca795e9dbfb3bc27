"""Datasets that give their pictures as they are encoded."""

from pathlib import Path

import numpy as np
import torch
from pictures import import_torchvision
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from fastloader import Companion, EncodedClip, EncodedImage, EncodedMask, transformed
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


class Scenes(Dataset):
    """Pictures with masks, sharper pictures, clips, and pairs of torchvision's v2, of files in ``root``:
    ``part`` says which."""

    COUNT = 7

    def __init__(self, root, part):
        self.root, self.part = Path(root), part
        self._pair = None

    @classmethod
    def write(cls, root):
        """Writes the files."""
        rng = np.random.default_rng(3)
        for number in range(cls.COUNT):
            height, width = (int(side) for side in rng.integers(30, 60, 2))
            colours = rng.integers(0, 256, (2 * height, 2 * width, 3), dtype=np.uint8)
            Image.fromarray(colours).save(root / f"{number} sharp.png")
            Image.fromarray(colours[::2, ::2]).save(root / f"{number}.png")
            classes = rng.integers(0, 9, (height, width), dtype=np.uint8)
            Image.fromarray(classes).save(root / f"{number} mask.png")

    def __len__(self):
        return self.COUNT

    def __getitem__(self, index):
        own, sharp = self.root / f"{index}.png", self.root / f"{index} sharp.png"
        mask = EncodedMask(self.root / f"{index} mask.png", classes={3: 7}, dtype=torch.int64)
        if self.part == "companions":
            with_ = {"mask": mask, "sharp": Companion(sharp, 2)}
            return EncodedImage(
                own, T.Compose([T.RandomCrop(24), T.ToTensor()]), with_=with_
            ), index
        if self.part == "clips":
            return EncodedClip([own, own], SMALL), {"number": index}
        return transformed(self._own_pair(), EncodedImage(own), {"mask": mask, "number": index})

    def _own_pair(self):
        """Makes the transform in the process that needs it, which may find no torchvision before."""
        if self._pair is None:
            import_torchvision()
            from torchvision.transforms import v2

            steps = [v2.RandomResizedCrop((24, 20), antialias=True), v2.RandomHorizontalFlip()]
            end = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
            self._pair = v2.Compose([*steps, *end])
        return self._pair

    def __getstate__(self):
        return {**self.__dict__, "_pair": None}
