"""Makes batches in Ray's actors, and sends them to the trainer."""

from __future__ import annotations

import collections
import dataclasses
import errno
import io
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import ray
import torch
from ray import cloudpickle
from torch._utils import ExceptionWrapper
from torch.multiprocessing.reductions import reduce_tensor, reduce_typed_storage
from torch.utils.data import dataloader
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map
from torch.utils.data._utils.pin_memory import pin_memory

from fastloader._core.batch.augmentation import Augmentation, EpochDraws, SampleDraws
from fastloader._core.batch.tree import is_dense, is_leaf
from fastloader._core.handoff import Handoff
from fastloader._core.machine import extension
from fastloader._core.observation.statistics import LeftOut, Statistics
from fastloader._core.pictures.decoder import ImageDecoder, PendingBatch, RequestedSamples
from fastloader._core.pictures.finish import Finish
from fastloader._core.pictures.images import DecodeOptions, ErrorPolicy, NativeImages, SeededKeys
from fastloader._core.pictures.in_place import InPlace
from fastloader._core.pictures.notes import NotedPolicy, PictureNotes
from fastloader._core.pictures.repair import ImageRepair
from fastloader._core.pictures.store import FolderStore
from fastloader._core.sources.encoded.collation import EncodedCollation
from fastloader._core.sources.python.naming import name_sample
from fastloader.datasets.joint import fetching
from fastloader.errors import Error
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization

# ---- Pictures that the decode threads of an actor make.


@dataclasses.dataclass(frozen=True)
class PictureOptions:
    """The options by which an actor makes pictures, and the trainer finishes them. ``normalization``:
    what the actor applies. ``mixed_later``: whether the delivery erases and mixes."""

    threads: int
    decode: Decode
    on_error: str
    normalization: Normalization | None
    channels_last: bool
    mixed_later: bool


@dataclasses.dataclass
class RemoteBatch:
    """The answer to an index batch: the batch, or why there is none. ``tree`` is None if every sample
    was left out. ``samples`` and ``seeds``: by which the delivery erases and mixes. ``counted``: whether
    the trainer has counted what the ``notes`` say."""

    tree: Any
    notes: PictureNotes
    samples: list[int]
    seeds: list[int]
    error: ExceptionWrapper | None = None

    def pin_memory(self) -> RemoteBatch:
        """Pins the batch. torch's thread calls it, if the loader pins."""
        return dataclasses.replace(self, tree=pin_memory(self.tree))


class RemotePictures(InPlace):
    """Makes the batches of the native path in an actor: the same draws, and the same pixels. A batch
    depends on its index batch alone, so that any actor may make it.

    Args:
        images: pictures whose whole transform is known, and what a known collate_fn mixes.
        collate_fn: the loader's, for samples that are the dataset's own.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        options: PictureOptions,
        collate_fn: Callable[[Any], Any],
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self.options = options
        self._collate_fn = collate_fn
        # On the trainer: the loader's policy, and the draws of a delivery that erases and mixes.
        self.policy: ErrorPolicy | None = None
        self.draws: SampleDraws | None = None
        # In the actor: what makes the batches, and wraps the error that is being handled.
        self._maker: _Maker | None = None
        self.wrap: Callable[[], ExceptionWrapper] | None = None

    def __getstate__(self) -> dict[str, Any]:
        of_here = dict.fromkeys(("policy", "draws", "_maker", "wrap"))
        return {**super().__getstate__(), **of_here}

    # --- in the actor ------------------------------------------------------------------------------

    def __getitems__(self, keys: Any) -> Any:
        if type(keys) is not SeededKeys:
            return [self.own[key] for key in keys]  # the sampler's mistake, in the dataset's words
        if self._maker is None:
            self._maker = _Maker(self.images, self.options)
        assert self.wrap is not None
        return self._maker.make(keys, self.wrap)

    def sample(self, key: Any, number: int, seed: int) -> Any:
        raise NotImplementedError("pictures are made by the batch")

    def collate(self, samples: Any) -> Any:
        return samples if type(samples) is RemoteBatch else self._collate_fn(samples)

    # --- on the trainer ----------------------------------------------------------------------------

    def received(self, batch: RemoteBatch) -> Any:
        """Returns the batch that is delivered. Its bad samples are counted as if they had been met here.

        Raises:
            LeftOut: if every sample was left out.
        """
        policy = self.policy
        if policy is not None and not batch.notes.counted:
            batch.notes.count(policy)
        if batch.error is not None:
            batch.error.reraise()
        if batch.tree is None:
            raise LeftOut
        if self.draws is not None:
            self.draws.give(batch.samples, batch.seeds)
        return batch.tree


class _Maker:
    """Decodes batches, as an `ImageIterator` does."""

    def __init__(self, images: NativeImages, options: PictureOptions) -> None:
        if extension.load() is None:
            raise Error(
                "pictures are decoded by fastloader's native module, which this node's installation "
                "lacks: install the same fastloader on all nodes"
            )
        _check_folder(images.store)
        chain = images.chain
        self._draws: SampleDraws | None = None
        erasing = chain.erasing if chain.floating else None
        if erasing is not None or images.mixing is not None:
            self._draws = SampleDraws(Augmentation(erasing, images.mixing))
        later: EpochDraws | None = self._draws if options.mixed_later else None
        handoff = Handoff(
            Statistics(),
            held_by_loop=False,
            normalization=options.normalization,
            draws=later,
            channels_last=options.channels_last,
        )
        self._finish = Finish(images, handoff, self._draws, pin=False)
        late = self._finish.normalizes
        decoding = DecodeOptions(
            options.threads,
            None if late else options.normalization,
            planar=not (late or options.channels_last),
            decode=options.decode,
        )
        self._policy = NotedPolicy(options.on_error, cloudpickle)
        self._decoder = ImageDecoder(images, decoding, self._policy)
        self._decoder.memory.keep(2)
        self._images = images

    def make(self, keys: SeededKeys, wrap: Callable[[], ExceptionWrapper]) -> RemoteBatch:
        self._policy.noted = []
        numbers = keys.numbers
        samples = numbers
        if self._images.indices is not None:
            samples = self._images.indices[numbers].tolist()
        notes = PictureNotes(len(numbers), self._policy.noted)
        batch = RemoteBatch(None, notes, samples, keys.seeds)
        try:
            self._make(batch, keys)
        except Exception:
            batch.error = wrap()
        return batch

    def _make(self, batch: RemoteBatch, keys: SeededKeys) -> None:
        decoder = self._decoder
        pending = PendingBatch(
            decoder, (None,), RequestedSamples.of(self._images, keys.numbers), keys.seeds, None
        )
        pending.batch.wait()
        failures = pending.batch.failures()
        kept = None
        if failures or pending.bad:
            repair = ImageRepair(decoder)
            try:
                kept = repair.done(pending, failures)
            finally:
                repair.stop()
        pending.check()
        if kept is not None and not kept:
            return
        batch.tree = self._finish.batch(pending, kept)
        if kept is not None:
            batch.samples = [batch.samples[each] for each in kept]
            if len(batch.seeds) > 1:
                batch.seeds = [batch.seeds[each] for each in kept]


def _check_folder(store: Any) -> None:
    """Raises FileNotFoundError if this node does not have the folder of the pictures, which would
    otherwise be so many bad samples."""
    if type(store) is not FolderStore or not len(store):
        return
    folder = os.path.dirname(store.name(0))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


# ---- A batch on its way from an actor to the trainer.
#
# Ray writes the memory of numpy arrays into its shared memory as it is, and shows it on the
# other side without a copy. So all memory of a batch travels in arrays, beside a short pickle
# of the rest.


# A tensor that is less than half of a storage larger than this travels without the rest.
_SHORT = 16 << 10


class Parcel(NamedTuple):
    """A batch on its way from an actor. ``content`` is a pickled batch without the memory of its
    ``storages`` and its numpy ``arrays``, empty if nothing is to be delivered. ``lendable``: which
    storages are only those of leaves. ``state``: of the worker's generators after the batch; None if
    nothing draws from them. ``spent``: the seconds that the actor was at it. ``sent``: when it was done,
    by the clock of its node."""

    content: bytes
    storages: list[Any]
    lendable: list[bool]
    arrays: list[Any]
    state: bytes | None
    spent: float
    sent: float

    @property
    def size(self) -> int:
        """In bytes."""
        memory = sum(array.nbytes for array in (*self.storages, *self.arrays))
        return int(len(self.content) + memory)


def packed(batch: Any) -> tuple[bytes, list[Any], list[bool], list[Any]]:
    """Pickles a batch: returns (content, storages, lendable, arrays).

    Raises:
        ValueError: for a tensor on a device.
        Exception: what cannot be pickled raises.
    """
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    packer = _Packer(file, buffers)
    packer.dump(batch)
    arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    return file.getvalue(), packer.storages, packer.lendable, arrays


def received(parcel: Parcel, lends: bool) -> Parcel:
    """Returns the parcel in memory of this process. ``lends``: whether the tensors of leaves stay in
    Ray's memory, which they hold, and which may not be written to. Runs no code of the batch's
    classes."""
    storages = [
        array if lends and lendable else array.copy()
        for array, lendable in zip(parcel.storages, parcel.lendable, strict=True)
    ]
    return parcel._replace(storages=storages, arrays=[array.copy() for array in parcel.arrays])


def opened(parcel: Parcel) -> Any:
    """Opens the batch of a parcel that was `received`."""
    return _Opener(parcel).load()


class _Packer(cloudpickle.CloudPickler):
    """Pickles a batch, and leaves out the memory of its tensors. Tensors that share memory share it when
    they arrive."""

    dispatch_table: ClassVar[Any] = collections.ChainMap(
        {
            torch.nn.Parameter: reduce_tensor,
            torch.storage.TypedStorage: reduce_typed_storage,
        },
        cloudpickle.CloudPickler.dispatch_table,
    )

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.storages: list[Any] = []
        self._held: list[Any] = []  # so that no other storage gets the address of one of them
        self._numbers: dict[int, int] = {}  # by the address of a storage
        self._leaves: set[int] = set()
        self._others: set[int] = set()

    @property
    def lendable(self) -> list[bool]:
        """For each storage, whether all its tensors are leaves of the batch, which a delivery can
        copy."""
        return [place in self._leaves and place not in self._others for place in self._numbers]

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor:
            return self._reduced(value)
        return super().reducer_override(value)

    def _reduced(self, tensor: torch.Tensor) -> Any:
        if not is_leaf(tensor):
            if tensor.layout is torch.strided and not tensor.is_nested:
                self._others.add(tensor.untyped_storage().data_ptr())
            return reduce_tensor(tensor)
        whole, size = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
        # One row of a dataset must not take the whole dataset along.
        if whole > _SHORT and whole > 2 * size:
            kept = torch.preserve_format if is_dense(tensor) else torch.contiguous_format
            tensor = tensor.clone(memory_format=kept)
        self._leaves.add(tensor.untyped_storage().data_ptr())
        return reduce_tensor(tensor)

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not torch.UntypedStorage:
            return None
        if value.device.type != "cpu":
            raise ValueError(
                f"a batch of a Ray actor has a tensor on {value.device}: its dataset and collate_fn "
                "must leave tensors on the CPU, and the loader takes them to its device"
            )
        place, size = value.data_ptr() or -1 - len(self._numbers), value.nbytes()
        if place not in self._leaves:
            self._others.add(place)
        if place not in self._numbers:
            self._numbers[place] = len(self.storages)
            flat = torch.empty(0, dtype=torch.uint8, device="cpu").set_(value, 0, (size,), (1,))
            self.storages.append(flat.numpy())
            self._held.append(value)
        return self._numbers[place]


class _Opener(pickle.Unpickler):
    def __init__(self, parcel: Parcel) -> None:
        super().__init__(io.BytesIO(parcel.content), buffers=parcel.arrays)
        self._arrays = parcel.storages
        self._storages: dict[int, torch.UntypedStorage] = {}

    def persistent_load(self, number: int) -> torch.UntypedStorage:
        if number not in self._storages:
            array = self._arrays[number]
            if array.nbytes == 0:
                storage = torch.UntypedStorage(0, device="cpu")
            else:
                shown = array if array.flags.writeable else np.asarray(_Lent(array))
                storage = torch.from_numpy(shown).untyped_storage()
            self._storages[number] = storage
        return self._storages[number]


class _Lent:
    """Shows a read-only array as one that can be written to. torch has no read-only tensors, and warns
    of each array that is; the delivery to which the tensor goes only reads it."""

    def __init__(self, array: Any) -> None:
        self.array = array  # which holds the memory
        shown = dict(array.__array_interface__)
        self.__array_interface__ = {**shown, "data": (shown["data"][0], False)}


# ---- One worker of a loader in an actor: it makes the batches that a worker process would
# make.


_STOP = torch_worker._IterableDatasetStopIteration


@dataclasses.dataclass
class Setup:
    """The setup that torch gives to each of its workers. ``stateless``: whether a batch depends on its
    index batch alone, so that any worker may make it."""

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: EncodedCollation
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], None] | None
    workers: int
    stateless: bool = False


@dataclasses.dataclass
class Beginning:
    """The place where a worker begins. ``worker``: its number. ``state``: of its generators; None for
    that of its seed. ``resumed``: the message that began the epoch, if that is not the first of
    persistent workers. ``again``: pickled index batches of this epoch, and how often each, whose batches
    are made again and not sent: an iterable dataset, and one with a state, comes to where it was in no
    other way."""

    worker: int
    state: bytes | None = None
    resumed: bytes | None = None
    again: Sequence[tuple[bytes, int]] = ()


class Session:
    """Does as torch's _worker_loop, one call at a time. Several workers may live in one actor, where
    each has its own dataset and its own state of the global generators.

    ``node``: the name of the node, for messages."""

    _seated: Session | None = None  # whose the global generators and the worker info are

    def __init__(self, node: str, beginning: Beginning, load: Callable[[], Setup]) -> None:
        self._node = node
        self._worker = beginning.worker
        self._ended = False
        self._state: bytes | None = None
        self._failed: ExceptionWrapper | None = None
        # torch's function that makes a fetcher, or what the worker_init_fn has put in its place.
        kinds: Any = dataloader._DatasetKind
        self._create = torchs = kinds.__dict__["create_fetcher"]
        try:
            self._setup = setup = load()
            if type(setup.dataset) is RemotePictures:
                setup.dataset.wrap = self._wrapped
            self._sit_down()
            torch.set_num_threads(1)
            self._seed(setup)
            info = {"id": self._worker, "num_workers": setup.workers, "dataset": setup.dataset}
            self._info = torch_worker.WorkerInfo(seed=setup.base_seed + self._worker, **info)
            torch_worker._worker_info = self._info
            if setup.init_fn is not None:
                setup.init_fn(self._worker)
            self._create = kinds.__dict__["create_fetcher"]
            self._fetcher = self._made_fetcher()
            if beginning.state is not None:
                _restore(beginning.state)
            if beginning.resumed is not None:
                self._resume(beginning.resumed)
            for message, times in beginning.again:
                for _ in range(times):
                    self._make_again(message)
        except Exception:
            self._failed = self._wrapped()
        finally:
            kinds.create_fetcher = torchs

    def _seed(self, setup: Setup) -> None:
        seed = setup.base_seed + self._worker
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(torch_worker._generate_state(setup.base_seed, self._worker))

    def _sit_down(self) -> None:
        """Puts this worker's generators in the place of another one's."""
        before = Session._seated
        if before is self:
            return
        if before is not None:
            before._state = _states()
        Session._seated = self
        if self._state is not None:
            _restore(self._state)
            torch_worker._worker_info = self._info

    def leave(self) -> None:
        """Tells that the session is over."""
        if Session._seated is self:
            Session._seated = None

    def _made_fetcher(self) -> Any:
        """Makes a fetcher, which a worker_init_fn of ours makes in torch's place. That also changes how
        torch's worker loop tells that the data have ended."""
        setup, names = self._setup, torch_worker.__dict__
        create: Any = self._create
        create = create.__func__ if isinstance(create, staticmethod) else create
        arguments = (setup.auto_collation, setup.collate_fn, setup.drop_last)
        try:
            return create(setup.kind, setup.dataset, *arguments)
        finally:
            self._stop = names[_STOP.__name__]
            torch_worker._IterableDatasetStopIteration = _STOP  # type: ignore[misc]

    # --- the calls ---------------------------------------------------------------------------------

    def resume(self, message: bytes) -> Parcel:
        """Begins the next epoch of a persistent worker. The parcel has the state before that."""
        begun = time.perf_counter()
        self._sit_down()
        state = None if self._failed is not None or self._setup.stateless else _states()
        try:
            if self._failed is None:
                self._resume(message)
        except Exception:
            self._failed = self._wrapped()
        return Parcel(b"", [], [], [], state, time.perf_counter() - begun, time.time())

    def _resume(self, message: bytes) -> None:
        pickle.loads(message)  # which tells the dataset the epoch
        self._ended = False
        self._fetcher = self._made_fetcher()

    def make(self, message: bytes) -> Parcel:
        """Makes the batch of a pickled index batch. An error takes its place."""
        begun = time.perf_counter()
        self._sit_down()
        if self._ended:
            return Parcel(b"", [], [], [], None, 0.0, time.time())
        try:
            made = packed(self._fetched(message))
        except Exception:
            made = packed(self._wrapped())
        stateless = self._failed is not None or self._setup.stateless
        state = None if stateless else _states()
        return Parcel(*made, state, time.perf_counter() - begun, time.time())

    def _fetched(self, message: bytes) -> Any:
        if self._failed is not None:
            return self._failed
        index = pickle.loads(message)
        try:
            fetching.under_way, fetching.refused = self._setup.collate_fn.puts_off, ""
            return self._fetcher.fetch(index)
        except StopIteration:
            if self._setup.kind != dataloader._DatasetKind.Iterable:
                raise
            self._ended = True
            return self._stop(self._worker)

    def _make_again(self, message: bytes) -> None:
        try:
            if not self._ended:
                self._fetched(message)
        except Exception:
            pass  # it was raised in the place of that batch, too

    def _wrapped(self) -> ExceptionWrapper:
        """Wraps the error that is being handled, with the node where it was raised."""
        error = sys.exc_info()[1]
        name_sample(error)
        where = f"in Ray actor {self._worker} on node {self._node}"
        return ExceptionWrapper(where=where + lacking(error, self._node))


def lacking(error: BaseException | None, node: str) -> str:
    """Says what to do about a file that a node does not have; empty for another error."""
    while error is not None and not isinstance(error, FileNotFoundError):
        error = error.__cause__
    if error is None or error.filename is None:
        return ""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    if not path:
        return ""
    if not os.path.isabs(path):
        return (
            f" (node {node} has no {path!r}, and actors run in other folders than the trainer: give the "
            "dataset an absolute path)"
        )
    return (
        f" (node {node} has no {path!r}: put the data where all nodes have it under the same path, or "
        "choose the nodes that have it by ray_options={'resources': ...})"
    )


def _states() -> bytes:
    """Pickles the states of the global generators."""
    return pickle.dumps(
        (random.getstate(), torch.get_rng_state().numpy(), np.random.get_state()), protocol=5
    )


def _restore(states: bytes) -> None:
    of_python, of_torch, of_numpy = pickle.loads(states)
    random.setstate(of_python)
    torch.set_rng_state(torch.from_numpy(of_torch.copy()))
    np.random.set_state(of_numpy)


# ---- How ``default_collate`` stacks tensors in an actor.


def stack_in_ordinary_memory() -> None:
    """Makes ``default_collate`` stack tensors in ordinary memory in this process.

    In a worker, torch stacks them in a shared memory file. Ray copies the batch from there into its own
    shared memory, and to make the file takes several times as long as to stack the tensors. What a user
    has put into torch's table stays."""
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _stacked


def _stacked(batch: Any, *, collate_fn_map: Any = None) -> Any:
    # torch's function decides about the rest, some of which it refuses.
    plain = all(type(each) is torch.Tensor and each.layout is torch.strided for each in batch)
    if not plain or batch[0].is_nested:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, 0)


# ---- The Ray actor that makes batches.


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
    """Returns the name of this process's node: its address, and the beginning of Ray's name for it."""
    node = ray.get_runtime_context().get_node_id()
    return f"{ray.util.get_node_ip_address()} ({node[:8]})"
