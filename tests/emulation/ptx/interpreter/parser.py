"""PTX text as data: a Module of Kernels, a Kernel of basic blocks of Instructions.

The parser is written for what nvcc emits: one statement on a line. It raises PtxError for anything
that it does not know."""

from __future__ import annotations

import dataclasses
import functools
import re


class PtxError(Exception):
    """The text says what the interpreter does not know."""


@dataclasses.dataclass(frozen=True)
class Address:
    """[base+offset]: the base is a register, a parameter or a variable."""

    base: str
    offset: int


@dataclasses.dataclass(frozen=True)
class Instruction:
    line: int
    opcode: str  # "ld.global.v4.u8"
    operands: tuple  # of str, Address, or a tuple of str for {a, b}
    guard: str | None = None  # the register of its predicate
    negated: bool = False

    @functools.cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    def __str__(self) -> str:
        guard = f"@{'!' if self.negated else ''}{self.guard} " if self.guard else ""
        return f"line {self.line}: {guard}{self.opcode} {', '.join(map(str, self.operands))}"


@dataclasses.dataclass(frozen=True)
class Param:
    name: str
    size: int


@dataclasses.dataclass
class Kernel:
    name: str
    params: list[Param]
    registers: dict[str, str] = dataclasses.field(default_factory=dict)  # name -> type
    local: dict[str, int] = dataclasses.field(default_factory=dict)  # name -> offset
    local_bytes: int = 0
    max_threads: int | None = None
    blocks: list[list[Instruction]] = dataclasses.field(default_factory=list)
    labels: dict[str, int] = dataclasses.field(default_factory=dict)  # label -> block


@dataclasses.dataclass
class Module:
    target: str = ""
    kernels: dict[str, Kernel] = dataclasses.field(default_factory=dict)
    variables: dict[str, bytes] = dataclasses.field(default_factory=dict)


SIZES = {"pred": 0, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2}
SIZES |= {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}

_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?")
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(%\w+)(?:<(\d+)>)?")
_LOCAL = re.compile(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]")
_GLOBAL = re.compile(
    r"\.global\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?(?:\s*=\s*\{(.*)\})?"
)
_ADDRESS = re.compile(r"^\[([^+\]\s]+)\s*(?:\+\s*(-?\d+))?\]$")
_LABEL = re.compile(r"^([$\w]+):$")
_GUARD = re.compile(r"^@(!?)(%\w+)\s+(.*)$", re.S)

_ENDS_BLOCK = {"bra", "ret", "exit"}


def _operand(text: str) -> str | Address | tuple[str, ...]:
    if text.startswith("{"):
        return tuple(each.strip() for each in text[1:-1].split(","))
    if not text.startswith("["):
        return text
    match = _ADDRESS.match(text)
    if match is None:
        raise PtxError(f"the address {text}")
    return Address(match[1], int(match[2] or 0))


def _instruction(statement: str, line: int) -> Instruction:
    guard, negated = None, False
    if match := _GUARD.match(statement):
        negated, guard, statement = match[1] == "!", match[2], match[3].strip()
    opcode, _, rest = statement.replace("\t", " ").partition(" ")
    found = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)
    operands = tuple(_operand(each.strip()) for each in found)
    return Instruction(line, opcode, operands, guard, negated)


def _variable(statement: str) -> tuple[str, bytes]:
    match = _GLOBAL.search(statement)
    if match is None:
        raise PtxError(statement[:100])
    kind, name, count, values = match.groups()
    size = SIZES[kind]
    data = b""
    for value in values.split(",") if values else []:
        data += (int(value, 0) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    return name, data.ljust(size * int(count or 1), b"\0")


class _Lines:
    def __init__(self, text: str) -> None:
        # A comment becomes as many line ends as it had: the numbers stay those of the file.
        text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
        self.lines = [line.split("//")[0].strip() for line in text.split("\n")]
        self.next = 0

    def __bool__(self) -> bool:
        return self.next < len(self.lines)

    def take(self) -> str:
        self.next += 1
        return self.lines[self.next - 1]

    def statement(self, first: str) -> str:
        while not first.endswith(";"):
            first += " " + self.take()
        return first[:-1].strip()


def parse(text: str) -> Module:
    module = Module()
    lines = _Lines(text)
    while lines:
        line = lines.take()
        if line.startswith(".target"):
            module.target = line.split()[1].rstrip(",")
        elif re.match(r"(\.visible\s+|\.weak\s+)*\.entry\b", line):
            kernel = _kernel(line, lines)
            module.kernels[kernel.name] = kernel
        elif ".global" in line.split():
            name, data = _variable(lines.statement(line))
            module.variables[name] = data
        elif line and not line.startswith((".version", ".address_size")):
            raise PtxError(f"line {lines.next}: {line[:100]}")
    return module


def _kernel(line: str, lines: _Lines) -> Kernel:
    kernel = Kernel(re.search(r"\.entry\s+([\w$]+)", line)[1], [])
    while line != "{":
        if match := _PARAM.search(line):
            kind, name, count = match.groups()
            kernel.params.append(Param(name, SIZES[kind] * int(count or 1)))
        elif line.startswith(".maxntid"):
            threads = [int(each) for each in re.findall(r"\d+", line)]
            kernel.max_threads = threads[0] * (threads[1] if len(threads) > 1 else 1)
        line = lines.take()
    current: list[Instruction] = []
    kernel.blocks.append(current)
    while (line := lines.take()) != "}":
        number = lines.next
        if not line or line.split()[0] in (".loc", ".pragma", ".file"):
            continue
        if match := _LABEL.match(line):
            if current:
                current = []
                kernel.blocks.append(current)
            kernel.labels[match[1]] = len(kernel.blocks) - 1
        elif line.startswith("."):
            _declaration(line, number, kernel)
        else:
            current.append(_instruction(lines.statement(line), number))
            if current[-1].parts[0] in _ENDS_BLOCK:
                current = []
                kernel.blocks.append(current)
    return kernel


def _declaration(line: str, number: int, kernel: Kernel) -> None:
    if match := _REG.match(line):
        kind, name, count = match.groups()
        names = [f"{name}{i}" for i in range(int(count))] if count else [name]
        kernel.registers.update(dict.fromkeys(names, kind))
    elif match := _LOCAL.match(line):
        align, name, size = int(match[1]), match[2], int(match[3])
        offset = -(-kernel.local_bytes // align) * align
        kernel.local[name] = offset
        kernel.local_bytes = offset + size
    else:
        raise PtxError(f"line {number}: {line}")
