"""Padding skipped (tvmconv/lowering/cpu/rewrites/padding.py), before and after."""

import pytest
from common import check, check_refused
from tvm.script import tirx as T

from tvmconv.lowering.cpu.rewrites.padding import skip_padding

pytestmark = pytest.mark.smoke


def test_conditions_on_rows_leave_the_loops_over_outputs() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((10, 8), "float32"), weights: T.Buffer((3, 4), "float32")) -> None:
        sums = T.alloc_buffer((8, 4), scope="local")
        for k in range(3):
            for x in T.unroll(8):
                for lane in T.vectorized(4, annotations={"tvmconv.skip": 1}):
                    sums[x, lane] = sums[x, lane] + T.if_then_else(k >= 1, data[k, x], T.float32(0)) * weights[k, lane]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((10, 8), "float32"), weights: T.Buffer((3, 4), "float32")) -> None:
        sums = T.alloc_buffer((8, 4), scope="local")
        for k in range(3):
            if k >= 1:
                for x in T.unroll(8):
                    for lane in T.vectorized(4):
                        sums[x, lane] = sums[x, lane] + data[k, x] * weights[k, lane]

    check(skip_padding, before, after)


def test_bounds_on_columns_leave_a_tile_in_the_form_that_some_pixel_needs() -> None:
    """Both bounds may be written as `<`: which end of the tile decides follows from how they grow."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((64,), "float32"), weights: T.Buffer((5, 4), "float32")) -> None:
        sums = T.alloc_buffer((7, 4), scope="local")
        for t, k in T.grid(2, 5):
            for x in T.unroll(7, annotations={"tvmconv.some_inside": 1}):
                for lane in T.vectorized(4, annotations={"tvmconv.skip": 1}):
                    sums[x, lane] = (
                        sums[x, lane]
                        + T.if_then_else(
                            t * 7 + x + k > 1 and t * 7 + x + k < 16, data[t * 21 + x * 3 + k * 3], T.float32(0)
                        )
                        * weights[k, lane]
                    )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((64,), "float32"), weights: T.Buffer((5, 4), "float32")) -> None:
        sums = T.alloc_buffer((7, 4), scope="local")
        for t, k in T.grid(2, 5):
            if t * 7 + 6 + k > 1:
                if t * 7 + k < 16:
                    for x in T.unroll(7):
                        for lane in T.vectorized(4):
                            sums[x, lane] = sums[x, lane] + data[t * 21 + x * 3 + k * 3] * weights[k, lane]

    check(skip_padding, before, after)


def test_rows_that_no_sum_reads_are_not_copied() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((8, 8), "float32")) -> None:
        copy = T.alloc_buffer((10, 10))
        for y in range(10):
            for x in T.serial(10, annotations={"tvmconv.unread": 1}):
                copy[y, x] = T.if_then_else(y >= 1 and y < 9 and x >= 1 and x < 9, data[y - 1, x - 1], T.float32(0))

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((8, 8), "float32")) -> None:
        copy = T.alloc_buffer((10, 10))
        for y in range(10):
            if y >= 1:
                if y < 9:
                    for x in range(10):
                        copy[y, x] = T.if_then_else(x >= 1 and x < 9, data[y - 1, x - 1], T.float32(0))

    check(skip_padding, before, after)


def test_tiles_of_which_nothing_is_stored_are_not_computed() -> None:
    """A bound of a split that does not divide stays at each store."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((3, 10), "float32"), part: T.Buffer((3, 10), "float32")) -> None:
        for k in range(3):
            for tile in T.serial(3, annotations={"tvmconv.skip_tile": 1}):
                sums = T.alloc_buffer((4,), scope="local")
                for x in T.unroll(4):
                    sums[x] = data[k, T.min(tile * 4 + x, 9)]
                for x in T.unroll(4, annotations={"tvmconv.some_inside": 1}):
                    if tile * 4 + x < 10:
                        for _lane in T.vectorized(1, annotations={"tvmconv.skip": 1}):
                            part[k, tile * 4 + x] = T.if_then_else(tile * 4 + x < k * 3, sums[x], T.float32(0))

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((3, 10), "float32"), part: T.Buffer((3, 10), "float32")) -> None:
        for k in range(3):
            for tile in range(3):
                if tile * 4 < k * 3:
                    sums = T.alloc_buffer((4,), scope="local")
                    for x in T.unroll(4):
                        sums[x] = data[k, T.min(tile * 4 + x, 9)]
                    for x in T.unroll(4):
                        if tile * 4 + x < 10:
                            part[k, tile * 4 + x] = sums[x]

    check(skip_padding, before, after)


def test_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def no_factor(data: T.Buffer((8,), "float32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for k in range(8):
            for lane in T.vectorized(4, annotations={"tvmconv.skip": 1}):
                sums[lane] = sums[lane] - T.if_then_else(k >= 1, data[k], T.float32(0))

    check_refused(skip_padding, no_factor, "rewrite skip of the loop over lane is refused: padding is read")

    @T.prim_func(private=True, s_tir=True)
    def no_bound(data: T.Buffer((8,), "float32"), weights: T.Buffer((4,), "float32")) -> None:
        sums = T.alloc_buffer((8, 4), scope="local")
        for x in T.unroll(8, annotations={"tvmconv.some_inside": 1}):
            for lane in T.vectorized(4, annotations={"tvmconv.skip": 1}):
                sums[x, lane] = sums[x, lane] + T.if_then_else(x % 3 < 2, data[x], T.float32(0)) * weights[lane]

    check_refused(skip_padding, no_bound, "some_inside of the loop over x is refused: .* steadily")

    @T.prim_func(private=True, s_tir=True)
    def two_copies(data: T.Buffer((8,), "float32")) -> None:
        copy = T.alloc_buffer((2, 8))
        for x in T.serial(8, annotations={"tvmconv.unread": 1}):
            copy[0, x] = data[x]
            copy[1, x] = data[x]

    check_refused(skip_padding, two_copies, "it stores 2 times")
