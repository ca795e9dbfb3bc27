"""compat.timm's distributed samplers beside the installed timm's, and in two processes."""

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest
from pictures import import_timm, script

from fastloader.compat import timm as ours


@pytest.fixture(scope="module")
def theirs():
    import_timm()
    from timm.data import distributed_sampler

    return distributed_sampler


@pytest.mark.parametrize("length", [1, 7, 8, 255, 600])
@pytest.mark.parametrize("world", [1, 3, 4])
def test_distributed_samplers(theirs, length, world):
    data = range(length)
    choices = [{}, {"num_repeats": 2, "selected_round": 0}, {"num_repeats": 1.5, "shuffle": False}]
    choices.append({"num_repeats": 2.7, "selected_ratio": 2})
    for rank in range(world):
        mine = ours.OrderedDistributedSampler(data, world, rank)
        their = theirs.OrderedDistributedSampler(data, world, rank)
        assert list(mine) == list(their) and len(mine) == len(their)
        assert mine.num_valid_samples == their.num_valid_samples
        for options in choices:
            mine = ours.RepeatAugSampler(data, world, rank, **options)
            their = theirs.RepeatAugSampler(data, world, rank, **options)
            for epoch in range(2):
                mine.set_epoch(epoch)
                their.set_epoch(epoch)
                assert list(mine) == list(their), options
                assert len(mine) == len(their)


def test_samplers_without_a_process_group():
    with pytest.raises(RuntimeError, match="init_process_group"):
        ours.RepeatAugSampler(range(3))


DISTRIBUTED = """
    import sys
    import torch
    import torch.distributed as dist
    from fastloader.compat.timm import ImageDataset, create_loader

    rank, world, store, root = int(sys.argv[1]), 2, sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    def loader(**options):
        made = create_loader(ImageDataset(root), 20, 4, distributed=True, num_workers=2,
                             color_jitter=None, device="cpu", **options)
        made.dataset.reader.samples = [
            (path, number) for number, (path, _class) in enumerate(made.dataset.reader.samples)]
        assert made.loader.plan().startswith("native"), made.loader.plan()
        return made
    torch.manual_seed(0)
    for options in ({}, {"is_training": True}):
        print([y.tolist() for _x, y in loader(**options)])
    repeated = {}
    for images, labels in loader(is_training=True, num_aug_repeats=2):
        for image, label in zip(images, labels.tolist()):
            repeated.setdefault(label, []).append(round(image.double().mean().item(), 9))
    print(repeated)
    dist.destroy_process_group()
"""


@pytest.mark.processes
def test_distributed(root, tmp_path):
    """Ranks share evaluation and training; repeats of a picture get another crop on every rank."""
    with ThreadPoolExecutor(2) as pool:
        done = list(
            pool.map(lambda rank: script(DISTRIBUTED, rank, tmp_path / "store", root), range(2))
        )
    ranks = [[ast.literal_eval(line) for line in each.stdout.splitlines()] for each in done]
    evaluated, trained = (
        [[label for batch in rank[epoch] for label in batch] for rank in ranks] for epoch in (0, 1)
    )
    assert evaluated == [list(range(0, 22, 2)), list(range(1, 22, 2))]
    assert not set(trained[0]) & set(trained[1]) and len(trained[0]) == len(trained[1]) == 8
    common = ranks[0][2].keys() & ranks[1][2].keys()
    assert common
    assert all(ranks[0][2][label] != ranks[1][2][label] for label in common)


def test_repeats_need_distributed_training(root):
    with pytest.raises(ValueError, match="num_aug_repeats=3"):
        ours.create_loader(ours.ImageDataset(root), 24, 4, is_training=True, color_jitter=None,
                           num_aug_repeats=3)  # fmt: skip
