"""Tensor subclasses, torchvision's among them, are collated into the slots of the worker ring."""

import pytest
import torch
from pictures import import_torchvision
from torch.utils.data import DataLoader, Dataset

from fastloader import FastLoader
from support import random_images, same

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Kind(torch.Tensor):
    """Stays itself through torch's functions."""


def make(name, image):
    if name == "subclass":
        return image.as_subclass(Kind)
    if name == "parameter":
        return torch.nn.Parameter(image.float(), requires_grad=False)
    from torchvision import tv_tensors

    return tv_tensors.Image(image) if name == "image" else tv_tensors.Mask(image[0])


class Samples(Dataset):
    def __init__(self, name):
        self.images = random_images(torch.seed() % 1000, 6, 3, 40, 50)
        self.name = name

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"tensor": make(self.name, self.images[index]), "plain": self.images[index]}


@pytest.mark.parametrize("name", ["subclass", "parameter", "image", "mask"])
def test_they_go_into_the_slot_and_arrive_as_from_torch(name):
    if name in ("image", "mask"):
        import_torchvision()
    data = Samples(name)
    wanted = list(DataLoader(data, batch_size=2, num_workers=2))
    loader = FastLoader(data, batch_size=2, num_workers=2)
    same(list(loader), wanted)
    counted = loader.stats()["workers"]
    assert (counted["slots_used"], counted["why"]) == (3, {})
