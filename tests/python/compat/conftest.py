"""The installed timm, a folder of pictures for it and for compat.timm; Accelerate without settings."""

import pytest
from pictures import import_timm, plain_folder


@pytest.fixture(scope="module")
def theirs():
    return import_timm().data


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("timm"), 22, size=(50, 41)))


@pytest.fixture
def forget_accelerate():
    """Accelerate keeps its settings in the process: before and after the test it has none."""
    state = pytest.importorskip("accelerate.state")

    def forget():
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()

    forget()
    yield
    forget()
