"""How many pixels of a row a tile of sums has, and what it costs: the row is rounded up to whole tiles.

Counted in cycles of one core that starts one full-vector multiply-add each (Zen 4 with 512-bit
vectors; two 256-bit ones are the same work), relative to which only ratios matter.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from ...targets.cpus import L1_BYTES, L1_WAY_BYTES, L1_WAYS
from ...targets.target import CpuTarget
from ..shapes import F32_BITS, IN_FLIGHT, accumulators, divisors, row_extent, tile_widths
from .window import FEW_PIXELS, Window

# Of tiles in 16 registers, in the time of a multiply-add: a load, two of which start in a cycle; a vector of the filter from
# L2 and L3, 29 and 25 bytes a cycle; and beside them each step, and each vector of the filter: of tiles
# as fast, larger ones with fewer vectors won more often when tuned.
LOADS, FROM_L2, FROM_L3, STEP, FILTER_LOADS = 1.15, 2.2, 2.6, 1.2, 0.2
SCALE = 1.25  # 6 pixels by 2 vectors are 17/12 of their multiply-adds, as by the formula for more registers
SPILL = 4.0  # a store, a load, and waiting for them
# Of tiles that overlap, and of pixels copied together. Measured: 14 pixels by 2 vectors of 512 bits gain nothing over 8 by
# 2, where the estimate is 1 in 24; with 256 bits, 6 by 2 take 0.87 of the time of 8 by 1.
LEAST_GAIN = 1 / 16
# In 16 registers, tiles of one vector and more pixels than this spill where a sum is of one tap, as LLVM orders their broadcasts,
# which takes so many multiply-adds a pixel. Percent of a Zen 3's peak, 1x1 and 3x3 taps: 8 pixels 73 and 78, 9 63 and 79, 12 56
# and 79.
SINGLE_VECTOR_PIXELS, SINGLE_VECTOR_SPILL = 8, 0.4
# Cycles of loading a vector of data again that had to leave one of 16 registers before its last tap. One core of a Zen 3,
# depthwise: 3x3 at 14x14, 7 pixels by 1 vector take 27 us, 2 by 4 take 44; 5x5 at 12x12, 6 by 1 175 and 4 by 2 222.
RELOAD_CYCLES = 0.5
# The same of 32 registers and two multiply-adds of 512 bits, for which large tiles' fewer loads are worth more than what waits for
# them. One core of a Zen 5, depthwise, microseconds: 3x3 at 56x56, 128 channels, 8 pixels by 2 vectors 44, 7 by 2 and 4 by 4 47, 4
# by 2 54; at 28x28, 256, 4 by 4 22, 7 by 2 23, 4 by 2 27, 14 by 1 36; 7x7 at 56x56, 96, 14 by 1 119, 4 by 2 121, 7 by 2 143.
FAST_RELOAD_CYCLES = 0.25


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
    best = min(tiled, key=lambda each: pixel_cycles(each, target))
    return best if pixel_cycles(best, target) < pixel_cycles(window, target) * (1 - LEAST_GAIN) else window


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

    A part's data stays in the caches for all blocks: 3168 pixels, 256 to 1024 channels, ran at 78 GFLOP/s on one core of a
    Zen 3 as one part, at 88 in 12. A tile in 42 is computed twice at most. 784 pixels, 512 or 1024 to 512, gained nothing.
    """
    if window.row < 8 * FEW_PIXELS or len(window.axes) > 1 or not window.stores_vectors:
        return window
    tile, _ = best_tile(window, target)
    tiles, parts = -(-window.row // tile), window.row // FEW_PIXELS
    whole = -(-tiles // parts) * parts
    return window if whole == tiles else replace(window, row=whole * tile, tile=tile)


def wider(window: Window, target: CpuTarget) -> Window:
    """Return the window with as many vectors of channels as divide into good tiles, and its row rounded up.

    17 vectors divide into none but single ones, which load data for each multiply-add: 576 to 136 channels at 14x14 ran
    at 66 % of a Zen 3's peak, and run at 88 with 18. Not where that alone would make the filter a copy.
    """
    vectors = window.padded_outputs // window.lanes
    copied = window.stages_filter and window.problem.data_format == "NXC" and window.outputs >= window.lanes
    # To an even number of them, or also to a multiple of 4.
    ways = (0, 1, 3) if copied and vectors % 2 and not window.across else (0,)
    rounded = [rounded_up(replace(window, extra_vectors=extra), target) for extra in ways]
    cycles = [pixel_cycles(each, target) * (vectors + each.extra_vectors) for each in rounded]
    best = cycles.index(min(cycles))
    return rounded[best] if cycles[best] < cycles[0] * (1 - LEAST_GAIN) else rounded[0]


def tiled_by_images(window: Window, target: CpuTarget) -> Window:
    """Return the window with tiles of all its rows where they fit, and no cache keeps the filter from call to call.

    A tile of one row reads it from memory for each row: 4x4 outputs, 1024 to 512 channels, 5x5 taps with stride 2 in f32
    took 3.0 ms on one Zen 5 core, and take 1.7. Not where only the prepacked filter is a copy: both have the same
    choices, and in place, vectors of a tile are to lie together.
    """
    copied = replace(window, prepacked=False).stages_filter
    if window.across or len(window.axes) == 1 or not copied:
        return window
    # Of one phase, it is known for each of the rows' taps which rows are padding.
    fits = window.axes[-2].phases == 1 and window.axes[-2].outputs * window.row <= accumulators(target)
    return replace(
        window, whole_image=fits and 4 * prod(window.problem.filter_shape) // window.vnni_factor > target.l3_share
    )


def pixel_cycles(window: Window, target: CpuTarget) -> float:
    """Cycles per vector and channel of a pixel that is stored, by the best tile."""
    width, vectors = best_tile(window, target)
    # Two loads of 512 bits start in a cycle: with one vector, fewer than two multiply-adds ask for. 17 pixels of one vector ran
    # at 79 % of an Emerald Rapids' peak, two times 9 of three at 86 %.
    loads = (width + vectors) / 2 if target.vector_bits == 512 else 0.0
    waits = max(0.0, loads * target.multiply_adds / (width * vectors) - 1)
    return (tile_cycles(window, width, vectors, target) + waits) * window.row / window.axes[-1].outputs


def best_tile(window: Window, target: CpuTarget) -> tuple[int, int]:
    """Return the pixels and vectors of channels of the tile that costs least."""
    counts = divisors(window.padded_outputs // window.lanes, 8)
    tiles = [(t, v) for v in counts for t in widths(window, v, target)]
    return min(tiles, key=lambda tile: tile_cycles(window, tile[0], tile[1], target))


def widths(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return the tile widths whose accumulators fit the registers, the best by the model first."""
    fitting = [t for t in tile_widths(window.tile or window.row, target) if t * vectors <= accumulators(target)]
    return sorted(fitting, key=lambda t: tile_cycles(window, t, vectors, target))


def tile_cycles(window: Window, width: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per output vector and channel of a tile: its multiply-adds, and part of its loads.

    A filter vector comes from L2 (64 bytes at 32 a cycle, half of it hidden; half a vector in
    half the time), a data broadcast from the first, as part of the multiply-add unless several use it; AVX2 has none that
    broadcasts. Where just enough multiply-adds are in flight, one that waits for its load leaves a gap. Pixels a
    multiple of 4 KiB apart all lie in one set of L1, where they and the passing filter evict each
    other; copied data is spread out (schedules/cpu/steps.py, stage_data).
    """
    if target.vector_registers == 16:
        return _cycles_of_16_registers(window, width, vectors, target)
    outputs = width * vectors
    filters = vectors * window.lanes * F32_BITS / target.vector_bits
    broadcasts = width * (1.0 if _in_few_sets(window, width, vectors) else 0.25 if target.vector_bits == 512 else 0.5)
    return (max(outputs, IN_FLIGHT + 1) + filters + broadcasts + spills(width, vectors, target)) / outputs


def _cycles_of_16_registers(window: Window, width: int, vectors: int, target: CpuTarget) -> float:
    """Cycles as `tile_cycles`, of 16 registers: what takes longest of multiply-adds, loads, and vectors from L2.

    Fitted to 30 tiles on one core of a Zen 3, filters prepacked, percent of 104 GFLOP/s at 3x3 taps of 48 channels: 6 pixels by
    2 vectors 98, 4 by 3 97, 5 by 2 97, 4 by 2 93, 2 by 6 92, 10 by 1 82, 8 by 1 78, 3 by 2 74, 1 by 10 48.
    """
    # Tiles of windows of one axis pass through all vectors, others through a block of them.
    weights = 4 * window.channels * window.summed_taps * prod(axis.phases for axis in window.axes)
    passed = weights * (window.padded_outputs if len(window.axes) == 1 else vectors * window.lanes)
    beyond = FROM_L3 if weights * window.padded_outputs > target.l2_share else FROM_L2
    sums = sums_of_16_registers(width, vectors, beyond if passed > L1_BYTES else 1.0, window.summed_taps == 1)
    beside = width / 2 if _in_few_sets(window, width, vectors) else 0.0
    return SCALE * (sums + beside + spills(width, vectors, target)) / (width * vectors)


def sums_of_16_registers(width: int, vectors: int, load: float, one_tap: bool) -> float:
    """Cycles of a step of a tile whose vectors of the filter take `load` cycles each, in the time of a multiply-add."""
    bound = max(width * vectors, IN_FLIGHT + 1, LOADS * (width + vectors), load * vectors)
    spilled = width if one_tap and vectors == 1 and width > SINGLE_VECTOR_PIXELS else 0
    return bound + STEP + FILTER_LOADS * vectors + SINGLE_VECTOR_SPILL * spilled


def _in_few_sets(window: Window, width: int, vectors: int) -> bool:
    """Whether a tile's pixels and the passing filter evict each other from sets of L1."""
    pixels_in_a_set = width * gcd(pixel_stride(window), L1_WAY_BYTES) / L1_WAY_BYTES
    return not window.stages_data and pixels_in_a_set + vectors > L1_WAYS + 1


def spills(width: int, vectors: int, target: CpuTarget) -> float:
    """Cycles for sums beyond the registers that the others leave: stored and loaded in each step.

    Either the filter's vectors stay in registers and broadcasts pass through one, or the other way round. 7 pixels by 4
    vectors take 33 registers: 0.75 to 0.95 of the speed of 14 by 2 or 7 by 2 on Zen 5.
    """
    return SPILL * max(0, width * vectors + min(width, vectors) + 1 - target.vector_registers)


def pixel_stride(window: Window) -> int:
    """Bytes between the data of neighbouring outputs of a row."""
    copied = window.stages_data or not window.order
    return 4 * window.pixel * window.axes[-1].stride * (1 if copied else window.apart)


def grouped_widths(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return the tile widths whose accumulators fit half of the registers, the best by the model first.

    The other half holds the data that the unrolled taps of neighbouring outputs share; with more accumulators
    the compiler spills.
    """
    fitting = [t for t in tile_widths(window.row, target) if t * vectors <= target.vector_registers // 2]
    return sorted(fitting, key=lambda t: grouped_cycles(window, t, vectors, target))


def grouped_cycles(window: Window, width: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per output vector and tap of a tile whose lanes have data of their own.

    Two loads start in a cycle. Long tiles wait for the cache: a core looks a few hundred instructions ahead,
    which is several short tiles but not two long ones (measured: 105 GFLOP/s with 8 accumulators, 60 with 16).
    Single vectors waste half of the pair of lines that is fetched together. Shuffled data is in several multiply-adds a
    tap: none of its tiles wait.
    """
    axis, outputs = window.axes[-1], width * vectors
    data = (width - 1) * axis.stride + axis.span
    # A multiply-add that another adds to takes four cycles; some ARM CPUs start four in each.
    in_flight = max(IN_FLIGHT, 4 * target.multiply_adds)
    wait = (0.0 if window.shuffles else outputs / (4 * in_flight)) + 0.25 / vectors
    # The unrolled taps' data stays in registers, where there are as many. Larger images wait for the cache, whatever the tile.
    problem, reloads = window.problem, 0.0
    image = 4 * prod(problem.data_shape) // max(problem.batch, 1)
    if target.vector_registers == 16 and not window.shuffles and image <= target.l2_share:
        reloads = RELOAD_CYCLES * max(0, outputs + vectors * data - target.vector_registers)
    elif target.two_of_512 and not window.shuffles:
        reloads = FAST_RELOAD_CYCLES * max(0, outputs + vectors * data - target.vector_registers)
        wait = 0.25 / vectors if reads_in_place(window) else wait
    elif target.vector_bits == 128 and not window.shuffles:
        reloads = 2 * RELOAD_CYCLES * max(0, outputs + vectors * data - target.vector_registers)  # a store and a load
    return (max(outputs, in_flight) + vectors * (data / axis.taps + 1) / 2 + reloads) / outputs + wait


def reads_in_place(window: Window) -> bool:
    """Whether each lane's data can be read where it lies, so that only padding asks for a copy.

    To be shuffled, it must lie there as it is multiplied.
    """
    ready = not window.shuffles or window.vnni_factor == 2 or window.problem.dtype == "f32"
    return window.across and not window.expands and ready and window.problem.data_format == "NXC"
