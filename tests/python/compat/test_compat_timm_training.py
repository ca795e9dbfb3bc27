"""compat.timm beside the installed timm: training takes the samples in its order and draws
as it does."""

import random

import numpy as np
import pytest
import torch
from beside_timm import assert_close, pair
from pictures import script
from torch.utils.data import default_collate

from fastloader.compat import timm as ours

pytestmark = pytest.mark.covering


def labels_of(loader, epochs=2):
    return [[labels.tolist() for _images, labels in loader] for _ in range(epochs)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("multi", [False, True])
def test_training_order(theirs, root, workers, multi):
    """The same pictures in the same order for the same seed, epoch by epoch."""
    options = {
        "is_training": True,
        "color_jitter": None,
        "num_workers": workers,
        "use_multi_epochs_loader": multi,
        "interpolation": "random",
        "hflip": 0,  # timm's flips draw from the generator that the next epoch's order comes from
    }
    mine, their = pair(theirs, root, 24, 4, **options)
    for loader in (mine, their):
        loader.dataset.reader.samples = [
            (path, number) for number, (path, _class) in enumerate(loader.dataset.reader.samples)
        ]
    torch.manual_seed(11)
    got = labels_of(mine, 3)
    torch.manual_seed(11)
    assert got == labels_of(their, 3)
    assert len({str(epoch) for epoch in got}) == 3
    assert mine.loader.plan().startswith("native"), mine.loader.plan()
    mine.close()
    if multi:
        their.loader.iterator = None


def test_training_distribution(theirs, tmp_path):
    """A picture of one colour ramp tells the crop: means and spreads as timm's, flips included."""
    ramp = np.zeros((64, 96, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(96)[None] * 2, np.arange(64)[:, None] * 3
    (tmp_path / "a").mkdir()
    from PIL import Image

    for number in range(100):
        Image.fromarray(ramp).save(tmp_path / "a" / f"{number}.png")
    options = {"is_training": True, "color_jitter": 0, "vflip": 0.3, "num_workers": 0}
    seed = random.randrange(2**31)
    print("seed", seed)
    found = []
    random.seed(seed)
    torch.manual_seed(seed)
    for loader in pair(theirs, str(tmp_path), 16, 50, scale=(0.2, 0.9), **options):
        images = torch.cat([images for _ in range(10) for images, _labels in loader]).double()
        steps = torch.stack(
            [
                images.mean((1, 2, 3)),
                images[:, 0, 8, -1] - images[:, 0, 8, 0],  # width of the crop, sign of the flip
                images[:, 1, -1, 8] - images[:, 1, 0, 8],
                (images[:, 0, 8, -1] < images[:, 0, 8, 0]).double(),
                (images[:, 1, -1, 8] < images[:, 1, 0, 8]).double(),
            ]
        )
        found.append((steps.mean(1), steps.std(1)))
    (mean, spread), (their_mean, their_spread) = found
    error = their_spread / 1000**0.5
    assert ((mean - their_mean).abs() < 6 * error).all(), (mean, their_mean, error)
    torch.testing.assert_close(spread, their_spread, rtol=0.15, atol=0)


def test_many_epochs_of_one_iterator(root, way):
    """On every path: break off and go on, epoch after epoch, other crops in each, and an end."""
    loader = ours.create_loader(
        ours.ImageDataset(root), 24, 4, is_training=True, color_jitter=None, device="cpu",
        use_multi_epochs_loader=True,
    )  # fmt: skip
    first = next(iter(loader))
    epochs = [[images for images, _labels in loader] for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [5, 5, 5] and len(loader) == 5
    seen = [first[0], *(images for epoch in epochs for images in epoch)]
    assert len({each.double().sum().item() for each in seen}) == 16
    iterator = loader.loader.iterator
    loader.close()
    assert loader.loader.iterator is None and list(iterator) == []
    assert len(list(loader)) == 5
    loader.close()


def test_an_empty_dataset_of_many_epochs(root):
    """torch's endless sampler would look for a first index for ever."""
    loader = ours.create_loader(
        ours.ImageDataset(root), 24, 50, is_training=True, color_jitter=None, device="cpu",
        use_multi_epochs_loader=True,
    )  # fmt: skip
    assert len(loader) == 0 and list(loader) == []


EXIT = """
    import sys
    from fastloader.compat.timm import ImageDataset, create_loader

    loader = create_loader(ImageDataset(sys.argv[1]), 24, 4, is_training=True, device="cpu",
                           color_jitter=None, use_multi_epochs_loader=sys.argv[2] == "multi")
    kept = iter(loader)
    print(len(next(kept)))
"""


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("multi", ["multi", "once"])
def test_the_process_ends_with_an_epoch_under_way(root, way, multi):
    done = script(EXIT, root, multi, env=way.env)
    assert (done.stdout, done.stderr) == ("2\n", "")


# Erasing for a collate_fn without prefetcher brings timm's whole chain.
TIMMS = {
    "alone": {},
    "augmix": {"auto_augment": "augmix-m5-w4-d2"},
    "blended": {"auto_augment": "augmix-m3-w4-d2-b1-mstd1", "hflip": 0.0},
    "grayscale": {"grayscale_prob": 0.3, "interpolation": "random"},
    "blur": {"gaussian_blur_prob": 0.3, "vflip": 0.5},
    "rkrc": {"train_crop_mode": "rkrc"},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", TIMMS)
def test_timms_augmentations(theirs, root, name, workers):
    """Its own transforms on its own random numbers, without a native beginning: the same pictures."""
    mine, their = pair(
        theirs, root, 24, 4, is_training=True, num_workers=workers, persistent_workers=False,
        re_prob=0.3, use_prefetcher=False, collate_fn=default_collate, color_jitter=None,
        **TIMMS[name],
    )  # fmt: skip
    mine.native = False
    batches = []
    for loader in (mine, their):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        batches.append(list(loader))
    assert_close(*batches)


def test_augmentation_splits(theirs, root):
    options = {
        "is_training": True,
        "auto_augment": "augmix-m5-w4-d2",
        "num_aug_splits": 3,
        "num_workers": 0,
        "device": torch.device("cpu"),
    }
    batches = []
    for kind in (ours, theirs):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        dataset = theirs.AugMixDataset(kind.ImageDataset(root), num_splits=3)
        batches.append(list(kind.create_loader(dataset, 24, 4, **options)))
    assert batches[0][0][0].shape == (12, 3, 24, 24)
    assert_close(*batches)


def test_scheduled_sizes(theirs, root):
    options = {
        "is_training": True,
        "color_jitter": None,
        "input_size_choices": [16, (20, 24), (3, 28, 28)],
        "batch_size_choices": [8, 6, 4],
        "batch_choice_seed": 3,
        "num_workers": 0,
    }
    mine, their = pair(theirs, root, 28, 4, **options)
    for epoch in range(2):
        shapes = []
        for loader in (mine, their):
            torch.manual_seed(9)
            if hasattr(loader.batch_sampler, "set_epoch"):
                loader.batch_sampler.set_epoch(epoch)
            shapes.append([(tuple(images.shape), labels.tolist()) for images, labels in loader])
        assert shapes[0] == shapes[1]
    assert len(mine) == len(their) and len({shape for shape, _labels in shapes[0]}) > 1


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"is_training": False}, ValueError),
        ({"use_multi_epochs_loader": True}, ValueError),
        ({"num_aug_splits": 2}, ValueError),
        ({"input_size_choices": []}, ValueError),
        ({"input_size_choices": [16, (4, 16, 16)]}, ValueError),
        ({"input_size_choices": [16, (16, 0)]}, ValueError),
        ({"batch_size_choices": [4]}, ValueError),
        ({"batch_choice_weights": [1.0]}, ValueError),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_scheduled_sizes_refused(theirs, root, options, kind):
    options = {
        "is_training": True, "color_jitter": None, "input_size_choices": [16, 20], **options
    }  # fmt: skip
    for data in (ours, theirs):
        with pytest.raises(kind):
            data.create_loader(
                data.ImageDataset(root), 16, 4, device=torch.device("cpu"), **options
            )
