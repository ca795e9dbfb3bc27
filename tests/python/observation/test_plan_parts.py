"""What ``plan()``, ``report()`` and the warning say of every part of a sample: where it is made, and the
first thing that keeps it from being made natively."""

import dataclasses
import warnings

import pytest
import torch
from encoded_samples import Captions, Stream, paths_below
from indexed_pictures import needs_native
from pictures import plain_folder
from torch.utils.data import ConcatDataset, Dataset, StackDataset, TensorDataset

from fastloader import EncodedImage, FastLoader, PythonPathWarning
from fastloader import transforms as T
from fastloader._core.machine.limits import counted, own_threads
from fastloader._core.order.loader import decode_threads_beside
from fastloader.datasets import ImageFolder
from support import Pictures

pytestmark = needs_native
LOOP = "the training loop's thread"
PROCESSES = {"num_workers": 2}
THREADS = {"num_workers": 2, "worker_backend": "thread"}
WHERE = [
    ({}, f"on {LOOP}"),
    (PROCESSES, "in the worker processes"),
    (THREADS, "in the worker threads"),
]
KNOWN = T.Compose([T.Resize((9, 8)), T.PILToTensor()])
LATER = "the parts of its samples are known once a batch has come"


def negative(picture):
    return 255 - picture


def as_it_is(picture):
    return picture


BEHIND = T.Compose([*KNOWN.transforms, negative])
STOPPED = T.Compose([T.Resize((9, 8)), as_it_is, T.PILToTensor()])


def as_they_are(samples):
    return samples


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return plain_folder(tmp_path_factory.mktemp("plain"), 3)


class Own(Dataset):
    """A dataset whose samples ``make`` makes of a path."""

    def __init__(self, root, make):
        self.paths, self.make = paths_below(root), make

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.make(self.paths[index])


def parts(loader):
    """The lines behind the first."""
    return loader.plan().splitlines()[1:]


def parts_after(loader):
    """The same once batches have come, and the report says as much."""
    for _batch in loader:
        pass
    found = parts(loader)
    report = loader.report()
    assert list(report.parts) == [line.strip() for line in found]
    assert all(line in str(report).splitlines() for line in found)
    return found


def decode_threads():
    return f"{counted(own_threads(), 'decode thread')}, straight into the batch"


# --- sources that make all of a batch -----------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder(root, workers):
    loader = FastLoader(ImageFolder(root, KNOWN), 2, num_workers=workers)
    expected = [
        f"  pictures [0]: made natively, {counted(workers, 'decode thread')}, straight into the batch",
        "  labels [1]: taken from the dataset's targets",
    ]
    assert parts(loader) == expected == parts_after(loader)
    assert loader.plan().startswith("native images: ")


def test_a_sample_that_is_a_dict_and_has_columns(root, tmp_path):
    from fastloader._core.pictures.sample_parts import native_parts
    from fastloader.datasets._formats.sample_form import SampleForm

    def read(indices):
        return [("a",)] * len(indices)

    form = SampleForm.of(["text"], read, as_dict=True)
    assert [part.place for part in native_parts(form, "")] == [
        "['pixel_values']",
        "['labels']",
        "['text']",
    ]
    form = SampleForm.of(["text"], read, as_dict=False)
    assert [part.place for part in native_parts(form, "")] == ["[0]", "[1]", "[2] and what follows"]
    form = SampleForm(("image", None), None)
    assert [part.place for part in native_parts(form, "")] == ["['image']"]


def test_arrays():
    rows = torch.zeros(4, 3)
    gathered = f"gathered ahead by {counted(2, 'thread')}"
    loader = FastLoader(TensorDataset(rows, rows), 2, num_workers=2)
    assert parts(loader) == [f"  [0]: {gathered}", f"  [1]: {gathered}"]
    nested = StackDataset(rows=rows, both=TensorDataset(rows, rows))
    assert parts(FastLoader(nested, 2, num_workers=2)) == [
        f"  ['rows']: {gathered}",
        f"  ['both'][0]: {gathered}",
        f"  ['both'][1]: {gathered}",
    ]
    assert parts(FastLoader(rows, 2, num_workers=2)) == [f"  every part: {gathered}"]


# --- known pictures that Python makes -----------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize(("options", "where"), WHERE)
def test_a_step_that_nobody_knows(root, options, where):
    loader = FastLoader(ImageFolder(root, STOPPED), 2, **options)
    picture, label = parts_after(loader)
    assert picture.startswith(
        f"  pictures [0]: made natively up to Resize, then Python: as_it_is, {where}: <function as_it_is"
    )
    assert picture.endswith("is not a native transform")
    targets = f"taken from the dataset's targets, {where}"
    assert label == f"  labels [1]: {targets}: its pictures are made there"


@pytest.mark.parametrize(("options", "where"), WHERE)
def test_a_function_that_collates(root, options, where):
    loader = FastLoader(ImageFolder(root, KNOWN), 2, collate_fn=as_they_are, **options)
    picture, label = parts_after(loader)
    why = f"collate_fn is {__name__}.as_they_are"
    assert picture.startswith("  pictures [0]: made natively, ")
    assert picture.endswith(f", a tensor for each sample, {where}: {why}")
    assert label == f"  labels [1]: taken from the dataset's targets, {where}: {why}"


@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
def test_each_part_has_its_own_reason(root):
    """The first reason of all is of the labels; that of the pictures comes second."""
    loader = FastLoader(ImageFolder(root, STOPPED, target_transform=str), 2)
    picture, label = parts(loader)
    assert picture.endswith("is not a native transform") and "target_transform" not in picture
    assert label.endswith(": the dataset has a target_transform")


def test_python_that_was_asked_for(root):
    loader = FastLoader(ImageFolder(root, KNOWN), 2, native=False)
    assert parts_after(loader) == [
        f"  pictures [0]: the dataset's own code, on {LOOP}: native=False",
        f"  labels [1]: the dataset's own code, on {LOOP}: native=False",
    ]


# --- a dataset's own samples --------------------------------------------------------------------


@pytest.mark.parametrize(("options", "where"), WHERE)
def test_an_encoded_picture_that_is_native(root, options, where):
    loader = FastLoader(Captions(paths_below(root), KNOWN), 2, **options)
    own = f"the dataset's own code, {where}"
    assert parts(loader) == [
        f"  every part: {own}: the dataset is a encoded_samples.Captions; {LATER}"
    ]
    expected = [
        f"  pictures [0]: made natively, {decode_threads()}",
        f"  [1]: {own}",
        f"  [2]: {own}",
    ]
    assert parts_after(loader) == expected
    iterator = iter(loader)  # an epoch that has no batch yet goes on with what is known
    assert parts(loader) == expected
    del iterator


@pytest.mark.parametrize(("options", "where"), WHERE)
def test_an_encoded_picture_with_a_step_that_nobody_knows(root, options, where):
    loader = FastLoader(Captions(paths_below(root), BEHIND), 2, **options)
    picture, *others = parts_after(loader)
    assert picture.startswith(f"  pictures [0]: made by Python {where}: <function negative at ")
    assert picture.endswith(" comes after the conversion to a tensor")
    assert others == [f"  [{place}]: the dataset's own code, {where}" for place in (1, 2)]


def two(path):
    return {
        "image": EncodedImage(path, BEHIND),
        "views": ([EncodedImage(path, KNOWN), EncodedImage(path, KNOWN)], 3),
        "text": path,
    }


@pytest.mark.parametrize(("options", "where"), WHERE)
def test_two_pictures_of_which_one_is_native(root, options, where):
    image, views, rest, text = parts_after(FastLoader(Own(root, two), 2, **options))
    assert image.startswith(f"  pictures ['image']: made by Python {where}: <function negative at ")
    both = "['views'][0][0] to ['views'][0][1]"
    assert views == f"  pictures {both}: made natively, {decode_threads()}"
    assert rest == f"  the rest of ['views']: the dataset's own code, {where}"
    assert text == f"  ['text']: the dataset's own code, {where}"


@dataclasses.dataclass
class Pair:
    picture: EncodedImage
    number: int


@pytest.mark.parametrize(("options", "where"), WHERE)
def test_a_collate_fn_gets_tensors(root, options, where):
    def make(path):
        return Pair(EncodedImage(path, KNOWN), 1)

    loader = FastLoader(Own(root, make), 2, collate_fn=as_they_are, **options)
    decoding = counted(decode_threads_beside(loader), "decode thread")
    each = " each" if options == PROCESSES else ""
    assert parts_after(loader) == [
        f"  pictures .picture: made natively {where}, {decoding}{each}, a tensor for each sample: "
        f"collate_fn is {__name__}.as_they_are, which gets tensors",
        f"  .number: the dataset's own code, {where}",
    ]


def test_a_collate_fn_and_a_step_that_nobody_knows(root):
    image, views, _rest, _text = parts_after(
        FastLoader(Own(root, two), 2, collate_fn=as_they_are, num_workers=2)
    )
    assert "made by Python" in image and image.endswith("comes after the conversion to a tensor")
    assert "made natively" in views and views.endswith("as_they_are, which gets tensors")


def test_a_layout(root):
    loader = FastLoader(Own(root, lambda path: (EncodedImage(path, KNOWN), 1)), 2, batch="list")
    picture, other = parts_after(loader)
    assert picture.startswith(f"  pictures [0]: made natively on {LOOP}, ")
    assert picture.endswith(", a tensor for each sample: batch='list', which lays out tensors")
    assert other == f"  [1]: the dataset's own code, on {LOOP}"


def test_samples_of_several_numbers_of_pictures(root):
    counts = iter([1, 12, 2])

    def make(path):
        return [EncodedImage(path, KNOWN)] * next(counts)

    loader = FastLoader(Own(root, make), 2, collate_fn=as_they_are)
    (line,) = parts_after(loader)
    assert line.startswith("  pictures [0] to [11]: made natively")


def test_a_sample_that_is_a_picture_and_is_not_batched(root):
    loader = FastLoader(Own(root, lambda path: EncodedImage(path, KNOWN)), None)
    assert parts_after(loader) == [f"  pictures: made natively, {decode_threads()}"]


@pytest.mark.parametrize(("options", "where"), WHERE)
def test_an_iterable(root, options, where):
    loader = FastLoader(Stream(paths_below(root), KNOWN), 2, **options)
    assert parts_after(loader) == [
        f"  pictures [0]: made natively, {decode_threads()}",
        f"  [1]: the dataset's own code, {where}",
    ]


@pytest.mark.parametrize(
    ("options", "makes"),
    [
        ({}, f"on {LOOP}"),
        (PROCESSES, "in the worker processes"),
        (THREADS, f"on {LOOP}"),
        ({**PROCESSES, "collate_fn": as_they_are}, "in the worker processes"),
    ],
)
def test_pillow_that_was_asked_for(root, options, makes):
    loader = FastLoader(Captions(paths_below(root), KNOWN), 2, native=False, **options)
    assert parts_after(loader)[0] == f"  pictures [0]: made by Pillow {makes}: native=False"


def test_a_place_whose_pictures_differ(root):
    """Both are said, whichever came last."""
    known = iter([True, True, False, False, True, True])

    def make(path):
        return EncodedImage(path, KNOWN if next(known) else BEHIND)

    (line,) = parts_after(FastLoader(Own(root, make), 2, collate_fn=None))
    native = f"made natively, {decode_threads()}"
    assert line.startswith(f"  pictures: {native}, others made by Python on {LOOP}: <function nega")


def test_what_was_repaired_is_no_longer_told(root):
    dataset = Captions(paths_below(root), BEHIND)
    loader = FastLoader(dataset, 2)
    assert "negative" in parts_after(loader)[0]
    dataset.transform = KNOWN
    assert parts_after(loader)[0] == f"  pictures [0]: made natively, {decode_threads()}"


def test_samples_without_a_picture(root):
    loader = FastLoader(Own(root, str), 2)
    own = f"  every part: the dataset's own code, on {LOOP}: the dataset is a {__name__}.Own"
    assert parts(loader) == [f"{own}; {LATER}"]
    assert parts_after(loader) == [own]


def test_what_crosses_is_found_out_once(root, monkeypatch):
    from fastloader._core.sources.encoded import collation

    found = []
    places = collation.told_of
    monkeypatch.setattr(collation, "told_of", lambda *given: found.append(given) or places(*given))
    loader = FastLoader(Own(root, two), 1)
    assert len(list(loader)) > 2 and len(found) == 1


# --- the warning --------------------------------------------------------------------------------


def told(loader):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(loader)
    (one,) = [each for each in caught if each.category is PythonPathWarning]
    return str(one.message).splitlines()


def test_the_warning_has_a_line_for_each_part_that_is_kept(root):
    loader = FastLoader(ImageFolder(root, STOPPED, target_transform=str), 2)
    first, *lines = told(loader)
    assert "slower" in first and lines == parts(loader) and len(lines) == 2


def test_the_warning_says_which_dataset_of_several(root):
    dataset = ConcatDataset([ImageFolder(root, KNOWN), ImageFolder(root, STOPPED)])
    first, picture, label = told(FastLoader(dataset, 2))
    assert "is not a native transform (datasets[1] of the ConcatDataset)." in first
    assert picture.endswith("is not a native transform (datasets[1] of the ConcatDataset)")
    assert label.endswith(": its pictures are made there")
    again = ConcatDataset([ImageFolder(root, STOPPED), ImageFolder(root, STOPPED)])
    first = told(FastLoader(again, 2))[0]
    assert first.count("is not a native transform") == 1
    assert "(datasets[0] of the ConcatDataset)" in first


def test_the_ends_of_several_transforms_are_told_apart(root):
    floats = T.Compose([T.Resize((9, 8)), T.ToTensor()])
    dataset = ConcatDataset([ImageFolder(root, KNOWN), ImageFolder(root, floats)])
    plan = FastLoader(dataset, 2).plan()
    assert "floats is False in the first, and True in datasets[1] of the ConcatDataset" in plan


def test_a_report_decides_nothing():
    loader = FastLoader(Pictures(), distributed="auto")
    assert loader.report().parts == ()
    assert not loader._runtime.sharding.decided


def test_a_page_has_the_parts(root):
    loader = FastLoader(ImageFolder(root, KNOWN), 2)
    list(loader)
    page = loader.report()._repr_html_()
    assert "Parts of a sample" in page and "taken from the dataset&#x27;s targets" in page
    assert loader.report().as_dict()["parts"] == [part.strip() for part in parts(loader)]
