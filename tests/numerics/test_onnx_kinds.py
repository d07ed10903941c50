"""Values of rare kinds in ONNX models: powers of integers, comparisons of truth values, masks, sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
