"""Transforms within transforms: what is chosen, in which order, and what size comes out."""

import collections
import random

import pytest
import torch
from drawn import applied, refuse_alike, same_counts, same_picture, samples, versions
from pictures import picture

from fastloader import transforms as T
from fastloader.errors import NotNative
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms.transform import step_of

SEED = 20260404
MANY = 4000
INVERT, POSTERIZE, EQUALIZE = T.RandomInvert(1), T.RandomPosterize(3, 1), T.RandomEqualize(1)
NAMES = ("invert", "posterize", "equalize")


class Named:
    """A user's transform: it is any function."""

    def __init__(self, name, done):
        self.name, self.done = name, done

    def __call__(self, image):
        self.done.append(self.name)
        return image


def by_names(leaves):
    return tuple(name for name, *_ in leaves)


def make(module, kind, children, p):
    if kind == "RandomOrder":
        return module.RandomOrder(children)
    return getattr(module, kind)(children, p)


CASES = [
    ("RandomApply", 0.3),
    ("RandomApply", 1.0),
    ("RandomApply", 0.0),
    ("RandomChoice", None),
    ("RandomChoice", [1, 0.0, 3]),
    ("RandomOrder", None),
]


@pytest.mark.parametrize("kind, p", CASES)
def test_chosen_as_torchvision_does(kind, p):
    torch.manual_seed(SEED)
    random.seed(SEED)
    image = picture(random.Random(1), 5, 4)
    ours = make(T, kind, [INVERT, POSTERIZE, EQUALIZE], p)
    mine = [by_names(leaves) for leaves in samples(ours, (4, 5), MANY, SEED)]
    for version, torchvision in versions().items():
        done, theirs = [], []
        transform = make(torchvision, kind, [Named(name, done) for name in NAMES], p)
        for _ in range(MANY):
            done.clear()
            transform(image)
            theirs.append(tuple(done))
        same_counts(mine, theirs, (SEED, version, kind, p))


@pytest.mark.parametrize("kind, p", CASES)
def test_functions_are_chosen_as_steps_are(kind, p):
    """With the same random numbers, so that a chain draws the same with a function in a step's place."""
    image = picture(random.Random(1), 5, 4)
    ours = make(T, kind, [INVERT, POSTERIZE, EQUALIZE], p)
    done = []
    other = make(T, kind, [Named(name, done) for name in NAMES], p)
    for seed in range(200):
        done.clear()
        assert other.apply(image, Draw(seed)) is image
        _, leaves = applied(ours, image, seed)
        assert tuple(done) == by_names(leaves)
    with pytest.raises(NotNative, match="Named"):
        other.step((4, 5))


def test_two_of_a_kind_draw_apart():
    image = picture(random.Random(1), 5, 4)
    done = []
    one, other = (T.RandomApply([Named(name, done)], 0.5) for name in "ab")
    counts = collections.Counter()
    for seed in range(400):
        done.clear()
        T.Compose([one, other]).apply(image, Draw(seed))
        counts[tuple(done)] += 1
    assert len(counts) == 4 and min(counts.values()) > 60


def test_a_step_that_needs_a_size_that_is_drawn():
    """Not natively, but Pillow's picture has one when its turn comes."""
    chain = T.RandomApply([T.RandomRotation(30, expand=True), T.RandAugment()], 1)
    with pytest.raises(NotNative, match="RandAugment moves pictures"):
        chain.step((20, 30))
    image = picture(random.Random(1), 30, 20)
    made = chain.apply(image, Draw(3))
    assert made.size != image.size
    same_picture(made, chain.apply(image, Draw(3)))


def test_chains_within_chains():
    inner = T.Compose([T.RandomCrop(3), T.RandomOrder([INVERT, T.ColorJitter(0.5)])])
    chain = T.RandomChoice([inner, T.Compose([EQUALIZE])])
    step = chain.step(None)
    assert [child.kind for child in step.children] == ["all", "all"]
    assert step.children[0].children[1].kind == "order"
    assert T.Compose([]).step(None).children == ()


class OfAnother(T.RandomInvert):
    def apply(self, image, draw):
        return image


NO_STEP = {
    "OfAnother": OfAnother(),
    "ToTensor": T.ToTensor(),
    "len": len,
    "Grayscale": T.Grayscale(),
}


@pytest.mark.parametrize("name", NO_STEP)
def test_what_has_no_step(name):
    child = NO_STEP[name]
    for holder in (
        T.Compose([INVERT, child]),
        T.RandomApply([INVERT, child]),
        T.RandomChoice([INVERT, child]),
        T.RandomOrder([INVERT, child]),
    ):
        with pytest.raises(NotNative, match=name):
            holder.step((4, 5))
        assert holder.size_after((4, 5)) is None or name == "Grayscale"


def test_figures_that_cannot_be_drawn_from_are_not_native():
    with pytest.raises(NotNative, match="RandomSolarize"):
        step_of(T.RandomSolarize(1e200), None)


def test_a_transform_that_is_changed_has_no_step():
    changed = T.RandomInvert()
    changed.apply = lambda image, draw: image
    with pytest.raises(NotNative, match="RandomInvert"):
        step_of(changed, None)


SMALL, SAME = T.CenterCrop(2), T.ColorJitter(0.5)
SIZES = [
    (T.Compose([SAME, SMALL]), (3, 4), (2, 2)),
    (T.Compose([SAME, SMALL]), None, (2, 2)),
    (T.Compose([]), (3, 4), (3, 4)),
    (T.RandomApply([SAME]), (3, 4), (3, 4)),
    (T.RandomApply([SMALL]), (3, 4), None),
    (T.RandomApply([SMALL]), (2, 2), (2, 2)),
    (T.RandomApply([SMALL], 1), (3, 4), (2, 2)),
    (T.RandomApply([SMALL], 0), (3, 4), (3, 4)),
    (T.RandomApply([T.Pad(1), T.CenterCrop((3, 4))]), (3, 4), (3, 4)),
    (T.RandomChoice([SAME, INVERT]), (3, 4), (3, 4)),
    (T.RandomChoice([SAME, SMALL]), (3, 4), None),
    (T.RandomChoice([SAME, SMALL], [0, 1]), (3, 4), (2, 2)),
    (T.RandomChoice([SMALL, T.RandomCrop(2)]), None, (2, 2)),
    (T.RandomOrder([SAME, INVERT]), (3, 4), (3, 4)),
    (T.RandomOrder([SAME, SMALL]), (3, 4), None),
    (T.RandomOrder([SMALL]), None, (2, 2)),
]


@pytest.mark.parametrize("transform, before, after", SIZES)
def test_sizes(transform, before, after):
    assert transform.size_after(before) == after
    if before is not None and after is not None:
        image = picture(random.Random(1), before[1], before[0])
        assert {transform(image).size for _ in range(20)} == {after[::-1]}


@pytest.mark.parametrize("child", [T.RandAugment(), T.AutoAugment(T.AutoAugmentPolicy.SVHN)])
def test_sizes_arrive_where_they_are_needed(child):
    T.Compose([SMALL, child]).step(None)
    T.RandomApply([SMALL, child]).step(None)
    T.RandomChoice([SAME, child]).step((3, 4))
    T.RandomOrder([SAME, child]).step((3, 4))
    T.RandomOrder([child]).step((3, 4))
    for holder in (
        T.RandomOrder([SMALL, child]),
        T.RandomChoice([SMALL, child]),
        T.Compose([T.RandomApply([SMALL]), child]),
    ):
        with pytest.raises(NotNative, match="RandomResizedCrop"):
            holder.step(None)


# A head's steps draw with other numbers where they stand within others, but as likely.
def test_a_resized_crop_within_another_is_distributed_as_before():
    image = picture(random.Random(1), 40, 30)
    crop = T.RandomResizedCrop(5, interpolation="random")
    boxes, filters = ([], []), ([], [])
    for ((_, _, operations),) in samples(crop, (30, 40), MANY, SEED):
        (_, box), (_, (height, width, resampling)) = operations
        assert (height, width) == (5, 5)
        boxes[0].append(box[2] * box[3] // 60)
        filters[0].append(resampling)

    class Recorded:
        height, width = image.height, image.width

        def crop(self, box):
            boxes[1].append((box[2] - box[0]) * (box[3] - box[1]) // 60)
            return self

        def resize(self, size, resampling):
            filters[1].append(int(resampling))

    for seed in range(MANY):
        crop.apply(Recorded(), Draw(SEED + seed))
    same_counts(*boxes, SEED)
    same_counts(*filters, SEED)


REFUSED = [
    ("RandomApply", (INVERT,), ("v2",)),
    ("RandomApply", ([],), ("v2",)),
    ("RandomApply", ([INVERT], 1.5), ("v2",)),
    ("RandomChoice", (INVERT,), ("v1", "v2")),
    ("RandomChoice", ([],), ("v2",)),
    ("RandomChoice", ([INVERT], [1, 2]), ("v2",)),
    ("RandomChoice", ([INVERT], 1), ("v1", "v2")),
    ("RandomChoice", ([INVERT, INVERT], [0, 0]), ("call",)),
    ("RandomChoice", ([INVERT, INVERT], [2, -1]), ()),
    ("RandomOrder", (INVERT,), ("v1", "v2")),
    ("RandomOrder", ([],), ("v2",)),
]


@pytest.mark.parametrize("name, arguments, when", REFUSED)
def test_refused_as_torchvision_does(name, arguments, when):
    refuse_alike(versions(), name, arguments, when, picture(random.Random(1), 5, 4))


def test_a_list_of_modules():
    held = torch.nn.ModuleList([torch.nn.Identity()])
    image = picture(random.Random(1), 5, 4)
    assert T.RandomApply(held, 1)(image) is image
