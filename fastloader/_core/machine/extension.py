"""The native module ``fastloader._native``: loads it, or says why it cannot be loaded.

This imports the standard library only, because it runs at ``import fastloader``.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import platform
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import fastloader
from fastloader._core.machine import messages, process

_PACKAGE = Path(fastloader.__path__[0])

# In the checkout and by its path. The package's name on an index is not this project's: users who were
# told to install it from there would run the code of that name's owner.
REBUILD = "in a checkout of fastloader's source, run `pip install --force-reinstall --no-deps .`"

if TYPE_CHECKING:
    from fastloader import _native

    # What `load` has loaded. Behind a `load` that has not given None, this is the native module as
    # `_native.pyi` types it: no function can be typed to return a module.
    native = _native

_loaded: ModuleType | None = None
_error: Exception | None = None
_tried = False


def load() -> ModuleType | None:
    """Returns the native module, or None if it is switched off (``FASTLOADER_NATIVE=0``), was left out
    at install time, or cannot be loaded (`problem` says why)."""
    global _loaded, _error, _tried
    if switched_off():
        return None
    if not _tried:
        _tried = True
        try:
            _loaded = importlib.import_module("fastloader._native")
            globals()["native"] = _loaded
        except Exception as error:  # importing fastloader works, whatever a damaged module does
            _error = error
    return _loaded


def lacks_libjpeg() -> bool:
    """Returns whether the native module is loaded and was built without libjpeg-turbo."""
    return load() is not None and not native.__libjpeg__


def switched_off() -> bool:
    """Returns whether ``FASTLOADER_NATIVE=0`` asks for pure Python. The variable is read at every call,
    so that a test or a notebook can switch."""
    value = os.environ.get("FASTLOADER_NATIVE", "1")
    if value not in ("0", "1", ""):
        raise ValueError(f"FASTLOADER_NATIVE={value!r}: use 0 (pure Python) or 1 (native)")
    return value == "0"


def left_out() -> bool:
    """Returns whether this is a wheel that was built without the native module on purpose."""
    return (_PACKAGE / "_pure_wheel").exists()


def problem() -> str:
    """Explains why the native module is missing although it was wanted, with numbered likely causes.
    Empty if it is loaded, switched off, or left out on purpose."""
    if load() is not None or switched_off() or left_out() or _error is None:
        return ""
    causes = _likely_causes()
    lines = [f"fastloader's native module could not be loaded: {_error}"]
    lines.append(
        "Everything works in pure Python, with the same results, but slower. Likely causes:"
    )
    lines += [f"  {number}. {cause}" for number, cause in enumerate(causes, 1)]
    lines.append("`fastloader doctor` shows more; FASTLOADER_NATIVE=0 silences this.")
    return "\n".join(lines)


def _likely_causes() -> list[str]:
    wanted = importlib.machinery.EXTENSION_SUFFIXES[0]
    found = sorted(path.name for path in _PACKAGE.glob("_native*.so"))
    causes = []
    if not found:
        causes.append(
            f"The module was never built: there is no _native{wanted} in {_PACKAGE}. If that is a "
            "source checkout, run `pip install -e .` in it, or start Python from another folder so "
            "that the installed package is found."
        )
    elif not {f"_native{wanted}", "_native.abi3.so", "_native.so"} & set(found):
        causes.append(
            f"It was built for another Python: found {', '.join(found)}, this is Python "
            f"{platform.python_version()} and needs _native{wanted}. Reinstall with this Python."
        )
    text = str(_error)
    if "libjpeg" in text:
        causes.append(
            "libjpeg-turbo's library is not installed here: apt-get install libjpeg62-turbo "
            "(Debian), libjpeg-turbo8 (Ubuntu) or dnf install libjpeg-turbo."
        )
    if "libwebp" in text:
        causes.append(
            "libwebp's library is not installed here: apt-get install libwebp7 libwebpdemux2 (Debian, "
            "Ubuntu) or dnf install libwebp. Or build it here, where it leaves WebP to Pillow then: "
            f"{REBUILD}."
        )
    if "GLIBC" in text:
        causes.append(
            "It was built on a newer system than this one (see the GLIBC version above). Build it "
            f"here: {REBUILD}."
        )
    causes.append(
        f"The file is damaged or for another processor (this is {platform.machine()}). Build it "
        f"anew: {REBUILD}."
    )
    return causes


def _describe_module() -> str:
    """Says in one line which native module was loaded, or why there is none."""
    module = load()
    if module is not None:
        return f"native module {module.__file__}"
    if switched_off():
        return "no native module: FASTLOADER_NATIVE=0"
    if left_out():
        return "no native module: this is the wheel without one"
    return f"no native module: {_error}"


def load_or_warn() -> None:
    """Loads the native module, or warns. ``import fastloader`` calls this once. Of the ranks that a
    launcher starts on one machine, the first one warns: they have one installation."""
    shown = messages.attach()
    load()
    text = problem()
    if shown and not messages.is_worker():
        messages.say(_describe_module())
    if text:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            warnings.warn(text, RuntimeWarning, stacklevel=3)
    elif _loaded is not None:
        _leak_devices_at_exit()


def _leak_devices_at_exit() -> None:
    # Native destructors leak from here on, because the CUDA driver may unload before the last object
    # dies.
    process.at_exit(native.set_process_exiting, last=True)
