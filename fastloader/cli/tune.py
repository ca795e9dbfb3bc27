"""Runs ``fastloader tune``: measures a user's loader, and says what to change."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from fastloader import FastLoader, PythonPathWarning
from fastloader._core.machine import devices
from fastloader._core.machine.limits import available_threads
from fastloader._core.machine.messages import Progress, progress
from fastloader._core.options import FIXED, native_form
from fastloader._core.sources.recognize import first_part, holds_images, recognize_images, refusals
from fastloader.cli.tune_change import (
    Change,
    Target,
    TuneError,
    changed_source,
    check_call,
    diff_of,
    errors_explained,
    look_up,
    own_arguments,
)
from fastloader.errors import NotNative
from fastloader.transforms._chain import Chain
from fastloader.transforms._reader.chain import steps_of
from fastloader.transforms._reader.kinds import known_class

# ---- How many samples a loader gives in a while.


@dataclasses.dataclass
class Rate:
    """The measurements of a loader. ``seconds`` go from the beginning of an epoch to the last batch that
    was taken, and leave out the wait for the first batch of each measurement, which is in
    ``first_batch_s``: the shortest. ``samples`` leaves out those first batches. ``epochs`` ended."""

    samples: int = 0
    batches: int = 0
    seconds: float = 0.0
    epochs: int = 0
    first_batch_s: float = float("inf")

    @property
    def per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def batch_ms(self) -> float:
        return 1000 * self.seconds / self.batches if self.batches else 0.0


def measure(
    loader: Any,
    seconds: float | None,
    rate: Rate,
    line: Progress,
    called: str,
    step: Callable[[Any], None],
) -> None:
    """Takes batches for so many seconds, over as many epochs as that takes; None: those of one epoch.
    Calls ``step`` with each, and adds them to ``rate``. The first batch is waited for however long it
    takes.

    Raises:
        TuneError: for what the loader raises, and if an epoch has no batch.
    """
    begun = time.perf_counter()
    first = ended = 0.0
    taken = samples = 0
    while not first or (seconds is not None and ended - first < seconds):
        before = taken
        with errors_explained(called):
            for batch in loader:
                arrived = time.perf_counter()
                count = samples_of(batch, loader)
                step(batch)
                ended = time.perf_counter()
                taken += 1
                line.step(count)
                if not first:
                    first = ended
                    rate.first_batch_s = min(rate.first_batch_s, arrived - begun)
                else:
                    samples += count
                    if seconds is not None and ended - first >= seconds:
                        break
            else:
                rate.epochs += 1
        if taken == before:
            raise TuneError(
                f"{called}: the loader gave no batch in an epoch: its dataset is empty, or gives its "
                "samples only once"
            )
    if devices.synchronize(None):
        ended = time.perf_counter()
    rate.samples += samples
    rate.batches += taken - 1
    rate.seconds += ended - first


def samples_of(batch: Any, loader: Any) -> int:
    """Counts the samples in a batch. Without a batch size, the dataset gives batches or samples: a
    tensor of four dimensions is of several pictures, and so are texts or numbers in a list as long as
    all that is beside it."""
    if getattr(loader, "batch_sampler", None) is None:
        return _pictures_in(batch)
    found = _first_length(batch)
    return 1 if found is None else found


def _pictures_in(batch: Any) -> int:
    """Counts the samples of what the dataset gave itself."""
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    lengths = [_first_length(each) for each in parts]
    several = lengths and all(each == lengths[0] for each in lengths)
    pictures = any(isinstance(each, torch.Tensor | np.ndarray) and each.ndim == 4 for each in parts)
    lists = any(isinstance(each, list | tuple) and each for each in parts)
    count = lengths[0] if several and (pictures or lists) else None
    return 1 if count is None else count


def _first_length(batch: Any) -> int | None:
    if isinstance(batch, torch.Tensor | np.ndarray):
        return len(batch) if batch.ndim else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for each in batch:
            found = _first_length(each)
            if found is not None:
                return found
        return len(batch)
    return None


# ---- What of a loader runs natively, and what keeps the rest from it.


_TAIL = ("ToTensor", "Normalize")


@dataclasses.dataclass(frozen=True)
class Native:
    """The native path of a loader. ``plan``: what the loader does, in words. ``chain``: of native
    pictures; None if they are not. ``reason``: why not; empty if they are, or if other batches are
    native."""

    plan: str
    chain: Chain | None
    reason: str

    @classmethod
    def of(cls, loader: FastLoader[Any]) -> Native:
        plan = loader.plan()
        try:
            return cls(plan, recognize_images(loader).chain, "")
        except NotNative as refusal:
            return cls(plan, None, str(refusal) if plan.startswith("Python path") else "")

    def lines(self, dataset: Any) -> list[str]:
        """Lists the plan and, if something is not native, what to change."""
        found = [f"the plan: {self.plan}"]
        if not self.reason:
            return found
        found.append(f"not native: {self.reason}")
        first = first_part(dataset)
        if not holds_images(first):
            found.append(f"  to change: if its samples are pictures, {_advice(first)}")
            return found
        seen = refusals(first)
        found += [f"  to change: {reason}" for reason in seen.found]
        if seen.found and seen.rest:
            found.append(
                f"  without {'it' if len(seen.found) == 1 else 'them'}, all is native: {seen.rest}"
            )
        return found


def _advice(dataset: Any) -> str:
    """Says what to write for a dataset that nobody knows."""
    if other := native_form(dataset):
        streamed = isinstance(dataset, IterableDataset) and "HFImages" in other
        return f"{'load it without streaming, and ' * streamed}give {other} in its place"
    if type(dataset).__module__ == "builtins":
        return "put fastloader.EncodedImage(path, transform) into them: decode threads make it then"
    where = "yield" if isinstance(dataset, IterableDataset) else "return"
    method = "__iter__" if isinstance(dataset, IterableDataset) else "__getitem__"
    return (
        f"{where} fastloader.EncodedImage(path, transform) from {method}, or the encoded bytes in the "
        "place of the path: decode threads make the pictures then"
    )


def tail(dataset: Any, chain: Chain | None) -> str:
    """Returns the package of ToTensor and Normalize, if the transform ends in these two and has nothing
    else behind the pixels; otherwise empty."""
    if chain is None or chain.mean is None or chain.erasing is not None or chain.grey:
        return ""
    steps = [*steps_of(getattr(first_part(dataset), "transform", None))][-2:]
    known = [known_class(step) for step in steps]
    if tuple(kind.__qualname__ for kind in known if kind is not None) != _TAIL:
        return ""
    assert known[0] is not None
    parts = known[0].__module__.split(".")
    return ".".join(parts[: 3 if parts[2:3] == ["v2"] else 2])


# ---- The FastLoader that takes a DataLoader's place.


_BY_SAMPLERS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


def rebuilt(plain: DataLoader[Any], **more: Any) -> FastLoader[Any]:
    """Makes a FastLoader over the same dataset, with the constructor arguments of ``plain``, but
    ``more``.

    Raises:
        TuneError: for a subclass that does something of its own.
    """
    kind = type(plain)
    above = kind.__mro__[: kind.__mro__.index(DataLoader)]
    if any({"__iter__", "__init__", "_get_iterator"} & vars(each).keys() for each in above):
        raise TuneError(f"{kind.__qualname__} has an __iter__ or __init__ of its own")
    taken = inspect.signature(FastLoader.__init__).parameters
    known = inspect.signature(DataLoader.__init__).parameters
    arguments = {
        name: getattr(plain, name)
        for name in known
        if name in taken and name not in ("self", *_BY_SAMPLERS) and hasattr(plain, name)
    }
    if plain.num_workers == 0:
        arguments.pop("prefetch_factor", None)
    if plain.batch_size is None and plain.batch_sampler is not None:
        arguments["batch_sampler"] = plain.batch_sampler
    else:
        arguments["batch_size"] = plain.batch_size
        arguments["drop_last"] = plain.drop_last
        if not isinstance(plain.dataset, IterableDataset):
            arguments["sampler"] = plain.sampler
    if "num_workers" in more and not arguments.get("persistent_workers"):
        arguments.pop("persistent_workers", None)
    dataset = arguments.pop("dataset")
    return FastLoader(dataset, **{**arguments, **more})


# ---- The user's training step.


@dataclasses.dataclass(frozen=True)
class Step:
    """The step that measured loops do with each batch: nothing, if the user has named no function."""

    text: str = ""
    function: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, text: str | None) -> Step:
        """
        Raises:
            TuneError: if there is no such function, or it cannot be called with a batch.
        """
        if text is None:
            return cls()
        function, _ = look_up(text)
        if not callable(function):
            raise TuneError(
                f"{text} is of type {type(function).__name__}: a function that takes a batch is needed"
            )
        check_call(
            text, function, ("batch",), "write a function that takes a batch, and trains with it"
        )
        return cls(text, function)

    def __call__(self, batch: Any) -> None:
        if self.function is not None:
            with errors_explained(self.text):
                self.function(batch)

    @property
    def words(self) -> str:
        """What the loop does, behind "whose loop"."""
        if self.function is None:
            return "does nothing but take batches"
        return f"calls {self.text} with each batch"

    def measure_alone(self, loader: FastLoader[Any], seconds: float, rate: Rate) -> None:
        """Runs the step on one batch again and again, for so many seconds at most: the loader's report
        then has it."""
        if self.function is None:
            return
        # With free data no step takes longer than in the loop of `rate`.
        batches = int(1000 * seconds / rate.batch_ms) if rate.batch_ms else 0
        begun = time.perf_counter()
        # The first is warm-up, and the report wants five more: on a busy machine `seconds` have room
        # for fewer batches of the loader's.
        for batch in loader.headspace(min(max(batches, 6), 1000)):
            self(batch)
            if time.perf_counter() - begun > seconds:
                break


# ---- The change to the user's file, tried before it is proposed.


def check_change(target: Target, change: Change) -> None:
    """Makes the loader by the changed function, with the names of the module that it stands in. Nothing
    is written. Of a loader that no function makes, the file is read.

    Raises:
        TuneError: for what the changed function raises, such as an attribute that a DataLoader lets one
            set and FastLoader does not.
    """
    source = changed_source(target.file, target.lines, change)
    if source is None:
        return
    tree = ast.parse(source)
    function = target.function
    if function is None:
        for line in _refused(tree):
            raise TuneError(
                f"line {line} sets an attribute that FastLoader takes in its constructor"
            )
        return
    named = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
    ]
    names = getattr(function, "__globals__", None)
    if len(named) != 1 or names is None:
        return
    ours = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and {each.name for each in node.names} & {"FastLoader", "PILToTensor"}
    ]
    names = dict(names)
    code = compile(ast.Module([*ours, *named], []), str(target.file), "exec")
    with errors_explained(f"{target.text} with the change"):
        exec(code, names)
        names[function.__name__]()


def _refused(tree: ast.Module) -> Iterator[int]:
    """Gives the lines where an attribute of a loader is set that is fixed when a FastLoader is made."""
    loaders = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] == "FastLoader"
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if node.attr in FIXED and ast.unparse(node.value) in loaders:
                yield node.lineno


# ---- Measures a user's loader, and says what to change.


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
    measure_in_turn([(loader, rate)], [seconds * (0.8 if step.text else 1)], target.text, step)
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
        with errors_explained(f"FastLoader with the arguments of {target.text}"):
            ours = rebuilt(plain, device="auto")
            native = Native.of(ours)
            if native.chain is not None and plain.num_workers == 0:
                arguments["num_workers"] = '"auto"'
                ours = rebuilt(plain, device="auto", num_workers="auto")
                native = Native.of(ours)
    except TuneError as error:
        measure_in_turn([(plain, plain_rate)], [seconds], target.text, step)
        _print_rate("DataLoader", plain_rate)
        _print_step(plain_rate, step)
        print(f"\nNot compared: {error}. Write FastLoader in its place yourself.")
        return
    # Each twice, in turn, so that files that are read for the first time burden both.
    both = [(plain, plain_rate), (ours, our_rate)]
    turn_s = seconds / (5 if step.text else 4)
    measure_in_turn([*both, *reversed(both)], [turn_s] * 4, target.text, step)
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
    step.measure_alone(ours, turn_s, our_rate)
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
    wanted = Change(arguments, normalization, home)
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


def measure_in_turn(
    loaders: Sequence[tuple[Any, Rate]], seconds: Sequence[float | None], called: str, step: Step
) -> None:
    """Measures each loader for its seconds, or for an epoch, and says if the machine had other work."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    known = sum(each for each in seconds if each is not None)
    with progress(f"measuring for {known:g} s" if known else "measuring", None, "samples") as line:
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
    """Prints what of that ratio a larger dataset, or more workers, would change."""
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
    """Prints what the rate means for a training loop, if that is not run here."""
    if rate.samples and not step.text:
        print(
            "Your training step was not run (--step names it). If it takes more than "
            f"{rate.batch_ms:.1f} ms for a batch, it is what bounds your loop; if less, the loader is."
        )
