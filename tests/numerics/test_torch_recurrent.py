"""PyTorch's LSTM, GRU and RNN of as many steps and batches as calls give."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import SourceError, TvmconvWarning  # noqa: E402

FREE = {0: Dim("steps", min=1), 1: Dim("batch", min=1)}
SIZES = ((1, 1), (2, 3), (37, 1), (300, 2), (5, 33))


def number(*shape: int) -> Any:
    """Return random numbers, the same each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


class Layers(nn.Module):
    """Layers of each kind and order: of one and several, with and without biases, of sizes that are no multiple of a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ModuleList([
            nn.LSTM(8, 18), nn.LSTM(8, 7, 2, bidirectional=True, bias=False), nn.GRU(8, 19, 2), nn.RNN(8, 5, nonlinearity="relu"),
            nn.LSTM(8, 19, 2, proj_size=5, bidirectional=True), nn.GRU(8, 6, bidirectional=True, bias=False), nn.RNN(8, 17),
        ])  # fmt: skip
        self.rows, self.again = nn.GRU(8, 9, batch_first=True), nn.LSTM(8, 9)

    def forward(self, data: Any) -> Any:
        """Return all layers' results, and those of one that continues from its last state."""
        made = [part for layer in self.all for part in (lambda steps, last: (steps, *last))(*layer(data))]
        steps, last = self.again(data)
        return *made, *self.rows(data.transpose(0, 1)), steps, *self.again(data, last)[1]


@pytest.fixture(scope="module")
def layers() -> Any:
    torch.manual_seed(0)
    return Layers().eval()


def test_layers_of_free_steps_and_batches(layers: Any) -> None:
    fast = tvmconv.torch.compile(layers, number(12, 3, 8), dynamic_shapes=(FREE,), progress=None)
    for steps, batch in SIZES:
        data = number(steps, batch, 8)
        with torch.no_grad():
            for found, right in zip(fast(data), layers(data), strict=True):
                assert found.shape == right.shape
                assert_near(found, right, summed=32, layers=20)


class Recogniser(nn.Module):
    """Columns of a line of text of any width are the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, (4, 1)))
        self.read, self.last = nn.LSTM(8, 6, 2, bidirectional=True), nn.Linear(12, 5)

    def forward(self, line: Any) -> Any:
        """Return what each column may be."""
        return self.last(self.read(self.first(line).squeeze(2).permute(2, 0, 1))[0]).log_softmax(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recogniser_of_lines(dtype: Any) -> None:
    torch.manual_seed(0)
    model = Recogniser().eval().to(dtype)
    shapes = ({0: Dim("batch"), 3: Dim("width", min=4)},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", TvmconvWarning)
        fast = tvmconv.torch.optimize(model, number(2, 1, 8, 32).to(dtype), dynamic_shapes=shapes, progress=None)
        for batch, width in ((1, 4), (2, 31), (3, 64), (1, 331), (7, 9)):
            line = number(batch, 1, 8, width).to(dtype)
            found, right = fast(line), model.float()(line.float())
            model.to(dtype)
            if dtype == torch.float32:
                assert_near(found, right, summed=32, layers=20)
            else:
                assert (found - right).norm() < 0.02 * right.norm()  # tolerance: layers of 8 bits


def test_what_lstms_lack() -> None:
    model = nn.LSTM(4, 3).eval().double()
    with pytest.raises(SourceError, match="loops over steps compute in float32 only"):
        tvmconv.torch.compile(model, number(5, 2, 4).double(), dynamic_shapes=({0: Dim("steps")},), progress=None)
