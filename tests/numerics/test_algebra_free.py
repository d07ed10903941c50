"""Filters are joined where extents are free, too, if that is right at all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytest.importorskip("torch")
import tvm
from linear_graphs import agree
from relax_modules import relax_module
from tvm import relax, tirx

from tvmconv.network.algebra import join_filters
from tvmconv.network.algebra.reading import make_constant
from tvmconv.network.algebra.rules import fix_extents
from tvmconv.network.ir.free import number_of, symbols_in
from tvmconv.targets.target import Target

op = relax.op
TYPICAL = {"h": 64, "w": 96}
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return make_constant(RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), "float32")


def branches(emit: Callable[[Any], Any], data: Any) -> Any:
    wide = emit(op.nn.conv2d(data, numbers(16, 16, 3, 3), padding=(1, 1)))
    narrow = emit(op.nn.conv2d(data, numbers(16, 16, 1, 1)))
    return op.add(emit(op.add(wide, narrow)), data)


def chain(emit: Callable[[Any], Any], data: Any) -> Any:
    return op.nn.conv2d(emit(op.nn.conv2d(data, numbers(64, 16, 1, 1))), numbers(16, 64, 1, 1))


def resized(emit: Callable[[Any], Any], small: Any, sizes: Any) -> Any:
    options = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
    wide = emit(op.image.resize2d(small, relax.ShapeExpr(sizes), layout="NCHW", **options))
    return op.nn.conv2d(wide, numbers(8, 16, 3, 3), padding=(1, 1))


def twice(emit: Callable[[Any], Any], data: Any) -> Any:
    return resized(emit, data, [2 * each for each in data.ty.shape.values[2:]])


def back(emit: Callable[[Any], Any], data: Any) -> Any:
    """Return what is twice as large at even extents alone."""
    small = emit(op.nn.conv2d(data, numbers(16, 16, 3, 3), strides=(2, 2), padding=(1, 1)))
    return resized(emit, small, list(data.ty.shape.values[2:]))


def free(make: Callable[..., Any]) -> tvm.IRModule:
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    return relax_module(lambda builder, data: make(builder.emit, data), [(1, 16, 2 * h, w)])


def at(module: tvm.IRModule, **extents: int) -> tvm.IRModule:
    main = module["main"]
    symbols = [each for size in main.params[0].ty.shape for each in symbols_in(number_of(size))]
    fixed, _ = fix_extents(main, {each: extents[str(each.name)] for each in symbols})
    assert fixed is not None
    return tvm.IRModule({"main": fixed})


@pytest.mark.parametrize(("make", "said"), [(branches, "one kernel"), (chain, "maps"), (twice, "transposed")])
def test_rules_at_free_extents(make: Callable[..., Any], said: str) -> None:
    module = free(make)
    after, lines = join_filters(module, Target.parse("x86-64-v3"), typical=TYPICAL)
    assert len(lines) == 1 and said in lines[0]
    for size in ((1, 1), (2, 5), (7, 4)):
        agree(at(module, h=size[0], w=size[1]), at(after, h=size[0], w=size[1]))


def test_what_holds_at_some_extents_alone_stays() -> None:
    module = free(back)
    target = Target.parse("x86-64-v3")
    assert join_filters(at(module, **TYPICAL), target)[1] != []
    assert join_filters(module, target, typical=TYPICAL)[1] == []


def test_extents_that_a_network_does_not_have() -> None:
    def sevens(emit: Callable[[Any], Any], data: Any) -> Any:
        h, w = data.ty.shape.values[2:]
        return op.reshape(emit(chain(emit, data)), relax.ShapeExpr([16, h // 14, 14, w]))

    assert join_filters(free(sevens), Target.parse("x86-64-v3"), typical=TYPICAL)[1] == []
