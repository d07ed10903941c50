"""Models of OpenVINO's layers, each of inputs `x`, `y` and `n`, written as IR, and OpenVINO's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openvino
from openvino import opset13

Make = Callable[..., Any]
# Inputs by name: images, rows of tokens, and whole numbers.
INPUTS = {"x": ((2, 4, 6, 7), np.float32), "y": ((2, 5, 8), np.float32), "n": ((2, 3), np.int64)}


def constant(numbers: Any, dtype: Any = np.float32) -> Any:
    return opset13.constant(np.asarray(numbers, dtype))


def ints(*numbers: int) -> Any:
    return constant(numbers, np.int64)


def weights(*shape: int) -> Any:
    # Other numbers for each shape: OpenVINO (2026.4) takes one of two filters for both where their bytes are the same.
    return constant(np.random.default_rng(list(shape)).standard_normal(shape) / 2)


def convolution(*taps: int, op: str = "convolution", output: list[int] | None = None, **given: Any) -> Make:
    rank = len(taps) - 2 - op.startswith("group")
    given = {"strides": [1] * rank, "pads_begin": [0] * rank, "pads_end": [0] * rank, "dilations": [1] * rank} | given
    if output:
        given["output_shape"] = ints(*output)
    return lambda x, **_: getattr(opset13, op)(x, weights(*taps), **given)


def of_x(name: str, *more: Any, opset: Any = opset13, **given: Any) -> Make:
    return lambda x, **_: getattr(opset, name)(x, *more, **given)


def of_y(name: str, *more: Any, opset: Any = opset13, **given: Any) -> Make:
    return lambda y, **_: getattr(opset, name)(y, *more, **given)


def write_layers(makes: dict[str, Make], folder: Any, compress: bool = False) -> str:
    """Write a model of all of these; return its file."""
    inputs = {name: opset13.parameter(list(shape), dtype, name=name) for name, (shape, dtype) in INPUTS.items()}
    outputs = []
    for name, make in makes.items():
        made = make(**inputs)
        for at, each in enumerate(made if isinstance(made, list) else [made]):
            output = each.output(0) if hasattr(each, "output") else each
            result = opset13.result(output)
            result.set_friendly_name(f"{name} {at}")
            output.get_tensor().set_names({f"{name} {at}"})
            outputs.append(result)
    model = openvino.Model(outputs, list(inputs.values()), "layers")
    path = f"{folder}/layers.xml"
    openvino.save_model(model, path, compress_to_fp16=compress)
    return path


def inputs_of(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 3, shape) if dtype == np.int64 else rng.standard_normal(shape).astype(dtype)
        for name, (shape, dtype) in INPUTS.items()
    }


def answers_of(path: str, arrays: dict[str, Any]) -> list[Any]:
    """Return OpenVINO's answers, computed in f32."""
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled({each.get_any_name(): arrays[each.get_any_name()] for each in compiled.inputs})
    return [found[each] for each in compiled.outputs]
