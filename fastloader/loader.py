"""``FastLoader``: torch's DataLoader, whose batches arrive on the device."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import torch
from torch.utils.data import Dataset, Sampler

from fastloader._core.loader_stats import LoaderStats
from fastloader._core.machine.eager import eager
from fastloader._core.machine.limits import WORKER_PROCESSES, warn_of_workers
from fastloader._core.machine.messages import callers, callers_in
from fastloader._core.observation.headspace import Headspace
from fastloader._core.observation.report import Report, make_report
from fastloader._core.observation.trace import Trace
from fastloader._core.options import (
    LoaderOptions,
    assignments,
    check_picture_arguments,
    workers_to_begin_with,
)
from fastloader._core.order.loader import AutoWorkers, Loader
from fastloader._core.runtime import Runtime
from fastloader._core.show_batch import show_batch
from fastloader._core.sources.python.arguments import for_torch, takes_newer

# ---- What a FastLoader says to ``accelerator.prepare``, which would leave it out.


_READER = ("accelerate.accelerator",)


class AccelerateNotice:
    """The class attribute that Accelerate reads before it prepares a loader. It is False: the loader is
    not prepared yet. When Accelerate reads it for the first time, a warning says that Accelerate makes a
    plain DataLoader, and what to write instead. An attribute of that name on the loader itself comes
    first."""

    def __init__(self) -> None:
        self.warned = False

    def __get__(self, loader: object | None, kind: type | None = None) -> Any:
        if loader is None:
            return self
        if not self.warned and next(callers_in(_READER), None) is not None:
            self.warned = True
            level = 0
            for depth, frame in enumerate(callers(), 1):
                if frame.f_globals.get("__name__") in _READER:
                    level = depth + 1  # of the user's line
            warnings.warn(
                f"accelerator.prepare makes a plain DataLoader of a {type(loader).__name__}, without "
                "device, normalisation and native path. Write: from fastloader.compat.accelerate import "
                "prepare, and loader = prepare(loader, accelerator)",
                RuntimeWarning,
                stacklevel=level,
            )
        return False


# ---- What the signatures of a loader's subclasses say.


class ShownArguments:
    """Base class that completes its subclasses' signatures: the signature of an ``__init__`` that passes
    ``**kwargs`` on names the arguments that it passes.

    Frameworks make a loader again from those attributes that are arguments by the signature. Where it
    has ``**kwargs``, Lightning adds the arguments of DataLoader, and so would lose all others."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        init = cls.__dict__.get("__init__")
        if not inspect.isfunction(init) or hasattr(init, "__signature__"):
            return
        own = inspect.signature(init)
        parameters = [*own.parameters.values()]
        if parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
            return
        below: Any = super(cls, cls).__init__
        passed = [
            each
            for each in inspect.signature(below).parameters.values()
            if each.name not in own.parameters and each.kind not in _VARIADIC
        ]
        # `*args` stands for those that may be given by their positions, unless it is behind arguments
        # that may be left out.
        if inspect.Parameter.VAR_POSITIONAL in [each.kind for each in parameters] and not any(
            _may_be_left_out(each) for each in parameters
        ):
            parameters = [each for each in parameters if each.kind is not each.VAR_POSITIONAL]
        else:
            passed = [_by_name(each) for each in passed]
        init.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=sorted([*parameters, *passed], key=lambda each: each.kind)
        )


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _may_be_left_out(each: inspect.Parameter) -> bool:
    positional = each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    return positional and each.default is not each.empty


def _by_name(each: inspect.Parameter) -> inspect.Parameter:
    """Returns the parameter as a keyword argument with a default, because the subclass may give it
    itself."""
    default = None if each.default is each.empty else each.default
    return each.replace(kind=each.KEYWORD_ONLY, default=default)


# ---- What ``repr()`` of a loader says.


def shown_loader(loader: FastLoader[Any]) -> str:
    """Returns the ``repr()`` of a loader: ``FastLoader(ImageFolder of 500 samples, batch_size=64,
    num_workers=8: <the first line of its plan>)``. It decides nothing and raises nothing, because
    debuggers and log messages also show loaders that are half made."""
    name = type(loader).__name__
    try:
        dataset = type(loader.dataset).__name__
        if hasattr(loader.dataset, "__len__"):
            dataset += f" of {len(loader.dataset)} samples"
        facts = f"{dataset}, batch_size={loader.batch_size}, num_workers={loader.num_workers}"
        sharding = loader._runtime.sharding
        if sharding is not None and not sharding.decided:  # which plan() would do
            return f"{name}({facts}, distributed='auto')"
        return f"{name}({facts}: {loader._runtime.summary(loader)})"
    except Exception:
        return object.__repr__(loader)


T_co = TypeVar("T_co", covariant=True)


class FastLoader(Loader, ShownArguments, Generic[T_co]):
    """A drop-in ``torch.utils.data.DataLoader`` whose batches arrive on the device, normalised.

    Every argument of DataLoader keeps its meaning, default and errors, and the order of samples is the
    same for the same seed. One exception: with ``num_workers=0``, random transforms and no
    ``generator=``, natively decoded pictures come in another order from the second epoch on. Without
    the arguments below you get what DataLoader gives, except that known image folders draw other crops
    (``native=False`` gives DataLoader's). docs/reference.md has more on each argument. ::

        loader = FastLoader(dataset, batch_size=256, shuffle=True, num_workers=8,
                            device="cuda", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
                            dtype=torch.bfloat16, channels_last=True)
        for images, labels in loader:  # both on the GPU, images normalised
            ...

    Args:
        num_workers: on the native path the number of decode threads, of which 0 (default) means one for
            each processor of this rank, and at most 16 for each processor start; elsewhere as with
            DataLoader. ``"auto"`` begins with one thread or worker for each processor, and fits the
            threads to the loop (docs/tuning.md).
        device: None (default) leaves batches on the CPU, ``"auto"`` takes them to the accelerator if
            there is one, and a device such as ``"cuda:1"`` must be there (ValueError).
        mean, std: one number per channel (1 to 4), in 0..1; one of the two alone means mean 0 or std 1.
            Given, every *image leaf* of a batch, that is a uint8 tensor of 4 dimensions with
            ``len(mean)`` channels (NCHW or NHWC), arrives as ``(x/255 - mean)/std`` of shape
            (N, C, H, W), and clips of 5 dimensions as (N, T, C, H, W). A known transform that ends in a
            Normalize of the same values counts once. None for both (default) leaves images alone, unless
            dtype is given.
        dtype: normalised images are torch.float32 (default), torch.float16 or torch.bfloat16. Given
            without mean and std, it scales images to 0..1, as torchvision's ToTensor does.
        channels_last: True gives normalised images, and each frame of clips, in ``torch.channels_last``
            memory format, and False (default) as contiguous NCHW.
        image_key: the index or key of the image in the batch, or a list of these, for batches in which
            something else is shaped like an image; None (default) takes every image leaf.
        batch: how samples are laid out without a collate_fn. "stack" (default) is default_collate. Else
            the outermost container of the samples is transposed: "list" leaves tensors in lists, "pad"
            gives pictures (C, H, W) as a `Padded` and the rest as "list", "nested" gives jagged tensors,
            and "packed" a `Packed` (docs/batches.md). ValueError together with a collate_fn.
        pad_to, pad_value: with batch="pad", height and width are rounded up to multiples of pad_to
            pixels, 1 by default, and padding has pad_value, 0 by default, after normalisation.
        depth: how many batches are in the pinned ring and on the device, or decoded ahead on the CPU.
            None (default) is 3, or 2 with ``num_workers=0`` and no native images; ``"auto"`` begins with
            3 and ends at 16.
        native: True (default) lets C++ threads make the batches of the image folders and arrays that
            they know, and False runs the dataset's own Python code. `plan` says which, and why. With
            "require", pictures and arrays that Python makes are a ValueError (docs/native.md).
        decode: how native pictures are decoded. "exact" (default) gives Pillow's pixels, "whole" also
            fails wherever Pillow would, and "fast" is approximate if a picture shrinks to half or less.
        truncated: "error" (default) refuses a native picture whose bytes end early, and "pad" makes the
            missing rest grey.
        on_error: for a native sample that cannot be read: "raise" (default) gives its exception in the
            batch's place, "skip" shrinks the batch, and "replace" draws another sample.
        max_errors: how many samples may be skipped or replaced in the loader's life, as a count (int) or
            a share of the samples seen (float); None (default) is any number.
        distributed: None (default) leaves sharding to your sampler. ``"auto"``, ``"pad"``, ``"drop"``
            and ``"exact"`` give each rank its share and count the epochs (docs/distributed.md).
        worker_backend: "process" (default), "thread" for Python threads in the place of worker
            processes, which pays for datasets that release the GIL, or "ray" for ``num_workers`` actors
            on any machine of a Ray cluster (docs/ray.md).
        worker_method: deprecated, and gone in 0.4: give worker_backend, "process" in the place of
            "multiprocessing". None (default) follows worker_backend.
        ray_options: what each actor asks of Ray, as ``{"num_cpus": 4, "resources": {"images": 1}}``;
            None (default) is ``{"num_cpus": 1}``. An actor decodes on as many threads as num_cpus.

    Raises:
        TypeError, ValueError: at construction for an argument that cannot work; from ``next()``, in the
            batch's place, for a batch that cannot be delivered. The loader goes on.
        ImportError: at construction, if worker_backend is "ray" and Ray is not installed.
        Error: from ``iter()``, if it is "ray" and ``ray.init()`` was not called.
        BackendError: from ``next()`` when the device failed.
        Exception: whatever dataset, sampler and collate_fn raise, in order, with its traceback.
    """

    _runtime: Runtime

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
        image_key: int | str | Sequence[int | str] | None = None,
        batch: Literal["stack", "list", "pad", "nested", "packed"] = "stack",
        pad_to: int = 1,
        pad_value: float = 0,
        depth: int | Literal["auto"] | None = None,
        native: bool | Literal["require"] = True,
        decode: Literal["exact", "whole", "fast"] = "exact",
        truncated: Literal["error", "pad"] = "error",
        on_error: Literal["raise", "skip", "replace"] = "raise",
        max_errors: int | float | None = None,
        worker_backend: Literal["process", "thread", "ray"] = "process",
        distributed: Literal["auto", "pad", "drop", "exact"] | None = None,
        worker_method: Literal["multiprocessing", "thread", "ray"] | None = None,
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        options = LoaderOptions(locals())
        # Not by setattr: a subclass may have a property of the name that takes nothing.
        self.__dict__.update(vars(options))
        self._runtime = runtime = Runtime(self, options)
        sampler, shuffle = runtime.share_out(dataset, shuffle, sampler, batch_sampler, generator)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            workers_to_begin_with(num_workers),
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
            **for_torch(self, in_order),
        )
        check_picture_arguments(self)
        runtime.begin_sharding(dataset, shuffle, sampler, batch_sampler)
        runtime.check_required(self)

    # --- what torch, subclasses and frameworks expect ----------------------------------------------

    _is_accelerate_prepared = AccelerateNotice()

    @property
    def sampler(self) -> Any:
        """The sampler of indices, from which ``batch_sampler``, if there is one, makes groups."""
        self._runtime.decide_sharding(self)
        return self.__dict__["sampler"]

    @sampler.setter
    def sampler(self, value: Any) -> None:
        self.__dict__["sampler"] = value
        self._runtime.samplers_replaced()

    @property
    def batch_sampler(self) -> Any:
        """The sampler of the batches' indices; None with ``batch_size=None``."""
        self._runtime.decide_sharding(self)
        return self.__dict__["batch_sampler"]

    @batch_sampler.setter
    def batch_sampler(self, value: Any) -> None:
        self.__dict__["batch_sampler"] = value
        self._runtime.samplers_replaced()

    def __setattr__(self, name: str, value: Any) -> None:
        for assigned, its_value in assignments(self, name, value).items():
            super().__setattr__(assigned, its_value)
            if assigned == "num_workers":  # only now, because a subclass's property may refuse it
                self._runtime.auto_workers = its_value if type(its_value) is AutoWorkers else None

    @property
    def _index_sampler(self) -> Any:
        # The iterators of an epoch, torch's and ours, are made to draw index batches from the position.
        return self._runtime.beginning() or super()._index_sampler

    def _get_iterator(self) -> Any:
        return self._runtime.torch_iterator(self)

    def check_worker_number_rationality(self) -> None:
        """Gives torch's warning of more workers than processors. If the next epoch's workers are not
        processes, the warning says what they are."""
        kind = self._runtime.kind_of_workers(self)
        if kind == WORKER_PROCESSES:
            super().check_worker_number_rationality()
        elif kind:
            warn_of_workers(self.num_workers, kind)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runtime": self._runtime.for_copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        runtime = Runtime.of_copy(self, state)
        self.__dict__.update(state, _runtime=runtime)

    def __repr__(self) -> str:
        return shown_loader(self)

    def __enter__(self) -> FastLoader[T_co]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- what users call ---------------------------------------------------------------------------

    @eager
    def __iter__(self) -> Any:
        return self._runtime.iterate(self)

    def plan(self) -> str:
        """Explains in words how the next epoch's batches will be made and delivered, and why. Behind the
        first line, each part of a sample has a line: where it is made, and the first thing that keeps it
        from being made natively (docs/native.md)."""
        return self._runtime.plan(self)

    @property
    def is_native(self) -> bool:
        """Whether native threads make every picture or array of the next epoch's batches, to the end of
        its transform; `plan` says why not. Pictures that a dataset of your own gives as `EncodedImage`
        are known once a batch has come: until then it is False (docs/native.md)."""
        return self._runtime.is_native(self)

    def replay(self, index: int) -> dict[str, Any]:
        """Returns what was drawn for sample ``index`` in the epoch begun last, so that Pillow can redo
        it: ``{"box": (left, top, width, height), "hflip": bool, "vflip": bool, "interpolation": str,
        "steps": [(name, parameters), ...]}``. `fastloader.transforms.apply` redoes the steps.

        Raises ValueError when no step of the transform is known, or the epoch has not come to that
        sample.
        """
        return self._runtime.replay(self, index)

    def stats(self) -> LoaderStats:
        """Returns the counters since construction. It is cheap enough for every step. `LoaderStats` has
        their names and types, and docs/tuning.md says what each counts."""
        return self._runtime.stats(self)

    def report(self) -> Report:
        """Reports where the time went since the loader was made, and the one change that would help
        most: ``print`` it. It is cheap enough for every epoch (docs/tuning.md)."""
        return make_report(self._runtime.observe(self))

    def headspace(self, batches: int = 50) -> Headspace:
        """Returns an iterable that gives one batch ``batches`` times, so that your loop shows its speed
        if data were free. Run the loop over it, then ask `report` how much there is to win
        (docs/tuning.md). The first tenth is warm-up, and fewer than five steps behind it are not
        reported.

        It begins an epoch of its own, so use it before training, or keep a `state_dict`. Raises
        ValueError for fewer than 2 batches.
        """
        return self._runtime.headspace(self, batches)

    def show_batch(self, batch: Any = None, count: int = 16) -> Any:
        """Draws a batch's first ``count`` pictures, normalisation undone, and returns the matplotlib
        Figure. Without ``batch``, an epoch of its own gives one, and this loader stays as it is
        (docs/tuning.md).

        Raises ValueError for a batch without pictures, ImportError without matplotlib.
        """
        return show_batch(self, batch, count)

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Records fastloader's threads and the loop's waits inside ``with loader.trace("out.json"):`` as
        a Chrome trace for https://ui.perfetto.dev (docs/tuning.md).

        Raises FileNotFoundError for a path in no folder, Error while another trace is being taken.
        """
        return Trace(path)

    def set_epoch(self, epoch: int) -> None:
        """Numbers the epoch that the next ``iter()`` begins; later epochs count on from there. Samplers
        and datasets with a ``set_epoch`` are told, also those in persistent workers. With
        ``distributed`` you need not call it: the loader counts from 0."""
        self._runtime.position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loop stands in the epoch begun last: what the loop has received, not what
        was read ahead. The state is small and picklable, and usually JSON-able (docs/resume.md).

        Raises ValueError with ``in_order=False`` in the middle of an epoch of worker threads, of an
        iterable dataset, or with a distributed sampler.
        """
        return self._runtime.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next ``iter()`` give the batches that would have followed `state_dict`. What was
        received is skipped on the sampler, not read; live iterators raise RuntimeError from then on.
        ``{}`` changes nothing. With the default shuffle, restore torch's generator as well
        (docs/resume.md).

        Raises ValueError if the state is of another version, length of dataset, or sampler; Error if the
        loader's own sampler or dataset calls it while ``iter()`` begins.
        """
        self._runtime.load_state_dict(self, state)

    def close(self) -> None:
        """Ends live iterators and their threads and frees pinned memory. Idempotent. Delivered batches
        stay valid, and iterating afterwards starts anew."""
        self._runtime.close(self)
