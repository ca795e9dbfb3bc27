"""The Ray actor that makes batches."""

from __future__ import annotations

import time
from typing import Any

import ray

from fastloader._core.sources.remote.actor.parcel import Parcel
from fastloader._core.sources.remote.actor.session import Beginning, Session, Setup
from fastloader._core.sources.remote.actor.stacking import stack_in_ordinary_memory


class BatchActor:
    """Makes batches for the workers that live in it, one at a time, in the order in which it is asked.
    It raises nothing: what goes wrong is sent in a batch's place."""

    def __init__(self) -> None:
        stack_in_ordinary_memory()
        self._node = node_name()
        self._sessions: dict[str, Session] = {}
        # The last setup whose batches depend on nothing else, with its decode threads and its memory.
        self._kept: tuple[str, Setup | None] = ("", None)

    def up(self) -> tuple[str, float]:
        """Returns the name of the node, and the time by its clock."""
        return self._node, time.time()

    def begin(self, session: str, beginning: Beginning, setup: list[Any], key: str) -> None:
        """Begins a worker. ``setup``: a reference to its `Setup`, in a list so that Ray does not look it
        up where a failure could not be told. ``key`` names that setup."""

        def load() -> Setup:
            before, kept = self._kept
            if kept is not None and before == key:
                return kept
            self._kept = ("", None)
            found: Setup = ray.get(setup[0])
            if found.stateless:
                self._kept = (key, found)
            return found

        self._sessions[session] = Session(self._node, beginning, load)

    def resume(self, session: str, message: bytes) -> Parcel:
        """Begins the next epoch of a persistent worker."""
        return self._sessions[session].resume(message)

    def make(self, session: str, message: bytes) -> Parcel:
        """Makes a batch."""
        return self._sessions[session].make(message)

    def end(self, session: str) -> None:
        """Ends a worker."""
        over = self._sessions.pop(session, None)
        if over is not None:
            over.leave()


def node_name() -> str:
    """The name of this process's node: its address, and the beginning of Ray's name for it."""
    node = ray.get_runtime_context().get_node_id()
    return f"{ray.util.get_node_ip_address()} ({node[:8]})"
