"""Which problems Winograd convolution computes, and what it takes, transforms included, in cycles of one core."""

from __future__ import annotations

from math import prod

from ...problem import Problem
from ...targets.target import CpuTarget
from ..data_dependence import covers_data
from ..shapes import F32_BITS
from . import cost, direct
from .winograd_tiles import WinogradWindow, phases_shift, tiles_of, windows_3d

# A multiply-add of the products' matrices, whose tiles load more than a direct convolution's, by the points of an axis; a
# vector of data, of the filter and of the output, for each point of a tile: its loads, its stores at two cycles each, and its
# arithmetic. Outputs of two axes are fitted to 174 default schedules of the suites and of further layers on one core of an
# Emerald Rapids: a point's sums go through L2. Those of one axis, few points, stay in L1; and
# products of 6 points: of 234 drawn problems on one core of a Zen 4 what is taken takes 1.018 of the fastest's time, and
# took 1.028.
PRODUCT, DATA_POINT, FILTER_POINT, OUTPUT_POINT, ROW_POINT = {6: 1.45, 4: 1.3}, 4.0, 3.0, 8.0, 2.0
# The same of 16 registers, in units of those of direct (tile.py), fitted to default schedules of 317 problems, of the suites and
# drawn, in NXC and NCX on one core of a Zen 3: what is taken by estimate took 1.039 of the fastest's time, and took 1.025 then.
PRODUCT_OF_16, OUTPUT_POINT_OF_16 = 2.0, 4.0
# Where two multiply-adds of 512 bits start in a cycle, in units of direct's estimate: a multiply-add of any points, a vector of data,
# which more often passes L3, and of output, of two axes and of one; a byte of the transformed filter, hidden
# behind the products as it is read, and of an output that lines of other phases share. Fitted to default schedules of 127 problems on
# one core of a Zen 5: what is taken takes 1.006 of the fastest's time, and took 1.03. A transposed element takes what it does
# elsewhere: by a sixth of that, as it was fitted first, 8 of 11 rows in NCX took 1.1 to 3.6 times as long with two threads.
TWO_PORTS_PRODUCT, TWO_PORTS_DATA, TWO_PORTS_OUTPUT, TWO_PORTS_ROW = 1.4, 4.0, 4.0, 1.0
TWO_PORTS_FILTER_BYTE, TWO_PORTS_STORED_BYTE = 0.02, 0.045
# There, a vector of the filter takes L2 as long as so many multiply-adds: fewer tiles of an image wait for it.
FILTER_TILES = 3
# Where tasks are blocks of so many vectors of output channels, data are transformed before: they are written once, and read for each
# block and tap of the first axis. Fitted to 90 problems in bf16 on one core of a Zen 4: estimates by times spread by 0.21, and by
# 0.17 now (the standard deviation of logarithms). Zen 5's records say otherwise: there, most such problems are Winograd's.
BLOCK_VECTORS = 2
# And of the filter for each tap: lanes lie together (XIO), or all taps of a lane do (OIX), or none (transposed XIO).
TAP, TAP_OIX, TAP_APART = 10.0, 22.0, 40.0
# With so few tiles (4 x 4, of 14x14 outputs) and channels of a group, matrices are too small for 16 registers to hide their loads:
# half the speed. One core of a Zen 3 at 14x14, points of 4 and of 2 outputs and direct, microseconds: 512 channels in 32 groups 317,
# 246, 305; in 16 groups 445, 414, 595; 720 channels in 15 groups 624, 792, 1307; 192 in 2 266, 474, 676.
FEW_TILES, FEW_CHANNELS, FEW_FACTOR = 16, 32, 2.0
# Fewer output channels leave most lanes empty.
LEAST_PER_GROUP = 4
# Each piece of the taps transforms all data again, to twice its size or more. 11x11 taps are 9.
MOST_PIECES = 9
# Estimates err by a quarter: what promises at least this much of a gain is worth a trial when a problem is tuned.
LEAST_GAIN = 0.75


def covers(problem: Problem, target: CpuTarget, points: int) -> str | None:
    """Return None if tiles of so many points can compute `problem` and it is worth it, else why not."""
    if constant := covers_data(problem, target):
        return constant
    if problem.out_channels // problem.groups < LEAST_PER_GROUP:
        return f"{problem.out_channels // problem.groups} output channels per group leave lanes empty"
    tiled = [window.axes[1:] for window in windows_3d(problem, target)]
    if any(all(axis.taps == 1 for axis in axes) for axes in tiled):
        # Phases too: their data would be copied for nothing, measured as slow as what the others gain.
        return "there is one tap along each of the last two axes"
    if any(axis.stride > 1 for axes in tiled for axis in axes):
        return "it is for stride 1 along the last two axes"
    pieces = max(tiles.pieces for tiles in tiles_of(problem, target, points))
    if pieces > MOST_PIECES:
        return f"its taps are cut into {pieces} pieces of less than {points}, and data is transformed for each"
    for window, tiles in zip(windows_3d(problem, target), tiles_of(problem, target, points), strict=True):
        saved = prod(tiling.axis.taps * tiling.outputs / tiling.points for tiling in tiles.tilings)
        if prod(cost.met(axis) for axis in window.axes[1:]) * saved < 1:
            return "most of its taps meet padding alone: tiles would multiply more than direct does, which skips it"
    if cycles(problem, target, points, tried=True) * LEAST_GAIN > direct.cycles(problem, target):
        return "the transforms cost more than they save"
    return None


def cycles(problem: Problem, target: CpuTarget, points: int, tried: bool = False) -> float:
    """Return the cycles of a problem by tiles of so many points, its filter transformed before if a cache keeps it.

    With `tried`, as it may come out where tuning tries it.
    """
    tiled = tiles_of(problem, target, points)
    kept = sum(tiles.filter_bytes for tiles in tiled) <= target.l3_share
    if target.two_of_512:
        return _cycles_of_two_ports(problem, tiled, target, kept)
    total = sum(_cycles(tiles, target, points, kept, tried) for tiles in tiled)
    # Tiles store some rows at a time, when nothing is multiplied; each phase of a row visits all of its cache lines.
    stored = 4 * prod(problem.output_shape)
    if stored > target.l2_share:
        total += stored * max((tiles.axes[-1].phases for tiles in tiled), default=1) / cost.L3_BYTES_PER_CYCLE
    if problem.data_format == "NCX":
        total += cost.TRANSPOSE * (prod(problem.data_shape) + prod(problem.output_shape))
    return total


def _cycles_of_two_ports(problem: Problem, tiled: list[WinogradWindow], target: CpuTarget, kept: bool) -> float:
    total = 0.0
    for tiles in tiled:
        vectors = tiles.groups * tiles.padded_outputs // tiles.lanes * tiles.phases
        products = tiles.points * tiles.count * tiles.depth * tiles.channels * vectors
        waits = max(1.0, FILTER_TILES / (tiles.rows * tiles.columns))
        total += TWO_PORTS_PRODUCT * waits * products * cost.multiply_add(tiles.lanes, target)
        one_axis = any(tiling.points == 1 for tiling in tiles.tilings)
        total += (TWO_PORTS_ROW if one_axis else TWO_PORTS_OUTPUT) * tiles.points * tiles.count * vectors
        total += TWO_PORTS_DATA * _data_vectors(tiles, target)
        total += TWO_PORTS_FILTER_BYTE * tiles.filter_bytes if kept else _filter_cycles(tiles)
    stored = 4 * prod(problem.output_shape)
    if stored > target.l2_share:
        total += TWO_PORTS_STORED_BYTE * stored * max((tiles.axes[-1].phases for tiles in tiled), default=1)
    if problem.data_format == "NCX":
        total += cost.TRANSPOSE * (prod(problem.data_shape) + prod(problem.output_shape))
    return total


def _filter_cycles(tiles: WinogradWindow) -> float:
    """Return the cycles of transforming the filter."""
    taps = prod(tiling.axis.taps for tiling in tiles.tilings)
    tap_xio = TAP if tiles.problem.op == "convolution" else TAP_APART
    tap = TAP_OIX if tiles.problem.filter_format == "OIX" else tap_xio
    vectors = tiles.groups * tiles.padded_outputs // tiles.lanes * tiles.phases
    return (tap * taps + FILTER_POINT * tiles.points) * tiles.depth * tiles.channels * vectors


def _data_vectors(tiles: WinogradWindow, target: CpuTarget) -> float:
    """Return how many vectors of data are transformed: they divide a group's channels, and are of each piece of the taps."""
    return _transformed(tiles) / min(target.vector_bits // F32_BITS, tiles.channels & -tiles.channels)


def _transformed(tiles: WinogradWindow) -> int:
    transformed = tiles.points * tiles.count * tiles.groups * tiles.channels * tiles.pieces
    return transformed * prod(axis.phases for axis in tiles.axes[1:] if phases_shift(axis))


def _cycles(tiles: WinogradWindow, target: CpuTarget, points: int, kept: bool, tried: bool) -> float:
    channels = tiles.channels
    vectors = tiles.groups * tiles.padded_outputs // tiles.lanes * tiles.phases
    products = 1.0 * tiles.points * tiles.count * tiles.depth * channels * vectors
    weights = 0.0 if kept else _filter_cycles(tiles)
    of_16 = target.vector_registers == 16
    product, point = (PRODUCT_OF_16, OUTPUT_POINT_OF_16) if of_16 else (PRODUCT[points], OUTPUT_POINT)
    if any(tiling.points == 1 for tiling in tiles.tilings):
        point = ROW_POINT
    output = point * tiles.points * tiles.count * vectors
    transformed, data = _transformed(tiles), DATA_POINT * _data_vectors(tiles, target)
    if not (of_16 or tried) and target.multiply_adds == 1 and 4 * transformed > target.l2:
        data += _passes(tiles, target) * 4 * transformed / cost.L3_BYTES_PER_CYCLE
    small = channels <= FEW_CHANNELS and tiles.count <= FEW_TILES * tiles.problem.batch
    few = of_16 and not tried and tiles.problem.groups > 1 and small
    # A vector of the filter is loaded for each tile of registers, which is of one image: once for each multiply-add where that has one
    # tile. One core of a Zen 4, bf16, 256 to 32 channels at 47x4x4, 3x3x3, stride 2 in the first: 1.37 ms, and 0.62 by dot.
    products *= product * (1 + 1 / (tiles.rows * tiles.columns)) * cost.multiply_add(tiles.lanes, target)
    # A filter that L2 does not keep is read while it is multiplied.
    read = tiles.filter_bytes / cost.L3_BYTES_PER_CYCLE if kept and tiles.filter_bytes > target.l2_share else 0.0
    return max(products, read) * (FEW_FACTOR if few else 1.0) + weights + output + data


def _passes(tiles: WinogradWindow, target: CpuTarget) -> int:
    """Return how often all transformed data pass by a core (schedules/cpu/winograd.py); 0: they do beside the products."""
    by_channels = tiles.count * tiles.pieces <= tiles.outputs * tiles.depth
    sums = 4 * tiles.points * tiles.count * BLOCK_VECTORS * tiles.lanes
    taps = tiles.axes[0].taps
    if not by_channels or (taps == 1 and sums <= target.l2_share // 2):
        return 0
    return 1 + -(-tiles.padded_outputs // (BLOCK_VECTORS * tiles.lanes)) * taps
