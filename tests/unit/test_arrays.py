"""Callers' arrays: viewed in place if kernels can read them, else copied or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

from tests.placing import aligned
from tvmconv.errors import InputError
from tvmconv.runtime.arrays import kernel_input, kernel_output, result, view

TYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
SHAPE = (2, 3, 5)


def _values(dtype: str = "f32", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(TYPES[dtype])


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint16) if array.dtype == TYPES["bf16"] else array


@pytest.mark.parametrize("dtype", TYPES)
def test_numpy_in_place(dtype: str) -> None:
    array = _values(dtype)
    taken = kernel_input("data", array, dtype, SHAPE)
    assert np.shares_memory(taken, array)
    assert (taken == _bits(array)).all()
    assert view("data", array)[1] == dtype


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


IN_PLACE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "aligned to the element": lambda a: aligned(a, 2 * a.itemsize),
    "read-only": _read_only,
    "odd stride of one element": lambda a: np.stack([a, a])[::2],
    "subclass": lambda a: a.view(np.memmap),
}
COPIED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda a: a.transpose(2, 1, 0).copy().transpose(2, 1, 0),
    "every other": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "negative stride": lambda a: a[..., ::-1].copy()[..., ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "unaligned": lambda a: aligned(a, 1),
    "read-only and transposed": lambda a: _read_only(a.transpose(2, 1, 0)).transpose(2, 1, 0),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("change", IN_PLACE.values(), ids=IN_PLACE)
def test_read_in_place(dtype: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    array = change(_values(dtype))
    taken = kernel_input("data", array, dtype, array.shape)
    assert np.shares_memory(taken, np.asarray(array))
    assert (taken == _bits(np.asarray(array))).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("change", COPIED.values(), ids=COPIED)
def test_copied(dtype: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    array = change(_values(dtype))
    taken = kernel_input("data", array, dtype, array.shape)
    assert not np.shares_memory(taken, array)
    assert taken.flags.c_contiguous and taken.flags.aligned
    assert (taken == np.ascontiguousarray(array).view(taken.dtype)).all()


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (0, 0, 0)])
@pytest.mark.parametrize("dtype", TYPES)
def test_empty(dtype: str, shape: tuple[int, ...]) -> None:
    taken = tvm_ffi.from_dlpack(kernel_input("data", np.zeros(shape, TYPES[dtype]), dtype, shape))
    assert tuple(taken.shape) == shape
    assert taken.data_ptr() != 0
    assert tuple(taken.strides) == (shape[1] * shape[2], shape[2], 1)


BAD_ARRAYS = [
    ([1.0, 2.0], "data is a list; give a NumPy array"),
    (None, "data is a NoneType"),
    (1.0, "data is a float"),
    (np.float32(1), "data is a float32"),
    ("abc", "data is a str"),
    (np.zeros(SHAPE), "data has type float64; kernels take float32, float16, bfloat16"),
    (np.zeros(SHAPE, np.int8), "data has type s8"),
    (np.zeros(SHAPE, np.uint16), "data has type uint16"),
    (np.zeros(SHAPE, bool), "data has type bool"),
    (np.zeros(SHAPE, object), "data has type object"),
    (np.zeros(SHAPE, np.complex64), "data has type complex64"),
    (np.zeros(SHAPE, [("x", np.float32)]), "data has type void"),
    (np.zeros(SHAPE, ">f4"), r"data has type '>f4', the other byte order; convert it: data.astype\('float32'\)"),
    (np.zeros(SHAPE, ">f2"), r"the other byte order"),
    (np.zeros(SHAPE, TYPES["f16"]), "data has type f16; this kernel takes f32"),
    (np.zeros((2, 3), np.float32), r"data has shape \[2, 3\]; this kernel takes \[2, 3, 5\]"),
    (np.zeros((2, 3, 6), np.float32), r"data has shape \[2, 3, 6\]"),
    (np.zeros((), np.float32), r"data has shape \[\]"),
    (np.ma.masked_array(np.zeros(SHAPE, np.float32), mask=True), "data is a masked array"),
]


@pytest.mark.parametrize(("value", "message"), BAD_ARRAYS, ids=[str(i) for i in range(len(BAD_ARRAYS))])
def test_bad_input(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kernel_input("data", value, "f32", SHAPE)


class _OnDevice:
    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack__(self, **_: object) -> object:
        raise AssertionError("a device's array must not be exported")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


@pytest.mark.parametrize(("kind", "name"), [(2, "CUDA"), (8, "Metal"), (10, "ROCm"), (99, "DLPack 99")])
def test_other_devices(kind: int, name: str) -> None:
    with pytest.raises(InputError, match=f"data is on a {name} device; kernels run on the CPU"):
        view("data", _OnDevice(kind))


@pytest.mark.parametrize("dtype", TYPES)
def test_out_in_place(dtype: str) -> None:
    out = np.zeros(SHAPE, TYPES[dtype])
    taken = kernel_output(out, dtype, SHAPE, [], [])
    taken[...] = 1
    assert (_bits(out) == 1).all()


BAD_OUTS: list[tuple[Callable[[np.ndarray], Any], str]] = [
    (lambda out: out.astype(np.float16), "out has shape .* and type f16; the result has shape .* and type f32"),
    (lambda out: out[:1], r"out has shape \[1, 3, 5\]"),
    (lambda out: out.reshape(-1), r"out has shape \[30\]"),
    (_read_only, "out is read-only"),
    (lambda out: np.broadcast_to(np.zeros((1, 3, 5), np.float32), SHAPE), "out is read-only"),
    (lambda out: out.transpose(2, 1, 0).copy().transpose(2, 1, 0), "out must be C-contiguous and aligned"),
    (lambda out: out[::-1], "out must be C-contiguous and aligned"),
    (lambda out: aligned(out, 1), "out must be C-contiguous and aligned"),
    (lambda out: out.tolist(), "out is a list"),
    (lambda out: out.astype(">f4"), "the other byte order"),
]


@pytest.mark.parametrize(("change", "message"), BAD_OUTS, ids=[str(i) for i in range(len(BAD_OUTS))])
def test_bad_out(change: Callable[[np.ndarray], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kernel_output(change(np.zeros(SHAPE, np.float32)), "f32", SHAPE, [], [])


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("start", [0, 7, 29])
def test_out_over_an_input(start: int, read_only: bool) -> None:
    memory = np.zeros(100, np.float32)
    data = memory[:30].reshape(SHAPE)
    data.flags.writeable = not read_only
    taken = kernel_input("data", data, "f32", SHAPE)
    with pytest.raises(InputError, match="out shares memory with an input"):
        kernel_output(memory[start : start + 30].reshape(SHAPE), "f32", SHAPE, [taken], [data])
    kernel_output(memory[30:60].reshape(SHAPE), "f32", SHAPE, [taken], [data])  # beside it is fine


def test_out_over_an_input_that_was_copied() -> None:
    memory = np.zeros((2, *SHAPE), np.float32)
    data = memory[0].transpose(2, 1, 0)
    taken = kernel_input("data", data, "f32", SHAPE[::-1])
    kernel_output(memory[0], "f32", SHAPE, [taken], [data])
    whole = np.zeros(SHAPE, np.float32)
    with pytest.raises(InputError, match="out shares memory with an input"):
        kernel_output(whole, "f32", SHAPE, [kernel_input("data", whole, "f32", SHAPE)], [whole])


class _Foreign:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_dlpack_in_place(dtype: str) -> None:
    array = _values(dtype)
    assert np.shares_memory(kernel_input("data", _Foreign(array), dtype, SHAPE), array)
    with pytest.raises(InputError, match="data has type float64"):
        view("data", _Foreign(np.zeros(3)))


def test_results_are_of_the_callers_kind() -> None:
    array = _values("f32")
    assert result(array, "f32", np.zeros(1, np.float32)) is array
    half = result(np.zeros(SHAPE, np.uint16), "bf16", _values("bf16"))
    assert half.dtype == TYPES["bf16"]
    assert isinstance(result(array, "f32", tvm_ffi.from_dlpack(np.zeros(1, np.float32))), tvm_ffi.Tensor)
    assert type(result(array, "f32", _Foreign(array))) is np.ndarray


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype, kind in (("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)):
        tensor = torch.arange(30).reshape(SHAPE).to(kind)
        taken = kernel_input("data", tensor, dtype, SHAPE)
        assert taken.ctypes.data == tensor.data_ptr()
        turned = tensor.transpose(0, 2)
        expected = turned.contiguous().view(torch.int16) if dtype == "bf16" else turned.contiguous()
        copied = kernel_input("data", turned, dtype, SHAPE[::-1])
        assert (copied.view(expected.numpy().dtype) == expected.numpy()).all()
        made = result(taken, dtype, tensor)
        assert made.dtype == kind and torch.equal(made, tensor) and made.data_ptr() == tensor.data_ptr()
        out = torch.empty(SHAPE, dtype=kind)
        assert kernel_output(out, dtype, SHAPE, [], []).ctypes.data == out.data_ptr()


def test_torch_refused() -> None:
    torch = pytest.importorskip("torch")
    grad = torch.zeros(SHAPE, requires_grad=True)
    cases = [
        (grad, r"data requires grad.*data.detach\(\)"),
        (torch.nn.Parameter(torch.zeros(SHAPE)), r"data.detach\(\)"),
        (torch.zeros(SHAPE, dtype=torch.float64), "data has type torch.float64"),
        (torch.zeros(SHAPE, device="meta"), "data is on device meta"),
        (torch.zeros(2, 3).to_sparse(), r"data has layout torch.sparse_coo; give data.to_dense\(\)"),
    ]
    for tensor, message in cases:
        with pytest.raises(InputError, match=message):
            view("data", tensor)
    with torch.no_grad():
        assert view("data", grad)[1] == "f32"
    negated = torch.zeros(2, 3, dtype=torch.complex64).conj().imag
    assert (view("data", negated)[0] == 0).all()


def test_torch_bfloat16_through_dlpack_alone() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(30).reshape(SHAPE).to(torch.bfloat16)

    class Opaque:
        def __dlpack__(self) -> object:
            return torch.utils.dlpack.to_dlpack(tensor)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    taken, dtype = view("data", Opaque())
    assert dtype == "bf16" and taken.ctypes.data == tensor.data_ptr()
    assert (taken == tensor.view(torch.uint16).numpy()).all()
    with pytest.raises(InputError, match="out is read-only"):
        kernel_output(Opaque(), "bf16", SHAPE, [], [])
