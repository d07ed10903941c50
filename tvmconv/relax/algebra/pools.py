"""Rule: an average of what a pointwise convolution gives is the pointwise convolution of an average, of fewer pixels.

With pads that count as zeros, or that are there at all, an average of a bias is no longer the bias at the borders: so that is
only where the pool has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...targets.target import CpuTarget
from ..graph import Graph
from ..operators import AVERAGE_POOLS
from ..problems import DTYPES
from ..simplify import static_shape
from .costs import map_cycles, part_cycles, pass_cycles
from .maps import LinearMap
from .reading import POOLS, levels, written


@dataclass(frozen=True)
class Pooled:
    """A pool, and a pointwise map after it.

    Attributes
    ----------
    source
        What is pooled.
    map
        The map.
    pool
        The pool's call, of whose data the attributes do not speak.
    """

    source: Any
    map: LinearMap
    pool: relax.Call

    @property
    def said(self) -> str:
        """What was done."""
        return "averaged before its pointwise convolution, not after it"

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators on what stands for the source."""
        attrs, source = self.pool.attrs, visit(self.source)
        pooled = AVERAGE_POOLS[source.ty.ndim - 2](
            source, list(attrs.pool_size), list(attrs.strides), list(attrs.padding), list(attrs.dilation),
            bool(attrs.ceil_mode), bool(attrs.count_include_pad), str(attrs.layout), str(attrs.out_layout),
        )  # fmt: skip
        return written(self.map, emit(pooled), emit, rows=False)


def find_pooled(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, Pooled]]:
    """Give the pools of a function that cost less before the pointwise convolution that they come after."""
    for variable in graph.values:
        call = graph.call(variable)
        if call is None or call.op.name not in POOLS or str(call.attrs.layout).find("C") != 1:
            continue
        before, shape, dtype = call.args[0], static_shape(call.ty), DTYPES.get(str(call.ty.dtype))
        plain = not any(map(int, call.attrs.padding)) and not bool(call.attrs.ceil_mode)
        if not plain or shape is None or dtype is None or len(graph.readers(before)) != 1:
            continue
        reached = levels(before, graph, rows=False)[-1]
        if not reached.map.is_pointwise or set(reached.map.strides) != {1} or reached.map.is_diagonal:
            continue
        given = static_shape(reached.source.ty) or ()
        small = (given[0], given[1], *shape[2:])
        wide = static_shape(before.ty) or ()
        cost = sum(part_cycles(part, size, dtype, target) for part, size in reached.parts if not part.is_diagonal)
        cost += pass_cycles(wide, dtype, 1, target)
        if map_cycles(reached.map, small, dtype, target) + pass_cycles(given, dtype, 1, target) < cost:
            yield variable, Pooled(reached.source, reached.map, call)
