"""fastloader.compat.apex.data_prefetcher: the tutorials' loops, over every way to run."""

import gc

import pytest
import torch
from torch.utils.data import DataLoader

from exact import normalised, same_bits
from fastloader import FastLoader
from fastloader._core.machine import devices
from fastloader.compat.apex import data_prefetcher
from support import MEAN, STD, Pictures, expected, nothing_left_running, running

DATA = Pictures(10)


def fast_collate(batch):
    """Apex's, for tensors."""
    return torch.stack([image for image, _ in batch]), torch.tensor([label for _, label in batch])


def floats(batch):
    images, labels = fast_collate(batch)
    return images.float(), labels


def check(pairs, exact=True):
    assert [label.tolist() for _, label in pairs] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for image, label in pairs:
        assert image.dtype is torch.float32
        if exact:
            same_bits(image, normalised(DATA.images[label], MEAN, STD, torch.float32))
        else:
            wanted = expected(DATA.images[label])
            torch.testing.assert_close(image.double(), wanted, atol=2e-6, rtol=0)


def tutorial(prefetcher):
    """The loop as everybody copies it."""
    pairs = []
    image, label = prefetcher.next()
    while image is not None:
        pairs.append((image, label))
        image, label = prefetcher.next()
    return pairs


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [0, 2])
def test_the_tutorial_loop(way, workers):
    before = running()
    loader = DataLoader(DATA, batch_size=4, num_workers=workers, collate_fn=fast_collate)
    for _epoch in range(2):
        prefetcher = data_prefetcher(loader, **way.options)
        check(tutorial(prefetcher))
        for _ in range(3):
            assert prefetcher.next() == (None, None)
        prefetcher.close()
    del prefetcher
    gc.collect()
    nothing_left_running(before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_iterator(way, workers):
    loader = DataLoader(DATA, batch_size=4, num_workers=workers)
    prefetcher = data_prefetcher(loader, **way.options)
    assert iter(prefetcher) is prefetcher and len(prefetcher) == 3
    check(list(prefetcher))
    assert list(prefetcher) == []


def test_floats_in_0_to_255(way):
    loader = DataLoader(DATA, batch_size=4, collate_fn=floats)
    check(tutorial(data_prefetcher(loader, **way.options)), exact=False)


def test_floats_of_the_caller_are_not_touched():
    batch = (torch.full((1, 3, 2, 2), 255.0), torch.tensor([1]))
    data_prefetcher([batch], device="cpu").next()
    assert torch.equal(batch[0], torch.full((1, 3, 2, 2), 255.0))


def test_own_mean_and_std(way):
    loader = DataLoader(DATA, batch_size=10)
    prefetcher = data_prefetcher(loader, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), **way.options)
    assert prefetcher.mean.shape == (1, 3, 1, 1)
    torch.testing.assert_close(prefetcher.mean.flatten(), torch.tensor([25.5, 51.0, 76.5]))
    image, _ = prefetcher.next()
    same_bits(image, normalised(DATA.images, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), torch.float32))


def test_looking_at_the_next_batch_does_not_lose_it(way):
    loader = DataLoader(DATA, batch_size=4)
    prefetcher = data_prefetcher(loader, **way.options)
    assert prefetcher.next_target.tolist() == [0, 1, 2, 3]
    prefetcher.preload()
    seen = prefetcher.next_input
    image, label = prefetcher.next()
    assert image is seen and label.tolist() == [0, 1, 2, 3]
    check([(image, label), *prefetcher])
    assert prefetcher.next_input is None and prefetcher.next_target is None


def test_held_batches_stay_right(way):
    loader = DataLoader(DATA, batch_size=1)
    pairs = list(data_prefetcher(loader, **way.options))
    for image, label in pairs:
        same_bits(image, normalised(DATA.images[label], MEAN, STD, torch.float32))


def test_the_memory_format_is_that_of_the_loader(way):
    """Apex's fast_collate takes a memory_format, for models in channels_last."""
    pictures = torch.randint(0, 256, (2, 3, 5, 4), dtype=torch.uint8)
    for images in (pictures, pictures.float()):
        last = images.contiguous(memory_format=torch.channels_last)
        prefetcher = data_prefetcher([(last, torch.zeros(2))] * 2, **way.options)
        for input, _target in prefetcher:
            assert input.is_contiguous(memory_format=torch.channels_last)
            assert not input.is_contiguous()
        plain, _target = data_prefetcher([(images, torch.zeros(2))], **way.options).next()
        assert plain.is_contiguous() and torch.equal(input, plain)


def test_it_is_true_without_a_length():
    batches = [(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2))]
    assert data_prefetcher(iter(batches), device="cpu")


def test_empty_loader(way):
    prefetcher = data_prefetcher([], **way.options)
    assert prefetcher.next() == (None, None) and list(prefetcher) == []


def test_early_break_with_persistent_workers(way):
    loader = DataLoader(DATA, batch_size=4, num_workers=2, persistent_workers=True)
    for _ in range(3):
        broken = data_prefetcher(loader, **way.options)
        broken.next()
        check(list(data_prefetcher(loader, **way.options)))
    del broken


def test_auto_device_without_an_accelerator():
    if devices.accelerator_type() is not None:
        pytest.skip("there is an accelerator")
    prefetcher = data_prefetcher(DataLoader(DATA, batch_size=4))
    assert prefetcher.device.type == "cpu" and prefetcher.stream is None
    check(tutorial(prefetcher))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.zeros(1, 3, 2, 2, dtype=torch.uint8),), "a tuple of 1"),
        ({"input": 1}, "gave a dict"),
        (torch.zeros(2, 3), "gave a Tensor"),
        ((torch.zeros(1, 3, dtype=torch.uint8), 1), "no image"),
    ],
)
def test_batches_that_are_no_pairs(batch, message, way):
    prefetcher = data_prefetcher([batch], **way.options)
    with pytest.raises(TypeError, match=message):
        prefetcher.next()


def test_errors_of_the_loader_arrive_in_their_place(way):
    class Faulty:
        def __iter__(self):
            yield DATA.images[:2], 1
            raise OSError("disk gone")

    prefetcher = data_prefetcher(Faulty(), **way.options)
    assert prefetcher.next()[1] == 1
    with pytest.raises(OSError, match="disk gone"):
        prefetcher.next()


def test_normalising_twice_is_refused():
    loader = FastLoader(DATA, batch_size=4, device="cpu", mean=MEAN, std=STD)
    with pytest.raises(ValueError, match="normalised by its own"):
        data_prefetcher(loader)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="std"):
        data_prefetcher([], std=(0.1, 0.0, 0.1))
    with pytest.raises(ValueError, match="std"):
        data_prefetcher(DataLoader(DATA, collate_fn=floats), std=(0.1, 0.0, 0.1))
    with pytest.raises(ValueError, match="finds no"):
        data_prefetcher([], device="xpu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_as_in_the_tutorial(way, dtype):
    """Rounded once, without the loop's ``input.half()``."""
    loader = DataLoader(DATA, batch_size=4, collate_fn=fast_collate)
    prefetcher = data_prefetcher(loader, dtype=dtype, **way.options)
    for image, label in tutorial(prefetcher):
        assert image.dtype is dtype
        same_bits(image, normalised(DATA.images[label], MEAN, STD, dtype))


def test_half_precision_of_floats(way):
    loader = DataLoader(DATA, batch_size=4, collate_fn=floats)
    for image, label in tutorial(data_prefetcher(loader, dtype=torch.float16, **way.options)):
        assert image.dtype is torch.float16
        wanted = expected(DATA.images[label])
        torch.testing.assert_close(image.double(), wanted, atol=4e-3, rtol=0)


def test_another_dtype_is_refused():
    loader = DataLoader(DATA, batch_size=4, collate_fn=floats)
    with pytest.raises((TypeError, ValueError), match="dtype"):
        data_prefetcher(loader, dtype=torch.int32, device="cpu")
