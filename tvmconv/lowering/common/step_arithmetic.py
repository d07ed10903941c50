"""The steps of epilogues as arithmetic on vectors of f32.

Exact steps are the formula itself, rounded after each operation. The others keep within 4e-7 of the formula, relative to
it, wherever that is a normal number, after Cody and Waite, "Software Manual for the Elementary Functions": e**x = 2**n * e**r
with x = n*log(2) + r; what would cancel or overflow is scaled, or summed in two parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, pi, sqrt
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad

from ...epilogue import QUANTIZERS, Step
from .quotient_by_products import reciprocal_of

# log(2), its first bits so few that their product with n is exact, and the rest.
LOG2_HIGH, LOG2_LOW = 0.693359375, -2.12194440e-4
# The highest first: (e**r - 1 - r) / r**2 and e**r, r up to log(2) / 2; e**(r/2), r up to log(2); and erfc(a / sqrt(2)) / 2 *
# e**(a*a/2) * (a + 4) by u = (a - 4) / (a + 4), a up to 14.5. Fitted by least squares, weighted until the largest relative
# error was least (1e-8 of e**r - 1, 1e-7, 4e-9, 1e-8).
_EXPM1 = (1.3882517e-3, 8.3665475e-3, 4.1667201e-2, 0.16666543, 0.49999997)
_EXP = (8.3125011e-3, 4.1890331e-2, 0.16667115, 0.4999923, 1.0, 1.0)
_EXP_HALF = (2.1583037e-5, 2.6154434e-4, 2.6042786e-3, 2.0833144e-2, 0.12499998, 0.5, 1.0)
_TAIL = (
    -1.3197184e-4, 1.7935413e-4, 1.5699235e-3, -3.5125539e-3, -7.5252713e-3,
    6.040383e-2, -1.8652344e-1, 3.871369e-1, -6.0789657e-1, 7.5528514e-1,
)  # fmt: skip
# Powers of two that scale GELU's last factor on the way, so that it is normal.
UP, DOWN = 64, 2.0**-64
# Below this bound a sigmoid is subnormal, above the other it is 1; e**-104 is less than half of the least f32 number. Quotients by
# 1 + e**-x are quotients by 2**-24 times that, which is finite.
_LEAST_SIGMOID, _MOST_SIGMOID, LEAST_SILU, LESS = -88.0, 20.0, -104.0, 24
# Added to a number, and taken off again, it rounds it to a whole one.
ROUND = 1.5 * 2**23
# Limits beyond which the answers are 0, or what infinity gives.
_MOST_TANH, _LEAST_ELU, MOST_GELU, LEAST_GELU_TANH, MOST_GELU_TANH = 9.1, -18.0, 14.5, -10.7, 6.0
TANH_1 = 2 * sqrt(2 / pi)
TANH_3 = 0.044715 * TANH_1


class Vector:
    """Arithmetic on the lanes of one value, `x`. Values used more than once are stored in registers.

    TVM's Let would do, but its analyzer puts a Let's value wherever the variable stands, one in the other.

    Parameters
    ----------
    statements
        Where the stores go.
    fused
        Whether the target has multiply-adds that round once: elsewhere each lane takes a function call.
    saturates
        Whether vectors are rounded to integers, and these narrowed with saturation, by instructions.
    """

    def __init__(self, value: Any, statements: list[Any], fused: bool = True, saturates: bool = False) -> None:
        self._lanes = value.ty.dtype.lanes
        self._statements = statements
        self._fused, self._saturates = fused, saturates
        self.x = self._named(value)

    def step(self, step: Step, *array: Any) -> Any:
        """Return a step applied to x; `array` is the step's operand of scale, prelu or bounds."""
        x, numbers = self.x, [self._const(number) for number in step.numbers]
        zero = self._const(0)
        name = step.name
        # `Mul` and not `*`, by which a lane, but no vector, times 0 were 0, whose sign is that of x.
        if name in ("relu", "clip"):
            return self._clip(x, *(step.numbers or (0.0, inf)))
        if name == "scale":
            return fence(x * array[0])
        if name in ("leaky", "prelu"):
            return tirx.Select(x < zero, fence(tirx.Mul((*array, *numbers)[0], x)), x)
        if name == "hardsigmoid":
            return self._clip(self._fma(numbers[0], x, numbers[1]), 0.0, 1.0)
        if name == "hardswish":
            return self._hardswish()
        if name == "elu":
            return tirx.Select(x > zero, x, tirx.Mul(numbers[0], self._expm1(self._clip(x, _LEAST_ELU, 0.0))))
        if name == "tanh":
            return self._tanh()
        if name == "sigmoid":
            one, clipped = self._const(1), self._clip(x, _LEAST_SIGMOID, _MOST_SIGMOID)
            # The power of NaN has arbitrary bits: NaN is added separately.
            return one / (self._fma(clipped, zero, one) + self._exp(-clipped, 0))
        if name == "silu":
            clipped = self._clip(x, LEAST_SILU, _MOST_SIGMOID)
            return self._gated(clipped, LEAST_SILU, clipped)
        if name in QUANTIZERS:
            return self._quantized(step, *array)
        return self._gelu() if name == "gelu" else self._gelu_tanh()

    def whole(self, step: Step, least: Any, greatest: Any, is_number: Any) -> Any:
        """Return x rounded to whole numbers as a register, before the zero point; those beyond 16 bits are bounds."""
        added = self._quotient_of(step, least, greatest, is_number)
        return self._named(tirx.call_llvm_pure_intrin(self._type("int32"), "llvm.lrint", added))

    def _quantized(self, step: Step, least: Any, greatest: Any, is_number: Any) -> Any:
        """Return x divided by a scale and rounded, ties to even, plus the zero point, clipped; for NaN the zero point.

        With `is_number`, x is not NaN, and as small as the bound of scales in `Epilogue` makes it.
        """
        zero_point = int(step.numbers[1]) * ("before" not in step.name)
        if self._saturates:
            return self._narrow(
                self.whole(step, least, greatest, is_number), zero_point, int(least.value), int(greatest.value)
            )
        # The last bits of so large a sum are a whole number.
        whole = self._bits(self._quotient_of(step, least, greatest, is_number) + self._const(ROUND))
        return whole + self._integer(zero_point - int(np.float32(ROUND).view(np.int32)))

    def _quotient_of(self, step: Step, least: Any, greatest: Any, is_number: Any) -> Any:
        """Return x divided by a scale, plus a zero point that is added before rounding, within bounds once it is rounded."""
        scale, zero_point = step.numbers
        low, high = (int(bound.value) - int(zero_point) for bound in (least, greatest))
        known = bool(int(is_number.value))
        products = reciprocal_of(scale, low, high) if step.name == "q" and self._fused else None
        if products is not None:
            # The conversion returns the least integer for numbers out of range; below, that is what the lower bound makes of them.
            x = self._clip(self.x, -inf if known and self._saturates else low * scale, high * scale)
            first, second = map(self._const, products)
            quotient = self._fma(x, first, x * second) if products[1] else x * first
            return quotient if known else self._number_or_zero(quotient)
        factor = self._const(float(np.float32(1) / np.float32(scale)))
        divided = fence(self.x * factor if "reciprocal" in step.name else self.x / self._const(scale))
        quotient = self._clip(divided if known else self._number_or_zero(divided), low, high)
        return fence(quotient + self._const(zero_point)) if "before" in step.name and zero_point else quotient

    def _narrow(self, whole: Any, zero_point: int, least: int, greatest: int) -> Any:
        """Return whole numbers plus the zero point, narrowed with saturation: each cast with its bounds is one instruction."""
        short = self._bound(whole, "int32", -(2**15), 2**15 - 1).astype(self._type("int16"))
        if zero_point:
            zero = tirx.const(zero_point, self._type("int16"))
            short = tirx.call_llvm_pure_intrin(self._type("int16"), "llvm.sadd.sat", short, zero)
        return self._bound(self._named(short), "int16", least, greatest)

    def _bound(self, x: Any, element: str, least: int, greatest: int) -> Any:
        low, high = (tirx.const(bound, self._type(element)) for bound in (least, greatest))
        return tirx.min(tirx.max(x, low), high)

    def _number_or_zero(self, x: Any) -> Any:
        """Return x, with NaN replaced by 0."""
        x = self._named(x)
        return self._named(tirx.Select(tirx.isnan(x), self._const(0), x))

    def _hardswish(self) -> Any:
        """``x * clip(x / 6 + 1/2, 0, 1)``; x is clipped first, so the quotient needs no bounds.

        The quotient is a corrected product, rounded like a quotient wherever the sum depends on it.
        """
        clipped = self._clip(self.x, -3.0, 3.0)
        quotient = self._quotient(clipped, self._const(6), self._const(1 / 6))
        return fence(self.x * (quotient + self._const(0.5)))

    def _tanh(self) -> Any:
        """``(e**2a - 1) / (e**2a + 1)`` with the sign of x, a = abs(x)."""
        power = self._named(self._expm1(self._magnitude(_MOST_TANH) * self._const(2)))
        return self._signed(power / (power + self._const(2)))

    def _gelu(self) -> Any:
        """``max(x, 0) - a * q``, q = erfc(a / sqrt(2)) / 2 of a = abs(x)."""
        a = self._magnitude(MOST_GELU)
        beyond = self._named(a + self._const(4))
        inverse = self._named(self._const(1) / beyond)
        tail = self._named(self._polynomial(self._named((a - self._const(4)) * inverse), _TAIL))
        factor = self._quotient(tail, beyond, inverse)
        # -a*a = 2*n*log(2) + r, the square in an fma: half of the last bit of 210 is more than 4e-7.
        shift = self._const(ROUND + UP)
        rounded = self._named(self._fma(a * self._const(-0.5 / log(2)), a, shift))
        n = self._named(rounded - shift)
        high = self._rounded_once(-a, a, n * self._const(-2 * LOG2_HIGH))
        r = self._named(self._fma(n, self._const(-2 * LOG2_LOW), high))
        power = self._scaled(factor * self._polynomial(r, _EXP_HALF), rounded)
        return self._fma(a * power, self._const(-DOWN), self._positive())

    def _gelu_tanh(self) -> Any:
        """``x / (1 + e**-v)``, v = x * (c1 + c3*x*x), summed in two parts."""
        (c1, c1_low), (c3, c3_low) = self._two(TANH_1), self._two(TANH_3)
        x = self._clip(self.x, LEAST_GELU_TANH, MOST_GELU_TANH)
        square = self._named(x * x)
        product = self._named(c3 * square)
        beyond = self._fma(c3, self._rounded_once(x, x, -square), self._fma(c3_low, square, c1_low))
        low = self._rounded_once(c3, square, -product) + beyond
        # Both parts are taken, since the larger depends on x: the rounding error of each (Knuth's two-sum).
        total = self._named(c1 + product)
        part = self._named(total - c1)
        low = self._named(low + ((c1 - (total - part)) + (product - part)))
        high = self._named(x * total)
        return self._gated(x, LEAST_GELU_TANH, high, self._rounded_once(x, total, -high) + x * low)

    def _gated(self, clipped: Any, least: float, high: Any, low: Any = None) -> Any:
        """Return ``x / (1 + e**-(high + low))``; `clipped` is x bounded below by `least` and above where the gate is 1."""
        denominator = self._exp(-high, -LESS, low) + self._const(2.0**-LESS)
        beyond = tirx.Select(self.x < self._const(least), self._negative_zero(), self.x - clipped)
        return self._fma(clipped / denominator, self._const(2.0**-LESS), beyond)

    def _exp(self, x: Any, up: int, low: Any = None) -> Any:
        """Return ``e**(x - low) * 2**up``, which must be a normal number; `low` is less than the last bit of x."""
        r, n = self._reduced(x, low, up)
        return self._scaled(self._polynomial(r, _EXP), n)

    def _scaled(self, x: Any, n: Any) -> Any:
        """Return ``x * 2**k``, a normal number like x; k are the last bits of `n`."""
        return self._number(self._bits(x) + (self._bits(n) << self._integer(23)))

    def _expm1(self, x: Any) -> Any:
        """Return ``e**x - 1``, x from -18 to 19 or so."""
        r, n = self._reduced(x)
        scale = self._named(self._number((self._bits(n) << self._integer(23)) + self._integer(127 << 23)))
        return self._fma(scale, self._expm1_small(r), scale - self._const(1))

    def _reduced(self, x: Any, low: Any = None, up: int = 0) -> tuple[Any, Any]:
        """Return r, at most half of log(2), with x - low = n*log(2) + r, and a number whose last bits are those of n + up."""
        x, shift = self._named(x), self._const(ROUND + up)
        # The last bit of so large a number is 1.
        rounded = self._named(self._fma(x, self._const(1.4426950408889634), shift))
        n = self._named(rounded - shift)
        high = self._fma(n, self._const(-LOG2_HIGH), x)
        return self._named(self._fma(n, self._const(-LOG2_LOW), high if low is None else high - low)), rounded

    def _expm1_small(self, r: Any) -> Any:
        return self._fma(r * r, self._polynomial(r, _EXPM1), r)

    def _polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """Return a polynomial, the highest coefficient first: Horner's rule in x*x of pairs, which do not wait for each other.

        The last alone is added by x: rounding x*x is then less than rounding the sum.
        """
        *rest, last = map(self._const, coefficients)
        square, rest = self._named(x * x), rest[::-1]
        pairs = [self._fma(high, x, low) for low, high in zip(rest[::2], rest[1::2], strict=False)]
        total = rest[-1] if len(rest) % 2 else pairs.pop()
        for pair in reversed(pairs):
            total = self._fma(total, square, pair)
        return self._fma(total, x, last)

    def _fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return ``a * b + c``, rounded once if that is one instruction."""
        return fma(a, b, c) if self._fused else tirx.call_llvm_pure_intrin(str(a.ty.dtype), "llvm.fmuladd", a, b, c)

    def _rounded_once(self, a: Any, b: Any, c: Any) -> Any:
        """Return ``a * b + c`` as if rounded once: in f64 the product is exact."""
        if self._fused:
            return fma(a, b, c)
        wide, dtype = self._type("float64"), a.ty.dtype
        return tirx.Cast(dtype, tirx.Cast(wide, a) * tirx.Cast(wide, b) + tirx.Cast(wide, c))

    def _quotient(self, x: Any, divisor: Any, inverse: Any) -> Any:
        """Return ``x / divisor``, correctly rounded: the product with the rounded reciprocal, and a correction."""
        if not self._fused:
            return x / divisor
        product = self._named(x * inverse)
        return fma(fma(-product, divisor, x), inverse, product)

    def _bits(self, x: Any) -> Any:
        return tirx.reinterpret(self._type("int32"), x)

    def _number(self, bits: Any) -> Any:
        return tirx.reinterpret(self._type("float32"), bits)

    def _magnitude(self, most: float) -> Any:
        """Return abs(x), at most `most`."""
        return self._clip(self._number(self._bits(self.x) & self._integer(0x7FFFFFFF)), -inf, most)

    def _signed(self, value: Any) -> Any:
        value = self._named(value)
        return tirx.Select(self.x < self._const(0), -value, value)

    def _positive(self) -> Any:
        """Return ``max(x, 0)``, but NaN for minus infinity."""
        return tirx.Select(self.x < self._const(0), self._negative_zero(), self.x)

    def _negative_zero(self) -> Any:
        """Return ``x * 0`` for negative x: -0, but NaN for minus infinity."""
        return self._fma(self.x, self._const(0), self._const(-0.0))

    def _clip(self, x: Any, low: float, high: float) -> Any:
        """Return x within bounds; NaN stays NaN, which TVM's max and min do not promise."""
        if low > -inf:
            x = self._named(x)
            x = tirx.Select(x < self._const(low), self._const(low), x)
        if high < inf:
            x = self._named(x)
            x = tirx.Select(x > self._const(high), self._const(high), x)
        return self._named(x)

    def _two(self, value: float) -> tuple[Any, Any]:
        """Return a number as the sum of two of f32."""
        high = float(np.float32(value))
        return self._const(high), self._const(value - high)

    def _const(self, value: float) -> Any:
        return tirx.const(float(np.float32(value)), self._type("float32"))

    def _integer(self, value: int) -> Any:
        return tirx.const(value, self._type("int32"))

    def _named(self, value: Any) -> Any:
        if isinstance(value, TensorLoad) and value.source.scope() == "local":
            return value
        element = str(value.ty.dtype).partition("x")[0]
        register = tirx.decl_buffer((self._lanes,), element, "x", scope="local")
        at = [tirx.Ramp(0, 1, self._lanes) if self._lanes > 1 else 0]
        self._statements += [tirx.AllocBuffer(register), tirx.BufferStore(register, value, at)]
        return tirx.BufferLoad(register, at)

    def _type(self, element: str) -> str:
        return element if self._lanes == 1 else f"{element}x{self._lanes}"


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c`` rounded once: an instruction of every CPU that kernels are built for, but a call for each lane of WebAssembly's."""
    return tirx.call_llvm_pure_intrin(str(a.ty.dtype), "llvm.fma", a, b, c)


def fence(product: Any) -> Any:
    """Return a product that code generation does not fuse with a later addition."""
    return tirx.call_llvm_pure_intrin(str(product.ty.dtype), "llvm.arithmetic.fence", product)
