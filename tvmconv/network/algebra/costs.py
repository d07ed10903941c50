"""Estimate the cycles, on one core, of a linear map, or of a pass over an array."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ...algorithms.cpu.model.cost import lines
from ...algorithms.table import applicable
from ...errors import TvmconvError
from ...problem import Problem
from ...runtime.arrays import KERNEL_TYPES
from ...targets.target import CpuTarget
from .maps import LinearMap


def part_cycles(map_: LinearMap, shape: tuple[int, ...], dtype: str, target: CpuTarget) -> float:
    """Return the cost of an original operator on data of a shape, channels second."""
    if not map_.passes:
        return map_cycles(map_, shape, dtype, target)
    made = (shape[0], map_.outputs, *outputs(map_, shape))
    return pass_cycles(made, dtype, 1, target) + pass_cycles(made if map_.is_slice else shape, dtype, 1, target)


def map_cycles(map_: LinearMap, shape: tuple[int, ...], dtype: str, target: CpuTarget) -> float:
    """Return the cost of a map's kernel on data of a shape, channels second; infinity if no kernel computes it."""
    try:
        return _cycles(
            Problem(
                op="convolution", batch=shape[0], in_channels=shape[1], in_spatial=shape[2:], out_channels=map_.outputs,
                out_spatial=outputs(map_, shape), kernel=map_.taps, strides=map_.strides, dilations=map_.dilations,
                pads_begin=map_.begins, pads_end=map_.ends, groups=map_.groups, dtype=dtype, bias=map_.bias is not None,
            ),
            target,
        )  # fmt: skip
    except TvmconvError:  # no kernel computes it
        return float("inf")


def outputs(map_: LinearMap, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of output pixels along each axis for data of a shape, channels second."""
    span = [(taps - 1) * dilation + 1 for taps, dilation in zip(map_.taps, map_.dilations, strict=True)]
    return tuple(
        (size + begin + end - reach) // stride + 1
        for size, begin, end, reach, stride in zip(shape[2:], map_.begins, map_.ends, span, map_.strides, strict=True)
    )


def problem_cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the cost of a problem's kernel with data channels last."""
    return _cycles(problem.with_(data_format="NXC", filter_format="XIO"), target)


def pass_cycles(shape: tuple[int, ...], dtype: str, arrays: int, target: CpuTarget) -> float:
    """Return the cost of reading or writing a number of `arrays` of a shape."""
    return lines(arrays * prod(shape) * KERNEL_TYPES[dtype].itemsize) * target.costs.lines.l3


@lru_cache(maxsize=4096)
def _cycles(problem: Problem, target: CpuTarget) -> float:
    return applicable(problem, target)[0].cycles(problem, target)
