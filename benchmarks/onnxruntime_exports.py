"""Networks of PyTorch as ONNX files, for `benchmarks.onnxruntime_provider`: those of `benchmarks.models`, and torchvision's."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

# The packages whose networks are exported.
EXPORTED = ("benchmarks", "torchvision")


def export_network(package: str, name: str, folder: Path) -> Path:
    """Return the ONNX file of a network with random weights, which is written if it is not there."""
    path = folder / f"{package}-{name}.onnx"
    if not path.is_file():
        # PyTorch and onnxruntime each bring threads, and a process that times has onnxruntime's alone.
        subprocess.run([sys.executable, "-m", __name__, package, name, str(path)], check=True)
    return path


def main(package: str, name: str, path: str) -> None:
    """Write a file."""
    import torch

    from .models.weights import settle

    torch.manual_seed(0)
    if package == "benchmarks":
        module = import_module(f"{__package__}.models.{name}")
        example = module.example()
        model = settle(module.model(), example)
    else:
        size = 299 if name == "inception_v3" else 224
        example = torch.randn(1, 3, size, size)
        # The auxiliary classifiers of two networks are for training.
        more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        model = getattr(import_module("torchvision.models"), name)(weights=None, **more).eval()
        model = settle(model, example)
    with torch.inference_mode():
        # The exporter that needs no package beside PyTorch.
        torch.onnx.export(model, (example,), path, dynamo=False, opset_version=17)


if __name__ == "__main__":
    main(*sys.argv[1:])
