"""Compile one problem and call its kernel, past the registry, for tests of the compile half."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

from tvmconv import fills
from tvmconv.lowering.common.entry_points import SYMBOL
from tvmconv.lowering.compiler import Choice, compile_problem
from tvmconv.problem import Problem
from tvmconv.targets.target import Target

NUMBERS = count()
# The schedules of a problem are compared with one answer.
exact_case = lru_cache(maxsize=1)(fills.exact_case)


def isa(target: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs a target's code, by the target's name."""
    return pytest.mark.isa(*Target.parse(target).features)


def host_without_tiles() -> Target:
    """Return this machine's target without AMX, by which f32 is faster than by Winograd's algorithm."""
    host = Target.parse("host")
    return Target.parse(f"{host.name}-no-amx-tile") if "amx_tile" in host.features else host


def compile_and_call(
    problem: Problem, target: Target, folder: Path, arrays: fills.Arrays, choice: Choice | None = None
) -> np.ndarray:
    """Return the output for `arrays`."""
    # Each has its own name: a library of the same name that something still holds would be taken for this one.
    path = folder / f"{next(NUMBERS)}.so"
    compile_problem(problem, target, path, choice=choice)
    output = call(tvm_ffi.load_module(str(path))[SYMBOL], problem, arrays)
    path.unlink()
    return output


def call(function: Callable[..., object], problem: Problem, arrays: fills.Arrays) -> np.ndarray:
    """Return what a kernel's function makes of `arrays`."""
    output = np.full(problem.output_shape, 77, fills.numpy_dtype(problem.types.output))
    given = [*arrays.given().values(), output]
    bits = [array.view(np.uint16) if array.dtype == fills.numpy_dtype("bf16") else array for array in given]
    function(*map(tvm_ffi.from_dlpack, bits))
    return output


def assert_exact(problem: Problem, target: Target, folder: Path, choice: Choice | None = None) -> None:
    """Compare the kernel with the reference on exact fills, bit for bit."""
    arrays, expected = exact_case(problem)
    np.testing.assert_array_equal(compile_and_call(problem, target, folder, arrays, choice), expected)
