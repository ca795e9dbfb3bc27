"""A transform that ends in Normalize, and mean and std of the loader: once if they are equal, else an
error when the loader is made."""

import pytest
import torch
from pictures import import_torchvision, plain_folder
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, default_collate

from fastloader import EncodedImage, FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder, ListImages
from support import MEAN, STD

pytestmark = pytest.mark.covering

SAME = {"mean": MEAN, "std": STD}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("pictures"))


def fixed(*end):
    """Draws nothing, so that Pillow's batches and ours can be compared."""
    return T.Compose([T.Resize((24, 20)), T.ToTensor(), T.Normalize(MEAN, STD), *end])


class Encoded(Dataset):
    def __init__(self, root, transform):
        self.samples, self.transform = ImageFolder(root).samples, transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, target = self.samples[index]
        return EncodedImage(path, self.transform), target


def images(loader):
    return torch.cat([batch[0] for batch in loader])


KINDS = {
    "native": (ImageFolder, {}),
    "Python": (ImageFolder, {"native": False}),
    "a part in Python": (
        lambda root, chain: ImageFolder(root, T.Compose([Unknown(), *chain.transforms])),
        {},
    ),
    "of workers": (ImageFolder, {"native": False, "num_workers": 1}),
    "encoded": (Encoded, {}),
    "encoded, of workers": (Encoded, {"num_workers": 1}),
    "encoded, by Pillow": (Encoded, {"native": False, "num_workers": 1}),
    "Subset": (lambda root, chain: Subset(ImageFolder(root, chain), range(12)), {}),
    "ConcatDataset": (lambda root, chain: ConcatDataset([ImageFolder(root, chain)]), {"native": 0}),
}


class Unknown:
    def __call__(self, picture):
        return picture


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_an_equal_one_counts_once(folder, kind, way):
    make, options = KINDS[kind]
    options = {name: bool(value) if name == "native" else value for name, value in options.items()}
    wanted = images(DataLoader(ImageFolder(folder, fixed()), 4))
    for given in (
        {},
        {"dtype": torch.float16, "channels_last": True},
    ):
        loader = FastLoader(make(folder, fixed()), 4, **SAME, **options, **given, **way.options)
        found = images(loader)
        loader.close()
        dtype = given.get("dtype", torch.float32)
        assert found.dtype == dtype
        assert found.is_contiguous(
            memory_format=torch.channels_last if given else torch.contiguous_format
        )
        torch.testing.assert_close(found.float(), wanted.to(dtype).float(), atol=2e-3, rtol=0)


def test_it_stays_native_and_normalises_as_without_one_of_the_two(folder):
    both = FastLoader(ImageFolder(folder, fixed()), 4, **SAME)
    assert both.plan().startswith("native images")
    bytes_ = T.Compose([T.Resize((24, 20)), T.PILToTensor()])
    found = images(both)
    assert torch.equal(found, images(FastLoader(ImageFolder(folder, fixed()), 4)))
    assert torch.equal(found, images(FastLoader(ImageFolder(folder, bytes_), 4, **SAME)))


@pytest.mark.parametrize("erasing", [T.RandomErasing(1.0), T.RandomErasing(1.0, value="random")])
def test_what_is_erased_behind_it_is_the_same(folder, erasing, way):
    dataset = ImageFolder(folder, fixed(erasing))
    alone = FastLoader(dataset, 4, generator=torch.Generator().manual_seed(5), **way.options)
    both = FastLoader(
        dataset,
        4,
        **SAME,
        dtype=torch.bfloat16,
        generator=torch.Generator().manual_seed(5),
        **way.options,
    )
    # The kernel takes normal deviates in float32.
    torch.testing.assert_close(
        images(both).float(), images(alone).bfloat16().float(), atol=0.02, rtol=0
    )


OTHER = [
    ({"mean": (0.5, 0.5, 0.5), "std": STD}, "Remove one of the two"),
    ({"mean": MEAN}, "Remove one of the two"),
    ({"std": STD}, "Remove one of the two"),
    ({"mean": MEAN[:1], "std": STD[:1]}, "Remove one of the two"),
    ({"dtype": torch.bfloat16}, "Give FastLoader the same mean and std, too"),
]


@pytest.mark.parametrize(("given", "said"), OTHER, ids=lambda each: str(each)[:20])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: Subset(x, [0]), lambda x: ConcatDataset([x])]
)
def test_another_one_is_an_error_when_the_loader_is_made(folder, given, said, native, wrap):
    dataset = wrap(ImageFolder(folder, fixed()))
    with pytest.raises(ValueError, match=said) as caught:
        FastLoader(dataset, 2, native=native, **given)
    assert "ImageFolder" in str(caught.value) and "Normalize(" in str(caught.value)


def test_one_of_several_parts_that_differs_is_found(folder):
    other = T.Compose([T.Resize((24, 20)), T.ToTensor(), T.Normalize((0.1, 0.2, 0.3), STD)])
    parts = ConcatDataset([ImageFolder(folder, fixed()), ImageFolder(folder, other)])
    with pytest.raises(ValueError, match="Remove one of the two"):
        FastLoader(parts, 2, **SAME)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "native": False}])
@pytest.mark.parametrize(("given", "said"), OTHER[:3], ids=lambda each: str(each)[:20])
def test_encoded_images_say_so_in_their_first_batch(folder, given, said, options):
    loader = FastLoader(Encoded(folder, fixed()), 4, **given, **options)
    with pytest.raises(ValueError, match=said) as caught:
        next(iter(loader))
    assert "EncodedImage" in str(caught.value) and "Normalize(" in str(caught.value)
    loader.close()


def test_encoded_images_that_are_erased_behind_it(folder):
    loader = FastLoader(Encoded(folder, fixed(T.RandomErasing(1.0))), 4, **SAME)
    with pytest.raises(ValueError, match=r"erases behind Normalize.*leave them out"):
        next(iter(loader))


def test_torchvisions_own(folder):
    transforms = import_torchvision().transforms
    chain = transforms.Compose(
        [transforms.RandomResizedCrop(8), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )
    loader = FastLoader(import_torchvision().datasets.ImageFolder(folder, chain), 2, **SAME)
    assert loader.plan().startswith("native images")
    assert next(iter(loader))[0].dtype == torch.float32
    with pytest.raises(ValueError, match="Remove one of the two"):
        FastLoader(loader.dataset, 2, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def test_samples_that_are_dicts_count_once_too(folder, tmp_path):
    dataset = ImageFolder(folder, fixed())
    lines = [f"{path},{target}" for path, target in dataset.samples]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    for native in (True, False):
        listed = ListImages(tmp_path / "list.csv", fixed(), as_dict=True)
        loader = FastLoader(listed, 4, native=native, **SAME)
        found = torch.cat([batch["pixel_values"] for batch in loader])
        torch.testing.assert_close(found, images(DataLoader(dataset, 4)), atol=1e-6, rtol=0)
        with pytest.raises(ValueError, match="Remove one of the two"):
            FastLoader(listed, 4, native=native, mean=(0.5, 0.5, 0.5), std=STD)


# --- a collate_fn of one's own ----------------------------------------------------------------------


def own_collate(samples):
    return default_collate(samples)


def beside_bytes(samples):
    """The batch, and its pictures as bytes besides."""
    pictures, targets = default_collate(samples)
    values = pictures * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    return pictures, (values * 255).round().to(torch.uint8), targets


def as_lists(samples):
    return [picture.tolist() for picture, _target in samples]


WORKERS = {
    "none": {},
    "not native": {"native": False},
    "threads": {"num_workers": 1, "worker_backend": "thread"},
    "processes": {"num_workers": 1},
}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize("workers", WORKERS)
def test_a_collate_fn_of_ones_own_gets_what_counts_once(folder, workers, way):
    wanted = images(DataLoader(ImageFolder(folder, fixed()), 4))
    for given in ({}, {"dtype": torch.float16, "channels_last": True}):
        options = {**SAME, **WORKERS[workers], **given, **way.options}
        dtype = given.get("dtype", torch.float32)
        for collate in (own_collate, beside_bytes):
            loader = FastLoader(ImageFolder(folder, fixed()), 4, collate_fn=collate, **options)
            batches = list(loader)
            loader.close()
            for leaf in range(1 if collate is own_collate else 2):
                found = torch.cat([batch[leaf] for batch in batches])
                assert found.dtype == dtype
                assert found.is_contiguous(
                    memory_format=torch.channels_last if given else torch.contiguous_format
                )
                torch.testing.assert_close(
                    found.float(), wanted.to(dtype).float(), atol=2e-3, rtol=0
                )


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(("given", "said"), OTHER, ids=lambda each: str(each)[:20])
def test_a_collate_fn_of_ones_own_hides_no_other_one(folder, given, said, workers):
    options = {**given, **WORKERS[workers]}
    with pytest.raises(ValueError, match=said):
        FastLoader(ImageFolder(folder, fixed()), 2, collate_fn=own_collate, **options)


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
def test_a_batch_without_pictures_says_what_it_holds(folder):
    loader = FastLoader(ImageFolder(folder, fixed()), 2, collate_fn=as_lists, **SAME)
    with pytest.raises(TypeError, match="the batch has no image"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
def test_floats_that_nobody_normalised_are_left_to_a_collate_fn_of_ones_own(folder):
    def in_bytes(samples):
        pictures, targets = default_collate(samples)
        return (pictures * 255).round().to(torch.uint8), targets

    floats = T.Compose([T.Resize((24, 20)), T.ToTensor()])
    found = images(FastLoader(ImageFolder(folder, floats), 4, collate_fn=in_bytes, **SAME))
    wanted = images(DataLoader(ImageFolder(folder, fixed()), 4))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
