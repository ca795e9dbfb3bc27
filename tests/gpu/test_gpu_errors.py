"""What goes wrong is told in its place, and what comes after it is right."""

import pytest
import torch

from exact import normalised, same_bits
from fastloader import BackendError, DevicePrefetcher, FastLoader
from fastloader._core.delivery import engine as ring_engine
from support import MEAN, STD, Pictures, random_images

WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Faulty(Pictures):
    """Some samples cannot be had."""

    def __getitem__(self, index):
        if index in (5, 18):
            raise OSError(f"sample {index} is gone")
        return super().__getitem__(index)


def make(gpu, data, workers=0, **options):
    options = {"batch_size": 4, "num_workers": workers, "device": gpu.name, **options}
    return FastLoader(data, mean=MEAN, std=STD, **options)


def right(data, batches):
    for image, label in batches:
        same_bits(image.cpu(), normalised(data.images[label.cpu()], MEAN, STD, torch.float32))


@WORKERS
def test_samples_that_cannot_be_had(gpu, way, workers):
    data = Faulty(40, size=(33, 31))
    loader = make(gpu, data, workers)
    for _ in range(3):
        iterator, seen = iter(loader), []
        while True:
            try:
                seen.append(next(iterator))
            except StopIteration:
                break
            except OSError as error:
                seen.append(error)
        assert [number for number, each in enumerate(seen) if isinstance(each, OSError)] == [1, 4]
        assert len(seen) == 10
        right(data, [each for each in seen if not isinstance(each, OSError)])


def test_batches_that_are_refused(gpu, way):
    """There is no picture in it. The ring stays as it was; the next batch is right."""
    good = random_images(1, 2, 3, 8, 8)
    delivery = DevicePrefetcher(
        [{"image": good}, {"image": torch.zeros(2)}, {"image": good}],
        gpu.name, mean=MEAN, std=STD, image_key="image",
    )  # fmt: skip
    iterator = iter(delivery)
    wanted = normalised(good, MEAN, STD, torch.float32)
    same_bits(next(iterator)["image"].cpu(), wanted)
    with pytest.raises(TypeError, match="no image under 'image'"):
        next(iterator)
    same_bits(next(iterator)["image"].cpu(), wanted)


class Unmovable:
    def to(self, *_args, **_kwargs):
        raise OSError("cannot be moved")


@WORKERS
def test_an_object_that_cannot_be_moved(gpu, way, workers):
    """Its batch is half on its way when that is found."""
    data = Pictures(24, size=(33, 31))

    def collate(samples):
        images, labels = torch.utils.data.default_collate(samples)
        return images, labels, Unmovable() if 8 in labels else None

    loader = make(gpu, data, workers, collate_fn=collate)
    for _ in range(3):
        iterator, seen, errors = iter(loader), [], 0
        while True:
            try:
                image, label, _none = next(iterator)
                gpu.lag(300_000)
                seen.append((image, label))
            except StopIteration:
                break
            except OSError:
                errors += 1
        assert errors == 1 and len(seen) == 5
        right(data, seen)


@WORKERS
def test_more_of_them_than_are_on_their_way(gpu, way, workers):
    """Each gives its place at the workers to another one, or the epoch would never end."""

    def collate(samples):
        images, labels = torch.utils.data.default_collate(samples)
        return images, labels, Unmovable() if max(labels) < 44 else None

    iterator, errors, last = iter(make(gpu, Pictures(48), workers, collate_fn=collate)), 0, None
    while True:
        try:
            last = next(iterator)
        except StopIteration:
            break
        except OSError:
            errors += 1
    assert errors == 11 and last[1].tolist() == [44, 45, 46, 47]


@pytest.mark.parametrize("workers", [1, 2])
def test_out_of_memory_while_looking_ahead_is_nobodys_error(gpu, monkeypatch, workers):
    """Every second offer fails unless the batch is being waited for."""
    data = Pictures(40)
    make_credit = ring_engine.Engine.make_credit
    asked = []

    def poor(engine, plan):
        asked.append(None)
        if len(asked) % 2:
            raise torch.OutOfMemoryError("CUDA out of memory (injected)")
        return make_credit(engine, plan)

    loader = make(gpu, data, workers, depth=3)
    list(loader)
    monkeypatch.setattr(ring_engine.Engine, "make_credit", poor)
    seen, errors, iterator = [], 0, iter(loader)
    while True:
        try:
            seen.append(next(iterator))
        except StopIteration:
            break
        except torch.OutOfMemoryError:
            errors += 1  # the very batch that is waited for; asking again gets it
    assert len(asked) > 10 and errors < 11
    assert [label.tolist() for _, label in seen] == [[*range(i, i + 4)] for i in range(0, 40, 4)]
    right(data, seen)


@pytest.mark.cuda_only
@WORKERS
def test_a_full_device(gpu, way, workers):
    """The allocator itself refuses; with memory again, the epoch goes on."""
    data = Pictures(24, size=(256, 256))
    loader = make(gpu, data, workers, depth=3)
    list(loader)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction(
            (torch.cuda.memory_reserved() + (1 << 20)) / total
        )
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        iterator = iter(loader)
        with pytest.raises(torch.OutOfMemoryError):
            for _ in range(6):
                next(iterator)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del iterator
    right(data, list(loader))


@WORKERS
def test_memory_that_the_device_refuses(gpu, monkeypatch, workers):
    """A failure on the prefetch thread: told by next(), and the next epoch has a new engine."""
    data = Pictures(24)
    make_credit = ring_engine.Engine.make_credit

    class Crooked:
        def __init__(self, tensor):
            self.tensor = tensor

        def data_ptr(self):
            return self.tensor.data_ptr() + 4

    def crooked(engine, plan):
        credit = make_credit(engine, plan)
        credit.outputs[0] = Crooked(credit.outputs[0])
        return credit

    loader = make(gpu, data, workers)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(ring_engine.Engine, "make_credit", crooked)
            iterator = iter(loader)
            with pytest.raises(BackendError, match="16"):
                next(iterator)
            with pytest.raises((BackendError, StopIteration)):
                next(iterator)
            del iterator
        right(data, list(loader))
    loader.close()


def test_a_loader_closed_in_the_middle(gpu, way):
    data = Pictures(40)
    for workers in (0, 2):
        loader = make(gpu, data, workers)
        iterator = iter(loader)
        kept = [next(iterator), next(iterator)]
        loader.close()
        right(data, kept)
        with pytest.raises(StopIteration):
            next(iterator)
