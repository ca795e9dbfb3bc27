"""Machine code as cuobjdump prints it, and a kernel's vector path in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_ENDS_BLOCK = ("BRA", "EXIT", "CALL", "RET", "BSYNC")
_VECTOR_STORE = "STG.E.128"


class Instruction(NamedTuple):
    address: int
    guarded: bool
    opcode: str
    operands: str

    @property
    def target(self) -> int:
        return int(re.findall(r"0x[0-9a-f]+", self.operands)[-1], 16)

    @property
    def conditional(self) -> bool:
        return self.guarded or bool(re.match(r"!?U?P\d", self.operands))


def functions(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    """Mangled names and instructions."""
    name, code = "", []
    for line in text.split("\n"):
        if match := re.search(r"Function : (\S+)", line):
            if name:
                yield name, code
            name, code = match[1], []
        elif (match := _LINE.match(line)) and name:
            address, guard, opcode, operands = match.groups()
            code.append(Instruction(int(address, 16), bool(guard), opcode, operands))
    if name:
        yield name, code


def vector_path(code: list[Instruction], longest: bool = False) -> list[Instruction] | None:
    """Instructions of a way from the entry to an EXIT without a loop, a call and a store of less than
    16 bytes. Of several ways the one with the most stores of 16 bytes, of these the shortest or the
    longest. None if no way stores 16 bytes."""
    blocks = _blocks(code)
    best: dict[int, tuple | None] = {}

    def walk(start: int):
        if start in best:
            return best[start]
        block, found = blocks[start], None
        if not any(_leaves_the_path(each) for each in block):
            for successor in _successors(block, blocks):
                rest = ((0, 0), []) if successor is None else walk(successor)
                if rest is not None:
                    stores, length = rest[0]
                    stores += sum(each.opcode == _VECTOR_STORE for each in block)
                    length += len(block) if longest else -len(block)
                    candidate = ((stores, length), block + rest[1])
                    if found is None or candidate[0] > found[0]:
                        found = candidate
        best[start] = found
        return found

    sys.setrecursionlimit(max(10_000, 4 * len(blocks)))
    found = walk(code[0].address)
    return found[1] if found is not None and found[0][0] else None


def _blocks(code: list[Instruction]) -> dict[int, list[Instruction]]:
    starts = {code[0].address}
    for instruction, following in zip(code, [*code[1:], None]):
        if instruction.opcode.startswith(_ENDS_BLOCK) and following is not None:
            starts.add(following.address)
        if instruction.opcode.startswith("BRA"):
            starts.add(instruction.target)
    blocks: dict[int, list[Instruction]] = {}
    for instruction in code:
        if instruction.address in starts:
            current = blocks.setdefault(instruction.address, [])
        current.append(instruction)
    return blocks


def _leaves_the_path(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    return opcode.startswith(("CALL", "RET")) or (
        opcode.startswith("STG") and opcode != _VECTOR_STORE
    )


def _successors(block: list[Instruction], blocks: dict) -> list[int | None]:
    """Forward only; None is the end."""
    last = block[-1]
    after = [each for each in blocks if each > last.address]
    following = [min(after)] if after else []
    if last.opcode.startswith("EXIT"):
        return following if last.guarded else [None]
    if last.opcode.startswith("BRA"):
        targets = [last.target] if last.target > block[0].address else []
        return [*targets, *following] if last.conditional else targets
    return following
