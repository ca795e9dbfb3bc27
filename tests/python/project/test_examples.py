"""Every file in examples/ runs, as a user would run it."""

import os
import subprocess
import sys

import pytest
from pictures import import_torchvision

from support import HANG, PACKAGE_ROOT, PROCESSES, SUPPORT

EXAMPLES = sorted((PACKAGE_ROOT / "examples").glob("*.py"))


@pytest.mark.skipif(not EXAMPLES, reason="the examples lie in the source tree, which is not here")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    if "lmdb" in example.stem:
        pytest.importorskip("lmdb")
    assert run(tmp_path, "-W", "error", example), "it prints what it did"
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def run(folder, *arguments):
    """Python with these arguments, in a folder; what it printed."""
    paths = [str(SUPPORT), str(PROCESSES), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name):
    path = PACKAGE_ROOT / "examples" / name
    if not path.is_file():
        pytest.skip("the examples lie in the source tree, which is not here")
    return path


def test_two_ranks_share_the_pictures(tmp_path):
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    printed = run(tmp_path, *launch, example("ddp.py"))
    assert printed.count("of 128 right") == 3  # by one of the ranks, which has counted for both
    assert "'epoch': 3" in printed


def test_imagenet_goes_on_from_packed_pictures_with_a_model_of_torchvision(tmp_path):
    import_torchvision()
    pytest.importorskip("lmdb")
    from PIL import Image

    for split in "train", "val":
        for number in range(8):
            folder = tmp_path / split / ("a", "b")[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (80, 60), (number * 30,) * 3).save(folder / f"{number}.png")
        run(tmp_path, "-m", "fastloader.cli", "pack", split, f"{split}.lmdb")
    common = ["--data", tmp_path, "--arch", "resnet18", "--batch-size", "4"]
    first = run(tmp_path, example("imagenet.py"), *common, "--epochs", "1")
    assert first.startswith("native images: fastloader LMDBDataset, 8 samples")
    then = run(tmp_path, example("imagenet.py"), *common, "--epochs", "2")
    assert "goes on in epoch 1" in then and "epoch 0:" not in then and "epoch 1:" in then
