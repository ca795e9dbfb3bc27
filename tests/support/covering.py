"""Which cases of a test run: all with FASTLOADER_LONG=1. Else one of all tests marked ``slow``, and of
each test marked ``covering`` some that have every value of every parameter between them.
FASTLOADER_TEST_SEED chooses which."""

import os
import random

LONG = os.environ.get("FASTLOADER_LONG") == "1"
SEED = int(os.environ.get("FASTLOADER_TEST_SEED", "0"))


def left_out(items):
    """Those of pytest's ``items`` that a run leaves out. Every process of a run leaves out the same."""
    if LONG:
        return []
    families = {}
    # In an order of their names: the tests may come in another one, by chance.
    items = sorted(items, key=lambda item: item.nodeid)
    for item in items:
        if item.get_closest_marker("covering") and hasattr(item, "callspec"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        slow.remove(random.Random(SEED).choice(slow))
    return slow + [
        item
        for name, cases in families.items()
        for item in _redundant(cases, random.Random(f"{SEED} {name}"))
    ]


def _redundant(cases, rng):
    """The cases that show no value that those before them have not, in an order by chance."""
    seen = set()
    for case in rng.sample(cases, len(cases)):
        # Each value is one object, which the cases share. Pytest's own indices count the cases.
        values = {(name, id(value)) for name, value in case.callspec.params.items()}
        if values <= seen:
            yield case
        seen |= values
