"""Tensor subclasses, torchvision's among them, are collated into the shared slots."""

import random

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


class Child(Kind):
    """Of Kind's functions and its own type."""


class Other(torch.Tensor):
    """Unrelated to Kind."""


class Stacked(torch.Tensor):
    """Whose stack gives something else than the tensor it was told to write to."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), named=None):
        if function is not torch.stack:
            return super().__torch_function__(function, types, args, named or {})
        with torch._C.DisableTorchFunctionSubclass():
            return cls.stack([each.as_subclass(torch.Tensor) for each in args[0]], **named)


def stacking(stack):
    name = stack.__name__
    # Workers pickle what they give by the name of its type.
    globals()[name] = type(name, (Stacked,), {"stack": staticmethod(stack), "__module__": __name__})
    return globals()[name]


@stacking
def Elsewhere(parts, dim=0, out=None):
    return torch.stack(parts, dim) + 1


@stacking
def PartOfIt(parts, dim=0, out=None):
    return torch.stack(parts, dim, out=out)[:, 0]


@stacking
def Retyped(parts, dim=0, out=None):
    return torch.stack(parts, dim, out=out).as_subclass(Kind)


@stacking
def Both(parts, dim=0, out=None):
    return {"sum": sum(parts), "parts": [torch.stack(parts, dim, out=out), len(parts)]}


@stacking
def Nothing(parts, dim=0, out=None):
    return None


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", Stacked.__subclasses__(), ids=lambda kind: kind.__name__)
def test_what_stack_returns_arrives(kind):
    images = random_images(torch.seed() % 1000, 6, 3, 40, 50)
    data = [{"tensor": each.as_subclass(kind), "plain": each} for each in images]
    loader = FastLoader(data, batch_size=2, num_workers=2)
    same(list(loader), list(DataLoader(data, batch_size=2, num_workers=2)))
    assert loader.stats()["workers"]["slots_used"] == 3


def test_random_mixes_of_subclasses():
    """In one batch, side by side."""
    seed = torch.seed() % 2**31
    print("seed", seed)
    rng = random.Random(seed)
    import_torchvision()
    from torchvision import tv_tensors

    kinds = [torch.Tensor, torch.Tensor, Kind, Child, Other, tv_tensors.Image, tv_tensors.Mask]
    kinds.append(rng.choice(Stacked.__subclasses__()))
    images = random_images(seed, 120, 3, 8, 9)
    data = [[each.as_subclass(rng.choice(kinds)), each.float()] for each in images]
    loader = FastLoader(data, batch_size=3, num_workers=2)
    wanted = list(outcomes(DataLoader(data, batch_size=3, num_workers=2)))
    same(list(outcomes(loader)), wanted)
    assert len({type(each[0]) for each in wanted if isinstance(each, list)}) > 1
    assert loader.stats()["workers"]["slots_used"]


def outcomes(loader):
    """Batches, or what came in the place of one: some kinds will not be stacked with some."""
    batches = iter(loader)
    for _ in range(len(loader)):
        try:
            yield next(batches)
        except TypeError as error:
            yield str(error).splitlines()[-1]
