"""PNG files of every kind that the standard knows, made from chunks: Pillow writes only a few."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Colour type and depth.
KINDS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8)]
KINDS += [(4, 8), (4, 16), (6, 8), (6, 16)]
# First column and row, and the steps from there, of each pass of an interlaced picture.
PASSES = [
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4)),
    *((1, 0, 2, 2), (0, 1, 1, 2)),
]


def chunk(name, data=b""):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def header(width, height, depth, color, interlaced=False):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced))


def samples(rng, width, height, color, depth):
    """(height, width, channels): gradients and noise, so that each filter has something to predict."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    y, x = np.mgrid[0:height, 0:width]
    planes = []
    for _ in range(CHANNELS[color]):
        a, b, c = numbers.uniform(-2, 2, 3)
        planes.append(0.5 + 0.6 * np.sin(a * x / 5 + b * y / 4 + c))
    made = np.stack(planes, -1) + numbers.normal(0, rng.choice([0, 0.02, 1]), (height, width, 1))
    return (made.clip(0, 1) * ((1 << depth) - 1)).round().astype(np.uint16)


def packed(pixels, depth):
    """The rows of samples as a PNG holds them, without filters."""
    rows = pixels.reshape(pixels.shape[0], -1)
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in rows]
    if depth == 8:
        return [row.astype(np.uint8).tobytes() for row in rows]
    bits = (rows[:, :, None] >> np.arange(depth - 1, -1, -1)) & 1
    return [np.packbits(row.reshape(-1).astype(np.uint8)).tobytes() for row in bits]


def filtered(rng, rows, step):
    """The rows with a filter each, drawn at random."""
    made = []
    above = np.zeros(len(rows[0]), np.int32)
    for packed_row in rows:
        row = np.frombuffer(packed_row, np.uint8).astype(np.int32)
        left, corner = (
            np.concatenate([np.zeros(step, np.int32), line])[: len(row)] for line in (row, above)
        )
        kind = rng.randrange(5)
        if kind == 4:
            guess = left + above - corner
            distances = np.abs(np.stack([guess - left, guess - above, guess - corner]))
            predicted = np.choose(distances.argmin(0), [left, above, corner])
        else:
            predicted = [np.zeros_like(row), left, above, (left + above) // 2][kind]
        made.append(bytes([kind]) + ((row - predicted) & 255).astype(np.uint8).tobytes())
        above = row
    return b"".join(made)


def data_chunks(rng, stream):
    """The stream in IDAT chunks, some of them empty."""
    pieces, at = [], 0
    while at < len(stream):
        length = rng.choice([0, 1, 7, 4096, len(stream)])
        pieces.append(chunk(b"IDAT", stream[at : at + length]))
        at += length
    return b"".join(pieces)


def random_png(rng, color=None, depth=None, interlaced=None, size=None, before=b"", after=b""):
    """A picture of random size, pixels, filters, palette and transparency."""
    if color is None:
        color, depth = rng.choice(KINDS)
    if interlaced is None:
        interlaced = rng.random() < 0.4
    width, height = size or (
        rng.choice([1, 2, 3, 5, 7, 8, 9, 31, rng.randint(1, 90)]) for _ in "ab"
    )
    pixels = samples(rng, width, height, color, depth)
    step = max(1, CHANNELS[color] * depth // 8)
    passes = PASSES if interlaced else [(0, 0, 1, 1)]
    parts = [pixels[y::dy, x::dx] for x, y, dx, dy in passes]
    raw = b"".join(filtered(rng, packed(part, depth), step) for part in parts if part.size)
    chunks = [SIGNATURE, header(width, height, depth, color, interlaced), before]
    if color == 3:
        # Often shorter than the indices reach.
        chunks.append(chunk(b"PLTE", rng.randbytes(3 * rng.randint(1, 1 << depth))))
    if color in (0, 2, 3) and rng.random() < 0.5:
        entries = {0: 2, 2: 6, 3: rng.randint(1, 1 << depth)}[color]
        chunks.append(chunk(b"tRNS", rng.randbytes(entries)))
    stream = zlib.compress(raw, rng.choice([0, 1, 6, 9]))
    return b"".join([*chunks, data_chunks(rng, stream), after, chunk(b"IEND")])
