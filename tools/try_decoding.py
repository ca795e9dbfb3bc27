"""Tries the installed fastloader: its C++ threads decode each kind of picture, with Pillow's bytes.

    python tools/try_decoding.py [--without-cuda]

Run it where the wheel is installed, with torch, numpy and Pillow. Of the JPEGs, fastloader's own decoder
leaves two to libjpeg-turbo: one in CMYK and one that ends early. Exits with 1 if a picture differs, if
Pillow was asked for one, if the processor's vector instructions are not used, or if CUDA is not compiled
in. ``--without-cuda``: it need not be.
"""

from __future__ import annotations

import argparse
import io
import platform
import random
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image, ImageFile

import fastloader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

WIDTH, HEIGHT = 80, 60


def picture(seed: int) -> Image.Image:
    """Colours that run into each other, with some noise."""
    rng = random.Random(seed)
    small = Image.frombytes("RGB", (8, 6), rng.randbytes(8 * 6 * 3))
    noise = Image.frombytes("RGB", (WIDTH, HEIGHT), rng.randbytes(WIDTH * HEIGHT * 3))
    return Image.blend(small.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), noise, 0.1)


def encoded(seed: int, kind: str, mode: str = "RGB", **options: object) -> bytes:
    memory = io.BytesIO()
    picture(seed).convert(mode).save(memory, kind, **options)
    return memory.getvalue()


def pictures() -> dict[str, bytes]:
    whole = encoded(6, "JPEG", quality=85)
    return {
        "01-baseline.jpg": encoded(1, "JPEG", quality=85),
        "02-progressive.jpg": encoded(2, "JPEG", quality=85, progressive=True),
        "03-gray.jpg": encoded(3, "JPEG", "L", quality=85),
        "04-cmyk.jpg": encoded(4, "JPEG", "CMYK", quality=85),
        "05-444.jpg": encoded(5, "JPEG", quality=95, subsampling=0),
        "06-ends-early.jpg": whole[: len(whole) * 2 // 3],
        "07.png": encoded(7, "PNG"),
        "08-palette.png": encoded(8, "PNG", "P"),
        "09-alpha.png": encoded(9, "PNG", "RGBA"),
        "10-lossy.webp": encoded(10, "WEBP", quality=80),
        "11-lossless.webp": encoded(11, "WEBP", lossless=True),
    }


def vectors() -> str:
    """What the module must find: the least of what a processor with vector instructions has."""
    if platform.machine() == "aarch64":
        return "neon"
    with open("/proc/cpuinfo") as file:
        flags = next(line.split() for line in file if line.startswith("flags"))
    return "avx2" if "avx2" in flags else "scalar"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--without-cuda", action="store_true")
    arguments = parser.parse_args()
    info = fastloader.build_info()
    if not info["native"]["loaded"]:
        print(f"WRONG: no native module: {info['native']['why_not']}")
        return 1
    print(f"fastloader {info['version']}, Python {info['python']}, torch {torch.__version__}")
    for name in ("cpu", "jpeg", "png", "webp", "io_uring", "cuda"):
        print(f"  {name}: {info[name]}")
    wrong = 0
    vector = vectors()
    if vector not in info["cpu"]["available"]:
        print(f"WRONG: this processor has {vector}, and the module does not use it")
        wrong += 1
    if not info["cuda"]["compiled_in"] and not arguments.without_cuda:
        print("WRONG: CUDA is not compiled in")
        wrong += 1

    asked = []
    pillows = Image.open

    def open_and_count(file, *args, **options):
        asked.append(file)
        return pillows(file, *args, **options)

    with tempfile.TemporaryDirectory(prefix="fastloader-decoding-") as name:
        folder = Path(name) / "class"
        folder.mkdir()
        for file, data in pictures().items():
            (folder / file).write_bytes(data)
        dataset = ImageFolder(name, T.Resize((HEIGHT, WIDTH)))
        loader = fastloader.FastLoader(dataset, 3, num_workers=2, device="cpu", truncated="pad")
        print(f"  plan: {loader.plan()}")
        Image.open = open_and_count
        images = torch.cat([images for images, _ in loader])
        Image.open = pillows
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        for index, image in enumerate(images):
            file = Path(dataset.path(index))
            data = Image.open(file).convert("RGB").tobytes()
            wanted = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(HEIGHT, WIDTH, 3)
            if image.shape[0] == 3:
                wanted = wanted.permute(2, 0, 1)
            same = torch.equal(image, wanted)
            print(f"  {'same' if same else 'DIFFERENT':9} {file.name}")
            wrong += not same
    print(f"  Pillow was asked for {len(asked)} of {len(images)} pictures")
    wrong += len(asked) + abs(len(images) - len(pictures()))
    print("decoding: " + ("wrong" if wrong else "good"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
