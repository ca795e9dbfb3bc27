"""``repr()`` of a loader has its plan, decides nothing and never raises."""

import pytest
import torch
from pictures import plain_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import Pictures


def test_it_has_the_plan(tmp_path):
    loader = FastLoader(ImageFolder(plain_folder(tmp_path), T.CenterCrop(8)), 2, num_workers=1)
    count = len(loader.dataset)
    begin = f"FastLoader(ImageFolder of {count} samples, batch_size=2, num_workers=1: "
    first, *parts = loader.plan().splitlines()
    assert repr(loader) == f"{begin}{first})"
    assert "native images" in repr(loader) and parts


def test_a_subclass_has_its_name_and_a_stream_has_no_length():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    class Mine(FastLoader):
        pass

    assert repr(Mine(Stream(), 2)).startswith(
        "Mine(Stream, batch_size=2, num_workers=0: Python path"
    )


def test_it_does_not_decide_about_ranks():
    loader = FastLoader(Pictures(), distributed="auto")
    assert "distributed='auto'" in repr(loader)
    assert not loader._runtime.sharding.decided
    len(loader)
    assert loader.plan().splitlines()[0] in repr(loader)


@pytest.mark.parametrize("broken", ["length", "half made"])
def test_it_never_raises(broken):
    class Bad(Pictures):
        def __len__(self):
            raise OSError("the server is away")

    if broken == "length":
        loader = FastLoader(Bad(), sampler=[0])
    else:
        loader = FastLoader.__new__(FastLoader)
    assert repr(loader).startswith("<fastloader.loader.FastLoader object at ")
