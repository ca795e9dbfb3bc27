"""JPEG pictures for ``fastloader demo`` that look, weigh and decode like small photographs.

Each is a landscape of one of six kinds: noise of many octaves under gradients and shapes, and grain
as a sensor leaves it, without which a JPEG is several times too small and decodes too fast.
"""

from __future__ import annotations

import dataclasses
import io
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.float32]
Random = np.random.Generator

_QUALITY = 88
_GRAIN = 4.0  # standard deviation, of 255
_TO_LIGHT: Floats = np.array([0.3, 0.59, 0.11], np.float32)


@dataclasses.dataclass(frozen=True)
class Task:
    """One picture to make."""

    path: Path
    kind: str
    width: int
    height: int
    seed: tuple[int, int]


def missing_pictures(folder: Path, count: int, width: int, height: int, seed: int) -> list[Task]:
    """Lists what is to be made until ``folder`` holds ``count`` pictures, in one subfolder for each
    kind. Those that an interrupted run has made stay."""
    kinds = list(SCENES)
    tasks = []
    for index in range(count):
        kind = kinds[index % len(kinds)]
        path = folder / kind / f"{kind}_{index:05d}.jpg"
        if not path.exists():
            tasks.append(Task(path, kind, width, height, (seed, index)))
    return tasks


def make_pictures(tasks: list[Task], processes: int) -> Iterator[int]:
    """Makes them all; yields how many have become ready, now and then."""
    if not tasks:
        return
    pool = ProcessPoolExecutor(
        min(processes, len(tasks)),
        mp_context=multiprocessing.get_context("spawn"),
        # Ctrl-C reaches every process of the terminal; this one ends the others.
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        chunks = [tasks[start : start + 20] for start in range(0, len(tasks), 20)]
        for finished in as_completed([pool.submit(write_pictures, chunk) for chunk in chunks]):
            yield finished.result()
    finally:
        pool.shutdown(cancel_futures=True)


def write_pictures(tasks: list[Task]) -> int:
    """Returns how many there were."""
    for task in tasks:
        task.path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when complete: a picture that exists is a whole one.
        unfinished = task.path.with_suffix(".part")
        made = picture(task.kind, task.width, task.height, task.seed)
        encoded = io.BytesIO()
        made.save(encoded, "JPEG", quality=_QUALITY)
        try:
            # Not by Pillow, which takes no notice of a disk that has room for a part only.
            unfinished.write_bytes(encoded.getvalue())
            os.replace(unfinished, task.path)
        except OSError:  # a full disk
            unfinished.unlink(missing_ok=True)
            raise
    return len(tasks)


def picture(kind: str, width: int, height: int, seed: tuple[int, int]) -> Image.Image:
    """Makes a picture, the same for the same arguments."""
    random = np.random.default_rng(seed)
    pixels = SCENES[kind](random, width, height)
    # White balance, exposure and colour differ from photograph to photograph; without that a
    # network would only have to learn six colours.
    light = (pixels @ _TO_LIGHT)[..., None]
    pixels = light + (pixels - light) * np.float32(random.uniform(0.3, 1.2))
    balance = random.uniform(0.75, 1.2, 3) * random.uniform(0.65, 1.2)
    pixels = pixels * balance.astype(np.float32)
    shade = 0.9 + 0.1 * fractal_noise(random, width, height, 2)
    grain = random.standard_normal(pixels.shape, np.float32) * np.float32(_GRAIN)
    pixels = pixels * shade[..., None] * 255 + grain
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def fractal_noise(
    random: Random,
    width: int,
    height: int,
    first: int = 3,
    stretch: float = 1.0,
    roughness: float = 0.55,
) -> Floats:
    """Makes noise of all octaves from ``first`` cells across down to pixels, within -1..1 and 0 on
    average. ``stretch`` > 1 draws it out sideways."""
    total = np.zeros((height, width), np.float32)
    cells, weight, weights = float(first), 1.0, 0.0
    while cells < width or not weights:
        grid_size = (max(2, round(cells)), max(2, round(cells * stretch * height / width)))
        grid = random.uniform(-1, 1, grid_size[::-1]).astype(np.float32)
        octave = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
        total += weight * np.asarray(octave)
        weights += weight
        cells, weight = cells * 2, weight * roughness
    return total * (1.6 / weights)


def _colour(random: Random, red: float, green: float, blue: float) -> Floats:
    """Draws a colour that is about this one."""
    return (np.array([red, green, blue]) + random.uniform(-0.08, 0.08, 3)).astype(np.float32)


def _blend(below: Floats, above: Floats, how_much: Floats) -> Floats:
    weight = how_much.clip(0, 1).astype(np.float32)[..., None]
    return below + (above - below) * weight


def _heights(height: int) -> Floats:
    """Returns 0 at the top to 1 at the bottom, a column."""
    return np.linspace(0, 1, height, dtype=np.float32)[:, None]


def _sky(random: Random, width: int, height: int) -> Floats:
    zenith, horizon = _colour(random, 0.3, 0.5, 0.85), _colour(random, 0.85, 0.85, 0.85)
    fall = np.broadcast_to(_heights(height), (height, width)) * 1.4
    sky = _blend(np.broadcast_to(zenith, (height, width, 3)), horizon, fall)
    clouds = fractal_noise(random, width, height, 3, stretch=2.0) + random.uniform(-0.5, 0.2)
    return _blend(sky, _colour(random, 0.95, 0.95, 0.95), clouds * 2.5)


def _textured(random: Random, width: int, height: int, colour: Floats, depth: float) -> Floats:
    noise = fractal_noise(random, width, height, 6, roughness=0.75)
    return colour * (1 + depth * noise[..., None])


def mountains(random: Random, width: int, height: int) -> Floats:
    scene = _sky(random, width, height)
    near = _colour(random, 0.25, 0.27, 0.28)
    texture = _textured(random, width, height, np.ones(3, np.float32), 0.6)
    for layer in range(3):
        ridge = fractal_noise(random, width, 64, 2 + layer, roughness=0.5)[32]
        top = random.uniform(0.25, 0.4) + 0.2 * layer - 0.3 * ridge
        colour = _blend(near[None, None], _colour(random, 0.65, 0.72, 0.8), np.full((1, 1), 0.9))
        rock = colour[0, 0] * (0.9 - 0.25 * layer) * texture
        depth = (_heights(height) - top[None]).astype(np.float32)
        if layer == 0:
            snow = ((0.12 - depth) * 14 + 2 * fractal_noise(random, width, height, 8)).clip(0, 1)
            rock = _blend(rock, _colour(random, 0.93, 0.94, 0.97), snow)
        scene = _blend(scene, rock, depth * height / 2)
    return scene


def sea(random: Random, width: int, height: int) -> Floats:
    scene = _sky(random, width, height)
    horizon = random.uniform(0.3, 0.55)
    waves = fractal_noise(random, width, height, 4, stretch=6.0, roughness=0.8)
    depth = _heights(height) - np.float32(horizon)
    water = _colour(random, 0.1, 0.32, 0.42) * (1 + 0.9 * waves[..., None])
    glints = (waves - 0.45) * 8 * random.uniform(0.2, 1)
    water = _blend(water, _colour(random, 0.95, 0.92, 0.85), glints)
    return _blend(scene, water, np.broadcast_to(depth * height / 2, (height, width)))


def forest(random: Random, width: int, height: int) -> Floats:
    leaves = fractal_noise(random, width, height, 8, roughness=0.9)
    scene = _textured(random, width, height, _colour(random, 0.22, 0.36, 0.15), 0.9)
    scene = _blend(scene, _colour(random, 0.75, 0.8, 0.5), (leaves - 0.25) * 3)
    columns = np.arange(width, dtype=np.float32)
    bark = 1 + 0.5 * fractal_noise(random, width, height, 30, stretch=0.2)
    for _ in range(random.integers(7, 16)):
        middle, half = random.uniform(0, width), width * random.uniform(0.008, 0.035)
        bend = np.cumsum(random.normal(0, 0.25, height)).astype(np.float32)[:, None]
        reach = half + np.abs(bend).max() + 1
        part = np.s_[:, max(0, int(middle - reach)) : int(middle + reach) + 1]
        across = (columns[None][part] - np.float32(middle) - bend) / np.float32(half)
        light = (1.1 - 0.7 * across) * bark[part]
        trunk = _colour(random, 0.28, 0.2, 0.14) * light[..., None]
        scene[part] = _blend(scene[part], trunk, (1 - np.abs(across)) * half)
    return scene


def city(random: Random, width: int, height: int) -> Floats:
    scene = _sky(random, width, height) * random.uniform(0.5, 1)
    for _ in range(random.integers(9, 16)):
        left, wide = int(random.integers(-30, width)), int(width * random.uniform(0.08, 0.25))
        top = int(height * random.uniform(0.1, 0.75))
        right, left = min(width, left + wide), max(0, left)
        if right - left < 12:
            continue
        block = scene[top:, left:right]
        grey = _colour(random, 0.45, 0.43, 0.42) * random.uniform(0.5, 1.4)
        block[:] = _textured(random, right - left, height - top, grey, 0.25)
        pitch, gap = int(random.integers(6, 14)), int(random.integers(2, 4))
        rows, columns = (height - top) // pitch, (right - left) // pitch
        lit = random.uniform(size=(rows, columns)) < random.uniform(0.1, 0.6)
        for row, column in np.ndindex(rows, columns):
            pane = block[
                row * pitch + gap : (row + 1) * pitch, column * pitch + gap : (column + 1) * pitch
            ]
            pane[:] = (0.95, 0.85, 0.55) if lit[row, column] else grey * 0.4
    return scene


def meadow(random: Random, width: int, height: int) -> Floats:
    scene = _sky(random, width, height)
    horizon = random.uniform(0.05, 0.4)
    grass = fractal_noise(random, width, height, 12, stretch=0.25, roughness=0.9)
    ground = _colour(random, 0.35, 0.5, 0.18) * (1 + 0.9 * grass[..., None])
    petal, rows, columns = random.uniform(0.3, 1, 3), *np.ogrid[:height, :width]
    for _ in range(random.integers(30, 120)):
        y = height * random.uniform(horizon, 1)
        radius = 1.5 + 9 * (y / height - horizon) * random.uniform(0.6, 1.2)
        x = random.uniform(0, width)
        # Only the flower's own square: whole-picture masks would take most of the time.
        box = np.s_[
            max(0, int(y - radius - 1)) : int(y + radius + 2),
            max(0, int(x - radius - 1)) : int(x + radius + 2),
        ]
        distance = np.hypot(rows[box[0]] - y, columns[:, box[1]] - x).astype(np.float32)
        tint = (petal * random.uniform(0.8, 1.2)).astype(np.float32)
        ground[box] = _blend(ground[box], tint, radius - distance)
        ground[box] = _blend(ground[box], _colour(random, 0.9, 0.75, 0.1), radius / 3 - distance)
    depth = (_heights(height) - horizon) * height / 4
    return _blend(scene, ground, np.broadcast_to(depth, (height, width)))


def desert(random: Random, width: int, height: int) -> Floats:
    scene = _sky(random, width, height)
    top = random.uniform(0.3, 0.5)
    bends = 5 * fractal_noise(random, width, height, 2)
    grains = 0.1 * fractal_noise(random, width, height, 20, roughness=0.9)
    for layer in range(4):
        crest = fractal_noise(random, width, 16, 2, roughness=0.25)[8]
        depth = _heights(height) - (top + 0.14 * layer - 0.12 * crest)[None]
        ripples = np.sin(depth * np.float32(random.uniform(120, 260)) + bends)
        shine = 0.75 + 0.12 * layer - 0.9 * depth.clip(0, 0.5) + 0.09 * ripples + grains
        sand = _colour(random, 0.85, 0.64, 0.42) * shine[..., None]
        scene = _blend(scene, sand.astype(np.float32), depth * height / 2)
    return scene


SCENES: dict[str, Callable[[Random, int, int], Floats]] = {
    "city": city,
    "desert": desert,
    "forest": forest,
    "meadow": meadow,
    "mountains": mountains,
    "sea": sea,
}
