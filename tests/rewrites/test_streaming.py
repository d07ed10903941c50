"""Plain filters prefetched part by part (tvmconv/lowering/cpu/rewrites/streaming.py), before and after."""

from __future__ import annotations

from common import check, check_refused
from tvm.script import tirx as T

from tvmconv.lowering.cpu.rewrites.streaming import prefetch_parts


def test_each_step_of_the_sums_prefetches_some_lines_of_the_next_part() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(
        data: T.Buffer((32,), "float32"), filter: T.Buffer((32, 96), "float32"), sums: T.Buffer((32,), "float32")
    ):
        for part in T.serial(4, annotations={"tvmconv.prefetch_part": "filter_pack0"}):
            filter_pack0 = T.alloc_buffer((8, 32))
            for c in range(8):
                for o in T.vectorized(32):
                    filter_pack0[c, o] = filter[part * 8 + c, 32 + o]
            for step in range(4):
                for c in T.unroll(2):
                    for o in T.vectorized(32):
                        sums[o] = sums[o] + data[part * 8 + step * 2 + c] * filter_pack0[step * 2 + c, o]

    @T.prim_func(private=True, s_tir=True)
    def after(
        data: T.Buffer((32,), "float32"), filter: T.Buffer((32, 96), "float32"), sums: T.Buffer((32,), "float32")
    ):
        for part in range(4):
            filter_pack0 = T.alloc_buffer((8, 32))
            for c in range(8):
                for o in T.vectorized(32):
                    filter_pack0[c, o] = filter[part * 8 + c, 32 + o]
            for step in range(4):
                T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 8 + step * 2 + 8, 32]), 0, 2, 1)
                T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 8 + step * 2 + 8, 48]), 0, 2, 1)
                T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 8 + step * 2 + 9, 32]), 0, 2, 1)
                T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 8 + step * 2 + 9, 48]), 0, 2, 1)
                for c in T.unroll(2):
                    for o in T.vectorized(32):
                        sums[o] = sums[o] + data[part * 8 + step * 2 + c] * filter_pack0[step * 2 + c, o]

    check(prefetch_parts, before, after)


def test_a_filter_in_place_is_prefetched_while_it_is_multiplied() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(
        data: T.Buffer((32,), "float32"), filter: T.Buffer((32, 16), "float32"), sums: T.Buffer((16,), "float32")
    ):
        for part in T.serial(8, annotations={"tvmconv.prefetch_part": "filter"}):
            for step in range(4):
                for o in T.vectorized(16):
                    sums[o] = sums[o] + data[part * 4 + step] * filter[part * 4 + step, o]

    @T.prim_func(private=True, s_tir=True)
    def after(
        data: T.Buffer((32,), "float32"), filter: T.Buffer((32, 16), "float32"), sums: T.Buffer((16,), "float32")
    ):
        for part, step in T.grid(8, 4):
            T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 4 + 4, step * 16]), 0, 2, 1)
            for o in T.vectorized(16):
                sums[o] = sums[o] + data[part * 4 + step] * filter[part * 4 + step, o]

    check(prefetch_parts, before, after)


def test_lines_that_lie_together_are_placed_together() -> None:
    """A division for each of them took as long as the products of a single pixel."""

    @T.prim_func(private=True, s_tir=True)
    def before(
        data: T.Buffer((12,), "float32"), filter: T.Buffer((12, 96), "float32"), sums: T.Buffer((64,), "float32")
    ):
        for part in T.serial(4, annotations={"tvmconv.prefetch_part": "filter"}):
            for row, step in T.grid(3, 2):
                for o in T.vectorized(32):
                    sums[step * 32 + o] = (
                        sums[step * 32 + o] + data[part * 3 + row] * filter[part * 3 + row, step * 32 + o + 32]
                    )

    @T.prim_func(private=True, s_tir=True)
    def after(
        data: T.Buffer((12,), "float32"), filter: T.Buffer((12, 96), "float32"), sums: T.Buffer((64,), "float32")
    ):
        for part, row, step in T.grid(4, 3, 2):
            T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 3 + row + 3, step * 32 + 32]), 0, 2, 1)
            T.call_intrin("void", "tirx.prefetch", T.address_of(filter[part * 3 + row + 3, step * 32 + 48]), 0, 2, 1)
            for o in T.vectorized(32):
                sums[step * 32 + o] = (
                    sums[step * 32 + o] + data[part * 3 + row] * filter[part * 3 + row, step * 32 + o + 32]
                )

    check(prefetch_parts, before, after)


def test_what_cannot_be_prefetched_is_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def no_filter(sums: T.Buffer((16,), "float32")):
        for part in T.serial(8, annotations={"tvmconv.prefetch_part": "filter"}):
            sums[part] = T.float32(0)

    @T.prim_func(private=True, s_tir=True)
    def no_step(filter: T.Buffer((8, 16), "float32"), sums: T.Buffer((16,), "float32")):
        for part in T.serial(8, annotations={"tvmconv.prefetch_part": "filter_pack0"}):
            for o in range(16):
                sums[o] = sums[o] + filter[part, o]

    @T.prim_func(private=True, s_tir=True)
    def unknown(rows: T.Buffer((8,), "int32"), filter: T.Buffer((8, 16), "float32"), sums: T.Buffer((16,), "float32")):
        for part in T.serial(8, annotations={"tvmconv.prefetch_part": "filter"}):
            for o in range(16):
                sums[o] = sums[o] + filter[rows[part], o]

    check_refused(prefetch_parts, no_filter, "it does not read the filter")
    check_refused(prefetch_parts, no_step, "no loop sums products of filter_pack0")
    check_refused(prefetch_parts, unknown, "which part of axis 0 of the filter it reads is not known")
