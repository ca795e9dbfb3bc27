"""What mkdocs.yml names as an extension of griffe, which reads the package's sources."""

from __future__ import annotations

from typing import Any

import griffe
from docstring_text import as_markdown


class Docstrings(griffe.Extension):
    """Makes the docstrings Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
