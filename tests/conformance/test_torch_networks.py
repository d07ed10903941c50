"""The networks of benchmarks/models, compiled whole from PyTorch by TVM's frontend, compared with PyTorch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.models.weights import settle  # noqa: E402
from tvmconv.accuracy import relative_error  # noqa: E402
from tvmconv.network.compile import export  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.network.report import report  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

# The width and the size of the input of each.
NETWORKS = {
    "resnet50": (1.0, 224),
    "mobilenet_v2": (1.0, 224),
    "mobilenet_v3_large": (0.25, 64),
    "efficientnet_b0": (0.25, 64),
    "inception_v3": (0.25, 96),
    "csp_darknet": (0.25, 64),
    "convnext_tiny": (0.25, 64),
    "unet": (0.25, 64),
    "unet3d": (0.25, 16),
    "hifigan": (0.25, 8),
}
# In bf16 values are rounded after each of a hundred layers.
ALLOWED = {torch.float32: 1e-5, torch.bfloat16: 0.1}


# A minute or several each; for changes to tvmconv/network, as tests/conformance/test_shipped_networks.py is.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float32) for name in NETWORKS),
        *((name, torch.bfloat16) for name in ("mobilenet_v3_large", "convnext_tiny", "unet3d", "hifigan")),
    ],
    ids=str,
)
def test_a_network_compiled_whole_from_pytorch_is_right(
    name: str, dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    width, size = NETWORKS[name]
    torch.manual_seed(0)
    module = import_module(f"benchmarks.models.{name}")
    data = module.example(1, size)
    network = settle(module.model(width), data)
    with torch.no_grad():
        found = network(data)
        program = torch.export.export(network.to(dtype), (data.to(dtype),))
    compiled_module = use_kernels(read_torch(program))
    rows = report(compiled_module)
    assert rows and not any(row.why for row in rows)
    export(compiled_module, tmp_path / "network.so")
    compiled = load_network(tmp_path / "network.so")
    (given,) = compiled.inputs
    answers = compiled(**{given.name: data.numpy().astype(given.dtype)}).values()
    for answer, right in zip(answers, [found] if torch.is_tensor(found) else found, strict=True):
        assert relative_error(answer.astype(np.float32), right.numpy()) < ALLOWED[dtype]
