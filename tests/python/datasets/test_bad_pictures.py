"""An error about a picture's bytes is Pillow's, and its message says which picture: for every source,
by every path, for every kind of damage."""

import io
import os
import tarfile
import warnings

import bombs
import pytest
from PIL import Image
from torch.utils.data import DataLoader, Dataset

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
    return TarImages(str(folder / "x.tar"), transform), ["1 in ", "x.tar"]


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
