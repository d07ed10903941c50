"""Calling compiled kernels through the registry, on every kind of array."""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from toys import entry, small_problem, write_bundle

import tvmconv
from tvmconv import fills, reference
from tvmconv.errors import BundleError, InputError, InvalidProblemError
from tvmconv.problem import Problem
from tvmconv.runtime import call_cache
from tvmconv.runtime.bundle import read_bundle, write_manifest
from tvmconv.runtime.kernel import Kernel
from tvmconv.signature import format_signature

ATTRIBUTES: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}
F32 = format_signature(small_problem())


@pytest.fixture(scope="module")
def small(small_bundle: Path) -> tvmconv.Registry:
    return tvmconv.load(small_bundle)


def _case(problem: Problem) -> tuple[list[np.ndarray], np.ndarray]:
    """Return exact inputs and the expected output."""
    arrays = fills.exact_fill(problem)
    inputs = [array for array in (arrays.data, arrays.filter, arrays.bias) if array is not None]
    return inputs, reference.compute(problem, arrays.data, arrays.filter, arrays.bias)


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_entry(small_bundle: Path, threads: int | None) -> None:
    opened = tvmconv.load(small_bundle, threads=threads)
    assert len(opened) == 9
    for signature in opened:
        kernel = opened[signature]
        inputs, expected = _case(kernel.problem)
        got = kernel(*inputs)
        assert got.dtype == inputs[0].dtype and got.shape == kernel.problem.output_shape
        assert (got.astype(np.float64) == expected).all(), signature
        out = np.empty_like(got)
        assert kernel(*inputs, out=out) is out
        assert (out == got).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_convolution(small: tvmconv.Registry, dtype: str, bias: bool) -> None:
    inputs, expected = _case(small_problem(dtype, bias))
    for _ in range(2):  # resolved, then remembered
        got = small.convolution(*inputs, **ATTRIBUTES)
        assert (got.astype(np.float64) == expected).all()
    written = {"strides": [1, 1], "dilations": np.array([1, 1]), "pads_begin": [1, 1], "pads_end": (1, 1)}
    assert (small.convolution(*inputs, **written).astype(np.float64) == expected).all()


def test_backprop(small: tvmconv.Registry) -> None:
    (problem,) = (small[s].problem for s in small if s.startswith("backprop"))
    (data, taps), expected = _case(problem)
    attributes: dict[str, Any] = {"strides": (2, 2), "dilations": (1, 1)}
    for output_shape in ((14, 12), [14, 12], np.array([14, 12])):
        shaped = small.convolution_backprop_data(data, taps, output_shape, auto_pad="same_upper", **attributes)
        assert shaped.shape == (1, 14, 12, 9) and (shaped == expected).all()
    padded = small.convolution_backprop_data(data, taps, pads_begin=(1, 1), pads_end=(0, 0), **attributes)
    assert (padded == expected).all()


def test_torch(small: tvmconv.Registry) -> None:
    torch = pytest.importorskip("torch")
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    for dtype, kind in kinds.items():
        inputs, expected = _case(small_problem(dtype))
        tensors = [torch.from_numpy(array.astype(np.float32)).to(kind) for array in inputs]
        got = small.convolution(*tensors, **ATTRIBUTES)
        assert got.dtype == kind and (got.double().numpy() == expected).all()
        out = torch.empty_like(got)
        assert small.convolution(*tensors, out=out, **ATTRIBUTES) is out
        assert torch.equal(out, got)
        # A channels-last tensor is an NXC array, as it lies.
        images = tensors[0].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        assert torch.equal(small.convolution(images.permute(0, 2, 3, 1), tensors[1], **ATTRIBUTES), got)


def test_tvm_ffi_tensors(small: tvmconv.Registry) -> None:
    inputs, expected = _case(small_problem())
    got = small.convolution(*map(tvm_ffi.from_dlpack, inputs), **ATTRIBUTES)
    assert isinstance(got, tvm_ffi.Tensor)
    assert (np.from_dlpack(got) == expected).all()


def test_kinds_can_be_mixed(small: tvmconv.Registry) -> None:
    torch = pytest.importorskip("torch")
    (data, taps), expected = _case(small_problem())
    assert (small.convolution(data, torch.from_numpy(taps), **ATTRIBUTES) == expected).all()
    out = torch.empty(expected.shape)
    assert small.convolution(data, taps, out=out, **ATTRIBUTES) is out
    assert (out.numpy() == expected).all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_layouts(small: tvmconv.Registry, dtype: str) -> None:
    (data, taps), expected = _case(small_problem(dtype))
    raw = np.zeros(data.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(data.dtype).reshape(data.shape)
    unaligned[...] = data
    read_only = data.copy()
    read_only.flags.writeable = False
    turned = data.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0)
    flipped = np.flip(np.flip(data, (1, 2)).copy(), (1, 2))
    for given in (unaligned, read_only, turned, flipped, np.repeat(data, 3, axis=2)[:, :, ::3]):
        assert (small.convolution(given, taps, **ATTRIBUTES).astype(np.float64) == expected).all()
    assert (small.convolution(read_only, np.asfortranarray(taps), **ATTRIBUTES).astype(np.float64) == expected).all()


@pytest.mark.parametrize("offset", range(0, 64, 4))
def test_element_alignment_is_enough(small: tvmconv.Registry, offset: int) -> None:
    (data, taps), expected = _case(small_problem())
    placed = []
    for array in (data, taps, np.zeros(expected.shape, np.float32)):
        raw = np.zeros(array.nbytes + 128, np.uint8)
        start = -raw.ctypes.data % 64 + offset
        placed.append(raw[start : start + array.nbytes].view(np.float32).reshape(array.shape))
        placed[-1][...] = array
    small.convolution(placed[0], placed[1], out=placed[2], **ATTRIBUTES)
    assert (placed[2] == expected).all()


def test_bad_arrays(small: tvmconv.Registry) -> None:
    (data, taps), _ = _case(small_problem())
    kernel = small[F32]
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((data[:1], taps), {}, r"data has shape \[1, 9, 7, 19\]; this kernel takes \[2, 9, 7, 19\]"),
        ((data, taps[..., :20]), {}, "filter has shape"),
        ((data, data), {}, "filter has shape"),
        ((data.astype(np.float16), taps), {}, "data has type f16; this kernel takes f32"),
        ((data, taps, np.zeros(21, np.float32)), {}, "bias was given, but the kernel takes none"),
        ((data, taps), {"out": np.zeros(3, np.float32)}, "out has shape"),
        ((data, taps), {"out": data}, "out has shape"),
        ((data, None), {}, "filter is a NoneType"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(InputError, match=message):
            kernel(*arguments, **options)
    with pytest.raises(InputError, match="bias is missing"):
        small[format_signature(small_problem(bias=True))](data, taps)
    memory = np.zeros(6000, np.float32)
    overlapping = memory[: data.size].reshape(data.shape)
    out = memory[100 : 100 + 2 * 9 * 7 * 21].reshape(2, 9, 7, 21)
    with pytest.raises(InputError, match="out shares memory"):
        kernel(overlapping, taps, out=out)


def test_remembered_calls_do_not_hide_errors(small_bundle: Path) -> None:
    small = tvmconv.load(small_bundle)
    (data, taps), expected = _case(small_problem())
    good: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}
    equal_but_refused: list[dict[str, Any]] = [
        {"strides": (True, 1)},
        {"strides": (1.0, 1)},
        {"strides": [1, 1.0]},
        {"groups": True},
        {"groups": 1.0},
        {"dilations": (1, 1, 1)},
        {"pads_end": ()},
        {"pads_end": b"\x01\x01"},
        {"dilations": "11"},
        {"auto_pad": 0},
    ]
    numpy_numbers = {"strides": np.array([1, 1]), "groups": np.int64(1), "pads_begin": [np.int8(1), np.uint16(1)]}
    for _ in range(3):
        assert (small.convolution(data, taps, **good) == expected).all()
        assert (small.convolution(data, taps, **{**good, **numpy_numbers}) == expected).all()
        for changes in equal_but_refused:
            with pytest.raises(InvalidProblemError):
                small.convolution(data, taps, **{**good, **changes})
        for lookalike in (np.array([1.0, 1.0]), [np.float64(1), 1], np.array([1, 1]).view(np.float64)):
            with pytest.raises(InvalidProblemError):
                small.convolution(data, taps, **{**good, "strides": lookalike})


def test_remembered_calls_are_bounded(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "_REMEMBERED", 3)
    small = tvmconv.load(small_bundle)
    (data, taps), expected = _case(small_problem())
    for written in ((1, 1), [1, 1]):
        for mode in ("same_upper", "same_lower", "SAME_upper", "Same_Lower"):
            got = small.convolution(data, taps, strides=written, dilations=(1, 1), auto_pad=mode)
            assert (got == expected).all()
            assert 1 <= len(small._calls._kernels) <= 3


def _copy(bundle: Path, to: Path) -> Path:
    return Path(shutil.copytree(bundle, to / "bundle"))


def test_empty_output_needs_no_library(small_bundle: Path, tmp_path: Path) -> None:
    path = _copy(small_bundle, tmp_path)
    opened = tvmconv.load(path)
    (path / opened[format_signature(small_problem(batch=0))].info.file).unlink()
    data, taps = np.zeros((0, 9, 7, 19), np.float32), np.zeros((3, 3, 19, 21), np.float32)
    assert opened.convolution(data, taps, **ATTRIBUTES).shape == (0, 9, 7, 21)
    with pytest.raises(InputError, match="data has type float64"):
        opened.convolution(data.astype(np.float64), taps, **ATTRIBUTES)


def test_altered_library_is_not_loaded(small_bundle: Path, tmp_path: Path) -> None:
    path = _copy(small_bundle, tmp_path)
    opened = tvmconv.load(path)
    library = path / opened[F32].info.file
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    (data, taps), _ = _case(small_problem())
    for _ in range(2):
        with pytest.raises(BundleError, match="altered or damaged"):
            opened[F32](data, taps)
    assert str(library) not in Path("/proc/self/maps").read_text()


def test_what_is_no_library(tmp_path: Path) -> None:
    content = b"not a shared library"
    made = entry(F32, sha256=hashlib.sha256(content).hexdigest())
    write_bundle(tmp_path, [made])
    (tmp_path / made.file).parent.mkdir()
    (tmp_path / made.file).write_bytes(content)
    (data, taps), _ = _case(small_problem())
    with pytest.raises(BundleError, match="cannot load tvmconv_kernel from"):
        tvmconv.load(tmp_path)[F32](data, taps)


def test_a_library_that_was_replaced_while_loaded(small_bundle: Path, tmp_path: Path) -> None:
    built = read_bundle(small_bundle)
    for each in built.entries[:3]:  # as if a bundle was built three times, each time with another kernel
        new = tmp_path / "new.so"
        shutil.copy(small_bundle / each.file, new)
        new.replace(tmp_path / "kernel.so")
        write_manifest(replace(built, path=tmp_path, entries=(replace(each, file="kernel.so"),), nodes=()))
        opened = tvmconv.load(tmp_path)
        inputs, expected = _case(opened[each.signature].problem)
        assert (opened[each.signature](*inputs).astype(np.float64) == expected).all()


@pytest.mark.parametrize("threads", [None, 2])
def test_symbol_that_is_not_there(small_bundle: Path, tmp_path: Path, threads: int | None) -> None:
    bundle = read_bundle(_copy(small_bundle, tmp_path))
    write_manifest(replace(bundle, entries=tuple(replace(e, symbol="another") for e in bundle.entries)))
    (data, taps), _ = _case(small_problem())
    with pytest.raises(BundleError, match="cannot load another"):
        tvmconv.load(bundle.path, threads=threads)[F32](data, taps)


def test_many_threads_from_the_first_call(small_bundle: Path) -> None:
    opened = tvmconv.load(small_bundle)
    cases = {signature: _case(opened[signature].problem) for signature in opened}

    def work(seed: int) -> bool:
        order = np.random.default_rng(seed).permutation(list(cases) * 5)
        return all((opened[s](*cases[s][0]).astype(np.float64) == cases[s][1]).all() for s in map(str, order))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(12)))


def test_kernel_of_one_entry(small_bundle: Path) -> None:
    bundle = read_bundle(small_bundle)
    (made,) = (e for e in bundle.entries if e.signature == F32)
    inputs, expected = _case(small_problem())
    assert (Kernel(bundle, made, threads=1)(*inputs) == expected).all()
