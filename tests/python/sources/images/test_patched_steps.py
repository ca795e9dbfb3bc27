"""Every step that is read, with each function that it runs replaced by another: the plan says so, and
Python does the step. The steps are those of the tables that the reader uses."""

import copy
import importlib
import random

import numpy as np
import patched
import pytest
import torch
from every_step import STEPS, TIMM
from pictures import import_timm, import_torchvision, plain_folder
from PIL import Image
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader._core.machine import extension, identity
from fastloader.datasets import ImageFolder
from fastloader.transforms._reader import kinds
from support import same

pytestmark = pytest.mark.skipif(extension.load() is None, reason="needs the native module")
import_timm()
tv = import_torchvision()
importlib.import_module("torchvision.transforms.v2")

STEPS_OF = {**kinds.KNOWN, **kinds.HOLDERS, **kinds.CONVERSIONS, **kinds.OURS}
# Of a batch, or of no picture.
LEFT_OUT = ("AutoAugmentPolicy", "CutMix", "MixUp")
NOT_NATIVE = ("timm.data.transforms", "ToTensor")  # which is known to give floats in 0..255
HOMES = [home for home in STEPS_OF if home[1] not in LEFT_OUT and home != NOT_NATIVE]

CONVERSIONS = {
    "Compose": lambda kind: kind([T.PILToTensor()]),
    "ConvertImageDtype": lambda kind: kind(torch.float32),
    "Normalize": lambda kind: kind((0.5,) * 3, (0.5,) * 3),
    "RandomErasing": lambda kind: kind(1.0),
    "ToDtype": lambda kind: kind(torch.float32, scale=True),
}
BEFORE = {
    "ConvertImageDtype": [T.PILToTensor()],
    "Normalize": [T.ToTensor()],
    "RandomErasing": [T.ToTensor()],
    "ToDtype": [T.PILToTensor()],
    "ToPureTensor": [T.PILToTensor()],
}
OF_TIMM = {
    "AugMixAugment": "augmix-m5-w4-d2",
    "AutoAugment": "original",
    "RandAugment": "rand-m9-mstd0.5-inc1",
}


class OneModule:
    """Gives the class of one name for the recipes of `STEPS`, and others for those that it holds."""

    def __init__(self, kind):
        self.kind = kind
        self.others = T if kind.__module__ in {each for each, _ in kinds.OURS} else tv.transforms

    def __getattr__(self, name):
        return self.kind if name == self.kind.__qualname__ else getattr(self.others, name)


def made(home):
    """A step of this class."""
    import timm.data.auto_augment
    import timm.data.transforms

    module, name = home
    kind = identity.found(module, name)
    if kind is None:
        pytest.skip(f"this version has no {name}")
    if name in OF_TIMM and "timm" in module:
        step = TIMM[OF_TIMM[name]](None, timm.data.auto_augment)
        return step if type(step) is kind else kinds.KNOWN[type(step).__module__, name](step)
    if name in TIMM:
        return TIMM[name](OneModule(kind), None)
    if name in CONVERSIONS:
        return CONVERSIONS[name](kind)
    recipe = next((make for key, make in STEPS.items() if key.split()[0] == name), None)
    return kind() if recipe is None else recipe(OneModule(kind))


def chain_of(step, home):
    if home in kinds.CONVERSIONS or home[1] in CONVERSIONS or home[1].endswith("Tensor"):
        behind = [] if home[1] not in ("RGB",) else [T.PILToTensor()]
        return T.Compose(
            [T.Resize((24, 29)), T.CenterCrop(16), *BEFORE.get(home[1], []), step, *behind]
        )
    return T.Compose([T.Resize((24, 29)), step, T.CenterCrop(16), T.PILToTensor()])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("plain"), 3, size=(40, 30)))


@pytest.fixture
def plan_of(root):
    def plan_of(step, home):
        return FastLoader(ImageFolder(root, chain_of(step, home)), 3).plan()

    return plan_of


def held(step):
    """The functions that timm's policies hold as objects: another one in timm's module is not theirs."""
    policies = getattr(step, "policy", [getattr(step, "ops", ())])
    functions = [each for ops in policies for op in ops for each in (op.aug_fn, op.level_fn)]
    return {getattr(each, "func", each).__code__ for each in functions if each is not None}


def worked(step, home):
    """Does the step to a few pictures. What it draws is the same each time: timm's steps now and then
    posterize to 0 bits, which Pillow 13 refuses."""
    random.seed(5)
    np.random.seed(5)
    rng = np.random.default_rng(5)
    for _ in range(12):
        picture = Image.fromarray(rng.integers(0, 256, (29, 24, 3), dtype=np.uint8))
        for each in BEFORE.get(home[1], []):
            picture = each(picture)
        step(picture)


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        ("torchvision.transforms.functional", "center_crop", ("v2.functional", "resize")),
        ("torchvision.transforms.functional", "hflip", ("_functional_pil", "vflip")),
        ("torchvision.datasets.folder", "pil_loader", ("functional", "to_grayscale")),
        ("PIL.Image", "open", ("functional", "pad")),
    ],
)
def test_a_function_of_torchvision_in_the_place_of_another_one(
    monkeypatch, root, module, name, other
):
    their = tv.transforms
    steps = their.Resize((24, 20)), their.CenterCrop(16), their.RandomHorizontalFlip(1.0)
    chain = their.Compose([*steps, their.ToTensor()])
    loader = FastLoader(tv.datasets.ImageFolder(root, chain), 3)
    assert loader.plan().startswith("native images")
    home = importlib.import_module(f"torchvision.transforms.{other[0]}")
    monkeypatch.setattr(importlib.import_module(module), name, getattr(home, other[1]))
    plan = loader.plan()
    assert "Python" in plan and f"{name} was replaced by {home.__name__}" in plan, plan


@pytest.mark.exhaustive
@pytest.mark.parametrize("home", HOMES, ids=".".join)
def test_every_function_that_a_step_runs(monkeypatch, plan_of, home):
    step = made(home)
    assert plan_of(step, home).startswith("native images: "), plan_of(step, home)
    torch.manual_seed(1)
    functions = patched.ran(lambda: worked(step, home))
    of_objects = held(step) if home[0] == "timm.data.auto_augment" else ()
    silent = []
    for places in functions:
        if patched.code_of(*places[0]) in of_objects or not patched.is_taken(
            type(step), *places[0]
        ):
            continue
        with monkeypatch.context() as patches:
            patched.patch(patches, places)
            plan = plan_of(step, home)
        if plan.startswith("native images: ") or "was replaced by patched.patch" not in plan:
            silent.append((patched.called(*places[0]), plan))
    assert silent == [], silent
    assert plan_of(step, home).startswith("native images: ")


def is_method(step, name):
    return name[:2] != "__" and callable(getattr(type(step), name, None))


@pytest.mark.exhaustive
@pytest.mark.parametrize("home", HOMES, ids=".".join)
def test_methods_of_an_object_and_of_a_subclass(plan_of, home):
    step = made(home)
    kind = type(step)
    functions = patched.ran(lambda: worked(step, home))
    own = copy.deepcopy(step)
    own.__class__ = type("Own", (kind,), {"more": 1})
    assert plan_of(own, home).startswith("native images: "), plan_of(own, home)
    firsts = [places[0] for places in functions]
    names = {
        name for holder, name in firsts if isinstance(holder, type) and issubclass(kind, holder)
    }
    names = {name for name in names if name != "__init__"}
    assert names
    for name in names:
        method = getattr(kind, name)
        own.__class__ = type("Own", (kind,), {name: lambda *_, method=method: method(*_)})
        plan = plan_of(own, home)
        assert plan.startswith("Python path: ") and f"Own has a {name} of its own" in plan
        if is_method(step, name):
            other = copy.deepcopy(step)
            vars(other)[name] = getattr(step, name)
            plan = plan_of(other, home)
            assert plan.startswith("Python path: ") and f"has a {name} of its own" in plan


@pytest.mark.exhaustive
@pytest.mark.parametrize("home", HOMES, ids=".".join)
def test_hooks(plan_of, home):
    step = made(home)
    if not isinstance(step, torch.nn.Module):
        return
    module = torch.nn.modules.module
    for register in (
        step.register_forward_hook,
        step.register_forward_pre_hook,
        module.register_module_forward_hook,
        module.register_module_forward_pre_hook,
    ):
        hook = register(lambda *_: None)
        try:
            plan = plan_of(step, home)
            assert plan.startswith("Python path: ") and "hooks" in plan
        finally:
            hook.remove()
    assert plan_of(step, home).startswith("native images: ")


@pytest.mark.parametrize("name", ["AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide"])
def test_operations_that_were_put_into_a_policy(monkeypatch, plan_of, name):
    """Before anybody looked, too: the dict stays the same one."""
    home = ("torchvision.transforms.v2._auto_augment", name)
    space = vars(identity.found(*home))["_AUGMENTATION_SPACE"]
    operation = next(iter(space))
    for changed in ({**space, operation: (lambda *_: None, False)}, {operation: space[operation]}):
        with monkeypatch.context() as patches:
            for key in [*space]:
                patches.delitem(space, key)
            for key, value in changed.items():
                patches.setitem(space, key, value)
            assert "_AUGMENTATION_SPACE is not torchvision's" in plan_of(made(home), home)
    assert plan_of(made(home), home).startswith("native images: ")


@pytest.mark.parametrize("name", ["normalize", "to_dtype"])
@pytest.mark.parametrize("wraps", [False, True])
def test_kernels_of_tensors_that_are_pictures(monkeypatch, root, name, wraps):
    """Of which v2's ToImage makes such."""
    v2, tv_tensors = tv.transforms.v2, tv.tv_tensors
    utils = v2.functional._utils
    chain = v2.Compose(
        [
            v2.Resize((12, 10)),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.5,) * 3, (0.5,) * 3),
        ]
    )
    data = ImageFolder(root, chain)
    assert FastLoader(data, 3).plan().startswith("native images: ")

    def zeros(picture, *_arguments, **_options):
        return torch.zeros_like(picture, dtype=torch.float32)

    kernels = utils._KERNEL_REGISTRY[getattr(v2.functional, name)]
    put = utils._kernel_tv_tensor_wrapper(zeros) if wraps else zeros
    monkeypatch.setitem(kernels, tv_tensors.Image, put)
    plan = FastLoader(data, 3).plan()
    assert "the kernel of torchvision.transforms.v2.functional._m" in plan, plan
    assert "zeros" in plan, plan
    same(list(FastLoader(data, 3)), list(DataLoader(data, 3)))
