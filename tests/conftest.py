"""The tiers of the tests, and the end of all that a test has started."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# Helpers; pyproject.toml says so too when run from the root.
if (_support := str(Path(__file__).resolve().parent / "support")) not in sys.path:
    sys.path.append(_support)
# `benchmarks`, which nothing installs. Last: what is installed goes before the checkout's package.
if (_root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.append(_root)

import covering
import descendants
import starts
import tiers

_PROJECT = Path(__file__).resolve().parent / "python" / "project"


def pytest_addoption(parser):
    tiers.add_option(parser)


def pytest_configure(config):
    config.stash[tiers.LEFT_OUT] = {}
    config.stash[tiers.REMARKS] = []
    # As a shell has it for what runs in the background.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTEST_ADDOPTS", None)  # of this run, not of those that tests start
    descendants.begin()
    starts.watch()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if _PROJECT in item.path.parents:
            item.add_marker("project")
        if _starts_workers_anew(item):
            item.add_marker("processes")
    leave = {id(item) for item in covering.left_out(items)}
    unmarked = [item for item in items if id(item) not in leave]
    for tier, left in tiers.by_tier(config, unmarked).items():
        config.stash[tiers.LEFT_OUT][tier] = len(left)
        leave |= {id(item) for item in left}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in leave])
    items[:] = [item for item in items if id(item) not in leave]


def _starts_workers_anew(item):
    """Whether a parameter of the test, or an option in one, is a start method other than "fork"."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    options = [value for each in params if isinstance(each, dict) for value in each.values()]
    return any(
        each in ("spawn", "forkserver") for each in (*params, *options) if isinstance(each, str)
    )


def pytest_collection_finish():
    _freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    # Behind the fixtures: what these still hold, in a circle for example, would never be collected.
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        _freeze()
    return result


def _freeze():
    """Takes what is there, the modules above all, out of the garbage collector's sight. Tests that
    ask it to collect, many times each, then wait for their own objects only."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_outlives_the_test():
    """Whatever becomes of the test: what it has started ends. What an earlier fixture started stays."""
    before = descendants.started()
    yield
    descendants.end_started(before)


@pytest.fixture(autouse=True)
def _no_interpreter_in_the_default_tier(request):
    """A test that starts interpreters, ranks or clusters is marked so. With --all it is only told."""
    starts.forget()
    yield
    if request.node.get_closest_marker("processes") or request.node.get_closest_marker("project"):
        return
    if started := starts.seen():
        told = f"not marked `processes`, and started {started[0]}"
        if not tiers.takes_all(request.config):
            pytest.fail(told, pytrace=False)
        request.config.stash[tiers.REMARKS].append(f"{request.node.nodeid}: {told}")


# ---- What the run left out: with xdist, each process of the run tells it


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[tiers.LEFT_OUT]
        session.config.workeroutput["remarks"] = session.config.stash[tiers.REMARKS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    output = getattr(node, "workeroutput", {})
    node.config.stash[tiers.LEFT_OUT].update(output.get("left_out", {}))
    remarks = node.config.stash[tiers.REMARKS]
    remarks += [line for line in output.get("remarks", ()) if line not in remarks]


def pytest_terminal_summary(terminalreporter, config):
    for line in [*config.stash[tiers.REMARKS], tiers.summary(config.stash[tiers.LEFT_OUT])]:
        if line:
            terminalreporter.write_line(line)
