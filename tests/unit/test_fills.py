"""Exact fills: integers within the ranges of their type, every sum exact, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from tvmconv import fills, ops, reference

ONE = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}


def problem(op="convolution", dtype="f32", channels=(32, 24), spatial=(9, 9), bias=True):
    inputs, outputs = channels
    filter_shape = (3, 3, inputs, outputs) if op == "convolution" else (3, 3, outputs, inputs)
    return getattr(ops, op)(
        (1, *spatial, inputs), filter_shape, dtype=dtype, bias_shape=(outputs,) if bias else None, **ONE
    )


RANGES = {  # data, filter, backprop's filter, safe, backprop's safe
    "f32": (32, 32, 32, 16384, 16384),
    "bf16": (4, 4, 8, 16, 8),
    "f16": (4, 2, 2, 256, 256),
}


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("op", ["convolution", "convolution_backprop_data"])
def test_ranges_and_sparsity(op, dtype):
    backprop = op != "convolution"
    data_range, *filter_ranges, _, _ = RANGES[dtype]
    safe = RANGES[dtype][3 + backprop]
    p = problem(op, dtype, channels=(4096 if dtype == "f32" else 512, 8))
    data, filter_, bias = fills.exact_fill(p)
    assert data.dtype == filter_.dtype == bias.dtype == fills.numpy_dtype(dtype)
    assert (data.shape, filter_.shape, bias.shape) == (p.data_shape, p.filter_shape, p.bias_shape)
    for array, largest in ((data, data_range), (filter_, filter_ranges[backprop])):
        values = array.astype(np.float64)
        assert np.array_equal(values, np.rint(values))
        assert np.abs(values).max() == largest
    assert np.abs(bias.astype(np.float64)).max() <= 8
    kept = min(1, safe / p.products) * (1 - 1 / (2 * data_range + 1))
    assert np.count_nonzero(data.astype(np.float64)) / data.size == pytest.approx(kept, rel=0.3)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("op", ["convolution", "convolution_backprop_data"])
def test_every_partial_sum_is_exact_in_f32(op, dtype):
    p = problem(op, dtype, channels=(2048, 16))
    data, filter_, bias = (array.astype(np.float64) for array in fills.exact_fill(p))
    largest = reference.compute(p, np.abs(data), np.abs(filter_), np.abs(bias)).max()
    assert largest < 2**24


@pytest.mark.parametrize("dtype", RANGES)
def test_expected_is_the_reference_rounded_once(dtype):
    p = problem(dtype=dtype)
    arrays, expected = fills.exact_case(p)
    assert expected.dtype == fills.numpy_dtype(dtype)
    np.testing.assert_array_equal(expected, reference.compute(p, *arrays).astype(expected.dtype))
    ncx = p.with_(data_format="NCX")
    arrays, expected = fills.exact_case(ncx)
    np.testing.assert_array_equal(expected, reference.compute(ncx, *arrays).astype(expected.dtype))


def test_deterministic():
    first, again, other = (fills.exact_fill(problem(), seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.data, other.data)
    first, again, other = (fills.random_fill(problem(), seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.data, other.data)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_expected_is_never_all_zero(dtype):
    p = ops.convolution(
        (1, 1, 1), (1, 1, 1), strides=(1,), dilations=(1,), pads_begin=(0,), pads_end=(0,), dtype=dtype, bias_shape=(1,)
    )
    for seed in range(200):
        data, filter_, _ = fills.exact_fill(p, seed)
        assert data.item() * filter_.item() != 0


def test_outputs_that_must_be_zero():
    """Windows that see only padding, and empty ones, end the search for a better draw."""
    p = ops.convolution((1, 1, 1), (1, 1, 1), strides=(4,), dilations=(1,), pads_begin=(5,), pads_end=(1,))
    assert not fills.exact_case(p)[1].any()
    p = ops.convolution((0, 3, 1), (1, 1, 1), strides=(1,), dilations=(1,), pads_begin=(0,), pads_end=(0,))
    assert fills.exact_case(p)[1].shape == (0, 3, 1)
    p = ops.convolution((1, 3, 0), (1, 0, 2), strides=(1,), dilations=(1,), auto_pad="valid")
    assert not fills.exact_case(p)[1].any()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_random_fill(dtype):
    p = problem(dtype=dtype)
    arrays = fills.random_fill(p)
    for array, shape in zip(arrays, (p.data_shape, p.filter_shape, p.bias_shape), strict=True):
        assert (array.dtype, array.shape) == (fills.numpy_dtype(dtype), shape)
    assert arrays.data.astype(np.float64).std() == pytest.approx(1, abs=0.1)
    assert fills.random_fill(p.with_(bias=False)).bias is None
