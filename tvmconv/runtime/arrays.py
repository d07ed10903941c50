"""Conversion of callers' arrays to kernels' arrays, and of results to callers' libraries.

A kernel takes NumPy arrays of its own types; bf16 is passed as uint16, since NumPy's DLPack has no bfloat16. NumPy arrays
(bfloat16 of ml_dtypes among them), torch tensors and other arrays with ``__dlpack__`` in the CPU's memory become views of
that kind. An input is copied only if it is not C-contiguous, or not aligned to its element.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_uint64
from math import prod
from typing import Any

import numpy as np
from numpy import ndarray, uint16

from ..dtypes import ROWS
from ..errors import InputError, last_line

KERNEL_TYPES: dict[str, np.dtype[Any]] = {name: np.dtype(row.in_kernels) for name, row in ROWS.items()}
_HEADER = object.__basicsize__
_WORDS = (c_uint64 * (1 << 57)).from_address(0)  # all of memory, of which one word at a time is read
LINE_BYTES = 64  # a cache line, and the longest vector
_BITS = KERNEL_TYPES["bf16"]
_BF16 = "bfloat16"  # as networks and ml_dtypes call it
_KERNEL_NAMES = {row.numpy: name for name, row in ROWS.items()}
# The same by NumPy's types; bfloat16 of ml_dtypes, which need not be installed, is added at its first use.
_NAMES = {np.dtype(row.numpy): name for name, row in ROWS.items() if not row.kernel}
OUT = "out"  # the name of the array that is written
# DLPack's device types with memory that the CPU reads: its own, and pinned memory of CUDA and ROCm.
_CPU_DEVICES = (1, 3, 11)
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA managed memory", 14: "oneAPI"}


def view(name: str, value: Any) -> tuple[np.ndarray, str]:
    """View a caller's array as a kernel's array.

    Parameters
    ----------
    name
        The argument's name, for messages: ``"data"``, ``"filter"``, ``"bias"`` or ``"out"``.
    value
        A NumPy array, a torch tensor, or another object with ``__dlpack__``.

    Returns
    -------
    tuple
        The array, with any strides, on the caller's memory; and its type's name in a Problem.

    Raises
    ------
    InputError
        If it is no array, not in the CPU's memory, or of a type that no kernel has.
    """
    if type(value) is np.ndarray:  # the most frequent case first, in the least time
        dtype = _NAMES.get(value.dtype)
        if dtype == "bf16":
            return value.view(_BITS), dtype
        if dtype is not None:
            return value, dtype
    array, given = any_view(name, value)
    if given not in _KERNEL_NAMES:
        given = value.dtype if of_torch(value) else given
        raise InputError(f"{name} has type {given}; kernels take {', '.join(_KERNEL_NAMES)}: convert it first")
    if given == _BF16 and isinstance(value, np.ndarray):
        _NAMES[value.dtype] = "bf16"
    return array, _KERNEL_NAMES[given]


def any_view(name: str, value: Any) -> tuple[np.ndarray, str]:
    """View a caller's array of any type as NumPy's; all inputs of kernels and networks pass here.

    Returns
    -------
    tuple
        The array, with any strides, on the caller's memory, bf16 as its bits; and its type's name.

    Raises
    ------
    InputError
        If it is no array, has a mask or requires grad, is not in the CPU's memory, or of a type that NumPy lacks.
    """
    if isinstance(value, np.ndarray):
        return _view_numpy(name, value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _view_torch(name, value, torch)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _view_dlpack(name, value)
    raise InputError(
        f"{name} is a {type(value).__name__}; give a NumPy array, a torch tensor, or an array with __dlpack__"
    )


def kernel_input(name: str, value: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a caller's array as a kernel's input of this type and shape.

    Raises
    ------
    InputError
        As for :func:`view`, and if the type or the shape is not the kernel's.
    """
    # Fast path of the usual case.
    if type(value) is ndarray and _NAMES.get(value.dtype) == dtype and value.shape == shape and value.flags.carray:
        if dtype == "bf16":
            value = value.view(uint16)
        return value if value.size else _readable(value)
    value, given = view(name, value)
    if given != dtype:
        raise InputError(f"{name} has type {given}; this kernel takes {dtype}")
    if value.shape != shape:
        raise InputError(f"{name} has shape {list(value.shape)}; this kernel takes {list(shape)}")
    return value if value.flags.carray and value.size else _readable(value)


def check_operands(signature: str, taken: Iterable[tuple[str, tuple[int, ...], str]], given: Mapping[str, Any]) -> None:
    """Check that a call has exactly the operands that its kernel takes beside data and filter.

    Raises
    ------
    InputError
        If one is missing or superfluous.
    """
    names = [name for name, _, _ in taken]
    for name, array in given.items():
        if array is None and name in names:
            raise InputError(f"{name} is missing; the kernel takes one: {signature}")
        if array is not None and name not in names:
            raise InputError(
                f"{name} was given, but the kernel takes none: {signature}; use the one whose signature continues with "
                f"{'-bias' if name == 'bias' else 'the epilogue that takes it'}"
            )


def kernel_output(
    value: Any, dtype: str, shape: tuple[int, ...], inputs: Sequence[np.ndarray], given_inputs: Sequence[Any]
) -> np.ndarray:
    """Return a caller's `out` as an array that a kernel of this type and shape can write to.

    Raises
    ------
    InputError
        As for :func:`kernel_input`, and if `out` cannot be written in place: it is read-only, not
        C-contiguous, not aligned to its element, or shares memory with one of `inputs`, the results of
        :func:`kernel_input` for `given_inputs`.
    """
    if type(value) is ndarray and _NAMES.get(value.dtype) == dtype and value.shape == shape and value.flags.carray:
        array = value.view(uint16) if dtype == "bf16" else value
        owned = value.flags.owndata
    else:
        array, given = view(OUT, value)
        owned = False
        if given != dtype or array.shape != shape:
            raise InputError(
                f"out has shape {list(array.shape)} and type {given}; the result has shape {list(shape)} and type {dtype}"
            )
        if not array.flags.writeable:
            raise InputError("out is read-only; give an array that can be written")
        if not array.flags.carray:
            raise InputError("out must be C-contiguous and aligned to its elements; make it with numpy.empty")
    for other in given_inputs:  # two arrays that each own their memory share none
        if not owned or other is value or not (other is None or (type(other) is ndarray and other.flags.owndata)):
            break
    else:
        return array
    for taken in inputs:
        if np.may_share_memory(array, taken):
            raise InputError("out shares memory with an input, which the kernel still reads; give a separate array")
    return array


def of_torch(array: Any) -> bool:
    """Return whether an array is a PyTorch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def result(array: np.ndarray, dtype: str, like: Any) -> Any:
    """Return a kernel's output, without a copy, as an array of the library of `like`.

    If that library has no ``from_dlpack``, or cannot take bfloat16, the result is NumPy's.
    """
    if isinstance(like, np.ndarray):
        return array.view(_bfloat16()) if dtype == "bf16" else array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return (
            torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(array)
        )
    library = _library(like)
    if dtype == "bf16":
        array = array.view(_bfloat16())
        return library.asarray(array) if hasattr(library, "asarray") else array
    return library.from_dlpack(array) if hasattr(library, "from_dlpack") else array


def _view_numpy(name: str, array: np.ndarray) -> tuple[np.ndarray, str]:
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array, and kernels have no masks; fill it first: {name}.filled(0)")
    array = np.asarray(array)
    if not array.dtype.isnative:
        raise InputError(
            f"{name} has type {array.dtype.str!r}, the other byte order; convert it: {name}.astype({array.dtype.newbyteorder('=').name!r})"
        )
    return array.view(_BITS) if array.dtype.name == _BF16 else array, array.dtype.name


def _view_torch(name: str, tensor: Any, torch: Any) -> tuple[np.ndarray, str]:
    if tensor.device.type != "cpu":
        raise InputError(f"{name} is on device {tensor.device}; kernels run on the CPU: give {name}.cpu()")
    if tensor.layout != torch.strided:
        raise InputError(f"{name} has layout {tensor.layout}; give {name}.to_dense()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise InputError(
            f"{name} requires grad, which kernels do not compute; give {name}.detach() or use torch.no_grad()"
        )
    if name == OUT and (tensor.is_neg() or tensor.is_conj()):
        raise InputError(
            f"{name} is a negated or conjugated view, which cannot be written through; give a separate tensor"
        )
    tensor = tensor.detach().resolve_neg().resolve_conj()
    try:
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(_BITS), _BF16
        array = tensor.numpy()
    except (RuntimeError, TypeError) as refusal:  # quantized, or of a type or subclass that NumPy lacks
        raise InputError(
            f"{name} is a {type(tensor).__name__} of type {tensor.dtype} that cannot be read in place: {last_line(refusal)}; give a"
            " plain tensor in its place"
        ) from None
    return array, array.dtype.name


def _view_dlpack(name: str, value: Any) -> tuple[np.ndarray, str]:
    device = int(value.__dlpack_device__()[0])
    if device not in _CPU_DEVICES:
        raise InputError(
            f"{name} is on a {_DEVICES.get(device, f'DLPack {device}')} device; kernels run on the CPU: copy it there first"
        )
    try:
        array = np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as refusal:
        return _view_bfloat16(name, value, refusal)
    return _view_numpy(name, array)


def _view_bfloat16(name: str, value: Any, refusal: Exception) -> tuple[np.ndarray, str]:
    """View an array that NumPy refuses because it is bfloat16; raise InputError for other refusals."""
    import tvm_ffi

    try:
        tensor = tvm_ffi.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read through DLPack: {error}") from error
    if str(tensor.dtype) != "bfloat16":
        raise InputError(f"{name} has type {tensor.dtype}, which NumPy lacks ({refusal})") from refusal
    bits = _Memory(
        tensor,
        _BITS,
        tuple(tensor.shape),
        tuple(2 * stride for stride in tensor.strides),
        tensor.data_ptr(),
    )
    array = np.asarray(bits)
    array.flags.writeable = False  # its library's arrays may be immutable
    return array, _BF16


class _Memory:
    """Memory of `owner` as a writable array for NumPy, even if `owner` declares it read-only."""

    def __init__(
        self, owner: Any, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...], address: int
    ) -> None:
        self.owner = owner  # NumPy's array keeps this object, and so the caller's memory
        self.__array_interface__ = {
            "version": 3, "typestr": dtype.str, "shape": shape, "strides": strides, "data": (address, False)
        }  # fmt: skip


def _readable(array: np.ndarray) -> np.ndarray:
    """Return `array` as a kernel can read it: a copy, or if it is just read-only a view."""
    if array.size == 0:
        return aligned_empty(array.shape, array.dtype)
    array = np.require(array, requirements=["C", "A"])
    if array.flags.writeable:
        return array
    # NumPy does not export read-only arrays by DLPack; kernels do not write to inputs.
    return np.asarray(_Memory(array, array.dtype, array.shape, array.strides, array.ctypes.data))


def address(array: np.ndarray) -> int:
    """Return the address of an array's elements, in a sixth of the time of ``array.ctypes.data``.

    In NumPy's C ABI, the pointer follows the object's header.
    """
    return _WORDS[(id(array) + _HEADER) // 8]


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return a new uninitialized array that begins at a cache line; kernels accept it even without elements."""
    dtype = np.dtype(dtype)
    memory = np.empty(prod(shape) * dtype.itemsize + LINE_BYTES, np.uint8)
    return array_in(memory, shape, dtype, -memory.ctypes.data % LINE_BYTES)


def array_in(memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> np.ndarray:
    """Return an array at an offset in bytes into a buffer; kernels accept it even without elements."""
    strides = [dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return np.ndarray(shape, dtype, memory, offset, strides)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy of `array` as :func:`aligned_empty` makes it."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _bfloat16() -> np.dtype:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise InputError(
            "bfloat16 arrays outside torch need the Python package ml_dtypes: pip install ml_dtypes"
        ) from None
    return np.dtype(bfloat16)


def _library(value: Any) -> Any:
    """Return the array library's module of `value`, None if none takes DLPack."""
    if hasattr(value, "__array_namespace__"):
        return value.__array_namespace__()
    modules = (sys.modules.get(kind.__module__.split(".")[0]) for kind in type(value).__mro__)
    return next((module for module in modules if hasattr(module, "from_dlpack")), None)
