"""Loops over lanes made vectors (tvmconv/lowering/cpu/rewrites/shuffles.py, lanes.py, overlapping.py), prefetches, before and after."""

from common import check, check_refused
from tvm.script import tirx as T

from tvmconv.lowering.cpu.rewrites.lanes import divide_whole_vectors
from tvmconv.lowering.cpu.rewrites.overlapping import overlap_vectors
from tvmconv.lowering.cpu.rewrites.prefetching import prefetch_filters
from tvmconv.lowering.cpu.rewrites.shuffles import by_shuffles


def test_another_order_is_a_load_and_a_shuffle() -> None:
    """The loop on which the order depends is unrolled; the first order is that of the lanes."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4,), "float32"), weights: T.Buffer((2, 4), "float32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for c in T.unroll(2):
            for lane in T.vectorized(4, annotations={"tvmconv.shuffle": 1}):
                sums[lane] = sums[lane] + data[lane // 2 * 2 + (lane + c) % 2] * weights[c, lane]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((4,), "float32"), weights: T.Buffer((2, 4), "float32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for lane in T.vectorized(4):
            sums[lane] = sums[lane] + data[lane] * weights[0, lane]
        sums[0:4] = (
            sums[T.Ramp(0, 1, 4)] + T.Shuffle([data[T.Ramp(0, 1, 4)]], [1, 0, 3, 2]) * weights[1, T.Ramp(0, 1, 4)]
        )

    check(by_shuffles, before, after)


def test_indices_divided_by_whole_vectors_are_the_same_for_all_lanes() -> None:
    """Of 288 channels in blocks of 64: TVM's simplifier leaves the lane in, for 288 is no multiple of 64."""

    @T.prim_func(private=True, s_tir=True)
    def before(packed: T.Buffer((9, 4, 16), "float32")) -> None:
        sums = T.alloc_buffer((16,), scope="local")
        for a, v in T.grid(2, 18):
            for lane in T.vectorized(16):
                sums[lane] = packed[
                    (a * 288 + v * 16 + lane) // 64,
                    (a * 288 + v * 16 + lane) % 64 // 16,
                    (a * 288 + v * 16 + lane) % 16,
                ]

    @T.prim_func(private=True, s_tir=True)
    def after(packed: T.Buffer((9, 4, 16), "float32")) -> None:
        sums = T.alloc_buffer((16,), scope="local")
        for a, v in T.grid(2, 18):
            for lane in T.vectorized(16):
                sums[lane] = packed[(a * 288 + v * 16) // 64, (a * 288 + v * 16) % 64 // 16, lane]

    check(divide_whole_vectors, before, after)


def test_the_last_vector_of_a_copy_overlaps_the_one_before() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((5, 36), "float32"), copy: T.Buffer((5, 9), "float32")) -> None:
        for x in range(5):
            for channel in T.serial(9, annotations={"tvmconv.overlap": 4}):
                copy[x, channel] = data[x, 18 + channel]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((5, 36), "float32"), copy: T.Buffer((5, 9), "float32")) -> None:
        for x in range(5):
            for vector in range(3):
                for lane in T.vectorized(4):
                    copy[x, T.min(vector * 4, 5) + lane] = data[x, 18 + (T.min(vector * 4, 5) + lane)]

    check(overlap_vectors, before, after)


def test_less_than_a_vector_is_refused_an_overlap() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((3,), "float32"), copy: T.Buffer((3,), "float32")) -> None:
        for channel in T.serial(3, annotations={"tvmconv.overlap": 4}):
            copy[channel] = data[channel]

    check_refused(overlap_vectors, before, "of which there are to be 4 or more")


def test_filters_are_prefetched_ahead_of_their_use() -> None:
    """16 KiB: 512 channels of two vectors of four lanes."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((64,), "float32")) -> None:
        filter_pack0 = T.alloc_buffer((64, 2, 4))
        sums = T.alloc_buffer((2, 4), scope="local")
        for step in range(16):
            for c in T.unroll(4, annotations={"tvmconv.prefetch": "filter_pack0[-3]"}):
                for v in T.unroll(2):
                    for lane in T.vectorized(4):
                        sums[v, lane] = sums[v, lane] + data[step * 4 + c] * filter_pack0[step * 4 + c, v, lane]

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((64,), "float32")) -> None:
        filter_pack0 = T.alloc_buffer((64, 2, 4))
        sums = T.alloc_buffer((2, 4), scope="local")
        for step in range(16):
            for c in T.unroll(4):
                T.evaluate(
                    T.call_intrin(
                        "void", "tirx.prefetch", T.address_of(filter_pack0[step * 4 + c + 512, 0, 0]), 0, 3, 1
                    )
                )
                T.evaluate(
                    T.call_intrin(
                        "void", "tirx.prefetch", T.address_of(filter_pack0[step * 4 + c + 512, 1, 0]), 0, 3, 1
                    )
                )
                for v in T.unroll(2):
                    for lane in T.vectorized(4):
                        sums[v, lane] = sums[v, lane] + data[step * 4 + c] * filter_pack0[step * 4 + c, v, lane]

    check(prefetch_filters, before, after)


def test_tiles_prefetch_the_next_blocks_filter_together() -> None:
    """Of 16 channels of 2 vectors, each of two tiles prefetches 8: 2 in each of 4 steps."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((2, 16), "float32"), sums: T.Buffer((2, 6, 4), "float32")) -> None:
        filter_pack0 = T.alloc_buffer((1, 6, 1, 16, 1, 4))
        for block in T.serial(3, annotations={"tvmconv.prefetch_next": "filter_pack0[-3]"}):
            for tile, step in T.grid(2, 4):
                for c in T.unroll(4):
                    for v in T.unroll(2):
                        for lane in T.vectorized(4):
                            sums[tile, block * 2 + v, lane] = (
                                sums[tile, block * 2 + v, lane]
                                + data[tile, step * 4 + c] * filter_pack0[0, block * 2 + v, 0, step * 4 + c, 0, lane]
                            )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((2, 16), "float32"), sums: T.Buffer((2, 6, 4), "float32")) -> None:
        filter_pack0 = T.alloc_buffer((1, 6, 1, 16, 1, 4))
        for block in range(3):
            for tile, step in T.grid(2, 4):
                T.evaluate(
                    T.call_intrin(
                        "void",
                        "tirx.prefetch",
                        T.address_of(filter_pack0[0, block * 2 + 2, 0, tile * 8 + step * 2, 0, 0]),
                        0,
                        2,
                        1,
                    )
                )
                T.evaluate(
                    T.call_intrin(
                        "void",
                        "tirx.prefetch",
                        T.address_of(filter_pack0[0, block * 2 + 2, 0, tile * 8 + step * 2 + 1, 0, 0]),
                        0,
                        2,
                        1,
                    )
                )
                T.evaluate(
                    T.call_intrin(
                        "void",
                        "tirx.prefetch",
                        T.address_of(filter_pack0[0, block * 2 + 3, 0, tile * 8 + step * 2, 0, 0]),
                        0,
                        2,
                        1,
                    )
                )
                T.evaluate(
                    T.call_intrin(
                        "void",
                        "tirx.prefetch",
                        T.address_of(filter_pack0[0, block * 2 + 3, 0, tile * 8 + step * 2 + 1, 0, 0]),
                        0,
                        2,
                        1,
                    )
                )
                for c in T.unroll(4):
                    for v in T.unroll(2):
                        for lane in T.vectorized(4):
                            sums[tile, block * 2 + v, lane] = (
                                sums[tile, block * 2 + v, lane]
                                + data[tile, step * 4 + c] * filter_pack0[0, block * 2 + v, 0, step * 4 + c, 0, lane]
                            )

    check(prefetch_filters, before, after)


def test_a_prefetch_of_what_a_loop_does_not_read_is_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def another(data: T.Buffer((64,), "float32"), sums: T.Buffer((64,), "float32")) -> None:
        for c in T.serial(64, annotations={"tvmconv.prefetch": "filter_pack1[-3]"}):
            sums[c] = data[c]

    check_refused(prefetch_filters, another, "it does not read filter_pack1")

    @T.prim_func(private=True, s_tir=True)
    def nameless(data: T.Buffer((64,), "float32"), sums: T.Buffer((64,), "float32")) -> None:
        for c in T.serial(64, annotations={"tvmconv.prefetch_next": 1}):
            sums[c] = data[c]

    check_refused(prefetch_filters, nameless, "it names no copy of the filter")
