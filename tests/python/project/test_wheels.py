"""What is published: the Pythons and systems in pyproject.toml are those of its classifiers, of the
workflows and of the scripts."""

import re
import shlex

import pytest

from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "tools" / "build_wheels.sh").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

# Wheels are built for it, and no test has run on it yet.
UNTRIED = {"3.14"}

WORKFLOWS = sorted((PACKAGE_ROOT / ".github" / "workflows").glob("*.yml"))


def pyproject():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    return tomllib.loads((PACKAGE_ROOT / "pyproject.toml").read_text())


def wheels():
    return pyproject()["tool"]["cibuildwheel"]


def pythons_of(builds):
    return {f"{major}.{minor}" for major, minor in re.findall(r"cp(\d)(\d+)-manylinux_\*", builds)}


def test_the_pythons_are_those_of_the_classifiers():
    builds = wheels()["build"]
    classifiers = " ".join(pyproject()["project"]["classifiers"])
    tried = set(re.findall(r"Python :: (3\.\d+)", classifiers))
    assert len(builds) == 5 and pythons_of(" ".join(builds)) == tried | UNTRIED
    assert not tried & UNTRIED
    oldest = min(tried | UNTRIED, key=lambda version: int(version.split(".")[1]))
    assert pyproject()["project"]["requires-python"] == f">={oldest}"


def test_free_threaded_pythons_and_musl_get_none():
    assert pythons_of("cp314t-manylinux_* cp314-musllinux_*") == set()
    assert all(re.fullmatch(r"cp\d+-manylinux_\*", build) for build in wheels()["build"])


def test_the_architectures_are_those_of_the_build():
    listed = wheels()["environment"]["CUDAARCHS"].split(";")
    cmake = (PACKAGE_ROOT / "cmake" / "Cuda.cmake").read_text()
    assert listed == re.search(r"CMAKE_CUDA_ARCHITECTURES ([\d][^)]*)\)", cmake)[1].split()


def test_a_wheel_lacks_no_library():
    """What setup.py takes if it finds it must be there."""
    options = set(
        re.findall(r"-D(FASTLOADER_[A-Z]+)=\{os", (PACKAGE_ROOT / "setup.py").read_text())
    )
    environment = wheels()["environment"]
    assert {"FASTLOADER_CUDA", "FASTLOADER_LIBJPEG"} < options
    assert {name: environment[name] for name in options} == dict.fromkeys(options, "on")


def test_the_scripts_that_are_called_are_there():
    called = [wheels()["before-all"], wheels()["test-command"], *wheels()["repair-wheel-command"]]
    for workflow in WORKFLOWS:
        called += re.findall(r"- run: (.*)", workflow.read_text())
    files = [
        word.removeprefix("{project}/")
        for command in called
        for word in shlex.split(command)
        if "/" in word and not word.startswith("{dest_dir}")
    ]
    assert {".ci/run", "tools/build_wheels.sh", "tools/check_wheel.py"} < set(files)
    for file in files:
        assert (PACKAGE_ROOT / file).is_file(), file
    script = (PACKAGE_ROOT / "tools" / "build_wheels.sh").read_text()
    for option in re.findall(r"build_wheels.sh (--[\w-]+)", " ".join(called)):
        assert f"  {option}) " in script, option


def test_no_step_of_a_workflow_does_more_than_to_call_a_script():
    for workflow in WORKFLOWS:
        for command in re.findall(r"run: (.*)", workflow.read_text()):
            assert re.fullmatch(r"bash [\w./]+( --[\w-]+)?", command), (workflow.name, command)


def test_actions_are_named_by_their_commit():
    for workflow in WORKFLOWS:
        for action in re.findall(r"uses: (.*)", workflow.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", action), action


def test_publishing_is_started_by_hand_and_needs_no_password():
    text = (PACKAGE_ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    publish = text[text.index("\n  publish:") :]
    assert "if: github.event_name == 'workflow_dispatch' && inputs.publish\n" in publish
    assert "environment: pypi" in publish and "id-token: write" in publish
    assert "id-token" not in text[: text.index("\n  publish:")]
    assert "secrets." not in text and "password" not in re.sub(r"#.*", "", text)
