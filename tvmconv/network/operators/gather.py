"""Gathers with clamped indices; by constant indices along the last axis, contiguous elements are copied together.

Readers write reflected, repeated and circular paddings, rolls and some slices as such gathers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx, topi

from ..ir.constants import constant, static_shape
from .elementwise import INJECTIVE

# Contiguous elements that make a part of a row of their own, and the most parts, each of which has its own code.
_LEAST_RUN, _MOST_PARTS = 16, 8
# Begin of a part of a row, and its first index with the step to the next; None: the indices are in a table.
Part = tuple[int, tuple[int, int] | None]


def take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a gather that stays within its data for all indices.

    Frontends leave the mode `fast`, which reads beyond the data, and of which TVM warns for each operator.
    """
    # FuseOps recognises a gather as injective only if it reads no index from memory.
    attributes = {"primfunc_name_hint": "take", "primfunc_attrs": {"op_pattern": INJECTIVE}}
    mode = "clip" if call.attrs.mode == "fast" else call.attrs.mode
    shape, indices = static_shape(call.args[0].ty), constant(call.args[1])
    last = call.attrs.axis is not None and shape and int(call.attrs.axis) % len(shape) == len(shape) - 1
    if last and shape and indices is not None and indices.ndim == 1 and mode == "clip":
        places = np.clip(indices, 0, shape[-1] - 1)
        parts = parts_of(places)
        if parts:
            table = relax.const(places.astype(np.int32), "int32")
            return builder.call_te(_by_parts, call.args[0], table, parts, **attributes)
    return builder.call_te(topi.take, *call.args, call.attrs.axis, mode=mode, **attributes)


def parts_of(places: npt.NDArray[Any]) -> list[Part]:
    """Return the parts of a row, if there are few and one has contiguous elements, forwards or backwards; else nothing."""
    parts: list[Part] = []
    steps = np.diff(places).tolist()
    begin = 0
    while begin < len(places):
        end = begin + 1
        while end < len(places) and steps[end - 1] == steps[begin]:
            end += 1
        alone = end - begin < _LEAST_RUN or abs(steps[begin]) != 1
        if not alone:
            parts.append((begin, (int(places[begin]), steps[begin])))
        elif not parts or parts[-1][1] is not None:
            parts.append((begin, None))
        begin = begin + 1 if alone else end
    return parts if len(parts) <= _MOST_PARTS and any(run is not None for _, run in parts) else []


def _by_parts(data: te.Tensor, table: te.Tensor, parts: list[Part]) -> te.Tensor:
    ends = [*(begin for begin, _ in parts[1:]), None]

    def element(*at: Any) -> Any:
        *outer, column = at
        value = None
        for (begin, run), end in reversed(list(zip(parts, ends, strict=True))):
            place = table(column) if run is None else run[0] + (column - begin) * run[1]
            one = data(*outer, place)
            value = one if end is None else tirx.if_then_else(column < end, one, value)
        return value

    return te.compute([*data.shape[:-1], table.shape[0]], element, "take")


OPERATORS = {"relax.take": take}
