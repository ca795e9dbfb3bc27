"""The process of one peer: benchmarks.peers.process, which can train besides.

To "pair" it answers {"loader", "cached"}, seconds for a step, to "trace" what the profiler shows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# With a safe path, the folder of the script is not there. The runner has put `benchmarks` on the path.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from device import Cuda, Twin
from plan import PLANS
from training import Training, endless

from benchmarks.peers import process
from benchmarks.peers.scenarios import Settings


def training(loader: Callable[[], Iterator[Any]], settings: Settings) -> process.Commands:
    plan = PLANS[sys.argv[1]]
    made: list[Training] = []
    pairs = 0

    def ready() -> Training:
        if not made:
            device = Twin() if settings.device == "cpu" else Cuda()
            # DataLoader has two batches for each worker in reserve.
            lead = 2 * settings.threads + plan.lead
            made.append(Training(device, plan, endless(loader), lead))
        return made[0]

    def pair() -> dict[str, Any]:
        nonlocal pairs
        pairs += 1
        with_loader, cached = ready().pair(loader_first=pairs % 2 == 1)
        return {"loader": with_loader, "cached": cached}

    return {"pair": pair, "trace": lambda: ready().trace()}


if __name__ == "__main__":
    process.main(training)
