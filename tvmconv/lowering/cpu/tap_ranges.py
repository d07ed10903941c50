"""Let kernels of blocks sum only a range of taps, given by each call: at an image's edge, other taps meet padding.

A block that leaves them out reads data in place there, and needs no copy with zeros. Loops over taps get their bounds from arguments, and
unrolled ones conditions; other loops stay.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad

from ...problem import Problem
from ..common.rewrites import find_all, map_nodes, substitute, with_own_loops
from .images import PLACED
from .rewrites.padding import uses


def by_tap_ranges(func: tirx.PrimFunc, problem: Problem) -> tuple[tirx.PrimFunc, bool]:
    """Return a block's function with two more arguments for each axis, the first tap and the end of taps, and whether it uses them: not
    if data is copied before it is summed, if taps have no loops of their own, for integers, whose padding may not be 0, and for phases.
    """
    first, end = ([tirx.Var(f"{name}{axis}", "int32") for axis in range(problem.rank)] for name in ("first", "end"))
    axes = _tap_loops(func, problem) or {}

    def is_unrolled(loop: Any) -> bool:
        return loop.kind == tirx.ForKind.UNROLLED

    def conditional(loop: Any) -> Any:
        """Return an unrolled loop over taps with its body under the condition that the tap is in range."""
        axis = axes.get(loop.loop_var)
        if axis is None or not is_unrolled(loop):
            return loop
        body = tirx.IfThenElse(tirx.all(first[axis] <= loop.loop_var, loop.loop_var < end[axis]), loop.body, None)
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)

    def ranged(loop: Any) -> Any:
        """Return a loop over a range of taps; unrolled loops inside get a second version for all taps, which can share loads."""
        axis, body = axes.get(loop.loop_var), loop.body
        if axis is None or is_unrolled(loop):
            return loop
        inner = [each for each in find_all(body, tirx.For) if each.loop_var in axes]
        if inner and all(map(is_unrolled, inner)):
            within = {axes[each.loop_var] for each in inner}
            all_taps = [bound for at in within for bound in (first[at] <= 0, end[at] >= problem.kernel[at])]
            some = with_own_loops(map_nodes(body, tirx.For, conditional))
            kept = with_own_loops(body)
            body = tirx.IfThenElse(tirx.all(*all_taps), kept, some)
        count = end[axis] - first[axis]
        return tirx.For(loop.loop_var, first[axis], count, loop.kind, body, annotations=loop.annotations)

    body = map_nodes(map_nodes(func.body, tirx.For, ranged), tirx.For, conditional)
    return tirx.PrimFunc([*func.params, *first, *end], body, func.ret_type, func.attrs), bool(axes)


def _tap_loops(func: tirx.PrimFunc, problem: Problem) -> dict[Any, int] | None:
    """Return the axis of each loop over taps, by its variable; None if some load of data is not within such a loop for some axis."""
    begin = 1 if problem.data_format == "NXC" else 2
    axes = [axis for axis, taps in enumerate(problem.kernel) if taps > 1]
    if problem.op != "convolution" or problem.is_quantized or not axes:
        return None
    loads = [each for each in find_all(func.body, TensorLoad) if each.source.name == PLACED]
    shuffled = find_all(func.body, tirx.Shuffle)  # many unrolled taps, whose conditions would cost more than the taps
    if not loads or shuffled or any(len(each.indices) != problem.rank + 2 for each in loads):
        return None
    loops = {
        loop.loop_var: axis
        for loop in find_all(func.body, tirx.For)
        for axis in axes
        if _is_over_taps(loop, problem.kernel[axis], problem.dilations[axis], begin + axis)
    }
    all_within = all(
        any(uses(load.indices[begin + axis], variable) for variable, at in loops.items() if at == axis)
        for load in loads
        for axis in axes
    )
    return loops if all_within else None


def _is_over_taps(loop: Any, taps: int, dilation: int, place: int) -> bool:
    """Return whether a loop runs over taps of one axis: only data's index on that axis and the filter's indices depend on it."""
    if not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) != taps or int(loop.min) != 0:
        return False
    variable, data, weights = loop.loop_var, 0, 0
    for store in find_all(loop.body, tirx.BufferStore):
        if any(uses(index, variable) for index in store.indices):
            return False
        for load in find_all(store.value, TensorLoad):
            used = [at for at, index in enumerate(load.indices) if uses(index, variable)]
            if load.source.name == PLACED:
                index = load.indices[place]
                moved = sym.Analyzer().simplify(substitute(index, {variable: variable + 1}) - index)
                if used != [place] or not isinstance(moved, tirx.IntImm) or int(moved) != dilation:
                    return False
                data += 1
            weights += load.source.name != PLACED and bool(used)
    return data > 0 and weights > 0
