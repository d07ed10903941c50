"""Parts of a model left to PyTorch: reported if they are most of it, and found in few rounds."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError, TvmconvWarning  # noqa: E402
from tvmconv.network.read.torch import reader  # noqa: E402
from tvmconv.torch import computed  # noqa: E402


class Deciding(nn.Module):
    """Code that decides by a number, so that its layers are compiled one by one, and a convolution that is no layer's."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.weight = nn.Conv2d(3, 16, 3), nn.Parameter(torch.randn(channels, 16, 3, 3))
        self.again = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, data: Any) -> Any:
        data = self.first(data)
        if float(data.sum()) > 1e9:
            return data
        for _ in range(3):
            data = self.again(data)
        return nn.functional.conv2d(data, self.weight)


class Measuring(nn.Module):
    """Returns what normalizations divide by, of which networks give the result alone."""

    def __init__(self, by_groups: bool) -> None:
        super().__init__()
        self.layers, self.by_groups = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3)), by_groups

    def forward(self, data: Any) -> Any:
        data = self.layers(data)
        if self.by_groups:
            data, mean, scale = torch.native_group_norm(data, None, None, len(data), 16, data[0, 0].numel(), 4, 1e-5)
        else:
            data, mean, scale = torch.native_layer_norm(data, data.shape[-1:], None, None, 1e-5)
        return torch.relu(data) * 2, mean, scale


def said(model: nn.Module, data: Any) -> list[str]:
    """Return the warnings about a model."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tvmconv.torch.optimize(model.eval(), data, progress=None)
    return [str(each.message) for each in caught if issubclass(each.category, TvmconvWarning)]


def test_the_most_of_a_model_is_left() -> None:
    data = torch.randn(1, 3, 12, 12)
    (line,) = said(Deciding(256), data)
    assert line.startswith("PyTorch computes 76% of the model's multiply-adds") and "\n" not in line
    assert not said(Deciding(16), data)  # where a layer's calls count as often as it is called


@pytest.mark.parametrize("by_groups", [False, True])
def test_answers_that_networks_do_not_give(by_groups: bool) -> None:
    model, data = Measuring(by_groups).eval(), torch.randn(1, 3, 12, 12)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    report = tvmconv.torch.report(fast)
    assert not report.refused and {row.computes for row in report if row.by == "PyTorch"} == {
        "native_group_norm.default" if by_groups else "native_layer_norm.default"
    }
    for found, right in zip(fast(data), model(data), strict=True):
        assert_near(found, right, summed=144, layers=4)


def test_operators_that_fail_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds do not grow with their number."""
    rounds = []

    def fail(program: Any) -> Any:
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        raise reader.UnreadError("it fails", nodes[0])

    def split(*given: Any) -> Any:
        rounds.append(given)
        return found(*given)

    class Long(nn.Module):
        def forward(self, data: Any) -> Any:
            for _ in range(100):
                data = data.sin()
            return data

    found = computed.split
    monkeypatch.setattr(reader, "read_decomposed", fail)
    monkeypatch.setattr(computed, "split", split)
    with pytest.raises(InputError, match="it fails"):
        tvmconv.torch.optimize(Long().eval(), torch.randn(4), progress=None)
    assert 3 < len(rounds) < 12


class Chosen(nn.Module):
    """Layers of rows that numbers choose: their number is known in each call alone, and told to operators and assertions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, data: Any, lengths: Any) -> Any:
        data = self.first(data).relu()
        chosen = data[lengths.nonzero().squeeze(1)]
        table = torch.arange(lengths.max().item() + 1)
        return self.last(data), chosen * table.shape[0], table


def test_numbers_that_only_a_call_tells() -> None:
    model, example = Chosen().eval(), (torch.randn(5, 8), torch.tensor([0, 2, 0, 1, 4]))
    fast = tvmconv.torch.optimize(model, example, progress=None)
    rows = tvmconv.torch.report(fast)
    assert {row.computes: row.output for row in rows if row.by == "PyTorch"}["nonzero.default"] == "?x1 int64"
    assert [row.layer for row in rows if row.by != "PyTorch" and row.work] == ["first", "last"]
    for lengths in (example[1], torch.tensor([3, 0, 0, 0, 1])):
        assert_near(fast(example[0], lengths), model(example[0], lengths), summed=8, layers=2)


class Nested(nn.Module):
    """Masks on the results of other masks, whose sizes are known only in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, data: Any) -> Any:
        data = self.layer(data)
        chosen = data[data > 0]
        again = data.clone()
        again[data > 0] = chosen * 2
        return chosen[chosen < 1].exp(), torch.where(chosen < 1, chosen, 2 * chosen), again


def test_masks_of_what_masks_chose() -> None:
    model, data = Nested().eval(), torch.randn(5, 6)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    assert not tvmconv.torch.report(fast).refused
    for given in (data, torch.randn(5, 6)):
        assert_near(fast(given), model(given), summed=6, layers=2)
