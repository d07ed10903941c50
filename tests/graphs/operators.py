"""ONNX' operators, as random nodes; attributes are those that exporters and standards have, likely or not."""

from __future__ import annotations

from . import images, numbers, places
from .draw import Operator

_NODES: tuple[Operator, ...] = (
    images.convolution,
    images.transposed,
    images.pool,
    images.norm,
    images.resize,
    images.window,
    numbers.unary,
    numbers.activation,
    numbers.binary,
    numbers.logic,
    numbers.cast,
    numbers.matmul,
    numbers.reduce,
    numbers.along,
    numbers.recurrent,
    numbers.quantized,
    numbers.sequence,
    places.move,
    places.part,
    places.index,
)
OPERATORS: dict[str, Operator] = {each.__name__: each for each in _NODES}
