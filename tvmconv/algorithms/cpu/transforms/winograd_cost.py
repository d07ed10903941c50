"""Coverage of Winograd convolution, and counts of its events, including transforms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....dtypes import DTYPE_BYTES
from ....problem import Problem
from ....targets.target import CpuTarget
from ...annotations import PART
from ...data_dependence import covers_data
from ...shapes import F32_BITS
from ..direct import LEAST_PER_GROUP
from ..model.cost import Counts, lines, multiply_add, total
from ..model.counts import far, lines_evict, planes_evict, stored_lines
from .winograd_plan import planned_windows
from .winograd_tiles import WinogradWindow, tiles_of, windows_3d

MOST_HELD_TAPS = 16  # of a vector of the filter that its transform holds in registers
# Most pieces of the taps, each of which transforms all data again, to twice its size or more; 11x11 taps have 9.
MOST_PIECES = 9


def covers(problem: Problem, target: CpuTarget, points: int) -> str | None:
    """Return None if tiles of so many points compute `problem`, else the reason why not."""
    if constant := covers_data(problem, target):
        return constant
    if problem.out_channels // problem.groups < LEAST_PER_GROUP:
        return f"{problem.out_channels // problem.groups} output channels per group leave lanes empty"
    tiled = [window.axes[1:] for window in windows_3d(problem, target)]
    if any(all(axis.taps == 1 for axis in axes) for axes in tiled):
        # Phases with one tap would copy their data to no gain, which costs what the other phases gain (measured).
        return "there is one tap along each of the last two axes"
    if any(axis.stride > 1 for axes in tiled for axis in axes):
        return "it is for stride 1 along the last two axes"
    pieces = max(tiles.pieces for tiles in tiles_of(problem, target, points))
    if pieces > MOST_PIECES:
        return f"its taps are cut into {pieces} pieces, and data would be transformed for each; it takes {MOST_PIECES} at most"
    return None


def estimate(problem: Problem, target: CpuTarget, points: int) -> Counts:
    """Count the events of a problem by tiles of so many points, its filter transformed and prepacked if a cache keeps it."""
    return windows_estimate(problem, planned_windows(problem, target, points, True, most=1), target, points, True)


def plain(problem: Problem, target: CpuTarget, points: int) -> Counts:
    """Count the events of a problem whose filter is transformed in each call."""
    return windows_estimate(problem, planned_windows(problem, target, points, most=1), target, points, False)


def filter_bytes(problem: Problem, target: CpuTarget, points: int) -> int:
    """Return the bytes of the transformed filter; of the plain one, which calls transform, if no cache keeps the other."""
    size = sum(tiles.filter_bytes for tiles in tiles_of(problem, target, points))
    return size if size <= target.l3_share else problem.filter_bytes


def windows_estimate(
    problem: Problem, tiled: Sequence[WinogradWindow], target: CpuTarget, points: int, prepacked: bool
) -> Counts:
    """Count the events of a problem's windows by their first plans."""
    counted = [_window_estimate(tiles, target, points, prepacked and tiles.prepacked) for tiles in tiled]
    together = tiled[0].plans[0].shape.vectors * tiled[0].lanes if tiled else 0
    return total(*counted, *count_moves(problem, tiled, together, target))


def count_moves(problem: Problem, tiled: Sequence[WinogradWindow], together: int, target: CpuTarget) -> list[Counts]:
    """Count the events of copying data and storing outputs, by tiles of `together` channels."""
    counted: list[Counts] = [stored_lines(problem, max((tiles.axes[-1].phases for tiles in tiled), default=1), target)]
    if problem.data_format == "NCX" and tiled:
        squares = all(tiles.channels % PART == 0 and tiles.axes[-1].extent > 1 for tiles in tiled)
        rows = all(
            tiles.stores_rows and tiles.tilings[1].points > 1 and tiles.axes[-1].dilation == 1 for tiles in tiled
        )
        ways = ((squares, prod(problem.data_shape), False), (rows, prod(problem.output_shape), not rows))
        for by_squares, elements, scattered in ways:
            name = "points.transpose" if by_squares else "elements.apart"
            counted += [{name: elements}, far(problem, elements, target, scattered)]
        if not rows and planes_evict(problem, min(tiled[0].outputs, together)):
            # Each stored element loads its line to L1, and evicts another.
            counted.append({"lines.l2": 2 * prod(problem.output_shape)})
    elif any(tiles.stages_data for tiles in tiled):
        counted.append({"elements.copy": prod(problem.data_shape)})
    return counted


def _window_estimate(tiles: WinogradWindow, target: CpuTarget, points: int, kept: bool) -> Counts:
    vectors = tiles.groups * tiles.padded_outputs // tiles.lanes * tiles.phases
    products = float(tiles.points * tiles.count * tiles.depth * tiles.channels * vectors)
    # Each register tile, which is of one image, loads the filter's vectors: one for each multiply-add if the image has one tile.
    products *= 1 + 1 / (tiles.rows * tiles.columns)
    slots = products * multiply_add(tiles.lanes, target)
    if tiles.vnni_factor > 1:
        slots *= tiles.vnni_factor / target.product_rate(tiles.problem.is_quantized, tiles.vnni_factor)
    one_axis = any(tiling.points == 1 for tiling in tiles.tilings)
    counted: list[Counts] = [
        {f"points.product{points}": slots},
        {"points.output_row" if one_axis else "points.output": tiles.points * tiles.count * vectors * tiles.parts},
        {"points.data": _data_vectors(tiles, target)},
        _passes(tiles, target),
        {"points.filter_line": lines(tiles.filter_bytes)} if kept else _filter_estimate(tiles, target),
    ]
    return total(*counted)


def _filter_estimate(tiles: WinogradWindow, target: CpuTarget) -> Counts:
    """Count the events of transforming the filter."""
    taps = prod(tiling.axis.taps for tiling in tiles.tilings)
    taps *= 3 if taps > MOST_HELD_TAPS else 1  # others are stored and loaded again
    name = "points.tap_oix" if tiles.problem.filter_format == "OIX" else "points.tap"
    tap = name if tiles.problem.op == "convolution" else f"{name}_apart"
    vectors = tiles.groups * tiles.padded_outputs // tiles.lanes * tiles.phases * tiles.depth * tiles.channels
    plain = 4 * prod(tiles.problem.filter_shape)
    memory = lines(plain) if plain > target.l3_share else 0.0
    counted = {tap: taps * vectors, "points.filter": tiles.points * vectors, "points.memory_line": memory}
    apart = DTYPE_BYTES[tiles.problem.types.filter] * tiles.channels
    if tiles.pieces > 1 and tap == "points.tap_apart" and lines_evict(apart, taps * tiles.lanes):
        # Taps of pieces are not transposed by squares, and L1 evicts a line before its next element is read.
        counted["lines.l2"] = taps * vectors * tiles.lanes
    return counted


def _data_vectors(tiles: WinogradWindow, target: CpuTarget) -> float:
    """Return the number of transformed vectors of data, for each piece of the taps; vectors divide a group's channels."""
    return _data_elements(tiles) / min(target.vector_bits // F32_BITS, tiles.channels & -tiles.channels)


def _data_elements(tiles: WinogradWindow) -> int:
    transformed = tiles.points * tiles.count * tiles.groups * tiles.channels * tiles.pieces
    return transformed * tiles.phases_of_data


def _passes(tiles: WinogradWindow, target: CpuTarget) -> Counts:
    """Count the lines of transformed data that L2 does not keep: written once, and read for each block and tap of the first axis.

    Only if tasks are blocks of output channels, as they are hidden by the products otherwise. Sums of further parts of the channels count
    too: loaded, written and read.
    """
    size, taps, plan = 4 * _data_elements(tiles), tiles.axes[0].taps, tiles.plans[0]
    block = plan.shape.vectors * tiles.lanes
    blocks, sums = tiles.padded_outputs // block, 4 * tiles.points * tiles.count * block
    more = (tiles.parts - 1) * sums
    if size + more <= target.l2 or plan.by_rows or (taps == 1 and sums + more <= target.l2_share // 2):
        return {}
    data = (1 + blocks * taps) * lines(size) if size > target.l2 else 0
    return {"points.data_line": data + 3 * blocks * lines(more)}
