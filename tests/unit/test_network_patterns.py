"""What frontends write as several operators becomes one, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import relax_module
from tvm import relax, tirx, topi

from tvmconv.network.rewrite.channels_last import channels_last
from tvmconv.network.rewrite.fuse_patterns import fuse
from tvmconv.network.rewrite.simplify import simplify

op = relax.op
MATRIX = relax.const(np.ones((16, 5), np.float32))
BIAS = relax.const(np.arange(5, dtype=np.float32))


def operators(make: Callable[..., relax.Expr], *shape: int) -> list[str]:
    """Return the operators of what is left of a function of a tensor."""
    function = fuse(simplify(relax_module(lambda builder, data: make(builder.emit, data), [shape])))["main"]
    names: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call):
            names.append(expr.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(function, visit)
    return names


def product(emit: Any, x: Any, shape: tuple[int, ...], bias: Any = BIAS) -> relax.Expr:
    """Return a product as onnxruntime writes it."""
    rows = emit(op.matmul(emit(op.reshape(x, (-1, 16))), MATRIX))
    return op.reshape(emit(op.add(rows, bias)), shape)


def test_a_product_of_flattened_rows() -> None:
    assert operators(lambda emit, x: product(emit, x, (2, 3, 4, 5)), 2, 3, 4, 16) == ["matmul", "add"]
    assert operators(
        lambda emit, x: op.reshape(emit(op.matmul(emit(op.reshape(x, (6, 16))), MATRIX)), (2, 3, 5)), 2, 3, 16
    ) == ["matmul"]


@pytest.mark.parametrize(("given", "shape"), [((4, 3, 16), (6, 2, 5)), ((2, 3, 16), (30,)), ((2, 3, 16), (3, 2, 5))])
def test_a_product_that_becomes_another_shape(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert operators(lambda emit, x: product(emit, x, shape), *given) == ["reshape", "matmul", "add", "reshape"]


def test_a_product_that_others_read() -> None:
    def make(emit: Any, x: Any) -> relax.Expr:
        rows = emit(op.matmul(emit(op.reshape(x, (6, 16))), MATRIX))
        return op.add(emit(op.reshape(rows, (2, 3, 5))), emit(op.sum(rows)))

    assert "reshape" in operators(make, 2, 3, 16)


@pytest.mark.parametrize(("batch", "left"), [(3, ["matmul"]), (1, ["broadcast_to", "matmul"])])
def test_a_product_of_a_batch_by_one_matrix(batch: int, left: list[str]) -> None:
    def make(emit: Any, x: Any) -> relax.Expr:
        return op.matmul(emit(op.broadcast_to(x, (batch, 4, 16))), emit(op.broadcast_to(MATRIX, (3, 16, 5))))

    assert operators(make, batch, 4, 16) == left


@pytest.mark.parametrize(
    ("k", "index", "largest", "name"),
    [(1, 0, True, "max"), (1, 0, False, "topk"), (2, 0, True, "topk"), (1, 1, True, "topk")],
)
def test_the_greatest_elements_by_sorting(k: int, index: int, largest: bool, name: str) -> None:
    def make(emit: Any, x: Any) -> relax.Expr:
        return relax.TupleGetItem(emit(op.topk(x, k, axis=-2, largest=largest)), index)

    assert operators(make, 2, 3, 4) == [name]


@pytest.mark.parametrize("rows", [5, tirx.Var("rows", "int64")])
def test_axes_below_zero_which_change_of_layout_does_not_take(rows: Any) -> None:
    """ConvertLayout ended with std::bad_alloc."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((2, 4, rows, 1), "float32"))
    weights = relax.const(np.ones((3, 4, 1, 1), np.float32))
    with builder.function("main", [data]):
        with builder.dataflow():
            expanded = builder.emit(op.expand_dims(builder.emit(op.nn.conv2d(data, weights)), [0]))
            moved = builder.emit(op.permute_dims(expanded, [4, 1, 2, 0, 3]))
            output = builder.emit_output(op.squeeze(moved, [-2]))
        builder.emit_func_output(output)
    channels_last(simplify(builder.finalize()))


def test_bounds_of_products_of_free_extents() -> None:
    """TVM's frontends call a function, which takes an extent, too, where it is no extent of an array."""
    side = tirx.Var("side", "int64")

    def bounded(builder: Any, data: Any) -> Any:
        twice = builder.emit(op.concat([data, data], 1))
        return builder.emit_te(topi.maximum, twice, relax.const(0.5))

    mod = relax_module(bounded, [(1, side)])
    assert any(len(mod[each].params) == 4 for each in mod.get_global_vars() if each.name_hint != "main")
    assert "R.maximum" in str(simplify(mod)["main"])


def instances(emit: Any, x: Any, axes: list[int], other: Any = None) -> relax.Expr:
    """Return a normalization as TVM's ONNX frontend writes it."""
    centered = emit(op.subtract(x, emit(op.mean(x if other is None else other, axes, keepdims=True))))
    variance = emit(op.variance(x, axes, keepdims=True))
    return op.divide(centered, emit(op.sqrt(emit(op.add(variance, relax.const(1e-5))))))


def test_a_normalization_of_instances() -> None:
    assert operators(lambda emit, x: instances(emit, x, [2, 3]), 1, 4, 5, 6) == ["nn.instance_norm"]
    assert "nn.instance_norm" not in operators(lambda emit, x: instances(emit, x, [1, 2, 3]), 1, 4, 5, 6)
    assert "nn.instance_norm" not in operators(
        lambda emit, x: instances(emit, x, [2, 3], emit(op.nn.relu(x))), 1, 4, 5, 6
    )


@pytest.mark.parametrize(("factor", "name"), [(1, "nn.group_norm"), (2, "nn.instance_norm")])
def test_a_normalization_of_groups(factor: float, name: str) -> None:
    def make(emit: Any, x: Any) -> relax.Expr:
        split = emit(op.reshape(x, (1, 2, 60)))
        scaled = emit(
            op.multiply(emit(instances(emit, split, [2])), relax.const(np.full((1, 2, 1), factor, np.float32)))
        )
        return op.reshape(emit(op.add(scaled, relax.const(np.zeros((1, 2, 1), np.float32)))), (1, 4, 5, 6))

    found = operators(make, 1, 4, 5, 6)
    assert name in found and ("reshape" in found) == (factor != 1)
