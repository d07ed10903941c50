"""f32 and f16 as sums of bf16: errors by scale, length and cancellation, and numbers out of the ordinary."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm_ffi

from tvmconv.accuracy import UNIT, relative_error
from tvmconv.dtypes import ROWS
from tvmconv.isa.x86.amx import TILES
from tvmconv.lowering.compiler import Choice, compile_problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

PIXELS, OUTPUTS = 40, 32
# Of products of 32-bit floats: by two terms a number 2^-16 is missing, and both second terms are rounded to 8 bits; by three 2^-26,
# beside what the six sums round off.
PRODUCT_ERROR = {"amx_halves": 2.0**-15, "amx_exact": 2.0**-23}
# Of normal data: a third of what a transform may; of 20,000 products in f32, of which `direct` errs by 2.6e-6.
ERROR = {"amx_halves": ROWS["f32"].transform_error / 3, "amx_exact": 2e-6}
LENGTHS = (2, 3, 64, 2304, 20_000)
# A product of two numbers that are not halved to denormal ones, and its two smaller parts, too.
SCALES = (-100, -60, 0, 60, 100)
Matrix = npt.NDArray[Any]
Multiply = Callable[[Matrix, Matrix], Matrix]

pytestmark = pytest.mark.isa(*TILES.features)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, str], Multiply]:
    """Return what compiles a product of matrices, PIXELS by a number of channels and those by OUTPUTS, once."""
    folder = tmp_path_factory.mktemp("terms")
    return cache(partial(compiled, folder))


@pytest.fixture(params=PRODUCT_ERROR)
def multiply(request: pytest.FixtureRequest, kernels: Callable[..., Multiply]) -> Callable[..., Multiply]:
    """Return `kernels` of each algorithm."""

    def get(channels: int, dtype: str = "f32") -> Multiply:
        return kernels(request.param, channels, dtype)

    return get


@pytest.fixture
def algorithm(request: pytest.FixtureRequest) -> str:
    """Return the algorithm whose `multiply` a test has."""
    return str(request.node.callspec.params["multiply"])


def compiled(folder: Path, algorithm: str, channels: int, dtype: str) -> Multiply:
    text = f"conv1d-n1-i{channels}x{PIXELS}-o{OUTPUTS}x{PIXELS}-k1-s1-d1-p0_0-g1-NXC-XIO-{dtype}"
    path = folder / f"{algorithm}-{channels}-{dtype}.so"
    compile_problem(parse_signature(text), Target.parse("host"), path, choice=Choice(algorithm))
    function = tvm_ffi.load_module(str(path))["tvmconv_kernel"]

    def product(data: Matrix, weights: Matrix) -> Matrix:
        output = np.full((1, PIXELS, OUTPUTS), np.nan, data.dtype)
        arrays = (data.reshape(1, PIXELS, channels), weights.reshape(1, channels, OUTPUTS), output)
        function(*map(tvm_ffi.from_dlpack, map(np.ascontiguousarray, arrays[:2])), tvm_ffi.from_dlpack(output))
        return output[0]

    return product


def normal(channels: int, seed: int = 0) -> tuple[Matrix, Matrix]:
    draw = np.random.default_rng(seed)
    shapes = ((PIXELS, channels), (channels, OUTPUTS))
    data, weights = (draw.standard_normal(shape).astype(np.float32) for shape in shapes)
    return data, weights


def exact(data: Matrix, weights: Matrix) -> Matrix:
    return data.astype(np.float64) @ weights.astype(np.float64)


@pytest.mark.parametrize("channels", LENGTHS)
def test_the_error_is_the_same_for_all_lengths_and_scales(
    channels: int, multiply: Callable[..., Multiply], algorithm: str
) -> None:
    data, weights = normal(channels)
    for scale in SCALES:
        factor = np.float32(2.0**scale)
        for of_data, of_weights in ((factor, np.float32(1)), (factor, 1 / factor), (np.float32(1), factor)):
            given = data * of_data, weights * of_weights
            error = relative_error(multiply(channels)(*given), exact(*given))
            assert error < ERROR[algorithm], (scale, of_weights, error)


@pytest.mark.parametrize("channels", LENGTHS)
def test_sums_that_cancel_err_by_their_products(
    channels: int, multiply: Callable[..., Multiply], algorithm: str
) -> None:
    """Half of the products are the others, negated and a little off: what is left is as small as their error."""
    data, weights = normal(channels)
    half = channels // 2
    data[:, half : 2 * half] = -data[:, :half] * np.float32(1 + 2.0**-14)
    weights[half : 2 * half] = weights[:half]
    error = np.abs(multiply(channels)(data, weights) - exact(data, weights))
    products = np.abs(data).astype(np.float64) @ np.abs(weights).astype(np.float64)
    # Of roundings of the sum, most cancel.
    assert (error <= (PRODUCT_ERROR[algorithm] + channels**0.5 * 2.0**-22) * products).all()


@pytest.mark.parametrize("scale", [-140, -126, -120, -110])
def test_of_small_numbers_what_is_below_normal_ones_is_lost(
    scale: int, multiply: Callable[..., Multiply], algorithm: str
) -> None:
    channels = 64
    data, weights = normal(channels)
    data = data * np.float32(2.0**scale)
    error = np.abs(multiply(channels)(data, weights) - exact(data, weights)).max()
    # A number's terms are each rounded, or lost, at the least normal number.
    assert (
        error
        <= 3 * 2.0**-126 * np.abs(weights).sum(axis=0).max() + PRODUCT_ERROR[algorithm] * 2.0**scale * 8 * channels
    )


def test_f16_loses_no_bit(multiply: Callable[..., Multiply]) -> None:
    """Of one factor with 11 bits, where the other has 8, no product is left out."""
    channels = 64
    draw = np.random.default_rng(0)
    data = (draw.integers(-2047, 2048, (PIXELS, channels))).astype(np.float16)
    weights = np.zeros((channels, OUTPUTS), np.float16)
    weights[draw.integers(0, channels, OUTPUTS), np.arange(OUTPUTS)] = 1
    np.testing.assert_array_equal(multiply(channels, "f16")(data, weights), data @ weights)
    smallest = (data * np.float16(2.0**-24)).astype(np.float16)  # denormal f16
    np.testing.assert_array_equal(multiply(channels, "f16")(smallest, weights), smallest @ weights)


def test_f32_loses_no_bit_by_three_terms(kernels: Callable[..., Multiply]) -> None:
    """Numbers of 24 bits by ones of 8, and of 12 bits by such: what the products of a sum are in f32."""
    channels, draw = 64, np.random.default_rng(0)
    multiply = kernels("amx_exact", channels, "f32")
    place = draw.integers(0, channels, OUTPUTS), np.arange(OUTPUTS)
    for bits, others in ((24, 0), (16, 8), (12, 12)):
        data = draw.integers(-(2**bits) + 1, 2**bits, (PIXELS, channels)).astype(np.float32)
        weights = np.zeros((channels, OUTPUTS), np.float32)
        weights[place] = draw.integers(1, 2**others + 1, OUTPUTS)
        np.testing.assert_array_equal(multiply(data, weights), exact(data, weights))


SPECIAL = {
    "inf": 0x7F800000,
    "-inf": 0xFF800000,
    "nan": 0x7FC00000,
    "signalling nan": 0x7F800001,
    "negative nan of all bits": 0xFFFFFFFF,
}


@pytest.mark.parametrize("bits", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("where", ["data", "weights"])
def test_what_is_not_finite_is_as_by_the_formula(where: str, bits: int, multiply: Callable[..., Multiply]) -> None:
    channels = 64
    data, weights = normal(channels)
    plain = multiply(channels)(data, weights)
    # Factors without a low half, with one of either sign, large, small, and none.
    data[:6, 5] = weights[5, :6] = [1, -1.00390625, 0.998046875, -1e18, 1e-18, 0]
    changed = (data if where == "data" else weights.T).view(np.uint32)
    changed[7, 5] = bits
    output = multiply(channels)(data, weights)
    with np.errstate(invalid="ignore"):
        expected = exact(data, weights)
    met = ~np.isfinite(expected)
    assert met.any()
    np.testing.assert_array_equal(output[met], expected[met])
    np.testing.assert_array_equal(output[8:, 8:], plain[8:, 8:])
    assert np.isfinite(output[~met]).all()


def test_an_infinity_times_an_infinity_is_not_a_number(multiply: Callable[..., Multiply]) -> None:
    data, weights = normal(64)
    data[3, 5], weights[5, 4] = np.inf, np.inf
    assert np.isnan(multiply(64)(data, weights)[3, 4])


@pytest.mark.parametrize("bits", [0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0xFF7FFFFF])
def test_the_largest_numbers_stay_finite(bits: int, multiply: Callable[..., Multiply]) -> None:
    """Those that would round to an infinity keep 8 bits."""
    data, weights = (np.zeros_like(each) for each in normal(64))
    data.view(np.uint32)[3, 5] = bits
    weights[5] = 0.5
    output = multiply(64)(data, weights)[3]
    np.testing.assert_allclose(output, exact(data, weights)[3], rtol=2 * UNIT["bfloat16"])


def test_equal_sums_are_equal_wherever_they_are(multiply: Callable[..., Multiply]) -> None:
    data, weights = normal(64)
    data[:], weights[:] = data[:1], weights[:, :1]
    assert len(np.unique(multiply(64)(data, weights))) == 1
