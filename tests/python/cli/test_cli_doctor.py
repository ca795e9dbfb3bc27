"""``fastloader doctor``: it survives whatever it finds, and its advice follows from that."""

import copy
import json
import re
import types

import pytest

from fastloader._core.machine import extension
from fastloader.cli import doctor, probes
from fastloader.cli.__main__ import main
from fastloader.cli.doctor import advise, size
from support import run_script

GIB = 1 << 30

# A machine on which everything is as it should be.
HEALTHY = {
    "fastloader": {"version": "1.0", "location": "/there/fastloader"},
    "python": {"version": "3.11.7", "executable": "python", "platform": "Linux", "machine": "x"},
    "native": {
        "loaded": True,
        "wanted": True,
        "switched_off": False,
        "left_out": False,
        "why_not": "",
        "file": "/there/fastloader/_native.so",
    },
    "build": {
        "version": "1.0",
        "compiler": "12.2.0",
        "isa": "avx512",
        "isas_available": ["avx512", "avx2", "scalar"],
        "libjpeg_turbo_compiled": "2.1.5",
        "libjpeg_at_run_time": "6b; The libjpeg-turbo Project",
        "libjpeg_decoded_whole": [],
        "zlib": "1.2.13",
        "libwebp": "1.2.4",
        "io_uring": "in use",
    },
    "cuda": {
        "compiled_in": True,
        "runtime_version": 13000,
        "driver_version": 13020,
        "architectures": "80-real;90",
        "devices": [{"name": "H200", "capability": [9, 0], "total_memory": 140 * GIB}],
        "problem": "",
    },
    "nvidia": {
        "pci_gpus": 1,
        "kernel_driver": "NVRM version",
        "nvcc": None,
        "gpus": [{"name": "H200", "driver_version": "580.1", "memory": "140000 MiB"}],
    },
    "cpu": {"model": "Xeon", "count": 8, "affinity": 8, "cgroup_quota": None},
    "limits": {
        "memory": 64 * GIB,
        "cgroup_memory": None,
        "memlock": None,
        "open_files": 65536,
        "shm": 32 * GIB,
        "shm_free": 32 * GIB,
    },
    "container": {"signs": []},
    "torch": {
        "installed": True,
        "version": "2.9.0+cu130",
        "cuda_build": "13.0",
        "hip_build": None,
        "accelerator": "cuda",
        "threads": 8,
    },
    "pillow": {
        "installed": True,
        "which": "Pillow",
        "version": "13.0.0",
        "distributions": ["pillow"],
        "libjpeg_turbo": "3.1.0",
    },
    "numpy": {"installed": True, "version": "2.3.0"},
    "environment": {},
}
NO_GPU = {
    "cuda": {"compiled_in": False, "problem": "built without", "devices": []},
    "nvidia": {"pci_gpus": 0, "gpus": [], "kernel_driver": None},
    "torch": {"version": "2.9.0+cpu", "cuda_build": None, "accelerator": None},
}


def changed(*changes):
    """The healthy report with sections updated, or replaced where the change has an error."""
    report = copy.deepcopy(HEALTHY)
    for change in changes:
        for name, values in change.items():
            report[name] = values if "error" in values else {**report[name], **values}
    return report


def test_healthy_machine_needs_nothing():
    assert advise(HEALTHY) == []
    assert doctor.as_text(HEALTHY, []).endswith("All good: nothing to do.")


def test_machine_without_gpu_needs_none():
    limited = {"limits": {"memlock": 8 << 20}}
    assert advise(changed(NO_GPU, limited)) == []
    # PyPI's torch for Linux is a CUDA build on every machine.
    assert advise(changed(NO_GPU, {"torch": {"cuda_build": "13.0"}})) == []
    no_driver = {"compiled_in": True, "problem": "no NVIDIA driver", "driver_version": 0}
    assert advise(changed(NO_GPU, {"cuda": no_driver})) == []


NOT_LOADED = {
    "native": {
        "loaded": False,
        "why_not": "could not be loaded\n  1. a cause\n`fastloader doctor`",
    },
}
WITHOUT_CUDA = {"cuda": {"compiled_in": False, "problem": "without", "devices": []}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (NOT_LOADED, ["could not be loaded", "1. a cause"]),
        ({"native": {"error": "ValueError: no"}}, ["while it loads: ValueError: no"]),
        ({"native": {"loaded": False, "wanted": False, "left_out": True}}, ["pure-Python wheel"]),
        ({"build": {"error": "ValueError: FASTLOADER_FORCE_ISA=x"}}, ["FORCE_ISA=x", "unset"]),
        ({"build": {"libjpeg_at_run_time": "9e; Guido"}}, ["9e; Guido", "LD_LIBRARY_PATH"]),
        ({"build": {"libjpeg_decoded_whole": ["grey", "4:2:0"]}}, ["(grey, 4:2:0)", "2.1.5"]),
        ({"torch": {"installed": False}}, ["torch is not installed", "pip install torch"]),
        ({"torch": {"error": "OSError: libc10.so"}}, ["cannot be imported (OSError: libc10.so)"]),
        ({"torch": {"version": "2.3.1+cu121"}}, ["2.3.1+cu121", "torch>=2.4"]),
        ({"numpy": {"installed": False}}, ["pip install numpy"]),
        ({"numpy": {"error": "ImportError: blas"}}, ["ImportError: blas"]),
        (WITHOUT_CUDA, ["torch uses CUDA", "Install the CUDA toolkit", "FASTLOADER_CUDA=on pip"]),
        ({**WITHOUT_CUDA, "nvidia": {"nvcc": "/opt/nvcc"}}, ["nvcc is at /opt/nvcc"]),
        (
            {"cuda": {"problem": "the NVIDIA driver is too old: it serves CUDA 12.2"}},
            ["compiled in but cannot be used", "too old: it serves CUDA 12.2"],
        ),
        (
            {
                "cuda": {"problem": "no driver", "driver_version": 0},
                "container": {"signs": ["docker"]},
            },
            ["Install NVIDIA's driver", "--gpus all"],
        ),
        (
            {"torch": {"version": "2.9+cpu", "cuda_build": None, "accelerator": None}},
            ["torch 2.9+cpu is a build without CUDA"],
        ),
        ({"torch": {"accelerator": None}}, ["sees no GPU", "Update the NVIDIA driver"]),
        (
            {"torch": {"accelerator": None}, "environment": {"CUDA_VISIBLE_DEVICES": ""}},
            ["CUDA_VISIBLE_DEVICES='' may hide it"],
        ),
        ({"limits": {"memlock": 8 << 20}}, ["Only 8 MiB may be locked", "ulimit -l unlimited"]),
        (
            {"limits": {"memlock": 65536}, "container": {"signs": ["docker"]}},
            ["64 KiB", "--ulimit memlock=-1"],
        ),
        (
            {"limits": {"shm": 64 << 20}},
            ["/dev/shm holds only 64 MiB", "plain DataLoader", "remount"],
        ),
        (
            {"limits": {"shm": 64 << 20}, "container": {"signs": ["kubernetes"]}},
            ["--shm-size=8g"],
        ),
        ({"limits": {"cgroup_memory": 1 << 30}}, ["only 1 GiB of memory"]),
        ({"limits": {"open_files": 256}}, ["Only 256 files", "ulimit -n 65536"]),
        ({"cpu": {"cgroup_quota": 2.0}}, ["quota is 2", "OMP_NUM_THREADS=2"]),
        (
            {"pillow": {"installed": False, "distributions": []}},
            ["pip install pillow,", "pip install pillow-simd"],
        ),
        ({"pillow": {"error": "ImportError: _imaging"}}, ["ImportError: _imaging", "reinstall"]),
        ({"pillow": {"distributions": ["pillow", "pillow-simd"]}}, ["both installed", "uninstall"]),
        ({"pillow": {"libjpeg_turbo": None}}, ["Pillow 13.0.0 was built without libjpeg-turbo"]),
        (
            {"pillow": {"version": "12.3.0"}},
            ["Pillow 12.3.0 resizes", "another order of passes", "pip install 'pillow>=13'"],
        ),
        (
            {"pillow": {"version": "12.3.0"}, "python": {"version": "3.10.14"}},
            ["Pillow 12.3.0 resizes", "It needs Python 3.11"],
        ),
        ({"environment": {"FASTLOADER_NATIVE": "0"}}, ["FASTLOADER_NATIVE=0", "unset"]),
        ({"environment": {"FASTLOADER_BACKEND": "host"}}, ["FASTLOADER_BACKEND=host", "unset"]),
        (
            {"environment": {"FASTLOADER_FORCE_ISA": "scalar"}, "build": {"isa": "scalar"}},
            ["scalar in use where avx512"],
        ),
    ],
)
def test_each_trouble_brings_its_own_advice_and_no_other(change, words):
    report = changed(change)
    steps = advise(report)
    assert len(steps) == 1, steps
    for word in words:
        assert word in steps[0]
    text = doctor.as_text(report, steps)
    assert "\n1. " in text and "All good" not in text


def test_advice_that_would_be_wrong_is_not_given():
    rocm = {"torch": {"hip_build": "6.4", "cuda_build": None}, **WITHOUT_CUDA}
    assert advise(changed(rocm)) == []
    obeyed = {"cpu": {"cgroup_quota": 2.0}, "environment": {"OMP_NUM_THREADS": "2"}}
    assert advise(changed(obeyed)) == []
    simd = {"pillow": {"which": "Pillow-SIMD", "version": "9.5.0.post2"}}
    assert advise(changed(simd)) == []
    best = {"environment": {"FASTLOADER_FORCE_ISA": "avx512"}}
    assert advise(changed(best)) == []


def test_steps_are_numbered_and_commands_stay_whole():
    text = doctor.as_text(HEALTHY, ["word " * 40, "first\n  1. inner\nlast"])
    assert "\n1. word" in text
    assert "\n2. first\n     1. inner\n   last" in text
    assert max(map(len, text.splitlines())) <= 120


def test_every_probe_failing_still_gives_a_report():
    report = {name: {"error": "OSError: gone"} for name in HEALTHY}
    steps = advise(report)
    text = doctor.as_text(report, steps)
    assert text.count("could not be examined: OSError: gone") == len(doctor.LINES)
    assert doctor.exit_status(report) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 0),
        (NOT_LOADED, 1),
        ({"native": {"loaded": False, "wanted": False, "switched_off": True}}, 0),
        ({"native": {"error": "ValueError: no"}}, 1),
        ({"torch": {"error": "OSError: libc10.so"}}, 0),
    ],
)
def test_exit_status_is_about_the_native_module_alone(change, status):
    assert doctor.exit_status(changed(change)) == status


def test_native_module_that_answers_with_an_error(monkeypatch):
    def fails():
        raise ValueError("ISA=x is not available\nand more")

    broken = types.SimpleNamespace(build_info=fails, cuda_info=fails, __file__="x.so")
    monkeypatch.setattr(extension, "load", lambda: broken)
    monkeypatch.setattr(extension, "native", broken)
    report = probes.survey()
    assert report["build"] == {"error": "ValueError: ISA=x is not available"}
    assert report["cuda"] == {"error": "ValueError: ISA=x is not available"}
    assert report["native"]["loaded"]
    doctor.as_text(report, advise(report))


def test_json_is_one_object_and_text_has_every_line(capsys):
    assert main(["doctor", "--json"]) == doctor.exit_status(probes.survey())
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {*probes.PROBES, "advice"}
    assert not [name for name, found in report.items() if "error" in found], report
    assert report["advice"] == advise({name: report[name] for name in probes.PROBES})
    main(["doctor"])
    text = capsys.readouterr().out
    for label, _, _ in doctor.LINES:
        assert f"\n{label} " in "\n" + text


@pytest.mark.processes
def test_without_torch_pillow_and_numpy():
    done = run_script(
        """
        import sys
        for name in ("torch", "PIL", "numpy", "tqdm", "matplotlib"):
            sys.modules[name] = None
        from fastloader.cli.__main__ import main
        sys.exit(main(["doctor", "--json"]))
        """,
        check=False,
        fresh=True,
    )
    report = json.loads(done.stdout)
    assert report["torch"] == {"installed": False}
    assert report["pillow"]["installed"] is False and report["numpy"] == {"installed": False}
    advice = "\n".join(report["advice"])
    assert "torch is not installed" in advice and "pip install pillow-simd" in advice
    assert "Traceback" not in done.stderr
    assert done.returncode == doctor.exit_status(report)


@pytest.mark.processes
def test_broken_torch_and_pillow_are_reported_not_raised(tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libtorch_cpu.so: cannot open')")
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("raise ImportError('_imaging is for 3.9')")
    done = run_script(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        from fastloader.cli.__main__ import main
        sys.exit(main(["doctor"]))
        """,
        tmp_path,
        check=False,
        fresh=True,
    )
    assert "could not be examined: OSError: libtorch_cpu.so: cannot open" in done.stdout
    assert "could not be examined: ImportError: _imaging is for 3.9" in done.stdout
    assert "torch is installed but cannot be imported" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.processes
def test_native_module_that_cannot_be_loaded_gives_status_1():
    done = run_script(
        """
        import sys, warnings
        warnings.simplefilter("ignore")
        sys.modules["fastloader._native"] = None
        from fastloader.cli.__main__ import main
        sys.exit(main(["doctor"]))
        """,
        check=False,
    )
    assert done.returncode == 1
    assert "CANNOT BE LOADED" in done.stdout
    assert "Likely causes" in done.stdout and "force-reinstall" in done.stdout


@pytest.mark.processes
def test_switched_off_is_no_failure():
    source = """
        import sys
        from fastloader.cli.__main__ import main
        sys.exit(main(["doctor"]))
    """
    done = run_script(source, env={"FASTLOADER_NATIVE": "0"})
    assert "switched off by FASTLOADER_NATIVE=0" in done.stdout
    assert re.search("environment     .*FASTLOADER_NATIVE=0", done.stdout)


# --- what the probes read -----------------------------------------------------------------------


def test_nvidia_hardware_is_seen_without_a_driver(tmp_path):
    for slot, vendor, kind in (("0", "0x10de", "0x030200"), ("1", "0x10de", "0x040300")):
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "vendor").write_text(vendor + "\n")
        (tmp_path / slot / "class").write_text(kind + "\n")
    assert probes._pci_gpus(tmp_path) == 1
    assert probes._pci_gpus(tmp_path / "nowhere") == 0


def test_numbers_for_people():
    assert doctor.cuda_version(12040) == "12.4"
    assert doctor.cuda_version(13000) == "13.0"
    assert [size(n) for n in (12, 65536, 8 << 20, 3 << 29)] == [
        "12 bytes",
        "64 KiB",
        "8 MiB",
        "1.5 GiB",
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"zlib": "1.3", "libwebp": "1.4.0"},
            "PNG natively, zlib 1.3; WebP natively, libwebp 1.4.0",
        ),
        ({"zlib": None, "libwebp": None}, "PNG by Pillow; WebP by Pillow"),
        ({"io_uring": "in use"}, "files are read ahead by io_uring"),
        ({"io_uring": "refused"}, "files are read ahead by threads; io_uring: refused"),
        (
            {
                "libjpeg_at_run_time": "6b  27-Mar-1998; Copyright (C) 1991-2023 The libjpeg-turbo "
                "Project and many others"
            },
            "2.1.5 compiled against; at run time: libjpeg-turbo of 2023, with the interface of libjpeg "
            "6b",
        ),
        ({"libjpeg_at_run_time": "9e; Guido"}, "at run time: 9e; Guido"),
        (
            {"libjpeg_at_run_time": None},
            "not in this build: Pillow decodes the JPEGs that fastloader's",
        ),
    ],
)
def test_formats_that_a_build_lacks_are_pillows(found, words):
    assert words in doctor.as_text(changed({"build": found}), [])
