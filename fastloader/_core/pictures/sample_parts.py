"""Lists the parts of a sample of pictures for ``loader.plan()``."""

from __future__ import annotations

from fastloader._core.handoff import Obstacles, SamplePart
from fastloader.datasets._formats.sample_form import SampleForm


def native_parts(form: SampleForm, pictures: str, then: str = "") -> list[SamplePart]:
    """Lists the parts of samples whose ``pictures`` the decode threads make, in these words. ``then``:
    what is done to a batch of pictures and labels."""
    picture, label, others = form.places()
    found = [
        SamplePart(picture, f"made natively, {pictures}, straight into the batch{then}", "pictures")
    ]
    if label:
        found.append(SamplePart(label, f"taken from the dataset's targets{then}", "labels"))
    reading = "read from the dataset's columns, in this process"
    return found + [SamplePart(each, reading) for each in others]


def python_parts(
    form: SampleForm, obstacles: Obstacles, pictures: str, rest: str
) -> list[SamplePart]:
    """Lists the parts of samples that Python makes. ``pictures`` and ``rest``: by whom, in words."""
    picture, label, others = form.places()
    found = [SamplePart(picture, pictures, "pictures", obstacles.pictures)]
    if label:
        found.append(SamplePart(label, rest, "labels", obstacles.labels))
    return found + [SamplePart(each, rest) for each in others]
