"""How much is measured: the whole, a quick look, or a rehearsal without a GPU."""

from __future__ import annotations

import dataclasses

from resnet import BLOCKS, WIDTH


@dataclasses.dataclass(frozen=True)
class Plan:
    """Counts. ``side`` is that of the pictures made in memory; JPEGs become 224."""

    name: str
    side: int = 224
    # h2d
    h2d_batches: tuple[int, ...] = (8, 64, 256, 512)  # pictures
    h2d_count: int = 240  # batches in a pass
    h2d_repeats: int = 7
    # normalise
    normalise_batches: tuple[int, ...] = (256, 1024)
    normalise_repeats: int = 100
    # next
    next_batch: int = 64
    next_calls: int = 1000
    next_pause_s: float = 0.002  # for the ring to fill: ten times what the copy of a batch takes
    # step, peers
    batch: int = 128
    width: int = WIDTH  # of the network: ResNet-50
    blocks: tuple[int, ...] = BLOCKS
    lead: int = 5  # steps before the clock: what the ring made ready meanwhile is used up
    steps: int = 15  # in a block
    pairs: int = 12  # of blocks
    traced_steps: int = 10
    free_batches: int = 100
    distinct_pictures: int = 500
    epoch_batches: int = 80
    peer_repeats: int = 3
    peer_pairs: int = 4


FULL = Plan("full")
QUICK = Plan(
    "quick",
    h2d_batches=(64, 256),
    h2d_count=200,
    h2d_repeats=3,
    normalise_batches=(256,),
    normalise_repeats=30,
    next_calls=300,
    batch=64,
    steps=8,
    pairs=4,
    free_batches=40,
    epoch_batches=40,
    peer_repeats=1,
    peer_pairs=1,
)
REHEARSAL = Plan(
    "rehearsal",
    side=15,  # so that leaves do not end where the next one begins
    h2d_batches=(2, 4),
    h2d_count=8,
    h2d_repeats=2,
    normalise_batches=(3,),
    normalise_repeats=3,
    next_batch=2,
    next_calls=10,
    batch=2,
    width=4,
    blocks=(1, 1, 1, 1),
    lead=1,
    steps=2,
    pairs=2,
    traced_steps=3,
    free_batches=2,
    distinct_pictures=6,
    epoch_batches=3,
    peer_repeats=1,
    peer_pairs=1,
)
PLANS = {plan.name: plan for plan in (FULL, QUICK, REHEARSAL)}
