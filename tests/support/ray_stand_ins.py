"""Actors that answer when a test says so, in the place of Ray's."""

import concurrent.futures
import pickle
import queue

from ray.exceptions import RayActorError

from fastloader._core.sources.remote.actor import Parcel, RemotePictures, packed
from fastloader._core.sources.remote.actor_pool import Actor, ActorPool, RayCounts


class Call:
    """A method of a stand-in, and what it was called with."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def remote(self, *arguments):
        reference = Reference(self.name, arguments)
        self.calls.append(reference)
        return reference


class Reference:
    def __init__(self, name, arguments):
        self.name, self.arguments = name, arguments
        self.promise = concurrent.futures.Future()

    def future(self):
        return self.promise

    def answers(self, batch=None, state=b"state"):
        content = packed(batch)
        self.promise.set_result(Parcel(*content, state, 0.5, 0.0))
        self.promise._done_callbacks.clear()  # Ray drops a future that is done

    @property
    def index(self):
        return pickle.loads(self.arguments[1])


class Handle:
    """A stand-in of an actor's handle."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return Call(name, self.calls)

    def made(self):
        """The calls for batches that were not answered."""
        return [each for each in self.calls if each.name == "make" and not each.promise.done()]

    def began(self):
        return [each.arguments[1] for each in self.calls if each.name == "begin"]

    def come_up(self, node="a node"):
        for each in self.calls:
            if each.name == "up" and not each.promise.done():
                each.promise.set_result((node, 0.0))

    def die(self):
        for each in self.calls:
            if not each.promise.done():
                each.promise.set_exception(RayActorError())


class Pool(ActorPool):
    """Starts stand-ins."""

    disconnected = False

    def __init__(self):
        super().__init__({"num_cpus": 1}, RayCounts())
        self.handles, self.killed = [], []

    def start(self, listener):
        self.handles.append(Handle())
        made = Actor(self.handles[-1], listener)
        self._all.add(made)
        return made

    def kill(self, actor):
        actor.dead = True
        self.killed.append(actor)


class Put:
    def put(self, value):
        return self

    def hex(self):
        return "a reference"

    def cluster_resources(self):
        return {}

    available_resources = cluster_resources


def pictures():
    return object.__new__(RemotePictures)


def ready(ours):
    """What torch's iterator would get now, without waiting."""
    got = []
    while True:
        try:
            got.append(ours.get(0))
        except queue.Empty:
            return got


def answered_in_turn(ours, handle):
    """What torch's iterator gets if an actor answers all that it is asked for with its index batch."""
    got = []
    while made := handle.made():
        made[0].answers(made[0].index)
        got += ready(ours)
    return got
