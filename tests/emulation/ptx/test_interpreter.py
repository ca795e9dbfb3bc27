"""The interpreter by itself: integer instructions against Python's integers, and what it must refuse."""

import numpy as np
import pytest
from interpreter.machine import Machine
from interpreter.memory import Input, Memory, MemoryFault, Output
from interpreter.parser import PtxError, parse

THREADS = 256
KERNEL = """
.version 9.0
.target sm_90
.address_size 64
.entry test(
.param .u64 in,
.param .u64 out
)
.maxntid 256, 1, 1
{{
.local .align 8 .b8 depot[8];
.reg .pred %p<4>;
.reg .b16 %rs<8>;
.reg .b32 %r<16>;
.reg .b64 %rd<16>;
ld.param.u64 %rd1, [in];
ld.param.u64 %rd2, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 32;
add.s64 %rd4, %rd1, %rd3;
ld.global.u64 %rd5, [%rd4];
ld.global.u64 %rd6, [%rd4+8];
ld.global.u64 %rd7, [%rd4+16];
cvt.u32.u64 %r5, %rd5;
cvt.u32.u64 %r6, %rd6;
cvt.u32.u64 %r7, %rd7;
mul.wide.u32 %rd3, %r1, 8;
add.s64 %rd8, %rd2, %rd3;
mov.u64 %rd9, 0;
mov.u32 %r9, 0;
{body}
st.global.u64 [%rd8], %rd9;
ret;
}}
"""


def run(body, rows=None):
    """What the body leaves in %rd9, for (%rd5, %rd6, %rd7), whose lower halves are %r5, %r6, %r7."""
    if rows is None:
        rows = np.zeros((THREADS, 4), np.uint64)
    (kernel,) = parse(KERNEL.format(body=body)).kernels.values()
    into = Input("in", rows.reshape(-1).view(np.uint8))
    out = Output("out", 8 * THREADS)
    memory = Memory([into, out])
    params = [each.base.to_bytes(8, "little") for each in (into, out)]
    Machine(kernel, params, memory, {}).run(1, THREADS)
    out.require_complete()
    return out.data.view(np.uint64)


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def low(value):
    return value & 0xFFFFFFFF


def permuted(a, b, select):
    pair = a | b << 32
    return sum((pair >> 8 * (select >> 4 * k & 7) & 255) << 8 * k for k in range(4))


# The instruction, and what it makes of the operands as Python's integers.
NARROW = {
    "add.s32 %r9, %r5, %r6;": lambda a, b, c: a + b,
    "sub.s32 %r9, %r5, %r6;": lambda a, b, c: a - b,
    "mul.lo.s32 %r9, %r5, %r6;": lambda a, b, c: a * b,
    "mul.hi.u32 %r9, %r5, %r6;": lambda a, b, c: a * b >> 32,
    "mul.hi.s32 %r9, %r5, %r6;": lambda a, b, c: signed(a) * signed(b) >> 32,
    "mad.lo.s32 %r9, %r5, %r6, %r7;": lambda a, b, c: a * b + c,
    "min.u32 %r9, %r5, %r6;": lambda a, b, c: min(a, b),
    "max.s32 %r9, %r5, %r6;": lambda a, b, c: max(signed(a), signed(b)),
    "neg.s32 %r9, %r5;": lambda a, b, c: -a,
    "not.b32 %r9, %r5;": lambda a, b, c: ~a,
    "shl.b32 %r9, %r5, %r7;": lambda a, b, c: a << min(c, 32),
    "shr.u32 %r9, %r5, %r7;": lambda a, b, c: a >> min(c, 32),
    "shr.s32 %r9, %r5, %r7;": lambda a, b, c: signed(a) >> min(c, 32),
    "shf.l.wrap.b32 %r9, %r5, %r6, %r7;": lambda a, b, c: (a | b << 32) << c % 32 >> 32,
    "shf.r.clamp.b32 %r9, %r5, %r6, %r7;": lambda a, b, c: (a | b << 32) >> min(c, 32),
    "lop3.b32 %r9, %r5, %r6, %r7, 0x96;": lambda a, b, c: a ^ b ^ c,
    "lop3.b32 %r9, %r5, %r6, %r7, 0xCA;": lambda a, b, c: a & b | ~a & c,
    "prmt.b32 %r9, %r5, %r6, 0x3172U;": lambda a, b, c: permuted(a, b, 0x3172),
    "bfe.u32 %r9, %r5, 5, 9;": lambda a, b, c: a >> 5 & 511,
    "bfi.b32 %r9, %r5, %r6, 5, 9;": lambda a, b, c: (a & 511) << 5 | b & ~(511 << 5),
    "setp.lt.s32 %p1, %r5, %r6;\nselp.b32 %r9, 1, 0, %p1;": lambda a, b, c: signed(a) < signed(b),
    "setp.lt.u32 %p1, %r5, %r6;\nselp.b32 %r9, %r6, %r7, %p1;": lambda a, b, c: b if a < b else c,
    "cvt.u16.u32 %rs1, %r5;\ncvt.s32.s16 %r9, %rs1;": lambda a, b, c: signed(a, 16),
    "mov.b32 {%rs1, %rs2}, %r5;\nmov.b32 %r9, {%rs2, %rs1};": lambda a, b, c: a >> 16 | a << 16,
    "setp.gt.u32 %p1, %r5, %r6;\n@%p1 bra $over;\nmov.u32 %r9, %r7;\n$over:": (
        lambda a, b, c: 0 if a > b else c
    ),
}
WIDE = {
    "mul.hi.u64 %rd9, %rd5, %rd6;": lambda a, b, c: a * b >> 64,
    "mul.lo.s64 %rd9, %rd5, %rd6;": lambda a, b, c: a * b,
    "mul.wide.u32 %rd9, %r5, %r6;": lambda a, b, c: low(a) * low(b),
    "mul.wide.s32 %rd9, %r5, %r6;": lambda a, b, c: signed(a) * signed(b),
    "mad.wide.u32 %rd9, %r5, %r6, %rd7;": lambda a, b, c: low(a) * low(b) + c,
    "div.u64 %rd9, %rd5, %rd7;": lambda a, b, c: a // c,
    "rem.u64 %rd9, %rd5, %rd7;": lambda a, b, c: a % c,
    "cvt.s64.s32 %rd9, %r5;": lambda a, b, c: signed(a),
    "mov.b64 %rd9, {%r6, %r5};": lambda a, b, c: low(b) | low(a) << 32,
    "st.local.u64 [depot], %rd5;\nld.local.u32 %r9, [depot+4];\ncvt.u64.u32 %rd9, %r9;": (
        lambda a, b, c: a >> 32
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", [*NARROW, *WIDE])
def test_integers_are_those_of_python(body, rng):
    rows = rng.integers(0, 1 << 64, (THREADS, 4), dtype=np.uint64)
    edges = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1], np.uint64)
    rows[:64, :2] = rng.choice(edges, (64, 2))
    rows[:, 2] = rng.integers(1, 40, THREADS)  # amounts of shifts, and divisors
    narrow = body in NARROW
    got = run(body + "\ncvt.u64.u32 %rd9, %r9;" if narrow else body, rows)
    for row, result in zip(rows.tolist(), got.tolist()):
        a, b, c = (low(each) if narrow else each for each in row[:3])
        expected = int((NARROW if narrow else WIDE)[body](a, b, c))
        assert result == expected & ((1 << (32 if narrow else 64)) - 1), (a, b, c)


def test_two_halves_are_packed_with_the_first_above():
    body = "mov.b32 %r5, 0f3F800000;\nmov.b32 %r6, 0fC0000000;\n"
    f16 = run(body + "cvt.rn.f16x2.f32 %r9, %r5, %r6;\ncvt.u64.u32 %rd9, %r9;")
    assert (f16 == 0x3C00C000).all()
    bf16 = run(body + "cvt.rn.bf16x2.f32 %r9, %r5, %r6;\ncvt.u64.u32 %rd9, %r9;")
    assert (bf16 == 0x3F80C000).all()


@pytest.mark.parametrize(
    "body",
    [
        "sin.approx.f32 %r9, %r5;",
        "add.ftz.f32 %r9, %r5, %r6;",
        "fma.rz.f32 %r9, %r5, %r6, %r7;",
        "cvt.rz.f16.f32 %rs1, %r5;",
        "cvt.rn.relu.bf16.f32 %rs1, %r5;",
        "ld.shared.u32 %r9, [%rd4];",
        "ld.volatile.global.u32 %r9, [%rd4];",
        "div.s32 %r9, %r5, %r6;",
        "bar.sync 0;",
        "atom.global.add.u32 %r9, [%rd8], 1;",
        "@%p1 mov.u32 %r9, 1;",
        "mov.u32 %r9, %r99;",
        "mov.u32 %r9, %tid.y;",
        "mov.u64 %rd9, elsewhere;",
        "mov.u64 %r9, %rd5;",
    ],
)
def test_what_it_does_not_know_is_refused(body):
    with pytest.raises(PtxError):
        run(body)


@pytest.mark.parametrize(
    "line", [".shared .align 4 .b8 s[16];", ".reg .v4 .f32 %v<2>;", ".maxnreg 8"]
)
def test_a_declaration_that_it_does_not_know_is_refused(line):
    with pytest.raises(PtxError):
        run(line)


def test_a_text_that_it_does_not_know_is_refused():
    with pytest.raises(PtxError):
        parse(".func (.param .b32 x) f() { }")


@pytest.mark.parametrize(
    "body, says",
    [
        ("ld.global.u8 %r9, [%rd1+8192];", "a load of 1 bytes at in .8192"),
        ("ld.global.u8 %r9, [%rd1+-1];", "a load of 1 bytes at in -1"),
        ("ld.global.u64 %rd9, [%rd1+8188];", "misaligned"),
        ("ld.global.v2.u32 {%r9, %r8}, [%rd1+4];", "misaligned load of 8 bytes"),
        ("ld.global.u64 %rd9, [%rd8];", "out is only written"),
        ("st.global.u64 [%rd4], %rd5;", "in is only read"),
        ("st.global.u64 [%rd8], %rd9;", "written twice"),
        ("st.global.u8 [%rd2], %r5;", "two threads write the same byte"),
        ("st.global.u64 [%rd8+8], %rd9;", "a store of 8 bytes at out .2048"),
        ("ld.local.u32 %r9, [depot];", "read before it is written"),
        ("st.local.u64 [depot+8], %rd9;", "outside 8 of local memory"),
        ("ld.param.u64 %rd9, [in+8];", "parameter of 8"),
        ("div.u64 %rd9, %rd5, %rd9;", "a division by 0"),
    ],
)
def test_what_a_thread_must_not_do(body, says):
    with pytest.raises(MemoryFault, match=says):
        run(body)


def test_a_byte_that_no_thread_writes():
    body = "setp.eq.s32 %p1, %r1, 7;\n@%p1 bra $over;\nst.global.u64 [%rd8], %rd9;\n$over:\nret;"
    with pytest.raises(MemoryFault, match="8 bytes of out are not written, first 56"):
        run(body)


def test_a_branch_that_is_called_uniform_must_be():
    body = "setp.eq.s32 %p1, %r1, 7;\n@%p1 bra.uni $over;\n$over:"
    with pytest.raises(PtxError, match="disagree"):
        run(body)
    run("setp.gt.u32 %p1, %r1, 31;\n@%p1 bra.uni $over;\n$over:")


def test_a_loop_without_an_end():
    with pytest.raises(PtxError, match="test does not end"):
        run("$again:\nbra.uni $again;")


@pytest.mark.parametrize("grid, block", [(0, 256), (1 << 31, 256), (1, 512), (1, 100)])
def test_a_launch_that_a_gpu_refuses(grid, block):
    (kernel,) = parse(KERNEL.format(body="")).kernels.values()
    with pytest.raises(PtxError):
        Machine(kernel, [bytes(8), bytes(8)], Memory([]), {}).run(grid, block)
