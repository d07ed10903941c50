"""PyTorch's modules by TVM's Relax: read, their convolutions ours, their answers PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_models import All, Residual, networks, settled  # noqa: E402

from tvmconv.accuracy import relative_error  # noqa: E402
from tvmconv.epilogue import format_epilogue  # noqa: E402
from tvmconv.network.compile import export  # noqa: E402
from tvmconv.network.kernels.replace import ConvolutionRow  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.network.report import report  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402
from tvmconv.signature import parse_signature  # noqa: E402

# Of the relative L2 error, PyTorch's answer in f32 being right.
ALLOWED = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


class Few(nn.Module):
    """A network with what TVM 0.27 gets wrong in bf16, or does not compile: maximum pools, maxima, normalizations of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.slopes, self.last = settled(Residual()), nn.PReLU(16), nn.Conv2d(16, 16, 1)
        self.norm, self.linear, self.given = nn.LayerNorm(16), nn.Linear(16, 3), ((torch.randn(2, 8, 8, 8),),)

    def forward(self, inputs: Any) -> Any:
        x = nn.functional.max_pool2d(self.slopes(self.block(*inputs) - 1), 3, 2, 1)
        x = nn.functional.hardswish(self.last(x)).mean((2, 3))
        return [torch.softmax(self.linear(self.norm(x)), 1), x.max(1)[0]]


def compared(network: nn.Module, given: Any, dtype: Any, folder: Path) -> list[ConvolutionRow]:
    """Compile a network in a type, compare its answers with PyTorch's in f32, and return the report."""
    with torch.no_grad():
        expected = network(*given)
        program = torch.export.export(
            network.to(dtype), tuple(tuple(each.to(dtype) for each in tensors) for tensors in given)
        )
    module = use_kernels(read_torch(program))
    export(module, folder / "network.so")
    compiled = load_network(folder / "network.so")
    tensors = [each for tensors in given for each in tensors]
    arrays = {
        tensor.name: each.numpy().astype(tensor.dtype) for tensor, each in zip(compiled.inputs, tensors, strict=True)
    }
    for answer, right in zip(compiled(**arrays).values(), expected, strict=True):
        assert answer.shape == right.shape
        assert relative_error(answer.astype(np.float32), right.numpy()) < ALLOWED[dtype]
    return report(module)


def test_modules_of_every_kind_of_convolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    network = All().eval()
    network.networks = network.networks[:5]
    rows = compared(network, [given for _, given in networks()[:5]], torch.float32, tmp_path)
    assert [row.why for row in rows] == [""] * 13


def test_a_module_in_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    network = Few().eval()
    rows = compared(network, network.given, torch.bfloat16, tmp_path)
    assert [row.why for row in rows] == [""] * 5
    problems = [parse_signature(row.signature) for row in rows]
    assert {problem.dtype for problem in problems} == {"bf16"}
    assert [format_epilogue(problem.epilogue) for problem in problems] == ["relu", "", "add-relu", "hardswish", ""]


@pytest.mark.parametrize(
    "function",
    [nn.functional.selu, nn.functional.elu, lambda x: nn.functional.elu(x, 0.5), lambda x: nn.functional.celu(x, 0.7)],
)
def test_elus_with_all_their_numbers(function: Any, tmp_path: Path) -> None:
    class Alone(nn.Module):
        def forward(self, inputs: Any) -> Any:
            return [function(inputs[0])]

    compared(Alone(), ((torch.randn(3, 50),),), torch.float32, tmp_path)


def test_filters_that_weight_norm_computes_are_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 3))

        def forward(self, inputs: Any) -> Any:
            return [self.conv(inputs[0])]

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (row,) = compared(Normed().eval(), ((torch.randn(1, 4, 20),),), torch.float32, tmp_path)
    assert row.why == ""
