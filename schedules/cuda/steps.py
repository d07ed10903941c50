"""Scheduling steps that the GPU spaces share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvmconv.algorithms.cuda.blocks import AnyTile, BlockTile
from tvmconv.algorithms.cuda.gemm import Gemm
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import FILL
from tvmconv.schedules.cpu.steps import has_block
from tvmconv.targets.cuda import CudaTarget

# Eight warps: two for each of a multiprocessor's four schedulers.
THREADS = 256
# Threads of a block that adds parts; with vectors of 8 they divide the least tile, 512 outputs.
ADDERS = 64


def sketches(
    sch: Schedule,
    definition: Definition,
    tiles: Callable[[Sequence[Gemm]], Iterable[Any]],
    schedule: Callable[[Schedule, Gemm, Any], None],
) -> list[Schedule]:
    """Return `schedule`'s schedules of all windows, one for each of their `tiles`, the default first."""
    made = []
    for tile in tiles(definition.windows):
        sketch = sch.copy()
        fill(sketch)
        for window in definition.windows:
            schedule(sketch, window, tile)
        made.append(sketch)
    return made


def fitting(windows: Sequence[Gemm], tiles: Iterable[AnyTile], target: CudaTarget) -> list[AnyTile]:
    """Return those of `tiles` that divide the windows' extents, split as their own is, the best by the model first."""
    fit = [replace(tile, splits=windows[0].tile.splits) for tile in tiles if divides(tile, windows)]
    return sorted(fit, key=lambda tile: sum(tile.cycles(window.extents, target) for window in windows))


def divides(tile: BlockTile, windows: Sequence[Gemm]) -> bool:
    """Return whether a tile divides the extents of windows, which are whole tiles of their own."""
    return all(w.rows % tile.rows == w.columns % tile.columns == w.depth % tile.depth == 0 for w in windows)


def bind(sch: Schedule, loop: LoopRV, threads: int = THREADS) -> LoopRV:
    """Spread a loop over blocks of `threads` threads; return the threads' loop."""
    block, thread = sch.split(loop, [None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


def fill(sch: Schedule) -> None:
    """Fill the output with the bias where the definition does, an element a thread."""
    if has_block(sch, FILL):
        bind(sch, sch.fuse(*sch.get_loops(sch.get_sblock(FILL))))


def add_parts(sch: Schedule, out: SBlockRV, vector: int) -> None:
    """Add the parts of a split depth: a vector of outputs a thread."""
    *outer, inner = sch.get_loops(out)
    inner, lane = sch.split(inner, [None, vector])
    block, thread = sch.split(sch.fuse(*outer, inner), [None, ADDERS])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.vectorize(lane)
