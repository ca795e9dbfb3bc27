"""Loaders of native pictures in each way that has a device, and folders of pictures for them."""

import pytest
from numbered_pictures import COUNT, CROPS
from pictures import plain_folder

from fastloader import transforms as T
from fastloader.datasets import ImageFolder


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), COUNT, classes=COUNT))


@pytest.fixture(scope="module")
def crops(root):
    return ImageFolder(root, CROPS)


@pytest.fixture(scope="module")
def whole(root):
    return ImageFolder(root, T.Resize((12, 10)))


@pytest.fixture(params=["cpu", "twin", "streams"])
def device(request, enter_way):
    """The argument of a loader of native pictures, delivered in each way that has a device."""
    enter_way(request.param)
    return {"device": "cpu"}
