"""Which source makes a loader's batches, and what is said if none but Python's does."""

import importlib

import pytest
import torch
from pictures import import_torchvision, plain_folder
from thread_toy import ThreadToyPlan, ThreadToys, with_toys
from torch.utils.data import ConcatDataset, Subset, TensorDataset
from toy import Toys, some_toys

from fastloader import FastLoader
from fastloader._core.handoff import Source
from fastloader._core.machine import extension
from fastloader.datasets import ImageFolder
from fastloader.transforms import Compose, Resize
from support import Pictures, Stream

native = extension.load()
V2 = "torchvision.transforms.v2"
needs_native = pytest.mark.skipif(native is None, reason="the native module is not in use")


class Own(Pictures):
    """A dataset of the user's own."""


class Invert:
    """A step of the user's own."""

    def __call__(self, image):
        return image

    def __repr__(self):
        return "Invert()"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(plain_folder(tmp_path_factory.mktemp("pictures"), 4))


def own(root):
    return Own(4)


def arrays(root):
    return TensorDataset(torch.zeros(4, 3), torch.arange(4))


def folder(root):
    return ImageFolder(root, Compose([Resize((8, 6))]))


def stopped(root):
    return ImageFolder(root, Compose([Resize((8, 6)), Invert()]))


def folder_and_own(root):
    return ConcatDataset([folder(root), own(root)])


class Everything(Source):
    """A source that knows every dataset of samples by their indices."""

    opened = 0

    def plan(self, loader, wanted):
        return ThreadToyPlan(self, loader.dataset) if loader._dataset_kind == 0 else None


def is_last(loader):
    """Whether a source behind all others would make the loader's batches."""
    loader._runtime.sources += (Everything(),)
    return loader.plan().startswith("thread toys")


def in_words(loader):
    """What ``plan()`` says of the source, with sources before and behind the loader's own."""
    return with_toys(loader).plan().partition("; batches are ")[0]


@pytest.mark.parametrize("make", [own, arrays, folder, stopped, folder_and_own])
def test_a_source_behind_the_others_serves_what_they_do_not(root, make):
    dataset = make(root)
    served = make is arrays or (make is folder and native is not None)
    assert is_last(FastLoader(dataset)) == (not served)
    assert is_last(FastLoader(dataset, collate_fn=len))
    assert is_last(FastLoader(dataset, native=False))


@needs_native
@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (own, {}, f"the dataset is a {__name__}.Own"),
        (lambda root: Subset(own(root), [1]), {}, f"the dataset is a {__name__}.Own"),
        (
            folder_and_own,
            {},
            f"the dataset is a {__name__}.Own (datasets[1] of the ConcatDataset)",
        ),
        (own, {"collate_fn": len}, f"collate_fn is len; also the dataset is a {__name__}.Own"),
        (
            own,
            {"batch_size": None},
            f"batch_size=None: samples are not collated; also the dataset is a {__name__}.Own",
        ),
        (
            own,
            {"worker_init_fn": print, "num_workers": 1},
            "worker_init_fn is print, which does more than to seed Python's, numpy's and torch's "
            f"generators; also the dataset is a {__name__}.Own, 1 worker process",
        ),
        (
            lambda root: Stream(3),
            {},
            f"the dataset is iterable; also the dataset is a {Stream.__module__}.Stream",
        ),
        (arrays, {"collate_fn": len}, "collate_fn is len"),
        (
            stopped,
            {"collate_fn": len},
            "native up to Resize, then Python: Invert (collate_fn is len; also Invert() is not a "
            "native transform)",
        ),
        (own, {"native": False}, "native=False"),
        (arrays, {"native": False}, "native=False"),
        (stopped, {"native": False}, "native=False"),
        (lambda root: Stream(3), {"native": False}, "native=False"),
    ],
)
def test_every_reason_is_told(root, make, options, words):
    assert in_words(FastLoader(make(root), **options)) == f"Python path: {words}"


@needs_native
def test_a_step_that_is_not_native_is_told(root):
    assert "Invert()" in in_words(FastLoader(stopped(root)))


def as_it_is(self, *given):
    return given[0]


@needs_native
@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_step_behind_a_refused_conversion_is_no_obstacle(monkeypatch, root, version):
    torchvision = import_torchvision()
    tv = torchvision.transforms if version == "v1" else importlib.import_module(V2)

    class Derived(tv.PILToTensor):
        __call__ = forward = transform = as_it_is

    to_float, normalize = tv.ConvertImageDtype(torch.float32), tv.Normalize([0.5], [0.5])
    behind = [to_float, normalize, tv.RandomErasing()]
    patched = tv.ToTensor()
    monkeypatch.setattr(tv.ToTensor, "__call__", as_it_is)
    for conversion in (patched, Derived(), as_it_is, torch.nn.Identity()):
        dataset = ImageFolder(root, tv.Compose([tv.Resize((9, 9)), conversion, *behind]))
        plan = in_words(FastLoader(dataset))
        assert plan.startswith("Python path: native up to Resize, ") and "also" not in plan, plan
    for step in (normalize, to_float):
        dataset = ImageFolder(root, tv.Compose([tv.Resize((9, 9)), step, tv.PILToTensor()]))
        plan = in_words(FastLoader(dataset))
        assert "comes before the conversion to a tensor" in plan, plan


def test_a_class_may_have_no_module(monkeypatch, root):
    monkeypatch.setattr(Own, "__module__", None)
    assert in_words(FastLoader(own(root))) == "Python path: the dataset is a None.Own"


def test_a_concatenation_may_have_lost_its_parts(root):
    dataset = ConcatDataset([folder(root)])
    dataset.datasets.clear()
    expected = "Python path: the dataset is a torch.utils.data.dataset.ConcatDataset"
    assert in_words(FastLoader(dataset)) == expected


@pytest.mark.parametrize("make", [own, lambda root: Stream(3)])
def test_without_the_native_module_that_is_told(monkeypatch, root, make):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    words = "Python path: the native module is not in use"
    assert in_words(FastLoader(make(root))) == words


def test_without_the_native_module_known_pictures_draw_as_with_it(monkeypatch, root):
    monkeypatch.setenv("FASTLOADER_NATIVE", "0")
    loader = FastLoader(folder(root))
    words = "Python path: the native module is not in use: "
    said = in_words(loader)
    assert said.startswith(words) and said.endswith(", with the native path's draws"), said


@pytest.mark.parametrize("kind", [Toys, ThreadToys])
def test_a_source_refuses_what_it_does_not_serve(kind):
    dataset = kind(some_toys(4).pictures)
    assert in_words(FastLoader(dataset, collate_fn=len)).startswith(
        "Python path: collate_fn is len"
    )
    loader = with_toys(FastLoader(dataset, on_error="skip"))
    with pytest.raises(ValueError, match=r"on_error='skip'.*: the dataset is of toys"):
        iter(loader)


def collate_fn(samples):
    return samples


class Collator:
    """As data collators of Hugging Face: a dataclass whose repr has all of a tokenizer."""

    def __repr__(self):
        return f"Collator({'tokenizer=' * 400}\n)"

    def __call__(self, samples):
        return samples


def test_a_collator_is_shown_on_one_line_and_a_function_with_its_module(root):
    plan = in_words(FastLoader(own(root), collate_fn=Collator()))
    assert "collate_fn is Collator(" in plan and len(plan) < 400 and "\n" not in plan
    plan = in_words(FastLoader(own(root), collate_fn=collate_fn))
    assert f"collate_fn is {__name__}.collate_fn" in plan


@pytest.mark.parametrize(
    ("module", "more", "form"),
    [
        ("datasets.arrow_dataset", {"features": {}}, "fastloader.datasets.HFImages("),
        ("webdataset.compat", {}, "fastloader.datasets.TarImages("),
        ("datasets", {}, ""),
    ],
)
def test_the_native_form_of_others_datasets_is_named(root, module, more, form):
    dataset = type("Theirs", (Own,), {"__module__": module, **more})(4)
    plan = in_words(FastLoader(dataset))
    assert f"the dataset is a {module}.Theirs" in plan
    assert ("in its place" in plan) == bool(form) and form in plan
