"""Attention: products of queries and keys, softmax, and products with values, as one call of a C function
(`tvmconv/lowering/native/operators/attention.c`) that keeps no scores in memory.

Frontends write it as several operators, matched backwards from the last product: the axes of heads may be anywhere, and queries, keys,
values and the result are accessed by strides, which removes the operators that move them. The function also applies a factor of
queries, keys or scores; masks are added to scores or select them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import mutator

from ...lowering.cpu.linker import WHOLE_ALONE, compile_beside, compile_operators
from ...targets.target import CpuTarget
from ..ir.constants import constant
from ..ir.free import dims_of
from ..ir.graph import Graph
from ..ir.mutator import GraphMutator, each_function, tidy
from ..ir.number_table import number_table
from ..ir.stand_ins import StandIn, expression_of
from ..ir.views import FLOATS, Axis, Row, View, align, dense, joined_rows, merge_rows, moved_by, sources, whole
from .attention_scores import BESIDE, MASKS, MATMUL, MOVES, SCORES, TYPES, Mask, Scores, shares_of

FUNCTION = "tvmconv_network_attention"
_BATCH_AXES = 4
_MASK_NUMBERS = 6 + _BATCH_AXES  # a mask's offset, strides, type, kind and fill
_OPERANDS = 4 + MASKS  # queries, keys, values and the scale
# Names of arrays with strides; the product is the last one.
_PRODUCT = "product"
_QUERIES, _KEYS, _VALUES, _OUTPUT, _SCALE = "queries", "keys", "values", "output", "scale"


@dataclass(frozen=True)
class _Found:
    """A matched attention: the C function's arguments, and the variable that it computes."""

    output: relax.Var
    operands: tuple[Any, ...]
    numbers: tuple[int, ...]
    scores: relax.Call


def products_of_attention(graph: Graph) -> set[relax.Var]:
    """Return the products of a function that are part of an attention."""
    found = {variable: each for variable in graph.values if (each := _find(variable, graph)) is not None}
    scores = [each.scores for each in found.values()]
    return {*found, *(each for each, value in graph.values.items() if any(value.same_as(of) for of in scores))}


def prepare_attention(mod: tvm.IRModule, target: CpuTarget, dtype: str | None) -> None:
    """Compile the C file in a thread if a module, to be compiled for a type, has any attention: that takes two seconds."""
    functions = [each for _, each in mod.functions_items() if isinstance(each, relax.Function)]
    if any(products_of_attention(Graph(each)) for each in functions):
        types = {dtype, *(str(getattr(each.ty, "dtype", "")) for function in functions for each in function.params)}
        flags = () if types & {"bf16", "bfloat16"} else WHOLE_ALONE
        compile_beside(lambda: compile_operators("attention", target, flags=flags))


def with_attention(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which attention of f32 or bf16 is a call of the C function."""
    return tidy(each_function(tidy(mod), _Attending, with_bindings=True))


@mutator
class _Attending(GraphMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod, function)
        found = (_find(each, self._graph) for each in self._graph.values)
        self._found = {each.output: each for each in found if each is not None}

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the call that computes the output of an attention."""
        found = self._found.get(binding.var)
        if found is None:
            return None
        arrays = [self._bits(self.visit_expr(each)) for each in found.operands]
        arrays += arrays[:1] * (_OPERANDS - len(arrays))
        shape, dtype = list(dims_of(found.output.ty) or ()), str(found.output.ty.dtype)
        kept = "uint16" if dtype == "bfloat16" else dtype
        numbers = self._table([expression_of(each) for each in found.numbers])
        made = self.builder_.call_te(_call, numbers, *arrays, shape, kept, primfunc_name_hint="attention")
        return made if kept == dtype else relax.op.memory.view(self.builder_.emit(made), shape, dtype)

    def _table(self, numbers: Sequence[Any]) -> relax.Expr:
        """Return the function's table of numbers: a constant, or computed from a call's extents."""
        if all(isinstance(each, int) for each in numbers):
            return relax.const(np.array(numbers, np.int64), "int64")
        return number_table(self.builder_, numbers, "int64", [len(numbers)])

    def _bits(self, expr: relax.Expr) -> relax.Expr:
        """Return a tensor, bf16 as its bits."""
        if str(expr.ty.dtype) != "bfloat16":
            return expr
        array = constant(expr)
        if array is not None:
            return relax.const(array.view(np.uint16), "uint16")
        return self.builder_.emit(relax.op.memory.view(expr, dims_of(expr.ty), "uint16"))


def _call(*given: Any) -> te.Tensor:
    *arrays, shape, dtype = given

    def body(read: Any, written: Any) -> Any:
        failed = tirx.call_extern("int32", FUNCTION, *(each.data for each in (*read, *written))) != 0
        return tirx.IfThenElse(failed, tirx.Evaluate(tirx.tvm_throw_last_error()), None)

    return te.extern([shape], arrays, body, dtype=dtype, name="attention")


def _find(variable: relax.Var, graph: Graph) -> _Found | None:
    """Return the attention whose last product a variable is bound to; None if there is none."""
    call = graph.call(variable, MATMUL)
    if call is None or str(call.ty.dtype) not in FLOATS or not graph.shape(call):
        return None
    for place in (0, 1):
        shares = shares_of(call.args[place], graph)
        if shares is not None:
            for output, view in _destinations(variable, graph):
                found = _attention(call, place, shares, output, view, graph)
                if found is not None:
                    return found
    return None


def _destinations(variable: relax.Var, graph: Graph) -> list[tuple[relax.Var, View]]:
    """Return the variables that only move a product, the last first, and then the product, each with its view of it."""
    view, chain = whole(variable, graph), []
    while view is not None:
        chain.append((variable, view))
        readers = graph.readers(variable)
        if len(readers) != 1 or readers[0] is None:
            break
        variable, call = readers[0], graph.call(readers[0])
        view = moved_by(call, view, graph) if call is not None and call.op.name in MOVES else None
    return chain[::-1]


def _attention(
    product: relax.Call, place: int, shares: Scores, output: relax.Var, made: View, graph: Graph
) -> _Found | None:
    """Return the attention that ends with a product, whose argument `place` is the softmax; `output` is the result."""
    first, view, shape = shares.product, shares.view, graph.shape(product) or ()
    *_, rows, columns = graph.shape(first) or ()
    keys_second = columns > 1 and shares.keys[1] == 1  # keys are the columns of the first product
    query_axis, key_axis = _axis(rows, columns), _axis(columns, 1)
    if not keys_second:
        query_axis, key_axis = key_axis, query_axis
    ends = (query_axis, key_axis) if place == 0 else (key_axis, query_axis)
    if (shares.keys,) != key_axis or view.axes[-2:] != ends or view.shape[:-2] != shape[:-2]:
        return None
    queries = _operand(_QUERIES, first, int(not keys_second), query_axis, graph)
    keys = _operand(_KEYS, first, int(keys_second), key_axis, graph)
    values = _operand(_VALUES, product, 1 - place, key_axis, graph, view.axes)
    if queries is None or keys is None or values is None:
        return None
    written = _write(shape, place, view, query_axis, made)
    if written is None:
        return None
    relations = [queries.rows, keys.rows, values.rows, written[0]]
    relations += [_name(mask.rows, f"mask{number}") for number, mask in enumerate(shares.masks)]
    relations += [_name(shares.scale[1], _SCALE)] if shares.scale is not None else []
    joined = joined_rows(relations, SCORES)
    if joined is None:
        return None
    loops = _loops(joined, _span(query_axis), _span(key_axis))
    if loops is None or loops.query.get(_SCALE) or loops.key.get(_SCALE):
        return None
    factor = shares.factor * queries.view.factor * keys.view.factor
    scale = View(relax.const(np.ones(1, np.float32)), 0, ()) if shares.scale is None else shares.scale[0]
    masks = [_mask(mask, f"mask{number}", loops) for number, mask in enumerate(shares.masks)]
    numbers = [
        *loops.extents(),
        queries.size,
        values.size,
        *_place(queries.view, loops.of_batch(_QUERIES), loops.query.get(_QUERIES, 0), queries.column),
        *_place(keys.view, loops.of_batch(_KEYS), loops.key.get(_KEYS, 0), keys.column),
        *_place(values.view, loops.of_batch(_VALUES), loops.key.get(_VALUES, 0), values.column),
        *_place(View(output, 0, ()), loops.of_batch(_OUTPUT), loops.query.get(_OUTPUT, 0), written[1]),
        *_place(scale, loops.of_batch(_SCALE), 0, 0),
        _bits(factor),
        *(number for _, each in masks for number in each),
        *[0] * (_MASK_NUMBERS * (MASKS - len(masks))),
        int(shares.empty_is_zero),
    ]
    operands = (queries.view.base, keys.view.base, values.view.base, scale.base, *(array for array, _ in masks))
    return _Found(output, operands, tuple(numbers), first)


@dataclass(frozen=True)
class _AttentionLoops:
    """Loops of the C function: over the batch's axes, queries and keys, each with its stride in every array, by name."""

    batch: list[Row]
    query_count: int
    query: Mapping[str, int]
    key_count: int
    key: Mapping[str, int]

    def extents(self) -> list[int]:
        """Return the loops' extents, with 1 for absent batch axes."""
        absent = [1] * (_BATCH_AXES - len(self.batch))
        return [*absent, *(extent for extent, _ in self.batch), self.query_count, self.key_count]

    def of_batch(self, name: str) -> list[int]:
        """Return an array's strides along the batch's axes."""
        return [strides.get(name, 0) for _, strides in self.batch]


def _loops(joined: Sequence[Row], query_span: range, key_span: range) -> _AttentionLoops | None:
    """Return the loops over rows of all arrays, told apart by the scores' strides; None if queries or keys need several loops."""
    of_queries, of_keys = ([row for row in joined if int(row[1][SCORES]) in span] for span in (query_span, key_span))
    batch = merge_rows(row for row in joined if row not in of_queries and row not in of_keys)
    of_queries, of_keys = merge_rows(of_queries), merge_rows(of_keys)
    if len(of_queries) > 1 or len(of_keys) > 1 or len(batch) > _BATCH_AXES:
        return None
    queries, keys = ([*rows, (1, {})][0] for rows in (of_queries, of_keys))
    return _AttentionLoops(batch, *queries, *keys)


def _place(array: View, batch: Sequence[int], row: int, column: int) -> list[int]:
    """Return a tensor's entries in the function's table: its offset, strides and type."""
    absent = [0] * (_BATCH_AXES - len(batch))
    return [array.offset, *absent, *batch, row, column, TYPES[str(array.base.ty.dtype)]]


def _mask(mask: Mask, name: str, loops: _AttentionLoops) -> tuple[Any, list[int]]:
    """Return a mask's array, and its entries in the function's table."""
    rows = [*loops.batch, (loops.key_count, loops.key), (loops.query_count, loops.query)]
    view, strides = _by_queries(mask.view, name, rows)
    *batch, row_of_keys, row_of_queries = strides
    return view.base, [*_place(view, batch, row_of_queries, row_of_keys), mask.kind, _bits(mask.fill)]


@dataclass(frozen=True)
class _Operand:
    """Queries, keys or values: a product's operand with its strides beside the scores', and size and stride of its own axis."""

    view: View
    rows: list[Row]
    size: int
    column: int


def _operand(
    name: str, product: relax.Call, place: int, axis: Axis, graph: Graph, scores: tuple[Axis, ...] | None = None
) -> _Operand | None:
    """Return an operand of a product.

    Parameters
    ----------
    place
        The operand's position among the product's arguments.
    axis
        The axis of its queries or keys, in the scores' strides.
    scores
        The axes of the product, in the scores' strides; absent: the product computes the scores.
    """
    shape = graph.shape(product) or ()
    batch = (dense(shape) if scores is None else scores)[:-2]
    # The sum of scores runs over columns of the first operand and rows of the second; that of the second product over the keys.
    own = -2 if (place == 0) == (scores is None) else -1
    for view in sources(product.args[place], graph, scaled=scores is None):
        given = ((),) * (len(shape) - len(view.axes)) + view.axes
        if len(given[own]) > 1 or len(given[-3 - own]) > 1 or str(view.base.ty.dtype) not in FLOATS:
            continue
        pairs = [*zip(batch, given[:-2], strict=True), (axis, given[own])]
        rows = [align({SCORES: score, name: strides}) for score, strides in pairs]
        other = given[-3 - own]
        if all(row is not None for row in rows):
            flat = [row for each in rows for row in each or ()]
            return _Operand(view, flat, other[0][0] if other else 1, other[0][1] if other else 1)
    return None


def _write(
    shape: Sequence[int], place: int, scores: View, query_axis: Axis, made: View
) -> tuple[list[Row], int] | None:
    """Return the output's strides beside the scores', and its stride along the width; None if these are no strides."""
    axes = dense(shape)
    of_queries, of_width = (axes[-2], axes[-1]) if place == 0 else (axes[-1], axes[-2])
    pairs = [*zip(axes[:-2], scores.axes[:-2], strict=True), (of_queries, query_axis)]
    rows = [align({_PRODUCT: axis, SCORES: score}) for axis, score in pairs]
    rows.append([(extent, {_PRODUCT: stride}) for extent, stride in of_width])
    there = zip(made.axes, dense(made.shape), strict=True)
    moved = [align({_PRODUCT: axis, _OUTPUT: own}) for axis, own in there]
    if any(each is None for each in (*rows, *moved)):
        return None
    joined = joined_rows([[row for each in part for row in each or ()] for part in (rows, moved)], _PRODUCT)
    if joined is None:
        return None
    width = merge_rows((extent, {_OUTPUT: row[_OUTPUT]}) for extent, row in joined if SCORES not in row)
    if len(width) > 1:
        return None
    rest: list[Row] = [
        (extent, {SCORES: row[SCORES], _OUTPUT: row[_OUTPUT]}) for extent, row in joined if SCORES in row
    ]
    return rest, width[0][1][_OUTPUT] if width else 1


def _name(rows: Sequence[Row], name: str) -> list[Row]:
    """Return rows with a name for the tensor beside the scores."""
    return [(extent, {SCORES: strides[SCORES], name: strides[BESIDE]}) for extent, strides in rows]


def _by_queries(mask: View, name: str, rows: Sequence[Row]) -> tuple[View, list[int]]:
    """Return a mask, a constant one with queries innermost, which the function reads fastest, and its stride for each row."""
    strides, array = [row.get(name, 0) for _, row in rows], constant(mask.base)
    free = any(isinstance(each, StandIn) for each in (*strides, *(extent for extent, _ in rows)))
    if array is None or free or not strides[-1] or not strides[-2]:
        return mask, strides
    array = np.ascontiguousarray(array if array.dtype == bool else array.astype(np.float32)).reshape(-1)[mask.offset :]
    kept = [(extent, stride) for (extent, _), stride in zip(rows, strides, strict=True) if stride]
    steps = [stride * array.itemsize for _, stride in kept]
    made = np.lib.stride_tricks.as_strided(array, [extent for extent, _ in kept], steps).copy()
    own = iter(each // made.itemsize for each in made.strides)
    dtype = "bool" if made.dtype == bool else "float32"
    return View(relax.const(made, dtype), 0, ()), [next(own) if stride else 0 for stride in strides]


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


def _axis(extent: int, stride: int) -> Axis:
    return ((extent, stride),) if extent > 1 else ()


def _span(axis: Axis) -> range:
    """Return the range of strides within an axis."""
    return range(int(axis[0][1]), int(axis[0][0] * axis[0][1])) if axis else range(0)
