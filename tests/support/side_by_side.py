"""The same scenario through torch's DataLoader and through FastLoader."""

import contextlib
import dataclasses
import inspect
import itertools
import random
import re
from collections.abc import Mapping

import numpy as np
import torch
from torch.utils.data import DataLoader

from exact import normalised
from support import MEAN, STD, random_images

# What torch 2.6 brought: in_order, and words in assertions that had none.
since_2_6 = "in_order" in inspect.signature(DataLoader.__init__).parameters


def image(number):
    """What makes a sample deliverable in every way: a small picture, another one for each number. Its
    height and width differ, so that no two strides of a batch are the same."""
    return random_images(number, 3, 4, 5)


class Numbers(torch.utils.data.Dataset):
    """(picture, what ``value`` makes of the index)."""

    def __init__(self, count=10, value=int):
        self.count = count
        self.value = value

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return image(index), self.value(index)


# Whether images are described as what normalising them must give: while DataLoader, which leaves them
# as they are, stands beside a FastLoader that normalises.
_normalising = False


@contextlib.contextmanager
def _as_normalised(whether):
    global _normalising
    before, _normalising = _normalising, whether
    try:
        yield
    finally:
        _normalising = before


def described(value):
    """Something to compare with ==: types, layout and values of a batch, pixels to the bit."""
    kind = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        if _normalising and type(value) is torch.Tensor and value.dtype is torch.uint8:
            if value.dim() == 4:
                nchw = value if value.shape[1] == len(MEAN) else value.permute(0, 3, 1, 2)
                value = normalised(nchw, MEAN, STD, torch.float32)
        bare = value.as_subclass(torch.Tensor)
        # What has gaps loses them on its way to a device, as with .to().
        strides = torch.empty_like(bare).stride()
        return kind, str(value.dtype), tuple(value.shape), strides, bare.tolist()
    if isinstance(value, np.ndarray | np.generic):
        return kind, str(value.dtype), value.tolist()
    if isinstance(value, Mapping):
        extra = getattr(value, "default_factory", None)
        return kind, extra, [(key, described(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return kind, [described(each) for each in value]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return kind, [(each.name, described(getattr(value, each.name))) for each in fields]
    return kind, getattr(value, "value", value)


def told(error):
    """Type and text of an exception, without the traceback that torch puts into it: the first line,
    and the last, which is the text it had in the worker."""
    lines = re.sub("0x[0-9a-f]+", "0x", str(error)).splitlines()
    return type(error).__qualname__, lines[:1], lines[-1:], getattr(error, "args", ())[1:]


def batches(loader, limit=50):
    """What comes out of one epoch: batches and errors in their order, going on after each error."""
    try:
        iterator = iter(loader)
    except Exception as error:
        return ["iter()", told(error)]
    seen = []
    for _ in range(limit):
        try:
            seen.append(described(next(iterator)))
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(told(error))
    return [*seen, "and so on"]


def generators():
    """Digest of the states of the three global generators."""
    return (
        hash(bytes(torch.get_rng_state().tolist())),
        hash(random.getstate()),
        hash(np.random.get_state()[1].tobytes()),
    )


def seeded(seed=1):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def same_for_both(fast, scenario):
    """``scenario(make)`` gives the same with FastLoader's class as with DataLoader. Returns it, so
    that a test may also say what it is."""
    seen = []
    for make in (DataLoader, fast):
        seeded()
        with _as_normalised(make is DataLoader and fast.way != "none"):
            seen.append(scenario(make))
    plain, ours = seen
    if plain != ours and isinstance(plain, list) and isinstance(ours, list):
        pairs = itertools.zip_longest(plain, ours)
        different = [(i, a, b) for i, (a, b) in enumerate(pairs) if a != b]
        raise AssertionError(f"first differences (place, DataLoader, FastLoader): {different[:3]}")
    assert ours == plain
    return plain


def rebuilt(loader, **changes):
    """As Lightning replaces a sampler: what the constructor takes is read off the attributes."""
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    parameters = dict(inspect.signature(type(loader).__init__).parameters)
    del parameters["self"]
    missing = {name for name in parameters if name not in attributes} - {"shuffle"}
    arguments = {name: attributes[name] for name in parameters if name in attributes}
    arguments.update(changes)
    if "batch_sampler" not in changes and loader.batch_sampler is not None:
        arguments["batch_sampler"] = None
    assert not missing, f"the constructor takes {missing}, which are no attributes"
    return type(loader)(**arguments)
