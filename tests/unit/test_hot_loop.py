"""Hot loops found in machine code: which loop, and what its instructions are counted as."""

from __future__ import annotations

from tvmconv.isa.aarch64 import ISA as AARCH64
from tvmconv.isa.aarch64.assembly import READER as ARM
from tvmconv.isa.hot_loop import HotLoop, hot_loop, listing
from tvmconv.isa.instructions import AssemblyReader
from tvmconv.isa.sums import RegisterSum, sums
from tvmconv.isa.x86 import ISA as X86_64
from tvmconv.isa.x86.assembly import READER as X86


def function(name: str, *lines: str) -> str:
    """Return a function as LLVM writes it; a line that ends in a colon is a label."""
    body = "\n".join(line if line.endswith(":") else "\t" + line.replace(" ", "\t", 1) for line in lines)
    return f"\t.type\t{name},@function\n{name}:\n\t.cfi_startproc\n{body}\n\tretq\n.Lfunc_end0:\n\t.size\t{name}, 8\n"


def hottest(*lines: str, reader: AssemblyReader = X86) -> HotLoop:
    """Return the hot loop of a kernel of these lines."""
    found = hot_loop(function("tvmconv_kernel_compute_", *lines), reader)
    assert found is not None
    return found


def only_sum(*lines: str, reader: AssemblyReader = X86) -> RegisterSum:
    """Return the one sum of a pass through these lines."""
    (only,) = sums(reader.read("\t" + line.replace(" ", "\t", 1)) for line in lines)
    return only


SUM = ("vmovups (%rdi), %ymm2", "vfmadd231ps 32(%rsi), %ymm2, %ymm0", "vfmadd231ps 64(%rsi), %ymm2, %ymm1")
NEXT = ("addq $32, %rdi", "cmpq %rdx, %rdi")


def test_the_inner_of_two_loops() -> None:
    found = hottest(".LBB0_1:", *SUM, *SUM, ".LBB0_2:", *SUM, *NEXT, "jne .LBB0_2", "decq %rcx", "jne .LBB0_1")
    assert (found.multiply_adds, found.sums, found.loads, found.stores) == (2, 2, 3, 0)
    assert found.lines[0] == ".LBB0_2:" and found.lines[-1] == "\tjne\t.LBB0_2"
    assert (found.spill_stores, found.spill_loads) == (0, 0)


def test_sums_that_go_on_before_more_multiply_adds_that_end() -> None:
    transform = ("vmovaps %ymm5, %ymm3", "vfnmadd213ps (%rdi), %ymm4, %ymm3", "vmovups %ymm3, (%rdx)") * 4
    found = hottest(".LBB0_1:", *transform, "jne .LBB0_1", ".LBB0_2:", *SUM, "jne .LBB0_2")
    assert found.multiply_adds == 2
    found = hottest(".LBB0_1:", *transform, "jne .LBB0_1")
    assert (found.multiply_adds, found.sums, found.loads, found.stores) == (4, 4, 4, 4)


def test_a_loop_that_is_entered_in_its_middle() -> None:
    found = hottest("jmp .LBB0_2", ".LBB0_1:", *SUM, ".LBB0_2:", *NEXT, "jb .LBB0_1")
    assert found.lines[0] == ".LBB0_1:" and found.multiply_adds == 2


def test_a_jump_back_into_a_loop_makes_none() -> None:
    """A block that is laid out behind its loop belongs to it."""
    lines = [".LBB0_1:", *SUM, "testb $1, %al", "jne .LBB0_9", ".LBB0_2:", *SUM, *NEXT, "jne .LBB0_1", "retq"]
    found = hottest(*lines, ".LBB0_9:", "vfmadd231ps (%rax), %ymm2, %ymm0", "jmp .LBB0_2")
    assert found.multiply_adds == 5 and found.lines[0] == ".LBB0_1:"


def test_what_is_reached_by_an_address_closes_no_loop() -> None:
    assert (
        hot_loop(function("tvmconv_kernel_compute_", "jmpq *%rax", ".LBB0_1:", *SUM, "jmp .LBB0_2", ".LBB0_2:"), X86)
        is None
    )


def test_spills_are_places_on_the_stack_that_no_index_changes() -> None:
    found = hottest(
        ".LBB0_1:",
        "vmovups %ymm1, 96(%rsp)",
        "vmovups 96(%rsp), %ymm3",
        "movq 8(%rsp), %rax",
        "addq $1, 16(%rsp)",
        "cmpq %rax, 24(%rsp)",
        "vmovups 64(%rsp,%rcx), %ymm2",
        "vmovups (%rbp), %ymm4",
        "vmovups %zmm4, (%rdx) {%k1}",
        "leaq 8(%rdi), %rdi",
        "prefetcht0 (%rdi)",
        "vfmadd231ps 32(%rsp), %ymm2, %ymm0",
        "jne .LBB0_1",
    )
    assert (found.spill_stores, found.spill_loads, found.spilled_vectors) == (2, 5, 3)
    assert (found.loads, found.stores) == (2, 1)
    framed = hottest("movq %rsp, %rbp", ".LBB0_1:", "vmovups (%rbp), %ymm2", *SUM, "jne .LBB0_1")
    assert (framed.loads, framed.spill_loads) == (3, 1)


def test_sums_are_followed_from_register_to_register() -> None:
    rotating = ["vfmadd213ps %ymm0, %ymm8, %ymm1", "vbroadcastss (%rsi), %ymm0", "vfmadd213ps %ymm1, %ymm9, %ymm0"]
    only = only_sum(*rotating)
    assert (only.start, only.length, only.carried) == ("0", 2, True)
    spilled = ["vmovups 32(%rsp), %ymm3", "vfmadd231ps (%rsi), %ymm8, %ymm3", "vmovups %ymm3, 32(%rsp)"]
    only = only_sum(*spilled)
    assert (only.start, only.length, only.carried) == ("32(%rsp)", 1, True)
    ended = ["vfmadd132ps (%rsi), %ymm0, %ymm1", "vmovups %ymm1, (%rdi)", "vxorps %xmm0, %xmm0, %xmm0"]
    only = only_sum(*ended)
    assert (only.start, only.length, only.carried) == ("0", 1, False)


def test_tiles_and_dot_products_are_multiply_adds() -> None:
    found = hottest(".LBB0_1:", "tileloadd (%rax,%rcx), %tmm4", "tdpbf16ps %tmm4, %tmm5, %tmm0", "jne .LBB0_1")
    assert (found.multiply_adds, found.sums, found.loads) == (1, 1, 1)
    assert hottest(".LBB0_1:", "vdpbf16ps (%rax){1to16}, %zmm1, %zmm0", "jne .LBB0_1").loads == 1


def test_the_body_of_a_parallel_loop_is_of_the_kernel_that_starts_it() -> None:
    body = function(".L__tvm_parallel_lambda.5", ".LBB1_1:", *SUM, "jne .LBB1_1")
    other = function(".L__tvm_parallel_lambda", ".LBB2_1:", *SUM, "jne .LBB2_1")
    packed = function("tvmconv_packed_compute_", "leaq .L__tvm_parallel_lambda.5(%rip), %rdi")
    plain = function("tvmconv_kernel_compute_", "leaq .L__tvm_parallel_lambda(%rip), %rdi")
    for asm in (plain + packed + body + other, other + body + packed + plain):
        found = hot_loop(asm, X86)
        assert found is not None and found.function == "tvmconv_packed"
    text = listing(plain + packed + body + other, X86).splitlines()
    assert text[0].startswith("# hot loop of tvmconv_packed: 2 multiply-adds into 2 sums, 3 loads, 0 stores, spills: 0")
    assert text[1] == ".LBB1_1:" and "# all functions" in text and not any(".cfi" in line for line in text)


def test_code_without_a_sum_has_no_hot_loop() -> None:
    asm = function("tvmconv_kernel_compute_", ".LBB0_1:", "vmovups %ymm0, (%rdi)", "jne .LBB0_1")
    assert hot_loop(asm, X86) is None and listing(asm, X86).startswith(
        "# no loop has a multiply-add\n# all functions\n"
    )
    assert X86_64.loops(asm) == []


def test_loops_of_another_instruction_set() -> None:
    asm = function(
        "tvmconv_kernel_compute_", "ldr q0, [x0]", ".LBB0_1:", "fmla v1.4s, v0.4s, v2.4s", "cbnz x1, .LBB0_1", "ret"
    )
    ((label, product, jump),) = AARCH64.loops(asm)
    assert label.startswith(".LBB0_1") and "fmla" in product and "cbnz" in jump
    assert AARCH64.multiply_adds([product]) == 1 and X86_64.loops(asm) == []
    assert AARCH64.listing(asm).startswith(
        "# hot loop of tvmconv_kernel: 1 multiply-adds into 1 sums, 0 loads, 0 stores"
    )


def test_loops_of_arm() -> None:
    """By element, of pairs of registers, beside accesses to the stack and what is none."""
    found = hottest(
        "mov x29, sp",
        ".LBB0_1:",
        "ldp q16, q17, [x1], #32",
        "ldr q2, [x0, #16]",
        "ldr q3, [x0, x8, lsl #4]",
        "ldr q18, [sp, #48]",
        "ldp x9, x10, [x29, #-32]",
        "ldr q19, [sp, x8]",
        "str q18, [sp, #64]",
        "st1 { v18.s }[1], [x2]",
        "prfm pldl1keep, [x1, #512]",
        "fmla v0.4s, v16.4s, v2.s[0]",
        "fmla v1.4s, v17.4s, v2.s[0]",
        "fmla v0.4s, v16.4s, v2.s[1]",
        "fmadd s4, s16, s2, s4",
        "subs x8, x8, #1",
        "b.ne .LBB0_1",
        reader=ARM,
    )
    assert (found.multiply_adds, found.sums) == (4, 3)
    assert (found.loads, found.stores, found.spill_loads, found.spill_stores) == (4, 1, 2, 1)
    assert found.spilled_vectors == 2
    assert found.lines[0] == ".LBB0_1:" and found.lines[-1] == "\tb.ne\t.LBB0_1"


def test_sums_of_arm_are_followed_from_register_to_register() -> None:
    moved = ["fmla v0.4s, v8.4s, v9.s[3]", "mov v1.16b, v0.16b", "bfdot v1.4s, v8.8h, v9.2h[0]", "mov v0.16b, v1.16b"]
    assert only_sum(*moved, reader=ARM) == RegisterSum("v0", 2, True, multiplies=True)
    pair = ["ldp q3, q4, [sp, #32]", "fmla v4.4s, v8.4s, v9.4s", "stp q3, q4, [sp, #32]"]
    assert only_sum(*pair, reader=ARM) == RegisterSum("sp+48", 1, True, multiplies=True)
    lane = ["fmla v4.4s, v8.4s, v9.4s", "mov v4.s[1], v5.s[0]"]
    assert only_sum(*lane, reader=ARM) == RegisterSum("v4", 1, False, multiplies=True)
    fresh = ["movi v4.2d, #0000000000000000", "fmla v4.4s, v8.4s, v9.4s"]
    assert only_sum(*fresh, reader=ARM) == RegisterSum(None, 1, False, multiplies=True)
    assert ARM.read(".LBB0_1:") == ARM.read("\tret") == X86.read(".LBB0_1:")
