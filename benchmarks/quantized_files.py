"""What a comparison of quantised networks needs of one: the float model, the same quantised, and our libraries of both."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvmconv.errors import VerificationError

from .onnx_networks import SHIPPED, write_model

# Ours by the names of their libraries: of the quantised model as it is and by `--quantized fastest`, and of the float model.
INT8, FASTEST, FLOAT = OURS = ("int8", "fastest", "f32")
MODELS = {INT8: "int8.onnx", FASTEST: "int8.onnx", FLOAT: "model.onnx"}
OPTIONS: dict[str, tuple[str, ...]] = {FASTEST: ("--quantized", "fastest")}
# Of `zoo_networks`, of `benchmarks.models` (unet), and of packages (detector).
NETWORKS = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "efficientnet_lite0",
    "squeezenet1_1",
    "googlenet",
    "inception_v3",
    "unet",
    "fcn_resnet50",
    "detector",
    "shufflenet_v2_x1_0",
    "regnet_y_400mf",
    "densenet121",
)
_CALIBRATIONS = 4
_OPSET = 17
_KINDS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class QuantizedModel:
    """Write a network's files for `ours` and the other libraries into a folder; existing files stay."""

    network: str
    folder: str
    ours: tuple[str, ...]

    def __str__(self) -> str:
        return f"making {self.network} ready"


def prepare(task: QuantizedModel) -> None:
    """Do what `task` says."""
    folder = Path(task.folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "input.npy").exists():
        np.save(folder / "input.npy", _numbers(0, _write_float(task.network, folder)))
    if not (folder / MODELS[INT8]).exists():
        _quantize(folder)
    for name in task.ours:
        if not (folder / f"{name}.so").exists():
            _compile(folder, name)


def share_quantized(folder: Path) -> str:
    """Return how many convolutions and products of a model are between quantizers, of how many."""
    import onnx

    nodes = onnx.load(str(folder / MODELS[INT8])).graph.node
    made_by = {name: node.op_type for node in nodes for name in node.output}
    found = [node for node in nodes if node.op_type in _KINDS]
    quantized = sum(all(made_by.get(name) == "DequantizeLinear" for name in node.input[:2]) for node in found)
    return f"{quantized}/{len(found)}"


def _numbers(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _write_float(network: str, folder: Path) -> tuple[int, ...]:
    """Write the float model; return the shape of its input."""
    if network == "unet" or network in SHIPPED:
        return write_model(network, folder)
    import torch

    from .zoo_networks import load

    model, (data,) = load(network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (data,), folder / MODELS[FLOAT], opset_version=_OPSET, dynamo=False)
    return tuple(data.shape)


def _quantize(folder: Path) -> None:
    """Quantize as `docs/models.md` says, by some random inputs."""
    import onnx
    import onnxruntime as ort
    from onnx import version_converter
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quant_pre_process,
        quantize_static,
    )

    model = folder / "prepared.onnx"
    given = onnx.load(folder / MODELS[FLOAT])
    if given.opset_import[0].version < _OPSET:  # older ones have no scales of channels
        given = version_converter.convert_version(given, _OPSET)
    onnx.save(given, model)
    quant_pre_process(model, model, skip_symbolic_shape=True)
    (name,) = (each.name for each in ort.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs())
    shape = np.load(folder / "input.npy").shape

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Random inputs."""

        def __init__(self) -> None:
            self._left: Iterator[int] = iter(range(_CALIBRATIONS))

        def get_next(self) -> dict[str, Any] | None:
            """Return the next."""
            seed = next(self._left, None)
            return None if seed is None else {name: _numbers(seed, shape)}

    quantize_static(
        model,
        folder / MODELS[INT8],
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def _compile(folder: Path, name: str) -> None:
    """Compile, and compare as the command does."""
    from tvmconv.cli import main

    file = folder / f"{name}.so"
    if main(["compile", str(folder / MODELS[name]), "-o", str(file), *OPTIONS.get(name, ())]):
        file.unlink(missing_ok=True)
        raise VerificationError(f"{file} is wrong")
