"""What Winograd convolution costs, for deciding without a measurement whether it is worth its transforms.

Counted in cycles of one core that starts one vector multiply-add each. A transform of one vector costs its loads,
its stores at two cycles each, and its arithmetic; the filter's 9 loads besides wait for memory.
"""

from __future__ import annotations

from math import prod

from ..problem import Problem
from ..target import CpuTarget
from .flatten import flatten
from .shapes import F32_BITS

TAPS = 3
# Cycles per vector of F(m x m): of data for a tile, of the filter, of the output for a tile.
TRANSFORM_CYCLES = {2: (60, 140, 40), 4: (150, 200, 100)}
# What estimates are worth: Winograd has to promise this much of a gain.
LEAST_GAIN = 1.1


def direct_cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of the multiply-adds of a problem."""
    return problem.flops / 2 / (target.vector_bits // F32_BITS)


def winograd_cycles(outputs: int, problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of a problem by F(m x m, 3 x 3), m being `outputs`."""
    flat, lanes = flatten(problem), target.vector_bits // F32_BITS
    tiles = flat.batch * prod(-(-extent // outputs) for extent in flat.out_spatial)
    channels, out_channels = flat.in_channels, flat.out_channels
    data, weights, output = TRANSFORM_CYCLES[outputs]
    multiply = (outputs + TAPS - 1) ** 2 * tiles * channels * out_channels
    transforms = weights * channels * out_channels + output * tiles * out_channels
    # Data is transformed by vectors that divide its channels.
    return (multiply + transforms) / lanes + data * tiles * channels / min(lanes, channels & -channels)


def covers_winograd(outputs: int, problem: Problem, target: CpuTarget) -> str | None:
    """Return None if F(m x m, 3 x 3) can compute `problem` and is worth it, else why not."""
    if problem.is_empty or problem.is_constant:
        return "the output does not depend on data"
    flat = flatten(problem)
    if problem.op != "convolution" or flat.kernel != (TAPS, TAPS):
        return "it is for Convolution with 3x3 taps"
    for name, values in (("strides", flat.strides), ("dilations", flat.dilations)):
        if values != (1, 1):
            return f"it is for {name} of 1"
    if problem.groups != 1:
        return "it is for one group"
    if (problem.dtype, problem.data_format, problem.filter_format) != ("f32", "NXC", "XIO"):
        return "it is for f32, NXC and XIO"
    if problem.out_channels % 8:
        return f"{problem.out_channels} output channels leave lanes empty; it takes multiples of 8"
    if winograd_cycles(outputs, problem, target) * LEAST_GAIN > direct_cycles(problem, target):
        return "the problem is so small that the transforms cost more than they save"
    return None
