"""Calls of CUDA kernels with arrays that say they are on a GPU, a driver that has none, and a kernel that runs on the host."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from fake_cuda import (
    FILTER_SHAPE,
    FOREIGN_STREAM,
    SHAPE,
    Array,
    Device,
    aligned,
    compile_driver,
    machine_with,
    write_cuda_bundle,
)

import tvmconv
from tvmconv.errors import CudaError, InputError
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.cuda import arrays as device_arrays
from tvmconv.runtime.cuda import dlpack
from tvmconv.runtime.cuda.kernel import CudaKernel

ATTRIBUTES: dict[str, Any] = {"strides": (1,), "dilations": (1,), "auto_pad": "valid"}
VALUES = np.arange(128, dtype=np.float32).reshape(SHAPE)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Any]:
    """A machine with a GPU for code and seven more; its driver."""
    with machine_with(compile_driver(tmp_path, ",".join(["90"] * 8))) as driver:
        yield driver
        dlpack._held.clear()


def _kernel(folder: Path, **options: Any) -> CudaKernel:
    bundle = read_bundle(write_cuda_bundle(folder / "bundle", "cuda:sm_90", **options))
    return CudaKernel(bundle, bundle.entries[0])


def _arrays(factor: float = 3, device: int = 0) -> tuple[Array, Array]:
    return Array(aligned(VALUES), device), Array(aligned(np.full(FILTER_SHAPE, factor, np.float32)), device)


def _last(kernel: CudaKernel, what: str) -> int:
    return int(tvm_ffi.load_module(kernel._bundle.library(kernel.info))[what]())


def test_arrays_by_dlpack(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path)
    data, filter = _arrays()
    output = kernel(data, filter)
    assert isinstance(output, Array) and output.shape == SHAPE and (output.content == 3 * VALUES).all()
    # Inputs were made ready on the legacy default stream, where the kernel ran; JAX's stream waits for its end.
    assert data.streams == filter.streams == [1] and _last(kernel, "last_stream") == 1
    assert machine.fake_log() == f"record 1\nwait {FOREIGN_STREAM}\n".encode()


def test_inputs_are_kept_until_the_kernel_has_finished(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path)
    machine.fake_set_finished(0)
    for _ in range(3):
        kernel(*_arrays())
    assert len(dlpack._held) == 3
    machine.fake_set_finished(1)
    kernel(*_arrays())
    assert len(dlpack._held) == 1
    assert machine.fake_log().count(b"destroy") == 3
    assert b"synchronize" not in machine.fake_log()


def test_out_and_bias(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path, bias=True)
    data, filter = _arrays()
    out = Array(aligned(np.zeros(SHAPE, np.float32)))
    assert kernel(data, filter, Array(aligned(np.ones(1, np.float32))), out=out) is out
    assert (out.content == 3 * VALUES + 1).all()
    with pytest.raises(InputError, match="bias is missing"):
        kernel(data, filter)


def test_registry_goes_where_the_arrays_are(machine: Any, tmp_path: Path) -> None:
    registry = tvmconv.load(write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90"))
    for device in (0, 3):
        for _ in range(2):  # resolved, then remembered
            output = registry.convolution(*_arrays(2, device), **ATTRIBUTES)
            assert output.device.index == device and (output.content == 2 * VALUES).all()
    registry = tvmconv.load(tmp_path / "bundle")  # one that remembers no call
    on_host = VALUES, np.ones(FILTER_SHAPE, np.float32)
    with pytest.raises(tvmconv.errors.UnsupportedMachineError, match="it is for GPUs, and one for CPUs is asked for"):
        registry.convolution(*on_host, **ATTRIBUTES)
    with pytest.raises(
        InputError, match="different devices: data is on cuda:0, filter is in the CPU memory; put all on one"
    ):
        registry.convolution(_arrays()[0], on_host[1], **ATTRIBUTES)
    with pytest.raises(InputError, match="data is on cuda:0, filter is on cuda:1"):
        registry.convolution(_arrays()[0], _arrays(device=1)[1], **ATTRIBUTES)
    with pytest.raises(InputError, match="the types differ: data f32, filter f16"):
        registry.convolution(_arrays()[0], Array(np.zeros(FILTER_SHAPE, np.float16)), **ATTRIBUTES)


def test_bad_arrays(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path)
    data, filter = _arrays()
    whole = aligned(np.zeros((4, 64, 1), np.float32))
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((VALUES, filter), {}, "data is in the CPU's memory; this kernel is for cuda:sm_90: put the arrays on a GPU"),
        (([1.0], filter), {}, "data is a list, no array of a GPU"),
        ((data, np.ones(FILTER_SHAPE, np.float32)), {}, "filter is in the CPU's memory and data on cuda:0; put all"),
        ((data, _arrays(device=1)[1]), {}, "filter is on cuda:1 and data on cuda:0"),
        ((data, Array(np.ones(FILTER_SHAPE, np.float16))), {}, "filter has type f16; this kernel takes f32"),
        ((data, Array(np.ones((1, 1, 1), np.int32))), {}, "filter has type int32"),
        ((data, data), {}, r"filter has shape \[2, 64, 1\]; this kernel takes \[1, 1, 1\]"),
        ((data, filter, filter), {}, "bias was given, but the kernel takes none"),
        ((Array(whole[::2]), filter), {}, "data must be C-contiguous and aligned to 16 bytes; make a copy"),
        ((Array(aligned(VALUES, 4)), filter), {}, "data must be C-contiguous and aligned"),
        ((data, filter), {"out": data}, "out shares memory with an input"),
        ((Array(whole[:2]), filter), {"out": Array(whole[1:3])}, "out shares memory with an input"),
        ((data, filter), {"out": Array(np.zeros((3, 64, 1), np.float32))}, r"out has shape \[3, 64, 1\]"),
        ((data, filter), {"out": np.zeros(SHAPE, np.float32)}, "out is in the CPU's memory"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(InputError, match=message):
            kernel(*arguments, **options)
    kernel(Array(whole[:2]), filter, out=Array(whole[2:]))  # beside it is fine


def test_arrays_whose_library_has_no_memory_to_give(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path)
    data, filter = (tvm_ffi.from_dlpack(each) for each in _arrays())
    with pytest.raises(InputError, match="data is a Tensor, whose library cannot allocate here; give out="):
        kernel(data, filter)
    out = Array(aligned(np.zeros(SHAPE, np.float32)))
    assert kernel(data, filter, out=tvm_ffi.from_dlpack(out)) is not None
    assert (out.content == 3 * VALUES).all()


def test_driver_errors(machine: Any, tmp_path: Path) -> None:
    with pytest.raises(CudaError, match=r"cannot run conv1d-\S+ on cuda:7: the GPU fell off the bus"):
        _kernel(tmp_path)(*_arrays(device=7))


@contextmanager
def _torch_with_cuda(streams: dict[int, int], capturing: list[bool]) -> Iterator[Any]:
    """Yield a function that makes fake CUDA tensors of a NumPy array; their current streams are `streams`."""
    torch = pytest.importorskip("torch")

    class Tensor(torch.Tensor):
        index = 0
        is_cuda = True

        def get_device(self) -> int:
            return self.index

    def make(array: np.ndarray, index: int = 0) -> Any:
        tensor = torch.from_numpy(aligned(array)).as_subclass(Tensor)
        tensor.index = index
        return tensor

    def empty(shape: Any, dtype: Any, device: Any) -> Any:
        made = torch.empty(shape, dtype=dtype)
        return make(made.numpy()) if dtype != torch.uint8 else made

    current = types.SimpleNamespace(
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=streams[device]),
        is_current_stream_capturing=lambda: capturing[0],
    )
    fake = types.SimpleNamespace(
        cuda=current, empty=empty, strided=torch.strided, is_grad_enabled=torch.is_grad_enabled, uint8=torch.uint8,
        contiguous_format=torch.contiguous_format, float32=torch.float32, float16=torch.float16, bfloat16=torch.bfloat16,
    )  # fmt: skip
    device_arrays._libraries[Tensor] = device_arrays.Torch(fake)
    try:
        yield make
    finally:
        del device_arrays._libraries[Tensor]


def test_torch(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path)
    streams = {0: 5, 1: 6}
    with _torch_with_cuda(streams, [False]) as make:
        data, filter = make(VALUES), make(np.full(FILTER_SHAPE, 2, np.float32))
        output = kernel(data, filter)
        assert type(output) is type(data) and (output.numpy() == 2 * VALUES).all()
        assert _last(kernel, "last_stream") == 5 and _last(kernel, "last_workspace") == 0
        streams[0] = 9
        out = make(np.zeros(SHAPE, np.float32))
        assert kernel(data, filter, out=out) is out and (out.numpy() == 2 * VALUES).all()
        assert _last(kernel, "last_stream") == 9
        strided = make(np.repeat(VALUES, 2, axis=1))[:, ::2]
        shifted = make(np.zeros(129, np.float32))[1:].view(SHAPE)
        for copied in (strided, shifted):
            kernel(copied, filter)
            with pytest.raises(InputError, match="out must be C-contiguous and aligned to 16 bytes"):
                kernel(data, filter, out=copied)
        with pytest.raises(InputError, match="data requires grad"):
            kernel(data.clone().requires_grad_(), filter)
        with pytest.raises(InputError, match="filter is on cuda:1 and data on cuda:0"):
            kernel(data, make(np.ones(FILTER_SHAPE, np.float32), 1))
        # One of another library is made ready on torch's stream, and kept.
        other = Array(aligned(np.full(FILTER_SHAPE, 4, np.float32)))
        assert not dlpack._held
        assert (kernel(data, other).numpy() == 4 * VALUES).all()
        assert other.streams == [9] and len(dlpack._held) == 1
        with pytest.raises(InputError, match="out is from another library than data, a Tensor"):
            kernel(data, filter, out=Array(np.zeros(SHAPE, np.float32)))
    assert machine.fake_log() == b"record 9\n"  # nothing waits


def test_workspace_is_kept_for_each_device_and_stream(machine: Any, tmp_path: Path) -> None:
    kernel = _kernel(tmp_path, workspace_bytes=1024)
    streams, capturing = {0: 5, 1: 5}, [False]
    with _torch_with_cuda(streams, capturing) as make:

        def workspace(index: int) -> int:
            arrays = make(VALUES, index), make(np.ones(FILTER_SHAPE, np.float32), index)
            kernel(*arrays, out=make(VALUES, index))
            return _last(kernel, "last_workspace")

        first, second = workspace(0), workspace(1)
        assert first and second and first != second
        assert workspace(0) == first and workspace(1) == second
        streams[0] = 6
        third = workspace(0)
        assert third not in (first, second)
        capturing[0] = True
        assert workspace(0) not in (first, second, third)  # a graph's own
        capturing[0] = False
        assert workspace(0) == third and len(kernel._workspaces) == 3


def test_split_batch(machine: Any, tmp_path: Path) -> None:
    """Calls for 2, 2 and 1 of 5 images, of tensors with slices of their own and of those without."""
    options: dict[str, Any] = {"bias": True, "workspace_bytes": 64}
    folders = [write_cuda_bundle(tmp_path / f"b{n}", "cuda:sm_90", batch=n, **options) for n in (1, 2)]
    registry = tvmconv.load(*folders, split_batch=True)
    values = np.arange(5 * 64, dtype=np.float32).reshape(5, 64, 1)
    one, weights = np.ones(1, np.float32), np.full(FILTER_SHAPE, 2, np.float32)
    problem = registry.lookup(registry[next(iter(registry))].problem.with_(batch=5), "cuda").problem
    kernel = registry.lookup(problem)
    assert "CudaSplitKernel conv1d-n5-" in repr(kernel) and "(2 + 2 + 1)" in repr(kernel)
    parts = [registry.lookup(problem.with_(batch=batch)) for batch in (1, 2)]
    data, filter, bias = (Array(aligned(array)) for array in (values, weights, one))
    out = Array(aligned(np.zeros_like(values)))
    assert kernel(data, filter, bias, out=out) is out and (out.content == 2 * values + 1).all()
    assert [_last(part, "calls") for part in parts] == [1, 2]
    for _ in range(2):  # resolved, then remembered
        output = registry.convolution(data, filter, bias, **ATTRIBUTES)
        assert isinstance(output, Array) and (output.content == 2 * values + 1).all()
    whole = aligned(np.zeros((9, 64, 1), np.float32))
    for arguments, extra, message in [
        ((Array(values[:4]), filter, bias), {}, r"data has shape \[4, 64, 1\]; this kernel takes \[5, 64, 1\]"),
        ((data, filter), {}, "bias is missing; the kernel takes one: conv1d-n5-"),
        ((Array(whole[:5]), filter, bias), {"out": Array(whole[4:])}, "out shares memory with an input"),
    ]:
        with pytest.raises(InputError, match=message):
            kernel(*arguments, **extra)
    with _torch_with_cuda({0: 5}, [False]) as make:
        tensors = [make(array) for array in (values, weights)]
        output = kernel(*tensors, bias)  # the bias is of another library
        assert type(output) is type(tensors[0]) and (output.numpy() == 2 * values + 1).all()
        assert [_last(part, "last_stream") for part in parts] == [5, 5]


def test_cupy(machine: Any, tmp_path: Path) -> None:
    class CupyDevice(Device):
        id = property(lambda self: self.index)
        entered = 0

        def __enter__(self) -> None:
            CupyDevice.entered += 1

        def __exit__(self, *_: object) -> None: ...

    class ndarray(Array):
        def __init__(self, content: np.ndarray) -> None:
            super().__init__(content)
            self.device = CupyDevice(0)
            self.flags = content.flags
            self.data = types.SimpleNamespace(ptr=content.ctypes.data)

        def copy(self, order: str) -> ndarray:
            return ndarray(aligned(self.content))

    cupy = types.SimpleNamespace(
        ndarray=ndarray,
        empty=lambda shape, dtype: ndarray(aligned(np.zeros(shape, dtype))),
        cuda=types.SimpleNamespace(get_current_stream=lambda device: types.SimpleNamespace(ptr=0)),
    )
    device_arrays._libraries[ndarray] = device_arrays.CuPy(cupy)
    kernel = _kernel(tmp_path, workspace_bytes=64)
    filter = ndarray(aligned(np.full(FILTER_SHAPE, 2, np.float32)))
    try:
        for data in (aligned(VALUES), aligned(VALUES, 4), np.repeat(VALUES, 2, axis=1)[:, ::2]):
            output = kernel(ndarray(data), filter)
            assert type(output) is ndarray and (output.content == 2 * VALUES).all()
        assert CupyDevice.entered and set(filter.streams) == {1}  # the null stream, as DLPack calls it
        assert _last(kernel, "last_stream") == 0 and _last(kernel, "last_workspace")
        with pytest.raises(InputError, match="out must be C-contiguous"):
            kernel(ndarray(aligned(VALUES)), filter, out=ndarray(aligned(VALUES, 4)))
    finally:
        del device_arrays._libraries[ndarray]
    assert machine.fake_log() == b""
