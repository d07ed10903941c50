"""tvmconv.torch.optimize of models whose weights hooks compute in each call."""

from __future__ import annotations

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_model_whose_hooks_compute_all_weights_is_one_network() -> None:
    """As HiFi-GAN's and BigVGAN's code has them, made with gradients, before any call."""
    model = nn.Sequential(nn.utils.weight_norm(nn.Conv1d(4, 8, 3)), nn.Tanh()).eval()
    given = torch.rand(1, 4, 9)
    fast = tvmconv.torch.optimize(model, given, progress=None)
    assert tvmconv.torch.report(fast).refused == {}
    with torch.no_grad():
        assert_near(fast(given), model(given), summed=4 * 3, layers=3)
        for each in (fast, model):
            each[0].weight_g.mul_(2)
        assert_near(fast(given), model(given), summed=4 * 3, layers=3)
