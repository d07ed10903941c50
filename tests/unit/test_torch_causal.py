"""Convolutions whose output loses its ends, as temporal networks write causal ones."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402


class Chomped(nn.Module):
    def __init__(self, index: Any, **options: Any) -> None:
        super().__init__()
        self.conv, self.index = nn.Conv1d(4, 4, 3, **options), index

    def forward(self, x: Any) -> Any:
        return torch.relu(self.conv(x)[self.index].contiguous())


ALL = slice(None)


@pytest.mark.parametrize(
    ("index", "options", "expected"),
    [
        ((ALL, ALL, slice(None, -2)), {"padding": 2}, "conv1d-relu"),
        ((Ellipsis, slice(None, -4)), {"padding": 4, "dilation": 2, "groups": 2}, "conv1d-relu"),
        ((ALL, ALL, slice(None, -1)), {"padding": 2}, "conv1d-relu"),
        ((ALL, ALL, slice(None, -2)), {"padding": 1}, "conv1d"),  # more than it pads
        ((ALL, ALL, slice(None, -1)), {"padding": 1}, "conv1d"),  # one number has no output
        ((ALL, ALL, slice(None, -2)), {"padding": 2, "stride": 2}, "conv1d"),
        ((ALL, ALL, slice(2, None)), {"padding": 2}, "conv1d-relu"),
        ((ALL, ALL, slice(None, 2)), {"padding": 2}, "conv1d"),
        ((ALL, ALL, slice(None, 0)), {"padding": 2}, "conv1d"),
        ((ALL, slice(None, -1)), {"padding": 2}, "conv1d"),
        ((ALL, ALL, slice(None, -2, 2)), {"padding": 2}, "conv1d"),
    ],
)
def test_what_is_cut_is_not_computed(index: Any, options: Any, expected: str) -> None:
    torch.manual_seed(0)
    model = Chomped(index, **options).eval()
    with torch.no_grad():
        fast = rewrite(model, [((torch.randn(2, 4, 9),), {})], Notice(silent=True))
        for length in (9, 1, 6):
            data = torch.randn(1, 4, length)
            torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)
    assert [*{row.computes: None for row in tvmconv.torch.report(fast)}] == [expected]
