"""Gives the commands what they share: work ahead on threads and in Ray's tasks, numbers, help, and
names as a terminal shows them."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fastloader._core.sources.remote.cluster import ray_module

# ---- What a command has Ray's tasks do, on any machine of a cluster.


Prepared = TypeVar("Prepared")

_RUN = 32  # indices of one task
_AHEAD = 2  # tasks under way for each processor of the cluster

# In the process of a task: what was begun last, by its name.
_begun: dict[str, Callable[[int], Any]] = {}


def add_option(parser: Any) -> None:
    """Adds ``--ray`` to a command. ``parser`` is argparse's."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="let tasks on a Ray cluster read and encode (default: the cluster of this machine). All "
        "its nodes need the data under the same path; this machine writes the file",
    )


def on_ray(
    address: str,
    begin: Callable[[], Callable[[int], Prepared]],
    indices: range,
    failure: type[Exception],
) -> Iterator[Prepared]:
    """Gives ``prepare(index)`` for each index, in order. Each task does a run of indices, and is a few
    runs ahead for each processor of the cluster. Ray does a task again whose process or node has died.

    Args:
        address: the cluster's, or "auto".
        begin: gives ``prepare``, in each process that runs tasks. It must be picklable.
        failure: what ``prepare`` raises with a message for the user, which then also names the node.

    Raises:
        ImportError: if Ray is not installed.
        ConnectionError: if there is no cluster.
    """
    ray = ray_module("--ray")
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    begun = ray.put((begin, failure))
    task = ray.remote(num_cpus=1)(_run)
    most = max(1, int(_AHEAD * ray.cluster_resources().get("CPU", 1)))
    flying: collections.deque[Any] = collections.deque()
    runs = iter([indices[first : first + _RUN] for first in range(0, len(indices), _RUN)])
    try:
        for run in runs:
            flying.append(task.remote([begun], begun.hex(), run))
            if len(flying) >= most:
                yield from _take_results(ray, flying, failure)
        while flying:
            yield from _take_results(ray, flying, failure)
    finally:
        for reference in flying:
            with contextlib.suppress(Exception):
                ray.cancel(reference)


def _take_results(
    ray: Any, flying: collections.deque[Any], failure: type[Exception]
) -> Iterator[Any]:
    # It stays in the queue while it is waited for, so that Ctrl-C cancels it, too.
    made, problem = ray.get(flying[0])
    flying.popleft()
    yield from made
    if problem:
        raise failure(problem)


def _run(begun: list[Any], name: str, indices: range) -> tuple[list[Any], str]:
    """Runs a task: returns what was prepared, up to the first failure, and what that says."""
    import ray

    made: list[Any] = []
    begin, failure = ray.get(begun[0])
    try:
        if name not in _begun:
            _begun.clear()
            _begun[name] = begin()
        prepare = _begun[name]
        for index in indices:
            made.append(prepare(index))
    except failure as error:
        node = ray.util.get_node_ip_address()
        return made, f"{error} (on node {node})"
    return made, ""


# ---- What threads prepare ahead of a loop.


def ahead(prepare: Callable[[int], Prepared], indices: range, workers: int) -> Iterator[Prepared]:
    """Gives ``prepare(index)`` for each index, in order. Threads are a few indices ahead each."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        flying: collections.deque[concurrent.futures.Future[Prepared]] = collections.deque()
        try:
            for index in indices:
                flying.append(pool.submit(prepare, index))
                if len(flying) > 4 * workers:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            for future in flying:
                future.cancel()


# ---- Whole numbers on the command line.


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def at_least_one(text: str) -> int:
    value = whole_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def not_negative(text: str) -> int:
    value = whole_number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


# ---- How ``--help`` looks.


class HelpFormat(argparse.HelpFormatter):
    """Wraps descriptions at the terminal's width, leaves the lines of examples as they are, and names a
    default where there is one to name."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text or text.startswith("fastloader "):  # examples, to be copied
            return "\n".join(indent + line for line in text.splitlines())
        return super()._fill_text(text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        nothing = action.default in (None, False, [], argparse.SUPPRESS)
        return text if nothing or "default" in text else f"{text} (default: %(default)s)"


# ---- Names of any bytes, as a terminal may show them.


def printable(text: str) -> str:
    """Returns the text on one line. What is no character to be seen is escaped: a terminal may take it
    for an order, and no encoding has the bytes of a name that is no UTF-8."""
    return "".join(
        each.encode("unicode_escape").decode()
        if unicodedata.category(each)[0] == "C" or each in "\u2028\u2029"
        else each
        for each in text
    )
