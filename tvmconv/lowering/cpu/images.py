"""Functions of blocks' kernels, whose data and output may be parts of larger images.

A function takes data and output as flat arrays from the block's first element on, and, last, the extents of the images of data and output,
from which strides are computed. An array for which that is not possible, because its axes were merged or a rewrite needs static strides,
is a contiguous image of the block's own size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm_ffi.structural import structural_map

from ...algorithms.definition import Definition, StoreIndex
from ...algorithms.flatten import flatten
from ...algorithms.types import KERNEL_DTYPES
from ...checks import LARGEST
from ...dtypes import DTYPE_BYTES
from ...errors import RewriteError
from ...problem import Problem
from ..common.arguments import kernel_arguments, move_stores, view
from ..common.rewrites import substitute
from .packing import Halves

DATA, OUTPUT = "data", "output"
PLACED = "data_placed"  # data in place in an image


def image_function(func: tirx.PrimFunc, definition: Definition, halves: Halves | None) -> tirx.PrimFunc:
    """Return a block's function, which takes a packed filter if the kernel has `halves`.

    Raises
    ------
    RewriteError
        If an array that `definition.images` names cannot be part of an image.
    """
    problem, images = definition.problem, definition.images or frozenset()
    _, filter_, *rest, _ = kernel_arguments(problem, KERNEL_DTYPES).values()
    data_, own_filter, *rest_ = list(func.params)[: len(problem.operands)]
    data, output = (_row_of_elements(problem, name) for name in (DATA, OUTPUT))
    extents = {name: [tirx.Var(f"{name}{axis}", "int32") for axis in range(problem.rank)] for name in (DATA, OUTPUT)}
    packed = halves.packed() if halves else filter_
    statements = list(halves.rest) if halves else [func.body]
    if DATA in images:
        placed = _place(data_, problem, extents[DATA])
        statements = [
            structural_map(each, (TensorLoad, lambda load: _from(load, data_, placed))) for each in statements
        ]
        data_ = placed
    stores = (
        [_in_image(each, window, problem, extents[OUTPUT]) for each, window in _windows(definition)]
        if OUTPUT in images
        else definition.outputs
    )
    views = [view(data_, data), *(halves.views(packed) if halves else [view(own_filter, packed)])]
    views += [view(old, new) for old, new in zip(rest_, rest, strict=True)]
    body = [*views, *move_stores(statements, func, definition, stores, output)]
    parameters = [data, packed, *rest, output, *extents[DATA], *extents[OUTPUT]]
    return tirx.PrimFunc(parameters, tirx.SeqStmt(body), func.ret_type, func.attrs)


def _row_of_elements(problem: Problem, name: str) -> Any:
    """Return a flat argument of unknown length."""
    dtype = problem.types.data if name == DATA else problem.types.output
    return tirx.decl_buffer((LARGEST,), KERNEL_DTYPES[dtype], name, data_alignment=DTYPE_BYTES[dtype])


def _place(old: Any, problem: Problem, extents: Sequence[Any]) -> Any:
    """Return a buffer shaped like `old`, a block's data, with the strides of an image of some extents."""
    shape, wanted = list(problem.data_shape), [int(extent) for extent in old.shape]
    if prod(shape) != prod(wanted) or old.dtype != KERNEL_DTYPES[problem.types.data]:
        raise RewriteError("an element of data is several elements of the image's")
    # Stride of each axis of data: a number of elements, and the spatial axes whose extents it is multiplied by.
    channels, first = problem.in_channels, 1 if problem.data_format == "NXC" else 2
    apart: list[tuple[int, range]] = []
    for axis in range(len(shape)):
        if problem.data_format == "NXC":
            apart.append(
                (1, range(0)) if axis == len(shape) - 1 else (channels, range(max(axis - first + 1, 0), problem.rank))
            )
        else:
            apart.append((channels if axis == 0 else 1, range(max(axis - first + 1, 0), problem.rank)))
    strides, axes = [], list(zip(shape, apart, strict=True))
    for extent in wanted:
        taken: list[Any] = []
        while axes and prod(each for each, _ in taken) < extent:
            taken.append(axes.pop(0))
        if prod(each for each, _ in taken) != extent:
            raise RewriteError("an axis of data is a part of one of the image's")
        longer = [each for each in taken if each[0] > 1] or taken[-1:]
        for (_, (outer, by)), (count, (inner, within)) in pairwise(longer):
            if outer != count * inner or by != within:
                raise RewriteError("an axis of data is several of the image's")
        elements, by = longer[-1][1] if longer else (1, range(0))
        strides.append(prod((extents[axis] for axis in by), start=tirx.const(elements, "int32")))
    return tirx.decl_buffer(wanted, old.dtype, PLACED, strides=strides, data_alignment=DTYPE_BYTES[problem.types.data])


def _from(load: TensorLoad, old: Any, new: Any) -> Any:
    return tirx.BufferLoad(new, load.indices) if load.source.same_as(old) else load


def _windows(definition: Definition) -> list[tuple[StoreIndex, Any]]:
    """Return the store index of each output, and its window."""
    windows = [getattr(each, "__self__", None) for each in definition.outputs]
    return list(zip(definition.outputs, windows, strict=True))


def _in_image(store_index: StoreIndex, window: Any, problem: Problem, extents: Sequence[Any]) -> StoreIndex:
    """Return a window's store index for an output in place in an image of some extents."""
    flat, axes = flatten(problem), list(getattr(window, "axes", ()))
    stored = [axis.store_extent for axis in axes]
    # The window may have an additional axis with one element at each end, and lack the image's first axes, along which the block has one.
    missing = problem.rank - flat.rank
    first = 1 if len(axes) > flat.rank and len(axes) == 3 else 0
    own = slice(first, first + flat.rank)
    alike = (
        problem.out_spatial == (1,) * missing + tuple(stored[own])
        and flat.data_format == problem.data_format
        and flat.batch == 1
    )
    if not alike or not is_dataclass(window):
        raise RewriteError("axes of the output are not the image's")
    placed = [prod(extents[: missing + 1], start=tirx.const(1, "int32")), *extents[missing + 1 :]]
    axes[own] = [replace(axis, store_extent=extent) for axis, extent in zip(axes[own], placed, strict=True)]
    moved = getattr(replace(window, axes=tuple(axes)), store_index.__name__)  # type: ignore[type-var]
    static = dict(zip(extents, problem.out_spatial, strict=True))

    def at(indices: list[Any]) -> tuple[Any, Any]:
        offset, inside = store_index(indices)
        there, _ = moved(indices)
        if not sym.Analyzer().can_prove_equal(substitute(there, static), offset):
            raise RewriteError("places in the output do not match an image's axes")
        return there, inside

    return at
