"""Pairs of bf16: two neighbouring channels in one uint32, the first in its low half, as AVX512-BF16 multiplies them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call

from ..problem import Problem

# Of one lane: tvmconv/lowering/cpu/instructions.py makes them vectors'.
DOT = "tvmconv_dot_bf16"
ROUND = "tvmconv_round_bf16"


def reads_pairs(problem: Problem) -> bool:
    """Whether data already consists of pairs: channels lie together, an even number in each group."""
    return problem.data_format == "NXC" and problem.in_channels // problem.groups % 2 == 0


def filter_in_pairs(problem: Problem) -> bool:
    """Whether the filter already consists of pairs: channels of a sum lie together, an even number in each group."""
    forward, one_tap = problem.op == "convolution", prod(problem.kernel) == 1
    together = forward and one_tap if problem.filter_format == "OIX" else not forward
    return together and problem.in_channels // problem.groups % 2 == 0


def filter_channels(problem: Problem) -> int:
    """Return the axis of the filter that has the channels of a sum."""
    outer = problem.op != "convolution"
    return (1 - outer) if problem.filter_format == "OIX" else outer - 2


def pair(load: Callable[[int], Any], first: Any, channels: int) -> Any:
    """Return ``load(0)`` and ``load(1)``, which is zero where channel ``first + 1`` is not one of `channels`."""
    low, high = load(0).astype("uint32"), load(1).astype("uint32")
    if channels % 2:
        high = tirx.if_then_else(first + 1 < channels, high, tirx.const(0, "uint32"))
    return high << tirx.const(16, "uint32") | low


def multiply_pairs(a: Any, b: Any) -> Any:
    """Return the f32 sum of the products of both channels of two pairs, as a call that lowering makes an instruction."""
    return tirx.call_pure_extern("float32", DOT, a, b)


def round_pair(value: Any) -> Any:
    """Return f32 `value` rounded to bf16's bits, as a call that lowering makes an instruction."""
    return tirx.call_pure_extern("uint16", ROUND, value)


def calls(value: Any, name: str) -> bool:
    """Whether `value` is a call of DOT or ROUND, as `name` says."""
    return isinstance(value, Call) and bool(value.args) and str(value.args[0]).strip('"') == name
