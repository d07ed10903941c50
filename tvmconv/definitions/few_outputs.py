"""Few output channels of NXC data: lanes across them, along a row, or along the channels that are summed.

Estimates in cycles of one core, from what was measured on a Zen 4 (one thread, 128x128 and 256x256 pixels).
"""

from __future__ import annotations

from math import prod

from ..problem import Problem
from ..target import CpuTarget
from .constant import covers_data

# Up to so many, lanes across output channels are mostly empty.
FEW_OUTPUTS = 8
LAYING_CYCLES = 3.5  # an element of NXC data laid into planes
STEP_CYCLES = 0.55  # a multiply-add of a quarter or half vector: two start in a cycle
LANES_CYCLES = 5.0  # the lanes of one sum added up


def reduced_lanes(channels: int, target: CpuTarget) -> int:
    """Return how many lanes the channels of a group are cut into; 0: they fill no vector."""
    return next((lanes for lanes in (target.vector_bits // 32, 8, 4) if channels % lanes == 0), 0)


def covers_reduced(problem: Problem, target: CpuTarget) -> str | None:
    """Why lanes along summed channels do not compute a problem, or None if they do."""
    if problem.data_format != "NXC":
        return f"channels lie apart in {problem.data_format}"
    if problem.out_channels // problem.groups > FEW_OUTPUTS:
        return f"there are more than {FEW_OUTPUTS} output channels"
    if not reduced_lanes(problem.in_channels // problem.groups, target):
        return "the channels of a group are no multiple of 4"
    return covers_data(problem, target)


def prefers_reduced(problem: Problem, target: CpuTarget) -> bool:
    """Whether lanes along summed channels are the best for few output channels by estimate."""
    return covers_reduced(problem, target) is None and _best(problem, target) == "reduced"


def prefers_rows(problem: Problem, target: CpuTarget) -> bool:
    """Whether lanes along a row are the best for few output channels of NXC data by estimate."""
    return problem.out_spatial[-1] >= target.vector_bits // 32 and _best(problem, target) == "planar"


def _best(problem: Problem, target: CpuTarget) -> str:
    outputs, lanes = problem.out_channels, target.vector_bits // 32
    channels = problem.in_channels // problem.groups
    if outputs > FEW_OUTPUTS or problem.groups > 1:
        return "direct"
    pixels = problem.batch * prod(problem.out_spatial)
    macs = problem.flops / 2 / outputs
    # A transposed convolution copies data for each of its windows.
    axes = zip(problem.kernel, problem.strides, strict=True)
    windows = 1 if problem.op == "convolution" else prod(1 if k % s == 0 or k < s else 2 for k, s in axes)
    data = problem.batch * prod(problem.in_spatial) * problem.in_channels
    estimates = {
        "direct": STEP_CYCLES * macs,
        "planar": LAYING_CYCLES * windows * data + macs * outputs / lanes,
    }
    if reduced := reduced_lanes(channels, target):
        estimates["reduced"] = macs * outputs / reduced + LANES_CYCLES * pixels * outputs
    return min(estimates, key=lambda name: estimates[name])
