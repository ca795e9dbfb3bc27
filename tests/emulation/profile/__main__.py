"""What the machine code of the CUDA kernels allows, computed without a GPU.

    python tests/emulation/profile                  prints the table
    python tests/emulation/profile --check TABLE    fails if a kernel is more than 5 % worse than there
    python tests/emulation/profile --write TABLE    writes the table, and what docs/gpu.md shows of it

Needs CUDA's nvcc and cuobjdump: --tools or FASTLOADER_CUDA_TOOLS names the folder with bin/. Nothing is
measured. The table counts what one thread executes on its vector path, and says how many times a copy
within the device's memory the kernel could reach at most, if nothing but its instructions took time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from compiler import ROOT, compile_kernels, version
from profile_table import document, make_table, text, worse

DOCUMENT = ROOT / "docs" / "gpu.md"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", type=Path, default=os.environ.get("FASTLOADER_CUDA_TOOLS"))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", type=Path, metavar="TABLE")
    what.add_argument("--write", type=Path, metavar="TABLE")
    options = parser.parse_args()
    if not options.tools or not (Path(options.tools) / "bin" / "nvcc").exists():
        parser.error("--tools or FASTLOADER_CUDA_TOOLS must name the folder with bin/nvcc")
    tools = Path(options.tools).resolve()
    table = make_table(compile_kernels(tools), version(tools))
    print(text(table))
    if options.write:
        options.write.write_text(json.dumps(table, indent=1) + "\n")
        DOCUMENT.write_text(document(DOCUMENT.read_text(), table))
    if options.check:
        found = worse(json.loads(options.check.read_text()), table)
        print(*found, sep="\n")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
