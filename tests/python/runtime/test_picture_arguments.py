"""What known pictures contradict is raised when the loader is made, before its first batch."""

import importlib

import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import ConcatDataset, Subset

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder, ListImages
from support import MEAN, STD

NORMALISED = {"mean": MEAN, "std": STD}


@pytest.fixture
def folder(tmp_path):
    return plain_folder(tmp_path)


def ours(*end):
    return T.Compose([T.RandomResizedCrop(8), *end])


@pytest.mark.parametrize("asked", [NORMALISED, {"dtype": torch.float16}], ids=["mean", "dtype"])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: Subset(x, [0]), lambda x: ConcatDataset([x])]
)
def test_floats_where_bytes_are_asked_for(folder, asked, native, wrap):
    dataset = wrap(ImageFolder(folder, ours(T.ToTensor())))
    with pytest.raises(TypeError) as caught:
        FastLoader(dataset, 2, native=native, **asked)
    for word in ("ImageFolder", "ToTensor()", "PILToTensor()", "drop mean, std and dtype"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "end",
    [
        lambda tv: [tv.transforms.ToTensor()],
        lambda tv: [lambda image: image, tv.transforms.ToTensor()],
        lambda tv: [
            tv.transforms.v2.ToImage(),
            tv.transforms.v2.ToDtype(torch.float32, scale=True),
            tv.transforms.v2.ToPureTensor(),
        ],
        lambda tv: [tv.transforms.ToTensor(), tv.transforms.RandomErasing()],
    ],
    ids=["ToTensor", "own step", "v2", "erasing"],
)
def test_torchvisions_floats(folder, end):
    tv = import_torchvision()
    importlib.import_module("torchvision.transforms.v2")
    chain = tv.transforms.Compose([tv.transforms.RandomResizedCrop(8), *end(tv)])
    with pytest.raises(TypeError, match="makes floats"):
        FastLoader(tv.datasets.ImageFolder(folder, chain), 2, **NORMALISED)


def to_bytes(batch):
    return torch.stack([image.mul(255).byte() for image, _ in batch]), 0


class Own(ImageFolder):
    def __getitem__(self, index):
        return torch.zeros(3, 4, 5, dtype=torch.uint8), 0


# Whether anything says, before a batch is there, that its picture is one of floats.
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda root: ImageFolder(root, ours(T.ToTensor())), {}),
        (
            lambda root: ImageFolder(root, ours(T.ToTensor())),
            {"collate_fn": to_bytes, **NORMALISED},
        ),
        (lambda root: ImageFolder(root, ours(T.ToTensor(), lambda t: t.byte())), NORMALISED),
        (lambda root: Own(root, ours(T.ToTensor())), NORMALISED),
        (lambda root: ImageFolder(root, ours(T.PILToTensor())), NORMALISED),
        (lambda root: ImageFolder(root, ours()), NORMALISED),
    ],
    ids=["no mean", "collate_fn", "own end", "own samples", "bytes", "no end"],
)
def test_what_may_be_bytes_is_let_through(folder, make, options):
    loader = FastLoader(make(folder), 2, **options)
    images = next(iter(loader))[0]
    assert images.is_floating_point() and images.shape[1] == 3


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("key", [1, 2, "label"])
def test_an_image_key_that_names_something_else(folder, native, key):
    with pytest.raises(ValueError, match=r"image_key=.*under 0\. Leave image_key out"):
        FastLoader(ImageFolder(folder, ours()), 2, native=native, image_key=key, **NORMALISED)


def test_the_pictures_own_key_is_fine(folder):
    loader = FastLoader(ImageFolder(folder, ours()), 2, image_key=0, **NORMALISED)
    assert next(iter(loader))[0].dtype == torch.float32


def test_a_batch_says_under_which_key_its_pictures_are():
    samples = [
        {"picture": torch.zeros(3, 4, 5, dtype=torch.uint8), "label": number} for number in (0, 1)
    ]
    loader = FastLoader(samples, 2, image_key="label", **NORMALISED)
    with pytest.raises(
        ValueError, match=r"no image under 'label'.*Give image_key='picture', or leave it out"
    ):
        next(iter(loader))


@pytest.mark.parametrize("as_dict", [False, True])
def test_the_picture_of_a_sample_that_is_a_dict_has_its_own_key(folder, tmp_path, as_dict):
    paths = [path for path, _ in ImageFolder(folder, ours()).samples]
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{path},1\n" for path in paths))
    dataset = ListImages(tmp_path / "list.csv", ours(), as_dict=as_dict)
    right, wrong = ("pixel_values", "labels") if as_dict else (0, 1)
    with pytest.raises(ValueError, match=f"is under {right!r}"):
        FastLoader(dataset, 2, image_key=wrong, **NORMALISED)
    batch = next(iter(FastLoader(dataset, 2, image_key=right, **NORMALISED)))
    assert batch[right].is_floating_point()


def test_the_columns_of_a_hugging_face_data_set_have_any_name(folder):
    datasets = pytest.importorskip("datasets")
    paths = [path for path, _ in ImageFolder(folder, ours()).samples]
    features = datasets.Features({"photo": datasets.Image(), "label": datasets.Value("int64")})
    columns = {"photo": paths, "label": [1] * len(paths)}
    given = datasets.Dataset.from_dict(columns, features=features).with_transform(ours())
    batch = next(iter(FastLoader(given, 2, image_key="photo", **NORMALISED)))
    assert batch["photo"].is_floating_point()
