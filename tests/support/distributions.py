"""Whether two samples are of one distribution. A difference as large comes once in ten million runs."""

import collections
import math

import numpy as np


def assert_same_counts(mine, theirs, why=""):
    """A chi-square test of two lists of values that can be keys. Rare values are taken together."""
    counts = [collections.Counter(mine), collections.Counter(theirs)]
    shares = [len(mine) / (len(mine) + len(theirs)), len(theirs) / (len(mine) + len(theirs))]
    together = counts[0] + counts[1]
    # Those that are expected five times on each side stand alone.
    kept = [value for value, count in together.items() if count * min(shares) >= 5]
    rows = [[count[value] for value in kept] for count in counts]
    for row, count in zip(rows, counts, strict=True):
        row.append(count.total() - sum(row))
    square = 0.0
    for column in zip(*rows, strict=True):
        for found, share in zip(column, shares, strict=True):
            expected = sum(column) * share
            square += (found - expected) ** 2 / expected if expected else 0.0
    freedom = len(kept) - (0 if rows[0][-1] + rows[1][-1] else 1)
    if freedom < 1:
        return
    # Wilson and Hilferty: the cube root is nearly normal.
    spread = 2 / (9 * freedom)
    deviate = ((square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    differing = [(value, counts[0][value], counts[1][value]) for value in kept]
    assert deviate < 5.2, (why, deviate, differing[:40])


def assert_same_numbers(mine, theirs, why=""):
    """Kolmogorov and Smirnov's test of two lists of numbers, equal up to rounding."""
    mine, theirs = (np.sort(np.round(np.asarray(each, float), 6)) for each in (mine, theirs))
    values = np.concatenate([mine, theirs])
    below = [np.searchsorted(each, values, "right") / len(each) for each in (mine, theirs)]
    distance = np.abs(below[0] - below[1]).max()
    most = 2.9 * math.sqrt((len(mine) + len(theirs)) / (len(mine) * len(theirs)))
    assert distance < most, (why, distance, most, mine[:5], theirs[:5], mine[-5:], theirs[-5:])
