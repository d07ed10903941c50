"""ATen's fake quantizations, as models that were trained to be quantized have them: rounded to steps, and bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

aten = torch.ops.aten


def _round(self: Any, inverse: Any, scale: Any, zero: Any, low: int, high: int) -> tuple[Any, Any]:
    """Return numbers at steps, and where they are within bounds; what is no number is at the lowest step."""
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
    if zero_point.is_floating_point():  # which is added before the rounding
        return NotImplemented
    shape = [-1 if each == axis else 1 for each in range(self.ndim)]
    scale = scale.reshape(shape)
    return _round(self, 1 / scale, scale, zero_point.reshape(shape), quant_min, quant_max)


QUANTIZED: Mapping[Any, Callable[..., Any]] = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: _by_number,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _by_tensor,
    aten.fake_quantize_per_channel_affine_cachemask.default: _by_channel,
}
