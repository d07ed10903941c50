"""Tiles of windows whose lanes run along a row: how many channels and vectors, what they cost, and a row rounded up to them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...targets.cpus import L1_BYTES
from ...targets.target import CpuTarget
from ..shapes import F32_BITS, IN_FLIGHT, SSE_LANES, divisors, lane_count
from .cost import uneven
from .row_window import MOST_CHANNELS, PlanarWindow
from .tile import FROM_L2

MAX_UNROLLED = 128  # multiply-adds in a loop body; more only grows the code
SHARED = 3  # registers for data that the rows of a tile share
# Of tiles in 16 registers, in the time of a multiply-add: a broadcast, two of which start in a cycle; a vector, whose taps cross
# cache lines; each step. Fitted to 27 tiles on one core of a Zen 3.
BROADCASTS, VECTORS, STEP = 1.05, 1.6, 1.0
# Of these, in units of those of direct (tile.py), where default schedules of 139 NCX problems of the suites and of 70 drawn ones
# on the same core are compared; and of depthwise convolutions, in those of grouped.
SCALE, SCALE_DEPTHWISE = 1.6, 1.4
# Beyond 64 channels, data lies on more pages than an L1 TLB holds, and a tile's pieces of it are parts of cache lines. As
# many outputs pay for a copy. Microseconds on one core of a Zen 3 in place and copied, filters alike: 512 to 128 channels at
# 28x28 1222 and 1135, 384 to 128 at 8x8x8 669 and 579, 64 to 64 at 128x128 2322 and 1770, 256 to 64 at 56x56 1182 and 1109.
LEAST_PANEL = 64
# Outputs of a task that copies for itself what others copy, too: a copied element takes about a cycle, its products with 64 outputs
# 4, with 128 8.
LEAST_SHARING = 128


def rounded_up(window: PlanarWindow, target: CpuTarget) -> PlanarWindow:
    """Return the window with its row rounded up to whole vectors."""
    outputs, full = window.axes[-1].outputs, target.vector_bits // F32_BITS
    if outputs < full or not window.contiguous:
        lanes = lane_count(outputs, target)
        if window.outputs == 1 and lanes > max(SSE_LANES, outputs) and window.contiguous:
            lanes //= 2  # depthwise: two vectors that overlap rather than one whose lanes are left over
        return replace(window, lanes=lanes, row=-(-outputs // lanes) * lanes)
    window = replace(window, panels=_wants_panels(window, target))
    # Some vectors more, which repeat others, where they divide into better tiles.
    least = -(-outputs // full)
    rows = [replace(window, lanes=full, row=vectors * full) for vectors in range(least, least + 4)]
    rows = [each for each in rows if each is rows[0] or each.overlaps]
    return min(
        rows,
        key=lambda each: each.row * min(tile_cycles(each, tile[0], tile[1], target) for tile in tiles(each, target)),
    )


def _wants_panels(window: PlanarWindow, target: CpuTarget) -> bool:
    """Whether a copy of each tile's data pays: of one tap and many channels, which are read again for many outputs."""
    axis, problem = window.axes[-1], window.problem
    single = len(window.axes) == 1 and axis.taps * axis.phases * axis.stride == 1 and not axis.padded
    in_place = single and problem.dtype == "f32" and problem.data_format == "NCX"
    # With AVX-512 copies cost more than they save: 256 to 64 channels at 56x56 971 and 1136 on one core of a Zen 4.
    return in_place and target.vector_registers == 16 and min(window.channels, window.outputs) >= LEAST_PANEL


def packed_together(window: PlanarWindow, target: CpuTarget) -> PlanarWindow:
    """Return the window with how many channels lie together in a packed filter: a tile's, so that it reads whole cache lines.

    With AVX-512, as many as any tile's divide, mostly.
    """
    together = divisors(window.outputs, MOST_CHANNELS)[-1]
    if target.vector_registers == 16:
        together = min(tiles(window, target), key=lambda tile: tile_cycles(window, tile[0], tile[1], target))[0]
    return replace(window, together=together)


def task_chunks(window: PlanarWindow, channels: int, vectors: int) -> tuple[list[int], int]:
    """Return into how many parts tasks may cut the channels of a window of one axis, in tiles of so many, and the default.

    Few tiles are cut by channels too, so that threads find equal shares, but not so that copies are more than that gains.
    """
    tasks = window.problem.batch * window.groups * window.row // window.lanes // vectors
    chunks = divisors(window.outputs // channels, 16)
    fitting = [chunk for chunk in chunks if chunk == 1 or not window.panels or chunk * LEAST_SHARING <= window.outputs]
    return chunks, min(fitting, key=lambda chunk: (round(uneven(tasks * chunk), 1), chunk))


def tiles(window: PlanarWindow, target: CpuTarget) -> list[tuple[int, int]]:
    """Return how many channels and vectors of a row a tile may have together.

    Each vector takes a register for its data and one for each sum; one more holds the broadcast.
    """
    registers, phases = target.vector_registers, window.tile_phases
    fitting = []
    for channels in divisors(window.outputs, max(1, min(MOST_CHANNELS, registers - 2) // phases)):
        most = max(1, (registers - 1) // (channels * phases + 1))
        fitting += [(channels, vectors) for vectors in divisors(window.row // window.lanes, most)]
    return fitting


def tile_cycles(window: PlanarWindow, channels: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per multiply-add of a tile, and part of its loads.

    A shifted vector crosses two cache lines, and comes from L2 where the sum has many channels; a
    broadcast shares the load ports.
    """
    if target.vector_registers == 16:
        return _cycles_of_16_registers(window, channels, vectors)
    broadcast = 0.5 if target.vector_bits == 512 else 1.0
    sums = channels * window.tile_phases
    load = 2.0 if 4 * window.lanes * vectors * window.channels > L1_BYTES // 2 else 1.0
    return (max(sums * vectors, IN_FLIGHT) + load * vectors + broadcast * sums) / (sums * vectors)


def _cycles_of_16_registers(window: PlanarWindow, channels: int, vectors: int) -> float:
    """Cycles as `tile_cycles`, of 16 registers: what takes longest of multiply-adds and loads, and each step.

    Percent of a Zen 3's peak, 3x3 taps of 48 channels: 4 channels by 2 or 3 vectors, 6 by 2 and 2 by 4 90, 2 by 5 85, 12 by 1 77,
    8 by 1 75, 5 by 1 59, 1 by 7 54, 1 by 3 38.
    """
    sums = channels * window.tile_phases
    load = VECTORS
    if 4 * window.lanes * vectors * window.channels > L1_BYTES // 2:
        load = FROM_L2 if window.panels else 2 * VECTORS
    loads = load * vectors + BROADCASTS * sums
    scale = SCALE if window.outputs > 1 else SCALE_DEPTHWISE
    return scale * max(IN_FLIGHT, max(sums * vectors, loads) + STEP) / (sums * vectors)


def shared_cycles(window: PlanarWindow, channels: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per multiply-add of a tile, as `tile_cycles`, where rows share the loads of their data and one broadcast."""
    rows = shared_rows(window, vectors, target.vector_registers)
    if rows == 1:
        return tile_cycles(window, channels, vectors, target)
    axis, sums = window.axes[-2], rows * vectors * window.tile_phases
    loads = vectors * ((rows - 1) * axis.stride / axis.taps + 1)
    return (max(sums, IN_FLIGHT) + loads + window.tile_phases) / sums


def shared_rows(window: PlanarWindow, vectors: int, registers: int) -> int:
    """Return how many rows a tile of a depthwise convolution has: their taps share loads, each of which crosses cache lines.

    Its sums take half of the registers, or what the filter, where registers can hold it, and the shared data leave.
    """
    if len(window.axes) == 1 or window.outputs > 1 or window.axes[-2].taps == 1:
        return 1
    sums = vectors * window.tile_phases
    taps = prod(axis.taps for axis in window.axes) * window.channels
    beside = registers - taps - SHARED
    most = min(registers // 2, beside if beside > 0 else registers, MAX_UNROLLED // taps)
    return divisors(window.axes[-2].outputs, max(1, most // sums))[-1]
