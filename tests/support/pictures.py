"""Folders of random pictures of every kind, what Pillow makes of them, and torchvision, where it is."""

import importlib
import importlib.util
import os
import random
import sys
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from PIL import Image, ImageFile

import fastloader
from fastloader._core.machine import extension
from support import SUPPORT, require_hooks, run_script

IMAGE_FOLDER = "torchvision.datasets.folder"

# The pixels are those of the Pillow that is installed, whatever its version.
upstream_pillow = pytest.mark.skipif(
    ".post" in PIL.__version__, reason="Pillow-SIMD resizes otherwise than Pillow"
)
needs_libjpeg = pytest.mark.skipif(
    extension.lacks_libjpeg(), reason="this build has no libjpeg-turbo"
)
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def pixels(rng, width, height, channels=3):
    """Smooth gradients, edges and noise: what a resize and a colour conversion can get wrong."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(channels):
        a, b, c = numbers.uniform(-3, 3, 3)
        planes.append(127 + 120 * np.sin(a * x / 9 + b * y / 7 + c))
    image = np.stack(planes, axis=-1)
    if rng.random() < 0.5:
        image[height // 3 :, width // 2 :] = numbers.uniform(0, 255, channels)
    image += numbers.normal(0, rng.choice([0, 4, 40]), image.shape)
    return image.clip(0, 255).astype(np.uint8)


def picture(rng, width, height, mode="RGB"):
    if mode == "L":
        return Image.fromarray(pixels(rng, width, height, 1)[:, :, 0])
    if mode in ("RGB", "RGBA", "CMYK"):
        return Image.fromarray(pixels(rng, width, height, len(mode)), mode)
    if mode == "I;16":
        grey = pixels(rng, width, height, 1)[:, :, 0].astype(np.uint16)
        return Image.fromarray(grey * 3)
    return picture(rng, width, height).convert(mode)


def jpeg_kinds():
    """(name, mode, options of Image.save)"""
    kinds = []
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        for progressive in (False, True):
            name = f"{subsampling.replace(':', '')}{'p' if progressive else ''}"
            options = {"subsampling": subsampling, "progressive": progressive}
            kinds.append((name, "RGB", options))
    kinds += [
        ("grey", "L", {}),
        ("greyp", "L", {"progressive": True}),
        ("cmyk", "CMYK", {}),
        ("cmykp", "CMYK", {"progressive": True, "subsampling": "4:2:0"}),
        ("restart", "RGB", {"restart_marker_rows": 1, "subsampling": "4:2:0"}),
        ("optimized", "RGB", {"optimize": True}),
        ("rgb", "RGB", {"keep_rgb": True}),
    ]
    return kinds


def other_kinds():
    """(name, mode, format, extension)"""
    return [
        ("png", "RGB", "PNG", ".png"),
        ("grey", "L", "PNG", ".png"),
        ("alpha", "RGBA", "PNG", ".png"),
        ("palette", "P", "PNG", ".png"),
        ("bits", "1", "PNG", ".png"),
        ("sixteen", "I;16", "PNG", ".png"),
        ("webp", "RGB", "WEBP", ".webp"),
        ("gif", "P", "GIF", ".gif"),
        ("bmp", "RGB", "BMP", ".bmp"),
        ("tiff", "RGB", "TIFF", ".tif"),
        ("tiffcmyk", "CMYK", "TIFF", ".tiff"),
        ("misnamed", "RGB", "PNG", ".jpg"),
    ]


def edge(rng):
    """Any length: 1, odd ones and around the sizes of JPEG's blocks."""
    return rng.choice([1, 2, 7, 8, 9, 15, 16, 17, 33, rng.randint(3, 150), rng.randint(20, 300)])


def save_jpeg(rng, path, width=None, height=None, mode="RGB", **options):
    image = picture(rng, width or edge(rng), height or edge(rng), mode)
    # Pillow makes room for a byte a pixel, and libjpeg cannot stop in the middle of a progressive file:
    # noise takes more.
    before, ImageFile.MAXBLOCK = ImageFile.MAXBLOCK, 1 << 20
    try:
        image.save(path, "JPEG", quality=rng.randint(30, 97), **options)
    finally:
        ImageFile.MAXBLOCK = before


def random_folder(root, seed, each=1, others=False):
    """A picture folder of two classes with every kind of file, in random sizes."""
    rng = random.Random(seed)
    root = Path(root)
    classes = [root / "one", root / "two"]
    for each_class in classes:
        each_class.mkdir(parents=True)
    for number in range(each):
        for name, mode, options in jpeg_kinds():
            save_jpeg(rng, rng.choice(classes) / f"{name}{number}.jpg", mode=mode, **options)
        if others:
            for name, mode, kind, extension in other_kinds():
                image = picture(rng, edge(rng), edge(rng), mode)
                image.save(rng.choice(classes) / f"{name}{number}{extension}", kind)
    for each_class in classes:
        save_jpeg(rng, each_class / "always.jpg", 40, 30)
    return root


def plain_folder(root, count=12, classes=3, size=(40, 30), seed=0):
    """``count`` ordinary pictures of about one size; the class of the i-th one is i % classes."""
    rng = random.Random(seed)
    root = Path(root)
    for number in range(count):
        folder = root / f"c{number % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        width, height = size[0] + rng.randint(0, 9), size[1] + rng.randint(0, 9)
        save_jpeg(rng, folder / f"{number:03}.jpg", width, height)
    return root


def any_picture(path):
    return path.lower().endswith((".jpg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"))


# --- what the pictures must become --------------------------------------------------------------


def open_as_torchvision(path):
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def resized_as_torchvision(image, size, max_size=None, filter="bilinear"):
    if len(size) == 2:
        height, width = size
    else:
        short, long = sorted(image.size)
        new_short, new_long = size[0], int(size[0] * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
        width, height = (
            (new_short, new_long) if image.width <= image.height else (new_long, new_short)
        )
    return image.resize((width, height), FILTERS[filter])


def center_cropped_as_torchvision(image, size):
    height, width = size
    if width > image.width or height > image.height:
        left = (width - image.width) // 2 if width > image.width else 0
        top = (height - image.height) // 2 if height > image.height else 0
        bigger = Image.new("RGB", (max(width, image.width), max(height, image.height)))
        bigger.paste(image, (left, top))
        image = bigger
    top, left = round((image.height - height) / 2.0), round((image.width - width) / 2.0)
    return image.crop((left, top, left + width, top + height))


def redo(path, replayed, exact=None, shorter=None, max_size=None, center=None, filter="bilinear"):
    """The picture as Pillow makes it from what ``loader.replay`` says: uint8 (3, height, width)."""
    image = open_as_torchvision(path)
    left, top, width, height = replayed["box"]
    image = image.crop((left, top, left + width, top + height))
    if exact is not None:
        image = image.resize(exact[::-1], FILTERS[filter])
    if shorter is not None:
        image = resized_as_torchvision(image, (shorter,), max_size, filter)
    if center is not None:
        image = center_cropped_as_torchvision(image, center)
    if replayed["hflip"]:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if replayed["vflip"]:
        image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


# --- torchvision --------------------------------------------------------------------------------

_schemas = []


def import_torchvision():
    """torchvision, or skips. Its Python code does without its binary, which may be of another torch,
    if the schemas of two operators exist."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed", allow_module_level=True)
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    _schemas.append(library)
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


def import_timm():
    """timm, or skips. It imports torchvision, which therefore comes first."""
    import_torchvision()
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed", allow_module_level=True)
    importlib.import_module("timm.data")
    return importlib.import_module("timm")


def stand_in(module, name, bases=(), **attributes):
    """An instance of a class that says it is ``module.name``, which is all that recognisers look at."""
    kind = type(name, bases, {"__module__": module, "__qualname__": name})
    made = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made


def script(source, *arguments, env=None, **options):
    """`run_script` with the fastloader of this process."""
    paths = [str(Path(fastloader.__file__).parents[1]), str(SUPPORT)]
    paths.append(os.environ.get("PYTHONPATH", ""))
    env = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), **(env or {})}
    return run_script(source, *arguments, env=env, **options)


def throttle(monkeypatch, files, seconds):
    """Lets each read from ``files``, `FolderStore` or `LmdbStore`, take that long: a slow disk. Skips
    where the native module has no such disk."""
    require_hooks()
    opened = files.opened

    def throttled(self):
        made = opened(self)
        made.source = extension.native.DelayedSource(made.source, seconds)
        return made

    monkeypatch.setattr(files, "opened", throttled)
