"""The tests notice a wrong kernel: kernels with one changed instruction, and an interpreter with one
wrong rule."""

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from interpreter import floats, machine
from interpreter.memory import MemoryFault
from interpreter.parser import Address, PtxError
from interpreter.sparse import ComputedInput
from interpreter.threads import Threads
from large_grids import check_blocks
from normalize_cases import draw_constants, image_net, pixels
from specs import FILLS, KINDS, augment_spec, normalize_spec

SIZES = [(2, 1, 1), (1, 1, 129), (3, 16, 16), (2, 3, 171), (1, 16, 32), (2, 17, 31), (3, 60, 68)]
AUGMENT_SIZES = [(2, 3, 5), (4, 7, 9), (3, 16, 16)]
NOTICED = (AssertionError, MemoryFault, PtxError)


@dataclasses.dataclass
class Subject:
    """A kernel and launches that run it, with what must come out."""

    device: object
    name: str
    cases: list  # of (launch, expected)

    @property
    def kernel(self):
        return self.device.of_turn(self.device.file_of(self.name), self.name)[2]

    def check(self) -> None:
        for launch, expected in self.cases:
            assert np.array_equal(launch(), expected)

    def notices(self) -> str:
        """How, or nothing."""
        try:
            self.check()
        except NOTICED as error:
            return f"{type(error).__name__}: {str(error)[:80]}"
        return ""

    def sites(self, fits):
        """Block and place in it of the instructions that run."""
        self.device.ran.clear()
        self.check()
        (ran,) = self.device.ran.values()
        return [
            (block, place)
            for block in sorted(ran)
            for place, instruction in enumerate(self.kernel.blocks[block])
            if fits(instruction)
        ]

    @contextlib.contextmanager
    def changed(self, block, place, instructions):
        """With others in the place of one instruction."""
        blocks = self.kernel.blocks
        before = blocks[block]
        blocks[block] = [*before[:place], *instructions, *before[place + 1 :]]
        try:
            yield
        finally:
            blocks[block] = before


def normalize_subject(device, rng, kind) -> Subject:
    cases = []
    specs = [image_net(kind, size) for size in SIZES]
    for family in ("ties", "overflow", "fused"):
        with np.errstate(all="ignore"):
            scale, bias = draw_constants(rng, kind.channels, family)
        if np.isfinite(scale).all() and np.isfinite(bias).all():
            specs.append(normalize_spec(kind, (2, 16, 16), scale, bias))
    for spec in specs:
        source = pixels(rng, spec)
        expected = device.cpu_normalize(spec, source, device.isas[0])
        cases.append((lambda spec=spec, source=source: device.normalize(spec, source), expected))
    return _subject(device, cases)


def augment_subject(device, rng, kind) -> Subject:
    cases = []
    for size, fill, blend in itertools.product(AUGMENT_SIZES, FILLS, range(2)):
        spec = augment_spec(image_net(kind, size), 3, fill, blend)
        case = device.native_case(spec, int(rng.integers(1 << 31)))
        cases.append((lambda case=case: device.augment(*case[:3]), case.expected))
    return _subject(device, cases)


def _subject(device, cases) -> Subject:
    device.launches.clear()
    cases[0][0]()
    ((_, name),) = device.launches
    return Subject(device, name, cases)


@pytest.fixture
def apart(device):
    """What is counted here is no launch of the kernels as they are."""
    launches, values, ran = device.launches.copy(), device.values, dict(device.ran)
    device.flavour = 0
    yield
    device.launches.clear()
    device.launches.update(launches)
    device.values = values
    device.ran.clear()
    device.ran.update(ran)


@pytest.fixture
def subjects(device, rng, many, apart):
    """Drawn kernels, each anew; every third augments."""

    def drawn(count):
        for number in range(count):
            kind = KINDS[rng.integers(len(KINDS))]
            made = augment_subject if number % 3 == 2 else normalize_subject
            yield made(device, rng, kind)

    return drawn


def is_global(opcode):
    return lambda instruction: (
        instruction.opcode.startswith(opcode) and "global" in instruction.parts
    )


def is_fma(instruction):
    return instruction.parts[0] == "fma"


def moved(instruction, operand, distance):
    operands = list(instruction.operands)
    address = operands[operand]
    operands[operand] = Address(address.base, address.offset + distance)
    return dataclasses.replace(instruction, operands=tuple(operands))


def exchanged(instruction):
    target, a, b, c = instruction.operands
    return dataclasses.replace(instruction, operands=(target, a, c, b))


# A change of any instruction of its kind that no result may survive.
FATAL = {
    "a store is left out": (is_global("st"), lambda i: []),
    "a store runs twice": (is_global("st"), lambda i: [i, i]),
    "a store goes one byte further": (is_global("st"), lambda i: [moved(i, 0, 1)]),
    "a store goes 16 bytes further": (is_global("st"), lambda i: [moved(i, 0, 16)]),
    "a store goes four GiB further": (is_global("st"), lambda i: [moved(i, 0, 1 << 32)]),
    "a load comes from four GiB before": (is_global("ld"), lambda i: [moved(i, 1, -1 << 32)]),
    "an fma adds the factor": (is_fma, lambda i: [exchanged(i)]),
}


@pytest.mark.parametrize("what", FATAL)
def test_what_no_result_survives(subjects, rng, many, what):
    fits, change = FATAL[what]
    for subject in subjects(many(30, 3)):
        sites = subject.sites(fits)
        block, place = sites[rng.integers(len(sites))]
        instruction = subject.kernel.blocks[block][place]
        with subject.changed(block, place, change(instruction)):
            assert subject.notices(), f"{subject.name}: {what}: {instruction}"
        subject.check()


FLIPS = {"ge": "gt", "gt": "ge", "lt": "le", "le": "lt", "eq": "ne", "ne": "eq"}
SWAPS = {"add": "sub", "sub": "add", "or": "and", "and": "or"}


def any_change(rng, instruction):
    """The instruction with a number, a comparison, an address or an operation changed by chance; None if
    it has none of them."""
    first = instruction.parts[0]
    ways = []
    for i, operand in enumerate(instruction.operands):
        if isinstance(operand, Address) and first in ("ld", "st"):
            ways.append(lambda i=i: moved(instruction, i, int(rng.choice([-1, 1]))))
        elif i and isinstance(operand, str) and operand.lstrip("-").isdigit():
            ways.append(lambda i=i: numbered(instruction, i, int(rng.choice([-1, 1]))))
    if first == "setp" and instruction.parts[1] in FLIPS:
        ways.append(lambda: renamed(instruction, 1, FLIPS))
    if first in SWAPS and instruction.parts[-1] != "f32":
        ways.append(lambda: renamed(instruction, 0, SWAPS))
    if first == "fma":
        ways.append(lambda: exchanged(instruction))
    return ways[rng.integers(len(ways))]() if ways else None


def numbered(instruction, operand, change):
    operands = list(instruction.operands)
    operands[operand] = str(int(operands[operand]) + change)
    return dataclasses.replace(instruction, operands=tuple(operands))


def renamed(instruction, part, names):
    parts = list(instruction.parts)
    parts[part] = names[parts[part]]
    return dataclasses.replace(instruction, opcode=".".join(parts))


def test_most_changes_of_one_instruction_are_noticed(subjects, rng, many):
    """Not all: a boundary where both branches agree, a test for a NaN that cannot be, the choice between
    two divisions with the same result."""
    # Of few draws fewer must be noticed, so that no sample fails by chance.
    count, noticed = many((200, 0.6), (12, 0.25))
    survivors = []
    for subject in subjects(count):
        sites = subject.sites(lambda instruction: any_change(rng, instruction) is not None)
        block, place = sites[rng.integers(len(sites))]
        instruction = subject.kernel.blocks[block][place]
        change = any_change(rng, instruction)
        with subject.changed(block, place, [change]):
            if not subject.notices():
                survivors.append(f"{subject.name}: {instruction} -> {change}")
    print("survivors:", *survivors, sep="\n  ")
    assert len(survivors) <= (1 - noticed) * count


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b, c: floats.add(floats.mul(a, b), c),
        lambda a, b, c: floats.to_bits(
            floats.as_float(a).astype(np.float64) * floats.as_float(b) + floats.as_float(c)
        ),
    ],
    ids=["rounded after the product", "rounded to float64 first"],
)
def test_an_fma_that_rounds_twice_is_noticed(device, rng, monkeypatch, apart, wrong):
    def fma(threads, instruction):
        target, *sources = instruction.operands
        with np.errstate(all="ignore"):
            threads.set(target, wrong(*(threads.get(each, "b32") for each in sources)))

    def differs():
        while True:
            kind = KINDS[rng.integers(16)]  # of float32
            with np.errstate(all="ignore"):
                constants = draw_constants(rng, kind.channels, "fused")
            if np.isfinite(constants).all():
                break
        spec = normalize_spec(kind, (1, 16, 16), *constants)
        source = pixels(rng, spec)
        expected = device.cpu_normalize(spec, source, device.isas[0])
        return not np.array_equal(device.normalize(spec, source), expected)

    assert not any(differs() for _ in range(10))
    monkeypatch.setitem(machine.OPCODES, "fma", fma)
    # A launch shows the rarer of the two with a chance of one in twenty.
    assert any(differs() for _ in range(1000))


@pytest.mark.parametrize("what", ["load", "store"])
def test_an_address_that_loses_its_upper_half_is_noticed(device, rng, monkeypatch, apart, what):
    whole = Threads.address
    space = {"load": 1, "store": 2}[what]  # in the order in which the allocations are placed

    def address(threads, operand):
        every = whole(threads, operand)
        ours = every >> np.uint64(40) == space
        return np.where(ours, every & ~np.uint64(0xFF << 32), every)

    def launch(device, spec, out, blocks):
        device.launch_normalize(spec, ComputedInput("the input", spec.values), out, blocks=blocks)

    kind = KINDS[rng.integers(len(KINDS))]
    spec = image_net(kind, (90000, 224, 224))
    check_blocks(device, rng, launch, spec, own=lambda image: image)
    monkeypatch.setattr(Threads, "address", address)
    with pytest.raises(NOTICED):
        check_blocks(device, rng, launch, spec, own=lambda image: image)
