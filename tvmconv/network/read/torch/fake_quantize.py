"""Decompositions of PyTorch's quantizers into floating-point operators that round and clamp.

Models trained for quantization have ATen's fake quantizers; `pt2e` writes operators of `quantized_decomposed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.ao.quantization.fx import _decomposed as _registered  # noqa: F401 - registers operators

# Integers that kernels support, whose quantizers stay.
EIGHT_BITS = (torch.uint8, torch.int8)
aten, pt2e = torch.ops.aten, torch.ops.quantized_decomposed


def _round(self: Any, inverse: Any, scale: Any, zero: Any, low: int, high: int) -> tuple[Any, Any]:
    """Return rounded numbers, and a mask of those within bounds; NaN becomes the lowest step."""
    step = (self * inverse).round() + zero
    inside = (step >= low) & (step <= high)
    step = torch.where(torch.isnan(step), low, step.clamp(low, high))
    return ((step - zero) * scale).to(self.dtype), inside


def _by_number(self: Any, scale: float, zero_point: int, quant_min: int, quant_max: int) -> tuple[Any, Any]:
    # PyTorch divides in f32.
    return _round(self, float(1 / np.float32(scale)), float(np.float32(scale)), zero_point, quant_min, quant_max)


def _by_tensor(
    self: Any, scale: Any, zero_point: Any, fake_quant_enabled: Any, quant_min: int, quant_max: int
) -> tuple[Any, Any]:
    scale, zero = scale.reshape(()), zero_point.reshape(())
    made, inside = _round(self, 1 / scale, scale, zero, quant_min, quant_max)
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, made, self), inside | ~enabled


def _by_channel(
    self: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> tuple[Any, Any] | Any:
    if zero_point.is_floating_point():  # added before the rounding
        return NotImplemented
    shape = [-1 if each == axis else 1 for each in range(self.ndim)]
    scale = scale.reshape(shape)
    return _round(self, 1 / scale, scale, zero_point.reshape(shape), quant_min, quant_max)


def _quantize(self: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype) -> Any:
    whole = dtype in EIGHT_BITS and (low, high) == (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if whole or (dtype in EIGHT_BITS and isinstance(scale, float)):
        return NotImplemented
    return ((self.float() * (1.0 / scale)).round() + zero).clamp(low, high).to(dtype)


def _dequantize(
    self: Any, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype, *, out_dtype: torch.dtype | None = None
) -> Any:
    if dtype in EIGHT_BITS and out_dtype in (None, torch.float32):
        return NotImplemented
    values = self.to(torch.float32 if out_dtype is None else out_dtype)
    return (values if zero is None else values - zero) * scale


def _choose(self: Any, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return the scale and zero point for which the integers of a type cover a tensor's range, and 0."""
    least, most = self.amin().clamp(max=0), self.amax().clamp(min=0)
    scale = ((most - least) / float(high - low)).clamp(min=eps)
    zero = (low - (least / scale).round().to(torch.int32)).clamp(low, high)
    return scale.to(torch.float64).reshape(1), zero.to(torch.int64).reshape(1)


def _choose_symmetric(self: Any, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return the scale for which the integers of a type cover a tensor's range symmetrically, and the zero point in the middle."""
    scale = (self.abs().amax() / (float(high - low) / 2)).clamp(min=eps)
    zero = torch.full((1,), 128 if dtype == torch.uint8 else 0, dtype=torch.int64, device=self.device)
    return scale.to(torch.float64).reshape(1), zero


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of one scale and zero point as a function of one for each index of an axis."""

    def of_channels(self: Any, scales: Any, zeros: Any, axis: int, *bounds: Any, **given: Any) -> Any:
        shape = [-1 if each == axis % self.ndim else 1 for each in range(self.ndim)]
        return function(self, scales.reshape(shape), zeros if zeros is None else zeros.reshape(shape), *bounds, **given)

    return of_channels


QUANTIZED: Mapping[Any, Callable[..., Any]] = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: _by_number,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _by_tensor,
    aten.fake_quantize_per_channel_affine_cachemask.default: _by_channel,
    pt2e.choose_qparams.tensor: _choose,
    pt2e.choose_qparams_symmetric.tensor: _choose_symmetric,
    pt2e.quantize_per_tensor.default: _quantize,
    pt2e.quantize_per_tensor.tensor: _quantize,
    pt2e.quantize_per_channel.default: _along(_quantize),
    pt2e.dequantize_per_tensor.default: _dequantize,
    pt2e.dequantize_per_tensor.tensor: _dequantize,
    pt2e.dequantize_per_channel.default: _along(_dequantize),
}
