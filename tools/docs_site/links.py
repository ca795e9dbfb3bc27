"""The links of a built site. MkDocs looks at those of the Markdown pages; this also sees the ones that
the API reference and the theme make."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.targets.append(value)
                if name == "src" or tag == "link":
                    self.fetched.append(value)


def broken_links(site: Path) -> list[str]:
    """``page: target`` of each link inside of the site that leads to no file or to no anchor, and of
    each script, style or picture that would be fetched from elsewhere."""
    pages = {path.resolve(): _Page(path.read_text()) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at a server's root
            continue
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.fetched and parts.scheme != "data":
                    broken.append(f"{path.relative_to(site.resolve())}: {target}")
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            anchor = unquote(parts.fragment)
            if not there.is_file() or (
                anchor and there in pages and anchor not in pages[there].anchors
            ):
                broken.append(f"{path.relative_to(site.resolve())}: {target}")
    return sorted(set(broken))
