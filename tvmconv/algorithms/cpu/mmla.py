"""Direct convolution by products of matrices of bf16 in vector registers, such as ARM's BFMMLA.

A register has the sums of 2 pixels by 2 output channels, and the instruction adds 4 products to each: of 2 pixels by 4 channels and
4 channels by 2 output channels, each in one register as well. Elements of data and filter are quads of channels. The windows
are those of `direct`, but the space gives data and sums another layout: neighbouring pixels of a quad are contiguous, and so are
the sums of a register (schedules/cpu/mmla.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..definition import Definition, assemble
from ..flatten import flatten
from ..shapes import F32_BITS, accumulators, divisors, tile_widths
from .direct import LEAST_PER_GROUP
from .model.cost import Counts, multiply_add, tile_step, total
from .model.counts import count_copies, count_stores, filter_traffic, outputs, stored_lines
from .windows.express import express
from .windows.make import windows_of
from .windows.tile import LEAST_GAIN, longest_row
from .windows.window import Window

# Least channels of a group, which leave half of a quad empty.
LEAST_CHANNELS = 2


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    if problem.dtype != "bf16":
        return f"it multiplies bf16, not {problem.dtype}"
    if target.matrices is None:
        return f"{target.name} has no instruction for matrices of bf16 in vector registers"
    flat = flatten(problem)
    if flat.in_channels // flat.groups < LEAST_CHANNELS:
        return "with one channel, most elements of a matrix are empty"
    if flat.groups > 1 and flat.out_channels // flat.groups < LEAST_PER_GROUP:
        per_group = flat.out_channels // flat.groups
        return f"{per_group} output channels per group leave lanes empty; it takes {LEAST_PER_GROUP} or more"
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget) -> Definition:
    """Define `problem` by windows of quads."""
    windows = matrix_windows(problem, target)
    factor = max((window.vnni_factor for window in windows), default=1)
    return assemble(problem, flatten(problem), windows, express, factor)


def estimate(problem: Problem, target: CpuTarget) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    windows = matrix_windows(problem, target)
    phases = max((window.axes[-1].phases for window in windows), default=1)
    return total(*(_window_estimate(window, target) for window in windows), stored_lines(problem, phases, target))


@dataclass(frozen=True, kw_only=True)
class MatrixWindow(Window):
    """A window whose sums are matrices in registers, of so many `rows` (pixels) and `columns` (output channels)."""

    rows: int
    columns: int

    @property
    def stages_data(self) -> bool:
        """Return True: neighbouring pixels of a quad are contiguous in the copy."""
        return True

    @property
    def skips_columns(self) -> bool:
        """Return False: a register has sums of several pixels."""
        return False

    @property
    def residues(self) -> int:
        """Residues of a row's coordinates by which the copy groups pixels."""
        return self.axes[-1].stride // self.axes[-1].gap

    @property
    def row_extent(self) -> int:
        """Number of data coordinates along a row of the copy, equal for all residues."""
        extent, stride = super().row_extent, self.axes[-1].stride
        return -(-extent // stride) * stride


def matrix_windows(problem: Problem, target: CpuTarget) -> list[MatrixWindow]:
    """Return the windows of `define`, with their rows rounded up to whole tiles."""
    matrices = target.matrices
    assert matrices is not None
    lanes = target.vector_bits // F32_BITS
    made = []
    for window in windows_of(flatten(problem), target):
        by_quads = replace(window, lanes=lanes, vnni_factor=matrices.depth)
        rounded, turned = (
            _rounded_up(each.as_kind(MatrixWindow, rows=matrices.rows, columns=matrices.columns), target)
            for each in (by_quads, longest_row(by_quads))
        )
        better = _pixel_cycles(turned, target) < _pixel_cycles(rounded, target) * (1 - LEAST_GAIN)
        made.append(turned if better else rounded)
    return made


def widths(window: MatrixWindow, vectors: int, target: CpuTarget) -> list[int]:
    """Return the numbers of pixels that a tile of so many vectors of channels may have, the best by the model first."""
    fitting = [
        width
        for width in tile_widths(window.tile or window.row, target)
        if width % window.rows == 0 and width * vectors <= accumulators(target)
    ]
    return sorted(fitting, key=lambda width: tile_cycles(window, width, vectors, target))


def tile_cycles(window: MatrixWindow, width: int, vectors: int, target: CpuTarget) -> float:
    """Return the cost of a tile per instruction, in the time of one instruction, including loads."""
    step = replace(target.costs.tile, chain=target.costs.latency * target.multiply_adds)
    filters = vectors * window.lanes // window.columns
    weights = window.element_bytes * window.channels * window.summed_taps * vectors * window.lanes
    sums = width * vectors * window.lanes // (window.rows * window.columns)
    stream = step.from_l2 if weights > target.l1_share else 0.0
    return tile_step(step, filters, width // window.rows, sums, parts=filters, stream=stream) / sums


def _rounded_up(window: MatrixWindow, target: CpuTarget) -> MatrixWindow:
    """Return the window with its row rounded up to whole tiles; the last one repeats pixels, or has some that are not stored."""
    outputs, rows = window.axes[-1].outputs, window.rows
    ways = []
    for tile in range(rows, max(rows, min(outputs + rows - 1, accumulators(target))) + 1, rows):
        row = -(-outputs // tile) * tile
        shifts = window.stores_vectors and outputs >= tile and row > outputs
        ways.append(replace(window, row=row, tile=tile if shifts else 0))
    return min(ways, key=lambda each: _pixel_cycles(each, target))


def _pixel_cycles(window: MatrixWindow, target: CpuTarget) -> float:
    return _best_tile(window, target)[0] * window.row / max(window.axes[-1].outputs, 1)


def _best_tile(window: MatrixWindow, target: CpuTarget) -> tuple[float, int, int]:
    """Return the cycles, the pixels and the vectors of channels of the tile that costs least."""
    counts = divisors(window.padded_outputs // window.lanes, 8)
    tiles = ((width, count) for count in counts for width in widths(window, count, target))
    return min((tile_cycles(window, width, count, target), width, count) for width, count in tiles)


def _window_estimate(window: MatrixWindow, target: CpuTarget) -> Counts:
    cycles, width, vectors = _best_tile(window, target)
    met: Sequence[float] = [axis.met for axis in window.axes[:-1]] if window.skips_rows else []
    inside = prod(met) if window.problem.op == "convolution" else 1.0
    vectors_of_outputs = outputs(window) * window.groups * window.padded_outputs / window.lanes
    whole = vectors_of_outputs * window.row / window.axes[-1].outputs
    products = whole * prod(axis.taps for axis in window.axes) * window.channels * inside
    instruction = multiply_add(window.lanes, target) * window.vnni_factor / target.matrix_rate
    return total(
        {"tile.scale": products * cycles * instruction, "start": whole / (width * vectors)},
        count_copies(window, target),
        count_stores(window, target),
        filter_traffic(window, target),
    )
