"""Operators between two convolutions, in channels last: what ConvertLayout makes of them, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

F = nn.functional
CHANNELS, HEIGHT, WIDTH = 8, 6, 4
INDEX = torch.tensor([0, 1, 0])


def _along(axis: int) -> dict[str, Callable[[Any], Any]]:
    """Return operators along an axis."""
    return {
        f"{name} {axis}": function
        for name, function in {
            "softmax": lambda y: y.softmax(axis),
            "mean": lambda y: y.mean(axis, keepdim=True),
            "greatest": lambda y: y.amax(axis),
            "place": lambda y: y.argmax(axis).float(),
            "sums so far": lambda y: y.cumsum(axis),
            "backwards": lambda y: y.flip(axis),
            "roll": lambda y: y.roll(1, axis),
            "concatenation": lambda y: torch.cat([y, y * 2], axis),
            "stack": lambda y: torch.stack([y, y * 2], axis),
            "split": lambda y: torch.cat(list(y.split(3, axis))[::-1], axis),
            "part": lambda y: y.narrow(axis, 0, 1),
            "one": lambda y: y.select(axis, 0),
            "choice": lambda y: y.index_select(axis, INDEX % y.shape[axis]),
            "unsqueezed": lambda y: y.unsqueeze(axis),
            "greatest of all": lambda y: y.topk(1, axis)[0],
            "scatter": lambda y: y.scatter(axis, INDEX[:2].reshape(1, 1, 2, 1) % y.shape[axis], 1.5),
            "gather": lambda y: y.gather(axis, INDEX[:2].reshape(1, 1, 2, 1) % y.shape[axis]),
            "norm": lambda y: F.normalize(y, dim=axis),
        }.items()
    }


def _rotated(y: Any) -> Any:
    """Return pairs of numbers rotated and stacked along a new last axis, as rotary embeddings have them."""
    return y + torch.stack([y[..., 1::2], -y[..., ::2]], -1).flatten(-2)


OPERATORS: dict[str, Callable[[Any], Any]] = {
    **{name: function for axis in (0, 1, 2, -1) for name, function in _along(axis).items()},
    "pairs rotated": _rotated,
    "a split in one part": lambda y: y.split(CHANNELS, 1)[0],
    "few numbers scattered": lambda y: y.scatter(1, torch.tensor([5, 0, 2, 1]).reshape(1, 1, 2, 2), 3.0),
    "rows by their root mean square": lambda y: F.rms_norm(y, (WIDTH,)),
    "rows normalized": lambda y: F.layer_norm(y, (WIDTH,)),
    "maps normalized": lambda y: F.layer_norm(y, (CHANNELS, HEIGHT, WIDTH)),
    "groups normalized": lambda y: F.group_norm(y, 2),
    "a vector of columns added": lambda y: y + torch.arange(1.0 * WIDTH),
    "a fifth axis": lambda y: y + torch.ones(2, 1, CHANNELS, 1, 1),
    "permuted": lambda y: y.permute(2, 0, 3, 1),
    "shuffled": lambda y: y.reshape(1, 2, 4, HEIGHT, WIDTH).transpose(1, 2).reshape(y.shape),
    "padded channels": lambda y: F.pad(y, (0, 0, 0, 0, 1, 1)),
    "reflected": lambda y: F.pad(y, (1, 1, 2, 1), mode="reflect"),
    "product": lambda y: y @ y.transpose(2, 3),
    "product by channels": lambda y: torch.einsum("nchw,cd->ndhw", y, torch.ones(CHANNELS, 5)),
    "rows chosen": lambda y: y[:, torch.tensor([0, 2])[:, None], torch.tensor([1, 3])],
}


class Between(nn.Module):  # type: ignore[misc]
    """A convolution, operators on its output, and a convolution of each answer of four axes."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ModuleDict()

    def forward(self, x: torch.Tensor) -> list[Any]:
        data = self.before(x)
        return [self._last(str(number), each(data)) for number, each in enumerate(OPERATORS.values())]

    def _last(self, name: str, answer: Any) -> Any:
        if answer.ndim != 4:
            return answer
        if name not in self.after:
            self.after[name] = nn.Conv2d(answer.shape[1], 2, 1)
        return self.after[name](answer)


@pytest.mark.filterwarnings("error::tvmconv.errors.TvmconvWarning")
def test_operators_between_convolutions_in_channels_last(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, data = Between(), torch.randn(1, 3, HEIGHT, WIDTH)
    with torch.no_grad():
        expected = network(data)
        build(read_torch(torch.export.export(network, (data,), strict=False)), tmp_path / "network.so", layout="NXC")
    compiled = load_network(tmp_path / "network.so")
    answers = compiled(**{compiled.inputs[0].name: data.numpy()}).values()
    for name, answer, right in zip(OPERATORS, answers, expected, strict=True):
        assert_near(answer, right.numpy(), summed=3 * 9 + CHANNELS * HEIGHT * WIDTH, layers=4), name
