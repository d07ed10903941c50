"""Fixed filters joined: random graphs of linear operators against PyTorch in float64, borders included, and what stops the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402
from tvm import relax  # noqa: E402

from tvmconv.relax.algebra import simplified  # noqa: E402
from tvmconv.relax.algebra.reading import fixed  # noqa: E402
from tvmconv.relax.graph import Graph  # noqa: E402
from tvmconv.relax.operators import CONVOLUTIONS  # noqa: E402
from tvmconv.relax.rewriting import rewrites, use_kernels  # noqa: E402
from tvmconv.relax.simplify import constant, constant_bytes  # noqa: E402
from tvmconv.targets.target import Target  # noqa: E402

TARGET = Target.parse("x86-64-v3")
# What the rules compare.
_COSTS = {
    "branches": ("map", "part", "pass"),
    "upsampling": ("map", "pass", "problem"),
    "pools": ("map", "part", "pass"),
    "resizing": ("map", "pass"),
    "concatenation": ("map", "part", "pass", "repeating"),
}
# What rules say of what they did.
_KINDS = (
    "branches, one kernel", "maps one after the other", "upsampling and its convolution", "slices, their concatenation",
    "a concatenation and its convolution", "averaged before",
    "resized after",
)  # fmt: skip
_RESIZES = {2: relax.op.image.resize2d, 3: relax.op.image.resize3d}


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
    if isinstance(bound, relax.TupleGetItem):
        return value(bound.tuple_value)
    if not isinstance(bound, relax.Call):
        return value(bound)
    if bound.op.name == "relax.concat":
        return torch.cat([value(each) for each in bound.args[0].fields], int(bound.attrs.axis))
    if bound.op.name == "relax.strided_slice":
        axes, begins, _, steps = ([int(each) for each in field.fields] for field in bound.args[1:5])
        chosen = [slice(None)] * bound.ty.ndim
        for axis, begin, step in zip(axes, begins, steps, strict=True):
            chosen[axis] = slice(begin, None, step)
        return value(bound.args[0])[tuple(chosen)]
    if bound.op.name == "relax.take":
        return torch.index_select(value(bound.args[0]), int(bound.attrs.axis), value(bound.args[1]).to(torch.int64))
    name, attrs = bound.op.name.removeprefix("relax.").removeprefix("nn."), bound.attrs
    if name in ("add", "subtract", "multiply", "divide"):
        return getattr(torch, name)(*map(value, bound.args))
    if name == "matmul":
        return torch.matmul(*map(value, bound.args))
    if name == "relu":
        return torch.relu(value(bound.args[0]))
    if name == "batch_norm":
        data, *numbers = map(value, bound.args[:5])
        gamma, beta, mean, variance = (each.reshape(1, -1, *[1] * (data.ndim - 2)) for each in numbers)
        return (data - mean) / torch.sqrt(variance + float(attrs.epsilon)) * gamma + beta
    if name == "reshape":
        return value(bound.args[0]).reshape([int(size) for size in bound.ty.shape])
    if name == "mean":
        return value(bound.args[0]).mean([int(axis) for axis in attrs.axis], keepdim=bool(attrs.keepdims))
    if name.startswith("image.resize"):
        data, shape = value(bound.args[0]), [int(size) for size in bound.ty.shape]
        if str(attrs.method) == "linear":
            modes, corners = (
                {2: "bilinear", 3: "trilinear"},
                str(attrs.coordinate_transformation_mode) == "align_corners",
            )
            return functional.interpolate(data, shape[2:], mode=modes[data.ndim - 2], align_corners=corners)
        for axis in range(2, data.ndim):
            data = data.repeat_interleave(shape[axis] // data.shape[axis], axis)
        return data
    if name.startswith("avg_pool"):
        data, rank = value(bound.args[0]), bound.ty.ndim - 2
        pads = [int(each) for each in attrs.padding]
        assert bool(attrs.count_include_pad) and not bool(attrs.ceil_mode)
        pool = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}[rank]
        return pool(_padded(data, pads[:rank], pads[rank:]), [*map(int, attrs.pool_size)], [*map(int, attrs.strides)])
    data, filter_ = map(value, bound.args)
    rank, groups = data.ndim - 2, int(attrs.groups)
    strides, dilation, pads = ([*map(int, each)] for each in (attrs.strides, attrs.dilation, attrs.padding))
    begins, ends = pads[:rank], pads[-rank:]
    if name.endswith("transpose"):
        whole = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}[rank](
            data, filter_, stride=strides, dilation=dilation, groups=groups
        )
        cut = [slice(begin, size - end) for begin, end, size in zip(begins, ends, whole.shape[2:], strict=True)]
        return whole[(slice(None), slice(None), *cut)]
    padded = _padded(data, begins, ends)
    convolve = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[rank]
    return convolve(padded, filter_, stride=strides, dilation=dilation, groups=groups)


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
        kind = self.rng.integers(8)
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
        if kind == 4 and self.rank in _RESIZES:
            return self.pointwise(self.resized(value), self.channels)
        return self.emit(relax.op.nn.relu(value)) if kind == 5 else value

    def resized(self, value: Any) -> Any:
        sizes = tuple(int(each) for each in self.rng.integers(7, 12, self.rank))
        how = {"coordinate_transformation_mode": ("half_pixel", "align_corners")[self.rng.integers(2)]}
        return self.emit(
            _RESIZES[self.rank](value, sizes, layout="NC" + "DHW"[3 - self.rank :], method="linear", **how)
        )

    def maybe_normalized(self, value: Any) -> Any:
        return self.normalized(value) if self.rng.random() < 0.5 else value

    def repeated(self, value: Any, factors: Any) -> Any:
        """Repeat pixels, by a resize or by a choice of pixels along each axis."""
        shape = [int(size) for size in value.ty.shape]
        if self.rank in _RESIZES and self.rng.random() < 0.5:
            sizes = tuple(size * int(factor) for size, factor in zip(shape[2:], factors, strict=True))
            how = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
            layout = "NC" + "DHW"[3 - self.rank :]
            return self.emit(_RESIZES[self.rank](value, sizes, layout=layout, method="nearest_neighbor", **how))
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
        pool = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}[self.rank]
        ones, padding = [1] * self.rank, [pads] * self.rank * 2
        return self.emit(pool(value, [3] * self.rank, [self.stride] * self.rank, padding, ones, False, True))

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


def joined(module: tvm.IRModule, monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[tvm.IRModule, list[str]]:
    """Return a module by all rules, and what they did; with `monkeypatch`, whatever it costs."""
    if monkeypatch is not None:
        cycles = _shrinking()
        for rule, names in _COSTS.items():
            for name in names:
                monkeypatch.setattr(f"tvmconv.relax.algebra.{rule}.{name}_cycles", cycles)
    return simplified(module, TARGET)


def _shrinking() -> Callable[..., int]:
    """Return costs each of which is less than the one before, by so much that a sum of later ones is: what is compared last wins."""
    costs = (4**exponent for exponent in range(10**4, 0, -1))
    return lambda *arguments: next(costs)


def agree(before: tvm.IRModule, after: tvm.IRModule, seed: int = 0) -> None:
    shape = tuple(int(size) for size in before["main"].params[0].ty.shape)
    data = np.random.default_rng(seed).standard_normal(shape)
    right, answer = evaluated(before, data), evaluated(after, data)
    assert answer.shape == right.shape
    scale = max(float(np.abs(right).max()), 1e-3)
    np.testing.assert_allclose(answer, right, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 20))])
def test_random_graphs_keep_their_answers(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 graphs each, 2,000 in all; rules must have been used."""
    said: list[str] = []
    for seed in range(part * 100, part * 100 + 100):
        module = Drawing(seed).module()
        after, lines = joined(module, monkeypatch)
        said += lines
        agree(module, after, seed)
    assert [kind for kind in _KINDS if not any(kind in line for line in said)] == []


def build(
    make: Callable[[relax.BlockBuilder, Any], Any], shape: tuple[int, ...] = (1, 16, 24, 24), dtype: str = "float32"
) -> tvm.IRModule:
    given, builder = relax.Var("x", relax.TensorType(shape, dtype)), relax.BlockBuilder()
    with builder.function("main", [given]):
        with builder.dataflow():
            output = builder.emit_output(make(builder, given))
        builder.emit_func_output(output)
    return builder.finalize()


RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: str = "float32") -> Any:
    array = RNG.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
    return fixed(array, dtype)


def block(builder: relax.BlockBuilder, data: Any) -> Any:
    """A block of RepVGG."""
    wide = builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 3, 3), padding=(1, 1)))
    narrow = builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 1, 1)))
    return builder.emit(relax.op.add(builder.emit(relax.op.add(wide, narrow)), data))


def convolutions(module: tvm.IRModule) -> int:
    graph = Graph(module["main"])
    calls = [graph.call(each) for each in graph.values]
    return sum(call is not None and (".conv" in call.op.name or call.op.name == "relax.matmul") for call in calls)


def test_parallel_branches_are_one_convolution() -> None:
    module = build(block)
    after, lines = joined(module)
    assert convolutions(after) == 1
    assert (
        lines == ["lv3: 3 branches, one kernel; 1.1 times fewer multiplications"]
        or "3 branches, one kernel" in lines[0]
    )
    agree(module, after)


def test_an_adapter_is_part_of_its_linear() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        whole = builder.emit(relax.op.matmul(data, numbers(64, 96)))
        adapter = builder.emit(relax.op.matmul(builder.emit(relax.op.matmul(data, numbers(64, 4))), numbers(4, 96)))
        return builder.emit(relax.op.add(whole, builder.emit(relax.op.multiply(adapter, relax.const(0.5)))))

    module = build(make, (2, 10, 64))
    after, lines = joined(module)
    assert convolutions(after) == 1 and len(lines) == 1
    agree(module, after)


def bottleneck(builder: relax.BlockBuilder, data: Any) -> Any:
    """A Linear to few numbers, and one back."""
    return builder.emit(relax.op.matmul(builder.emit(relax.op.matmul(data, numbers(64, 4))), numbers(4, 96)))


def test_a_bottleneck_stays_one() -> None:
    after, lines = joined(build(bottleneck, (2, 10, 64)))
    assert convolutions(after) == 2 and not lines


@pytest.mark.parametrize("shape", [(64,), (3, 64), (2, 2, 2, 2, 2, 64)])
def test_products_of_any_rank(shape: tuple[int, ...]) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        one, other = (builder.emit(relax.op.matmul(data, numbers(64, 8))) for _ in range(2))
        return builder.emit(relax.op.add(one, other))

    module = build(make, shape)
    after, lines = joined(module)
    assert len(lines) == (1 < len(shape) < 6)
    agree(module, after)


def test_a_residual_of_another_value_stays_a_sum() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        hidden = builder.emit(
            relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 3, 3), padding=(1, 1))))
        )
        again = builder.emit(relax.op.nn.conv2d(hidden, numbers(16, 16, 3, 3), padding=(1, 1)))
        return builder.emit(relax.op.add(again, data))

    assert joined(build(make))[1] == []


def test_values_that_others_read_are_kept() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        wide = builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 3, 3), padding=(1, 1)))
        total = builder.emit(relax.op.add(wide, builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 1, 1)))))
        return builder.emit(relax.op.multiply(total, builder.emit(relax.op.nn.relu(wide))))

    module = build(make)
    assert joined(module)[1] == []


def test_what_is_not_finite_stays_as_it_is() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        wide = builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 3, 3), padding=(1, 1)))
        narrow = builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 1, 1)))
        return builder.emit(relax.op.add(wide, builder.emit(relax.op.multiply(narrow, relax.const(float("inf"))))))

    assert joined(build(make))[1] == []


def test_sums_of_a_wider_type_than_their_data_stay() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        filters = [numbers(16, 16, size, size, dtype="float16") for size in (3, 1)]
        wide = builder.emit(relax.op.nn.conv2d(data, filters[0], padding=(1, 1), out_dtype="float32"))
        return builder.emit(relax.op.add(wide, builder.emit(relax.op.nn.conv2d(data, filters[1], out_dtype="float32"))))

    assert joined(build(make, dtype="float16"))[1] == []


RESIZE = {
    "linear": {"coordinate_transformation_mode": "half_pixel"},
    "nearest_neighbor": {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"},
}


def repeated(builder: relax.BlockBuilder, data: Any) -> Any:
    sizes = tuple(2 * int(size) for size in [*data.ty.shape][2:])
    how = {"method": "nearest_neighbor", **RESIZE["nearest_neighbor"]}
    return builder.emit(relax.op.image.resize2d(data, sizes, layout="NCHW", **how))


def normalized(builder: relax.BlockBuilder, data: Any, channels: int, dtype: str = "float32") -> Any:
    numbers = [fixed(RNG.uniform(0.5, 2, channels), dtype) for _ in range(4)]
    return builder.emit(relax.TupleGetItem(builder.emit(relax.op.nn.batch_norm(data, *numbers, 1, training=False)), 0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_repeated_pixels_are_not_written(dtype: str) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        filter_ = numbers(16, 16, 3, 3, dtype=dtype)
        made = builder.emit(relax.op.nn.conv2d(repeated(builder, data), filter_, padding=(1, 1)))
        return normalized(builder, made, 16, dtype)

    module = build(make, dtype=dtype)
    after, lines = joined(module)
    assert lines and "resize" not in str(after)
    if dtype == "float32":
        agree(module, after)


def test_filters_of_repeated_pixels_that_rounding_would_change_stay() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        filter_ = numbers(16, 16, 3, 3, dtype="bfloat16")
        return builder.emit(relax.op.nn.conv2d(repeated(builder, data), filter_, padding=(1, 1)))

    assert joined(build(make, dtype="bfloat16"))[1] == []


@pytest.mark.parametrize("method", ["linear", "nearest_neighbor"])
def test_a_pointwise_layer_comes_before_a_resize(method: str) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        wide = builder.emit(relax.op.image.resize2d(data, (48, 72), layout="NCHW", method=method, **RESIZE[method]))
        made = builder.emit(relax.op.nn.conv2d(wide, numbers(8, 16, 1, 1)))
        return normalized(builder, made, 8)

    module = build(make)
    after, lines = joined(module)
    assert len(lines) == 1 and "resized after" in lines[0]
    agree(module, after)


def test_a_resize_by_other_weights_stays() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        wide = builder.emit(relax.op.image.resize2d(data, (48, 72), layout="NCHW", method="cubic"))
        return builder.emit(relax.op.nn.conv2d(wide, numbers(8, 16, 1, 1)))

    assert joined(build(make))[1] == []


@pytest.mark.parametrize("keepdims", [True, False])
def test_the_mean_of_all_pixels_comes_before_a_pointwise_layer(keepdims: bool) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        made = builder.emit(relax.op.nn.conv2d(data, numbers(8, 16, 1, 1)))
        return builder.emit(relax.op.mean(normalized(builder, made, 8), [2, 3], keepdims=keepdims))

    module = build(make)
    after, lines = joined(module)
    assert len(lines) == 1 and "averaged before" in lines[0]
    agree(module, after)


def decoder(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return the first convolution of a U-Net's decoder."""
    skipped = builder.emit(relax.op.nn.relu(repeated(builder, data)))
    whole = builder.emit(relax.op.concat([repeated(builder, data), skipped], 1))
    made = builder.emit(relax.op.nn.conv2d(whole, numbers(16, 32, 3, 3), padding=(1, 1)))
    return builder.emit(relax.op.nn.relu(normalized(builder, made, 16)))


def test_a_half_of_repeated_pixels_is_a_convolution_of_its_own() -> None:
    module = build(decoder)
    after, lines = joined(module)
    assert len(lines) == 1 and "2 convolutions, 1 of them transposed" in lines[0]
    assert "concat" not in str(after) and str(after).count("resize2d") == 1
    agree(module, after)


def test_a_concatenation_that_others_read_stays() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        whole = builder.emit(relax.op.concat([repeated(builder, data), repeated(builder, data)], 1))
        made = builder.emit(relax.op.nn.conv2d(whole, numbers(32, 32, 3, 3), padding=(1, 1)))
        return builder.emit(relax.op.add(builder.emit(relax.op.nn.relu(made)), whole))

    assert joined(build(make))[1] == []


def sliced(builder: relax.BlockBuilder, data: Any, begins: tuple[int, int], ends: tuple[int, int] | None = None) -> Any:
    ends = ends or tuple(int(size) for size in [*data.ty.shape][2:])
    return builder.emit(relax.op.strided_slice(data, [2, 3], begins, ends, [2, 2]))


def test_slices_that_are_concatenated_are_a_convolution_with_a_stride() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        parts = [sliced(builder, data, begins) for begins in ((0, 0), (1, 0), (0, 1), (1, 1))]
        whole = builder.emit(relax.op.concat(parts, 1))
        return builder.emit(relax.op.nn.conv2d(whole, numbers(16, 32, 1, 1)))

    module = build(make, (1, 8, 32, 32))
    after, lines = joined(module)
    assert len(lines) == 1 and "strided_slice" not in str(after) and "strides=[2, 2]" in str(after)
    agree(module, after)


def test_a_slice_with_steps_is_the_stride_of_a_pointwise_layer() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        return builder.emit(relax.op.nn.conv2d(sliced(builder, data, (0, 0)), numbers(16, 16, 1, 1)))

    for size in (24, 25):
        module = build(make, (1, 16, size, size))
        after, lines = joined(module)
        assert len(lines) == 1 and "strided_slice" not in str(after)
        agree(module, after)


def test_a_slice_that_ends_early_stays() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        return builder.emit(relax.op.nn.conv2d(sliced(builder, data, (0, 0), (20, 20)), numbers(16, 16, 1, 1)))

    assert joined(build(make))[1] == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_branches_of_halves_are_joined(dtype: str) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        wide = builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 3, 3, dtype=dtype), padding=(1, 1)))
        return builder.emit(
            relax.op.add(wide, builder.emit(relax.op.nn.conv2d(data, numbers(16, 16, 1, 1, dtype=dtype))))
        )

    after, lines = joined(build(make, dtype=dtype))
    assert len(lines) == 1 and convolutions(after) == 1


def test_a_filter_that_would_lose_to_rounding_stays_two() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        small = fixed(np.asarray(constant(numbers(16, 16, 3, 3)), np.float64) * 1e-3, "bfloat16")
        wide = builder.emit(relax.op.nn.conv2d(data, small, padding=(1, 1)))
        return builder.emit(relax.op.add(wide, data))

    assert joined(build(make, dtype="bfloat16"))[1] == []


def enlarged(builder: relax.BlockBuilder, data: Any) -> Any:
    """A convolution of repeated pixels."""
    return builder.emit(relax.op.nn.conv2d(repeated(builder, data), numbers(16, 16, 3, 3), padding=(1, 1)))


@pytest.mark.parametrize(
    ("make", "shape", "stays"),
    [
        (bottleneck, (2, 10, 64), True),
        (enlarged, (1, 16, 24, 24), True),
        (decoder, (1, 16, 24, 24), True),
        (block, (1, 16, 24, 24), False),
    ],
)
def test_small_memory_joins_no_filters_to_larger_ones(
    make: Callable[[relax.BlockBuilder, Any], Any],
    shape: tuple[int, ...],
    stays: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = build(make, shape)
    assert joined(module, monkeypatch)[1] != []
    after, lines = simplified(module, TARGET, small=True)
    assert (lines == []) == stays
    assert constant_bytes(after) <= constant_bytes(module)


def test_strict_math_has_no_rewrites() -> None:
    module = build(block)
    assert rewrites(use_kernels(module, "host", layout="NCX")) != []
    assert rewrites(use_kernels(module, "host", layout="NCX", math="strict")) == []
