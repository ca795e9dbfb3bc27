"""Runs a Kernel for all threads of a grid.

A register is an array over threads. Threads that diverge run by the smallest block number first, so
that they meet again where the branches do. PTX promises nothing more that these kernels could rely on:
they have neither barriers nor anything else between threads."""

from __future__ import annotations

import numpy as np

from . import arithmetic, logic, movement
from .memory import Memory, MemoryFault
from .parser import Instruction, Kernel, PtxError
from .threads import WARP, Threads

OPCODES = arithmetic.OPCODES | logic.OPCODES | movement.OPCODES
_CHUNK = 1 << 16  # threads at a time: their registers are to fit into a cache
_MOST_BLOCKS = 0x7FFFFFFF
_MOST_STEPS = 50_000  # far more basic blocks than the threads of a chunk run


class Machine:
    """One launch: `params` are the kernel's parameters in their order, `symbols` the addresses of the
    module's variables."""

    def __init__(
        self, kernel: Kernel, params: list[bytes], memory: Memory, symbols: dict[str, int]
    ) -> None:
        self._kernel, self._memory, self._symbols = kernel, memory, symbols
        self._params = {}
        for param, data in zip(kernel.params, params, strict=True):
            if len(data) != param.size:
                raise PtxError(f"{param.name} has {param.size} bytes, {len(data)} given")
            self._params[param.name] = data
        #: the numbers of the basic blocks that ran
        self.ran: set[int] = set()
        #: how many instructions the warps ran, one for all of a warp's threads that run it together
        self.executed = 0

    def run(self, grid: int, block: int, only: list[range] | None = None) -> None:
        """Args:
        only: the blocks to run of a grid that is too large for all.
        """
        most = self._kernel.max_threads
        if most is not None and block > most:
            raise PtxError(f"{block} threads in a block, where .maxntid allows {most}")
        if not 1 <= grid <= _MOST_BLOCKS:
            raise PtxError(f"a grid of {grid} blocks")
        if block % WARP:
            raise PtxError(f"a block of {block} threads, which are no whole warps")
        step = max(1, _CHUNK // block)
        for blocks in [range(grid)] if only is None else only:
            for first in range(blocks.start, blocks.stop, step):
                threads = Threads(
                    self._kernel,
                    self._params,
                    self._memory,
                    self._symbols,
                    first_block=first,
                    blocks=min(step, blocks.stop - first),
                    grid=grid,
                    block=block,
                )
                with np.errstate(over="ignore"):
                    self._run(threads)

    def _run(self, threads: Threads) -> None:
        blocks = self._kernel.blocks
        end = len(blocks)
        at = np.zeros(threads.count, np.int32)
        steps = 0
        while (current := int(at.min())) < end:
            steps += 1
            if steps > _MOST_STEPS:
                raise PtxError(f"{self._kernel.name} does not end")
            here = at == current
            threads.active = None if here.all() else np.flatnonzero(here)
            at[here] = current + 1
            if blocks[current]:
                self.ran.add(current)
                self.executed += len(blocks[current]) * threads.warps()
            for instruction in blocks[current]:
                if instruction.parts[0] in ("bra", "ret", "exit"):
                    self._branch(instruction, threads, at)
                else:
                    _execute(instruction, threads)

    def _branch(self, instruction: Instruction, threads: Threads, at) -> None:
        goal = len(self._kernel.blocks)
        if instruction.parts[0] == "bra":
            goal = self._kernel.labels[instruction.operands[0]]
        taken = threads.running()
        if instruction.guard is not None:
            predicate = threads.predicate(instruction.guard)
            if instruction.negated:
                predicate = ~predicate
            if "uni" in instruction.parts:
                _require_uniform(instruction, threads, predicate)
            taken = taken[predicate]
        at[taken] = goal


def _execute(instruction: Instruction, threads: Threads) -> None:
    function = OPCODES.get(instruction.parts[0])
    if function is None or instruction.guard is not None:
        raise PtxError(f"not interpreted: {instruction}")
    try:
        function(threads, instruction)
    except (MemoryFault, PtxError) as error:
        raise type(error)(f"{error}; {instruction}") from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise PtxError(f"not interpreted: {instruction}") from error


def _require_uniform(instruction: Instruction, threads: Threads, predicate) -> None:
    warp = threads.running() // WARP
    every = np.bincount(warp)
    taken = np.bincount(warp, weights=predicate, minlength=every.size)
    if ((taken != 0) & (taken != every)).any():
        raise PtxError(f"threads of a warp disagree: {instruction}")
