"""Random erasing of tensors: torchvision's arguments, values and distribution, and what a chain that
erases is read as."""

import pickle
import random

import numpy as np
import pytest
import torch
from distributions import assert_same_counts, assert_same_numbers
from drawn import refuse_alike, versions

from fastloader import transforms as T
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import read_chain
from fastloader.transforms._recipe.draw import Draw
from fastloader.transforms._recipe.draws import ERASING, Draws
from support import MEAN, STD


@pytest.fixture(scope="module")
def torchvisions():
    return versions()


REFUSED = [
    ((0.5, (0.02, 0.33), (0.3, 3.3), None), ["v1", "v2"]),
    ((0.5, (0.02, 0.33), (0.3, 3.3), "mean"), ["v1", "v2"]),
    ((0.5, 0.3), ["v1", "v2"]),
    ((0.5, (0.02, 0.33), 1.0), ["v1", "v2"]),
    ((0.5, (-0.1, 0.33)), ["v1", "v2"]),
    ((0.5, (0.1, 1.33)), ["v1", "v2"]),
    ((1.5,), ["v1", "v2"]),
    ((-0.5,), ["v1", "v2"]),
]


@pytest.mark.parametrize("arguments, when", REFUSED)
def test_arguments_are_refused_as_torchvision_does(torchvisions, arguments, when):
    refuse_alike(torchvisions, "RandomErasing", arguments, when, None)


def test_what_cannot_be_drawn_is_refused():
    for wrong in (
        {"scale": (0.5, 0.1)},  # of which torchvision only warns
        {"ratio": (2, 1)},
        {"ratio": (0, 1)},
        {"value": float("nan")},
    ):
        with pytest.raises(ValueError):
            T.RandomErasing(**wrong)
    erasing = T.RandomErasing(1, value=(1, 2))
    with pytest.raises(ValueError, match=r"3 \(number of input channels\)"):
        erasing(torch.zeros(3, 9, 9))
    with pytest.raises(TypeError, match="put ToTensor"):
        erasing(np.zeros((3, 9, 9)))
    with pytest.raises(TypeError, match="float tensor"):
        T.RandomErasing(1, value="random")(torch.zeros(3, 9, 9, dtype=torch.uint8))


@pytest.mark.parametrize("value", [0, 0.7, 3, (1.5, -2, 0.25), [9]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8])
def test_a_box_holds_what_torchvision_puts_there(torchvisions, value, dtype):
    """The box that is drawn, erased by torchvision's function. Bytes are of numbers of bytes only."""
    if dtype is torch.uint8 and isinstance(value, tuple):
        value = (1.5, 2, 255.9)
    seed = random.randrange(1 << 32)
    erasing = T.RandomErasing(1, value=value)
    functional = torchvisions["v1"].functional
    for index in range(30):
        image = (torch.rand(3, 20, 33) * 255).to(dtype)
        box, _ = erasing.erasing(3).draw([seed], [index], 20, 33)
        top, bottom, left, right = box[0].tolist()
        values = torch.tensor([float(v) for v in (value if np.iterable(value) else [value])])
        wanted = functional.erase(
            image, top, left, bottom - top, right - left, values[:, None, None]
        )
        found = erasing.apply(image, Draw(seed, index))
        assert torch.equal(found, wanted) and found is not image, seed
        steps = {"top": top, "left": left, "height": bottom - top, "width": right - left}
        shown = [float(v) for v in values.tolist() * (3 // len(values))]
        assert torch.equal(T.apply(image, [("erase", {**steps, "value": shown})]), wanted), seed


def test_inplace_and_batches():
    images = torch.rand(4, 3, 16, 16)
    before = images.clone()
    whole = T.RandomErasing(1, scale=(0.2, 0.3))(images)
    assert torch.equal(images, before)
    changed = (whole != before).flatten(1).nonzero()[:, 1].view(4, -1)
    assert all(torch.equal(changed[0], each) for each in changed)  # one box for all
    assert T.RandomErasing(1, inplace=True)(images) is images
    assert not torch.equal(images, before)


def test_deviates_are_normal():
    torch.manual_seed(seed := random.randrange(1 << 32))
    erasing = T.RandomErasing(1, scale=(0.5, 0.5), value="random")
    image = torch.full((3, 200, 200), 77.0)
    boxes = [found[found != 77] for found in (erasing(image) for _ in range(10))]
    assert len(boxes[0]) == len(boxes[1]) or not torch.equal(boxes[0], boxes[1])
    values = torch.cat(boxes)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02, seed
    repeated = [erasing.apply(image, Draw(seed, 5)) for _ in range(2)]
    assert torch.equal(*repeated)


@pytest.mark.covering
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "size, options",
    [
        ((32, 32), {}),
        ((224, 200), {"p": 0.3}),
        ((9, 40), {"p": 0.9, "scale": (0.2, 0.9), "ratio": (0.1, 8)}),
        ((3, 4), {"p": 1, "scale": (0.4, 1)}),
        ((5, 5), {"p": 1, "scale": (0.9, 1), "ratio": (1, 1)}),
        ((16, 16), {"p": 0}),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_boxes_have_torchvisions_distribution(torchvisions, version, size, options):
    seed, count = random.randrange(1 << 32), 3000
    torch.manual_seed(seed)
    erasing = T.RandomErasing(**options).erasing(1)
    ours, _ = erasing.draw([seed], range(count), *size)
    theirs = []
    reference = torchvisions[version].RandomErasing(**options, value=1)
    image = torch.zeros(1, *size)
    for _ in range(count):
        rows, columns = reference(image)[0].nonzero(as_tuple=True)
        box = [0, 0, 0, 0]
        if len(rows):
            box = [rows.min(), rows.max() + 1, columns.min(), columns.max() + 1]
        theirs.append([int(each) for each in box])
    why = (seed, size, options)
    pairs = ours.tolist()
    assert_same_counts([each[1] > 0 for each in pairs], [each[1] > 0 for each in theirs], why)
    assert_same_counts(
        [(b - t, r - le) for t, b, le, r in pairs], [(b - t, r - le) for t, b, le, r in theirs], why
    )
    erased = [[each for each in boxes if each[1]] for boxes in (pairs, theirs)]
    if all(erased):
        for edge in range(4):
            assert_same_numbers(*([each[edge] for each in boxes] for boxes in erased), why)


def test_pictures_are_drawn_by_their_own_numbers():
    """Those of `Draws`, one after the other, whatever else is drawn with them."""
    seed = random.randrange(1 << 64)
    erasing = T.RandomErasing(0.6).erasing(3)
    samples = [0, 7, 1 << 33, 12345678901]
    together, keys = erasing.draw([seed], samples, 50, 70)
    for sample, box in zip(samples, together, strict=True):
        assert (erasing.draw([seed], [sample], 50, 70)[0][0] == box).all()
        draws = Draws(seed, sample, ERASING)
        erased = draws.uniform() < 0.6
        area = draws.uniform(0.02, 0.33) * 50 * 70
        ratio = np.exp(draws.uniform(np.log(0.3), np.log(3.3)))
        height, width = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if height < 50 and width < 70:
            top, left = draws.below(50 - height + 1), draws.below(70 - width + 1)
            wanted = [top, top + height, left, left + width] if erased else [0] * 4
            assert box.tolist() == wanted, seed
    seeds = [seed, 3, 9, seed - 1]
    each, _ = erasing.draw(seeds, samples, 50, 70)
    for one, sample, box in zip(seeds, samples, each, strict=True):
        assert (erasing.draw([one], [sample], 50, 70)[0][0] == box).all()
    assert len(set(keys.tolist())) == len(samples)
    for sample, key in zip(samples, keys, strict=True):
        assert erasing.draw([seed], [sample], 9, 9)[1].tolist() == [key]


def test_it_is_pickled_and_shown():
    erasing = T.RandomErasing(0.3, value="random")
    assert repr(pickle.loads(pickle.dumps(erasing))) == repr(erasing)
    assert "value='random'" in repr(erasing)


# --- reading ------------------------------------------------------------------------------------


def chains(tv, erasing):
    """name: (steps behind the picture, the value that stands in the box)"""
    floats = [tv.ToTensor()]
    normalize = tv.Normalize(MEAN, STD)
    given = torch.tensor([10.0, 20.5, 30.0])
    scaled = torch.tensor([10.0, 20.0, 30.0]) / 255
    normalized = (given - torch.tensor(MEAN)) / torch.tensor(STD)
    final = (scaled - torch.tensor(MEAN)) / torch.tensor(STD)
    bytes_ = [tv.PILToTensor(), erasing]
    convert = tv.ConvertImageDtype(torch.float32)
    yield [*floats, normalize, erasing], given, 0
    yield [*floats, erasing], given, 0
    yield [*floats, erasing, normalize], normalized, 0
    yield bytes_, given.trunc(), 0
    yield [*bytes_, convert], scaled, 1e-6
    yield [*bytes_, convert, normalize], final, 1e-6
    yield [*floats, normalize, erasing, tv.RandomHorizontalFlip()], given, 0


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_value_is_in_the_units_of_its_place(torchvisions, version):
    tv = torchvisions[version]
    for steps, wanted, tolerance in chains(tv, tv.RandomErasing(0.4, value=(10, 20.5, 30))):
        chain = read_chain(tv.Compose([tv.Resize((9, 9)), *steps]), False)
        assert chain.erasing.probability == 0.4 and str(chain).endswith("random erasing (0.4)")
        found = torch.tensor(chain.erasing.value)
        assert (found - wanted).abs().max() <= tolerance, (steps, found, wanted)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_every_kind_of_value_is_read(torchvisions, version):
    tv = torchvisions[version]
    for value, wanted in (
        (0, (0,) * 3),
        (2.5, (2.5,) * 3),
        ((1, 2, 3), (1, 2, 3)),
        ("random", None),
    ):
        step = tv.RandomErasing(0.4, (0.1, 0.2), (0.5, 4), value=value)
        read = read_chain(tv.Compose([tv.Resize((9, 9)), tv.ToTensor(), step]), False).erasing
        ours = T.RandomErasing(0.4, (0.1, 0.2), (0.5, 4), value).erasing(3)
        assert read.value == ours.value == wanted
        assert (read.scale, read.probability) == (ours.scale, ours.probability)
        assert np.allclose(read.log_ratio, ours.log_ratio, atol=1e-6)


def refused(tv):
    floats, normalize = tv.ToTensor(), tv.Normalize(MEAN, STD)

    def changed(**values):
        step = tv.RandomErasing()
        for name, value in values.items():
            object.__setattr__(step, name, value)
        return step

    class Derived(tv.RandomErasing):
        def forward(self, image):
            return image

    yield [tv.RandomErasing(), tv.PILToTensor()], "comes before the conversion to a tensor"
    yield [floats, tv.RandomErasing(), tv.RandomErasing()], "second one that erases"
    yield [floats, tv.RandomErasing(value="random"), normalize], "before Normalize"
    yield [tv.PILToTensor(), tv.RandomErasing(value="random")], "deviates to bytes"
    yield [tv.PILToTensor(), tv.RandomErasing(value=256)], "holds 0 to 255"
    yield [floats, tv.RandomErasing(value=(1, 2))], "number of input channels"
    yield [floats, tv.RandomErasing(value=float("inf"))], "finite"
    yield [floats, tv.RandomApply([tv.RandomErasing()])], "after the conversion"
    yield [floats, Derived()], "Derived has a forward of its own"
    yield [floats, changed(p=7)], "interval"
    yield [floats, changed(scale=(0.4, 0.2))], "the smaller first"
    yield [floats, changed(forward=lambda image: image)], "of its own"
    yield [floats, changed(value=np.float32(2))], "value is of the type"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_what_means_something_else_is_named(torchvisions, version):
    tv = torchvisions[version]
    for steps, why in refused(tv):
        with pytest.raises(NotNative, match=why):
            read_chain(tv.Compose([tv.Resize((9, 9)), *steps]), False)
    with pytest.raises(NotNative, match="comes before the conversion to a tensor"):
        read_chain(T.Compose([T.Resize((9, 9)), T.RandomErasing()]), True)
