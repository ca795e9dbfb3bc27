"""MixUp and CutMix of batches: torchvision's values for what is drawn, its distribution, its errors."""

import pickle
import random

import numpy as np
import pytest
import torch
from distributions import assert_same_counts, assert_same_numbers
from drawn import versions
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.transforms.tensors import Drawn

CLASSES = 7


@pytest.fixture(scope="module")
def v2():
    return versions()["v2"]


def theirs(v2, drawn, **options):
    """torchvision's transform, which draws what was drawn."""
    top, bottom, left, right = drawn.box
    if drawn.own == 1.0 and drawn.box != (0, 0, 0, 0):
        made = v2.CutMix(**options)
        params = {"box": (left, top, right, bottom), "lam_adjusted": drawn.target}
    else:
        made = v2.MixUp(**options)
        params = {"lam": drawn.target}
    made.make_params = lambda inputs: params
    return made


def batch_of(count, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 12, 17, generator=generator)
    return images.to(dtype), torch.randint(CLASSES, (count,), generator=generator)


def mixed(monkeypatch, transform, images, labels):
    """What the transform makes, and what it drew."""
    kind = type(transform.rolled)
    drawn = []
    original = kind.drawn

    def noted(self, *arguments):
        drawn.append(original(self, *arguments))
        return drawn[-1]

    with monkeypatch.context() as patch:
        patch.setattr(kind, "drawn", noted)
        found = transform(images, labels)
    return found, drawn[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_values_are_torchvisions(v2, monkeypatch, name, dtype):
    torch.manual_seed(seed := random.randrange(1 << 32))
    for count in (1, 2, 5, 8):
        for labels_are_dense in (False, True):
            images, labels = batch_of(count, seed, dtype)
            before = images.clone()
            if labels_are_dense:
                labels = torch.rand(count, CLASSES)
            ours = getattr(T, name)(num_classes=CLASSES)
            found, drawn = mixed(monkeypatch, ours, images, labels)
            wanted = theirs(v2, drawn, num_classes=CLASSES)(images, labels)
            assert type(found) is tuple
            assert torch.equal(found[0], wanted[0]), (seed, drawn)
            assert torch.equal(found[1], wanted[1]), (seed, drawn)
            assert torch.equal(images, before)


def test_bytes_are_rounded(monkeypatch):
    images = torch.randint(256, (6, 3, 9, 9), dtype=torch.uint8)
    found, drawn = mixed(monkeypatch, T.MixUp(num_classes=6), images, torch.arange(6))
    exact = images.double() * drawn.own + images.roll(1, 0).double() * (1 - drawn.own)
    assert found[0].dtype == torch.uint8 and (found[0] - exact).abs().max() <= 0.501
    cut, drawn = mixed(monkeypatch, T.CutMix(num_classes=6), images, torch.arange(6))
    top, bottom, left, right = drawn.box
    rest = torch.ones(9, 9, dtype=torch.bool)
    rest[top:bottom, left:right] = False
    assert torch.equal(cut[0][..., rest], images[..., rest])
    assert torch.equal(cut[0][..., ~rest], images.roll(1, 0)[..., ~rest])


@pytest.mark.covering
@pytest.mark.exhaustive
@pytest.mark.parametrize("alpha", [1.0, 0.2, 3.0])
@pytest.mark.parametrize("size", [(12, 17), (3, 4), (1, 1)])
def test_draws_have_torchvisions_distribution(v2, alpha, size):
    seed, count = random.randrange(1 << 32), 3000
    torch.manual_seed(seed)
    numbers = np.random.default_rng(seed)
    for name in ("MixUp", "CutMix"):
        rolled = getattr(T, name)(alpha=alpha, num_classes=2).rolled
        ours = [rolled.drawn(numbers, *size) for _ in range(count)]
        reference = getattr(v2, name)(alpha=alpha, num_classes=2)
        images = [torch.zeros(1, 1, *size)]
        drawn = [reference.make_params(images) for _ in range(count)]
        why = (seed, name, alpha, size)
        if name == "MixUp":
            assert_same_numbers([each.own for each in ours], [each["lam"] for each in drawn], why)
            continue
        targets = [each.target for each in ours], [each["lam_adjusted"] for each in drawn]
        assert_same_numbers(*targets, why)
        boxes = [each.box for each in ours]
        others = [(y1, y2, x1, x2) for x1, y1, x2, y2 in (each["box"] for each in drawn)]
        for edge in range(4):
            columns = ([box[edge] for box in each] for each in (boxes, others))
            assert_same_counts(*columns, (*why, edge))


def test_one_of_both(v2):
    torch.manual_seed(seed := random.randrange(1 << 32))
    choice = T.RandomChoice([T.CutMix(num_classes=4), T.MixUp(num_classes=4)], p=[3, 1])
    images, labels = torch.zeros(4, 1, 40, 40), torch.arange(4)
    images[0] = 1
    cuts = 0
    for _ in range(600):
        found, targets = choice(images, labels)
        assert targets.shape == (4, 4)
        cuts += len(found.unique()) == 2  # where blended, neither 0 nor 1
    # A cut may be empty, or of the whole image.
    assert abs(cuts - 450) < 70, (cuts, seed)
    assert "CutMix(alpha=1.0, num_classes=4)" in repr(choice)
    with pytest.raises(TypeError):
        T.RandomChoice([T.CutMix(num_classes=4), T.RandomInvert()])(images, labels)


def test_draws_are_of_torchs_seed():
    images, labels = batch_of(8)
    mixup = pickle.loads(pickle.dumps(T.MixUp(num_classes=CLASSES)))
    torch.manual_seed(5)
    first = [mixup(images, labels)[0] for _ in range(2)]
    torch.manual_seed(5)
    assert torch.equal(first[0], mixup(images, labels)[0]) and not torch.equal(*first)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [DataLoader, FastLoader])
def test_as_a_collate_fn_it_collates_first(workers, make):
    images, labels = batch_of(10)
    samples = list(zip(images, labels.tolist(), strict=True))
    for collate in (
        T.CutMix(num_classes=CLASSES),
        T.MixUp(num_classes=CLASSES),
        T.RandomChoice([T.CutMix(num_classes=CLASSES), T.MixUp(num_classes=CLASSES)]),
    ):
        batches = list(make(samples, 4, collate_fn=collate, num_workers=workers))
        assert [each[0].shape[0] for each in batches] == [4, 4, 2]
        for found, targets in batches:
            assert found.shape[1:] == images.shape[1:] and targets.shape[1] == CLASSES
            assert torch.allclose(targets.sum(1), torch.ones(len(targets)))


def test_more_than_a_pair():
    images, labels = batch_of(4)
    found = T.MixUp(num_classes=CLASSES)([images, labels, "rest"])
    assert type(found) is list and found[2] == "rest"
    found = T.CutMix(num_classes=CLASSES)(images, labels, torch.arange(4))
    assert torch.equal(found[2], torch.arange(4))


def test_what_cannot_be_mixed_is_refused_as_by_torchvision(v2):
    images, labels = batch_of(4)
    calls = [
        ({}, (images, labels)),
        ({"num_classes": 3}, (images, torch.zeros(4, 5))),
        ({"num_classes": 9}, (images, torch.zeros(4, 5, 6))),
        ({"num_classes": 9}, (images[0], labels)),
        ({"num_classes": 9}, (images[:3], labels)),
    ]
    for name in ("MixUp", "CutMix"):
        for options, arguments in calls:
            with pytest.raises(ValueError) as mine:
                getattr(T, name)(**options)(*arguments)
            with pytest.raises(ValueError) as other:
                getattr(v2, name)(**options)(*arguments)
            assert " ".join(str(mine.value).split()) == " ".join(str(other.value).split())
    for wrong in ({"alpha": 0}, {"alpha": -1}, {"labels_getter": len}):
        with pytest.raises(ValueError):
            T.MixUp(num_classes=3, **wrong)
    with pytest.raises(ValueError, match="must be a tensor"):
        T.MixUp(num_classes=3)(images, "labels")
    with pytest.raises(TypeError, match="a list of samples"):
        T.MixUp(num_classes=3)({"images": images})
    with pytest.raises(TypeError, match="floats or bytes"):
        T.MixUp(num_classes=9)(images.long(), labels)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        T.MixUp(num_classes=1)(images, labels + 1)


def test_what_is_all_its_own_stays():
    images, _labels = batch_of(3)
    rolled = T.MixUp(num_classes=CLASSES).rolled
    assert torch.equal(rolled.images(images, Drawn(1.0, 1.0)), images)
