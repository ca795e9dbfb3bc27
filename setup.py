"""Builds `fastloader._native` with CMake; everything else is in pyproject.toml.

Environment variables:
    FASTLOADER_NATIVE             0: install pure Python, without CMake and without a compiler.
    FASTLOADER_CUDA               auto (nvcc found; the default) | on | off
    FASTLOADER_LIBJPEG            auto (libjpeg-turbo's headers found; the default) | on | off: Pillow
                                  decodes the JPEGs that the own decoder leaves
    FASTLOADER_PNG                auto (zlib's headers found; the default) | on | off: by Pillow
    FASTLOADER_WEBP               auto (libwebp's headers found; the default) | on | off: by Pillow
    FASTLOADER_URING              auto (liburing's headers found; the default) | on | off: threads alone
                                  read files ahead
    CMAKE_CUDA_ARCHITECTURES      which GPUs to compile for; CMake's own CUDAARCHS works too.
    CMAKE_ARGS                    further arguments for CMake, as a shell would read them.
    CMAKE_BUILD_TYPE              Release unless said otherwise.
    CMAKE_BUILD_PARALLEL_LEVEL    compile jobs; the processors this process may use.
    CMAKE_GENERATOR               Ninja when it is found.
"""

import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

# CMake remembers what it read from these when it first configured a folder.
REMEMBERED = [
    *("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "CUDAARCHS", "CUDA_PATH"),
    *("CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS", "CMAKE_PREFIX_PATH", "CMAKE_TOOLCHAIN_FILE"),
]


def wants_native() -> bool:
    asked = os.environ.get("FASTLOADER_NATIVE", "1")
    if asked not in ("", "0", "1"):
        raise SystemExit(f"FASTLOADER_NATIVE={asked}: use 0 or 1")
    if asked == "0":
        return False
    if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
        return True
    print(
        f"fastloader: native code is for Linux on x86-64 and aarch64; on {sys.platform} "
        f"{platform.machine()} the pure-Python version is installed.",
        file=sys.stderr,
    )
    return False


def find_program(module_name: str, directory: str, program: str) -> str | None:
    """The program inside this Python's package of that name, else the one on PATH."""
    if importlib.util.find_spec(module_name) is not None:
        module = importlib.import_module(module_name)
        candidate = Path(getattr(module, directory, ""), program)
        if candidate.is_file():
            return str(candidate)
    return shutil.which(program)


def failure_message(output: str) -> str:
    """CMake's own words, or the compiler's first error, out of a long log."""
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("CMake Error"):
            block = []
            for following in lines[number + 1 :]:
                if following and not following.startswith(" "):
                    break
                block.append(following)
            text = textwrap.dedent("\n".join(block)).strip()
            return text or line
    for line in lines:
        if "error:" in line or "fatal error" in line:
            return line.strip()
    return "\n".join(lines[-15:])


# What CMake or the compiler says if a package of the system is missing, and which package has it.
MISSING = [
    (
        r"No CMAKE_(C|CXX)_COMPILER could be found|Could not find (the )?compiler (specified|set) in",
        "fastloader's native module needs a C++17 compiler, and none was found{variables}.\n"
        "  Debian, Ubuntu:  apt-get install g++\n"
        "  Fedora, RHEL:    dnf install gcc-c++\n"
        "  conda:           conda install -c conda-forge cxx-compiler",
    ),
    (
        r"Could NOT find Python .*Development|fatal error: '?Python\.h",
        "fastloader's native module needs the headers of Python {version}, and {python} has none.\n"
        "  Debian, Ubuntu:  apt-get install python3-dev   (of another Python: python{version}-dev)\n"
        "  Fedora, RHEL:    dnf install python3-devel   (of another Python: python{version}-devel)",
    ),
]


def missing_package(message: str) -> str | None:
    """Which package to install, if the message says that something of the system is missing."""
    for pattern, advice in MISSING:
        if re.search(pattern, message, re.DOTALL):
            asked = [f"{name}={os.environ[name]}" for name in ("CC", "CXX") if name in os.environ]
            return advice.format(
                variables=f" ({', '.join(asked)})" if asked else "",
                version="{}.{}".format(*sys.version_info[:2]),
                python=sys.executable,
            )
    return None


# cmake/Cuda.cmake's word for it.
WITHOUT_NVCC = "fastloader: without CUDA (FASTLOADER_CUDA=auto)"
NOTICE = (
    "fastloader: built without CUDA: nvcc was not found. Batches reach an NVIDIA GPU through torch's "
    "own streams, which is slower. With the CUDA toolkit's nvcc on PATH (or CUDACXX set to it): "
    "FASTLOADER_CUDA=on pip install --force-reinstall --no-deps ."
)


class BuildFailed(Exception):
    pass


def run(command: list[str], doing: str) -> str:
    """What the command printed."""
    print("+", shlex.join(command), flush=True)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    output = []
    for line in process.stdout:
        output.append(line)
        print(line, end="", flush=True)
    if process.wait() != 0:
        message = failure_message("".join(output))
        message = missing_package(message) or message
        raise BuildFailed(f"fastloader: {doing} failed.\n\n{message}")
    return "".join(output)


class CMakeExtension(Extension):
    def __init__(self, name: str) -> None:
        super().__init__(name, sources=[])


class BuildExtension(build_ext):
    def build_extension(self, ext: Extension) -> None:
        module = Path(self.get_ext_fullpath(ext.name)).resolve()
        try:
            self.build_with_cmake(module)
        except BuildFailed as failure:
            text = str(failure)
            if "FASTLOADER_NATIVE=0" not in text:
                text += "\n\nTo install without native code: FASTLOADER_NATIVE=0 pip install ."
            raise SystemExit(f"\n{text}") from None
        if not module.is_file():
            raise SystemExit(f"fastloader: CMake succeeded but did not install {module}")

    def build_with_cmake(self, module: Path) -> None:
        cmake = find_program("cmake", "CMAKE_BIN_DIR", "cmake")
        if cmake is None:
            raise BuildFailed("fastloader: CMake was not found. pip install cmake")
        build_type = os.environ.get("CMAKE_BUILD_TYPE") or ("Debug" if self.debug else "Release")
        configure = [
            f"-DCMAKE_BUILD_TYPE={build_type}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DFASTLOADER_CUDA={os.environ.get('FASTLOADER_CUDA') or 'auto'}",
            f"-DFASTLOADER_LIBJPEG={os.environ.get('FASTLOADER_LIBJPEG') or 'auto'}",
            f"-DFASTLOADER_PNG={os.environ.get('FASTLOADER_PNG') or 'auto'}",
            f"-DFASTLOADER_WEBP={os.environ.get('FASTLOADER_WEBP') or 'auto'}",
            f"-DFASTLOADER_URING={os.environ.get('FASTLOADER_URING') or 'auto'}",
            "-DFASTLOADER_PYTHON=ON",
            # What only tests use is not in a wheel; tools/check_wheel.py looks.
            f"-DFASTLOADER_TEST_HOOKS={'ON' if self.editable_mode or self.inplace else 'OFF'}",
        ]
        if importlib.util.find_spec("pybind11") is not None:
            import pybind11

            configure.append(f"-Dpybind11_DIR={pybind11.get_cmake_dir()}")
        generator = os.environ.get("CMAKE_GENERATOR", "")
        ninja = find_program("ninja", "BIN_DIR", "ninja")
        if ninja and generator in ("", "Ninja"):
            configure += ["-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        if os.environ.get("CMAKE_CUDA_ARCHITECTURES"):
            configure.append(f"-DCMAKE_CUDA_ARCHITECTURES={os.environ['CMAKE_CUDA_ARCHITECTURES']}")
        configure += shlex.split(os.environ.get("CMAKE_ARGS", ""))

        tag = f"{sys.implementation.cache_tag}-{platform.machine()}"
        build_dir = ROOT / "build" / f"{tag}-{build_type.lower()}"
        identity = [cmake, str(ROOT), sys.version, *configure]
        configure = [cmake, "-S", str(ROOT), "-B", str(build_dir), *configure]
        fresh = prepare(build_dir, identity)
        try:
            found = run(configure, "configuring")
        except BuildFailed:
            if fresh:
                raise
            # What an earlier run found may have been uninstalled since.
            print("fastloader: configuring again, in an empty folder", flush=True)
            shutil.rmtree(build_dir)
            prepare(build_dir, identity)
            found = run(configure, "configuring")

        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
        run([cmake, "--build", str(build_dir), "--parallel", jobs], "compiling")
        install = [cmake, "--install", str(build_dir), "--prefix", str(module.parent.parent)]
        run([*install, "--strip"] if build_type == "Release" else install, "installing")
        if WITHOUT_NVCC in found:  # at the end, where it is read
            print(f"\n{NOTICE}", file=sys.stderr, flush=True)


def prepare(build_dir: Path, identity: list[str]) -> bool:
    """Empties the folder unless it was configured with these tools; true when it is empty.

    pip's isolated builds bring CMake, Ninja and pybind11 in a folder that is gone afterwards;
    CMake's cache would still point there.
    """
    remembered = {name: os.environ[name] for name in REMEMBERED if name in os.environ}
    now = json.dumps({"tools": identity, "environment": remembered}, indent=1)
    record = build_dir / "fastloader-identity.json"
    if record.is_file() and record.read_text() == now:
        return False
    if build_dir.exists():
        shutil.rmtree(build_dir)
    build_dir.mkdir(parents=True)
    record.write_text(now)
    return True


class BuildPure(build_py):
    """Marks the wheel, so that at run time "without native code" differs from "lost it"."""

    MARKER = "fastloader/_pure_wheel"

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            # One that an earlier, native install of this checkout left here would be imported.
            suffix = sysconfig.get_config_var("EXT_SUFFIX")
            (ROOT / f"fastloader/_native{suffix}").unlink(missing_ok=True)
        else:
            (Path(self.build_lib) / self.MARKER).touch()

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        return (
            outputs if self.editable_mode else [*outputs, os.path.join(self.build_lib, self.MARKER)]
        )


if wants_native():
    setup(
        ext_modules=[CMakeExtension("fastloader._native")],
        cmdclass={"build_ext": BuildExtension},
    )
else:
    setup(cmdclass={"build_py": BuildPure})
