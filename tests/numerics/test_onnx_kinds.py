"""Values of rare kinds in ONNX models: powers of integers, comparisons of truth values, masks, sequences."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from near import assert_near

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("tvm")
from onnx import parser  # noqa: E402

from tvmconv.errors import SourceError  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.onnx.reader import read_onnx  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
MODEL = """g (int64[6] x, int32[6] n, bool[6] p, bool[6] q, float[6] f)
  => (int64[6] squares, int32[6] powers, int64[6] cubes, bool[6] same, bool[6] other, float[6] kept, bool[6] mask, float[2] last)
<int64 two = {2}, int64 minus = {-1}, int64 pair = {2}, int64 three = {3}>
{
  squares = Pow(x, two)
  cubes = Pow(x, three)
  small = Cast<to = 6>(x)
  powers = Pow(small, n)
  same = Equal(p, q)
  other = Xor(p, q)
  kept, mask = Dropout(f)
  parts = SplitToSequence<axis = 0>(f, pair)
  last = SequenceAt(parts, minus)
}"""


def _read(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(HEADER + text), path)
    return path


def test_rare_kinds(tmp_path: Path) -> None:
    path = _read(tmp_path, MODEL)
    build(read_onnx(str(path)), tmp_path / "network.so", progress=lambda *_: None)
    given = {
        "x": np.array([-3, 2, 1, -1, 0, 7]),
        "n": np.array([3, 10, 200, 31, 0, 2], np.int32),
        "p": np.array([True, False, True, False, True, True]),
        "q": np.array([True, True, False, False, True, False]),
        "f": np.arange(6, dtype=np.float32),
    }
    answers = load_network(tmp_path / "network.so")(**given)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for answer, right in zip(answers.values(), session.run(None, given), strict=True):
        assert answer.dtype == right.dtype
        np.testing.assert_array_equal(answer, right)


def test_a_sequence_is_no_output(tmp_path: Path) -> None:
    text = "g (float[2] a, float[2] b) => (seq(float[2]) both) { both = SequenceConstruct(a, b) }"
    with pytest.raises(SourceError, match="the output both is a sequence"):
        read_onnx(str(_read(tmp_path, text)))


def _same(tmp_path: Path, text: str, given: dict[str, np.ndarray], header: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(header + text), path)
    build(read_onnx(str(path)), tmp_path / "network.so", progress=lambda *_: None)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    right = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, given)
    for answer, each in zip(load_network(tmp_path / "network.so")(**given).values(), right, strict=True):
        assert answer.dtype == each.dtype
        assert_near(answer, each, summed=16, magnitude=200.0)


def test_clips_by_attributes_keep_nan(tmp_path: Path) -> None:
    text = "g (float[4] x) => (float[4] a, float[4] b) { a = Clip<min = -1.0, max = 1.0>(x) b = Clip<max = 0.5>(x) }"
    _same(tmp_path, text, {"x": np.array([nan, -3, 0.25, inf], np.float32)}, '<ir_version: 8, opset_import: ["" : 7]>')


def test_shrinks_of_integers_by_fractions(tmp_path: Path) -> None:
    text = """g (int32[7] x, uint8[4] u) => (int32[7] a, uint8[4] b)
    { a = Shrink<lambd = 1.5, bias = 1.5>(x) b = Shrink<lambd = 1.5, bias = 1.0>(u) }"""
    given = {"x": np.array([-9, -2, -1, 0, 1, 2, 9], np.int32), "u": np.array([0, 1, 2, 255], np.uint8)}
    _same(tmp_path, text, given, HEADER)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resizes_that_keep_the_aspect_ratio(policy: str, tmp_path: Path) -> None:
    """Of seven and ten elements, one axis has a size that is rounded, by the other's scale."""
    kinds = {
        "linear": "",
        "nearest": ', coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"',
        "cubic": ", exclude_outside = 1",
    }
    sizes = {"a": (8, 8), "b": (16, 9), "c": (3, 4)}
    names = [f"{mode}{name}" for mode in kinds for name in sizes]
    nodes = [
        f'{mode}{name} = Resize<mode = "{mode}", axes = [2, 3], keep_aspect_ratio_policy = "{policy}"{more}>(x, , , {name})'
        for mode, more in kinds.items()
        for name in sizes
    ]
    fixed = ", ".join(f"int64[2] {name} = {{{', '.join(map(str, each))}}}" for name, each in sizes.items())
    text = f"g (float[1,2,7,10] x) => ({', '.join(f'float[a,b,c{name},d{name}] {name}' for name in names)}) <{fixed}> {{ {' '.join(nodes)} }}"
    data = np.random.default_rng(0).standard_normal((1, 2, 7, 10)).astype(np.float32)
    _same(tmp_path, text, {"x": data}, '<ir_version: 10, opset_import: ["" : 19]>')


def test_resizes_of_regions_of_some_axes(tmp_path: Path) -> None:
    attributes = 'mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 5.5'
    text = f"""g (float[1,2,6,7] x) => (float[1,2,5,6] a, float[1,2,5,6] b, float[1,2,m,n] c)
    <float[4] one = {{0.2, 0.3, 0.8, 0.9}}, float[4] other = {{0.3, -0.2, 0.9, 1.2}}, int64[2] size = {{5, 6}}, int64[2] turned = {{6, 5}},
     float[2] scale = {{1.3, 1.7}}>
    {{ a = Resize<axes = [2, 3], {attributes}>(x, one, , size) b = Resize<axes = [3, 2], {attributes}>(x, other, , turned)
      c = Resize<axes = [2, 3], {attributes}>(x, one, scale) }}"""
    data = np.random.default_rng(0).standard_normal((1, 2, 6, 7)).astype(np.float32)
    _same(tmp_path, text, {"x": data}, '<ir_version: 10, opset_import: ["" : 19]>')


@pytest.mark.parametrize("kind", ["FLOAT8E5M2", "FLOAT8E4M3FNUZ"])
def test_f8_is_refused(kind: str, tmp_path: Path) -> None:
    text = f"g (float[2] x) => (float[2] y) {{ e = Cast<to = {int(getattr(onnx.TensorProto, kind))}>(x) y = Cast<to = 1>(e) }}"
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model('<ir_version: 9, opset_import: ["" : 19]>' + text), path)
    with pytest.raises(SourceError, match="networks do not compute f8"):
        read_onnx(str(path))


@pytest.mark.parametrize("sizes", [(0, 4, 3), (1, 0, 6), (7, 0, 0), (1, 4, 2)])
def test_parts_of_no_elements(sizes: tuple[int, ...], tmp_path: Path) -> None:
    text = f"""g (float[7, 2] x) => (float[{sizes[0]}, 2] a, float[{sizes[1]}, 2] b, float[{sizes[2]}, 2] c)
<int64[3] sizes = {{{", ".join(map(str, sizes))}}}> {{ a, b, c = Split(x, sizes) }}"""
    build(read_onnx(str(_read(tmp_path, text))), tmp_path / "network.so", progress=lambda *_: None)
    data = np.arange(14, dtype=np.float32).reshape(7, 2)
    answers = load_network(tmp_path / "network.so")(x=data).values()
    for answer, right in zip(answers, np.split(data, np.cumsum(sizes)[:2]), strict=True):
        np.testing.assert_array_equal(answer, right)


@pytest.mark.parametrize("sizes", [(3, 4, -1), (3, 4, 1), (1, 2)])
def test_parts_that_an_axis_does_not_have(sizes: tuple[int, ...], tmp_path: Path) -> None:
    outputs = [onnx.helper.make_tensor_value_info(name, 1, None) for name in "abc"]
    data = onnx.helper.make_tensor_value_info("x", 1, (6, 2))
    nodes = [onnx.helper.make_node("Split", ["x", "sizes"], list("abc"), "parts")]
    constants = [onnx.numpy_helper.from_array(np.array(sizes), "sizes")]
    graph = onnx.helper.make_graph(nodes, "g", [data], outputs, constants)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    with pytest.raises(SourceError, match="parts"):
        read_onnx(str(path))
