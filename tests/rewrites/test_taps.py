"""Taps of a row taken together (tvmconv/lowering/cpu/rewrites/taps.py), before and after."""

from common import check, check_refused
from tvm.script import tirx as T

from tvmconv.lowering.cpu.rewrites.taps import take_taps_together


def test_taps_that_meet_padding_are_set_apart() -> None:
    """Of the pixels 4*t to 4*t + 3, with 2 columns of padding at each end of 20."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((20,), "float32"), weights: T.Buffer((5,), "float32"), t: T.int32) -> None:
        acc = T.alloc_buffer((4,))
        for k in T.serial(5, annotations={"tvmconv.taps": 2}):
            for x in T.unroll(4):
                if t * 4 + x + k >= 2:
                    if t * 4 + x + k < 22:
                        acc[x] = acc[x] + data[t * 4 + x + k - 2] * weights[k]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((20,), "float32"), weights: T.Buffer((5,), "float32"), t: T.int32) -> None:
        acc = T.alloc_buffer((4,))
        first = T.meta_var(T.min(T.max(0, 2 - t * 4), 5))
        last = T.meta_var(T.max(first, T.min(5, 19 - t * 4)))
        for k in T.serial(first):
            for x in T.unroll(4):
                if t * 4 + x + k >= 2:
                    if t * 4 + x + k < 22:
                        acc[x] = acc[x] + data[t * 4 + x + k - 2] * weights[k]
        for k in T.serial((last - first) // 2):
            for x in T.unroll(4):
                acc[x] = acc[x] + data[t * 4 + x + (first + k * 2) - 2] * weights[first + k * 2]
            for x in T.unroll(4):
                acc[x] = acc[x] + data[t * 4 + x + (first + k * 2 + 1) - 2] * weights[first + k * 2 + 1]
        for k in T.serial((last - first) % 2):
            for x in T.unroll(4):
                rest = T.meta_var(first + (last - first) // 2 * 2 + k)
                acc[x] = acc[x] + data[t * 4 + x + rest - 2] * weights[rest]
        for k in T.serial(5 - last):
            for x in T.unroll(4):
                if t * 4 + x + (last + k) >= 2:
                    if t * 4 + x + (last + k) < 22:
                        acc[x] = acc[x] + data[t * 4 + x + (last + k) - 2] * weights[last + k]

    check(take_taps_together, before, after)


def test_without_padding_all_taps_are_together() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((20,), "float32"), weights: T.Buffer((5,), "float32")) -> None:
        acc = T.alloc_buffer((4,))
        for k in T.serial(5, annotations={"tvmconv.taps": 2}):
            for x in T.unroll(4):
                acc[x] = acc[x] + data[x + k] * weights[k]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((20,), "float32"), weights: T.Buffer((5,), "float32")) -> None:
        acc = T.alloc_buffer((4,))
        for k in T.serial(2):
            for x in T.unroll(4):
                acc[x] = acc[x] + data[x + k * 2] * weights[k * 2]
            for x in T.unroll(4):
                acc[x] = acc[x] + data[x + (k * 2 + 1)] * weights[k * 2 + 1]
        for k in T.serial(1):
            for x in T.unroll(4):
                acc[x] = acc[x] + data[x + (4 + k)] * weights[4 + k]

    check(take_taps_together, before, after)


def test_what_is_no_bound_on_taps_is_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def odd(data: T.Buffer((20,), "float32")) -> None:
        acc = T.alloc_buffer((4,))
        for k in T.serial(5, annotations={"tvmconv.taps": 2}):
            for x in T.unroll(4):
                if k % 2 == 1:
                    acc[x] = acc[x] + data[x + k]

    @T.prim_func(private=True, s_tir=True)
    def alone(data: T.Buffer((20,), "float32")) -> None:
        acc = T.alloc_buffer((4,))
        for k in T.serial(5, annotations={"tvmconv.taps": 2}):
            acc[0] = acc[0] + data[k]

    check_refused(take_taps_together, odd, "is no bound")
    check_refused(take_taps_together, alone, "no loop over a tile's pixels")
