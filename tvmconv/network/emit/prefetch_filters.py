"""Plan which steps prefetch a later step's filter while their own kernels multiply.

A network reads each filter once per call, so caches do not keep a large network's filters. Which kernels can prefetch is decided
before they are compiled (`tvmconv.building.decision.next_filters`); the plan decides what they prefetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm import tirx

from ...building.decision.next_filters import LEAST_BYTES, lines_of
from ...lowering.cpu.rewrites.next_filter import with_next
from ...support.toolchain import has_selection
from ...targets.cpus import LINE_BYTES
from ...targets.target import CpuTarget
from ..kernels.build import CODE, NEXT_SYMBOL_OF_CODE, SYMBOL_OF_CODE
from .network_plan import KEPT, Array, NetworkPlan, PlanStep


def prefetch_next(
    plan: NetworkPlan, functions: Mapping[str, tirx.PrimFunc], target: CpuTarget
) -> tuple[list[PlanStep], dict[str, tirx.PrimFunc]]:
    """Return a plan's steps, with kernels that prefetch the next large filter where L3 does not keep all weights."""
    steps = list(plan.steps)
    if target.keeps(sum(each.size for each in plan.weights) + plan.prepared_bytes):
        return steps, dict(functions)
    coming: Array | None = None
    for number, step in reversed(list(enumerate(plan.steps))):
        if coming is not None and _may_prefetch(functions.get(step.function)):
            steps[number] = replace(step, following=_lines(coming, lines_of(coming.size, target)))
            coming = None
        weights = [each for each in step.arguments if each.storage.region in KEPT] if number >= plan.prepared else []
        coming = max((each for each in weights if each.size >= LEAST_BYTES), key=lambda each: each.size, default=coming)
    most: dict[str, int] = {}
    for step in steps:
        if step.following is not None:
            most[step.function] = max(most.get(step.function, 0), step.following.shape[0])
    # All steps of a kernel call one function: a step with nothing to prefetch prefetches the first line of its own filter.
    steps = [
        replace(step, following=step.following or _lines(step.arguments[1], 1)) if step.function in most else step
        for step in steps
    ]
    made = {name: _prefetching(functions[name], lines, target) for name, lines in most.items()}
    called = {
        step.symbol: made.get(step.function) or functions[step.function] for step in steps if step.function in functions
    }
    return steps, called


def _may_prefetch(function: tirx.PrimFunc | None) -> bool:
    return function is not None and NEXT_SYMBOL_OF_CODE in (function.attrs or {})


def _lines(array: Array, lines: int) -> Array:
    return Array(array.storage, (lines, LINE_BYTES), "uint8")


def _prefetching(function: tirx.PrimFunc, lines: int, target: CpuTarget) -> tirx.PrimFunc:
    """Return the prefetching function of a kernel's object; where kernels are compiled again, its rewritten body."""
    if CODE in function.attrs and has_selection(target.isa):
        return function.with_attr(SYMBOL_OF_CODE, function.attrs[NEXT_SYMBOL_OF_CODE])
    made = with_next(function, lines)
    assert made is not None
    return made.without_attr(CODE)
