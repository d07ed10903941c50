"""Choose a tile's pixels of a row by cost, and round rows up to whole tiles.

Costs are in multiply-adds of whole vectors, of which only ratios matter (cost.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd, prod

from ....targets.cpus import L1_WAY_BYTES, L1_WAYS
from ....targets.target import CpuTarget
from ...pairs import adds_products, lies_ready
from ...shapes import F32_BITS, accumulators, divisors, row_extent, tile_widths
from ..model.cost import tile_step
from .window import FEW_PIXELS, Window

# Least estimated gain of tiles that overlap, and of im2col: estimates of tiles differ by as much from times.
LEAST_GAIN = 1 / 16
# Least multiple of FEW_PIXELS for which a row is rounded up to equal parts: at most one tile in 42 is then computed twice.
LONG_ROW = 8
# Numbers of additional vectors of output channels that are tried: up to an even number, or a multiple of 4.
MORE_VECTORS = (0, 1, 3)


def rounded_up(window: Window, target: CpuTarget) -> Window:
    """Return the window with its row rounded up to good tiles, if that is worth it.

    The last tile is shifted inwards. With lanes across groups, or outputs stored element by element, whose store indices would take longer,
    the row is extended instead.
    """
    outputs = window.axes[-1].outputs
    if window.across or not window.stores_vectors:
        return replace(window, row=row_extent(outputs, target))
    tiles = range(1, min(outputs, accumulators(target)) + 1)
    tiled = [replace(window, row=-(-outputs // tile) * tile, tile=tile) for tile in tiles]
    cycles = [pixel_cycles(each, target) for each in tiled]
    least = min(cycles)
    return tiled[cycles.index(least)] if least < pixel_cycles(window, target) * (1 - LEAST_GAIN) else window


def longest_row(window: Window) -> Window:
    """Return the window with the axis of most outputs as its row.

    For K x 1 filters over data of width 2, tiles along the width would have 2 pixels. Transposed convolutions, whose rows have phases, stay
    unchanged: they were not measured.
    """
    axes = range(len(window.axes))
    longest = max(reversed(axes), key=lambda axis: window.axes[axis].outputs)
    if window.across or longest == axes[-1] or window.problem.op != "convolution":
        return window
    order = (*(axis for axis in axes if axis != longest), longest)
    turned = tuple(window.axes[axis] for axis in order)
    return replace(window, axes=turned, row=turned[-1].outputs, order=order)


def in_row_parts(window: Window, target: CpuTarget) -> Window:
    """Return a window computed block by block with a long row rounded up to parts of equally many tiles.

    A part's data stays in caches for all blocks.
    """
    if window.row < LONG_ROW * FEW_PIXELS or len(window.axes) > 1 or not window.stores_vectors:
        return window
    tile, _ = best_tile(window, target)
    tiles, parts = -(-window.row // tile), window.row // FEW_PIXELS
    whole = -(-tiles // parts) * parts
    return window if whole == tiles else replace(window, row=whole * tile, tile=tile)


def wider(window: Window, target: CpuTarget) -> Window:
    """Return the window with a number of vectors of channels that divides into good tiles, and its row rounded up.

    17 vectors divide only into single ones, which load data for each multiply-add. Vectors are not added if that alone would require a
    copy of the filter.
    """
    vectors = window.padded_outputs // window.lanes
    copied = window.stages_filter or window.outputs > window.lanes
    wide = copied and window.problem.data_format == "NXC" and window.outputs >= window.lanes
    ways = MORE_VECTORS if wide and vectors % 2 and not window.across else MORE_VECTORS[:1]
    rounded = [rounded_up(replace(window, extra_vectors=extra), target) for extra in ways]
    cycles = [pixel_cycles(each, target) * (vectors + each.extra_vectors) for each in rounded]
    best = cycles.index(min(cycles))
    return rounded[best] if cycles[best] < cycles[0] * (1 - LEAST_GAIN) else rounded[0]


def tiled_by_images(window: Window, target: CpuTarget) -> Window:
    """Return the window with tiles of all its rows, if these fit registers and each row would read the filter anew.

    That is from memory if no cache keeps the filter from call to call; or from L3 if a core's L2 does not keep a group's filter. Pairs,
    which read half as much from L3, are excluded there.
    """
    if window.across or len(window.axes) == 1:
        return window
    # With one phase, the rows that are padding are known for each tap.
    rows = window.axes[-2].outputs if window.axes[-2].phases == 1 else 0
    size = 4 * prod(window.problem.filter_shape) // window.vnni_factor
    of_l3 = window.vnni_factor == 1 and size // window.groups > target.l2_share
    anew = rows > 1 and (size > target.l3_share or of_l3)
    return replace(window, whole_image=anew and rows * window.row <= accumulators(target))


def pixel_cycles(window: Window, target: CpuTarget) -> float:
    """Return the cost per vector and channel of a stored pixel, by the best tile."""
    cycles = tile_costs(window, target)
    width, vectors = _cheapest(window, target, cycles)
    # Tiles of one row and vector may take more loads than start beside their multiply-adds.
    loads = (width + vectors) * target.costs.tile.pair
    waits = max(0.0, loads * target.multiply_adds / (width * vectors) - 1)
    return (cycles(width, vectors) + waits) * window.row / window.axes[-1].outputs


def best_tile(window: Window, target: CpuTarget) -> tuple[int, int]:
    """Return the pixels and vectors of channels of the tile of least cost."""
    return _cheapest(window, target, tile_costs(window, target))


def _cheapest(window: Window, target: CpuTarget, cycles: Callable[[int, int], float]) -> tuple[int, int]:
    counts = divisors(window.padded_outputs // window.lanes, 8)
    tiles = [(t, v) for v in counts for t in _fitting(window, v, target)]
    return min(tiles, key=lambda tile: cycles(*tile))


def widths(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return the tile widths whose accumulators fit the registers, the best by the model first."""
    cycles = tile_costs(window, target)
    return sorted(_fitting(window, vectors, target), key=lambda t: cycles(t, vectors))


def _fitting(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    return [t for t in tile_widths(window.tile or window.row, target) if t * vectors <= accumulators(target)]


def tile_cycles(window: Window, width: int, vectors: int, target: CpuTarget, alone: bool = False) -> float:
    """Return the cost of a tile per output vector and channel, in multiply-adds, including loads.

    For comparisons, tiles need more sums in flight than the latency of a multiply-add requires, and visited products are those beside
    padding; the cost `alone` is without both.
    """
    return tile_costs(window, target, alone)(width, vectors)


def tile_costs(window: Window, target: CpuTarget, alone: bool = False) -> Callable[[int, int], float]:
    """Return :func:`tile_cycles` as a function of width and vectors, which computes common terms of a window once.

    Pixels a multiple of 4 KiB apart share one set of L1, where they and the filter evict each
    other; copied data is spread out (schedules/cpu/steps.py, stage_data).
    """
    step = target.costs.tile
    if alone:
        step = replace(step, chain=target.costs.latency * target.multiply_adds)
    # Tiles of windows of one axis read the filter of all vectors, others that of one block.
    weights = 4 * window.channels * window.summed_taps * prod(axis.phases for axis in window.axes)
    outputs, lanes, taps = window.padded_outputs, window.lanes, window.summed_taps
    beyond = step.from_l3 if weights * outputs > target.l2_share else step.from_l2
    vector_parts = lanes * F32_BITS / target.vector_bits
    sets = 0.0 if window.stages_data else gcd(pixel_stride(window), L1_WAY_BYTES) / L1_WAY_BYTES
    skips = window.skips_columns and not alone

    def cycles(width: int, vectors: int) -> float:
        passed = weights * (outputs if len(window.axes) == 1 else vectors * lanes)
        single = width if taps == 1 and spills_alone(vectors, width, target) else 0
        found = tile_step(
            step,
            vectors,
            width,
            width * vectors,
            parts=vectors * vector_parts,
            stream=beyond if passed > target.l1_share else 0.0,
            crowded=sets > 0 and width * sets + vectors > L1_WAYS + 1,
            spilled=count_spills(width, vectors, target, adds_products(window.problem, window.vnni_factor, target)),
            single=single,
        )
        return found * (window.axes[-1].visited(width) if skips else 1.0) / (width * vectors)

    return cycles


def count_spills(width: int, vectors: int, target: CpuTarget, adds: bool = False) -> int:
    """Return the number of sums without a register beside a tile's operands.

    Either the filter's vectors stay in registers and broadcasts take one in turn, or the other way round. If another instruction
    `adds` products, products take a further register, and the filter's vectors stay.
    """
    if adds:
        return max(0, width * vectors + vectors + min(vectors, 2) - target.vector_registers)
    return max(0, width * vectors + min(width, vectors) + 1 - target.vector_registers)


def spills_alone(vectors: int, pixels: int, target: CpuTarget) -> bool:
    """Return whether a one-vector tile of `pixels` pixels spills with one tap, due to LLVM's order of broadcasts."""
    return vectors == 1 and pixels > target.vector_registers // 2


def pixel_stride(window: Window) -> int:
    """Return the bytes between the data, read in place, of neighbouring outputs of a row."""
    pixel = window.pixel if window.problem.data_format == "NXC" else 1
    return 4 * pixel * window.axes[-1].stride * (window.apart if window.order else 1)


def reads_in_place(window: Window) -> bool:
    """Return whether lanes across groups can read data in place, so that only padding requires a copy.

    Shuffled data must be in memory as it is multiplied.
    """
    ready = not window.shuffles or lies_ready(window.problem, window.vnni_factor, window.data_in_pairs)
    return window.across and not (window.expands or window.spread) and ready and window.problem.data_format == "NXC"
