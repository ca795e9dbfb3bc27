"""What ``fastloader doctor`` advises: a pure function of what its probes found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastloader._core.machine.extension import REBUILD
from fastloader.cli.doctor.probes import Report

_MIB = 1 << 20
_GIB = 1 << 30

SMALL_MEMLOCK = 256 * _MIB  # less than a ring of a few batches of 256 pictures
SMALL_SHM = 1 * _GIB
SMALL_MEMORY = 2 * _GIB
FEW_OPEN_FILES = 1024
OLDEST_TORCH = (2, 4)
PIXELS_OF_PILLOW = (13, 0)
PYTHON_OF_THAT_PILLOW = (3, 11)


def advise(report: Report) -> list[str]:
    """What to do, the most important first; empty when there is nothing to do. A text may have
    several lines."""
    # A probe that failed says nothing about what it probed: its section counts as empty.
    known = {name: {} if "error" in section else section for name, section in report.items()}
    rules = (_native, _torch, _cuda, _pillow, _memory, _processors, _environment)
    return [text for rule in rules for text in rule(report, known)]


def _native(report: Report, known: Report) -> Iterator[str]:
    if "error" in report["native"]:
        yield f"fastloader's native module fails while it loads: {report['native']['error']}."
    native = known["native"]
    if native.get("wanted") and not native.get("loaded"):
        # Its last line refers to this very command.
        yield "\n".join(
            line for line in native["why_not"].splitlines() if "fastloader doctor" not in line
        )
    if native.get("left_out"):
        yield (
            "This is the pure-Python wheel, which gives the same results, only slower. On Linux "
            f"x86-64 and aarch64, build the native one: {REBUILD}."
        )
    if "error" in report["build"]:
        yield (
            f"The native module loads but does not answer: {report['build']['error']}. If the "
            "message names an environment variable, unset it; otherwise reinstall fastloader."
        )
    at_run_time = known["build"].get("libjpeg_at_run_time")
    if at_run_time and "libjpeg-turbo" not in at_run_time:
        yield (
            f"The JPEG library found at run time is not libjpeg-turbo ({at_run_time}). Something on "
            "LD_LIBRARY_PATH comes first; remove it, or pictures may decode to other pixels."
        )
    whole = known["build"].get("libjpeg_decoded_whole")
    if whole:
        yield (
            f"The JPEG library found at run time does not decode parts of pictures exactly "
            f"({', '.join(whole)}): these are decoded whole, which is slower. Install libjpeg-turbo "
            "2.1.5 or newer, and look for an older one on LD_LIBRARY_PATH and LD_PRELOAD."
        )


def _torch(report: Report, known: Report) -> Iterator[str]:
    broken = report["torch"].get("error")
    if broken:
        yield (
            f"torch is installed but cannot be imported ({broken}). Reinstall it; "
            "https://pytorch.org/get-started names the command for this machine."
        )
    torch = known["torch"]
    if torch.get("installed") is False:
        yield "torch is not installed: pip install torch (2.4 or later)."
    version = torch.get("version")
    if version and _major_minor(version) < OLDEST_TORCH:
        yield f"torch {version} is older than fastloader supports: pip install 'torch>=2.4'."
    broken_numpy = report["numpy"].get("error")
    if broken_numpy:
        yield f"numpy is installed but cannot be imported ({broken_numpy}). Reinstall it."
    elif known["numpy"].get("installed") is False:
        yield "numpy is not installed: pip install numpy."


def _cuda(report: Report, known: Report) -> Iterator[str]:
    cuda, torch, nvidia = known["cuda"], known["torch"], known["nvidia"]
    torch_uses_cuda = torch.get("accelerator") == "cuda" and not torch.get("hip_build")
    has_gpu = _has_gpu(known)
    if cuda and not cuda["compiled_in"] and has_gpu and not torch.get("hip_build"):
        seen = "torch uses CUDA" if torch_uses_cuda else "this machine has an NVIDIA GPU"
        toolkit = (
            f"nvcc is at {nvidia['nvcc']}"
            if nvidia.get("nvcc")
            else "Install the CUDA toolkit, so that nvcc is on PATH (or set CUDACXX to it)"
        )
        yield (
            f"fastloader was built without CUDA although {seen}: batches take torch's own streams, "
            f"which is slower. {toolkit}; then build it again, in a checkout of its source:\n"
            "FASTLOADER_CUDA=on pip install --force-reinstall --no-deps ."
        )
    if cuda and cuda["compiled_in"] and cuda["problem"] and has_gpu:
        container = " In a container, start it with --gpus all." if _in_container(known) else ""
        install = " Install NVIDIA's driver." if cuda["driver_version"] == 0 else ""
        yield f"CUDA is compiled in but cannot be used: {cuda['problem']}.{install}{container}"
    if not torch.get("installed"):
        return
    if has_gpu and not torch.get("cuda_build") and not torch.get("hip_build"):
        yield (
            f"This machine has an NVIDIA GPU, but torch {torch['version']} is a build without CUDA. "
            "Install the CUDA build: https://pytorch.org/get-started."
        )
    elif has_gpu and torch.get("cuda_build") and torch.get("accelerator") is None:
        yield (
            f"torch is built for CUDA {torch['cuda_build']} but sees no GPU although there is one. "
            f"{_hidden_gpus(known)}"
        )


def _has_gpu(known: Report) -> bool:
    nvidia = known["nvidia"]
    return bool(
        nvidia.get("gpus")
        or nvidia.get("pci_gpus")
        or known["cuda"].get("devices")
        or (known["torch"].get("accelerator") == "cuda" and known["torch"].get("cuda_build"))
    )


def _hidden_gpus(known: Report) -> str:
    visible = known["environment"].get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible!r} may hide it."
    return "Update the NVIDIA driver, or install a torch for an older CUDA."


def _in_container(known: Report) -> bool:
    return bool({"docker", "podman", "kubernetes"} & set(known["container"].get("signs", ())))


def _pillow(report: Report, known: Report) -> Iterator[str]:
    broken = report["pillow"].get("error")
    if broken:
        yield (
            f"Pillow is installed but cannot be imported ({broken}): "
            "pip install --force-reinstall pillow."
        )
    pillow = known["pillow"]
    if pillow.get("installed") is False:
        yield (
            "Neither Pillow nor Pillow-SIMD is installed, so Python datasets cannot decode pictures: "
            "pip install pillow, or pip install pillow-simd (faster, compiles on this machine)."
        )
    if len(pillow.get("distributions", ())) > 1:
        yield (
            "Pillow and Pillow-SIMD are both installed and overwrite each other's files: "
            "pip uninstall pillow pillow-simd, then install one of them."
        )
    version = pillow.get("version")
    if pillow.get("which") == "Pillow" and version and _major_minor(version) < PIXELS_OF_PILLOW:
        python = known["python"].get("version")
        newer = python is None or _major_minor(python) >= PYTHON_OF_THAT_PILLOW
        yield (
            f"Pillow {version} resizes some pictures in another order of passes than Pillow 13, and the "
            "native path follows the Pillow that is installed: pixels differ by 1 or so from those of "
            "machines with Pillow 13. "
            + (
                "pip install 'pillow>=13'."
                if newer
                else "It needs Python 3.11; until then keep to one version on all your machines."
            )
        )
    if pillow.get("installed") and not pillow.get("libjpeg_turbo"):
        yield (
            f"{pillow['which']} {pillow['version']} was built without libjpeg-turbo and decodes "
            "JPEG several times slower. Install libjpeg-turbo's headers and build it again, or take "
            "the wheel: pip install --force-reinstall --only-binary :all: pillow."
        )


def _memory(report: Report, known: Report) -> Iterator[str]:
    limits = known["limits"]
    docker = _in_container(known)
    memlock = limits.get("memlock")
    if memlock is not None and memlock < SMALL_MEMLOCK and _has_gpu(known):
        how = "docker run --ulimit memlock=-1" if docker else "ulimit -l unlimited"
        yield (
            f"Only {size(memlock)} may be locked in memory (ulimit -l). Most NVIDIA drivers do not "
            "count pinned memory against this; if loader.stats()['ring']['pinned'] is False, raise "
            f"it: {how}."
        )
    shm = limits.get("shm")
    if shm is not None and shm < SMALL_SHM:
        how = (
            "docker run --shm-size=8g (or --ipc=host)"
            if docker
            else "mount -o remount,size=8G /dev/shm"
        )
        yield (
            f"/dev/shm holds only {size(shm)}. FastLoader's workers hand batches over in a ring of "
            "their own, without it. Those of a plain DataLoader use it, and die with a bus error when "
            f"it is full, as do FastLoader's with FASTLOADER_WORKER_RING=0: {how}."
        )
    memory = limits.get("cgroup_memory")
    if memory is not None and memory < SMALL_MEMORY:
        yield (
            f"The container or job may use only {size(memory)} of memory, pinned and shared memory "
            "included. Take few workers and small batches, or raise the limit."
        )
    files = limits.get("open_files")
    if files is not None and files < FEW_OPEN_FILES:
        yield (
            f"Only {files} files may be open at once (ulimit -n). With the workers of a plain "
            "DataLoader, or FASTLOADER_WORKER_RING=0, every tensor under way keeps one open: ulimit -n "
            "65536."
        )


def _processors(report: Report, known: Report) -> Iterator[str]:
    cpu = known["cpu"]
    quota, visible = cpu.get("cgroup_quota"), cpu.get("affinity") or cpu.get("count")
    if quota is None or visible is None or quota + 0.5 >= visible:
        return
    threads = max(1, round(quota))
    if known["environment"].get("OMP_NUM_THREADS") is None:
        yield (
            f"{visible} CPUs are visible but the quota is {quota:.3g}: torch starts a thread for each "
            f"and is throttled. Set OMP_NUM_THREADS={threads} and take num_workers from the quota."
        )


def _environment(report: Report, known: Report) -> Iterator[str]:
    environment = known["environment"]
    if environment.get("FASTLOADER_NATIVE") == "0":
        yield "FASTLOADER_NATIVE=0 switches the native module off: unset it for speed."
    if environment.get("FASTLOADER_BACKEND"):
        yield (
            f"FASTLOADER_BACKEND={environment['FASTLOADER_BACKEND']} is for tests and makes loaders "
            "slower: unset it for training."
        )
    build = known["build"]
    available = build.get("isas_available") or [None]
    if environment.get("FASTLOADER_FORCE_ISA") and build.get("isa") != available[0]:
        yield (
            f"FASTLOADER_FORCE_ISA keeps {build.get('isa')} in use where {available[0]} would be "
            "faster: unset it."
        )


def _major_minor(version: str) -> tuple[int, ...]:
    numbers = version.split("+")[0].split(".")[:2]
    return tuple(int(number) if number.isdigit() else 0 for number in numbers)


def size(count: Any) -> str:
    """``count`` bytes, for people."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"
