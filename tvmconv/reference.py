"""The two operations in float64 NumPy, written from their formulas: what every kernel is checked against.

It shares nothing with the tensor expressions that kernels are compiled from: a convolution gathers
each tap's window and multiplies, a backprop-data scatters each tap's products to where they belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from . import ops
from .errors import InputError
from .problem import Problem

Float64Array = npt.NDArray[np.float64]


def convolution(
    data: npt.ArrayLike,
    filter: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    auto_pad: str | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    filter_format: str = "XIO",
    same_rule: str = "default",
) -> Float64Array:
    """Compute a Convolution in float64.

    Parameters
    ----------
    data, filter, bias
        Arrays of any real type; shapes as for :func:`tvmconv.ops.convolution`.
    strides, dilations, pads_begin, pads_end, auto_pad, groups, data_format, filter_format, same_rule
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
    problem = ops.convolution(
        np.shape(data),
        np.shape(filter),
        strides=strides,
        dilations=dilations,
        pads_begin=pads_begin,
        pads_end=pads_end,
        auto_pad=auto_pad,
        groups=groups,
        data_format=data_format,
        filter_format=filter_format,
        same_rule=same_rule,
        bias_shape=None if bias is None else np.shape(bias),
    )
    return compute(problem, data, filter, bias)


def convolution_backprop_data(
    data: npt.ArrayLike,
    filter: npt.ArrayLike,
    output_shape: Sequence[int] | None = None,
    bias: npt.ArrayLike | None = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    auto_pad: str | None = None,
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    filter_format: str = "XIO",
    same_rule: str = "default",
) -> Float64Array:
    """Compute a ConvolutionBackpropData in float64.

    Parameters
    ----------
    data, filter, bias
        Arrays of any real type; shapes as for :func:`tvmconv.ops.convolution_backprop_data`.
    output_shape
        Spatial extents of the output, or None.
    strides, dilations, pads_begin, pads_end, auto_pad, output_padding, groups
        As for :func:`tvmconv.ops.convolution_backprop_data`.
    data_format, filter_format, same_rule
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
    problem = ops.convolution_backprop_data(
        np.shape(data),
        np.shape(filter),
        output_shape,
        strides=strides,
        dilations=dilations,
        pads_begin=pads_begin,
        pads_end=pads_end,
        auto_pad=auto_pad,
        output_padding=output_padding,
        groups=groups,
        data_format=data_format,
        filter_format=filter_format,
        same_rule=same_rule,
        bias_shape=None if bias is None else np.shape(bias),
    )
    return compute(problem, data, filter, bias)


def compute(
    problem: Problem, data: npt.ArrayLike, filter: npt.ArrayLike, bias: npt.ArrayLike | None = None
) -> Float64Array:
    """Compute `problem` in float64.

    Parameters
    ----------
    problem
        What to compute. Its `dtype` plays no part: nothing is rounded.
    data, filter, bias
        Arrays of any real type with the problem's shapes; `bias` exactly when the problem has one.

    Returns
    -------
    numpy.ndarray
        float64, of shape ``problem.output_shape``.

    Raises
    ------
    InputError
        If an array has another shape than the problem says, or a bias is missing or unexpected.
    """
    if problem.bias != (bias is not None):
        raise InputError(
            f"the problem has {'a' if problem.bias else 'no'} bias, but {'none' if problem.bias else 'one'} was given"
        )
    x = _checked("data", data, problem.data_shape)
    w = _checked("filter", filter, problem.filter_shape)
    if problem.data_format == "NCX":
        x = np.moveaxis(x, 1, -1)
    if problem.filter_format == "OIX":
        w = np.moveaxis(w, (1, 0), (-2, -1))
    if problem.is_empty or problem.is_constant:
        y = np.zeros((problem.batch, *problem.out_spatial, problem.out_channels))
    elif problem.op == "convolution":
        y = _convolution(problem, x, w)
    else:
        y = _backprop_data(problem, x, w)
    if bias is not None:
        y += _checked("bias", bias, problem.bias_shape)
    return np.ascontiguousarray(np.moveaxis(y, -1, 1) if problem.data_format == "NCX" else y)


def _checked(name: str, array: npt.ArrayLike, shape: tuple[int, ...]) -> Float64Array:
    values = np.asarray(array, dtype=np.float64)
    if values.shape != shape:
        raise InputError(f"{name} has shape {list(values.shape)}; the problem's is {list(shape)}")
    return values


def _convolution(p: Problem, x: Float64Array, w: Float64Array) -> Float64Array:
    """y[n, j, o] = sum over taps k and channels i of x[n, s*j + d*k - pad, i] * w[k, i, o]."""
    groups, inputs, outputs = p.groups, p.in_channels // p.groups, p.out_channels // p.groups
    # Pad, and split the channels: (g, N, X..., I) and (k..., g, I, O).
    padded = np.pad(x, [(0, 0), *zip(p.pads_begin, p.pads_end, strict=True), (0, 0)])
    padded = np.moveaxis(padded.reshape(*padded.shape[:-1], groups, inputs), -2, 0)
    taps = np.moveaxis(w.reshape(*p.kernel, inputs, groups, outputs), -2, -3)
    total = np.zeros((groups, p.batch * int(np.prod(p.out_spatial)), outputs))
    for tap in product(*map(range, p.kernel)):
        window = (slice(None), slice(None), *_strided(tap, p.dilations, p.strides, p.out_spatial))
        total += padded[window].reshape(groups, -1, inputs) @ taps[tap]
    y = total.reshape(groups, p.batch, *p.out_spatial, outputs)
    return np.moveaxis(y, 0, -2).reshape(p.batch, *p.out_spatial, p.out_channels)


def _backprop_data(p: Problem, x: Float64Array, w: Float64Array) -> Float64Array:
    """y[n, s*j + d*k - pad, m] += x[n, j, c] * w[k, m, c] for every input j, tap k and channel c."""
    groups, inputs, outputs = p.groups, p.in_channels // p.groups, p.out_channels // p.groups
    columns = np.moveaxis(x.reshape(-1, groups, inputs), 1, 0)
    # O of the filter are the data's channels: (k..., M/g, g, C/g) -> (k..., g, C/g, M/g).
    taps = np.moveaxis(w.reshape(*p.kernel, outputs, groups, inputs), -3, -1)
    # Every place a product can fall on before pads are cut off, and zeros where the output is longer.
    extents = [
        max(s * (j - 1) + d * (k - 1) + 1, begin + y)
        for j, k, s, d, begin, y in zip(
            p.in_spatial, p.kernel, p.strides, p.dilations, p.pads_begin, p.out_spatial, strict=True
        )
    ]
    full = np.zeros((groups, p.batch, *extents, outputs))
    for tap in product(*map(range, p.kernel)):
        places = (slice(None), slice(None), *_strided(tap, p.dilations, p.strides, p.in_spatial))
        full[places] += (columns @ taps[tap]).reshape(groups, p.batch, *p.in_spatial, outputs)
    ranges = (slice(begin, begin + y) for begin, y in zip(p.pads_begin, p.out_spatial, strict=True))
    kept = (slice(None), slice(None), *ranges)
    return np.moveaxis(full[kept], 0, -2).reshape(p.batch, *p.out_spatial, p.out_channels)


def _strided(
    tap: tuple[int, ...], dilations: tuple[int, ...], strides: tuple[int, ...], counts: tuple[int, ...]
) -> list[slice]:
    """Slices that pick, per axis, the `count` places d*tap, d*tap + s, d*tap + 2s, ..."""
    return [
        slice(d * t, d * t + s * (count - 1) + 1, s)
        for t, d, s, count in zip(tap, dilations, strides, counts, strict=True)
    ]
