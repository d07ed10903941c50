"""What Winograd convolution costs, for deciding without a measurement whether it is worth its transforms.

Counted in multiply-adds of a vector, of which a core starts one or two in a cycle. A transform of one vector costs its
loads, its stores at two cycles each, and its arithmetic; the filter's loads besides wait for memory.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..problem import Problem
from ..target import CpuTarget
from .constant import covers_data
from .shapes import F32_BITS, KEPT_BYTES, LEAST_SKIPPED

if TYPE_CHECKING:
    from .winograd_tiles import Tiles

# Cycles per vector: of data for each point of a tile, of the filter for each point, of the output for each point.
DATA_POINT, FILTER_POINT, OUTPUT_POINT = 4.0, 3.0, 2.7
# And of the filter for each tap: lanes lie together (XIO), or all taps of a lane do (OIX), or none (transposed XIO).
TAP, TAP_OIX, TAP_APART = 10.0, 22.0, 40.0
# Fewer output channels leave most lanes empty.
LEAST_PER_GROUP = 4
# Estimates err by a quarter: what promises at least this much of a gain is worth a trial when a problem is tuned.
LEAST_GAIN = 0.75


def direct_cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the vector multiply-adds of a problem, less those with wide padding, which are skipped."""
    inside = prod(share_inside(problem, axis) for axis in range(problem.rank))
    return problem.flops / 2 * inside / (target.vector_bits // F32_BITS)


def share_inside(problem: Problem, axis: int) -> float:
    """Return the share of an axis' taps, of all its outputs, that do not meet wide padding."""
    wide = max(problem.pads_begin[axis], problem.pads_end[axis]) >= LEAST_SKIPPED
    return share_met(problem, axis) if problem.op == "convolution" and wide else 1.0


def share_met(problem: Problem, axis: int) -> float:
    """Return the share of an axis' taps, of all outputs of a convolution, that meet data; 1 if there is no tap."""
    begin, taps, outputs = problem.pads_begin[axis], problem.kernel[axis], problem.out_spatial[axis]
    if taps == 0:
        return 1.0
    step, apart, inputs = problem.strides[axis], problem.dilations[axis], problem.in_spatial[axis]
    # Tap k of output y reads y*step + k*apart - begin.
    firsts = (range(-begin + k * apart, -begin + k * apart + outputs * step, step) for k in range(taps))
    return sum(0 <= x < inputs for first in firsts for x in first) / (taps * outputs)


def winograd_cycles(points: int, problem: Problem, target: CpuTarget) -> float:
    """Return the cost of a problem by tiles of so many points."""
    return sum(_cycles(tiles, target) for tiles in _tiles(points, problem, target))


def _cycles(tiles: Tiles, target: CpuTarget, kept: bool = False) -> float:
    """Return the cost of one window; of what each call costs, if the filter's transform is `kept`."""
    from .winograd_tiles import moves

    lanes, channels = target.vector_bits // F32_BITS, tiles.channels
    vectors = tiles.groups * tiles.padded_outputs // tiles.lanes * tiles.phases
    taps = tiles.axes[1].taps * tiles.axes[2].taps
    multiply = tiles.points * tiles.count * tiles.depth * channels * vectors
    apart = TAP if tiles.problem.op == "convolution" else TAP_APART
    tap = TAP_OIX if tiles.problem.filter_format == "OIX" else apart
    weights = 0.0 if kept else (tap * taps + FILTER_POINT * tiles.points) * tiles.depth * channels * vectors
    output = OUTPUT_POINT * tiles.points * tiles.count * vectors
    # Data is transformed by vectors that divide its channels.
    data = DATA_POINT * tiles.points * tiles.count * tiles.groups * channels / min(lanes, channels & -channels)
    data *= prod(axis.phases for axis in tiles.axes[1:] if moves(axis))
    return multiply + target.multiply_adds * (weights + output + data)


def _tiles(points: int, problem: Problem, target: CpuTarget) -> list[Tiles]:
    from .definition import winograd_windows
    from .winograd_tiles import cut

    return [cut(window, points, target) for window in winograd_windows(problem, target)]


def covers_winograd(points: int, problem: Problem, target: CpuTarget) -> str | None:
    """Return None if tiles of so many points can compute `problem` and it is worth it, else why not."""
    from .definition import winograd_windows
    from .winograd_tiles import can_cut

    if constant := covers_data(problem, target):
        return constant
    if problem.out_channels // problem.groups < LEAST_PER_GROUP:
        return f"{problem.out_channels // problem.groups} output channels per group leave lanes empty"
    planes = [window.axes[1:] for window in winograd_windows(problem, target)]
    if any(all(axis.taps == 1 for axis in axes) for axes in planes):
        # Phases too: their data would be copied for nothing, measured as slow as what the others gain.
        return "there is one tap along each of the last two axes"
    if not all(can_cut(axis, points) for axes in planes for axis in axes):
        return f"it is for stride 1 and at most {points - 1} taps along each of the last two axes"
    windows = _tiles(points, problem, target)
    kept = sum(tiles.filter_bytes for tiles in windows) <= KEPT_BYTES
    if sum(_cycles(tiles, target, kept) for tiles in windows) * LEAST_GAIN > direct_cycles(problem, target):
        return "the transforms cost more than they save"
    return None
