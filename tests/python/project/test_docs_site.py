"""tools/docs_site makes the pages of the site from the repository's files. The stage of .ci/run that
builds the site needs MkDocs; these tests do not."""

import importlib
import re
import subprocess
import sys

import pytest
from tool_modules import tool_modules

from support import HANG, PACKAGE_ROOT

TOOL = PACKAGE_ROOT / "tools" / "docs_site"
if not (TOOL / "tree.py").is_file() or not (PACKAGE_ROOT / "docs").is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)


@pytest.fixture(scope="module")
def site():
    """What the tool's modules hold."""
    with tool_modules(TOOL) as modules:
        yield modules


NAV = re.findall(
    r"^ +- ([\w./-]+\.(?:md|py))$",
    (TOOL / "mkdocs.yml").read_text().partition("\nvalidation:")[0],
    re.MULTILINE,
)


def test_the_navigation_has_every_page_once():
    docs = {p.relative_to(PACKAGE_ROOT).as_posix() for p in (PACKAGE_ROOT / "docs").rglob("*.md")}
    assert docs <= set(NAV)
    assert len(NAV) == len(set(NAV))
    examples = {f"examples/{path.name}" for path in (PACKAGE_ROOT / "examples").glob("*.py")}
    assert examples == {path for path in NAV if path.endswith(".py")}


def test_the_api_has_every_public_name(site):
    pages = "".join(
        site.with_names(path.read_text()) for path in (PACKAGE_ROOT / "docs" / "api").glob("*.md")
    )
    names = re.findall(r"^::: fastloader\.(\S+)$", pages, re.MULTILINE)
    shown = set(names)
    assert len(shown) == len(names)
    fastloader = importlib.import_module("fastloader")
    public = set(fastloader.__all__)
    for part in "datasets", "transforms":
        public |= {
            f"{part}.{name}" for name in importlib.import_module(f"fastloader.{part}").__all__
        }
    assert public <= shown
    # Dunder methods apart, what it shows exists.
    for name in shown:
        module, _, attribute = f"fastloader.{name}".rpartition(".")
        if not module.startswith("fastloader.compat"):  # some need the framework
            assert hasattr(importlib.import_module(module), attribute), name


def test_a_file_stands_for_the_names_in_its_all(site):
    apply, more = "::: fastloader.transforms.apply", "\n    options:\n      members: false\n"
    file = f"## Replay\n\n::: fastloader/transforms/_apply.py{more}\nText."
    assert site.with_names(file) == f"## Replay\n\n{apply}{more}\nText."
    assert site.with_names(f"{apply}\n\n{file}") == f"{apply}\n\n## Replay\n\n\n\nText."
    with pytest.raises(SystemExit, match=r"draws\.py has no __all__"):
        site.with_names("::: fastloader/transforms/_recipe/draws.py")


def test_absent_pages_leave_the_navigation_with_their_section(site):
    nav = ["README.md", {"A": ["a.md", {"B": ["b.md"]}]}, {"Examples": ["examples/e.py"]}]
    assert list(site.pages_of(nav)) == ["README.md", "a.md", "b.md", "examples/e.py"]
    left = ["README.md", {"A": ["a.md"]}, {"Examples": ["examples/e.md"]}]
    assert site.without(nav, {"b.md"}) == left


def test_links_outside_of_the_site_become_text(site):
    pages = {"README.md", "docs/a.md", "examples/e.py"}
    text = (
        "[a](docs/a.md#part) [`code`](setup.py) [e](examples/e.py) [w](https://pytorch.org) [t](#try)\n"
        "![plot](docs/p.png)\n"
        "```python\n[kept](setup.py)\n```\n"
        "It is <!-- figure: x -->5<!-- /figure --> times.\n"
    )
    made, pictures = site.rewritten("README.md", text, pages)
    assert made == (
        "[a](docs/a.md#part) `code` [e](examples/e.md) [w](https://pytorch.org) [t](#try)\n"
        "![plot](docs/p.png)\n"
        "```python\n[kept](setup.py)\n```\n"
        "It is 5 times.\n"
    )
    assert pictures == {"docs/p.png"}
    made, _ = site.rewritten("docs/a.md", "[up](../README.md) [b](b.md)", pages)
    assert made == "[up](../README.md) b"
    # Where the text is the name of a page, the page's title says more.
    text = "[docs/tuning.md](docs/tuning.md) [tuning.md](docs/tuning.md) [it](docs/tuning.md)"
    made, _ = site.rewritten("README.md", text, {"docs/tuning.md"})
    titled = "[Reading the report](docs/tuning.md)"
    assert made == f"{titled} {titled} [it](docs/tuning.md)"


def test_the_tree_has_pages_and_pictures(site, tmp_path):
    site.write_tree(tmp_path, ["README.md", "benchmarks/results/peers.md", "examples/resume.py"])
    assert (tmp_path / "README.md").read_text().startswith("---\nhide:")
    assert list((tmp_path / "benchmarks" / "results").glob("*.png"))
    listing = (tmp_path / "examples" / "resume.md").read_text()
    assert (
        listing.startswith("---\nsearch:\n  exclude: true\n---\n\n# resume.py\n")
        and "def in_a_process" in listing
    )


def test_docstrings_become_markdown(site):
    docstring = (
        "It does it ::\n\n    for x in y:\n        ...\n\n"
        "More (docs/tuning.md). As here::\n\n    a()\n"
    )
    assert site.as_markdown(docstring) == (
        "It does it\n\n```python\nfor x in y:\n    ...\n```\n\n"
        "More ([Reading the report](../tuning.md)). As here:\n\n```python\na()\n```"
    )


def test_pages_that_the_package_names_are_in_the_navigation():
    for path in (PACKAGE_ROOT / "fastloader").rglob("*.py"):
        for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text()):
            assert page in NAV, (path, page)


def test_broken_links_are_found(site, tmp_path):
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1><img src="p.png">')
    (tmp_path / "c.html").write_text('<script src="https://pytorch.org/x.js"></script>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there"></a><a href="b.html#gone"></a><a href="d.html"></a>'
        '<a href="#nowhere"></a><a href="https://pytorch.org/x"></a>'
    )
    assert site.broken_links(tmp_path) == [
        "a.html: #nowhere",
        "a.html: b.html#gone",
        "a.html: d.html",
        "b.html: p.png",
        "c.html: https://pytorch.org/x.js",
    ]


def test_it_says_what_it_needs(tmp_path):
    shown = subprocess.run(
        [sys.executable, TOOL, "--help"], capture_output=True, text=True, timeout=HANG
    )
    assert shown.returncode == 0 and "--out" in shown.stdout
    if importlib.util.find_spec("mkdocs") is None:
        done = subprocess.run(
            [sys.executable, TOOL, "--out", tmp_path / "site"],
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        assert done.returncode == 1 and 'pip install ".[docs]"' in done.stderr
