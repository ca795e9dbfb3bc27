"""``FastLoader``: torch's DataLoader that delivers to the device."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from fastloader import _distributed, _extension, _torch, _trainers
from fastloader._array_iterator import ArrayIterator, array_threads, warn_unpinned
from fastloader._arrays import Arrays, holds_arrays, lower_arrays
from fastloader._autotune import MOST_DEPTH, AutoWorkers, ThreadTuner, own_threads
from fastloader._chain import Unlowered
from fastloader._delivery import Delivery
from fastloader._engine_iterator import Epoch
from fastloader._fallback import holds_pictures, warn_of_python_path
from fastloader._headspace import Headspace
from fastloader._images import AHEAD, ImageIterator, ImageSource, Wish, make_policy
from fastloader._limits import available_threads
from fastloader._lowering import Lowered, lower
from fastloader._polling import abandon
from fastloader._report import Report, find_choices, make_report
from fastloader._runtime import Runtime
from fastloader._stages import find_stages
from fastloader._statistics import Statistics
from fastloader._threads import ThreadIterator
from fastloader._torch_arguments import of_torch, takes_newer
from fastloader._torch_iterator import (
    CountingIterator,
    MultiProcessIterator,
    SingleProcessIterator,
    is_of_another_process,
)
from fastloader._trace import Trace
from fastloader._trainers import NextEpoch

_log = logging.getLogger("fastloader")

T_co = TypeVar("T_co", covariant=True)

# What was made of these in the constructor stays; later values would be without effect.
_FIXED_BY_DELIVERY = ("device", "mean", "std", "dtype", "channels_last", "image_key", "depth")
_FIXED = frozenset([*_FIXED_BY_DELIVERY, "on_error", "max_errors", "distributed"])

# torch's names for our worker_backend (pytorch#161044).
_WORKER_METHODS = {"process": "multiprocessing", "thread": "thread"}
_WORKER_BACKENDS = {method: backend for backend, method in _WORKER_METHODS.items()}


class FastLoader(DataLoader, Generic[T_co]):  # type: ignore[type-arg]
    """A drop-in ``torch.utils.data.DataLoader`` whose batches arrive on the device, normalised.

    ``num_workers`` may also be ``"auto"``. On the native path decode threads are then fitted to the loop
    while it runs: one for each processor of this rank at first, fewer when the loop does not wait, more
    when they wait for storage; see docs/tuning.md. Other datasets get one worker for each processor of
    this rank, a number that is not changed later, since what a dataset draws at random depends on it.
    Decode threads and workers run at a lower priority than the training loop (the decode threads, which
    all loaders share, for the rest of the process's life). ``loader.num_workers`` is the number begun
    with.

    Every argument of DataLoader has its meaning, default and errors, and the order of samples is the
    same for the same seed. One exception: with ``num_workers=0``, random transforms and no
    ``generator=``, natively decoded pictures come in another order from the second epoch on, because in
    DataLoader those transforms draw from torch's global generator between two epochs. Without the
    arguments below it gives what DataLoader gives, except that known image folders draw other crops
    (``native=False``: DataLoader's own). ::

        loader = FastLoader(dataset, batch_size=256, shuffle=True, num_workers=8,
                            device="cuda", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
                            dtype=torch.bfloat16, channels_last=True)
        for images, labels in loader:  # both on the GPU, images normalised
            ...

    Args:
        device: where batches arrive. None (default): on the CPU, as DataLoader leaves them. ``"auto"``:
            the accelerator if there is one, else the CPU. ``"cuda"`` (``"cuda:1"``, a torch.device,
            any accelerator torch knows): there; without such a device it is a ValueError. A device
            without a number is the current one at the first ``iter()``; nothing is started before that.
        mean, std: one number per channel (1 to 4), in 0..1, as in torchvision and timm; one without
            the other means mean 0 or std 1. Given, every *image leaf* of a batch, that is a uint8
            tensor of 4 dimensions whose channel dimension is ``len(mean)`` (NCHW wins ties with NHWC),
            values 0..255, arrives as ``(x/255 - mean)/std`` of shape (N, C, H, W). The definition is
            ``fma(x, 1/(255*std), -mean/std)`` in float32, rounded once to ``dtype``; it is within
            2e-6 of torchvision in float32, 4e-3 in float16, 3e-2 in bfloat16. Other leaves arrive
            untouched, strides included.
        dtype: torch.float32 (default), torch.float16 or torch.bfloat16. Given without mean and std,
            images arrive in 0..1 (torchvision's ToTensor).
        channels_last: normalised images arrive in ``torch.channels_last`` memory format.
        image_key: index or key of the image in the batch (in a nested batch, the outermost one), for
            batches in which something else is shaped like an image; None (default) takes all.
        native: take the native image path where the dataset and its transform are known (`plan` says
            so): pictures are then read, decoded, cropped and resized by C++ threads, to the bit as
            Pillow does it; ``num_workers`` is the number of threads, 0 one for each processor. Likewise
            datasets of arrays (below) are gathered. False: the dataset's own Python code, in torch's
            workers.
        decode: on the native path, "exact" (default): Pillow's pixels; damage below the part of a
            picture that is used, or in its metadata, is not looked for. "whole": the same pixels, but
            the rest is read too, so that whatever makes Pillow fail is an error here. "fast":
            approximate. A picture that is shrunk to half or less in both directions is decoded at 1/2,
            1/4 or 1/8 of its size and resized from there; all others, boxes and flips stay the same.
            Measured on 500 ImageNet photographs, RandomResizedCrop(224) and Resize(256) with
            CenterCrop(224) are off by 0.04 and 0.07 of 255 in the mean (PSNR 56 and 53 dB; at most 76;
            0.04 % and 0.08 % of the values by more than 8), RandomResizedCrop(112), which halves more,
            by 0.8 (43 dB).
        truncated: on the native path, a picture whose bytes end early is an "error", or "pad": what
            is there counts, the rest is grey.
        on_error: on the native path, for a sample that neither we nor Pillow can read: "raise" its
            exception in the batch's place, "skip" it (the batch shrinks; one in which nothing is
            left is left out), or "replace" it by another sample drawn from the epoch's seed. With
            "raise", timm's ImageDataset keeps its own rule: a file that cannot be read is replaced by
            the next one, with a warning, as often as it allows.
        max_errors: how many samples may be skipped or replaced in the loader's life: a count (int), a
            share of the samples seen (float), None (default) for any number.
        distributed: None (default): as DataLoader, the sampler is yours. ``"auto"``: where
            torch.distributed is initialised and neither sampler nor batch_sampler is given, each rank
            takes its share as with DistributedSampler (seed: the generator's, or 0), and the loader
            counts the epochs; otherwise as None. That is decided at the first ``iter()``, ``len()``,
            ``state_dict()``, ``load_state_dict()``, ``set_epoch()`` or look at the loader's sampler, and
            a process group that appears after it is an Error from the next ``iter()``. The uneven end:
            ``"pad"`` repeats a few samples (as "auto" does), ``"drop"`` leaves a few out, ``"exact"``
            gives each once, for evaluation: some ranks then get one more. Ranks that disagree get an
            Error at their first ``iter()``. See docs/distributed.md.
        depth: batches in the pinned ring and, at the same time, on the device; for known image folders
            on the CPU, batches that are ready or being decoded. More smooths over uneven batches and
            costs memory. None (default): 3, or 2 with ``num_workers=0``. ``"auto"``: 3 at first, and
            more, 16 at most, once batches come fast enough in the mean but not evenly. At most an
            eighth of the free memory is used for that, and of a GPU's a sixteenth. Where there is
            neither ring nor pictures it changes nothing.
        worker_backend: "process" (default), or "thread": ``num_workers`` Python threads in the place of
            torch's processes, for datasets that release the GIL. Order,
            look-ahead, ``timeout``, ``persistent_workers``, ``in_order`` and ``worker_init_fn`` are
            torch's; errors say "in DataLoader worker thread n". Threads share the dataset object, the
            global random generators, which are not seeded for each worker, and torch's number of
            threads; nothing is copied between them. ``get_worker_info()`` answers in each thread, its
            ``rng`` (``random_generator``, ``torch_generator``, ``numpy_generator``) is seeded for that
            worker, and default_collate takes no shared memory. A thread cannot be killed: ending an
            epoch waits up to 10 s for a sample that is being fetched.
        worker_method: torch's coming name for the same: "thread", or "multiprocessing" for our
            "process". None (default): what worker_backend says.

    **Arrays.** A TensorDataset of plain CPU tensors, a tensor or numpy array (a memmap too) that is the
    dataset itself, StackDatasets of these, and Subsets of all of them (exact types, default_collate, no
    ``worker_init_fn``) need no Python per sample: native threads copy the rows of a batch into recycled
    memory. Batches equal DataLoader's in order, containers, dtypes, shapes, strides and values. There
    are no worker processes: ``num_workers`` is the number of threads that gather ahead, and
    ``multiprocessing_context``, ``timeout`` and ``persistent_workers`` change nothing more than the
    draws that torch makes; with 0 a batch is gathered inside ``next()``. Which tensors and indices there
    are is looked up when the epoch begins, the values when a batch is gathered: without workers in
    ``next()``, with workers up to three batches earlier, so that changing a tensor in the middle of an
    epoch may show a little later than without, and resizing one is not allowed there. Any other dataset
    with ``__getitems__`` is asked as torch asks it: what it returns is its own affair.

    Worker processes collate into slots of memory shared with this process, and send no files or
    descriptors. CPU batches are then tensors on a slot, which serves again once the last tensor or
    view of it is gone; who keeps more batches than there are slots gets the others as DataLoader
    makes them. What differs from DataLoader: ``is_shared()`` is False; a batch never shares memory
    with the worker's data set (with ``batch_size=None``, a row of a large tensor arrives in a storage
    of its own); a batch that cannot be pickled is an error in its place. FASTLOADER_WORKER_RING=0
    switches this off.

    With ``num_workers=0`` the dataset runs on the caller's thread when a batch is asked for, as with
    DataLoader; with workers, on the way to CUDA, a thread takes their batches ahead of time. Batches on
    the device are ordinary tensors of torch's allocator on the stream current at ``next()``; CPU batches
    that were normalised live in memory that is recycled once the last tensor or view of it is gone.
    ``pin_memory`` is not needed (the ring is pinned) and ignored for CUDA.

    Raises:
        TypeError, ValueError: for an argument that cannot work, at construction. For a batch that
            cannot be delivered (no image leaf though mean, std or dtype ask for one; larger than half
            the machine's memory / depth), from ``next()`` in the batch's place; the loader goes on.
        BackendError: from ``next()`` when the device failed.
        Exception: whatever dataset, sampler and collate_fn raise, in order, with its traceback.
    """

    device: str | int | torch.device | None
    mean: Sequence[float] | None
    std: Sequence[float] | None
    dtype: torch.dtype | None
    channels_last: bool
    image_key: int | str | None
    depth: int | str | None
    native: bool
    decode: str
    truncated: str
    on_error: str
    max_errors: int | float | None
    worker_backend: str
    distributed: str | None

    @takes_newer
    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: str | int | torch.device | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        image_key: int | str | None = None,
        depth: int | Literal["auto"] | None = None,
        native: bool = True,
        decode: Literal["exact", "whole", "fast"] = "exact",
        truncated: Literal["error", "pad"] = "error",
        on_error: Literal["raise", "skip", "replace"] = "raise",
        max_errors: int | float | None = None,
        worker_backend: Literal["process", "thread"] = "process",
        distributed: Literal["auto", "pad", "drop", "exact"] | None = None,
        worker_method: Literal["multiprocessing", "thread"] | None = None,
    ) -> None:
        if worker_backend not in _WORKER_METHODS:
            raise ValueError(f"worker_backend={worker_backend!r}: use 'process' or 'thread'")
        if worker_method is not None:
            if worker_method not in _WORKER_BACKENDS:
                raise ValueError(
                    f"worker_method={worker_method!r}: use 'multiprocessing' or 'thread'"
                )
            if worker_backend == "thread" and worker_method != "thread":
                raise ValueError(
                    f"worker_backend='thread' and worker_method={worker_method!r}: give one of the two"
                )
        threads = "thread" in (worker_backend, worker_method)
        if threads and multiprocessing_context is not None:
            raise ValueError("multiprocessing_context is for worker_backend='process'")
        if threads and isinstance(dataset, IterDataPipe | MapDataPipe):
            raise ValueError("worker_backend='thread': threads would share the state of a DataPipe")
        if not isinstance(native, bool):
            raise TypeError(f"native must be a bool, got {native!r}")
        if decode not in ("exact", "whole", "fast"):
            raise ValueError(f"decode={decode!r}: use 'exact', 'whole' or 'fast'")
        if truncated not in ("error", "pad"):
            raise ValueError(f"truncated={truncated!r}: use 'error' or 'pad'")
        delivery = Delivery(device, mean, std, dtype, channels_last, image_key, depth)
        # As given, under their own names: frameworks rebuild loaders from constructor arguments. Not by
        # setattr: a subclass may have a property of the name that takes nothing.
        self.__dict__.update(
            device=device,
            mean=mean,
            std=std,
            dtype=dtype,
            channels_last=channels_last,
            image_key=image_key,
            depth=depth,
            native=native,
            decode=decode,
            truncated=truncated,
            on_error=on_error,
            max_errors=max_errors,
            distributed=distributed,
            worker_backend=worker_backend,
        )
        # Last, and through __setattr__, which keeps the two names of one thing alike.
        self.worker_method: str = worker_method or _WORKER_METHODS[worker_backend]
        tuner = None
        if num_workers == "auto" or isinstance(num_workers, AutoWorkers):
            num_workers, tuner = _begin_tuning(num_workers)
        policy = make_policy(on_error, max_errors)
        self._runtime = Runtime(self, delivery, policy, tuner, None)
        newer: dict[str, Any] = self.__dict__.pop("_for_torch")
        torchs = of_torch()
        if "worker_method" in torchs:
            newer["worker_method"] = self.worker_method
        if "in_order" in torchs:
            newer["in_order"] = in_order
        elif not in_order:
            raise ValueError(
                f"in_order=False needs torch 2.6 or later; this is {torch.__version__}"
            )
        else:
            # Whoever rebuilds a loader finds each argument as an attribute.
            self.in_order = in_order
        shard = _distributed.make_sampler(
            distributed, dataset, shuffle, sampler, batch_sampler, generator
        )
        if shard is not None:
            sampler, shuffle = shard, None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **newer,
        )
        # From here on looking at a sampler decides.
        self._runtime.sharding = _distributed.begin_auto(
            distributed, dataset, shuffle, sampler, batch_sampler
        )

    @property
    def sampler(self) -> Any:
        """What gives the indices, or groups of them to batch_sampler."""
        self._decide_sharding()
        return self.__dict__["sampler"]

    @sampler.setter
    def sampler(self, value: Any) -> None:
        self._replace_sampler("sampler", value)

    @property
    def batch_sampler(self) -> Any:
        """What gives the batches' indices; None with ``batch_size=None``."""
        self._decide_sharding()
        return self.__dict__["batch_sampler"]

    @batch_sampler.setter
    def batch_sampler(self, value: Any) -> None:
        self._replace_sampler("batch_sampler", value)

    def _decide_sharding(self) -> None:
        sharding = self._runtime.sharding
        if sharding is None or sharding.decided:
            return
        shard = sharding.decide(self)
        if shard is not None:
            # Frameworks read these off the instance's attributes, where torch puts them.
            self.__dict__["sampler"] = shard
            if self.batch_size is not None:
                self.__dict__["batch_sampler"] = BatchSampler(
                    shard, self.batch_size, self.drop_last
                )

    def _replace_sampler(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        self._runtime.sharding = None  # it is the user's, and so are the ranks' shares

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_iterator" in self.__dict__ and not self._is_free(name):
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        if name == "num_workers" and "_iterator" in self.__dict__:
            self._runtime.tuner = None  # it may have been "auto"
            if isinstance(value, str | AutoWorkers):
                value, self._runtime.tuner = _begin_tuning(value)
        if name == "worker_backend" and value in _WORKER_METHODS:
            super().__setattr__("worker_method", _WORKER_METHODS[value])
        if name == "worker_method" and value in _WORKER_BACKENDS:
            super().__setattr__("worker_backend", _WORKER_BACKENDS[value])
        super().__setattr__(name, value)

    def _is_free(self, name: str) -> bool:
        """Whether an attribute of this name may be the subclass's own: a loader that delivers nothing is
        a plain DataLoader. It may not where frameworks, which make the loader again of its attributes,
        would take it for the argument of FastLoader's constructor."""
        constructor = type(self).__init__
        own = not getattr(constructor, "__module__", "").startswith("fastloader.")
        plain = self._runtime.delivery.path == "torch"
        return own and plain and name in _FIXED_BY_DELIVERY

    def __iter__(self) -> Any:
        if self._runtime.sharding is not None:
            self._runtime.sharding.check(self)
        position = self._runtime.position
        with position.lock:
            if position.resumes_mid_epoch and _trainers.counted_as_over():
                return NextEpoch(self, position.leave_out_rest(self))
            return self._begin_epoch()

    def _begin_epoch(self) -> Any:
        position = self._runtime.position
        with position.lock:
            self._runtime.delivery.settle()
            position.follow_count(_trainers.fabrics_epoch(self))
            with position.begin(self):
                iterator = self._iterate()
            # A subclass may make an iterator of any kind, which does not count.
            if hasattr(iterator, "progress"):
                iterator.progress = position.current
            else:
                position.uncounted()
            return iterator

    def _iterate(self) -> Any:
        try:
            lowered = self._lower()
        except Unlowered as refusal:
            reason = str(refusal)
        else:
            if isinstance(lowered, Arrays):
                return self._iterate_arrays(lowered)
            return self._iterate_images(lowered)
        # Not in the handler: errors of workers forked there would name the refusal as their context.
        asked = [
            f"{name}={value!r}"
            for name, value, usual in (
                ("decode", self.decode, "exact"),
                ("truncated", self.truncated, "error"),
                ("on_error", self.on_error, "raise"),
            )
            if value != usual
        ]
        if asked:
            raise ValueError(
                f"{' and '.join(asked)}: for pictures on the native path, and this dataset takes "
                f"the Python path: {reason}"
            )
        if reason != self._runtime.said:  # once, not at every epoch
            self._runtime.said = reason
            _log.info("fastloader: Python path: %s", reason)
            if self.native and _extension.load() is not None and holds_pictures(self.dataset):
                warn_of_python_path(reason)
        return self._iterate_python()

    def _iterate_python(self) -> Any:
        if self._runtime.delivery.path == "torch":
            return self._torch_iterator()
        if self.persistent_workers:
            # There is one torch iterator for life: the pump of the last epoch must let go of it.
            if self._iterator is not None:
                self._runtime.position.supersede()
            self._runtime.delivery.end_iterators()
        return self._runtime.delivery.iterate(
            self._torch_iterator,
            ahead=self.num_workers > 0,
            pin=self._pins(),
            begin_draws=self._runtime.position.begin_draws,
        )

    def _pins(self) -> bool:
        """As torch: only where there is an accelerator to pin memory for."""
        return self.pin_memory and _torch.can_pin()

    def _lower(self) -> Lowered | Arrays:
        if not self.native:
            raise Unlowered("native=False")
        if holds_arrays(self.dataset):
            if (self.on_error, self.truncated, self.decode) != ("raise", "error", "exact"):
                raise Unlowered("the dataset is of arrays")
            return lower_arrays(self)
        if _extension.load() is None:
            raise Unlowered("the native module is not in use")
        lowered = lower(self)
        if lowered.chain.floating and self._runtime.delivery.normalization is not None:
            raise Unlowered("the transform ends in floats, but mean, std or dtype ask for uint8")
        if self._runtime.delivery.normalization is not None:
            mean = self._runtime.delivery.normalization.mean
            if mean is not None and len(mean) != 3:
                raise Unlowered(f"mean and std are of {len(mean)} channels, decoded images have 3")
        return lowered

    def _iterate_images(self, lowered: Lowered) -> Any:
        normalization = self._runtime.delivery.normalization
        if lowered.chain.floating:
            normalization = lowered.chain.normalization
        on_device = self._runtime.delivery.path in ("engine", "streams")
        # What is erased or mixed is normalised then, a whole batch at a time.
        raw = on_device or self._runtime.delivery.augmentation is not None
        wish = Wish(
            self.num_workers or own_threads(),
            # On a device the kernel there normalises; here it is done while the sample is in cache.
            None if raw else normalization,
            planar=not (raw and normalization is not None),
            decode=self.decode,
            truncated=self.truncated,
            tuner=self._runtime.tuner,
        )
        if self._runtime.source is None or not self._runtime.source.serves(lowered, wish):
            self._runtime.source = ImageSource(
                lowered, wish, self._runtime.policy, self._runtime.source
            )
        source = self._runtime.source

        # On a device batches are taken ahead of the loop, and with no workers torch takes none ahead.
        rule = self._runtime.delivery.depth_rule
        # Fixed where the depth is not, or what a sampler draws from a generator that it shares would
        # depend on it.
        fixed = self.num_workers > 0 or rule is not None
        in_step = fixed and self._runtime.delivery.path in ("torch", "cpu")
        drawn = max(
            self.num_workers * (self.prefetch_factor or 0),
            MOST_DEPTH if rule is not None else self._runtime.delivery.depth or 1,
        )

        def begin(epoch: Epoch | None) -> ImageIterator:
            # The order of torch's iterators: the sampler first, then the seed, then the first index.
            index_batches = iter(self._runtime.position)
            base_seed = self._runtime.position.image_seed(self)
            self._runtime.images = ImageIterator(
                source,
                index_batches,
                base_seed,
                self._may_repeat(),
                self._first_position(),
                length=lambda: len(self._index_sampler),
                # Otherwise the delivery counts what arrives.
                statistics=Statistics(shown=False) if raw else self._runtime.delivery.statistics,
                ready=self._runtime.delivery.statistics,
                # Not what is written into the ring, or rewritten on the CPU.
                pin=self._pins() and (not raw or self._runtime.delivery.path == "streams"),
                epoch=epoch,
                drawn_ahead=drawn if in_step else None,
                depth=rule or self._runtime.delivery.depth or AHEAD,
            )
            return self._runtime.images

        return self._runtime.delivery.iterate_images(
            begin, normalization, self._pins(), self._runtime.position.begin_draws
        )

    def _iterate_arrays(self, arrays: Arrays) -> Any:
        last = self._runtime.arrays
        path = self._runtime.delivery.path
        pinned = self._pins()
        if self.pin_memory and not pinned:
            warn_unpinned()

        def begin() -> ArrayIterator:
            self._runtime.arrays = ArrayIterator(
                arrays,
                self,
                self._runtime.array_memory,
                # Else the delivery counts what it delivers.
                self._runtime.delivery.statistics if path == "torch" else Statistics(shown=False),
                pin=pinned
                and path in ("torch", "streams"),  # a ring is, and what is made anew will be
                # torch's persistent iterator draws its base seed once.
                # An iterator of length 0 is falsy.
                base_seed=last.base_seed if self.persistent_workers and last is not None else None,
            )
            return self._runtime.arrays

        if path == "torch":
            return self._runtime.delivery.adopt(begin())
        return self._runtime.delivery.iterate(
            begin,
            ahead=self.num_workers > 0,
            pin=pinned,
            begin_draws=self._runtime.position.begin_draws,
        )

    def _may_repeat(self) -> bool:
        """Whether the sampler may visit an index twice in an epoch, as far as we can know."""
        sampler = self.sampler
        if type(self.batch_sampler) is not BatchSampler:
            return True
        if type(sampler) is RandomSampler:
            return sampler.replacement or sampler.num_samples > len(self.dataset)  # type: ignore
        # The distributed ones repeat a few at the end, which get the same crop.
        return type(sampler) not in (
            SequentialSampler,
            SubsetRandomSampler,
            DistributedSampler,
            _distributed.ShardSampler,
        )

    def _first_position(self) -> int:
        """Of this epoch's first sample, for the key of samplers that may repeat. A rank has its own, far
        from the others': RepeatAugSampler gives a picture to several ranks at the same place."""
        rank = getattr(self.sampler, "rank", 0)
        start = rank << 40 if isinstance(rank, int) else 0
        return start + self._runtime.position.samples_before()

    def plan(self) -> str:
        """Which path the next epoch will take, and why, in words."""
        where = {
            "torch": "delivered as they are",
            "cpu": "on the CPU",
            "engine": f"delivered to {self._runtime.delivery.device} by the native prefetch thread",
            "streams": f"delivered to {self._runtime.delivery.device} through torch's streams",
        }[self._runtime.delivery.path]
        try:
            lowered = self._lower()
        except Unlowered as reason:
            workers = ""
            if self.num_workers:
                kind = {"process": "processes", "thread": "threads"}[self.worker_backend]
                workers = f", {self.num_workers} worker {kind}"
            return f"Python path: {reason}{workers}; batches are {where}"
        if isinstance(lowered, Arrays):
            threads = array_threads(self.num_workers)
            when = "ahead" if self.num_workers else "when asked for"
            how = "by torch" if _extension.load() is None else f"by {threads} threads"
            return f"arrays: {lowered.name}, gathered {when} {how}; batches are {where}"
        decoding = f"{self.num_workers or own_threads()} decode threads"
        if self._runtime.tuner is not None:
            decoding = f"{self._runtime.tuner.rule.threads} decode threads (auto)"
        return (
            f"native images: {lowered.name}, {len(lowered)} samples, {decoding}; "
            f"{lowered.chain}; batches are {where}"
        )

    def replay(self, index: int) -> dict[str, Any]:
        """What became of sample ``index`` in the epoch begun last, so that Pillow can redo it:
        ``{"box": (left, top, width, height), "hflip": bool, "vflip": bool, "interpolation": str}``.

        Raises ValueError when the native path is not in use or has not come to that sample.
        """
        if self._runtime.images is None:
            raise ValueError(f"no epoch was begun on the native path: {self.plan()}")
        return self._runtime.images.replay(index)

    @property
    def _index_sampler(self) -> Any:
        # The iterators of an epoch, torch's and ours, are made to draw index batches from the position.
        return self._runtime.beginning() or super()._index_sampler

    def _get_iterator(self) -> Any:
        iterator: CountingIterator
        if self.num_workers == 0:
            iterator = SingleProcessIterator(self)
        elif self.worker_backend == "thread":
            iterator = ThreadIterator(self)
        else:
            self.check_worker_number_rationality()
            iterator = self._runtime.rings.iterate(self, MultiProcessIterator)
        self._runtime.torch_iterators.add(iterator)
        return iterator

    def check_worker_number_rationality(self) -> None:
        """torch's warning of more worker processes than processors, where there will be processes: the
        native path and worker_backend="thread" have threads."""
        if self.worker_backend == "thread":
            return
        if self.num_workers > available_threads():
            try:
                self._lower()
            except Unlowered:
                pass
            else:
                return
        super().check_worker_number_rationality()

    def _torch_iterator(self) -> Iterator[Any]:
        if self._iterator is not None and is_of_another_process(self._iterator):
            # Of persistent workers, which serve the process that forked this one.
            abandon(self._iterator)
            self._iterator = None
        if getattr(self._iterator, "_shutdown", False):  # its close(), with persistent workers
            self._iterator = None
            self._runtime.forget_seed()
        path = self._runtime.delivery.path
        ring_is_pinned = path == "engine" and _torch.accelerator_type() is not None
        if (not ring_is_pinned and not (path == "cpu" and self._pins())) or not self.pin_memory:
            return super().__iter__()
        # The ring is pinned already, or what is normalised will be: torch's pin thread would copy every
        # batch once more and take the GIL from the training loop. Its iterator reads the flag once,
        # when it is made.
        self.pin_memory = False
        try:
            return super().__iter__()
        finally:
            self.pin_memory = True

    def stats(self) -> dict[str, Any]:
        """Counters since construction, cheap enough to ask at every step.

        ``path``: "torch" (plain DataLoader), "cpu", "engine" (native prefetch thread) or "streams";
        ``device``; ``batches`` delivered; ``errors`` raised; ``wait_s``: seconds the consumer
        spent in ``next()``, ``edge_wait_s`` of them for the first batch of each epoch and at
        its end; ``step_s``: seconds it spent between two batches. ``stages``: what each stage
        has taken so far, as `report` has it. On the CPU path ``buffers``: ``made``,
        ``recycled``, ``free``, ``in_use`` and ``bytes`` of recycled memory. On the engine path
        ``ring``: ``depth``, ``pinned`` and ``why_not_pinned``, ``ring_bytes``,
        ``slot_growths``, ``bytes`` copied, ``filled``, ``delivered``, ``copied_bytes`` (not
        made in their slot but copied into it; on the native image path only labels),
        ``producer_wait_s`` (ring full), ``consumer_wait_s`` (ring empty), ``pack_s`` (copying
        into slots), ``device_s`` (the device at copying and normalising), ``device_wait_s``
        (the copies waiting for the training step's stream), ``found`` (batches in the ring when
        the consumer came for one, in all the ``asked`` times). On the native image path
        ``images``: ``seen``, ``bad`` and ``last_bad`` samples; ``threads``; ``buffers``:
        recycled memory, as above, unused where pictures are decoded into the ring;
        ``read_bytes``; ``scratch_bytes``: what the decode threads, which all loaders of the
        process share, keep from picture to picture. For arrays ``arrays``: ``threads``,
        ``torch_batches`` that had to be fetched in torch's way because their indices were no
        whole numbers, and ``buffers``. With "auto" ``auto``: ``num_workers`` and ``depth``, each with
        the ``chosen`` number, None where there is nothing to choose, and ``why``.

        With worker processes ``workers``: ``slots_used``, batches that came in a slot; ``fallbacks``,
        batches or parts of one that took torch's way, and ``why`` (reason: how many); ``why_no_ring``;
        ``slots`` of the ring, ``slots_held`` under live tensors, ``slot_bytes`` each can take at most,
        ``ring_bytes`` of memory that all of them use.
        """
        counted = self._runtime.delivery.stats()
        counted["stages"] = {stage.name: stage.as_dict() for stage in find_stages(self)}
        if self.num_workers > 0 and self.worker_backend == "process":
            counted["workers"] = self._runtime.rings.stats()
        if self._runtime.source is not None:
            counted["images"] = {
                "bad": self._runtime.policy.bad,
                "seen": self._runtime.policy.seen,
                "read_bytes": self._runtime.source.times().get("bytes", 0),
                "last_bad": list(self._runtime.policy.last),
                **self._runtime.source.stats(),
            }
        if self._runtime.arrays is not None:
            counted["arrays"] = {
                "threads": self._runtime.arrays.threads,
                **self._runtime.array_memory.stats(),
            }
        chosen = find_choices(self)
        if chosen:
            counted["auto"] = {name: choice.as_dict() for name, choice in chosen.items()}
        return counted

    def report(self) -> Report:
        """Where the time went since the loader was made, and what to do about it: ``print`` it. Cheap
        enough for every epoch. Its last line, ``verdict`` and ``advice``, names what bounds the loop:
        storage, decode, copy, Python, or the GPU (without one, the training step). The rest is machine
        readable as well, see `Report` and docs/tuning.md."""
        return make_report(self)

    def headspace(self, batches: int = 50) -> Headspace:
        """The training loop's speed if data were free: an iterable that gives one batch ``batches``
        times. Run your own loop over it, then ask ``report()`` how much there is to win::

            for images, labels in loader.headspace():
                train_step(images, labels)
            print(loader.report())

        It begins an epoch, takes its first batch and ends it, as a loop with a ``break`` would: do it
        before training, or give `state_dict` back afterwards. Each step gets a copy, so that in-place
        work does no harm. Making it is left out of the time on the CPU; on a device it runs in the
        loop's stream and counts, as long as writing one batch takes. The device is waited for twice:
        after the first tenth of the steps, which is warm-up and not counted, and at the end.

        Raises ValueError for fewer than 2 batches; from the loop what ``iter()`` and ``next()`` raise.
        """
        headspace = Headspace(self, batches, self._runtime.delivery.device)
        self._runtime.headspace = headspace.measured
        return headspace

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """``with loader.trace("out.json"):`` writes a Chrome trace of what fastloader's threads in this
        process, and this loop's waits, do inside: open it in https://ui.perfetto.dev. Written when the
        block ends, by an exception too. Each thread keeps 65,536 events, more are counted only, under
        ``otherData``; worker processes are not in it.

        Raises FileNotFoundError for a path in no folder, Error while another trace is being taken.
        """
        return Trace(path)

    def set_epoch(self, epoch: int) -> None:
        """Numbers the epoch that the next ``iter()`` begins; the ones after it count on from there.
        Samplers and datasets with a ``set_epoch`` are told, also those in persistent workers. With
        ``distributed`` there is no need to: the loader counts from 0."""
        position = self._runtime.position
        with position.lock:
            position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands in the epoch begun last: what it has received, not what was read
        ahead. Small, picklable and JSON-able, unless a sampler or dataset has a state that is not, or,
        with ``in_order=False``, a sampler gives keys that are not. With ``distributed`` it says the same
        about the epoch on every rank that has received as many batches; where an epoch of "exact" ends
        unevenly, some have received more (docs/distributed.md). See docs/resume.md.

        Raises ValueError with ``in_order=False`` in the middle of an epoch of worker threads, of an
        iterable dataset, or with a distributed sampler.
        """
        position = self._runtime.position
        with position.lock:
            return position.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next ``iter()`` gives the batches that would have followed `state_dict`, and, where loader
        or sampler has a generator of its own, so do the epochs after it; with the default shuffle
        restore torch's generator as well (docs/resume.md). ``{}`` changes nothing.

        What was received is skipped on the sampler, not read, whatever the number of workers or threads;
        with ``distributed``, or torch's DistributedSampler, also whatever the number of ranks. Iterators
        that live raise RuntimeError from then on.

        Raises ValueError if the state is of another version, length of dataset, or sampler; Error if the
        loader's own sampler or dataset calls it while ``iter()`` begins. From ``iter()`` or the first
        ``next()``, behind batches that were in flight with ``in_order=False``: ValueError if `set_epoch`
        names another epoch, Error if the sampler gives another order.
        """
        position = self._runtime.position
        with position.lock:
            position.load_state_dict(self, state)
            if state and self._iterator is not None:
                # Persistent workers began before the state.
                self._runtime.delivery.end_iterators()
                self._iterator = None
            if state:
                # Nor do their persistent workers, which torch would have, live on.
                self._runtime.arrays = None

    def close(self) -> None:
        """Ends live iterators and their threads and frees pinned memory. Idempotent. Delivered batches
        stay valid, and iterating afterwards starts anew."""
        self._runtime.delivery.close()
        for iterator in list(self._runtime.torch_iterators):
            iterator.close()
        if self.persistent_workers:
            self._iterator = None  # its workers with it
            self._runtime.arrays = None
            self._runtime.forget_seed()
        self._runtime.rings.close()

    def __enter__(self) -> FastLoader[T_co]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        delivery = self._runtime.delivery
        # Threads and pinned memory stay where they are.
        state["_runtime"] = (
            delivery.arguments,
            delivery.augmentation,
            self._runtime.tuner is not None,
            self._runtime.said,
            # Its own: the decision is about one loader's sampler.
            copy.copy(self._runtime.sharding),
            self._runtime.carried(),
        )
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        arguments, augmentation, automatic, said, sharding, carried = state["_runtime"]
        delivery = Delivery(*arguments)
        if augmentation is not None:
            delivery.augment(augmentation)
        policy = make_policy(state["on_error"], state["max_errors"])
        tuner = ThreadTuner(state["num_workers"]) if automatic else None
        runtime = Runtime(self, delivery, policy, tuner, sharding)
        runtime.said = said
        _distributed.give_own_share(state)
        self.__dict__.update(state, _runtime=runtime)
        runtime.carry_on(carried)


def _begin_tuning(asked: str | AutoWorkers) -> tuple[AutoWorkers, ThreadTuner]:
    """The number of workers to begin with, and what changes the number of threads."""
    if isinstance(asked, str) and asked != "auto":
        raise ValueError(f"num_workers={asked!r}: use a number or 'auto'")
    share = own_threads()
    return AutoWorkers(share), ThreadTuner(share)
