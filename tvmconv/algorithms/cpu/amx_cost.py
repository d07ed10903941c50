"""How windows are cut for AMX's tiles, and what that costs.

Fitted to default schedules, and others, of 24 layers on one core of a Granite Rapids. What bounds most sums is not the
multiplication of tiles but L2: two by two tiles take 82 cycles a step, and 105 where the filter and some of
the data come from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from ..shapes import divisors
from .amx_window import LINE_BYTES, PAIR_BYTES, SIDE, AmxWindow
from .cost import L3_BYTES_PER_CYCLE, TASK_CYCLES, THREADS, outputs, uneven
from .window import Window

# (tiles of pixels, tiles of outputs) whose sums and operands fit the registers, the best first.
BLOCKS = ((2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))
# Cycles, measured on one core of a Granite Rapids: a multiplication of tiles, full or not, at the clock that it keeps with
# such work; and what a line of data takes, and of the filter, that comes from L2 while others are multiplied.
MULTIPLY, DATA_LINE, FILTER_LINE = 20.0, 3.4, 2.2
# A sum's chain: a multiplication waits for the one before.
LATENCY = 52.0
# Of a vector of sums: tile to memory, to a register, rounded, to the output, which is written by whole lines or by halves;
# those of a line one soon after the other, or when all pixels have the first.
STORE, STORE_HALF, STORE_HALF_LATE = 4.0, 5.5, 8.5
STORE_STRIDED = 60.0  # of one whose channels do not lie together
# Of a square of them transposed in registers: not measured. llvm-mca-19 says 3.5 for a Sapphire Rapids, to which memory comes.
STORE_PLANES = 12.0
COPY = 6.0  # of a line of data
# Of a line of a pixel that threads with other channels of it write, too: 21 channels at 568x568, of 8x8 phases, took 4.3 ms in two
# parts, and take 1.0 in one.
SHARED_LINE = 50.0
L1_KEPT = 40 * 1024  # of 48 KiB, what is still there when it is used again
L2_BYTES, L2_RATE = 1024 * 1024, 32  # half of L2; bytes in a cycle


def tile_window(window: Window, halves: int = 1) -> AmxWindow:
    """Return a window of so many halves as it is cut by least cost."""
    rows = window.axes[0].outputs
    bands = {-(-rows // count) for count in range(1, min(rows, 64) + 1)}
    axis, kind = window.axes[-1], {"lanes": SIDE, "vnni_factor": 2, "halves": halves}
    together = [False, True] if axis.taps > 1 and axis.phases == axis.dilation == 1 else [False]
    # Of few outputs one tile: those of 32 to 2 channels at 224x224 take 40 us on two cores, and by `reduced` 312.
    blocks = [block for block in BLOCKS if block[1] == 1 or window.outputs >= SIDE]
    ways = product(sorted(bands), blocks, together)
    tiled = [window.as_kind(AmxWindow, **kind, rows=rows, block=block, row_taps=taps) for rows, block, taps in ways]
    return min(tiled, key=lambda each: best_cut(each).cycles)


@dataclass(frozen=True)
class Cut:
    """How tasks go over a window.

    Attributes
    ----------
    chunks
        Parts of the output channels, of which a task has one.
    pixels_first
        Whether a task takes all pixels of a block of outputs before the next outputs, or all outputs of a block of pixels.
    cycles
        What the window takes so.
    """

    chunks: int
    pixels_first: bool
    cycles: float


def best_cut(window: AmxWindow) -> Cut:
    """Return the cut of least cost."""
    ways = product(divisors(window.output_blocks, 16), (False, True))
    return min((Cut(*way, cycles(window, *way)) for way in ways), key=lambda cut: cut.cycles)


def cycles(window: AmxWindow, chunks: int, pixels_first: bool) -> float:
    """Return the cycles of a window that is cut so."""
    problem, (tiles, vectors) = window.problem, window.block
    phases = prod(axis.phases for axis in window.axes)
    tasks = problem.batch * window.groups * window.bands * chunks
    blocks = phases * prod(each.outputs for each in window.outer) * window.tile_blocks * window.output_blocks
    products = prod(window.taps) * window.steps
    multiplied = max(tiles * vectors * MULTIPLY, LATENCY) * len(window.multiplied)
    step = max(multiplied, _loads(window, pixels_first) / products)
    if window.stores_planes:
        store = STORE_PLANES
    elif problem.data_format == "NCX":
        store = STORE_STRIDED
    elif vectors * SIDE % window.line_channels or window.shifted:
        store = STORE_HALF_LATE if pixels_first else STORE_HALF
    else:
        store = STORE
    stores = tiles * window.tile_rows * vectors * store
    copy = window.copied_pairs / SIDE * COPY * (4 if problem.data_format == "NCX" else 1)
    filters = window.filter_bytes / chunks / L3_BYTES_PER_CYCLE
    if window.filter_bytes <= L2_BYTES and not window.chunks_first:
        filters = 0.0  # a thread's other tasks find it in L2
    elif window.filter_bytes <= chunks * L2_BYTES and window.chunks_first:
        filters /= window.bands * problem.batch
    elif window.filter_bytes > chunks * L2_BYTES and not pixels_first:
        filters *= window.tile_blocks * prod(each.outputs for each in window.outer)
    data = window.data_bytes / window.bands / L2_RATE
    task = blocks / chunks * (products * step + stores) + copy + data + filters
    return tasks * (task + _shared(window, chunks) / tasks) * uneven(tasks) + tasks * TASK_CYCLES / THREADS[0]


def _shared(window: AmxWindow, chunks: int) -> float:
    """Return the cycles that threads wait for each other's lines of the output, if a pixel's channels have several."""
    part = window.output_blocks // chunks * window.block[1] * SIDE
    whole = window.whole_lines and part % window.line_channels == 0
    if chunks == 1 or whole or window.problem.data_format == "NCX":
        return 0.0
    return outputs(window) * window.groups * chunks * SHARED_LINE


def _loads(window: AmxWindow, pixels_first: bool) -> float:
    """Return the cycles of the lines of a block's sums that come from L2."""
    (tiles, vectors), last = window.block, window.copy_axes[-1]
    pixels = tiles * window.tile_rows * last.advance + window.axes[-1].taps - 1
    data = prod(window.taps[:-1]) * pixels * window.pixel * window.halves * PAIR_BYTES
    weights = prod(window.taps) * window.pairs * vectors * SIDE * window.halves * PAIR_BYTES
    kept = data + weights <= L1_KEPT
    return (0 if kept and not pixels_first else data) / LINE_BYTES * DATA_LINE + (
        0 if kept and pixels_first else weights
    ) / LINE_BYTES * FILTER_LINE
