"""What Ray actors make is what worker processes make, to the bit: samples, order, draws, errors and
states."""

import itertools
import json

import pytest
import torch
from encoded_samples import CROP, Captions, Scenes, paths_below
from image_source import image_source
from pictures import import_torchvision, random_folder
from ray_cluster import Drawing, DrawingStream, cluster_of, counts, on_ray
from torch.utils.data import DistributedSampler

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.batch.tree import cloned
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from support import MEAN, STD, Pictures, generator, same

pytestmark = pytest.mark.processes

native = extension.load()


def copied(batches):
    return [cloned(batch) for batch in batches]


def two_epochs(loader):
    torch.manual_seed(21)
    return [copied(loader), copied(loader)]


# What worker processes make has to be the same, to the bit: (dataset, options).
DRAWN = {
    "map": (Drawing(), {"shuffle": True}),
    "map, persistent": (
        Drawing(),
        {"shuffle": True, "persistent_workers": True, "drop_last": True},
    ),
    "iterable": (DrawingStream(25), {}),
    "iterable, persistent": (DrawingStream(25), {"persistent_workers": True}),
}


@pytest.fixture(scope="module")
def of_processes():
    """Made before there is a connection to Ray, whose threads a process should not fork beside."""
    made = {}
    for name, (dataset, options) in DRAWN.items():
        with FastLoader(dataset, 5, num_workers=2, **options) as loader:
            made[name] = two_epochs(loader)
    return made


@pytest.fixture(scope="module")
def cluster(of_processes):
    with cluster_of({}) as made:
        yield made


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_is_what_worker_processes_draw(cluster, of_processes, name):
    dataset, options = DRAWN[name]
    with on_ray(dataset, 5, **options) as loader:
        same(two_epochs(loader), of_processes[name])
    first, second = of_processes[name]
    assert not torch.equal(first[0][0], second[0][0])


def test_every_way_of_the_delivery(cluster, way):
    options = {**way.options, "mean": MEAN, "std": STD, "shuffle": True}
    torch.manual_seed(4)
    right = copied(FastLoader(Pictures(23), 5, **options))
    torch.manual_seed(4)
    with on_ray(Pictures(23), 5, **options) as loader:
        made = copied(loader)
        assert loader.stats()["path"] == way.path
    for got, wanted in zip(made, right, strict=True):
        same([leaf.cpu() for leaf in got], [leaf.cpu() for leaf in wanted])


def test_batches_belong_to_the_loop(cluster):
    """They are memory of this process, which can be written to."""
    with on_ray(Pictures(16, size=(160, 160)), 8) as loader:
        held = list(loader)
        for images, numbers in held:
            images += 1
            numbers *= 2
    for (images, numbers), first in zip(held, (0, 8)):
        chosen = Pictures(16, size=(160, 160)).images[first : first + 8]
        assert torch.equal(images, chosen + 1)
        assert numbers.tolist() == [2 * number for number in range(first, first + 8)]


def stacked(samples):
    images, numbers = torch.utils.data.default_collate(samples)
    return images, numbers, images.is_shared()


def test_batches_are_not_stacked_in_files(cluster):
    """As torch does it in worker processes. Ray copies the batch into its own memory in any case."""
    with on_ray(Pictures(10), 5, collate_fn=stacked) as loader:
        made = list(loader)
    assert [each[2] for each in made] == [False, False]
    assert torch.equal(torch.cat([each[0] for each in made]), Pictures(10).images)


class Nested(Pictures):
    """Samples with everything that a batch may be made of."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image, "pair": (label, f"number {index}"), "more": [image[:, :2], 0.5]}


def shared(samples):
    """A batch with two tensors of one memory, a numpy array and one row of something large."""
    batch = torch.utils.data.default_collate(samples)
    large = torch.arange(100_000).reshape(100, 1000)
    return {
        **batch,
        "view": batch["image"][:, 1:],
        "array": batch["image"].numpy()[:, 0] + 1,
        "row": large[7],
    }


def test_batches_of_any_form(cluster):
    with on_ray(Nested(8), 4, collate_fn=shared) as loader:
        made = list(loader)
        assert counts(loader)["received_bytes"] < 60_000  # not the rest of what the row is of
    right = list(FastLoader(Nested(8), 4, collate_fn=shared))
    for got, wanted in zip(made, right):
        array, wanted_array = got.pop("array"), wanted.pop("array")
        assert (array == wanted_array).all()
        array += 1  # it is the loop's
        same(got, wanted)
        got["image"] += 1
        assert torch.equal(got["view"], got["image"][:, 1:])


def test_whichever_comes_first(cluster):
    with on_ray(Pictures(24), 4, in_order=False) as loader:
        assert sorted(torch.cat([labels for _, labels in loader]).tolist()) == list(range(24))


class Refusing(Pictures):
    def __getitem__(self, index):
        if index == 5:
            raise KeyError("no number 5")
        return super().__getitem__(index)


def test_an_error_takes_its_batchs_place(cluster):
    with on_ray(Refusing(12), 4) as loader:
        iterator = iter(loader)
        assert next(iterator)[1].tolist() == [0, 1, 2, 3]
        with pytest.raises(KeyError) as caught:
            next(iterator)
        assert next(iterator)[1].tolist() == [8, 9, 10, 11]
    text = str(caught.value)
    assert "no number 5" in text and "Ray actor 1 on node " in text and "__getitem__" in text


@pytest.mark.parametrize("workers", [1, 3])
def test_a_state_goes_on_with_another_number_of_actors(cluster, workers):
    options = {"shuffle": True}
    with on_ray(Pictures(23), 4, generator=generator(3), **options) as loader:
        right = [labels.tolist() for _, labels in loader]
    with on_ray(Pictures(23), 4, generator=generator(3), **options) as first:
        iterator = iter(first)
        got = [next(iterator)[1].tolist() for _ in range(2)]
        state = json.loads(json.dumps(first.state_dict()))
    with on_ray(Pictures(23), 4, workers, generator=generator(8), **options) as other:
        other.load_state_dict(state)
        got += [labels.tolist() for _, labels in other]
    assert got == right


def test_each_rank_has_actors_of_its_own(cluster):
    """Two ranks' loaders in one process, at the same time: together they have each sample once."""
    loaders = [
        FastLoader(
            Pictures(24),
            4,
            sampler=DistributedSampler(range(24), 2, rank),
            num_workers=1,
            worker_backend="ray",
            ray_options={"num_cpus": 0},  # the actors of other tests have what there is
        )
        for rank in range(2)
    ]
    got = [[labels.tolist() for _, labels in batches] for batches in zip(*loaders, strict=True)]
    assert sorted(itertools.chain(*itertools.chain(*got))) == list(range(24))
    assert [counts(loader)["actors"] for loader in loaders] == [1, 1]
    for loader in loaders:
        loader.close()


def parts(loader):
    return loader.plan().splitlines()[1:]


def test_the_parts_of_samples_are_said(cluster, folder):
    own = "the dataset's own code, in the Ray actors"
    with on_ray(Captions(paths_below(folder), CROP), 2, 1) as loader:
        assert parts(loader)[0].startswith(f"  every part: {own}: ")
        list(loader)
        first, *others = parts(loader)
        assert "straight into the batch" in first or "made by Pillow" in first
        assert others == [f"  [1]: {own}", f"  [2]: {own}"]
    if native is not None:
        with on_ray(ImageFolder(folder, T.Compose(STEPS)), 2, 1) as loader:
            actors = "1 Ray actor with 1 decode thread each"
            picture = f"  pictures [0]: made natively, {actors}, straight into the batch"
            assert parts(loader)[0] == picture


# --- pictures, which the actors' decode threads make ------------------------------------------------

STEPS = [T.RandomResizedCrop((16, 18), interpolation="random"), T.RandomHorizontalFlip()]
FLOATS = [T.ToTensor(), T.Normalize(MEAN, STD)]
CHAINS = {
    "bytes": (STEPS, {}),
    "delivered": (STEPS, {"mean": MEAN, "std": STD}),
    "floats": (STEPS + FLOATS, {}),
    "erased": (STEPS + FLOATS + [T.RandomErasing(0.8)], {}),
    "mixed": (STEPS, {"collate_fn": T.MixUp(num_classes=3), "mean": MEAN, "std": STD}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    random_folder(root, 3, each=1)
    return str(root)


@pytest.mark.exhaustive
@pytest.mark.covering
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", ["cpu", "twin", "streams", "pure"])
def test_pictures(cluster, folder, enter_way, chain, name):
    if native is None:
        pytest.skip("the native module is not in use")
    way = enter_way(name)
    steps, more = CHAINS[chain]
    # With floats, the CPU's delivery is the plain one.
    given = {} if name in ("cpu", "pure") and "mean" not in more else way.options
    options = {"shuffle": True, **given, **more}
    dataset = ImageFolder(folder, T.Compose(steps))
    right = two_epochs(FastLoader(dataset, 4, num_workers=2, worker_backend="thread", **options))
    with on_ray(dataset, 4, **options) as loader:
        if name != "pure":
            assert loader.plan().startswith("native images: fastloader ImageFolder"), loader.plan()
            assert "2 Ray actors with 1 decode thread each" in loader.plan()
        same(two_epochs(loader), right)


def by_hand(samples):
    return [torch.stack([each[0] for each in samples]), torch.tensor([each[1] for each in samples])]


def test_pictures_for_a_function(cluster, folder):
    dataset = ImageFolder(folder, T.Compose(CHAINS["erased"][0]))
    for more in ({"collate_fn": by_hand}, {"batch": "pad"}):
        options = {"shuffle": True, **more}
        right = two_epochs(FastLoader(dataset, 4, num_workers=2, **options))
        with on_ray(dataset, 4, **options) as loader:
            if native is not None:
                plan = loader.plan()
                assert "2 Ray actors" in plan and "1 decode thread in each" in plan
            same(two_epochs(loader), right)


def in_a_list(samples):
    return samples


LAYOUTS = {
    "default": {},
    "function": {"collate_fn": in_a_list},
    "list": {"batch": "list"},
    "pad": {"batch": "pad"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("part", ["companions", "clips", "pairs"])
def test_samples_of_several_parts(cluster, tmp_path, part, layout):
    if part == "pairs":
        import_torchvision()
    Scenes.write(tmp_path)
    dataset, options = Scenes(tmp_path, part), {"shuffle": True, **LAYOUTS[layout]}
    if (part, layout) == ("clips", "pad"):
        pytest.skip("a clip is no picture, which batch='pad' wants")
    loader = FastLoader(dataset, 3, num_workers=2, **options)
    right = two_epochs(loader)
    made = "straight into the batch" if layout == "default" else "made natively"
    pictures = [line for line in parts(loader) if line.startswith("  pictures")]
    assert native is None or (pictures and all(made in line for line in pictures))
    with on_ray(dataset, 3, **options) as loader:
        same(two_epochs(loader), right)
        others = [line for line in parts(loader) if line.startswith("  pictures")]
        assert native is None or (others and all(made in line for line in others))


@pytest.mark.parametrize("collate_fn", [None, by_hand], ids=["default", "by hand"])
@pytest.mark.parametrize("on_error", ["skip", "replace", "raise"])
def test_bad_pictures(cluster, tmp_path, on_error, collate_fn):
    if native is None:
        pytest.skip("the native module is not in use")
    random_folder(tmp_path, 3, each=1)
    dataset = ImageFolder(str(tmp_path), T.Compose([T.Resize((8, 9))]))
    for number in (2, 3, 5):
        with open(dataset.path(number), "wb") as file:
            file.write(b"no picture")
    options = {"on_error": on_error, "collate_fn": collate_fn}
    right = outcome(FastLoader(dataset, 2, num_workers=2, **options))
    with on_ray(dataset, 2, **options) as loader:
        same(outcome(loader), right)
    # The function's errors are the dataset's own, which counts none.
    assert right["bad"] == (0 if collate_fn and on_error == "raise" else 3)


def outcome(loader):
    torch.manual_seed(2)
    iterator, batches, errors = iter(loader), [], []
    while True:
        try:
            batches.append([leaf.clone() for leaf in next(iterator)])
        except StopIteration:
            break
        except Exception as error:
            errors.append(type(error))
    policy = image_source(loader).policy
    said = [text.partition(": ")[0] for text in policy.last]
    counted = {"bad": policy.bad, "seen": policy.seen, "last": said}
    return {
        "batches": batches,
        "errors": errors,
        "errors seen": loader.stats()["errors"],
        **counted,
    }
