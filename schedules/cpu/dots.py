"""Dot products of pairs: each lane adds the products of both numbers of a pair to a sum.

Of bf16 AVX512-BF16's and BFDOT; of 16-bit integers vpmaddwd, which adds two products exactly, and an addition: never vpmaddubsw,
which saturates.

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

from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.pairs import DOT, DOT_S16, rounding_text
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


_DOT_S16 = """
define <{lanes} x i32> @{dot}_{lanes}(<{lanes} x i32> %sum, <{lanes} x i32> %a, <{lanes} x i32> %b) alwaysinline nounwind {{
  %p = call <{lanes} x i32> asm "vpmaddwd $2, $1, $0", "=v,v,v"(<{lanes} x i32> %a, <{lanes} x i32> %b) nounwind willreturn memory(none)
  %r = add <{lanes} x i32> %sum, %p
  ret <{lanes} x i32> %r
}}
"""


def import_dot(sch: Schedule, outside: LoopRV, window: Window, lanes: int, target: CpuTarget) -> None:
    """Define the functions of so many lanes at the loop `outside`, within which a window's products call them."""
    if window.problem.is_quantized:
        if window.vnni_factor > 1:
            sch.annotate(outside, "pragma_import_llvm", _DOT_S16.format(dot=DOT_S16, lanes=lanes))
        return
    intrinsic = target.isa.dot_intrinsic.format(lanes=lanes, halves=2 * lanes, bits=32 * lanes)
    import_round(sch, outside, lanes, _DOT.format(dot=DOT, lanes=lanes, halves=2 * lanes, intrinsic=intrinsic))


def import_round(sch: Schedule, outside: LoopRV, lanes: int, beside: str = "") -> None:
    """Define the function that rounds so many lanes, and what is `beside` it, at the loop `outside`, within which it is called."""
    sch.annotate(outside, "pragma_import_llvm", beside + rounding_text(lanes))
