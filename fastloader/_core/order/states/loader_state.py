"""The content of a loader's ``state_dict()``."""

from __future__ import annotations

from typing import Any, TypedDict


class _Always(TypedDict):
    fastloader: int  # the version of the format
    sampler: str  # its name; it must be this loader's when the state is loaded
    epoch: int
    begun: bool  # whether the state is from the middle of that epoch
    generators: list[Any]  # states of the loader's and the sampler's own generators
    run_seed: int | None
    base_seed: int | None  # of workers
    epoch_seed: int | None  # of what the loader draws
    num_workers: int
    batch_size: int | None
    workers: dict[str, Any]  # the state of each worker's dataset, by the worker's number
    sampler_state: Any
    dataset_state: Any
    iterator_state: Any  # the state of the dataset's iterator
    augmentation: dict[str, Any] | None


class LoaderState(_Always, total=False):
    # These must be this loader's when the state is loaded, as far as they are known.
    dataset_length: int
    sampler_length: int
    sampler_seed: int
    shuffle: bool

    # These are there in the middle of an epoch.
    batches: int  # the number of batches received
    samples: int  # in these batches; with samplers that ranks share, those of all ranks
    first: Any  # the keys of the first batch and of the last one
    last: Any
    missing: list[Any]  # with in_order=False, the keys in flight
    randomness: Any  # states of the generators before the order was drawn
    next_worker: int
    order_epoch: int | None  # the epoch of a sampler that ranks share
    ended: bool  # whether the last batch has run into the dataset's end
    read_again: bool  # whether the workers read their datasets from the beginning
