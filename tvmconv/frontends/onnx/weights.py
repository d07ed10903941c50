"""External weights of ONNX models: read into the model, or left in their files if they exceed protobuf's limit.

In that case a tensor's location becomes its path relative to the root (onnxruntime takes no absolute paths), so that a changed model
finds its weights from anywhere; `array_of` maps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data

from .graph import subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

# Folder that locations are relative to.
ROOT = Path(__file__).resolve().anchor
# Most bytes of external weights that are read into a model: protobuf's limit is 2 GiB for the whole model.
MOST_BYTES = 1 << 30
# Most bytes of tensors that may be shapes or scales, whose values are needed: they are always read.
SMALL_BYTES = 1 << 16


def load_weights(model: ModelProto, folder: Path) -> None:
    """Read a model's external weights into it; if they are too large, only the small ones.

    Raises
    ------
    OSError, ValueError, onnx.checker.ValidationError
        If a file cannot be read, is too short, or is not in the model's folder.
    """
    tensors = [*model.graph.initializer, *_inner(model.graph)]
    outside = [each for each in tensors if uses_external_data(each)]
    stay = sum(map(_bytes, outside)) > MOST_BYTES
    own = len(model.graph.initializer)
    for number, tensor in enumerate(tensors):
        if not uses_external_data(tensor):
            continue
        if stay and number < own and _bytes(tensor) > SMALL_BYTES:
            _anchor(tensor, folder)
            continue
        load_external_data_for_tensor(tensor, str(folder))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def weight_files(model: ModelProto) -> list[str]:
    """Return the names of a model's external weight files: paths relative to its folder."""
    tensors = [*model.graph.initializer, *_inner(model.graph)]
    return sorted({ExternalDataInfo(each).location for each in tensors if uses_external_data(each)})


def array_of(tensor: TensorProto) -> npt.NDArray[Any]:
    """Return the array of a tensor after :func:`load_weights`; external ones are mapped."""
    if not uses_external_data(tensor):
        return np.asarray(numpy_helper.to_array(tensor))
    where, dtype = ExternalDataInfo(tensor), helper.tensor_dtype_to_np_dtype(tensor.data_type)
    flat = np.memmap(ROOT + where.location, np.uint8, "r", where.offset or 0, (_bytes(tensor),))
    return flat.view(dtype).reshape(tuple(tensor.dims))


def without_weights(model: ModelProto) -> tuple[ModelProto, list[TensorProto]]:
    """Return a model with its external weights as inputs, and these weights; the model itself if there are none."""
    apart = [each for each in model.graph.initializer if uses_external_data(each)]
    if not apart:
        return model, []
    return _with_inputs(model, apart), apart


def fill(model: ModelProto, apart: list[TensorProto]) -> ModelProto:
    """Return a model derived from the result of :func:`without_weights`, with the weights as constants again; `model` is changed."""
    names = {each.name for each in apart}
    inputs = [each for each in model.graph.input if each.name not in names]
    if apart:
        inputs = [type(each).FromString(each.SerializeToString()) for each in inputs]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.graph.initializer.extend(apart)
    return model


def infer_shapes(model: ModelProto, **options: bool) -> ModelProto:
    """Return a model with the shapes that ONNX infers, and with large weights as inputs, to spare serialising them twice.

    Raises
    ------
    onnx.shape_inference.InferenceError, ValueError, RuntimeError
        As ``onnx.shape_inference.infer_shapes`` does.
    """
    large = [each for each in model.graph.initializer if _bytes(each) > SMALL_BYTES]
    return onnx.shape_inference.infer_shapes(_with_inputs(model, large), **options)


def _with_inputs(model: ModelProto, apart: list[TensorProto]) -> ModelProto:
    """Return a copy of a model that takes the weights `apart` as inputs, which are not copied."""
    copy: ModelProto = type(model)()
    _copy_fields(model, copy, "graph")
    _copy_fields(model.graph, copy.graph, "initializer")
    names, given = {each.name for each in apart}, {each.name for each in model.graph.input}
    copy.graph.initializer.extend(each for each in model.graph.initializer if each.name not in names)
    copy.graph.input.extend(
        helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in apart if each.name not in given
    )
    return copy


def _copy_fields(message: Any, copy: Any, without: str) -> None:
    for field, value in message.ListFields():
        if field.name == without:
            continue
        if hasattr(value, "MergeFrom"):  # repeated fields have it, too
            getattr(copy, field.name).MergeFrom(value)
        else:
            setattr(copy, field.name, value)


def _inner(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the tensors within the nodes of a graph."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in subgraphs(node):
            yield from inner.initializer
            yield from _inner(inner)


def _bytes(tensor: TensorProto) -> int:
    return int(prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _anchor(tensor: TensorProto, folder: Path) -> None:
    """Make the location of a tensor a path relative to the root."""
    where = ExternalDataInfo(tensor)
    path = (folder / where.location).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{where.location} of the tensor {tensor.name!r} is not in the folder of the model")
    if path.stat().st_size < (where.offset or 0) + _bytes(tensor):
        raise ValueError(f"{path} is too short for the tensor {tensor.name!r}")
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = str(path.relative_to(ROOT))
