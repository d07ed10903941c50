"""Search space of windows whose lanes run along a row, on CPUs: planar layouts, and few output channels.

A tile is some channels by some vectors of a row. Each step of the reduction loads the row's vectors, which
taps shift by one element, and broadcasts a filter element for each channel. A task is some rows of all
channels, or of one group; its channels share the rows' data.

Measured on one Zen 5 core, percent of its peak (275 GFLOP/s), by

    tvmconv build SIGNATURE --math strict -o B && tvmconv bench B --threads 1

for f32, NCX and OIX: 95 for 1x1, 64 to 256 channels at 56x56; 80 for 1x1, 256 to 256 at 28x28; 88 for 3x3, 3 to 32 at
256x256; 73 for 3x3, 256 to 256 in 32 groups at 28x28.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.definitions.definition import Definition
from tvmconv.definitions.planar import stages_planes, stores_rows
from tvmconv.definitions.window import Window
from tvmconv.target import CpuTarget

from . import cpu_steps as steps
from .cpu_model import IN_FLIGHT, divisors, task_rows

MAX_UNROLLED = 128  # multiply-adds in a loop body; more only grows the code


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of channels in a tile, the default first."""
    return steps.sketches(sch, definition, target, lambda window: _channels(window, target)[:3], _schedule)


def _channels(window: Window, target: CpuTarget) -> list[int]:
    """Return how many channels a tile may have, the best first.

    Beside the sums of so many channels, a register holds the row's data and another the broadcast.
    """
    fitting = divisors(window.outputs, min(16, target.vector_registers - 2))
    return sorted(fitting, key=lambda o: min(_cycles(o, v) for v in _vectors(window, o, target)))


def _vectors(window: Window, channels: int, target: CpuTarget) -> list[int]:
    """Return how many vectors of a row fit beside so many channels, the best first.

    Each vector takes a register for its data and one for each channel's sum; one more holds the broadcast.
    """
    fitting = divisors(window.row // window.lanes, max(1, (target.vector_registers - 1) // (channels + 1)))
    return sorted(fitting, key=lambda v: _cycles(channels, v))


def _cycles(channels: int, vectors: int) -> float:
    """Cycles per multiply-add of a tile: a shifted vector crosses two cache lines, a broadcast shares the load ports."""
    outputs = channels * vectors
    return (max(outputs, IN_FLIGHT) + 1.0 * vectors + 0.5 * channels) / outputs


def _schedule(sch: Schedule, window: Window, channels: int, target: CpuTarget) -> None:
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    vectors = _vectors(window, channels, target)[:4]
    rows, most = task_rows(window)
    body = channels * vectors[0]
    taps_unrolled = divisors(window.axes[-1].taps, max(1, MAX_UNROLLED // body))[-1]

    acc = sch.get_sblock(f"acc{i}")
    sch.set_scope(acc, 0, "local")
    loops = sch.get_loops(acc)
    n, g, phases, spatial, o, x = (
        loops[0],
        loops[1],
        loops[2 : 2 + rank],
        loops[2 + rank : 1 + 2 * rank],
        loops[1 + 2 * rank],
        loops[2 + 2 * rank],
    )
    c, *taps = loops[3 + 2 * rank :]

    block, channel = sch.split(o, [None, channels])
    tile, vector, lane = sch.split(x, [None, steps.choose(sch, vectors, vectors[0]), lanes])
    step, unrolled = sch.split(taps[-1], [None, taps_unrolled])
    if rank > 1:
        band, row = sch.split(spatial[-1], [None, steps.choose(sch, rows, most)])
        outer, inner = [n, g, *spatial[:-1], band], [*phases, row, tile, block]
    else:
        outer, inner = [n, g, tile], [*phases, block]
    sch.reorder(*outer, *inner, c, *taps[:-1], step, unrolled, channel, vector, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)

    if steps.has_block(sch, f"filter_pack{i}"):
        pack = sch.get_sblock(f"filter_pack{i}")
        sch.parallel(sch.fuse(*sch.get_loops(pack)[:-1]))
    if stages_planes(window):
        _stage(sch, window, task if rank > 1 else None)
    _store(sch, window, inner[-1], lanes)
    sch.vectorize(lane)
    for loop in (unrolled, channel, vector):
        sch.unroll(loop)
    sch.decompose_reduction(acc, c)


def _stage(sch: Schedule, window: Window, task: LoopRV | None) -> None:
    """Copy data, padded: each task its own rows, or all of it first where a row is cut (`task` None).

    LLVM vectorizes the scalar loop, by masked loads; TVM would not, for the conditions are on lanes.
    """
    stages = [name for name in (f"data_phases{window.index}", f"data_pad{window.index}") if steps.has_block(sch, name)]
    block = sch.get_sblock(stages[0])
    if task is not None:
        sch.compute_at(block, task, preserve_unit_loops=True)
    else:
        n, c, *_ = sch.get_loops(block)
        sch.parallel(sch.fuse(n, c))
    for name in stages[1:]:
        row = sch.get_loops(block)[-3]
        sch.compute_at(sch.get_sblock(name), row, preserve_unit_loops=True)


def _store(sch: Schedule, window: Window, tile: LoopRV, lanes: int) -> None:
    """Write a tile's outputs from the accumulators: rows by vectors, or element by element from a copy of the tile."""
    out = sch.get_sblock(f"out{window.index}")
    written = out
    if not stores_rows(window):
        written = sch.get_sblock(f"tile{window.index}")
        sch.set_scope(written, 0, "local")
        sch.reverse_compute_at(written, tile, preserve_unit_loops=True)
    sch.reverse_compute_at(out, tile, preserve_unit_loops=True)
    *_, channel, x = sch.get_loops(written)
    vector, lane = sch.split(x, [None, lanes])
    sch.unroll(channel)
    sch.unroll(vector)
    sch.vectorize(lane)
    if written is not out and window.problem.data_format == "NXC":
        *_, channel, x = sch.get_loops(out)
        sch.reorder(x, channel)
