"""Draws a grid of pictures with their titles, by matplotlib."""

from __future__ import annotations

import io
import math

from matplotlib.figure import Figure

from fastloader._core.batch.shown_pictures import ShownPictures

_INCHES = 1.7  # the width of a picture


_LONGEST_TITLE = 18


class PictureGrid(Figure):
    """A Figure without pyplot: it needs no display, and nothing has to close it."""

    def __init__(self, shown: ShownPictures) -> None:
        count = len(shown.pixels)
        columns = min(count, max(4, math.ceil(math.sqrt(count))))
        rows = math.ceil(count / columns)
        height, width = shown.pixels[0].shape[:2]
        cell = _INCHES * min(3.0, max(0.3, height / width)) + (0.3 if shown.titles else 0.1)
        size = (_INCHES * columns, cell * rows + (0.4 if shown.note else 0.0))
        super().__init__(figsize=size, layout="constrained")
        if shown.note:
            self.suptitle(shown.note, fontsize=9)
        axes = self.subplots(rows, columns, squeeze=False).flat
        for number, cell_axes in enumerate(axes):
            cell_axes.axis("off")
            if number < count:
                cell_axes.imshow(shown.pixels[number], interpolation="antialiased")
                if shown.titles:
                    cell_axes.set_title(_shortened(shown.titles[number]), fontsize=9)

    def _repr_png_(self) -> bytes:
        """Draws what a notebook shows, also where pyplot was never imported."""
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def _shortened(title: str) -> str:
    # A $ would begin a formula.
    title = title.replace("$", r"\$")
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
