"""``audit``: counts which samples the ranks have received, and compares the sum at an epoch's end.

While an epoch runs, each rank keeps a digest of the indices whose batches its loop has received: how
many there are, and the sum and the exclusive or of a hash of each. It does not grow. When a rank has
ended its epoch, or left it, it posts that in the process group's store. A rank that comes to the end
waits until all have posted, and compares the union with what the sampler promises. Every rank compares
for itself, so that nobody waits for one that has left early, beyond its post.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import logging
import operator
import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import distributed as group
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from fastloader._core.machine import identity
from fastloader._core.machine.process import HomeProcess
from fastloader._core.order import distributed
from fastloader._core.order.distributed import CONSUMED, EPOCH, LENGTH, POLICY, Agreed
from fastloader._core.order.progress import Progress
from fastloader.errors import Error

_log = logging.getLogger("fastloader")

_PENDING = 4096  # keys that are hashed at once: alone, the call costs more than the key
_CHUNK = 1 << 20  # numbers hashed at once where a whole order is
_KEPT = 16  # posts of a rank in the store, of which a slower one may still read an older one
_MOST_SEARCHED = 1 << 26  # samples among which two that differ are looked for


# ---- The digest of a number of indices.


def hash_of(indices: Any) -> Any:
    """Hashes an array of indices by the mixing of splitmix64, each to a number of 64 bits of its own.
    `index_of` undoes it."""
    mixed = np.asarray(indices).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def index_of(hashed: int) -> int:
    """Returns the index that has this hash."""
    mixed = _unshift(hashed, 31)
    mixed = _unshift(mixed * pow(0x94D049BB133111EB, -1, 1 << 64) & _MASK, 27)
    mixed = _unshift(mixed * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & _MASK, 30)
    return (mixed - 0x9E3779B97F4A7C15) & _MASK


_MASK = (1 << 64) - 1


def _unshift(mixed: int, bits: int) -> int:
    """Undoes ``x ^= x >> bits``."""
    undone = mixed
    for _ in range(64 // bits):
        undone = mixed ^ (undone >> bits)
    return undone


class Digest(NamedTuple):
    """What is known of a multiset of indices. The digest of two together is their sum."""

    samples: int = 0
    total: int = 0  # of the hashes, modulo 2**64
    parity: int = 0  # the exclusive or of the hashes

    def __add__(self, other: Any) -> Digest:
        total = (self.total + other.total) & _MASK
        return Digest(self.samples + other.samples, total, self.parity ^ other.parity)

    def without(self, other: Digest) -> Digest:
        total = (self.total - other.total) & _MASK
        return Digest(self.samples - other.samples, total, self.parity ^ other.parity)


def digest_of(indices: Any) -> Digest:
    """Makes the digest of an array of indices."""
    made = Digest()
    for first in range(0, len(indices), _CHUNK):
        hashed = hash_of(indices[first : first + _CHUNK])
        total = int(np.add.reduce(hashed, dtype=np.uint64))
        made += Digest(len(hashed), total, int(np.bitwise_xor.reduce(hashed)))
    return made


@functools.lru_cache(maxsize=8)
def digest_of_all(length: int) -> Digest:
    """Makes the digest of every index of a dataset once."""
    made = Digest()
    for first in range(0, length, _CHUNK):
        made += digest_of(np.arange(first, min(length, first + _CHUNK)))
    return made


# ---- What a sampler promises.


class Samplers(Protocol):
    """A loader's samplers: see `position.Samplers`."""

    sampler: Any
    inner: Any
    batching: Any
    shared: bool
    elastic: bool

    @property
    def shard(self) -> Any: ...


class Promise:
    """What all ranks together are to receive in a pass, by a loader's samplers as they are now.

    Args:
        epoch: by which the sampler orders.
        start: how many samples of it all ranks have received together.
    """

    def __init__(self, samplers: Samplers, epoch: int, start: int) -> None:
        sampler, whole = samplers.inner, 1  # so many samples come together or not at all
        if samplers.batching is not None and samplers.batching.drop_last:
            whole = samplers.batching.batch_size
        # What it is made of is taken now: the user may change the sampler, or its dataset, while the
        # last batches of the epoch are on their way.
        self._order: Callable[[], Iterator[Any]] | None = None  # yields the indices of each rank
        self._all: int | None = None  # the dataset's length, if each sample comes once
        if samplers.elastic:
            shares = sampler.next_shares()
            full = [share.samples for share in shares]
            self._order = functools.partial(_ranks_of_runs, shares)
        elif samplers.shared:
            length, world = len(sampler.dataset), sampler.num_replicas
            rest = distributed.rest_of(sampler, start)
            full = [len(range(rank, rest, world)) for rank in range(world)]
            self._all = length if start == 0 and rest == length else None
            seed = sampler.seed + epoch if sampler.shuffle else None
            places = slice(start, start + rest)
            self._order = functools.partial(_ranks_of_order, length, seed, places, world)
        else:
            length = len(sampler)
            full = [length - start]
            if type(sampler) is SubsetRandomSampler:
                indices = list(sampler.indices)
                if start == 0 and length % whole == 0:
                    self._order = lambda: iter([_numbers(indices)])
            elif type(sampler) is SequentialSampler:
                self._order = functools.partial(
                    _ranks_of_order, length, None, slice(start, length), 1
                )
            elif start == 0:
                self._all = length
        # How many samples each rank gets.
        self.shares = [count // whole * whole for count in full]
        if self.shares != full:
            self._all = None

    def digest(self) -> Digest | None:
        """Makes the digest of the samples; None if only their number is known. It draws the order of the
        epoch, unless every sample of the dataset comes."""
        if self._all is not None:
            return digest_of_all(self._all)
        if self._order is None:
            return None
        made = Digest()
        for rank, wanted in zip(self._order(), self.shares, strict=True):
            for indices in rank if isinstance(rank, Iterator) else (rank,):
                made += digest_of(indices[:wanted])
                wanted -= len(indices[:wanted])
        return made


def _ranks_of_runs(shares: list[Any]) -> Iterator[Any]:
    return (share.indices() for share in shares)


def _ranks_of_order(length: int, seed: int | None, places: slice, world: int) -> Iterator[Any]:
    """Yields the indices of each rank, which has every ``world``-th of those places in the order."""
    order = np.arange(length)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(length, generator=generator, device="cpu").numpy()
    for rank in range(world):
        yield order[np.arange(places.start + rank, places.stop, world) % max(length, 1)]


def why_not_audited(samplers: Samplers) -> str:
    """Returns why the samples that these samplers give cannot be compared with a promise; "" if they can
    be."""
    sampler, kind = samplers.inner, type(samplers.inner)
    if samplers.sampler is not sampler and samplers.batching is None:
        return f"audit cannot know what a {type(samplers.sampler).__qualname__} promises"
    if _deals_out(samplers):
        return _why_no_shares(sampler)
    known = kind in (SequentialSampler, SubsetRandomSampler) or (
        kind is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    )
    if not known or identity.change(kind, kind):
        return (
            f"audit cannot know which samples a {kind.__qualname__} promises: it knows distributed=, "
            "ShardwiseSampler, torch's DistributedSampler, and on one rank the samplers that visit "
            "each sample once"
        )
    if _world() > 1:
        return (
            f"audit compares what {_world()} ranks receive together, and a {kind.__qualname__} gives "
            "each of them the whole dataset: give the loader distributed='exact', 'pad' or 'drop', or a "
            "DistributedSampler"
        )
    return ""


def _why_no_shares(sampler: DistributedSampler[Any]) -> str:
    kind = type(sampler)
    if identity.change(kind, kind):
        return f"audit cannot know what a {kind.__qualname__} promises whose methods were replaced"
    if sampler.num_replicas != _world():
        return (
            f"audit: the sampler deals out to {sampler.num_replicas} ranks, and the process group has "
            f"{_world()}"
        )
    if _world() > 1 and distributed.group_store() is None:
        return "audit compares ranks through the process group's store, and MPI's has none"
    return ""


def _deals_out(samplers: Samplers) -> bool:
    """Returns whether the sampler gives this rank its share."""
    return samplers.shared or samplers.elastic


def _world() -> int:
    return group.get_world_size() if distributed.initialised() else 1


# ---- One pass of this rank.


class Tally:
    """What this rank's loop has received of one pass. `Progress` calls `receive` for each batch, and
    `end`. A pass that is left is noted when its iterator goes, or, if that was closed and is kept, when
    the audit is used again."""

    def __init__(
        self, audit: Audit, facts: dict[str, Any], promise: Promise, progress: Progress
    ) -> None:
        self._audit = audit
        self._home = HomeProcess()
        self._rank: int = facts.pop(_RANK)
        self._facts = facts
        self._promise = promise
        self._progress: Progress | None = progress  # None when the pass is over
        self.number = 0  # among the passes of the audit
        self._takes_turns = progress.turn is not None
        # The keys of index batches that were drawn and whose batches were not received so far.
        self.drawn: collections.deque[Any] = collections.deque()
        self._pending: list[Any] = []  # keys that were received and not hashed so far
        self._digest = Digest()
        self._batches = 0
        self._failed = 0  # samples that came as an error
        self._iterator: weakref.ref[Any] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def watch(self, iterator: Any) -> None:
        """Notes the iterator that the loop holds."""
        self._iterator = weakref.ref(iterator)
        self._finalizer = weakref.finalize(iterator, self._leave_at_last)
        self._finalizer.atexit = False

    def receive(self, keys: Any, came: bool) -> None:
        """Counts the samples of a batch that the loop has received. ``keys``: which they are; None for
        those that were drawn first. ``came``: False if an error came in the batch's place."""
        drawn = self.drawn.popleft() if self.drawn else ()
        keys = drawn if keys is None else keys
        if isinstance(keys, torch.Tensor | np.ndarray):
            keys = keys.tolist()
        before = len(self._pending)
        if isinstance(keys, list | tuple):
            self._pending.extend(keys)
        else:
            self._pending.append(keys)
        self._batches += 1
        if not came:
            self._failed += len(self._pending) - before
        if len(self._pending) >= _PENDING:
            self._fold()

    def _fold(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._digest += digest_of(_numbers(pending))

    def end(self) -> None:
        """Posts what was received of a pass that has ended, waits for the other ranks, and compares.

        Raises:
            Error: on every rank, if the ranks have not received what the sampler promises, or if one
                neither ends its pass nor leaves it.
        """
        if self._progress is not None:
            self._post(ended=True)
            self._audit.settle(wait=True)

    def leave(self) -> None:
        """Posts what was received of a pass that ends early, or forgets it if that was only a look."""
        if self._counts():
            self._post(ended=False)
        else:
            self.forget()

    def _counts(self) -> bool:
        """Returns whether the pass, which is not over, is more than a look at a batch. Where passes take
        turns, one that has had its turn is an epoch, however little came of it."""
        progress = self._progress
        if progress is None or progress.turn is not None:
            return False
        return self._takes_turns or self._batches > 1

    def _leave_at_last(self) -> None:
        """Leaves the pass whose iterator is gone, perhaps after the process group, or its store. Then
        nobody is left to be told. A worker that was forked has copies of the loop's iterators, and says
        nothing when it collects one: the connection to the store is the loop's."""
        if not self._home.here:
            return
        if len(self._promise.shares) == 1 or distributed.initialised():
            with contextlib.suppress(Error):
                self.leave()

    def forget(self) -> None:
        """Forgets a pass that is no epoch: a look at a batch, or one that was refused to all ranks."""
        if self._progress is not None:
            self._close()

    def forget_if_unheld(self) -> None:
        """Forgets a pass that was begun and has no iterator: torch's begin each pass twice."""
        if self._iterator is None:
            self._close()

    def leave_if_closed(self) -> None:
        iterator = self._iterator() if self._iterator is not None else None
        if getattr(iterator, "_closed", False):
            self.leave()

    def _close(self) -> None:
        self._progress = None
        if self._finalizer is not None:
            self._finalizer.detach()
        self._audit.open.pop(self, None)

    def _post(self, ended: bool) -> None:
        self._close()
        # A pass that was left is over by now, if its iterator was not collected so far: or the ranks'
        # posts would come in different orders.
        for each in self._audit.begun_before(self):
            if each._counts():
                each._post(ended=False)
        self._fold()
        rank = self._rank
        complete = self._digest.samples == self._promise.shares[rank]
        promised = self._promise.digest() if rank == 0 and (ended or complete) else None
        post = Post(self._facts, self._digest, ended, self._failed, promised)
        self._audit.post(post, rank, self._promise.shares)


class Noted(Iterator[Any]):
    """Gives index batches on, and keeps each in ``drawn`` until its batch is received. An error that the
    sampler raises takes a batch's place."""

    def __init__(self, batches: Iterator[Any], drawn: collections.deque[Any]) -> None:
        self._batches = batches
        self._drawn = drawn

    def __next__(self) -> Any:
        try:
            keys = next(self._batches)
        except StopIteration:
            raise
        except Exception:
            self._drawn.append(())
            raise
        self._drawn.append(keys)
        return keys


def _numbers(keys: list[Any]) -> Any:
    try:
        numbers = np.asarray(keys)
        if numbers.ndim == 1 and numbers.dtype.kind in "iu":
            return numbers
        return np.asarray([operator.index(key) for key in keys], np.int64)
    except (TypeError, ValueError):
        odd = next((key for key in keys if not hasattr(key, "__index__")), keys[0])
        raise Error(
            f"audit counts samples by their indices, and the sampler gives {odd!r}, which is none"
        ) from None


# ---- The account of an epoch.


@dataclasses.dataclass(frozen=True)
class Account:
    """What all ranks together have received of an epoch, or of its rest behind a state that was loaded.

    ``str()`` says it in a sentence.

    Attributes:
        epoch: the number of the epoch.
        whole: whether the ranks have received what the sampler promises: each sample once, but for those
            that ``policy`` repeats or leaves out. False if a rank left early, if a batch came as an
            error, or if anything differs.
        received, promised: how many samples, by all ranks together.
        policy: "exact", "pad" or "drop"; "" on one rank without ``distributed``.
        ranks: how many there are.
        left: (rank, samples received) of each rank that left the epoch early.
        failed: samples in whose batch's place an error came.
        differences: what differs from the promise, in words.
        identified: whether it was compared which samples came, or only how many.
    """

    epoch: int
    whole: bool
    received: int
    promised: int
    policy: str
    ranks: int
    left: tuple[tuple[int, int], ...]
    failed: int
    differences: tuple[str, ...]
    identified: bool

    def __str__(self) -> str:
        by = f"{self.ranks} ranks" if self.ranks > 1 else "one rank"
        said = [
            f"epoch {self.epoch}: {by} received {self.received} of {self.promised} samples",
            *self.differences,
            *[f"rank {rank} left after {count}" for rank, count in self.left],
        ]
        if self.failed:
            said.append(f"{self.failed} of them came as an error in their batch's place")
        if self.whole:
            said.append(
                f"each as {self.policy!r} promises"
                if self.policy
                else "each as promised"
                if self.identified
                else "which were counted and not compared"
            )
        return "; ".join(said)


class Post(NamedTuple):
    """What a rank says of a pass that is over."""

    facts: dict[str, Any]
    digest: Digest
    ended: bool  # whether it was asked for its end
    failed: int
    promised: Digest | None  # from rank 0, if it has received its share

    @classmethod
    def read(cls, text: bytes) -> Post:
        facts, digest, ended, failed, promised = json.loads(text)
        return cls(facts, Digest(*digest), ended, failed, promised and Digest(*promised))


def compare(posts: list[Post], shares: list[int]) -> Account:
    """Compares what the ranks have posted of a pass with what was promised."""
    first = posts[0]
    facts = [post.facts for post in posts]
    names = [name for name in first.facts if name != EPOCH or first.facts[_SHUFFLE]]
    differences = distributed.differences(facts, names)
    counts = [post.digest.samples for post in posts]
    left = [
        (rank, counts[rank])
        for rank, post in enumerate(posts)
        if not post.ended and counts[rank] < shares[rank]
    ]
    if not differences:
        differences += [
            f"rank {rank} received {count} of its {share} samples"
            for rank, (count, share) in enumerate(zip(counts, shares, strict=True))
            if count > share or (count < share and posts[rank].ended)
        ]
    received = sum((post.digest for post in posts), start=Digest())
    if not left and first.promised is not None and received != first.promised:
        differences.append(_what_differs(first.promised, received, first.facts[LENGTH]))
    failed = sum(post.failed for post in posts)
    return Account(
        epoch=first.facts[EPOCH],
        whole=not (left or differences or failed),
        received=received.samples,
        promised=sum(shares),
        policy=first.facts[POLICY],
        ranks=len(posts),
        left=tuple(left),
        failed=failed,
        differences=tuple(differences),
        identified=first.promised is not None,
    )


def _what_differs(promised: Digest, received: Digest, length: int) -> str:
    """Says which samples came too often or not at all, as far as two digests tell."""
    missing = promised.without(received)
    if abs(missing.samples) == 1:
        total = missing.total if missing.samples == 1 else -missing.total & _MASK
        index = index_of(total)
        if total == missing.parity and index < length:
            what = "did not come" if missing.samples == 1 else "came once too often"
            return f"sample {index} {what}"
    if missing.samples == 0 and length <= _MOST_SEARCHED:
        for begin in range(0, length, _CHUNK):
            lost = hash_of(np.arange(begin, min(length, begin + _CHUNK)))
            twice = lost ^ np.uint64(missing.parity)
            for place in np.flatnonzero(lost - twice == np.uint64(missing.total)):
                index = index_of(int(twice[place]))
                if index < length:
                    return f"sample {begin + place} did not come, and sample {index} came once too often"
    more = f", {-missing.samples} too many in all" if missing.samples < 0 else ""
    more = f", {missing.samples} too few in all" if missing.samples > 0 else more
    return f"several samples did not come as often as they should{more}"


# ---- The audit of a loader.


class Audit:
    """Compares what the ranks have received of a loader, epoch for epoch: see `fastloader.audit`."""

    def __init__(self, asked: bool = True) -> None:
        self.asked = asked  # by the user, who is told if it cannot be done
        # Passes that have not ended, nor been left, in the order in which they began.
        self.open: dict[Tally, int] = {}
        self._begun = itertools.count()
        self._posted: collections.deque[_Posted] = collections.deque()  # and not compared so far
        self._sent: collections.deque[_Posted] = collections.deque()  # what is in the store
        self._numbers = itertools.count()  # atomic: an iterator may go on any thread
        self._name = ""  # under which the posts are in the store
        self._own_name = ""  # the same, of a loader that has no agreement
        self._last: Account | None = None

    def account(self) -> Account | None:
        """Returns the account of the epoch that this rank ended or left last; None before that. It waits
        for the other ranks, as the end of an epoch does.

        Raises:
            Error: if a rank neither ends that epoch nor leaves it in that time, or the ranks have not
                received what the sampler promises.
        """
        self._note_closed()
        self.settle(wait=True)
        return self._last

    def begin(
        self, samplers: Samplers, progress: Progress, length: int, agreed: Agreed | None
    ) -> Tally | None:
        """Begins the account of a pass over a dataset of that length; None if it has none."""
        why = why_not_audited(samplers)
        if why and self.asked:
            raise ValueError(why)
        if why:
            return None
        for tally in [*self.open]:
            tally.forget_if_unheld()
        self._note_closed()
        self._take_name(samplers, None if agreed is None else agreed.meetings)
        self.settle(wait=False)
        samplers = _as_they_begin(samplers, progress)
        saved, epoch = progress.saved, _epoch_of(samplers, progress)
        if saved is not None and agreed is not None and agreed.uneven == epoch:
            return None  # some ranks have nothing left of it, and do not come
        start = _received_before(samplers, progress)
        facts = _facts_about(samplers, length, epoch, start)
        tally = Tally(self, facts, Promise(samplers, epoch, start), progress)
        self.open[tally] = tally.number = next(self._begun)
        return tally

    def begun_before(self, tally: Tally) -> list[Tally]:
        """Returns the open passes that began before one, the oldest first."""
        return [each for each, number in [*self.open.items()] if number < tally.number]

    def _note_closed(self) -> None:
        for tally in [*self.open]:
            tally.leave_if_closed()

    def _take_name(self, samplers: Samplers, meetings: distributed.Meetings | None) -> None:
        """Takes the name of the agreement, which no other attempt of the job has, where there is one."""
        name = ""
        if _deals_out(samplers) and _world() > 1:
            if meetings is None and not self._own_name:
                self._own_name = f"fastloader/audit/{distributed.count_round()}"
            name = self._own_name if meetings is None else f"{meetings.name}/audit"
        if name != self._name:
            self._name, self._numbers = name, itertools.count()
            self._posted.clear()  # of an attempt that was given up

    def post(self, post: Post, rank: int, shares: list[int]) -> None:
        """Says what this rank has received of a pass that is over."""
        posted = _Posted(f"{self._name}/{next(self._numbers)}", post, rank, shares)
        self._posted.append(posted)
        if self._name:
            posted.send()
            self._sent.append(posted)
            if len(self._sent) > _KEPT:
                self._sent.popleft().take_back()
            while len(self._posted) > _KEPT:  # the others leave every epoch, too
                self._posted.popleft()

    def settle(self, wait: bool) -> None:
        """Compares what was posted, as far as all ranks have. ``wait``: until they have."""
        while self._posted:
            posted = self._posted[0]
            try:
                posts = posted.of_all(wait) if self._name else [posted.post]
            except Error:  # it is said once
                self._posted.popleft()
                raise
            if posts is None:
                return
            self._posted.popleft()
            self._last = account = compare(posts, posted.shares)
            if account.differences:
                raise Error(f"audit: {account}")
            _log.info("fastloader: audit: %s", account)


class _Posted(NamedTuple):
    """A post of this rank, to be compared with those of the others."""

    key: str
    post: Post
    rank: int
    shares: list[int]

    def send(self) -> None:
        with distributed.reached():
            distributed.group_store().set(f"{self.key}/{self.rank}", json.dumps(self.post))

    def take_back(self) -> None:
        with distributed.reached():
            distributed.group_store().delete_key(f"{self.key}/{self.rank}")

    def of_all(self, wait: bool) -> list[Post] | None:
        """Reads what all ranks have posted; None if some have not.

        Raises:
            Error: if they have not, and this rank has waited for them.
        """
        with distributed.reached():
            return self._of_all(wait)

    def _of_all(self, wait: bool) -> list[Post] | None:
        store = distributed.group_store()
        patience = distributed.patience_of(store) if wait else 0.0
        names = [f"{self.key}/{rank}" for rank in range(len(self.shares))]

        def missing() -> str:
            return distributed.named_ranks([name for name in names if not store.check([name])])

        def waits() -> str:
            return f"rank {self.rank} waits for {missing()} to end or leave the epoch"

        deadline = time.monotonic() + patience
        if distributed.poll(lambda: store.check(names), deadline, waits if wait else None):
            return [Post.read(store.get(name)) for name in names]
        if not wait:
            return None
        raise Error(
            f"audit: {missing()} did not end or leave epoch {self.post.facts[EPOCH]} "
            f"{distributed.within(patience)}. A loop has left an epoch when its iterator is gone, or "
            "when the loop comes to the end of a later one"
        )


_SHUFFLE, _RANK = "shuffle", "rank"


def _as_they_begin(samplers: Samplers, progress: Progress) -> Samplers:
    """Copies the samplers as they are when the pass has drawn its first index: an elastic one then has
    its own state, if the pass goes on from one."""
    copied, saved = copy.copy(samplers), progress.saved
    if samplers.elastic:
        copied.inner = copy.copy(samplers.inner)
        if saved is not None and saved["sampler_state"] is not None:
            copied.inner.load_state_dict(saved["sampler_state"])
    return copied


def _epoch_of(samplers: Samplers, progress: Progress) -> int:
    """Returns the number by which the sampler orders the pass that begins."""
    if samplers.elastic:
        return int(samplers.inner.epoch)
    if progress.saved is not None and progress.saved.get("order_epoch") is not None:
        return int(progress.saved["order_epoch"])  # type: ignore[arg-type]
    theirs = samplers.shared and samplers.shard is None
    return int(samplers.inner.epoch if theirs else progress.epoch)


def _received_before(samplers: Samplers, progress: Progress) -> int:
    saved = progress.saved
    if samplers.elastic:
        return sum(world * given for world, given in samplers.inner.state_dict()["history"])
    if saved is None or saved.get("read_again"):
        return 0
    return progress.before - sum(len(keys) for keys in progress.missing if isinstance(keys, list))


def _facts_about(samplers: Samplers, length: int, epoch: int, start: int) -> dict[str, Any]:
    sampler, batching = samplers.inner, samplers.batching
    shared = _deals_out(samplers)
    return {
        EPOCH: epoch,
        CONSUMED: start,
        LENGTH: length,
        "the seed": sampler.seed if shared else None,
        _SHUFFLE: sampler.shuffle if shared else None,
        POLICY: distributed.policy_of(sampler) if shared else "",
        "batch_size": 1 if batching is None else batching.batch_size,
        "drop_last": batching is not None and batching.drop_last,
        _RANK: sampler.rank if shared else 0,
    }


_VARIABLE = "FASTLOADER_AUDIT"


def begin_audit(samplers: Samplers) -> Audit | None:
    """Makes the audit of a loader with ``distributed=`` if the environment asks for it."""
    value = os.environ.get(_VARIABLE, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{_VARIABLE}={value!r}: 1 to keep account of every epoch, or 0")
    return Audit(asked=False) if value == "1" and samplers.shard is not None else None
