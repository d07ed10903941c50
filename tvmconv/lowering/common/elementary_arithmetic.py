"""Elementary functions of f32 as arithmetic on vectors; C libraries compute one number at a time.

They are operators in tensor expressions, which schedules and TVM's passes treat as plain arithmetic; `activations.py` replaces them by
this. Their relative error is at most 3e-7 where the answer is a normal number; of zeros, infinities and NaN their answers are those of
C's functions. Sine, cosine and tangent of numbers beyond 2**50, whose neighbours are 2**27 away, are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import factorial, frexp, inf, isfinite, log, nan, pi
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PrimType

from ...algorithms.epilogue import register_operator
from .step_arithmetic import LOG2_HIGH, LOG2_LOW, Vector

# Cephes, expf.c, logf.c, atanf.c and asinf.c, the highest first: (e**r - 1 - r) / r**2, r up to log(2) / 2; (log(1 + f) - f + f*f/2)
# / f**3, with 1 + f between the roots of 1/2 and 2; (atan(r) - r) / r**3 and (asin(r) - r) / r**3 by r**2, r up to tan(pi/8) and 1/2.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
# sin(r) / r by r**2, r up to pi / 2: what Taylor's series leaves out is 6e-8 there.
_SIN = tuple((-1) ** k / factorial(2 * k + 1) for k in (5, 4, 3, 2, 1, 0))
# erf(a) / a by a*a, a up to 1, and -log(erfc(a)), a from 1 to 4. Fitted by least squares, weighted until the largest relative error
# was least (4e-8, 1e-9).
_ERF = (-5.6314148e-4, 4.9175494e-3, -2.6711309e-2, 1.128018e-1, -3.7612325e-1, 1.1283791)
_TAIL = (-1.8638121e-4, 2.9476774e-3, -2.1838138e-2, 1.0310691e-1, 6.3814467e-1, 1.1270893, 3.4149949e-4)
# log(1 + t) / t by 2*t - 1, t from 0 to 1: fitted likewise (5e-9).
_LOG_OF_MORE = (
    -6.3359066e-6, 2.0520914e-5, -5.2733865e-5, 1.8087733e-4, -6.4282161e-4,
    2.2897171e-3, -8.4609624e-3, 3.3152251e-2, -1.4426356e-1, 8.1093022e-1,
)  # fmt: skip
# log((1 + s) / (1 - s)) / 2s by s*s, in f64: s up to 0.172, so that the terms left out are 3e-12.
_ATANH = tuple(1 / (2 * k + 1) for k in range(6, -1, -1))
# pi and its half as the sum of two f64, or f32.
_PI_HIGH, _PI_LOW = pi, 1.2246467991473532e-16
_HALF_HIGH, _HALF_LOW = 1.5707963705062866, -4.371139000186241e-8
# e**x is 0 below the first, infinite above the second; half of e**x is infinite above the last.
_LEAST_EXP, _MOST_EXP, _MOST_HALF = -104.0, 89.0, 90.0
# erf is 1 above.
_MOST_ERF = 4.0
# The bits of the root of 1/2, of 2**n those of n + 127, from the 23rd on.
_ROOT, _BIAS, _MANTISSA = 0x3F3504F3, 127, 23
_LEAST_NORMAL = 2.0**-126
_SIGN, _UNSIGNED = -(2**31), 2**31 - 1
# Three times the first is finite, and 2/5 of the second is a normal number.
_LARGE, _LITTLE = 1e38, 2.0**-100
# Number from which 1 added to its square changes nothing.
_MUCH = 1e4
# Bits of a digit of a quotient, whose product with 24 bits is exact in f64; its last is lost to rounding.
_DIGIT = 29
# tan(pi/8) and tan(3*pi/8).
_EIGHTH, _THREE_EIGHTHS = 0.4142135623730950, 2.414213562373095


class Elementary(Vector):
    """Functions of the lanes of one value, `x`, or of two."""

    def __init__(self, value: Any, statements: list[Any], fused: bool = True) -> None:
        super().__init__(value, statements, fused)
        self._zero, self._one = self._const(0), self._const(1)

    def named(self, value: Any) -> Any:
        """Return a value in a register."""
        return self._named(value)

    def exp(self) -> Any:
        """``e**x``."""
        return self._power_of_e(self._clip(self.x, _LEAST_EXP, _MOST_EXP))

    def log(self) -> Any:
        """The natural logarithm: minus infinity of 0, NaN of negative numbers."""
        return self._logarithm(self.x)

    def softplus(self) -> Any:
        """``log(1 + e**x)``, computed as ``max(x, 0) + log(1 + e**-|x|)``, whose logarithm is of a number from 1 to 2."""
        t = self._named(self._power_of_e(self._clip(-self._absolute(self.x), _LEAST_EXP, 0.0)))
        more = self._horner(self._named(t + t - self._one), _LOG_OF_MORE)
        return self._fma(t, more, self._clip(self.x, 0.0, inf))

    def tanh_softplus(self) -> Any:
        """The hyperbolic tangent of a softplus, the factor of mish: ``n / (n + 2)``, n = e**x * (e**x + 2); 1 from x = 20 on."""
        power = self._named(self._power_of_e(self._clip(self.x, _LEAST_EXP, 20.0)))
        n = self._named(power * (power + self._const(2)))
        return n / (n + self._const(2))

    def sin(self) -> Any:
        """The sine."""
        wide = self._wide(self.x)
        r, odd, _ = self._half_wave(wide, tirx.floor(wide * self._double(1 / pi) + self._double(0.5)), 0.0)
        return self._negated(self._sine(r), odd)

    def cos(self) -> Any:
        """The cosine."""
        wide = self._wide(self.x)
        r, odd, _ = self._half_wave(wide, tirx.floor(wide * self._double(1 / pi)) + self._double(1), -0.5)
        return self._negated(self._sine(r), odd)

    def tan(self) -> Any:
        """The tangent: the sine of the rest divided by that of pi / 2 minus the rest, which is its cosine."""
        wide = self._wide(self.x)
        r, _, rest = self._half_wave(wide, tirx.floor(wide * self._double(1 / pi) + self._double(0.5)), 0.0)
        return self._sine(r) / self._sine(rest)

    def erf(self) -> Any:
        """The error function: a polynomial up to 1, beyond it 1 - e**-p of a polynomial p."""
        a = self._absolute(self.x)
        near = a * self._horner(self._named(a * a), _ERF)
        far = self._one - self._power_of_e(self._named(-self._horner(self._clip(a, -inf, _MOST_ERF), _TAIL)))
        return self._signed_as(tirx.Select(a < self._one, near, far), self.x)

    def atan(self) -> Any:
        """The arc tangent."""
        return self._signed_as(self._arc_tangent(self._absolute(self.x), self._one), self.x)

    def atan2(self, other: Any) -> Any:
        """The angle of the point (other, x)."""
        x = self._named(other)
        high, low = self._absolute(self.x), self._absolute(x)
        # Of two zeros 0, of two infinities an eighth of the circle.
        both = tirx.all(high.equal(self._const(inf)), low.equal(self._const(inf)))
        most = self._named(tirx.Select(high > low, high, low))
        large, little = (most > self._const(_LARGE), most < self._const(_LITTLE))
        up = tirx.Select(little, self._const(1 / _LITTLE), self._one)
        factor = self._named(tirx.Select(large, self._const(0.25), up))
        above = self._named(tirx.Select(both, self._one, high * factor))
        beside = self._named(tirx.Select(tirx.any(both, most.equal(self._zero)), self._one, low * factor))
        angle = self._named(self._arc_tangent(above, beside))
        back = self._const(2 * _HALF_HIGH) - (angle - self._const(2 * _HALF_LOW))
        return self._signed_as(tirx.Select(self._bits(x) < self._integer(0), back, angle), self.x)

    def fmod(self, other: Any) -> Any:
        """Exact remainder of a division, with the sign of x: a long division by digits of so few bits that products are exact."""
        x, y = self._wide(self.x), self._wide(other)
        per = self._named(self._double(1) / y)
        upper = tirx.const(-(1 << (53 - _DIGIT)), self._type("int64"))
        for _ in range(_count_digits(other)):
            quotient = self._named(tirx.trunc(x * per))
            digit = tirx.reinterpret(self._type("int64"), quotient) & upper
            x = self._named(x - tirx.reinterpret(self._type("float64"), digit) * y)
        size = self._named(tirx.Select(y < self._double(0), -y, y))
        # The last digit may be one too many or too few.
        rest = self._named(tirx.Select(self.x < self._zero, -x, x))
        rest = self._named(tirx.Select(rest < self._double(0), rest + size, rest))
        rest = self._named(tirx.Select(rest >= size, rest - size, rest))
        answer = self._signed_as(tirx.Cast(self._type("float32"), rest), self.x)
        is_whole = tirx.all(size.equal(self._double(inf)), self._absolute(self.x) < self._const(inf))
        return tirx.Select(is_whole, self.x, answer)

    def asin(self) -> Any:
        """The arc sine; NaN beyond 1."""
        small, near, far = self._arc_sine()
        return self._signed_as(tirx.Select(small, near, self._const(pi / 2) - far), self.x)

    def acos(self) -> Any:
        """The arc cosine; NaN beyond 1."""
        small, near, far = self._arc_sine()
        quarter = self._const(_HALF_HIGH) - (self._signed_as(near, self.x) - self._const(_HALF_LOW))
        return tirx.Select(small, quarter, tirx.Select(self.x < self._zero, self._const(pi) - far, far))

    def sinh(self) -> Any:
        """Half of ``e**x - e**-x``, by ``e**a - 1`` of small numbers."""
        a = self._absolute(self.x)
        power = self._named(self._expm1(self._clip(a, -inf, 10.0)))
        near = (power + power / (power + self._one)) * self._const(0.5)
        far = self._power_of_e(self._clip(a, -inf, _MOST_HALF), -1)
        return self._signed_as(tirx.Select(a < self._const(10), near, far), self.x)

    def cosh(self) -> Any:
        """Half of ``e**x + e**-x``."""
        half = self._named(self._power_of_e(self._clip(self._absolute(self.x), -inf, _MOST_HALF), -1))
        return half + self._const(0.25) / half

    def asinh(self) -> Any:
        """The inverse of the hyperbolic sine."""
        a = self._absolute(self.x)
        few = self._clip(a, -inf, _MUCH)
        square = self._named(few * few)
        near = self._logarithm_beside_1(self._named(few + square / (self._one + tirx.sqrt(square + self._one))))
        return self._signed_as(
            tirx.Select(a < self._const(_MUCH), near, self._logarithm(a) + self._const(log(2))), self.x
        )

    def acosh(self) -> Any:
        """The inverse of the hyperbolic cosine; NaN below 1."""
        above = self._named(self._clip(self.x, -inf, _MUCH) - self._one)
        near = self._logarithm_beside_1(self._named(above + tirx.sqrt(above * (above + self._const(2)))))
        far = self._logarithm(self.x) + self._const(log(2))
        return tirx.Select(self.x > self._const(_MUCH), far, tirx.Select(self.x < self._one, self._const(nan), near))

    def atanh(self) -> Any:
        """The inverse of the hyperbolic tangent; NaN beyond 1."""
        a = self._absolute(self.x)
        return self._signed_as(
            self._logarithm_beside_1(self._named((a + a) / (self._one - a))) * self._const(0.5), self.x
        )

    def pow(self, other: Any) -> Any:
        """A power of x: e to the power of a product with its logarithm, in f64, which keeps enough digits of a large product."""
        x, y = self.x, self._named(other)
        a = self._absolute(x)
        bits, exponent = self._split(a)
        m = self._named(self._wide(self._number(bits)))
        s = self._named((m - self._double(1)) / (m + self._double(1)))
        logarithm = self._wide(exponent) * self._double(log(2)) + s * self._double(2) * self._horner(
            self._named(s * s), _ATANH, self._double
        )
        product = self._named(logarithm * self._wide(y))
        for bound, is_beyond in ((self._double(_LEAST_EXP), tirx.LT), (self._double(_MOST_EXP), tirx.GT)):
            product = self._named(tirx.Select(is_beyond(product, bound), bound, product))
        n = self._named(tirx.floor(product * self._double(1 / log(2)) + self._double(0.5)))
        r = self._named(tirx.Cast(self._type("float32"), product - n * self._double(log(2))))
        return self._with_ends(x, y, a, self._named(self._scaled_twice(self._power_of_little(r), self._whole(n))))

    def round(self) -> Any:
        """The nearest whole number, the even one of two."""
        return tirx.call_llvm_pure_intrin(str(self.x.ty.dtype), "llvm.rint", self.x)

    def _with_ends(self, x: Any, y: Any, a: Any, finite: Any) -> Any:
        """Return a power of x, `finite` where its magnitude `a` is neither 0 nor infinite."""
        infinite, size = self._const(inf), self._absolute(y)
        grows = self._named(tirx.Select(a > self._one, y, -y))
        end = tirx.Select(grows > self._zero, infinite, self._zero)
        is_end = tirx.any(a.equal(self._zero), a.equal(infinite), size.equal(infinite))
        power = self._named(tirx.Select(is_end, end, finite))
        half = self._named(size * self._const(0.5))
        is_whole = tirx.floor(size).equal(size)
        is_odd = tirx.all(is_whole, tirx.floor(half) < half, size < infinite)
        power = self._named(tirx.Select(tirx.all(self._bits(x) < self._integer(0), is_odd), -power, power))
        is_root = tirx.all(x < self._zero, a < infinite, tirx.Not(is_whole))
        is_none = tirx.any(tirx.isnan(x), tirx.isnan(y), is_root)
        power = self._named(tirx.Select(is_none, self._const(nan), power))
        is_one = tirx.any(y.equal(self._zero), x.equal(self._one), tirx.all(a.equal(self._one), size.equal(infinite)))
        return tirx.Select(is_one, self._one, power)

    def _power_of_e(self, x: Any, up: int = 0) -> Any:
        """Return ``e**x * 2**up`` for x within the bounds, also if the result is subnormal."""
        n = self._named(tirx.floor(x * self._const(1 / log(2)) + self._const(0.5)))
        r = self._named(x - n * self._const(LOG2_HIGH) - n * self._const(LOG2_LOW))
        return self._scaled_twice(self._power_of_little(r), self._whole(n) + self._integer(up))

    def _power_of_little(self, r: Any) -> Any:
        """Return ``e**r``, r up to log(2) / 2."""
        return self._horner(r, _EXP) * (r * r) + r + self._one

    def _scaled_twice(self, x: Any, n: Any) -> Any:
        """Return ``x * 2**n``, in two steps: half of the least exponent is that of a normal number, as is half of the greatest."""
        n = self._named(n)
        half = self._named(n >> self._integer(1))
        return x * self._power_of_two(half) * self._power_of_two(n - half)

    def _power_of_two(self, n: Any) -> Any:
        return self._number((n + self._integer(_BIAS)) << self._integer(_MANTISSA))

    def _logarithm(self, x: Any) -> Any:
        bits, exponent = self._split(x)
        f = self._named(self._number(bits) - self._one)
        square = self._named(f * f)
        tail = self._horner(f, _LOG) * f * square + exponent * self._const(LOG2_LOW) - square * self._const(0.5)
        finite = tail + f + exponent * self._const(LOG2_HIGH)
        beyond = tirx.Select(x < self._const(inf), finite, x)
        less = tirx.Select(x < self._zero, self._const(nan), x - self._const(inf))
        return tirx.Select(x > self._zero, beyond, less)

    def _logarithm_beside_1(self, x: Any) -> Any:
        """Return ``log(1 + x)`` for x >= 0, corrected by the rounding error of 1 + x."""
        total = self._named(self._one + x)
        lost = (x - (total - self._one)) / total
        return self._logarithm(total) + tirx.Select(total < self._const(inf), lost, self._zero)

    def _split(self, x: Any) -> tuple[Any, Any]:
        """Return the bits of m, between the roots of 1/2 and 2, and n, with x = m * 2**n, of a number above 0."""
        small = x < self._const(_LEAST_NORMAL)
        normal = self._named(tirx.Select(small, x * self._const(2.0**_MANTISSA), x))
        bits = self._named(self._bits(normal) - self._integer(_ROOT))
        less = tirx.Select(small, self._integer(_MANTISSA), self._integer(0))
        exponent = self._named(tirx.Cast(self._type("float32"), (bits >> self._integer(_MANTISSA)) - less))
        return self._named((bits & self._integer((1 << _MANTISSA) - 1)) + self._integer(_ROOT)), exponent

    def _half_wave(self, x: Any, number: Any, shift: float) -> tuple[Any, Any, Any]:
        """Return the rest of x after whole half waves, whether their number is odd, and the rest's distance to pi / 2."""
        n = self._named(number)
        turns = self._named(n + self._double(shift))
        rest = self._named(x - turns * self._double(_PI_HIGH) - turns * self._double(_PI_LOW))
        r = self._clip(self._named(tirx.Cast(self._type("float32"), rest)), -pi / 2, pi / 2)
        odd = n - tirx.floor(n * self._double(0.5)) * self._double(2) > self._double(0.5)
        beside = self._double(pi / 2) - tirx.Select(rest < self._double(0), -rest, rest)
        return r, odd, self._named(tirx.Cast(self._type("float32"), beside))

    def _sine(self, r: Any) -> Any:
        square = self._named(r * r)
        sine = self._horner(square, _SIN[:-1]) * square * r + r
        return self._named(tirx.Select(square.equal(self._zero), r, sine))  # the sine of -0 is -0

    def _negated(self, value: Any, condition: Any) -> Any:
        return tirx.Select(condition, -value, value)

    def _arc_tangent(self, high: Any, low: Any) -> Any:
        """Return the arc tangent of the quotient of two numbers that are at least 0."""
        steep, middle = high > low * self._const(_THREE_EIGHTHS), high > low * self._const(_EIGHTH)
        above = tirx.Select(steep, -low, tirx.Select(middle, high - low, high))
        below = tirx.Select(steep, high, tirx.Select(middle, high + low, low))
        base = tirx.Select(steep, self._const(pi / 2), tirx.Select(middle, self._const(pi / 4), self._zero))
        r = self._named(above / below)
        square = self._named(r * r)
        return base + (self._horner(square, _ATAN) * square * r + r)

    def _arc_sine(self) -> tuple[Any, Any, Any]:
        """Return whether a, the magnitude of x, is at most 1/2, its arc sine if so, and else pi / 2 less its arc sine."""
        a = self._absolute(self.x)
        small = a <= self._const(0.5)
        root = self._named(tirx.sqrt((self._one - a) * self._const(0.5)))
        r = self._named(tirx.Select(small, a, root))
        square = self._named(r * r)
        arc = self._named(self._horner(square, _ASIN) * square * r + r)
        return small, arc, self._named(arc + arc)

    def _absolute(self, x: Any) -> Any:
        return self._named(self._number(self._bits(x) & self._integer(_UNSIGNED)))

    def _signed_as(self, value: Any, x: Any) -> Any:
        """Return a number that is not below 0 with the sign of x."""
        return self._number(self._bits(value) | (self._bits(x) & self._integer(_SIGN)))

    def _horner(self, x: Any, coefficients: Sequence[float], const: Callable[[float], Any] | None = None) -> Any:
        const = const or self._const
        total = const(coefficients[0])
        for each in coefficients[1:]:
            total = self._fma(total, x, const(each))
        return total

    def _double(self, value: float) -> Any:
        return tirx.const(value, self._type("float64"))

    def _wide(self, x: Any) -> Any:
        return self._named(tirx.Cast(self._type("float64"), x))

    def _whole(self, x: Any) -> Any:
        return tirx.Cast(self._type("int32"), x)


NAMES = ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "fmod", "log", "pow", "round", "sin", "sinh", "softplus", "tan", "tanh_softplus")  # fmt: skip
# Operators by their names.
OPERATORS: Mapping[str, Op] = {name: register_operator(f"elementary_{name}") for name in NAMES}
_KNOWN = {operator.name: name for name, operator in OPERATORS.items()}


def _count_digits(divisor: Any) -> int:
    """Return how many digits quotients by a divisor have: a dividend's exponent is at most 128, and an unknown divisor's at least -149."""
    number = divisor.value if isinstance(divisor, tirx.Broadcast) else divisor
    least = frexp(abs(number.value))[1] - 1 if isinstance(number, tirx.FloatImm) and isfinite(number.value) else -149
    return -(-(129 - least) // (_DIGIT - 1))


def elementary(name: str, *given: Any) -> Any:
    """Return a function of f32 values, of `NAMES`, as a call of its operator."""
    return Call(OPERATORS[name], list(given), ret_ty=PrimType("float32"))


def is_elementary(call: Any, name: str = "") -> bool:
    """Return whether a call is of a function of `NAMES`, or of the one named."""
    known = _KNOWN.get(call.op.name) if isinstance(call, Call) and isinstance(call.op, Op) else None
    return known is not None and name in ("", known)


def compute_call(call: Call, statements: list[Any], fused: bool) -> Any:
    """Return the result of a call of an elementary function, `fused` as for Vector; intermediate stores are added to `statements`."""
    value, *others = call.args
    made = Elementary(value, statements, fused)
    return made.named(getattr(made, _KNOWN[call.op.name])(*others))
