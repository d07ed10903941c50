"""A transposed convolution's filter packed by vectors on both sides (tvmconv/lowering/cpu/rewrites/tap_columns.py), before and after."""

import tvm
from common import check, check_refused
from tvm import s_tir, tirx
from tvm.script import tirx as T

from tvmconv.lowering.cpu.rewrites.tap_columns import lay_taps_apart


def _rewritten(before: tirx.PrimFunc) -> str:
    func = before.with_body(lay_taps_apart(before.body))
    return s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"].script()


def test_phases_of_six_taps_are_two_squares() -> None:
    """Taps are in any order; the last square begins early enough to end with the channel's row, and repeats what the first had."""

    @T.prim_func(private=True, s_tir=True)
    def before(weights: T.Buffer((8, 4, 6), "float32")) -> None:
        packed = T.alloc_buffer((2, 3, 8, 4))
        for c in range(8):
            for tap in T.serial(6, annotations={"tvmconv.tap_columns": 1}):
                for lane in T.vectorized(4):
                    packed[tap // 3, tap % 3, c, lane] = weights[c, lane, tap // 3 + (2 - tap % 3) * 2]

    text = _rewritten(before)
    assert "tap_columns" not in text
    assert text.count("for row in T.unroll(4)") == 2
    assert "rows[row * 4 + x] = weights[c, row, x]\n" in text
    assert "rows[row * 4 + x] = weights[c, row, x + 2]\n" in text
    assert text.count("packed[") == 6


def test_of_other_windows_taps_are_left_out() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(weights: T.Buffer((8, 4, 3, 3), "float32")) -> None:
        packed = T.alloc_buffer((2, 2, 4))
        for tap in T.serial(4, annotations={"tvmconv.tap_columns": 1}):
            for lane in T.vectorized(4):
                packed[tap // 2, tap % 2, lane] = T.if_then_else(
                    lane < 3, weights[0, lane, tap // 2 * 2, tap % 2 * 2], T.float32(0)
                )

    text = _rewritten(before)
    # Taps 0 and 2, 6 and 8 of nine; channels that there are not are not read.
    assert "T.if_then_else(row < 3, weights[0, row, 0, x], T.float32(0.0))" in text
    assert "T.if_then_else(row < 3, weights[0, row, 0, x + 5], T.float32(0.0))" in text
    assert text.count("packed[") == 4


def test_few_taps_are_shuffled() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(weights: T.Buffer((8, 4, 2), "float32")) -> None:
        packed = T.alloc_buffer((2, 4))
        for tap in T.serial(2, annotations={"tvmconv.tap_columns": 1}):
            for lane in T.vectorized(4):
                packed[tap, lane] = weights[0, lane, 1 - tap]

    @T.prim_func(private=True, s_tir=True)
    def after(weights: T.Buffer((8, 4, 2), "float32")) -> None:
        packed = T.alloc_buffer((2, 4))
        rows = T.alloc_local((8,))
        for x in T.vectorized(4):
            rows[x] = weights[0, 0, 1 + (-1 + x)]
        for x in T.vectorized(4):
            rows[4 + x] = weights[0, 0, 1 + (3 + x)]
        packed[1, 0:4] = T.Shuffle([rows[T.Ramp(0, 1, 4)], rows[T.Ramp(4, 1, 4)]], [0, 2, 4, 6])
        packed[0, 0:4] = T.Shuffle([rows[T.Ramp(0, 1, 4)], rows[T.Ramp(4, 1, 4)]], [1, 3, 5, 7])

    check(lay_taps_apart, before, after)


def test_what_is_not_known_before_is_copied_as_it_is() -> None:
    """Taps of a phase that a loop around decides; three taps of channels that may not be there."""

    @T.prim_func(private=True, s_tir=True)
    def phase(weights: T.Buffer((8, 4, 8), "float32")) -> None:
        packed = T.alloc_buffer((4, 4))
        for p in range(2):
            for tap in T.serial(4, annotations={"tvmconv.tap_columns": 1}):
                for lane in T.vectorized(4):
                    packed[tap, lane] = weights[0, lane, p + tap * 2]

    @T.prim_func(private=True, s_tir=True)
    def few(weights: T.Buffer((8, 3, 3), "float32")) -> None:
        packed = T.alloc_buffer((3, 4))
        for tap in T.serial(3, annotations={"tvmconv.tap_columns": 1}):
            for lane in T.vectorized(4):
                packed[tap, lane] = T.if_then_else(lane < 3, weights[0, lane, tap], T.float32(0))

    for before in (phase, few):
        text = _rewritten(before)
        assert "tap_columns" not in text and "Shuffle" not in text and "rows" not in text


def test_loops_that_are_no_copies_are_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(weights: T.Buffer((8, 4, 4), "float32")) -> None:
        packed = T.alloc_buffer((4, 4))
        for tap in T.serial(4, annotations={"tvmconv.tap_columns": 1}):
            packed[tap, 0] = weights[0, 0, tap]

    check_refused(lay_taps_apart, before, "its body is no loop over lanes")
