"""The ring of the worker processes, as FASTLOADER_WORKER_RING=1 asks for it."""

import pytest


@pytest.fixture
def forced(monkeypatch):
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "1")
