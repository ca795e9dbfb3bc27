"""Links in the documents lead somewhere, quoted messages are in the code. Snippets: test_snippets.py."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from support import PACKAGE_ROOT, require_program

DOCS = PACKAGE_ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)

PAGES = [
    *[PACKAGE_ROOT / name for name in ("README.md", "HACKING.md", "tests/emulation/README.md")],
    *sorted(DOCS.rglob("*.md")),
]


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
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        # The API has an index of its own, whose pages the test of the site looks at.
        own = name == "README.md" or (name.startswith("api/") and name != "api/README.md")
        assert own or f"({name})" in index, name


def docstrings(node):
    """A docstring may quote a message; it does not give it."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for each in ast.walk(node):
        if isinstance(each, kinds) and ast.get_docstring(each, clean=False) is not None:
            yield each.body[0].value


def strings(node):
    """The texts in a piece of code, with a NUL where a value is put in."""
    about = set(docstrings(node))
    for each in ast.walk(node):
        if each in about:
            continue
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
        for path in [
            *(PACKAGE_ROOT / "fastloader").rglob("*.py"),
            PACKAGE_ROOT / "setup.py",
            *pillows,
        ]
        for text in strings(ast.parse(path.read_text()))
    ]
    messages = explained_messages()
    assert len(messages) > 20
    for message, pattern in messages.items():
        assert message.startswith("`") and message.endswith("`"), message
        if message not in PYTHONS:
            assert any(re.search(pattern, each, re.DOTALL) for each in said), message


# What Python itself says.
PYTHONS = {"`cannot import name 'FastLoader' from 'fastloader' (unknown location)`"}


def explained_messages():
    """The headings of the page of messages, and what each of them matches."""
    text = (DOCS / "troubleshooting.md").read_text()
    return {
        message: ".*".join(re.escape(part) for part in message.strip("`").split("..."))
        for message in re.findall(r"^### (.*)$", text, re.MULTILINE)
    }


def warnings_of(path):
    """The texts that a module warns with: a string, or the sum of several."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "warnings.warn":
            said = [text for text in strings(call.args[0]) if " " in text]
            if said:
                yield said[0]


def test_every_warning_is_explained():
    """Nobody has asked for a warning, so the page has each that is written where it is given."""
    patterns = explained_messages().values()
    found = [
        (path, text)
        for path in sorted((PACKAGE_ROOT / "fastloader").rglob("*.py"))
        for text in warnings_of(path)
    ]
    assert len(found) > 10
    lacking = [
        each for each in found if not any(re.search(p, each[1], re.DOTALL) for p in patterns)
    ]
    assert not lacking


# What a newcomer is sent to.
MAPS = [
    PACKAGE_ROOT / name
    for name in (
        "HACKING.md",
        "docs/hacking/tour.md",
        "docs/hacking/adding.md",
        "fastloader/_core/README.md",
        "tests/emulation/README.md",
    )
]


@pytest.mark.parametrize("page", MAPS, ids=lambda path: path.name)
def test_files_that_a_map_names_are_there(page):
    """By their whole path, or by its end: `engine.py`."""
    require_program("git")
    if not (PACKAGE_ROOT / ".git").exists():
        pytest.skip("needs a clone: an unpacked copy has no list of files")
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=PACKAGE_ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    named = re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|cpp|h|cu))`", page.read_text())
    assert named
    lacking = [
        name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in tracked)
    ]
    assert not lacking


@pytest.mark.parametrize("page", MAPS, ids=lambda path: path.name)
def test_methods_that_a_map_names_are_there(page):
    """`Class.method`, of Python classes and C++ ones: a definition of that name in the class's file."""
    sources = [*(PACKAGE_ROOT / "fastloader").rglob("*.py"), *(PACKAGE_ROOT / "csrc").rglob("*.h")]
    texts = [path.read_text() for path in sources]
    for kind, name in re.findall(r"`([A-Z]\w+)(?:\.|::)(\w+)", page.read_text()):
        homes = [text for text in texts if re.search(rf"\b(?:class|struct) {kind}\b", text)]
        assert homes, kind
        assert any(re.search(rf"\b{name}\b", text) for text in homes), f"{kind}.{name}"
