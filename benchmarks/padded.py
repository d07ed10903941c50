"""Convolutions with pads before them or cuts after them, as `tvmconv.torch.optimize` runs them, beside PyTorch.

Both are called in turns in one process, with the same tensor, which lies as PyTorch makes it. Printed are the medians in
microseconds, and PyTorch's time by ours, above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

import tvmconv.torch
from tvmconv.cli.output import print_table

from . import padded_models as models

Row = tuple[str, Callable[[], nn.Module], tuple[int, ...]]


class Around(nn.Module):  # type: ignore[misc]
    """A convolution with `F.pad` before it, and with what is done to its output."""

    def __init__(
        self, convolution: nn.Module, pad: Sequence[int] = (), mode: str = "constant", cut: Any = None
    ) -> None:
        super().__init__()
        self.convolution, self.pad, self.mode, self.cut = convolution, tuple(pad), mode, cut

    def forward(self, x: Any) -> Any:
        """Pad, convolve and cut."""
        y = self.convolution(functional.pad(x, self.pad, self.mode) if self.pad else x)
        return y if self.cut is None else y[..., self.cut]


def _stack(make: Callable[[int], list[nn.Module]]) -> nn.Module:
    return nn.Sequential(*(layer for dilation in (1, 2, 4, 8) for layer in (*make(dilation), nn.ELU())))


# Each name says the pads; then channels, taps and size.
ROWS: tuple[Row, ...] = (
    ("before: 64, k3, 4096", lambda: Around(nn.Conv1d(64, 64, 3), (2, 0)), (1, 64, 4096)),
    ("before: 64, k7 d3, 4096", lambda: Around(nn.Conv1d(64, 64, 7, dilation=3), (18, 0)), (1, 64, 4096)),
    ("after: 32 to 64, k4 s2, 16000", lambda: Around(nn.Conv1d(32, 64, 4, 2), (0, 2)), (1, 32, 16000)),
    ("both: 128, k5, 1024", lambda: Around(nn.Conv1d(128, 128, 5), (2, 2)), (1, 128, 1024)),
    ("negative: 64, k3, 4096", lambda: Around(nn.Conv1d(64, 64, 3), (-4, -4)), (1, 64, 4096)),
    ("ZeroPad2d (0, 1, 0, 1): 64, 3x3 s2, 56x56",
     lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(64, 64, 3, 2)), (1, 64, 56, 56)),
    ("causal in depth: 16, 3x3x3, 8x28x28", lambda: Around(nn.Conv3d(16, 16, 3), (1, 1, 1, 1, 2, 0)), (1, 16, 8, 28, 28)),
    ("four ConstantPad1d of 0, dilated: 64, k3, 4096",
     lambda: _stack(lambda d: [nn.ConstantPad1d((2 * d, 0), 0.0), nn.Conv1d(64, 64, 3, dilation=d)]), (1, 64, 4096)),
    ("padding_mode reflect: 64, k7, 4096",
     lambda: nn.Conv1d(64, 64, 7, padding=3, padding_mode="reflect"), (1, 64, 4096)),
    ("padding_mode replicate: 32, k3, 16000",
     lambda: nn.Conv1d(32, 32, 3, padding=1, padding_mode="replicate"), (1, 32, 16000)),
    ("padding_mode circular: 64, k3, 1024",
     lambda: nn.Conv1d(64, 64, 3, padding=1, padding_mode="circular"), (1, 64, 1024)),
    ("F.pad reflect: 64, k7, 4096", lambda: Around(nn.Conv1d(64, 64, 7), (3, 3), "reflect"), (1, 64, 4096)),
    ("F.pad reflect: 1 to 32, k7, 24000", lambda: Around(nn.Conv1d(1, 32, 7), (3, 3), "reflect"), (1, 1, 24000)),
    ("constant 1.5: 64, k3, 1024", lambda: nn.Sequential(nn.ConstantPad1d((2, 0), 1.5), nn.Conv1d(64, 64, 3)), (1, 64, 1024)),
    ("ReflectionPad2d: 64, 3x3, 56x56", lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(64, 64, 3)), (1, 64, 56, 56)),
    ("replicate in depth: 16, 3x3x3, 8x28x28",
     lambda: Around(nn.Conv3d(16, 16, 3), (1, 1, 1, 1, 2, 0), "replicate"), (1, 16, 8, 28, 28)),
    ("four of padding_mode reflect, dilated: 64, k3, 4096",
     lambda: _stack(lambda d: [nn.Conv1d(64, 64, 3, padding=d, dilation=d, padding_mode="reflect")]), (1, 64, 4096)),
    ("transposed, cut after: 256 to 128, k16 s8, 128",
     lambda: Around(nn.ConvTranspose1d(256, 128, 16, 8), cut=slice(None, -8)), (1, 256, 128)),
    ("transposed, cut at both ends: 256 to 128, k16 s8, 128",
     lambda: Around(nn.ConvTranspose1d(256, 128, 16, 8), cut=slice(4, -4)), (1, 256, 128)),
    ("SEANet's encoder, no LSTM, 24000", lambda: models.encoder(recurrent=False), (1, 1, 24000)),
    ("SEANet's decoder, no LSTM, 75", lambda: models.decoder(recurrent=False), (1, 128, 75)),
    ("SEANet's encoder, 24000", models.encoder, (1, 1, 24000)),
    ("SEANet's decoder, 75", models.decoder, (1, 128, 75)),
    ("SEANet's encoder of both sides, 24000", lambda: models.encoder(causal=False), (1, 1, 24000)),
    ("Vocos, inverse STFT by FFT, 100", models.vocos, (1, 100, 100)),
    ("Vocos, inverse STFT transposed, 100", lambda: models.vocos(as_convolution=True), (1, 100, 100)),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Time the rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.padded", description=__doc__)
    parser.add_argument("words", nargs="*", help="rows whose names have one of these words; default: all")
    parser.add_argument("--bundle", help="folder that keeps our kernels for another run; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=15, help="default %(default)s")
    arguments = parser.parse_args(argv)
    print_table(("convolution", "PyTorch us", "tvmconv us", "ratio"), list(_rows(arguments)))
    return 0


def _rows(arguments: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    for name, make, shape in ROWS:
        if arguments.words and not any(word in name for word in arguments.words):
            continue
        torch.manual_seed(0)
        model, data = make().eval(), torch.randn(shape)
        fast = tvmconv.torch.optimize(model, data, bundle=arguments.bundle, progress=None)
        with torch.no_grad():
            torch.testing.assert_close(fast(data), model(data), rtol=1e-3, atol=1e-3)
            theirs, ours = _times(model, fast, data, arguments.rounds)
        yield name, f"{theirs * 1e6:.0f}", f"{ours * 1e6:.0f}", f"{theirs / ours:.2f}"


def _times(model: nn.Module, fast: nn.Module, data: Any, rounds: int) -> tuple[float, float]:
    """Return the medians of both models' seconds, of rounds that they take in turns, each of 20 ms or more."""
    times: tuple[list[float], list[float]] = ([], [])
    calls = [max(1, int(0.02 / _seconds(each, data, 2))) for each in (model, fast)]
    for _ in range(rounds):
        for each, count, kept in zip((model, fast), calls, times, strict=True):
            kept.append(_seconds(each, data, count))
    return median(times[0]), median(times[1])


def _seconds(model: nn.Module, data: Any, calls: int) -> float:
    model(data)  # whose memory the other one's calls took from the caches
    start = time.perf_counter()
    for _ in range(calls):
        model(data)
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    raise SystemExit(main())
