"""The reference of integers beside onnxruntime's QLinearConv and ConvInteger, its optimizations off, and ONNX's evaluator."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tvmconv import ops, reference
from tvmconv.dtypes import ROWS, numpy_dtype
from tvmconv.fills import exact_fill

onnx = pytest.importorskip("onnx")
evaluators = pytest.importorskip("onnx.reference")
onnxruntime = pytest.importorskip("onnxruntime")
helper, TensorProto = onnx.helper, onnx.TensorProto


def _run(kind: str, feeds: dict[str, Any], output: int, evaluator: bool = False, **attributes: Any) -> np.ndarray:
    """Return the one output of a node on arrays."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    node = helper.make_node(kind, list(feeds), ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", output, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    if evaluator:
        return np.asarray(evaluators.ReferenceEvaluator(model).run(None, feeds)[0])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def _drawn(seed: int, dtype: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a drawn problem in ONNX's layouts, with its arrays and the node's attributes."""
    draw = random.Random(seed)
    groups, stride, dilation, pads = (
        draw.choice((1, 1, 2)),
        draw.randint(1, 2),
        draw.randint(1, 2),
        [draw.randint(0, 2) for _ in range(4)],
    )
    inputs, outputs, kernel = (
        draw.randint(1, 9) * groups,
        draw.randint(1, 9) * groups,
        (draw.randint(1, 3), draw.randint(1, 3)),
    )
    types = [each for each in ("u8", "s8") if dtype.startswith(each)]
    zero = draw.randint(*(ROWS[types[0]].range or (0, 0)))
    problem = ops.convolution(
        (2, inputs, 8, 9), (outputs, inputs // groups, *kernel), strides=(stride, stride), dilations=(dilation, dilation),
        pads_begin=pads[:2], pads_end=pads[2:], groups=groups, data_format="NCX", filter_format="OIX", dtype=dtype, zero_point=zero,
        bias_shape=(outputs,), epilogue=None if dtype.endswith("s32") else f"scale-q(1,{draw.randint(1, 100)})",
    )  # fmt: skip
    attributes = {"group": groups, "strides": [stride] * 2, "dilations": [dilation] * 2, "pads": pads}
    return problem, exact_fill(problem, seed).given(), attributes


@pytest.mark.parametrize("types", ["u8s8u8", "s8s8s8", "u8u8u8"])
def test_qlinearconv_is_the_multiplier_rule_bit_for_bit(types: str) -> None:
    """Filters of 7 bits: beyond them onnxruntime saturates pairs in 16 bits where the CPU has no VNNI."""
    for seed in range(8):
        problem, arrays, attributes = _drawn(seed, types)
        arrays["filter"] = (arrays["filter"] // 2).astype(arrays["filter"].dtype)
        rng, f32 = np.random.default_rng(seed), np.float32
        sx, sy, sw = (
            f32(rng.uniform(0.01, 0.1)),
            f32(rng.uniform(0.1, 0.5)),
            rng.uniform(0.005, 0.05, problem.out_channels).astype(f32),
        )
        arrays["scale"] = (sx * sw / sy).astype(f32)
        step = problem.epilogue[-1]
        zeros = [np.array(zero, numpy_dtype(dtype)) for zero, dtype in ((problem.zero_point, problem.types.data), (0, problem.types.filter), (int(step.numbers[1]), problem.types.output))]  # fmt: skip
        feeds = {"x": arrays["data"], "sx": sx, "zx": zeros[0], "w": arrays["filter"], "sw": sw, "zw": np.repeat(zeros[1], sw.size), "sy": sy, "zy": zeros[2], "b": arrays["bias"]}  # fmt: skip
        got = _run(
            "QLinearConv",
            {name: np.asarray(x) for name, x in feeds.items()},
            ROWS[problem.types.output].onnx,
            **attributes,
        )
        expected = reference.compute(problem, **arrays)
        np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}")
        assert np.unique(got).size > 10


@pytest.mark.parametrize(("types", "evaluator"), [("u8u8s32", False), ("u8s8s32", True), ("s8s8s32", True)])
def test_convinteger_is_the_sums_exactly(types: str, evaluator: bool) -> None:
    for seed in range(6):
        problem, arrays, attributes = _drawn(seed, types)
        problem = problem.with_(bias=False, bias_dtype="")
        zero = np.array(problem.zero_point, numpy_dtype(problem.types.data))
        feeds = {"x": arrays["data"], "w": arrays["filter"], "zx": zero}
        got = _run("ConvInteger", feeds, TensorProto.INT32, evaluator, **attributes)
        np.testing.assert_array_equal(
            got, reference.compute(problem, arrays["data"], arrays["filter"]), err_msg=f"seed {seed}"
        )
