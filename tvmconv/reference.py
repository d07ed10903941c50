"""The two operations in float64 NumPy, written from their formulas: the reference of every kernel.

The code is independent of the tensor expressions that kernels are compiled from: a convolution gathers and multiplies each
tap's data, a backprop-data scatters each tap's products to their outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import ops
from .dtypes import ROWS
from .epilogue import OPERANDS, QUANTIZERS, Step
from .errors import InputError
from .problem import Problem

if TYPE_CHECKING:
    from typing_extensions import Unpack

Float64Array = npt.NDArray[np.float64]


def convolution(
    data: npt.ArrayLike,
    filter: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    scale: npt.ArrayLike | None = None,
    slope: npt.ArrayLike | None = None,
    residual: npt.ArrayLike | None = None,
    **attributes: Unpack[ops.ConvolutionAttributes],
) -> Float64Array:
    """Compute a Convolution in float64.

    Parameters
    ----------
    data, filter, bias
        Arrays of any real type; shapes as for :func:`tvmconv.ops.convolution`.
    scale, slope, residual
        The epilogue's arrays.
    **attributes
        As for :func:`tvmconv.ops.convolution`.

    Returns
    -------
    numpy.ndarray
        The output in `data_format`, float64.

    Raises
    ------
    InvalidProblemError
        If the attributes and shapes describe no valid convolution.
    """
    bias_shape = None if bias is None else np.shape(bias)
    problem = ops.convolution(np.shape(data), np.shape(filter), bias_shape=bias_shape, **attributes)
    return compute(problem, data, filter, bias, scale, slope, residual)


def convolution_backprop_data(
    data: npt.ArrayLike,
    filter: npt.ArrayLike,
    output_shape: Sequence[int] | None = None,
    bias: npt.ArrayLike | None = None,
    *,
    scale: npt.ArrayLike | None = None,
    slope: npt.ArrayLike | None = None,
    residual: npt.ArrayLike | None = None,
    **attributes: Unpack[ops.BackpropDataAttributes],
) -> Float64Array:
    """Compute a ConvolutionBackpropData in float64.

    Parameters
    ----------
    data, filter, bias
        Arrays of any real type; shapes as for :func:`tvmconv.ops.convolution_backprop_data`.
    output_shape
        Spatial extents of the output, or None.
    scale, slope, residual
        The epilogue's arrays.
    **attributes
        As for :func:`tvmconv.ops.convolution_backprop_data`.

    Returns
    -------
    numpy.ndarray
        The output in `data_format`, float64.

    Raises
    ------
    InvalidProblemError
        If the attributes and shapes describe no valid convolution.
    """
    bias_shape = None if bias is None else np.shape(bias)
    shapes = np.shape(data), np.shape(filter), output_shape
    problem = ops.convolution_backprop_data(*shapes, bias_shape=bias_shape, **attributes)
    return compute(problem, data, filter, bias, scale, slope, residual)


def compute(
    problem: Problem,
    data: npt.ArrayLike,
    filter: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    scale: npt.ArrayLike | None = None,
    slope: npt.ArrayLike | None = None,
    residual: npt.ArrayLike | None = None,
) -> Float64Array:
    """Compute `problem` in float64.

    Parameters
    ----------
    problem
        The problem. Its `dtype` has no effect on floating-point sums; only the steps of the epilogue round, to f32.
    data, filter, bias, scale, slope, residual
        The arrays of ``problem.operands``, of these shapes and any real type; None for all others.

    Returns
    -------
    numpy.ndarray
        float64, of shape ``problem.output_shape``.

    Raises
    ------
    InputError
        If an array has another shape than the problem's, is missing or unexpected.
    """
    operands = problem.operands
    given: dict[str, Any] = {"bias": bias, "scale": scale, "slope": slope, "residual": residual}
    for name, array in given.items():
        if (name in operands) != (array is not None):
            is_given = "none" if array is None else "one"
            raise InputError(f"the problem has {'a' if name in operands else 'no'} {name}, but {is_given} was given")
    given |= {"data": data, "filter": filter}
    arrays = {name: _check(name, given[name], shape) for name, (shape, _) in operands.items()}
    x, w = arrays["data"] - problem.zero_point, arrays["filter"] - problem.filter_zero_point
    if problem.data_format == "NCX":
        x = np.moveaxis(x, 1, -1)
    if problem.filter_format == "OIX":
        w = np.moveaxis(w, (1, 0), (-2, -1))
    if problem.is_empty or problem.in_channels == 0:
        y = np.zeros((problem.batch, *problem.out_spatial, problem.out_channels))
    elif problem.op == "convolution":
        y = _convolution(problem, x, w)
    else:
        y = _backprop_data(problem, x, w)
    return finish(problem, np.moveaxis(y, -1, 1) if problem.data_format == "NCX" else y, arrays)


def finish(problem: Problem, sums: Float64Array, arrays: Mapping[str, npt.NDArray[Any]]) -> Float64Array:
    """Add the bias to sums in `data_format`, and apply the epilogue.

    Sums of integers are rounded to f32, after a bias of s32, before all steps.

    Parameters
    ----------
    arrays
        The problem's operands by name; `data` and `filter` are not used.
    """
    y = np.moveaxis(sums, 1, -1) if problem.data_format == "NCX" else sums
    given = {name: np.asarray(array, np.float64) for name, array in arrays.items() if name not in ("data", "filter")}
    if problem.data_format == "NCX" and "residual" in given:
        given["residual"] = np.moveaxis(given["residual"], 1, -1)
    if problem.bias and problem.bias_dtype != "f32":
        y = y + given["bias"]
    if problem.is_quantized and problem.types.output != "s32":
        y = _f32(y)
    late = problem.bias_dtype == "f32"
    for number, step in enumerate((*problem.epilogue, None)):
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if late and (number > 0 or step is None or step.name != "scale"):
                y, late = _f32(y + given["bias"]), False
            if step is not None and step.name in QUANTIZERS:
                y = quantize(step, y, problem.types.output)
            elif step is not None:
                y = _f32(apply_step(step, y, given))
    return np.ascontiguousarray(np.moveaxis(y, -1, 1) if problem.data_format == "NCX" else y)


def quantize(step: Step, x: Float64Array, dtype: str) -> Float64Array:
    """Return f32 numbers rounded to integers of 8 bits by the last step of an epilogue; the zero point for NaN."""
    scale, zero_point = step.numbers
    least, greatest = ROWS[dtype].range or (0, 0)
    quotient = _f32(x * _f32(np.float64(1) / scale) if "reciprocal" in step.name else x / scale)
    quotient = np.where(np.isnan(quotient), 0, quotient)
    rounded = np.rint(_f32(quotient + zero_point)) if "before" in step.name else np.rint(quotient) + zero_point
    return np.clip(rounded, least, greatest)


def apply_step(step: Step, x: Float64Array, arrays: Mapping[str, Float64Array]) -> Float64Array:
    """Return a step of the epilogue applied to `x`, channels last. NaN stays NaN."""
    name, numbers, array = step.name, step.numbers, arrays.get(OPERANDS.get(step.name, ""))
    if array is not None:
        return x * array if name == "scale" else x + array if name == "add" else np.where(x >= 0, x, array * x)
    formulas: dict[str, Callable[[], Float64Array]] = {
        "relu": lambda: np.maximum(x, 0),
        "clip": lambda: np.minimum(np.maximum(x, numbers[0]), numbers[1]),
        "leaky": lambda: np.where(x >= 0, x, numbers[0] * x),
        "elu": lambda: np.where(x > 0, x, numbers[0] * np.expm1(x)),
        "sigmoid": lambda: 1 / (1 + np.exp(-x)),
        "tanh": lambda: np.tanh(x),
        "hardsigmoid": lambda: np.minimum(np.maximum(numbers[0] * x + numbers[1], 0), 1),
        "silu": lambda: x / (1 + np.exp(-x)),
        "hardswish": lambda: x * np.minimum(np.maximum(_f32(_f32(x / 6) + 0.5), 0), 1),
        # 1 + erf would cancel.
        "gelu": lambda: x / 2 * _erfc(-x / math.sqrt(2)),
        "gelu_tanh": lambda: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }
    return formulas[name]()


def _erfc(x: Float64Array) -> Float64Array:
    return np.fromiter(map(math.erfc, x.flat), np.float64, x.size).reshape(x.shape)


def _f32(x: Float64Array) -> Float64Array:
    """Return numbers rounded to f32, as kernels round after each operation of a step that is not approximated."""
    return x.astype(np.float32).astype(np.float64)


def _check(name: str, array: npt.ArrayLike, shape: tuple[int, ...]) -> Float64Array:
    values = np.asarray(array, dtype=np.float64)
    if values.shape != shape:
        raise InputError(f"{name} has shape {list(values.shape)}; the problem's is {list(shape)}")
    return values


def _convolution(p: Problem, x: Float64Array, w: Float64Array) -> Float64Array:
    """Return y[n, j, o], the sum over taps k and channels i of x[n, s*j + d*k - pad, i] * w[k, i, o]."""
    groups, inputs, outputs = p.groups, p.in_channels // p.groups, p.out_channels // p.groups
    # Pad, and split the channels: (g, N, X..., I) and (k..., g, I, O).
    padded = np.pad(x, [(0, 0), *zip(p.pads_begin, p.pads_end, strict=True), (0, 0)])
    padded = np.moveaxis(padded.reshape(*padded.shape[:-1], groups, inputs), -2, 0)
    taps = np.moveaxis(w.reshape(*p.kernel, inputs, groups, outputs), -2, -3)
    total = np.zeros((groups, p.batch * int(np.prod(p.out_spatial)), outputs))
    for tap in product(*map(range, p.kernel)):
        window = (slice(None), slice(None), *_slices(tap, p.dilations, p.strides, p.out_spatial))
        total += padded[window].reshape(groups, -1, inputs) @ taps[tap]
    y = total.reshape(groups, p.batch, *p.out_spatial, outputs)
    return np.moveaxis(y, 0, -2).reshape(p.batch, *p.out_spatial, p.out_channels)


def _backprop_data(p: Problem, x: Float64Array, w: Float64Array) -> Float64Array:
    """Return y, by y[n, s*j + d*k - pad, m] += x[n, j, c] * w[k, m, c] for every input j, tap k and channel c."""
    groups, inputs, outputs = p.groups, p.in_channels // p.groups, p.out_channels // p.groups
    columns = np.moveaxis(x.reshape(-1, groups, inputs), 1, 0)
    # The filter's O channels are the data's: (k..., M/g, g, C/g) -> (k..., g, C/g, M/g).
    taps = np.moveaxis(w.reshape(*p.kernel, outputs, groups, inputs), -3, -1)
    # All outputs of products before pads are cut off, and zeros where the output is longer.
    extents = [
        max(s * (j - 1) + d * (k - 1) + 1, begin + y)
        for j, k, s, d, begin, y in zip(
            p.in_spatial, p.kernel, p.strides, p.dilations, p.pads_begin, p.out_spatial, strict=True
        )
    ]
    full = np.zeros((groups, p.batch, *extents, outputs))
    for tap in product(*map(range, p.kernel)):
        places = (slice(None), slice(None), *_slices(tap, p.dilations, p.strides, p.in_spatial))
        full[places] += (columns @ taps[tap]).reshape(groups, p.batch, *p.in_spatial, outputs)
    ranges = (slice(begin, begin + y) for begin, y in zip(p.pads_begin, p.out_spatial, strict=True))
    kept = (slice(None), slice(None), *ranges)
    return np.moveaxis(full[kept], 0, -2).reshape(p.batch, *p.out_spatial, p.out_channels)


def _slices(
    tap: tuple[int, ...], dilations: tuple[int, ...], strides: tuple[int, ...], counts: tuple[int, ...]
) -> list[slice]:
    """Return slices of the indices d*tap, d*tap + s, d*tap + 2s, ..., `counts` of them along each axis."""
    return [
        slice(d * t, d * t + s * (count - 1) + 1, s)
        for t, d, s, count in zip(tap, dilations, strides, counts, strict=True)
    ]
