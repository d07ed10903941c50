"""Rule: move a pointwise convolution before a resize, where there are fewer pixels.

A resize is a weighted sum of pixels, with weights that sum to 1 and are the same for each channel; a pointwise convolution is a weighted
sum of channels, the same for each pixel. So they commute, the bias included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.problem_of import DTYPES
from .costs import map_cycles, pass_cycles
from .maps import LinearMap
from .reading import filters, write_map

_METHODS = ("nearest_neighbor", "linear")
# Coordinate transformations by which outputs depend on pixels alone, not on values outside.
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class Resized:
    """A pointwise map, and a resize after it."""

    source: Any
    map: LinearMap
    resize: relax.Call

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        return "resized after its pointwise convolution, not before it"

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the source."""
        made = write_map(self.map, visit(self.source), emit, rows=False)
        return emit(relax.Call(self.resize.op, [made, *self.resize.args[1:]], self.resize.attrs, self.resize.ty_args))


def find_resized(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, Resized]]:
    """Yield the pointwise convolutions of a function that cost less before the resize that they follow."""
    for variable, level in filters(graph):
        call = graph.call(level.source)
        if call is None or not _is_linear(call) or len(graph.readers(level.source)) != 1:
            continue
        if not level.map.is_pointwise or set(level.map.strides) != {1} or call.args[0].ty.dtype != variable.ty.dtype:
            continue
        small, wide = static_shape(call.args[0].ty), static_shape(call.ty)
        if small is None or wide is None:
            continue
        dtype, outputs = DTYPES[str(variable.ty.dtype)], level.map.outputs
        before = map_cycles(level.map, wide, dtype, target) + _moving(small, wide, dtype, target)
        after = map_cycles(level.map, small, dtype, target)
        after += _moving((small[0], outputs, *small[2:]), (wide[0], outputs, *wide[2:]), dtype, target)
        if after < before:
            yield variable, Resized(call.args[0], level.map, call)


def _is_linear(call: relax.Call) -> bool:
    if not call.op.name.startswith("relax.image.resize") or not isinstance(call.args[0], relax.Var):
        return False
    attrs = call.attrs
    if str(attrs.method) not in _METHODS or str(attrs.coordinate_transformation_mode) not in _COORDINATES:
        return False
    return str(attrs.layout).startswith("NC")


def _moving(small: tuple[int, ...], wide: tuple[int, ...], dtype: str, target: CpuTarget) -> float:
    """Return the cost of a resize."""
    return pass_cycles(small, dtype, 1, target) + pass_cycles(wide, dtype, 1, target)
