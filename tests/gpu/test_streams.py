"""Calls follow the caller's stream, wait for nothing on the host, and can be captured in CUDA graphs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from gpu_kernels import SHAPES, SOME, Kernels, case, to_numpy

from tvmconv.accuracy import difference
from tvmconv.problem import DTYPES
from tvmconv.runtime.cuda.kernel import CudaKernel
from tvmconv.signature import parse_signature

# Cycles that a stream is kept busy with: some tenths of a second on any GPU.
BUSY = 500_000_000


def _with_workspace(kernels: Kernels) -> list[tuple[str, str]]:
    return [key for key, made in kernels.made.items() if made.workspace_bytes]


def _check(kernel: CudaKernel, output: Any, expected: np.ndarray) -> None:
    problem = kernel.problem
    assert not difference(to_numpy(output, problem.dtype), expected, kernel.info.numerical_class, problem)


def test_the_current_stream_is_taken_and_nothing_waits(kernels: Kernels) -> None:
    """Behind a long wait on a stream a call returns at once, and its result is right once the stream has come so far."""
    import torch

    kernel = kernels.of(SOME.format("f32"))
    tensors, expected = case(kernel.problem)
    kernel(**tensors)
    stream = torch.cuda.Stream()
    blank = {name: torch.zeros_like(each) for name, each in tensors.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY)
        for name, to in blank.items():
            to.copy_(tensors[name])  # a call on another stream would read zeros
        output = kernel(**blank)
        assert not stream.query(), "the call waited for the GPU"
    stream.synchronize()
    np.testing.assert_array_equal(to_numpy(output, "f32"), expected)


def test_streams_side_by_side(kernels: Kernels) -> None:
    """Each stream has a workspace of its own."""
    import torch

    for signature, algorithm in _with_workspace(kernels)[:8] or [(SOME.format("f32"), None)]:
        kernel = kernels.of(signature, algorithm)
        streams = [torch.cuda.Stream() for _ in range(4)]
        inputs = [case(kernel.problem, seed=seed) for seed in range(4)]
        torch.cuda.synchronize()
        outputs: list[list[Any]] = [[] for _ in streams]
        for _ in range(20):
            for stream, (tensors, _), kept in zip(streams, inputs, outputs, strict=True):
                with torch.cuda.stream(stream):
                    kept.append(kernel(**tensors))
        torch.cuda.synchronize()
        for (_, expected), kept in zip(inputs, outputs, strict=True):
            for output in kept:
                np.testing.assert_array_equal(to_numpy(output, kernel.problem.dtype), expected)
        assert len(kernel._workspaces) == (4 if kernel.info.workspace_bytes else 0)


def test_the_workspace_is_reused(kernels: Kernels) -> None:
    import torch

    for signature, algorithm in _with_workspace(kernels)[:8]:
        kernel = kernels.of(signature, algorithm)
        tensors, expected = case(kernel.problem)
        out = kernel(**tensors)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(10):
            kernel(**tensors, out=out)
        assert torch.cuda.memory_allocated() == before
        np.testing.assert_array_equal(to_numpy(out, kernel.problem.dtype), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_graphs(kernels: Kernels, dtype: str) -> None:
    """A captured call gives the answer of what its inputs hold at each replay, also beside eager calls."""
    import torch

    for shape in SHAPES[:-2:4]:
        signature = shape.format(dtype)
        problem = parse_signature(signature)
        for algorithm in [algorithm for name, algorithm in kernels.made if name == signature]:
            kernel = kernels.of(signature, algorithm)
            tensors, _ = case(problem)
            kernel(**tensors)  # loads the code
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = kernel(**tensors)
            for seed in (1, 2):
                fresh, expected = case(problem, seed=seed)
                for name, to in tensors.items():
                    to.copy_(fresh[name])
                graph.replay()
                _check(kernel, kernel(**fresh), expected)
                _check(kernel, output, expected)


def test_threads(kernels: Kernels) -> None:
    """From the first call on, threads without a context among them, each on the default stream."""
    import torch

    signature = SOME.format("f16")
    kernel = kernels.of(signature)  # its library is loaded by the threads
    inputs = [case(kernel.problem, seed=seed) for seed in range(8)]
    torch.cuda.synchronize()
    failed: list[int] = []

    def work(number: int) -> None:
        tensors, expected = inputs[number]
        for _ in range(20):
            if not (to_numpy(kernel(**tensors), "f16") == expected).all():
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_several_gpus(kernels: Kernels) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    kernel = kernels.of(SOME.format("bf16"))
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        tensors, expected = case(kernel.problem, device)
        with torch.cuda.device(0):  # whatever device is current, the arrays' counts
            output = kernel(**tensors)
        assert str(output.device) == device
        np.testing.assert_array_equal(to_numpy(output, "bf16"), expected)
