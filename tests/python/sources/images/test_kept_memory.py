"""What a decode thread keeps from a picture to the next one is what usual pictures need."""

import pytest
from pictures import plain_folder
from PIL import Image, features

from fastloader import build_info
from support import run_script

pytestmark = pytest.mark.processes

EPOCHS = """
    import sys
    import fastloader.transforms as T
    from fastloader import FastLoader
    from fastloader.datasets import ImageFolder
    from support import resident_bytes

    def epochs(root, count):
        loader = FastLoader(ImageFolder(root, T.Resize((24, 24))), 4, num_workers=2)
        seen = []
        for _ in range(count):
            for batch in loader:
                del batch
            seen.append((resident_bytes(), loader.stats()["images"]["scratch_bytes"]))
        return seen

    epochs(sys.argv[1] + "/small", 1)
    ((before, kept),) = epochs(sys.argv[1] + "/small", 1)
    # The large picture is the first one: small JPEGs of another format come behind it.
    for resident, scratch in epochs(sys.argv[1] + "/large", 5):
        assert scratch < 2 * kept + (20 << 20), (scratch, kept)
        # Two threads; what the C library keeps of libwebp's memory is below 32 MB each.
        assert resident < before + (80 << 20), (resident, before)
"""


def save(image, path, kind):
    options = {
        "webp": {"lossless": True, "method": 0},
        "progressive": {"progressive": True},
        "jpeg": {},
    }[kind]
    image.save(path, "WEBP" if kind == "webp" else "JPEG", **options)


@pytest.mark.parametrize("kind", ["webp", "progressive", "jpeg"])
def test_resident_memory_over_five_epochs(tmp_path, kind):
    if kind == "webp" and (build_info().get("webp") is None or not features.check("webp")):
        pytest.skip("no WebP")
    for name in ("small", "large"):
        plain_folder(tmp_path / name, count=24, classes=1)
    # 144 MB of pixels.
    save(Image.new("RGB", (8000, 6000), (9, 99, 199)), tmp_path / "large" / "c0" / "0.jpg", kind)
    run_script(EPOCHS, tmp_path)
