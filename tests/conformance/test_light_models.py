"""The nine networks that come with the ONNX package: 401 convolutions, all compiled and exact; three run whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest
from evaluator import Evaluator
from light import OTHERS, RUN_WHOLE, light_problems
from models import LIGHT
from near import assert_near
from onnx import TensorProto, numpy_helper

from tvmconv.runtime.registry import Registry
from tvmconv.runtime.verify import verify


def assert_exact(bundle: Path, count: int) -> None:
    verdicts = verify(bundle)
    assert len(verdicts) == count
    wrong = [f"{verdict.signature}: {verdict.detail}" for verdict in verdicts if verdict.status != "right"]
    assert not wrong


def test_every_shape_is_exact(light_bundle):
    assert_exact(light_bundle, 55)


@pytest.mark.slow  # .ci/full runs it
def test_every_shape_of_the_others_is_exact(build_once):
    known = set(light_problems(RUN_WHOLE))
    assert_exact(build_once("light-others", [each for each in light_problems(OTHERS) if each not in known]), 162)


def load(name: str) -> onnx.ModelProto:
    """Return a model in opset 15: ONNX's evaluator has Softmax and BatchNormalization only as they are since then."""
    return onnx.version_converter.convert_version(onnx.load(LIGHT / f"light_{name}.onnx"), 15)


def dummy_input(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the input that ONNX's own runner feeds these models."""
    weights = {weight.name for weight in model.graph.initializer}
    (data,) = (value for value in model.graph.input if value.name not in weights)
    shape = tuple(dim.dim_value for dim in data.type.tensor_type.shape.dim)
    size = np.prod(shape)
    return {data.name: (np.arange(size).reshape(shape) / size).astype(np.float32)}


@pytest.mark.parametrize("name", RUN_WHOLE)
def test_whole_network(name, light_registry: Registry):
    model = load(name)
    evaluator = Evaluator(model, light_registry)
    (output,) = evaluator.run(None, dummy_input(model))
    expected = TensorProto.FromString((LIGHT / f"light_{name}_output_0.pb").read_bytes())
    # Of softmax, after layers whose sums are all of one sign.
    assert_near(output, numpy_helper.to_array(expected), summed=20_000, layers=100)
    assert len(evaluator.ran) == RUN_WHOLE[name]


def with_random_weights(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield weights for what the light models fill with one constant."""
    rng = np.random.default_rng(0)
    shapes = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(shapes[node.input[0]])
            if len(shape) > 1:
                values = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
            else:
                values = rng.uniform(0.5, 1.5, shape)  # variances of normalizations among them
            yield numpy_helper.from_array(values.astype(np.float32), node.output[0])


@pytest.mark.parametrize("name", RUN_WHOLE)
def test_whole_network_with_random_weights(name, light_registry: Registry):
    """The files that come with the models are of constant weights: every class has one probability.

    With these every channel differs, and the logits before the softmax are compared with onnxruntime's.
    """
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_default_logger_severity(3)
    model = load(name)
    weights = list(with_random_weights(model))
    (last,) = (i for i, node in enumerate(model.graph.node) if node.op_type == "Softmax")
    logits = model.graph.node[last].input[0]
    kept = [node for node in model.graph.node[:last] if node.op_type != "ConstantOfShape"]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(weights)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(logits, TensorProto.FLOAT, None))
    feeds = dummy_input(model)
    (output,) = Evaluator(model, light_registry).run(None, feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    assert len(np.unique(expected)) > 500
    error = np.linalg.norm(output - expected) / np.linalg.norm(expected)
    assert error < 1e-4
