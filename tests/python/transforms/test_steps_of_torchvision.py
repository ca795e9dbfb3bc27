"""Torchvision's own objects (v1 and v2) become our transforms of the same meaning, or are refused."""

import math
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from drawn import applied, same_picture, versions
from pictures import import_torchvision, picture
from PIL import Image

from fastloader import transforms as T
from fastloader.errors import NotNative
from fastloader.transforms._reader.chain import counterpart

SEED = 20260405
torchvision = import_torchvision()


@pytest.fixture(params=["v1", "v2"])
def version(request):
    return request.param


@pytest.fixture
def tv(version):
    return versions()[version]


SIMPLE = [
    ("ColorJitter", (), {}),
    ("ColorJitter", (0.4, (0.2, 0.3), 0, 0.1), {}),
    ("ColorJitter", ((1.0, 1.0), 2, 0, (-0.5, 0.2)), {}),
    ("Grayscale", (3,), {}),
    ("RandomGrayscale", (), {}),
    ("RandomGrayscale", (0.3,), {}),
    ("RandomInvert", (), {}),
    ("RandomPosterize", (3, 0.2), {}),
    ("RandomSolarize", (128,), {}),
    ("RandomSolarize", (99.5, 0.2), {}),
    ("RandomAdjustSharpness", (2, 0.2), {}),
    ("RandomAutocontrast", (0.2,), {}),
    ("RandomEqualize", (0.2,), {}),
    ("GaussianBlur", (3,), {}),
    ("GaussianBlur", ((3, 5), 0.7), {}),
    ("GaussianBlur", ([7], (0.2, 3)), {}),
    ("Pad", (3,), {}),
    ("Pad", ([4],), {"fill": (1, 2, 3)}),
    ("Pad", ((1, 2),), {"padding_mode": "edge"}),
    ("Pad", ((1, 2, 3, 4), 99.9, "reflect"), {}),
    ("RandomCrop", (5,), {}),
    ("RandomCrop", ((5, 6), 3), {}),
    ("RandomCrop", ((5, 6), (1, 2), True, 9), {}),
    ("RandomCrop", ((50, 60), [1, 2, 3, 4], True, (1, 2, 3), "symmetric"), {}),
    ("RandomRotation", (30,), {}),
    ("RandomRotation", ((-5, 9),), {"interpolation": "bilinear", "expand": True}),
    ("RandomRotation", (30,), {"center": (3, 4.5), "fill": [9]}),
    ("RandomAffine", (30,), {}),
    ("RandomAffine", ((0, 3), (0.1, 0.2), (0.5, 2), 7), {"interpolation": "bicubic"}),
    ("RandomAffine", (30, None, None, (1, 2, 3, 4)), {"fill": 7.5, "center": [1, 2]}),
    ("RandomAffine", (30, None, None, (1, 2)), {"interpolation": "nearest-exact"}),
    ("RandomPerspective", (), {}),
    ("RandomPerspective", (0.3, 0.9), {"interpolation": "nearest", "fill": 3}),
    ("RandAugment", (), {}),
    ("RandAugment", (3, 5, 11), {"interpolation": "bilinear", "fill": [1, 2, 3]}),
    ("TrivialAugmentWide", (), {}),
    ("TrivialAugmentWide", (11,), {"interpolation": "bicubic", "fill": 9}),
    ("AutoAugment", (), {}),
    ("AutoAugment", ("SVHN",), {"interpolation": "bilinear", "fill": 9}),
    ("AutoAugment", ("CIFAR10",), {}),
    ("AugMix", (), {}),
    ("AugMix", (5, 2, 4, 0.5, False), {"interpolation": "nearest", "fill": [1, 2, 3]}),
    ("RandomHorizontalFlip", (0.2,), {}),
    ("RandomVerticalFlip", (), {}),
    ("CenterCrop", (7,), {}),
    ("CenterCrop", ((7, 8),), {}),
    ("RandomResizedCrop", (7,), {}),
    ("RandomResizedCrop", ((7, 8), (0.1, 0.5), (0.5, 2.0)), {"interpolation": "lanczos"}),
    ("Resize", (7,), {}),
    ("Resize", ((7, 8),), {"interpolation": "box"}),
    ("Resize", (7,), {"max_size": 9, "interpolation": "hamming"}),
]


def theirs(module, name, arguments, options):
    """Torchvision's object, with its own enums."""
    options = dict(options)
    if "interpolation" in options:
        options["interpolation"] = module.InterpolationMode(options["interpolation"])
    if arguments and name == "AutoAugment":
        arguments = (module.AutoAugmentPolicy[arguments[0]],)
    return getattr(module, name)(*arguments, **options)


def ours(name, arguments, options):
    if arguments and name == "AutoAugment":
        arguments = (T.AutoAugmentPolicy[arguments[0]],)
    return getattr(T, name)(*arguments, **options)


def same(one, other):
    assert type(one) is type(other)
    public = [
        {name: value for name, value in vars(each).items() if name[0] != "_"}
        for each in (one, other)
    ]
    for name in public[0].keys() | public[1].keys():
        mine, yours = public[0][name], public[1][name]
        if name == "transforms":
            assert len(mine) == len(yours)
            for pair in zip(mine, yours):
                same(*pair)
        elif isinstance(other, T.RandomChoice) and name == "p":
            assert mine == pytest.approx(yours)
        else:
            assert mine == yours and type(mine) is type(yours), name


@pytest.mark.parametrize("name, arguments, options", SIMPLE)
def test_each_becomes_ours_of_the_same_arguments(tv, name, arguments, options):
    same(counterpart(theirs(tv, name, arguments, options)), ours(name, arguments, options))


def test_interpolations_by_name_and_number():
    v2 = versions()["v2"]
    for given in ("bilinear", 2, Image.Resampling.BILINEAR):
        same(counterpart(v2.RandomRotation(9, given)), T.RandomRotation(9, "bilinear"))
    same(counterpart(versions()["v1"].RandomRotation(9, 2)), T.RandomRotation(9, "bilinear"))


def test_the_same_pictures_come_out(tv, version):
    """Where nothing is drawn, of the objects themselves."""
    image = picture(random.Random(1), 41, 30)
    mode = tv.InterpolationMode
    for step in (
        tv.ColorJitter((0.3, 0.3), 0, 0, 0),
        tv.ColorJitter(0, 0, 0, (-0.25, -0.25)),
        tv.Grayscale(3),
        tv.RandomSolarize(99.5, 1.0),
        tv.RandomAdjustSharpness(3, 1.0),
        tv.Pad((1, 2, 3, 4), (250.5, 2, 3)),
        tv.Pad((9, 2), padding_mode="reflect"),
        tv.RandomRotation((25, 25), mode.BICUBIC, True, None, 9),
        tv.RandomRotation((25, 25), mode.BILINEAR, False, [3, 40], [1, 2, 3]),
        tv.RandomAffine((25, 25), None, (0.75, 0.75), (5, 5, -20, -20), mode.BILINEAR, 3),
        tv.RandomAffine((25, 25), None, None, (5, 5), mode.BICUBIC, [9], (3, 4)),
        tv.Resize((9, 8), mode.LANCZOS),
        tv.Resize(50, mode.HAMMING, 55),
        tv.CenterCrop((20, 50)),
        tv.RandomApply([tv.RandomOrder([tv.RandomInvert(1.0)])], 1.0),
        tv.RandomChoice([tv.RandomInvert(1.0), tv.RandomEqualize(1.0)], [0, 1]),
    ):
        made, _ = applied(counterpart(step), image, 7)
        same_picture(made, step(image), (version, step))


def test_containers(tv):
    jitter, flip = tv.ColorJitter(0.4), tv.RandomHorizontalFlip(0.3)
    mine = [T.ColorJitter(0.4), T.RandomHorizontalFlip(0.3)]
    for theirs, wanted in (
        (tv.Compose([jitter, flip]), T.Compose(mine)),
        (tv.RandomApply([jitter, flip], 0.8), T.RandomApply(mine, 0.8)),
        (tv.RandomApply(torch.nn.ModuleList([jitter, flip])), T.RandomApply(mine)),
        (tv.RandomChoice((jitter, flip)), T.RandomChoice(mine)),
        (tv.RandomChoice([jitter, flip], [1, 3]), T.RandomChoice(mine, [1, 3])),
        (tv.RandomChoice([jitter, flip], [0.0, 0.5]), T.RandomChoice(mine, [0, 1])),
        (tv.RandomOrder([jitter, flip]), T.RandomOrder(mine)),
        (tv.Compose([tv.RandomOrder([flip])]), T.Compose([T.RandomOrder(mine[1:])])),
        (T.RandomApply([jitter, mine[1]]), T.RandomApply(mine)),
    ):
        same(counterpart(theirs), wanted)
    same(counterpart(versions()["v2"].Identity()), T.Compose([]))
    assert counterpart(mine[0]) is mine[0]


def test_what_of_ours_holds_torchvisions_stays_as_it_is(tv):
    jitter = tv.ColorJitter(0.4)
    holder = T.RandomApply([jitter])
    counterpart(holder)
    assert holder.transforms == [jitter]


def test_v2_has_thresholds_and_borders_of_its_own(version, tv):
    for step in (tv.RandAugment(), tv.TrivialAugmentWide(), tv.AutoAugment(), tv.AugMix()):
        assert counterpart(step)._scaled_thresholds == (version == "v2")
    for mode in ("constant", "edge", "reflect", "symmetric"):
        made = counterpart(tv.RandomCrop(9, 2, True, 0, mode))
        assert made._pads_at_once == (version == "v2" and mode in ("reflect", "symmetric"))
    assert "_scaled" not in repr(counterpart(tv.RandAugment()))


def test_thresholds_differ_between_the_versions():
    """What the distinction is for: if this fails one day, it can go."""
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    image = Image.fromarray(pixels)
    made = []
    for module in versions().values():
        step = counterpart(module.RandAugment(1, 4))
        tree = step.step((16, 16)).children[0].children[11]
        assert tree.operation == "solarize"
        made.append(tree.numbers[0].a)
        assert math.isclose(made[-1], 221.0, rel_tol=1e-6)
    first, second = (T.RandomSolarize(each, 1.0)(image) for each in made)
    assert first.tobytes() != second.tobytes()


V2_FILLS = [
    ({Image.Image: 7}, 7),
    ({Image.Image: (1, 2, 3), "others": 9}, (1, 2, 3)),
    ({"others": 9}, 9),
    ({"Mask": 1, "others": 9}, 9),
    ({"Mask": 1, Image.Image: None}, None),
]


@pytest.mark.parametrize("fill, wanted", V2_FILLS)
def test_fills_by_type(fill, wanted):
    from torchvision import tv_tensors

    fill = {tv_tensors.Mask if key == "Mask" else key: value for key, value in fill.items()}
    v2 = versions()["v2"]
    image = picture(random.Random(1), 9, 7)
    for name, arguments in (
        ("Pad", (2,)),
        ("RandomRotation", ((9, 9),)),
        ("RandomAffine", ((9, 9),)),
    ):
        step = getattr(v2, name)(*arguments, fill=dict(fill))
        made = counterpart(step)
        same(made, getattr(T, name)(*arguments, fill=wanted))
        same_picture(made(image), step(image))


def changed(step, **attributes):
    for name, value in attributes.items():
        setattr(step, name, value)
    return step


def with_hook(step):
    step.register_forward_hook(lambda module, inputs, result: result)
    return step


def refused(tv, version):
    class Derived(tv.ColorJitter):
        def forward(self, image):
            return image

        transform = forward  # v2's

    class Strange(list):
        pass

    yield Derived(0.4), "Derived has a (forward|transform) of its own"
    yield tv.Lambda(lambda image: image), "is not a native transform"
    yield tv.ElasticTransform(), "is not a native transform"
    yield changed(tv.AugMix(), _PARAMETER_MAX=30), "_PARAMETER_MAX is not 10"
    yield tv.AugMix(alpha=0.0), "alpha 0"
    yield tv.AugMix(mixture_width=0), "one chain or more"
    yield tv.RandomErasing(), "is not a native transform"
    yield tv.FiveCrop(3), "is not a native transform"
    yield with_hook(tv.ColorJitter(0.4)), "has hooks"
    yield tv.RandomApply([with_hook(tv.ColorJitter(0.4))]), "has hooks"
    yield changed(tv.ColorJitter(0.4), forward=lambda image: image), "has a forward of its own"
    space = "_augmentation_space" if version == "v1" else "_AUGMENTATION_SPACE"
    yield changed(tv.RandAugment(), **{space: {}}), f"has a {space} of its own"
    yield tv.RandomOrder([tv.RandomInvert(), len]), "built-in function len"
    yield tv.RandomChoice([tv.RandomInvert(), tv.Grayscale()]), "only as a step of the chain"
    yield tv.RandomApply(Strange([tv.RandomInvert()])), "holds a Strange"
    yield changed(tv.ColorJitter(0.4), brightness=0.5), "is no range"
    yield changed(tv.ColorJitter(0.4), hue=(-0.7, 0.7)), "hue values"
    yield changed(tv.RandomRotation(5), degrees=5), "is no range"
    yield changed(tv.RandomInvert(), p=2), "interval"
    yield tv.RandomPosterize(9), "0 to 8"
    yield tv.RandomSolarize(math.inf), "finite"
    yield tv.RandomSolarize(1e200), "figure"
    yield tv.RandomRotation((9, 1)), "the smaller number first"
    yield tv.RandomRotation(9, tv.InterpolationMode.BOX), "interpolation"
    yield tv.RandomRotation(9, fill=(1, 2)), "number of elements"
    yield tv.RandAugment(2, 31), "magnitude=31"
    yield tv.RandAugment(2, -1), "magnitude=-1"
    yield tv.TrivialAugmentWide(1), "num_magnitude_bins=1"
    yield tv.RandomResizedCrop(7, (0.9, 0.1)), "the smaller first"
    if version == "v1":
        yield tv.RandomRotation(9, fill=np.int64(7)), "its fill is of the type"
        yield tv.Pad(2, np.int64(7)), "its fill is of the type"
        yield tv.RandomApply([], 0.5), "Pass at least one"
        yield tv.RandomApply(torch.nn.Sequential(tv.RandomInvert())), "holds a Sequential"
        yield tv.RandomChoice([tv.RandomInvert()], [1, 2]), "Length of p"
        yield changed(tv.AutoAugment(), policies=[]), "policies"
        yield tv.RandomPerspective(1.5), "between 0 and 1"
        return
    from torchvision import tv_tensors

    yield tv.Pad(2, {tv_tensors.Image: 9}), "no colour for Pillow"
    yield changed(tv.AutoAugment(), _policies=[]), "policies"
    yield tv.Resize(None, max_size=9), "Size should be int"
    yield tv.ScaleJitter((9, 9)), "is not a native transform"
    yield tv.RandomPhotometricDistort(), "is not a native transform"
    yield tv.RandomZoomOut(), "is not a native transform"
    yield tv.RandomShortestSize(9), "is not a native transform"
    yield tv.RandomResize(5, 9), "is not a native transform"
    yield tv.RandomChannelPermutation(), "is not a native transform"
    yield tv.JPEG(50), "is not a native transform"
    yield tv.GaussianNoise(), "is not a native transform"
    yield changed(tv.RandomInvert(), transform=lambda image, params: image), "of its own"


@pytest.mark.filterwarnings("ignore:Scale and ratio should be of kind")
def test_refused(tv, version):
    for step, because in refused(tv, version):
        with pytest.raises(NotNative, match=because) as caught:
            counterpart(step)
        assert "\n" not in str(caught.value)
        # The step is named first, or its child, where that is the reason.
        assert "(" in str(caught.value) or "<" in str(caught.value)


@pytest.mark.processes
def test_nothing_of_torchvision_is_imported():
    code = (
        "import sys, torch, fastloader.transforms._reader.chain as read\n"
        "try:\n"
        "    read.counterpart(torch.nn.Identity())\n"
        "except read.NotNative: pass\n"
        "assert not [name for name in sys.modules if name.startswith('torchvision')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
