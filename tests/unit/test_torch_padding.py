"""Pads before convolutions and cuts after them: zeros and cuts join their pads, whatever the size; others are nodes."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as functional  # noqa: E402
from torch import nn  # noqa: E402

from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.layers import FusedConvolution  # noqa: E402
from tvmconv.torch.pads import Pad  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402
from tvmconv.torch.sized import CutBySize, PadBySize  # noqa: E402

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
PADS = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}


class Code(nn.Module):
    """Convolutions of four channels, and code around them."""

    def __init__(self, forward: Any, *convolutions: nn.Module) -> None:
        super().__init__()
        self.code, self.convolutions = forward, nn.ModuleList(convolutions)

    def forward(self, x: Any) -> Any:
        return self.code(x, *self.convolutions)


def fused(model: nn.Module, *shapes: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """Return the graph of a model, which answers as it does, and its layers."""
    model.eval()
    with torch.no_grad():
        fast: Any = rewrite(model, [((torch.randn(shapes[0]),), {})], Notice(silent=True))
        for shape in shapes:
            data = torch.randn(shape)
            torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)
    return fast, [each.convolution for each in fast.modules() if isinstance(each, FusedConvolution)]


def nodes_of(fast: Any, *kinds: type) -> list[Any]:
    """Return the nodes of a graph that call modules of these kinds."""
    return [
        each
        for each in fast.graph.nodes
        if each.op == "call_module" and isinstance(fast.get_submodule(each.target), kinds)
    ]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_zeros_join(rank: int) -> None:
    torch.manual_seed(0)
    draw = np.random.default_rng(rank)
    for number in range(6):
        pad = [int(each) for each in draw.integers(0, 4, 2 * int(draw.integers(1, rank + 1)))]
        own = tuple(int(each) for each in draw.integers(0, 2, rank))
        conv = CONVOLUTIONS[rank](
            4, 4, 2, int(draw.integers(1, 3)), own, int(draw.integers(1, 3)), int(draw.choice([1, 2]))
        )
        whole = [*pad, *[0] * (2 * rank - len(pad))]
        before = [
            lambda x, pad=pad: functional.pad(x, pad),
            PADS[rank](tuple(whole), 0.0),
            lambda x, pad=pad: functional.pad(functional.pad(x, [1, 0]), pad, mode="constant", value=0),
        ][number % 3]
        model = Code(lambda x, conv, before=before: torch.relu(conv(before(x))), conv)
        if isinstance(before, nn.Module):
            model = nn.Sequential(before, conv, nn.ReLU())
        fast, (layer,) = fused(model, (2, 4, *(7, 6, 5)[:rank]), (1, 4, *(4, 9, 6)[:rank]))
        more = 1 if number % 3 == 2 else 0
        assert layer.pads_begin == tuple(
            begin + each + more * (axis == rank - 1)
            for axis, (begin, each) in enumerate(zip(whole[-2::-2], own, strict=True))
        )
        assert layer.pads_end == tuple(end + each for end, each in zip(whole[::-2], own, strict=True))
        assert layer.epilogue == "relu" and not nodes_of(fast, Pad) and len(list(fast.graph.nodes)) == 3


def test_several_read_what_is_padded() -> None:
    torch.manual_seed(0)

    def forward(x: Any, a: Any, b: Any) -> Any:
        padded = functional.pad(x, (2, 0))
        return torch.cat([a(padded), b(padded), padded[..., 2:]], 1)

    fast, layers = fused(Code(forward, nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3)), (1, 4, 9), (2, 4, 5))
    assert [each.pads_begin for each in layers] == [(2,), (2,)] and len(nodes_of(fast, Pad)) == 1


def test_what_is_written_to_after_it_was_padded() -> None:
    torch.manual_seed(0)

    def forward(x: Any, a: Any) -> Any:
        padded = functional.pad(y := x + 1, (2, 0))
        y.mul_(0)
        return a(padded) + y

    fused(Code(forward, nn.Conv1d(4, 4, 3)), (1, 4, 9))


@pytest.mark.parametrize(
    ("pad", "mode", "value"),
    [((-1, -2), "constant", 0.0), ((-1, 2), "constant", 0.0), ((1, 2), "constant", 1.5), ((2, 1), "reflect", None), ((2, 1), "replicate", None), ((2, 1), "circular", None)],
)  # fmt: skip
def test_others_are_nodes(pad: Any, mode: str, value: Any) -> None:
    torch.manual_seed(0)
    conv = nn.Conv1d(4, 4, 3, padding=1)
    fast, (layer,) = fused(Code(lambda x, a: a(functional.pad(x, pad, mode, value)), conv), (1, 4, 9), (2, 4, 6))
    assert layer.pads_begin == (1,) and len(nodes_of(fast, Pad)) == 1
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        data = torch.randn(1, 4, 9)
        assert torch.equal(other(data), fast(data))


def test_pads_of_images_or_channels_stay() -> None:
    torch.manual_seed(0)
    for pad in ((0, 0, 0, 0, 1, -1), (0, 0, 1, -1)):
        fast, _ = fused(Code(lambda x, a, pad=pad: a(functional.pad(x, pad)), nn.Conv1d(4, 4, 3)), (2, 4, 9))
        assert not nodes_of(fast, Pad)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_cuts_of_transposed_ones_join(rank: int) -> None:
    torch.manual_seed(0)
    draw = np.random.default_rng(rank)
    for number in range(6):
        cuts = [tuple(int(each) for each in draw.integers(0, 3, rank)) for _ in "be"]
        own = tuple(int(each) for each in draw.integers(0, 2, rank))
        conv = TRANSPOSED[rank](4, 4, 4, 2, own, 1 if number == 5 else 0, int(draw.choice([1, 2])))
        index = (Ellipsis, *(slice(begin or None, -end or None) for begin, end in zip(*cuts, strict=True)))
        pad = [-cut for pair in zip(*(reversed(each) for each in cuts), strict=True) for cut in pair]
        code = (
            (lambda x, a, index=index: torch.tanh(a(x)[index]))
            if number % 2
            else (lambda x, a, pad=pad: torch.tanh(functional.pad(a(x), pad)))
        )
        _, (layer,) = fused(Code(code, conv), (2, 4, *(5, 4, 6)[:rank]), (1, 4, *(6, 5, 3)[:rank]))
        if any(cuts[0] + cuts[1]):
            assert layer.epilogue == "tanh"
            assert layer.pads_begin == tuple(map(sum, zip(cuts[0], own, strict=True)))
            assert layer.pads_end == tuple(map(sum, zip(cuts[1], own, strict=True)))


class Sized(nn.Module):
    """A convolution whose code pads and cuts by the size of its data."""

    def __init__(self, convolution: nn.Module, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self.inner, self.before, self.after = nn.Sequential(convolution), before, after

    def forward(self, x: Any) -> Any:
        y = self.inner(x if self.before is None else self.before(x))
        return y if self.after is None else self.after(x, y)


def whole_strides(mode: str) -> Any:
    """Return what pads so that strides of 3 are whole; where there is too little to reflect, zeros come first."""

    def pad(x: Any) -> Any:
        total = math.ceil(x.shape[-1] / 3) * 3 - x.shape[-1] + 2
        if mode == "reflect" and x.shape[-1] <= total:
            x = functional.pad(x, (0, total))
        return functional.pad(x, (2, total - 2), mode)

    return pad


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_pads_by_size(mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 4, 1), Sized(nn.Conv1d(4, 4, 3, 3), whole_strides(mode)), nn.ELU())
    for each in (model, model[1]):
        shapes = [(1, 4, size) for size in (9, 1, 2, 3, 10, 11, 40)]
        fast, layers = fused(each, *shapes)
        assert (layers[-1].sized is not None) == (mode == "constant") and len(nodes_of(fast, PadBySize)) == (
            mode != "constant"
        )
    fast, layers = fused(model, (2, 4, 9))
    assert layers[-1].epilogue == "elu_1"
    data = torch.randn(2, 4, 14)
    assert torch.equal(copy.deepcopy(fast)(data), fast(data))


@pytest.mark.parametrize(
    ("convolution", "after"),
    [
        (lambda: nn.Conv1d(4, 4, 3, padding=2), lambda x, y: y[..., : x.shape[-1]]),
        (lambda: nn.Conv1d(4, 4, 3, padding=4, dilation=2), lambda x, y: y[:, :, : x.size(2)]),
        (lambda: nn.ConvTranspose1d(4, 4, 6, 3), lambda x, y: y[..., : 3 * x.shape[-1]]),
        (lambda: nn.ConvTranspose1d(4, 4, 6, 3), lambda x, y: y[..., 1 : y.shape[-1] - 2]),
        (lambda: nn.Conv2d(4, 4, 3, padding=2), lambda x, y: y[:, :, : x.shape[2], : x.shape[3]]),
    ],
)
def test_cuts_by_size(convolution: Any, after: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Sized(convolution(), None, after), nn.ReLU())
    rank = 2 if isinstance(model[0].inner[0], nn.Conv2d) else 1
    fast, (layer,) = fused(model, *((1, 4, *(size,) * rank) for size in (9, 1, 2, 17)))
    assert layer.sized is not None and layer.epilogue == "relu" and not nodes_of(fast, CutBySize, PadBySize)


def test_pads_and_cuts_by_size() -> None:
    torch.manual_seed(0)

    def after(x: Any, y: Any) -> Any:
        return y[..., : x.shape[-1]]

    for mode in ("constant", "replicate"):
        before = lambda x, mode=mode: functional.pad(x, (2, 2 + x.shape[-1] % 2), mode)  # noqa: E731
        fast, _ = fused(nn.Sequential(Sized(nn.Conv1d(4, 4, 3), before, after), nn.ReLU()), (1, 4, 9), (1, 4, 4))
        assert len(nodes_of(fast, CutBySize)) == (mode != "constant")


def test_code_that_does_more_keeps_its_way() -> None:
    torch.manual_seed(0)
    for before in (lambda x: x * x.shape[-1], lambda x: x.flip(2) if x.shape[-1] > 3 else x):
        _, layers = fused(nn.Sequential(Sized(nn.Conv1d(4, 4, 3), before), nn.ReLU()), (1, 4, 9), (1, 4, 5))
        assert layers[0].sized is None
