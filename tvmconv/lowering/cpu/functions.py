"""Functions of a kernel's library: one for plain filters and, if the filter is packed, its two halves, packing and the rest."""

from __future__ import annotations

import tvm
from tvm import tirx

from ...algorithms.definition import Definition
from ...algorithms.types import KERNEL_DTYPES
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ..common.arguments import bind_arguments, kernel_arguments, stored_in, view
from ..common.entry_points import SYMBOL, EntryPoints
from .images import image_function
from .packing import Halves


def kernel_functions(
    func: tirx.PrimFunc, definition: Definition, halves: Halves | None, entry_points: EntryPoints
) -> dict[str, tirx.PrimFunc]:
    """Return a kernel's functions by their symbols.

    Without ``PLAIN`` among the entry points, there is no SYMBOL beside PACKED_SYMBOL.
    """
    if definition.images is not None:
        functions = {PACKED_SYMBOL if halves else SYMBOL: image_function(func, definition, halves)}
        if halves:
            functions[PACK_SYMBOL] = _pack(func, definition, halves)
    elif halves is None:
        functions = {SYMBOL: bind_arguments(func, definition, KERNEL_DTYPES)}
    else:
        functions = {
            PACK_SYMBOL: _pack(func, definition, halves),
            PACKED_SYMBOL: _packed_function(func, definition, halves),
        }
        if EntryPoints.PLAIN in entry_points:
            functions[SYMBOL] = _both(func, definition, halves)
    return {symbol: function.with_attr("global_symbol", symbol) for symbol, function in functions.items()}


def functions_of(module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """Return a module's functions by name."""
    return {variable.name_hint: function for variable, function in module.functions.items()}


def _pack(func: tirx.PrimFunc, definition: Definition, halves: Halves) -> tirx.PrimFunc:
    """Return the function that packs a filter: ``(filter, packed)``."""
    filter_, packed = kernel_arguments(definition.problem, KERNEL_DTYPES)["filter"], halves.packed()
    statements = tirx.SeqStmt([view(func.params[1], filter_), *halves.views(packed), *halves.pack])
    return tirx.PrimFunc([filter_, packed], statements, func.ret_type, func.attrs)


def _packed_function(func: tirx.PrimFunc, definition: Definition, halves: Halves) -> tirx.PrimFunc:
    """Return the function of operands and output, with `packed` in place of the filter."""
    data, _, *rest, output = kernel_arguments(definition.problem, KERNEL_DTYPES).values()
    data_, _, *rest_ = list(func.params)[: len(definition.problem.operands)]
    packed = halves.packed()
    views = [view(old, new) for old, new in zip(rest_, rest, strict=True)]
    body = [view(data_, data), *halves.views(packed), *views, *stored_in(halves.rest, func, definition, output)]
    return tirx.PrimFunc([data, packed, *rest, output], tirx.SeqStmt(body), func.ret_type, func.attrs)


def _both(func: tirx.PrimFunc, definition: Definition, halves: Halves) -> tirx.PrimFunc:
    """Return the function of operands and output that calls the two others."""
    data, filter_, *rest = kernel_arguments(definition.problem, KERNEL_DTYPES).values()
    packed = halves.packed()
    calls = (PACK_SYMBOL, filter_, packed), (PACKED_SYMBOL, data, packed, *rest)
    body = tirx.SeqStmt([tirx.AllocBuffer(packed), *(tirx.Evaluate(tirx.call_cpacked(*call)) for call in calls)])
    return tirx.PrimFunc([data, filter_, *rest], body, func.ret_type, func.attrs)
