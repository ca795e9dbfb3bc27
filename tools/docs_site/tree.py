"""The Markdown pages of the site, made from the repository's files.

They keep their paths, so that a link from one page to another needs no change. A Python file becomes a
page that lists it. A link to a file that is not in the site becomes its text."""

from __future__ import annotations

import ast
import posixpath
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_WITHOUT_NAVIGATION = "---\nhide:\n  - navigation\n---\n\n"
_WITHOUT_SEARCH = "---\nsearch:\n  exclude: true\n---\n\n"
_FILE_SHOWN = re.compile(r"^::: (\S+)/(\w+\.py)$((?:\n    .*)*)", re.MULTILINE)
_COMMENT = re.compile(r"<!-- /?figure.*?-->")


def pages_of(nav: Iterable[object]) -> Iterator[str]:
    """The paths that a navigation names, at any depth."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for inside in entry.values():
                yield from pages_of([inside] if isinstance(inside, str) else inside)


def without(nav: list[object], absent: set[str]) -> list[object]:
    """The navigation without these paths, nor sections that become empty, and with listings' pages in
    the place of Python files."""
    kept: list[object] = []
    for entry in nav:
        if isinstance(entry, dict):
            (title, inside), *_ = entry.items()
            inside = without(inside, absent)
            if inside:
                kept.append({title: inside})
        elif entry not in absent:
            kept.append(page_path(str(entry)))
    return kept


def page_path(path: str) -> str:
    """The path of the page that a file becomes."""
    return f"{path[:-3]}.md" if path.endswith(".py") else path


def all_pages(nav: list[object]) -> list[str]:
    """The paths of the files that become pages: what the navigation names, and what docs/ has beside
    that, so that MkDocs says which page the navigation lacks."""
    docs = [path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md")]
    return sorted({*pages_of(nav), *docs})


def write_tree(folder: Path, paths: Iterable[str]) -> None:
    """Writes the pages, and the pictures that they show, below ``folder``."""
    pages = set(paths)
    for path in sorted(pages):
        source = REPOSITORY / path
        target = folder / page_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".py"):
            target.write_text(listing(path, source.read_text()))
            continue
        text, pictures = rewritten(path, with_names(source.read_text()), pages)
        # The first page has no neighbours in its part of the navigation.
        target.write_text(f"{_WITHOUT_NAVIGATION}{text}" if path == "README.md" else text)
        for picture in pictures:
            (folder / picture).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / picture, folder / picture)
    for name in ("site.css", "favicon.svg", "iframe-worker.js"):
        shutil.copyfile(HERE / name, folder / name)


def with_names(text: str) -> str:
    """Returns the text of a page of the API with `::: fastloader.part.Name` for each name in the
    ``__all__`` of a file in the place of `::: fastloader/part/file.py`, with the same options. A name
    that the page shows by itself is left out."""
    shown = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))

    def blocks(match: re.Match[str]) -> str:
        folder, file, options = match.groups()
        names = [f"{folder.replace('/', '.')}.{name}" for name in _public(f"{folder}/{file}")]
        return "\n\n".join(f"::: {name}{options}" for name in names if name not in shown)

    return _FILE_SHOWN.sub(blocks, text)


def _public(path: str) -> list[str]:
    """The ``__all__`` of a Python file."""
    for node in ast.parse((REPOSITORY / path).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"{path} has no __all__")


def listing(path: str, text: str) -> str:
    """A page that shows a Python file. A search finds the pages that explain instead."""
    name = posixpath.basename(path)
    begin = f"{_WITHOUT_SEARCH}# {name}\n\n`{path}` in the repository:\n\n"
    return f"{begin}```python\n{text.rstrip()}\n```\n"


def title_of(path: str) -> str:
    """The first heading of a page, or the name of another file."""
    heading = re.search(r"^# (.*)$", (REPOSITORY / path).read_text(), re.MULTILINE)
    return heading[1] if heading and path.endswith(".md") else posixpath.basename(path)


def rewritten(path: str, text: str, pages: set[str]) -> tuple[str, set[str]]:
    """The text of a page with links that work in the site; and the pictures that it shows."""
    pictures: set[str] = set()

    def link(match: re.Match[str]) -> str:
        bang, label, target = match.groups()
        if target.startswith(("http://", "https://", "mailto:", "#")):
            return match[0]
        name, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        if bang or there.endswith((".png", ".svg", ".jpg")):
            pictures.add(there)
            return match[0]
        if there not in pages:
            return label
        if label in (name, there, posixpath.basename(there)):
            label = title_of(there)  # in the repository a link names the file
        return f"[{label}]({page_path(name)}{'#' if anchor else ''}{anchor})"

    def outside_code(part: str) -> str:
        return _LINK.sub(link, _COMMENT.sub("", part))

    parts = _FENCED.split(text)  # text and fenced blocks in turn
    parts[::2] = map(outside_code, parts[::2])
    return "".join(parts), pictures
