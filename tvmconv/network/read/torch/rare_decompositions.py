"""Decompositions of ATen's operators that TVM's frontend (0.27) and PyTorch's decompositions lack, or compute less exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import copysign, inf
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND
from torch._prims_common.wrappers import elementwise_type_promotion_wrapper

aten = torch.ops.aten
# Coefficients of the logarithm of erfc in 1 / (1 + x / 2), the highest power first.
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip


def _known_extreme(extreme: Callable[[Any, Any], Any], self: Any, other: Any) -> Any:
    """Return ``fmax`` or ``fmin``, which ignore NaN."""
    found = torch.where(torch.isnan(other), self, extreme(self, other))
    return torch.where(torch.isnan(self), other, found)


def _is_below_zero(self: Any) -> Any:
    """Return ``signbit``; the sign of a zero is that of its reciprocal."""
    return (torch.where(self == 0, 1 / self, self) if self.is_floating_point() else self) < 0


@elementwise_type_promotion_wrapper(  # type: ignore[untyped-decorator]
    type_promoting_args=("self", "other"), type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT
)
def _with_sign(self: Any, other: Any) -> Any:
    size = self.abs()
    if not isinstance(other, torch.Tensor):
        return -size if copysign(1, other) < 0 else size
    return torch.where(_is_below_zero(other), -size, size)


def _identity(rows: Any, columns: Any = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Return ``eye``, for which PyTorch (2.13) would use a range of 16 bits from 256 rows on, a type without ranges."""
    columns = rows if columns is None else columns
    diagonal = torch.arange(rows, device=device).unsqueeze(-1) == torch.arange(columns, device=device)
    return diagonal.to(dtype or torch.get_default_dtype())


def _hypotenuse(self: Any, other: Any) -> Any:
    """Return ``hypot`` by a quotient, whose square neither overflows nor underflows; infinite beside NaN, like C's."""
    one, two = self.abs(), other.abs()
    most, least = torch.maximum(one, two), torch.minimum(one, two)
    ratio = least / torch.where(most == 0, 1, most)
    return torch.where((one == inf) | (two == inf), inf, most * torch.sqrt(1 + ratio * ratio))


def _log1p(self: Any) -> Any:
    """Return log(1 + x) without losing small x (Kahan): a factor corrects the rounding of 1 + x."""
    # The bound has no effect but to keep TVM's simplifier from taking (x + 1) - 1 for x.
    total = (self + 1.0).clamp_min(-inf)
    logarithm = total.log()
    # The divisor is 0 where the sum is 1, and infinite where x is.
    scaled = torch.where(total == self, logarithm, logarithm * (self / (total - 1)))
    return torch.where(total == 1, self, scaled)


def _expm1(self: Any) -> Any:
    """Return exp(x) - 1 without losing small x, by tanh: 2t / (1 - t) for t = tanh(x / 2); directly beyond 1."""
    half = torch.tanh(self * 0.5)
    return torch.where(self.abs() < 1, (half + half) / (1 - half), self.exp() - 1)


def _log_sigmoid(self: Any) -> Any:
    """Return the logarithm of a sigmoid: the negative softplus of the negative."""
    return -torch.nn.functional.softplus(-self)


def _erf_above(self: Any) -> Any:
    """Return ``erfc``: 1 - erf would cancel (Press et al., Numerical Recipes, section 6.2: a relative error of 1.2e-7); f64's is PyTorch's."""
    if self.dtype == torch.float64:
        return NotImplemented
    size = self.abs()
    near = 1 / (1 + 0.5 * size)
    total = torch.full_like(near, _ERFC[0])
    for factor in _ERFC[1:]:
        total = total * near + factor
    above = near * torch.exp(total - size * size)
    return torch.where(self < 0, 2 - above, above)


def _leaky(
    self: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Any, Any]:
    """Return ``rrelu`` for inference, whose slope is the mean of two bounds."""
    if training:
        raise ValueError("it draws random numbers")
    return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise


def _written_where(self: Any, mask: Any, source: Any) -> Any:
    """Return ``masked_scatter``: successive numbers of another tensor where a mask is true."""
    mask, data = torch.broadcast_tensors(mask, self)
    place = (mask.reshape(-1).cumsum(0) - 1).clamp_min(0)
    return torch.where(mask, source.reshape(-1)[place].reshape(data.shape), data)


def _bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Return a product of two vectors and a matrix for each output."""
    products = (input1 @ weight.permute(1, 0, 2).flatten(1)).unflatten(-1, (weight.shape[0], weight.shape[2]))
    total = (products @ input2.unsqueeze(-1)).squeeze(-1)
    return total if bias is None else total + bias


def _power_of_2(self: Any) -> Any:
    return torch.pow(2.0, self)


def _place(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Return ``searchsorted``: the number of elements of a sorted row below a number, or below and equal."""
    rows = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    rows = rows.unsqueeze(-2) if rows.ndim > 1 else rows
    numbers = self.unsqueeze(-1) if isinstance(self, torch.Tensor) else self
    below = rows <= numbers if right or side == "right" else rows < numbers
    if isinstance(numbers, torch.Tensor) and numbers.is_floating_point():
        below = below | torch.isnan(numbers)  # the greatest, as in sorts
    return below.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _bucket(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return _place(boundaries, self, out_int32=out_int32, right=right)


def _median(self: Any) -> Any:
    """Return the lower median of all numbers."""
    return _median_along(self.reshape(-1), 0)[0]


def _median_along(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """Return the lower median along an axis: the middle of the sorted numbers, or NaN if there is any."""
    value, place = _least_but(self, (self.shape[dim] + 1) // 2 if self.ndim else 1, dim, keepdim)
    if self.is_floating_point() and self.ndim:
        unknown, first = torch.isnan(self).max(dim, keepdim=keepdim)
        value, place = torch.where(unknown, float("nan"), value), torch.where(unknown, first, place)
    return value, place


def _least_but(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Return ``kthvalue``: the k-th of the sorted numbers, counted from 1."""
    data = self if self.ndim else self.reshape(1)
    value, place = (each.narrow(dim, k - 1, 1) for each in data.sort(dim))
    return (value, place) if keepdim and self.ndim else (value.squeeze(dim), place.squeeze(dim))


def _running(combine: Callable[[Any, Any], Any], data: Any, dim: int) -> Any:
    """Return the running combination along an axis, by rounds that add numbers 1, 2, 4 ... before (Hillis and Steele)."""
    extent, step = data.shape[dim], 1
    while step < extent:
        rest = combine(data.narrow(dim, step, extent - step), data.narrow(dim, 0, extent - step))
        data = torch.cat([data.narrow(dim, 0, step), rest], dim)
        step *= 2
    return data


def _running_extreme(extreme: Callable[[Any, Any], Any], self: Any, dim: int) -> Any:
    """Return ``cummax`` or ``cummin``, with the last index of each extreme; after a NaN, both are the NaN's."""
    if not self.ndim:
        return self, torch.zeros_like(self, dtype=torch.int64)
    if isinstance(self.shape[dim], torch.SymInt):
        return NotImplemented
    best = _running(extreme, self, dim)
    found = (self == best) | (self != self)
    form = [1] * self.ndim
    form[dim] = -1
    places = torch.arange(self.shape[dim]).reshape(form)
    return best, _running(torch.maximum, torch.where(found, places, 0), dim)


def _running_logarithm(self: Any, dim: int) -> Any:
    """Return ``logcumsumexp``: the logarithm of the running sum of exponentials."""
    if self.ndim and isinstance(self.shape[dim], torch.SymInt):
        return NotImplemented
    return _running(torch.logaddexp, self, dim) if self.ndim else self


def _distances(x1: Any, x2: Any, p: float, compute_mode: int | None) -> Any:
    """Return ``cdist``: the distances between all of some rows and all of others."""
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def _overwrite(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Return the new value of a tensor that is overwritten entirely."""
    return src.to(self.dtype).expand(self.shape)


def _add_products(self: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """Return ``addbmm``, a sum over the batch; a factor of 0 drops its operand, also NaN."""
    product = (batch1 @ batch2).sum(0) * alpha
    return self * beta + product if beta else product


def _sort(self: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """Return ``sort.stable`` as any sort, since ours are stable."""
    return self.sort(dim, descending)


def _first_of_sort(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return ``topk`` in order, even if none is requested."""
    return NotImplemented if sorted else aten.topk.default(self, k, dim, largest, True)


RARER: Mapping[Any, Callable[..., Any]] = {
    aten._cdist_forward.default: _distances,
    aten.addbmm.default: _add_products,
    aten.addmv.default: torch._decomp.decomposition_table[aten.addmv.default],
    aten.bilinear.default: _bilinear,
    aten.bucketize.Scalar: _bucket,
    aten.bucketize.Tensor: _bucket,
    aten.copy.default: _overwrite,
    aten.copysign.Scalar: _with_sign,
    aten.copysign.Tensor: _with_sign,
    aten.cummax.default: partial(_running_extreme, torch.maximum),
    aten.cummin.default: partial(_running_extreme, torch.minimum),
    aten.erfc.default: _erf_above,
    aten.exp2.default: _power_of_2,
    aten.expm1.default: _expm1,
    aten.eye.default: _identity,
    aten.eye.m: _identity,
    aten.fmax.default: partial(_known_extreme, torch.maximum),
    aten.fmin.default: partial(_known_extreme, torch.minimum),
    aten.hypot.default: _hypotenuse,
    aten.kthvalue.default: _least_but,
    aten.log1p.default: _log1p,
    aten.log_sigmoid.default: _log_sigmoid,
    aten.logcumsumexp.default: _running_logarithm,
    aten.masked_scatter.default: _written_where,
    aten.median.default: _median,
    aten.median.dim: _median_along,
    aten.rrelu_with_noise_functional.default: _leaky,
    aten.searchsorted.Scalar: _place,
    aten.searchsorted.Tensor: _place,
    aten.signbit.default: _is_below_zero,
    aten.sort.stable: _sort,
    aten.topk.default: _first_of_sort,
}
