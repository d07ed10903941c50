"""Columns of padding set apart (tvmconv/lowering/cpu/rewrites/columns.py), before and after."""

from common import check, check_refused
from tvm.script import tirx as T

from tvmconv.lowering.cpu.rewrites.columns import part_columns


def test_runs_of_columns_alike() -> None:
    """The condition on the row is asked once, that on a channel for each."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((8, 5, 3), "float32"), row: T.int32) -> None:
        copy = T.alloc_buffer((7, 4))
        for x in T.serial(7, annotations={"tvmconv.columns": 1}):
            for c in T.serial(4):
                copy[x, c] = T.if_then_else(
                    row >= 1 and row < 9 and x >= 1 and x < 6 and c < 3, data[row - 1, x - 1, c], T.float32(0)
                )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((8, 5, 3), "float32"), row: T.int32) -> None:
        copy = T.alloc_buffer((7, 4))
        if row >= 1 and row < 9:
            for x in T.serial(1):
                for c in T.serial(4):
                    copy[x, c] = T.float32(0)
            for x in T.serial(5):
                for c in T.serial(4):
                    copy[x + 1, c] = T.if_then_else(c < 3, data[row - 1, x + 1 - 1, c], T.float32(0))
            for x in T.serial(1):
                for c in T.serial(4):
                    copy[x + 6, c] = T.float32(0)
        else:
            for x in T.serial(7):
                for c in T.serial(4):
                    copy[x, c] = T.float32(0)

    check(part_columns, before, after)


def test_a_copy_without_padding_stays() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((7,), "float32")) -> None:
        copy = T.alloc_buffer((7,))
        for x in T.serial(7, annotations={"tvmconv.columns": 1}):
            copy[x] = data[x]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((7,), "float32")) -> None:
        copy = T.alloc_buffer((7,))
        for x in T.serial(7):
            copy[x] = data[x]

    check(part_columns, before, after)


def test_columns_that_are_not_known_are_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def band(data: T.Buffer((7,), "float32"), start: T.int32) -> None:
        copy = T.alloc_buffer((7,))
        for x in T.serial(7, annotations={"tvmconv.columns": 1}):
            copy[x] = T.if_then_else(start + x < 7, data[start + x], T.float32(0))

    check_refused(part_columns, band, "whether a column lies in data is not known")

    @T.prim_func(private=True, s_tir=True)
    def two(data: T.Buffer((7,), "float32")) -> None:
        copy = T.alloc_buffer((7,))
        for x in T.serial(7, annotations={"tvmconv.columns": 1}):
            copy[x] = data[x]
            copy[x] = copy[x] + T.float32(1)

    check_refused(part_columns, two, "it is of 2 stores, not of one")
