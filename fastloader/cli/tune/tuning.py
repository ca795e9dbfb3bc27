"""Measures a user's loader, and says what to change."""

from __future__ import annotations

import os
import warnings
from typing import Any

from torch.utils.data import DataLoader

from fastloader import FastLoader, PythonPathWarning
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages.progress import progress
from fastloader.cli.tune.change import Wanted, diff_of
from fastloader.cli.tune.measure import Rate, measure
from fastloader.cli.tune.native import Native, tail
from fastloader.cli.tune.rebuilt import rebuilt
from fastloader.cli.tune.step import Step
from fastloader.cli.tune.target import Target, TuneError, own_arguments, told
from fastloader.cli.tune.tried import check_change

SHORT = 10  # batches of an epoch below which its beginning weighs too much


def tune(text: str, seconds: float, step_text: str | None = None) -> None:
    """Prints all there is to say of the loader. ``step_text`` names the user's training step.

    Raises:
        TuneError: if there is no such loader or step, or one of them fails.
    """
    with own_arguments(text), warnings.catch_warnings():
        warnings.simplefilter("ignore", PythonPathWarning)  # the reason is printed
        target = Target.of(text)
        step = Step.of(step_text)
        loader = target.make()
        if isinstance(loader, FastLoader):
            _tune_ours(target, loader, seconds, step)
        else:
            _tune_plain(target, loader, seconds, step)


def _tune_ours(target: Target, loader: FastLoader[Any], seconds: float, step: Step) -> None:
    rate = Rate()
    # The fifth part is for the step alone.
    _measure([(loader, rate)], [seconds * (0.8 if step.text else 1)], target.text, step)
    _print_rate("FastLoader", rate)
    _print_step(rate, step)
    step.measure_alone(loader, seconds / 5, rate)
    print(f"\nThe report of {target.text}, whose loop {step.words}:")
    print(loader.report())
    print()
    print("\n".join(Native.of(loader).lines(loader.dataset)))
    print("\nNo diff: this is a FastLoader already.")
    loader.close()


def _tune_plain(target: Target, plain: DataLoader[Any], seconds: float, step: Step) -> None:
    arguments = {"device": '"auto"'}
    plain_rate, our_rate = Rate(), Rate()
    try:
        with told(f"FastLoader with the arguments of {target.text}"):
            ours = rebuilt(plain, device="auto")
            native = Native.of(ours)
            if native.chain is not None and plain.num_workers == 0:
                arguments["num_workers"] = '"auto"'
                ours = rebuilt(plain, device="auto", num_workers="auto")
                native = Native.of(ours)
    except TuneError as error:
        _measure([(plain, plain_rate)], [seconds], target.text, step)
        _print_rate("DataLoader", plain_rate)
        _print_step(plain_rate, step)
        print(f"\nNot compared: {error}. Write FastLoader in its place yourself.")
        return
    # Each twice, in turn, so that files that are read for the first time burden both.
    both = [(plain, plain_rate), (ours, our_rate)]
    each = seconds / (5 if step.text else 4)
    _measure([*both, *reversed(both)], [each] * 4, target.text, step)
    _print_rate("DataLoader", plain_rate)
    _print_rate("FastLoader", our_rate)
    ratio = our_rate.per_s / plain_rate.per_s if plain_rate.per_s else 0.0
    changed = ", ".join(f"{name}={text}" for name, text in arguments.items())
    print(f"FastLoader ({changed}) gives {ratio:.2f} times the samples per second.")
    _print_conditions(plain, native.chain is not None)
    if ratio < 0.95:
        print(
            "That is slower. Measure again when the machine does nothing else; if it stays so, keep the "
            "DataLoader for this dataset."
        )
    elif ratio < 1.1 and native.reason:
        print("That is next to nothing to win, until what is named below is changed.")
    _print_step(our_rate, step)
    step.measure_alone(ours, each, our_rate)
    print(f"\nThe report of that FastLoader, whose loop {step.words}:")
    print(ours.report())
    print()
    print("\n".join(native.lines(plain.dataset)))
    ours.close()
    normalization = None
    home = tail(plain.dataset, native.chain)
    if home:
        assert native.chain is not None and native.chain.mean and native.chain.std
        normalization = native.chain.mean, native.chain.std
    wanted = Wanted(arguments, normalization, home)
    try:
        check_change(target, wanted)
    except TuneError as error:
        print(f"\nNo diff, because FastLoader would refuse it: {error}")
        print("Give such an attribute another name, or leave it out, and run this once more.")
        return
    change = diff_of(target.file, target.lines, wanted)
    if normalization is not None and "PILToTensor()" not in change:
        print(
            "ToTensor and Normalize stay, because they are not written where the function makes this "
            "loader's dataset: another one may use them. The native path does both."
        )
    print("\nThe change:")
    print(change, end="")


def _measure(
    loaders: list[tuple[Any, Rate]], seconds: list[float], called: str, step: Step
) -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with progress(f"measuring for {sum(seconds):g} s", None, "samples") as line:
        for (loader, rate), each in zip(loaders, seconds, strict=True):
            measure(loader, each, rate, line, called, step)
    if load > available_threads() / 2:
        print(
            f"This machine was busy with other work (load {load:.1f} on {available_threads()} CPUs): "
            "repeat it when it is idle, the figures below say little."
        )


def _print_rate(kind: str, rate: Rate) -> None:
    if not rate.samples:
        print(f"{kind}: a single batch, after {rate.first_batch_s:.3f} s: too few to tell a rate")
        return
    print(
        f"{kind}: {rate.per_s:.1f} samples/s ({rate.samples} samples in {rate.batches} batches and "
        f"{rate.seconds:.3f} s, {rate.epochs} epochs ended; the first batch came after "
        f"{rate.first_batch_s:.3f} s)"
    )


def _print_conditions(plain: DataLoader[Any], native: bool) -> None:
    """What of that ratio a larger dataset, or more workers, would change."""
    try:
        batches = len(plain)
    except (TypeError, NotImplementedError):  # its dataset has no length
        batches = SHORT
    if batches < SHORT:
        print(
            f"An epoch has {batches} batches: its beginning is much of what was measured. Measure a "
            f"dataset of {SHORT} batches or more."
        )
    processors = available_threads()
    if native and plain.num_workers == 0 and processors > 1:
        print(
            f"DataLoader ran in one process, as num_workers=0 says, FastLoader on {processors} "
            f"processors: measure num_workers={processors}, too."
        )


def _print_step(rate: Rate, step: Step) -> None:
    """What the rate means for a training loop, if that is not run here."""
    if rate.samples and not step.text:
        print(
            "Your training step was not run (--step names it). If it takes more than "
            f"{rate.batch_ms:.1f} ms for a batch, it is what bounds your loop; if less, the loader is."
        )
