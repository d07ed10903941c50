"""ATen's normalizations, with and without scales and shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from .arguments import Converters, Given


def _scale_and_shift(given: Given, shape: Any) -> list[Any]:
    """Return the weight and the bias, ones and zeros if they are absent."""
    filled = (np.ones(shape), np.zeros(shape))
    return [
        relax.const(numbers.astype("float32"), given.dtype) if given[name] is None else given[name]
        for name, numbers in zip(("weight", "bias"), filled, strict=True)
    ]


def _of_groups(given: Given) -> relax.Expr:
    """Return ``native_group_norm.default`` without its mean and deviation; in f32, as Relax's does not support bf16."""
    wide = "float32" if given.dtype == "bfloat16" else given.dtype
    data, *weights = (given.of_type(each, wide) for each in (given["input"], *_scale_and_shift(given, int(given["C"]))))
    attributes = {"num_groups": given["group"], "channel_axis": 1, "epsilon": given["eps"]}
    output = given.emit(relax.op.nn.group_norm(data, *weights, axes=list(range(2, data.ty.ndim)), **attributes))
    return relax.Tuple([given.of_type(output, given.dtype)])


def _of_layers(given: Given) -> relax.Expr:
    """Return ``native_layer_norm.default`` without its mean and deviation."""
    data, shape = given["input"], [int(size) for size in given["normalized_shape"]]
    axes = list(range(data.ty.ndim - len(shape), data.ty.ndim))
    output = given.emit(relax.op.nn.layer_norm(data, *_scale_and_shift(given, shape), axes=axes, epsilon=given["eps"]))
    return relax.Tuple([output])


def _of_batches(given: Given) -> relax.Expr:
    """Return ``_native_batch_norm_legit.no_stats`` of InstanceNorm, with the statistics of the data along all axes but the second.

    Types of 16 bits are computed in f32: squares of f16 overflow, and a mean rounded to bf16 moves all numbers.
    """
    wide = "float32" if given.dtype in ("float16", "bfloat16") else given.dtype
    data = given.of_type(given["input"], wide)
    axes = [axis for axis in range(data.ty.ndim) if axis != 1]
    channels = given.dims("input")[1]
    mean = given.emit(relax.op.mean(data, axes, keepdims=True))
    variance = given.emit(relax.op.variance(data, axes, keepdims=True))
    spread = given.emit(relax.op.sqrt(relax.op.add(variance, relax.const(given["eps"], wide))))
    output = given.emit(relax.op.divide(relax.op.subtract(data, mean), spread))
    for name, operator in (("weight", relax.op.multiply), ("bias", relax.op.add)):
        if given[name] is not None:
            shape = (1, channels, *[1] * (data.ty.ndim - 2))
            numbers = given.emit(relax.op.reshape(given.of_type(given[name], wide), shape))
            output = given.emit(operator(output, numbers))
    return relax.Tuple([given.of_type(output, given.dtype)])


NORMALIZATIONS: Converters = {
    "native_group_norm.default": _of_groups,
    "native_layer_norm.default": _of_layers,
    "_native_batch_norm_legit.no_stats": _of_batches,
}
