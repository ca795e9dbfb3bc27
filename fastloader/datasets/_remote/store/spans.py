"""Requests for several places of an object."""

from __future__ import annotations

from collections.abc import Sequence

PART = 4 << 20  # the most bytes that one request asks for
GAP = 1 << 18  # bytes that are read and thrown away rather than asked for around


def coalesced(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The (begin, end) of requests for these (offset, size): neighbours with a gap of at most `GAP`
    between them share one, and none asks for more than `PART`."""
    spans: list[tuple[int, int]] = []
    for offset, size in sorted(places):
        end = offset + size
        if spans and offset - spans[-1][1] <= GAP:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        elif size:
            spans.append((offset, end))
    return [
        (begin, min(begin + PART, end)) for first, end in spans for begin in range(first, end, PART)
    ]
