"""Search space of wgmma: the size of a tile and its stages, which `tvmconv/lowering/cuda/wgmma.py` writes the kernel for."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.cuda.annotations import WGMMA_STAGES, WGMMA_TILE
from tvmconv.algorithms.cuda.wgmma_tiles import stages_of, wgmma_tiles
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import OUT, stage_name
from tvmconv.schedules.cpu.steps import choose
from tvmconv.targets.cuda import CudaTarget


def space(sch: Schedule, definition: Definition, target: CudaTarget) -> list[Schedule]:
    """Return one sketch for each tile, the default first. Nothing is scheduled: annotations hold the choices."""
    sketches = []
    for number, tile in enumerate(wgmma_tiles(definition.problem, target)):
        sketch = sch.copy()
        out = sketch.get_sblock(stage_name(OUT, 0))
        sketch.annotate(out, WGMMA_TILE, number)
        sketch.annotate(out, WGMMA_STAGES, choose(sketch, stages_of(tile, target), tile.stages))
        sketches.append(sketch)
    return sketches
