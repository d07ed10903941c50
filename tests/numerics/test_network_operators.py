"""Operators that TVM computes in a network as we write and schedule them, compared with NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import relax_modules
import tvm
from tvm import relax

from tvmconv.epilogue import Step
from tvmconv.network.passes import use_kernels
from tvmconv.reference import apply_step

op, nn = relax.op, relax.op.nn
Array = np.ndarray[Any, Any]


def module(make: Callable[..., relax.Expr], *arrays: Array) -> tvm.IRModule:
    """Return a module of what `make` makes of tensors."""
    shapes, dtypes = [each.shape for each in arrays], [str(each.dtype) for each in arrays]
    return relax_modules.relax_module(lambda builder, *given: make(builder.emit, *given), shapes, dtypes)


def computed(make: Callable[..., relax.Expr], *arrays: Array) -> Array:
    """Return what such a module computes."""
    (answer,) = relax_modules.computed(module(make, *arrays), *arrays, layout="NCX")
    return answer


def error(make: Callable[..., relax.Expr], right: Callable[..., Array], *arrays: Array) -> float:
    """Return the largest absolute error of what such a module computes."""
    answer = computed(make, *arrays)
    expected = right(*(each.astype(np.float64) for each in arrays))
    assert answer.shape == expected.shape
    return float(np.abs(answer - expected).max())


def normal(*shape: int, mean: float = 0.0, dtype: str = "float32") -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype) + np.asarray(mean, dtype)


def normalized(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def groups(x: Array, count: int, channel: int) -> Array:
    """Return x normalized by groups of channels."""
    x = np.moveaxis(x, channel, 1)
    split = x.reshape(x.shape[0], count, -1)
    return np.moveaxis(normalized(split, (2,)).reshape(x.shape), 1, channel)


# Of f32 numbers about 1000 with a deviation of 1, whose squares' mean less the square of their mean would be wrong by 1 and more.
FAR, ALLOWED = 1000.0, 1e-3


@pytest.mark.parametrize("shape", [(2, 3, 48), (1, 7, 37), (5, 8), (24,)])
def test_layers(shape: tuple[int, ...]) -> None:
    last = shape[-1:]
    found = error(
        lambda emit, x, g, b: nn.layer_norm(x, g, b, [-1]),
        lambda x, g, b: normalized(x, (-1,)) * g + b,
        normal(*shape, mean=FAR), normal(*last), normal(*last),
    )  # fmt: skip
    assert found < ALLOWED
    found = error(
        lambda emit, x, g: nn.rms_norm(x, g, [-1]),
        lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
        normal(*shape), normal(*last),
    )  # fmt: skip
    assert found < 1e-5


def test_layers_of_an_axis_within() -> None:
    found = error(
        lambda emit, x, g, b: nn.layer_norm(x, g, b, [1]),
        lambda x, g, b: normalized(x, (1,)) * g[:, None] + b[:, None],
        normal(2, 20, 24, mean=FAR), normal(20), normal(20),
    )  # fmt: skip
    assert found < ALLOWED


def test_layers_of_many_rows_in_f16() -> None:
    found = error(
        lambda emit, x, g, b: nn.layer_norm(x, g, b, [-1]),
        lambda x, g, b: normalized(x, (-1,)) * g + b,
        normal(1200, 64, dtype="float16"), normal(64, dtype="float16"), normal(64, dtype="float16"),
    )  # fmt: skip
    assert found < 2e-2


@pytest.mark.parametrize(
    ("shape", "channel"), [((2, 9, 10, 24), 3), ((2, 24, 9, 10), 1), ((1, 50, 12), 2), ((1, 3, 4, 5, 16), 4)]
)
@pytest.mark.parametrize("count", [None, 4, 1])
def test_instances_and_groups(shape: tuple[int, ...], channel: int, count: int | None) -> None:
    axes = [axis for axis in range(1, len(shape)) if axis != channel]
    channels = shape[channel]

    def make(emit: Any, x: Any, g: Any, b: Any) -> relax.Expr:
        if count is None:
            return nn.relu(emit(nn.instance_norm(x, g, b, channel, axes)))
        return nn.relu(emit(nn.group_norm(x, g, b, count, channel, axes)))

    def right(x: Array, g: Array, b: Array) -> Array:
        by_channel = [1] * len(shape)
        by_channel[channel] = channels
        return np.maximum(groups(x, count or channels, channel) * g.reshape(by_channel) + b.reshape(by_channel), 0)

    assert error(make, right, normal(*shape, mean=FAR), normal(channels), normal(channels)) < ALLOWED


@pytest.mark.parametrize(
    ("name", "step"),
    [("sigmoid", "sigmoid"), ("tanh", "tanh"), ("nn.silu", "silu"), ("nn.gelu", "gelu"), ("nn.gelu_tanh", "gelu_tanh")],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_activations(name: str, step: str, dtype: str) -> None:
    data = np.concatenate([np.linspace(-12, 12, 90), [-300, 300]]).astype(dtype).reshape(2, 46)
    make = getattr(nn if name.startswith("nn.") else op, name.removeprefix("nn."))
    found = error(lambda emit, x: make(x), lambda x: apply_step(Step(step), x, {}), data)
    assert found < {"float32": 5e-6, "float16": 6e-3, "float64": 1e-6}[dtype]


def test_exponentials_logarithms_and_powers() -> None:
    special = [0, -0.0, -1e-45, np.inf, np.nan]
    data = np.concatenate([np.linspace(-105, 90, 4000), np.geomspace(1e-45, 3e38, 4000), special])
    data = np.concatenate([data, [-np.inf] * (-len(data) % 16)]).astype(np.float32)
    exponents = (-0.75, 0.25, 0.5, 0.75, -1.0, 3.0, 0.3125)  # the last is TVM's

    def right(x: Array) -> Array:
        with np.errstate(all="ignore"):
            # By 1/2 NumPy takes the square root, which is not a number of minus infinity; C's pow is infinity.
            powers = (np.where(x == -np.inf, np.inf, x) ** each if each == 0.5 else x**each for each in exponents)
            return np.concatenate([np.exp(x), np.log(x), *powers]).astype(np.float32)

    def make(emit: Any, x: Any) -> relax.Expr:
        powers = (emit(op.power(x, relax.const(each))) for each in exponents)
        return op.concat([emit(op.exp(x)), emit(op.log(x)), *powers], 0)

    answer, expected = computed(make, data), right(data.astype(np.float64))
    assert np.array_equal(np.isfinite(answer), np.isfinite(expected))
    assert np.array_equal(answer[~np.isfinite(answer)], expected[~np.isfinite(expected)], equal_nan=True)
    answer, expected = (each[np.isfinite(expected)] for each in (answer, expected))
    assert np.all(np.abs(answer - expected) <= np.maximum(4e-7 * np.abs(expected), 1e-44))


def test_functions_of_functions_are_compiled() -> None:
    def make(emit: Any, x: Any) -> relax.Expr:
        for _ in range(3):
            x = emit(op.log(emit(op.add(emit(op.exp(emit(op.sin(x)))), relax.const(1.0)))))
        return x

    def right(x: Array) -> Array:
        for _ in range(3):
            x = np.log(np.exp(np.sin(x)) + 1)
        return x

    assert error(make, right, normal(3, 20)) < 1e-6


def test_gelu_that_is_no_kernels_is_one_operator() -> None:
    def make(emit: Any, x: Any) -> relax.Expr:
        scaled = emit(op.divide(x, relax.const(np.float32(2**0.5))))
        gate = emit(op.add(emit(op.erf(scaled)), relax.const(1.0)))
        return op.multiply(emit(op.multiply(x, gate)), relax.const(0.5))

    data = normal(3, 20)
    assert error(make, lambda x: apply_step(Step("gelu"), x, {}), data) < 1e-6
    names = str(use_kernels(module(make, data), layout="NCX")["main"])
    assert "R.nn.gelu" in names and "erf" not in names


def test_an_activation_of_what_is_padded_is_read_within_its_array() -> None:
    found = error(
        lambda emit, x: nn.pad(emit(op.tanh(x)), [1, 2, 1, 1]),
        lambda x: np.pad(np.tanh(x), [(1, 2), (1, 1)]),
        normal(5, 16),
    )
    assert found < 1e-6


def test_an_activation_in_an_index_and_in_sums() -> None:
    table = normal(3, 4)
    found = error(
        lambda emit, t, x: op.take(t, emit(op.astype(emit(op.add(emit(op.tanh(x)), relax.const(1.1))), "int32")), axis=0),
        lambda t, x: t[(np.tanh(x) + 1.1).astype(int)],
        table, normal(9),
    )  # fmt: skip
    assert found == 0
    assert (
        error(
            lambda emit, x: op.mean(emit(op.sigmoid(x)), [1]), lambda x: (1 / (1 + np.exp(-x))).mean(1), normal(3, 70)
        )
        < 1e-6
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 1, 3, 16), (3, 16, 17)), ((40, 5), (2, 5, 8)), ((9,), (9, 20)), ((2, 8, 1), (2, 1, 24)), ((2, 1, 13, 7), (1, 3, 7, 33)),
    ],
)  # fmt: skip
def test_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert error(lambda emit, x, y: op.matmul(x, y), np.matmul, normal(*left), normal(*right)) < 1e-4


def test_what_follows_a_product() -> None:
    def make(emit: Any, x: Any, y: Any, z: Any) -> relax.Expr:
        scaled = emit(op.multiply(emit(op.matmul(x, emit(op.permute_dims(y, [0, 2, 1])))), relax.const(0.125)))
        return op.tanh(emit(op.add(scaled, z)))

    def right(x: Array, y: Array, z: Array) -> Array:
        return np.tanh(x @ y.transpose(0, 2, 1) * 0.125 + z)

    assert error(make, right, normal(3, 50, 16), normal(3, 50, 16), normal(50, 50)) < 1e-5


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40, 197), -1), ((5, 49), 1), ((1, 17), -1), ((200, 512), -1), ((64,), 0), ((6, 7), -1), ((2, 30, 9), 1)]
)  # fmt: skip
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    def right(x: Array) -> Array:
        power = np.exp(x - x.max(axis, keepdims=True))
        return power / power.sum(axis, keepdims=True)

    assert error(lambda emit, x: nn.softmax(x, axis), right, normal(*shape) * np.float32(5)) < 1e-6
    low = np.where(np.arange(shape[axis]) % 3, normal(*np.moveaxis(np.empty(shape), axis, -1).shape), np.float32(-1e30))
    masked = np.ascontiguousarray(np.moveaxis(low.astype(np.float32), -1, axis))
    assert error(lambda emit, x: nn.softmax(x, axis), right, masked) < 1e-6
