"""One definition of normalise: every way gives the same bits."""

import functools

import pytest
import torch

from exact import normalised, same_bits, table
from fastloader import DevicePrefetcher
from support import expected, random_images, run_script

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
MEANS = (0.485, 0.456, 0.406, 0.5)
STDS = (0.229, 0.224, 0.225, 0.31)
# Odd sizes, one pixel, one row, and sizes around the widths of vector registers.
SIZES = [(1, 1), (1, 17), (3, 5), (7, 31), (16, 16), (9, 33)]

cached_table = functools.lru_cache(table)


def deliver(batch, channels=None, **options):
    channels = channels or batch.shape[1]
    options = {"mean": MEANS[:channels], "std": STDS[:channels], **options}
    with DevicePrefetcher([batch], "cpu", **options) as delivery:
        (out,) = list(delivery)
    return out


def reference(images, dtype, channels):
    rows = cached_table(MEANS[:channels], STDS[:channels], dtype)
    return torch.stack([rows[c][images[:, c].long()] for c in range(channels)], dim=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "channels_last strides"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_every_way_gives_the_definition(way, dtype, channels, layout, channels_last):
    for n, (height, width) in zip([1, 2, 3, 5, 1, 4], SIZES):
        images = random_images(100 * height + width, n, channels, height, width)
        batch = images
        if layout == "nhwc":
            batch = images.permute(0, 2, 3, 1).contiguous()
            if batch.shape[1] == channels:
                continue  # ambiguous, and NCHW wins: tested below
        elif layout == "channels_last strides":
            batch = images.to(memory_format=torch.channels_last)
        out = deliver(batch, channels, dtype=dtype, channels_last=channels_last)
        same_bits(out, reference(images, dtype, channels))
        wanted = torch.channels_last if channels_last else torch.contiguous_format
        assert out.is_contiguous(memory_format=wanted)
        assert out.stride() == torch.empty(out.shape, memory_format=wanted).stride()
        error = (out.double() - expected(images, MEANS[:channels], STDS[:channels])).abs().max()
        assert error <= TOLERANCE[dtype], error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_all_256_values(way, dtype, channels_last):
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(1, 4, 1, 1)
    out = deliver(images, dtype=dtype, channels_last=channels_last)
    same_bits(out.reshape(4, 256), cached_table(MEANS, STDS, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_constants(way, dtype):
    """Also tiny ones, a mean below 0, and both at 1, above which they are refused."""
    generator = torch.Generator().manual_seed(20)
    for _ in range(5):
        mean = [*(torch.rand(2, generator=generator, dtype=torch.float64) * 3 - 2).tolist(), 1.0]
        std = [
            *(10 ** (torch.rand(2, generator=generator, dtype=torch.float64) * 3 - 3)).tolist(),
            1.0,
        ]
        print(mean, std)
        images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 8, 32).repeat(1, 3, 1, 1)
        same_bits(
            deliver(images, mean=mean, std=std, dtype=dtype), normalised(images, mean, std, dtype)
        )


TINY = [1e-16, 1e-18, 1e-20]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tiny_mean_decides_ties(way, dtype):
    """Float64 does not hold the sum of a product and a bias that is far smaller. The constants are fresh
    in each run; what fails prints them."""
    generator = torch.Generator()
    print("seed", generator.seed())
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 8, 32).repeat(1, 4, 1, 1)
    for tiny in TINY:
        mean = [tiny, -tiny, tiny, -tiny]
        std = (10 ** (torch.rand(4, generator=generator, dtype=torch.float64) * 3 - 3)).tolist()
        std[0] = 0.229  # with which a mean of 1e-18 shows at x = 5
        print(mean, std)
        out = deliver(images, mean=mean, std=std, dtype=dtype)
        same_bits(out, normalised(images, mean, std, dtype))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_dtype_alone_is_to_tensor(way, channels):
    images = random_images(21, 2, channels, 6, 7)
    out = deliver(images, mean=None, std=None, dtype=torch.float32)
    same_bits(out, normalised(images, (0.0,) * channels, (1.0,) * channels, torch.float32))
    assert (out.double() - images.double() / 255).abs().max() <= 2e-6


def strided(images):
    """The same pixels in every kind of memory a user may hand over."""
    n, c, h, w = images.shape
    padded = torch.zeros(n, c, h + 3, w + 2, dtype=torch.uint8)
    padded[:, :, 1 : h + 1, 2:] = images
    yield "cropped", padded[:, :, 1 : h + 1, 2:]
    every_other = torch.zeros(2 * n, c, h, 2 * w, dtype=torch.uint8)
    every_other[::2, :, :, ::2] = images
    yield "every other", every_other[::2, :, :, ::2]
    yield "transposed", images.transpose(2, 3).contiguous().transpose(2, 3)
    yield "batch inside", images.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    wide = torch.zeros(n, h, w + 1, c + 1, dtype=torch.uint8)
    wide[:, :, :w, :c] = images.permute(0, 2, 3, 1)
    yield "cropped channels_last", wide[:, :, :w, :c].permute(0, 3, 1, 2)
    yield "offset", torch.cat([torch.zeros(1, c, h, w, dtype=torch.uint8), images])[1:]
    yield "expanded", images[:1].expand(n, c, h, w)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("nhwc", [False, True])
def test_strided_inputs(way, channels_last, nhwc):
    images = random_images(22, 3, 3, 5, 9)
    for name, batch in strided(images):
        print(name)
        wanted = reference(batch, torch.float32, 3)
        given = batch.permute(0, 2, 3, 1) if nhwc else batch
        same_bits(deliver(given, 3, channels_last=channels_last), wanted)


def test_nchw_wins_ties(way):
    images = random_images(23, 2, 3, 5, 3)
    same_bits(deliver(images), reference(images, torch.float32, 3))


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4), (2, 3, 4, 0)])
def test_nothing_to_normalise(way, shape):
    out = deliver(torch.zeros(shape, dtype=torch.uint8), 3)
    assert out.shape == shape and out.dtype == torch.float32


def test_several_images_in_one_batch(way):
    first, second = random_images(24, 2, 3, 5, 6), random_images(25, 4, 3, 3, 3)
    with DevicePrefetcher([(first, second)], "cpu", mean=MEANS[:3], std=STDS[:3]) as delivery:
        ((one, other),) = list(delivery)
    same_bits(one, reference(first, torch.float32, 3))
    same_bits(other, reference(second, torch.float32, 3))


# --- instruction sets ---------------------------------------------------------------------------

FORCED = """
    import hashlib, torch
    from fastloader import DevicePrefetcher, build_info
    from fastloader._core.machine import extension
    digest = hashlib.sha256()
    generator = torch.Generator().manual_seed(7)
    for channels in (1, 2, 3, 4):
        for h, w in ((1, 1), (3, 5), (7, 33), (16, 48)):
            images = torch.randint(0, 256, (3, channels, h, w), dtype=torch.uint8,
                                   generator=generator)
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for last in (False, True):
                    for batch in (images, images.to(memory_format=torch.channels_last)):
                        [out] = DevicePrefetcher([batch], "cpu", mean=(0.4, 0.5, 0.6, 0.7)[:channels],
                                                 std=(0.2, 0.3, 0.25, 0.22)[:channels],
                                                 dtype=dtype, channels_last=last)
                        plain = torch.empty(out.shape, dtype=dtype).copy_(out)
                        digest.update(plain.view(torch.uint8).numpy().tobytes())
    native = extension.load()
    print(native.build_info()["cpu"]["isa"] if native else "pure", digest.hexdigest())
"""


@pytest.mark.processes
def test_instruction_sets_agree():
    from fastloader._core.machine import extension

    native = extension.load()
    if native is None:
        pytest.skip("no native module")
    names = native.build_info()["cpu"]["available"]
    assert "scalar" in names
    found = {}
    for name in names:
        used, digest = run_script(FORCED, env={"FASTLOADER_FORCE_ISA": name}).stdout.split()
        assert used == name
        found[name] = digest
    found["pure"] = run_script(FORCED, env={"FASTLOADER_NATIVE": "0"}).stdout.split()[1]
    assert len(set(found.values())) == 1, found


@pytest.mark.processes
def test_unknown_instruction_set():
    done = run_script(FORCED, env={"FASTLOADER_FORCE_ISA": "sse9"}, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError") and "sse9" in last and "scalar" in last
