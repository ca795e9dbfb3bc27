"""What the project tells people to install, and what its extras bring along."""

import ast
import importlib.metadata
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


# --- extras -------------------------------------------------------------------------------------


def project():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    return tomllib.loads((PACKAGE_ROOT / "pyproject.toml").read_text())["project"]


def requirements(text_list):
    packaging = pytest.importorskip("packaging.requirements")
    for text in text_list:
        requirement = packaging.Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def pulled_in(requirement, extras, seen):
    """What an installed package brings along, as (who asks, requirement)."""
    if requirement.name == "fastloader":
        for extra in requirement.extras:
            yield from brought_by(extra, extras, seen)
        return
    if requirement.name in seen:
        return
    seen.add(requirement.name)
    try:
        further = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for each in requirements(further):
        yield requirement, each
        yield from pulled_in(each, extras, seen)


def brought_by(extra, extras, seen=None):
    seen = {"torch"} if seen is None else seen
    for requirement in requirements(extras[extra]):
        yield None, requirement
        yield from pulled_in(requirement, extras, seen)


def torch_of_the_readme():
    versions = set(
        re.findall(r"pip install torch==(\S+)", (PACKAGE_ROOT / "README.md").read_text())
    )
    assert len(versions) == 1, versions
    return versions.pop()


def test_no_extra_changes_torch():
    """torchvision fits one torch only, and whoever leaves its version open gets the newest of both."""
    extras = project()["optional-dependencies"]
    for extra in extras:
        wanted = list(brought_by(extra, extras))
        named = {requirement.name for _, requirement in wanted}
        if extra != "test":
            assert not {"torchvision", "torchaudio", "timm"} & named, extra
        assert not any(who is None and each.name == "torch" for who, each in wanted), extra
        for asker, requirement in wanted:
            if requirement.name != "torch":
                continue
            assert torch_of_the_readme() in requirement.specifier, (extra, asker, requirement)
            if "==" in str(requirement.specifier):
                pins = {
                    str(r.specifier) for who, r in wanted if who is None and r.name == asker.name
                }
                assert any(pin.startswith("==") for pin in pins), (extra, asker.name, pins)


def test_pillow_is_the_one_whose_pixels_are_promised():
    pytest.importorskip("packaging")
    from packaging.requirements import Requirement

    extras = project()["optional-dependencies"]
    for extra in ("pillow", "bench", "test-core"):
        asked = [Requirement(text) for text in extras[extra] if text.startswith("pillow")]
        for python, older in (("3.10", True), ("3.11", False), ("3.14", False)):
            fit = [each for each in asked if each.marker.evaluate({"python_version": python})]
            assert len(fit) == 1, (extra, python)
            assert "13.0.0" in fit[0].specifier or older
            assert ("12.3.0" in fit[0].specifier) == older, (extra, python)
    assert all("==" in text for text in extras["test-core"] if text.startswith("pillow"))
