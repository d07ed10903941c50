"""Schedule a stage of a function: fuse its loops, vectorize and parallelize them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo

from ...lowering.cpu.rewrites.padding import uses

# Marks a stage that is computed before its readers, not inlined into them.
KEPT = "tvmconv.kept"
# Vector lengths: the first that divides a row is taken. Shorter rows are unrolled.
_LANES = (16, 8, 4)
# Number of elements that takes one thread about 10 us. A parallel loop costs half a microsecond when its threads are awake, and four on a
# machine that was slow at waking them.
LEAST_PARALLEL = 65536
# Iterations of the parallel loop: enough for many threads, with few divisions to compute indices.
TASKS = 64


def is_fixed(stage: SBlockInfo) -> bool:
    """Return whether the extents of a stage's loops are known."""
    return all(isinstance(extent, int) for extent in stage.dom())


def inline(sch: s_tir.Schedule, stage: SBlockInfo) -> bool:
    """Inline a stage into its readers; return whether this was possible, and the stage is not marked KEPT."""
    if KEPT in sch.get(stage.block_rv).annotations:
        return False
    try:
        sch.compute_inline(stage.block_rv)
    except s_tir.ScheduleError:
        return False  # an output
    return True


def schedule(sch: s_tir.Schedule, stage: SBlockInfo, vectors: bool) -> None:
    """Run the outer loops of a stage in parallel, and vectorize the innermost, if it is to have `vectors`."""
    extents = stage.dom()
    if not extents:
        return
    spatial = [(each.loop_rv, each.dom) for each in stage.iters if each.kind == "S"]
    summed = [each.loop_rv for each in stage.iters if each.kind == "R"]
    if not spatial:
        return
    free = not is_fixed(stage)
    if free and not isinstance(spatial[-1][1], int):
        vectors = False
    if vectors and not free:
        spatial = _join_loops(sch, stage, spatial)
    loops, inner = cut_to_vectors(sch, spatial) if vectors else (spatial, [])
    sch.reorder(*(loop for loop, _ in loops), *summed, *inner)
    if free and loops:
        sch.parallel(_fuse_free(sch, loops))
    elif not free and prod(extents) >= LEAST_PARALLEL:
        outer = _fuse(sch, loops)
        sch.parallel(outer)
    if summed:
        sch.decompose_reduction(stage.block_rv, summed[0])


def _join_loops(sch: s_tir.Schedule, stage: SBlockInfo, spatial: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Fuse the last loops, such as rows of 21 channels, to one that vectors divide, if all accesses along them are contiguous."""
    block, own = sch.get(stage.block_rv), [(each.var, each.dom) for each in stage.iters if each.kind == "S"]
    for lanes in _LANES:
        for count in range(1, len(own) + 1):
            extent = prod(size for _, size in own[-count:])
            if extent % lanes == 0:
                if count == 1:
                    return spatial
                if all(_lies_together(region, own[-count:]) for region in (*block.reads, *block.writes)):
                    return [*spatial[:-count], (sch.fuse(*(loop for loop, _ in spatial[-count:])), extent)]
                break
    return spatial


def _lies_together(region: Any, last: list[tuple[Any, int]]) -> bool:
    """Return whether a block's reads or writes are independent of some variables, or contiguous along them."""
    if not any(uses(each.min, *(var for var, _ in last)) for each in region.region):
        return True
    ends = zip(region.region, region.source.shape, strict=True)
    return are_last([(part.min if part.extent == 1 else None, size) for part, size in ends], last)


def are_last(ends: Sequence[tuple[Any, Any]], last: Sequence[tuple[Any, int]]) -> bool:
    """Return whether the last indices are the given variables, each over a whole axis."""
    found = ends[-len(last) :]
    return len(found) == len(last) and all(
        isinstance(index, tirx.Var) and index.same_as(variable) and size == extent
        for (index, size), (variable, extent) in zip(found, last, strict=True)
    )


def cut_to_vectors(sch: s_tir.Schedule, spatial: Sequence[tuple[Any, int]]) -> tuple[list[tuple[Any, int]], list[Any]]:
    """Split the last loop into vectors; return the outer loops with their extents, and the inner loops."""
    *outer, (row, extent) = spatial
    lanes = next((each for each in _LANES if extent % each == 0), None)
    if lanes is None:
        if 1 < extent < _LANES[-1]:
            sch.unroll(row)
            return list(outer), [row]
        return list(spatial), []
    across, vector = sch.split(row, [None, lanes])
    sch.vectorize(vector)
    return [*outer, (across, extent // lanes)], [vector]


def _fuse_free(sch: s_tir.Schedule, loops: Sequence[tuple[Any, Any]]) -> Any:
    """Fuse the outer loops down to the first with a free extent, or the second after a free batch: few divisions for each row."""
    free = [number for number, (_, extent) in enumerate(loops) if not isinstance(extent, int)]
    count = (free[1] if len(free) > 2 else free[0] if free else len(loops) - 1) + 1
    return sch.fuse(*(loop for loop, _ in loops[:count])) if count > 1 else loops[0][0]


def _fuse(sch: s_tir.Schedule, loops: Sequence[tuple[Any, int]]) -> Any:
    """Fuse as many outer loops as give the parallel loop its iterations."""
    count = 1
    while count < len(loops) and prod(extent for _, extent in loops[:count]) < TASKS:
        count += 1
    return sch.fuse(*(loop for loop, _ in loops[:count])) if count > 1 else loops[0][0]
