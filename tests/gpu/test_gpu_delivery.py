"""Delivery to a CUDA device: the same bits as the host twin, whatever streams and memory do."""

import gc

import pytest
import torch

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, FastLoader
from support import MEAN, STD, Pictures, random_images, running

NORMALISED = {"mean": MEAN, "std": STD}
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def make(data, workers=0, **options):
    options = {"batch_size": 4, "num_workers": workers, "device": "cuda", **NORMALISED, **options}
    return FastLoader(data, **options)


def right(data, batches):
    for image, label in batches:
        assert image.is_cuda and label.is_cuda
        wanted = normalised(data.images[label.cpu()], MEAN, STD, image.dtype)
        same_bits(image.cpu(), wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("channels_last", [False, True])
def test_same_bits_as_the_twin(way, monkeypatch, dtype, channels, channels_last):
    options = {
        "mean": (0.485, 0.456, 0.406, 0.5)[:channels],
        "std": (0.229, 0.224, 0.225, 0.3)[:channels],
        "dtype": dtype,
        "channels_last": channels_last,
    }
    batches = []
    for n, h, w in [(1, 1, 1), (2, 3, 5), (3, 7, 33), (1, 17, 255), (5, 224, 223), (4, 64, 64)]:
        images = random_images(h * w + n, n, channels, h, w)
        batches.append(images)
        batches.append(images.to(memory_format=torch.channels_last))
        if h != channels:
            batches.append(images.permute(0, 2, 3, 1).contiguous())
    on_gpu = list(DevicePrefetcher(batches, "cuda", **options))
    monkeypatch.setenv("FASTLOADER_BACKEND", "host")
    for one, other in zip(on_gpu, DevicePrefetcher(batches, "cpu", **options), strict=True):
        assert one.is_cuda and one.stride() == other.stride()
        same_bits(one.cpu(), other)


def test_all_values(way):
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(1, 3, 1, 1)
    (out,) = list(DevicePrefetcher([images], "cuda", **NORMALISED))
    same_bits(out.cpu(), normalised(images, MEAN, STD, torch.float32))


def test_other_leaves_arrive_untouched(way):
    batch = {
        "image": random_images(1, 2, 3, 9, 11),
        "label": torch.arange(2),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "mask": torch.rand(2, 9) > 0.5,
        "last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "sparse": torch.eye(3).to_sparse(),
        "name": "x",
    }
    (out,) = list(DevicePrefetcher([batch], "cuda", **NORMALISED))
    assert out["name"] == "x" and out["sparse"].is_cuda
    for key in ("label", "scalar", "empty", "mask", "last"):
        assert out[key].is_cuda and out[key].stride() == batch[key].stride()
        assert torch.equal(out[key].cpu(), batch[key])
    storages = [
        value.untyped_storage().data_ptr()
        for key, value in out.items()
        if key not in ("name", "sparse", "empty")
    ]
    assert len(set(storages)) == len(storages)


@WORKERS
def test_on_the_default_stream(way, workers):
    data = Pictures(40, size=(33, 31))
    loader = make(data, workers, shuffle=True)
    for _ in range(3):
        right(data, loader)


@WORKERS
def test_on_a_side_stream(way, workers):
    data = Pictures(40, size=(33, 31))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            for image, label in make(data, workers):
                doubled = image * 2
                stream.synchronize()
                wanted = normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
                assert torch.equal(doubled.cpu(), wanted * 2)


@WORKERS
def test_on_changing_streams(way, workers):
    data = Pictures(64, size=(33, 31))
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    sums, wanted = [], []
    iterator = iter(make(data, workers))
    for number in range(16):
        with torch.cuda.stream(streams[number % 3]):
            image, _label = next(iterator)
            torch.cuda._sleep(1_000_000)  # the work lags behind the loop
            sums.append(image.double().sum(dim=(1, 2, 3)))
            del image  # its memory may be reused at once
        numbers = torch.arange(4 * number, 4 * number + 4)
        rows = normalised(data.images[numbers], MEAN, STD, torch.float32)
        wanted.append(rows.double().sum(dim=(1, 2, 3)))
    torch.cuda.synchronize()
    for got, want in zip(sums, wanted):
        assert torch.allclose(got.cpu(), want, rtol=1e-9)


@WORKERS
def test_held_batches_stay_right_under_allocator_pressure(way, workers):
    data = Pictures(80, size=(65, 63))
    held = []
    for number, batch in enumerate(make(data, workers)):
        if number % 2:
            held.append(batch)
        junk = [torch.full((4, 3, 65, 63), -1.0, device="cuda") for _ in range(4)]
        torch.cuda._sleep(300_000)
        junk[0].add_(junk[1])
        del junk
        if number % 7 == 0:
            torch.cuda.empty_cache()
    right(data, held)


def test_many_kept_batches(way):
    data = Pictures(40)
    kept = [batch for _ in range(3) for batch in make(data)]
    right(data, kept)


@WORKERS
def test_next_under_capture_is_an_error(way, workers):
    data = Pictures(24)
    iterator = iter(make(data, workers))
    image, _ = next(iterator)
    static = torch.zeros_like(image)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        static.mul(2)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = static * 2
        with pytest.raises(RuntimeError, match="graph"):
            next(iterator)
    # The capture is good, and the iterator goes on where it was.
    for image, label in iterator:
        static.copy_(image)
        graph.replay()
        wanted = normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
        assert torch.equal(doubled.cpu(), wanted * 2)


@WORKERS
def test_capture_beside_a_running_loader(way, workers):
    """The prefetch thread is at work while graphs are captured in the default, strictest mode."""
    data = Pictures(160, size=(65, 63))
    static = torch.zeros(4, 3, 65, 63, device="cuda")
    for image, label in make(data, workers):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = static * 2
        static.copy_(image)
        graph.replay()
        wanted = normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
        assert torch.equal(doubled.cpu(), wanted * 2)


@WORKERS
def test_early_breaks(way, workers):
    before = running()
    data = Pictures(40)
    loader = make(data, workers)
    for _ in range(5 if workers else 100):
        for _batch in loader:
            break
    right(data, loader)
    loader.close()
    del loader, _batch
    gc.collect()
    if not workers:
        assert running() <= before


def test_memory_is_flat_over_epochs(way):
    data = Pictures(64, size=(64, 64))
    loader = make(data)

    def epoch():
        for image, _ in loader:
            image.mul_(2)
        del image
        torch.cuda.synchronize()
        return torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    for _ in range(3):
        epoch()
    reserved, allocated = epoch()
    for _ in range(10):
        assert epoch() == (reserved, allocated)
    loader.close()


@WORKERS
def test_two_loaders_and_zip(way, workers):
    data, other = Pictures(24, seed=1), Pictures(24, seed=2)
    for one, two in zip(make(data, workers), make(other, workers), strict=True):
        right(data, [one])
        right(other, [two])
    loader = make(data, workers)
    for one, two in zip(loader, loader):
        right(data, [one, two])


def test_statistics(way):
    loader = make(Pictures(24))
    list(loader)
    stats = loader.stats()
    assert stats["batches"] == 6 and stats["device"].startswith("cuda")
    assert stats["path"] == ("engine" if way == "native" else "streams")
    if way == "native":
        assert stats["ring"]["pinned"], stats["ring"]["why_not_pinned"]


def test_a_device_that_does_not_exist():
    with pytest.raises(ValueError, match="cuda:77"):
        make(Pictures(4), device="cuda:77")


def test_index_and_object_name_the_device():
    for device in (0, "cuda:0", torch.device("cuda", 0)):
        (image, _), *_ = make(Pictures(4), device=device)
        assert image.device == torch.device("cuda", 0)
