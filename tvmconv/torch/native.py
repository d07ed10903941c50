"""Operators between kernels by C functions of the kernels' libraries, on the kernels' threads.

PyTorch's operators wake threads of their own, and its max pooling computes indices, too. Two threads of a Granite Rapids, in
microseconds, beside PyTorch's: the maxima of 3x3, stride 2, of 64 channels at 147x147 in bf16 72 and 338; 512 at 20x20, 5x5, 55 and
398; two times 32 channels at 224x224 put together 222 and 302; LayerNorm of 96 channels at 56x56 in f32 40 and 70.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as functional

from ..runtime.addressed import AddressedKernel
from .layout import CHANNELS_SECOND, Layout

TYPES = {torch.float32: 0, torch.bfloat16: 1}  # as the C functions number them
PAD_MODES = {"constant": 0, "reflect": 1, "replicate": 2, "circular": 3}  # as the C function numbers them
# Taps whose addresses a thread has on its stack.
MOST_TAPS = 1024
_INT, _LONG, _POINTER, _FLOAT = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
_SIGNATURES = {
    "tvmconv_max_pool": (_INT, _INT, _POINTER, _POINTER, _LONG, _LONG, _POINTER),
    "tvmconv_pad": (_INT, _INT, _INT, _POINTER, _POINTER, _LONG, _LONG, _LONG, _LONG, _POINTER, _POINTER),
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


def pad(
    data: Any, begin: Sequence[int], end: Sequence[int], mode: str, value: float, out: Any
) -> Callable[[], None] | None:
    """Return what pads a tensor's spatial axes to another tensor, which has its channels last; None: there is no function for it.

    Parameters
    ----------
    data
        Of any strides.
    begin, end
        How many elements come before and after each spatial axis. Negative ones, of zeros or another constant, cut it.
    mode, value
        As for `torch.nn.functional.pad`.
    out
        Of the shape that this gives.
    """
    if not _FUNCTIONS or data.dtype != out.dtype or data.device.type != "cpu" or not _is_ready(out):
        return None
    write = _padding(data.shape, data.stride(), data.dtype, begin, end, mode, value)
    return None if write is None else partial(write, data.data_ptr(), out.data_ptr())


@lru_cache(maxsize=1024)
def _padding(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Any,
    begin: tuple[int, ...],
    end: tuple[int, ...],
    mode: str,
    value: float,
) -> Callable[[int, int], None] | None:
    """Return what pads data at one address to another, None if the function does not."""
    size, sizes = dtype.itemsize, shape[2:]
    if size not in (2, 4) or not dtype.is_floating_point or 0 in shape or not 1 <= len(sizes) <= 3:
        return None
    if mode != "constant" and min(*begin, *end) < 0:
        return None
    most = {"reflect": [each - 1 for each in sizes], "circular": sizes}.get(mode)
    if most is not None and any(max(pads) > limit for *pads, limit in zip(begin, end, most, strict=True)):
        return None
    image, channel, *others = (stride * size for stride in strides)
    outputs = map(sum, zip(sizes, begin, end, strict=True))
    axes = [*[(1, 1, 0, 0)] * (3 - len(sizes)), *zip(sizes, outputs, begin, others, strict=True)]
    given = (_LONG * 12)(*(number for axis in axes for number in axis))
    constant = torch.full((1,), value, dtype=dtype)
    address, (images, channels) = constant.data_ptr(), shape[:2]

    def write(data: int, out: int, constant: Any = constant) -> None:  # which lives as long as its address is used
        function = _FUNCTIONS["tvmconv_pad"]
        threads = torch.get_num_threads()
        function(threads, size, PAD_MODES[mode], data, out, images, channels, image, channel, given, address)

    return write


# Of fewer bytes PyTorch's copy takes less time than finding the function.
_COPIED_BYTES = 1 << 19


def laid_out(layout: Layout, tensor: Any) -> Any:
    """Return a tensor as kernels read it; a copy if it is not so."""
    few = tensor.numel() * tensor.element_size() < _COPIED_BYTES
    if few or layout is not CHANNELS_SECOND or not 3 <= tensor.dim() <= 5 or layout.is_ready(tensor):
        return layout.laid_out(tensor)
    out, none = (
        torch.empty_strided(tensor.shape, layout.strides(tensor.shape), dtype=tensor.dtype),
        (0,) * (tensor.dim() - 2),
    )
    write = pad(tensor, none, none, "constant", 0.0, out)
    if write is None:
        return layout.laid_out(tensor)
    write()
    return out


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
