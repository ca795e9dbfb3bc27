"""Links in the documents lead somewhere, quoted messages are in the code. Snippets: test_snippets.py."""

import ast
import re
from pathlib import Path

import pytest

from support import PACKAGE_ROOT

DOCS = PACKAGE_ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)

PAGES = [PACKAGE_ROOT / "README.md", PACKAGE_ROOT / "HACKING.md", *sorted(DOCS.glob("*.md"))]


def outside_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(path):
    """Of its headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_code(page.read_text())):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_the_index_names_every_page():
    index = (DOCS / "README.md").read_text()
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def strings(node):
    """The texts in a piece of code, with a NUL where a value is put in."""
    for each in ast.walk(node):
        if isinstance(each, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in each.values]
            yield "".join(map(str, parts))
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def test_messages_are_those_of_the_code():
    PIL = pytest.importorskip("PIL")
    pillows = [Path(PIL.__file__).with_name(name) for name in ("Image.py", "ImageFile.py")]
    said = [
        text
        for path in [*(PACKAGE_ROOT / "fastloader").rglob("*.py"), *pillows]
        for text in strings(ast.parse(path.read_text()))
    ]
    text = (DOCS / "troubleshooting.md").read_text()
    messages = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert len(messages) > 20
    for message in messages:
        assert message.startswith("`") and message.endswith("`"), message
        pattern = ".*".join(re.escape(part) for part in message.strip("`").split("..."))
        assert any(re.search(pattern, each, re.DOTALL) for each in said), message
