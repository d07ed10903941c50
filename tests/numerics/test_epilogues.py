"""Epilogues of compiled kernels: in every algorithm, in every type, and how near approximated steps come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from campaign.check import Case

import tvmconv
from tvmconv import fills, reference
from tvmconv.algorithms import table as algorithms
from tvmconv.dtypes import ROWS
from tvmconv.epilogue import APPROXIMATED, SHORT, STEPS, parse_epilogue
from tvmconv.errors import InputError, KernelNotFoundError
from tvmconv.lowering.compiler import Choice
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target

NUMBERS = {"clip": "(-1,2.5)", "leaky": "(0.1)", "elu": "(1.5)", "hardsigmoid": "(0.2,0.5)"}
# Products that a compiler would make one multiply-add of with the sum after them.
PRODUCTS = ("scale-add", "leaky(0.1)-add", "prelu-add", "hardswish-add")
# What stores in different ways: by vectors, shifted inwards, channels apart, rows, phases of a transposed one, tiles of
# Winograd, sums across lanes, outputs that no tap meets, and none that one does.
PROBLEMS = {
    "conv2d-n1-i16x9x9-o20x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias": (
        "leaky(0.1)-hardswish-add",
        "silu-add",
        "gelu",
    ),
    "conv2d-n2-i16x9x10-o32x9x10-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32": ("add-prelu", "hardswish", "gelu_tanh"),
    "conv2d-n1-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias": ("silu", "add-relu", "prelu-scale"),
    "conv2d-n1-i3x17x17-o3x9x9-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-XIO-bf16": ("sigmoid", "add-tanh"),
    "conv2d-n1-i24x8x8-o24x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g24-NXC-XIO-f16-bias": ("leaky(0.1)-scale-add", "elu(1)-add"),
    "conv2d-n1-i32x7x7-o32x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-bf16": ("hardsigmoid(0.2,0.5)", "add-leaky(0.1)"),
    "backprop2d-n1-i8x5x6-o6x14x17-k2x2-s3x3-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias": ("silu", "scale-add-tanh"),
    "backprop2d-n1-i8x7x7-o8x14x14-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f16": ("add-relu", "prelu"),
    "conv2d-n1-i64x6x6-o2x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32": ("add-sigmoid",),
    "conv2d-n1-i32x20x20-o32x20x20-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32": ("add-hardswish",),
    "conv1d-n1-i0x5-o3x5-k3-s1-d1-p1_1-g1-NXC-XIO-bf16-bias": ("scale-add-gelu",),
}


@pytest.mark.parametrize("signature", PROBLEMS)
def test_every_algorithm_applies_epilogues(try_kernels: Callable[[Sequence[Case]], None], signature: str) -> None:
    target, plain, epilogues = Target.parse("host"), parse_signature(signature), PROBLEMS[signature]
    cases = []
    for number, algorithm in enumerate(algorithms.applicable(plain, target)):
        problem = plain.with_(epilogue=epilogues[number % len(epilogues)])
        ways = [(Choice(algorithm.name), False)]
        if algorithm.define_prepacked(problem, target) is not None:
            ways.append((Choice(algorithm.name), True))
        cases.append(Case(problem, target, number, tuple(ways)))
    try_kernels(cases)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tvmconv.Registry:
    """Return kernels of each step alone, after products with 1."""
    problems = [_alone(name) for name in (*STEPS, *PRODUCTS)]
    return tvmconv.load(tvmconv.build(problems, tmp_path_factory.mktemp("steps") / "bundle"))


def _alone(name: str) -> tvmconv.Problem:
    signature = "conv1d-n1-i1x8192-o1x8192-k1-s1-d1-p0_0-g1-NCX-OIX-f32"
    return parse_signature(signature).with_(epilogue=parse_epilogue(f"{name}{NUMBERS.get(name, '')}"))


def _values() -> npt.NDArray[np.float32]:
    """Return numbers of all magnitudes, many near the bends of steps, and NaN with several bit patterns."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 2000, np.uint64).astype(np.uint32).view(np.float32)
    nan = (rng.integers(0x7F800001, 0x80000000, 400) | rng.integers(0, 2, 400) << 31).astype(np.uint32).view(np.float32)
    special = np.float32(
        [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-40, -1e-40, -87, -88.5, -103, 87, 88.8, 104]
    )
    near = np.concatenate([rng.uniform(-110, 110, 2000), rng.uniform(-12, 12, 2500), rng.standard_normal(1500)])
    values = np.concatenate([special, bits[np.isfinite(bits)], nan, near.astype(np.float32)])
    return np.resize(values, 8192).astype(np.float32)


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_as_near_as_promised(name: str, steps: tvmconv.Registry) -> None:
    problem, x = _alone(name), _values()
    others = {key: array for key, array in fills.random_fill(problem).given().items() if key not in ("data", "filter")}
    arrays: dict[str, Any] = {"data": x.reshape(1, 1, -1), "filter": np.ones((1, 1, 1), np.float32), **others}
    got = steps[problem](**arrays).reshape(-1)
    with np.errstate(all="ignore"):
        expected = reference.finish(problem, arrays["data"].astype(np.float64), arrays).reshape(-1)
    known = ~np.isnan(expected)
    assert np.isnan(got[~known]).all()
    if name not in APPROXIMATED:
        np.testing.assert_array_equal(got[known], expected.astype(np.float32)[known])
        return
    normal = known & np.isfinite(expected) & (np.abs(expected) >= 2.0**-126)
    error = np.abs(got[normal] - expected[normal]) / np.abs(expected[normal])
    assert error.max() <= 4e-7, (x[normal][error.argmax()], got[normal][error.argmax()])
    assert np.abs(got[known & ~normal & np.isfinite(expected)]).max() <= 2.0**-125
    np.testing.assert_array_equal(got[np.isinf(expected)], expected[np.isinf(expected)])


@pytest.mark.parametrize(("dtype", "rounding"), [("f16", 2.0**-11), ("bf16", 2.0**-8)])
def test_short_steps_of_every_number(dtype: str, rounding: float, tmp_path: Path) -> None:
    """What is rounded to 16 bits at once is approximated within 2**-14."""
    signature = f"conv1d-n1-i1x65536-o1x65536-k1-s1-d1-p0_0-g1-NCX-OIX-{dtype}"
    problems = [parse_signature(signature).with_(epilogue=parse_epilogue(name)) for name in SHORT]
    registry = tvmconv.load(tvmconv.build(problems, tmp_path / "bundle"))
    bits, numpy_dtype = np.arange(2**16, dtype=np.uint16), fills.numpy_dtype(dtype)
    x, ones = bits.view(numpy_dtype).reshape(1, 1, -1), np.ones((1, 1, 1), numpy_dtype)
    least = ROWS[dtype].approximated_floor
    for problem in problems:
        got = registry[problem](x, ones).astype(np.float64)
        with np.errstate(all="ignore"):
            expected = reference.finish(problem, x.astype(np.float64), {})
        assert np.isnan(got[np.isnan(expected)]).all()
        finite = np.isfinite(expected)
        error = np.abs(got[finite] - expected[finite])
        allowed = (rounding + 2.0**-14) * np.abs(expected[finite]) + least
        assert (error <= allowed).all(), (problem, x[finite][(error - allowed).argmax()])
        assert (np.abs(got[expected == 0]) <= least).all()


@pytest.mark.parametrize("epilogue", PRODUCTS)
def test_products_are_rounded_before_sums(epilogue: str, steps: tvmconv.Registry) -> None:
    problem = _alone(epilogue)
    arrays = fills.random_fill(problem).given() | {"filter": np.ones((1, 1, 1), np.float32)}
    expected = reference.finish(problem, arrays["data"].astype(np.float64), arrays)
    np.testing.assert_array_equal(steps[problem](**arrays), expected.astype(np.float32))


def test_calls_take_what_the_epilogue_does(tmp_path: Path) -> None:
    same = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}
    problem = tvmconv.ops.convolution((1, 6, 6, 16), (3, 3, 16, 16), bias_shape=(16,), epilogue="add-relu", **same)
    registry = tvmconv.load(tvmconv.build([problem], tmp_path / "bundle"))
    arrays, expected = fills.exact_case(problem)
    for epilogue in ("add-relu", "add-clip(0,inf)"):
        got = registry.convolution(**arrays.given(), epilogue=epilogue, **same)
        np.testing.assert_array_equal(got, expected)
    kernel, given = registry[problem], arrays.given()
    np.testing.assert_array_equal(kernel(**{**given, "filter": kernel.pack(arrays.filter)}), expected)
    residual = arrays.residual.copy()  # type: ignore[union-attr]
    with pytest.raises(InputError, match="out shares memory with an input"):
        kernel(**{**given, "residual": residual}, out=residual)
    with pytest.raises(InputError, match="residual is missing"):
        kernel(arrays.data, arrays.filter, arrays.bias)
    with pytest.raises(InputError, match="slope was given, but the kernel takes none"):
        kernel(**given, slope=np.ones(16, np.float32))
    with pytest.raises(InputError, match="residual has shape"):
        kernel(**{**given, "residual": residual[:, 1:]})
    with pytest.raises(KernelNotFoundError, match="epilogue"):
        registry.convolution(arrays.data, arrays.filter, arrays.bias, epilogue="relu", **same)
    assert parse_epilogue(format_signature(problem).partition("bias-")[2]) == problem.epilogue
