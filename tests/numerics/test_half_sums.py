"""Sums of f16 within operators, beside PyTorch's: computed in f32, for f16 counts no further than 2048 and ends at 65504."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402


class Sums(nn.Module):
    def forward(self, x: Any) -> Any:
        equal, large = x * 0, x * 0 + 1000
        norms = [torch.linalg.vector_norm(large[:, :9], order, -1) for order in (1, 2, 3)]
        shares = equal.softmax(-1), equal.log_softmax(-1), equal.transpose(0, 1).softmax(0)
        return (*norms, *shares, large.mean(-1), (x * 600).var(-1), functional.normalize(large, dim=0))


class FixedSums(nn.Module):
    """Sums of what has fixed extents: over a stack, in pools, in products that are no kernels, in normalizations, and running."""

    def forward(self, x: Any) -> Any:
        ones = x * 0 + 1
        image = (ones[0, :4096] * 100).view(1, 1, 64, 64)
        by_data = functional.conv2d((ones[0, :4800]).view(1, 300, 4, 4), (ones[0, :4800]).view(1, 300, 4, 4))
        pools = functional.avg_pool2d(image, 64), functional.adaptive_avg_pool2d(image, (2, 1))
        products = ones @ ones[0], ones[0] @ ones[0], by_data
        normal = functional.instance_norm((x[:, :4096] * 3000).reshape(1, 2, 64, 64))
        running = torch.stack([x * 40000, x * 40000, x * -40000]).cumsum(0)[2]
        return (torch.stack([x * 30000, x * 60000], 1).mean(1), *pools, *products, normal, running)


def numbers(size: int) -> Any:
    return torch.linspace(-0.1, 1, 2 * size).reshape(2, size).half()


def test_sums_of_fixed_extents(tmp_path: Path) -> None:
    for number, model in enumerate((Sums(), FixedSums())):
        library = tmp_path / f"{number}.so"
        build(read_torch(torch.export.export(model, (numbers(5000),), strict=False)), library)
        found = load_network(library)
        answers = found(**{found.inputs[0].name: numbers(5000).numpy()}).values()
        for answer, right in zip(answers, model(numbers(5000)), strict=True):
            assert_near(torch.from_numpy(answer), right, layers=2)


def test_sums_of_free_extents() -> None:
    model, sizes = Sums().eval(), {"x": {1: Dim("n", min=16)}}
    network = tvmconv.torch.compile(model, numbers(40), dynamic_shapes=sizes, progress=None)
    for size in (17, 5000):
        for answer, right in zip(network(numbers(size)), model(numbers(size)), strict=True):
            assert_near(answer, right, layers=2)
