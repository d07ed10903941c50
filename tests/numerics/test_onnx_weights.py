"""ONNX models with external weights, too large for protobuf: no session is given their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from models import fixed, model, value, weight
from onnx import helper, numpy_helper

import tvmconv.onnxruntime
from tvmconv import cli
from tvmconv.errors import InputError, SourceError
from tvmconv.frontends import read_model
from tvmconv.frontends.onnx import weights
from tvmconv.network.read.onnx import compare as compared
from tvmconv.network.read.onnx.partition import read_parts
from tvmconv.network.read.onnx.reader import fix_shapes as read_fixed
from tvmconv.onnxruntime.sessions import open_model
from tvmconv.runtime.networks.network import load_network

node = helper.make_node
SHAPES = {"w": (8, 4, 3, 3), "m": (8 * 36, 16), "h": (16, 16)}


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the path of a model with external weights, and the sizes of the models that onnxruntime is given as bytes."""
    arrays = [fixed(name, *shape, seed=len(name)) for name, shape in SHAPES.items()]
    arrays[2] = numpy_helper.from_array(numpy_helper.to_array(arrays[2]).astype(np.float16), "h")
    arrays.append(numpy_helper.from_array(np.array([0, -1]), "shape"))
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Reshape", ["r", "shape"], ["f"]),
        node("MatMul", ["f", "m"], ["p"]),
        node("Cast", ["h"], ["wide"], to=onnx.TensorProto.FLOAT),
        node("Gemm", ["p", "wide"], ["y"], transB=1),
    ]
    made = model(nodes, [value("x", ("n", 4, 6, 6))], [value("y", ("n", 16))], arrays)
    path = tmp_path / "model.onnx"
    onnx.save_model(
        onnx.load_from_string(made.SerializeToString()),
        str(path),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=100,
    )
    monkeypatch.setattr(weights, "MOST_BYTES", 0)
    monkeypatch.setattr(weights, "SMALL_BYTES", 64)
    given: list[int] = []
    original = onnxruntime.InferenceSession

    def session(source: Any, *more: Any, **named: Any) -> Any:
        if isinstance(source, bytes):
            given.append(len(source))
        return original(source, *more, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    yield str(path), made, given
    assert max(given, default=0) < 2500  # of 20,000 of weights


def test_a_network(outside: Any, tmp_path: Path) -> None:
    path, _, given = outside
    library = tmp_path / "network.so"
    assert cli.main(["compile", "--require-comparison", "--batch", "2", path, "-o", str(library)]) == 0
    assert given
    x = np.random.default_rng(0).integers(-2, 3, (2, 4, 6, 6)).astype(np.float32)
    (right,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_array_equal(load_network(library)(x=x)["y"], right)


def test_parts_sessions_and_convolutions(outside: Any) -> None:
    path, made, _ = outside
    assert len(read_parts(path, tvmconv.frontends.shapes.Bucket(batch=2))) == 1
    options = onnxruntime.SessionOptions()
    session = open_model(path, options, batch=2)
    assert session.get_inputs()[0].shape == [2, 4, 6, 6]
    x = np.random.default_rng(0).integers(-2, 3, (2, 4, 6, 6)).astype(np.float32)
    (right,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], right)
    (found,) = read_model(path, batch=2, shapes_by="run", with_constants=True).nodes
    np.testing.assert_array_equal(found.constants().filter, numpy_helper.to_array(made.graph.initializer[0]))
    with pytest.raises(InputError, match="too many for one ONNX file"):
        tvmconv.onnxruntime.with_shapes(path, batch=2)


def test_shapes_are_inferred_without_large_weights(outside: Any) -> None:
    _, made, _ = outside
    found, right = weights.infer_shapes(made), onnx.shape_inference.infer_shapes(made)
    assert {each.name: each.type for each in found.graph.value_info} == {
        each.name: each.type for each in right.graph.value_info
    }
    assert [each.name for each in found.graph.initializer] == ["shape"]


def test_what_is_compared_has_the_weights(outside: Any) -> None:
    path, _, _ = outside
    read = read_fixed(path, tvmconv.frontends.shapes.Bucket(batch=1))
    x = np.ones((1, 4, 6, 6), np.float32)
    (right,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_array_equal(compared.answers(read, {"x": x})[0], right)


def test_files_that_are_short_missing_or_elsewhere(outside: Any, tmp_path: Path) -> None:
    path, _, _ = outside
    batch = tvmconv.frontends.shapes.Bucket(batch=1)
    kept = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(kept[:1000])
    with pytest.raises(
        SourceError, match=r"its weights in other files cannot be read: .*weights.bin is too short for the tensor"
    ):
        read_fixed(path, batch)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(SourceError, match="its weights in other files cannot be read: "):
        read_fixed(path, batch)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "weights.bin").write_bytes(kept)
    (tmp_path / "weights.bin").symlink_to(elsewhere / "weights.bin")
    assert read_fixed(path, batch)  # a link within the folder
    raw = onnx.load(path, load_external_data=False)
    raw.graph.initializer[0].external_data[0].value = "../other.bin"
    (tmp_path / "other.bin").write_bytes(kept)
    (elsewhere / "model.onnx").write_bytes(raw.SerializeToString())
    with pytest.raises(SourceError, match=r"\.\./other\.bin of the tensor 'w' is not in the folder of the model"):
        read_fixed(str(elsewhere / "model.onnx"), batch)


@pytest.mark.slow
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    """Sums of few small integers, which are exact in any order."""
    wide, narrow = 17000, 16500
    shapes = {"a": (narrow, wide), "b": (wide, narrow)}
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(-2, 3, shape, np.int8).astype(np.float32) for name, shape in shapes.items()}
    tensors = []
    with (tmp_path / "weights.bin").open("wb") as file:
        for name, array in arrays.items():
            tensors.append(weight(name, array.shape))
            tensors[-1].external_data.add(key="offset", value=str(file.tell()))
            array.tofile(file)
        assert file.tell() > 2**31
    nodes = [node("MatMul", ["x", "a"], ["y"]), node("MatMul", ["y", "b"], ["z"])]
    made = model(nodes, [value("x", (1, narrow))], [value("z", (1, narrow))], tensors)
    path, library = tmp_path / "model.onnx", tmp_path / "network.so"
    path.write_bytes(made.SerializeToString())
    assert cli.main(["compile", "--require-comparison", str(path), "-o", str(library)]) == 0
    x = np.zeros((1, narrow), np.float32)
    x[0, [0, 77, -1]] = 1, -2, 1
    np.testing.assert_array_equal(load_network(library)(x=x)["z"], x @ arrays["a"] @ arrays["b"])
