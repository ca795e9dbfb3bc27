"""PNG and WebP: the native decoder against Pillow, on one thread.

    python benchmarks/formats.py [--data DIR] [--pictures 24] [--repeats 15]

JPEGs of class folders are stored again as PNG, lossy and lossless WebP, as Pillow does without further
options; without ``--data``, made-up photographs. Both turn the same bytes in memory into RGB: of whole
pictures, looking for damage everywhere; and of the box of a RandomResizedCrop, as a loader wants it,
which Pillow decodes whole and crops. Last, files to finished crops: a loader of one thread against a
loop over the same dataset, which is Pillow's way. Rounds are interleaved.
Predicted: PNG twice as fast, since Pillow's filters have no SIMD; WebP a quarter faster, since libwebp
takes most of the time on both sides, and more where a box is decoded alone.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from measure import interleaved, ratio, write
from PIL import Image

from fastloader import FastLoader, build_info
from fastloader import transforms as T
from fastloader._core.machine import extension
from fastloader.cli.pictures import make_pictures, missing_pictures
from fastloader.datasets import ImageFolder

FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "PNG": ("PNG", {}),
    "WebP": ("WEBP", {}),
    "lossless WebP": ("WEBP", {"lossless": True}),
}


def stored(pictures: list[Image.Image], kind: str, options: dict[str, Any]) -> list[bytes]:
    files = []
    for picture in pictures:
        out = io.BytesIO()
        picture.save(out, kind, **options)
        files.append(out.getvalue())
    return files


Boxes = list[tuple[int, int, int, int]]  # left, top, width, height


def boxes_of(pictures: list[Image.Image]) -> Boxes:
    native = extension.load()
    transform = native.ImageTransform(random_crop=(0.08, 1.0, 3 / 4, 4 / 3), exact=(224, 224))
    found = [
        transform.geometry(height=picture.height, width=picture.width, index=index, seed=0)["box"]
        for index, picture in enumerate(pictures)
    ]
    return found


def by_pillow(files: list[bytes], boxes: Boxes | None) -> Callable[[], None]:
    def run() -> None:
        for index, file in enumerate(files):
            picture = Image.open(io.BytesIO(file)).convert("RGB")
            if boxes is not None:
                left, top, width, height = boxes[index]
                picture = picture.crop((left, top, left + width, top + height))
            np.asarray(picture)

    return run


def natively(files: list[bytes], boxes: Boxes | None, largest: int) -> Callable[[], None]:
    decoder = extension.load().PictureDecoder()
    out = np.empty(largest, np.uint8)

    def run() -> None:
        for index, file in enumerate(files):
            box = None if boxes is None else boxes[index]
            decoder.decode(file, box=box, whole=boxes is None, destination=out.ctypes.data)

    return run


def loop_and_loader(folder: Path, files: list[bytes]) -> dict[str, Callable[[], None]]:
    (folder / "pictures").mkdir()
    for index, file in enumerate(files):
        # Named .png whatever they are: nobody minds.
        (folder / "pictures" / f"{index:05}.png").write_bytes(file)
    dataset = ImageFolder(folder, T.RandomResizedCrop(224))
    loader: FastLoader[Any] = FastLoader(dataset, 8, num_workers=1)

    def loop() -> None:
        for index in range(len(dataset)):
            dataset[index]

    def epoch() -> None:
        for _batch in loader:
            pass

    return {"Pillow": loop, "native": epoch}


def photographs(folder: Path, count: int) -> list[Image.Image]:
    paths = sorted(folder.glob("*/*.jpg")) + sorted(folder.glob("*/*.JPEG"))
    if not paths:
        raise SystemExit(f"{folder}: no JPEG in any folder of it")
    return [Image.open(path).convert("RGB") for path in paths[:: -(-len(paths) // count)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of class folders")
    parser.add_argument("--pictures", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    info = build_info()
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.data or Path(made)
        if arguments.data is None:
            for _ in make_pictures(missing_pictures(folder, arguments.pictures, 500, 375, 0), 1):
                pass
        pictures = photographs(folder, arguments.pictures)
    boxes = boxes_of(pictures)
    largest = max(3 * picture.width * picture.height for picture in pictures)
    results: dict[str, Any] = {
        "pictures": len(pictures),
        "pillow": PIL.__version__,
        "zlib": info["png"],
        "libwebp": info["webp"],
        "formats": {},
    }
    for name, (kind, options) in FORMATS.items():
        if info["png" if kind == "PNG" else "webp"] is None:
            print(f"{name}: this build leaves it to Pillow")
            continue
        files = stored(pictures, kind, options)
        results["formats"][name] = {}
        with tempfile.TemporaryDirectory() as place:
            pairs = {
                what: {
                    "Pillow": by_pillow(files, part),
                    "native": natively(files, part, largest),
                }
                for what, part in (("whole", None), ("box", boxes))
            }
            pairs["file to crop"] = loop_and_loader(Path(place), files)
            measured = {
                what: interleaved(contenders, arguments.repeats, warm_up=1)
                for what, contenders in pairs.items()
            }
        for what, timings in measured.items():
            speed = ratio(timings["Pillow"], timings["native"])
            results["formats"][name][what] = {
                "timings": {each: timing.as_json() for each, timing in timings.items()},
                "speed": speed,
            }
            print(
                f"{name}, {what}: {1e3 * timings['native'].median / len(files):.2f} ms a picture "
                f"natively, {1e3 * timings['Pillow'].median / len(files):.2f} by Pillow: "
                f"{speed['median']:.2f} ({speed['min']:.2f} to {speed['max']:.2f})"
            )
    print("written:", write("formats", results))


if __name__ == "__main__":
    main()
