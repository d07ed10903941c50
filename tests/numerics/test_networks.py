"""The networks of benchmarks/models, narrow and small, by `tvmconv.torch` beside PyTorch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from benchmarks.models.weights import settle  # noqa: E402
from tvmconv.network.read.torch.decompose import decompose  # noqa: E402
from tvmconv.network.read.torch.reader import find_unreadable  # noqa: E402

# The least size that each takes, and the epilogues that its layers compute.
NETWORKS = {
    "resnet50": (32, {"", "relu", "add-relu"}),
    "mobilenet_v2": (32, {"", "add", "clip_0_6"}),
    "mobilenet_v3_large": (32, {"", "add", "relu", "hardswish", "hardsigmoid_0.16666667_0.5"}),
    "efficientnet_b0": (32, {"", "add", "silu", "sigmoid"}),
    "inception_v3": (75, {"", "relu"}),
    "csp_darknet": (32, {"silu", "silu-add"}),
    "convnext_tiny": (32, {"", "gelu", "add"}),
    "unet": (16, {"", "relu"}),
    "unet3d": (4, {"", "relu"}),
    "hifigan": (2, {"", "add", "leaky_0.1", "tanh"}),
}
# Numbers of parameters: torchvision's documentation, and the HiFi-GAN paper's 13.92 million.
PARAMETERS = {
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "efficientnet_b0": 5_288_548,
    "inception_v3": 27_161_264 - 3_326_696,  # without the auxiliary classifier
    "convnext_tiny": 28_589_128,
    "hifigan": 13_926_017,
}
# Whose kernels are few enough to be built in every run.
QUICK = "unet3d"


def small(network: str) -> tuple[nn.Module, Any]:
    """Return a network of an eighth of its width, and the smallest input."""
    torch.manual_seed(0)
    module = import_module(f"benchmarks.models.{network}")
    model = module.model(0.125)
    data = module.example(2, NETWORKS[network][0])
    return settle(model, data), data


@pytest.fixture(autouse=True)
def inference() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("network", PARAMETERS)
def test_definitions_have_the_published_number_of_parameters(network: str) -> None:
    with torch.device("meta"):
        model = import_module(f"benchmarks.models.{network}").model()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[network]


@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_is_one_program_of_what_is_read(network: str) -> None:
    model, data = small(network)
    for answer in leaves(model(data)):
        assert 0.1 < answer.std() < 10  # neither dead nor exploded
    program = decompose(torch.export.export(model, (data,), strict=False))
    assert find_unreadable(program.graph.nodes) == {}


@pytest.mark.parametrize(
    "network", [pytest.param(name, marks=() if name == QUICK else pytest.mark.slow) for name in NETWORKS]
)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)], ids=str)
def test_kernels_compute_every_network(network: str, dtype: Any, tmp_path: Path) -> None:
    model, data = small(network)
    fast = tvmconv.torch.optimize(
        model, data, bundle=tmp_path / "bundle", dtype=None if dtype == torch.float32 else dtype, progress=None
    )
    expected = model(data)
    # In bf16 narrow networks lose digits: not more than PyTorch loses, or than wide ones do.
    allowed = 1e-4 if dtype == torch.float32 else max(5e-2, error(model.to(dtype)(data.to(dtype)), expected))
    answer = fast(data.to(dtype))
    assert all(each.dtype == dtype for each in leaves(answer))
    assert error(answer, expected) <= allowed
    report = tvmconv.torch.report(fast)
    assert [row for row in report if row.why] == [] and report.refused == {} and report.calls == {}
    # Joined filters may have others, too.
    assert {row.signature.partition("-bias")[2].strip("-") for row in report.kernels} >= NETWORKS[network][1] - {""}


def error(answer: Any, expected: Any) -> float:
    """Return the relative L2 error of all outputs."""
    got, right = (torch.cat([leaf.float().flatten() for leaf in leaves(each)]) for each in (answer, expected))
    return float((got - right).norm() / right.norm())


def leaves(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)
