"""Weights that an optimized model shares with its model, or releases: calls that still work, and errors of others."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import host_without_tiles
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch_models import settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError  # noqa: E402
from tvmconv.frontends.torch.memory import address  # noqa: E402
from tvmconv.torch.answering import answering_of  # noqa: E402


class Part(nn.Module):
    """Two layers with a ReLU; with a Linear, whose weight the model reads itself."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1))
        self.tied = tied

    def forward(self, x: Any) -> Any:
        y = self.layers(x)
        if not self.tied:
            return y
        # Not readable as a whole, so that the layers alone are replaced.
        return y + self.layers[3].bias.sum() if bool(x.sum() > -1e30) else y


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch") / "bundle"


def optimized(bundle: Path, model: nn.Module, **options: Any) -> tuple[nn.Module, Any]:
    data = torch.rand(1, 3, 8, 8)
    return tvmconv.torch.optimize(model, data, bundle, progress=None, keep_weights=False, **options), data


def bytes_of(model: nn.Module) -> int:
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers()) if each.device.type != "meta")


@torch.no_grad()
def test_networks_answer_without_the_models_weights(bundle: Path) -> None:
    model = settled(Part())
    fast, data = optimized(bundle, model)
    assert bytes_of(fast) == 0 and bytes_of(model) > 0
    assert_near(fast(data), model(data), summed=3 * 9 + 16, layers=3)
    assert [tuple(each.shape) for each in fast.parameters()] == [tuple(each.shape) for each in model.parameters()]
    for again in (copy.deepcopy(fast), _saved(fast)):
        assert_near(again(data), model(data), summed=3 * 9 + 16, layers=3)
        with pytest.raises(InputError, match=r"not compiled for 2x3x8x8 float32, .* let go"):
            again(torch.rand(2, 3, 8, 8))


def _saved(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@torch.no_grad()
def test_what_needs_the_weights_says_so(bundle: Path) -> None:
    model = settled(Part())
    fast, data = optimized(bundle, model)
    with pytest.raises(InputError, match="no state_dict any more: its weights were let go"):
        fast.state_dict()
    with pytest.raises(InputError, match="no state_dict any more"):
        fast.layers[0].state_dict()
    with pytest.raises(InputError, match="no state_dict any more"):
        fast.load_state_dict(model.state_dict())
    with pytest.raises(InputError, match=r"training was False and is True, .* let go"):
        fast.train()(data)
    with torch.enable_grad(), pytest.raises(InputError, match=r"gradients are needed, .* let go"):
        fast.eval()(data.requires_grad_())


@torch.no_grad()
def test_weights_that_the_models_code_reads_are_asked_for(bundle: Path) -> None:
    with pytest.raises(
        InputError, match=r"reads weights that were moved into its networks .*keep them \(keep_weights=True\)"
    ):
        optimized(bundle, settled(Part(tied=True)))


@torch.no_grad()
def test_weights_that_other_modules_have_stay(bundle: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.other = Part(), nn.Conv2d(3, 16, 3, padding=1)
            self.other.weight = self.part.layers[0].weight

        def forward(self, x: Any) -> Any:
            y = self.part(x)
            return y + self.other.weight.sum() if bool(x.sum() > -1e30) else y

    model = settled(Tied())
    fast, data = optimized(bundle, model)
    assert_near(fast(data), model(data), summed=3 * 9 + 16, layers=3)
    assert fast.other.weight.device.type == "cpu"


def addresses(model: nn.Module) -> list[int]:
    return [address(each) for each in (*model.parameters(), *model.buffers())]


@torch.no_grad()
def test_a_copy_has_the_models_memory_until_one_is_written_to(tmp_path: Path) -> None:
    model, data = settled(Part()), torch.rand(1, 3, 8, 8)
    for _ in ("compiled", "kept"):
        fast = tvmconv.torch.optimize(model, data, tmp_path / "b", progress=None)
        assert_near(fast(data), model(data), summed=3 * 9 + 16, layers=3)
        assert addresses(fast) == addresses(model)
    before = model(data)
    model.layers[0].weight.add_(1)
    assert address(fast.layers[0].weight) != address(model.layers[0].weight) and not torch.equal(model(data), before)
    assert addresses(fast)[1:] == addresses(model)[1:]
    assert_near(fast(data), before, summed=3 * 9 + 16, layers=3)
    assert_near(type(fast).forward(fast, data), before, summed=3 * 9 + 16, layers=3)
    fast.layers[3].bias.add_(1)  # noticed, and PyTorch computes it
    assert_near(fast(data), before + 1, summed=3 * 9 + 16, layers=3)
    assert not torch.equal(fast.layers[3].bias, model.layers[3].bias)


@torch.no_grad()
def test_a_look_at_shared_weights_changes_nothing_and_other_weights_do(tmp_path: Path) -> None:
    model, data = settled(Part()), torch.rand(1, 3, 8, 8)
    fast = tvmconv.torch.optimize(model, data, tmp_path / "b", progress=None)
    answering, right = answering_of(fast), model(data)
    assert answering is not None
    weight, bias = fast.layers[0].weight, fast.layers[3].bias
    weight.numpy(), fast.layers[1].running_mean.data_ptr(), copy.deepcopy(fast), _saved(fast)
    assert address(weight) != address(model.layers[0].weight)
    assert_near(fast(data), right, summed=3 * 9 + 16, layers=3)
    assert not answering.refused
    for _ in range(2):  # the second may lie where the first was
        bias.data = bias.data + 1
    assert_near(fast(data), right + 2, summed=3 * 9 + 16, layers=3)
    assert answering.refused


@torch.no_grad()
def test_memory_that_pytorch_cannot_share_is_copied(tmp_path: Path) -> None:
    model, data = settled(Part()), torch.rand(1, 3, 8, 8)
    array = np.ones(16, np.float32)
    pair = torch.rand(2, 16)
    model.layers[0].bias = nn.Parameter(torch.from_numpy(array))
    model.layers[1].weight, model.layers[1].bias = nn.Parameter(pair[0]), nn.Parameter(pair[1])
    fast = tvmconv.torch.optimize(model, data, tmp_path / "b", progress=None)
    before = model(data)
    array[:] = 0
    pair += 1
    assert not torch.equal(model(data), before)
    assert_near(type(fast).forward(fast, data), before, summed=3 * 9 + 16, layers=3)


@torch.no_grad()
def test_small_filters_are_no_more_than_the_models(tmp_path: Path) -> None:
    model = settled(nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()))
    sizes = []
    for memory in ("default", None):  # what lets go of weights is small
        data = torch.rand(1, 64, 56, 56)
        how = {"memory": memory, "target": host_without_tiles().name, "keep_weights": False, "progress": None}
        fast = tvmconv.torch.optimize(model, data, tmp_path / "b", **how)
        assert_near(fast(data), model(data), summed=64 * 9, numerical_class="transform")
        sizes.append(sum(each.file.weight_bytes for each in tvmconv.torch.networks(fast)))
    assert sizes[1] <= 1.05 * bytes_of(model) < sizes[0]
    with pytest.raises(InputError, match="memory is 'tiny'; allowed: default, small"):
        tvmconv.torch.optimize(model, data, memory="tiny")
