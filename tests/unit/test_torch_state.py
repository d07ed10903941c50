"""What models remember, and the types that their code asks for, in copies that are optimized."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.unchanged import unchanged  # noqa: E402


class Counting(nn.Module):
    """Writes in each call to a buffer, an attribute, a list, and a tensor that is none of its state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.kept, self.plain = nn.Conv2d(3, 4, 1), [], torch.zeros(1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.conv(x))
        self.calls += 1
        self.mean.mul_(0.5).add_(y.mean((0, 2, 3)))
        self.plain.add_(1)
        self.kept.append(1)
        self.last = y
        return y * self.calls + self.plain + self.mean.view(-1, 1, 1) + len(self.kept)


class Averaging(nn.Module):
    """Writes to a buffer in place, as a graph does, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.conv(x))
        self.mean.mul_(0.5).add_(y.mean((0, 2, 3)))
        return y + self.mean.view(-1, 1, 1)


class Caching(nn.Module):
    """Keeps for each shape what YOLO's heads do, in its input's type."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.shape, self.grid = nn.Conv2d(3, 4, 1), None, None

    def forward(self, x: Any) -> Any:
        if self.shape != x.shape:
            self.shape, self.grid = x.shape, torch.arange(x.shape[3]).to(x.dtype)
        return self.conv(x) + self.grid


class Typed(nn.Module):
    """Asks for the type of its parameters, as models of diffusers and transformers do."""

    def __init__(self, by_parameter: bool) -> None:
        super().__init__()
        self.conv, self.last, self.by_parameter = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), by_parameter

    def forward(self, x: Any) -> Any:
        y = F.relu(self.conv(x)).float()
        if self.by_parameter and self.conv.weight.dtype in (torch.float16, torch.bfloat16):
            y = y.to(self.conv.weight.dtype)
        if not self.by_parameter:
            y = y.to(next(self.parameters()).dtype)
        return self.last(y)


MODELS = [Counting, Averaging, Caching, lambda: Typed(True), lambda: Typed(False)]


@pytest.mark.filterwarnings("ignore::tvmconv.errors.TvmconvWarning")
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_copy_begins_where_the_model_stands(make: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tvmconv.torch.optimize"], "_missing", lambda *_: [])  # nothing is built
    torch.manual_seed(0)
    model = make().eval()
    data = [torch.randn(1, 3, 5, size).to(dtype or torch.float32) for size in (4, 4, 6)]
    fast = tvmconv.torch.optimize(model, torch.randn(1, 3, 5, 4), dtype=dtype)
    plain = copy.deepcopy(model).to(dtype)
    with torch.no_grad():
        for each in data:
            torch.testing.assert_close(
                fast(each), plain(each), rtol=3e-2 if dtype else 1e-5, atol=3e-2 if dtype else 1e-6
            )


def test_what_calls_write_is_put_back() -> None:
    model = Counting()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="anything"), torch.no_grad(), unchanged(model):
        model(torch.randn(1, 3, 2, 2))
        assert model.calls == 1 and model.plain == 1 and len(model.kept) == 1
        raise RuntimeError("anything")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert not model.kept and model.plain == 0 and not hasattr(model, "last")


def test_a_norm_of_weights_in_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its hook computed with gradients cannot be copied."""
    monkeypatch.setattr(sys.modules["tvmconv.torch.optimize"], "_missing", lambda *_: [])
    model, data = nn.utils.weight_norm(nn.Conv1d(3, 4, 3)).eval(), torch.randn(1, 3, 5)
    fast = tvmconv.torch.optimize(nn.Sequential(model, nn.ReLU()).eval(), data, dtype=torch.bfloat16)
    with torch.no_grad():
        answer = fast(data.bfloat16())
        torch.testing.assert_close(answer, model(data).relu().bfloat16(), rtol=3e-2, atol=3e-2)
