"""PyTorch models of any size whose code computes numbers from extents, or reads some from tensors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
import sympy  # noqa: E402
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._sympy.functions import FloorDiv  # noqa: E402
from torch.utils._sympy.value_ranges import ValueRanges  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError, SourceError, TvmconvWarning  # noqa: E402
from tvmconv.network.read.torch.decompose import _holds  # noqa: E402

SIZES = (7, 13), (33, 1), (16, 20)


def images(height: int, width: int, dtype: Any = None) -> Any:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(width)).to(dtype)


class Scaled(nn.Module):
    """Roots, powers and quotients of extents; sums along an axis that other networks pool to one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        data = self.first(x)
        scale = 1.5 - x.shape[-1] ** -0.5 + (x.shape[2] * x.shape[3]) ** 0.5 / 3
        return data * scale, F.adaptive_avg_pool2d(data, (1, None)) / x.shape[2] ** 0.25


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_numbers_from_extents(dtype: Any) -> None:
    model, sizes = Scaled().eval().to(dtype), ({2: Dim("h"), 3: Dim("w")},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", TvmconvWarning)
        fast = tvmconv.torch.optimize(model, (images(16, 20, dtype),), dynamic_shapes=sizes, progress=None)
        for size in SIZES:
            image = images(*size, dtype)
            for found, expected in zip(fast(image), model(image), strict=True):
                kind = str(dtype).removeprefix("torch.")
                assert_near(found.float(), expected.float(), summed=size[0], layers=3, dtype=kind)


class Classes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        return F.one_hot(self.first(x).argmax(1), 4) + 1


def test_checks_of_numbers_are_left_to_pytorch() -> None:
    """PyTorch's `one_hot` ends with an error at a class of none; what is before is compiled all the same."""
    model, image = Classes().eval(), images(5, 6)
    with pytest.raises(SourceError, match=r"_assert_async.msg .*: it checks a tensor's values in each call"):
        tvmconv.torch.compile(model, (image,), progress=None)
    with torch.no_grad():
        fast = tvmconv.torch.optimize(model, (image,), progress=None)
        assert torch.equal(fast(image), model(image))
    assert not tvmconv.torch.report(fast).refused


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.first(x)[:, :, 1:][:, :, ::2]


def test_extents_below_what_a_model_does_the_same_at_are_left_out() -> None:
    model, sizes = Halved().eval(), ({2: Dim("h"), 3: Dim("w")},)
    fast = tvmconv.torch.compile(model, (images(16, 20),), dynamic_shapes=sizes, progress=None)
    for height in (4, 5, 33):
        image = images(height, 7)
        assert_near(fast(image), model(image), summed=3)
    with pytest.raises(InputError, match=r"is 3; it must be h\[4:\]"):
        fast(images(3, 7))


class Odd(Halved):
    def forward(self, x: Any) -> Any:
        return self.first(x) if x.shape[2] ** 2 % 5 == 1 else x


def test_guards_of_extents_are_named() -> None:
    with pytest.warns(
        TvmconvWarning, match=r"at all extents of dynamic_shapes: Not all values of h = .*generated guard"
    ):
        tvmconv.torch.optimize(
            Odd().eval(), (images(16, 20),), dynamic_shapes=({2: Dim("h"), 3: Dim("w")},), progress=None
        )


class Cached(nn.Module):
    """Positions behind those of a cache, and parts as long as inputs."""

    def forward(self, x: Any, past: Any) -> Any:
        new, old = x.shape[1], past.shape[1]
        keys = torch.cat([past, x], 1)
        seen = torch.arange(old + new)[None] <= (torch.arange(new) + old)[:, None]
        first, rest = torch.split(keys * 2, [old, new], 1)
        return (x @ keys.mT).masked_fill(~seen, -1.0), first, rest.exp()


def test_positions_behind_a_cache() -> None:
    def given(new: int, old: int) -> list[Any]:
        return [torch.randn(2, length, 4, generator=torch.Generator().manual_seed(length)) for length in (new, old)]

    free = ({1: Dim("new")}, {1: Dim("old")})
    fast = tvmconv.torch.compile(Cached().eval(), tuple(given(5, 7)), dynamic_shapes=free, progress=None)
    for size in SIZES:
        for found, right in zip(fast(*given(*size)), Cached()(*given(*size)), strict=True):
            assert_near(found, right, summed=4)


def test_sizes_without_an_answer_decide_nothing() -> None:
    height = sympy.Symbol("h", integer=True)
    window, ranges = FloorDiv(height, FloorDiv(height, 4)), {height: ValueRanges(2, 64)}
    assert _holds(sympy.Ge(window, 4), ranges)
    assert not _holds(sympy.Ge(window, 5), ranges)
