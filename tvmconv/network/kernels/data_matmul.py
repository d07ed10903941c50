"""Products of two data tensors, as convolutions with one tap whose filter is packed in each call.

`left[rows, depth] @ right[depth, columns]` is, without copies, a channels-first convolution: `right` is the data, of `depth` channels and
`columns` pixels, `left` the filter. A batch of products becomes groups. Without a batch, it is also a channels-last convolution with
`left` as data; the smaller operand is the filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax

from ...errors import InvalidProblemError
from ...problem import Problem
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.problem_of import DTYPES, pointwise
from .fuse_epilogue import Followed, Taken, follow_steps

Shape = tuple[int, ...]


@dataclass(kw_only=True)
class DataProduct(Followed):
    """A product of two data tensors, one of which is the kernel's plain filter, and its fused operators."""

    filter: Any


def data_product(variable: relax.Var, graph: Graph, taken: Taken) -> DataProduct | None:
    """Return the product of two tensors that a variable is bound to, with fused operators; None if no kernel computes it."""
    call = graph.call(variable, "relax.matmul")
    if call is None or any(graph.array(each) is not None for each in call.args):
        return None
    left, right, made = (static_shape(each.ty) for each in (*call.args, call))
    types = {str(each.ty.dtype) for each in (*call.args, call)}
    if (
        not left
        or not right
        or not made
        or len(types) > 1
        or not types <= set(DTYPES)
        or min(len(left), len(right)) < 2
    ):
        return None
    try:
        problem = _problem(left, right, prod(made[:-2]), DTYPES[types.pop()])
    except InvalidProblemError:
        return None  # too large for 32-bit indices
    if problem is None:
        return None
    data, filter_ = call.args if problem.data_format == "NXC" else reversed(call.args)
    found = DataProduct(name=variable.name, data=data, problem=problem, output=variable, filter=filter_)
    follow_steps(found, graph, taken)
    return found


def _problem(left: Shape, right: Shape, batch: int, dtype: str) -> Problem | None:
    (*batches, rows, depth), (*others, columns) = left, (*right[:-2], right[-1])
    count, other = prod(batches), prod(others)
    if 0 in (*left, *right):
        return None
    if other == 1:
        rows *= count
        if columns <= rows:
            return pointwise(depth, columns, rows, dtype)
        return pointwise(depth, rows, columns, dtype, "NCX")
    if count == 1:
        return pointwise(depth, rows, columns, dtype, "NCX", batch=other)
    # Batches broadcast along some of their axes are left to TVM.
    return pointwise(depth, rows, columns, dtype, "NCX", groups=count) if count == other == batch else None
