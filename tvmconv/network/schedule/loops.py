"""Elementwise functions of one stage, and loops of our own for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.s_tir.dlight.analysis import normalize_prim_func

from ...lowering.common.rewrites import find_all
from .stages import KEPT

_CHOICE = "prim.if_then_else"


def one_stage(func: tirx.PrimFunc) -> s_tir.Schedule | None:
    """Return the schedule of a function of fixed extents with all stages inlined into the last; None if some cannot be, or reduce.

    Stages marked KEPT are not inlined: each element of a scan would compute all earlier ones again.
    """
    sch = s_tir.Schedule(func)
    stages = normalize_prim_func(sch)
    if not stages or any(kind != "S" for stage in stages for kind in stage.dom_kind()):
        return None
    if not all(isinstance(extent, int) for stage in stages for extent in stage.dom()):
        return None
    if any(KEPT in sch.get(stage.block_rv).annotations for stage in stages[:-1]):
        return None
    try:
        for stage in stages[:-1]:
            sch.compute_inline(stage.block_rv)
    except s_tir.ScheduleError:
        return None  # a second output
    return sch


def only_block(sch: s_tir.Schedule) -> Any:
    """Return the only block inside the root block of a schedule from :func:`one_stage`."""
    (block,) = find_all(sch.mod["main"].body.block.body, s_tir.SBlock)
    return block


def with_loops(sch: s_tir.Schedule, loops: Any, buffers: Sequence[Any] = ()) -> s_tir.Schedule:
    """Return a schedule of the function with `loops` in place of its own, which allocates `buffers` for them."""
    root = sch.mod["main"].body
    block = root.block
    made = s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, loops, block.init,
        [*block.alloc_buffers, *buffers], block.match_buffers, block.annotations,
    )  # fmt: skip
    return s_tir.Schedule(sch.mod["main"].with_body(s_tir.SBlockRealize([], root.predicate, made)))


def choices(expr: Any) -> list[Call]:
    """Return the calls of if_then_else in an expression, which evaluate one of two values."""
    return [each for each in find_all(expr, Call) if isinstance(each.op, tvm.ir.Op) and each.op.name == _CHOICE]


def loop(variable: Any, extent: Any, kind: Any, body: Any, annotations: Mapping[str, Any] | None = None) -> Any:
    """Return a loop from 0."""
    integer = variable.ty.dtype
    extent = tirx.const(extent, integer) if isinstance(extent, int) else extent
    return tirx.For(variable, tirx.const(0, integer), extent, kind, body, annotations=dict(annotations or {}))
