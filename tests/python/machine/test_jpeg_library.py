"""Another libjpeg-turbo is loaded than was compiled against: what it does decides, not the headers."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import PIL
import pytest
from pictures import needs_libjpeg

from fastloader._core.machine import extension
from support import HANG

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or extension.load() is None,
        reason="LD_PRELOAD before a native module",
    ),
    needs_libjpeg,
]

# Decodes parts and whole pictures natively and by Pillow, and prints what differs or is left to Pillow.
DECODE = """
import ctypes, io, random, sys
import numpy as np
from PIL import Image
from fastloader._core.machine import extension
from fastloader.errors import Error

native = extension.load()
rng = random.Random(int(sys.argv[2]))
numbers = np.random.default_rng(int(sys.argv[2]))


def picture(width, height, channels, **options):
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x * rng.uniform(-0.2, 0.2) + y * rng.uniform(-0.2, 0.2)) for _ in range(channels)]
    made = 127 + 100 * np.stack(waves, -1) + numbers.integers(-20, 20, (height, width, channels))
    image = Image.fromarray(np.squeeze(made.astype(np.uint8)))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def unfinished(data, scans):
    at = -1
    for _ in range(scans + 1):
        at = data.index(b"\\xff\\xda", at + 1)
    # Before the tables of the first scan that is missing.
    return data[: min(data.rindex(b"\\xff\\xc4", 0, at), at)] + b"\\xff\\xd9"


def compare(what, data, box):
    left, top, width, height = box
    out = np.zeros((height, width, 3), np.uint8)
    try:
        native.PictureDecoder().decode(data, box=box, destination=out.ctypes.data)
    except Error as error:
        print(what, "left to Pillow:", error)
        return
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB").crop((left, top, left + width, top + height)))
    if not np.array_equal(out, expected):
        print(what, "differs at", box)


for sampling in ("grey", "4:4:4", "4:2:2", "4:2:0"):
    for progressive in (False, True):
        width, height = rng.randint(40, 120), rng.randint(40, 120)
        channels = 1 if sampling == "grey" else 3
        options = {} if sampling == "grey" else {"subsampling": sampling}
        data = picture(width, height, channels, progressive=progressive, **options)
        if sys.argv[1] == "parts":
            for _ in range(10):
                box = (rng.randint(0, width - 9), rng.randint(0, height - 9), 9, 9)
                compare(f"{sampling}, progressive {progressive}:", data, box)
        elif progressive:
            for scans in range(1, 4 if sampling == "grey" else 8):
                left_out = unfinished(data, scans)
                compare(f"{sampling}, {scans} scans:", left_out, (0, 0, width, height))
whole = native.build_info()["jpeg"]["decoded_whole"]
print("done, decoding whole:", *whole, sep=", ")
"""

# Without RTLD_NEXT, which does not see what a module has loaded for itself.
REAL = """
#include <dlfcn.h>
static void *real_one(const char *name) {
  void *library = dlopen("libjpeg.so.62", RTLD_NOW | RTLD_NOLOAD);
  if (library == 0) library = dlopen("libjpeg.so.8", RTLD_NOW | RTLD_NOLOAD);
  return dlsym(library, name);
}
"""
# One row less than asked for, and one column further right than it says.
BROKEN = {
    "jpeg_skip_scanlines": """
unsigned jpeg_skip_scanlines(void *info, unsigned rows) {
  unsigned (*real)(void *, unsigned) = real_one("jpeg_skip_scanlines");
  if (rows > 1) real(info, rows - 1);
  return rows;
}
""",
    "jpeg_crop_scanline": """
void jpeg_crop_scanline(void *info, unsigned *left, unsigned *width) {
  void (*real)(void *, unsigned *, unsigned *) = real_one("jpeg_crop_scanline");
  real(info, left, width);
  if (*left > 0) --*left;
}
""",
}


def decoded_with(library, what):
    done = subprocess.run(
        [sys.executable, "-c", DECODE, what, str(random.randrange(1 << 32))],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    *found, last = done.stdout.splitlines()
    assert last.startswith("done")
    return found, last.split(", ")[2:]


@pytest.mark.processes
@pytest.mark.parametrize("function", BROKEN)
def test_a_library_that_skips_wrongly_is_not_asked_to_skip(tmp_path, function):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "broken.c"
    source.write_text("#define _GNU_SOURCE\n" + REAL + BROKEN[function])
    library = tmp_path / "broken.so"
    build = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(build, check=True)
    found, whole = decoded_with(library, "parts")
    assert found == []
    assert {"grey", "4:4:4", "4:2:2", "4:2:0"} < set(whole)


def pillows_libjpeg():
    """libjpeg-turbo 3 of the same interface as ours, as Pillow's wheels bring it along."""
    libraries = Path(PIL.__file__).parent.parent / "pillow.libs"
    found = sorted(libraries.glob("libjpeg-*.so.62.[4-9]*"))
    loaded = extension.load().build_info()["jpeg"]["runtime"]
    if not found or not re.match("6b ", loaded):
        pytest.skip("Pillow brings no libjpeg that could be loaded instead of ours")
    return found[0]


@pytest.mark.processes
def test_pillows_own_library_smooths_as_pillow():
    """Its own test finds that, although older headers do not let one expect it."""
    assert decoded_with(pillows_libjpeg(), "whole") == ([], [])


@pytest.mark.processes
def test_pillows_own_library_decodes_parts():
    assert decoded_with(pillows_libjpeg(), "parts") == ([], [])
