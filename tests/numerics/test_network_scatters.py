"""Scatters along an axis whose indices are fewer than the data in others, beside PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

SHAPE, PLACES = (2, 5, 4, 6), (1, 3, 2, 4)


class Scattered(nn.Module):  # type: ignore[misc]
    """Every kind of scatter, along every axis, and a split in one part."""

    def forward(self, x: Any, values: Any, places: Any) -> Any:
        answers = []
        for axis in range(4):
            index = places % x.shape[axis]
            whole = x.argmax(axis, keepdim=True)
            answers += [
                x.scatter_add(axis, index, values),
                x.scatter(axis, whole, 1.5),
                x.scatter(axis, whole, 2.0, reduce="multiply"),
                x.scatter(axis, whole, values.sum().expand_as(whole), reduce="add"),
                x.scatter_reduce(axis, index, values, "amax"),
                x.scatter_reduce(axis, index, values, "prod"),
                torch.cat(x.split(x.shape[axis], axis), 0),
            ]
        return answers


@pytest.mark.parametrize("layout", ["NXC", "NCX"])
def test_scatters(layout: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = (torch.randint(-4, 5, SHAPE).float(), torch.randint(-3, 4, PLACES).float(), torch.randint(0, 60, PLACES))
    network = Scattered()
    expected = network(*given)
    build(read_torch(torch.export.export(network, given, strict=False)), tmp_path / "network.so", layout=layout)
    compiled = load_network(tmp_path / "network.so")
    answers = compiled(**{one.name: each.numpy() for one, each in zip(compiled.inputs, given, strict=True)}).values()
    for answer, right in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(answer, right.numpy())


class Rows(nn.Module):  # type: ignore[misc]
    """Rows that are written, or added to others, at places that a call tells."""

    def forward(self, x: Any, places: Any, values: Any) -> Any:
        written = x.clone()
        written[places] = values
        pairs = torch.index_put(x, (places, places % 3), values[:, 0], accumulate=True)
        return written, x.index_add(0, places, values), pairs


def test_rows_beyond_the_data_are_an_error(tmp_path: Path) -> None:
    """A network must not write into the memory of others."""
    x, values, network = torch.arange(32.0).reshape(4, 8), torch.ones(3, 8), Rows()
    build(read_torch(torch.export.export(network, (x, torch.zeros(3).long(), values))), tmp_path / "network.so")
    compiled = load_network(tmp_path / "network.so")
    for places in ([1, 3, 3], [10**9, 2, -(10**9)], [4, 1, -5]):
        given = (x, torch.tensor(places), values)
        named = {one.name: each.numpy() for one, each in zip(compiled.inputs, given, strict=True)}
        if max(places) > 3:
            with pytest.raises(IndexError, match=f"index {max(places)} is out of range of an axis of extent 4"):
                compiled(**named)
            continue
        for answer, right in zip(compiled(**named).values(), network(*given), strict=True):
            np.testing.assert_array_equal(answer, right.numpy())
