"""How a dataset is shown."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any


def shown_dataset(dataset: Any, facts: Mapping[str, Any]) -> str:
    """The repr of a dataset, as torchvision shows its own. ``facts``: what else there is to say, such as
    where it lies."""
    body = [f"Number of datapoints: {len(dataset)}"]
    body += [f"{head}: {fact}" for head, fact in facts.items()]
    functions = {
        "Transform: ": dataset.transform,
        "Target transform: ": dataset.target_transform,
    }
    given = {head: function for head, function in functions.items() if function is not None}
    if given:
        body.append("StandardTransform")
    for head, function in given.items():
        body[-1] += "\n" + head + textwrap.indent(repr(function), " " * len(head)).lstrip()
    return "\n".join([f"Dataset {type(dataset).__name__}", *(f"    {line}" for line in body)])


def shown_files(files: list[str]) -> str:
    """The first of several files, and how many there are."""
    return f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else "".join(files)
