"""The table of the kernels: made, printed, compared with another, put into the documents."""

from __future__ import annotations

import re

from ceiling import COPIES, busiest, ratio_of_copy, warps
from compiler import ARCHITECTURE, TYPES, CompiledKernel
from machine_code import vector_path

MARGIN = 0.05
_BLOCK = re.compile(r"(<!-- cuda profile -->\n).*?(<!-- /cuda profile -->)", re.S)


def make_table(kernels: list[CompiledKernel], compiler: str) -> dict:
    return {
        "computed": "from machine code; nothing of this is measured",
        "architecture": ARCHITECTURE,
        "compiler": compiler,
        "kernels": {kernel.name: _row(kernel) for kernel in kernels},
    }


def _row(kernel: CompiledKernel) -> dict:
    row = {
        "registers": kernel.registers,
        "warps": warps(kernel.registers),
        "local_bytes": kernel.local_bytes,
        "spilled_bytes": kernel.spilled_bytes,
    }
    path = vector_path(kernel.code)
    # A loop on the path runs as often as the data say: no count is the kernel's.
    if path is None:
        raise RuntimeError(f"{kernel.name} has no vector path")
    opcodes = [each.opcode for each in path]
    stores = sum(each.startswith("STG") for each in opcodes)
    elements = stores * 16 // kernel.element_bytes
    pipe, cycles = busiest(opcodes)
    bounds = {
        gpu: round(ratio_of_copy(gpu, cycles / elements, kernel.element_bytes), 2) for gpu in COPIES
    }
    most = {}
    if kernel.name.startswith("augment"):
        # The shortest way is the one on which the record changes nothing.
        longest = vector_path(kernel.code, longest=True)
        most = {"instructions_at_most": round(len(longest) / elements, 2)}
    return {
        "instructions": round(len(opcodes) / elements, 2),
        **most,
        "stores": round(stores / elements, 3),
        "busiest": pipe,
        "of_copy": bounds,
        **row,
    }


def worse(committed: dict, table: dict) -> list[str]:
    """A sentence for each figure that is more than 5 % worse, and for each kernel that came or went.
    Another compiler is named, too: its figures differ for reasons that are not the kernels'."""
    old, new = committed["kernels"], table["kernels"]
    found = []
    if committed["compiler"] != table["compiler"]:
        found.append(
            f"the committed table is of nvcc {committed['compiler']}, this is {table['compiler']}: "
            "--write a new one"
        )
    found += [f"{name}: not in the committed table" for name in sorted(new.keys() - old.keys())]
    found += [f"{name}: no such kernel any more" for name in sorted(old.keys() - new.keys())]
    for name in sorted(old.keys() & new.keys()):
        before, after = _flat(old[name]), _flat(new[name])
        for what in sorted(before.keys() | after.keys()):
            was, now = before.get(what), after.get(what)
            if was is None or now is None:
                found.append(f"{name}: {what} is in one table only")
            elif _is_worse(what, was, now):
                found.append(f"{name}: {what} was {was}, is {now}")
    return found


def _flat(row: dict) -> dict[str, float]:
    """The figures that are compared. Registers are not: the warps they leave room for are."""
    counts = ("instructions", "instructions_at_most", "stores")
    kept = {what: row[what] for what in counts if what in row}
    kept |= {what: row[what] for what in ("warps", "local_bytes", "spilled_bytes")}
    return kept | {f"of_copy on {gpu}": bound for gpu, bound in row.get("of_copy", {}).items()}


def _is_worse(what: str, was: float, now: float) -> bool:
    if what == "warps" or what.startswith("of_copy"):
        return now < was * (1 - MARGIN)
    return now > was * (1 + MARGIN)


def text(table: dict) -> str:
    head = ["kernel", "instructions", "stores", "busiest", *COPIES]
    head += ["registers", "warps", "local", "spilled"]
    rows = [head]
    for name, row in table["kernels"].items():
        bounds = [row.get("of_copy", {}).get(gpu, "") for gpu in COPIES]
        path = [row.get(what, "") for what in ("instructions", "stores", "busiest")]
        machine = [row[what] for what in ("registers", "warps", "local_bytes", "spilled_bytes")]
        rows.append([name, *path, *bounds, *machine])
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells
    ]
    first = f"{table['architecture']}, nvcc {table['compiler']}: computed, not measured"
    return "\n".join([first, *lines])


def document(page: str, table: dict) -> str:
    """The page with what it shows of the table: the kernels of three channels."""
    if len(_BLOCK.findall(page)) != 1:
        raise RuntimeError("the page has no place for the table")
    lines = [
        "| kernel | output | layouts | instructions an element | H100 | H200 |",
        "|---|---|---|---|---|---|",
    ]
    for kernel in ("normalize", "augment"):
        for kind in TYPES:
            for name, row in table["kernels"].items():
                if name.startswith(f"{kernel} {kind} C=3 "):
                    layouts = name.split()[-1].upper().replace("->", " to ")
                    bounds = " | ".join(f"{row['of_copy'][gpu]:.1f}" for gpu in COPIES)
                    cells = f"{kernel} | {kind} | {layouts} | {row['instructions']:.1f} | {bounds}"
                    lines.append(f"| {cells} |")
    made = f"Computed for {table['architecture']} from what nvcc {table['compiler']} makes."
    text = "\n".join([*lines, "", made])
    return _BLOCK.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page)
