"""What docs/promises.md says of every algorithm, type and layout: threads, alignment, and numbers out of the ordinary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm_ffi

from tests.placing import aligned
from tvmconv import fills, reference
from tvmconv.algorithms.table import ALGORITHMS, get
from tvmconv.epilogue import STEPS, parse_epilogue
from tvmconv.isa.x86.amx import TILES
from tvmconv.lowering.compiler import Choice, compile_problem
from tvmconv.problem import DTYPES, Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target

HOST, EVERYTHING = Target.parse("host"), Target.parse("sapphirerapids")
# Large enough for several threads; each algorithm is tested on the first that it covers.
PROBLEMS = [
    "conv2d-n1-i32x15x14-o48x15x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i32x13x13-o40x13x13-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-XIO-f32-bias",
    "conv2d-n2-i48x15x17-o6x15x17-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i64x21x23-o64x11x12-k3x3-s2x2-d1x1-p1x1_1x1-g16-NXC-XIO-f32-bias",
    "backprop2d-n1-i32x9x10-o8x18x40-k4x8-s2x4-d1x1-p1x2_1x2-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i128x3x5-o40x3x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-f32-bias",
    "backprop2d-n1-i64x4x4-o32x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-f32-bias",
]
LAYOUTS = (("NXC", "XIO"), ("NCX", "OIX"))
TRANSFORMED = (("f32", LAYOUTS[0]), ("bf16", LAYOUTS[1]))
DENORMAL = {"f32": 1e-40, "f16": 1e-7, "bf16": 1e-40}
Outputs = npt.NDArray[Any]
# From a number of threads, an alignment in elements and arrays to the output.
Compute = Callable[[int, int, fills.Arrays], Outputs]


def needed(algorithm: str) -> tuple[str, ...]:
    """Return the instructions without which it covers nothing."""
    return (
        TILES.features
        if algorithm.startswith("amx") or algorithm.endswith("halves")
        else ("avx512_bf16",)
        if algorithm.endswith("dot")
        else ()
    )


def case(algorithm: str, dtype: str, layouts: tuple[str, str]) -> Problem | None:
    """Return a problem of this type and layout that an algorithm covers, if one here is."""
    data_format, filter_format = layouts
    for each in PROBLEMS:
        problem = parse_signature(each).with_(dtype=dtype, data_format=data_format, filter_format=filter_format)
        if get(algorithm).covers(problem, EVERYTHING if needed(algorithm) else HOST) is None:
            return problem
    return None


# The code of ordered ones is that of the others, and test_reproducible.py tests their bits.
CPU = [each.name for each in ALGORITHMS if each.kind == "cpu" and each.name != "constant" and not each.ordered]
CASES = [
    pytest.param(name, problem, marks=pytest.mark.isa(*needed(name)), id=f"{name}-{dtype}-{layouts[0]}")
    for name, dtype, layouts in product(CPU, DTYPES, LAYOUTS)
    if (problem := case(name, dtype, layouts)) is not None
    # The transforms take a second or two to compile, and differ by type and layout only in what they read and write.
    and (not name.startswith("winograd") or (dtype, layouts) in TRANSFORMED)
]
EXACT = [parameter for parameter in CASES if get(parameter.values[0]).numerical_class == "exact"]  # type: ignore[arg-type]
# The first and the last of each algorithm.
SOME = [
    own[at]
    for name in CPU
    if (own := [parameter for parameter in CASES if parameter.values[0] == name])
    for at in sorted({0, len(own) - 1})
]
# A step that made a number of NaN would make one of it whatever follows.
EVERY_STEP = "-".join(f"{name}_{'_'.join(['0.5'] * len(numbers))}".rstrip("_") for name, numbers in STEPS.items())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Problem], Compute]:
    """Return what compiles the default schedule of an algorithm once, for all tests."""
    folder, made = tmp_path_factory.mktemp("promises"), dict[tuple[str, str], Compute]()

    def get_one(algorithm: str, problem: Problem) -> Compute:
        key = (algorithm, format_signature(problem))
        if key not in made:
            made[key] = load(algorithm, problem, folder)
        return made[key]

    return get_one


def load(algorithm: str, problem: Problem, folder: Path) -> Compute:
    path = folder / f"{algorithm}-{format_signature(problem)}.so"
    compile_problem(problem, HOST, path, choice=Choice(algorithm))
    function = tvm_ffi.load_module(str(path))["tvmconv_kernel_with_threads"]

    def compute(threads: int, offset: int, arrays: fills.Arrays) -> Outputs:
        output = np.zeros(problem.output_shape, fills.numpy_dtype(problem.dtype))
        output = aligned(output, offset * output.itemsize)
        given = [aligned(each, offset * each.itemsize) for each in arrays if each is not None]
        bfloat16 = fills.numpy_dtype("bf16")
        bits = [each.view(np.uint16) if each.dtype == bfloat16 else each for each in (*given, output)]
        function(threads, *map(tvm_ffi.from_dlpack, bits))
        return output

    return compute


def test_every_algorithm_is_here() -> None:
    # Of 64-bit ARM, in test_aarch64.py; of integers, in test_integers.py.
    elsewhere = {"mmla", "quads", "winograd2_integers", "winograd4_integers", "tap_pairs"}
    assert {parameter.values[0] for parameter in CASES} == set(CPU) - elsewhere


@pytest.mark.parametrize(("algorithm", "problem"), CASES)
def test_the_same_bits_for_any_threads_and_alignment(
    algorithm: str, problem: Problem, compiled: Callable[[str, Problem], Compute]
) -> None:
    compute, arrays = compiled(algorithm, problem), fills.random_fill(problem)
    expected = compute(1, 0, arrays).tobytes()
    for threads, offset in ((2, 0), (3, 1), (7, 0), (1, 3), (5, 7)):
        assert compute(threads, offset, arrays).tobytes() == expected, (threads, offset)


@cache
def with_special(problem: Problem, where: str, special: float) -> tuple[fills.Arrays, fills.Arrays, Outputs]:
    """Return normal arrays, the same with one number that is not finite, and what they give."""
    arrays = fills.random_fill(problem)
    # In the filter at its middle tap, which meets no padding.
    changed = replace(arrays, **{where: (array := getattr(arrays, where).copy())})
    array[tuple(extent // 2 for extent in array.shape)] = special
    with np.errstate(invalid="ignore"):
        return arrays, changed, reference.compute(problem, *changed).astype(np.float64)


@pytest.mark.parametrize(("where", "special"), [("data", np.nan), ("data", -np.inf), ("filter", np.inf)])
@pytest.mark.parametrize(("algorithm", "problem"), CASES)
def test_what_is_not_finite_reaches_the_outputs_that_sum_it(
    algorithm: str, problem: Problem, where: str, special: float, compiled: Callable[[str, Problem], Compute]
) -> None:
    compute, (arrays, changed, expected) = compiled(algorithm, problem), with_special(problem, where, special)
    output = compute(2, 0, changed).astype(np.float64)
    met = ~np.isfinite(expected)
    assert met.any() and not met.all()
    if (
        get(algorithm).numerical_class == "transform" and algorithm != "amx_halves"
    ):  # it reaches whole tiles, and infinities may cancel
        assert not np.isfinite(output[met]).any()
        assert np.isfinite(output).any()
        return
    np.testing.assert_array_equal(output[met], expected[met])
    np.testing.assert_array_equal(output[~met], compute(2, 0, arrays).astype(np.float64)[~met])


@pytest.mark.parametrize(("algorithm", "problem"), SOME)
def test_every_step_keeps_what_is_not_a_number(
    algorithm: str, problem: Problem, compiled: Callable[[str, Problem], Compute]
) -> None:
    problem = problem.with_(epilogue=parse_epilogue(EVERY_STEP))
    arrays = fills.random_fill(problem)
    data = arrays.data.copy()
    place = tuple(extent // 2 for extent in data.shape)
    # Signalling or quiet, a NaN has bits of its own in f32.
    data[place] = np.uint32(0xFF812345).view(np.float32) if problem.dtype == "f32" else np.nan
    with np.errstate(invalid="ignore"):
        met = np.isnan(reference.compute(problem, **{**arrays.given(), "data": data}).astype(np.float64))
    output = compiled(algorithm, problem)(2, 0, replace(arrays, data=data)).astype(np.float64)
    assert met.any() and not met.all()
    assert np.isnan(output[met]).all()
    if get(algorithm).numerical_class == "exact":
        assert np.isfinite(output[~met]).all()


@pytest.mark.parametrize(("algorithm", "problem"), EXACT)  # a transform's error is relative to large numbers
def test_denormal_numbers(algorithm: str, problem: Problem, compiled: Callable[[str, Problem], Compute]) -> None:
    kind = fills.numpy_dtype(problem.dtype)
    data, filter_ = np.zeros(problem.data_shape, kind), np.zeros(problem.filter_shape, kind)
    data[...] = DENORMAL[problem.dtype]
    filter_[...] = 1
    bias = np.zeros(problem.bias_shape, kind) if problem.bias else None
    arrays = fills.Arrays(data, filter_, bias)
    output = compiled(algorithm, problem)(2, 0, arrays)
    rounds = problem.dtype == "bf16" and problem.data_format == "NXC" and "avx512_bf16" in HOST.features
    # The instructions take them for zeros.
    if algorithm.endswith("dot") or algorithm in ("amx", "amx_exact", "mmla") or (algorithm == "grouped" and rounds):
        assert not output.any()
        return
    expected = reference.compute(problem, *arrays)
    assert expected.any()
    # Denormal f32 numbers are whole multiples of the least, and so are their sums.
    np.testing.assert_array_equal(output.astype(np.float64), expected.astype(np.float64))
