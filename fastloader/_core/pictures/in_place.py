"""Stands in for a dataset of pictures, where Python makes the samples."""

from __future__ import annotations

import bisect
import copy
import logging
import operator
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, get_worker_info

from fastloader._core.batch.augmentation import Augmentation, SampleDraws
from fastloader._core.handoff import Handoff
from fastloader._core.machine import extension
from fastloader._core.machine.process import HomeProcess, ProcessLock
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.observation.statistics import Statistics
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.pictures.decoder import ImageDecoder, PendingBatch, RequestedSamples
from fastloader._core.pictures.finish import Finish
from fastloader._core.pictures.images import (
    CropSeeds,
    DecodeOptions,
    ErrorPolicy,
    NativeImages,
    SeededKeys,
)
from fastloader._core.pictures.notes import (
    LEFT_OUT,
    NotedPolicy,
    PictureNotes,
    leave_notes,
)
from fastloader._core.pictures.repair import ImageRepair
from fastloader.errors import StoppedError
from fastloader.transforms._erasing import Erasing
from fastloader.transforms._job import Job
from fastloader.transforms._pillow import pixel_limits, warn_of_size
from fastloader.transforms._recipe import draw
from fastloader.transforms.tensors import erased, fill

# ---- What stands in the place of a dataset of pictures.


class InPlace(Dataset[Any]):
    """Stands in for ``dataset`` where samples are made: in workers, or on the loop's thread. Index
    batches come as `SeededKeys`. Those that come as the sampler gave them hold a key that is no index of
    a sample, and are for the dataset's own code, which says what is wrong.

    Args:
        dataset: the loader's.
        images: its pictures.
        began: called with this object whenever an epoch begins. It is held weakly.
    """

    # What collates in the place of the loader's collate_fn; None leaves that.
    collate: Callable[[Any], Any] | None = None
    native = False  # whether decode threads make whole pictures
    words = ""  # by whom its pictures are made

    def __init__(
        self, dataset: Any, images: NativeImages, began: Callable[[InPlace], None] | None = None
    ) -> None:
        self.own = dataset  # which workers are to show
        self.parts = list(parts_of(dataset))  # the datasets that hold the samples
        self.images = images
        self._began = None if began is None else weakref.WeakMethod(began)
        self._seeds: CropSeeds | None = None  # of the epoch begun last
        self._home: HomeProcess | None = None
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_began": None, "_seeds": None, "_home": None, "_opened": None}

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is not SeededKeys:
            return self.own[key]
        return self.sample(key.keys, key.numbers[0], key.seeds[0])

    def __getitems__(self, keys: Any) -> list[Any]:
        if type(keys) is not SeededKeys:
            return [self.own[key] for key in keys]
        return [self.sample(*each) for each in keys]

    @abstractmethod
    def sample(self, key: Any, number: int, seed: int) -> Any:
        """Makes the sample of a ``key`` of the sampler's, which means this ``number``."""

    def begin_epoch(self, order: EpochOrder, seed: int) -> CropSeeds:
        """Returns the seeds of the samples. ``seed``: the epoch's."""
        repeats = order.may_repeat or self.images.repeats
        self._seeds = CropSeeds(seed, repeats, order.first_sample)
        began = None if self._began is None else self._began()
        if began is not None:
            began(self)
        return self._seeds

    def replay(self, index: int) -> dict[str, Any]:
        """Returns what was drawn for a sample that was asked for in the epoch begun last."""
        assert self._seeds is not None
        seed, file = self._seeds.of(index), self.file(index)
        chain = self.images.chain_of(file)
        drawn = Job(chain, None).draw_file(file, lambda: self.store.open_rgb(file), seed)
        return chain.replayed(drawn, seed, file)

    def part(self, file: int) -> int:
        """Returns the number of the dataset that a file is of, among ``parts``."""
        return bisect.bisect_right(self.images.starts, file) - 1

    def file(self, number: int) -> int:
        """Returns the file of a sample."""
        indices = self.images.indices
        return number if indices is None else int(indices[number])

    @property
    def store(self) -> Any:
        """The pictures, opened in this process."""
        if self._home is None or not self._home.here:
            self._opened = self.images.store.opened()
            self._home = HomeProcess()
        return self._opened


def parts_of(dataset: Any) -> Iterator[Any]:
    """Gives the datasets of which ``dataset`` is a selection: itself, unless it is a Subset or a
    ConcatDataset."""
    while kind_of(dataset) is Subset:
        dataset = dataset.dataset
    if kind_of(dataset) is not ConcatDataset:
        yield dataset
        return
    for each in dataset.datasets:
        yield from parts_of(each)


# ---- Samples of a dataset of pictures whose transform the native path knows in part.


Steps = Sequence[Callable[[Any], Any]]


class BegunPictures(InPlace):
    """Decodes a picture and changes it as far as ``images.chain`` goes: natively or, where that cannot
    be, by Pillow, with the same draws and the same pixels. The rest of the transform is applied to the
    Pillow picture that comes out.

    What cannot be decoded is the dataset's own sample, with the dataset's own errors. So is everything,
    once somebody has put another transform or other samples into the dataset.

    Args:
        rests: the steps behind the beginning, one after the other, of each dataset that was
            concatenated.
        target_transforms: what is done to a target, of each of them.
        shows_header: whether a step may look at what stands in a file beside its pixels, as
            ``Image.info``: the orientation, a colour profile.

    Attributes: ``erasing``, what is erased in the end by the native path's draws; None for nothing.
    """

    erasing: Erasing | None = None

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        rests: Sequence[Steps],
        target_transforms: Sequence[Callable[[Any], Any] | None],
        shows_header: bool,
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self._rests = rests
        self._target_transforms = target_transforms
        self._shows_header = shows_header
        self._as_read = AsRead(self.parts, images.watched)
        self._made_here: HomeProcess | None = None
        self._made_for: tuple[int, int] | None = None
        self._job: Any = None  # a Job, in this process

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_made_here": None, "_job": None}

    def sample(self, key: Any, number: int, seed: int) -> Any:
        file = self.file(number)
        part = self.part(file)
        if not self._as_read.still(part):
            return self.own[key]
        picture = self.picture(file, part, seed)
        if picture is None:
            return self.own[key]
        label = self.images.label(file, self._target_transforms[part])
        sample = self.images.form.sample(picture, label, file)
        if (look := self.store.begin_look([file])) is not None:
            look.check()
        return sample

    def picture(self, file: int, part: int, seed: int) -> Any | None:
        """Makes what the transform makes of a picture; None for one that cannot be decoded."""
        picture = self._picture(file, seed)
        if picture is not None:
            for step in self._rests[part]:
                picture = step(picture)
            if self.erasing is not None:
                picture = erased(picture, self.erasing, seed, file)
        return picture

    def _picture(self, file: int, seed: int) -> Any | None:
        """Makes the picture with which the rest goes on; None for one that cannot be decoded."""
        picture, info = self._natively(file, seed), None
        if picture is None:
            try:
                opened = self.store.open_rgb(file)
                info = opened.info
                picture = draw.apply_chain(self.images.chain, opened, seed, file)
            except Exception:  # the dataset's own code says what is wrong, or knows how
                return None
        if self.images.chain.grey:
            picture = picture.getchannel(0)
        if self._shows_header:
            picture.info = self.store.info(file) if info is None else info
        return picture

    def _natively(self, file: int, seed: int) -> Any | None:
        if extension.load() is None:
            return None
        store = self.store
        limits = pixel_limits()  # any code may set Image.MAX_IMAGE_PIXELS
        if self._made_here is None or not self._made_here.here or self._made_for != limits:
            self._job, self._made_here, self._made_for = self._make_job(), HomeProcess(), limits
        store.prepare([file])
        try:
            # Where the header is shown, Pillow opens the file besides, and warns.
            return self._job.make_picture(file, seed, warn=not self._shows_header)
        except Warning:  # of a large picture, which the user's filter made an error
            raise
        except Exception:  # Pillow may know how
            return None

    def _make_job(self) -> Job:
        return Job.of_pictures(
            self.images.chain,
            self.store.source,
            seek_indices=self.store.seek_indices,
            upright=self.store.upright,
        )


class AsRead:
    """Remembers the attributes that datasets had when they were read: of each of ``parts``, those of its
    ``names``, which say what its samples are. Another process has copies of them, which it remembers
    when it is first asked."""

    def __init__(self, parts: Sequence[Any], names: Sequence[Sequence[str]]) -> None:
        self._parts, self._names = parts, names
        self._read: list[list[Any]] | None = list(map(self._values, range(len(parts))))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}

    def still(self, part: int) -> bool:
        """Returns whether the attributes of a dataset are the same objects."""
        if self._read is None:
            self._read = list(map(self._values, range(len(self._parts))))
        return all(map(operator.is_, self._read[part], self._values(part)))

    def _values(self, part: int) -> list[Any]:
        own = vars(self._parts[part])
        return [own.get(name) for name in self._names[part]]


# ---- Samples of a dataset of pictures whose whole transform the native path knows.


_making = ProcessLock()  # guards: the decoder of each `RowPictures`


class RowPictures(InPlace):
    """Makes the pictures of an index batch together, on decode threads of the process in which it is.
    The collate_fn gets the samples that the dataset would make. Each picture is a tensor of torch's own,
    into which it was decoded: the user's code may keep it, resize it and change it.

    What cannot be decoded natively is the sample of ``begun``, or else the dataset's own, unless bad
    samples are to be left out or replaced. Everything is the dataset's own once somebody has put another
    transform or other samples into the dataset.

    Args:
        begun: makes a sample by Pillow with the same draws; None if the native path knows of no step
            before the conversion to a tensor.
        target_transforms: what is done to a target, of each dataset that was concatenated.
        wrap: what makes of a row the kind of tensor that the transform ends in; None leaves a Tensor.
        options: how the pictures are decoded.
        loader: says what is done about samples that cannot be read, and what collates them.

    Attributes: ``times``, to which the loop adds what the decode threads have done, wherever they are.
    """

    native = True

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        begun: BegunPictures | None,
        target_transforms: Sequence[Callable[[Any], Any] | None],
        wrap: Callable[[torch.Tensor], Any] | None,
        options: DecodeOptions,
        loader: Loader,
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self._begun = begun
        # The user's code gets tensors that share nothing.
        layout = loader._runtime.layout
        self._apart = layout is None or not layout.joins
        self._target_transforms = target_transforms
        self._wrap = wrap
        self.options = options
        self._on_error = loader.on_error
        self.times: dict[str, float] = {}
        self._as_read = AsRead(self.parts, images.watched)
        self._decoder: ImageDecoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_decoder": None, "times": {}}

    def __getitems__(self, keys: Any) -> list[Any]:
        if type(keys) is not SeededKeys:
            return super().__getitems__(keys)
        return self._samples(list(keys.keys), keys.numbers, keys.seeds)

    def sample(self, key: Any, number: int, seed: int) -> Any:
        return next(iter(self._samples([key], [number], [seed])), LEFT_OUT)

    def received(self, notes: PictureNotes) -> None:
        """Adds what decode threads have done to that of the loader, in the loop."""
        for name, each in notes.times.items():
            self.times[name] = self.times.get(name, 0) + each

    def _samples(self, keys: list[Any], numbers: list[int], seeds: list[int]) -> list[Any]:
        leave_notes(None)
        asked = [self.file(number) for number in numbers]
        if not all(map(self._as_read.still, set(map(self.part, asked)))):
            return [self.own[key] for key in keys]
        notes = PictureNotes(len(keys))
        decoder = self._own_decoder()
        columns, bad = self._columns(asked)
        requested = RequestedSamples(numbers, asked, [], bad)
        pending = PendingBatch(decoder, (None,), requested, seeds, None, apart=self._apart)
        if not pending.batch.wait():
            raise StoppedError("the decode threads of this process were ended")
        failures = pending.batch.failures()
        kept: Sequence[int] = range(len(keys))
        left: set[int] = set()
        if self._on_error == "raise":
            left = _left(failures)
        elif failures or bad:
            kept = self._repaired(decoder, pending, failures, notes, kept)
        rows = self._erased(pending.batch.rows(), asked, seeds)
        samples = []
        for position in kept:
            file, others = pending.files[position], columns[position]
            if file != asked[position]:  # another one is in its place
                others = None
            part = self.part(file)
            row: Any = rows[position]
            if position in left:
                seed = seeds[position if len(seeds) > 1 else 0]
                row = None if self._begun is None else self._begun.picture(file, part, seed)
            elif self._wrap is not None:
                row = self._wrap(row)
            if row is None:
                samples.append(self.own[keys[position]])
                continue
            label = self.images.label(file, self._target_transforms[part])
            samples.append(self.images.form.sample(row, label, file, others))
        pending.check()
        notes.times = decoder.new_times()
        leave_notes(notes)
        return samples

    def _own_decoder(self) -> ImageDecoder:
        """Returns the decoder of this process."""
        with _making.lock:
            decoder = self._decoder
            if decoder is None or not decoder.serves(self.images, self.options):
                policy = ErrorPolicy("raise", None)
                decoder = ImageDecoder(self.images, self.options, policy, decoder)
                self._decoder = decoder
            return decoder

    def _columns(
        self, files: list[int]
    ) -> tuple[Sequence[tuple[Any, ...] | None], dict[int, Exception]]:
        """Reads the columns of samples together; None for those that read their own, and say what is
        wrong with them. Returns with them what was raised for those that are to be left out or
        replaced."""
        reader = self.images.form.reader
        none: list[None] = [None] * len(files)
        if reader is None:
            return none, {}
        try:
            return reader(files), {}
        except Exception:
            if self._on_error == "raise":
                return none, {}
        return self.images.form.one_by_one(reader, files)

    def _repaired(
        self,
        decoder: ImageDecoder,
        pending: PendingBatch,
        failures: Sequence[tuple[int, str, Any]],
        notes: PictureNotes,
        all_of_it: Sequence[int],
    ) -> Sequence[int]:
        """Repairs a batch, and returns the positions to keep."""
        # Worker threads share the decoder: each batch has a policy of its own.
        policy = NotedPolicy(self._on_error)
        repairing = copy.copy(decoder)
        repairing.policy = policy
        repair = ImageRepair(repairing)
        try:
            kept = repair.done(pending, failures)
        finally:
            repair.stop()
        notes.bad = policy.noted
        return all_of_it if kept is None else kept

    def _erased(
        self, rows: list[torch.Tensor], files: list[int], seeds: list[int]
    ) -> list[torch.Tensor]:
        erasing = self.images.chain.erasing
        if erasing is None:
            return rows
        if self.images.chain.size is None:
            for place, (row, file) in enumerate(zip(rows, files, strict=True)):
                if row.numel():
                    seed = seeds[0] if len(seeds) == 1 else seeds[place]
                    erased(row, erasing, seed, file, inplace=True)
            return rows
        boxes, drawn = erasing.draw(seeds, files, *self.images.chain.size)
        for place, row in enumerate(rows):
            fill(row, erasing, boxes[place], drawn[place : place + 1])
        return rows


def _left(failures: Sequence[tuple[int, str, Any]]) -> set[int]:
    """Returns the positions that the decode threads could not make. A large picture gives Pillow's
    warning, which the user's filter may make an error."""
    left = set()
    for position, reason, kind in failures:
        if kind is extension.native.FailureKind.LARGE:
            warn_of_size(reason)
        else:
            left.add(position)
    return left


# ---- The user's dataset, as its worker shows it.


class ShowingOwn:
    """A worker_init_fn that shows the loader's own dataset to the user's code, in `get_worker_info`, and
    then calls ``init``, the loader's."""

    def __init__(self, in_place: Any, init: Callable[[int], None] | None) -> None:
        self._in_place = in_place
        self._init = init

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        if info is not None:
            # It refuses to have its attributes set, because the user's code is to leave them alone.
            object.__setattr__(info, "dataset", self._in_place.own)
        if self._init is not None:
            self._init(worker)


# ---- Batches of pictures without the native module.


_log = logging.getLogger("fastloader")


class PillowPictures(InPlace):
    """Makes the batches of the native path where there is no native module: the same draws, and the
    same pixels, by Pillow and torch.

    Args:
        images: pictures whose whole transform is known, and what a known collate_fn mixes.
        collate_fn: the loader's, for samples that are the dataset's own.
    """

    def __init__(
        self,
        dataset: Any,
        images: NativeImages,
        collate_fn: Callable[[Any], Any],
        began: Callable[[InPlace], None] | None = None,
    ) -> None:
        super().__init__(dataset, images, began)
        self._collate_fn = collate_fn

    def __getitems__(self, keys: Any) -> list[Any]:
        made = super().__getitems__(keys)
        return _Made(made) if type(keys) is SeededKeys else made

    def sample(self, key: Any, number: int, seed: int) -> Any:
        """Returns (pixels, file, the sample's own file, seed)."""
        own = self.file(number)
        file, picture = self._opened_one(own)
        made = draw.apply_chain(self.images.chain_of(file), picture, seed, own)
        return np.asarray(made), file, own, seed

    def _opened_one(self, file: int) -> tuple[int, Any]:
        """Opens a file or, by timm's rule, one of those that follow it."""
        attempts = self.images.attempts
        for _ in range(attempts):
            try:
                return file, self.store.open_rgb(file)
            except OSError as error:
                if attempts == 1:
                    raise
                last = error
                _log.warning("fastloader: skipped %s: %s", self.store.name(file), error)
                dataset = self.parts[self.part(file)]
                if hasattr(dataset, "skipped"):  # that of compat.timm counts
                    dataset.skipped += 1
                file = self.images.next_file(file)
        raise RuntimeError(f"Failed to load {attempts} consecutive samples") from last

    def collate(self, samples: Any) -> Any:
        if type(samples) is not _Made:
            return self._collate_fn(samples)
        pixels, files, own, seeds = (list(each) for each in zip(*samples, strict=True))
        chain = self.images.chain
        rgb = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        images = rgb[:, : chain.channels].contiguous()  # those of a grey picture are equal
        finish = self._finish()
        if chain.floating and not finish.normalizes:
            images = chain.normalization.applied(images)
        return finish.finished(images, files, own, seeds, self.images.form.others(files))

    def _finish(self) -> Finish:
        """Makes a `Finish` for one batch, because worker threads are at several batches at a time, and
        its draws know one batch's samples."""
        chain, mixing = self.images.chain, self.images.mixing
        erasing = chain.erasing if chain.floating else None
        draws = None
        if erasing is not None or mixing is not None:
            draws = SampleDraws(Augmentation(erasing, mixing))
        handoff = Handoff(
            Statistics(),
            held_by_loop=True,
            normalization=chain.normalization if chain.floating else None,
        )
        return Finish(self.images, handoff, draws, pin=False)


class _Made(list[Any]):
    """The samples of a batch, before they are finished together."""
