"""AugMix: the mix is torchvision's own arithmetic, of what its operations make of the Pillow picture."""

import random

import numpy as np
import pytest
import torch
from drawn import pictures, same_picture, versions
from mixes import chains_of, redone
from PIL import Image

from fastloader import transforms as T
from fastloader.transforms._recipe.recipe import Recipe

SEED = 20261124


def to_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def to_picture(tensor):
    return Image.fromarray(np.ascontiguousarray(tensor[-3:].permute(1, 2, 0).numpy()))


def theirs(monkeypatch, version, operations):
    """Torchvision's AugMix with the weights that were drawn. Each of its chains has one operation, which
    does all of ours to the Pillow picture."""
    chains, (kept, *weights, end) = chains_of(operations)
    assert end == 1
    transform = versions()[version].AugMix(mixture_width=len(chains), chain_depth=1)
    left = iter(chains)

    def whole_chain(img, *_arguments, **_options):
        return to_tensor(redone(to_picture(img.reshape(img.shape[-3:])), next(left))).view_as(img)

    # Times 1, the weights stay as they are.
    samples = iter([torch.tensor([[kept, 1.0]]), torch.tensor([weights])])
    monkeypatch.setattr(transform, "_sample_dirichlet", lambda _alphas: next(samples))
    if version == "v1":
        from torchvision.transforms import autoaugment

        monkeypatch.setattr(autoaugment, "_apply_op", whole_chain)
    else:
        monkeypatch.setattr(transform, "_apply_image_or_video_transform", whole_chain)
    return transform


def random_transform(rng):
    return T.AugMix(
        rng.randint(1, 10),
        rng.randint(1, 5),
        rng.choice([-1, 0, 1, 2, 5]),
        rng.choice([1.0, 0.2, 8.0]),
        rng.random() < 0.7,
        rng.choice(["nearest", "bilinear", "bicubic"]),
        rng.choice([None, 200, (1, 2.5, 3)]),
    )


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_mix_is_torchvisions(monkeypatch, version):
    for rng, image in pictures(300, SEED):
        recipe = Recipe([random_transform(rng).step(image.size[::-1])])
        operations = list(
            recipe.draw(rng.getrandbits(62), 5, 0, lambda size=image.size: size[::-1])
        )
        with monkeypatch.context() as patch:
            wanted = theirs(patch, version, operations)(image)
        same_picture(redone(image, operations), wanted, (SEED, image.size, operations))


def test_chains_have_their_depths():
    for depth, wanted in ((-1, {1, 2, 3}), (0, {1, 2, 3}), (1, {1}), (4, {4})):
        found = set()
        recipe = Recipe([T.AugMix(chain_depth=depth, mixture_width=4).step((9, 9))])
        for index in range(60):
            chains, _ = chains_of(recipe.draw(SEED, index, 0, lambda: (9, 9)))
            assert len(chains) == 4
            found |= {len(chain) for chain in chains}
        assert found == wanted


def test_the_same_on_a_picture():
    """A transform of its own, in a container, and within others."""
    rng = random.Random(SEED)
    for transform in (
        T.AugMix(),
        T.Compose([T.RandomResizedCrop(24), T.AugMix(1, 5, 2)]),
        T.RandomApply([T.AugMix(), T.RandomInvert()], 1.0),
        T.RandomChoice([T.AugMix(), T.AugMix(9)]),
    ):
        changed = 0
        for _ in range(20):
            image = Image.fromarray(np.uint8([[[rng.randrange(256)] * 3] * 24] * 24))
            for picture in (image, image.convert("L")):
                made = transform(picture)
                assert (made.mode, made.size) == (picture.mode, picture.size)
                changed += made.tobytes() != picture.tobytes()
        assert changed > 5
