"""Erasing, Mixup and CutMix: the same on every way to run."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from augmenting import CLASSES, ERASINGS, KINDS, MIXINGS, batches_of, delivered, mixing
from pictures import plain_folder
from torch.utils.data import TensorDataset

from exact import same_bits
from fastloader import DevicePrefetcher, FastLoader
from fastloader import transforms as T
from fastloader._core.batch.augmentation import Augmentation, Mixing, RandomErasing
from fastloader.datasets import ImageFolder
from fastloader.transforms import _deviates
from fastloader.transforms._recipe.draws import philox
from support import MEAN, STD, Pictures, random_images

pytestmark = pytest.mark.covering

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
WAYS = ["cpu", "twin", "streams", "pure"]


@pytest.mark.parametrize(("erasing", "mixed"), KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_way_gives_the_same_bits(enter_way, erasing, mixed, dtype):
    for channels_last in (False, True):
        batches = batches_of(3, 6, 23, 17)
        if channels_last:
            batches = [[x.permute(0, 2, 3, 1).contiguous(), y] for x, y in batches]
        answers = {}
        for name in WAYS:
            way = enter_way(name)
            augmentation = Augmentation(ERASINGS[erasing], MIXINGS[mixed])
            answers[name] = delivered(
                batches, augmentation, dtype=dtype, channels_last=channels_last
            )
            assert way.name == name
        for name in WAYS[1:]:
            for one, other in zip(answers["cpu"], answers[name], strict=True):
                same_bits(one[0], other[0])
                assert one[0].stride() == other[0].stride(), name
                assert torch.equal(one[1], other[1]) and one[1].dtype == other[1].dtype


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_other_numbers_of_channels(enter_way, channels):
    options = {"mean": (0.5,) * channels, "std": (0.2,) * channels}
    answers = []
    for name in WAYS:
        enter_way(name)
        augmentation = Augmentation(ERASINGS["pixel"], MIXINGS["pair"])
        answers.append(delivered(batches_of(2, 4, 9, 15, channels), augmentation, **options))
    for answer in answers[1:]:
        for one, other in zip(answers[0], answer, strict=True):
            same_bits(one[0], other[0])


def test_same_seed_same_batches_and_other_epochs_other_ones(way):
    def epochs(seed):
        torch.manual_seed(seed)
        with DevicePrefetcher(batches_of(2, 8, 16, 16), "cpu", mean=MEAN, std=STD) as delivery:
            delivery._delivery.augment(Augmentation(ERASINGS["pixel"], MIXINGS["elem"]))
            return [torch.stack([x for x, _ in delivery]) for _ in range(2)]

    first, second = epochs(5)
    assert torch.equal(first, epochs(5)[0]) and torch.equal(second, epochs(5)[1])
    assert not torch.equal(first, second) and not torch.equal(first, epochs(6)[0])
    assert not torch.equal(first[0], first[1])


def test_the_order_of_samples_stays_torchs(way):
    def order(augmentation):
        torch.manual_seed(11)
        loader = FastLoader(Pictures(), 4, shuffle=True, device="cpu", mean=MEAN, std=STD)
        loader._runtime.delivery.augment(augmentation)
        with loader:
            return [batch[1].tolist() for _ in range(2) for batch in loader]

    assert order(None) == order(Augmentation(ERASINGS["rand"], None))


def test_the_table_and_the_random_bits_are_the_native_ones():
    """csrc/image/normalize/normal_table.inc is what its script writes, and what Python computes."""
    root = Path(__file__).resolve().parents[3]
    committed = (root / "csrc" / "image" / "normalize" / "normal_table.inc").read_text()
    script = runpy.run_path(str(root / "tools" / "make_normal_table.py"))
    assert script["text"]() == committed
    numbers = [int(word) for word in committed.partition("\n")[2].split(",") if word.strip()]
    table = _deviates._normal_table()
    assert (table * 2**16).tolist() == numbers
    quantiles = 0.5 + (torch.arange(2048, dtype=torch.float64) + 0.5) / 4096
    exact = torch.special.ndtri(quantiles)
    assert (torch.from_numpy(table).double() - exact).abs().max() <= 2**-17 * 1.0001
    # Random123's kat_vectors.
    ones = np.full(1, 0xFFFFFFFF, dtype=np.uint64)
    for one in (ones, 0xFFFFFFFF):
        words = [np.ravel(word) for word in philox((one,) * 4, (0xFFFFFFFF,) * 2)]
        assert [int(word[0]) for word in words] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


class Ahead(list):
    """Batches that may be taken ahead of time."""

    num_workers = 1


@pytest.mark.parametrize("kind", [list, Ahead])
def test_with_without_and_with_other_augmentation(way, kind):
    """Also where memory was offered for a batch of the epoch before."""
    batches = kind(batches_of(4, 4, 8, 8))
    plain = delivered(batches, None)
    with DevicePrefetcher(batches, "cpu", mean=MEAN, std=STD) as delivery:
        for _ in range(2):
            for name in ("none", "const", "pixel"):
                for mixed in ("none", "elem", "half bytes"):
                    if name == mixed == "none":
                        delivery._delivery.augment(None)
                        for one, other in zip(delivery, plain, strict=True):
                            same_bits(one[0], other[0])
                            assert torch.equal(one[1], other[1])
                        continue
                    delivery._delivery.augment(Augmentation(ERASINGS[name], MIXINGS[mixed]))
                    torch.manual_seed(3)
                    got = [list(batch) for batch in delivery]
                    wanted = delivered(batches, Augmentation(ERASINGS[name], MIXINGS[mixed]))
                    for one, other in zip(got, wanted, strict=True):
                        same_bits(one[0], other[0])
                        assert torch.equal(one[1], other[1])


# --- on the native image path -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("augmented"), 22, classes=CLASSES))


@pytest.mark.parametrize("mixed", ["none", "elem", "pair bytes", "half bytes"])
@pytest.mark.parametrize("native_images", [True, False])
def test_pictures_of_the_native_path_are_augmented(enter_way, root, mixed, native_images):
    """What comes is what augmenting the same bytes gives; on the twin they are made in their slot."""
    dataset = ImageFolder(root, T.Compose([T.Resize(20), T.CenterCrop(18)]))
    torch.manual_seed(3)
    plain = list(FastLoader(dataset, 4, num_workers=2 if native_images else 0))
    answers = []
    for name in ["cpu", "twin", "streams"]:
        enter_way(name)
        torch.manual_seed(3)
        loader = FastLoader(
            dataset, 4, num_workers=2, device="cpu", mean=MEAN, std=STD, native=native_images
        )
        loader._runtime.delivery.augment(Augmentation(ERASINGS["pixel"], MIXINGS[mixed]))
        with loader:
            answers.append(list(loader))
            stats = loader.stats()
        assert stats["batches"] == 6
        if name == "twin" and native_images:
            extra = sum(Augmentation(ERASINGS["pixel"], MIXINGS[mixed]).extra_leaves(4))
            assert stats["ring"]["copied_bytes"] <= 22 * 8 + 6 * extra
    enter_way("cpu")
    wanted = delivered(plain, Augmentation(ERASINGS["pixel"], MIXINGS[mixed]))
    for answer in answers:
        for (image, target), (wanted_image, wanted_target) in zip(answer, wanted, strict=True):
            same_bits(image, wanted_image)
            assert torch.equal(target, wanted_target)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("native_images", [True, False])
def test_shuffled_epochs_are_the_same_on_every_way(enter_way, root, workers, native_images):
    """Whoever draws the order of samples, and when, the augmentation does not depend on it."""
    dataset = ImageFolder(root, T.Compose([T.Resize(20), T.CenterCrop(18)]))
    answers = []
    for name in ["cpu", "twin", "streams"]:
        enter_way(name)
        torch.manual_seed(3)
        loader = FastLoader(
            dataset, 4, shuffle=True, num_workers=workers, device="cpu", mean=MEAN,
            native=native_images,
        )  # fmt: skip
        loader._runtime.delivery.augment(Augmentation(ERASINGS["pixel"], MIXINGS["elem"]))
        with loader:
            answers.append([batch for _ in range(2) for batch in loader])
    for answer in answers[1:]:
        for one, other in zip(answers[0], answer, strict=True):
            same_bits(one[0], other[0])
            assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["arrays", "folder"])
def test_native_or_not_the_same_boxes(enter_way, root, kind, workers):
    """The epoch's seed is read before anything is drawn for the order, whoever makes the batches."""
    dataset = TensorDataset(random_images(4, 11, 3, 16, 16), torch.arange(11))
    if kind == "folder":
        dataset = ImageFolder(root, T.Compose([T.Resize(20), T.CenterCrop(18)]))
    answers = {}
    for name in ["cpu", "twin", "streams"]:
        for native in (True, False):
            enter_way(name)
            torch.manual_seed(3)
            loader = FastLoader(
                dataset, 4, shuffle=True, num_workers=workers, device="cpu", mean=MEAN, native=native
            )  # fmt: skip
            loader._runtime.delivery.augment(Augmentation(RandomErasing(1.0, max_count=3), None))
            with loader:
                assert loader.plan().startswith("Python path") == (not native)
                answers[name, native] = [batch for _ in range(2) for batch in loader]
    first = answers["cpu", True]
    assert len(first) == (6 if kind == "arrays" else 12)
    for key, answer in answers.items():
        for (images, labels), (wanted, wanted_labels) in zip(answer, first, strict=True):
            assert torch.equal(labels, wanted_labels), key
            same_bits(images, wanted)


def test_batches_that_shrink_are_augmented(enter_way, tmp_path):
    """A picture that is skipped leaves a batch of another size in a slot that was reserved for more."""
    folder = plain_folder(tmp_path, 12, classes=2)
    sorted(folder.rglob("*.jp*g"))[5].write_bytes(b"no picture")
    dataset = ImageFolder(str(folder), T.Compose([T.Resize(20), T.CenterCrop(18)]))
    answers = []
    for name in ["cpu", "twin", "streams"]:
        enter_way(name)
        torch.manual_seed(3)
        loader = FastLoader(dataset, 4, device="cpu", mean=MEAN, on_error="skip", num_workers=1)
        loader._runtime.delivery.augment(Augmentation(ERASINGS["rand"], None))
        with loader:
            answers.append([images for images, _ in loader])
    assert [len(images) for images in answers[0]] == [4, 3, 4]
    for answer in answers[1:]:
        for one, other in zip(answers[0], answer, strict=True):
            same_bits(one, other)


# --- what is refused --------------------------------------------------------------------------------


def test_an_odd_batch_is_refused_in_its_place(way):
    first, second = batches_of(2, 4, 8, 8)
    odd = [first[0][:3], first[1][:3]]
    with DevicePrefetcher([first, odd, second], "cpu", mean=MEAN, std=STD) as delivery:
        delivery._delivery.augment(Augmentation(None, mixing("batch")))
        iterator = iter(delivery)
        assert next(iterator)[0].shape[0] == 4
        with pytest.raises(ValueError, match="3 images cannot be mixed"):
            next(iterator)


def test_a_batch_without_targets_is_refused(way):
    with pytest.raises(ValueError, match="under 'target'"):
        delivered(batches_of(1, 4, 8, 8), Augmentation(None, mixing("batch"), target_key="target"))
    with pytest.raises(ValueError, match="one for each of the 4 images"):
        delivered(
            [[random_images(0, 4, 3, 8, 8), torch.zeros(3)]], Augmentation(None, mixing("batch"))
        )


def test_augmentation_needs_normalisation():
    with DevicePrefetcher([], "cpu") as delivery, pytest.raises(ValueError, match="mean and std"):
        delivery._delivery.augment(Augmentation(RandomErasing(), None))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomErasing(mode="noise"), "'const', 'rand' or 'pixel'"),
        (lambda: RandomErasing(1.5), "probability=1.5"),
        (lambda: RandomErasing(min_area=0.5), "min_area=0.5"),
        (lambda: RandomErasing(min_count=2, max_count=1), "min_count=2"),
        (lambda: RandomErasing(min_aspect=0), "min_aspect=0"),
        (lambda: Mixing(mode="whole"), "mode='whole'"),
        (lambda: Mixing(mode="half"), "FastCollateMixup"),
        (lambda: Mixing(mixup_alpha=0), "cutmix_alpha"),
        (lambda: Mixing(cutmix_minmax=(0.8, 0.2)), "cutmix_minmax"),
        (lambda: Augmentation(None, None), "both are None"),
    ],
)
def test_arguments_that_cannot_work(make, words):
    with pytest.raises(ValueError, match=words):
        make()
