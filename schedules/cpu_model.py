"""What a tile and a task cost on a CPU, roughly: the default decisions, and which choices are worth a try.

Counted in cycles of one core that starts one full-vector multiply-add each (definitions/tile.py).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tvmconv.definitions.shapes import IN_FLIGHT, divisors, tile_widths
from tvmconv.definitions.tile import tile_cycles
from tvmconv.definitions.window import Window
from tvmconv.target import CpuTarget

L2_BYTES = 512 * 1024  # half of the 1 MiB of a Zen 4 core; the other half holds data and output
L2_BYTES_PER_CYCLE = 32
L3_BYTES_PER_CYCLE = 8
COPY_BYTES_PER_CYCLE = 16
THREADS = (2, 4, 8)  # thread counts over which an uneven share of tasks is averaged
TASK_CYCLES = 2000  # starting a task: a microsecond or less
TASK_ROWS = 16  # more rows a task copy fewer rows twice, but their copies leave the second level cache
TASKS = 8  # at least, where there are as many: two threads to eight find a share


def vector_counts(window: Window, target: CpuTarget, fits: Callable[[Window, int, CpuTarget], list[int]]) -> list[int]:
    """Return how many vectors of channels a tile may have, the best by the model first.

    `fits` is `widths` or `grouped_widths`.
    """
    cycles = grouped_cycles if fits is grouped_widths else tile_cycles
    counts = [v for v in divisors(window.padded_outputs // window.lanes, 8) if fits(window, v, target)]
    return sorted(counts, key=lambda v: min(cycles(window, t, v, target) for t in fits(window, v, target)))


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
    data = (width - 1) * axis.step + (axis.taps - 1) * axis.spacing + 1
    wait = (0.0 if window.shuffles else outputs / (4 * IN_FLIGHT)) + 0.25 / vectors
    return (max(outputs, IN_FLIGHT) + vectors * (data / axis.taps + 1) / 2) / outputs + wait


def reads_in_place(window: Window) -> bool:
    """Whether each lane's data can be read where it lies, so that only padding asks for a copy.

    To be shuffled, it must lie there as it is multiplied.
    """
    ready = not window.shuffles or window.packed == 2 or window.problem.dtype == "f32"
    return window.across and not window.expands and ready and window.problem.data_format == "NXC"


def task_cycles(window: Window, chunks: int, rows: int, width: int, apart: bool = False) -> float:
    """Cycles of a whole window cut into tasks of one `chunks`-th of the channels and `rows` rows.

    With `apart`, a task has one phase of each axis but the last.
    """
    problem, axes = window.problem, window.axes
    outer = axes[:-1]
    phases = prod(axis.phases for axis in axes)
    macs = phases * prod(axis.outputs for axis in axes) * prod(axis.taps for axis in axes) * window.channels
    compute = problem.batch * window.groups * window.padded_outputs * macs / window.lanes
    blocks = outer[-1].outputs // rows if outer else window.row // width
    spread = problem.batch * window.groups * prod(axis.outputs for axis in outer[:-1])
    parts = chunks * (prod(axis.phases for axis in outer) if apart else 1)
    tasks = spread * parts * blocks
    filter_bytes = 4 * window.channels * window.padded_outputs * prod(axis.taps * axis.phases for axis in axes)
    rate = L2_BYTES_PER_CYCLE if filter_bytes / parts <= L2_BYTES else L3_BYTES_PER_CYCLE
    filters = spread * blocks * filter_bytes / rate
    copy = 0.0
    if window.stages_data and outer and not reads_in_place(window):
        strip = (rows - 1) * outer[-1].step + (outer[-1].taps - 1) * outer[-1].spacing + 1
        copied = strip * axes[-1].extent * window.channels * (window.padded_outputs if window.expands else 1)
        depth = prod((axis.taps - 1) * axis.spacing + 1 for axis in outer[:-1])
        copy = tasks * depth * copied * 8 / COPY_BYTES_PER_CYCLE
    return (compute + filters + copy) * uneven(tasks) + tasks * TASK_CYCLES / THREADS[0]


def task_rows(window: Window, together: int = 1, most: int = TASK_ROWS) -> tuple[list[int], int]:
    """Return how many times `together` rows a task of all channels may have, and the default.

    That is as many as are at most `most` rows, and leave TASKS.
    """
    if len(window.axes) == 1:
        return [1], 1
    rows = divisors(window.axes[-2].outputs // together, 64)
    total = window.problem.batch * window.groups * prod(axis.outputs for axis in window.axes[:-1]) // together
    return rows, max(r for r in rows if r == 1 or (r * together <= most and total // r >= TASKS))


def uneven(tasks: int) -> float:
    """How much longer the busiest of some threads works than the average."""
    return sum(-(-tasks // threads) * threads / tasks for threads in THREADS) / len(THREADS)
