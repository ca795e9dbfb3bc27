"""The transforms: torchvision's arguments, messages, geometry and distribution; the draws are ours, the
same in Python and in C++."""

import math
import pickle
import random

import numpy as np
import pytest
import torch
from drawn import versions
from pictures import (
    center_cropped_as_torchvision,
    import_timm,
    import_torchvision,
    picture,
    resized_as_torchvision,
)
from PIL import Image

from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.transforms._recipe import draws as _draws
from fastloader.transforms._recipe import sized


@pytest.fixture
def tv():
    return import_torchvision().transforms


@pytest.fixture
def native():
    module = extension.load()
    if module is None:
        pytest.skip("the native module is not in use")
    return module


def same_image(one, other):
    assert one.mode == other.mode and one.size == other.size
    assert np.array_equal(np.asarray(one), np.asarray(other))


# --- arguments ----------------------------------------------------------------------------------

REFUSED = [
    ("Resize", ("7",), TypeError, "Size should be int or sequence. Got <class 'str'>"),
    ("Resize", (7.5,), TypeError, "Size should be int or sequence. Got <class 'float'>"),
    ("Resize", ((1, 2, 3),), ValueError, "If size is a sequence, it should have 1 or 2 values"),
    ("Resize", ((),), ValueError, "If size is a sequence, it should have 1 or 2 values"),
    (
        "RandomResizedCrop",
        ((1, 2, 3),),
        ValueError,
        "Please provide only two dimensions (h, w) for size.",
    ),
    ("CenterCrop", ((1, 2, 3),), ValueError, "Please provide only two dimensions (h, w) for size."),
    ("RandomResizedCrop", (7, 0.5), TypeError, "Scale should be a sequence"),
    ("RandomResizedCrop", (7, (0.5, 1), 2.0), TypeError, "Ratio should be a sequence"),
]


@pytest.mark.parametrize("name, arguments, kind, text", REFUSED)
def test_refused_as_documented(name, arguments, kind, text):
    with pytest.raises(kind) as caught:
        getattr(T, name)(*arguments)
    assert str(caught.value) == text


def test_refused_as_torchvision_does(tv):
    for name, arguments, kind, text in REFUSED:
        if arguments == ("7",):
            continue  # a sequence of one, for torchvision
        with pytest.raises(kind) as caught:
            getattr(tv, name)(*arguments)
        assert str(caught.value) == text, name


@pytest.mark.parametrize("max_size", [5, 7])
def test_max_size_must_exceed_size(max_size):
    text = (
        f"max_size = {max_size} must be strictly greater than the requested size for the smaller "
        "edge size = 7"
    )
    with pytest.raises(ValueError, match=text):
        T.Resize(7, max_size=max_size)


def test_max_size_is_for_one_edge():
    with pytest.raises(ValueError, match="max_size should only be passed if size specifies"):
        T.Resize((7, 8), max_size=9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Resize(0),
        lambda: T.Resize((4, -1)),
        lambda: T.CenterCrop(0),
        lambda: T.RandomResizedCrop(-3),
        lambda: T.RandomResizedCrop(7, scale=(0.5, 0.2)),
        lambda: T.RandomResizedCrop(7, scale=(-0.5, 0.2)),
        lambda: T.RandomResizedCrop(7, ratio=(0.0, 1.0)),
        lambda: T.RandomResizedCrop(7, ratio=(2.0, 1.0)),
        lambda: T.RandomResizedCrop(7, ratio=(1.0, math.inf)),
        lambda: T.RandomResizedCrop(7, ratio=(1.0, math.nan)),
        lambda: T.RandomResizedCrop(7, scale=(0.1, 0.2, 0.3)),
        lambda: T.Resize(7, "cubic"),
        lambda: T.Resize(7, 6),
        lambda: T.Resize(7, antialias=False),
        lambda: T.RandomResizedCrop(7, antialias=False),
        lambda: T.RandomHorizontalFlip(1.5),
        lambda: T.RandomVerticalFlip(-0.5),
    ],
)
def test_refused_though_torchvision_fails_later_or_never(make):
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize("make", [T.CenterCrop, T.RandomResizedCrop, T.Resize])
@pytest.mark.parametrize("size", [(4.5, 6), ("4", 6), "46", None])
def test_edges_are_whole_numbers(make, size):
    with pytest.raises(TypeError):
        make(size)


@pytest.mark.parametrize("name", ["CenterCrop", "RandomResizedCrop"])
@pytest.mark.parametrize("size", [np.int64(7), np.array([7, 8]), torch.Size([7, 8])])
def test_sizes_as_torchvision_takes_them(tv, name, size):
    image = picture(random.Random(1), 31, 17)
    assert getattr(T, name)(size)(image).size == getattr(tv, name)(size)(image).size
    assert getattr(T, name)(7.9)(image).size == getattr(tv, name)(7.9)(image).size == (7, 7)
    assert T.RandomHorizontalFlip(np.float32(0.5)).p == 0.5


def test_interpolation_by_every_name(tv):
    for name in ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"):
        mode = tv.InterpolationMode(name)
        pillow = Image.Resampling[name.upper()]
        for given in (name, mode, pillow, int(pillow)):
            assert T.Resize(7, given).interpolation == name
            assert T.RandomResizedCrop(7, interpolation=given).interpolation == name
    assert T.Resize(7, tv.InterpolationMode.NEAREST_EXACT).interpolation == "nearest"
    with pytest.raises(ValueError, match="bilinear"):
        T.RandomRotation(7, "lanczos")


def test_defaults_are_torchvisions(tv):
    import inspect

    v2 = versions()["v2"]
    for name in T.__all__:
        if not isinstance(getattr(T, name), type):
            continue  # a function of ours
        ours = inspect.signature(getattr(T, name).__init__).parameters
        home = tv if hasattr(tv, name) else v2
        theirs = inspect.signature(getattr(home, name).__init__).parameters
        assert list(ours)[: len(theirs)] == list(theirs), name
        for each in theirs:
            mine, other = ours[each].default, theirs[each].default
            if each == "interpolation":
                mine = tv.InterpolationMode(mine)
            if each == "policy":
                mine, other = mine.value, other.value
            assert mine == other, (name, each)


def test_attributes_are_torchvisions(tv):
    """What code reads off a transform, timm's and Lightning's for instance."""
    for name, arguments in (
        ("Resize", (7,)),
        ("Resize", ((7, 8),)),
        ("CenterCrop", (7,)),
        ("CenterCrop", ((7, 8),)),
        ("RandomResizedCrop", (7,)),
        ("RandomHorizontalFlip", (0.25,)),
        ("RandomVerticalFlip", (0.25,)),
    ):
        ours, theirs = getattr(T, name)(*arguments), getattr(tv, name)(*arguments)
        for each in ("scale", "ratio", "p", "max_size"):
            assert getattr(ours, each, None) == getattr(theirs, each, None), (name, each)
        wanted = getattr(theirs, "size", None)
        if wanted is not None:
            wanted = (wanted,) if isinstance(wanted, int) else tuple(wanted)
            assert tuple(ours.size) == wanted, name


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: T.CenterCrop(7), "CenterCrop(size=(7, 7))"),
        (lambda: T.RandomHorizontalFlip(), "RandomHorizontalFlip(p=0.5)"),
        (lambda: T.Resize(7), "Resize(size=(7,), max_size=None, interpolation='bilinear', "),
        (
            lambda: T.RandomResizedCrop(7),
            "RandomResizedCrop(size=(7, 7), scale=(0.08, 1.0), ratio=",
        ),
        (lambda: T.PILToTensor(), "PILToTensor()"),
        (lambda: T.Compose([T.CenterCrop(7)]), "Compose(transforms=[CenterCrop(size=(7, 7))])"),
    ],
)
def test_repr(make, text):
    assert repr(make()).startswith(text)


def test_pickle():
    chain = T.Compose([T.RandomResizedCrop(7, interpolation="bicubic"), T.RandomHorizontalFlip()])
    assert repr(pickle.loads(pickle.dumps(chain))) == repr(chain)


# --- geometry -----------------------------------------------------------------------------------


def sizes(count, seed):
    rng = random.Random(seed)
    return [(rng.randint(1, 300), rng.randint(1, 300)) for _ in range(count)]


def test_resize_geometry(tv):
    rng = random.Random(0)
    for width, height in sizes(400, 1):
        size = rng.choice([rng.randint(1, 300), [rng.randint(1, 300)]])
        first = size if isinstance(size, int) else size[0]
        max_size = rng.choice([None, first + rng.randint(1, 100)])
        theirs = tv.functional._compute_resized_output_size((height, width), [first], max_size)
        ours = sized.resized(height, width, T.Resize(size, max_size=max_size).size, max_size)
        assert list(ours) == theirs, (height, width, size, max_size)


@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_resize_gives_torchvisions_pixels(tv, filter):
    rng = random.Random(3)
    mode = tv.InterpolationMode(filter)
    for width, height in sizes(25, 4):
        if max(width, height) > 20 * min(width, height):
            continue
        image = picture(rng, width, height)
        first = rng.randint(2, 60)
        longest = first + rng.randint(1, 40)
        for size, max_size in (
            (first, None),
            (first, longest),
            ((first, rng.randint(1, 60)), None),
        ):
            theirs = tv.Resize(size, mode, max_size=max_size)(image)
            same_image(T.Resize(size, filter, max_size=max_size)(image), theirs)
            pair = (size,) if isinstance(size, int) else size
            same_image(resized_as_torchvision(image, pair, max_size, filter), theirs)


def test_center_crop_gives_torchvisions_pixels(tv):
    """Also where it pads, on one edge or both."""
    rng = random.Random(5)
    for width, height in sizes(60, 6):
        image = picture(rng, width, height)
        for _ in range(4):
            size = (rng.randint(1, 2 * height), rng.randint(1, 2 * width))
            theirs = tv.CenterCrop(size)(image)
            same_image(T.CenterCrop(size)(image), theirs)
            same_image(center_cropped_as_torchvision(image, size), theirs)


def test_flips_and_tensors_give_torchvisions_pixels(tv):
    rng = random.Random(7)
    for mode in ("RGB", "L", "RGBA"):
        image = picture(rng, 31, 17, mode)
        for name in ("RandomHorizontalFlip", "RandomVerticalFlip"):
            same_image(getattr(T, name)(1.0)(image), getattr(tv, name)(1.0)(image))
            same_image(getattr(T, name)(0.0)(image), image)
        assert torch.equal(T.PILToTensor()(image), tv.PILToTensor()(image))
        assert torch.equal(T.ToTensor()(image), tv.ToTensor()(image))
    chain, theirs = (
        each.Compose([each.ToTensor(), each.Normalize((0.4, 0.5, 0.6), (0.1, 0.2, 0.3))])
        for each in (T, tv)
    )
    image = picture(rng, 31, 17)
    assert torch.allclose(chain(image), theirs(image), atol=2e-6, rtol=0)


@pytest.mark.parametrize("mode", ["1", "I", "F", "I;16", "P", "LA", "CMYK"])
def test_tensors_of_every_mode_are_torchvisions(tv, mode):
    image = picture(random.Random(7), 31, 17, mode)
    for name in ("ToTensor", "PILToTensor"):
        ours, theirs = getattr(T, name)()(image), getattr(tv, name)()(image)
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), name


def test_tensors_are_made_of_images_only():
    for step in (T.ToTensor(), T.PILToTensor()):
        with pytest.raises(TypeError, match="tensor"):
            step(torch.zeros(3, 4, 5))


def test_normalize_needs_floats():
    image = picture(random.Random(0), 4, 4)
    with pytest.raises(TypeError, match="float"):
        T.Normalize([0.5], [0.5])(T.PILToTensor()(image))
    with pytest.raises(TypeError):
        T.Normalize([0.5], [0.5])(image)
    with pytest.raises(ValueError, match="zero"):
        T.Normalize([0.5], [0.0])(T.ToTensor()(image))


def test_normalize_in_place_only_when_asked():
    floats = torch.rand(3, 4, 5)
    before = floats.clone()
    T.Normalize([0.5] * 3, [0.5] * 3)(floats)
    assert torch.equal(floats, before)
    T.Normalize([0.5] * 3, [0.5] * 3, inplace=True)(floats)
    assert torch.allclose(floats, (before - 0.5) / 0.5)


# --- draws --------------------------------------------------------------------------------------


def ranges(rng):
    scale = sorted((rng.uniform(0, 1.5), rng.uniform(0, 1.5)))
    ratio = sorted((math.exp(rng.uniform(-2, 2)), math.exp(rng.uniform(-2, 2))))
    if rng.random() < 0.2:
        scale[0] = scale[1]
    if rng.random() < 0.2:
        ratio[0] = ratio[1]
    return tuple(scale), tuple(ratio)


def test_python_draws_what_cpp_draws(native):
    """Fresh numbers on every run; a failure shows them."""
    rng = random.Random()
    for _ in range(3000):
        longest = rng.choice([3, 40, 700, 5000])
        height, width = rng.randint(1, longest), rng.randint(1, longest)
        seed, index = rng.getrandbits(64), rng.choice([rng.getrandbits(64), rng.randint(0, 99)])
        scale, ratio = ranges(rng)
        flip = rng.random()
        found = native.ImageTransform(
            random_crop=[*scale, *ratio],
            exact=(7, 7),
            horizontal_flip=flip,
            vertical_flip=0.5,
            filter=native.Interpolation.RANDOM,
        ).geometry(height=height, width=width, index=index, seed=seed)
        draws = _draws.Draws(seed, index, _draws.CROP)
        box = sized.random_resized_crop(height, width, scale, ratio, draws)
        wanted = {
            "box": box,
            "hflip": _draws.Draws(seed, index, _draws.HORIZONTAL_FLIP).uniform() < flip,
            "vflip": _draws.Draws(seed, index, _draws.VERTICAL_FLIP).uniform() < 0.5,
            "interpolation": sized.random_interpolation(
                _draws.Draws(seed, index, _draws.INTERPOLATION)
            ),
        }
        assert found == wanted, (height, width, seed, index, scale, ratio, flip)
        left, top, w, h = box
        assert left >= 0 and left + w <= width and top >= 0 and top + h <= height
        assert w > 0 and h > 0


def test_center_crops_of_python_are_those_of_cpp(native):
    """The box of a chain without random crop is the whole picture."""
    transform = native.ImageTransform(shorter=30, center_crop=(20, 20))
    found = transform.geometry(height=50, width=60, index=1, seed=2)
    assert found == {
        "box": (0, 0, 60, 50),
        "hflip": False,
        "vflip": False,
        "interpolation": "bilinear",
    }
    assert transform.output == (20, 20)


def boxes_of(get, count):
    return np.array([get(i) for i in range(count)], dtype=np.float64)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "size, scale, ratio",
    [
        ((375, 500), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((40, 300), (0.3, 1.0), (3 / 4, 4 / 3)),  # often falls back to the centre
        ((50, 50), (0.01, 0.2), (0.2, 5.0)),
    ],
)
@pytest.mark.parametrize("peer", ["torchvision", "timm"])
def test_distribution_is_that_of(tv, peer, size, scale, ratio):
    get_params = tv.RandomResizedCrop.get_params
    if peer == "timm":
        get_params = import_timm().data.transforms.RandomResizedCropAndInterpolation.get_params
    height, width = size
    image = Image.new("L", (width, height))
    count = 4000
    generator = torch.get_rng_state()
    torch.manual_seed(0)
    random.seed(0)

    def theirs(_):
        top, left, h, w = get_params(image, list(scale), list(ratio))
        return left, top, w, h

    def ours(i):
        return sized.random_resized_crop(
            height, width, scale, ratio, _draws.Draws(11, i, _draws.CROP)
        )

    one, other = boxes_of(theirs, count), boxes_of(ours, count)
    torch.set_rng_state(generator)
    columns = {
        "left": lambda b: b[:, 0],
        "top": lambda b: b[:, 1],
        "width": lambda b: b[:, 2],
        "height": lambda b: b[:, 3],
        "area": lambda b: b[:, 2] * b[:, 3],
        "ratio": lambda b: b[:, 2] / b[:, 3],
    }
    for name, column in columns.items():
        a, b = np.sort(column(one)), np.sort(column(other))
        points = np.unique(np.concatenate([a, b]))
        gap = np.abs(
            np.searchsorted(a, points, "right") - np.searchsorted(b, points, "right")
        ).max()
        # Kolmogorov-Smirnov; both sides are seeded, so this cannot fail by chance.
        assert gap / count < 1.95 * math.sqrt(2 / count), (name, gap / count)


def test_flips_are_as_probable_as_said():
    for p in (0.1, 0.5, 0.9):
        flips = [_draws.Draws(1, i, 1).uniform() < p for i in range(5000)]
        assert abs(np.mean(flips) - p) < 0.03


def test_random_interpolation_is_as_probable_as_timms():
    drawn = [sized.random_interpolation(_draws.Draws(1, i, 4)) for i in range(5000)]
    assert abs(drawn.count("bicubic") / 5000 - 0.5) < 0.03
    assert set(drawn) == {"bilinear", "bicubic"}


# --- on Pillow images ---------------------------------------------------------------------------


def test_random_interpolation_takes_both():
    image = picture(random.Random(7), 60, 50)
    crop = T.RandomResizedCrop((16, 12), (1.0, 1.0), (60 / 50, 60 / 50), "random")
    wanted = {
        image.resize((12, 16), Image.Resampling[name]).tobytes() for name in ("BILINEAR", "BICUBIC")
    }
    torch.manual_seed(0)
    assert {crop(image).tobytes() for _ in range(40)} == wanted
    with pytest.raises(ValueError, match="random"):
        T.Resize(7, "random")


def test_random_ones_follow_torchs_seed_and_nothing_else():
    image = picture(random.Random(8), 60, 50)
    chain = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.RandomVerticalFlip()])
    torch.manual_seed(5)
    one = [np.asarray(chain(image)) for _ in range(6)]
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(5)
    again = [np.asarray(chain(image)) for _ in range(6)]
    assert all(np.array_equal(a, b) for a, b in zip(one, again))
    assert len({a.tobytes() for a in one}) == 6
    state = torch.get_rng_state()
    chain(image)
    assert not torch.equal(state, torch.get_rng_state())


def test_each_step_takes_pillow_images_of_every_mode():
    rng = random.Random(9)
    for mode in ("RGB", "L", "RGBA", "CMYK", "1"):
        image = picture(rng, 33, 21, mode)
        assert T.RandomResizedCrop((4, 5))(image).size == (5, 4)
        assert T.Resize((4, 5))(image).size == (5, 4)
        assert T.CenterCrop((4, 50))(image).size == (50, 4)
        assert T.RandomHorizontalFlip(1)(image).size == image.size
        assert T.PILToTensor()(image).shape[1:] == (21, 33)


def test_compose_takes_any_function():
    image = picture(random.Random(10), 8, 8)
    chain = T.Compose([T.Resize((4, 4)), lambda x: x.rotate(90), T.PILToTensor()])
    assert chain(image).shape == (3, 4, 4)
    assert T.Compose([])(image) is image
