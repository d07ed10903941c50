"""Matrix multiplication by tensor cores: warp-wide instructions on 16x16 fragments, as tensor intrinsics.

A fragment is a 16x16 tile (16x8 and 8x16 for TF32 operands) spread over the registers of a warp. Its buffer has the
scope ``wmma.matrix_a``, ``wmma.matrix_b`` or ``wmma.accumulator`` until `tvmconv.lowering.cuda.pipelining.fragments` gives
each thread its 32nd part. The instructions are ``__device__`` functions of ``tvmconv/lowering/cuda/native/instructions.cuh``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from tvmconv.algorithms.types import cuda_dtype

SIZE = 16  # rows and columns of an accumulator fragment
A, B, C = "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"
SHARED = "shared.dyn"


class Intrinsic(NamedTuple):
    """A registered tensor intrinsic, and the extents of the block that it replaces."""

    name: str
    rows: int
    columns: int


def depth(dtype: str) -> int:
    """Return how many products one instruction sums: 16 of 16 bits, 8 of TF32."""
    return 8 if dtype == "f32" else 16


def _fragment(buffer: Any, stride: Any, rows: int, columns: int) -> Any:
    """Return the number of the fragment in its buffer, whose rows are `stride` elements."""
    row, column = buffer.elem_offset // stride // rows, buffer.elem_offset % stride // columns
    return row * (stride // columns) + column


@cache
def load(dtype: str, scope: str, transposed: bool) -> Intrinsic:
    """Return the intrinsic that loads a fragment from shared memory, which holds it `transposed` or as it is.

    A fragment of the left operand is [m, k], of the right one [k, n].
    """
    element, k = cuda_dtype(dtype), depth(dtype)
    rows, columns = (SIZE, k) if (scope == A) != transposed else (k, SIZE)
    name = f"tvmconv_load_{'a' if scope == A else 'b'}{'_transposed' if transposed else ''}_{dtype}"
    function = name.replace(f"_{dtype}", "_tf32" if dtype == "f32" else "_16")

    @T.prim_func(s_tir=True)
    def formula(s: T.handle, f: T.handle) -> None:
        S = T.match_buffer(s, (rows, columns), element, align=16, offset_factor=8, scope=SHARED)
        F = T.match_buffer(f, (rows, columns), element, align=16, offset_factor=8, scope=scope)
        with T.sblock("root"):
            T.reads(S[0:rows, 0:columns])
            T.writes(F[0:rows, 0:columns])
            for i, j in T.grid(rows, columns):
                with T.sblock("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    F[vi, vj] = S[vi, vj]

    @T.prim_func(s_tir=True)
    def instruction(s: T.handle, f: T.handle) -> None:
        s1, s0, f1, f0 = T.int32(), T.int32(), T.int32(), T.int32()
        S = T.match_buffer(s, (rows, columns), element, align=16, offset_factor=8, scope=SHARED, strides=[s1, s0])
        F = T.match_buffer(f, (rows, columns), element, align=16, offset_factor=8, scope=scope, strides=[f1, f0])
        with T.sblock("root"):
            T.reads(S[0:rows, 0:columns])
            T.writes(F[0:rows, 0:columns])
            T.evaluate(T.call_extern("void", function, F.data, _fragment(F, f1, rows, columns), S.access_ptr("r"), s1))

    TensorIntrin.register(name, formula, instruction)
    return Intrinsic(name, rows, columns)


@cache
def zero() -> Intrinsic:
    """Return the intrinsic that sets an accumulator to zero."""

    @T.prim_func(s_tir=True)
    def formula(c: T.handle) -> None:
        F = T.match_buffer(c, (SIZE, SIZE), "float32", align=16, offset_factor=8, scope=C)
        with T.sblock("root"):
            T.reads()
            T.writes(F[0:SIZE, 0:SIZE])
            for i, j in T.grid(SIZE, SIZE):
                with T.sblock("zero"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    F[vi, vj] = T.float32(0)

    @T.prim_func(s_tir=True)
    def instruction(c: T.handle) -> None:
        c1, c0 = T.int32(), T.int32()
        F = T.match_buffer(c, (SIZE, SIZE), "float32", align=16, offset_factor=8, scope=C, strides=[c1, c0])
        with T.sblock("root"):
            T.reads()
            T.writes(F[0:SIZE, 0:SIZE])
            T.evaluate(T.call_extern("void", "tvmconv_zero", F.data, _fragment(F, c1, SIZE, SIZE)))

    TensorIntrin.register("tvmconv_zero", formula, instruction)
    return Intrinsic("tvmconv_zero", SIZE, SIZE)


@cache
def multiply(dtype: str, transposed_a: bool, transposed_b: bool) -> Intrinsic:
    """Return the intrinsic that adds the product of two fragments to an accumulator."""
    element, k = cuda_dtype(dtype), depth(dtype)
    a_shape = (k, SIZE) if transposed_a else (SIZE, k)
    b_shape = (SIZE, k) if transposed_b else (k, SIZE)
    name = f"tvmconv_multiply_{dtype}_{int(transposed_a)}{int(transposed_b)}"
    function = f"tvmconv_multiply_{'tf32' if dtype == 'f32' else dtype}"

    def f32(value: Any) -> Any:
        return value if dtype == "f32" else value.astype("float32")

    def at(transposed: bool, i: Any, j: Any) -> Any:
        return (j, i) if transposed else (i, j)

    @T.prim_func(s_tir=True)
    def formula(a: T.handle, b: T.handle, c: T.handle) -> None:
        X = T.match_buffer(a, a_shape, element, align=16, offset_factor=8, scope=A)
        Y = T.match_buffer(b, b_shape, element, align=16, offset_factor=8, scope=B)
        Z = T.match_buffer(c, (SIZE, SIZE), "float32", align=16, offset_factor=8, scope=C)
        with T.sblock("root"):
            T.reads(Z[0:SIZE, 0:SIZE], X[0 : a_shape[0], 0 : a_shape[1]], Y[0 : b_shape[0], 0 : b_shape[1]])
            T.writes(Z[0:SIZE, 0:SIZE])
            for i, j, r in T.grid(SIZE, SIZE, k):
                with T.sblock("multiply"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, r])
                    a0, a1 = T.meta_var(at(transposed_a, vi, vk))
                    b0, b1 = T.meta_var(at(transposed_b, vk, vj))
                    Z[vi, vj] = Z[vi, vj] + f32(X[a0, a1]) * f32(Y[b0, b1])

    @T.prim_func(s_tir=True)
    def instruction(a: T.handle, b: T.handle, c: T.handle) -> None:
        a1, a0, b1, b0, c1, c0 = T.int32(), T.int32(), T.int32(), T.int32(), T.int32(), T.int32()
        X = T.match_buffer(a, a_shape, element, align=16, offset_factor=8, scope=A, strides=[a1, a0])
        Y = T.match_buffer(b, b_shape, element, align=16, offset_factor=8, scope=B, strides=[b1, b0])
        Z = T.match_buffer(c, (SIZE, SIZE), "float32", align=16, offset_factor=8, scope=C, strides=[c1, c0])
        with T.sblock("root"):
            T.reads(Z[0:SIZE, 0:SIZE], X[0 : a_shape[0], 0 : a_shape[1]], Y[0 : b_shape[0], 0 : b_shape[1]])
            T.writes(Z[0:SIZE, 0:SIZE])
            T.evaluate(
                T.call_extern(
                    "void",
                    function,
                    Z.data,
                    _fragment(Z, c1, SIZE, SIZE),
                    X.data,
                    _fragment(X, a1, a_shape[0], a_shape[1]),
                    Y.data,
                    _fragment(Y, b1, b_shape[0], b_shape[1]),
                )
            )

    TensorIntrin.register(name, formula, instruction)
    return Intrinsic(name, SIZE, SIZE)


@cache
def store(transposed: bool) -> Intrinsic:
    """Return the intrinsic that stores an accumulator to shared memory, `transposed` or as it is."""
    name = f"tvmconv_store{'_transposed' if transposed else ''}"

    def at(i: Any, j: Any) -> Any:
        return (j, i) if transposed else (i, j)

    @T.prim_func(s_tir=True)
    def formula(c: T.handle, s: T.handle) -> None:
        F = T.match_buffer(c, (SIZE, SIZE), "float32", align=16, offset_factor=8, scope=C)
        S = T.match_buffer(s, (SIZE, SIZE), "float32", align=16, offset_factor=4, scope=SHARED)
        with T.sblock("root"):
            T.reads(F[0:SIZE, 0:SIZE])
            T.writes(S[0:SIZE, 0:SIZE])
            for i, j in T.grid(SIZE, SIZE):
                with T.sblock("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    f0, f1 = T.meta_var(at(vi, vj))
                    S[vi, vj] = F[f0, f1]

    @T.prim_func(s_tir=True)
    def instruction(c: T.handle, s: T.handle) -> None:
        c1, c0, s1, s0 = T.int32(), T.int32(), T.int32(), T.int32()
        F = T.match_buffer(c, (SIZE, SIZE), "float32", align=16, offset_factor=8, scope=C, strides=[c1, c0])
        S = T.match_buffer(s, (SIZE, SIZE), "float32", align=16, offset_factor=4, scope=SHARED, strides=[s1, s0])
        with T.sblock("root"):
            T.reads(F[0:SIZE, 0:SIZE])
            T.writes(S[0:SIZE, 0:SIZE])
            T.evaluate(T.call_extern("void", name, F.data, _fragment(F, c1, SIZE, SIZE), S.access_ptr("w"), s1))

    TensorIntrin.register(name, formula, instruction)
    return Intrinsic(name, SIZE, SIZE)
