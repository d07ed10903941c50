"""Discrete Fourier transforms as products by fixed matrices, on the real and imaginary parts of complex tensors.

A transform of N = A * B numbers is transforms of A and of B numbers with a product by N roots of unity between them (Cooley and Tukey):
A + B multiplications a number instead of N. It is split where that saves more than the moves in between cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, sqrt
from typing import Any

import numpy as np
import torch

from ....frontends.torch.nodes import Nodes, Parts

aten = torch.ops.aten
# Cost of transpositions and the product between two stages, in multiplications a number: rows of 128 numbers are faster with one matrix
# product, rows of 256 with two.
_MOVES = 128


def _of_fixed(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule for fixed extents only, which returns None for transforms along free ones."""

    def rule(nodes: Nodes, self: Parts, dim: Sequence[int], *more: Any, **others: Any) -> Any:
        shape = nodes.shape(self.real)
        extents = [*(shape[axis] for axis in dim), others.get("last_dim_size", 1)]
        return transform(nodes, self, dim, *more, **others) if all(isinstance(each, int) for each in extents) else None

    return rule


def _real_to_complex(nodes: Nodes, self: Parts, dim: Sequence[int], normalization: int, onesided: bool) -> Parts:
    shape = nodes.shape(self.real)
    axes = [axis % len(shape) for axis in dim]
    extent = shape[axes[-1]]
    scale = _scale([shape[axis] for axis in axes], normalization)
    count = extent // 2 + 1 if onesided else extent
    parts = _along(nodes, Parts(self.real, None), axes[-1], extent, count, -1, scale)
    for axis in axes[:-1]:
        parts = _along(nodes, parts, axis, shape[axis], shape[axis], -1)
    return parts


def _complex_to_complex(nodes: Nodes, self: Parts, dim: Sequence[int], normalization: int, forward: bool) -> Parts:
    parts, shape = self, nodes.shape(self.real)
    axes = [axis % len(shape) for axis in dim]
    scale = _scale([shape[axis] for axis in axes], normalization)
    for axis in axes:
        parts = _along(nodes, parts, axis, shape[axis], shape[axis], -1 if forward else 1, scale)
        scale = 1.0
    return parts


def _complex_to_real(nodes: Nodes, self: Parts, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    parts, shape = self, nodes.shape(self.real)
    axes = [axis % len(shape) for axis in dim]
    scale = _scale([*(shape[axis] for axis in axes[:-1]), last_dim_size], normalization)
    for axis in axes[:-1]:
        parts = _along(nodes, parts, axis, shape[axis], shape[axis], 1)
    return _along(nodes, parts, axes[-1], last_dim_size, last_dim_size, 1, scale, halved=True).real


def _scale(extents: Sequence[int], normalization: int) -> float:
    count = float(np.prod(extents))
    return {0: 1.0, 1: 1 / sqrt(count), 2: 1 / count}[normalization]


def _along(
    nodes: Nodes, parts: Parts, axis: int, extent: int, count: int, sign: int, scale: float = 1.0, halved: bool = False
) -> Parts:
    """Return the first `count` numbers of a transform of `extent` along an axis; of half a symmetric spectrum, the real part."""
    shape = nodes.shape(parts.real)
    order = [each for each in range(len(shape)) if each != axis] + [axis]
    rows = [None if part is None else nodes.permuted(part, order) for part in parts]
    first = _divisor(extent)
    if extent > first + extent // first + _MOVES:
        made = _in_two(nodes, rows, first, extent // first, count, sign, scale, halved)
    else:
        given = extent // 2 + 1 if halved else extent
        made = _product(
            nodes, rows, _roots(extent, np.arange(given)[:, None], np.arange(count), sign, scale, halved), not halved
        )
    back = sorted(range(len(order)), key=order.__getitem__)
    return Parts(*(None if each is None else nodes.permuted(each, back) for each in made))


def _in_two(
    nodes: Nodes, rows: Any, first: int, second: int, count: int, sign: int, scale: float, halved: bool
) -> Parts:
    """Return a transform of the last axis in two stages: number b + second * a is element (a, b) of `first` times `second`."""
    extent, outer = first * second, nodes.shape(rows[0])[:-1]
    last = len(outer)
    swapped = [*range(last), last + 1, last]
    # Half a symmetric spectrum is padded to whole rows, whose numbers beyond the half have weight 0.
    height = (extent // 2) // second + 1 if halved else first
    if halved:
        rows = [_pad(nodes, each, height * second) for each in rows]
    grid = [
        None if each is None else nodes.permuted(nodes.viewed(each, [*outer, height, second]), swapped) for each in rows
    ]
    a, b = np.arange(height), np.arange(second)
    # Rows from a to numbers c below `first`: (b, a) to (b, c).
    roots = _roots(first, a[:, None], np.arange(first), sign, scale)
    if halved:
        counted = _weights(extent, b[:, None] + second * a)
        weights = nodes.constant(torch.from_numpy(counted.astype(np.float32)))
        grid = [nodes.call(aten.mul.Tensor, each, weights) for each in grid]
    made = _product(nodes, grid, roots)
    angles = 2 * np.pi * sign * (np.outer(b, np.arange(first)) % extent) / extent
    turned = _turn(nodes, made, np.cos(angles), np.sin(angles))
    # From b to numbers d below `second`: (c, b) to (c, d), which is number c + first * d.
    wanted = -(-count // first)
    ends = _product(
        nodes,
        [nodes.permuted(each, swapped) for each in turned],
        _roots(second, b[:, None], np.arange(wanted), sign),
        not halved,
    )
    found = []
    for each in ends:
        if each is not None:
            each = nodes.viewed(nodes.permuted(each, swapped), [*outer, wanted * first])
            each = nodes.call(aten.slice.Tensor, each, last, 0, count) if wanted * first > count else each
        found.append(each)
    return Parts(*found)


def _pad(nodes: Nodes, node: Any, count: int) -> Any:
    missing = count - nodes.shape(node)[-1]
    return nodes.call(aten.constant_pad_nd.default, node, [0, missing]) if missing else node


def _turn(nodes: Nodes, parts: Parts, cosines: Any, sines: Any) -> Parts:
    cosine, sine = (nodes.constant(torch.from_numpy(each.astype(np.float32))) for each in (cosines, sines))
    by = [[nodes.call(aten.mul.Tensor, part, each) for each in (cosine, sine)] for part in parts]
    real = nodes.call(aten.sub.Tensor, by[0][0], by[1][1])
    return Parts(real, nodes.call(aten.add.Tensor, by[0][1], by[1][0]))


def _roots(
    extent: int, given: Any, wanted: Any, sign: int, scale: float = 1.0, halved: bool = False
) -> tuple[Any, Any]:
    """Return cosines and sines of a transform from `given` to `wanted` numbers, without rounding errors at 0, and without -0."""
    angles = 2 * np.pi * sign * (given * wanted % extent) / extent
    weights = _weights(extent, given) * scale if halved else scale
    return np.cos(angles).round(15) * weights + 0.0, np.sin(angles).round(15) * weights + 0.0


def _weights(extent: int, numbers: Any) -> Any:
    """Return the weights of half a symmetric spectrum: 2, but 1 for numbers that mirror themselves, and 0 beyond the half."""
    own = (numbers == 0) | (2 * numbers == extent)
    return np.where(2 * numbers > extent, 0.0, np.where(own, 1.0, 2.0))


def _product(nodes: Nodes, rows: Any, roots: tuple[Any, Any], both: bool = True) -> Parts:
    """Return the parts of rows times complex roots, or the real part only, by one product of real matrices."""
    cosines, sines = roots
    upper = np.concatenate([cosines, sines], 1) if both else cosines
    matrix, data = upper, rows[0]
    if rows[1] is not None:
        lower = np.concatenate([-sines, cosines], 1) if both else -sines
        matrix = np.concatenate([upper, lower], 0)
        data = nodes.call(aten.cat.default, list(rows), -1)
    # Keyed by content, as many layers have the same transform.
    numbers = torch.from_numpy(np.ascontiguousarray(matrix, np.float32)).to(rows[0].meta["val"].dtype)
    weight = nodes.constant(numbers, (numbers.shape, numbers.dtype, numbers.numpy().tobytes()))
    made = nodes.call(aten.matmul.default, data, weight)
    if not both:
        return Parts(made, None)
    count, axis = cosines.shape[1], len(nodes.shape(made)) - 1
    return Parts(*(nodes.call(aten.slice.Tensor, made, axis, part * count, (part + 1) * count) for part in (0, 1)))


def _divisor(extent: int) -> int:
    """Return the greatest divisor of a number up to its square root."""
    return next(each for each in range(isqrt(extent), 0, -1) if extent % each == 0)


FOURIER = {
    "_fft_r2c.default": _of_fixed(_real_to_complex),
    "_fft_c2c.default": _of_fixed(_complex_to_complex),
    "_fft_c2r.default": _of_fixed(_complex_to_real),
}
