"""Chains that end in random erasing, on the native path: every delivery gives the picture without it,
with the box that `replay()` lists."""

import copy
import random

import pytest
import torch
from drawn import versions
from image_source import image_source
from numbered_pictures import COUNT
from pictures import plain_folder
from torch.utils.data import RandomSampler, Subset

from fastloader import FastLoader, PythonPathWarning
from fastloader import transforms as T
from fastloader.datasets import ImageFolder
from support import MEAN, STD

pytestmark = pytest.mark.covering

HEAD = [T.RandomResizedCrop((24, 30)), T.RandomHorizontalFlip()]
FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]


def erased(*end, p=0.8, value=0, behind=()):
    return T.Compose([*HEAD, *end, T.RandomErasing(p, value=value), *behind])


# name: (the chain, the chain without erasing)
CHAINS = {
    "zeros": (erased(*FLOATS), [*HEAD, *FLOATS]),
    "numbers": (erased(*FLOATS, value=(1.5, -2, 0.25)), [*HEAD, *FLOATS]),
    "scaled": (erased(T.ToTensor(), value=0.5), [*HEAD, T.ToTensor()]),
    "between": (erased(T.ToTensor(), value=0.5, behind=FLOATS[1:]), [*HEAD, *FLOATS]),
    "bytes": (erased(T.PILToTensor(), value=(9, 80, 255)), [*HEAD, T.PILToTensor()]),
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


def epoch(loader, seed=1):
    torch.manual_seed(seed)
    return torch.cat([images for images, _labels in loader])


def native(dataset, batch=5, **options):
    loader = FastLoader(dataset, batch, **{"num_workers": 2, **options})
    assert loader.plan().startswith("native images: "), loader.plan()
    return loader


def erasures(loader, indices):
    return [dict(loader.replay(index)["steps"]).get("erase") for index in indices]


def redone(whole, boxes, interleaved=False):
    """The pictures with the boxes that replay() lists, and how many have one."""
    found = whole.clone()
    for image, box in zip(found, boxes, strict=True):
        if box is not None:
            image.copy_(T.apply(image, [("erase", box)]))
    return found, sum(box is not None for box in boxes)


@pytest.mark.parametrize("name", CHAINS)
def test_pictures_are_erased_where_replay_says(root, deliver, name):
    chain, without = CHAINS[name]
    seed = random.randrange(1 << 32)
    loader = native(ImageFolder(root, chain), **deliver)
    found = epoch(loader, seed)
    whole = epoch(native(ImageFolder(root, T.Compose(without)), **deliver), seed)
    wanted, count = redone(whole, erasures(loader, range(COUNT)))
    assert found.dtype == whole.dtype and torch.equal(found, wanted), seed
    assert 5 < count <= COUNT, seed


@pytest.mark.parametrize("options", [{}, {"channels_last": True}, {"dtype": torch.bfloat16}])
def test_bytes_that_the_loader_normalises(root, deliver, options):
    """They are erased before they are normalised."""
    chain, without = CHAINS["bytes"]
    options = {**deliver, "mean": MEAN, "std": STD, **options}
    loader = native(ImageFolder(root, chain), **options)
    found = epoch(loader)
    whole = epoch(native(ImageFolder(root, T.Compose(without)), **options))
    values = loader._runtime.delivery.normalization.of_pixel([9, 80, 255])
    boxes = [box and {**box, "value": values} for box in erasures(loader, range(COUNT))]
    wanted, count = redone(whole, boxes)
    assert torch.equal(found, wanted) and found.stride() == whole.stride() and count > 5


def test_a_value_may_change_between_epochs(root, deliver):
    """A delivery keeps the layouts of its batches, and what is filled with zeros has another one."""
    dataset = ImageFolder(root, erased(*FLOATS))
    loader = native(dataset, **deliver)
    for value in (0.5, (2, 3, 4), 0, 0.5):
        dataset.transform.transforms[-1].value = value
        wanted = epoch(native(ImageFolder(root, erased(*FLOATS, value=value))))
        assert torch.equal(epoch(loader), wanted), value


def test_deviates_are_the_same_everywhere(root, enter_way):
    dataset = ImageFolder(root, erased(*FLOATS, value="random"))
    whole = epoch(native(ImageFolder(root, T.Compose(CHAINS["zeros"][1]))))
    loader = native(dataset)
    first = epoch(loader)
    assert torch.equal(first, epoch(loader)) and not torch.equal(first, epoch(loader, 2))
    epoch(loader)
    boxes = erasures(loader, range(COUNT))
    kept = torch.ones_like(first, dtype=torch.bool)
    for image, box in zip(kept, boxes, strict=True):
        if box is not None:
            rows = slice(box["top"], box["top"] + box["height"])
            image[:, rows, box["left"] : box["left"] + box["width"]] = False
            with pytest.raises(ValueError, match="not listed"):
                T.apply(image, [("erase", box)])
    assert torch.equal(first[kept], whole[kept])
    values = first[~kept]
    assert len(values) > 2000 and len(values.unique()) > 0.4 * min(len(values), 4096)
    assert abs(values.mean()) < 0.12 and abs(values.std() - 1) < 0.12
    for way in ("cpu", "twin", "streams"):
        enter_way(way)
        for threads in (1, 3):
            options = {"device": "cpu", "num_workers": threads}
            assert torch.equal(epoch(native(dataset, **options)), first), way


@pytest.mark.parametrize("value", [0.5, "random"])
def test_neither_threads_nor_order_move_a_box(root, value):
    dataset = ImageFolder(root, erased(*FLOATS, value=value))
    loaders = [native(dataset, num_workers=threads) for threads in (1, 2, 4)]
    found = [epoch(loader) for loader in loaders]
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    boxes = erasures(loaders[0], range(COUNT))
    picked = native(Subset(dataset, [7, 3, 11]), 2)
    epoch(picked)
    assert erasures(picked, range(3)) == [boxes[7], boxes[3], boxes[11]]


def test_repeated_samples_have_boxes_of_their_own(root):
    dataset = ImageFolder(root, erased(*FLOATS, p=1))
    generator = torch.Generator().manual_seed(1)
    sampler = RandomSampler(Subset(dataset, [0]), True, 40, generator)
    zeros = (epoch(native(dataset, sampler=sampler)) == 0).flatten(1)
    assert len({tuple(each.nonzero()[:, 0].tolist()) for each in zeros}) > 30


@pytest.mark.parametrize("value", [0.5, "random"])
def test_an_epoch_goes_on_where_it_was(root, deliver, value):
    dataset = ImageFolder(root, erased(*FLOATS, value=value))
    torch.manual_seed(5)
    loader = native(dataset, shuffle=True, **deliver)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state, generator = loader.state_dict(), torch.get_rng_state()
    rest = [images.clone() for images, _ in batches]
    again = native(dataset, shuffle=True, **deliver)
    torch.set_rng_state(generator)
    again.load_state_dict(state)
    found = [images.clone() for images, _ in again]
    assert len(found) == len(rest) > 1
    assert all(torch.equal(*pair) for pair in zip(found, rest, strict=True))


@pytest.mark.parametrize("value", [0.5, "random"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples(root, tmp_path, deliver, value, on_error):
    """What is left out moves no box, and what comes in its place has the bad one's."""
    bad = plain_folder(tmp_path, COUNT, classes=COUNT)
    broken = sorted(bad.glob("*/*.jpg"))[6]
    broken.write_bytes(b"no picture")
    dataset = ImageFolder(str(bad), erased(*FLOATS, value=value))
    loader = native(dataset, on_error=on_error, **deliver)
    found = epoch(loader)
    assert len(found) == COUNT - (on_error == "skip")
    assert torch.equal(found, epoch(native(dataset, on_error=on_error)))
    if value != "random":
        boxes = erasures_of_good(loader, dataset, broken, on_error)
        whole = native(
            ImageFolder(str(bad), T.Compose(CHAINS["zeros"][1])), on_error=on_error, **deliver
        )
        wanted, _ = redone(epoch(whole), boxes)
        assert torch.equal(found, wanted)


def erasures_of_good(loader, dataset, broken, on_error):
    number = [path for path, _ in dataset.samples].index(str(broken))
    box = dataset.transform.transforms[-1].erasing(3)
    seed = image_source(loader).last.seeds.of(number)
    edges, _ = box.draw([seed], [number], 24, 30)
    top, bottom, left, right = edges[0].tolist()
    its = {"top": top, "left": left, "height": bottom - top, "width": right - left}
    its = {**its, "value": box.value} if bottom else None
    others = [each for each in range(COUNT) if each != number]
    boxes = dict(zip(others, erasures(loader, others), strict=True))
    boxes[number] = its
    return [boxes[each] for each in range(COUNT) if each != number or on_error == "replace"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_torchvisions_own_chain_is_native(root, version):
    tv = versions()[version]
    chain = tv.Compose(
        [
            tv.RandomResizedCrop((24, 30)),
            tv.RandomHorizontalFlip(),
            tv.PILToTensor(),
            tv.ConvertImageDtype(torch.float32),
            tv.Normalize(MEAN, STD),
            tv.RandomErasing(0.8, value=(1.5, -2, 0.25)),
        ]
    )
    found = epoch(native(ImageFolder(root, chain)))
    assert torch.equal(found, epoch(native(ImageFolder(root, CHAINS["numbers"][0]))))


def test_the_python_path_rounds_alike(root):
    """What is not erased has the bits of the native path."""
    chain = erased(*FLOATS, p=1, value=7)
    chain.transforms[0] = T.Resize((24, 30))
    dataset = ImageFolder(root, chain)
    loader = FastLoader(dataset, 5, native=False)
    found = epoch(loader)
    chain = T.Compose([T.Resize((24, 30)), T.RandomHorizontalFlip(0), *FLOATS])
    dataset.transform.transforms[1] = T.RandomHorizontalFlip(0)
    whole = epoch(native(ImageFolder(root, chain)))
    found = epoch(loader)
    outside = found != 7
    assert not outside.all() and torch.equal(found[outside], whole[outside])


def test_what_cannot_be_done_is_pythons(root):
    dataset = ImageFolder(root, T.Compose([*HEAD, T.PILToTensor(), T.RandomErasing(value=300)]))
    loader = FastLoader(dataset, 4)
    assert "holds 0 to 255" in loader.plan()
    with pytest.warns(PythonPathWarning, match="holds 0 to 255"):
        next(iter(loader))
    dataset = ImageFolder(root, CHAINS["zeros"][0])
    with pytest.raises(ValueError, match="Remove one of the two"):
        FastLoader(dataset, 4, mean=MEAN)
    # A transform that is replaced is looked at when the epoch begins.
    loader = FastLoader(ImageFolder(root, T.Compose(HEAD)), 4, mean=MEAN)
    loader.dataset.transform = dataset.transform
    assert "would normalise once more" in loader.plan()


def test_a_copy_of_the_loader_erases_too(root):
    loader = native(ImageFolder(root, CHAINS["numbers"][0]))
    assert torch.equal(epoch(loader), epoch(copy.copy(loader)))
