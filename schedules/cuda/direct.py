"""Search space of direct convolution on GPUs: a thread sums a few neighbouring outputs of a row.

Each step loads the columns of data that the neighbours share, then multiplies them by the taps of a row.
"""

from __future__ import annotations

from math import prod

from tvm.s_tir import Schedule

from tvmconv.algorithms.cuda.blocks import MULTIPROCESSORS, WARP
from tvmconv.algorithms.cuda.direct import THREADS, DirectWindow
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, OUT, PATCH, stage_name
from tvmconv.schedules.cpu.steps import choose
from tvmconv.schedules.cuda import steps
from tvmconv.targets.cuda import CudaTarget

# Registers for columns of data; 32 more are the sums and indices, and a thread of a full multiprocessor has 32 in all.
MAX_COLUMNS = 32
# Multiply-adds in a loop body: loads of a few steps are under way together, but the code stays small.
MAX_UNROLLED = 64


def space(sch: Schedule, definition: Definition, target: CudaTarget) -> list[Schedule]:
    """Return the one schedule."""
    steps.fill(sch)
    for window in definition.windows:
        _schedule(sch, window)
    return [sch]


def _schedule(sch: Schedule, window: DirectWindow) -> None:
    i, last = window.index, window.axes[-1]
    threads = [t for t in (THREADS, THREADS // 2, 2 * WARP, WARP) if window.threads % t == 0]
    row = max(divisors(last.taps, _most_taps(window)))
    unrolled = window.neighbours * row
    channels = divisors(window.channels, max(1, MAX_UNROLLED // unrolled))
    rows = prod(axis.taps for axis in window.axes[:-1])
    acc, out, patch = (sch.get_sblock(stage_name(stage, i)) for stage in (ACC, OUT, PATCH))

    sch.set_scope(acc, 0, "local")
    sch.set_scope(patch, 0, "local")
    p, _ = sch.get_loops(out)
    # For small problems, by default, smaller blocks: they leave fewer threads of a multiprocessor idle.
    default = threads[0] if window.threads >= 4 * THREADS * MULTIPROCESSORS[80] else threads[min(1, len(threads) - 1)]
    block, thread = sch.split(p, [None, choose(sch, threads, default)])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.compute_at(acc, thread, preserve_unit_loops=True)
    _, neighbour, *outer, c, k = sch.get_loops(acc)[2:]
    step, k = sch.split(k, [None, row])
    c, each = sch.split(c, [None, choose(sch, channels, channels[-1])])
    sch.reorder(*outer, step, c, each, neighbour, k)
    sch.compute_at(patch, each, preserve_unit_loops=True)
    for loop in (each, neighbour, k, sch.get_loops(patch)[-1]):
        sch.unroll(loop)
    if window.channels == 1 and rows * unrolled <= MAX_UNROLLED:
        for loop in outer:
            sch.unroll(loop)
    sch.decompose_reduction(acc, (outer or [step])[0])


def _most_taps(window: DirectWindow) -> int:
    """Return how many taps of a row have columns that fit the registers."""
    axis = window.axes[-1]
    return max(1, (MAX_COLUMNS - 1 - (window.neighbours - 1) * axis.stride) // axis.dilation + 1)
