"""Tests that need a CUDA GPU. Skipped in one line where there is none; FASTLOADER_REQUIRE_CUDA=1
turns the skips into failures."""

import os
import sys
from pathlib import Path

import pytest
import torch

# Helpers are shared with the Python tests; pyproject.toml says so too when run from the root.
_helpers = str(Path(__file__).resolve().parents[1] / "python")
if _helpers not in sys.path:
    sys.path.append(_helpers)


def missing():
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    from fastloader import _torch

    problem = _torch.native_cuda_problem()
    return f"native CUDA cannot be used: {problem}" if problem else ""


def pytest_collection_modifyitems(config, items):
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    for item in mine:
        item.add_marker("gpu")
    if mine and missing() and not required():
        # One of them says why; the others would only repeat it.
        left_out = {id(item) for item in mine[1:]}
        config.hook.pytest_deselected(items=mine[1:])
        items[:] = [item for item in items if id(item) not in left_out]


def required():
    return os.environ.get("FASTLOADER_REQUIRE_CUDA") == "1"


@pytest.fixture(scope="session", autouse=True)
def _cuda():
    reason = missing()
    if reason and required():
        pytest.fail(f"FASTLOADER_REQUIRE_CUDA=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(params=["native", "streams"])
def way(request, monkeypatch):
    """The native prefetch thread, and torch's own streams."""
    monkeypatch.delenv("FASTLOADER_NATIVE", raising=False)
    monkeypatch.setenv("FASTLOADER_BACKEND", "torch" if request.param == "streams" else "")
    return request.param
