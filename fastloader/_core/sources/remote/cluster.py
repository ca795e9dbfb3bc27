"""Finds the Ray cluster of this process, and keeps the actors of one loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastloader._core.machine.process import HomeProcess
from fastloader.errors import Error

# ---- The Ray cluster that this process is connected to.


_INSTALL = "pip install ray"

# What the loader itself decides for its actors, and why.
_OWN = {
    "max_restarts": "the loader replaces actors that die",
    "max_task_retries": "the loader makes the batches of an actor that died again",
    "max_concurrency": "an actor makes one batch at a time",
    "concurrency_groups": "an actor makes one batch at a time",
    "max_pending_calls": "prefetch_factor bounds the batches under way",
    "allow_out_of_order_execution": "a worker makes its batches in their order",
    "name": "the loader has several actors",
    "namespace": "the loader's actors have no name",
    "get_if_exists": "the loader's actors have no name",
    "lifetime": "the loader's actors end with it",
}


# The process of each connection, by Ray's name for it.
_homes: dict[str, HomeProcess] = {}


def ray_module(asked: str = "worker_backend='ray'") -> Any:
    """Returns Ray, which is imported here for the first time. ``asked``: what it is needed for.

    Raises:
        ImportError: with the command that installs it.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"{asked} needs Ray, which cannot be imported ({error}): {_INSTALL}"
        ) from error
    return ray


def connected() -> Any:
    """Returns Ray, if this process is connected to a cluster. Ray itself would start one on this machine
    at the first call, where the user may have meant another.

    Raises:
        Error: if it is not connected, or only its parent was, or it is so through a Ray Client, which
            shares no memory with the cluster.
    """
    ray = ray_module()
    if not ray.is_initialized():
        raise Error(
            "worker_backend='ray', and this process is not connected to a Ray cluster: call ray.init() "
            "for one on this machine, or ray.init(address='auto') on a machine of a cluster, before "
            "iter(loader)"
        )
    if ray.util.client.ray.is_connected():
        raise Error(
            "worker_backend='ray' does not go through a Ray Client (ray://...), which shares no memory "
            "with the cluster: run the trainer on a machine of the cluster, with "
            "ray.init(address='auto')"
        )
    job = str(ray.get_runtime_context().get_job_id())
    if _homes.setdefault(job, HomeProcess()).here:
        return ray
    raise Error(
        "worker_backend='ray' does not work in a forked child, which cannot use its parent's connection "
        "to the cluster: start the process by spawn, and call ray.init() there"
    )


def check_ray_options(options: Any) -> dict[str, Any]:
    """Checks the options of the loader's actors, as ``ray_options`` says.

    Raises:
        ImportError: if Ray is not installed.
        TypeError, ValueError: for options that an actor cannot have, or not one of a loader.
    """
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"ray_options must be a dict of options of an actor, got {options!r}")
    chosen = {"num_cpus": 1, **(options or {})}
    for name, value in chosen.items():
        if name in _OWN:
            raise ValueError(f"ray_options has {name}={value!r}: leave it out, {_OWN[name]}")
    ray = ray_module()
    try:
        ray.remote(_Nothing).options(**chosen)
    except (TypeError, ValueError) as error:
        raise type(error)(f"ray_options={options!r}: {error}") from error
    return chosen


class _Nothing:
    pass


def decode_threads(options: Mapping[str, Any]) -> int:
    """Returns how many threads decode in an actor: one for each of its processors."""
    return max(1, int(options.get("num_cpus") or 1))
