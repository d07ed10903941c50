"""Prefetch the filter of a network's next layer while a kernel multiplies its own.

Each step of the sums prefetches an equal part into L2, from which it is evicted to L3. Prefetches must be spread: a CPU drops those for
which no miss buffer is free, as happens without computation between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ....runtime.packed import PACKED_SYMBOL
from ....targets.cpus import LINE_BYTES
from ...common.arguments import view
from ...common.entry_points import SYMBOL
from ...common.rewrites import find_all, map_nodes
from .padding import uses
from .prefetching import L2, fetching, loops_down_to, prefetch

# Prefetching function of a kernel's library.
NEXT_SYMBOL = f"{SYMBOL}_next"
# Most lines prefetched in a step.
MOST_LINES = 4
_FRACTION = 16  # fractional bits of a step's share of lines


def prefetch_following(functions: Mapping[str, tirx.PrimFunc], most_lines: int) -> dict[str, tirx.PrimFunc]:
    """Return a kernel's functions with NEXT_SYMBOL added, from :func:`with_next`; the original function now calls it with one line.

    Unchanged if no loop reads the filter.
    """
    name = find_prefetching(functions)
    made = with_next(functions[name], most_lines)
    if made is None:
        return dict(functions)
    return {**functions, NEXT_SYMBOL: made.with_attr("global_symbol", NEXT_SYMBOL), name: _calling(functions[name])}


def find_prefetching(functions: Mapping[str, tirx.PrimFunc]) -> str:
    """Return the symbol of the function from which NEXT_SYMBOL is derived: the one for packed filters, if it exists."""
    return PACKED_SYMBOL if PACKED_SYMBOL in functions else SYMBOL


def _calling(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that calls NEXT_SYMBOL with the first line of its own filter."""
    params = [
        tirx.decl_buffer(each.shape, each.dtype, each.name, data_alignment=each.data_alignment)
        for each in function.params
    ]
    line = tirx.decl_buffer((1, LINE_BYTES), "uint8", "line")
    call = tirx.call_cpacked(NEXT_SYMBOL, *params[:-1], line, params[-1])
    return tirx.PrimFunc(
        params, tirx.SeqStmt([view(line, params[1]), tirx.Evaluate(call)]), function.ret_type, function.attrs
    )


def with_next(function: tirx.PrimFunc, most_lines: int) -> tirx.PrimFunc | None:
    """Return a kernel with one more parameter before its output: at most `most_lines` lines of bytes, which its steps prefetch.

    None if no loop reads the filter.
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
    return tirx.PrimFunc(params, map_nodes(function.body, tirx.For, prefetching), function.ret_type, function.attrs)


def _steps(function: tirx.PrimFunc) -> list[list[Any]]:
    """Return the innermost loops of constant extents that read the filter, each as the list of loops down to it."""
    filter_ = function.params[1]
    views = [each.buffer for each in find_all(function.body, tirx.DeclBuffer) if uses(each, filter_)]
    steps = []
    for loop in find_all(function.body, tirx.For):
        inner = [each for each in find_all(loop.body, tirx.For) if each.kind == tirx.ForKind.SERIAL]
        if loop.kind != tirx.ForKind.SERIAL or inner or not _reads(loop.body, [filter_, *views]):
            continue
        around = loops_down_to(function.body, loop)
        if all(isinstance(each.extent, tirx.IntImm) for each in around):
            steps.append(around)
    return steps


def _reads(body: Any, buffers: Sequence[Any]) -> bool:
    return any(load.source.same_as(each) for load in find_all(body, TensorLoad) for each in buffers)
