"""ONNX files as Relax modules."""

from __future__ import annotations

import difflib
import io
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm

from ....errors import LackingOperatorsError, SourceError, last_line, missing_extra
from ....frontends.onnx.fake_quantize import expand_fake_quantize
from ....frontends.onnx.graph import (
    OTHER_OP_TYPES,
    OURS,
    declared_inputs,
    inputs_of,
    keep_used,
    with_inputs,
)
from ....frontends.onnx.load import load
from ....frontends.onnx.rules import OP_TYPES
from ....frontends.onnx.session import open_session
from ....frontends.onnx.versions import with_known_versions
from ....frontends.onnx.weights import fill, load_weights, without_weights
from ....frontends.shapes import Bucket, Dims, Input, bind, find_input, left_free
from ...ir.extents import with_extents
from ...ir.graph import OUTPUT_NAMES
from . import expand_qlinear
from .check_quantized import check_quantized
from .expand_functions import drop_empty, expand_functions
from .fold_constants import fold_constants, fold_extents
from .free import Free, check_nodes, symbolic
from .join_pads import join_pads
from .quantized_operators import CONVERTERS as SUMS_OF_INTEGERS
from .repair import repair

try:
    import onnx
    import onnxruntime.capi.onnxruntime_pybind11_state
except ImportError as error:
    raise missing_extra("onnx", str(error.name)) from None

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# Microsoft's operators that the frontend reads; it ignores domains.
MICROSOFT = {
    "Attention",
    "BiasGelu",
    "DynamicQuantizeLSTM",
    "EmbedLayerNormalization",
    "FastGelu",
    "Gelu",
    "MatMulNBits",
    "SkipLayerNormalization",
}
MICROSOFT |= {"DequantizeLinear", "QuantizeLinear", *expand_qlinear.MICROSOFT}


def read_onnx(source: str, bucket: Bucket | None = None) -> tvm.IRModule:
    """Return an ONNX model as TVM's frontend reads it, its parameters as constants.

    First, onnxruntime folds everything that depends on constants and input shapes only: the frontend does not compute with shapes.

    Parameters
    ----------
    source
        The file.
    bucket
        The shapes of inputs that the model leaves free.

    Raises
    ------
    SourceError
        If the file cannot be read, a shape stays free, or the frontend lacks an operator; it says which.
    """
    return as_relax(fix_shapes(source, bucket), source)


def as_relax(model: ModelProto, source: str, free: Free | None = None) -> tvm.IRModule:
    """Return the result of :func:`read_onnx` for a model from :func:`fix_shapes` and its free extents."""
    check_quantized(model, source)
    for each in model.graph.output:
        if each.type.HasField("sequence_type"):
            raise SourceError(
                f"{source}: the output {each.name} is a sequence, and networks give tensors; --cut TENSOR gives those in it"
            )
    simple = prepare(model, source)
    shapes, extents = symbolic(free or {})
    if extents:
        check_nodes(simple, source)
    from .converters import read

    try:
        # The frontend prints its errors, which ours repeat.
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = read(simple, lambda branch: prepare(branch, source), shapes)
    except SourceError:
        raise
    except tvm.error.OpNotImplemented as error:
        names = str(error).rpartition(": ")[2]
        reasons = [f" ({name}: {why})" for name, why in OTHER_OP_TYPES.items() if name in names]
        message = f"{source}: TVM's ONNX frontend lacks {names}{''.join(reasons)}"
        if any(node.op_type in OP_TYPES for node in simple.graph.node):
            message += f"; the convolutions alone can be built: tvmconv build {source}"
        raise LackingOperatorsError(message, names.split(", ")) from None
    except Exception as error:  # of any kind, from its converters
        raise SourceError(
            f"{source}: TVM's ONNX frontend cannot read it: {last_line(error)}; the convolutions alone can be built: "
            f"tvmconv build {source}"
        ) from error
    # The frontend drops the names of outputs.
    module["main"] = module["main"].with_attr(OUTPUT_NAMES, [each.name for each in simple.graph.output])
    return with_extents(module, extents) if extents else module


def prepare(model: ModelProto, source: str) -> ModelProto:
    """Return a model in the frontend's operators, with branches decided by constants; errors are those of :func:`read_onnx`."""
    simple = simplify(model, source)
    while any(node.op_type == "If" for node in simple.graph.node) and fold_extents(simple):
        simple = simplify(simple, source)
    check_quantized(simple, source)  # also folded constants
    if foreign := sorted({f"{node.domain}.{node.op_type}" for node in simple.graph.node if is_foreign(node)}):
        raise LackingOperatorsError(f"{source}: networks do not support {', '.join(foreign)}", foreign)
    by_others = expand_functions(simple, source)
    if by_others is not None or any(node.op_type == "Shape" for node in simple.graph.node):
        # Expansions contain further constants.
        simple = simplify(by_others or simple, source)
    if by_others is not None:
        drop_empty(simple)
    try:
        expand_qlinear.expand_qlinear(simple, SUMS_OF_INTEGERS)
    except ValueError as error:
        raise SourceError(f"{source}: {error}") from None
    for node in simple.graph.node:
        if node.op_type in ("DequantizeLinear", "QuantizeLinear"):  # Microsoft's are ONNX's
            node.domain = ""
    join_pads(simple)
    return repair(simple, source)


def _numbers_of_branches(model: ModelProto) -> list[str]:
    """Return the scalar inputs of a model with branches."""
    has_branches = any(node.op_type == "If" for node in model.graph.node)
    return [each.name for each in declared_inputs(model.graph) if each.dims in ((), (1,))] if has_branches else []


def is_foreign(node: NodeProto) -> bool:
    """Return whether a node is of an unknown domain, so that the frontend lacks it, or mistakes it for ONNX's."""
    return node.domain not in OURS and not (node.domain == "com.microsoft" and node.op_type in MICROSOFT)


def fix_shapes(
    source: str, bucket: Bucket | None = None, cut: Sequence[str] = (), inline: bool = True, free: Free | None = None
) -> ModelProto:
    """Return an ONNX model with fixed input shapes, and with its weights, unless they are too large for protobuf.

    An input with a default, an initializer of its name, becomes that constant: files of IR 3 list all of their weights as inputs. The
    inputs of a call have no initializers.

    Parameters
    ----------
    source, bucket
        As for :func:`read_onnx`.
    cut
        Tensors that replace the model's outputs; nodes that they do not need are removed.
    inline
        Whether the model's functions are inlined here, or by onnxruntime, which renames their tensors.
    free
        The extents of inputs with free ones, as :func:`tvmconv.network.read.onnx.free.free_dims` returns them.

    Raises
    ------
    SourceError
        If the file cannot be read, a shape stays free, or the model has no such tensor.
    """
    model = load_file(source, inline)
    if bucket and bucket.values:
        model = _fix_values(model, bucket.values, source)
    bound = bind_inputs(declared_inputs(model.graph), bucket or Bucket(), free or {}, source)
    model = _without_weights_as_inputs(with_known_versions(with_inputs(model, bound), source))
    if cut:
        _cut_outputs(model, cut, source)
    try:
        load_weights(model, Path(source).parent)
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise SourceError(f"{source}: its weights in other files cannot be read: {last_line(error)}") from None
    expand_fake_quantize(model, source)
    return model


def _fix_values(model: ModelProto, values: Mapping[str, float], source: str) -> ModelProto:
    """Return a model with some inputs fixed to numbers, without the branches of Ifs that these exclude.

    Called before the other inputs' shapes are fixed, as an excluded branch may be for other shapes.
    """
    inputs, declared = {each.name: each for each in model.graph.input}, declared_inputs(model.graph)
    for name, value in values.items():
        dims = find_input(declared, name, source).dims
        dtype = onnx.helper.tensor_dtype_to_np_dtype(inputs[name].type.tensor_type.elem_type)
        model.graph.initializer.append(onnx.numpy_helper.from_array(fill_shape(dims, value, dtype, name, source), name))
    load_weights(model, Path(source).parent)
    return simplify(_without_weights_as_inputs(model), source)


def fill_shape(dims: Dims | None, value: float, dtype: np.dtype, name: str, source: str) -> np.ndarray:
    """Return an input's constant filled with a number; raise SourceError if its shape is free, or its type lacks the number."""
    shape = [dim for dim in dims or () if isinstance(dim, int)]
    if dims is None or len(shape) < len(dims):
        raise SourceError(
            f"{source}: --value {name}: {Input(name, dims)} has free dimensions; a number fills a fixed shape"
        )
    with np.errstate(invalid="ignore"):  # compared with the number below
        filled = np.full(shape, value).astype(dtype)
    if dtype.kind in "biu" and (filled != value).any():
        raise SourceError(f"{source}: --value {name}={value:g}: the input is of type {dtype}, which has no such number")
    return filled


def bind_inputs(inputs: Sequence[Input], bucket: Bucket, free: Free, source: str) -> dict[str, Dims | None]:
    """Return the extents of inputs, the free ones by name; raise SourceError if others are not fixed, or are 0."""
    bound = bind(inputs, bucket, source)
    fixed = {name: dims for name, dims in bound.items() if name not in free}
    bound |= {name: tuple(each.name or each.low for each in extents) for name, extents in free.items()}
    if left := left_free(fixed):
        raise SourceError(f"{source}: {left}")
    for name, dims in bound.items():
        if dims and 0 in dims:  # TVM's frontend would read 0 as free
            given = "x".join(map(str, dims))
            raise SourceError(
                f"{source}: {name} has the shape {given}; a network is compiled for extents of at least 1"
            )
    return bound


def load_file(source: str, inline: bool = True) -> ModelProto:
    """Return the model in a file; raise SourceError if it cannot be read."""
    try:
        content = Path(source).read_bytes()
    except OSError as error:
        raise SourceError(f"{source} cannot be read: {error.strerror or error}") from None
    return load(content, source, inline)


def _without_weights_as_inputs(model: ModelProto) -> ModelProto:
    given = inputs_of(model.graph)
    if len(given) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(given)
        model.ir_version = max(model.ir_version, 4)  # the first version whose weights need not be inputs
    return model


def _cut_outputs(model: ModelProto, names: Sequence[str], source: str) -> None:
    """Make tensors the outputs, with types that onnxruntime infers, and remove nodes that compute none of them."""
    known = {name for node in model.graph.node for name in node.output}
    for name in names:
        if name not in known:
            raise no_tensor(source, name, known)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    keep_used(model.graph, names)


def no_tensor(source: str, name: str, known: Iterable[str]) -> SourceError:
    """Return the error for a requested output that is no tensor of the model."""
    near = difflib.get_close_matches(name, known)
    return SourceError(
        f"{source}: no node gives a tensor {name!r}{', but ' + ', '.join(map(repr, near)) if near else ''}; "
        "--cut takes names of tensors, not of nodes"
    )


def simplify(model: ModelProto, source: str) -> ModelProto:
    """Return a model with its constants folded by onnxruntime, in ONNX's own operators; weights that stay in files are not folded."""
    model, apart = without_weights(model)
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        optimized = str(Path(folder) / "model.onnx")
        try:
            open_session(model, "ORT_ENABLE_BASIC", optimized)
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            # onnxruntime lacks kernels for most operators in bf16, which the network does not need.
            return fill(fold_constants(model, source), apart)
        except Exception as error:  # its own have no other class
            advice = ""
            if foreign := [each for each in model.graph.node if is_foreign(each)]:
                advice = f"; --cut {foreign[0].input[0]} ends the network before that node"
            elif numbers := _numbers_of_branches(model):
                advice = (
                    f"; a branch may be for other shapes: --value {numbers[0]}=NUMBER makes its condition a constant"
                )
            raise SourceError(f"{source}: onnxruntime cannot read it: {last_line(error)}{advice}") from error
        return fill(onnx.load(optimized), apart)
