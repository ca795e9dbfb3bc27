"""The installed timm, and a folder of pictures for it and for compat.timm."""

import pytest
from pictures import import_timm, plain_folder


@pytest.fixture(scope="module")
def theirs():
    return import_timm().data


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("timm"), 22, size=(50, 41)))
