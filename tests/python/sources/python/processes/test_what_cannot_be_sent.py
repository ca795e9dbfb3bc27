"""Indices and batches that cannot be pickled or unpickled: an error in the place of their batch,
wherever it came up, and the loader goes on."""

import pytest
import torch
from side_by_side import since_2_6
from torch.utils.data import Dataset

from fastloader import FastLoader
from support import MEAN, STD, Pictures


def fail():
    raise LookupError("lost on the way")


class NotSent(int):
    def __reduce__(self):
        raise ValueError("cannot be sent")


class NotReceived(int):
    def __reduce__(self):
        return fail, ()


class EndsTheThread(int):
    def __reduce__(self):
        raise SystemExit(3)


class Numbers(Dataset):
    """Gives numbers, at index 3 one of ``kind``, or raises it."""

    def __init__(self, kind=int):
        self.kind = kind

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if int(index) != 3:
            return int(index)
        if issubclass(self.kind, Exception):
            raise self.kind("of a type that nobody can import")
        return self.kind(index)


def as_it_is(samples):
    return samples


def seen(loader):
    """Batches, and what was raised in the place of one: its type, and the ends of its text."""
    iterator, got = iter(loader), []
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return got
        except BaseException as error:
            lines = str(error).splitlines()
            got.append((type(error), lines[0].partition(" where ")[2], lines[-1]))
        else:
            got.append(batch)


@pytest.fixture(params=["ring", "torch's files"])
def ring(request, monkeypatch):
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "0" if request.param == "torch's files" else "")


CONTEXTS = ["fork", pytest.param("spawn", marks=pytest.mark.processes)]


@pytest.mark.covering
@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (
            NotSent,
            (ValueError, "the indices of batch 1 were pickled for a worker.", "cannot be sent"),
        ),
        (NotReceived, (LookupError, "the indices of batch 1 were unpickled.", "lost on the way")),
    ],
)
def test_indices(context, persistent, kind, error):
    order = [0, 1, 2, kind(3), 4, 5, 6, 7]
    loader = FastLoader(
        Numbers(),
        sampler=order,
        batch_size=2,
        collate_fn=as_it_is,
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context=context,
    )
    for _ in range(2):
        first, second, *others = seen(loader)
        assert [first, *others] == [[0, 1], [4, 5], [6, 7]]
        assert second[:2] == error[:2] and second[2].endswith(error[2]), second


@pytest.mark.covering
@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("kind", "type_", "text"),
    [
        (NotSent, ValueError, "cannot be sent"),
        (EndsTheThread, SystemExit, "SystemExit: 3"),
        (NotReceived, LookupError, "lost on the way"),
    ],
)
def test_batches(context, persistent, kind, type_, text):
    loader = FastLoader(
        Numbers(kind),
        batch_size=2,
        collate_fn=as_it_is,
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context=context,
    )
    for _ in range(2):
        first, second, *others = seen(loader)
        assert [first, *others] == [[0, 1], [4, 5], [6, 7]]
        assert second[0] is type_ and second[2].endswith(text), second


@pytest.mark.usefixtures("ring")
def test_an_exception_of_a_type_that_cannot_be_imported():
    """As with DataLoader, where the type can be had: its traceback. The type itself stays behind."""

    class Local(Exception):
        pass

    loader = FastLoader(Numbers(Local), batch_size=2, collate_fn=as_it_is, num_workers=2)
    first, second, *others = seen(loader)
    assert [first, *others] == [[0, 1], [4, 5], [6, 7]]
    assert second[0] is RuntimeError
    assert second[2].endswith("Local: of a type that nobody can import")


class Shown(Pictures):
    """Pictures with what `Numbers` gives as labels."""

    def __init__(self, kind):
        super().__init__(8)
        self.numbers = Numbers(kind)

    def __getitem__(self, index):
        return super().__getitem__(int(index))[0], self.numbers[index]


def apart(samples):
    return torch.stack([picture for picture, _ in samples]), [label for _, label in samples]


@pytest.mark.parametrize("way", ["cpu", "twin", "streams"])
@pytest.mark.parametrize("kind", [NotSent, NotReceived])
def test_deliveries_that_are_ahead(enter_way, way, kind):
    options = {**enter_way(way).options, "mean": MEAN, "std": STD}
    for samples, order in ((kind, range(8)), (int, [0, 1, 2, kind(3), 4, 5, 6, 7])):
        loader = FastLoader(
            Shown(samples), sampler=order, batch_size=2, collate_fn=apart, num_workers=2, **options
        )
        got = [each[0] if isinstance(each[0], type) else each[1] for each in seen(loader)]
        assert [got[0], *got[2:]] == [[0, 1], [4, 5], [6, 7]] and got[1] in ERRORS


ERRORS = (ValueError, LookupError)


def test_the_place_of_an_error_is_counted():
    """A state behind the error goes on with the batch after it."""
    loader = FastLoader(Numbers(NotSent), batch_size=2, collate_fn=as_it_is, num_workers=2)
    iterator = iter(loader)
    assert next(iterator) == [0, 1]
    with pytest.raises(ValueError, match="cannot be sent"):
        next(iterator)
    other = FastLoader(Numbers(), batch_size=2, collate_fn=as_it_is, num_workers=2)
    other.load_state_dict(loader.state_dict())
    assert list(other) == [[4, 5], [6, 7]]


@pytest.mark.parametrize("in_order", [True, False] if since_2_6 else [True])
def test_out_of_order(in_order):
    loader = FastLoader(
        Numbers(NotReceived), batch_size=2, collate_fn=as_it_is, num_workers=2, in_order=in_order
    )
    got = seen(loader)
    assert sorted(each for each in got if type(each) is list) == [[0, 1], [4, 5], [6, 7]]
    assert [each[0] for each in got if type(each) is tuple] == [LookupError]
