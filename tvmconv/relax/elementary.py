"""Exponential function, logarithm, sine, cosine, and powers by fixed numbers, as arithmetic that becomes vectors.

TVM calls the C library's, a number at a time: of 73,000 numbers 188 us for exp, 489 for log, 390 for sin and 565 for pow by 0.75,
where these take 10, 16, 17 and 9 (one core of a Zen 5). They keep within 3e-7 of the answer, relative to it, as long as that is a
normal number; sine and cosine within 2e-7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, inf, pi
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from .functions import FLOATS, Legalize
from .graph import scalar
from .simplify import constant

# log(2), its first bits so few that n times it is exact, and the rest.
_LOG2_HIGH, _LOG2_LOW = 0.693359375, -2.12194440e-4
# Cephes, expf.c and logf.c, the highest first: (e**r - 1 - r) / r**2, r up to log(2) / 2, and (log(1 + f) - f + f*f/2) / f**3, with
# 1 + f between the roots of 1/2 and 2.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
# sin(r) / r by r**2, r up to pi / 2: what Taylor's series leaves out is 6e-8 there.
_SIN = tuple((-1) ** k / factorial(2 * k + 1) for k in (5, 4, 3, 2, 1, 0))
# pi as the sum of two f64.
_PI_HIGH, _PI_LOW = pi, 1.2246467991473532e-16
# e**x of less is 0, of more infinity.
_LEAST_EXP, _MOST_EXP = -104.0, 89.0
# The bits of the root of 1/2, of 2**n those of n + 127, from the 23rd on.
_ROOT, _BIAS, _MANTISSA = 0x3F3504F3, 127, 23
_LEAST_NORMAL = 2.0**-126
# TVM's number for operators that FuseOps leaves alone. All of these expressions but powers have their argument dozens of times: of
# three, one within the other, TVM's passes did not come to an end.
_ALONE = {"op_pattern": 8}
# Powers by quarters up to this are roots and at most three products.
_MOST_POWER = 4


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    total = _f32(coefficients[0])
    for each in coefficients[1:]:
        total = total * x + _f32(each)
    return total


def exp(x: Any) -> Any:
    """Return e**x of an f32; of not a number that."""
    # Not by max and min, which do not promise that it stays.
    bounded = tirx.Select(x < _f32(_LEAST_EXP), _f32(_LEAST_EXP), x)
    bounded = tirx.Select(bounded > _f32(_MOST_EXP), _f32(_MOST_EXP), bounded)
    n = te.floor(bounded * _f32(1.4426950408889634) + _f32(0.5))
    r = bounded - n * _f32(_LOG2_HIGH) - n * _f32(_LOG2_LOW)
    whole = n.astype("int32")
    # In two steps: half of the least exponent is that of a normal number, as is half of the greatest.
    half = whole >> 1
    return (_polynomial(r, _EXP) * (r * r) + r + _f32(1)) * _power_of_two(half) * _power_of_two(whole - half)


def log(x: Any) -> Any:
    """Return the natural logarithm of an f32: of 0 minus infinity, of less not a number."""
    small = x < _f32(_LEAST_NORMAL)
    bits = tirx.reinterpret("int32", tirx.Select(small, x * _f32(2.0**_MANTISSA), x)) - _ROOT
    exponent = ((bits >> _MANTISSA) - tirx.Select(small, _MANTISSA, 0)).astype("float32")
    f = tirx.reinterpret("float32", (bits & ((1 << _MANTISSA) - 1)) + _ROOT) - _f32(1)
    tail = _polynomial(f, _LOG) * f * (f * f) + exponent * _f32(_LOG2_LOW) - f * f * _f32(0.5)
    finite = tail + f + exponent * _f32(_LOG2_HIGH)
    beyond = tirx.Select(x < _f32(inf), finite, x)
    return tirx.Select(x > _f32(0), beyond, tirx.Select(x < _f32(0), _f32(np.nan), x - _f32(inf)))


def sin(x: Any) -> Any:
    """Return the sine of an f32; of one beyond 2**50, whose neighbours are 2**27 from it, a number between -1 and 1."""
    wide = x.astype("float64")
    return _half_wave(wide, te.floor(wide * (1 / pi) + 0.5), 0.0)


def cos(x: Any) -> Any:
    """Return the cosine of an f32, as `sin` does the sine."""
    wide = x.astype("float64")
    n = te.floor(wide * (1 / pi))
    return _half_wave(wide, n + 1.0, -0.5)


def _half_wave(x: Any, n: Any, shift: float) -> Any:
    """Return the sine of ``x - shift*pi`` on the half wave of number n, in f64 where that is long."""
    turns = n + shift
    r = (x - turns * _PI_HIGH - turns * _PI_LOW).astype("float32")
    r = tirx.Select(r > _f32(pi / 2), _f32(pi / 2), r)
    r = tirx.Select(r < _f32(-pi / 2), _f32(-pi / 2), r)
    odd = n - te.floor(n * 0.5) * 2.0
    wave = _polynomial(r * r, _SIN[:-1]) * (r * r) * r + r
    return tirx.Select(odd > 0.5, -wave, wave)


def quarters(exponent: float | None) -> int | None:
    """Return the quarters of an exponent that `power` computes; None: it does not."""
    if exponent is None or not abs(exponent) <= _MOST_POWER or exponent * 4 != int(exponent * 4):
        return None
    return int(exponent * 4)


def power(x: Any, quarters: int) -> Any:
    """Return x to the power of a number of quarters."""
    whole, part = divmod(abs(quarters), 4)
    # As pow, of minus infinity and of -0 what it is of infinity and of 0, which their square roots are not.
    root = tirx.Select(x > _f32(-inf), te.sqrt(x), x * x)
    factors = [x * x] * (whole // 2) + [x] * (whole % 2) + [root] * (part // 2) + [te.sqrt(root)] * (part % 2)
    total = factors[0] if factors else _f32(1)
    for each in factors[1:]:
        total = total * each
    total = te.abs(total) if part else total
    return total if quarters >= 0 else _f32(1) / total


def _power_of_two(n: Any) -> Any:
    return tirx.reinterpret("float32", (n + _BIAS) << _MANTISSA)


def _f32(value: float) -> Any:
    return tirx.const(float(np.float32(value)), "float32")


def _by(function: Callable[[Any], Any], name: str, **attrs: int) -> Legalize:
    """Return how an operator on each number is legalized; of other types than f32 and f16 it is TVM's."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.ty.dtype) not in FLOATS:
            return call.op.get_attr("FLegalize")(builder, call)
        return builder.call_te(computed, call.args[0], primfunc_name_hint=name, primfunc_attrs=attrs)

    def computed(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return function(data(*at).astype("float32")).astype(data.dtype)

        return te.compute(data.shape, element, name, tag=topi.tag.ELEMWISE)

    return legalize


def _power(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    number = quarters(scalar(constant(call.args[1])))
    shape = getattr(call.args[0].ty, "shape", None)
    # LLVM makes a product of pow by 2, which what is around it is fused with.
    if number in (None, 8) or shape is None or len(shape) != call.ty.ndim:
        return call.op.get_attr("FLegalize")(builder, call)
    return _by(lambda x: power(x, number), "power")(builder, call)


# By the name of the operator.
ELEMENTARY = {
    "relax.cos": _by(cos, "cos", **_ALONE),
    "relax.exp": _by(exp, "exp", **_ALONE),
    "relax.log": _by(log, "log", **_ALONE),
    "relax.power": _power,
    "relax.sin": _by(sin, "sin", **_ALONE),
}
