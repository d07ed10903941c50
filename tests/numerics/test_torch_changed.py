"""Changes around a model after tvmconv.torch.optimize: answers are PyTorch's, and networks' again once all is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch_changes import CASES, Model, alike, assert_equal, calls, changed  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvWarning  # noqa: E402
from tvmconv.torch import computed  # noqa: E402


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed") / "bundle"


@pytest.fixture(scope="module")
def models(bundle: Path) -> dict[str, tuple[nn.Module, nn.Module]]:
    """Return a model with its optimized copy, twice: with compiled networks, and with those found in the folder."""
    found, data = {}, torch.rand(1, 3, 6, 6)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        for name in ("fresh", "served"):
            model = Model().eval().requires_grad_(False)
            found[name] = (model, tvmconv.torch.optimize(model, data, bundle, progress=None))
            patch.setattr(computed, "export", None)
    return found


@pytest.mark.parametrize("where", ["fresh", "served"])
@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen(name: str, where: str, models: dict[str, tuple[nn.Module, nn.Module]]) -> None:
    model, fast = models[where]
    data = torch.rand(1, 3, 6, 6)
    right = model(data)
    fast.forward.__self__.refused.clear()
    alike(fast(data), right)
    assert calls(fast) == []  # networks do
    with changed(CASES[name], model, fast):
        torch.manual_seed(0)
        other = model(data)
        assert other.shape != right.shape or not torch.equal(other, right), "the change is none"
        with pytest.warns(
            TvmconvWarning,
            match=r"the model: .* (was .* and is .*|is new|is gone|has other values); using PyTorch",
        ) as told:
            for _ in range(2):
                torch.manual_seed(0)
                assert_equal(fast(data), other)
        assert len(told) == 1
    alike(fast(data), right)
    assert len(calls(fast)) == 1


def test_weights_that_are_parts_of_one_tensor(tmp_path: Path) -> None:
    """Of parts set one after the other, memory begins where that of the others does."""
    bank, data = torch.rand(2, 4, 3, 3, 3), torch.rand(1, 3, 6, 6)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    model[0].weight.data = bank[0]
    fast = tvmconv.torch.optimize(model, data, tmp_path / "bundle", progress=None)
    fast[0].weight.data = model[0].weight.data = bank[1]
    with pytest.warns(TvmconvWarning, match="using PyTorch"):
        assert_equal(fast(data), model(data))
    fast[0].weight.data = model[0].weight.data = bank[0]
    alike(fast(data), model(data))
