"""Callers' arrays on CUDA devices: torch's, CuPy's, and by DLPack everything else's (JAX, tvm-ffi, ...).

torch and CuPy have a current stream, on which kernels are launched, and reuse freed memory in its order. For other libraries only
DLPack's protocol is used (`tvmconv.runtime.cuda.dlpack`). No function here synchronizes with the host.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Protocol

import numpy as np

from ...errors import InputError
from ..dltensor import ALIGNMENT, CUDA

_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_dtypes: dict[Any, str] = {}
_libraries: dict[type, Library] = {}


class Library(Protocol):
    """Interface of an array library for kernels."""

    def device(self, value: Any) -> int:
        """Return the number of the array's GPU."""

    def stream(self, device: int) -> int:
        """Return the handle of the current stream."""

    def is_ready(self, value: Any, dtype: str, shape: tuple[int, ...], gpu: int) -> bool:
        """Return whether a kernel can take the array as it is; False if that cannot be decided quickly."""

    def take(self, value: Any, stream: int, writable: bool) -> Any:
        """Return the array as a kernel on `stream` can read it, or write it if `writable`: C-contiguous and aligned.

        tvm-ffi's functions take the result, which has `data_ptr`.

        Raises
        ------
        ValueError
            If that is impossible.
        """

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Return a new array of the type and device of `like`."""

    def scratch(self, nbytes: int, like: Any) -> Any:
        """Return new memory, with `data_ptr`, on the device of `like`."""

    def is_capturing(self) -> bool:
        """Return whether a CUDA graph is being captured, which would own memory allocated now."""


class Torch:
    """PyTorch's tensors."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

    def device(self, value: Any) -> int:
        """Return the number of the tensor's GPU."""
        return int(value.get_device())

    def stream(self, device: int) -> int:
        """Return the handle of torch.cuda.current_stream."""
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def is_ready(self, value: Any, dtype: str, shape: tuple[int, ...], gpu: int) -> bool:
        """Return whether type, shape and GPU fit, and the tensor is dense, aligned, and without gradient."""
        return (
            value.dtype is self._dtypes[dtype]
            and value.shape == shape
            and value.get_device() == gpu
            and value.is_contiguous()
            and not value.data_ptr() % ALIGNMENT
            and not value.requires_grad
            and not value.is_neg()
        )

    def take(self, value: Any, stream: int, writable: bool) -> Any:
        """Return the tensor, or a copy made on the current stream."""
        torch = self._torch
        if value.layout is not torch.strided:
            raise ValueError(f"has layout {value.layout}; give its to_dense()")
        if value.requires_grad:
            if torch.is_grad_enabled():
                raise ValueError(
                    "requires grad, which kernels do not compute; give its detach() or use torch.no_grad()"
                )
            value = value.detach()
        if value.is_contiguous() and not value.is_neg() and value.data_ptr() % ALIGNMENT == 0:
            return value
        if writable:
            raise ValueError(f"must be C-contiguous and aligned to {ALIGNMENT} bytes; make it with torch.empty")
        return value.resolve_neg().clone(memory_format=torch.contiguous_format)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Return a new tensor."""
        return self._torch.empty(shape, dtype=like.dtype, device=like.device)

    def scratch(self, nbytes: int, like: Any) -> Any:
        """Return a tensor of bytes."""
        return self._torch.empty(nbytes, dtype=self._torch.uint8, device=like.device)

    def is_capturing(self) -> bool:
        """Return whether a graph is being captured: it allocates from a pool of its own."""
        return bool(self._torch.cuda.is_current_stream_capturing())


class CuPy:
    """CuPy's arrays."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def device(self, value: Any) -> int:
        """Return the number of the array's GPU."""
        return int(value.device.id)

    def stream(self, device: int) -> int:
        """Return the handle of the device's current stream."""
        return int(self._cupy.cuda.get_current_stream(device).ptr)

    def is_ready(self, value: Any, dtype: str, shape: tuple[int, ...], gpu: int) -> bool:
        """Return whether the array is known to be ready: never."""
        return False

    def take(self, value: Any, stream: int, writable: bool) -> Any:
        """Return the array, or a copy made on the current stream, as tvm-ffi's tensor."""
        if not value.flags.c_contiguous or value.data.ptr % ALIGNMENT:
            if writable:
                raise ValueError(f"must be C-contiguous and aligned to {ALIGNMENT} bytes; make it with cupy.empty")
            with value.device:
                value = value.copy(order="C")
        from .dlpack import import_on

        return import_on(value, stream)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Return a new array."""
        with like.device:
            return self._cupy.empty(shape, like.dtype)

    def scratch(self, nbytes: int, like: Any) -> Any:
        """Return an array of bytes."""
        from .dlpack import import_on

        with like.device:
            return import_on(self._cupy.empty(nbytes, np.uint8), self.stream(like.device.id))

    def is_capturing(self) -> bool:
        """Return whether a graph has a pool of its own: never."""
        return False


# One object for all array types of a library.
_torch, _cupy = cache(Torch), cache(CuPy)


def location(value: Any) -> int | None:
    """Return the number of an array's GPU; None if it is on none, or no array."""
    if type(value) is np.ndarray:
        return None
    on_gpu = getattr(value, "is_cuda", None)  # the fast way for torch
    if on_gpu is not None:
        return int(value.get_device()) if on_gpu else None
    if not hasattr(value, "__dlpack_device__") or not hasattr(value, "__dlpack__"):
        return None
    kind, index = value.__dlpack_device__()
    return int(index) if int(kind) == CUDA else None


def dtype_of(value: Any) -> str:
    """Return an array's type, by its name in Problems if it has one."""
    dtype = value.dtype
    known = _dtypes.get(dtype)
    if known is None:
        name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
        known = _dtypes[dtype] = _NAMES.get(name, name)
    return known


def library_of(value: Any) -> Library:
    """Return the library of an array on a GPU."""
    library = _libraries.get(type(value))
    if library is None:
        library = _libraries[type(value)] = _find_library(value)
    return library


def _find_library(value: Any) -> Library:
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch(torch)
    if cupy is not None and isinstance(value, cupy.ndarray):
        return _cupy(cupy)
    from .dlpack import DLPACK

    return DLPACK


def same_gpu(named: dict[str, Any]) -> int | None:
    """Return the number of the GPU with all arrays; None if all are in the CPU's memory.

    Raises
    ------
    InputError
        If they are not all on one device.
    """
    places = {name: location(value) for name, value in named.items()}
    if len(set(places.values())) > 1:
        given = ", ".join(
            f"{name} is {'in the CPU memory' if place is None else f'on cuda:{place}'}"
            for name, place in places.items()
        )
        raise InputError(f"the arrays are on different devices: {given}; put all on one")
    return next(iter(places.values()))
