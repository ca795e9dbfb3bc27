"""An error about a picture's bytes is Pillow's, and its message says which picture: for every source,
by every path, for every kind of damage."""

import errno
import io
import os
import tarfile
import warnings

import bombs
import pytest
from pictures import import_torchvision
from PIL import Image, ImageFont
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset

from fastloader import EncodedImage, FastLoader, decode_image
from fastloader import transforms as T
from fastloader.cli.__main__ import main
from fastloader.datasets import (
    HFImages,
    ImageFolder,
    ListImages,
    LMDBDataset,
    ParquetImages,
    TarImages,
)

pytestmark = pytest.mark.covering


def photograph(form, size=(64, 48), **options):
    file = io.BytesIO()
    Image.radial_gradient("L").resize(size).convert("RGB").save(file, form, **options)
    return file.getvalue()


def bad_checksum():
    data = bytearray(photograph("PNG"))
    data[data.index(b"IDAT") - 8] ^= 0xFF  # of the chunk before
    return bytes(data)


GOOD = photograph("JPEG", (16, 12))
JPEG, PNG = photograph("JPEG"), photograph("PNG")
# Of each kind of damage, the bytes and the limit that MAX_IMAGE_PIXELS has.
DAMAGE = {
    "text": (b"no picture at all", None),
    "empty": (b"", None),
    "cut JPEG": (JPEG[: len(JPEG) // 2], None),
    "cut PNG": (PNG[: len(PNG) // 2], None),
    "checksum": (bad_checksum(), None),
    "header alone": (JPEG[:20], None),
    "bomb": (bombs.progressive(2000, 2000, 400), None),
    "large": (PNG, 1000),
    "cut WebP": (photograph("WEBP")[:60], None),
    "cut TIFF": (photograph("TIFF")[:100], None),
}


def own_step(picture):
    return picture


KNOWN = T.Compose([T.Resize((8, 8)), T.PILToTensor()])
OWN = T.Compose([T.Resize((8, 8)), own_step, T.PILToTensor()])


# --- sources: a dataset of one good picture and a bad one, and what the bad one is called ------------


def folder_of(folder, data):
    for name, content in (("0good.jpg", GOOD), ("1bad.jpg", data)):
        (folder / "class").mkdir(exist_ok=True)
        (folder / "class" / name).write_bytes(content)
    return folder


def in_folder(folder, data, transform):
    return ImageFolder(folder_of(folder, data), transform), [str(folder / "class" / "1bad.jpg")]


def in_list(folder, data, transform):
    bad = str(folder_of(folder, data) / "class" / "1bad.jpg")
    (folder / "list.csv").write_text(f"path,label\n{folder}/class/0good.jpg,0\n{bad},1\n")
    return ListImages(folder / "list.csv", transform), [bad]


def in_tar(folder, data, transform):
    with tarfile.open(folder / "x.tar", "w") as tar:
        for name, content in (("0.jpg", GOOD), ("0.cls", b"0"), ("1.jpg", data), ("1.cls", b"1")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return TarImages(str(folder / "x.tar"), transform), ["1.jpg in ", "x.tar"]


def rows(data):
    return [{"bytes": GOOD, "path": "good.jpg"}, {"bytes": data, "path": "bad.jpg"}]


def in_hf(folder, data, transform):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    made = datasets.Dataset.from_dict({"image": rows(data), "label": [0, 1]}, features=features)
    made.save_to_disk(str(folder / "set"))
    return HFImages(datasets.load_from_disk(str(folder / "set")), transform), ["row 1 (bad.jpg)"]


def in_parquet(folder, data, transform):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"image": rows(data), "label": [0, 1]}), folder / "x.parquet")
    return ParquetImages(str(folder / "x.parquet"), transform), ["row 1 of ", "x.parquet"]


def in_lmdb(folder, data, transform):
    """A record cannot be packed that is no picture, so its bytes are overwritten."""
    pytest.importorskip("lmdb")
    whole = photograph("JPEG", comment=b"x" * max(6000, len(data)))
    (folder / "class").mkdir()
    for name in ("0good.jpg", "1bad.jpg"):
        (folder / "class" / name).write_bytes(GOOD if name == "0good.jpg" else whole)
    assert main(["pack", str(folder), str(folder / "x.lmdb")]) == 0
    packed = bytearray((folder / "x.lmdb").read_bytes())
    at = packed.index(whole)
    packed[at : at + len(whole)] = data.ljust(len(whole), b"\0")
    (folder / "x.lmdb").write_bytes(bytes(packed))
    return LMDBDataset(folder / "x.lmdb", transform), ["1bad.jpg", "x.lmdb"]


class Encoded(Dataset):
    def __init__(self, sources, transform):
        self.sources, self.transform = sources, transform

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, index):
        return EncodedImage(self.sources[index], self.transform), index


def encoded_paths(folder, data, transform):
    bad = str(folder_of(folder, data) / "class" / "1bad.jpg")
    return Encoded([str(folder / "class" / "0good.jpg"), bad], transform), [bad]


def encoded_bytes(_folder, data, transform):
    return Encoded([GOOD, data], transform), [f"{len(data)} bytes in memory"]


SOURCES = {
    "folder": in_folder,
    "list": in_list,
    "tar": in_tar,
    "hf": in_hf,
    "parquet": in_parquet,
    "lmdb": in_lmdb,
    "encoded paths": encoded_paths,
    "encoded bytes": encoded_bytes,
}


# --- paths: how the bad picture is come by --------------------------------------------------------


def one(make, folder, data):
    dataset, named = make(folder, data, KNOWN)
    sample = dataset[1][0]
    if isinstance(sample, EncodedImage):
        sample.decode()
    return named


def loaded(make, folder, data, transform=None, kind=FastLoader, **options):
    transform = KNOWN if transform is None else transform
    dataset, named = make(folder, data, transform)
    if kind is DataLoader and not isinstance(dataset, Encoded):
        dataset.transform = transform
    list(kind(dataset, 2, **options))
    return named


PATHS = {
    "sample": one,
    "loader": loaded,
    "threads": lambda *given: loaded(*given, num_workers=1),
    "not native": lambda *given: loaded(*given, native=False),
    "own step": lambda *given: loaded(*given, transform=OWN),
    "DataLoader": lambda *given: loaded(*given, kind=DataLoader),
    "skip none": lambda *given: loaded(*given, on_error="raise"),
}


def raised_by_pillow(data, limit):
    """What Pillow itself raises, by the recipe of torchvision's loader."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.convert("RGB")
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_message_names_the_picture(
    tmp_path, monkeypatch, enter_way, source, path, damage, native
):
    data, limit = DAMAGE[damage]
    if source == "lmdb" and damage in ("empty", "cut PNG", "cut WebP", "cut TIFF", "header alone"):
        pytest.skip("a record keeps its length")
    if limit is not None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    if not native:
        enter_way("pure")
    known = raised_by_pillow(data, limit)
    named, caught = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def make(*given):
            dataset, its = SOURCES[source](*given)
            named.extend(its)
            return dataset, its

        try:
            PATHS[path](make, tmp_path, data)
        except Exception as error:
            caught = error
    if caught is None:
        assert damage in ("cut WebP", "cut TIFF", "large"), "no error"  # some are read nevertheless
        assert known is None or damage == "large"
        return
    print(repr(caught))
    for name in named:
        assert name in str(caught), str(caught)
    assert "object at 0x" not in str(caught), str(caught)
    if known is not None and source != "lmdb" and damage != "bomb":
        assert type(caught) is type(known), (caught, known)
    if damage == "bomb":
        assert type(caught) is Image.DecompressionBombError
    if source == "encoded bytes" and path in ("loader", "threads", "not native", "skip none"):
        assert "bytes in memory (sample 1)" in str(caught), str(caught)


@pytest.mark.parametrize("damage", DAMAGE)
def test_decode_image(tmp_path, monkeypatch, damage):
    data, limit = DAMAGE[damage]
    (tmp_path / "bad.jpg").write_bytes(data)
    if limit is not None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    known = raised_by_pillow(data, limit)
    named = {
        str(tmp_path / "bad.jpg"): tmp_path / "bad.jpg",
        f"{len(data)} bytes in memory": data,
    }
    for name, source in named.items():
        for region in (None, (0, 0, 4, 4)):
            try:
                decode_image(source, region)
            except Exception as error:
                assert name in str(error) and "object at 0x" not in str(error), error
                if known is not None and damage != "bomb":
                    assert type(error) is type(known)
            else:
                assert known is None or region is not None


class Raising(Exception):
    pass


def raises(_picture):
    raise Raising("the user's own")


@pytest.mark.parametrize("path", ["sample", "loader", "not native", "DataLoader"])
@pytest.mark.parametrize("source", SOURCES)
def test_errors_of_the_users_steps_stay_as_they_are(tmp_path, monkeypatch, source, path):
    monkeypatch.setitem(globals(), "KNOWN", T.Compose([T.Resize((8, 8)), raises]))
    with pytest.raises(Raising) as caught:
        PATHS[path](SOURCES[source], tmp_path, JPEG)
    assert caught.value.args == ("the user's own",)
    assert os.path.exists(tmp_path)


# --- datasets of others, whose own code opens the pictures ------------------------------------------


def torchvisions(folder, data, **options):
    datasets = import_torchvision().datasets
    transforms = import_torchvision().transforms
    chain = transforms.Compose([transforms.Resize((8, 8)), own_step, transforms.PILToTensor()])
    return datasets.ImageFolder(folder_of(folder, data), chain, **options)


def of_bytes(path):
    with open(path, "rb") as file, Image.open(io.BytesIO(file.read())) as picture:
        return picture.convert("RGB")


class Wrapped(Dataset):
    """Of the user's: asks another dataset."""

    def __init__(self, own):
        self.own = own

    def __len__(self):
        return len(self.own)

    def __getitem__(self, index):
        return self.own[index]


class ByBatches(Wrapped):
    def __getitems__(self, indices):
        return [self.own[each] for each in indices]


class WithState(Wrapped):
    """Its workers send their errors another way."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Renumbering(Wrapped):
    """Its frames do not say for which sample it was asked."""

    def __getitem__(self, index):
        index = 1 - index
        return self.own[index]


class ByPath(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return KNOWN(Image.open(self.paths[index]).convert("RGB"))


class ByFile(ByPath):
    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return KNOWN(Image.open(file).convert("RGB"))


class ByBytes(ByPath):
    def __getitem__(self, index):
        return KNOWN(of_bytes(self.paths[index]))


class InTurn(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        return (KNOWN(Image.open(path).convert("RGB")) for path in self.paths)


def paths_of(folder, data):
    folder_of(folder, data)
    return [str(folder / "class" / name) for name in ("0good.jpg", "1bad.jpg")]


def subclass(folder, data):
    class Own(import_torchvision().datasets.ImageFolder):
        def __getitem__(self, index):
            picture, label = super().__getitem__(index)
            return picture, label

    return Own(folder_of(folder, data), KNOWN)


def two_parts(folder, data):
    whole = torchvisions(folder, data)
    return ConcatDataset([Subset(whole, [0]), Subset(whole, [0, 1])])


# The dataset, and the number of the bad sample, None where it cannot be known.
OF_OTHERS = {
    "torchvision's": (torchvisions, 1),
    "torchvision's, of bytes": (lambda *its: torchvisions(*its, loader=of_bytes), 1),
    "a subclass": (subclass, 1),
    "a Subset": (lambda *its: Subset(torchvisions(*its), [0, 0, 1]), 2),
    "two parts": (two_parts, 2),
    "one of another": (lambda *its: Wrapped(torchvisions(*its)), 1),
    "one by batches": (lambda *its: ByBatches(torchvisions(*its)), None),
    "with a state": (lambda *its: WithState(torchvisions(*its)), 1),
    "another order": (lambda *its: Renumbering(torchvisions(*its)), None),
    "by path": (lambda *its: ByPath(paths_of(*its)), 1),
    "by file": (lambda *its: ByFile(paths_of(*its)), 1),
    "by bytes": (lambda *its: ByBytes(paths_of(*its)), 1),
    "iterable": (lambda *its: InTurn(paths_of(*its)), None),
}
WORKERS = {
    "none": {},
    "none, not native": {"native": False},
    "threads": {"num_workers": 1, "worker_backend": "thread"},
    "processes": {"num_workers": 1, "multiprocessing_context": "fork"},
    "processes, not native": {
        "num_workers": 1,
        "multiprocessing_context": "fork",
        "native": False,
    },
}


def last_line(error):
    return str(error).strip().rpartition("\n")[2]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize("damage", [each for each in DAMAGE if each != "bomb"])
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("source", OF_OTHERS)
def test_datasets_of_others(tmp_path, monkeypatch, source, workers, damage):
    data, limit = DAMAGE[damage]
    if limit is not None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    make, number = OF_OTHERS[source]
    dataset = make(tmp_path, data)
    # All in one batch, which does not say which of them it is.
    raised = {}
    here = WORKERS[workers]
    plain = {"num_workers": here["num_workers"]} if "num_workers" in here else {}
    for kind, options in ((DataLoader, plain), (FastLoader, here)):
        options = {"num_workers": options.get("num_workers", 0), **options}
        if source in ("a subclass", "two parts", "a Subset") and "processes" in workers:
            options["multiprocessing_context"] = "fork"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                list(kind(dataset, 4, **options))
        except Exception as error:
            raised[kind] = error
    if not raised:  # some are read nevertheless
        return
    assert type(raised[FastLoader]) is type(raised[DataLoader])
    said = last_line(raised[FastLoader])
    if number is not None and " image file '" not in said and "BufferedReader" not in said:
        assert f"(sample {number})" in said, said
    else:
        assert number is not None or "sample" not in said, said
    path = str(tmp_path / "class" / "1bad.jpg")
    if source == "by bytes":
        assert f"{len(data)} bytes in memory (sample 1)" in said
    elif source != "by file" or "broken data stream" not in said:
        assert path in said and path not in last_line(raised[DataLoader]).replace(
            f"image file '{path}'", ""
        ).replace(f"BufferedReader name='{path}'", ""), said
    assert "object at 0x" not in said, said


def missing_font(_picture):
    ImageFont.truetype("/nowhere.ttf")


def wrong_kind(picture):
    picture.convert("RGBA").save(io.BytesIO(), "JPEG")


def disk_error(_picture):
    raise OSError("the user's own")


def no_key(_picture):
    return {}[3]


def no_file(_picture):
    Image.open("/nowhere/1.jpg")


def stream_error(_picture):
    class Bad(io.RawIOBase):
        def read(self, _size=-1):
            raise OSError("the user's own stream")

        seek = tell = readable = lambda *_given: True

    Image.open(Bad())


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::fastloader.PythonPathWarning")
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    "step", [missing_font, wrong_kind, disk_error, no_key, no_file, stream_error]
)
def test_other_errors_stay_as_they_are(tmp_path, step, workers):
    dataset = torchvisions(tmp_path, JPEG)
    dataset.transform.transforms[1] = step
    raised = []
    here = WORKERS[workers]
    plain = {"num_workers": here["num_workers"]} if "num_workers" in here else {}
    for kind, options in ((DataLoader, plain), (FastLoader, here)):
        with pytest.raises(Exception) as caught:
            list(kind(dataset, 2, **options))
        raised.append(caught.value)
    assert type(raised[0]) is type(raised[1])
    assert last_line(raised[0]) == last_line(raised[1])
    if "processes" not in workers and "threads" not in workers:
        assert raised[0].args == raised[1].args
        assert vars(raised[0]) == vars(raised[1])


def test_what_else_an_error_says_stays(tmp_path):
    class Bad(io.BytesIO):
        def read(self, _size=-1):
            if self.tell() == 0 and _size != 0:
                return super().read(_size)
            raise OSError(errno.EIO, "Input/output error") from KeyError("cause")

    class Other(ByPath):
        def __getitem__(self, index):
            return Image.open(Bad(JPEG)).convert("RGB")

    class Two(ByPath):
        def __getitem__(self, index):
            raise Image.DecompressionBombError("nothing", 5) from KeyError("cause")

    with pytest.raises(Image.DecompressionBombError) as caught:
        list(FastLoader(Two(["x"]), 1, native=False))
    assert caught.value.args == ("sample 0: nothing", 5)
    assert type(caught.value.__cause__) is KeyError
    with pytest.raises(OSError) as caught:
        list(FastLoader(Other(["x"]), 1, native=False))
    assert caught.value.errno == errno.EIO
    assert caught.value.filename is None  # it is the stream's own
