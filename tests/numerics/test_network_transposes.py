"""Transposes and what is computed with them, in squares, beside NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import isa
from near import assert_near

pytest.importorskip("tvm")
from tvm import relax

from tests.numerics.test_network import module
from tvmconv.network.compile import build
from tvmconv.runtime.networks.network import load_network

# Shapes whose squares are whole, end within a vector, or are of 8 or 4; of several blocks; too small for any.
CASES = [
    ((1, 80, 64), (0, 2, 1)),
    ((1, 131, 150), (0, 2, 1)),
    ((2, 17, 4, 19), (1, 3, 2, 0)),
    ((3, 5, 7, 33), (3, 1, 0, 2)),
    ((2, 9, 11, 5), (0, 3, 2, 1)),
    ((1, 300, 270), (2, 0, 1)),
    ((6, 3, 2), (2, 1, 0)),
]
op = relax.op


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("target", [pytest.param(name, marks=isa(name)) for name in ("x86-64-v3", "x86-64-v4")])
def test_transposes(dtype: str, target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-99, 99, shape).astype(dtype) for shape, _ in CASES]

    def make(builder: Any, *data: Any) -> Any:
        order = [builder.emit(op.permute_dims(each, axes)) for each, (_, axes) in zip(data, CASES, strict=True)]
        return builder.emit(relax.Tuple(order))

    for answer, array, (_, axes) in zip(called(make, arrays, target, tmp_path), arrays, CASES, strict=True):
        np.testing.assert_array_equal(answer, array.transpose(axes))


def test_what_is_computed_with_transposes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shapes = [(1, 70, 45), (1, 45, 70), (45, 70), (70,), (1, 45, 70, 1)]
    arrays = [rng.integers(-9, 10, shape).astype(np.float32) for shape in shapes]

    def make(builder: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        def swapped(x: Any) -> Any:
            return builder.emit(op.permute_dims(x, (0, 2, 1)))

        first = builder.emit(op.add(builder.emit(op.multiply(swapped(a), b)), d))
        both = builder.emit(op.maximum(swapped(a), builder.emit(op.squeeze(e, [3]))))
        cut = builder.emit(op.strided_slice(swapped(b), [1], [3], [68]))
        parts = builder.emit(op.concat([swapped(a), b], 1))
        outputs = [first, both, cut, parts, builder.emit(op.subtract(swapped(swapped(b)), c))]
        return builder.emit(relax.Tuple(outputs))

    a, b, c, d, e = arrays
    t = a.transpose(0, 2, 1)
    right = [t * b + d, np.maximum(t, e[..., 0]), b.transpose(0, 2, 1)[:, 3:68], np.concatenate([t, b], 1), b - c]
    for answer, expected in zip(called(make, arrays, "host", tmp_path), right, strict=True):
        np.testing.assert_array_equal(answer, expected)


def called(make: Any, arrays: list[Any], target: str, folder: Path) -> list[Any]:
    dtype = str(arrays[0].dtype)
    build(module(make, [each.shape for each in arrays], dtype), folder / "network.so", target)
    network = load_network(folder / "network.so")
    return list(network(**{f"x{number}": array for number, array in enumerate(arrays)}).values())


def test_borders_that_are_written_over_before_a_convolution(tmp_path: Path) -> None:
    """As diverse branches do: simplified, what was to be read in squares is read in rows."""
    torch = pytest.importorskip("torch")
    from tvmconv.network.read.torch.reader import read_torch

    class Bordered(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Conv2d(3, 16, 1), torch.nn.Conv2d(16, 8, 3)

        def forward(self, x: Any) -> Any:
            y = torch.nn.functional.pad(self.first(x), [1, 1, 1, 1])
            y[:, :, :1], y[:, :, -1:], y[..., :1], y[..., -1:] = 0.25, 0.5, 0.75, 1.0
            return self.second(y)

    torch.manual_seed(0)
    model, data = Bordered().eval(), torch.rand(1, 3, 24, 24)
    build(read_torch(torch.export.export(model, (data,), strict=False)), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    (answer,) = network(**{network.inputs[0].name: data.numpy()}).values()
    assert_near(answer, model(data).detach().numpy(), summed=3 + 16 * 9, layers=2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_put_together_and_transposed(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.integers(-9, 10, (1, channels, 70)).astype(dtype) for channels in (64, 33, 5)]
    arrays.append(rng.integers(-9, 10, (1, 70, 40)).astype(dtype))

    def make(builder: Any, *data: Any) -> Any:
        joined = builder.emit(op.astype(builder.emit(op.concat(data[:3], 1)), "float32"))
        first = builder.emit(op.permute_dims(joined, (0, 2, 1)))
        swapped = builder.emit(op.permute_dims(data[0], (0, 2, 1)))
        # One part lies as it is written.
        return builder.emit(relax.Tuple([first, builder.emit(op.concat([swapped, data[3]], 2))]))

    first, mixed = called(make, arrays, "host", tmp_path)
    np.testing.assert_array_equal(first, np.concatenate(arrays[:3], 1).transpose(0, 2, 1).astype("float32"))
    np.testing.assert_array_equal(mixed, np.concatenate([arrays[0].transpose(0, 2, 1), arrays[3]], 2))
