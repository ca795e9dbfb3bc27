"""The types of what ``loader.stats()`` gives. docs/tuning.md says what each key means."""

from __future__ import annotations

from typing import TypedDict


class StageStats(TypedDict):
    name: str
    seconds: float
    count: int
    unit: str
    where: str
    threads: int
    each_ms: float


class BufferStats(TypedDict, total=False):
    made: int
    recycled: int
    free: int
    in_use: int
    bytes: int


class RingStats(TypedDict):
    depth: int
    filled: int
    delivered: int
    bytes: int
    copied_bytes: int
    slot_growths: int
    ring_bytes: int
    pinned: bool
    why_not_pinned: str
    producer_wait_s: float
    consumer_wait_s: float
    pack_s: float
    device_s: float
    device_wait_s: float
    asked: int
    found: int


class JpegStats(TypedDict):
    own: int
    libjpeg: int
    why: dict[str, int]
    indexed: int
    unfit_index: int


class ImageStats(TypedDict):
    seen: int
    bad: int
    last_bad: list[str]
    threads: int
    read_bytes: int
    jpegs: JpegStats
    scratch_bytes: int
    waited: int
    buffers: BufferStats


class ArrayStats(TypedDict):
    threads: int
    torch_batches: int
    buffers: BufferStats


class WorkerStats(TypedDict):
    slots_used: int
    fallbacks: int
    why: dict[str, int]
    why_no_ring: str
    slots: int
    slots_held: int
    slot_bytes: int
    ring_bytes: int


class PictureStats(TypedDict):
    pool: int
    workers: int
    pillow: int
    jpegs: JpegStats
    threads: int
    seen: int
    bad: int
    last_bad: list[str]


class DocumentStats(TypedDict):
    retries: int
    repaired: int


class RemoteStats(TypedDict):
    requests: int
    retries: int
    bytes: int
    fetched: int
    evicted: int
    mismatches: int


class RayNodeStats(TypedDict):
    actors: int
    batches: int
    busy_s: float


class RayStats(TypedDict):
    actors: int
    nodes: dict[str, RayNodeStats]
    replaced: int
    remade: int
    moved: int
    received_bytes: int
    transfer_s: float


class AutoStats(TypedDict):
    chosen: int | None
    why: str


class _Always(TypedDict):
    path: str
    device: str | None
    batches: int
    errors: int
    wait_s: float
    edge_wait_s: float
    step_s: float
    stages: dict[str, StageStats]


class LoaderStats(_Always, total=False):
    """The counters of ``loader.stats()``. The keys below are there only if the loader has what they
    count."""

    buffers: BufferStats
    ring: RingStats
    images: ImageStats
    arrays: ArrayStats
    pictures: PictureStats
    documents: DocumentStats
    remote: RemoteStats
    workers: WorkerStats
    ray: RayStats
    auto: dict[str, AutoStats]
