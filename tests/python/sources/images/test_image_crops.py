"""The native image path gives each sample the same crop however it is worked on."""

import pytest
import torch
from numbered_pictures import COUNT, Own
from pictures import script
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastloader import FastLoader
from fastloader._core.order.position import may_repeat
from fastloader.compat.timm.samplers import RepeatAugSampler
from support import generator, same


def test_epochs_of_persistent_workers_get_crops_of_their_own(crops):
    def epochs(closing):
        options = {"num_workers": 1, "persistent_workers": True, "generator": generator(2)}
        loader = FastLoader(crops, COUNT, **options)
        boxes = []
        for _ in range(3):
            next(iter(loader))
            boxes.append([loader.replay(i)["box"] for i in range(COUNT)])
            if closing:
                loader.close()
        return boxes

    first, again, closed = epochs(False), epochs(False), epochs(True)
    assert first == again
    assert first[0] != first[1] != first[2] != first[0]
    # close() ends the workers, so that the next epoch draws anew.
    assert closed[0] == first[0] and closed[1] != first[1]


def epoch(dataset, seed=1, **options):
    """{label: picture}; the label is the sample's index."""
    torch.manual_seed(seed)
    options = {"batch_size": 4, "num_workers": 2, **options}
    seen = {}
    for images, labels in FastLoader(dataset, **options):
        for image, label in zip(images, labels.tolist()):
            seen.setdefault(label, []).append(image.clone())
    return seen


def test_same_seed_same_crops_for_any_number_of_threads(crops, device):
    reference = epoch(crops, shuffle=True)
    for workers in (0, 1, 2, 3, 7):
        same(epoch(crops, shuffle=True, num_workers=workers, **device), reference)


def test_crops_do_not_depend_on_order_or_batches(crops):
    """They are a function of (base seed, sample index), and both samplers draw the base seed first."""
    reference = epoch(crops, shuffle=True)
    for options in (
        {"shuffle": False},
        {"shuffle": True, "batch_size": 7},
        {"shuffle": False, "batch_size": 1, "num_workers": 1},
    ):
        got = epoch(crops, **options)
        same({label: got[label] for label in reference}, reference)


def test_crops_do_not_depend_on_the_rank_layout(crops):
    def boxes(ranks):
        found = {}
        for rank in range(ranks):
            sampler = DistributedSampler(range(COUNT), num_replicas=ranks, rank=rank, seed=ranks)
            loader = FastLoader(crops, 4, sampler=sampler, generator=generator(2))
            list(loader)
            found |= {index: loader.replay(index)["box"] for index in sampler}
        return found

    alone = boxes(1)
    assert len(alone) == COUNT
    assert boxes(2) == boxes(5) == alone


def test_another_seed_other_crops(crops):
    one, other = epoch(crops, 1), epoch(crops, 2)
    assert sum(not torch.equal(one[i][0], other[i][0]) for i in one) >= COUNT - 2


def test_another_epoch_other_crops(crops, device):
    torch.manual_seed(1)
    loader = FastLoader(crops, COUNT, **device)
    (one, _), (other, _) = (next(iter(loader)) for _ in range(2))
    assert sum(not torch.equal(a, b) for a, b in zip(one, other)) >= COUNT - 2


@pytest.mark.processes
def test_same_crops_across_processes(crops, root):
    import hashlib

    source = """
        import hashlib, sys, torch
        from fastloader import FastLoader, transforms as T
        from fastloader.datasets import ImageFolder
        chain = T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()])
        torch.manual_seed(1)
        loader = FastLoader(ImageFolder(sys.argv[1], chain), 4, shuffle=True, num_workers=3)
        digest = hashlib.sha256()
        for images, labels in loader:
            digest.update(images.numpy().tobytes() + labels.numpy().tobytes())
        print(digest.hexdigest())
    """
    torch.manual_seed(1)
    digest = hashlib.sha256()
    for images, labels in FastLoader(crops, 4, shuffle=True, num_workers=1):
        digest.update(images.numpy().tobytes() + labels.numpy().tobytes())
    assert script(source, root).stdout.strip() == digest.hexdigest()


def test_views_share_the_crops_of_their_samples(crops):
    """A sample's key is its place in the folder, whichever Subset it comes through."""
    reference = epoch(crops)
    some = [5, 17, 2, 11]
    for view in (Subset(crops, some), Subset(Subset(crops, [0, *some, 3]), [1, 2, 3, 4])):
        same(epoch(view), {i: reference[i] for i in some})


def test_a_sample_that_two_parts_of_a_concatenation_share_gets_two_crops(crops):
    seen = epoch(ConcatDataset([crops, crops]))
    assert all(len(images) == 2 for images in seen.values())
    assert sum(not torch.equal(*images) for images in seen.values()) >= COUNT - 2


def test_plan_names_equal_parts_of_a_concatenation_once(crops):
    whole = ConcatDataset([crops, crops, Subset(crops, [1]), crops])
    name = FastLoader(crops, 4).plan().split(",")[0].removeprefix("native images: ")
    joined = FastLoader(whole, 4).plan().split(f", {3 * COUNT + 1} samples")[0]
    assert joined == f"native images: ConcatDataset of 2 times {name}, Subset of {name}, {name}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"sampler": WeightedRandomSampler([1.0, *[0.0] * (COUNT - 1)], 12)},
        lambda: {"sampler": RandomSampler(range(1), replacement=True, num_samples=12)},
        lambda: {"sampler": RandomSampler(range(COUNT), num_samples=2 * COUNT)},
        lambda: {"sampler": Own([0] * 12)},
        lambda: {"sampler": SubsetRandomSampler([0] * 12)},
        lambda: {"sampler": SubsetRandomSampler([0, -COUNT])},
        lambda: {"batch_sampler": [[0, 0, 0], [0, 0]]},
        lambda: {"batch_sampler": BatchSampler([0] * 12, 4, False)},
        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(1), True, 12), 4, False)},
        lambda: {"batch_sampler": BatchSampler(SubsetRandomSampler([0] * 12), 5, True)},
    ],
    ids=[
        *("weighted", "replacement", "more than once around", "own", "subset", "from the end"),
        *("batches", "list in batches", "replacement in batches", "subset in batches"),
    ],
)
def test_repeated_samples_get_different_crops(crops, make):
    options = make()
    if "batch_sampler" in options:
        options["batch_size"] = 1
    seen = epoch(crops, **options)
    assert len(seen[0]) >= 2
    different = {image.numpy().tobytes() for image in seen[0]}
    assert len(different) >= len(seen[0]) - 1
    # ... and are the same on every run, for any number of threads.
    same(
        epoch(
            crops,
            **{**make(), **({"batch_size": 1} if "batch_sampler" in options else {})},
            num_workers=3,
        ),
        seen,
    )


class Regrouped(BatchSampler):
    """A batch sampler of one's own."""


@pytest.mark.parametrize("kind", [BatchSampler, Regrouped])
def test_ranks_that_repeat_a_picture_make_other_crops_of_it(crops, kind):
    def first_batch(rank):
        sampler = RepeatAugSampler(range(COUNT), 2, rank, shuffle=False, num_repeats=2)
        return next(
            iter(FastLoader(crops, batch_sampler=kind(sampler, 6, False), generator=generator(3)))
        )

    (one, numbers), (other, same_numbers) = map(first_batch, range(2))
    assert numbers.tolist() == same_numbers.tolist() == [*range(6)]
    assert not any(map(torch.equal, one, other))


def test_which_samplers_may_repeat():
    once = [
        SequentialSampler(range(5)),
        RandomSampler(range(5)),
        RandomSampler(range(5), num_samples=3),
        SubsetRandomSampler([4, 0, 2]),
        SubsetRandomSampler(torch.tensor([4, 0, 2])),
        SubsetRandomSampler([]),
        WeightedRandomSampler([1.0] * 5, 3, replacement=False),
        DistributedSampler(range(5), 2, 0),
    ]
    again = [
        RandomSampler(range(5), replacement=True),
        RandomSampler(range(5), num_samples=6),
        SubsetRandomSampler([1, 1]),
        SubsetRandomSampler(torch.tensor([1, 0, 1])),
        SubsetRandomSampler([4, -1]),
        WeightedRandomSampler([1.0] * 5, 3),
        Own([1, 2]),
        [1, 2],
        RepeatAugSampler(range(5), 2, 0),
    ]
    for grouped in (lambda each: each, lambda each: BatchSampler(each, 2, False)):
        assert not any(may_repeat(grouped(each)) for each in once)
        assert all(may_repeat(grouped(each)) for each in again)
    assert may_repeat(Regrouped(once[0], 2, False))


def test_replay_knows_what_came_and_only_that(crops):
    loader = FastLoader(crops, 4)
    with pytest.raises(ValueError, match="no epoch"):
        loader.replay(0)
    for images, _labels in loader:
        assert images.shape[1:] == (3, 12, 12)
    for index in range(COUNT):
        found = loader.replay(index)
        left, top, width, height = found["box"]
        assert min(left, top) >= 0 and min(width, height) >= 1
        assert type(found["hflip"]) is bool and found["vflip"] is False
    with pytest.raises(ValueError):
        loader.replay(COUNT)
    with pytest.raises(ValueError, match="Python path"):
        FastLoader(crops, 4, native=False).replay(0)


def test_a_sample_that_a_subset_holds_several_times_gets_as_many_crops(crops):
    (images,) = epoch(Subset(crops, [5] * 6)).values()
    assert len({image.numpy().tobytes() for image in images}) == 6
