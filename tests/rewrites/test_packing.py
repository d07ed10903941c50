"""Kernels split in two (tvmconv/lowering/cpu/packing.py), and what every lowered function is checked for (tvmconv/lowering/common/rewrites.py)."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tvmconv.algorithms.annotations import PACK
from tvmconv.errors import RewriteError
from tvmconv.lowering.common.rewrites import check_answered, check_well_formed, rewrite_loops, settle
from tvmconv.lowering.cpu.packing import split


@T.prim_func(private=True, s_tir=True)
def packs(
    data: T.Buffer((8,), "float32"), weights: T.Buffer((8,), "float32"), output: T.Buffer((8,), "float32")
) -> None:
    packed = T.alloc_buffer((8,))
    for c in T.serial(8, annotations={"tvmconv.pack": 1}):
        packed[c] = weights[7 - c]
    for c in range(8):
        output[c] = data[c] * packed[c]


def test_stages_that_ask_for_it_are_cut_off() -> None:
    halves = split(packs)
    assert halves is not None
    assert [part.name for part in halves.parts] == ["packed"]
    assert (len(halves.pack), len(halves.rest)) == (1, 1)
    assert not halves.pack[0].annotations
    assert halves.layout.elements == 16  # rounded up to a cache line


def test_a_layout_is_the_place_of_each_element() -> None:
    @T.prim_func(private=True, s_tir=True)
    def packs_pairs(
        data: T.Buffer((8,), "float32"), weights: T.Buffer((2, 4), "float32"), output: T.Buffer((8,), "float32")
    ) -> None:
        rows = T.alloc_buffer((4, 2))
        for k in T.serial(8, annotations={"tvmconv.pack": 1}):
            rows[k // 2, k % 2] = weights[1 - k // 4, 3 - k % 4]
        for c in range(8):
            output[c] = data[c] * rows[c // 2, c % 2]

    @T.prim_func(private=True, s_tir=True)
    def packs_otherwise(
        data: T.Buffer((8,), "float32"), weights: T.Buffer((2, 4), "float32"), output: T.Buffer((8,), "float32")
    ) -> None:
        rows = T.alloc_buffer((4, 2))
        for k in T.serial(8, annotations={"tvmconv.pack": 1}):
            rows[k % 4, k // 4] = weights[1 - k // 4, 3 - k % 4]
        for c in range(8):
            output[c] = data[c] * rows[c // 2, c % 2]

    one, same, other = (split(each).layout for each in (packs, packs_pairs, packs_otherwise))
    assert one == same != other


def test_no_stage_asks() -> None:
    assert (
        split(packs.with_body(tirx.stmt_seq(*[each for each in packs.body.seq if isinstance(each, tirx.For)][1:])))
        is None
    )


def test_what_nobody_reads_is_not_packed() -> None:
    @T.prim_func(private=True, s_tir=True)
    def unread(
        data: T.Buffer((8,), "float32"), weights: T.Buffer((8,), "float32"), output: T.Buffer((8,), "float32")
    ) -> None:
        packed = T.alloc_buffer((8,))
        for c in T.serial(8, annotations={"tvmconv.pack": 1}):
            packed[c] = weights[7 - c]
        for c in range(8):
            output[c] = T.float32(0)

    assert split(unread) is None


def test_a_filter_that_others_read_is_not_packed() -> None:
    @T.prim_func(private=True, s_tir=True)
    def reads_filter(
        data: T.Buffer((8,), "float32"), weights: T.Buffer((8,), "float32"), output: T.Buffer((8,), "float32")
    ) -> None:
        packed = T.alloc_buffer((8,))
        for c in T.serial(8, annotations={"tvmconv.pack": 1}):
            packed[c] = weights[7 - c]
        for c in range(8):
            output[c] = data[c] * packed[c] + weights[c]

    assert split(reads_filter) is None


def test_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def reads_data(
        data: T.Buffer((8,), "float32"), weights: T.Buffer((8,), "float32"), output: T.Buffer((8,), "float32")
    ) -> None:
        packed = T.alloc_buffer((8,))
        for c in T.serial(8, annotations={"tvmconv.pack": 1}):
            packed[c] = weights[7 - c] * data[c]
        for c in range(8):
            output[c] = packed[c]

    with pytest.raises(RewriteError, match="it depends on data"):
        split(reads_data)


def test_an_annotation_that_nobody_answers_is_an_error() -> None:
    with pytest.raises(RewriteError, match="the rewrite pack of the loop over c is refused: nothing answered it"):
        check_answered(packs)


def test_loops_of_one_iteration_kept_for_annotations_fall_away() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(output: T.Buffer((8,), "float32")) -> None:
        for x in T.serial(1, annotations={"tvmconv.pack": 1}):
            for y in range(8):
                output[x * 8 + y] = T.float32(0)

    @T.prim_func(private=True, s_tir=True)
    def after(output: T.Buffer((8,), "float32")) -> None:
        for y in range(8):
            output[T.Mul(0, 8) + y] = T.float32(0)

    body = rewrite_loops(before.body, PACK, lambda loop: settle(loop, PACK))
    tvm.ir.assert_structural_equal(before.with_body(body), after)


def test_undefined_variables_and_accesses_outside_are_errors() -> None:
    (_, _, loop) = packs.body.seq
    with pytest.raises(RewriteError, match="a rewrite left c undefined"):
        check_well_formed(packs.with_body(tirx.SeqStmt([*packs.body.seq[:2], loop.body])))

    @T.prim_func(private=True, s_tir=True)
    def outside(output: T.Buffer((8,), "float32")) -> None:
        output[8] = T.float32(0)

    with pytest.raises(RewriteError, match="output has 8 elements along an axis of which 8 is accessed"):
        check_well_formed(outside)


def test_a_call_that_became_no_instruction_is_an_error() -> None:
    @T.prim_func(private=True, s_tir=True)
    def calls(output: T.Buffer((8,), "float32")) -> None:
        with T.attr(0, "pragma_import_llvm", "define float @tvmconv_known(float %x) {}"):
            output[0] = T.call_pure_extern("float32", "tvmconv_known", output[1])
            output[2] = T.call_pure_extern("float32", "tvmconv_unknown", output[3])

    with pytest.raises(RewriteError, match="nothing defines tvmconv_unknown, which is called"):
        check_well_formed(calls)
