"""OpenVINO IR (.xml with its .bin), and the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import SourceError, last_line, missing_extra
from ..shapes import Dims, Input

try:
    import openvino
except ImportError:
    raise missing_extra("openvino", "openvino") from None


def load_ir(source: str) -> Any:
    """Return the model in a file; raise SourceError if it is not an IR, or its weights are missing."""
    if not Path(source).with_suffix(".bin").exists():
        raise SourceError(f"{source}: its weights, {Path(source).with_suffix('.bin')}, are missing")
    try:
        return openvino.Core().read_model(source)
    except RuntimeError as error:
        raise SourceError(f"{source} is not an OpenVINO IR: {_last_line(error)}") from error


def declare_inputs(model: Any) -> list[Input]:
    """Return a model's inputs as it declares them."""
    return [_declare(each) for each in model.inputs]


def reshape(model: Any, bound: Mapping[str, Dims | None], source: str) -> None:
    """Set the bound extents of a model's inputs; raise SourceError if it does not take them."""
    shapes = {
        each.get_any_name(): openvino.PartialShape([dim if isinstance(dim, int) else -1 for dim in dims])
        for each, dims in zip(model.inputs, bound.values(), strict=True)
        if dims is not None
    }
    try:
        model.reshape(shapes)
    except RuntimeError as error:
        raise SourceError(f"{source}: the model does not take these shapes: {_last_line(error)}") from error


def _declare(value: Any) -> Input:
    shape = value.get_partial_shape()
    dims = None if shape.rank.is_dynamic else tuple(d.get_length() if d.is_static else "" for d in shape)
    return Input(value.get_any_name(), dims)


def _last_line(error: Exception) -> str:
    return last_line(error)[:300]
