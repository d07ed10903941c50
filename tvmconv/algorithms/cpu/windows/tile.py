"""Choose the pixels of a row for a tile of sums, by their cost: the row is rounded up to whole tiles.

Counted in multiply-adds of whole vectors, relative to which only ratios matter (cost.py).
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

# Gain of tiles that overlap, and of pixels copied together: estimates of tiles differ by as much from times.
LEAST_GAIN = 1 / 16
# A row this many times as long as few pixels is rounded up to parts: a tile in 42 is computed twice at most.
LONG_ROW = 8
# Vectors of output channels more that are tried: to an even number of them, or also to a multiple of 4.
MORE_VECTORS = (0, 1, 3)


def rounded_up(window: Window, target: CpuTarget) -> Window:
    """Return the window with its row rounded up to good tiles, if that is worth it.

    The last tile is shifted inwards, unless padding of its columns is skipped, or it is stored element by element, where the
    store index of each would take longer: there the row is copied longer.
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
    """Return the window with the axis as its row that has most outputs; the same where that is the last.

    Of K x 1 filters over data of width 2, tiles along the width have 2 pixels. Transposed ones, whose rows have phases, stay: they
    are not measured.
    """
    axes = range(len(window.axes))
    longest = max(reversed(axes), key=lambda axis: window.axes[axis].outputs)
    if window.across or longest == axes[-1] or window.problem.op != "convolution":
        return window
    order = (*(axis for axis in axes if axis != longest), longest)
    turned = tuple(window.axes[axis] for axis in order)
    return replace(window, axes=turned, row=turned[-1].outputs, order=order)


def in_row_parts(window: Window, target: CpuTarget) -> Window:
    """Return the window, which tasks take block by block, with a long row rounded up to parts of as many tiles.

    A part's data stays in the caches for all blocks.
    """
    if window.row < LONG_ROW * FEW_PIXELS or len(window.axes) > 1 or not window.stores_vectors:
        return window
    tile, _ = best_tile(window, target)
    tiles, parts = -(-window.row // tile), window.row // FEW_PIXELS
    whole = -(-tiles // parts) * parts
    return window if whole == tiles else replace(window, row=whole * tile, tile=tile)


def wider(window: Window, target: CpuTarget) -> Window:
    """Return the window with as many vectors of channels as divide into good tiles, and its row rounded up.

    17 vectors divide into none but single ones, which load data for each multiply-add. Not where that alone would make the
    filter a copy.
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
    """Return the window with tiles of all its rows where they fit, and the next row would read the filter anew.

    From memory, where no cache keeps it from call to call; or from L3, where a core's L2 does not keep a group's. Pairs ask L3
    for half as much.
    """
    if window.across or len(window.axes) == 1:
        return window
    # Of one phase, it is known for each of the rows' taps which rows are padding.
    rows = window.axes[-2].outputs if window.axes[-2].phases == 1 else 0
    size = 4 * prod(window.problem.filter_shape) // window.vnni_factor
    of_l3 = window.vnni_factor == 1 and size // window.groups > target.l2_share
    anew = rows > 1 and (size > target.l3_share or of_l3)
    return replace(window, whole_image=anew and rows * window.row <= accumulators(target))


def pixel_cycles(window: Window, target: CpuTarget) -> float:
    """Cycles per vector and channel of a pixel that is stored, by the best tile."""
    cycles = tile_costs(window, target)
    width, vectors = _cheapest(window, target, cycles)
    # A row of one vector may ask for more loads than start beside its multiply-adds.
    loads = (width + vectors) * target.costs.tile.pair
    waits = max(0.0, loads * target.multiply_adds / (width * vectors) - 1)
    return (cycles(width, vectors) + waits) * window.row / window.axes[-1].outputs


def best_tile(window: Window, target: CpuTarget) -> tuple[int, int]:
    """Return the pixels and vectors of channels of the tile that costs least."""
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
    """Multiply-adds per output vector and channel of a tile: its own, and what loads take beside them.

    Tiles are compared with more sums in flight than the latency of a multiply-add asks for, and by the products that they visit beside
    padding; what a tile takes `alone` is without both.
    """
    return tile_costs(window, target, alone)(width, vectors)


def tile_costs(window: Window, target: CpuTarget, alone: bool = False) -> Callable[[int, int], float]:
    """Return :func:`tile_cycles` by width and vectors: what all tiles of a window have in common is computed once.

    Pixels a multiple of 4 KiB apart all lie in one set of L1, where they and the passing filter evict each
    other; copied data is spread out (schedules/cpu/steps.py, stage_data).
    """
    step = target.costs.tile
    if alone:
        step = replace(step, chain=target.costs.latency * target.multiply_adds)
    # Tiles of windows of one axis pass through all vectors, others through a block of them.
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
            # Pixels in a set of L1, and the passing filter, evict each other.
            crowded=sets > 0 and width * sets + vectors > L1_WAYS + 1,
            spilled=count_spills(width, vectors, target, adds_products(window.problem, window.vnni_factor, target)),
            single=single,
        )
        return found * (window.axes[-1].visited(width) if skips else 1.0) / (width * vectors)

    return cycles


def count_spills(width: int, vectors: int, target: CpuTarget, adds: bool = False) -> int:
    """Return how many sums have no register beside a tile's operands.

    Either the filter's vectors stay in registers and broadcasts pass through one, or the other way round. Where an instruction of its own
    `adds` products, these take one more, and the filter's vectors stay.
    """
    if adds:
        return max(0, width * vectors + vectors + min(vectors, 2) - target.vector_registers)
    return max(0, width * vectors + min(width, vectors) + 1 - target.vector_registers)


def spills_alone(vectors: int, pixels: int, target: CpuTarget) -> bool:
    """Return whether a one-vector tile spills with one tap, as LLVM orders the broadcasts of `pixels` pixels."""
    return vectors == 1 and pixels > target.vector_registers // 2


def pixel_stride(window: Window) -> int:
    """Bytes between the data of neighbouring outputs of a row, which is read where it lies."""
    pixel = window.pixel if window.problem.data_format == "NXC" else 1
    return 4 * pixel * window.axes[-1].stride * (window.apart if window.order else 1)


def reads_in_place(window: Window) -> bool:
    """Return whether each lane's data can be read where it lies, so that only padding asks for a copy.

    To be shuffled, it must lie there as it is multiplied.
    """
    ready = not window.shuffles or lies_ready(window.problem, window.vnni_factor, window.data_in_pairs)
    return window.across and not (window.expands or window.spread) and ready and window.problem.data_format == "NXC"
