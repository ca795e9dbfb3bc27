"""README's first diff, typed as it stands, on the recipe of torchvision's references for ImageNet: the
chain of references/classification/presets.py, for training and for evaluation."""

import re

import pytest
import torch
from pictures import import_torchvision, plain_folder

from support import MEAN, PACKAGE_ROOT, STD

README = PACKAGE_ROOT / "README.md"
if not README.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)


def sides():
    """README's first diff, as the program before and the one after it."""
    (diff,) = re.findall(r"```diff\n(.*?)```", README.read_text(), re.DOTALL)[:1]
    lines = diff.splitlines()
    assert any(line.startswith("+loader = FastLoader(") for line in lines)
    return ["\n".join(line[1:] for line in lines if line[:1] in (side, " ")) for side in "-+"]


def here(program):
    """Without the GPU, which this machine may lack, and with one worker for this folder."""
    if not torch.cuda.is_available():
        program = program.replace('device="cuda"', 'device="cpu"')
    return program.replace("num_workers=8", "num_workers=1").replace(
        "shuffle=True", "shuffle=False"
    )


def run(program, dataset):
    names = {"dataset": dataset}
    exec(compile(program, "README.md", "exec"), names)
    return names["loader"]


def recipe(training):
    T = import_torchvision().transforms
    steps = [T.Resize(256), T.CenterCrop(224)]
    if training:
        steps = [T.RandomResizedCrop(176), T.RandomHorizontalFlip(), T.TrivialAugmentWide()]
    end = [T.RandomErasing(0.1)] if training else []
    return T.Compose([*steps, T.ToTensor(), T.Normalize(MEAN, STD), *end])


@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_it_works_as_typed_and_native(tmp_path, training):
    folder = import_torchvision().datasets.ImageFolder(plain_folder(tmp_path), recipe(training))
    before, after = (run(here(program), folder) for program in sides())
    assert after.plan().startswith("native images")
    (plain_images, plain_labels), (images, labels) = next(iter(before)), next(iter(after))
    assert (images.dtype, images.shape) == (plain_images.dtype, plain_images.shape)
    assert torch.equal(labels.cpu(), plain_labels)
    if not training:  # the same draws have other values
        torch.testing.assert_close(images.cpu(), plain_images, atol=1e-6, rtol=0)
    after.close()


def test_it_asks_for_nothing_that_the_recipe_does_already():
    before, after = sides()
    assert "mean=" not in after and "std=" not in after
    assert "DataLoader(" in before
