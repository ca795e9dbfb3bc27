"""Delivery to a CUDA device: the same bits as the host twin, whatever streams and memory do."""

import gc

import pytest
import torch

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, FastLoader
from support import MEAN, STD, Pictures, random_images, running

NORMALISED = {"mean": MEAN, "std": STD}
WORKERS = pytest.mark.parametrize("workers", [0, 2])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)


@pytest.fixture
def make(gpu):
    def make(data, workers=0, **options):
        options = {"batch_size": 4, "num_workers": workers, "device": gpu.name, **options}
        return FastLoader(data, **{**NORMALISED, **options})

    return make


@pytest.fixture
def right(gpu):
    def right(data, batches):
        for image, label in batches:
            assert gpu.holds(image, label)
            wanted = normalised(data.images[label.cpu()], MEAN, STD, image.dtype)
            same_bits(image.cpu(), wanted)

    return right


# (N, H, W): below a block, around warps and vectors of 4 and 8, odd, larger than one block.
SIZES = [
    *[(1, 1, 1), (2, 3, 5), (3, 7, 33), (1, 17, 255), (2, 8, 16), (1, 16, 8), (3, 31, 1)],
    *[(1, 1, 4099), (2, 127, 129), (5, 224, 223), (4, 64, 64), (2, 224, 224), (0, 8, 8)],
]


@DTYPES
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("channels_last", [False, True])
def test_same_bits_as_the_twin(gpu, way, monkeypatch, dtype, channels, channels_last):
    options = {
        "mean": (0.485, 0.456, 0.406, 0.5)[:channels],
        "std": (0.229, 0.224, 0.225, 0.3)[:channels],
        "dtype": dtype,
        "channels_last": channels_last,
    }
    batches = []
    for n, h, w in SIZES:
        images = random_images(h * w + n, n, channels, h, w)
        batches.append(images)
        batches.append(images.to(memory_format=torch.channels_last))
        if h != channels:
            batches.append(images.permute(0, 2, 3, 1).contiguous())
    delivered = list(DevicePrefetcher(batches, gpu.name, **options))
    monkeypatch.setenv("FASTLOADER_BACKEND", "host")
    reference = list(DevicePrefetcher(batches, "cpu", **options))
    for one, other in zip(delivered, reference, strict=True):
        assert gpu.holds(one) and one.stride() == other.stride()
        same_bits(one.cpu(), other)


@DTYPES
def test_all_values(gpu, way, dtype):
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(1, 3, 1, 1)
    (out,) = list(DevicePrefetcher([images], gpu.name, dtype=dtype, **NORMALISED))
    same_bits(out.cpu(), normalised(images, MEAN, STD, dtype))


def test_other_leaves_arrive_untouched(gpu, way):
    batch = {
        "image": random_images(1, 2, 3, 9, 11),
        "label": torch.arange(2),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "mask": torch.rand(2, 9) > 0.5,
        "odd": torch.arange(7, dtype=torch.uint8),
        "complex": torch.randn(3, dtype=torch.complex64),
        "last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "sparse": torch.eye(3).to_sparse(),
        "name": "x",
    }
    (out,) = list(DevicePrefetcher([batch], gpu.name, **NORMALISED))
    assert out["name"] == "x" and gpu.holds(out["sparse"])
    for key in ("label", "scalar", "empty", "mask", "odd", "complex", "last"):
        assert gpu.holds(out[key]) and out[key].stride() == batch[key].stride()
        assert torch.equal(out[key].cpu(), batch[key])
    storages = [
        value.untyped_storage().data_ptr()
        for key, value in out.items()
        if key not in ("name", "sparse", "empty")
    ]
    assert len(set(storages)) == len(storages)


@WORKERS
def test_on_the_default_stream(way, make, right, workers):
    data = Pictures(40, size=(33, 31))
    loader = make(data, workers, shuffle=True)
    for _ in range(3):
        right(data, loader)


@WORKERS
def test_on_a_side_stream(gpu, way, make, workers):
    data = Pictures(40, size=(33, 31))
    with gpu.using(gpu.stream()):
        for _ in range(2):
            for image, label in make(data, workers):
                doubled = image * 2
                wanted = normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
                assert torch.equal(doubled.cpu(), wanted * 2)


@WORKERS
def test_on_changing_streams(gpu, way, make, workers):
    data = Pictures(64, size=(33, 31))
    streams = [gpu.current(), gpu.stream(), gpu.stream()]
    sums, wanted = [], []
    iterator = iter(make(data, workers))
    for number in range(16):
        with gpu.using(streams[number % 3]):
            image, _label = next(iterator)
            gpu.lag(1_000_000)  # the work lags behind the loop
            sums.append(image.double().sum(dim=(1, 2, 3)))
            del image  # its memory may be reused at once
        numbers = torch.arange(4 * number, 4 * number + 4)
        rows = normalised(data.images[numbers], MEAN, STD, torch.float32)
        wanted.append(rows.double().sum(dim=(1, 2, 3)))
    gpu.synchronize()
    for got, want in zip(sums, wanted, strict=True):
        assert torch.allclose(got.cpu(), want, rtol=1e-9)


@WORKERS
def test_an_epoch_that_ends_on_another_stream_than_it_began_on(gpu, way, make, right, workers):
    """Memory offered on one stream goes back there while the other is the one that ends the epoch."""
    data = Pictures(64, size=(65, 63))
    streams = [gpu.stream(), gpu.stream()]
    loader = make(data, workers, depth=3)
    kept, busy = [], []
    for number in range(20):
        iterator = iter(loader)
        for step in range(3):
            with gpu.using(streams[(number + step) % 2]):
                gpu.lag(500_000)
                kept.append(next(iterator))
        del iterator
        for stream in streams:  # takes what has just gone back, at once
            with gpu.using(stream):
                for _ in range(2):
                    block = torch.full((4, 3, 65, 63), float(number), device=gpu.name)
                    busy.append((number, block))
        del kept[:-4], busy[:-8]
    gpu.synchronize()
    right(data, kept)
    for number, block in busy:
        assert torch.equal(block.cpu(), torch.full((4, 3, 65, 63), float(number)))


@WORKERS
def test_held_batches_stay_right_under_allocator_pressure(gpu, way, make, right, workers):
    data = Pictures(80, size=(65, 63))
    held = []
    for number, batch in enumerate(make(data, workers)):
        if number % 2:
            held.append(batch)
        junk = [torch.full((4, 3, 65, 63), -1.0, device=gpu.name) for _ in range(4)]
        gpu.lag(300_000)
        junk[0].add_(junk[1])
        del junk
        if number % 7 == 0:
            gpu.empty_cache()
    right(data, held)


@WORKERS
def test_many_kept_batches(way, make, right, workers):
    data = Pictures(40)
    loader = make(data, workers)
    kept = [batch for _ in range(3) for batch in loader] + list(loader)
    right(data, kept)
    assert len({image.data_ptr() for image, _ in kept}) == 40


@WORKERS
def test_early_breaks(way, make, right, workers):
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


@WORKERS
def test_sizes_that_grow_and_shrink(gpu, way, make, workers):
    """Slots are pinned anew while batches are on their way."""
    sizes = [(5, 7), (64, 48), (9, 9), (130, 97), (3, 3), (200, 150)] * 3
    batches = [random_images(i, 3, 3, *size) for i, size in enumerate(sizes)]
    loader = make(batches, workers, batch_size=None)
    delivered = list(loader)
    for got, images in zip(delivered, batches, strict=True):
        same_bits(got.cpu(), normalised(images, MEAN, STD, torch.float32))
    if way == "native":
        assert loader.stats()["ring"]["slot_growths"] > 0


@WORKERS
def test_two_loaders_and_zip(way, make, right, workers):
    data, other = Pictures(24, seed=1), Pictures(24, seed=2)
    for one, two in zip(make(data, workers), make(other, workers), strict=True):
        right(data, [one])
        right(other, [two])
    loader = make(data, workers)
    for one, two in zip(loader, loader, strict=True):
        right(data, [one, two])


def test_statistics(gpu, way, make):
    loader = make(Pictures(24))
    list(loader)
    stats = loader.stats()
    assert stats["batches"] == 6 and stats["device"].startswith(gpu.name)
    assert stats["path"] == ("engine" if way == "native" else "streams")
    if way == "native":
        assert stats["ring"]["pinned"], stats["ring"]["why_not_pinned"]


def test_a_device_that_does_not_exist(make):
    with pytest.raises(ValueError, match="cuda:77"):
        make(Pictures(4), device="cuda:77")


@pytest.mark.cuda_only
def test_index_and_object_name_the_device(make):
    for device in (0, "cuda:0", torch.device("cuda", 0)):
        (image, _), *_ = make(Pictures(4), device=device)
        assert image.device == torch.device("cuda", 0)
