"""TVM's ONNX frontend with our converters of operators that it (0.27) misreads.

It converts ThresholdedRelu, ReduceLogSumExp and IsInf for finite numbers only, expects an exponent in the type of its base, and OneHot of
integers with fixed values; it ignores the attributes of a Slice, and reads the input of a TopK of opset 10 as the attribute of earlier
opsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  # NumPy's name of bf16
import numpy as np
import numpy.typing as npt
import tvm
from onnx import helper, numpy_helper
from onnx.external_data_helper import uses_external_data
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ....errors import SourceError
from ....frontends.onnx.graph import attributes_of, used_names
from ....frontends.onnx.weights import array_of
from ...ir.branches import check_branches
from ...ir.constants import constant, integers, static_shape
from ...ir.extents import formula
from ...ir.free import dims_of, is_free, is_known, number_of, quotient
from ...ir.nodes import with_nodes
from ..builder import end_block, write_extents_alike
from ..quantized import find_dequantized
from .free import gather, gather_elements, gather_nd, keep_order, numbers_in, resize, split, take_first, take_slices
from .free_pads import pad
from .free_windows import add_windows, average, give_free_pads
from .quantized_operators import CONVERTERS, convert_quantized
from .recurrent import RECURRENT, convert_recurrent
from .sizes import SizeTensors

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

Emit = Callable[[relax.Expr], relax.Expr]
_FLOATS = ("float32", "float16", "float64")


def read(
    model: ModelProto, prepare: Callable[[ModelProto], ModelProto], shapes: Mapping[str, Sequence[Any]]
) -> tvm.IRModule:
    """Return an ONNX model as the frontend reads it; branches of an If are read as models, after `prepare`.

    `shapes` are those of inputs with symbols.
    """
    importer = _OnnxImporter(model, prepare, dict(shapes))
    try:
        mod = importer.from_onnx(model.graph, importer.opset)
    except Exception:
        end_block(importer.bb)
        raise
    return with_nodes(mod, importer.names)


class _OnnxImporter(ONNXGraphImporter):  # type: ignore[misc]
    def __init__(
        self,
        model: ModelProto,
        prepare: Callable[[ModelProto], ModelProto],
        shapes: dict[str, Sequence[Any]] | None = None,
    ) -> None:
        super().__init__(shapes, "float32", sanitize=False)
        self.opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
        self._model, self._prepare = model, prepare
        self._sizes = SizeTensors() if shapes else None
        # Names of nodes, by their expressions.
        self.names: dict[relax.Expr, str] = {}

    def _construct_nodes(self, graph: Any) -> None:
        plain: list[NodeProto] = []
        for node in graph.node:
            if node.op_type == "If":
                super()._construct_nodes(SimpleNamespace(node=plain))
                plain = []
                self._choose(node)
            else:
                node.name = node.name or node.output[0]  # for errors
                plain.append(node)
                if self._sizes is not None:
                    self._construct_with_sizes(plain.pop(), self._sizes)
        super()._construct_nodes(SimpleNamespace(node=plain))

    def _construct_with_sizes(self, node: NodeProto, sizes: SizeTensors) -> None:
        """Read a node of a model with free extents; arithmetic on shapes is computed here, not by operators."""
        made = sizes.compute(node, self._nodes)
        value = sizes.counted(node, self._nodes, self.bb) if made is None else made.as_value(self.bb)
        if node.op_type in ("Col2Im", "Pad", "TopK") and isinstance(
            self._nodes.get("".join(node.input[1:2])), relax.ShapeExpr
        ):
            given = [self._nodes.get(name) for name in node.input]
            value = _WRITERS[node.op_type](self.bb, given, attributes_of(node))
        if value is not None:
            outputs = value.fields if isinstance(value, relax.Tuple) else [value]
            self._nodes.update(zip(node.output, outputs, strict=False))
            return
        tensors = sizes.tensors(node, self.bb)
        kept = {name: self._nodes[name] for name in tensors}
        self._nodes.update(tensors)
        super()._construct_nodes(SimpleNamespace(node=[node]))
        self._nodes.update(kept)

    def _choose(self, node: NodeProto) -> None:
        """Read an If, with its branches as functions of the outer values they read; those of the frontend are never called."""
        given = attributes_of(node)
        calls = [self._branch(given[f"{which}_branch"]) for which in ("then", "else")]
        check_branches(f"the If node {node.name or node.output[0]!r}", [each.ty for each in calls])
        condition = self.bb.normalize(relax.op.reshape(self._nodes[node.input[0]], ()))
        made = self.bb.emit(relax.If(condition, *calls))
        for number, name in enumerate(node.output):
            self._nodes[name] = self.bb.emit(relax.TupleGetItem(made, number)) if len(node.output) > 1 else made

    def _branch(self, branch: GraphProto) -> relax.Call:
        """Return the call of a branch as a function of the module."""
        names = [name for name in dict.fromkeys((*used_names(branch), *(each.name for each in branch.output))) if name]
        read = {name: self._nodes[name] for name in names if name in self._nodes}
        fixed = {name: array for name, each in read.items() if (array := _numbers_of(each)) is not None}
        taken = {name: each for name, each in read.items() if name not in fixed}
        graph = type(branch).FromString(branch.SerializeToString())
        graph.input.extend(_declare(name, each.ty) for name, each in taken.items())
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in fixed.items())
        model = helper.make_model(
            graph, opset_imports=self._model.opset_import, ir_version=max(self._model.ir_version, 4)
        )
        model = self._prepare(model)
        importer = _OnnxImporter(model, self._prepare)
        importer.bb, importer.names = self.bb, self.names
        function = importer.function(model.graph)
        kept = [each.name for each in model.graph.input]
        return self.bb.normalize(relax.Call(function, [taken[name] for name in kept]))

    def function(self, graph: GraphProto) -> tvm.ir.GlobalVar:
        """Add a graph to the module as a function of its inputs."""
        self._parse_graph_initializers(graph)
        self._parse_graph_input(graph)
        self._check_for_unsupported_ops(graph)
        with self.bb.function("branch", [self._inputs[each.name] for each in graph.input], private=True):
            self._construct_nodes(graph)
            outputs = [self._nodes[each.name] for each in graph.output]
            return self.bb.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        super()._check_for_unsupported_ops(
            SimpleNamespace(
                node=[each for each in graph.node if each.op_type not in (*CONVERTERS, *RECURRENT, *_WRITERS)]
            )
        )

    def _parse_array(self, tensor_proto: TensorProto) -> Any:
        if uses_external_data(tensor_proto):
            return tvm.runtime.tensor(np.array(array_of(tensor_proto)))
        return super()._parse_array(tensor_proto)

    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> relax.Expr:
        made = self._convert(op_name, inputs, attrs, opset)
        if self._sizes is not None and not _is_sized(made) and write_extents_alike(self.bb, inputs):
            made = self._convert(op_name, inputs, attrs, opset)
        if self._sizes is not None and not _is_sized(made) and all(map(_is_sized, inputs)):
            shapes = ", ".join("x".join(map(formula, dims_of(each.ty) or ())) for each in inputs if dims_of(each.ty))
            raise SourceError(
                f"the extents of the {op_name} node {attrs['tvm_custom']['name']!r} may differ ({shapes}); say for which sizes"
                " they are equal, such as multiples: --shape NAME=1x3x?%32x?%32"
            )
        for each in made if isinstance(made, relax.Tuple) else (made,):
            if "float8" in str(getattr(each.ty, "dtype", "")):
                raise SourceError(
                    f"networks do not compute f8, the type of the {op_name} node {attrs['tvm_custom']['name']!r}"
                )
            self.names.setdefault(each, attrs["tvm_custom"]["name"])
        return made

    def _convert(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> relax.Expr:
        """Return an operator's Relax expression, by our converter or the frontend's."""
        convert = _CONVERTERS.get(op_name)
        try:
            give_free_pads(self.bb.emit, op_name, inputs, attrs)
            if op_name in RECURRENT:
                made = convert_recurrent(self.bb, op_name, inputs, attrs)
            elif op_name in _WRITERS:
                made = _WRITERS[op_name](self.bb, inputs, attrs)
            elif convert is None:
                made = convert_quantized(self.bb, op_name, inputs, attrs)
            else:
                made = convert(self.bb.emit, inputs, attrs)
        except ValueError as error:
            raise ValueError(f"the {op_name} node {attrs['tvm_custom']['name']!r}: {error}") from error
        return self._by_frontend(op_name, inputs, attrs, opset) if made is None else self.bb.normalize(made)

    def _by_frontend(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> relax.Expr:
        """Return an operator's Relax expression by TVM's frontend, with corrected inputs."""
        if op_name == "Pow":
            inputs[1] = _as_base(*inputs)
        if op_name == "Expand" and is_free(inputs[0].ty) and (sizes := constant(inputs[1])) is not None:
            inputs[1] = relax.ShapeExpr(sizes.tolist())  # the only form in which it supports free extents
        if op_name == "Unsqueeze" and inputs[1:] and (axes := constant(inputs[1])) is not None:
            inputs[1] = relax.const(axes.reshape(-1))  # for PyTorch may write a scalar
        if op_name == "TopK" and len(inputs) > 1:
            opset = max(opset, 11)
        found = find_dequantized(self.bb, inputs[0]) if op_name == "Pad" and len(inputs) > 1 else None
        if found is None or found.scale.size > 1 or found.zero.size > 1 or not _pads_zero(inputs):
            return super()._convert_operator(op_name, inputs, attrs, opset)
        # The frontend writes a function, through which a dequantizer is not moved.
        zero = relax.const(found.zero.reshape(()), str(found.values.ty.dtype))
        padded = super()._convert_operator(op_name, [found.values, inputs[1], zero, *inputs[3:]], attrs, opset)
        scale = relax.const(found.scale.reshape(()))
        return self.bb.normalize(relax.op.dequantize(self.bb.emit(padded), scale, zero, axis=0))


def _is_sized(value: Any) -> bool:
    return is_known(getattr(value, "ty", None))


def _pads_zero(inputs: Sequence[Any]) -> bool:
    """Return whether a Pad pads with zeros or copies."""
    number = constant(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else np.zeros(1)
    return number is not None and not number.any()


def _numbers_of(expr: relax.Expr) -> npt.NDArray[Any] | None:
    """Return the numbers of a constant, or of a fixed shape; None for other values."""
    sizes = integers(expr) if isinstance(expr, relax.ShapeExpr) else None
    return constant(expr) if sizes is None else np.array(sizes, np.int64)


def _declare(name: str, type_: Any) -> ValueInfoProto:
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(str(type_.dtype)))
    return helper.make_tensor_value_info(name, elem_type, static_shape(type_))


def _dtype(expr: relax.Expr) -> str:
    return str(expr.ty.dtype)


def _as_base(base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Return an exponent in the type of a floating-point base; beside integers it keeps its own."""
    dtype = _dtype(base)
    return exponent if dtype == _dtype(exponent) or dtype not in _FLOATS else relax.op.astype(exponent, dtype)


def _infinite(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return an IsInf of one sign as a comparison with that infinity, and of no sign as false; None for both signs."""
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if given.get(name, 1)]
    if len(signs) == 2:
        return None
    # Without a sign, compared with NaN, which nothing equals.
    return relax.op.equal(inputs[0], relax.const(inf * signs[0] if signs else nan, _dtype(inputs[0])))


def _threshold(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr:
    """Return a ThresholdedRelu as a choice; NaN gives 0, as in ONNX."""
    alpha, zero = (relax.const(each, _dtype(inputs[0])) for each in (given.get("alpha", 1.0), 0.0))
    return relax.op.where(relax.op.greater(inputs[0], alpha), inputs[0], zero)


def _log_sum_exp(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a ReduceLogSumExp, with exponents relative to the greatest element, or to 0 if that is infinite."""
    data, fixed = inputs[0], _axes_of(inputs, given)
    if fixed is None:
        return None
    if not fixed and given.get("noop_with_empty_axes"):
        return data
    axes = fixed or None
    most = emit(relax.op.max(data, axes, True))
    taken = emit(relax.op.where(relax.op.isinf(most), relax.const(0, _dtype(data)), most))
    total = relax.op.sum(relax.op.exp(relax.op.subtract(data, taken)), axes, True)
    total = emit(relax.op.add(relax.op.log(total), taken))
    return total if given.get("keepdims", 1) else relax.op.squeeze(total, axes)


def _axes_of(inputs: Sequence[Any], given: dict[str, Any]) -> list[int] | None:
    """Return the axes of a reduction, from an attribute or an input; None if they are not fixed."""
    axes = constant(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else given.get("axes", ())
    return None if axes is None else [int(axis) for axis in axes]


def _of_each(operator: Callable[[Any], Any]) -> Callable[[Emit, Sequence[Any], dict[str, Any]], relax.Expr | None]:
    """Return the converter of a reduction that also applies an elementwise function, even if there are no axes to reduce."""

    def convert(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
        return operator(inputs[0]) if given.get("noop_with_empty_axes") and _axes_of(inputs, given) == [] else None

    return convert


def _slice(emit: Emit, inputs: Any, given: dict[str, Any]) -> relax.Expr | None:
    """Return a Slice by attributes, as up to opset 9, or of free extents; None for others."""
    data = inputs[0]
    if "starts" not in given:
        starts, ends, axes, steps = (numbers_in(each) for each in [*inputs[1:], None, None][:4])
        if starts and ends and not isinstance(data, relax.ShapeExpr):
            ends = keep_order(data, starts, ends, axes or range(len(starts)), steps or [1] * len(starts))
            inputs[2] = inputs[2] if ends is None else relax.const(ends, "int64")
        return take_slices(emit, inputs, given)
    starts, ends = ([int(each) for each in given[name]] for name in ("starts", "ends"))
    axes = [int(axis) % data.ty.ndim for axis in given.get("axes", range(len(starts)))]
    return relax.op.strided_slice(data, axes, starts, keep_order(data, starts, ends, axes, [1] * len(axes)) or ends)


def _alone(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a Dropout as its data, with a mask of true if requested; onnxruntime has removed those without a mask."""
    if len(inputs) > 2:
        return None
    if given["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]  # no tuple, which ConvertLayout does not support
    mask = emit(relax.op.broadcast_to(relax.const(True, "bool"), inputs[0].ty.shape))
    return relax.Tuple([inputs[0], mask])


def _element(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a tensor of a sequence by its position from the end; None for other positions."""
    sequence, position = inputs[0], constant(inputs[1])
    return None if position is None or position >= 0 else sequence[len(sequence.ty.fields) + int(position)]


def _reshape(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a Reshape from or to free extents, where 0 copies an extent and -1 is the rest; None for others."""
    data, shape = inputs
    dims, kept = dims_of(data.ty), not given.get("allowzero", 0)
    numbers = constant(shape)
    if isinstance(data, relax.ShapeExpr) or not (
        isinstance(shape, relax.ShapeExpr) or (is_free(data.ty) and numbers is not None)
    ):
        return None
    made = [number_of(each) for each in shape.values] if numbers is None else [int(each) for each in numbers]
    if dims is not None:
        made = [dims[at] if isinstance(each, int) and each == 0 and kept else each for at, each in enumerate(made)]
        places = [at for at, each in enumerate(made) if isinstance(each, int) and each == -1]
        if len(places) == 1:
            made[places[0]] = quotient(dims, [each for at, each in enumerate(made) if at != places[0]])
    return relax.op.reshape(data, made)


def _one_hot(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr:
    """Return a OneHot as comparisons with each index, and with each index less the depth, as negative ones count from the end."""
    depth = constant(inputs[1])
    if depth is None:
        raise ValueError("the depth of a OneHot is not fixed")
    rank = inputs[0].ty.ndim + 1
    axis = given.get("axis", -1) % rank
    rows = np.arange(int(depth.item()), dtype=np.int64).reshape(-1, *[1] * (rank - 1 - axis))
    indices = emit(relax.op.expand_dims(relax.op.astype(inputs[0], "int64"), axis))
    chosen = (relax.op.equal(indices, relax.const(each)) for each in (rows, rows - len(rows)))
    off, on = (relax.op.take(inputs[2], relax.const(each, "int64"), 0) for each in (0, 1))
    return relax.op.where(relax.op.logical_or(*map(emit, chosen)), emit(on), emit(off))


def _combine(operator: Callable[..., relax.Expr], is_mean: bool = False) -> Callable[..., relax.Expr | None]:
    """Return the converter of an operator on several tensors as operators on two; ConvertLayout has no layout for the frontend's stacks."""

    def convert(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
        if any(isinstance(each, relax.ShapeExpr) for each in inputs):
            return None
        total, *others = inputs
        for each in others:
            total = emit(operator(total, each))
        return relax.op.multiply(total, relax.const(1 / len(inputs), str(total.ty.dtype))) if is_mean else total

    return convert


# Converters that emit several operators.
_WRITERS: dict[str, Callable[[relax.BlockBuilder, Sequence[Any], dict[str, Any]], relax.Expr | None]] = {
    "Col2Im": add_windows,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Pad": pad,
    "TopK": take_first,
}
# Converters to one expression; other operators are left to the frontend.
_CONVERTERS: dict[str, Callable[[Emit, Sequence[Any], dict[str, Any]], relax.Expr | None]] = {
    "AveragePool": average,
    "Dropout": _alone,
    "IsInf": _infinite,
    "Max": _combine(relax.op.maximum),
    "Mean": _combine(relax.op.add, is_mean=True),
    "Min": _combine(relax.op.minimum),
    "OneHot": _one_hot,
    "ReduceL1": _of_each(relax.op.abs),
    "ReduceL2": _of_each(relax.op.abs),
    "ReduceLogSum": _of_each(relax.op.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": _of_each(relax.op.square),
    "Reshape": _reshape,
    "Resize": resize,
    "SequenceAt": _element,
    "Slice": _slice,
    "Split": split,
    "Sum": _combine(relax.op.add),
    "ThresholdedRelu": _threshold,
}
