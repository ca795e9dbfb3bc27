"""compat.timm's random erasing, Mixup and FastCollateMixup, where users meet them."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from fastloader import FastLoader
from fastloader.compat import timm as ours
from support import MEAN, STD, random_images

pytestmark = pytest.mark.covering

COUNT = 24


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One class a picture, each of noise."""
    folder = tmp_path_factory.mktemp("timm")
    images = random_images(5, COUNT, 30, 30, 3)
    for number, image in enumerate(images.numpy()):
        (folder / f"{number:02}").mkdir()
        Image.fromarray(image).save(folder / f"{number:02}" / "noise.png")
    return str(folder)


class Workers(ours.ImageDataset):
    """A subclass may do anything, so it keeps to Python."""


KINDS = {"native": (ours.ImageDataset, 1), "python": (Workers, 0), "workers": (Workers, 2)}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def loader_of(kind, root, **options):
    dataset, workers = kind
    options = {"num_workers": workers, "device": "cpu", **options}
    return ours.create_loader(dataset(root), 20, 8, **options)


def blended(images, weights):
    """What the targets say of a batch of different classes."""
    return (weights @ images.double().flatten(1)).view(len(weights), *images.shape[1:])


# --- mixing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["batch", "pair", "elem", "half"])
def test_mixed_in_the_kernel(way, kind, root, mode):
    """Each image is the blend of those that its target names, in these shares."""
    plain = [images for images, _labels in loader_of(kind, root)]
    torch.manual_seed(1)
    collate = ours.FastCollateMixup(mode=mode, num_classes=COUNT, label_smoothing=0)
    loader = loader_of(kind, root, collate_fn=collate)
    assert collate.in_kernel and loader.mixup_enabled
    if kind[0] is ours.ImageDataset and way.name != "pure":
        assert loader.loader.plan().startswith("native"), loader.loader.plan()
    batches = list(loader)
    shares = set()
    for number, ((images, targets), original) in enumerate(zip(batches, plain, strict=True)):
        assert len(images) == len(targets) == (4 if mode == "half" else 8)
        assert targets.dtype == torch.float32
        weights = targets[:, number * 8 : number * 8 + 8].double()
        assert torch.allclose(weights.sum(1), torch.ones(len(weights), dtype=torch.float64))
        shares |= set(weights.max(1).values.tolist())
        # Bytes are blended and rounded: half a step of 255 / std.
        wanted = blended(original, weights)
        assert (images - wanted).abs().max() <= 0.501 / 255 / min(STD)
    assert len(shares) >= 3
    loader.close()


def test_cut_in_the_kernel(kind, root):
    plain = [images for images, _labels in loader_of(kind, root)]
    collate = ours.FastCollateMixup(0, 1.0, mode="elem", num_classes=COUNT, label_smoothing=0)
    for number, (images, targets) in enumerate(loader_of(kind, root, collate_fn=collate)):
        original = plain[number]
        partner = original.flip(0)
        from_partner = (images == partner).all(1) & (images != original).any(1)
        assert torch.equal(torch.where(from_partner[:, None], partner, original), images)
        share = targets[range(8), [number * 8 + 7 - i for i in range(8)]]
        assert torch.allclose(from_partner.float().mean((1, 2)), share, atol=1e-6)


def test_mixup_is_switched_off_and_on(kind, root):
    """Workers that live on, too."""
    collate = ours.FastCollateMixup(num_classes=COUNT, label_smoothing=0.1)
    loader = loader_of(kind, root, collate_fn=collate, persistent_workers=True)
    plain = torch.cat([images for images, _labels in loader_of(kind, root)])
    for enabled in (True, False, True):
        loader.mixup_enabled = enabled
        assert loader.mixup_enabled is collate.mixup_enabled is enabled
        images, targets = (torch.cat(each) for each in zip(*loader))
        assert torch.equal(images, plain) is not enabled
        one_hot = torch.full((COUNT, COUNT), 0.1 / COUNT).fill_diagonal_(0.9 + 0.1 / COUNT)
        assert torch.allclose(targets, one_hot) is not enabled
    loader.close()


def test_prefetch_loader_takes_mixing_over(root):
    samples = [(image, number) for number, image in enumerate(random_images(2, 8, 3, 6, 5))]
    collate = ours.FastCollateMixup(num_classes=8, label_smoothing=0)
    for inner in (DataLoader, FastLoader):
        loader = ours.PrefetchLoader(inner(samples, 4, collate_fn=collate), device="cpu")
        assert next(iter(loader))[1].shape == (4, 8)
        loader.close()
    with pytest.raises(ValueError, match="must be even"):
        list(ours.PrefetchLoader(DataLoader(samples, 3, collate_fn=collate), device="cpu"))


def test_collates_and_mixes_by_itself():
    """In a plain DataLoader, as timm's does; workers draw by their own seeds."""
    samples = [(image, number) for number, image in enumerate(random_images(2, 8, 3, 6, 5))]
    images = torch.stack([image for image, _number in samples])
    collate = ours.FastCollateMixup(num_classes=8, label_smoothing=0)
    shares = []
    for workers in (0, 2):
        loader = DataLoader(samples, 4, collate_fn=collate, num_workers=workers)
        for _ in range(2):
            for number, (mixed, targets) in enumerate(loader):
                assert mixed.dtype == torch.uint8
                weights = targets[:, number * 4 : number * 4 + 4]
                wanted = blended(images[number * 4 : number * 4 + 4], weights.double())
                assert (mixed - wanted).abs().max() <= 0.501
                shares.append(weights.max().item())
    assert len(set(shares)) == len(shares) == 8
    del loader


def test_outside_of_a_prefetch_loader_it_is_a_collate_fn(root):
    dataset = loader_of(KINDS["native"], root).dataset
    loader = FastLoader(dataset, 8, collate_fn=ours.FastCollateMixup(num_classes=COUNT))
    assert loader.plan().startswith("native images: ")
    assert next(iter(loader))[1].shape == (8, COUNT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_mixup_of_a_batch(mode, dtype):
    images = torch.randn(8, 3, 6, 5).to(dtype)
    mixup = ours.Mixup(mode=mode, num_classes=8, label_smoothing=0)
    seen = set()
    for _ in range(3):
        mixed, targets = mixup(images, torch.arange(8))
        assert mixed.dtype == dtype and targets.dtype == torch.float32
        wanted = blended(images, targets.double())
        torch.testing.assert_close(mixed.double(), wanted, rtol=0, atol=6 * torch.finfo(dtype).eps)
        seen.add(targets.max().item())
    assert len(seen) == 3
    mixup.mixup_enabled = False
    mixed, targets = mixup(images, torch.arange(8))
    assert torch.equal(mixed, images) and torch.equal(targets, torch.eye(8))


def test_mixup_follows_the_seed():
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        mixup = ours.Mixup(cutmix_alpha=1.0, mode="elem", num_classes=8)
        found.append([mixup(torch.ones(8, 3, 6, 5), torch.arange(8))[1] for _ in range(2)])
        assert torch.equal(state, torch.get_rng_state())  # read, not advanced
    assert all(torch.equal(*pair) for pair in zip(found[0], found[1]))
    assert not torch.equal(found[0][0], found[0][1])
    assert not torch.equal(found[0][0], found[2][0])


def test_attributes_are_timms(theirs):
    options = {
        "mixup_alpha": 0.3, "cutmix_alpha": 0.7, "prob": 0.6, "switch_prob": 0.2, "mode": "pair",
        "correct_lam": False, "label_smoothing": 0.2, "num_classes": 5, "multi_label": True,
    }  # fmt: skip
    for name in ("Mixup", "FastCollateMixup"):
        for given in (options, {}, {"cutmix_minmax": (0.2, 0.8)}):
            mine, their = (getattr(data, name)(**given) for data in (ours, theirs.mixup))
            for attribute, value in vars(their).items():
                assert getattr(mine, attribute) == value, attribute


def test_pickled():
    collate = pickle.loads(pickle.dumps(ours.FastCollateMixup(mode="half", num_classes=3)))
    assert (collate.mode, collate.num_classes) == ("half", 3)
    collate([(torch.zeros(3, 2, 2, dtype=torch.uint8), 1)] * 2)


@pytest.mark.parametrize(
    ("call", "kind", "what"),
    [
        (lambda: ours.Mixup(mode="half"), ValueError, "FastCollateMixup does"),
        (lambda: ours.Mixup(0, 0), ValueError, "one of mixup_alpha"),
        (lambda: ours.Mixup()(torch.zeros(3, 3, 2, 2), torch.zeros(3)), ValueError, "be even"),
        (
            lambda: ours.Mixup()(torch.zeros(2, 3, 2, 2, dtype=torch.uint8), torch.zeros(2)),
            TypeError,
            "takes bytes",
        ),
    ],
)
def test_refused(call, kind, what):
    with pytest.raises(kind, match=what):
        call()


def test_timms_own_collate(theirs, root):
    """Blends native batches, before they are normalised."""
    collate = theirs.FastCollateMixup(num_classes=COUNT)
    loader = loader_of(KINDS["native"], root, collate_fn=collate)
    assert loader.mixup_enabled and ", mixed" in loader.loader.plan()
    assert next(iter(loader))[1].shape == (8, COUNT)
    loader.mixup_enabled = False
    assert collate.mixup_enabled is False
    plain = loader_of(KINDS["native"], root)
    plain.mixup_enabled = True
    assert plain.mixup_enabled is False


# --- erasing ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def white(tmp_path_factory):
    folder = tmp_path_factory.mktemp("white")
    for number in range(40):
        Image.new("RGB", (32, 32), "white").save(folder / f"{number}.png")
    return str(folder)


def erased(data, folder, epochs, **options):
    """Pixels that are not white, (images, 32, 32), and their values."""
    loader = data.create_loader(
        data.ImageDataset(folder), 32, 20, is_training=True, color_jitter=None, hflip=0,
        num_workers=0, device=torch.device("cpu"), **options,
    )  # fmt: skip
    images = torch.cat([images for _ in range(epochs) for images, _labels in loader])
    top = (1 - torch.tensor(MEAN)) / torch.tensor(STD)
    where = (images - top.view(1, 3, 1, 1)).abs().amax(1) > 1e-4
    return where, images.permute(0, 2, 3, 1)[where]


ERASING = {
    "const": {"re_prob": 0.6},
    "rand": {"re_prob": 0.8, "re_mode": "rand"},
    "pixel": {"re_prob": 0.8, "re_mode": "pixel", "re_count": 3},
    "split": {"re_prob": 1.0, "re_split": True},
    "without prefetcher": {"re_prob": 0.6, "use_prefetcher": False},
}


@pytest.mark.parametrize("name", ERASING)
def test_erased_as_timm_does(theirs, white, name):
    mine, their = (erased(data, white, 12, **ERASING[name]) for data in (ours, theirs))
    shares = [where.double().mean((1, 2)) for where, _values in (mine, their)]
    error = (shares[0].var() / len(shares[0]) + shares[1].var() / len(shares[1])).sqrt()
    assert (shares[0].mean() - shares[1].mean()).abs() < 6 * error
    touched = [(share > 0).double().mean().item() for share in shares]
    assert abs(touched[0] - touched[1]) < 6 * (0.5 / len(shares[0])) ** 0.5
    for _where, values in (mine, their):
        spread = float(name in ("rand", "pixel"))
        assert abs(values.double().mean().item()) < 0.3
        assert abs(values.double().std().item() - spread) < 0.2
    if name == "split":
        where = mine[0].view(-1, 20, 32, 32)
        assert not where[:, :10].any() and where[:, 10:].any()


@pytest.mark.parametrize("options", [{"is_training": False}, {"is_training": True, "no_aug": True}])
def test_nothing_is_erased_otherwise(white, options):
    for prefetch in (True, False):
        loader = ours.create_loader(
            ours.ImageDataset(white), 32, 20, re_prob=1.0, use_prefetcher=prefetch, device="cpu",
            **options,
        )  # fmt: skip
        assert all((images > 2).all() for images, _labels in loader)


def test_a_collate_fn_of_the_users_own_gets_erased_floats(theirs, white):
    """Not the bytes that are erased in batches where nobody looks at samples."""
    seen = []

    def collate(samples):
        seen.extend(image for image, _label in samples)
        return default_collate(samples)

    loader = ours.create_loader(
        ours.ImageDataset(white), 32, 20, is_training=True, color_jitter=None, re_prob=1.0,
        use_prefetcher=False, num_workers=0, collate_fn=collate,
    )  # fmt: skip
    images = torch.cat([images for images, _labels in loader])
    assert all(image.dtype is torch.float32 and (image == 0).any() for image in seen)
    assert torch.equal(images, torch.stack(seen))


def test_the_attribute(theirs, white):
    options = {"re_prob": 0.3, "re_mode": "pixel", "re_count": 2, "re_num_splits": 3}
    batches = [default_collate([(np.zeros((3, 4, 4), np.uint8), 1)] * 4)]
    mine = ours.PrefetchLoader(batches, device="cpu", **options).random_erasing
    their = theirs.loader.PrefetchLoader(batches, device=torch.device("cpu"), **options)
    for name in (
        "probability",
        "min_area",
        "max_area",
        "min_count",
        "max_count",
        "num_splits",
        "mode",
    ):
        assert getattr(mine, name) == getattr(their.random_erasing, name), name
    with pytest.raises(ValueError, match="mode='pixels'"):
        ours.PrefetchLoader(batches, device="cpu", re_prob=0.3, re_mode="pixels")
