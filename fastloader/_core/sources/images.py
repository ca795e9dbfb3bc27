"""Batches of pictures that native threads decode."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

from fastloader._core.batch.augmentation import Augmentation, EpochDraws, SampleDraws
from fastloader._core.handoff import Handoff, SamplePart, Source, StandIn
from fastloader._core.machine import devices, extension
from fastloader._core.machine.limits import (
    DECODE_THREADS,
    MOST_DECODE_THREADS,
    counted,
    decode_threads,
)
from fastloader._core.observation.statistics import LOOP, AutoChoice, Figures, Stage, Statistics
from fastloader._core.observation.tuning import MOST_DEPTH, DepthRule, ThreadTuner
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.generators import is_stateful
from fastloader._core.order.loader import (
    AutoWorkers,
    Loader,
    auto_workers,
    collation_of,
    decode_threads_beside,
)
from fastloader._core.pictures.decoder import ImageDecoder, jpeg_counts
from fastloader._core.pictures.finish import Finish
from fastloader._core.pictures.images import CropSeeds, DecodeOptions, ErrorPolicy, NativeImages
from fastloader._core.pictures.in_place import BegunPictures, InPlace, PillowPictures, RowPictures
from fastloader._core.pictures.sample_parts import native_parts
from fastloader._core.sources.arguments import (
    check_extension,
    check_fetch,
    check_native,
    check_truncated,
)
from fastloader._core.sources.image_iterator import ImageIterator, Remains
from fastloader._core.sources.reading import KnownSamples
from fastloader._core.sources.recognize import (
    holds_images,
    recognize_beginning,
    recognize_images,
    recognize_samples,
)
from fastloader._core.sources.seeding import only_seeds
from fastloader.errors import NotNative
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization

# ---- Batches of pictures that native threads decode.


class ImageSource(Source):
    """Makes batches of pictures, which native threads read, decode and transform."""

    def __init__(self, statistics: Statistics, policy: ErrorPolicy) -> None:
        self._statistics = statistics
        self.policy = policy
        self.decoder: ImageDecoder | None = None  # kept over the epochs as long as it serves
        # The iterator of the epoch begun last, if it lives on, and what is known without it.
        self._last: tuple[weakref.ref[ImageIterator], Remains] | None = None
        # What knows the draws of the epoch begun last, for replay().
        self._replayed: Remains | InPlace | None = None
        self._tuner: tuple[AutoWorkers, ThreadTuner] | None = None
        self._locates = LOOP  # the thread that found the records of the last epoch
        # What makes pictures where the samples are made, and what its decode threads have done so far.
        self._last_rows: RowPictures | None = None
        self._times_of_rows: dict[str, float] = {}

    def plan(self, loader: Loader, wanted: Normalization | None) -> ImagePlan | None:
        if loader.worker_backend == "ray":  # its actors have decode threads
            return None
        images = self.recognized(loader, wanted)
        return None if images is None else ImagePlan(self, images, loader, wanted)

    def recognized(self, loader: Loader, wanted: Normalization | None) -> NativeImages | None:
        """Returns the pictures of the loader's dataset; None if it holds none. ``wanted``: what the
        delivery will do to them.

        Raises:
            NotNative: with the reason in words, if decode threads cannot make the batches.
        """
        if not holds_images(loader.dataset):
            return None
        check_native(loader)
        check_extension()
        check_truncated(loader)
        return self._recognized(loader, wanted)

    def _recognized(self, loader: Loader, wanted: Normalization | None) -> NativeImages:
        images = recognize_images(loader)
        own = images.chain.normalization_for(None)
        if wanted is not None and own is not None and not own.same_values(wanted):
            raise NotNative(
                "the transform ends in floats, which mean, std or dtype would normalise once more"
            )
        _check_channels(images, wanted)
        return images

    def stand_in(self, loader: Loader, wanted: Normalization | None, reason: str) -> StandIn | None:
        """Does as `Source.stand_in`, for pictures whose transform is known, if only in part."""
        dataset = loader.dataset
        if not loader.native or not holds_images(dataset) or is_stateful(dataset):
            return None  # workers ask the dataset for its state
        init = loader.worker_init_fn
        if init is not None and loader.num_workers and not only_seeds(init):
            return None  # it may change the dataset in the worker
        if extension.load() is None:
            try:
                images = self._recognized(loader, wanted)
            except NotNative:
                pass
            else:
                mixed = "" if images.mixing is None else ", mixed"
                reason = f"{reason}: {images.words}{mixed}, with the native path's draws"
                made = PillowPictures(dataset, images, collation_of(loader), self.note)
                made.words = "made by Pillow"
                return StandIn(made, reason)
        try:
            check_fetch()
            if extension.load() is not None:
                return self._rows(loader, wanted, reason)
            images, known = recognize_samples(dataset)
            begun = self._begun(dataset, images, known)
            if begun is not None:
                reach = known.beginnings[0].reach
                begun.words = "made by Pillow"
                return StandIn(begun, f"{reason}: with the native path's draws {reach}")
        except NotNative:
            pass
        try:
            check_fetch()
            images, reading = recognize_beginning(dataset)
        except NotNative:
            return None
        beginnings = reading.beginnings
        begun = BegunPictures(
            dataset,
            images,
            [each.rest for each in beginnings],
            reading.of_targets,
            bool(beginnings[0].unknown),
            self.note,
        )
        reach = beginnings[0].reach
        if extension.load() is None:
            begun.words = "made by Pillow and Python"
            return StandIn(begun, f"{reason}: with the native path's draws {reach}")
        begun.words = f"made natively {reach}"
        return StandIn(begun, f"native {reach}{_indexed(images)} ({reason})")

    def _begun(
        self, dataset: Any, images: NativeImages, reading: KnownSamples
    ) -> BegunPictures | None:
        """Makes what makes samples by Pillow with the draws of ``images``, whose transform is known to
        its end; None if no step stands before the conversion to a tensor, or transforms differ."""
        beginnings = reading.beginnings
        alike = all(each.chain == beginnings[0].chain for each in beginnings)
        if not beginnings or not alike or len(beginnings) != len(reading.of_targets):
            return None
        of_begun = dataclasses.replace(images, chain=beginnings[0].chain, chains=())
        rests = [each.rest for each in beginnings]
        begun = BegunPictures(dataset, of_begun, rests, reading.of_targets, False, self.note)
        begun.erasing = images.chain.erasing
        return begun

    def _rows(self, loader: Loader, wanted: Normalization | None, reason: str) -> StandIn:
        """Makes pictures where the samples are made. Raises NotNative if the transform is not known to
        its end."""
        check_truncated(loader)
        images, reading = recognize_samples(loader.dataset)
        _check_channels(images, wanted)
        begun = self._begun(loader.dataset, images, reading)
        threads = decode_threads_beside(loader)
        decoding = counted(threads, "decode thread")
        if loader.num_workers and loader.worker_backend != "thread":
            decoding = f"{decoding} in each worker"
        options = DecodeOptions(
            threads,
            None,
            planar=reading.end.planar,
            decode=Decode(loader.decode, loader.truncated),
            table=reading.end.table,
        )
        rows = RowPictures(
            loader.dataset,
            images,
            begun,
            reading.of_targets,
            reading.wrap,
            options,
            loader,
            self.note,
        )
        rows.times = self._times_of_rows
        rows.words = f"made natively, {decoding}, a tensor for each sample"
        then = "" if reason == str(loader._runtime.layout) else "then Python: "
        return StandIn(rows, f"{_words(images, decoding, loader)}; {then}{reason}")

    def note(self, replayed: InPlace) -> None:
        """Notes what knows the draws of the epoch that begins, for `replay`."""
        self._replayed = replayed
        if isinstance(replayed, RowPictures):
            self._last_rows = replayed

    def tuner(self, workers: AutoWorkers | None) -> ThreadTuner | None:
        """Returns the tuner that fits the number of threads to the loop; None without
        ``num_workers="auto"``."""
        if workers is None:
            self._tuner = None
        elif self._tuner is None or self._tuner[0] is not workers:
            self._tuner = workers, ThreadTuner(int(workers))
        return None if self._tuner is None else self._tuner[1]

    def begin(
        self,
        images: NativeImages,
        loader: Loader,
        order: EpochOrder,
        handoff: Handoff,
        draws: SampleDraws | None,
        pin: bool,
    ) -> ImageIterator:
        """Begins one epoch. ``draws``: the plan's."""
        finish = Finish(images, handoff, draws, pin)
        late = finish.normalizes
        options = DecodeOptions(
            decode_threads(loader.num_workers),
            None if late else handoff.normalization,
            planar=not (late or handoff.channels_last),
            decode=Decode(loader.decode, loader.truncated),
            tuner=self.tuner(auto_workers(loader)),
        )
        if self.decoder is None or not self.decoder.serves(images, options):
            self.decoder = ImageDecoder(images, options, self.policy, self.decoder)
        self._locates = "the pump" if handoff.pumped else LOOP
        # Draws come in the order of torch's iterators: the sampler, then the seed, then the first index.
        index_batches = order.index_batches()
        repeats = order.may_repeat or images.repeats
        seeds = CropSeeds(order.epoch_seed(), repeats, order.first_sample)
        iterator = ImageIterator(
            self.decoder,
            index_batches,
            seeds,
            length=order.index_sampler.__len__,
            handoff=handoff,
            finish=finish,
            drawn_ahead=_drawn_ahead(loader, handoff),
            # A thread of the delivery's would draw the first index batch at any time.
            late=loader.num_workers == 0 and not handoff.reads_ahead,
        )
        self._last = weakref.ref(iterator), iterator.remains
        self._replayed = iterator.remains
        return iterator

    @property
    def last(self) -> ImageIterator | Remains | None:
        """The iterator of the epoch begun last, or what remains of it."""
        if self._last is None:
            return None
        iterator, remains = self._last[0](), self._last[1]
        return remains if iterator is None else iterator

    def replay(self, index: int) -> dict[str, Any] | None:
        return None if self._replayed is None else self._replayed.replay(index)

    def figures(self, loader: Loader) -> Figures:
        decoder, rows = self.decoder, self._last_rows
        figures = Figures(bad_samples=self.policy.bad)
        if rows is not None:
            threads = rows.options.threads
            if loader.worker_backend != "thread":
                threads *= max(1, loader.num_workers)
            times = self._times_of_rows
            stages = _stages_of(times, rows.images, rows.options, threads)
            figures = Figures(
                stages=tuple(stages),
                threads=threads,
                bytes_read=int(times.get("bytes", 0)),
                packed=rows.images.store.packed,
            ).joined(figures)
        if decoder is None:
            return figures
        tuner = self.tuner(auto_workers(loader))
        return figures.joined(
            Figures(
                stages=tuple(self._stages(decoder)),
                threads=decoder.quota.threads,
                depth=None if self.last is None else self.last.ahead,
                ahead=True,
                bytes_read=int(decoder.times().get("bytes", 0)),
                packed=decoder.store.packed,
                workers=None if tuner is None else AutoChoice(tuner.rule.threads, tuner.rule.why),
            )
        )

    def _stages(self, decoder: ImageDecoder) -> Iterator[Stage]:
        located, batches = self._statistics.total("locate")
        if batches:
            yield Stage("locate", located, batches, "batch", self._locates, bound="storage")
        threads = decoder.quota.threads
        yield from _stages_of(decoder.times(), decoder.images, decoder.options, threads)

    def stats(self, loader: Loader) -> dict[str, Any]:
        decoder, rows = self.decoder, self._last_rows
        if decoder is None and rows is None:
            return {}
        counted = {
            "bad": self.policy.bad,
            "seen": self.policy.seen,
            "last_bad": list(self.policy.last),
        }
        if decoder is None:
            assert rows is not None
            times = self._times_of_rows
            more = {"jpegs": jpeg_counts(times), "threads": rows.options.threads}
        else:
            times, more = decoder.times(), decoder.stats()
        return {"images": {**counted, "read_bytes": times.get("bytes", 0), **more}}


def _check_channels(images: NativeImages, wanted: Normalization | None) -> None:
    """Raises NotNative if the delivery's mean and std are of other pictures than these."""
    channels = images.chain.channels
    if wanted is not None and wanted.mean is not None and len(wanted.mean) != channels:
        raise NotNative(
            f"mean and std are of {len(wanted.mean)} channels, the images have {channels}"
        )


def _stages_of(
    times: dict[str, float], images: NativeImages, options: DecodeOptions, threads: int
) -> Iterator[Stage]:
    """Gives the stages of decode threads that have done this."""
    count = int(times.get("pictures", 0))
    if not count:
        return
    # Rows are timed in some of the pictures only; see csrc/pipeline/stage_times.h.
    share = times["resize"] / times["looked_at"] if times["looked_at"] else 0.0
    made = [
        ("read", times["read"]),
        ("decode", times["decode"] * (1 - share)),
        ("resample", times["decode"] * share),
    ]
    if any(chain.recipe for chain in images.distinct_chains):
        made.append(("recipe", times["recipe"]))
    if options.normalization is not None or options.table:
        made.append(("normalise", times["finish"]))
    elif options.planar:
        made.append(("collate", times["finish"]))
    for name, seconds in made:
        yield Stage(name, seconds, count, "picture", "decode threads", threads, bound="decode")


def _words(images: NativeImages, decoding: str, loader: Loader) -> str:
    """Says for a plan which pictures are made, by what."""
    indexed = _indexed(images, loader)
    return (
        f"native images: {images.name}, {len(images)} samples, {decoding}{indexed}; {images.words}"
    )


def _indexed(images: NativeImages, loader: Loader | None = None) -> str:
    """Says for a plan whether seek indices are used, by the threads of this loader or by its workers."""
    indexed = images.store.indexed
    # "whole" looks for damage everywhere, and therefore parses all of each file.
    if not indexed or (loader is not None and loader.decode == "whole"):
        return ""
    return f", seek index ({indexed} pictures)"


def _drawn_ahead(loader: Loader, handoff: Handoff) -> int | None:
    """Returns how many index batches are asked of the sampler at the beginning. Another one follows
    whenever the loop takes a batch. None: index batches are drawn as the pool needs them."""
    if handoff.reads_ahead:  # a delivery takes batches ahead of the loop
        return None
    if isinstance(handoff.depth, DepthRule):
        # The number must be fixed although the depth is not. Otherwise what a sampler draws from a
        # generator that it shares would depend on the depth.
        depth = MOST_DEPTH
    elif loader.num_workers:
        depth = handoff.depth or 1
    else:  # torch takes none ahead
        return None
    return max(loader.num_workers * (loader.prefetch_factor or 0), depth)


class ImagePlan:
    """One epoch of an `ImageSource`."""

    normalizes = True
    fills_slots = True
    ahead = True
    exclusive = False
    workers = DECODE_THREADS

    def __init__(
        self,
        source: ImageSource,
        images: NativeImages,
        loader: Loader,
        wanted: Normalization | None,
    ) -> None:
        self._source = source
        self._images = images
        self._loader = loader
        chain = images.chain
        self.normalization = chain.normalization_for(wanted)
        self._draws: SampleDraws | None = None
        erasing = chain.erasing if chain.floating else None
        if erasing is not None or images.mixing is not None:
            self._draws = SampleDraws(Augmentation(erasing, images.mixing))
        self.draws: EpochDraws | None = self._draws
        # Memory is pinned only for an accelerator, as in torch.
        self.pins = loader.pin_memory and devices.can_pin()

    def __str__(self) -> str:
        mixed = "" if self._images.mixing is None else ", mixed"
        return f"{_words(self._images, self._decoding(), self._loader)}{mixed}"

    def parts(self) -> list[SamplePart]:
        mixed = "" if self._images.mixing is None else ", then mixed"
        return native_parts(self._images.form, self._decoding(), mixed)

    def _decoding(self) -> str:
        """Says on how many threads pictures are decoded."""
        workers = self._loader.num_workers
        tuner = self._source.tuner(auto_workers(self._loader))
        decoding = counted(decode_threads(workers), "decode thread")
        if workers > decode_threads(workers):
            decoding += f" ({MOST_DECODE_THREADS} for each processor, of num_workers={workers})"
        if tuner is not None:
            decoding = f"{counted(tuner.rule.threads, 'decode thread')} (auto)"
        return decoding

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        assert order is not None
        if self._source.last is None or not self._loader.persistent_workers:
            self._loader.check_worker_number_rationality()
        pin = self.pins and handoff.pin
        return self._source.begin(self._images, self._loader, order, handoff, self._draws, pin)

    def follow_loop(self, batches: Iterator[Any]) -> None:
        return None
