"""Kernels that prefetch the filter of the next one, so that it comes from memory while theirs is multiplied.

A network reads each filter once for each answer, so no cache has a large network's. Each step of a kernel's sums prefetches an equal
part of the next large filter, into L2, from which it goes to L3. It must be spread so: a CPU drops a prefetch for which it has no
free miss buffer, as where nothing is computed between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ...lowering.common.rewrites import find_all, map_nodes
from ...lowering.cpu.rewrites.prefetching import L2, fetching, loops_down_to, prefetch
from ...targets.cpus import LINE_BYTES
from ...targets.target import CpuTarget
from ..kernels.build import CODE, LOWERED
from .network_plan import KEPT, Array, NetworkPlan, PlanStep

# Smaller filters are not prefetched: what that spares is no more than what it takes.
LEAST_BYTES = 100_000
# Part of L3 that a prefetched filter may have: the best of an eighth, a quarter and all for wide_resnet50_2 (`python -m benchmarks.zoo`).
SHARE_OF_L3 = 4
# Lines in each step.
MOST_LINES = 4
_FRACTION = 16  # bits of a step's share of lines


def prefetch_next(
    plan: NetworkPlan, functions: Mapping[str, tirx.PrimFunc], target: CpuTarget
) -> tuple[list[PlanStep], dict[str, tirx.PrimFunc]]:
    """Return a plan's steps, and the functions that they call, of which kernels prefetch the next large filter where L3 does not keep all weights."""
    steps, called = list(plan.steps), dict(functions)
    if target.keeps(sum(each.size for each in plan.weights) + plan.prepared_bytes):
        return steps, called
    coming: Array | None = None
    for number, step in reversed(list(enumerate(plan.steps))):
        if coming is not None and _is_kernel(functions.get(step.function)):
            lines = min(coming.size, target.l3 // SHARE_OF_L3) // LINE_BYTES
            steps[number] = replace(step, following=Array(coming.storage, coming.offset, (lines, LINE_BYTES), "uint8"))
            coming = None
        weights = [each for each in step.arguments if each.storage.region in KEPT] if number >= plan.prepared else []
        coming = max((each for each in weights if each.size >= LEAST_BYTES), key=lambda each: each.size, default=coming)
    most: dict[str, int] = {}
    for step in steps:
        if step.following is not None:
            most[step.function] = max(most.get(step.function, 0), step.following.shape[0])
    made = {name: with_next(functions[name], lines) for name, lines in most.items()}
    for number, step in enumerate(steps):
        if step.following is None:
            continue
        function = made[step.function]
        if function is None:
            steps[number] = replace(step, following=None)
        else:
            called[step.symbol] = function
    used = {step.symbol for step in steps}
    return steps, {name: each for name, each in called.items() if name in used}


def _is_kernel(function: tirx.PrimFunc | None) -> bool:
    return function is not None and LOWERED in (function.attrs or {})


def with_next(function: tirx.PrimFunc, most_lines: int) -> tirx.PrimFunc | None:
    """Return a kernel with one more parameter before its output: lines of bytes, up to so many, that its steps prefetch.

    None if no loop of it reads the filter.
    """
    steps = _steps(function)
    if not steps:
        return None
    counts = [prod(int(each.extent) for each in around) for around in steps]
    together = max(1, min(MOST_LINES, -(-most_lines // sum(counts))))
    lines = tirx.Var("lines", "int64")
    following = tirx.decl_buffer((lines, LINE_BYTES), "uint8", "following")
    share = tirx.floordiv(lines << _FRACTION, tirx.const(sum(counts) * together, "int64"))

    def prefetching(loop: Any) -> Any:
        number = next((at for at, around in enumerate(steps) if loop.loop_var.same_as(around[-1].loop_var)), None)
        if number is None:
            return loop
        step: Any = tirx.const(0, "int64")
        for each in steps[number]:
            step = step * int(each.extent) + each.loop_var.astype("int64")
        first = (step + sum(counts[:number])) * together
        places = ((first + each) * share >> _FRACTION for each in range(together))
        fetched = [prefetch(tirx.BufferLoad(following, [place, 0]), L2) for place in places]
        return fetching(loop, fetched)

    params = [*function.params[:-1], following, function.params[-1]]
    attrs = function.without_attr(CODE).attrs  # which does not prefetch
    return tirx.PrimFunc(params, map_nodes(function.body, tirx.For, prefetching), function.ret_type, attrs)


def _steps(function: tirx.PrimFunc) -> list[list[Any]]:
    """Return the innermost loops that read the filter, each as the loops down to it, all of a known number of iterations."""
    filter_ = function.params[1]
    views = [each.buffer for each in find_all(function.body, tirx.DeclBuffer) if filter_ in _used_arrays(each)]
    steps = []
    for loop in find_all(function.body, tirx.For):
        inner = [each for each in find_all(loop.body, tirx.For) if each.kind == tirx.ForKind.SERIAL]
        if loop.kind != tirx.ForKind.SERIAL or inner or not _reads(loop.body, [filter_, *views]):
            continue
        around = loops_down_to(function.body, loop)
        if all(isinstance(each.extent, tirx.IntImm) for each in around):
            steps.append(around)
    return steps


def _used_arrays(statement: Any) -> set[Any]:
    return set(tirx.analysis.undefined_vars(statement, []))


def _reads(body: Any, buffers: Sequence[Any]) -> bool:
    return any(load.source.same_as(each) for load in find_all(body, TensorLoad) for each in buffers)
