"""Tiles of windows whose lanes run along a row: how many channels and vectors, what they cost, and a row rounded up to them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...targets.cpus import L1_BYTES
from ...targets.target import CpuTarget
from ..shapes import F32_BITS, IN_FLIGHT, SSE_LANES, divisors, lane_count
from .row_window import MOST_CHANNELS, RowWindow

MAX_UNROLLED = 128  # multiply-adds in a loop body; more only grows the code
SHARED = 3  # registers for data that the rows of a tile share


def rounded_up(window: RowWindow, target: CpuTarget) -> RowWindow:
    """Return the window with its row rounded up to whole vectors."""
    outputs, full = window.axes[-1].outputs, target.vector_bits // F32_BITS
    if outputs < full or not window.contiguous:
        lanes = lane_count(outputs, target)
        if window.outputs == 1 and lanes > max(SSE_LANES, outputs) and window.contiguous:
            lanes //= 2  # depthwise: two vectors that overlap rather than one whose lanes are left over
        return replace(window, lanes=lanes, row=-(-outputs // lanes) * lanes)
    # Some vectors more, which repeat others, where they divide into better tiles.
    least = -(-outputs // full)
    rows = [replace(window, lanes=full, row=vectors * full) for vectors in range(least, least + 4)]
    rows = [each for each in rows if each is rows[0] or each.overlaps]
    return min(
        rows,
        key=lambda each: each.row * min(tile_cycles(each, tile[0], tile[1], target) for tile in tiles(each, target)),
    )


def tiles(window: RowWindow, target: CpuTarget) -> list[tuple[int, int]]:
    """Return how many channels and vectors of a row a tile may have together.

    Each vector takes a register for its data and one for each sum; one more holds the broadcast.
    """
    registers, phases = target.vector_registers, window.tile_phases
    fitting = []
    for channels in divisors(window.outputs, max(1, min(MOST_CHANNELS, registers - 2) // phases)):
        most = max(1, (registers - 1) // (channels * phases + 1))
        fitting += [(channels, vectors) for vectors in divisors(window.row // window.lanes, most)]
    return fitting


def tile_cycles(window: RowWindow, channels: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per multiply-add of a tile, and part of its loads.

    A shifted vector crosses two cache lines, and comes from the second level cache where the sum has many channels; a
    broadcast shares the load ports, and is an instruction of its own with AVX2 (tiles of 8 channels and one vector took 1.7
    times as long as counted without, those of 4 and 3 1.1 times, on one Zen 3 core).
    """
    broadcast = 0.5 if target.vector_bits == 512 else 1.0
    sums = channels * window.tile_phases
    load = 2.0 if 4 * window.lanes * vectors * window.channels > L1_BYTES // 2 else 1.0
    return (max(sums * vectors, IN_FLIGHT) + load * vectors + broadcast * sums) / (sums * vectors)


def shared_cycles(window: RowWindow, channels: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per multiply-add of a tile, as `tile_cycles`, where rows share the loads of their data and one broadcast."""
    rows = shared_rows(window, vectors, target.vector_registers)
    if rows == 1:
        return tile_cycles(window, channels, vectors, target)
    axis, sums = window.axes[-2], rows * vectors * window.tile_phases
    loads = vectors * ((rows - 1) * axis.stride / axis.taps + 1)
    return (max(sums, IN_FLIGHT) + loads + window.tile_phases) / sums


def shared_rows(window: RowWindow, vectors: int, registers: int) -> int:
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
