"""Max poolings of a plan: as PyTorch's to the bit, and which are left to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from native_functions import offer_functions  # noqa: E402
from torch import fx, nn  # noqa: E402

from tvmconv.torch import native  # noqa: E402
from tvmconv.torch.layout import CHANNELS_SECOND  # noqa: E402
from tvmconv.torch.plan import seen  # noqa: E402
from tvmconv.torch.pools import MaxPool, max_pool_of  # noqa: E402

F = nn.functional


def _last(*shape: int, dtype: Any = torch.float32) -> Any:
    return CHANNELS_SECOND.laid_out(torch.randn(shape).to(dtype))


def _pool(pool: Any, data: Any, out: Any) -> MaxPool | None:
    """Return the pooling that a graph of `pool` alone is."""
    traced = fx.symbolic_trace(pool if isinstance(pool, nn.Module) else _Calls(pool))
    given, node = list(traced.graph.nodes)[:2]
    return max_pool_of(traced, node, {given: seen(data), node: seen(out)})


class _Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = [function]

    def forward(self, x: Any) -> Any:
        return self.function[0](x)


@pytest.fixture(autouse=True, scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_FUNCTIONS", {})
        offer_functions("host", tmp_path_factory.mktemp("functions"))
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (nn.MaxPool2d(3, 2, 1), (1, 8, 14, 15)),
        (nn.MaxPool2d(3, 2), (2, 5, 11, 9)),
        (nn.MaxPool2d(2), (1, 8, 7, 6)),
        (nn.MaxPool2d(2, ceil_mode=True), (1, 8, 7, 6)),
        (nn.MaxPool2d(5, 1, 2), (1, 3, 6, 2)),  # taps that no output meets
        (nn.MaxPool2d((1, 3), (1, 2), dilation=(1, 2)), (2, 4, 3, 9)),
        (nn.MaxPool2d(1, 2), (1, 4, 5, 6)),
        (nn.MaxPool2d(2, 2, 1), (1, 8, 8, 8)),  # each tap reads padding for some output
        (nn.MaxPool1d(3, 2, 1), (2, 6, 17)),
        (nn.MaxPool3d((2, 3, 2), (2, 1, 2), (0, 1, 0)), (1, 4, 6, 5, 4)),
        (lambda x: F.max_pool2d(x, 3, stride=1, padding=1), (1, 8, 4, 4)),
        (lambda x: F.max_pool3d(x, 2), (2, 3, 4, 4, 6)),
        (lambda x: F.max_pool2d(input=x, kernel_size=2), (1, 3, 4, 4)),
    ],
)
def test_is_the_pooling(pool: Any, shape: tuple[int, ...], dtype: Any) -> None:
    data = _last(*shape, dtype=dtype)
    data[0, 0, 0, ...] = torch.nan
    data[..., -1] = -torch.inf
    out = CHANNELS_SECOND.laid_out(pool(data))
    found = _pool(pool, data, out)
    assert found is not None
    compute = found.bind(data, out)
    for _ in range(2):
        data.mul_(-2)  # it is read at each call
        compute()
        assert torch.equal(out.nan_to_num(7), pool(data).nan_to_num(7))


@pytest.mark.parametrize("found", [None, -1.0, -0.0, -torch.inf, torch.nan, -torch.nan])
def test_numbers_without_a_sign_and_what_comes_among_them(found: float | None) -> None:
    """NaN of either sign is the maximum of its window."""
    pool, data = nn.MaxPool2d(3, 2, 1), _last(1, 8, 14, 15, dtype=torch.bfloat16).abs()
    data[0, 1, 2, 2] = torch.inf
    out = CHANNELS_SECOND.laid_out(pool(data))
    pooling = _pool(pool, data, out)
    assert pooling is not None
    compute = pooling.bind(data, out)
    for round_ in range(3):
        if round_ and found is not None:
            data[0, 3, 3:6, 3:6] = found
        compute()
        assert torch.equal(out.isnan(), pool(data).isnan())
        assert torch.equal(out.nan_to_num(7), pool(data).nan_to_num(7))


@pytest.mark.parametrize(
    ("pool", "data"),
    [
        (nn.AvgPool2d(3), _last(1, 8, 9, 9)),
        (nn.MaxPool2d(3), torch.randn(1, 8, 9, 9)),  # channels come second in memory
        (nn.MaxPool2d(3), _last(1, 8, 9, 9)[0]),
        (nn.MaxPool2d(3), _last(1, 8, 9, 9).double()),
        (nn.MaxPool2d(33), _last(1, 8, 33, 33)),  # more taps than a thread has room for
        (lambda x: x.relu(), _last(1, 8, 9, 9)),
    ],
)
def test_others_are_left_to_pytorch(pool: Any, data: Any) -> None:
    assert _pool(pool, data, CHANNELS_SECOND.laid_out(pool(data)) if data.dim() > 3 else pool(data)) is None
