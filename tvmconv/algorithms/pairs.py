"""Pairs of bf16: two neighbouring channels in one uint32, the first in its lowest bits, as AVX512-BF16 multiplies them.

BFMMLA multiplies quads: four channels in one uint64.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call

from ..problem import Problem

# Call of one lane: tvmconv/lowering/cpu/rewrites/instructions.py makes them vectors'.
DOT = "tvmconv_dot_bf16"
ROUND = "tvmconv_round_bf16"
# Call of a register's sums, by quads: tvmconv/lowering/cpu/rewrites/matrices.py makes it of so many DOT.
MATRIX = "tvmconv_matrix_bf16"


# Types by the channels in an element.
ELEMENT_TYPES = {1: "float32", 2: "uint32", 4: "uint64"}
_BF16_BITS = 16


def reads_pairs(problem: Problem, count: int = 2) -> bool:
    """Return whether data consists of pairs already, or of `count` channels: neighbours, whole pairs in each group."""
    return problem.data_format == "NXC" and problem.in_channels // problem.groups % count == 0


def filter_in_pairs(problem: Problem, count: int = 2) -> bool:
    """Return whether the filter consists of pairs already, or of `count` channels: of a sum, whole in each group."""
    forward, one_tap = problem.op == "convolution", prod(problem.kernel) == 1
    together = forward and one_tap if problem.filter_format == "OIX" else not forward
    return together and problem.in_channels // problem.groups % count == 0


def filter_channels(problem: Problem) -> int:
    """Return the axis of the filter that has the channels of a sum."""
    outer = problem.op != "convolution"
    return (1 - outer) if problem.filter_format == "OIX" else outer - 2


def pair(load: Callable[[int], Any], first: Any, channels: int, count: int = 2) -> Any:
    """Return ``load(0)`` to ``load(count - 1)``, zeros for those of ``first + 1`` on that are not one of `channels`."""
    dtype = ELEMENT_TYPES[count]
    *others, value = (load(which).astype(dtype) for which in reversed(range(count)))
    for which, higher in zip(reversed(range(1, count)), others, strict=True):
        if channels % count:
            higher = tirx.if_then_else(first + which < channels, higher, tirx.const(0, dtype))
        value = higher << tirx.const(_BF16_BITS * which, dtype) | value
    return value


_ROUND_TEXT = """
define {bits} @{round}_{lanes}({f32} %x) alwaysinline nounwind {{
  %y = fptrunc {f32} %x to {bf16}
  %r = bitcast {bf16} %y to {bits}
  ret {bits} %r
}}
"""


def rounding_text(lanes: int) -> str:
    """Return the LLVM IR of a function that rounds so many f32 to bf16, by the instruction of AVX512-BF16 or of ARM."""
    types = (f"<{lanes} x {each}>" if lanes > 1 else each for each in ("i16", "float", "bfloat"))
    return _ROUND_TEXT.format(round=ROUND, lanes=lanes, **dict(zip(("bits", "f32", "bf16"), types, strict=True)))


def multiply_pairs(a: Any, b: Any) -> Any:
    """Return the f32 sum of the products of all channels of two pairs or quads, as a call that lowering makes an instruction."""
    return tirx.call_pure_extern("float32", DOT, a, b)


def round_pair(value: Any) -> Any:
    """Return f32 `value` rounded to bf16's bits, as a call that lowering makes an instruction."""
    return tirx.call_pure_extern("uint16", ROUND, value)


def calls(value: Any, name: str) -> bool:
    """Return whether `value` calls DOT or ROUND, by `name`."""
    return isinstance(value, Call) and bool(value.args) and str(value.args[0]).strip('"') == name
