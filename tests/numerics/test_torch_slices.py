"""Parts of networks of tvmconv.torch that are computed a few images at a time."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch_models import Residual, settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.network.read.torch.decompose import decompose  # noqa: E402
from tvmconv.torch import slices  # noqa: E402
from tvmconv.torch.exporting import export  # noqa: E402
from tvmconv.torch.flat import Flat  # noqa: E402
from tvmconv.torch.pieces import flat_graph  # noqa: E402


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let caches keep nothing, so that filters alone decide."""
    monkeypatch.setattr(slices, "KEPT_BYTES", 0)
    monkeypatch.setattr(slices, "l3_bytes", lambda: 0)
    monkeypatch.setattr(slices, "SLICE_BYTES", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


class Stack(nn.Module):
    """Blocks, what a function makes of their images, a layer with a large filter, and a classifier."""

    def __init__(self, between: Any = lambda x: x) -> None:
        super().__init__()
        self.blocks, self.between = settled(nn.Sequential(Residual(8, 8), Residual(8, 8))), between
        self.large, self.last = nn.Conv2d(8, 512, 3, padding=1), nn.Linear(512, 3)

    def forward(self, x: Any) -> Any:
        x = self.large(self.between(self.blocks(x)))
        return self.last(torch.relu(x).mean((2, 3)))


def head(model: nn.Module, data: Any) -> tuple[str, int] | None:
    """Return the first operator that is computed all at once, and how many images are computed at a time before."""
    graph = flat_graph(decompose(export(Flat(model.eval(), (data,), {}))))
    found = slices.head_of(graph)
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    if found is None:
        return None
    at = calls[found.count]
    return next(reversed(at.meta["nn_module_stack"].values()))[0].removeprefix("model."), found.images


@pytest.mark.usefixtures("small_caches")
def test_where_it_ends() -> None:
    data = torch.randn(4, 8, 32, 32)
    assert head(Stack(), data) == ("large", 1)
    meeting = ("blocks.1.downsample.0", 1)  # the last convolution before images meet
    assert head(Stack(lambda x: x - x.mean(0)), data) == meeting
    assert head(Stack(), data[:1]) is None
    assert head(Stack(), data.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3)) is None  # images are not outermost


def test_what_caches_keep_is_computed_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "KEPT_BYTES", 1 << 30)
    assert head(Stack(), torch.randn(4, 8, 32, 32)) is None
    monkeypatch.setattr(slices, "KEPT_BYTES", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: slices.MOST_THREADS + 1)
    assert head(Stack(), torch.randn(4, 8, 32, 32)) is None


@pytest.mark.usefixtures("small_caches")
@pytest.mark.parametrize("last", [False, True])
def test_slices_compute_what_the_whole_does(last: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Stack().eval(), torch.randn(4, 8, 32, 32)
    data = data.contiguous(memory_format=torch.channels_last) if last else data
    for _ in range(2):  # compiled, and found
        fast = tvmconv.torch.optimize(model, data, tmp_path / "networks", progress=None)
    assert len({row.by for row in tvmconv.torch.report(fast)}) == 2
    assert tvmconv.torch.networks(fast)[0].inputs[0].shape[0] == 1
    with torch.no_grad():
        for each in (fast, copy.deepcopy(fast)):
            assert_near(each(data), model(data), summed=5 * 72 + 32 * 32 + 512, layers=8)
