"""Pictures with masks and other pictures that follow them: files, chains, and what torchvision's v2
makes of the same steps."""

import io
import random

import numpy as np
import png_files
import torch
from pictures import edge, picture
from PIL import Image
from torch.utils.data import Dataset

from fastloader import Companion, EncodedImage, EncodedMask
from fastloader import transforms as T

SCALE = 3
# Grey and palette of every depth, and interlaced ones among them.
MASKS = [(0, 1), (0, 2), (0, 4), (0, 8), (3, 1), (3, 2), (3, 4), (3, 8)]


def mask_png(rng, size, number):
    """Indices of at most 8 bits in a PNG of one of all kinds. ``size``: (width, height)."""
    color, depth = MASKS[number % len(MASKS)]
    while True:
        made = png_files.random_png(rng, color, depth, interlaced=number % 3 == 0, size=size)
        if b"tRNS" not in made:  # Pillow makes other modes of these
            return made


def wide_png(rng, size):
    numbers = np.random.default_rng(rng.getrandbits(32))
    return png_of(Image.fromarray(numbers.integers(0, 1 << 16, size[::-1], dtype=np.uint16)))


def png_of(image, **options):
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def indices_of(path):
    """The indices in a mask's file, as numpy takes them from Pillow: int32 (H, W)."""
    with Image.open(path) as image:
        return np.array(image).astype(np.int32)


class Files:
    """``count`` pictures in a folder, each with a mask, a mask of 16 bits and a larger picture."""

    def __init__(self, root, count=10, seed=0, sizes=edge):
        rng = random.Random(seed)
        self.root = root
        for number in range(count):
            size = sizes(rng), sizes(rng)
            kind = ".jpg" if number % 2 else ".png"
            large = size[0] * SCALE, size[1] * SCALE
            picture(rng, *size).save(root / f"{number:02}{kind}")
            (root / f"{number:02}.mask.png").write_bytes(mask_png(rng, size, number))
            (root / f"{number:02}.wide.png").write_bytes(wide_png(rng, size))
            picture(rng, *large).save(root / f"{number:02}.large{kind}")
        self.count = count

    def of(self, number, what=""):
        (found,) = (
            path for path in self.root.glob(f"{number:02}.*") if path.name[2:] in _NAMES[what]
        )
        return str(found)


_NAMES = {
    "": {".jpg", ".png"},
    "mask": {".mask.png"},
    "wide": {".wide.png"},
    "large": {".large.jpg", ".large.png"},
}


class Followed(Dataset):
    """({"image", "mask", "wide", "same", "large"}, number)"""

    def __init__(self, files, transform, large=True, masks=True):
        self.files, self.transform, self.large, self.masks = files, transform, large, masks

    def __len__(self):
        return self.files.count

    def companions(self, i):
        found = {"same": self.files.of(i)}
        if self.masks:
            found["mask"] = EncodedMask(self.files.of(i, "mask"), dtype=torch.int64)
            found["wide"] = EncodedMask(self.files.of(i, "wide"), bits=16)
        if self.large:
            found["large"] = Companion(self.files.of(i, "large"), scale=SCALE)
        return found

    def __getitem__(self, i):
        return EncodedImage(self.files.of(i), self.transform, with_=self.companions(i)), i


# --- chains -----------------------------------------------------------------------------------------


def random_chain(rng):
    """A chain of `fastloader.transforms` that ends in one size and that masks can go through."""
    end = rng.choice([(9, 14), (16, 16), (31, 8)])
    geometry = [
        lambda: T.RandomHorizontalFlip(rng.random()),
        lambda: T.RandomVerticalFlip(rng.random()),
        lambda: T.Pad(
            rng.choice([1, (2, 3), (0, 1, 2, 3)]), fill=rng.choice([0, 7]), padding_mode="constant"
        ),
        lambda: T.Pad(1, padding_mode=rng.choice(["edge", "symmetric"])),
        lambda: T.CenterCrop(rng.choice([7, 20, (40, 9)])),
        lambda: T.RandomCrop(
            rng.choice([5, (12, 30)]), padding=rng.choice([None, 2]), pad_if_needed=True, fill=9
        ),
        lambda: T.Resize(rng.choice([6, 11, (13, 17), 40])),
        lambda: T.Resize(8, max_size=rng.choice([9, 30])),
        lambda: T.RandomResizedCrop(rng.choice([10, (21, 6)]), (0.05, 1)),
        lambda: T.RandomApply([T.Resize(12), T.Pad(2, fill=3)], rng.random()),
        lambda: T.RandomChoice([T.RandomHorizontalFlip(1), T.CenterCrop(11), T.Pad(3)]),
        lambda: T.RandomOrder([T.Resize((12, 5)), T.RandomVerticalFlip(), T.Pad((3, 0))]),
    ]
    colour = [
        lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        lambda: T.RandomGrayscale(0.5),
        lambda: T.RandomInvert(0.5),
        lambda: T.RandomApply([T.ColorJitter(0.3)], 0.5),
        lambda: T.RandomPosterize(3),
        lambda: T.RandomEqualize(),
    ]
    steps = [rng.choice(geometry)() for _ in range(rng.randint(0, 4))]
    for _ in range(rng.randint(0, 2)):
        steps.insert(rng.randint(0, len(steps)), rng.choice(colour)())
    last = [T.Resize(end), T.RandomResizedCrop(end), T.CenterCrop(end)]
    steps.append(rng.choice([*last, T.RandomCrop(end, pad_if_needed=True)]))
    if rng.random() < 0.5:
        steps.append(T.RandomHorizontalFlip())
    return T.Compose(steps)


# --- what they must become --------------------------------------------------------------------------

_LENGTHS = {
    "crop": ("left", "top", "width", "height"),
    "pad": ("padding",),
    "resize": ("size",),
}


def times(value, factor):
    return (
        type(value)(each * factor for each in value)
        if isinstance(value, list | tuple)
        else value * factor
    )


def as_larger(steps, factor):
    """The steps of a picture's companion that is so many times as large."""
    return [
        (
            name,
            {
                key: times(value, factor) if key in _LENGTHS.get(name, ()) else value
                for key, value in numbers.items()
            },
        )
        for name, numbers in steps
    ]


def moved_by_torchvision(v2, indices, steps):
    """The mask (H, W) that torchvision's v2 makes by the geometry among a picture's steps."""
    from torchvision import tv_tensors

    f = v2.functional
    mask = tv_tensors.Mask(torch.from_numpy(indices)[None])
    for name, numbers in steps:
        if name == "crop":
            mask = f.crop(mask, *(numbers[each] for each in ("top", "left", "height", "width")))
        elif name == "resize":
            mask = f.resize(mask, list(numbers["size"]))
        elif name == "pad":
            (fill,) = set(numbers["fill"])
            mask = f.pad(mask, list(numbers["padding"]), fill, numbers["padding_mode"])
        elif name in ("hflip", "vflip"):
            mask = f.horizontal_flip(mask) if name == "hflip" else f.vertical_flip(mask)
        else:
            assert name not in ("affine", "perspective", "rotate"), name
    return mask.as_subclass(torch.Tensor)[0]
