"""ATen's ``col2im`` with free extents; for fixed ones PyTorch decomposes it to a scatter."""

from __future__ import annotations

from tvm import relax

from ..folding import FoldedAxis, fold
from .arguments import Converters, Given


def _fold(given: Given) -> relax.Expr:
    """Return ``col2im``, in f32."""
    taps, dilations, pads, steps = (given[name] for name in ("kernel_size", "dilation", "padding", "stride"))
    axes = [FoldedAxis(*each) for each in zip(taps, dilations, pads, pads, steps, strict=True)]
    data = given.of_type(given["self"], "float32")
    return given.of_type(fold(given.builder, data, given.made_dims(), axes), given.dtype)


FOLDING: Converters = {"col2im.default": _fold}
