"""Builds the documentation site: python tools/docs_site --out DIR

Needs the packages of the docs extra, and neither torch nor the built package. Every warning is an
error, and every link inside of the site must lead to a page and an anchor that exist.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

import tree
from links import broken_links


def build(out: Path, folder: Path) -> int:
    """Builds the site from pages in ``folder``, and returns how many they are.

    Raises:
        SystemExit: with what is wrong.
    """
    try:
        from mkdocs.commands.build import build as build_site
        from mkdocs.config import load_config
        from mkdocs.exceptions import Abort, ConfigurationError
    except ImportError as error:
        raise SystemExit(
            f'{error}: run pip install ".[docs]", or only what that extra names'
        ) from None

    os.chdir(tree.HERE)  # where mkdocs.yml's relative paths begin
    try:
        config = load_config("mkdocs.yml", docs_dir=str(folder), site_dir=str(out), strict=True)
        handler = config.plugins["mkdocstrings"].config.handlers["python"]
        handler["paths"] = [str(tree.REPOSITORY)]
        absent = {
            path for path in tree.pages_of(config.nav) if not (tree.REPOSITORY / path).is_file()
        }
        for path in sorted(absent):
            print(f"note: {path} does not exist yet, and is left out")
        pages = [path for path in tree.all_pages(config.nav) if path not in absent]
        config.nav = tree.without(config.nav, absent)
        tree.write_tree(folder, pages)
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build_site(config)
        finally:
            config.plugins.on_shutdown()
    except (Abort, ConfigurationError) as error:
        raise SystemExit(f"the site is not built: {error}") from None
    return len(pages)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tools/docs_site", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the site")
    out = parser.parse_args().out.resolve()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        pages = build(out, Path(folder))
    broken = broken_links(out)
    if broken:
        sys.exit("\n".join(["links that lead nowhere:", *broken]))
    print(f"{pages} pages in {out}")


if __name__ == "__main__":
    main()
