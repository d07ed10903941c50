"""Every algorithm on every kind of problem, type and layout gives the one right answer, and stays inside its arrays."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_kernels import SHAPES, Kernels, case, to_numpy

from tvmconv.accuracy import difference
from tvmconv.problem import DTYPES
from tvmconv.signature import parse_signature

# Bytes on both sides of an array that nobody may write.
GUARD = 4096


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_algorithm_is_exact(kernels: Kernels, shape: str, dtype: str) -> None:
    import torch

    signature = shape.format(dtype)
    problem = parse_signature(signature)
    tensors, expected = case(problem)
    algorithms = [algorithm for name, algorithm in kernels.made if name == signature]
    assert algorithms
    for algorithm in algorithms:
        kernel = kernels.of(signature, algorithm)
        out = torch.full(problem.output_shape, torch.nan, dtype=tensors["data"].dtype, device="cuda")
        assert kernel(**tensors, out=out) is out
        wrong = difference(to_numpy(out, dtype), expected, kernel.info.numerical_class, kernel.problem)
        assert not wrong, f"{algorithm}: {wrong}"
        np.testing.assert_array_equal(to_numpy(kernel(**tensors), dtype), to_numpy(out, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[:-2])
def test_nothing_else_is_written(kernels: Kernels, shape: str, dtype: str) -> None:
    import torch

    signature = shape.format(dtype)
    problem = parse_signature(signature)
    tensors, _ = case(problem)
    size = int(np.prod(problem.output_shape)) * tensors["data"].element_size()
    for name, algorithm in kernels.made:
        if name == signature:
            memory = torch.full((GUARD + size + GUARD,), 0xA5, dtype=torch.uint8, device="cuda")
            out = memory[GUARD : GUARD + size].view(tensors["data"].dtype).view(problem.output_shape)
            kernels.of(signature, algorithm)(**tensors, out=out)
            assert (memory[:GUARD] == 0xA5).all() and (memory[GUARD + size :] == 0xA5).all(), algorithm
