"""Resizes, paddings and gathers of a plan, channels first, of rows that are several vectors and some numbers, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch.nn import functional as F  # noqa: E402

from tests.numerics.test_network_torch_operators import ALLOWED, difference, wrong  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.operators.gather import parts_of  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

Cases = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
SIZES = [(70, 33), (9, 130), (35, 7), (1, 40)]
KINDS = [("nearest", None, False), ("nearest-exact", None, False), ("bilinear", False, False), ("bilinear", True, False),
         ("bicubic", False, False), ("bicubic", True, False), ("bilinear", False, True), ("bicubic", False, True)]  # fmt: skip


def planes() -> Cases:
    """Return resizes of planes, up and down, by sizes and by fractions, and of what something else reads, too."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 20, 57)
    x[0, 0, 3, 5], x[1, 2, 0, 56] = float("nan"), float("inf")
    cases: Cases = {}
    for mode, corners, wide in KINDS:
        finite = (torch.randn(2, 3, 20, 57),)
        given = (x,) if mode.startswith("nearest") else finite
        how = partial(F.interpolate, mode=mode, align_corners=corners, antialias=wide)
        for size in SIZES:
            cases[f"{mode} {corners} {wide} {size}"] = partial(how, size=size), given
        for scale in (2, 0.3, (1.7, 2.6)):
            cases[f"{mode} {corners} {wide} by {scale}"] = partial(how, scale_factor=scale), given
    rows = torch.randn(1, 3, 20, 57)
    cases["read twice"] = (lambda a: (r := F.interpolate(a, size=(20, 90), mode="bicubic"), r * 2)), (rows,)
    return cases


def others() -> Cases:
    """Return resizes of lines and volumes, lines of more columns than are made at a time, paddings, rolls and gathers."""
    torch.manual_seed(1)
    line, long, volume, plane = (
        torch.randn(shape) for shape in ((2, 5, 77), (1, 2, 9001), (1, 3, 4, 9, 21), (2, 3, 19, 40))
    )
    backwards = torch.arange(39, -1, -1)
    return {
        "linear": (lambda a: F.interpolate(a, scale_factor=2.5, mode="linear"), (line,)),
        "linear to less": (lambda a: F.interpolate(a, size=9, mode="linear"), (line,)),
        "long": (lambda a: F.interpolate(a, scale_factor=1.5, mode="linear"), (long,)),
        "long to less": (lambda a: F.interpolate(a, size=7, mode="linear", align_corners=True), (long,)),
        "long nearest": (lambda a: F.interpolate(a, size=20011), (long,)),
        "trilinear": (lambda a: F.interpolate(a, scale_factor=2, mode="trilinear"), (volume,)),
        "trilinear corners": (lambda a: F.interpolate(a, (7, 4, 50), mode="trilinear", align_corners=True), (volume,)),
        "nearest of volumes": (lambda a: F.interpolate(a, (9, 9, 60)), (volume,)),
        "nearest by less than an element": (lambda a: F.interpolate(a, scale_factor=1.04), (plane,)),
        "nearest of lines by less": (lambda a: F.interpolate(a, scale_factor=1.01), (line,)),
        "nearest of volumes by less": (lambda a: F.interpolate(a, scale_factor=1.1), (volume,)),
        "reflected": (lambda a: F.pad(a, (18, 3, 2, 5), mode="reflect"), (plane,)),
        "replicated": (lambda a: F.pad(a, (18, 0, 2, 5), mode="replicate"), (plane,)),
        "circular": (lambda a: F.pad(a, (18, 40, 0, 5), mode="circular"), (plane,)),
        "circular, cropped": (lambda a: F.pad(a, (-3, 7, 2, -1), mode="circular"), (plane,)),
        "circular lines": (lambda a: F.pad(a, (70, 1), mode="circular"), (line,)),
        "circular volumes": (lambda a: F.pad(a, (1, 2, 3, 4, 1, 0), mode="circular"), (volume,)),
        "rolled": (lambda a: a.roll((5, -17), (2, 3)), (plane,)),
        "backwards": (lambda a: a[..., backwards], (plane,)),
        "both ways": (lambda a: a[..., torch.cat([backwards, torch.arange(40), backwards[:5]])] + 1, (plane,)),
        "of no order": (lambda a: a[..., torch.tensor([5, 3, 3, 39, *range(9, 30), 1])] * 2, (plane,)),
    }


@pytest.mark.parametrize("cases", [planes, others])
def test_windows_are_pytorchs(cases: Callable[[], Cases], tmp_path: Path) -> None:
    assert not wrong(cases(), torch.float32, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nearest_elements_between_convolutions(dtype: Any, tmp_path: Path) -> None:
    """Of any ratio they stay channels last: a resize channels first took a tenth of GhostNetV2, with a transposition before and after."""

    class Between(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, a: Any) -> Any:
            made = F.interpolate(self.before(a), (7, 9), mode="nearest")
            return self.after(F.interpolate(made, (10, 8), mode="nearest-exact"))

    torch.manual_seed(0)
    model, data = Between().eval().to(dtype), torch.randn(1, 3, 3, 4).to(dtype)
    with torch.no_grad():
        build(read_torch(torch.export.export(model, (data,))), tmp_path / "network.so")
        right = model(data)
    network = load_network(tmp_path / "network.so")
    given = {network.inputs[0].name: data.float().numpy().astype(network.inputs[0].numpy)}
    (answer,) = network(**given).values()
    assert difference(answer, right, ALLOWED[dtype]) is None
    names = [each.name for each in network.operators(given, 0.001) if not each.ours]
    assert sum("transpose" in each for each in names) == 2, names  # of the input and the answer


def test_windows_of_bf16(tmp_path: Path) -> None:
    """One function for each resize, which rounds once."""
    torch.manual_seed(0)
    line, plane, volume = (torch.randn(shape) for shape in ((2, 5, 77), (2, 3, 20, 57), (1, 3, 4, 9, 21)))
    cases: Cases = {
        "linear": (partial(F.interpolate, scale_factor=2.5, mode="linear"), (line,)),
        "cubic": (partial(F.interpolate, size=(70, 33), mode="bicubic"), (plane,)),
        "trilinear": (partial(F.interpolate, scale_factor=2, mode="trilinear"), (volume,)),
        "nearest": (partial(F.interpolate, size=(35, 99), mode="nearest-exact"), (plane,)),
    }
    assert not wrong(cases, torch.bfloat16, tmp_path)
    network = load_network(tmp_path / "network.so")
    given = {each.name: np.zeros(each.shape, each.numpy) for each in network.inputs}
    calls = [each for each in network.operators(given, 0.001) if each.name.startswith("resize")]
    assert sum(each.calls for each in calls) == 4


@pytest.mark.parametrize(
    ("places", "parts"),
    [
        ([*range(3, 23)], [(0, (3, 1))]),
        ([2, 1, *range(16), 15, 15], [(0, None), (2, (0, 1)), (18, None)]),
        ([*range(20, 0, -1), *range(30)], [(0, (20, -1)), (21, (1, 1))]),
        ([*range(15)], []),
        ([0] * 40, []),
        ([], []),
        ([each for part in range(9) for each in (*range(16), 0)], []),
    ],
)
def test_parts_of_rows(places: list[int], parts: Any) -> None:
    assert parts_of(np.array(places)) == parts
