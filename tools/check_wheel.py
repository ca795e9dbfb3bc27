"""Proves a wheel: what it links, what it exports, that it has nothing only tests use, and that it
imports without torch.

    python tools/check_wheel.py [--without-import] WHEEL

Run it with the Python the wheel is for. ``--without-import``: its module is of another architecture.
Needs readelf for a native wheel and nothing else. Exits with 1 after naming everything that is wrong.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Whole names up to the version; anything else (libtorch, libc10, libcudart, libcuda, ...) would tie
# the wheel to one build of torch or to a driver.
NEEDED = re.compile(
    r"(libjpeg|libz|libwebp|libwebpdemux|libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|librt|ld-linux-[\w-]+)\.so(\.\d+)*"
)

# What auditwheel put into the wheel: a name with a hash in it, which no other package's library has.
GRAFTED = re.compile(
    r"(libjpeg|libz|libwebp|libwebpdemux|libsharpyuv|liburing)-[0-9a-f]{8}\.so(\.\d+)*"
)
GRAFTED_FOLDER = "fastloader.libs"
LARGEST = 20 * 2**20  # bytes of a wheel

IMPORT = """
import json, sys
import fastloader
assert "torch" not in sys.modules and "numpy" not in sys.modules, "import fastloader pulled them in"
commands = [name for name in sys.modules if name.startswith("fastloader.cli")]
assert not commands, f"import fastloader pulled {commands} in"
from importlib import metadata
report = {
    "file": fastloader.__file__,
    "build_info": fastloader.build_info(),
    "package": metadata.version("fastloader"),
    "attribute": fastloader.__version__,
}
assert "torch" not in sys.modules, "build_info() imported torch"
if sys.argv[1] == "native":
    import fastloader._native
    report["native"] = fastloader._native.__version__
print(json.dumps(report, default=str))
"""


class Problems:
    def __init__(self) -> None:
        self.found: list[str] = []

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.found.append(problem)


def output(*command: str | Path, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env={k: v for k, v in os.environ.items() if not k.startswith("FASTLOADER_")},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    except FileNotFoundError:
        raise SystemExit(f"check_wheel: {command[0]} is needed (Debian: binutils)") from None
    if done.returncode != 0:
        raise SystemExit(f"check_wheel: {command[0]} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def check_links(module: Path, grafted: set[str], problems: Problems) -> None:
    dynamic = output("readelf", "-dW", module)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    print("needs    ", ", ".join(sorted(needed)))
    for library in needed:
        problems.expect(
            NEEDED.fullmatch(library) is not None or library in grafted, f"it needs {library}"
        )
    # From fastloader/ to the folder of grafted libraries, or from that folder to itself.
    own = {f"$ORIGIN/../{GRAFTED_FOLDER}", "$ORIGIN"} if grafted else set()
    for tag in ("RPATH", "RUNPATH"):
        for paths in re.findall(rf"\({tag}\).*\[(.+)\]", dynamic):
            problems.expect(
                set(paths.split(":")) <= own, f"{tag} {paths} of the machine that built it"
            )


def check_exports(module: Path, problems: Problems) -> None:
    """One strong symbol, PyInit__native.

    Weak ones (and GNU unique ones) are instances of the standard library's own templates, inline
    functions and type information: libstdc++'s headers give its namespaces default visibility, so
    -fvisibility=hidden does not reach them. Type information of types made only of built-in ones,
    such as `void ()` in a std::function, has nothing that could hide it. Each is the same
    definition wherever it comes from. One that names a type of ours, of pybind11, of libjpeg, of zlib,
    of libwebp or of CUDA is not such an instance.
    """
    exported = []
    for line in output("readelf", "--dyn-syms", "-W", module).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[6] == "UND":
            continue
        binding, name = fields[4], fields[7].split("@")[0]
        exported.append((binding, name))
    strong = sorted(name for binding, name in exported if binding == "GLOBAL")
    others = sorted(name for binding, name in exported if binding in ("WEAK", "UNIQUE"))
    print("exports  ", f"{', '.join(strong)}; {len(others)} weak ones")
    problems.expect(strong == ["PyInit__native"], f"it exports {strong}, not only PyInit__native")
    standard = re.compile(
        r"_ZT?[A-Z]*(GV)?N?K?(S[tabsiod]|9__gnu_cxx|10__cxxabiv1)|_ZN?KS[tabsiod]"
    )
    foreign = re.compile(r"fastloader|pybind11|jpeg|inflate|[Ww]eb[Pp]|[Cc]uda", re.ASCII)
    builtin = re.compile(r"_ZT[IS][PK]*F[a-z]+E")
    for name in others:
        if builtin.fullmatch(name):
            continue
        problems.expect(
            standard.match(name) is not None and foreign.search(name) is None,
            f"it exports {name}, which is not the standard library's",
        )


# What only tests use, by words of its own that the module would hold.
HOOKS = (b"DelayedSource", b"twin_delay_seed", b"twin_fail_on_call", b"injected failure")


def check_hooks(module: Path, problems: Problems) -> None:
    content = module.read_bytes()
    for word in HOOKS:
        problems.expect(
            word not in content,
            f"it was compiled with FASTLOADER_TEST_HOOKS: it holds {word.decode()!r}",
        )


def check_floor(module: Path) -> None:
    """The oldest system it runs on, as the newest symbol versions it asks for."""
    text = output("readelf", "-VW", module)
    newest = []
    for family in ("GLIBC", "GLIBCXX", "CXXABI", "GCC", "LIBJPEG", "LIBJPEGTURBO"):
        versions = re.findall(rf"\b{family}_(\d+(?:\.\d+)*)\b", text)
        if versions:
            highest = max(versions, key=lambda v: [int(part) for part in v.split(".")])
            newest.append(f"{family} {highest}")
    print("at least ", ", ".join(newest))


def check_import(wheel: Path, native: bool, folder: Path, problems: Problems) -> None:
    environment = folder / "venv"
    venv.create(environment, with_pip=True, symlinks=True)
    python = environment / "bin" / "python"
    output(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    # -I: neither this folder nor PYTHONPATH can lend the wheel a module. A good wheel, a pure one
    # included, has nothing to warn of.
    asked = [python, "-I", "-W", "error", "-c", IMPORT, "native" if native else "pure"]
    report = json.loads(output(*asked, cwd=elsewhere).splitlines()[-1])
    problems.expect(
        Path(report["file"]).is_relative_to(environment.resolve()),
        f"it imported {report['file']}, not the installed wheel",
    )
    stated = (ROOT / "version.txt").read_text().split()[0]
    for where in ("package", "attribute", *(["native"] if native else [])):
        problems.expect(
            report[where] == stated, f"{where} version {report[where]}, version.txt says {stated}"
        )
    print("version  ", stated)
    print("build_info() without torch:")
    for key, value in report["build_info"].items():
        print(f"  {key}: {value}")


def main() -> int:
    here = "--without-import" not in sys.argv
    if len(sys.argv) != (2 if here else 3):
        raise SystemExit(__doc__)
    wheel = Path(sys.argv[-1]).resolve()
    problems = Problems()
    with tempfile.TemporaryDirectory(prefix="fastloader-wheel-") as name:
        folder = Path(name).resolve()
        with zipfile.ZipFile(wheel) as archive:
            files = archive.namelist()
            archive.extractall(folder / "unpacked")
        modules = [file for file in files if re.search(r"\.so(\.\d+)*$", file)]
        modules = [file for file in modules if not file.startswith(f"{GRAFTED_FOLDER}/")]
        native = not wheel.name.endswith("-py3-none-any.whl")
        print("wheel    ", f"{wheel.name}, {wheel.stat().st_size / 1024:.0f} KiB")

        marked = "fastloader/_pure_wheel" in files
        for name in ("__init__.py", "py.typed", "_native.pyi", "cli/bench.py"):
            file = f"fastloader/{name}"
            problems.expect(file in files, f"{file} is missing")
        size = wheel.stat().st_size
        problems.expect(size <= LARGEST, f"it has {size} bytes, more than {LARGEST}")
        inside = [file for file in files if file.startswith(f"{GRAFTED_FOLDER}/")]
        grafted = {Path(file).name for file in inside if not file.endswith("/")}
        for library in sorted(grafted):
            print("holds    ", library)
            problems.expect(GRAFTED.fullmatch(library) is not None, f"{library} is grafted into it")
        tops = {file.split("/")[0] for file in files if ".dist-info/" not in file}
        tops -= {GRAFTED_FOLDER} if native else set()
        problems.expect(tops == {"fastloader"}, f"it installs {sorted(tops)}")
        if native:
            problems.expect(not marked, "a native wheel with the marker of a pure one")
            one = len(modules) == 1 and modules[0].startswith("fastloader/_native.")
            problems.expect(one, f"its modules are {modules}, not only fastloader/_native")
            for module in modules:
                path = folder / "unpacked" / module
                check_links(path, grafted, problems)
                check_exports(path, problems)
                check_hooks(path, problems)
                check_floor(path)
        else:
            problems.expect(marked, "a pure wheel without the marker fastloader/_pure_wheel")
            problems.expect(not modules, f"a pure wheel with {modules}")
        if here:
            check_import(wheel, native, folder, problems)

    for problem in problems.found:
        print(f"WRONG: {problem}")
    print(f"{wheel.name}: " + ("wrong" if problems.found else "good"))
    return 1 if problems.found else 0


if __name__ == "__main__":
    sys.exit(main())
