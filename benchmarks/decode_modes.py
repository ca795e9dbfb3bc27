"""FastLoader's decode modes: what "fast" costs in pixels, and what each costs in time.

    python benchmarks/decode_modes.py --data DIR [--threads 2] [--repeats 5]

The error of "fast" is over all samples of one epoch, in units of 0..255: mean absolute error, PSNR of
the whole, largest difference, share of samples off by more than 8. Times are of whole epochs, rounds
interleaved, page cache warm; the evaluation chain also against torch's DataLoader + Pillow with as many
worker processes.
Predicted: "fast" gains little where crops are hardly shrunk, since entropy decoding remains, and half
the time or more where they are; "whole" costs what lies below the crop.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import PIL
import torch
from measure import interleaved, ratio, write
from torch.utils.data import DataLoader

from fastloader import FastLoader
from fastloader import transforms as T
from fastloader.datasets import ImageFolder

CHAINS = {
    "RandomResizedCrop(224)": [T.RandomResizedCrop(224), T.RandomHorizontalFlip()],
    "Resize(256), CenterCrop(224)": [T.Resize(256), T.CenterCrop(224)],
    "RandomResizedCrop(112)": [T.RandomResizedCrop(112), T.RandomHorizontalFlip()],
}
EVALUATION = "Resize(256), CenterCrop(224)"


def error(dataset: ImageFolder, threads: int, batch_size: int) -> dict[str, float]:
    """Of "fast" against "exact", the same crops."""

    def loader(decode: str) -> FastLoader[Any]:
        generator = torch.Generator().manual_seed(0)
        return FastLoader(
            dataset, batch_size, num_workers=threads, generator=generator, decode=decode
        )

    count = total = squares = largest = over = 0
    for (exact, _), (fast, _) in zip(loader("exact"), loader("fast"), strict=True):
        difference = (exact.int() - fast.int()).abs()
        count += difference.numel()
        total += int(difference.sum())
        squares += int((difference * difference).sum())
        largest = max(largest, int(difference.max()))
        over += int((difference > 8).sum())
    return {
        "mean_absolute": total / count,
        "psnr_db": 10 * math.log10(255**2 * count / squares) if squares else math.inf,
        "max": largest,
        "share_over_8": over / count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of class folders")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    def epoch(loader: Any) -> Callable[[], None]:
        def run() -> None:
            for _batch in loader:
                pass

        return run

    results: dict[str, Any] = {
        "threads": arguments.threads,
        "batch_size": arguments.batch_size,
        "pillow": PIL.__version__,
        "chains": {},
    }
    common = {"batch_size": arguments.batch_size, "num_workers": arguments.threads}
    for name, steps in CHAINS.items():
        dataset = ImageFolder(arguments.data, T.Compose(steps))
        contenders = {
            mode: epoch(FastLoader(dataset, shuffle=True, decode=mode, **common))
            for mode in ("exact", "whole", "fast")
        }
        if name == EVALUATION:
            contenders["DataLoader + Pillow"] = epoch(
                DataLoader(dataset, shuffle=True, persistent_workers=True, **common)
            )
        found = error(dataset, arguments.threads, arguments.batch_size)
        timings = interleaved(contenders, arguments.repeats, warm_up=1)
        # How many times as fast as the first the second is.
        pairs = {"fast / exact": ("exact", "fast"), "whole / exact": ("exact", "whole")}
        if name == EVALUATION:
            pairs["exact / DataLoader + Pillow"] = ("DataLoader + Pillow", "exact")
        ratios = {pair: ratio(timings[a], timings[b]) for pair, (a, b) in pairs.items()}
        results["pictures"] = len(dataset)
        results["chains"][name] = {
            "error": found,
            "timings": {
                each: {"images_per_s": len(dataset) / timing.median, **timing.as_json()}
                for each, timing in timings.items()
            },
            "speed": ratios,
        }
        print(name)
        print(
            f"  fast is off by {found['mean_absolute']:.3f} in the mean, PSNR "
            f"{found['psnr_db']:.1f} dB, at most {found['max']}, "
            f"{100 * found['share_over_8']:.3f} % by more than 8"
        )
        for pair, value in ratios.items():
            print(f"  {pair}: {value['median']:.2f} ({value['min']:.2f} to {value['max']:.2f})")
    print("written:", write("decode_modes", results))


if __name__ == "__main__":
    main()
