"""Compile one problem and call its kernel, past the registry, for tests of the compile half."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from pathlib import Path

import numpy as np
import tvm_ffi

from tvmconv import algorithms, fills, reference
from tvmconv.compiler import Choice, compile_problem
from tvmconv.lowering import SYMBOL
from tvmconv.measure import difference
from tvmconv.problem import Problem
from tvmconv.target import Target

NUMBERS = count()
# The schedules of a problem are compared with one answer.
exact_case = lru_cache(maxsize=1)(fills.exact_case)


@lru_cache(maxsize=1)
def random_case(problem: Problem) -> tuple[fills.Arrays, np.ndarray]:
    """Return standard normal inputs, and the output in float64."""
    arrays = fills.random_fill(problem)
    return arrays, reference.compute(problem, *arrays)


def compile_and_call(
    problem: Problem, target: Target, folder: Path, arrays: fills.Arrays, choice: Choice | None = None
) -> np.ndarray:
    """Return the output for `arrays`."""
    # Each has its own name: a library of the same name that something still holds would be taken for this one.
    path = folder / f"{next(NUMBERS)}.so"
    compile_problem(problem, target, path, choice=choice)
    output = np.full(problem.output_shape, 77, fills.numpy_dtype(problem.dtype))
    given = [arrays.data, arrays.filter, *([arrays.bias] if problem.bias else []), output]
    bits = [array.view(np.uint16) if problem.dtype == "bf16" else array for array in given]
    tvm_ffi.load_module(str(path))[SYMBOL](*map(tvm_ffi.from_dlpack, bits))
    path.unlink()
    return output


def assert_right(problem: Problem, target: Target, folder: Path, choice: Choice) -> None:
    """Compare the kernel with the reference, as its algorithm's numerical class asks for."""
    algorithm = algorithms.get(choice.algorithm)
    if algorithm.numerical_class == "exact":
        assert_exact(problem, target, folder, choice)
        return
    arrays, expected = random_case(problem)
    output = compile_and_call(problem, target, folder, arrays, choice)
    assert not difference(output, expected, algorithm.numerical_class, problem.dtype)


def assert_exact(problem: Problem, target: Target, folder: Path, choice: Choice | None = None) -> None:
    """Compare the kernel with the reference on exact fills, bit for bit."""
    arrays, expected = exact_case(problem)
    np.testing.assert_array_equal(compile_and_call(problem, target, folder, arrays, choice), expected)
