"""Tests of worker threads start more of them than this machine may have processors."""

import warnings

import pytest


@pytest.fixture(autouse=True)
def _no_advice():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield
