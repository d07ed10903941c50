"""Indices beyond their axis are an error of a call, as in PyTorch and onnxruntime, and memory of others is not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("tvm")
torch = pytest.importorskip("torch")
from onnx import parser  # noqa: E402
from torch import nn  # noqa: E402

from tvmconv import cli  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.lower import schedule_functions  # noqa: E402
from tvmconv.network.options import Options  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.read.onnx.reader import read_onnx  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

FAR = 2**40
GATHERS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2,8] x, int64[1,3] rows, int64[3] at, int64[2,2] pairs, float[1,3] u)
  => (float[1,3] elements, float[2,3] taken, float[2] numbers, float[2,8] written)
{
  elements = GatherElements<axis=1>(x, rows)
  taken = Gather<axis=1>(x, at)
  numbers = GatherND(x, pairs)
  written = ScatterElements<axis=1>(x, rows, u)
}"""


def test_onnx_models(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    onnx.save(parser.parse_model(GATHERS), tmp_path / "model.onnx")
    build(read_onnx(str(tmp_path / "model.onnx")), tmp_path / "network.so", progress=lambda *_: None)
    network = load_network(tmp_path / "network.so")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    given: dict[str, Any] = {
        "x": np.arange(16, dtype=np.float32).reshape(2, 8),
        "rows": np.array([[1, -8, 7]]),
        "at": np.array([-1, 0, 3]),
        "pairs": np.array([[1, 2], [-2, -8]]),
        "u": np.ones([1, 3], np.float32),
    }
    for answer, right in zip(network(**given).values(), session.run(None, given), strict=True):
        np.testing.assert_array_equal(answer, right)
    for name, places, index in (
        ("rows", [[1, 8, 2]], 8),
        ("rows", [[-9, 0, FAR]], -1),
        ("at", [0, FAR, 1], FAR),
        ("pairs", [[0, 0], [2, 1]], 2),
        ("pairs", [[0, 8], [1, 1]], 8),
    ):
        with pytest.raises(IndexError, match=f"index {index} is out of range of an axis of"):
            network(**given | {name: np.array(places)})
    network(**given)


def test_random_inputs_are_in_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[3] words, int64[3] kinds, float[4,2] table, float[1,2] row) => (float[3,2] sum)
    { word = Gather(table, words) kind = Gather(row, kinds) sum = Add(word, kind) }"""
    onnx.save(parser.parse_model(text), tmp_path / "model.onnx")
    build(read_onnx(str(tmp_path / "model.onnx")), tmp_path / "network.so", progress=lambda *_: None)
    arrays = load_network(tmp_path / "network.so").random_inputs()
    assert (arrays["words"] == 1).all() and (arrays["kinds"] == 0).all()
    assert cli.main(["run", str(tmp_path / "network.so")]) == 0
    assert "kinds (3 int64)" in capsys.readouterr().err
    pytest.importorskip("onnxruntime")
    command = ["compile", str(tmp_path / "model.onnx"), "--format", "c", "--require-comparison", "-o"]
    assert cli.main([*command, str(tmp_path / "network")]) == 0
    assert "not compared" not in capsys.readouterr().err


class Lookups(nn.Module):
    """Indices of each kind: of rows, of two axes, and those that bound themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, x: Any, at: Any) -> Any:
        return self.table(at.clamp(0, 7)), x[:, at], x.reshape(2, 4)[at % 2, at]


def test_pytorch_models(tmp_path: Path) -> None:
    model, x, at = Lookups().eval(), torch.arange(8.0).reshape(1, 8), torch.tensor([1, 3, 0])
    build(read_torch(torch.export.export(model, (x, at))), tmp_path / "network.so", progress=lambda *_: None)
    network = load_network(tmp_path / "network.so")
    x_name, at_name = (each.name for each in network.inputs)
    for places in ([1, 3, 0], [-1, -4, 2], [4, 0, 0], [5, -9, 1]):
        named = {x_name: x.numpy(), at_name: np.array(places)}
        try:
            right = model(x, torch.tensor(places))
        except IndexError:
            with pytest.raises(IndexError):
                network(**named)
            continue
        for answer, each in zip(network(**named).values(), right, strict=True):
            np.testing.assert_array_equal(answer, each.detach().numpy())


def test_what_bounds_itself_is_not_checked() -> None:
    class Bounded(nn.Module):
        def forward(self, x: Any, at: Any) -> Any:
            best, order = x.argmax(1), x.argsort(1)
            row, column = at.clamp(0, 2), (at * 3).remainder(8)
            return x.gather(1, order), x.flatten()[best + 8 * row], x[row, column], x[torch.tensor([1, -1])]

    program = torch.export.export(Bounded(), (torch.randn(3, 8), torch.tensor([1, 2, 0])))
    module = use_kernels(read_torch(program), "x86-64-v3")
    functions = schedule_functions(module, Options("x86-64-v3").cpu).functions
    assert not [name for name in map(str, functions) if "check_indices" in name]
