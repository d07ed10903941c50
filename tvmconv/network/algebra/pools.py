"""Rule: average before a pointwise convolution instead of after it, since it then has fewer pixels.

Only for pools without pads, with which the average of a bias would not be the bias at the borders. The mean of all pixels is such a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.operators import AVERAGE_POOLS
from ..ir.problem_of import DTYPES
from .costs import map_cycles, part_cycles, pass_cycles
from .maps import LinearMap
from .reading import POOLS, levels, write_map


@dataclass(frozen=True)
class Pooled:
    """A pool, and a pointwise map after it."""

    source: Any
    map: LinearMap
    pool: relax.Call

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        return "averaged before its pointwise convolution, not after it"

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the source."""
        attrs, source = self.pool.attrs, visit(self.source)
        if self.pool.op.name == "relax.mean":
            mean = relax.op.mean(source, [int(each) for each in attrs.axis], keepdims=True)
            made = write_map(self.map, emit(mean), emit, rows=False)
            return made if attrs.keepdims else emit(relax.op.reshape(made, static_shape(self.pool.ty)))
        pooled = AVERAGE_POOLS[source.ty.ndim - 2](
            source, list(attrs.pool_size), list(attrs.strides), list(attrs.padding), list(attrs.dilation),
            bool(attrs.ceil_mode), bool(attrs.count_include_pad), str(attrs.layout), str(attrs.out_layout),
        )  # fmt: skip
        return write_map(self.map, emit(pooled), emit, rows=False)


def find_pooled(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, Pooled]]:
    """Yield the pools of a function that cost less before the pointwise convolution that they follow."""
    for variable in graph.values:
        call = graph.call(variable)
        pixels = None if call is None else _pixels(call)
        if call is None or pixels is None:
            continue
        before, dtype = call.args[0], DTYPES.get(str(call.ty.dtype))
        if dtype is None or len(graph.readers(before)) != 1:
            continue
        reached = levels(before, graph, rows=False)[-1]
        if not reached.map.is_pointwise or set(reached.map.strides) != {1} or reached.map.is_diagonal:
            continue
        given = static_shape(reached.source.ty) or ()
        small = (given[0], given[1], *pixels)
        wide = static_shape(before.ty) or ()
        cost = sum(part_cycles(part, size, dtype, target) for part, size in reached.parts if not part.is_diagonal)
        cost += pass_cycles(wide, dtype, 1, target)
        if map_cycles(reached.map, small, dtype, target) + pass_cycles(given, dtype, 1, target) < cost:
            yield variable, Pooled(reached.source, reached.map, call)


def _pixels(call: relax.Call) -> tuple[int, ...] | None:
    """Return an average's output pixels along each axis; None for other calls, and pools with pads."""
    given, made = static_shape(call.args[0].ty) if call.args else None, static_shape(call.ty)
    if given is None or made is None or not isinstance(call.args[0], relax.Var) or not 3 <= len(given) <= 5:
        return None
    if call.op.name == "relax.mean":
        axes = {int(each) % len(given) for each in call.attrs.axis or ()}
        return (1,) * (len(given) - 2) if axes == {*range(2, len(given))} else None
    if call.op.name not in POOLS or str(call.attrs.layout).find("C") != 1:
        return None
    return None if any(map(int, call.attrs.padding)) or bool(call.attrs.ceil_mode) else made[2:]
