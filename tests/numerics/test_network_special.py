"""NaN and infinities in compiled ONNX networks: every operator gives what ONNX, NumPy and PyTorch do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvmconv.epilogue import Step
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.reference import apply_step
from tvmconv.runtime.networks.network import load_network

pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
NAN, INF = np.nan, np.inf
SPECIAL = np.array([NAN, INF, -INF, 0, -0.0, 1, -1, 0.3, -0.3, 2.7, -2.7, 5.5, -5.5, 100, -100, 2.5], np.float32)


class Operator(NamedTuple):
    """A node of some tensors, with its expected result; absent: that of ONNX's evaluator."""

    name: str
    attributes: dict[str, Any]
    inputs: Sequence[Any]
    right: Callable[..., Any] | None = None
    outputs: int = 1


def constant(*numbers: float, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, dtype).reshape(() if len(numbers) == 1 else -1))


def answers(operators: Sequence[Operator], folder: Path, layout: str | None = None) -> list[list[Array]]:
    """Return what a network of all operators gives."""
    nodes, inputs, weights, outputs, arrays = [], [], [], [], {}
    for number, each in enumerate(operators):
        names = []
        for place, given in enumerate(each.inputs):
            names.append("" if given is None else f"x{number}_{place}")
            if isinstance(given, onnx.TensorProto):
                weights.append(onnx.TensorProto.FromString(given.SerializeToString()))
                weights[-1].name = names[-1]
            elif given is not None:
                arrays[names[-1]] = given
                inputs.append(value(names[-1], given.shape, helper.np_dtype_to_tensor_dtype(given.dtype)))
        made = [f"y{number}_{place}" for place in range(each.outputs)]
        nodes.append(helper.make_node(each.name, names, made, **each.attributes))
        outputs += [onnx.ValueInfoProto(name=name) for name in made]
    whole = onnx.shape_inference.infer_shapes(model(nodes, inputs, outputs, weights, opset=20))
    source = save(whole, folder)
    build(read_onnx(source), folder / "network.so", layout=layout)
    found = load_network(folder / "network.so")(**arrays)
    return [[found[f"y{number}_{place}"] for place in range(each.outputs)] for number, each in enumerate(operators)]


def check(operators: Sequence[Operator], folder: Path, layout: str | None = None) -> None:
    for each, got in zip(operators, answers(operators, folder, layout), strict=True):
        with np.errstate(all="ignore"):
            if each.right is not None:
                wanted = each.right(*(given for given in each.inputs if isinstance(given, np.ndarray)))
                wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            else:
                given = [numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in each.inputs]
                names = ["" if x is None else f"x{place}" for place, x in enumerate(given)]
                node = helper.make_node(each.name, names, [f"y{i}" for i in range(each.outputs)], **each.attributes)
                feeds = {name: x for name, x in zip(names, given, strict=True) if name}
                wanted = ReferenceEvaluator(node, opsets={"": 20}).run(None, feeds)
        for one, right in zip(got, wanted, strict=True):
            what = f"{each.name} {each.attributes}"
            assert one.shape == np.shape(right), what
            assert_near(one, np.asarray(right), summed=max(one.shape, default=1), layers=4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_elementwise(dtype: Any, tmp_path: Path) -> None:
    x = np.resize(SPECIAL, (2, 3, 16)).astype(dtype)
    left, right = (np.array(each, dtype) for each in np.meshgrid(SPECIAL, SPECIAL))

    def number(each: float) -> onnx.TensorProto:
        return constant(each, dtype=dtype)

    alone = [
        ("Relu", {}), ("Elu", {}), ("Elu", {"alpha": 0.5}), ("Selu", {}), ("HardSigmoid", {}), ("HardSwish", {}), ("Sign", {}),
        ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.0}), ("LeakyRelu", {"alpha": 1.5}), ("Softplus", {}), ("Sigmoid", {}),
        ("Tanh", {}), ("Mish", {}), ("Abs", {}), ("Neg", {}), ("Exp", {}),
        ("Log", {}), ("Sqrt", {}), ("Reciprocal", {}), ("Floor", {}), ("Ceil", {}), ("Round", {}), ("Erf", {}), ("IsNaN", {}),
        ("IsInf", {}), ("IsInf", {"detect_negative": 0}), ("IsInf", {"detect_positive": 0}),
        ("IsInf", {"detect_negative": 0, "detect_positive": 0}),
        *(("ThresholdedRelu", {"alpha": alpha}) for alpha in (1.0, 0.0, -2.0)),
    ]  # fmt: skip
    operators = [Operator(name, attributes, [x]) for name, attributes in alone]
    for step, form in (("gelu", "none"), ("gelu_tanh", "tanh")):
        formula = partial(apply_step, Step(step), arrays={})
        operators.append(Operator("Gelu", {"approximate": form}, [x], lambda x, of=formula: of(x.astype(np.float64))))
    operators += [
        Operator("Clip", {}, [x, number(0), number(6)]),
        Operator("Clip", {}, [x, number(-1), None]),
        Operator("Clip", {}, [x, None, number(1)]),
        Operator("Clip", {}, [x, number(2), number(-1)]),
        Operator("Clip", {}, [x, np.array(-1, dtype), np.array(2, dtype)]),
        Operator("Mul", {}, [x, number(0)]),
        Operator("Max", {}, [left, right, left.T.copy()]),
        Operator("Min", {}, [left, right]),
        Operator("Max", {}, [left, number(0)]),
        Operator("Min", {}, [number(1), left]),
        Operator("Pow", {}, [x, number(0.25)]),
        Operator("Pow", {}, [x, number(1.5)]),
        Operator("Pow", {}, [x, number(-0.75)]),
        Operator("Pow", {}, [x, number(0.5)], lambda x: np.where(x == -INF, INF, np.abs(np.sqrt(x)))),
    ]
    check(operators, tmp_path)


def cells() -> Array:
    """Return planes with what is special at a few places, or everywhere."""
    x = np.random.default_rng(0).standard_normal((4, 4, 6, 16)).astype(np.float32)
    x[0, 0, 2, 3], x[0, 1, 2, 3], x[0, 2, 2, 3] = NAN, INF, -INF
    x[1, 0], x[1, 1], x[1, 2], x[1, 3, :, 0] = -INF, INF, NAN, -INF
    x[2, 0, 0, 0] = x[2, 0, 5, 15] = NAN
    x[2, 1], x[2, 1, 3, 3], x[2, 2], x[2, 2, 1, 1] = -INF, -1e4, INF, 5
    x[3, :, 0, 0], x[3, :, 1, 1], x[3, :, 2, 2] = -INF, NAN, INF
    return x


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_along_axes(dtype: Any, tmp_path: Path) -> None:
    x = cells().astype(dtype)

    def log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
        answer: Array = torch.logsumexp(torch.tensor(x.astype(np.float64)), axes).numpy()
        return answer

    operators = [
        Operator(
            name,
            {"keepdims": 0},
            [x, constant(*axes, dtype=np.int64)] if len(axes) > 1 else [x, numpy_helper.from_array(np.array(axes))],
        )
        for name in ("ReduceMax", "ReduceMin")
        for axes in ((3,), (1,), (2, 3), (0, 1, 2, 3))
    ]
    operators += [
        Operator(name, {"axis": axis, "keepdims": 0, "select_last_index": last}, [x])
        for name in ("ArgMax", "ArgMin")
        for axis in (0, 1, 3)
        for last in (0, 1)
    ]
    operators += [Operator("ArgMax", {"axis": 1}, [x[:, :, :, :1].copy()]), Operator("Hardmax", {"axis": 1}, [x])]
    operators += [Operator(name, {"axis": axis}, [x]) for name in ("Softmax", "LogSoftmax") for axis in (1, -1)]
    if dtype == np.float32:
        operators += [
            Operator("ReduceLogSumExp", {"keepdims": 0}, [x, numpy_helper.from_array(np.array(axes))],
                     lambda x, axes=axes: log_sum_exp(x, axes))
            for axes in ((3,), (1, 2))
        ]  # fmt: skip
    check(operators, tmp_path)


def test_sorts_have_nan_last(tmp_path: Path) -> None:
    x = cells()

    def first(x: Array, count: int, axis: int, largest: bool) -> tuple[Array, Array]:
        order = np.argsort(-x if largest else x, axis, kind="stable")  # NaN is last of both
        if largest:
            order = np.take_along_axis(
                order, np.argsort(~np.isnan(np.take_along_axis(x, order, axis)), axis, kind="stable"), axis
            )
        order = np.take(order, range(count), axis)
        return np.take_along_axis(x, order, axis), order

    check(
        [
            Operator("TopK", {"axis": axis, "largest": largest}, [x, numpy_helper.from_array(np.array([count]))],
                     lambda x, count=count, axis=axis, largest=largest: first(x, count, axis, largest), 2)
            for count in (1, 3)
            for axis in (1, 3)
            for largest in (0, 1)
        ],
        tmp_path,
    )  # fmt: skip


def test_sorts_of_numbers_without_a_sign(tmp_path: Path) -> None:
    x = np.array([3, 2**63 + 5, 2**64 - 1, 0, 2**63 - 1], np.uint64)
    greatest = Operator("TopK", {}, [x, numpy_helper.from_array(np.array([4]))], outputs=2)
    found, places = answers([greatest], tmp_path)[0]
    np.testing.assert_array_equal(found, np.sort(x)[:0:-1])
    np.testing.assert_array_equal(places, [2, 1, 4, 0])


@pytest.mark.parametrize("layout", ["NCX", None])
def test_maximum_pools(layout: str | None, tmp_path: Path) -> None:
    x = cells()

    def pooled(x: Array, **how: Any) -> Array:
        answer: Array = torch.nn.functional.max_pool2d(torch.tensor(x), **how).numpy()
        return answer

    check(
        [
            Operator("MaxPool", {"kernel_shape": [2, 2]}, [x], lambda x: pooled(x, kernel_size=2, stride=1)),
            Operator("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, [x],
                     lambda x: pooled(x, kernel_size=3, stride=2, padding=1)),
            Operator("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}, [x],
                     lambda x: pooled(x, kernel_size=(3, 2), stride=(2, 3), ceil_mode=True)),
            Operator("MaxPool", {"kernel_shape": [2, 2], "dilations": [3, 2]}, [x],
                     lambda x: pooled(x, kernel_size=2, stride=1, dilation=(3, 2))),
            Operator("MaxPool", {"kernel_shape": [3]}, [x[0]],
                     lambda x: torch.nn.functional.max_pool1d(torch.tensor(x), 3, 1).numpy()),
            Operator("MaxPool", {"kernel_shape": [1, 2, 3]}, [x[None]],
                     lambda x: torch.nn.functional.max_pool3d(torch.tensor(x), (1, 2, 3), 1).numpy()),
            Operator("GlobalMaxPool", {}, [x], lambda x: x.max((2, 3), keepdims=True)),
        ],
        tmp_path,
        layout,
    )  # fmt: skip


def test_one_nan_comes_out_of_a_network(tmp_path: Path) -> None:
    node, rng = helper.make_node, np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("w", (8, 8, 3, 3)), ("v", (8,)))
    }
    nodes = [
        node("BatchNormalization", ["x", "v", "v", "v", "ones"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMax", ["p"], ["y"], axes=[2, 3]),
    ]
    made = [numpy_helper.from_array(each, name) for name, each in (weights | {"ones": np.ones(8, np.float32)}).items()]
    source = save(model(nodes, [value("x", [1, 8, 12, 12])], weights=made, opset=13), tmp_path)
    build(read_onnx(source), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    x = rng.standard_normal((1, 8, 12, 12)).astype(np.float32)
    assert np.isfinite(network(x=x)["y"]).all()
    x[0, 3, 5, 5] = NAN
    assert np.isnan(network(x=x)["y"]).all()


def test_pads_and_crops(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 10)).astype(np.float32)

    def cropped(mode: str, pads: Sequence[int], **value: Any) -> Operator:
        begins, ends = pads[:4], pads[4:]

        def right(x: Array) -> Array:
            cut = x[tuple(slice(max(-b, 0), n + min(e, 0)) for b, e, n in zip(begins, ends, x.shape, strict=True))]
            widths = [(max(b, 0), max(e, 0)) for b, e in zip(begins, ends, strict=True)]
            return np.pad(cut, widths, mode, **value)  # type: ignore[call-overload]

        return Operator("Pad", {"mode": mode}, [x, constant(*pads, dtype=np.int64)], right)

    operators = [
        cropped(mode, pads)
        for mode in ("constant", "edge", "reflect", "wrap")
        for pads in (
            (0, 0, -1, 2, 0, 0, 1, -3),
            (0, 0, -2, -1, 0, 0, 3, 2),
            (0, 0, 2, 1, 0, 0, -4, 1),
            (0, 0, -1, 0, 0, 0, -1, -1),
        )
    ]
    operators += [cropped("wrap", (0, 0, 12, 0, 0, 0, 0, 13)), cropped("constant", (0, 0, 1, 2, 0, -1, -1, 0))]
    check(operators, tmp_path)


def test_wrap_before_its_opset(tmp_path: Path) -> None:
    pads = numpy_helper.from_array(np.array([0, 0, 1, 2, 0, 0, 2, 0]), "pads")  # PyTorch exports circular pads so
    nodes = [helper.make_node("Pad", ["x", "pads"], ["y"], mode="wrap")]
    build(
        read_onnx(save(model(nodes, [value("x", [1, 2, 5, 6])], weights=[pads], opset=18), tmp_path)), tmp_path / "a.so"
    )
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype(np.float32)
    found = load_network(tmp_path / "a.so")(x=x)["y"]
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (0, 0), (1, 2), (2, 0)), "wrap"))


@pytest.mark.parametrize("mode", ["SAME_LOWER", "SAME_UPPER", "VALID"])
def test_pools_by_auto_pad(mode: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 10)).astype(np.float32)

    def right(x: Array, sizes: Sequence[int], strides: Sequence[int]) -> Array:
        pads, data = [], torch.tensor(x)
        for extent, size, stride in zip(x.shape[2:], sizes, strides, strict=True):
            total = max((-(-extent // stride) - 1) * stride + size - extent, 0) if mode != "VALID" else 0
            less, more = total // 2, total - total // 2
            pads.append((more, less) if mode == "SAME_LOWER" else (less, more))
        data = torch.nn.functional.pad(data, (*pads[1], *pads[0]), value=-INF)
        answer: Array = torch.nn.functional.max_pool2d(data, tuple(sizes), tuple(strides)).numpy()
        return answer

    cases = (([3, 2], [2, 2]), ([2, 2], [1, 1]), ([3, 3], [2, 1]), ([2, 3], [3, 1]), ([1, 2], [2, 3]))
    check(
        [
            Operator("MaxPool", {"kernel_shape": sizes, "strides": strides, "auto_pad": mode}, [x],
                     lambda x, sizes=sizes, strides=strides: right(x, sizes, strides))
            for sizes, strides in cases
        ],
        tmp_path,
    )  # fmt: skip
    shape = (1, 2, 5, 5) if mode != "VALID" else (1, 2, 4, 5)
    assert right(x, [3, 2], [2, 2]).shape == shape


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("numbers", [(2, 1, 2, 1, 0), (2, 1, 3, 2, 1), (3, 2, 4, 3, 1), (3, 2, 3, 2, 0)])
def test_output_padding_below_the_dilation(numbers: tuple[int, ...], rank: int, tmp_path: Path) -> None:
    size, stride, dilation, more, pad = numbers
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 8, *(7, 6, 5)[:rank])), rng.standard_normal((8, 4, *[size] * rank))
    attributes = {"strides": [stride], "dilations": [dilation], "output_padding": [more], "pads": [pad, pad]}

    def right(x: Array) -> Array:
        function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
        given = torch.tensor(x), torch.tensor(w.astype(np.float32))
        answer: Array = function(*given, None, stride, pad, more, 1, dilation).numpy()
        return answer

    filter_ = numpy_helper.from_array(w.astype(np.float32))
    given = {name: each * rank for name, each in attributes.items()}
    check([Operator("ConvTranspose", given, [x.astype(np.float32), filter_], right)], tmp_path)
