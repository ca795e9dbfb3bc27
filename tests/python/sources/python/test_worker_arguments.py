"""What torch hands to its worker loop, which torch 2.14 hands over in another way."""

import functools
import inspect
import re

import pytest
from torch.utils.data import IterableDataset, _utils, dataloader

from fastloader import Error, FastLoader
from fastloader._core.sources.python.arguments import named_arguments

_ITERATOR = dataloader._MultiProcessingDataLoaderIter


def loop_of_2_14(
    dataset_kind,
    dataset_holder,
    index_queue,
    data_queue,
    done_event,
    auto_collation,
    collate_fn,
    drop_last,
    base_seed,
    init_fn,
    worker_id,
    num_workers,
    persistent_workers,
    shared_seed,
):
    raise AssertionError("workers that are no processes do not run it")


@pytest.fixture
def torch_2_14(monkeypatch):
    """torch's iterator as torch 2.14.1 has it."""
    source = inspect.getsource(_ITERATOR.__init__)
    # Torch 2.4 has the arguments in other lines.
    source, count = re.subn(r"self\._dataset,(?=\s+index_queue)", "[self._dataset],", source)
    assert (count == 1) != ("dataset_holder" in source)
    source = source.replace("super()", "super(_MultiProcessingDataLoaderIter, self)")
    made = {}
    exec(re.sub("(?m)^    ", "", source), vars(dataloader), made)
    monkeypatch.setattr(_ITERATOR, "__init__", made["__init__"])
    monkeypatch.setattr(_utils.worker, "_worker_loop", loop_of_2_14)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


@pytest.mark.usefixtures("torch_2_14")
@pytest.mark.parametrize(
    "dataset", [[10, 20, 30], [[1]], Stream()], ids=["list", "lists", "stream"]
)
def test_threads(dataset):
    """A list may be the dataset, too, and it stays as it is for the next epoch."""
    loader = FastLoader(dataset, batch_size=None, num_workers=1, worker_backend="thread")
    wanted = list(Stream() if isinstance(dataset, Stream) else dataset)
    for _ in range(2):
        assert list(loader) == wanted


def arguments(loop, dataset):
    """Values for a worker loop's parameters, among them a list as the dataset."""
    given = {name: name for name in inspect.signature(loop).parameters}
    holder = "dataset_holder" in given
    given.update({"dataset_holder": [dataset]} if holder else {"dataset": dataset})
    return given


@pytest.mark.parametrize("loop", [loop_of_2_14, _utils.worker._worker_loop], ids=["2.14", "here"])
def test_actors(loop):
    pytest.importorskip("ray")
    from fastloader._core.sources.remote.crew import _Context, _Indices

    class Crew:
        def worker(self, setup, number):
            self.setup = setup
            return number

    crew, data = Crew(), [10, 20]
    given = {**arguments(loop, data), "index_queue": _Indices(crew), "worker_id": 3}
    assert _Context(crew).Process(target=loop, args=tuple(given.values())) == 3
    assert given["index_queue"].worker == 3
    setup = crew.setup
    assert setup.dataset is data and data == [10, 20]
    assert (setup.kind, setup.base_seed, setup.workers) == (
        "dataset_kind",
        "base_seed",
        "num_workers",
    )


def test_a_loop_that_was_wrapped():
    @functools.wraps(loop_of_2_14)
    def wrapped(*args):
        loop_of_2_14(*args)

    given = tuple(arguments(wrapped, [1]).values())
    assert named_arguments(wrapped, given)["dataset"] == [1]


def test_a_loop_that_no_longer_shows_its_arguments():
    with pytest.raises(Error, match=r"takes no dataset_kind, dataset, .* worker_backend=.process."):
        named_arguments(lambda *args: None, (1, 2, 3))
    with pytest.raises(Error, match="takes no dataset_kind"):
        named_arguments(lambda dataset_kind: None, (1, 2, 3))
