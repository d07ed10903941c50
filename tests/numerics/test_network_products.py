"""Products of two tensors that are both data are kernels: right in every form, with what follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("tvm")
torch = pytest.importorskip("torch")
from near import assert_near  # noqa: E402
from tvm import relax  # noqa: E402

import tvmconv.torch  # noqa: E402
from tests.numerics.test_network import module  # noqa: E402
from tests.numerics.test_network_transposes import called  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.report import report  # noqa: E402

op = relax.op
Shape = tuple[int, ...]
FORMS = [
    ((3, 50, 16), (3, 16, 20), "i48x20-o150x20-k1-s1-d1-p0_0-g3-NCX-OIX"),  # a batch is groups
    ((2, 3, 13, 7), (2, 3, 7, 40), "i42x40-o78x40-k1-s1-d1-p0_0-g6-NCX-OIX"),
    ((2, 30, 8), (8, 9), "i8x60-o9x60-k1-s1-d1-p0_0-g1-NXC-XIO"),  # the right one is smaller
    ((6, 24), (24, 33), "i24x33-o6x33-k1-s1-d1-p0_0-g1-NCX-OIX"),  # the left one is smaller
    ((1, 10, 8), (4, 8, 9), "i8x9-o10x9-k1-s1-d1-p0_0-g1-NCX-OIX"),  # shared by a batch
    ((5, 1, 9), (5, 9, 12), "i45x12-o5x12-k1-s1-d1-p0_0-g5-NCX-OIX"),
]
LEFT_TO_TVM = [
    ((2, 1, 3, 16), (1, 4, 16, 17)),
    ((2, 1, 3, 16), (1, 2, 16, 17)),
    ((9,), (9, 20)),
    ((2, 3, 0), (2, 0, 4)),
]


def product(builder: Any, left: Any, right: Any) -> Any:
    return builder.emit(op.matmul(left, right))


def whole(shape: Shape, dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=["f32", "f16", "bf16"])
def test_products_of_data_are_kernels_in_every_form(dtype: Any, tmp_path: Path) -> None:
    """All in one network: libraries take the time."""
    arrays = [whole(shape, dtype, seed) for seed, shape in enumerate(each for form in FORMS for each in form[:2])]

    def make(builder: Any, *given: Any) -> Any:
        return builder.emit(relax.Tuple([product(builder, *given[at : at + 2]) for at in range(0, len(given), 2)]))

    name = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[np.dtype(dtype).name]
    rows = report(use_kernels(module(make, [each.shape for each in arrays], np.dtype(dtype).name), "host"))
    assert [row.signature.split("-", 2)[2] for row in rows] == [f"{form[2]}-{name}" for form in FORMS]
    assert all(row.function.startswith("tvmconv_product") for row in rows)
    for at, answer in enumerate(called(make, arrays, "host", tmp_path)):
        left, right = (each.astype(np.float64) for each in arrays[2 * at : 2 * at + 2])
        np.testing.assert_array_equal(np.asarray(answer).astype(np.float64), left @ right)


@pytest.mark.parametrize(("left", "right"), LEFT_TO_TVM)
def test_other_products_stay_tvms(left: Shape, right: Shape) -> None:
    assert report(use_kernels(module(product, [left, right]), "host")) == []


def test_what_follows_a_product_of_data_is_the_kernels(tmp_path: Path) -> None:
    """A factor, a bias of each row, an activation and a sum."""
    arrays = [whole(shape, np.float32, seed) for seed, shape in enumerate([(40, 8), (8, 60), (40, 60)])]
    bias = whole((40, 1), np.float32, 3)

    def make(builder: Any, left: Any, right: Any, other: Any) -> Any:
        shifted = builder.emit(op.add(product(builder, left, right), relax.const(bias)))
        scaled = builder.emit(op.multiply(builder.emit(op.nn.relu(shifted)), relax.const(np.float32(0.5))))
        return builder.emit(op.add(scaled, other))

    (row,) = report(use_kernels(module(make, [each.shape for each in arrays]), "host"))
    assert row.signature.endswith("g1-NCX-OIX-f32-bias-relu-scale-add")
    (answer,) = called(make, arrays, "host", tmp_path)
    left, right, other = arrays
    np.testing.assert_array_equal(answer, np.maximum(left @ right + bias, 0) * 0.5 + other)


def test_a_product_of_what_kernels_computed(tmp_path: Path) -> None:
    """Covariances: of a tensor with itself, transposed, once it has been convolved."""
    data, filter_ = whole((1, 6, 5, 7), np.float32), whole((4, 6, 1, 1), np.float32, 1)

    def make(builder: Any, given: Any) -> Any:
        made = builder.emit(op.nn.conv2d(given, relax.const(filter_)))
        rows = builder.emit(op.reshape(made, (4, 35)))
        return product(builder, rows, builder.emit(op.permute_dims(rows)))

    (answer,) = called(make, [data], "host", tmp_path)
    rows = np.einsum("nchw,oc->ohw", data, filter_[:, :, 0, 0]).reshape(4, 35)
    np.testing.assert_array_equal(answer, rows @ rows.T)


class Followed(torch.nn.Module):
    """A product of data, then what has numbers along its second axis, which are channels of the kernel's only without a batch."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.normalization, self.slopes = torch.nn.BatchNorm1d(count), torch.nn.PReLU(count)
        torch.nn.init.uniform_(self.slopes.weight)
        torch.nn.init.uniform_(self.normalization.weight)
        self.normalization.running_mean = torch.randn(count)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        product = x @ x.mT
        normalized = self.normalization(product.flatten(2) if product.ndim > 3 else product)
        return [self.slopes(product), self.slopes(2 * normalized.reshape(product.shape))]


@pytest.mark.parametrize("shape", [(5, 8), (1, 5, 8), (3, 5, 8), (2, 5, 3, 8)])
def test_numbers_along_the_second_axis_follow_a_product(shape: Shape) -> None:
    torch.manual_seed(0)
    model, x = Followed(5).eval(), torch.randn(shape)
    with torch.no_grad():
        assert_near(tvmconv.torch.compile(model, x, progress=None)(x), model(x), summed=8, layers=3)
