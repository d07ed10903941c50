"""OpenVINO IR with the shapes to compile for, as OpenVINO's model and as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....errors import missing_extra
from ....frontends.onnx.fake_quantize import expand_fake_quantize
from ....frontends.openvino.ir import declare_inputs, load_ir, reshape
from ....frontends.openvino.translate import translate
from ....frontends.openvino.translation import names_of
from ....frontends.shapes import Bucket, find_input
from ..onnx.free import Free
from ..onnx.reader import bind_inputs, fill_shape, no_tensor

try:
    import openvino
except ImportError:
    raise missing_extra("openvino", "openvino") from None

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class IrModel:
    """An IR with the shapes and outputs to compile for.

    Parameters
    ----------
    ir
        OpenVINO's model.
    onnx
        The same as an ONNX model, in the form of :func:`tvmconv.network.read.onnx.reader.fix_shapes`.
    """

    ir: Any
    onnx: ModelProto


def read_ir(source: str, bucket: Bucket | None = None, cut: Sequence[str] = (), free: Free | None = None) -> IrModel:
    """Read OpenVINO IR; parameters are those of :func:`tvmconv.network.read.onnx.reader.fix_shapes`.

    Raises
    ------
    SourceError
        If it cannot be read, a shape is not fixed, or networks do not support an operation; it says which.
    """
    ir = load_ir(source)
    for name, value in (bucket.values if bucket else {}).items():
        _fix_value(ir, name, value, source)
    bound = bind_inputs(declare_inputs(ir), bucket or Bucket(), free or {}, source)
    if cut:
        ir = _with_outputs(ir, cut, source)
    reshape(ir, bound, source)
    translated = translate(ir, source, [bound[each.get_any_name()] or () for each in ir.inputs], cut)
    expand_fake_quantize(translated, source)
    return IrModel(ir, translated)


def _fix_value(ir: Any, name: str, value: float, source: str) -> None:
    """Make an input a constant."""
    dims = find_input(declare_inputs(ir), name, source).dims
    given = ir.input(name)
    dtype = given.get_element_type().to_dtype()
    constant = openvino.op.Constant(fill_shape(dims, value, dtype, name, source))
    given.replace(constant.output(0))
    ir.remove_parameter(given.get_node())


def _with_outputs(ir: Any, names: Sequence[str], source: str) -> Any:
    """Return a model with other outputs, tensors by their own names or their layers'."""
    known = {name: output for op in ir.get_ordered_ops() for output in op.outputs() for name in names_of(output)}
    for name in names:
        if name not in known:
            raise no_tensor(source, name, known)
        known[name].get_tensor().add_names({name})
    return openvino.Model([known[name] for name in dict.fromkeys(names)], ir.get_parameters(), ir.get_friendly_name())
