"""Search space of direct convolution on GPUs: one thread computes one output."""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.cuda_target import CudaTarget
from tvmconv.definitions.cuda_window import CudaWindow
from tvmconv.definitions.definition import Definition

from . import cuda_steps as steps
from .cpu_model import divisors


def space(sch: Schedule, definition: Definition, target: CudaTarget) -> list[Schedule]:
    """Return the one schedule."""
    steps.fill(sch)
    for window in definition.windows:
        _schedule(sch, window)
    return [sch]


def _schedule(sch: Schedule, window: CudaWindow) -> None:
    out = sch.get_sblock(f"out{window.index}")
    acc = sch.get_sblock(f"acc{window.index}")
    loops = sch.get_loops(out)
    if window.problem.data_format == "NCX":
        # Threads of a warp write neighbours: those along the last spatial axis.
        sch.reorder(*loops[:2], loops[-1], *loops[2:-1])
    fused = sch.fuse(*sch.get_loops(out))
    # Whole blocks alone: TVM does not decompose a sum under the condition of a partial one.
    thread = steps.bind(sch, fused, divisors(int(sch.get(fused).extent), steps.THREADS)[-1])
    sch.set_scope(acc, 0, "local")
    sch.compute_at(acc, thread, preserve_unit_loops=True)
    sch.decompose_reduction(acc, sch.get_loops(acc)[-1 - len(window.axes)])
