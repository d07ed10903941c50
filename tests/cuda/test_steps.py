"""The steps of epilogues as CUDA kernels compute them, on the CPU, over f32 numbers of all magnitudes."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import numpy.typing as npt
import pytest
from emulator import HEADERS

from tvmconv import reference
from tvmconv.epilogue import APPROXIMATED, STEPS, Step, parse_epilogue
from tvmconv.lowering.cuda.epilogue_steps import STEPS as HEADER

NUMBERS = {"clip": "(-3.5,6.25)", "leaky": "(0.1)", "elu": "(1.5)", "hardsigmoid": "(0.2,0.5)"}
NAMES = [name for name in STEPS if name not in ("scale", "add")]
SLOPE = 0.3
LEAST_NORMAL = 2.0**-126


def step_of(name: str) -> Step:
    (step,) = parse_epilogue(name + NUMBERS.get(name, ""))
    return step


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The header, with a loop around each function."""
    folder = tmp_path_factory.mktemp("steps")
    lines = ['#include "emulator.h"', HEADER.read_text().replace("#include <math_constants.h>", "")]
    for name in NAMES:
        numbers = step_of(name).numbers if name != "prelu" else (SLOPE,)
        call = f"tvmconv_{name}({', '.join(['x[i]', *(f'{number}f' for number in numbers)])})"
        lines.append(f'extern "C" void {name}_all(const float* x, float* y, long n) {{')
        lines.append(f"  for (long i = 0; i < n; ++i) y[i] = {call};\n}}")
    (folder / "steps.cpp").write_text("\n".join(lines))
    flags = ["-std=c++17", "-O2", "-mfma", "-mf16c", "-w", "-ffp-contract=off", "-shared", "-fPIC", f"-I{HEADERS}"]
    subprocess.run(["g++", *flags, "steps.cpp", "-o", "steps.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "steps.so"))


def values() -> npt.NDArray[np.float32]:
    """Return numbers of all magnitudes, many near the bends of steps, and NaN."""
    rng = np.random.default_rng(3)
    special = np.float32(
        [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-40, -1e-40, -87, -88.5, -103, 88.8, 104]
    )
    bits = rng.integers(0, 2**32, 50_000, np.uint64).astype(np.uint32).view(np.float32)
    near = [rng.uniform(-110, 110, 50_000), rng.uniform(-15, 15, 50_000), rng.standard_normal(20_000)]
    return np.concatenate([special, bits, *(each.astype(np.float32) for each in near)])


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_as_near_as_promised(name: str, library: ctypes.CDLL) -> None:
    x = values()
    got = np.empty_like(x)
    addresses = [each.ctypes.data_as(ctypes.c_void_p) for each in (x, got)]
    library[f"{name}_all"](*addresses, ctypes.c_long(x.size))
    with np.errstate(all="ignore"):
        exact = reference.apply_step(step_of(name), x.astype(np.float64), {"slope": np.float64(np.float32(SLOPE))})
        expected = exact.astype(np.float32)
    known = ~np.isnan(exact)
    assert np.isnan(got[~known]).all()
    if name not in APPROXIMATED:
        np.testing.assert_array_equal(got[known], expected[known])
        return
    normal = np.isfinite(expected) & (np.abs(exact) >= LEAST_NORMAL)
    error = np.abs(got[normal] - exact[normal]) / np.abs(exact[normal])
    assert error.max() <= 4e-7, (x[normal][error.argmax()], got[normal][error.argmax()])
    assert np.abs(got[known & (np.abs(exact) < LEAST_NORMAL)]).max() <= 2 * LEAST_NORMAL
    infinite = known & np.isinf(expected)
    np.testing.assert_array_equal(got[infinite], expected[infinite])
