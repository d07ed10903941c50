"""Elements of several channels. AVX512-BF16 multiplies pairs of bf16: neighbouring channels in one uint32, the first in the lowest bits.

BFMMLA multiplies quads of bf16 in one uint64. Integers are pairs of 16 bits in one uint32, minus their zero points (vpmaddwd), or
quads of 8 bits (vpdpbusd, or instructions for other signedness: quads.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from operator import mul
from typing import Any

from tvm import tirx
from tvm.ir import Call

from ..dtypes import DTYPE_BYTES
from ..problem import Problem
from ..targets.target import CpuTarget
from .annotations import BY_SUM
from .types import sum_type

# Call for one lane; tvmconv/lowering/cpu/rewrites/instructions.py vectorizes calls.
DOT = "tvmconv_dot_bf16"
DOT_S16 = "tvmconv_dot_s16"
_BYTES = ("u8", "s8")
DOT_QUADS = {(data, filter_): f"tvmconv_dot_{data}{filter_}" for data in _BYTES for filter_ in _BYTES}
# Dot product of two 16-bit elements with a pair of weights.
DOT_TAPS = "tvmconv_dot_taps"
# Prefix of the mnemonic on CPUs whose only encoding is AVX-VNNI's.
VEX = "{vex} "
# Types of sums by dot product.
DOT_SUMS = {DOT: "float32", **dict.fromkeys((DOT_S16, *DOT_QUADS.values(), DOT_TAPS), "int32")}
ROUND = "tvmconv_round_bf16"
# Call for all sums of a register, by quads; tvmconv/lowering/cpu/rewrites/matrices.py replaces calls of DOT by it.
MATRIX = "tvmconv_matrix_bf16"


# Types of several channels in an element.
_ELEMENT_TYPES = {2: "uint32", 4: "uint64"}
_BITS = 16  # of a channel


def element_type(problem: Problem, count: int) -> str:
    """Return the TVM type of an operand of multiplications with `count` channels."""
    return sum_type(problem) if count == 1 else "uint32" if problem.is_quantized else _ELEMENT_TYPES[count]


def channel_bits(problem: Problem, count: int) -> int:
    """Return the bits of a channel in an element of `count` channels."""
    return 8 if problem.is_quantized and count == 4 else _BITS


def stored_type(problem: Problem, count: int) -> str:
    """Return the TVM type of `count` channels of data in memory."""
    return f"uint{8 * count * DTYPE_BYTES[problem.types.data]}"


def no_integer_pairs(target: CpuTarget) -> str | None:
    """Return why a CPU cannot multiply pairs of 16-bit integers, or None if it can."""
    there = target.isa.pairs.get(target.vector_bits) in target.features
    return None if there else f"{target.name} has no instruction for pairs of 16-bit integers"


def adds_products(problem: Problem, count: int, target: CpuTarget) -> bool:
    """Return whether adding products of elements to sums takes another instruction: for pairs of integers on CPUs without vpdpwssd."""
    return problem.is_quantized and count == 2 and not target.adds_pairs


def sum_requests(problem: Problem, count: int, target: CpuTarget) -> list[str]:
    """Return the annotations for products of elements of `count` channels: BY_SUM where one instruction also adds them to sums."""
    return [BY_SUM] * (problem.is_quantized and count == 2 and target.adds_pairs)


def reads_pairs(problem: Problem, count: int = 2) -> bool:
    """Return whether data consists of elements of `count` neighbouring channels, whole ones in each group."""
    return problem.data_format == "NXC" and problem.in_channels // problem.groups % count == 0


def lies_ready(problem: Problem, count: int, in_pairs: bool) -> bool:
    """Return whether data can be multiplied as it is in memory, by elements of `count` channels; `in_pairs`: it consists of these."""
    if count > 1:
        return in_pairs and (not problem.is_quantized or count == 4)
    return problem.dtype == "f32"


def filter_in_pairs(problem: Problem, count: int = 2) -> bool:
    """Return whether the filter consists of elements of `count` summed channels, whole ones in each group."""
    forward, one_tap = problem.op == "convolution", prod(problem.kernel) == 1
    together = forward and one_tap if problem.filter_format == "OIX" else not forward
    return not problem.is_quantized and together and problem.in_channels // problem.groups % count == 0


def filter_channels(problem: Problem) -> int:
    """Return the filter's axis of the summed channels."""
    outer = problem.op != "convolution"
    return (1 - outer) if problem.filter_format == "OIX" else outer - 2


def pair(load: Callable[[int], Any], first: Any, channels: int, count: int = 2, bits: int = _BITS) -> Any:
    """Return an element of ``load(0)`` to ``load(count - 1)``, `bits` each, with zeros for channels from `first` on that do not exist."""
    dtype = f"uint{count * bits}"
    *others, value = (load(which).astype(dtype) for which in reversed(range(count)))
    for which, higher in zip(reversed(range(1, count)), others, strict=True):
        if channels % count:
            higher = tirx.if_then_else(first + which < channels, higher, tirx.const(0, dtype))
        value = higher << tirx.const(bits * which, dtype) | value
    return value


def data_bits(value: Any, problem: Problem, count: int) -> Any:
    """Return the bits of a channel of data in a pair or quad."""
    return _bits(value, problem.zero_point, count) if problem.is_quantized else value


def filter_bits(value: Any, problem: Problem, count: int) -> Any:
    """Return the bits of a channel of the filter in a pair or quad."""
    return _bits(value, problem.filter_zero_point, count) if problem.is_quantized else value


def _bits(value: Any, zero_point: int, count: int) -> Any:
    if count == 4:
        return value.astype("uint8")
    return (value.astype("int16") - tirx.const(zero_point, "int16")).astype("uint16")


def spread(value: Any, problem: Problem, count: int) -> Any:
    """Return neighbouring channels of data, loaded as one number, as an element; pairs of integers are widened, minus the zero point."""
    if not problem.is_quantized or count == 4:
        return value
    first, second = _both(value, problem)
    low, high = first & tirx.const(0xFFFF, "int32"), second << tirx.const(_BITS, "int32")
    return (low | high).astype(_ELEMENT_TYPES[2])


def spread_signed(value: Any, problem: Problem, count: int) -> Any:
    """Return two neighbours of data minus the zero point as ``first + 65536 * second``, so that sums add both at once."""
    first, second = _both(value, problem)
    return (first + (second << tirx.const(_BITS, "int32"))).astype(_ELEMENT_TYPES[2])


def _both(value: Any, problem: Problem) -> tuple[Any, Any]:
    """Return two neighbours of data, each minus the zero point."""
    both, zero = value.astype("int32"), tirx.const(problem.zero_point, "int32")

    def part(shift: int) -> Any:
        if problem.types.data == "s8":
            return ((both << tirx.const(24 - shift, "int32")) >> tirx.const(24, "int32")) - zero
        return ((both >> tirx.const(shift, "int32")) & tirx.const(0xFF, "int32")) - zero

    return part(0), part(8)


_ROUND_TEXT = """
define {bits} @{round}_{lanes}({f32} %x) alwaysinline nounwind {{
  %y = fptrunc {f32} %x to {bf16}
  %r = bitcast {bf16} %y to {bits}
  ret {bits} %r
}}
"""


def rounding_text(lanes: int) -> str:
    """Return the LLVM IR of a function that rounds `lanes` f32 to bf16, by the instruction of AVX512-BF16 or ARM."""
    types = (f"<{lanes} x {each}>" if lanes > 1 else each for each in ("i16", "float", "bfloat"))
    return _ROUND_TEXT.format(round=ROUND, lanes=lanes, **dict(zip(("bits", "f32", "bf16"), types, strict=True)))


_ROUND_LINE_TEXT = """
define <32 x i16> @{round}_32(<32 x float> %x) alwaysinline nounwind {{
  %low = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{lows}>
  %high = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{highs}>
  %y = call <32 x bfloat> @{intrinsic}(<16 x float> %high, <16 x float> %low)
  %r = bitcast <32 x bfloat> %y to <32 x i16>
  ret <32 x i16> %r
}}
declare <32 x bfloat> @{intrinsic}(<16 x float>, <16 x float>)
"""


def line_rounding_text(intrinsic: str) -> str:
    """Return the LLVM IR of a function that rounds 32 f32, a line of bf16, by an instruction that takes both halves."""
    lows, highs = (", ".join(f"i32 {each}" for each in range(first, first + 16)) for first in (0, 16))
    return _ROUND_LINE_TEXT.format(round=ROUND, intrinsic=intrinsic, lows=lows, highs=highs)


def multiply_pairs(a: Any, b: Any, dot: str = DOT) -> Any:
    """Return the dot product of two pairs or quads, as a call that lowering replaces by an instruction."""
    return tirx.call_pure_extern(DOT_SUMS[dot], dot, a, b)


def multiply_taps(first: Any, second: Any, weights: Any) -> Any:
    """Return the dot product of two 16-bit elements with a pair of weights, as a call that lowering replaces by an instruction."""
    return tirx.call_pure_extern(DOT_SUMS[DOT_TAPS], DOT_TAPS, first, second, weights)


def multiply_of(problem: Problem, count: int, types: tuple[str, str] | None = None) -> Callable[[Any, Any], Any]:
    """Return the function that multiplies elements of `count` channels of data and filter; quads of integers are of `types`."""
    integers = DOT_S16 if types is None else DOT_QUADS[types]
    return mul if count == 1 else partial(multiply_pairs, dot=integers if problem.is_quantized else DOT)


def dot_of(value: Any) -> str:
    """Return the name of the dot product that a value calls; empty for other values."""
    return next((dot for dot in DOT_SUMS if calls(value, dot)), "")


def round_pair(value: Any) -> Any:
    """Return f32 `value` rounded to bf16's bits, as a call that lowering replaces by an instruction."""
    return tirx.call_pure_extern("uint16", ROUND, value)


def calls(value: Any, name: str) -> bool:
    """Return whether `value` is a call of the external function `name`, such as DOT or ROUND."""
    return isinstance(value, Call) and bool(value.args) and str(value.args[0]).strip('"') == name
