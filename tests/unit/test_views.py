"""Views of tensors as factors of extents and strides, beside NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
from tvm import relax

from tests.relax_modules import relax_module
from tvmconv.network.ir.graph import Graph
from tvmconv.network.ir.views import View, align, joined_rows, merge_rows, sources

SHAPE = (2, 12, 3, 10)


def elements(view: View, array: Any) -> Any:
    """Return what a view has of the elements of an array."""
    factors = [factor for axis in view.axes for factor in axis]
    at = np.full((), view.offset)
    for extent, stride in factors:
        at = at[..., None] + np.arange(extent) * stride
    return array.reshape(-1)[at].reshape(view.shape) * view.factor


def moved(x: Any, emit: Any) -> Any:
    """Heads become part of the batch, and every second is taken."""
    x = emit(relax.op.permute_dims(emit(relax.op.reshape(x, (2, 4, 3, 3, 10))), (0, 3, 1, 4, 2)))
    x = emit(relax.op.multiply(emit(relax.op.reshape(x, (6, 4, 30))), relax.const(0.5, "float32")))
    return relax.op.strided_slice(x, [0, 1], [3, 1], [6, 4], [1, 2])


def parts(x: Any, emit: Any) -> Any:
    x = emit(relax.op.split(emit(relax.op.permute_dims(x, (3, 1, 0, 2))), [4, 9], 0))
    return relax.op.repeat(emit(relax.op.take(emit(relax.TupleGetItem(x, 1)), relax.const(3, "int64"), 1)), 2, 1)


def by_numpy(name: str, x: Any) -> Any:
    if name == "moved":
        made = x.reshape(2, 4, 3, 3, 10).transpose(0, 3, 1, 4, 2).reshape(6, 4, 30) * 0.5
        return made[3:6, 1:4:2]
    return x.transpose(3, 1, 0, 2)[4:9, 3].repeat(2, 1)


@pytest.mark.parametrize("make", [moved, parts])
def test_views_are_what_operators_move(make: Any) -> None:
    module = relax_module(lambda builder, x: make(x, builder.emit), [SHAPE])
    graph = Graph(module["main"])
    x = module["main"].params[0]
    array = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    found = [each for each in sources(list(graph.values)[-1], graph, scaled=True) if each.base.same_as(x)]
    assert found
    np.testing.assert_array_equal(elements(found[0], array), by_numpy(make.__name__, array))
    assert not any(each.factor != 1 for each in sources(list(graph.values)[-1], graph))


def test_what_is_cut_unevenly_is_no_view() -> None:
    def make(builder: Any, x: Any) -> Any:
        return relax.op.reshape(builder.emit(relax.op.permute_dims(x, (0, 2, 1, 3))), (2, 8, 45))

    graph = Graph(relax_module(make, [SHAPE])["main"])
    turned, made = list(graph.values)[:2]
    assert [each.base.same_as(base) for each, base in zip(sources(made, graph), (turned, made), strict=True)] == [
        True
    ] * 2
    assert align({"a": ((4, 6), (6, 1)), "b": ((6, 4), (4, 1))}) is None
    assert align({"a": ((4, 6), (6, 1)), "b": ((4, 1),)}) is None


def test_rows_are_joined_where_they_meet() -> None:
    first = align({"a": ((2, 12), (12, 1)), "b": ((2, 1), (12, 2))})
    second = align({"a": ((24, 1),), "c": ((4, 0), (6, 5))})
    assert first is not None and second is not None
    joined = joined_rows([first, second], "a")
    assert joined == [
        (2, {"a": 12, "b": 1, "c": 0}),
        (2, {"a": 6, "b": 12, "c": 0}),
        (6, {"a": 1, "b": 2, "c": 5}),
    ]
    assert merge_rows([(extent, {"c": strides["c"]}) for extent, strides in joined]) == [(4, {"c": 0}), (6, {"c": 5})]
    assert joined_rows([[(24, {"a": 1})], [(4, {"a": 7})]], "a") is None
