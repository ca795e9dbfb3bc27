"""How fast a GPU could run instructions at most, beside a copy within its memory."""

from __future__ import annotations

import collections
import re

# Warp instructions a second, one a cycle from each of 4 schedulers of 132 multiprocessors at 1.755 GHz;
# and bytes a second of a copy, 0.88 of what the memory's data sheet says.
_ISSUE = 132 * 4 * 1.755e9
COPIES = {"H100": 0.88 * 3.35e12, "H200": 0.88 * 4.8e12}

# For how many cycles a warp's instruction keeps a pipe of a quarter of a multiprocessor busy: CUDA C++
# Programming Guide, arithmetic throughput for compute capability 9.0, and 32 units that load and store.
_PIPES = [
    ("special", 8, re.compile(r"^(I2F(?!P)|F2I(?!P)|F2F(?!P)|MUFU|POPC)")),
    ("multiply", 4, re.compile(r"^IMAD\.(WIDE|HI)")),
    ("multiply", 2, re.compile(r"^IMAD")),
    ("float", 1, re.compile(r"^(FFMA|FADD|FMUL)")),
    ("uniform", 1, re.compile(r"^(U[A-Z]|R2UR)")),
    ("memory", 4, re.compile(r"^(LD[GL]|ST[GL])")),
    ("constant", 1, re.compile(r"^(LDC|S2R|CS2R)")),
    ("control", 1, re.compile(r"^(BRA|BSSY|BSYNC|EXIT|NOP|WARPSYNC)")),
    ("integer", 2, re.compile(r"")),
]


def busiest(opcodes: list[str]) -> tuple[str, int]:
    """The pipe that is busy the longest, and for how many cycles. Issuing counts as one."""
    cycles: collections.Counter[str] = collections.Counter({"issue": len(opcodes)})
    for opcode in opcodes:
        name, each, _ = next(pipe for pipe in _PIPES if pipe[2].match(opcode))
        cycles[name] += each
    return max(cycles.items(), key=lambda item: item[1])


def ratio_of_copy(gpu: str, cycles_per_element: float, element_bytes: int) -> float:
    """A byte is read and an element written; a copy moves as many bytes."""
    elements = 32 * _ISSUE / cycles_per_element
    return elements * (1 + element_bytes) / COPIES[gpu]


def warps(registers: int) -> int:
    """Of blocks of 256 threads on a multiprocessor with 65,536 registers, which go out by eights."""
    blocks = 65536 // (256 * -(-registers // 8) * 8)
    return min(64, 8 * blocks)
