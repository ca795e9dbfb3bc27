"""WebP files of every kind that Pillow writes, and pieces of their containers."""

import io
import struct

from pictures import edge, picture


def random_webp(rng, size=None, frames=None, **options):
    """Lossy or lossless, with and without alpha, still or moving, in random sizes."""
    mode = rng.choice(["RGB", "RGBA"])
    width, height = size or (edge(rng), edge(rng))
    count = frames or rng.choice([1, 1, 3])
    first, *others = [picture(rng, width, height, mode) for _ in range(count)]
    options = {
        "quality": rng.randint(1, 100),
        "lossless": rng.random() < 0.4,
        "method": rng.randint(0, 4),
        "exact": rng.random() < 0.5,
        **options,
    }
    if others:
        # libwebp cuts transparent edges off a first frame, and a frame like that is left to Pillow.
        for corner in ((0, 0), (width - 1, height - 1)):
            first.putpixel(corner, (*first.getpixel(corner)[:3], 255)[: len(mode)])
        options.update(save_all=True, append_images=others, duration=40)
    out = io.BytesIO()
    first.save(out, "WEBP", **options)
    return out.getvalue()


def riff(*chunks):
    """A WebP of these chunks, (name, bytes) each."""
    body = b"WEBP"
    for name, data in chunks:
        body += name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body
