"""Runs FastLoader under each framework that is installed, and writes down what each run printed.

    python benchmarks/frameworks.py [--out benchmarks/results/frameworks.md]
        [--timm-train TRAIN.PY] [--torchvision-references FOLDER]

It runs the scripts in examples/frameworks/, each of which names in its docstring the package that it
needs and the commands that run it. The two options name files of other repositories, which no package
contains: timm's train.py, and torchvision's references/classification. Of each, a copy with one changed
import is run on made-up photographs. Nothing is timed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import RESULTS, make_photographs

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "examples" / "frameworks"
LIMIT = 900  # seconds for one command

# What makes the loaders in torchvision's script, and the names of timm that fastloader has as well.
TORCHVISION_LOADER = "torch.utils.data.DataLoader("
TIMM_NAMES = ("create_loader", "Mixup", "FastCollateMixup")


@dataclasses.dataclass
class Run:
    """One framework: its packages with their versions, the commands, and what these printed."""

    name: str
    versions: dict[str, str]
    commands: list[str]
    printed: str = ""
    failed: bool = False


def version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def described(script: Path) -> tuple[list[str], list[str]]:
    """The packages that a script needs, and its commands, as its docstring says."""
    text = script.read_text()
    needs = re.search(r"^needs: (.*)$", text, re.MULTILINE)
    commands = re.findall(r"^runs: (.*)$", text, re.MULTILINE)
    if needs is None or not commands:
        raise SystemExit(f"{script}: its docstring lacks 'needs: ' or 'runs: '")
    return needs[1].split(", "), commands


def in_words(command: str, folder: str) -> list[str]:
    program, *words = shlex.split(command.replace("FOLDER", folder))
    if program == "torchrun":
        store = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        return [sys.executable, "-m", "torch.distributed.run", *store, *words]
    return [sys.executable, *words]


def execute(run: Run, words: list[str], folder: str, wanted: str = "") -> bool:
    """Runs one command and adds what it printed to stdout, or with ``wanted`` the last lines of all its
    output in which that is found. Returns whether it succeeded."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    env["TMPDIR"] = folder
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        run.printed += f"no end within {LIMIT} s\n"
        run.failed = True
        return False
    lines = (done.stdout + done.stderr if wanted else done.stdout).splitlines()
    lines = [line for line in lines if re.search(wanted, line)]
    run.printed += "".join(f"{line}\n" for line in (lines[-8:] if wanted else lines))
    if done.returncode:
        # A rank's own error comes first, and torchrun's account of the ranks last.
        run.printed += f"{done.stderr[:4000]}\n...\n{done.stderr[-500:]}"
        run.failed = True
    return done.returncode == 0


def run_example(script: Path) -> Run | None:
    """None if a package is not installed."""
    packages, commands = described(script)
    versions = {package: version(package) for package in packages}
    if None in versions.values():
        return None
    run = Run(script.stem, {name: str(which) for name, which in versions.items()}, commands)
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            if not execute(run, in_words(command, f"{folder}/state"), folder):
                break
    return run


def photographs(folder: Path) -> None:
    """Of six classes: the scripts look whether the right one is among the first five."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 8), ("val", 3)):
        for name in range(6):
            make_photographs(folder / part / f"class-{name}", count, 80, 96, rng)


def digest(file: Path) -> str:
    """Which file of another repository it was."""
    return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"


def with_our_import(text: str) -> str:
    """timm's train.py with the names of its import that fastloader has taken from there."""
    # The statement may go on in further lines, behind a backslash.
    found = re.search(
        r"^from timm\.data import ((?:.*\\\n)*.*create_loader(?:.*\\\n)*.*)$", text, re.MULTILINE
    )
    if found is None:
        raise SystemExit(
            "timm's train.py has no line 'from timm.data import ... create_loader ...'"
        )
    names = re.findall(r"\w+", found[1])
    ours = ", ".join(name for name in names if name in TIMM_NAMES)
    rest = ", ".join(name for name in names if name not in TIMM_NAMES)
    changed = f"from fastloader.compat.timm import {ours}\nfrom timm.data import {rest}"
    return text.replace(found[0], changed)


def run_timm(train: Path) -> Run:
    arguments = (
        "--model resnet10t --num-classes 6 --input-size 3 64 64 -b 8 --epochs 2 --device cpu"
    )
    arguments += " --workers 2 --mixup 0.2 --reprob 0.25 --aa rand-m9-mstd0.5 --val-split val"
    versions = {"timm": str(version("timm")), "train.py": digest(train)}
    run = Run("timm's train.py", versions, [f"train.py {arguments}"])
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder, "data"))
        script = Path(folder, "train.py")
        script.write_text(with_our_import(train.read_text()))
        words = [
            *shlex.split(arguments),
            "--data-dir",
            f"{folder}/data",
            "--output",
            f"{folder}/out",
        ]
        execute(run, [sys.executable, str(script), *words], folder, r"Train: \d|Test: |Best metric")
    return run


def run_torchvision(references: Path) -> Run:
    arguments = "--model resnet18 --device cpu -b 8 --epochs 1 -j 2 --val-resize-size 72"
    arguments += " --val-crop-size 64 --train-crop-size 64 --print-freq 3"
    name = "torchvision's references/classification/train.py"
    versions = {
        "torchvision": str(version("torchvision")),
        "train.py": digest(references / "train.py"),
    }
    run = Run(name, versions, [f"train.py {arguments} --data-path FOLDER"])
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder, "data"))
        for file in references.glob("*.py"):
            text = file.read_text()
            if file.name == "train.py":
                if TORCHVISION_LOADER not in text:
                    raise SystemExit(f"{file}: makes no {TORCHVISION_LOADER}...)")
                text = text.replace(TORCHVISION_LOADER, "FastLoader(")
                ours = "import torch\nfrom fastloader import FastLoader\n"
                text = text.replace("import torch\n", ours, 1)
            Path(folder, file.name).write_text(text)
        words = [*shlex.split(arguments), "--data-path", f"{folder}/data"]
        words += ["--output-dir", f"{folder}/out"]
        execute(
            run, [sys.executable, f"{folder}/train.py", *words], folder, r"Epoch: |Test: |Training"
        )
    return run


def page(runs: list[Run], missing: list[str]) -> str:
    ours = (ROOT / "version.txt").read_text().strip()
    basis = f"torch {version('torch')}, numpy {version('numpy')}, fastloader {ours}"
    lines = [
        "# FastLoader under frameworks",
        "",
        "Written by `benchmarks/frameworks.py`, which runs `examples/frameworks/`. Each script there",
        "compares values and fails if one differs. The scripts of timm and torchvision only run to",
        "their end, on made-up photographs. Nothing here is a measurement of speed.",
        "",
        f"Python {sys.version.split()[0]}, {basis}.",
        "",
        "| run | versions | outcome |",
        "|---|---|---|",
    ]
    for run in runs:
        versions = ", ".join(f"{name} {which}" for name, which in run.versions.items())
        lines.append(f"| {run.name} | {versions} | {'failed' if run.failed else 'passed'} |")
    lines += [f"| {name} | not installed | not run |" for name in missing]
    for run in runs:
        printed = re.sub(
            r"(?<![\w.:/])/\S*/", "", run.printed.strip()
        )  # folders of the machine that ran it
        lines += ["", f"## {run.name}", "", "```", *run.commands, "", printed, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "frameworks.md")
    parser.add_argument("--only", nargs="+", help="names of scripts, without .py")
    parser.add_argument("--timm-train", type=Path, help="timm's train.py")
    parser.add_argument("--torchvision-references", type=Path, help="references/classification")
    chosen = parser.parse_args()
    runs, missing = [], []
    for script in sorted(SCRIPTS.glob("*.py")):
        if chosen.only and script.stem not in chosen.only:
            continue
        print(script.stem, flush=True)
        run = run_example(script)
        if run is None:
            missing.append(script.stem)
        else:
            runs.append(run)
    if chosen.timm_train is not None:
        runs.append(run_timm(chosen.timm_train))
    if chosen.torchvision_references is not None:
        runs.append(run_torchvision(chosen.torchvision_references))
    chosen.out.write_text(page(runs, missing))
    if failed := [run.name for run in runs if run.failed]:
        raise SystemExit(f"failed: {', '.join(failed)}; {chosen.out} has what they printed")


if __name__ == "__main__":
    main()
