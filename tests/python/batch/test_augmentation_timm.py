"""Erasing, Mixup and CutMix beside timm's own classes: its targets, its blends, its distributions."""

import functools
import math
import random

import numpy as np
import pytest
import torch
from augmenting import CLASSES, MIXINGS, batches_of, delivered, mixing
from pictures import import_torchvision

from exact import same_bits
from fastloader._core.batch.augmentation import Augmentation, Mixing, RandomErasing
from support import random_images

import_torchvision()
timm_mixup = pytest.importorskip("timm.data.mixup")
timm_erasing = pytest.importorskip("timm.data.random_erasing")


def timm_like(mixed):
    """timm's class with the parameters that ours drew."""
    kind = timm_mixup.FastCollateMixup if mixed.before_normalize else timm_mixup.Mixup
    return kind(
        mixed.mixup_alpha, mixed.cutmix_alpha, mixed.cutmix_minmax, mixed.prob, mixed.switch_prob,
        mixed.mode, mixed.correct_lam, mixed.label_smoothing, mixed.num_classes,
    )  # fmt: skip


def take(boxes, *_, **__):
    return next(boxes)


@pytest.mark.parametrize("mixed", [name for name in MIXINGS if name != "none"])
def test_images_and_targets_are_timms_for_the_same_draws(monkeypatch, mixed):
    """Our lambdas and boxes are put where timm draws its own: then its batches are ours."""
    config = MIXINGS[mixed]
    batches = batches_of(12, 8, 19, 14)
    augmentation = Augmentation(None, config)
    torch.manual_seed(3)
    draws = augmentation.begin()
    got = delivered(batches, Augmentation(None, config))
    plain = delivered(batches, None)
    for (pixels, labels), (normal, _), (image, target) in zip(batches, plain, got, strict=True):
        records = draws.records(8, 19, 14)
        cut = records.mix["cut"]
        is_cut = (cut[:, 1] > cut[:, 0]) & (cut[:, 3] > cut[:, 2])
        # An empty box is no box; timm then gives the image itself, and so do we.
        cuts = is_cut | ((records.weights[:, 0] != 1) & (records.mix["own_weight"] == 1))
        lam = records.weights[:, 0]
        count = 1 if config.mode == "batch" else len(lam) // (2 if config.mode == "pair" else 1)
        boxes = [(tuple(cut[i]), lam[i]) for i in range(count) if cuts[i]]
        theirs = timm_like(config)
        if config.mode == "batch":
            params = (float(lam[0]), bool(cuts[0]))
            monkeypatch.setattr(theirs, "_params_per_batch", lambda params=params: params)
        else:
            params = (lam[:count].copy(), cuts[:count])
            monkeypatch.setattr(theirs, "_params_per_elem", lambda _, params=params: params)
        monkeypatch.setattr(timm_mixup, "cutmix_bbox_and_lam", functools.partial(take, iter(boxes)))
        if config.before_normalize:
            samples = [(pixels[i].clone(), labels[i]) for i in range(len(labels))]
            bytes_, wanted = theirs(samples)
            ((expected_image, _),) = delivered([[bytes_, torch.zeros(len(bytes_))]], None)
        else:
            expected_image, wanted = theirs(normal.clone(), labels)
        assert image.shape == expected_image.shape
        # To the bit, but for a lambda of a whole batch, of which timm rounds 1 - lam from float64.
        tolerance = 5e-7 if config.mode == "batch" else 0
        torch.testing.assert_close(image, expected_image, rtol=0, atol=tolerance)
        torch.testing.assert_close(target, wanted, rtol=0, atol=tolerance)


def test_multi_label_targets_are_timms(way):
    config = mixing("elem", multi_label=True)
    dense = torch.rand(4, CLASSES, generator=torch.Generator().manual_seed(1))
    batch = [random_images(0, 4, 3, 8, 8), dense]
    torch.manual_seed(3)
    lam = torch.from_numpy(Augmentation(None, config).begin().records(4, 8, 8).weights[:, :1])
    ((_, target),) = delivered([batch], Augmentation(None, config))
    wanted = timm_mixup.mixup_target(dense, CLASSES, lam, config.label_smoothing, multi_label=True)
    torch.testing.assert_close(target, wanted, rtol=0, atol=1e-7)


def test_disabled_mixing_still_makes_targets(way):
    config = mixing("batch", enabled=False)
    (pixels, labels), *_ = batches_of(1, 4, 8, 8)
    ((image, target),) = delivered([[pixels, labels]], Augmentation(None, config))
    ((plain, _),) = delivered([[pixels, labels]], None)
    same_bits(image, plain)
    wanted = timm_mixup.mixup_target(labels, CLASSES, 1.0, config.label_smoothing)
    assert torch.equal(target, wanted)


def ks(one, other):
    """The two-sample Kolmogorov-Smirnov distance over its critical value at 1e-6."""
    one, other = np.sort(one), np.sort(other)
    at = np.concatenate((one, other))
    gap = np.abs(
        np.searchsorted(one, at, side="right") / len(one)
        - np.searchsorted(other, at, side="right") / len(other)
    ).max()
    n, m = len(one), len(other)
    return gap / math.sqrt(-math.log(1e-6 / 2) * (n + m) / (2 * n * m))


SEED = random.SystemRandom().randrange(2**31)


@pytest.mark.parametrize(
    "options", [{}, {"min_count": 2, "max_count": 4}, {"min_area": 0.3}], ids=str
)
def test_erased_boxes_have_timms_distribution(monkeypatch, options):
    """Sizes, ratios, places and numbers of boxes of 20 000 images of each."""
    height, width, n = 64, 48, 20_000
    print("seed", SEED)
    random.seed(SEED)
    torch.manual_seed(SEED)
    theirs = timm_erasing.RandomErasing(0.6, device="cpu", **options)
    found = []

    class Image:
        def __setitem__(self, where, value):
            _, rows, columns = where
            found.append((rows.start, rows.stop, columns.start, columns.stop))

    images, counted = Image(), []
    for _ in range(n):
        before = len(found)
        theirs._erase(images, 3, height, width, torch.float32)
        counted.append(len(found) - before)
    records = Augmentation(RandomErasing(0.6, **options), None).begin().records(n, height, width)
    boxes = records.boxes.reshape(-1, 4)
    filled = (boxes[:, 1] > boxes[:, 0]) | (boxes[:, 3] > boxes[:, 2])
    ours_counted = filled.reshape(n, -1).sum(axis=1)
    assert (records.mix["boxes"] >= ours_counted).all()
    ours, them = boxes[filled].T, np.array(found).T
    assert (ours[1] <= height).all() and (ours[3] <= width).all() and (ours >= 0).all()

    def measures(top, bottom, left, right):
        h, w = (bottom - top).astype(float), (right - left).astype(float)
        return {
            "height": h, "width": w, "area": h * w, "ratio": h / np.maximum(w, 1),
            "top": top / (height - h + 1), "left": left / (width - w + 1),
        }  # fmt: skip

    for name, values in measures(*ours).items():
        assert ks(values, measures(*them)[name]) < 1, (SEED, name)
    assert ks(ours_counted, np.array(counted)) < 1, SEED


def test_the_first_splits_are_left_alone():
    erasing = RandomErasing(1.0, num_splits=4, max_area=0.05)
    records = Augmentation(erasing, None).begin().records(10, 32, 32)
    assert (records.mix["boxes"][:2] == 0).all() and (records.mix["boxes"][2:] == 1).all()


@pytest.mark.parametrize("of_erasing", [True, False])
def test_a_sample_is_erased_alike_in_batches_of_any_size(of_erasing):
    """Also where a batch holds two pictures of each."""
    erasing = RandomErasing(1.0, mode="pixel", num_splits=2 if of_erasing else 0)

    def drawn(size):
        torch.manual_seed(5)
        draws = Augmentation(erasing, None, splits=0 if of_erasing else 2).begin()
        found = [[], []]
        for _ in range(12 // size):
            records = draws.records(2 * size, 20, 30)
            for split, rows in zip(found, (slice(0, size), slice(size, None))):
                split += zip(records.boxes[rows].tolist(), records.keys[rows].tolist())
        return found

    first, second = wanted = drawn(12)
    assert drawn(4) == drawn(1) == wanted
    assert not {key for _, key in first} & {key for _, key in second}


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["batch", "elem"])
@pytest.mark.parametrize(
    "options",
    [
        {"mixup_alpha": 0.2, "cutmix_alpha": 0.0},
        {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "prob": 0.7, "switch_prob": 0.3},
        {"mixup_alpha": 0.0, "cutmix_alpha": 1.0, "correct_lam": False},
        {"mixup_alpha": 0.0, "cutmix_minmax": (0.2, 0.8)},
    ],
    ids=str,
)
def test_lambdas_and_cut_boxes_have_timms_distribution(monkeypatch, mode, options):
    height, width, n = 40, 56, 6000
    print("seed", SEED)
    np.random.seed(SEED % 2**32)
    torch.manual_seed(SEED)
    theirs = timm_mixup.Mixup(mode=mode, **options)
    draw, boxes = timm_mixup.cutmix_bbox_and_lam, []

    def noted(*arguments, **keywords):
        box, lam = draw(*arguments, **keywords)
        boxes.append((box[0], box[1], box[2], box[3]))
        return box, lam

    monkeypatch.setattr(timm_mixup, "cutmix_bbox_and_lam", noted)
    ours = Augmentation(None, Mixing(mode=mode, **options)).begin()
    if mode == "batch":
        # Only the shape counts for the box.
        images = torch.zeros(2, 0, height, width)
        lams = [theirs._mix_batch(images) for _ in range(n)]
        drawn = [ours.records(2, height, width) for _ in range(n)]
        our_lams = np.array([each.weights[0, 0] for each in drawn])
        mixes = np.concatenate([each.mix[:1] for each in drawn])
    else:
        lams = theirs._mix_elem(torch.zeros(n, 0, height, width)).view(-1).tolist()
        records = ours.records(n, height, width)
        our_lams, mixes = records.weights[:, 0], records.mix
    assert ks(our_lams, np.array(lams)) < 1, SEED
    cut = mixes["cut"][(mixes["own_weight"] == 1) & (our_lams != 1)]
    assert len(cut) > 0 or options["cutmix_alpha"] == 0
    them = np.array([box for box in boxes if box[1] > box[0] and box[3] > box[2]]).reshape(-1, 4)
    cut = cut[(cut[:, 1] > cut[:, 0]) & (cut[:, 3] > cut[:, 2])]
    for edge in range(4):
        if len(cut):
            assert ks(cut[:, edge], them[:, edge]) < 1, (SEED, edge)


def test_the_fill_is_normal():
    erasing = RandomErasing(1.0, 0.3, 0.3, mode="pixel")
    images = torch.zeros(64, 3, 64, 64, dtype=torch.uint8)
    augmentation = Augmentation(erasing, None)
    torch.manual_seed(SEED)
    records = augmentation.begin().records(64, 64, 64)
    ((image,),) = ([each] for each in delivered_images(images, augmentation))
    inside = np.zeros((64, 64, 64), dtype=bool)
    for n, (top, bottom, left, right) in enumerate(records.boxes[:, 0]):
        inside[n, top:bottom, left:right] = True
    values = image.permute(0, 2, 3, 1)[torch.from_numpy(inside)].double()
    count = values.numel()
    assert abs(values.mean()) < 6 / math.sqrt(count), SEED
    assert abs(values.var() - 1) < 6 * math.sqrt(2 / count) + 2e-3, SEED
    normal = torch.randn(count, generator=torch.Generator().manual_seed(SEED)).double()
    assert ks(values.flatten().numpy(), normal.numpy()) < 1, SEED
    # Channels and neighbours are independent.
    assert abs(np.corrcoef(values.T)[0, 1]) < 6 / math.sqrt(len(values)), SEED


def delivered_images(images, augmentation):
    augmentation._epochs = 0
    return [each[0] for each in delivered([[images]], augmentation, seed=SEED)]
