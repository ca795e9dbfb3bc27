"""Lists the sources of a loader: the one place that names them."""

from __future__ import annotations

from fastloader._core.handoff import Fallback, Source
from fastloader._core.observation.statistics import Statistics
from fastloader._core.pictures.images import ErrorPolicy
from fastloader._core.sources.arrays import ArraySource
from fastloader._core.sources.images import ImageSource
from fastloader._core.sources.python.source import PythonSource
from fastloader._core.sources.remote.source import RemoteSource


def make_sources(
    statistics: Statistics, policy: ErrorPolicy
) -> tuple[tuple[Source, ...], Fallback]:
    """Makes the sources of one loader: those that are asked, in this order, and the one that makes the
    batches that none of them makes."""
    images = ImageSource(statistics, policy)
    python = PythonSource(statistics, policy)
    return (RemoteSource(images, python), ArraySource(statistics), images), python
