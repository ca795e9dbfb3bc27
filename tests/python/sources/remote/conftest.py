"""A crew of stand-ins."""

import pytest


@pytest.fixture
def made(monkeypatch):
    """Makes (crew, pool, workers) over a dataset."""
    pytest.importorskip("ray")
    from ray_stand_ins import Pool, Put

    from fastloader._core.sources.remote import crew
    from fastloader._core.sources.remote.actor import Setup

    for module in (crew, crew):
        monkeypatch.setattr(module, "connected", Put)

    def make(dataset=None, count=2, kind=0, prefetch=2):
        pool = Pool()
        ours = crew.Crew(pool, count, prefetch)
        dataset = [] if dataset is None else dataset
        setup = Setup(kind, dataset, True, None, False, 1, None, count)
        begun = [ours.worker(setup, number) for number in range(count)]
        for each in begun:
            each.start()
        return ours, pool, begun

    return make
