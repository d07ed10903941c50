"""AVX512-BF16's dot product: each lane adds the products of both bf16 of a pair to an f32 sum.

TVM's code generation has no bf16, so the instruction comes as LLVM IR text: a function around LLVM's
intrinsic that is inlined wherever it is called. A broadcast pair of data meets a vector of filter pairs.

With it comes its companion, which rounds a vector of sums to bf16 (tvmconv/rounding.py uses it).

The instruction takes denormal bf16 (below 1.2e-38) for zeros, rounds each step of its sum to nearest even and
flushes denormal sums. Measured: 228 GFLOP/s on one Zen 4 core whose f32 peak is 116 (3x3, 64 to 64 channels, 56x56).
"""

from __future__ import annotations

from functools import cache

from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir.schedule import LoopRV
from tvm.script import tirx as T

from tvmconv.definitions.pairs import ROUND

_LLVM = """
declare <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(<{lanes} x float>, <{halves} x bfloat>, <{halves} x bfloat>)
define <{lanes} x float> @{name}(<{lanes} x float> %sum, <{lanes} x i32> %a, <{lanes} x i32> %b) alwaysinline nounwind {{
  %x = bitcast <{lanes} x i32> %a to <{halves} x bfloat>
  %y = bitcast <{lanes} x i32> %b to <{halves} x bfloat>
  %r = call <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(<{lanes} x float> %sum, <{halves} x bfloat> %x, <{halves} x bfloat> %y)
  ret <{lanes} x float> %r
}}
define <{lanes} x i16> @{round}_{lanes}(<{lanes} x float> %x) alwaysinline nounwind {{
  %y = fptrunc <{lanes} x float> %x to <{lanes} x bfloat>
  %r = bitcast <{lanes} x bfloat> %y to <{lanes} x i16>
  ret <{lanes} x i16> %r
}}
"""


def tensorize_dot(sch: Schedule, lane: LoopRV, outside: LoopRV) -> None:
    """Compute the loop over lanes by the instruction; its LLVM function is imported at the loop `outside`."""
    lanes = int(sch.get(lane).extent)
    name = f"tvmconv_dot_bf16_{lanes}"
    _register(name, lanes)
    text = _LLVM.format(name=name, round=ROUND, lanes=lanes, halves=2 * lanes, bits=32 * lanes)
    sch.annotate(outside, "pragma_import_llvm", text)
    sch.tensorize(lane, name)


@cache
def _register(name: str, lanes: int) -> None:
    @T.prim_func(s_tir=True)
    def formula(
        A: T.Buffer((1,), "uint32", offset_factor=1),
        B: T.Buffer((lanes,), "uint32", offset_factor=1),
        C: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:1], B[0:lanes])
            T.writes(C[0:lanes])
            for i in range(lanes):
                with T.sblock("update"):
                    v = T.axis.spatial(lanes, i)
                    # As definitions.pairs.multiply_pairs has it.
                    C[v] = C[v] + (
                        T.reinterpret("float32", T.shift_left(A[0], T.uint32(16)))
                        * T.reinterpret("float32", T.shift_left(B[v], T.uint32(16)))
                        + T.reinterpret("float32", T.bitwise_and(A[0], T.uint32(0xFFFF0000)))
                        * T.reinterpret("float32", T.bitwise_and(B[v], T.uint32(0xFFFF0000)))
                    )

    @T.prim_func(s_tir=True)
    def instruction(
        A: T.Buffer((1,), "uint32", offset_factor=1),
        B: T.Buffer((lanes,), "uint32", offset_factor=1),
        C: T.Buffer((lanes,), "float32", offset_factor=1, scope="local"),
    ) -> None:
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:1], B[0:lanes])
            T.writes(C[0:lanes])
            C[T.ramp(T.int32(0), 1, lanes)] = T.call_pure_extern(
                name,
                C.vload([0], dtype=f"float32x{lanes}"),
                T.broadcast(A[0], lanes),
                B.vload([0], dtype=f"uint32x{lanes}"),
                dtype=f"float32x{lanes}",
            )

    TensorIntrin.register(name, formula, instruction)
