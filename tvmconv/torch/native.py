"""Operators between kernels by C functions with the kernels' threads, which each kernel's library has.

PyTorch's have threads of their own, that wake for each, and find indices beside maxima. Two threads of a Granite Rapids, in
microseconds, beside PyTorch's: the maxima of 3x3, stride 2, of 64 channels at 147x147 in bf16 72 and 338; 512 at 20x20, 5x5, 55 and
398; two times 32 channels at 224x224 put together 222 and 302; LayerNorm of 96 channels at 56x56 in f32 40 and 70.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as functional

from ..runtime.addressed import AddressedKernel
from .layout import CHANNELS_SECOND

TYPES = {torch.float32: 0, torch.bfloat16: 1}  # as the C functions number them
# Taps whose addresses a thread has on its stack.
MOST_TAPS = 1024
_INT, _LONG, _POINTER, _FLOAT = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
_SIGNATURES = {
    "tvmconv_max_pool": (_INT, _INT, _POINTER, _POINTER, _LONG, _LONG, _POINTER),
    "tvmconv_concatenate": (_INT, _LONG, _POINTER, _POINTER, _POINTER, _LONG),
    "tvmconv_layer_norm": (_INT, _INT, _POINTER, _POINTER, _POINTER, _POINTER, _LONG, _LONG, _FLOAT),
}
_FUNCTIONS: dict[str, Callable[..., None]] = {}

PoolAxis = tuple[int, int, int, int, int, int]


def offer(kernel: AddressedKernel) -> None:
    """Take the functions of a kernel's library, if there are none yet and it was built since libraries have them."""
    if _FUNCTIONS or not all(hasattr(kernel.library, name) for name in _SIGNATURES):
        return
    for name, types in _SIGNATURES.items():
        function = kernel.library[name]
        function.argtypes, function.restype = types, None
        _FUNCTIONS[name] = function


def pools(dtype: Any, axes: Sequence[PoolAxis]) -> bool:
    """Whether there is a function for a max pooling: each output must meet an input."""
    if not _FUNCTIONS or dtype not in TYPES or len(axes) > 3 or prod(axis[2] for axis in axes) > MOST_TAPS:
        return False
    return all(
        any(0 <= output * stride - pad + tap * dilation < inputs for tap in range(taps))
        for inputs, outputs, taps, stride, pad, dilation in axes
        for output in range(outputs)
    )


def max_pool(data: Any, axes: Sequence[PoolAxis], out: Any) -> Callable[[], None]:
    """Return what pools one tensor to another, of which :func:`pools` says that there is a function.

    Parameters
    ----------
    data, out
        With their channels last.
    axes
        Of each spatial axis the inputs, the outputs, the taps, the stride, the padding and the dilation.
    """
    numbers = [*[(1, 1, 1, 1, 0, 1)] * (3 - len(axes)), *axes]
    given = (_LONG * 18)(*(number for axis in numbers for number in axis))
    pool, arrays = _FUNCTIONS["tvmconv_max_pool"], (data.data_ptr(), out.data_ptr(), *data.shape[:2])

    def compute() -> None:
        pool(torch.get_num_threads(), TYPES[data.dtype], *arrays, given)

    return compute


class Concatenation:
    """`torch.cat` into a tensor that is given."""

    def __call__(self, tensors: Sequence[Any], dim: int = 0, *, out: Any) -> Any:
        """Concatenate tensors."""
        return torch.cat(tensors, dim, out=out)

    def bind(self, tensors: Sequence[Any], dim: int = 0, *, out: Any) -> Callable[[], Any]:
        """Return what concatenates tensors that stay where they are."""
        last = dim % out.dim() == 1 and out.dim() > 2
        alike = all(each.dtype == out.dtype for each in tensors)
        if not _FUNCTIONS or not last or not alike or not all(map(_is_ready, (*tensors, out))):
            return partial(self, tensors, dim, out=out)
        count, pixels = len(tensors), out.numel() // out.shape[1]
        addresses = (_POINTER * count)(*(each.data_ptr() for each in tensors))
        sizes = (_LONG * count)(*(each.shape[1] * each.element_size() for each in tensors))
        concatenate, address = _FUNCTIONS["tvmconv_concatenate"], out.data_ptr()
        return lambda: concatenate(torch.get_num_threads(), count, addresses, sizes, address, pixels)


def layer_norm(
    data: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, out: Any
) -> Any:
    """`torch.nn.functional.layer_norm` into a tensor that is given.

    Raises
    ------
    RuntimeError
        If a gradient is needed, as PyTorch's functions with an `out` do.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    arrays = [data, out, *(each for each in (weight, bias) if each is not None)]
    if torch.is_grad_enabled() and any(each.requires_grad for each in arrays):
        raise RuntimeError("layer_norm writes to a tensor that it is given, and a gradient is needed")
    lie = all(each.dtype == data.dtype and each.is_contiguous() and each.device.type == "cpu" for each in arrays)
    if not _FUNCTIONS or data.dtype not in TYPES or not lie or data.numel() == 0 or data.shape[-1:] != shape:
        return out.copy_(functional.layer_norm(data, shape, weight, bias, eps))
    addresses = [None if each is None else each.data_ptr() for each in (data, out, weight, bias)]
    rows, threads = data.numel() // shape[0], torch.get_num_threads()
    _FUNCTIONS["tvmconv_layer_norm"](threads, TYPES[data.dtype], *addresses, rows, shape[0], eps)
    return out


def _is_ready(tensor: Any) -> bool:
    return CHANNELS_SECOND.is_ready(tensor) and tensor.device.type == "cpu"
