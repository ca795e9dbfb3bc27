"""What the project tells people to install, and what its extras bring along."""

import ast
import re

import pytest

from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "pyproject.toml").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

FOLDERS = ("fastloader", "csrc", "docs", "tools", "benchmarks", "examples", "cmake", ".ci")
KINDS = {".py", ".cpp", ".cu", ".h", ".md", ".toml", ".sh", ".txt", ".cmake", ".yml", ""}


def sources():
    yield from (path for path in PACKAGE_ROOT.iterdir() if path.is_file())
    for folder in FOLDERS:
        for path in (PACKAGE_ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def texts(path):
    """The file in pieces that a command does not reach across."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    elif path.suffix in (".cpp", ".cu", ".h"):
        yield re.sub(r'"\s*\n\s*"', "", text)  # a literal over several lines
    elif path.suffix == ".md":
        fenced = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
        yield from fenced.findall(text)
        for inline in re.findall(r"`[^`]+`", fenced.sub("", text)):
            yield " ".join(inline.split())
    else:
        yield text.replace("\\\n", " ")


def asked_of_the_index(text):
    """The arguments of each ``pip install`` that are this project's name."""
    for command in re.findall(r"pip install((?:[ \t]+[^\s&|;]+)+)", text):
        for word in command.split():
            if re.fullmatch(r"fastloader(\[.*\])?([<>=!~].*)?", word.strip("'\"`.,:()")):
                yield f"pip install{command}"


def test_nobody_is_sent_to_a_name_on_the_index_that_is_not_ours():
    """Whoever takes that name would run code on our users' machines."""
    paths = [path for path in sources() if path.suffix in KINDS]
    assert len(paths) > 200
    found = [
        f"{path.relative_to(PACKAGE_ROOT)}: {command}"
        for path in paths
        for text in texts(path)
        for command in asked_of_the_index(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install --no-binary fastloader fastloader.", 2),
        ("(pip install 'fastloader[pillow]')", 1),
        ("pip install --force-reinstall fastloader==0.1", 1),
        ('pip install ".[demo,pillow]" && fastloader demo', 0),
        ("pip install --force-reinstall --no-deps . in the checkout", 0),
        ("pip install lmdb; fastloader needs it", 0),
    ],
)
def test_such_a_command_would_be_seen(text, found):
    assert len(list(asked_of_the_index(text))) == found
