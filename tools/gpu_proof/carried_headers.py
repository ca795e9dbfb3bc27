"""Headers that travel with the checkout to a machine that lacks them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from machine import ROOT, said_by
from step import StepFailed

CARRIED = ROOT / ".gpu-carry"
HEADERS = ["jpeglib.h", "jmorecfg.h", "jerror.h", "jconfig.h"]
LIBRARY = "libjpeg.so.62"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def system_jpeg() -> tuple[list[Path], Path] | None:
    """(headers, library) that a compiler finds by itself."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None
    source = "#include <stdio.h>\n#include <jpeglib.h>\nint main() { return 0; }\n"
    done = subprocess.run(
        [compiler, "-x", "c++", "-H", "-fsyntax-only", "-"],
        input=source, capture_output=True, text=True, check=False,
    )  # fmt: skip
    library = said_by(compiler, "-print-file-name=libjpeg.so")
    if done.returncode != 0 or not Path(library).is_absolute():
        return None
    read = [Path(line.split()[-1]) for line in done.stderr.splitlines() if line.startswith(".")]
    folder = next(path.parent for path in read if path.name == "jpeglib.h")
    # No code here reads it, but part of the interface; the others are known by now.
    read.append(folder / "jerror.h")
    headers = {path.name: path for path in read if path.name in HEADERS and path.exists()}
    return [headers[name] for name in HEADERS if name in headers], Path(library).resolve()


def jpeg_options(carry: Path | None) -> list[str]:
    """What CMake must be told of libjpeg-turbo: nothing where the system has it. A folder given by name
    is taken in any case."""
    if carry is None and system_jpeg() is not None:
        return []
    folder = (carry or CARRIED) / "jpeg"
    headers, library = folder / "include", folder / "lib" / LIBRARY
    missing = [path for path in (headers / "jpeglib.h", headers / "jconfig.h", library)]
    missing = [path for path in missing if not path.exists()]
    if missing:
        raise StepFailed(
            f"libjpeg-turbo's headers are not on this machine, and {missing[0]} does not exist: run "
            "`python tools/gpu_proof pack` where they are, and let the folder travel along"
        )
    return [
        f"-DJPEG_INCLUDE_DIR={headers}",
        f"-DJPEG_LIBRARY={library}",
        f"-DCMAKE_INSTALL_RPATH={library.parent}",
    ]


def python_options(carry: Path | None) -> list[str]:
    """The same of Python's headers, which the packages of some systems leave out."""
    if Path(sysconfig.get_path("include"), "Python.h").exists():
        return []
    folder = (carry or CARRIED) / PYTHON
    if not (folder / "Python.h").exists():
        raise StepFailed(
            f"Python's headers are not on this machine, and {folder} does not exist: run "
            f"`{PYTHON} tools/gpu_proof pack` where they are, and let the folder travel along"
        )
    return [f"-DPython_INCLUDE_DIR={folder}"]


def pack(carry: Path) -> int:
    found = system_jpeg()
    if found is None:
        print("gpu_proof: libjpeg-turbo's headers are not on this machine either", file=sys.stderr)
        return 1
    headers, library = found
    lacking = set(HEADERS) - {path.name for path in headers}
    if lacking:
        print(f"gpu_proof: no {', '.join(sorted(lacking))} beside jpeglib.h", file=sys.stderr)
        return 1
    if LIBRARY not in library.name:
        print(f"gpu_proof: {library} is not {LIBRARY}", file=sys.stderr)
        return 1
    folder = carry / "jpeg"
    shutil.rmtree(carry, ignore_errors=True)
    (folder / "include").mkdir(parents=True)
    (folder / "lib").mkdir()
    for path in headers:
        shutil.copy(path, folder / "include")
    # Under the name that the loader asks for. No link: those need not survive the journey.
    shutil.copy(library, folder / "lib" / LIBRARY)
    packed = [*HEADERS, LIBRARY]
    python = Path(sysconfig.get_path("include"))
    if (python / "Python.h").exists():
        shutil.copytree(python, carry / PYTHON)
        packed.append(f"the headers of {PYTHON}")
    size = sum(path.stat().st_size for path in carry.rglob("*") if path.is_file())
    print(f"{carry}: {', '.join(packed)}; {size / 1024:.0f} KiB")
    return 0
