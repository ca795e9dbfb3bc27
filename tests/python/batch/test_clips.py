"""Image leaves of 5 dimensions, (N, T, C, H, W), as a reader of videos gives them."""

import warnings

import pytest
import torch
from pictures import plain_folder
from torch.utils.data import Dataset, default_collate

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Augmentation, RandomErasing
from fastloader.datasets import ImageFolder
from support import MEAN, STD, expected, random_images, same

CLIPS = random_images(7, 6, 4, 3, 8, 9)
MEANS = {1: (0.4,), 2: (0.4, 0.5), 3: MEAN, 4: (0.4, 0.5, 0.6, 0.7)}


def as_they_are(clips):
    return clips


def pixel_by_pixel(clips):
    return clips.permute(0, 1, 3, 4, 2).contiguous()


def frame_by_frame(clips):
    """As if all first frames had been stacked, then all second ones."""
    return clips.transpose(0, 1).contiguous().transpose(0, 1)


def cropped(clips):
    wide = torch.zeros((*clips.shape[:3], 20, 30), dtype=torch.uint8)
    wide[..., 5 : 5 + clips.shape[3], 7 : 7 + clips.shape[4]] = clips
    return wide[..., 5 : 5 + clips.shape[3], 7 : 7 + clips.shape[4]]


def pixels_within_frames(clips):
    """(N, T, C, H, W) whose bytes lie as (N, T, H, W, C)."""
    return pixel_by_pixel(clips).permute(0, 1, 4, 2, 3)


FORMS = [as_they_are, pixel_by_pixel, frame_by_frame, cropped, pixels_within_frames]


def deliver(batch, **options):
    with DevicePrefetcher([batch], "cpu", **options) as delivery:
        (out,) = list(delivery)
    return out


def exactly(clips, mean=MEAN, std=STD, dtype=torch.float32):
    return normalised(clips.flatten(0, 1), mean, std, dtype).view(clips.shape)


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_clips_are_what_their_frames_are(way, form, channels_last, dtype):
    asked = {"mean": MEAN, "std": STD, "dtype": dtype, "channels_last": channels_last}
    given = form(CLIPS)
    before = given.clone()
    out, target = deliver((given, torch.arange(6)), **asked)
    same_bits(out, exactly(CLIPS, dtype=dtype))
    same(target, torch.arange(6))
    assert torch.equal(given, before)
    if channels_last:
        assert out.stride() == (4 * 72 * 3, 72 * 3, 1, 9 * 3, 3)
        # As a model of clips takes them: (N, C, T, H, W).
        by_channel = out.transpose(1, 2)
        assert by_channel.is_contiguous(memory_format=torch.channels_last_3d)
    else:
        assert out.is_contiguous()
    # The loop may change them in place, and differentiate by them.
    out.mul_(2).requires_grad_().sum().backward()


class Videos(Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        return {"clip": self.clips[index], "number": index}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_loader_of_clips_beside_torch(way, channels, workers):
    clips = random_images(channels, 7, 5, channels, 9, 6)
    mean = MEANS[channels]
    options = {"mean": mean, "std": [0.3] * channels, "num_workers": workers, **way.options}
    loader = FastLoader(Videos(clips), 3, shuffle=True, **options)
    for _ in range(2):
        for batch in loader:
            wanted = expected(clips[batch["number"]].flatten(0, 1), mean, [0.3] * channels)
            got = batch["clip"]
            assert got.shape == (len(batch["number"]), 5, channels, 9, 6)
            assert torch.allclose(got.flatten(0, 1).double(), wanted, rtol=0, atol=2e-6)


def test_without_a_mean_any_number_of_channels_arrives_in_0_to_1(way):
    for channels in (1, 2, 3, 4):
        clips = random_images(channels, 2, 5, channels, 9, 6)
        out = deliver(clips, dtype=torch.float32)
        assert torch.allclose(out.double(), clips.double() / 255, rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", [(1, 1, 3, 1, 1), (0, 4, 3, 5, 5), (2, 0, 3, 5, 5)])
def test_few_and_no_frames(way, shape):
    clips = random_images(3, *shape)
    out = deliver(clips, mean=MEAN, std=STD)
    assert out.shape == shape and out.dtype == torch.float32
    if clips.numel():
        same_bits(out, exactly(clips))


def test_the_channels_of_a_tie_are_those_of_dimension_2(way):
    clips = random_images(3, 2, 3, 3, 3, 3)
    same_bits(deliver(clips, mean=MEAN, std=STD), exactly(clips))


def test_clips_beside_pictures(way):
    pictures = random_images(5, 6, 3, 8, 9)
    keys = ["clips", "pictures"]
    out = deliver({"clips": CLIPS, "pictures": pictures}, mean=MEAN, std=STD, image_key=keys)
    same_bits(out["clips"], exactly(CLIPS))
    same_bits(out["pictures"], normalised(pictures, MEAN, STD, torch.float32))


def test_channels_before_the_frames_are_an_error(way):
    wrong = CLIPS.transpose(1, 2).contiguous()
    loader = FastLoader(Videos(wrong), 2, mean=MEAN, std=STD, **way.options)
    with pytest.raises(
        ValueError,
        match=r"\['clip'\] uint8 \(2, 3, 4, 8, 9\) .* at dimension 1 but not at 2.*"
        r"clip\.permute\(1, 0, 2, 3\).*image_key",
    ):
        next(iter(loader))
    # So beside an image leaf; but not where something else is named.
    pictures = random_images(5, 6, 3, 8, 9)
    with pytest.raises(ValueError, match="at dimension 1 but not at 2"):
        deliver((pictures, wrong), mean=MEAN, std=STD)
    out = deliver((pictures, wrong), mean=MEAN, std=STD, image_key=0)
    same(out[1], wrong)


def test_what_has_no_channels_at_all_stays(way):
    volumes = random_images(9, 6, 5, 7, 8, 9)
    pictures = random_images(5, 6, 3, 8, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = deliver((pictures, volumes), mean=MEAN, std=STD)
    same(out[1], volumes)


@pytest.mark.parametrize("native", [True, False])
def test_clips_are_not_erased(way, native):
    loader = FastLoader(Videos(CLIPS), 2, native=native, mean=MEAN, std=STD, **way.options)
    loader._runtime.delivery.augment(Augmentation(RandomErasing(), None))
    with pytest.raises(ValueError, match=r"clips cannot be erased or mixed.*'clip'.*\(2, 4, 3"):
        next(iter(loader))


def as_clips(samples):
    """Pairs of pictures."""
    pictures, labels = default_collate(samples)
    return pictures.unflatten(0, (-1, 2)), labels[::2]


@pytest.mark.parametrize("channels_last", [False, True])
def test_frames_that_come_normalised_get_the_dtype(way, tmp_path, channels_last):
    chain = T.Compose([T.Resize((8, 9)), T.ToTensor(), T.Normalize(MEAN, STD)])
    dataset = ImageFolder(plain_folder(tmp_path), chain)
    wanted, _ = as_clips([dataset[index] for index in range(4)])
    asked = {"mean": MEAN, "std": STD, "dtype": torch.bfloat16, "channels_last": channels_last}
    loader = FastLoader(dataset, 4, collate_fn=as_clips, native=False, **asked, **way.options)
    got, _ = next(iter(loader))
    assert got.dtype == torch.bfloat16 and got.shape == (2, 2, 3, 8, 9)
    assert torch.equal(got, wanted.to(torch.bfloat16))
    assert got.stride()[2:] == ((1, 27, 3) if channels_last else (72, 9, 1))


@pytest.mark.parametrize("normalised", [{"mean": MEAN, "std": STD}, {}], ids=["floats", "bytes"])
def test_show_batch_shows_first_frames(way, normalised):
    pytest.importorskip("matplotlib")
    from fastloader._core.batch.shown_pictures import find_pictures

    loader = FastLoader(Videos(CLIPS), 4, **normalised, **way.options)
    shown = find_pictures(next(iter(loader)), loader._runtime.normalization, None, 3)
    assert len(shown.pixels) == 3 and shown.titles == ["0", "1", "2"]
    for pixels, clip in zip(shown.pixels, CLIPS):
        assert torch.equal(torch.from_numpy(pixels), clip[0].permute(1, 2, 0))
