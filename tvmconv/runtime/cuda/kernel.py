"""`CudaKernel`: one compiled convolution for GPUs, loaded at its first call."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ...dtypes import DTYPE_BYTES
from ...errors import CudaError, InputError
from ...signature import parse_signature
from ..arrays import check_operands
from ..bundle import Bundle, Entry
from ..library import BeforeUse, load_function
from .arrays import Library, dtype_of, library_of, location
from .dlpack import DLPACK, finish, keep


class CudaKernel:
    """A compiled convolution of fixed shapes, types and attributes, for NVIDIA GPUs.

    Its library is checked and loaded at the first call. Calls are safe from several threads. A call returns when the kernel is
    launched, on the current stream of torch or CuPy if `data` is theirs, else on the legacy default stream. It never waits
    for the GPU, and can be captured in CUDA graphs after a first call.

    Parameters
    ----------
    bundle, entry
        The bundle, and the kernel's entry in it.
    before
        Called with the kernel's bundle and entry before its library is first used; its errors are the call's.

    Attributes
    ----------
    info : Entry
        The kernel's entry in the bundle.
    problem : Problem
        The convolution it computes.
    """

    def __init__(self, bundle: Bundle, entry: Entry, before: BeforeUse | None = None) -> None:
        self.info = entry
        self._before = before
        self.problem = problem = parse_signature(entry.signature)
        self._bundle = bundle
        self._function: Callable[..., object] | None = None
        self._workspaces: dict[tuple[int, int], tuple[Any, int]] = {}
        self._operands = tuple((name, *array) for name, array in problem.operands.items())
        self._dtype, self._output_shape = problem.dtype, problem.output_shape
        self._output_bytes = DTYPE_BYTES[problem.dtype] * prod(problem.output_shape)
        self._input_bytes = [DTYPE_BYTES[dtype] * prod(shape) for _, shape, dtype in self._operands]

    def __call__(
        self,
        data: Any,
        filter: Any,
        bias: Any = None,
        out: Any = None,
        *,
        scale: Any = None,
        slope: Any = None,
        residual: Any = None,
    ) -> Any:
        """Compute the convolution.

        Parameters
        ----------
        data, filter, bias
            Arrays on one GPU, of the shapes and the type of ``problem``: torch's, CuPy's, JAX's, or of another library
            with ``__dlpack__``. Read in place; torch's and CuPy's are copied if not C-contiguous or not aligned to 16
            bytes.
        scale, slope, residual
            Operands of the epilogue: f32 factors of each channel, for ``scale`` and for ``prelu``, and the summand of ``add``.
        out
            Array for the result: on the same GPU, C-contiguous, aligned, sharing no memory with an input.

        Returns
        -------
        array
            `out` if given, else a new array of the library of `data`. Its content is valid for later work on the same stream;
            JAX waits for it by itself.

        Raises
        ------
        InputError
            If an array does not fit the kernel.
        BundleError
            At the first call, if the library is missing, altered, or cannot be loaded.
        CudaError
            If the driver cannot load or launch the code.
        VerificationError
            If the bundle was loaded with ``verify="first-use"`` and the kernel is wrong.
        """
        gpu = location(data)
        if gpu is None:
            raise InputError(f"data is {_where(data)}; this kernel is for {self.info.target}: put the arrays on a GPU")
        library = library_of(data)
        stream = library.stream(gpu)
        kind = type(data)
        foreign = library is DLPACK  # whether memory must be kept for the kernel

        def take(name: str, value: Any, shape: tuple[int, ...], dtype: str, writable: bool = False) -> Any:
            nonlocal foreign
            if type(value) is kind and library.is_ready(value, dtype, shape, gpu):
                return value
            _check(name, value, dtype, shape, gpu)
            own = library_of(value)
            foreign = foreign or own is not library
            if writable and own is not library:
                raise InputError(
                    f"out is from another library than data, a {type(data).__name__}; give one of the same"
                )
            try:
                return (own if own is library else DLPACK).take(value, stream, writable)
            except ValueError as error:
                raise InputError(f"{name} {error}") from error

        given = {"bias": bias, "scale": scale, "slope": slope, "residual": residual}
        check_operands(self.info.signature, self._operands[2:], given)
        given |= {"data": data, "filter": filter}
        taken = [take(name, given[name], shape, dtype) for name, shape, dtype in self._operands]
        if out is None:
            output = library.empty(self._output_shape, data)
            # The call's own output may be written, even if arrays of the library are immutable.
            written = library.take(output, stream, False)
        else:
            output = out
            written = take("out", out, self._output_shape, self._dtype, True)
            self._check_apart(written, taken)
        if self._output_bytes:
            self._launch(library, gpu, stream, data, (*taken, written))
            if foreign:
                event = keep((*taken, written), gpu, stream)
                if out is None and library is DLPACK:
                    return finish(output, event)
        return output

    def __repr__(self) -> str:
        return f"<tvmconv.CudaKernel {self.info.signature} ({self.info.algorithm}, {self.info.target})>"

    def _check_apart(self, written: Any, taken: list[Any]) -> None:
        """Refuse an output that overlaps an input, which other blocks of the kernel still read."""
        start = written.data_ptr()
        for array, nbytes in zip(taken, self._input_bytes, strict=True):
            address = array.data_ptr()
            if start < address + nbytes and address < start + self._output_bytes:
                raise InputError("out shares memory with an input, which the kernel still reads; give a separate array")

    def _launch(self, library: Library, gpu: int, stream: int, like: Any, arguments: tuple[Any, ...]) -> None:
        function = self._function or self._load()
        workspace, address = self._workspace(library, gpu, stream, like) if self.info.workspace_bytes else (None, 0)
        try:
            function(stream, address, *arguments)
        except RuntimeError as error:
            raise CudaError(f"cannot run {self.info.signature} on cuda:{gpu}: {error}") from error
        del workspace  # not before the launch: its library may reuse it for later work of the stream

    def _workspace(self, library: Library, gpu: int, stream: int, like: Any) -> tuple[Any, int]:
        """Return the workspace of a stream and its address; it is allocated once, so that CUDA graphs can capture calls.

        A graph under capture gets a workspace of its own, since its replays may run beside calls on this stream.
        """
        key = (gpu, stream)
        if library.is_capturing():
            memory = library.scratch(self.info.workspace_bytes, like)
            return memory, int(memory.data_ptr())
        if key not in self._workspaces:
            memory = library.scratch(self.info.workspace_bytes, like)
            self._workspaces[key] = (memory, int(memory.data_ptr()))
        return self._workspaces[key]

    def _load(self) -> Callable[..., object]:
        """Load the library. Concurrent threads may load it twice, which is harmless."""
        if self._before is not None:
            self._before(self._bundle, self.info)
            self._before = None
        self._function = load_function(self._bundle, self.info, self.info.symbol)
        return self._function


def _check(name: str, value: Any, dtype: str, shape: tuple[int, ...], gpu: int) -> None:
    """Refuse an array that is not on the GPU, or not of the type and shape."""
    place = location(value)
    if place != gpu:
        raise InputError(f"{name} is {_where(value)} and data on cuda:{gpu}; put all arrays on one GPU")
    if dtype_of(value) != dtype:
        raise InputError(f"{name} has type {dtype_of(value)}; this kernel takes {dtype}")
    if value.shape != shape and tuple(value.shape) != shape:
        raise InputError(f"{name} has shape {list(value.shape)}; this kernel takes {list(shape)}")


def _where(value: Any) -> str:
    place = location(value)
    if place is not None:
        return f"on cuda:{place}"
    return "in the CPU's memory" if hasattr(value, "__dlpack__") else f"a {type(value).__name__}, no array of a GPU"
