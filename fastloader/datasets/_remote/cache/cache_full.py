"""A cache without room."""

from __future__ import annotations

from fastloader.errors import Error


class CacheFull(Error):
    """Everything in the cache is in use, and something more does not fit beside it."""
