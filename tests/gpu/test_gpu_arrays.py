"""torch's, CuPy's and JAX's arrays, in bundles with both kinds of kernels."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_kernels import SOME, Kernels, case, to_numpy

import tvmconv
from tvmconv import fills
from tvmconv.accuracy import difference
from tvmconv.errors import InputError
from tvmconv.problem import DTYPES
from tvmconv.runtime.cuda.kernel import CudaKernel
from tvmconv.runtime.kernel import Kernel
from tvmconv.runtime.split_kernel import CudaSplitKernel
from tvmconv.signature import parse_signature

ATTRIBUTES: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}


@pytest.fixture(scope="module")
def registry(both: Path) -> tvmconv.Registry:
    """A bundle for this machine's CPU and its GPU."""
    return tvmconv.load(both)


@pytest.mark.parametrize("dtype", DTYPES)
def test_registry_goes_where_the_arrays_are(registry: tvmconv.Registry, dtype: str) -> None:
    problem = parse_signature(SOME.format(dtype))
    assert isinstance(registry.lookup(problem, "cpu"), Kernel)
    assert isinstance(registry.lookup(problem, "cuda"), CudaKernel)
    arrays, expected = fills.exact_case(problem)
    on_cpu = registry.convolution(**arrays.given(), **ATTRIBUTES)
    assert not difference(on_cpu, expected, registry.lookup(problem, "cpu").info.numerical_class, problem)
    tensors, _ = case(problem)
    for _ in range(2):
        output = registry.convolution(**tensors, **ATTRIBUTES)
        assert output.is_cuda
        np.testing.assert_array_equal(to_numpy(output, dtype), expected)
    with pytest.raises(InputError, match=r"different devices|in the CPU's memory and data on cuda:0"):
        registry.convolution(**{**tensors, "filter": arrays.filter}, **ATTRIBUTES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_of_other_kernels(both: Path, dtype: str) -> None:
    """Six images are three calls of the kernel for two, on one stream."""
    problem = parse_signature(SOME.format(dtype)).with_(batch=6)
    kernel = tvmconv.load(both, split_batch=True).lookup(problem, "cuda")
    assert isinstance(kernel, CudaSplitKernel) and str(kernel.split) == "2 + 2 + 2"
    tensors, expected = case(problem)
    np.testing.assert_array_equal(to_numpy(kernel(**tensors), dtype), expected)


def test_views_of_torch_tensors(kernels: Kernels) -> None:
    import torch

    kernel = kernels.of(SOME.format("f16"))
    tensors, expected = case(kernel.problem)
    data, taps, bias = tensors.values()
    images = data.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    shifted = torch.empty(data.numel() + 1, dtype=data.dtype, device="cuda")[1:].view(data.shape).copy_(data)
    strided = torch.repeat_interleave(data, 2, dim=1)[:, ::2]
    for given in (images.permute(0, 2, 3, 1), shifted, strided, torch.nn.Parameter(data, requires_grad=False)):
        np.testing.assert_array_equal(to_numpy(kernel(given, taps, bias), "f16"), expected)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_cupy(kernels: Kernels, dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    kernel = kernels.of(SOME.format(dtype))
    arrays, expected = fills.exact_case(kernel.problem)
    given = [cupy.asarray(array) for array in arrays.given().values()]
    output = kernel(*given)
    assert isinstance(output, cupy.ndarray)
    np.testing.assert_array_equal(output.get(), expected)
    blank = [cupy.zeros_like(each) for each in given]
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for to, content in zip(blank, given, strict=True):
            cupy.copyto(to, content)
        for _ in range(50):  # what is freed is used again in the order of the stream
            output = kernel(*blank)
    stream.synchronize()
    np.testing.assert_array_equal(output.get(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax(kernels: Kernels, dtype: str) -> None:
    """JAX's own stream is not the kernel's: inputs are waited for, and so is the output, on the device."""
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX cannot use the GPU")
    kernel = kernels.of(SOME.format(dtype))
    arrays, expected = fills.exact_case(kernel.problem)
    for _ in range(20):
        given = [jax.numpy.asarray(array) + 0 for array in arrays.given().values()]  # computed: it may not be there yet
        output = kernel(*given)
        assert isinstance(output, jax.Array)
        del given  # JAX may use their memory again
        jax.numpy.ones(kernel.problem.data_shape) * 7
        np.testing.assert_array_equal(np.asarray(output + 0), expected)
    with pytest.raises(InputError, match="JAX's, whose arrays cannot be written"):
        kernel(*[jax.numpy.asarray(array) for array in arrays.given().values()], out=output)


def test_memory_is_given_back(kernels: Kernels) -> None:
    import torch

    kernel = kernels.of(SOME.format("f32"))
    tensors, _ = case(kernel.problem)
    kernel(**tensors)
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(100):
        kernel(**tensors)
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_errors(kernels: Kernels) -> None:
    import torch

    kernel = kernels.of(SOME.format("f32"))
    data, taps, bias = case(kernel.problem)[0].values()
    for arguments, options, message in (
        ((data.cpu(), taps, bias), {}, "data is in the CPU's memory; this kernel is for cuda:sm_"),
        ((data, taps.cpu(), bias), {}, "filter is in the CPU's memory and data on cuda:0"),
        ((data.half(), taps, bias), {}, "data has type f16; this kernel takes f32"),
        ((data[:1], taps, bias), {}, "data has shape"),
        ((data, taps, bias), {"out": torch.empty(kernel.problem.output_shape)}, "out is in the CPU's memory"),
        ((data, taps, bias), {"out": data}, "out has shape"),
    ):
        with pytest.raises(InputError, match=message):
            kernel(*arguments, **options)
