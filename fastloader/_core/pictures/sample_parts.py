"""Lists the parts of a sample of pictures for ``loader.plan()``."""

from __future__ import annotations

from fastloader._core.handoff import Obstacles, SamplePart
from fastloader._core.pictures.in_place import InPlace
from fastloader.datasets._formats.sample_form import SampleForm

_TARGETS, _COLUMNS = "taken from the dataset's targets", "read from the dataset's columns"


def native_parts(form: SampleForm, decoding: str, then: str = "") -> list[SamplePart]:
    """Lists the parts of samples whose pictures the decode threads make.

    Args:
        decoding: on how many threads, in words.
        then: what is done to a batch of pictures and labels.
    """
    pictures = f"made natively, {decoding}, straight into the batch{then}"
    columns = f"{_COLUMNS}, in this process"
    return python_parts(form, Obstacles(form, "", ""), pictures, f"{_TARGETS}{then}", columns)


def in_place_parts(stand_in: InPlace, obstacles: Obstacles, where: str) -> list[SamplePart]:
    """Lists the parts of samples that ``stand_in`` makes. ``where``: in which workers, in words."""
    words = [f"{each}, {where}" for each in (stand_in.words, _TARGETS, _COLUMNS)]
    return python_parts(stand_in.images.form, obstacles, *words)


def python_parts(
    form: SampleForm, obstacles: Obstacles, pictures: str, labels: str, others: str
) -> list[SamplePart]:
    """Lists the parts of samples of this form. ``pictures``, ``labels`` and ``others``: by whom they are
    made, in words."""
    picture, label, rest = form.places()
    found = [SamplePart(picture, pictures, "pictures", obstacles.pictures)]
    if label:
        found.append(SamplePart(label, labels, "labels", obstacles.labels))
    return found + [SamplePart(each, others) for each in rest]
