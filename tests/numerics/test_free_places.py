"""Places along free extents: what counts to an extent, or back from it, and parts from both ends."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import model, save, value
from numerics.test_network_free import check, free_network
from onnx import helper, numpy_helper

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import tvmconv.torch  # noqa: E402

node = helper.make_node
SIZES = ((4, 5), (7, 13), (16, 33), (101, 6))


def test_drawn_ranges(tmp_path: Path) -> None:
    """In whole numbers and floating point, up and down, by halves, from and to extents and their multiples."""
    rng = random.Random(0)
    nodes = [
        node("Shape", ["x"], ["s"]),
        *(node("Gather", ["s", f"at{axis}"], [name]) for name, axis in (("h", 2), ("w", 3))),
        *(node("Cast", [name], [f"f{name}"], to=1) for name in "hw"),
        *(node("Mul", [f"f{name}", "half"], [f"half{name}"]) for name in "hw"),
    ]
    constants: dict[str, Any] = {"at2": np.int64(2), "at3": np.int64(3), "half": np.float32(0.5)}
    outputs = []
    for number in range(16):
        whole, back, scale = rng.random() < 0.4, rng.random() < 0.3, rng.choice(((1, 2), (0.5, 0.25, 1.5, 3)))
        extent = rng.choice(("h", "w") if whole else ("fh", "fw", "halfh", "halfw"))
        kind = np.int64 if whole else np.float32
        constants[f"other{number}"] = kind(rng.choice((0, -1, 1)) if whole or back else rng.choice((0, 0.5, -0.75, 1)))
        constants[f"step{number}"] = kind((-1 if back else 1) * (rng.choice((1, 2, 3)) if whole else rng.choice(scale)))
        ends = [extent, f"other{number}"] if back else [f"other{number}", extent]
        made = node("Range", [*ends, f"step{number}"], [f"y{number}"])
        print(made, constants[f"other{number}"], constants[f"step{number}"])
        nodes.append(made)
        outputs.append(helper.make_tensor_value_info(f"y{number}", 7 if whole else 1, None))
    weights = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    nodes.append(node("Relu", ["x"], ["y"]))
    source = save(model(nodes, [value("x", [1, 3, "h", "w"])], [value("y", None), *outputs], weights=weights), tmp_path)
    check(source, free_network(source, "1x3x?x?", tmp_path), [(1, 3, *size) for size in SIZES])


def test_parts_from_both_ends() -> None:
    """Positions of a table as Whisper has them, of no more rows than it has; crops, and every second column."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Parameter(torch.randn(150, 4))

        def forward(self, x: Any) -> Any:
            rows = x[:, :, ::2].transpose(1, 2)
            length, half = x.shape[2], x.shape[2] // 2
            return (
                rows + self.places[: rows.shape[1]], x[:, :, 1:], x[:, :, :-1], x[:, :, -2:], x[:, :, 1:-1:3], x[:, 1:, half:],
                x[:, :, :half], x[..., -half:], x[..., length - 2 :], x[:, -9:],
            )  # fmt: skip

    torch.manual_seed(0)
    parts = Parts().eval()
    fast = tvmconv.torch.compile(
        parts, torch.randn(1, 4, 20), dynamic_shapes=({2: 2 * Dim("half", min=4, max=150)},), progress=None
    )
    for length in (8, 14, 64, 298, 300):
        x = torch.randn(1, 4, length)
        for found, right in zip(fast(x), parts(x), strict=True):
            assert torch.equal(found, right)


def test_pixels_at_places_from_extents(tmp_path: Path) -> None:
    """As dynamo writes several indices; some count from the end."""
    nodes = [
        node("Shape", ["x"], ["s"], start=2),
        node("Div", ["s", "two"], ["half"]),
        node("Neg", ["half"], ["back"]),
        node("Unsqueeze", ["half", "zero"], ["places"]),
        node("Unsqueeze", ["back", "zero"], ["others"]),
        node("Concat", ["places", "others", "places"], ["all"], axis=0),
        node("Transpose", ["x"], ["last"], perm=[2, 3, 0, 1]),
        node("GatherND", ["last", "all"], ["y"]),
        node("ArgMax", ["last"], ["best"], axis=0, keepdims=0),
        node("Unsqueeze", ["best", "end"], ["rows"]),
        node("GatherND", ["last", "rows"], ["z"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([number]), name) for name, number in (("two", 2), ("zero", 0), ("end", -1))
    ]
    source = save(
        model(nodes, [value("x", ["n", 3, "h", "w"])], [value("y", None), value("z", None)], weights=weights), tmp_path
    )
    check(source, free_network(source, "?x3x?x?", tmp_path), [(1, 3, 4, 6), (2, 3, 13, 7), (3, 3, 2, 31)])
