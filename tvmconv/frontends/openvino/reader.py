"""OpenVINO IR (.xml with its .bin): its four convolutions, with OpenVINO's own rules of padding.

A constant that is added to a convolution's output, one number for each channel, is its bias; what else follows may be its
epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import ops
from ...errors import InvalidProblemError, SourceError, last_line, missing_extra
from ...problem import Problem
from ..following import Following, follow
from ..model import Constants, Skipped, SourceNode
from ..reader import Reader
from ..shapes import Bucket, Dims, Input, Shape, left_free

try:
    import openvino
except ImportError:
    raise missing_extra("openvino", "openvino") from None
from .effects import DTYPES, OpenvinoOperations, is_fixed, value_of

OP_TYPES = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData")
_OTHER_OP_TYPES = {
    "BinaryConvolution": "it computes in bits; kernels compute in f32, f16 or bf16",
    "DeformableConvolution": "each of its taps reads where another tensor says; kernels read at fixed distances",
    "If": "the convolutions inside it are not read",
    "Loop": "the convolutions inside it are not read",
    "TensorIterator": "the convolutions inside it are not read",
}
_SUFFIX = "/WithoutBiases"  # what OpenVINO's reader of ONNX adds to the name of a node that it splits


class OpenvinoReader(Reader):
    """Reads one IR."""

    def read(self, bucket: Bucket) -> tuple[list[SourceNode], list[Skipped]]:
        """Return the convolutions at the shapes of a bucket, and those that are skipped.

        Raises
        ------
        SourceError
            If it is no IR, the bucket does not fit it, or it cannot be run though that is asked for.
        """
        model = load_ir(self._source)
        inputs = declare_inputs(model)
        bound = self._bound(inputs, bucket)
        reshape(model, bound, self._source)
        found = [op for op in model.get_ordered_ops() if op.get_type_name() in (*OP_TYPES, *_OTHER_OP_TYPES)]
        convolutions = [op for op in found if op.get_type_name() in OP_TYPES]
        observed: dict[str, tuple[Shape, Shape, Shape]] = {}
        cause = left_free(bound)
        if cause:
            if self._shapes == "run":
                raise SourceError(f"{self._source}: {cause}")
        elif self._shapes == "run" or (self._shapes == "auto" and any(_static(op) is None for op in convolutions)):
            try:
                observed = _run(model, convolutions, inputs, self._given)
            except RuntimeError as error:
                cause = f"Running the model once fails: {_last_line(error)}"
                if self._shapes == "run":
                    raise SourceError(f"{self._source}: {cause}") from error
        nodes, skipped = [], []
        taken: dict[str, str] = {}
        for op in reversed(found):  # a sum of two belongs to the later one
            name, op_type = _name(op), op.get_type_name()
            shape = observed.get(op.get_friendly_name()) or (_static(op) if op in convolutions else None)
            if op_type in _OTHER_OP_TYPES:
                skipped.append(Skipped(name, op_type, _OTHER_OP_TYPES[op_type]))
            elif shape is None:
                data = op.input_value(0).get_partial_shape()
                skipped.append(Skipped(name, op_type, f"its data has the unknown extents {data}", cause))
            else:
                try:
                    nodes.append(self._node(name, op, *shape, taken))
                except (InvalidProblemError, SourceError) as error:
                    skipped.append(Skipped(name, op_type, str(error)))
        return nodes[::-1], skipped[::-1]

    def _node(self, name: str, op: Any, data: Shape, taps: Shape, output: Shape, taken: dict[str, str]) -> SourceNode:
        element = op.input_value(0).get_element_type().to_string()
        dtype = DTYPES.get(element, self._dtype)
        if dtype is None:
            raise SourceError(f"it computes in {element}; choose a type that kernels have with --dtype")
        problem = node_problem(op.get_type_name(), op.get_attributes(), data, taps, output, dtype)
        if problem.output_shape != output:
            raise SourceError(
                f"OpenVINO gives its output the shape {list(output)}, its attributes {list(problem.output_shape)}"
            )
        fixed = is_fixed(op.input_value(1).get_node())
        chain = self._follow(op, output[1], fixed, taken)
        constants = None
        if self._with_constants and fixed:
            constants = _constants(op, chain, problem, chain.last.get_friendly_name())
        serves = (name, *(each.get_friendly_name() for each in chain.nodes))
        residual = None if chain.residual is None else chain.residual.get_friendly_name()
        return SourceNode(
            name, chain.problem(problem), constants, serves, residual, _pads(problem, op.get_attributes())
        )

    def _follow(self, op: Any, channels: int, fixed: bool, taken: dict[str, str]) -> Following:
        """Return what the kernel computes, the bias at the least."""
        folds = fixed and (self._fuse or self._with_constants)
        return follow(OpenvinoOperations(), op, channels, taken, folds=folds, biased=True, fuse=self._fuse)


def _pads(problem: Problem, attributes: Mapping[str, Any]) -> str | tuple[Sequence[int], Sequence[int]]:
    """Return a convolution's pads as its attributes have them, and as `SourceNode` does."""
    mode = attributes["auto_pad"]
    if problem.op != "convolution" or mode.startswith("same"):
        return mode if problem.op == "convolution" else ""
    return ((0,) * problem.rank,) * 2 if mode == "valid" else (attributes["pads_begin"], attributes["pads_end"])


def load_ir(source: str) -> Any:
    """Return the model in a file; raise SourceError if it is none, or its weights are not there."""
    if not Path(source).with_suffix(".bin").exists():
        raise SourceError(f"{source}: its weights, {Path(source).with_suffix('.bin')}, are not there")
    try:
        return openvino.Core().read_model(source)
    except RuntimeError as error:
        raise SourceError(f"{source} is no OpenVINO IR: {_last_line(error)}") from error


def declare_inputs(model: Any) -> list[Input]:
    """Return a model's inputs as it declares them."""
    return [_declare(each) for each in model.inputs]


def reshape(model: Any, bound: Mapping[str, Dims | None], source: str) -> None:
    """Give a model's inputs the extents that are bound; raise SourceError if it does not take them."""
    shapes = {
        each.get_any_name(): openvino.PartialShape([dim if isinstance(dim, int) else -1 for dim in dims])
        for each, dims in zip(model.inputs, bound.values(), strict=True)
        if dims is not None
    }
    try:
        model.reshape(shapes)
    except RuntimeError as error:
        raise SourceError(f"{source}: the model does not take these shapes: {_last_line(error)}") from error


def node_problem(
    op_type: str, attributes: Mapping[str, Any], data: Shape, taps: Shape, output: Shape, dtype: str
) -> Problem:
    """Resolve one of OpenVINO's convolutions (operation set 1).

    Parameters
    ----------
    op_type
        One of `OP_TYPES`.
    attributes
        Those of the operation, by OpenVINO's names.
    data, taps, output
        The shapes of its data, filter and output; that of the filter with the groups first where there are groups.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``.

    Raises
    ------
    InvalidProblemError
        If there is no such convolution.
    """
    groups = 1
    if op_type.startswith("Group"):
        groups, taps = taps[0], (taps[0] * taps[1], *taps[2:])
    mode = attributes["auto_pad"]
    mode = None if mode in ("explicit", "notset") else mode
    common: dict[str, Any] = {
        "strides": attributes["strides"],
        "dilations": attributes["dilations"],
        "groups": groups,
        "data_format": "NCX",
        "filter_format": "OIX",
        "dtype": dtype,
    }
    begin, end = attributes["pads_begin"], attributes["pads_end"]
    if "Backprop" not in op_type:
        return ops.convolution(data, taps, **common, pads_begin=begin, pads_end=end, auto_pad=mode)
    spatial = output[2:]
    if mode in ("same_upper", "same_lower"):
        # Without an output shape there are no pads, and the output is the natural one: the same rule.
        natural = ops.convolution_backprop_data(
            data, taps, **common, auto_pad=mode, output_padding=attributes["output_padding"]
        )
        if natural.out_spatial == spatial:
            return natural
        return ops.convolution_backprop_data(
            data, taps, spatial, **common, auto_pad=mode, output_padding=attributes["output_padding"]
        )
    # The pads at the begin are kept whatever the output's shape; the output is cropped or filled up at its end.
    whole = ops.convolution_backprop_data(data, taps, **common, auto_pad="valid").out_spatial
    begin = [0] * len(spatial) if mode == "valid" else list(begin)
    left = [n - b - y for n, b, y in zip(whole, begin, spatial, strict=True)]
    return ops.convolution_backprop_data(
        data,
        taps,
        **common,
        pads_begin=begin,
        pads_end=[max(each, 0) for each in left],
        output_padding=[max(-each, 0) for each in left],
    )


def _name(op: Any) -> str:
    return str(op.get_friendly_name()).removesuffix(_SUFFIX)


def _declare(value: Any) -> Input:
    shape = value.get_partial_shape()
    dims = None if shape.rank.is_dynamic else tuple(d.get_length() if d.is_static else "" for d in shape)
    return Input(value.get_any_name(), dims)


def _static(op: Any) -> tuple[Shape, Shape, Shape] | None:
    """Return the shapes of an operation's data, filter and output as far as OpenVINO infers them."""
    shapes = [
        op.input_value(0).get_partial_shape(),
        op.input_value(1).get_partial_shape(),
        op.output(0).get_partial_shape(),
    ]
    if any(shape.is_dynamic for shape in shapes):
        return None
    data, taps, output = (tuple(shape.to_shape()) for shape in shapes)
    return data, taps, output


def _run(
    model: Any, convolutions: Sequence[Any], inputs: Sequence[Input], given: Mapping[str, np.ndarray]
) -> dict[str, tuple[Shape, Shape, Shape]]:
    """Run a model once and return the shapes of its convolutions by their names."""
    values = [value for op in convolutions for value in (op.input_value(0), op.input_value(1), op.output(0))]
    watching = openvino.Model([openvino.opset13.shape_of(value) for value in values], model.get_parameters())
    feeds = {}
    for value, each in zip(model.inputs, inputs, strict=True):
        dtype, shape = value.get_element_type().to_dtype(), tuple(value.get_shape())
        if each.name in given:
            feeds[each.name] = np.broadcast_to(given[each.name], shape).astype(dtype)
        elif np.issubdtype(dtype, np.floating):
            feeds[each.name] = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        else:
            feeds[each.name] = np.ones(shape, dtype)
    results = list(openvino.compile_model(watching, "CPU")(feeds).values())
    shapes = [tuple(int(n) for n in result) for result in results]
    return {op.get_friendly_name(): tuple(shapes[3 * i : 3 * i + 3]) for i, op in enumerate(convolutions)}  # type: ignore[misc]


def _constants(op: Any, chain: Following, problem: Problem, output: str) -> Callable[[], Constants]:
    def compute() -> Constants:
        shape = problem.with_(data_format="NCX", filter_format="OIX").filter_shape
        return chain.constants(problem, value_of(op.input_value(1)).reshape(shape), None, output)

    return compute


def _last_line(error: Exception) -> str:
    return last_line(error)[:300]
