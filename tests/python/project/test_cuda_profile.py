"""tests/emulation/profile finds the vector path in machine code, and a kernel that got worse fails."""

import copy
import json

import pytest
from tool_modules import tool_modules

from support import PACKAGE_ROOT

TOOL = PACKAGE_ROOT / "tests" / "emulation" / "profile"
TABLE = PACKAGE_ROOT / "benchmarks" / "results" / "cuda-profile.json"
if not TABLE.exists():
    pytest.skip("needs the source tree", allow_module_level=True)

# The vector path jumps over the loop of single stores.
MANGLED = (
    "_ZN1a16normalize_kernelINS_15NormalizeKernelILNS_9FloatTypeE1ELm3ELNS_6LayoutE1ELS4_0EEEvi"
)
CODE = f"""
        Function : {MANGLED}
        /*0000*/                   S2R R0, SR_TID.X ;             /* 0x0 */
        /*0010*/               @P0 EXIT ;                         /* 0x0 */
        /*0020*/              @!P1 BRA 0x60 ;                     /* 0x0 */
        /*0030*/                   LDG.E.U8 R2, [R4.64] ;         /* 0x0 */
        /*0040*/                   STG.E.U16 [R6.64], R2 ;        /* 0x0 */
        /*0050*/                   BRA 0x30 ;                     /* 0x0 */
        /*0060*/                   LDG.E.64 R2, [R4.64] ;         /* 0x0 */
        /*0070*/                   FFMA R8, R2, R3, R9 ;          /* 0x0 */
        /*0080*/                   STG.E.128 [R6.64], R8 ;        /* 0x0 */
        /*0090*/                   EXIT ;                         /* 0x0 */
        /*00a0*/                   BRA 0xa0 ;                     /* 0x0 */
"""


@pytest.fixture(scope="module")
def profile():
    """What the tool's modules hold. They are on the path for these tests only."""
    with tool_modules(TOOL) as modules:
        yield modules


@pytest.fixture
def committed():
    return json.loads(TABLE.read_text())


def compiled(profile, text=CODE):
    ((mangled, code),) = profile.functions(text)
    name, element_bytes = profile.name_of(mangled)
    return profile.CompiledKernel(name, element_bytes, code, 33, 0, 0)


def test_the_vector_path_is_found(profile):
    kernel = compiled(profile)
    assert (kernel.name, kernel.element_bytes) == ("normalize float16 C=3 nhwc->nchw", 2)
    path = [each.opcode for each in profile.vector_path(kernel.code)]
    assert path == ["S2R", "EXIT", "BRA", "LDG.E.64", "FFMA", "STG.E.128", "EXIT"]
    (row,) = profile.make_table([kernel], "1.2.3")["kernels"].values()
    assert row["instructions"] == round(7 / 8, 2) and row["stores"] == 1 / 8
    # Two instructions that access memory, four cycles each, for 8 elements of 1 + 2 bytes.
    assert row["busiest"] == "memory"
    bytes_a_second = 32 * 132 * 4 * 1.755e9 / (8 / 8) * 3
    assert row["of_copy"]["H100"] == round(bytes_a_second / (0.88 * 3.35e12), 2)
    assert row["warps"] == 48  # six blocks of 256 threads with 40 registers


def test_of_two_ways_the_shortest_or_the_longest_is_found(profile):
    # The second way to the store makes a detour of two instructions.
    detour = (
        CODE.replace("BRA 0x60 ; ", "BRA 0x70 ; ")
        .replace(
            "/*0070*/                   FFMA R8, R2, R3, R9 ;",
            "/*0070*/              @!P2 BRA 0x90 ;                     /* 0x0 */\n"
            "        /*0078*/                   FADD R9, R9, R9 ;",
        )
        .replace("/*0080*/", "/*0090*/")
        .replace("/*0090*/                   EXIT", "/*0098*/ EXIT")
    )
    code = compiled(profile, detour).code
    shortest = [each.opcode for each in profile.vector_path(code)]
    assert shortest == ["S2R", "EXIT", "BRA", "BRA", "STG.E.128", "EXIT"]
    longest = [each.opcode for each in profile.vector_path(code, longest=True)]
    assert longest == ["S2R", "EXIT", "BRA", "BRA", "FADD", "STG.E.128", "EXIT"]


def test_a_kernel_without_a_vector_path_is_an_error(profile):
    with pytest.raises(RuntimeError, match="no vector path"):
        profile.make_table([compiled(profile, CODE.replace("STG.E.128", "STG.E"))], "1.2.3")


def test_the_same_table_is_not_worse(profile, committed):
    assert profile.worse(committed, committed) == []


@pytest.mark.parametrize(
    "what, factor", [("instructions", 1.06), ("stores", 1.06), ("warps", 0.94), ("H200", 0.94)]
)
def test_a_worse_kernel_is_named(profile, committed, what, factor):
    name = "normalize bfloat16 C=3 nhwc->nhwc"
    for by, noticed in ((factor, True), ((1 + factor) / 2, False), (1 / factor, False)):
        table = copy.deepcopy(committed)
        row = table["kernels"][name]
        place = row["of_copy"] if what == "H200" else row
        place[what] *= by
        found = profile.worse(committed, table)
        assert [each.startswith(name) and what in each for each in found] == [True] * noticed


@pytest.mark.parametrize("what", ["local_bytes", "spilled_bytes"])
def test_the_first_byte_of_local_memory_is_worse(profile, committed, what):
    table = copy.deepcopy(committed)
    table["kernels"]["normalize float32 C=1 nhwc->nhwc"][what] += 4
    (found,) = profile.worse(committed, table)
    assert found == f"normalize float32 C=1 nhwc->nhwc: {what} was 0, is 4"


def test_a_kernel_that_came_or_went_is_named(profile, committed):
    fewer = copy.deepcopy(committed)
    name, _ = fewer["kernels"].popitem()
    assert profile.worse(fewer, committed) == [f"{name}: not in the committed table"]
    assert profile.worse(committed, fewer) == [f"{name}: no such kernel any more"]


def test_another_compiler_is_named_beside_what_is_worse(profile, committed):
    table = copy.deepcopy(committed)
    table["compiler"] = "1.2.3"
    table["kernels"]["normalize float32 C=1 nhwc->nhwc"]["local_bytes"] += 4
    of_the_compiler, of_the_kernel = profile.worse(committed, table)
    was = f"the committed table is of nvcc {committed['compiler']}"
    assert of_the_compiler == f"{was}, this is 1.2.3: --write a new one"
    assert of_the_kernel == "normalize float32 C=1 nhwc->nhwc: local_bytes was 0, is 4"


def test_every_kernel_of_normalise_has_room_for_the_memorys_speed(committed):
    bounds = {
        name: min(row["of_copy"].values())
        for name, row in committed["kernels"].items()
        if name.startswith("normalize")
    }
    assert len(bounds) == 39
    assert min(bounds.values()) > 1.15, min(bounds, key=bounds.get)


def test_every_kernel_keeps_its_vectors_in_registers(committed):
    for name, row in committed["kernels"].items():
        assert (row["local_bytes"], row["spilled_bytes"]) == (0, 0), name


def test_the_kernels_of_augment_are_counted_on_their_shortest_and_longest_way(committed):
    counts = {
        name: (row["instructions"], row["instructions_at_most"])
        for name, row in committed["kernels"].items()
        if name.startswith("augment")
    }
    assert len(counts) == 39
    assert max(shortest for shortest, _ in counts.values()) < 25
    assert all(shortest < longest for shortest, longest in counts.values())


def test_the_page_shows_the_committed_table(profile, committed):
    page = (PACKAGE_ROOT / "docs" / "gpu.md").read_text()
    assert profile.document(page, committed) == page
