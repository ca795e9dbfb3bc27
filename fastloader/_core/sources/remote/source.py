"""Brings the batches that Ray's actors make."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastloader._core.batch.augmentation import Augmentation, EpochDraws, SampleDraws
from fastloader._core.handoff import Handoff, SamplePart, Source
from fastloader._core.machine.limits import counted
from fastloader._core.observation.statistics import Figures, Stage
from fastloader._core.order.epoch_order import EpochOrder
from fastloader._core.order.loader import Loader
from fastloader._core.pictures.images import NativeImages
from fastloader._core.pictures.sample_parts import native_parts
from fastloader._core.sources.images import ImageSource
from fastloader._core.sources.python.source import PythonPlan, PythonSource
from fastloader._core.sources.remote.cluster import check_ray_options, connected, decode_threads
from fastloader.transforms._job import Decode
from fastloader.transforms._normalization import Normalization

if TYPE_CHECKING:  # which import Ray
    from fastloader._core.sources.remote.actor import PictureOptions, RemotePictures
    from fastloader._core.sources.remote.actor_pool import ActorPool, RayCounts
    from fastloader._core.sources.remote.crew import RayIterator


class RemoteSource(Source):
    """Makes batches in Ray actors. Those of known pictures, which the actors' decode threads make, are
    this source's. The rest is Python's, whose iterator over actors is made here."""

    def __init__(self, images: ImageSource, python: PythonSource) -> None:
        self._images = images
        self._python = python
        self._pool: ActorPool | None = None
        self._counts: RayCounts | None = None
        # The pictures that were sent last. While nothing has changed, the actors have them.
        self._sent: RemotePictures | None = None
        # Held weakly, so that a loader that is dropped ends at once.
        made = weakref.WeakMethod(self._iterator)
        python.iterators["ray"] = lambda loader, pictures: _called(made, loader)

    def plan(self, loader: Loader, wanted: Normalization | None) -> RemotePlan | None:
        if loader.worker_backend != "ray":
            return None
        images = self._images.recognized(loader, wanted)
        return None if images is None else RemotePlan(self, self._python, images, loader, wanted)

    def _iterator(self, loader: Loader) -> RayIterator:
        """Makes torch's iterator over actors."""
        connected()
        from fastloader._core.sources.remote.actor_pool import ActorPool, RayCounts
        from fastloader._core.sources.remote.crew import Crew, RayIterator

        options = check_ray_options(loader.ray_options)
        if self._pool is None or not self._pool.serves(options):
            if self._pool is not None:
                self._pool.close()
            self._counts = self._counts or RayCounts()
            self._pool = ActorPool(options, self._counts)
        crew = Crew(self._pool, loader.num_workers, loader.prefetch_factor or 2)
        return RayIterator(loader, self._python, crew)

    def pictures(
        self,
        images: NativeImages,
        loader: Loader,
        handoff: Handoff,
        draws: SampleDraws | None,
    ) -> RemotePictures:
        """Makes the stand-in for the loader's dataset in an epoch."""
        from fastloader._core.sources.remote.actor import PictureOptions, RemotePictures

        later = draws is not None and handoff.draws is draws
        options = PictureOptions(
            threads=decode_threads(check_ray_options(loader.ray_options)),
            decode=Decode(loader.decode, loader.truncated),
            on_error=loader.on_error,
            normalization=handoff.normalization,
            channels_last=handoff.channels_last,
            mixed_later=later,
        )
        made = self._sent
        if made is None or not _same(made, images, options):
            made = RemotePictures(
                loader.dataset, images, options, loader.collate_fn, self._images.note
            )
            self._sent = made
        made.policy, made.draws = self._images.policy, draws if later else None
        return made

    def figures(self, loader: Loader) -> Figures:
        if self._counts is None:
            return Figures()
        return Figures(stages=tuple(self._stages(self._counts)))

    def _stages(self, counts: RayCounts) -> Iterator[Stage]:
        actors = {} if self._pool is None else self._pool.nodes()
        batches = 0
        for node, done in counts.nodes.items():
            where, threads = f"actors on {node}", max(1, actors.get(node, 0))
            batches += done.batches
            yield Stage(
                f"make on {node}",
                done.busy_s,
                done.batches,
                "batch",
                where,
                threads,
                bound="remote workers",
            )
        if batches:
            seconds, where = counts.transfer_s, "the network"
            yield Stage("transfer", seconds, batches, "batch", where, bound="network")

    def stats(self, loader: Loader) -> dict[str, Any]:
        counts = self._counts
        if counts is None:
            return {}
        actors = {} if self._pool is None else self._pool.nodes()
        return {
            "ray": {
                "actors": sum(actors.values()),
                "nodes": {
                    node: {
                        "actors": actors.get(node, 0),
                        "batches": done.batches,
                        "busy_s": done.busy_s,
                    }
                    for node, done in counts.nodes.items()
                },
                "replaced": counts.replaced,
                "remade": counts.remade,
                "moved": counts.moved,
                "received_bytes": counts.received_bytes,
                "transfer_s": counts.transfer_s,
            }
        }

    def close(self) -> None:
        """Ends the actors. Iterators were ended before."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class RemotePlan(PythonPlan):
    """One epoch of known pictures, which the decode threads of actors make."""

    def __init__(
        self,
        remote: RemoteSource,
        python: PythonSource,
        images: NativeImages,
        loader: Loader,
        wanted: Normalization | None,
    ) -> None:
        super().__init__(loader, "", python, None, None)
        self._remote = remote
        self._images = images
        chain = images.chain
        self.normalization = chain.normalization_for(wanted)
        self._sample_draws: SampleDraws | None = None
        erasing = chain.erasing if chain.floating else None
        if erasing is not None or images.mixing is not None:
            self._sample_draws = SampleDraws(Augmentation(erasing, images.mixing))
        self.draws: EpochDraws | None = self._sample_draws

    def __str__(self) -> str:
        images = self._images
        mixed = "" if images.mixing is None else ", mixed"
        return (
            f"native images: {images.name}, {len(images)} samples, {self._decoding()}; "
            f"{images.words}{mixed}"
        )

    def parts(self) -> list[SamplePart]:
        mixed = "" if self._images.mixing is None else ", then mixed"
        return native_parts(self._images.form, self._decoding(), mixed)

    def _decoding(self) -> str:
        """Says on how many threads of how many actors pictures are decoded."""
        loader = self._loader
        threads = counted(decode_threads(check_ray_options(loader.ray_options)), "decode thread")
        return f"{counted(loader.num_workers, 'Ray actor')} with {threads} each"

    def open(self, order: EpochOrder | None, handoff: Handoff) -> Iterator[Any]:
        self._in_place = self._remote.pictures(
            self._images, self._loader, handoff, self._sample_draws
        )
        return super().open(order, handoff)


def _called(made: weakref.WeakMethod[Any], loader: Loader) -> RayIterator:
    iterator = made()
    assert iterator is not None  # the loader has both sources
    return iterator(loader)


def _same(sent: RemotePictures, images: NativeImages, options: PictureOptions) -> bool:
    before = sent.images
    return (
        sent.options == options
        and before.chain == images.chain
        and before.chains == images.chains
        and before.attempts == images.attempts
        and before.container is images.container
        and before.form == images.form
        and before.mixing is images.mixing is None  # it may be changed while an epoch runs
        and before.same_files(images)
    )
