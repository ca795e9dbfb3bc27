"""The layer rule: the tree keeps it, and every part of it fires on a tree that does not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from support import HANG

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "check_includes.py"

if not SCRIPT.is_file():
    pytest.skip("needs the source tree", allow_module_level=True)

check_includes = importlib.import_module("check_includes")


def tree(root, files):
    """A tree of `files`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_tree_keeps_the_rule():
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


ALLOWED = {
    "base/thread.cpp": ["base/thread.h", "<thread>", "<pthread.h>"],
    "image/jpeg.cpp": ["base/error.h", "<jpeglib.h>", "jpeg.h", "<cstdio>"],
    "source/folder.cpp": ["source/folder.h", "base/error.h"],
    "backend/backend.h": ["image/normalize/normalize.h", "<memory>"],
    "backend/host/host_queue.h": ["backend/lifetime.h"],
    "backend/registry.cpp": ["backend/registry.h", "backend/host/host_backend.h"],
    "backend/host/host_stream.cpp": ["backend/backend.h", "image/normalize/kernel.h", "<thread>"],
    "backend/cuda/normalize.cu": [
        "<cuda_runtime.h>",
        "image/host_device.h",
        "image/normalize/normalize.h",
    ],
    "backend/cuda/cuda_absent.cpp": ["backend/registry.h"],
    "pipeline/ring.cpp": ["backend/backend.h", "image/crop.h", "source/folder.h", "base/thread.h"],
    "bindings/module.cpp": [
        "<pybind11/pybind11.h>",
        "<Python.h>",
        "pipeline/ring.h",
        "backend/registry.h",
        "backend/host/host_backend.h",
    ],
}


def as_source(names):
    return "".join(f"#include {n if n[0] == '<' else chr(34) + n + chr(34)}\n" for n in names)


@pytest.mark.parametrize("place", ALLOWED)
def test_what_a_layer_needs_is_allowed(tmp_path, place):
    tree(tmp_path, {f"csrc/{place}": as_source(ALLOWED[place])})
    assert check_includes.check(tmp_path) == []


@pytest.mark.parametrize(
    ("place", "included"),
    [
        # upwards and sideways
        ("base/log.h", "image/normalize/normalize.h"),
        ("base/log.h", "backend/backend.h"),
        ("image/jpeg.h", "backend/backend.h"),
        ("image/jpeg.h", "source/folder.h"),
        ("image/jpeg.h", "pipeline/ring.h"),
        ("source/folder.h", "image/normalize/normalize.h"),
        ("source/folder.h", "pipeline/ring.h"),
        ("backend/backend.h", "pipeline/ring.h"),
        ("backend/backend.h", "image/jpeg.h"),
        ("backend/backend.h", "backend/host/host_backend.h"),
        ("backend/host/host_backend.cpp", "backend/cuda/cuda_handles.h"),
        ("backend/cuda/cuda_backend.cpp", "backend/host/host_backend.h"),
        ("backend/cuda/cuda_backend.cpp", "pipeline/ring.h"),
        ("backend/registry.cpp", "backend/cuda/cuda_handles.h"),
        ("pipeline/ring.cpp", "backend/registry.h"),
        ("pipeline/ring.cpp", "backend/lifetime.h"),
        ("pipeline/ring.cpp", "backend/host/host_backend.h"),
        ("pipeline/ring.cpp", "backend/cuda/cuda_handles.h"),
        ("pipeline/ring.cpp", "bindings/module.h"),
        ("bindings/module.cpp", "backend/cuda/cuda_handles.h"),
        ("bindings/module.cpp", "backend/host/host_queue.h"),
        # through a relative path
        ("image/jpeg.h", "../pipeline/ring.h"),
        # threads
        ("image/jpeg.cpp", "<thread>"),
        ("source/folder.cpp", "<thread>"),
        ("image/jpeg.cpp", "base/thread.h"),
        ("source/folder.cpp", "<future>"),
        # Python
        ("image/jpeg.cpp", "<Python.h>"),
        ("source/folder.cpp", "<pybind11/pybind11.h>"),
        ("backend/backend.h", "<pybind11/numpy.h>"),
        ("pipeline/ring.cpp", "<pybind11/pybind11.h>"),
        ("base/log.cpp", "<Python.h>"),
        # CUDA
        ("base/log.cpp", "<cuda.h>"),
        ("image/host_device.h", "<cuda_runtime.h>"),
        ("source/folder.cpp", "<cuda_fp16.h>"),
        ("backend/backend.h", "<cuda_runtime.h>"),
        ("backend/host/host_stream.cpp", "<cuda_runtime_api.h>"),
        ("pipeline/ring.cpp", "<cuda.h>"),
        ("bindings/module.cpp", "<cuda_runtime.h>"),
        # torch
        ("bindings/module.cpp", "<torch/extension.h>"),
        ("backend/cuda/cuda_backend.cpp", "<c10/cuda/CUDAStream.h>"),
        ("pipeline/ring.cpp", "<ATen/ATen.h>"),
    ],
)
def test_what_a_layer_must_not_know_is_reported_with_its_line(tmp_path, place, included):
    tree(
        tmp_path,
        {
            f"csrc/{place}": "#pragma once\n\n" + as_source([included]),
            "csrc/pipeline/ring.h": "#pragma once\n",
        },
    )
    (message,) = check_includes.check(tmp_path)
    assert message.startswith(f"csrc/{place}:3: ")


def test_comments_are_not_includes(tmp_path):
    text = '// see image/*.h\n#include "base/log.h"\n/*\n#include "pipeline/ring.h"\n*/\n'
    tree(tmp_path, {"csrc/image/jpeg.h": text + '// #include "pipeline/ring.h"\n'})
    assert check_includes.check(tmp_path) == []
    tree(tmp_path, {"csrc/image/jpeg.h": text + '# include "pipeline/ring.h"  /* here */\n'})
    (message,) = check_includes.check(tmp_path)
    assert message.startswith("csrc/image/jpeg.h:6: pipeline/ring.h")


@pytest.mark.parametrize("place", ["csrc/helpers.h", "csrc/utils/helpers.h", "csrc/image/fast.cu"])
def test_a_file_has_a_layer(tmp_path, place):
    tree(tmp_path, {place: "#pragma once\n"})
    (message,) = check_includes.check(tmp_path)
    assert message.startswith(f"{place}:1: ")


def test_the_command_exits_with_1(tmp_path):
    tree(tmp_path, {"csrc/base/log.h": '#include "pipeline/ring.h"\n'})
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 1
    assert "csrc/base/log.h:1: pipeline/ring.h" in done.stdout
