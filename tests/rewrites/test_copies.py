"""Copies by vectors on both sides (tvmconv/lowering/cpu/rewrites/transposing.py, tvmconv/lowering/cpu/rewrites/striding.py), before and after."""

from common import check, check_refused
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T

from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.cpu.rewrites.striding import deinterleave
from tvmconv.lowering.cpu.rewrites.transposing import transpose


def test_planes_to_pixels_four_by_four() -> None:
    """What is outside becomes zeros; the last block may repeat columns of the one before."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4, 6), "float32")) -> None:
        pixels = T.alloc_buffer((7, 4))
        for x in T.serial(7, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                pixels[x, lane] = T.if_then_else(x >= 1, data[lane, x - 1], T.float32(0))

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((4, 6), "float32")) -> None:
        pixels = T.alloc_buffer((7, 4))
        for column in range(1):
            pixels[column, 0:4] = T.Broadcast(T.float32(0), 4)
        for square in range(2):
            rows = T.alloc_local((16,))
            for row in T.unroll(4):
                for x in T.vectorized(4):
                    rows[row * 4 + x] = data[row, T.min(1 + square * 4, 3) + x - 1]
            pixels[T.min(1 + square * 4, 3), 0:4] = T.Shuffle(
                [
                    T.Shuffle([rows[T.Ramp(0, 1, 4)], rows[T.Ramp(4, 1, 4)]], [0, 4, 1, 5]),
                    T.Shuffle([rows[T.Ramp(8, 1, 4)], rows[T.Ramp(12, 1, 4)]], [0, 4, 1, 5]),
                ],
                [0, 1, 4, 5],
            )
            pixels[T.min(1 + square * 4, 3) + 1, 0:4] = T.Shuffle(
                [
                    T.Shuffle([rows[T.Ramp(0, 1, 4)], rows[T.Ramp(4, 1, 4)]], [0, 4, 1, 5]),
                    T.Shuffle([rows[T.Ramp(8, 1, 4)], rows[T.Ramp(12, 1, 4)]], [0, 4, 1, 5]),
                ],
                [2, 3, 6, 7],
            )
            pixels[T.min(1 + square * 4, 3) + 2, 0:4] = T.Shuffle(
                [
                    T.Shuffle([rows[T.Ramp(0, 1, 4)], rows[T.Ramp(4, 1, 4)]], [2, 6, 3, 7]),
                    T.Shuffle([rows[T.Ramp(8, 1, 4)], rows[T.Ramp(12, 1, 4)]], [2, 6, 3, 7]),
                ],
                [0, 1, 4, 5],
            )
            pixels[T.min(1 + square * 4, 3) + 3, 0:4] = T.Shuffle(
                [
                    T.Shuffle([rows[T.Ramp(0, 1, 4)], rows[T.Ramp(4, 1, 4)]], [2, 6, 3, 7]),
                    T.Shuffle([rows[T.Ramp(8, 1, 4)], rows[T.Ramp(12, 1, 4)]], [2, 6, 3, 7]),
                ],
                [2, 3, 6, 7],
            )

    check(transpose, before, after)


def test_a_row_of_channels_and_their_taps_is_read_from_its_first_element_on() -> None:
    """Which channel and tap each column is of, is known before: squares are unrolled."""

    @T.prim_func(private=True, s_tir=True)
    def before(weights: T.Buffer((4, 2, 3), "float32")) -> None:
        packed = T.alloc_buffer((3, 2, 4))
        for x in T.serial(6, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                packed[x % 3, x // 3, lane] = weights[lane, x // 3, x % 3]

    text = transpose(before.body).script()
    assert "for square in T.unroll(2)" in text
    start = "T.min(square * 4, 2)"
    assert f"rows[row * 4 + x] = weights[row, {start} // 3, {start} % 3 + x]" in text
    assert f"packed[({start} + 1) % 3, ({start} + 1) // 3, 0:4] =" in text


def test_rows_that_do_not_lie_together_along_their_axes_are_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(weights: T.Buffer((4, 3, 2), "float32")) -> None:
        packed = T.alloc_buffer((6, 4))
        for x in T.serial(6, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                packed[x, lane] = weights[lane, x % 3, x // 3]

    check_refused(transpose, before, "it reads something else than a row")


def test_pairs_of_planes_are_made_by_vectors() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((8, 4), "uint16")) -> None:
        pixels = T.alloc_buffer((4, 4), "uint32")
        for x in T.serial(4, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                pixels[x, lane] = T.Cast("uint32", data[lane * 2 + 1, x]) << T.uint32(16) | T.Cast(
                    "uint32", data[lane * 2, x]
                )

    text = transpose(before.body).script()
    pair = 'T.Cast("uint32", data[row * 2 + 1, square * 4 + x]) << T.uint32(16) | T.Cast("uint32", data[row * 2, square * 4 + x])'
    assert f"rows[row * 4 + x] = {pair}" in text
    assert text.count("pixels[square * 4") == 4


def test_outside_of_data_pixels_are_what_padding_holds() -> None:
    """Quads of integers hold their zero point there."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4, 4), "uint8")) -> None:
        pixels = T.alloc_buffer((6, 4), "uint32")
        for x in T.serial(6, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                pixels[x, lane] = T.if_then_else(
                    x >= 1 and x < 5, T.Cast("uint32", data[lane, x - 1]), T.uint32(0x03030303)
                )

    text = transpose(before.body).script()
    for column in ("column", "5 + column"):
        assert f"pixels[{column}, 0:4] = T.Broadcast(T.uint32({0x03030303}), 4)" in text


def test_fewer_columns_than_a_vector_stay_single_where_the_request_allows_it() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4, 3), "float32")) -> None:
        pixels = T.alloc_buffer((7, 4))
        for x in T.serial(7, annotations={"tvmconv.transpose": "to_pixels_if_whole"}):
            for lane in T.vectorized(4):
                pixels[x, lane] = T.if_then_else(x >= 2 and x < 5, data[lane, x - 2], T.float32(0))

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((4, 3), "float32")) -> None:
        pixels = T.alloc_buffer((7, 4))
        for x in range(7):
            for lane in T.vectorized(4):
                pixels[x, lane] = T.if_then_else(x >= 2 and x < 5, data[lane, x - 2], T.float32(0))

    check(transpose, before, after)


def test_what_no_vector_can_do_is_refused_where_the_request_is_for_vectors() -> None:
    @T.prim_func(private=True, s_tir=True)
    def few_inside(data: T.Buffer((4, 3), "float32")) -> None:
        pixels = T.alloc_buffer((7, 4))
        for x in T.serial(7, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                pixels[x, lane] = T.if_then_else(x >= 2 and x < 5, data[lane, x - 2], T.float32(0))

    check_refused(transpose, few_inside, "3 columns are known to be inside, of at least 4")

    @T.prim_func(private=True, s_tir=True)
    def some_copied(data: T.Buffer((4, 6), "float32"), y: T.int32) -> None:
        pixels = T.alloc_buffer((8, 4))
        for x in T.serial(8, annotations={"tvmconv.transpose": "to_pixels"}):
            if y * 8 + x < 6:
                for lane in T.vectorized(4):
                    pixels[x, lane] = data[lane, x]

    check_refused(transpose, some_copied, "some columns are not copied")

    @T.prim_func(private=True, s_tir=True)
    def narrow(output: T.Buffer((4, 3), "float32")) -> None:
        tile = T.alloc_buffer((3, 4), scope="local")
        for c in T.serial(4, annotations={"tvmconv.transpose": "to_planes"}):
            for x in range(3):
                output[c, x] = tile[x, c]

    check_refused(transpose, narrow, "rows have 3 columns, of at least 4")

    @T.prim_func(private=True, s_tir=True)
    def one_column(output: T.Buffer((4,), "float32")) -> None:
        tile = T.alloc_buffer((4,), scope="local")
        for c in T.serial(4, annotations={"tvmconv.transpose": "to_planes"}):
            output[c] = tile[c]

    check_refused(transpose, one_column, "rows have a single column")

    @T.prim_func(private=True, s_tir=True)
    def unknown(output: T.Buffer((4,), "float32")) -> None:
        for c in T.serial(4, annotations={"tvmconv.transpose": "upside_down"}):
            output[c] = T.float32(0)

    check_refused(transpose, unknown, "it is none of to_pixels, to_pixels_if_whole, to_planes")


def test_narrow_rows_are_stored_one_by_one_where_the_request_allows_it() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(output: T.Buffer((4, 3), "float32")) -> None:
        tile = T.alloc_buffer((3, 4), scope="local")
        for c in T.serial(4, annotations={"tvmconv.transpose": "to_planes_if_wide"}):
            for x in range(3):
                output[c, x] = tile[x, c]

    @T.prim_func(private=True, s_tir=True)
    def after(output: T.Buffer((4, 3), "float32")) -> None:
        tile = T.alloc_buffer((3, 4), scope="local")
        for c in T.serial(4):
            for x in range(3):
                output[c, x] = tile[x, c]

    check(transpose, before, after)


def test_rows_whose_elements_lie_apart_are_computed_by_vectors() -> None:
    """Two phases of a transposed convolution: one of each pair of outputs."""

    @T.prim_func(private=True, s_tir=True)
    def before(bias: T.Buffer((4,), "float32"), output: T.Buffer((4, 8), "uint8")) -> None:
        tile = T.alloc_buffer((4, 4), scope="local")
        for c in T.serial(4, annotations={"tvmconv.transpose": "to_planes"}):
            for x in range(4):
                output[c, x * 2] = T.Cast("uint8", tile[x, c] + bias[c])

    transposed = transpose(before.body)
    row, element = find_all(transposed, tirx.BufferStore)[-2:]
    assert isinstance(row.value, tirx.Cast) and element.buffer.name == "output"
    assert isinstance(element.value, TensorLoad) and element.value.source.same_as(row.buffer)
    vectorized = [each for each in find_all(transposed, tirx.For) if each.kind == tirx.ForKind.VECTORIZED]
    assert vectorized[-1].body.same_as(row)


def test_phases_of_a_row_interleaved() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(output: T.Buffer((8,), "float32")) -> None:
        sums = T.alloc_buffer((2, 4), scope="local")
        for x in T.vectorized(8, annotations={"tvmconv.transpose": "interleave"}):
            output[x] = sums[x % 2, x // 2]

    @T.prim_func(private=True, s_tir=True)
    def after(output: T.Buffer((8,), "float32")) -> None:
        sums = T.alloc_buffer((2, 4), scope="local")
        row = T.alloc_local((8,))
        row[0:4] = T.Shuffle([sums[0, T.Ramp(0, 1, 4)], sums[1, T.Ramp(0, 1, 4)]], [0, 4, 1, 5])
        row[4:8] = T.Shuffle([sums[0, T.Ramp(0, 1, 4)], sums[1, T.Ramp(0, 1, 4)]], [2, 6, 3, 7])
        for part in T.unroll(2):
            for lane in T.vectorized(4):
                output[part * 4 + lane] = row[part * 4 + lane]

    check(transpose, before, after)


def test_phases_of_a_row_interleaved_under_a_condition() -> None:
    """Interleave a row that may lie outside of the output: the condition covers all of it."""

    @T.prim_func(private=True, s_tir=True)
    def before(output: T.Buffer((16,), "float32")) -> None:
        sums = T.alloc_buffer((2, 4), scope="local")
        for y in range(3):
            for x in T.vectorized(8, annotations={"tvmconv.transpose": "interleave"}):
                if y < 2:
                    output[y * 8 + x] = sums[x % 2, x // 2]

    @T.prim_func(private=True, s_tir=True)
    def after(output: T.Buffer((16,), "float32")) -> None:
        sums = T.alloc_buffer((2, 4), scope="local")
        for y in range(3):
            if y < 2:
                row = T.alloc_local((8,))
                row[0:4] = T.Shuffle([sums[0, T.Ramp(0, 1, 4)], sums[1, T.Ramp(0, 1, 4)]], [0, 4, 1, 5])
                row[4:8] = T.Shuffle([sums[0, T.Ramp(0, 1, 4)], sums[1, T.Ramp(0, 1, 4)]], [2, 6, 3, 7])
                for part in T.unroll(2):
                    for lane in T.vectorized(4):
                        output[y * 8 + (part * 4 + lane)] = row[part * 4 + lane]

    check(transpose, before, after)


def test_every_second_column_by_two_loads_and_a_shuffle() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4, 11), "float32")) -> None:
        phases = T.alloc_buffer((2, 6))
        for y in range(4):
            for phase in T.serial(2, annotations={"tvmconv.strided": 1}):
                for x in range(6):
                    phases[phase, x] = T.if_then_else(x * 2 + phase < 11, data[y, x * 2 + phase], T.float32(0))

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((4, 11), "float32")) -> None:
        phases = T.alloc_buffer((2, 6))
        for y in range(4):
            for vector in range(2):
                phases[0, T.Ramp(T.min(vector * 4, 2), 1, 4)] = T.Shuffle(
                    [
                        data[y, T.Ramp(T.min(vector * 4, 2) * 2, 1, 4)],
                        data[y, T.Ramp(T.min(vector * 4, 2) * 2 + 3, 1, 4)],
                    ],
                    [0, 2, 5, 7],
                )
            phases[1, 5] = T.float32(0)
            for vector in range(2):
                phases[1, T.Ramp(T.min(vector * 4, 1), 1, 4)] = T.Shuffle(
                    [
                        data[y, T.Ramp(T.min(vector * 4, 1) * 2 + 1, 1, 4)],
                        data[y, T.Ramp(T.min(vector * 4, 1) * 2 + 1 + 3, 1, 4)],
                    ],
                    [0, 2, 5, 7],
                )

    check(deinterleave, before, after)


def test_columns_of_integers_are_converted_in_vectors() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4, 9), "uint8")) -> None:
        phases = T.alloc_buffer((1, 5))
        for y in range(4):
            for phase in T.serial(1, annotations={"tvmconv.strided": 1}):
                for x in range(5):
                    phases[phase, x] = T.if_then_else(
                        x * 2 + phase < 8, T.Cast("float32", T.Cast("int32", data[y, x * 2 + phase]) - 7), T.float32(0)
                    )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((4, 9), "uint8")) -> None:
        phases = T.alloc_buffer((1, 5))
        for y in range(4):
            phases[0, 4] = T.float32(0)
            for vector in range(1):
                phases[0, T.Ramp(T.min(vector * 4, 0), 1, 4)] = T.Cast(
                    "float32x4",
                    T.Cast(
                        "int32x4",
                        T.Shuffle(
                            [
                                data[y, T.Ramp(T.min(vector * 4, 0) * 2, 1, 4)],
                                data[y, T.Ramp(T.min(vector * 4, 0) * 2 + 3, 1, 4)],
                            ],
                            [0, 2, 5, 7],
                        ),
                    )
                    - T.Broadcast(7, 4),
                )

    check(deinterleave, before, after)


def test_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def no_row(data: T.Buffer((4, 16), "float32")) -> None:
        pixels = T.alloc_buffer((8, 4))
        for x in T.serial(8, annotations={"tvmconv.transpose": "to_pixels"}):
            for lane in T.vectorized(4):
                pixels[x, lane] = data[lane, x * 2]

    check_refused(transpose, no_row, r"transpose \(to_pixels\) of the loop over x is refused: it reads something else")

    @T.prim_func(private=True, s_tir=True)
    def three_channels(output: T.Buffer((3, 4), "float32")) -> None:
        tile = T.alloc_buffer((4, 3), scope="local")
        for c in T.serial(3, annotations={"tvmconv.transpose": "to_planes"}):
            for x in range(4):
                output[c, x] = tile[x, c]

    check_refused(transpose, three_channels, "it does not store vectors of channels")

    @T.prim_func(private=True, s_tir=True)
    def scattered(output: T.Buffer((16,), "float32")) -> None:
        sums = T.alloc_buffer((2, 4), scope="local")
        for x in T.vectorized(8, annotations={"tvmconv.transpose": "interleave"}):
            output[x * 2] = sums[x % 2, x // 2]

    check_refused(transpose, scattered, "does not store sums that lie together")

    @T.prim_func(private=True, s_tir=True)
    def short(output: T.Buffer((7,), "float32")) -> None:
        sums = T.alloc_buffer((2, 4), scope="local")
        for x in T.vectorized(8, annotations={"tvmconv.transpose": "interleave"}):
            if x < 7:
                output[x] = sums[x % 2, x // 2]

    check_refused(transpose, short, "some columns are not stored: x < 7")

    @T.prim_func(private=True, s_tir=True)
    def dense(data: T.Buffer((12,), "float32")) -> None:
        phases = T.alloc_buffer((2, 6))
        for phase in T.serial(2, annotations={"tvmconv.strided": 1}):
            for x in range(6):
                phases[phase, x] = data[x + phase]

    check_refused(deinterleave, dense, "columns are 1 apart")

    @T.prim_func(private=True, s_tir=True)
    def narrow(data: T.Buffer((4, 7), "float32")) -> None:
        phases = T.alloc_buffer((2, 4))
        for y in range(4):
            for phase in T.serial(2, annotations={"tvmconv.strided": 1}):
                for x in range(4):
                    phases[phase, x] = T.if_then_else(x * 2 + phase < 7, data[y, x * 2 + phase], T.float32(0))

    check_refused(deinterleave, narrow, "its phase 1 has 3 columns inside of data, and vectors have 4")
