"""What an install from source says if something of the system is missing."""

import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from support import PACKAGE_ROOT

if not (PACKAGE_ROOT / "setup.py").is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

pytest.importorskip("setuptools", minversion="77")  # older ones refuse pyproject.toml
pytest.importorskip("pybind11")

SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "setup.py", "version.txt")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources, in which a build leaves what it likes."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(PACKAGE_ROOT / name, folder)
    for name in ("cmake", "csrc", "fastloader"):
        shutil.copytree(PACKAGE_ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so"))
    return folder


def build(tree, **environment):
    """How the build of the native module ends, and what it printed."""
    ours = ("FASTLOADER_", "CMAKE_", "CC", "CXX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "-b", str(tree / "made")],
        cwd=tree,
        env={**kept, "FASTLOADER_CUDA": "off", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    shutil.rmtree(tree / "build", ignore_errors=True)
    return done.returncode, done.stdout


def real_cmake():
    module = pytest.importorskip("cmake")
    return os.path.join(module.CMAKE_BIN_DIR, "cmake")


@pytest.fixture
def without_compilers(tmp_path):
    """A PATH of all programs but compilers."""
    real_cmake()
    for folder in reversed(os.get_exec_path()):
        for program in os.scandir(folder) if os.path.isdir(folder) else ():
            compiler = ("gcc", "g++", "clang", "cc", "++", "CC", "icx", "icpx", "nvc", "xl")
            if not any(word in program.name for word in compiler):
                link = tmp_path / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program.path)
    return str(tmp_path)


def test_a_missing_compiler_is_named_as_a_package(tree, without_compilers):
    code, said = build(tree, PATH=without_compilers)
    end = said[said.rindex("fastloader: configuring failed.") :]
    assert code != 0
    assert "needs a C++17 compiler, and none was found." in end
    assert "apt-get install g++" in end and "dnf install gcc-c++" in end
    assert "FASTLOADER_NATIVE=0 pip install ." in end and "CMAKE_" not in end


@pytest.mark.parametrize("name", ["CC", "CXX"])
def test_a_compiler_that_is_not_there_is_named_with_its_variable(tree, name):
    real_cmake()
    code, said = build(tree, **{name: "a-compiler-nobody-has"})
    end = said[said.rindex("fastloader: configuring failed.") :]
    assert code != 0
    assert f"none was found ({name}=a-compiler-nobody-has" in end and "apt-get install g++" in end


def test_missing_headers_of_python_are_named_as_a_package(tree):
    real_cmake()
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    # As CMake says it of a Python without headers.
    code, said = build(tree, CMAKE_ARGS=f"-DPython_INCLUDE_DIR={tree / 'nowhere'}")
    end = said[said.rindex("fastloader: configuring failed.") :]
    version = "{}.{}".format(*sys.version_info[:2])
    assert code != 0
    assert f"needs the headers of Python {version}, and {sys.executable} has none" in end
    assert "apt-get install python3-dev" in end and "dnf install python3-devel" in end
    assert f"python{version}-dev" in end and "Could NOT find" not in end


# --- without nvcc -------------------------------------------------------------------------------

CMAKE = """#!{python}
import pathlib, sys
if "--install" in sys.argv:
    prefix = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1])
    (prefix / "fastloader").mkdir(parents=True, exist_ok=True)
    (prefix / "fastloader" / "_native{suffix}").touch()
elif "-S" in sys.argv:
    asked = [word.partition("=")[2] for word in sys.argv if "FASTLOADER_CUDA=" in word]
    print("-- fastloader: " + {found!r}.format(asked=asked[0]))
"""


@pytest.mark.parametrize(
    ("asked", "found", "told"),
    [
        ("auto", "without CUDA (FASTLOADER_CUDA={asked})", True),
        ("", "without CUDA (FASTLOADER_CUDA={asked})", True),
        ("off", "without CUDA (FASTLOADER_CUDA={asked})", False),
        ("auto", "CUDA 13.0, architectures 90-real", False),
    ],
)
def test_the_last_line_of_an_install_without_nvcc_says_so(tree, tmp_path, asked, found, told):
    """A CMake that compiles nothing."""
    program = tmp_path / "cmake" / "cmake"
    program.parent.mkdir()
    (program.parent / "__init__.py").write_text(f"CMAKE_BIN_DIR = {str(program.parent)!r}\n")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    program.write_text(CMAKE.format(python=sys.executable, suffix=suffix, found=found))
    program.chmod(0o755)
    code, said = build(tree, PYTHONPATH=str(tmp_path), FASTLOADER_CUDA=asked)
    assert code == 0, said
    last = said.rstrip().splitlines()[-1]
    assert last.startswith("fastloader: built without CUDA: nvcc was not found.") == told, said
    assert ("built without CUDA" in said) == told
    assert ("FASTLOADER_CUDA=on pip install" in last) == told


def test_that_line_is_cmakes_own():
    """setup.py looks for the words of cmake/Cuda.cmake."""
    words = "fastloader: without CUDA (FASTLOADER_CUDA=${FASTLOADER_CUDA})"
    assert words in (PACKAGE_ROOT / "cmake" / "Cuda.cmake").read_text()
    assert words.replace("${FASTLOADER_CUDA}", "auto") in (PACKAGE_ROOT / "setup.py").read_text()
