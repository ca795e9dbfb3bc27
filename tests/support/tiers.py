"""Which tests a run takes: the default tier, or with ``--all`` every test. Of those marked ``covering``
and ``slow``, either takes some cases only: see `covering`.

The default tier leaves out what is marked

* ``processes``: what starts interpreters, ranks or clusters, which costs seconds;
* ``project``: what tests the repository's prose and scripts;
* ``exhaustive``: of a sweep seven cases in eight; with ``--all`` it is three in four.
  FASTLOADER_TEST_SEED chooses them.

No tier leaves out a file or a test that is named on the command line, nor what ``-m`` chooses, nor
anything with FASTLOADER_LONG=1.
"""

import math
import os
import random
from pathlib import Path

import covering
import pytest

TIERS = ("processes", "project", "exhaustive")
# Of an exhaustive test, one case in so many stays.
SHARE = 8
SHARE_OF_ALL = 4

# By tier, how many cases this run left out.
LEFT_OUT = pytest.StashKey[dict]()
# What else is to be said at the end, a line each.
REMARKS = pytest.StashKey[list]()


def add_option(parser):
    parser.addoption(
        "--all",
        action="store_true",
        help="run every test, also those marked processes and project, and more cases of sweeps",
    )


def takes_all(config):
    """Whether a run takes every test. Of an exhaustive one it may take a part of the cases even then."""
    return config.getoption("--all") or _takes_every_case(config)


def _takes_every_case(config):
    return bool(config.getoption("-m")) or covering.LONG


def by_tier(config, items):
    """{tier: the items of it that this run leaves out}. Every process of a run leaves out the same."""
    if _takes_every_case(config):
        return {}
    of_all = takes_all(config)
    found = {tier: [] for tier in TIERS}
    sweeps = {}
    named = _named(config)
    for item in items:
        if _is_named(item, named):
            continue
        if item.get_closest_marker("processes") and not of_all:
            found["processes"].append(item)
        elif item.get_closest_marker("project") and not of_all:
            found["project"].append(item)
        elif item.get_closest_marker("exhaustive"):
            sweeps.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in sweeps.items():
        cases.sort(key=lambda item: item.nodeid)  # the tests may come in another order, by chance
        count = math.ceil(len(cases) / (SHARE_OF_ALL if of_all else SHARE))
        kept = random.Random(f"{covering.SEED} {name}").sample(cases, count)
        stays = {id(item) for item in kept}
        found["exhaustive"] += [item for item in cases if id(item) not in stays]
    return {tier: left for tier, left in found.items() if left}


def _named(config):
    """(file, rest of the test's name) of the arguments that name no folder."""
    found = []
    for argument in config.args:
        path, _, test = argument.partition("::")
        path = Path(config.invocation_params.dir, path)
        if path.is_file():
            found.append((os.path.realpath(path), test))
    return found


def _is_named(item, named):
    path = os.path.realpath(item.path)
    test = item.nodeid.partition("::")[2]
    return any(
        path == file and (not name or test == name or test.startswith((f"{name}[", f"{name}::")))
        for file, name in named
    )


def summary(left_out):
    """The line that tells what a run left out; empty if nothing was."""
    if not left_out:
        return ""
    counted = ", ".join(f"{count} {tier}" for tier, count in left_out.items())
    total = sum(left_out.values())
    if set(left_out) == {"exhaustive"}:
        more = "FASTLOADER_LONG=1 runs them"
    else:
        more = "python -m pytest --all runs them"
        more += f", of a sweep one case in {SHARE_OF_ALL}" if "exhaustive" in left_out else ""
    return f"left out: {total} cases ({counted}); {more}"
