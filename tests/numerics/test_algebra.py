"""Fixed filters joined: random graphs of linear operators against PyTorch in float64, borders included, and what stops the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
pytest.importorskip("torch")
from linear_graphs import Drawing, agree  # noqa: E402
from tvm import relax  # noqa: E402

from tvmconv.network.algebra import join_filters  # noqa: E402
from tvmconv.network.algebra.maps import LinearMap, add  # noqa: E402
from tvmconv.network.algebra.reading import make_constant  # noqa: E402
from tvmconv.network.ir.constants import constant, constant_bytes  # noqa: E402
from tvmconv.network.ir.graph import Graph  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.report import rewrites  # noqa: E402
from tvmconv.targets.target import Target  # noqa: E402

TARGET = Target.parse("x86-64-v3")
# What the rules compare.
_COSTS = {
    "branches": ("map", "part", "pass"),
    "upsampling": ("map", "pass", "transposed"),
    "pools": ("map", "part", "pass"),
    "resizing": ("map", "pass"),
    "shuffling": ("map", "pass", "transposed"),
    "concatenation": ("map", "part", "pass", "repeating"),
}
# What rules say of what they did.
_KINDS = (
    "branches, one kernel", "successive maps", "upsampling and its convolution", "slices, their concatenation",
    "a concatenation and its convolution", "averaged before", "resized after", "a convolution and its pixel shuffle",
    "in the order of the pixels",
)  # fmt: skip


def joined(module: tvm.IRModule, monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[tvm.IRModule, list[str]]:
    """Return a module after all rules, and their descriptions; with `monkeypatch`, whatever they cost."""
    if monkeypatch is not None:
        cycles = _shrinking()
        for rule, names in _COSTS.items():
            for name in names:
                monkeypatch.setattr(f"tvmconv.network.algebra.{rule}.{name}_cycles", cycles)
    return join_filters(module, TARGET)


def _shrinking() -> Callable[..., int]:
    """Return costs each of which is less than the one before, by so much that a sum of later ones is: what is compared last wins."""
    costs = (4**exponent for exponent in range(10**4, 0, -1))
    return lambda *arguments: next(costs)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 20))])
def test_random_graphs_keep_their_answers(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 graphs each, 2,000 in all; of the first, each rule must have been used."""
    said: list[str] = []
    for seed in range(part * 100, part * 100 + 100):
        module = Drawing(seed).module()
        after, lines = joined(module, monkeypatch)
        said += lines
        agree(module, after, seed)
    assert part > 0 or [kind for kind in _KINDS if not any(kind in line for line in said)] == []


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
    return make_constant(array, dtype)


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


def test_maps_whose_taps_are_far_apart_are_not_added() -> None:
    near, far = (LinearMap(np.ones((16, 16, 3, 3)), None, (1, 1), *[(step, step)] * 3) for step in (1, 400))
    assert add([near, near]) is not None and add([near, far]) is None


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
    numbers = [make_constant(RNG.uniform(0.5, 2, channels), dtype) for _ in range(4)]
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


@pytest.mark.parametrize("biased", [True, False])
def test_a_pixel_shuffle_is_a_part_of_its_convolution(biased: bool) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        made = builder.emit(relax.op.nn.conv2d(data, numbers(32, 16, 3, 3), padding=(1, 1)))
        made = builder.emit(relax.op.add(made, numbers(1, 32, 1, 1))) if biased else made
        made = builder.emit(relax.op.reshape(made, (1, 8, 2, 2, 24, 24)))
        made = builder.emit(relax.op.permute_dims(made, [0, 1, 4, 2, 5, 3]))
        return builder.emit(relax.op.reshape(made, (1, 8, 48, 48)))

    module = build(make)
    after, lines = joined(module)
    assert len(lines) == 1 and ("order of the pixels" if biased else "pixel shuffle") in lines[0]
    assert ("permute_dims" in str(after)) == biased
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


def test_slices_alone_stay_slices() -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        first = builder.emit(relax.op.strided_slice(data, [2], [0], [24], [2]))
        return builder.emit(relax.op.strided_slice(first, [3], [0], [24], [2]))

    assert joined(build(make))[1] == []


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
        small = make_constant(np.asarray(constant(numbers(16, 16, 3, 3)), np.float64) * 1e-3, "bfloat16")
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
    after, lines = join_filters(module, TARGET, small=True)
    assert (lines == []) == stays
    assert constant_bytes(after) <= constant_bytes(module)


def test_strict_math_has_no_rewrites() -> None:
    module = build(block)
    assert rewrites(use_kernels(module, "host", layout="NCX")) != []
    assert rewrites(use_kernels(module, "host", layout="NCX", math="strict")) == []
