"""Ray Train with two workers: each sample once, with ``distributed="auto"`` and nothing else.

needs: ray
runs: python examples/frameworks/ray_train.py
"""

import itertools
import json
import tempfile
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
from torch.utils.data import TensorDataset

COUNT = 48


def train(config):
    import fastloader
    from fastloader import FastLoader

    dataset = TensorDataset(torch.arange(COUNT))
    rank = ray.train.get_context().get_world_rank()
    device = ray.train.torch.get_device()
    loader = FastLoader(dataset, 4, shuffle=True, distributed="auto", device=device)
    # Not needed. Ray leaves a loader alone that shares the samples out, unless it moves batches.
    assert ray.train.torch.prepare_data_loader(loader, move_to_device=False) is loader
    seen = [[numbers.tolist() for (numbers,) in loader] for _ in range(3)]
    # What Ray makes of a loader without distributed=.
    other = ray.train.torch.prepare_data_loader(FastLoader(dataset, 4, shuffle=True))
    checked = [str(fastloader.check(loader)), str(fastloader.check(other))]
    Path(config["folder"], f"{rank}.json").write_text(json.dumps([seen, checked]))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        scaling = ray.train.ScalingConfig(num_workers=2, use_gpu=False)
        run = ray.train.RunConfig(storage_path=folder, name="run")
        trainer = ray.train.torch.TorchTrainer(
            train, train_loop_config={"folder": folder}, scaling_config=scaling, run_config=run
        )
        trainer.fit()
        ranks = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
    ray.shutdown()
    for epoch in zip(*(seen for seen, _ in ranks)):
        assert sorted(itertools.chain(*itertools.chain(*epoch))) == list(range(COUNT))
    print(f"2 workers, 3 epochs: each of {COUNT} samples once an epoch")
    print(*ranks[0][1], sep="\n")
