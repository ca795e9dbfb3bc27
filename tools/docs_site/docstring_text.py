"""Docstrings, which are also read in a terminal, as Markdown."""

from __future__ import annotations

import re
import textwrap

from tree import REPOSITORY, title_of

# An example: a paragraph that ends in `::`, and the indented lines below it.
_EXAMPLE = re.compile(r"( ?)::\n\n((?:[ ]{4}.*(?:\n|$)|\n)+)")
_PAGE = re.compile(r"(?<![`\w/])docs/([\w-]+)\.md")


def as_markdown(text: str) -> str:
    """The text of a docstring with its examples as blocks of Python, and names of pages as links from
    docs/api/, where the pages of the API lie."""

    def fenced(match: re.Match[str]) -> str:
        code = textwrap.dedent(match[2]).strip("\n")
        return f"{'' if match[1] else ':'}\n\n```python\n{code}\n```\n\n"

    def link(match: re.Match[str]) -> str:
        if not (REPOSITORY / match[0]).is_file():
            return match[0]
        return f"[{title_of(match[0])}](../{match[1]}.md)"

    return _PAGE.sub(link, _EXAMPLE.sub(fenced, text)).rstrip()
