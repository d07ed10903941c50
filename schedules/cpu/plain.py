"""The schedule of plain windows, on CPUs: nothing to choose.

A tile is some pixels of a row by some output channels, whose sums stay in registers. A task is a row of tiles of the
same channels; where there is one spatial axis, a tile. Loops over a tile are unrolled, lanes vectorized, and all else is
left to the compiler.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.cpu.plain import PlainWindow
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, FILTER_PACK, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.targets.target import CpuTarget

COLUMNS = 64  # copied at a time


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return the one schedule."""
    if definition.problem.is_empty:
        return [sch]
    steps.fill(sch)
    for window in definition.windows:
        _schedule(sch, window)
    return [sch]


def _schedule(sch: Schedule, plain: PlainWindow) -> None:
    i, rank, lanes = plain.window.index, len(plain.window.axes), plain.window.lanes
    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops = sch.get_loops(acc)
    phases, rows, loops = loops[:rank], loops[rank : 2 * rank - 1], loops[2 * rank - 1 :]
    x, o = (loops[1], loops[0]) if plain.by_rows else loops[:2]
    taps = loops[2:]  # and the channels that are summed

    run, pixel = sch.split(x, [None, plain.pixels])
    block, channel = sch.split(o, [None, plain.channels])
    vectored, other = (pixel, channel) if plain.by_rows else (channel, pixel)
    vector, lane = sch.split(vectored, [None, lanes])
    inner = [run] if rank > 1 else []
    outer = [n, g, block, *phases, *rows] if rank > 1 else [n, g, block, *phases, run]
    sch.reorder(*outer, *inner, *taps, other, vector, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)
    _copy(sch, plain)
    _store(sch, plain, inner[0] if inner else task)
    sch.vectorize(lane)
    sch.unroll(other)
    sch.unroll(vector)
    sch.decompose_reduction(acc, taps[0])


def _copy(sch: Schedule, plain: PlainWindow) -> None:
    """Pack the filter by tiles, and copy data by rows, or by parts of them."""
    pack = sch.get_sblock(stage_name(FILTER_PACK, plain.window.index))
    group, block, *_ = sch.get_loops(pack)
    sch.parallel(sch.fuse(group, block))
    if not plain.copies:
        return
    copy = sch.get_sblock(stage_name(DATA_PAD, plain.window.index))
    if plain.by_rows:
        n, channels, *rows, phase, column = sch.get_loops(copy)
        # Channels lie together in NXC: those of a part of a row are read as long as a cache holds it.
        part, column = sch.split(column, [None, COLUMNS])
        outer, inner = [n, *rows, part], [channels, phase, column]
    else:
        n, *rows, column, channels = sch.get_loops(copy)
        part, column = sch.split(column, [None, COLUMNS])
        # Lanes are the channels of NXC; those of NCX lie far apart, and are read one after another.
        outer = [n, *rows, part]
        inner = [column, channels] if plain.window.problem.data_format == "NXC" else [channels, column]
    sch.reorder(*outer, *inner)
    sch.parallel(sch.fuse(*outer))


def _store(sch: Schedule, plain: PlainWindow, tile: object) -> None:
    """Write a tile's outputs from the sums: by vectors, or element by element from a copy of the tile."""
    out = sch.get_sblock(stage_name(OUT, plain.window.index))
    written = out
    if not plain.stores_vectors:
        written = sch.get_sblock(stage_name(TILE, plain.window.index))
        sch.set_scope(written, 0, "local")
        sch.reverse_compute_at(written, tile, preserve_unit_loops=True)
    sch.reverse_compute_at(out, tile, preserve_unit_loops=True)
    if written is not out and plain.by_rows == (plain.window.problem.data_format == "NXC"):
        sch.reorder(*reversed(sch.get_loops(out)[-2:]))  # in the order of the output
    *_, other, vectored = sch.get_loops(written)
    vector, lane = sch.split(vectored, [None, plain.window.lanes])
    sch.unroll(other)
    sch.unroll(vector)
    sch.vectorize(lane)
