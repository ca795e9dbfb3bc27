"""MixUp, CutMix and timm's FastCollateMixup as the collate_fn of native pictures: on every delivery the
batches without it, mixed as torchvision and timm do it."""

import random

import numpy as np
import pytest
import torch
from drawn import versions
from image_source import image_source
from numbered_pictures import COUNT
from pictures import import_timm, plain_folder

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Mixing
from fastloader.compat import timm as ours
from fastloader.datasets import ImageFolder
from support import MEAN, STD

pytestmark = pytest.mark.covering

HEAD = [T.RandomResizedCrop((24, 30)), T.RandomHorizontalFlip()]
FLOATS = [*HEAD, T.ToTensor(), T.Normalize(MEAN, STD)]
BYTES = [*HEAD, T.PILToTensor()]

MIXERS = {
    "mixup": T.MixUp(alpha=0.8, num_classes=COUNT),
    "cutmix": T.CutMix(num_classes=COUNT),
    "one": T.RandomChoice([T.CutMix(num_classes=COUNT), T.MixUp(num_classes=COUNT)], [1, 2]),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), COUNT, classes=COUNT))


@pytest.fixture(params=["none", "cpu", "twin", "streams"])
def deliver(request, enter_way):
    """Options of a loader in each way, and in the loop's own hands."""
    if request.param != "none":
        enter_way(request.param)
    return {} if request.param == "none" else {"device": "cpu"}


def native(root, steps, batch=5, **options):
    dataset = ImageFolder(root, T.Compose(steps))
    loader = FastLoader(dataset, batch, **{"num_workers": 2, **options})
    assert loader.plan().startswith("native images: "), loader.plan()
    return loader


def epoch(loader, seed=1):
    torch.manual_seed(seed)
    return [(images.clone(), targets.clone()) for images, targets in loader]


def same(one, other, why=None):
    assert len(one) == len(other)
    for pair, another in zip(one, other, strict=True):
        assert torch.equal(pair[0], another[0]) and torch.equal(pair[1], another[1]), why


def drawn_for(loader, collate, batches, batch=5):
    """What was drawn for each batch of an epoch in order."""
    rolled = loader._runtime._planned(loader)[0]._images.mixing
    seed = image_source(loader).last.seeds.base_seed
    for number, (images, _) in enumerate(batches):
        key = np.array([seed % 2**64, number * batch], dtype=np.uint64)
        numbers = np.random.Generator(np.random.Philox(key=key))
        yield rolled.drawn(numbers, *images.shape[-2:])


def remade(v2, images, labels, drawn):
    top, bottom, left, right = drawn.box
    if drawn.own == 1.0:
        made, params = v2.CutMix(num_classes=COUNT), {"box": (left, top, right, bottom)}
        params["lam_adjusted"] = drawn.target
    else:
        made, params = v2.MixUp(num_classes=COUNT), {"lam": drawn.target}
    made.make_params = lambda inputs: params
    return made(images, labels)


@pytest.mark.parametrize("name", MIXERS)
def test_floats_are_mixed_as_torchvision_does(root, deliver, name):
    v2 = versions()["v2"]
    seed = random.randrange(1 << 32)
    loader = native(root, FLOATS, collate_fn=MIXERS[name], **deliver)
    found = epoch(loader, seed)
    whole = epoch(native(root, FLOATS, **deliver), seed)
    drawn = list(drawn_for(loader, MIXERS[name], whole))
    same(found, [remade(v2, *pair, each) for pair, each in zip(whole, drawn, strict=True)], seed)
    assert len(set(drawn)) == len(drawn) > 3
    assert type(next(iter(loader))) in (tuple, list)


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("options", [{}, {"mean": MEAN, "std": STD, "channels_last": True}])
def test_bytes_are_mixed_before_the_loader_normalises(root, deliver, name, options):
    seed = random.randrange(1 << 32)
    loader = native(root, BYTES, collate_fn=MIXERS[name], **deliver, **options)
    found = epoch(loader, seed)
    whole = epoch(native(root, BYTES), seed)
    for (images, targets), (bytes_, labels), drawn in zip(
        found, whole, drawn_for(loader, MIXERS[name], whole), strict=True
    ):
        rolled = loader._runtime._planned(loader)[0]._images.mixing
        wanted = rolled.images(bytes_, drawn)
        if options:
            wanted = loader._runtime.delivery.normalization.apply(wanted, torch.empty(images.shape))
        assert torch.equal(images, wanted), (seed, drawn)
        weights = torch.tensor([[drawn.target, 1 - drawn.target]]).expand(len(labels), 2)
        assert torch.equal(targets, rolled.target(labels, weights)), seed


@pytest.mark.parametrize("value", [0, 2, (1.5, -2, 0.25), "random"])
def test_what_is_erased_is_mixed_then(root, enter_way, value):
    steps = [*FLOATS, T.RandomErasing(0.8, value=value)]
    v2 = versions()["v2"]
    loader = native(root, steps, collate_fn=MIXERS["one"])
    found = epoch(loader)
    whole = epoch(native(root, steps))
    drawn = drawn_for(loader, MIXERS["one"], whole)
    same(found, [remade(v2, *pair, each) for pair, each in zip(whole, drawn, strict=True)])
    for way in ("twin", "streams"):
        enter_way(way)
        same(found, epoch(native(root, steps, collate_fn=MIXERS["one"], device="cpu")), way)


@pytest.mark.parametrize("steps", [FLOATS, BYTES], ids=["floats", "bytes"])
def test_an_epoch_goes_on_where_it_was(root, deliver, steps):
    options = {"collate_fn": MIXERS["one"], "shuffle": True, **deliver}
    torch.manual_seed(5)
    loader = native(root, steps, **options)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state, generator = loader.state_dict(), torch.get_rng_state()
    rest = [(images.clone(), targets.clone()) for images, targets in batches]
    again = native(root, steps, num_workers=1, **options)
    torch.set_rng_state(generator)
    again.load_state_dict(state)
    same([(images.clone(), targets.clone()) for images, targets in again], rest)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples(tmp_path, deliver, on_error):
    bad = plain_folder(tmp_path, COUNT, classes=COUNT)
    sorted(bad.glob("*/*.jpg"))[6].write_bytes(b"no picture")
    options = {"collate_fn": MIXERS["one"], "on_error": on_error}
    found = epoch(native(str(bad), FLOATS, **options, **deliver))
    same(found, epoch(native(str(bad), FLOATS, **options)))
    assert sum(len(images) for images, _ in found) == COUNT - (on_error == "skip")


# --- timm's ---------------------------------------------------------------------------------------

EVEN = {"batch": 4, "drop_last": True}


def collates(**options):
    """timm's own and ours."""
    timm = import_timm()
    options = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "num_classes": COUNT, **options}
    return timm.data.mixup.FastCollateMixup(**options), ours.FastCollateMixup(**options)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem", "half"])
@pytest.mark.parametrize("options", [{}, {"mean": MEAN, "std": STD}])
def test_timms_collate_is_known(root, deliver, mode, options):
    both = [
        epoch(native(root, BYTES, **EVEN, collate_fn=each, **deliver, **options))
        for each in collates(mode=mode)
    ]
    same(*both)
    same(both[0], epoch(native(root, BYTES, **EVEN, collate_fn=collates(mode=mode)[0], **options)))
    images, targets = both[0][0]
    count = 2 if mode == "half" else 4
    assert images.shape == (count, 3, 24, 30) and targets.shape == (count, COUNT)
    assert images.dtype == (torch.float32 if options else torch.uint8)


def test_bytes_are_blended_as_timm_does(root):
    """By the weights that the targets tell: image i with image -1-i."""
    timms, _ = collates(mode="elem", cutmix_alpha=0, label_smoothing=0)
    found, whole = (epoch(native(root, BYTES, **EVEN, collate_fn=c)) for c in (timms, None))
    for (images, targets), (bytes_, labels) in zip(found, whole, strict=True):
        own = targets[torch.arange(4), labels].double().view(-1, 1, 1, 1)
        exact = bytes_.double() * own + bytes_.flip(0).double() * (1 - own)
        assert (images - exact).abs().max() <= 0.501
    timms.mixup_enabled = False
    same(
        [pair[:1] * 2 for pair in epoch(native(root, BYTES, **EVEN, collate_fn=timms))],
        [pair[:1] * 2 for pair in whole],
    )


def test_a_prefetch_loader_erases_what_timm_mixed(root, deliver):
    """The delivery has what it erases from elsewhere, and the source mixes."""
    if not deliver:
        pytest.skip("a PrefetchLoader has a device")
    timms, _ = collates(mode="half")
    inner = native(root, BYTES, **EVEN, collate_fn=timms, mean=MEAN, std=STD, **deliver)
    outer = ours.PrefetchLoader(inner, MEAN, STD, device="cpu", re_prob=1.0, re_mode="const")
    found = epoch(outer)
    whole = epoch(native(root, BYTES, **EVEN, collate_fn=timms, mean=MEAN, std=STD, **deliver))
    for (images, targets), (others, same_targets) in zip(found, whole, strict=True):
        assert torch.equal(targets, same_targets)
        differs = images != others
        assert differs.any() and (images[differs] == 0).all()


def test_an_odd_batch_is_refused_in_its_place(root, deliver):
    timms, _ = collates()
    batches = iter(native(root, BYTES, 5, collate_fn=timms, **deliver))
    with pytest.raises(ValueError, match="must be even"):
        next(batches)


def refused():
    timms, own = collates(multi_label=True)
    changed = T.MixUp(num_classes=COUNT)
    changed.rolled_before = changed._mixed
    changed._mixed = lambda *inputs: inputs
    yield FLOATS, collates()[0], "mixes bytes"
    yield BYTES, timms, "dense targets"
    yield BYTES, own, "dense targets"
    yield FLOATS, T.MixUp(num_classes=COUNT - 1), "dataset has others"
    yield FLOATS, T.MixUp(), "one number is native"
    yield FLOATS, T.RandomChoice([T.MixUp(num_classes=99), T.CutMix(num_classes=98)]), "one number"
    yield FLOATS, T.RandomChoice([T.MixUp(num_classes=99), T.RandomInvert()]), "something else"
    yield FLOATS, changed, "of its own"


def test_what_is_not_native_says_why(root):
    for steps, collate, why in refused():
        loader = FastLoader(ImageFolder(root, T.Compose(steps)), 4, collate_fn=collate)
        assert why in loader.plan(), (why, loader.plan())
    loader = FastLoader(ImageFolder(root, T.Compose(FLOATS)), 4, collate_fn=T.MixUp(num_classes=3))
    with pytest.raises(RuntimeError, match="num_classes"):
        list(loader)


def test_ours_is_the_same_object_until_it_is_in_the_kernel(root):
    collate = collates()[1]
    loader = native(root, BYTES, **EVEN, collate_fn=collate)
    assert isinstance(collate, Mixing) and "mixed" in loader.plan()
    collate.in_kernel = True
    assert "mixed" not in loader.plan()
