"""Dot products of bf16 (AVX512-BF16's, BFDOT): each lane adds the products of both bf16 of a pair to an f32 sum.

TVM's code generation has no bf16, so the instruction comes as LLVM IR text: a function around LLVM's
intrinsic that is inlined wherever it is called. A broadcast pair of data meets a vector of filter pairs.

With it comes its companion, which rounds a vector of sums to bf16. tvmconv/lowering/cpu/rewrites/instructions.py calls both.

AVX512-BF16's instruction takes denormal bf16 (below 1.2e-38) for zeros, rounds each step of its sum to nearest even and
flushes denormal sums. Measured on one Zen 5 core whose peak is 275 GFLOP/s in f32 and 550 in bf16, by

    tvmconv build SIGNATURE --math strict -o B && tvmconv bench B --threads 1

for NXC and XIO, 3x3 taps: 532 GFLOP/s at 56x56, 64 to 64 channels, and 538 at 28x28, 128 to 128: 97 percent.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.pairs import DOT, rounding_text
from tvmconv.targets.target import CpuTarget

_DOT = """
declare <{lanes} x float> @{intrinsic}(<{lanes} x float>, <{halves} x bfloat>, <{halves} x bfloat>)
define <{lanes} x float> @{dot}_{lanes}(<{lanes} x float> %sum, <{lanes} x i32> %a, <{lanes} x i32> %b) alwaysinline nounwind {{
  %x = bitcast <{lanes} x i32> %a to <{halves} x bfloat>
  %y = bitcast <{lanes} x i32> %b to <{halves} x bfloat>
  %r = call <{lanes} x float> @{intrinsic}(<{lanes} x float> %sum, <{halves} x bfloat> %x, <{halves} x bfloat> %y)
  ret <{lanes} x float> %r
}}
"""


def import_bf16(sch: Schedule, outside: LoopRV, lanes: int, target: CpuTarget) -> None:
    """Define the functions of so many lanes at the loop `outside`, within which they are called."""
    intrinsic = target.isa.dot_intrinsic.format(lanes=lanes, halves=2 * lanes, bits=32 * lanes)
    import_round(sch, outside, lanes, _DOT.format(dot=DOT, lanes=lanes, halves=2 * lanes, intrinsic=intrinsic))


def import_round(sch: Schedule, outside: LoopRV, lanes: int, beside: str = "") -> None:
    """Define the function that rounds so many lanes, and what is `beside` it, at the loop `outside`, within which it is called."""
    sch.annotate(outside, "pragma_import_llvm", beside + rounding_text(lanes))
