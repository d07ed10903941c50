"""The bf16 instructions that loops over lanes become (tvmconv/lowering/cpu/rewrites/instructions.py), before and after."""

from common import check, check_refused
from tvm.ir import Call
from tvm.script import tirx as T

from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.cpu.rewrites.instructions import by_instructions
from tvmconv.lowering.cpu.rewrites.prefetching import prefetch_filters
from tvmconv.lowering.cpu.rewrites.shuffles import by_shuffles


def test_dot_products_and_rounding_are_one_call_for_all_lanes() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(
        data: T.Buffer((4,), "uint32"), weights: T.Buffer((4, 4), "uint32"), output: T.Buffer((4,), "uint16")
    ) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for c in range(4):
            for lane in T.vectorized(4):
                sums[lane] = sums[lane] + T.call_pure_extern("float32", "tvmconv_dot_bf16", data[c], weights[c, lane])
        for lane in T.vectorized(4, annotations={"tvmconv.round_stores": 1}):
            output[lane] = T.call_pure_extern("uint16", "tvmconv_round_bf16", sums[lane])

    @T.prim_func(private=True, s_tir=True)
    def after(
        data: T.Buffer((4,), "uint32"), weights: T.Buffer((4, 4), "uint32"), output: T.Buffer((4,), "uint16")
    ) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for c in range(4):
            T.call_extern(
                "void",
                "tvmconv_dot_bf16_at_1_4",
                T.address_of(data[0]),
                c,
                T.int64(0),
                T.address_of(sums[0]),
                weights[c, T.Ramp(0, 1, 4)],
            )
        sums_1 = T.alloc_local((4,))
        for lane in T.vectorized(4):
            sums_1[lane] = sums[lane]
        output[0:4] = T.call_pure_extern("uint16x4", "tvmconv_round_bf16_4", sums_1[T.Ramp(0, 1, 4)])

    body = by_instructions(before.body)
    assert body.attr_key == "pragma_import_llvm"
    assert "define void @tvmconv_dot_bf16_at_1_4(" in body.value.value
    check(lambda body: by_instructions(body).body, before, after)


def test_vectors_that_read_the_same_pair_share_its_broadcast() -> None:
    """And pixels that are unrolled share an address, from which each is a constant away."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((8, 4), "uint32"), weights: T.Buffer((2, 4, 4), "uint32")) -> None:
        sums = T.alloc_buffer((3, 2, 4), scope="local")
        for c in range(4):
            for pixel in T.unroll(3):
                for vector in T.unroll(2):
                    for lane in T.vectorized(4):
                        sums[pixel, vector, lane] = sums[pixel, vector, lane] + T.call_pure_extern(
                            "float32", "tvmconv_dot_bf16", data[pixel * 2 + 1, c], weights[vector, c, lane]
                        )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((8, 4), "uint32"), weights: T.Buffer((2, 4, 4), "uint32")) -> None:
        sums = T.alloc_buffer((3, 2, 4), scope="local")
        for c in range(4):
            for pixel in T.unroll(3):
                T.call_extern(
                    "void",
                    "tvmconv_dot_bf16_at_2_4",
                    T.address_of(data[0, 0]),
                    T.Add(T.Mul(0, 2), 1) * 4 + c,
                    T.Cast("int64", pixel * 32),
                    T.address_of(sums[pixel, 0, 0]),
                    T.address_of(sums[pixel, 1, 0]),
                    weights[0, c, T.Ramp(0, 1, 4)],
                    weights[1, c, T.Ramp(0, 1, 4)],
                )

    body = by_instructions(before.body)
    assert "define void @tvmconv_dot_bf16_at_2_4(" in body.value.value
    check(lambda body: by_instructions(body).body, before, after)


def test_more_vectors_than_registers_hold_take_turns() -> None:
    """Sums, filters, the pair and products of 8 vectors would be in 18 registers of AVX2's 16."""

    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4,), "uint32"), weights: T.Buffer((8, 4, 8), "uint32")) -> None:
        sums = T.alloc_buffer((8, 8), "int32", scope="local")
        for c in range(4):
            for vector in T.unroll(8):
                for lane in T.vectorized(8):
                    sums[vector, lane] = sums[vector, lane] + T.call_pure_extern(
                        "int32", "tvmconv_dot_s16", data[c], weights[vector, c, lane]
                    )

    calls = [str(call.args[0].value) for call in find_all(by_instructions(before.body), Call) if len(call.args) == 12]
    assert calls == ["tvmconv_dot_s16_at_4_8"] * 2


def test_pixels_that_lie_anywhere_keep_addresses_of_their_own() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((8, 4), "uint32"), weights: T.Buffer((4, 4), "uint32")) -> None:
        sums = T.alloc_buffer((3, 4), scope="local")
        for c in range(4):
            for pixel in T.unroll(3):
                for lane in T.vectorized(4):
                    sums[pixel, lane] = sums[pixel, lane] + T.call_pure_extern(
                        "float32", "tvmconv_dot_bf16", data[(c + pixel) // 2, c], weights[c, lane]
                    )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((8, 4), "uint32"), weights: T.Buffer((4, 4), "uint32")) -> None:
        sums = T.alloc_buffer((3, 4), scope="local")
        for c in range(4):
            for pixel in T.unroll(3):
                T.call_extern(
                    "void",
                    "tvmconv_dot_bf16_at_1_4",
                    T.address_of(data[0, 0]),
                    (c + pixel) // 2 * 4 + c,
                    T.int64(0),
                    T.address_of(sums[pixel, 0]),
                    weights[c, T.Ramp(0, 1, 4)],
                )

    check(lambda body: by_instructions(body).body, before, after)


def test_vectors_around_pixels_read_a_pair_that_stays_in_a_register() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(data: T.Buffer((4, 2), "uint32"), weights: T.Buffer((3, 4, 4), "uint32")) -> None:
        sums = T.alloc_buffer((3, 2, 4), scope="local")
        for c in T.unroll(4):
            for vector in T.unroll(3):
                for pixel in T.unroll(2):
                    for lane in T.vectorized(4):
                        sums[vector, pixel, lane] = sums[vector, pixel, lane] + T.call_pure_extern(
                            "float32", "tvmconv_dot_bf16", data[c, pixel], weights[vector, c, lane]
                        )

    @T.prim_func(private=True, s_tir=True)
    def after(data: T.Buffer((4, 2), "uint32"), weights: T.Buffer((3, 4, 4), "uint32")) -> None:
        sums = T.alloc_buffer((3, 2, 4), scope="local")
        for c in T.unroll(4):
            for vector in T.unroll(3):
                for pixel in T.unroll(2):
                    sums[vector, pixel, 0:4] = T.call_pure_extern(
                        "float32x4",
                        "tvmconv_dot_bf16_4",
                        sums[vector, pixel, T.Ramp(0, 1, 4)],
                        T.Broadcast(data[c, pixel], 4),
                        weights[vector, c, T.Ramp(0, 1, 4)],
                    )

    check(by_instructions, before, after)


def test_numbers_that_no_vector_stores_are_rounded_one_by_one() -> None:
    @T.prim_func(private=True, s_tir=True)
    def before(sums: T.Buffer((4, 6), "float32"), output: T.Buffer((6, 4), "uint16")) -> None:
        for channel, x in T.grid(6, 4):
            output[channel, x] = T.call_pure_extern("uint16", "tvmconv_round_bf16", sums[x, channel])

    body = by_instructions(before.body)
    assert "define i16 @tvmconv_round_bf16_1(float %x)" in body.value.value

    @T.prim_func(private=True, s_tir=True)
    def after(sums: T.Buffer((4, 6), "float32"), output: T.Buffer((6, 4), "uint16")) -> None:
        for channel, x in T.grid(6, 4):
            output[channel, x] = T.call_pure_extern("uint16", "tvmconv_round_bf16_1", sums[x, channel])

    check(lambda body: by_instructions(body).body, before, after)


def test_refused() -> None:
    @T.prim_func(private=True, s_tir=True)
    def unknown_order(data: T.Buffer((8,), "float32"), weights: T.Buffer((2, 4), "float32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for c in range(2):
            for lane in T.vectorized(4, annotations={"tvmconv.shuffle": 1}):
                sums[lane] = sums[lane] + data[(lane + c) % 4] * weights[c, lane]

    check_refused(by_shuffles, unknown_order, "depends on loops that are not unrolled")

    @T.prim_func(private=True, s_tir=True)
    def one_lane(data: T.Buffer((4,), "uint32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for c in range(4):
            sums[0] = sums[0] + T.call_pure_extern("float32", "tvmconv_dot_bf16", data[c], data[c])

    check_refused(by_instructions, one_lane, "dot product is outside a vectorized sum")

    @T.prim_func(private=True, s_tir=True)
    def scattered_filter(data: T.Buffer((4, 2), "uint32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for lane in T.vectorized(4):
            sums[lane] = sums[lane] + T.call_pure_extern("float32", "tvmconv_dot_bf16", data[0, 0], data[lane, 0])

    check_refused(by_instructions, scattered_filter, "are not contiguous")

    @T.prim_func(private=True, s_tir=True)
    def scattered_store(output: T.Buffer((8,), "uint16")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for lane in T.vectorized(4, annotations={"tvmconv.round_stores": 1}):
            output[lane * 2] = T.call_pure_extern("uint16", "tvmconv_round_bf16", sums[lane])

    check_refused(by_instructions, scattered_store, "lanes do not lie together")

    @T.prim_func(private=True, s_tir=True)
    def no_filter(data: T.Buffer((4,), "float32")) -> None:
        sums = T.alloc_buffer((4,), scope="local")
        for c in T.unroll(4, annotations={"tvmconv.prefetch": "filter_pack0[-3]"}):
            sums[c] = data[c]

    check_refused(prefetch_filters, no_filter, "it does not read filter_pack0")

    @T.prim_func(private=True, s_tir=True)
    def no_copy(data: T.Buffer((2,), "float32"), sums: T.Buffer((2,), "float32")) -> None:
        for block in T.serial(2, annotations={"tvmconv.prefetch_next": "filter_pack0[-3]"}):
            sums[block] = data[block]

    check_refused(prefetch_filters, no_copy, "it does not read filter_pack0")
