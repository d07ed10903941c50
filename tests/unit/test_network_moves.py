"""Transpositions meet through reshapes, and reshapes sink below what is computed element by element, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from relax_modules import relax_module
from tvm import relax

from tvmconv.network.ir.graph import Graph
from tvmconv.network.ir.mutator import tidy
from tvmconv.network.rewrite.sink_reshapes import sink

op = relax.op
SHAPE = (2, 4, 3, 5)


def module(make: Callable[[Any, Any], Any]) -> tvm.IRModule:
    """Return a module with a function of a tensor."""
    return relax_module(lambda builder, data: make(builder.emit, data), [SHAPE])


def operators(mod: tvm.IRModule) -> list[str]:
    graph = Graph(mod["main"])
    return [call.op.name.removeprefix("relax.") for each in graph.values if (call := graph.call(each)) is not None]


def computed(mod: tvm.IRModule, data: Any) -> Any:
    """Return what a module computes, by NumPy."""
    function = mod["main"]
    values: dict[Any, Any] = {function.params[0]: data}
    two = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "matmul": np.matmul}

    def of(expr: Any) -> Any:
        return values[expr] if isinstance(expr, relax.Var) else expr.value.numpy()

    for variable, value in Graph(function).values.items():
        if isinstance(value, relax.Var):
            values[variable] = of(value)
            continue
        name, first = value.op.name.removeprefix("relax."), of(value.args[0])
        if name == "permute_dims":
            axes = value.attrs.axes
            values[variable] = first.transpose(None if axes is None else list(map(int, axes)))
        elif name in two:
            values[variable] = two[name](first, of(value.args[1]))
        elif name in ("reshape", "squeeze", "expand_dims"):
            values[variable] = first.reshape([int(size) for size in value.ty.shape])
        else:
            values[variable] = {"nn.relu": lambda x: np.maximum(x, 0), "negative": np.negative}[name](first)
    return of(function.body.body)


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def product(emit: Any, x: Any, channels: int = 6) -> Any:
    return emit(op.matmul(x, relax.const(integers(int(x.ty.shape[-1]), channels))))


def to_channels_first_and_back(emit: Any, x: Any) -> Any:  # as PVT has it
    first = emit(op.permute_dims(emit(op.reshape(x, (2, 12, 5))), (0, 2, 1)))
    rows = emit(op.reshape(first, (2, 5, 4, 3)))
    return emit(op.permute_dims(emit(op.nn.relu(rows)), (0, 2, 3, 1)))


def of_axes_of_one(emit: Any, x: Any) -> Any:
    one = emit(op.reshape(x, (2, 12, 1, 5)))
    return emit(op.permute_dims(one, (0, 2, 1, 3)))


def apart(emit: Any, x: Any) -> Any:  # the axes that meet were one
    turned = emit(op.permute_dims(x, (0, 3, 1, 2)))
    return emit(op.permute_dims(emit(op.reshape(turned, (10, 2, 6))), (0, 2, 1)))


@pytest.mark.parametrize(
    ("make", "transpositions"),
    [(to_channels_first_and_back, 0), (of_axes_of_one, 0), (apart, 2)],
)
def test_transpositions_that_meet(make: Any, transpositions: int) -> None:
    mod = module(make)
    merged = sink(mod)
    assert operators(merged).count("permute_dims") == transpositions
    np.testing.assert_array_equal(computed(merged, integers(*SHAPE)), computed(mod, integers(*SHAPE)))


def activated(emit: Any, x: Any) -> Any:  # the activation is spelled by two readers
    rows = emit(op.reshape(product(emit, x), (24, 3, 2)))
    return emit(op.multiply(rows, emit(op.nn.relu(emit(op.multiply(rows, relax.const(2.0)))))))


def with_another(emit: Any, x: Any) -> Any:
    rows, other = (emit(op.reshape(product(emit, each), (24, 6))) for each in (x, emit(op.negative(x))))
    return emit(op.add(emit(op.add(rows, other)), emit(op.reshape(emit(op.negative(product(emit, x))), (24, 6)))))


def by_channel(emit: Any, x: Any) -> Any:
    rows = emit(op.reshape(product(emit, x), (24, 6)))
    return emit(op.nn.relu(emit(op.add(rows, relax.const(integers(6))))))


def of_what_is_given(emit: Any, x: Any) -> Any:
    return emit(op.nn.relu(emit(op.reshape(x, (24, 5)))))


def by_part_of_an_axis(emit: Any, x: Any) -> Any:
    rows = emit(op.reshape(product(emit, x), (24, 3, 2)))
    return emit(op.multiply(rows, relax.const(integers(3, 1))))


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (activated, "reshape"),
        (with_another, "reshape"),
        (by_channel, "reshape"),
        (of_what_is_given, "nn.relu"),
        (by_part_of_an_axis, "multiply"),
    ],
)
def test_reshapes_of_what_kernels_compute_sink(make: Any, last: str) -> None:
    mod = module(make)
    sunk = sink(mod)
    assert operators(sunk)[-1] == last
    assert operators(sunk).count("reshape") == 1
    np.testing.assert_array_equal(computed(sunk, integers(*SHAPE)), computed(mod, integers(*SHAPE)))


@pytest.mark.parametrize("seed", range(60))
def test_random_moves_stay_exact_and_are_not_more(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def make(emit: Any, x: Any) -> Any:
        values = [x]
        for _ in range(12):
            value = values[rng.integers(max(len(values) - 3, 0), len(values))]
            shape = [int(size) for size in value.ty.shape]
            kind = rng.integers(6)
            if kind < 2:
                made = op.permute_dims(value, [int(axis) for axis in rng.permutation(len(shape))])
            elif kind < 4:
                factors = [2, 2, 2, 3, 5]
                sizes = [1] * int(rng.integers(1, 5))
                left = int(np.prod(shape))
                for factor in factors:
                    if left % factor == 0:
                        left //= factor
                        sizes[rng.integers(len(sizes))] *= factor
                sizes[rng.integers(len(sizes))] *= left
                made = op.reshape(value, sizes)
            elif kind == 4:
                made = rng.choice([op.nn.relu, op.negative])(value)
            else:
                made = op.matmul(value, relax.const(np.eye(shape[-1], dtype=np.float32)[::-1].copy()))
            values.append(emit(made))
            same = [each for each in values[:-1] if list(each.ty.shape) == list(values[-1].ty.shape)]
            if same and rng.integers(2):
                values.append(emit(op.add(values[-1], same[-1])))
        return emit(op.nn.relu(values[-1]))

    mod = module(make)
    changed = sink(mod)
    np.testing.assert_array_equal(computed(changed, integers(*SHAPE)), computed(mod, integers(*SHAPE)))
    before, after = (Counter(operators(each)) for each in (tidy(mod), changed))
    assert after["permute_dims"] <= before["permute_dims"]
    assert all(after[name] <= before[name] for name in ("matmul", "add", "nn.relu", "negative"))
