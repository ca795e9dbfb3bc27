"""What Pillow does, with Pillow-SIMD in its place."""

from __future__ import annotations

import PIL

from benchmarks.peers.scenarios.pillow import loader, on_device, resize, versions

__all__ = ["loader", "on_device", "resize", "versions"]

# The fork shows itself by nothing else.
if ".post" not in PIL.__version__:
    raise ImportError(
        f"the Pillow installed here, {PIL.__version__}, is not Pillow-SIMD; since one excludes the "
        "other, install it in an environment of its own and name that with --python "
        "pillow-simd=INTERPRETER"
    )
