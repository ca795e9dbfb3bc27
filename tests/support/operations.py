"""Which tests of the operations on pixels can run here, and in whose order of passes they resize."""

import platform

import pytest
from pictures import upstream_pillow

from fastloader._core.machine import extension
from fastloader.transforms._pillow import pass_order

# Other machines fuse multiplications and sums, in Pillow and in the libraries that it takes its
# numbers from.
needs_pillows_x86_64_wheel = [
    pytest.mark.skipif(extension.load() is None, reason="the native module is not in use"),
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "AMD64"),
        reason="the operations are defined by Pillow's wheel for x86-64",
    ),
    upstream_pillow,
]


def as_pillow_resizes():
    """Options of the native module's ``apply_operations``: a resize is that of the installed Pillow.
    Without them it is Pillow 13's. A loader's recipe has that of the installed one anyway."""
    return {"pass_order": getattr(extension.load().PassOrder, pass_order())}
