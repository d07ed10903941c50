"""Dot products of pairs: each lane adds the products of both numbers of a pair to a sum.

Of bf16 AVX512-BF16's and BFDOT; of 16-bit integers vpmaddwd, which adds two products exactly, and an addition: never vpmaddubsw,
which saturates. Of quads of bytes vpdpbusd, or what else an instruction set has (`Isa.quads`).

TVM's code generation has no bf16, so the instruction comes as LLVM IR text: a function around LLVM's
intrinsic that is inlined wherever it is called. A broadcast pair of data meets a vector of filter pairs.

With it comes its companion, which rounds a vector of sums to bf16. tvmconv/lowering/cpu/rewrites/instructions.py calls both.

AVX512-BF16's instruction takes denormal bf16 (below 1.2e-38) for zeros, rounds each step of its sum to nearest even and
flushes denormal sums.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.cpu.tap_pairs import UNPACKED
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.pairs import DOT, DOT_QUADS, DOT_S16, DOT_TAPS, rounding_text
from tvmconv.algorithms.quads import products_of
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


# TVM prints no quotation marks of texts in a schedule, which rules assembly out.
_DOT_S16 = """
declare <{lanes} x i32> @llvm.x86.{intrinsic}(<{halves} x i16>, <{halves} x i16>)
define <{lanes} x i32> @{dot}_{lanes}(<{lanes} x i32> %sum, <{lanes} x i32> %a, <{lanes} x i32> %b) alwaysinline nounwind {{
  %x = bitcast <{lanes} x i32> %a to <{halves} x i16>
  %y = bitcast <{lanes} x i32> %b to <{halves} x i16>
  %p = call <{lanes} x i32> @llvm.x86.{intrinsic}(<{halves} x i16> %x, <{halves} x i16> %y)
  %r = add <{lanes} x i32> %sum, %p
  ret <{lanes} x i32> %r
}}
"""
# Exact: vpdpbusds saturates.
_DOT_QUADS = """
declare <{lanes} x i32> @llvm.{intrinsic}(<{lanes} x i32>, <{quarters} x i8>, <{quarters} x i8>)
define <{lanes} x i32> @{dot}_{lanes}(<{lanes} x i32> %sum, <{lanes} x i32> %a, <{lanes} x i32> %b) alwaysinline nounwind {{
  %x = bitcast <{lanes} x i32> %a to <{quarters} x i8>
  %y = bitcast <{lanes} x i32> %b to <{quarters} x i8>
  %r = call <{lanes} x i32> @llvm.{intrinsic}(<{lanes} x i32> %sum, <{quarters} x i8> {first}, <{quarters} x i8> {second})
  ret <{lanes} x i32> %r
}}
"""
# Unpacking interleaves halves of each 128 bits of two vectors to pairs; the order of the copy makes these neighbours.
_DOT_TAPS = """
declare <{half} x i32> @llvm.x86.{intrinsic}(<{lanes} x i16>, <{lanes} x i16>)
define <{lanes} x i32> @{dot}_{lanes}(<{lanes} x i32> %sum, <{lanes} x i16> %a, <{lanes} x i16> %b, <{lanes} x i32> %w) alwaysinline nounwind {{
  %low = shufflevector <{lanes} x i16> %a, <{lanes} x i16> %b, <{lanes} x i32> <{lows}>
  %high = shufflevector <{lanes} x i16> %a, <{lanes} x i16> %b, <{lanes} x i32> <{highs}>
  %v = bitcast <{lanes} x i32> %w to <{twice} x i16>
  %v0 = shufflevector <{twice} x i16> %v, <{twice} x i16> poison, <{lanes} x i32> <{firsts}>
  %v1 = shufflevector <{twice} x i16> %v, <{twice} x i16> poison, <{lanes} x i32> <{seconds}>
  %p0 = call <{half} x i32> @llvm.x86.{intrinsic}(<{lanes} x i16> %low, <{lanes} x i16> %v0)
  %p1 = call <{half} x i32> @llvm.x86.{intrinsic}(<{lanes} x i16> %high, <{lanes} x i16> %v1)
  %p = shufflevector <{half} x i32> %p0, <{half} x i32> %p1, <{lanes} x i32> <{firsts}>
  %r = add <{lanes} x i32> %sum, %p
  ret <{lanes} x i32> %r
}}
"""


def _of_pairs(lanes: int) -> str:
    """Return the end of the name of LLVM's intrinsic for pairs of integers."""
    return {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd"}.get(lanes, "avx512.pmaddw.d.512")


def _of_quads(mnemonic: str, lanes: int) -> tuple[str, str, str]:
    """Return the name of LLVM's intrinsic for quads of integers, and its first and second operand, data %x or filter %y."""
    if mnemonic.startswith("v"):
        feature = "avx512" if mnemonic == "vpdpbusd" else "avx2"
        return f"x86.{feature}.{mnemonic}.{32 * lanes}", "%x", "%y"
    # ARM has one of unsigned by signed numbers, whose data may be either operand.
    operands = ("%y", "%x") if mnemonic == "sudot" else ("%x", "%y")
    name = "usdot" if mnemonic == "sudot" else mnemonic
    return f"aarch64.neon.{name}.v{lanes}i32.v{4 * lanes}i8", *operands


def import_dot(sch: Schedule, outside: LoopRV, window: Window, lanes: int, target: CpuTarget) -> None:
    """Define the functions of so many lanes at the loop `outside`, within which a window's products call them."""
    if window.quads is not None:
        types = window.quads.types
        intrinsic, first, second = _of_quads(products_of(target)[types], lanes)
        operands = {"intrinsic": intrinsic, "first": first, "second": second}
        text = _DOT_QUADS.format(dot=DOT_QUADS[types], lanes=lanes, quarters=4 * lanes, **operands)
        sch.annotate(outside, "pragma_import_llvm", text)
        return
    if window.problem.is_quantized:
        text = _DOT_S16.format(dot=DOT_S16, lanes=lanes, halves=2 * lanes, intrinsic=_of_pairs(lanes))
        if window.vnni_factor > 1:
            sch.annotate(outside, "pragma_import_llvm", text)
        return
    intrinsic = target.isa.dot_intrinsic.format(lanes=lanes, halves=2 * lanes, bits=32 * lanes)
    import_round(sch, outside, lanes, _DOT.format(dot=DOT, lanes=lanes, halves=2 * lanes, intrinsic=intrinsic))


def import_taps(sch: Schedule, outside: LoopRV, lanes: int) -> None:
    """Define the function of so many lanes that multiplies pairs of taps at the loop `outside`, within which it is called."""

    def order(numbers: Iterable[int]) -> str:
        return ", ".join(f"i32 {each}" for each in numbers)

    def halves(first: int) -> str:
        places = [part + first + each for part in range(0, lanes, UNPACKED) for each in range(UNPACKED // 2)]
        return order(place for at in places for place in (at, lanes + at))

    text = _DOT_TAPS.format(
        dot=DOT_TAPS,
        lanes=lanes,
        half=lanes // 2,
        twice=2 * lanes,
        intrinsic=_of_pairs(lanes // 2),
        lows=halves(0),
        highs=halves(UNPACKED // 2),
        firsts=order(range(lanes)),
        seconds=order(range(lanes, 2 * lanes)),
    )
    sch.annotate(outside, "pragma_import_llvm", text)


def import_round(sch: Schedule, outside: LoopRV, lanes: int, beside: str = "") -> None:
    """Import the function that rounds so many lanes, and the text `beside` it, at the loop `outside` of its calls."""
    sch.annotate(outside, "pragma_import_llvm", beside + rounding_text(lanes))
