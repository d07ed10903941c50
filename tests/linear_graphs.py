"""Random graphs of linear operators, as Relax has them, and what they compute in float64, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import tvm
from torch.nn import functional
from tvm import relax

from tvmconv.accuracy import tolerance
from tvmconv.network.ir.constants import constant
from tvmconv.network.ir.graph import Graph
from tvmconv.network.ir.operators import AVERAGE_POOLS, CONVOLUTIONS

RESIZES = {2: relax.op.image.resize2d, 3: relax.op.image.resize3d}


def agree(before: tvm.IRModule, after: tvm.IRModule, seed: int = 0) -> None:
    """Raise AssertionError if two modules do not compute the same, up to the rounding of filters."""
    shape = tuple(int(size) for size in before["main"].params[0].ty.shape)
    data = np.random.default_rng(seed).standard_normal(shape)
    right, answer = evaluated(before, data), evaluated(after, data)
    assert answer.shape == right.shape
    # Filters are of the size of 1: what they give may be less, where it cancels out, but not what two numbers of that size round to.
    np.testing.assert_allclose(answer, right, **tolerance(right, summed=9, magnitude=0.2, dtype="float32"))


def evaluated(module: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    """Return what a module's main computes, in float64."""
    main = module["main"]
    values: dict[Any, Any] = {main.params[0]: torch.from_numpy(data)}

    def value(expr: Any) -> Any:
        array = constant(expr)
        return values[expr] if array is None else torch.from_numpy(np.asarray(array, np.float64))

    for variable, bound in Graph(main).values.items():
        values[variable] = _computed(bound, value)
    result = main.body.body
    return values[result].numpy()


def _computed(bound: Any, value: Callable[[Any], Any]) -> Any:
    """Return PyTorch's result of a binding's value."""
    if isinstance(bound, relax.TupleGetItem):
        return value(bound.tuple_value)
    if not isinstance(bound, relax.Call):
        return value(bound)
    name = bound.op.name.removeprefix("relax.").removeprefix("nn.").removeprefix("image.")
    if name in ("add", "subtract", "multiply", "divide", "matmul", "relu"):
        return getattr(torch, name)(*map(value, bound.args))
    if name == "concat":
        return torch.cat([value(each) for each in bound.args[0].fields], int(bound.attrs.axis))
    if name == "batch_norm":
        return _batch_norm(*map(value, bound.args[:5]), float(bound.attrs.epsilon))
    if name == "take":
        return torch.index_select(value(bound.args[0]), int(bound.attrs.axis), value(bound.args[1]).to(torch.int64))
    data = value(bound.args[0])
    if name == "strided_slice":
        return _strided_slice(bound, data)
    if name == "reshape":
        return data.reshape([int(size) for size in bound.ty.shape])
    if name == "permute_dims":
        return data.permute([int(axis) for axis in bound.attrs.axes])
    if name == "mean":
        return data.mean([int(axis) for axis in bound.attrs.axis], keepdim=bool(bound.attrs.keepdims))
    if name.startswith("resize"):
        return _resize(bound, data)
    if name.startswith("avg_pool"):
        return _average_pool(bound, data)
    return _convolution(bound, data, value(bound.args[1]))


def _strided_slice(call: Any, data: Any) -> Any:
    axes, begins, _, steps = ([int(each) for each in field.fields] for field in call.args[1:5])
    chosen = [slice(None)] * call.ty.ndim
    for axis, begin, step in zip(axes, begins, steps, strict=True):
        chosen[axis] = slice(begin, None, step)
    return data[tuple(chosen)]


def _batch_norm(data: Any, gamma: Any, beta: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    gamma, beta, mean, variance = (
        each.reshape(1, -1, *[1] * (data.ndim - 2)) for each in (gamma, beta, mean, variance)
    )
    return (data - mean) / torch.sqrt(variance + epsilon) * gamma + beta


def _resize(call: Any, data: Any) -> Any:
    shape, attrs = [int(size) for size in call.ty.shape], call.attrs
    if str(attrs.method) == "linear":
        mode = {2: "bilinear", 3: "trilinear"}[data.ndim - 2]
        corners = str(attrs.coordinate_transformation_mode) == "align_corners"
        return functional.interpolate(data, shape[2:], mode=mode, align_corners=corners)
    for axis in range(2, data.ndim):
        data = data.repeat_interleave(shape[axis] // data.shape[axis], axis)
    return data


def _average_pool(call: Any, data: Any) -> Any:
    attrs, rank = call.attrs, call.ty.ndim - 2
    pads = [int(each) for each in attrs.padding]
    assert bool(attrs.count_include_pad) and not bool(attrs.ceil_mode)
    pool = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}[rank]
    return pool(_padded(data, pads[:rank], pads[rank:]), [*map(int, attrs.pool_size)], [*map(int, attrs.strides)])


def _convolution(call: Any, data: Any, filter_: Any) -> Any:
    attrs, rank = call.attrs, data.ndim - 2
    strides, dilation, pads = ([*map(int, each)] for each in (attrs.strides, attrs.dilation, attrs.padding))
    options: dict[str, Any] = {"stride": strides, "dilation": dilation, "groups": int(attrs.groups)}
    begins, ends = pads[:rank], pads[-rank:]
    if call.op.name.endswith("transpose"):
        transposed = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
        whole = transposed[rank](data, filter_, **options)
        cut = [slice(begin, size - end) for begin, end, size in zip(begins, ends, whole.shape[2:], strict=True)]
        return whole[(slice(None), slice(None), *cut)]
    convolve = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[rank]
    return convolve(_padded(data, begins, ends), filter_, **options)


def _padded(data: Any, begins: list[int], ends: list[int]) -> Any:
    return functional.pad(data, [each for pair in zip(begins[::-1], ends[::-1], strict=True) for each in pair])


class Drawing:
    """A random graph of linear operators."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rank = int(self.rng.integers(1, 4))
        self.channels = int(self.rng.choice([1, 2, 4, 6]))
        self.spatial = tuple(int(size) for size in self.rng.integers(5, 10, self.rank))
        self.builder = relax.BlockBuilder()

    def module(self) -> tvm.IRModule:
        shape = (int(self.rng.integers(1, 3)), self.channels, *self.spatial)
        given = relax.Var("x", relax.TensorType(shape, "float32"))
        with self.builder.function("main", [given]):
            with self.builder.dataflow():
                value = self.before(given)
                for _ in range(int(self.rng.integers(1, 3))):
                    value = self.block(value)
                output = self.builder.emit_output(value)
            self.builder.emit_func_output(output)
        return self.builder.finalize()

    def emit(self, expr: Any) -> Any:
        return self.builder.emit(expr)

    def numbers(self, *shape: int) -> Any:
        return relax.const(self.rng.standard_normal(shape).astype(np.float32))

    def before(self, value: Any) -> Any:
        kind = self.rng.integers(10)
        if kind == 0:
            return self.maybe_normalized(self.convolution(self.repeated(value, self.rng.integers(1, 4, self.rank))))
        if kind in (1, 6):
            return self.maybe_normalized(
                self.convolution(
                    self.concatenated(value), stride=int(self.rng.integers(1, 3)), most=int(self.rng.choice([1, 1, 2]))
                )
            )
        if kind == 2:
            return self.sliced(value, [int(each) for each in self.rng.integers(1, 4, self.rank)])
        if kind == 3:
            self.stride = 1
            return self.pooled(self.pointwise(value, self.channels), pads=0)
        if kind == 4 and self.rank in RESIZES:
            return self.pointwise(self.resized(value), self.channels)
        if kind in (7, 8):
            return self.shuffled(value)
        return self.emit(relax.op.nn.relu(value)) if kind == 5 else value

    def shuffled(self, value: Any) -> Any:
        """Make pixels of a convolution's channels; sometimes they have biases of their own."""
        rank, factors = self.rank, [2, *(int(each) for each in self.rng.integers(1, 3, self.rank - 1))]
        most = int(self.rng.choice([1, 8]))
        made = self.convolution(value, self.channels * int(np.prod(factors)), most=most)
        if self.rng.random() < 0.5:
            made = self.normalized(made)
        batch, channels, *sizes = (int(size) for size in made.ty.shape)
        # Either of ONNX's two modes.
        parts = [channels // int(np.prod(factors)), *factors]
        order = [rank + 1, *range(1, rank + 1)] if self.rng.random() < 0.5 else [*range(1, rank + 2)]
        cut = [parts[order.index(at)] for at in range(1, rank + 2)]
        made = self.emit(relax.op.reshape(made, [batch, *cut, *sizes]))
        pixels = [each for axis in range(rank) for each in (rank + 2 + axis, order[1 + axis])]
        made = self.emit(relax.op.permute_dims(made, [0, order[0], *pixels]))
        wide = [size * factor for size, factor in zip(sizes, factors, strict=True)]
        return self.emit(relax.op.reshape(made, [batch, parts[0], *wide]))

    def resized(self, value: Any) -> Any:
        sizes = tuple(int(each) for each in self.rng.integers(7, 12, self.rank))
        how = {"coordinate_transformation_mode": ("half_pixel", "align_corners")[self.rng.integers(2)]}
        return self.emit(RESIZES[self.rank](value, sizes, layout="NC" + "DHW"[3 - self.rank :], method="linear", **how))

    def maybe_normalized(self, value: Any) -> Any:
        return self.normalized(value) if self.rng.random() < 0.5 else value

    def repeated(self, value: Any, factors: Any) -> Any:
        """Repeat pixels, by a resize or by a choice of pixels along each axis."""
        shape = [int(size) for size in value.ty.shape]
        if self.rank in RESIZES and self.rng.random() < 0.5:
            sizes = tuple(size * int(factor) for size, factor in zip(shape[2:], factors, strict=True))
            how = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
            layout = "NC" + "DHW"[3 - self.rank :]
            return self.emit(RESIZES[self.rank](value, sizes, layout=layout, method="nearest_neighbor", **how))
        for axis, factor in enumerate(factors, 2):
            at = np.repeat(np.arange(shape[axis]), factor)
            value = self.emit(relax.op.take(value, relax.const(at, "int64"), axis))
        return value

    def sliced(self, value: Any, steps: list[int], begins: list[int] | None = None) -> Any:
        """Take one of some pixels, sometimes axis by axis."""
        axes, ends = [*range(2, self.rank + 2)], [int(size) for size in [*value.ty.shape][2:]]
        begins = (
            begins
            if begins is not None
            else [int(self.rng.integers(0, step)) * int(self.rng.integers(0, 2)) for step in steps]
        )
        if self.rng.random() < 0.5:
            return self.emit(relax.op.strided_slice(value, axes, begins, ends, steps))
        for each in zip(axes, begins, ends, steps, strict=True):
            value = self.emit(relax.op.strided_slice(value, *([number] for number in each)))
        return value

    def concatenated(self, value: Any) -> Any:
        """Join the slices of a value by channels, or a value whose pixels are repeated and others."""
        if self.rng.random() < 0.5:
            steps = [2 if int(size) % 2 == 0 else 1 for size in [*value.ty.shape][2:]]
            fields = [self.sliced(value, steps, list(begins)) for begins in np.ndindex(*steps)]
        else:
            fields = [self.repeated(value, [2] * self.rank) for _ in range(int(self.rng.integers(1, 3)))]
            fields += [self.emit(relax.op.nn.relu(self.repeated(value, [2] * self.rank))) for _ in range(2)]
            fields = [fields[int(at)] for at in self.rng.permutation(len(fields))]
        return self.emit(relax.op.concat(fields, 1))

    def pooled(self, value: Any, pads: int = 1) -> Any:
        ones, padding = [1] * self.rank, [pads] * self.rank * 2
        return self.emit(
            AVERAGE_POOLS[self.rank](value, [3] * self.rank, [self.stride] * self.rank, padding, ones, False, True)
        )

    def block(self, value: Any) -> Any:
        """A sum of branches of one value; sometimes one of them is read again, or is not linear."""
        self.stride = int(self.rng.integers(1, 3))
        self.channels_out = int(value.ty.shape[1]) if self.stride == 1 else int(self.rng.choice([1, 2, 4, 6]))
        branches = [self.branch(value) for _ in range(int(self.rng.integers(1, 5)))]
        total = branches[0]
        for each in branches[1:]:
            total = self.emit(relax.op.add(total, each))
        if self.rng.random() < 0.3:
            total = self.emit(relax.op.nn.relu(total))
        if self.rng.random() < 0.2:
            total = self.emit(relax.op.add(total, branches[-1]))
        return total

    def branch(self, value: Any) -> Any:
        plain = self.stride == 1
        kind = self.rng.integers(8)
        if kind == 0 and plain:
            made = value
        elif kind == 6:
            made = self.pooled(self.pointwise(value, self.channels_out))
        elif kind == 7 and not plain:
            begins = [int(self.rng.integers(0, 2)) if int(size) % 2 == 0 else 0 for size in [*value.ty.shape][2:]]
            made = self.pointwise(self.sliced(value, [self.stride] * self.rank, begins), self.channels_out)
        elif kind == 1:
            # A pointwise map before it, or behind.
            inside = int(self.rng.choice([1, 2, 4]))
            if self.rng.random() < 0.5:
                made = self.convolution(self.pointwise(value, inside), self.channels_out, self.stride)
            else:
                made = self.pointwise(self.convolution(value, inside, self.stride), self.channels_out)
        else:
            made = self.convolution(value, self.channels_out, self.stride)
        if self.rng.random() < 0.5:
            made = self.normalized(made)
        if self.rng.random() < 0.3:
            channels = int(made.ty.shape[1])
            operator = (relax.op.multiply, relax.op.add, relax.op.subtract)[self.rng.integers(3)]
            made = self.emit(operator(made, self.numbers(1, channels, *[1] * self.rank)))
        return self.emit(relax.op.nn.relu(made)) if self.rng.random() < 0.1 else made

    def pointwise(self, value: Any, channels: int) -> Any:
        made = self.emit(
            CONVOLUTIONS[self.rank](value, self.numbers(channels, int(value.ty.shape[1]), *[1] * self.rank))
        )
        return (
            self.emit(relax.op.add(made, self.numbers(1, channels, *[1] * self.rank)))
            if self.rng.random() < 0.5
            else made
        )

    def convolution(self, value: Any, channels: int | None = None, stride: int = 1, most: int = 8) -> Any:
        """Return a convolution that keeps the size, up to its stride."""
        inputs = int(value.ty.shape[1])
        channels = channels or inputs
        groups = int(np.gcd.reduce([inputs, channels, min(most, int(self.rng.choice([1, 2, inputs])))]))
        taps = [int(each) for each in self.rng.choice([1, 2, 3], self.rank)]
        dilations = [int(each) for each in self.rng.choice([1, 1, 2], self.rank)]
        spans = [(tap - 1) * dilation for tap, dilation in zip(taps, dilations, strict=True)]
        begins = [int(self.rng.integers(0, span + 1)) for span in spans]
        ends = [span - begin for span, begin in zip(spans, begins, strict=True)]
        filter_ = self.numbers(channels, inputs // groups, *taps)
        return self.emit(
            CONVOLUTIONS[self.rank](
                value,
                filter_,
                strides=[stride] * self.rank,
                padding=[*begins, *ends],
                dilation=dilations,
                groups=groups,
            )
        )

    def normalized(self, value: Any) -> Any:
        channels = int(value.ty.shape[1])
        numbers = [self.numbers(channels) for _ in range(3)]
        variance = relax.const(self.rng.uniform(0.5, 2, channels).astype(np.float32))
        made = self.emit(relax.op.nn.batch_norm(value, *numbers, variance, 1, training=False))
        return self.emit(relax.TupleGetItem(made, 0))
