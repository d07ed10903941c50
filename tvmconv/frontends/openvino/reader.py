"""Read convolutions of OpenVINO IR from the ONNX model that it is translated to.

A constant that is added to a convolution's output, one number for each channel, is its bias.
"""

from __future__ import annotations

from typing import Any

from ..model import Skipped, SourceNode
from ..onnx.reader import OnnxReader
from ..reader import Reader, Reading
from ..shapes import Bucket
from .ir import declare_inputs, load_ir, reshape
from .rules import OP_TYPES
from .translate import translate

_OTHER_OP_TYPES = {
    "BinaryConvolution": "it computes in bits; kernels compute in f32, f16 or bf16",
    "DeformableConvolution": "each of its taps reads where another tensor says; kernels read at fixed distances",
}
_WITH_BODIES = ("If", "Loop", "TensorIterator")
_INSIDE = "the convolutions inside it are not read"


class OpenvinoReader(Reader):
    """Reads one IR."""

    def __init__(self, source: str, how: Reading) -> None:
        super().__init__(source, how)
        self._how = how

    def read(self, bucket: Bucket) -> tuple[list[SourceNode], list[Skipped]]:
        """Return the convolutions at the shapes of a bucket, and those that are skipped."""
        model = load_ir(self._source)
        bound = self._bound(declare_inputs(model), bucket)
        reshape(model, bound, self._source)
        translated = translate(model, self._source, [*bound.values()], whole=False)
        nodes, skipped = OnnxReader(translated, self._source, self._how, biased=True).read(Bucket())
        others = [(op, _find_obstacle(op)) for op in model.get_ordered_ops()]
        return nodes, skipped + [Skipped(op.get_friendly_name(), op.get_type_name(), why) for op, why in others if why]


def _find_obstacle(op: Any) -> str:
    """Return why convolutions of an operation are not read; empty if it has none, or they are read."""
    if op.get_type_name() not in _WITH_BODIES:
        return _OTHER_OP_TYPES.get(op.get_type_name(), "")
    bodies = [op.get_then_body(), op.get_else_body()] if op.get_type_name() == "If" else [op.get_function()]
    inner = (each for body in bodies for each in body.get_ordered_ops())
    return _INSIDE if any(each.get_type_name() in OP_TYPES or _find_obstacle(each) for each in inner) else ""
