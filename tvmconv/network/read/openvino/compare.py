"""Compare a compiled IR with OpenVINO: outputs, or, if it is quantized, each quantizer's results, like those of ONNX files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino

from ....accuracy import describe_differences
from ....errors import InputError, last_line
from ....frontends.onnx.fake_quantize import find_quantizer
from ....frontends.openvino.translation import names_of
from ..misrounding import describe_misrounding

if TYPE_CHECKING:
    from onnx import NodeProto

    from ....runtime.networks.tensors import Array
    from .reader import IrModel


# Options for exact results. OpenVINO's fused loops (snippets, 2026.4) err by 0.1 on a text recogniser of rapidocr, unfused ones by 4e-6.
# By default it quantizes the operands of integer weights to 8 bits: a small ViT errs by 9e-4, without that by 7e-8.
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "SNIPPETS_MODE": "DISABLE", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def compute_answers(ir: Any, arrays: Mapping[str, Array]) -> list[Array]:
    """Return OpenVINO's outputs in f32 for inputs by name; raise InputError if it cannot run the model on them."""
    try:
        compiled = openvino.Core().compile_model(ir, "CPU", _EXACT)
        found = compiled({name: array for name, array in arrays.items() if name in _names(compiled.inputs)})
        return [np.array(found[each]) for each in compiled.outputs]
    except RuntimeError as error:
        raise InputError(f"OpenVINO cannot run it on random inputs: {last_line(error)[:300]}") from error


def _names(inputs: Any) -> set[str]:
    return {name for each in inputs for name in each.get_names()}


def find_quantizers(model: IrModel) -> dict[str, str]:
    """Return the integer outputs of a network's quantizers, by the tensors dequantized from them."""
    given = {node.output[0]: node for node in model.onnx.graph.node}

    def of_data(node: NodeProto) -> bool:
        before = given.get(node.input[0])
        return before is not None and before.op_type == "QuantizeLinear"

    return {
        node.output[0]: node.input[0]
        for node in model.onnx.graph.node
        if node.op_type == "DequantizeLinear" and of_data(node)
    }


def find_wrong_quantizers(model: IrModel, arrays: Mapping[str, Array], taken: Mapping[str, Array]) -> list[str]:
    """Describe the quantizers and outputs of a network that differ from OpenVINO's, each computed from the network's own quantizers before it.

    Parameters
    ----------
    model
        The compiled model.
    arrays
        The network's inputs.
    taken
        The results of its quantizers and outputs.

    Raises
    ------
    InputError
        If OpenVINO cannot run it on them.
    """
    ir, integers = model.ir.clone(), find_quantizers(model)
    fakes = [
        (name, op)
        for op in ir.get_ordered_ops()
        if op.get_type_name() == "FakeQuantize"
        for name in names_of(op.output(0))
        if name in integers
    ]
    known, asked, found_by = dict(arrays), [], []
    parameters = ir.get_parameters()
    for name, op in fakes:
        bounds = [np.array(value.get_node().get_data()) for value in op.input_values()[1:]]
        quantizer = find_quantizer(int(op.get_attributes()["levels"]), bounds)
        assert quantizer is not None
        given = openvino.opset13.parameter(
            op.get_output_partial_shape(0), op.get_output_element_type(0), name=f"{name}/given"
        )
        known[f"{name}/given"] = ((taken[integers[name]] - quantizer.zero) * quantizer.scale).astype(np.float32)
        for target in op.output(0).get_target_inputs():
            target.replace_source_output(given.output(0))
        parameters.append(given)
        asked.append(op.input_value(0))
        found_by.append((name, quantizer))
    outputs = [each.input_value(0) for each in ir.get_results()]
    between = openvino.Model([*asked, *outputs], parameters)
    answers = compute_answers(between, known)
    wrong = []
    for (name, quantizer), values in zip(found_by, answers, strict=False):
        axis = next((at for at, size in enumerate(quantizer.scale.shape) if size > 1), 0)
        axis += values.ndim - quantizer.scale.ndim
        scale, zero = quantizer.scale.reshape(-1), quantizer.zero.reshape(-1)
        steps = (0, quantizer.levels - 1)
        wrong += describe_misrounding(name, taken[integers[name]], values, scale, zero, axis, steps)
    own = {each.name: taken[each.name] for each in model.onnx.graph.output}
    return wrong + describe_differences(own, answers[len(fakes) :])
